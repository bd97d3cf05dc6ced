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

use bytes::{Buf, BufMut, Bytes, BytesMut};

use super::{FrameType, WsError};
use crate::batch::{Batch, BatchError, Record};
use crate::ids::{Offset, Term};
use crate::limits::BATCH_RECORDS_MAX;

/// Bytes in front of each batch.
const SLICE_HEAD_BYTES: usize = 16;

/// Records, in order, as ranges of stored batches.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Deliveries {
    /// Delivery number of the first record.
    pub n: u64,
    /// Term of the offsets, if they are below quorum.
    pub staged: Option<Term>,
    /// The ranges.
    pub slices: Vec<Delivery>,
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
        self.slices.iter().map(|slice| u64::from(slice.take)).sum()
    }

    pub(super) fn body_bytes(&self) -> usize {
        let batches: usize = self.slices.iter().flat_map(|slice| &slice.batch).map(Bytes::len).sum();
        batches + SLICE_HEAD_BYTES * self.slices.len() + if self.staged.is_some() { 8 } else { 0 }
    }

    pub(super) fn encode(&self, out: &mut BytesMut) {
        if let Some(term) = self.staged {
            out.put_u64_le(term.0);
        }
        for Delivery { first, take, batch: [head, rest] } in &self.slices {
            out.put_u64_le(first.0);
            out.put_u32_le(*take);
            out.put_u32_le(u32::try_from(head.len() + rest.len()).expect("a batch's length is a u32"));
            out.put_slice(head);
            out.put_slice(rest);
        }
    }

    /// Takes a body apart. Batches are checked as [`Batch::parse`] does and not copied.
    pub(super) fn decode(n: u64, staged: bool, mut body: Bytes) -> Result<Self, WsError> {
        let malformed = || WsError::Body(FrameType::Msgs);
        let staged = match staged {
            true if body.len() < 8 => return Err(malformed()),
            true => Some(Term(body.get_u64_le())),
            false => None,
        };
        let mut slices = Vec::new();
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
            let base = batch.header().base_offset.0;
            let start = first.0.checked_sub(base).ok_or_else(malformed)?;
            if start.saturating_add(u64::from(take)) > u64::from(batch.header().count) {
                return Err(malformed());
            }
            slices.push(Delivery { first, take, batch: [batch.bytes().clone(), Bytes::new()] });
        }
        if slices.is_empty() { Err(malformed()) } else { Ok(Self { n, staged, slices }) }
    }
}
