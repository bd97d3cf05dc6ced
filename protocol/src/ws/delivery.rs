//! The body of a binary `msgs` frame: batches as they are stored, each with the range of records meant.
//!
//! | size | field | meaning (little-endian) |
//! |-----:|-------|-------------------------|
//! | 8    | term  | only with the `staged` flag: term of the offsets, which are below quorum |
//! | 8    | first | offset of the first record meant |
//! | 4    | take  | number of records meant, at least 1 |
//! | 4    | len   | bytes of the batch |
//! | len  | batch | a placed record batch; it may hold more records than are meant |
//!
//! The last four repeat to the end of the body. Records are numbered from the frame's `arg` on.
//!
//! With the `leased` flag the leases come first, and only the records that they name are meant, of one partition:
//!
//! | size | field   | meaning (little-endian) |
//! |-----:|---------|-------------------------|
//! | 4    | runs    | number of runs, at least 1 |
//! | 4    | name    | bytes of the topic's name; of a subscription to one topic zero |
//! | 8    | first   | offset of the run's first record; each run lies behind the one before and within one range below |
//! | 8    | fence   | fence of the first; the next record has the next one |
//! | 4    | count   | number of records, at least 1 |
//! | 4    | attempt | the how-manieth delivery of each of them, from 1 |
//! | 4    | ms      | how long they are leased from now on |
//! | 4    |         | zero |
//!
//! `first` to the zero behind `ms` are there for every run; then the topic's name, if it is told; then the
//! ranges follow as above.

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{FrameType, Lease, WsError};
use crate::batch::{Batch, BatchError, Record};
use crate::ids::{Name, Offset, Term};
use crate::limits::BATCH_RECORDS_MAX;

/// Bytes in front of each batch.
const SLICE_HEAD_BYTES: usize = 16;
/// Bytes in front of the runs of leases, and of each run.
const RUNS_HEAD_BYTES: usize = 8;
const RUN_BYTES: usize = 32;

/// Records, in order, as ranges of stored batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deliveries {
    /// Delivery number of the first record.
    pub n: u64,
    /// Term of the offsets, if they are below quorum.
    pub staged: Option<Term>,
    /// Leases of the records meant, ascending; empty where nothing is leased and all of `slices` is meant.
    pub leases: Vec<LeaseRun>,
    /// Topic of the leased records; of a subscription to several.
    pub topic: Option<Name>,
    /// The ranges.
    pub slices: Vec<Delivery>,
}

/// Leases of consecutive records, with consecutive fences.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct LeaseRun {
    /// Offset of the first record.
    pub first: Offset,
    /// Its fence.
    pub fence: u64,
    /// How many; at least one.
    pub count: u32,
    /// The how-manieth delivery of each of them.
    pub attempt: u32,
    /// How long they are leased, in milliseconds.
    pub ms: u32,
}

impl LeaseRun {
    /// Offset after the last record.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.first.plus(u64::from(self.count))
    }

    /// The lease of one of its records.
    #[must_use]
    pub fn of(&self, offset: Offset) -> Lease {
        let fence = self.fence + (offset.0 - self.first.0);
        Lease { ms: self.ms.into(), attempt: self.attempt, fence }
    }
}

/// Records `[first, first + take)` of a placed batch.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Delivery {
    /// Offset of the first.
    pub first: Offset,
    /// How many; at least one, and all within the batch.
    pub take: u32,
    /// The batch, as parts that follow each other: as stored, or a stamped header and the shared rest.
    pub batch: [Bytes; 2],
}

impl Delivery {
    /// The batch, checked. Copied only if its parts are apart.
    ///
    /// # Errors
    /// [`BatchError`] if the bytes are no batch.
    pub fn parsed(&self) -> Result<Batch, BatchError> {
        let [head, rest] = &self.batch;
        Batch::parse(match (head.is_empty(), rest.is_empty()) {
            (_, true) => head.clone(),
            (true, false) => rest.clone(),
            _ => [&head[..], rest].concat().into(),
        })
    }

    /// The records meant.
    ///
    /// # Errors
    /// [`BatchError`] if the bytes are no batch; per record if its layout is damaged.
    pub fn records(&self) -> Result<impl Iterator<Item = Result<Record, BatchError>>, BatchError> {
        Ok(self.parsed()?.records()?.within(self.first, self.take))
    }
}

impl Deliveries {
    /// Number of records.
    #[must_use]
    pub fn count(&self) -> u64 {
        if self.leases.is_empty() {
            return self.slices.iter().map(|slice| u64::from(slice.take)).sum();
        }
        self.leases.iter().map(|run| u64::from(run.count)).sum()
    }

    /// The records meant, each with its lease if it has one.
    ///
    /// # Errors
    /// [`BatchError`] if a batch or a record of it is damaged.
    pub fn records(&self) -> Result<Vec<(Record, Option<Lease>)>, BatchError> {
        let mut records = Vec::with_capacity(usize::try_from(self.count()).unwrap_or(0));
        let mut runs = self.leases.iter().copied().peekable();
        for slice in &self.slices {
            for record in slice.records()? {
                let record = record?;
                if self.leases.is_empty() {
                    records.push((record, None));
                } else if let Some(run) = run_of(&mut runs, record.offset) {
                    let lease = run.of(record.offset);
                    records.push((record, Some(lease)));
                }
            }
        }
        Ok(records)
    }

    pub(super) fn body_bytes(&self) -> usize {
        let batches: usize = self.slices.iter().flat_map(|slice| &slice.batch).map(Bytes::len).sum();
        let head = match (self.leases.len(), self.staged) {
            (0, None) => 0,
            (0, Some(_)) => 8,
            (runs, _) => RUNS_HEAD_BYTES + RUN_BYTES * runs + self.topic_text().len(),
        };
        head + batches + SLICE_HEAD_BYTES * self.slices.len()
    }

    fn topic_text(&self) -> &str {
        self.topic.as_ref().map_or("", Name::as_str)
    }

    /// Lays out the body; each batch goes to `put`, behind what stands in front of it.
    pub(super) fn encode(&self, out: &mut BytesMut, mut put: impl FnMut(&mut BytesMut, &Bytes)) {
        if !self.leases.is_empty() {
            out.put_u32_le(u32::try_from(self.leases.len()).expect("as many as fit a message"));
            out.put_u32_le(u32::try_from(self.topic_text().len()).expect("a name is short"));
            for run in &self.leases {
                out.put_u64_le(run.first.0);
                out.put_u64_le(run.fence);
                for field in [run.count, run.attempt, run.ms, 0] {
                    out.put_u32_le(field);
                }
            }
            out.put_slice(self.topic_text().as_bytes());
        } else if let Some(term) = self.staged {
            out.put_u64_le(term.0);
        }
        for Delivery { first, take, batch: [head, rest] } in &self.slices {
            out.put_u64_le(first.0);
            out.put_u32_le(*take);
            out.put_u32_le(u32::try_from(head.len() + rest.len()).expect("a batch's length is a u32"));
            put(out, head);
            put(out, rest);
        }
    }

    /// Takes a body apart. Batches are checked as [`Batch::parse`] does and not copied.
    pub(super) fn decode(n: u64, staged: bool, mut body: Bytes) -> Result<Self, WsError> {
        let staged = match staged {
            true if body.len() < 8 => return Err(malformed()),
            true => Some(Term(body.get_u64_le())),
            false => None,
        };
        let (slices, _) = take_slices(body)?;
        Ok(Self { n, staged, leases: Vec::new(), topic: None, slices })
    }

    /// Takes a body with leases apart, likewise.
    pub(super) fn decode_leased(n: u64, mut body: Bytes) -> Result<Self, WsError> {
        let (leases, topic) = take_runs(&mut body).ok_or_else(malformed)?;
        let (slices, partitions) = take_slices(body)?;
        let is_within = |run: &LeaseRun| {
            let holds = |slice: &Delivery| {
                run.first >= slice.first && run.end() <= slice.first.plus(u64::from(slice.take))
            };
            slices.iter().any(holds)
        };
        let is_ascending = slices.is_sorted_by(|a, b| a.first.plus(u64::from(a.take)) <= b.first);
        if partitions != 1 || !is_ascending || !leases.iter().all(is_within) {
            return Err(malformed());
        }
        Ok(Self { n, staged: None, leases, topic, slices })
    }
}

/// The body of a frame of committed records without leases, laid out once for everybody who is sent it: what differs
/// between readers, channel and number, is in the header alone.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct DeliveriesBody {
    count: u64,
    bytes: Bytes,
}

impl DeliveriesBody {
    /// Lays out `slices`, at least one of them. Their bytes are copied, once.
    #[must_use]
    pub fn of(slices: Vec<Delivery>) -> Self {
        let frame = Deliveries { n: 0, staged: None, leases: Vec::new(), topic: None, slices };
        let mut bytes = BytesMut::with_capacity(frame.body_bytes());
        frame.encode(&mut bytes, |bytes, batch| bytes.put_slice(batch));
        Self { count: frame.count(), bytes: bytes.freeze() }
    }

    /// Number of records.
    #[must_use]
    pub fn count(&self) -> u64 {
        self.count
    }

    /// As it is sent.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// Its batches in order, as parts of the body.
    pub fn batches(&self) -> impl Iterator<Item = Bytes> + '_ {
        let mut rest = self.bytes.clone();
        std::iter::from_fn(move || {
            let head = rest.first_chunk::<SLICE_HEAD_BYTES>()?;
            let [.., a, b, c, d] = *head;
            rest.advance(SLICE_HEAD_BYTES);
            Some(rest.split_to(u32::from_le_bytes([a, b, c, d]) as usize))
        })
    }
}

/// The run that an offset belongs to, of runs that ascend as the offsets asked for do.
pub fn run_of(
    runs: &mut std::iter::Peekable<impl Iterator<Item = LeaseRun>>,
    offset: Offset,
) -> Option<LeaseRun> {
    while runs.next_if(|run| run.end() <= offset).is_some() {}
    runs.peek().filter(|run| run.first <= offset).copied()
}

fn malformed() -> WsError {
    WsError::Body(FrameType::Msgs)
}

/// Runs in front of slices, and the topic; `None` if they are not laid out as the table says.
fn take_runs(body: &mut Bytes) -> Option<(Vec<LeaseRun>, Option<Name>)> {
    if body.len() < RUNS_HEAD_BYTES {
        return None;
    }
    let (count, name_bytes) = (body.get_u32_le() as usize, body.get_u32_le() as usize);
    if count == 0 || name_bytes > Name::MAX_BYTES || count.checked_mul(RUN_BYTES)? > body.len() {
        return None;
    }
    let mut runs: Vec<LeaseRun> = Vec::with_capacity(count);
    for _ in 0..count {
        let (first, fence) = (Offset(body.get_u64_le()), body.get_u64_le());
        let [count, attempt, ms, zero] = [(); 4].map(|()| body.get_u32_le());
        let is_behind = runs.last().is_none_or(|last| last.end() <= first);
        let is_sound = (1..=BATCH_RECORDS_MAX).contains(&count)
            && attempt > 0
            && zero == 0
            && first.0.checked_add(u64::from(count)).is_some()
            && fence.checked_add(u64::from(count)).is_some();
        if !is_sound || !is_behind {
            return None;
        }
        runs.push(LeaseRun { first, fence, count, attempt, ms });
    }
    if name_bytes == 0 {
        return Some((runs, None));
    }
    let name = (body.len() >= name_bytes).then(|| body.split_to(name_bytes))?;
    let topic = Name::new(std::str::from_utf8(&name).ok()?).ok()?;
    Some((runs, Some(topic)))
}

/// Slices to the end of a body, and how many changes of partition there are among them, counted from 1.
fn take_slices(mut body: Bytes) -> Result<(Vec<Delivery>, usize), WsError> {
    let (mut slices, mut partitions, mut last) = (Vec::new(), 0, None);
    while !body.is_empty() {
        if body.len() < SLICE_HEAD_BYTES {
            return Err(malformed());
        }
        let (first, take) = (Offset(body.get_u64_le()), body.get_u32_le());
        let batch_bytes = body.get_u32_le() as usize;
        if take == 0 || take > BATCH_RECORDS_MAX || body.len() < batch_bytes {
            return Err(malformed());
        }
        let batch = Batch::parse(body.split_to(batch_bytes))
            .map_err(|error| WsError::Batch { frame: FrameType::Msgs, error })?;
        let header = batch.header();
        let start = first.0.checked_sub(header.base_offset.0).ok_or_else(malformed)?;
        if start.saturating_add(u64::from(take)) > u64::from(header.count) {
            return Err(malformed());
        }
        partitions += usize::from(last.replace(header.partition) != Some(header.partition));
        slices.push(Delivery { first, take, batch: [batch.bytes().clone(), Bytes::new()] });
    }
    if slices.is_empty() { Err(malformed()) } else { Ok((slices, partitions)) }
}
