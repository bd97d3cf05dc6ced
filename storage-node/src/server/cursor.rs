//! Reads and subscriptions. A cursor holds no records: it reads on when it has credit and room, and sleeps on its
//! partition's notification when there is nothing.

use std::ops::Range;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use tokio::sync::futures::OwnedNotified;
use tokio::time::{Instant, timeout_at};
use weir_protocol::error::ErrorCode;
use weir_protocol::filter::Filter;
use weir_protocol::frame::BODY_BYTES_MAX;
use weir_protocol::ids::{Incarnation, Offset, PartitionId};
use weir_protocol::limits::{BATCH_BYTES_MAX, READ_RECORDS_MAX, WAIT_MS_MAX};
use weir_protocol::rpc::{
    At, CaughtUp, Credit, Event, Gap, Level, Looked, Position, ReadAnswer, ReadRequest, Records, Refusal,
    Retract, Started, SubscribeEvent, SubscribeRequest, encode_packet,
};
use weir_transport::{CreditHandle, Reply};

use super::decode::decode;
use super::sent::Sent;
use crate::read::{Allowance, Bounds, EarlyReader, ReadBatches, Reader, parse_filter};
use crate::replica::ShardHandle;

/// Encoded bytes that one step of a subscription reads.
const STEP_BYTES: u64 = 1 << 20;
/// Encoded bytes that one read answers at most, but for a single larger batch.
const READ_BYTES_MAX: u64 = 3 << 20;
/// What a filter looks at for one answer: records, and their encoded bytes. Then it says how far it came. Of reads that
/// answer one request together each has its share, but at least one step.
const FILTER_RECORDS_MAX: u64 = 32_768;
const FILTER_BYTES_MAX: u64 = 16 << 20;
/// Steps that pass over dropped records for one answer, shared in the same way: each loads batches of which
/// little is left.
const HOLE_STEPS_MAX: u32 = 64;
/// With more found than this no further step is taken, so that a frame holds what one may add.
const FILTER_PAYLOAD_BYTES: usize = 512 << 10;
/// A follower with a filter is told how far it is after so many records of which none matched.
const LOOKED_RECORDS: u64 = 4_096;

const _: () =
    assert!(FILTER_PAYLOAD_BYTES + BATCH_BYTES_MAX + (256 << 10) < BODY_BYTES_MAX, "a frame holds an answer");

/// Answers one read, waiting for records if asked to: as long as somebody wants them and the node does not drain.
pub(super) async fn read(shard: ShardHandle, body: Bytes, reply: Reply) {
    match read_once(shard, body, reply.credit()).await {
        Ok((answer, read)) => {
            let segments = encode_packet(&answer, read.payload);
            if reply.finish_when_ready(segments).await.is_err() {
                tracing::debug!("a reader went away before its answer");
            }
        }
        Err(refusal) => reply.refuse(refusal),
    }
}

async fn read_once(
    shard: ShardHandle,
    body: Bytes,
    mut call: CreditHandle,
) -> Result<(ReadAnswer, ReadBatches), Refusal> {
    let request: ReadRequest = decode(body)?;
    let filter = parse_filter(request.filter.as_deref())?;
    let key = (Incarnation(request.incarnation), PartitionId(request.partition));
    let reader = Reader::new(shard, key);
    let mut from = reader.resolve(request.from, request.clamp)?;
    let until = request.until.map(|until| reader.resolve(until, true)).transpose()?;
    let allowance = Allowance {
        records: u64::from(request.max_records.clamp(1, READ_RECORDS_MAX)),
        bytes: request.max_bytes.clamp(1, READ_BYTES_MAX),
    };
    let deadline = Instant::now() + Duration::from_millis(request.wait_ms.min(WAIT_MS_MAX));
    let mut search = Search::new(allowance, request.filter_share);
    let mut read = ReadBatches { next: from, ..ReadBatches::default() };
    let bounds = loop {
        let changed = reader.changed.notified();
        let bounds = reader.bounds()?;
        // Where a time is may be known only when a message has come that is not older.
        if is_of_time(&request.from) && read.records == 0 && read.next == from {
            from = reader.resolve(request.from, true)?;
            read.next = from;
        }
        let end = until.map_or(bounds.end, |until| until.min(bounds.end));
        if read.next < end {
            match search.step(&reader, filter.as_ref(), read.next..end).await {
                Ok(found) => read.append(found),
                // Retention was faster: who found something has an answer, and who clamps wants what is left.
                Err(refusal) if refusal.error_code() == ErrorCode::OffsetTrimmed && read.records > 0 => {
                    break bounds;
                }
                Err(refusal) if refusal.error_code() == ErrorCode::OffsetTrimmed && request.clamp => {
                    from = reader.resolve(At::Offset(read.next.0).into(), true)?;
                    read.next = from;
                    continue;
                }
                Err(refusal) => return Err(refusal),
            }
            // Without a filter it goes on only where nothing is left.
            let is_done = search.is_over() || (filter.is_none() && read.records > 0);
            if is_done || call.latest().is_cancelled {
                break bounds;
            }
            continue;
        }
        let is_over = read.records > 0
            || bounds.closed
            || call.latest().is_cancelled
            || until.is_some_and(|until| read.next >= until);
        let woken = async {
            tokio::select! {
                () = changed => {}
                _ = call.changed() => {}
            }
        };
        if is_over || timeout_at(deadline, woken).await.is_err() {
            break bounds;
        }
    };
    Ok((answer_of(bounds, from, &read), read))
}

fn is_of_time(position: &Position) -> bool {
    matches!(position.at, Some(At::TimestampMs(_)))
}

fn answer_of(bounds: Bounds, from: Offset, read: &ReadBatches) -> ReadAnswer {
    ReadAnswer {
        slices: read.slices.clone(),
        from: from.0,
        next: read.next.0,
        start: bounds.start.0,
        committed_end: bounds.end.0,
        up_to_date: read.next >= bounds.end,
        term: bounds.term,
        closed: bounds.closed,
        compacted_to: bounds.compacted_to.0,
    }
}

/// What a filter, or passing over what was dropped, may still do for one answer.
struct Search {
    /// What may be found.
    left: Allowance,
    /// What may be looked at.
    looks: Allowance,
    hole_steps: u32,
    payload_bytes: usize,
}

impl Search {
    fn new(left: Allowance, share: u32) -> Self {
        let hole_steps = (HOLE_STEPS_MAX / share.max(1)).max(1);
        let share = u64::from(share.max(1));
        let looks = Allowance { records: FILTER_RECORDS_MAX / share, bytes: FILTER_BYTES_MAX / share };
        Self { left, looks, hole_steps, payload_bytes: 0 }
    }

    /// One step: what matches, or all of it.
    async fn step(
        &mut self,
        reader: &Reader,
        filter: Option<&Filter>,
        range: Range<Offset>,
    ) -> Result<ReadBatches, Refusal> {
        // Nothing is read on for this answer once that is used up.
        reader.may_give(self.left);
        let Some(filter) = filter else {
            let read = reader.read(range.start, range.end, self.left).await?;
            self.looked(read.next.0 - range.start.0, (read.records, read.bytes));
            return Ok(read);
        };
        let found = reader.read_filtered(filter, (range.start, range.end), self.left).await?;
        self.looked(found.read.next.0 - range.start.0, (found.records, found.bytes));
        self.left = less(self.left, found.read.records, found.read.bytes);
        self.payload_bytes += found.read.payload.iter().map(Bytes::len).sum::<usize>();
        Ok(found.read)
    }

    /// A step came on by so many offsets and looked at so many records. What was dropped costs as much as
    /// what was looked at, in offsets and in steps: a hole has no other bound.
    fn looked(&mut self, passed: u64, (records, bytes): (u64, u64)) {
        self.looks = less(self.looks, passed.max(records), bytes);
        self.hole_steps = self.hole_steps.saturating_sub(u32::from(records < passed));
    }

    fn is_over(&self) -> bool {
        let is_spent = |of: Allowance| of.records == 0 || of.bytes == 0;
        is_spent(self.left)
            || is_spent(self.looks)
            || self.hole_steps == 0
            || self.payload_bytes > FILTER_PAYLOAD_BYTES
    }
}

fn less(of: Allowance, records: u64, bytes: u64) -> Allowance {
    Allowance { records: of.records.saturating_sub(records), bytes: of.bytes.saturating_sub(bytes) }
}

/// What a caller follows, and how. In a place of its own: nothing of it is moved about while somebody waits.
struct Followed {
    reader: Reader,
    filter: Option<Filter>,
    request: SubscribeRequest,
}

impl Followed {
    fn open(shard: ShardHandle, body: Bytes) -> Result<Box<Self>, Refusal> {
        let request: SubscribeRequest = decode(body)?;
        let key = (Incarnation(request.incarnation), PartitionId(request.partition));
        let filter = parse_filter(request.filter.as_deref())?;
        Ok(Box::new(Self { reader: Reader::new(shard, key), filter, request }))
    }
}

/// Follows a partition until the caller is gone; `None` if it was refused at once.
pub(super) fn subscribe(
    shard: ShardHandle,
    body: Bytes,
    reply: Reply,
) -> Option<impl Future<Output = ()> + Send + 'static> {
    let followed = match Followed::open(shard, body) {
        Ok(followed) => followed,
        Err(refusal) => {
            reply.refuse(refusal);
            return None;
        }
    };
    Some(async move {
        match follow(&followed, &reply).await {
            Ok(()) => reply.finish(Vec::new()),
            Err(refusal) => reply.refuse(refusal),
        }
    })
}

async fn follow(followed: &Followed, reply: &Reply) -> Result<(), Refusal> {
    let Followed { reader, filter, request } = followed;
    let mut cursor = Cursor::start(reader, request, filter.as_ref())?;
    let mut limit = request.limit;
    let (mut reach_bytes, mut reach_records) = (request.reach_bytes, request.reach_records);
    let _counted = reader.counted();
    let mut credit = reply.credit();
    if send(reply, cursor.started()?).await.is_err() {
        return Ok(());
    }
    loop {
        let state = credit.latest();
        if state.is_cancelled {
            return Ok(());
        }
        limit = Credit {
            records: limit.records.max(state.credit.records),
            bytes: limit.bytes.max(state.credit.bytes),
        };
        reach_bytes = reach_bytes.max(state.reach_bytes);
        reach_records = reach_records.max(state.reach_records);
        // Enabled before the state is read: a change in between is not missed.
        let changed = reader.changed.notified();
        let staged = cursor.early.as_ref().map(|early| Arc::clone(&early.watch.changed).notified_owned());
        cursor.may_give(limit, (reach_records, reach_bytes));
        match cursor.step(limit).await? {
            Step::Send(event, payload) => {
                if reply.send_when_ready(encode_packet(&event, payload)).await.is_err() {
                    return Ok(());
                }
            }
            Step::Again => {}
            Step::Wait => {
                tokio::select! {
                    () = changed => {}
                    () = Cursor::staged(staged) => {}
                    _ = credit.changed() => {}
                }
            }
        }
    }
}

async fn send(reply: &Reply, event: SubscribeEvent) -> Result<(), weir_transport::ConnectionClosed> {
    reply.send_when_ready(encode_packet(&event, [])).await
}

enum Step {
    Send(SubscribeEvent, Vec<Bytes>),
    Again,
    Wait,
}

impl Step {
    fn event(event: Event) -> Self {
        Self::Send(SubscribeEvent { event: Some(event) }, Vec::new())
    }

    fn records(read: ReadBatches, records: Records) -> Self {
        let records = Records { slices: read.slices, ..records };
        Self::Send(SubscribeEvent { event: Some(Event::Records(records)) }, read.payload)
    }
}

/// Where a subscription is. Records sent never exceed the limit; bytes exceed it by at most one record.
struct Cursor<'a> {
    reader: &'a Reader,
    next: Offset,
    sent: Credit,
    was_caught_up: bool,
    /// It was told so of a closed topic.
    was_closed: bool,
    /// Records say themselves that they were all.
    joins_caught_up: bool,
    /// A reader that resumed has seen what may be lost: told first.
    retract: Option<Retract>,
    /// It does not wait for the commit.
    early: Option<EarlyReader<'a>>,
    /// What it knows then of what it was sent.
    known: Sent,
    /// It wants nothing else.
    filter: Option<&'a Filter>,
    /// How far it was told, by records or otherwise, that it is.
    told: Offset,
}

impl<'a> Cursor<'a> {
    fn start(
        reader: &'a Reader,
        request: &SubscribeRequest,
        filter: Option<&'a Filter>,
    ) -> Result<Self, Refusal> {
        let is_early = request.min_level() == Level::Memory;
        let early = is_early.then(|| EarlyReader::new(reader));
        let sent = Credit { records: 0, bytes: 0 };
        let cursor = Self {
            reader,
            next: Offset(0),
            sent,
            was_caught_up: false,
            was_closed: false,
            joins_caught_up: request.joins_caught_up && !is_early && filter.is_none(),
            retract: None,
            early,
            known: Sent::default(),
            filter,
            told: Offset(0),
        };
        match (request.seen_term, request.from.at) {
            (Some(term), Some(At::Offset(next))) if next > request.firm_end => {
                cursor.resume((Offset(request.firm_end), Offset(next), term), is_early)
            }
            _ => cursor.begin(request.from),
        }
    }

    fn begin(self, from: Position) -> Result<Self, Refusal> {
        // Below what exists: the gap is told with the first step. Beyond it: refused.
        let next = match (self.reader.resolve(from, false), from.at) {
            (Err(refusal), Some(At::Offset(offset))) if refusal.error_code() == ErrorCode::OffsetTrimmed => {
                Offset(offset)
            }
            (resolved, _) => resolved?,
        };
        Ok(Self { next, told: next, known: Sent { firm: next, ..self.known }, ..self })
    }

    /// Goes on behind what was seen in `term`, or takes back what is not `firm` of it.
    fn resume(self, (firm, next, term): (Offset, Offset, u64), is_early: bool) -> Result<Self, Refusal> {
        if let Some(losses) = self.reader.holds(next, term, is_early)? {
            return Ok(Self { next, told: next, known: Sent { firm, losses, term }, ..self });
        }
        self.reader.retracted();
        let retract = Some(Retract { from: firm.0, to: next.0, term });
        Ok(Self { retract, ..self.begin(At::Offset(firm.0).into())? })
    }

    fn started(&self) -> Result<SubscribeEvent, Refusal> {
        let bounds = self.reader.bounds()?;
        let started = Started { from: self.next.max(bounds.start).0, tail: bounds.end.0 };
        Ok(SubscribeEvent { event: Some(Event::Started(started)) })
    }

    /// How far it may be read ahead: the limit may be a window, behind which more of the reader's credit
    /// follows. One of bytes is read in any case; one of records may be no limit at all, as of several
    /// partitions.
    fn may_give(&self, limit: Credit, (reach_records, reach_bytes): (Option<u64>, Option<u64>)) {
        let bytes = reach_bytes.map(|reach| reach.max(limit.bytes).saturating_sub(self.sent.bytes));
        let records = reach_records.unwrap_or(limit.records).saturating_sub(self.sent.records);
        self.reader.may_give(Allowance { records, bytes: bytes.unwrap_or(u64::MAX) });
    }

    async fn step(&mut self, limit: Credit) -> Result<Step, Refusal> {
        if let Some(retract) = self.retract.take() {
            return Ok(Step::event(Event::Retract(retract)));
        }
        let left = Allowance {
            records: limit.records.saturating_sub(self.sent.records),
            bytes: limit.bytes.saturating_sub(self.sent.bytes).min(STEP_BYTES),
        };
        let (bounds, staged) = match &self.early {
            None => (self.reader.bounds()?, Vec::new()),
            Some(early) => {
                let (bounds, look) = early.look(self.next, left.bytes)?;
                if let Some(event) = self.known.news(&mut self.next, bounds.end, &look) {
                    if matches!(event, Event::Retract(_)) {
                        self.reader.retracted();
                        self.told = self.next;
                    }
                    return Ok(Step::event(event));
                }
                (bounds, look.batches)
            }
        };
        if self.next < bounds.start {
            let gap = Gap { from: self.next.0, to: bounds.start.0, why: "retention".to_owned() };
            (self.next, self.told) = (bounds.start, bounds.start);
            return Ok(Step::event(Event::Gap(gap)));
        }
        if self.next < bounds.end {
            // Boxed: reading holds several times what waiting does, and whoever follows mostly waits.
            return Box::pin(self.committed(bounds, left)).await;
        }
        // The end of what is committed, which an early reader may have passed.
        // A closed topic may be opened again, so whoever is there waits like any other, and is told of either.
        let is_told = self.was_caught_up && self.was_closed == bounds.closed;
        if self.next == bounds.end && !is_told {
            (self.was_caught_up, self.was_closed) = (true, bounds.closed);
            self.told = self.next;
            let caught_up = CaughtUp { end: bounds.end.0, closed: bounds.closed };
            return Ok(Step::event(Event::CaughtUp(caught_up)));
        }
        match &self.early {
            Some(early) if !staged.is_empty() && left.records > 0 && left.bytes > 0 => {
                let read = match self.filter {
                    None => early.read(staged, self.next, left)?,
                    Some(filter) => early.read_filtered(filter, staged, self.next, left)?.read,
                };
                self.took(&read);
                Ok(self.records_or_again(read, bounds.end, self.known.term))
            }
            _ => Ok(Step::Wait),
        }
    }

    async fn committed(&mut self, bounds: Bounds, left: Allowance) -> Result<Step, Refusal> {
        if left.records == 0 || left.bytes == 0 {
            return Ok(Step::Wait);
        }
        let read = match self.filter {
            None => self.reader.read(self.next, bounds.end, left).await,
            Some(filter) => {
                let found = self.reader.read_filtered(filter, (self.next, bounds.end), left).await;
                found.map(|found| found.read)
            }
        };
        let read = match read {
            // Retention was faster than this reader: the next step tells the gap.
            Err(refusal) if refusal.error_code() == ErrorCode::OffsetTrimmed => return Ok(Step::Again),
            read => read?,
        };
        // Who is sent nothing is not told again that this was all.
        self.was_caught_up &= match self.filter {
            None => read.next < bounds.end,
            Some(_) => read.records == 0,
        };
        self.took(&read);
        self.known.firm = self.next;
        if self.joins_caught_up && read.records > 0 && self.next == bounds.end && !bounds.closed {
            (self.was_caught_up, self.was_closed) = (true, false);
            let records = self.told_of(&read, bounds.end, bounds.term);
            return Ok(Step::records(read, Records { is_caught_up: true, ..records }));
        }
        if read.records == 0 && self.next.0.saturating_sub(self.told.0) >= LOOKED_RECORDS {
            self.told = self.next;
            return Ok(Step::event(Event::Looked(Looked { upto: self.next.0 })));
        }
        Ok(self.records_or_again(read, bounds.end, bounds.term))
    }

    /// Sends what was found, unless a filter kept all of it back.
    fn records_or_again(&mut self, read: ReadBatches, committed_end: Offset, term: u64) -> Step {
        if read.records == 0 {
            return Step::Again;
        }
        let records = self.told_of(&read, committed_end, term);
        Step::records(read, records)
    }

    /// What goes with records, all of which it is told of now. What a filter kept back is no hole.
    fn told_of(&mut self, read: &ReadBatches, committed_end: Offset, term: u64) -> Records {
        let has_holes = self.filter.is_none() && read.holes(self.told).next().is_some();
        self.told = self.next;
        let next = if has_holes { self.next.0 } else { 0 };
        Records { committed_end: committed_end.0, term, next, ..Records::default() }
    }

    fn took(&mut self, read: &ReadBatches) {
        self.next = read.next;
        self.sent.records += read.records;
        self.sent.bytes += read.bytes;
    }

    /// Ends when something was staged or lost; never for a reader that waits for the commit.
    async fn staged(early: Option<OwnedNotified>) {
        match early {
            Some(changed) => changed.await,
            None => std::future::pending().await,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn one_answer_takes_so_many_steps_through_holes_and_passes_so_many_offsets() {
        let steps_until_over = |share: u32, passed: u64, looked: (u64, u64)| {
            let mut search = Search::new(Allowance { records: 10, bytes: 1 << 20 }, share);
            (1..=100_000).find(|_| {
                search.looked(passed, looked);
                search.is_over()
            })
        };
        assert_eq!(steps_until_over(1, 1, (0, 0)), Some(64), "a large batch each, of which nothing is left");
        assert_eq!(steps_until_over(16, 1, (0, 0)), Some(4), "of the share of one of many");
        assert_eq!(steps_until_over(1, 10_000, (1, 100)), Some(4));
        assert_eq!(
            steps_until_over(1, 1, (1, 100)),
            Some(32_768),
            "where nothing was dropped only that counts"
        );
    }
}
