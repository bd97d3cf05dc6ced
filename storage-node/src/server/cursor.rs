//! Reads and subscriptions. A cursor holds no records: it reads on when it has credit and room, and sleeps on its
//! partition's notification when there is nothing.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId};
use weir_protocol::limits::{READ_RECORDS_MAX, WAIT_MS_MAX};
use weir_protocol::rpc::{
    At, CaughtUp, Credit, Event, Gap, Position, ReadAnswer, ReadRequest, Records, Refusal, Started,
    SubscribeEvent, SubscribeRequest, encode_packet,
};
use weir_transport::{CreditHandle, Reply};

use super::dispatch::decode;
use crate::read::{Allowance, ReadBatches, Reader};
use crate::replica::ShardHandle;

/// Encoded bytes that one step of a subscription reads.
const STEP_BYTES: u64 = 1 << 20;
/// Encoded bytes that one read answers at most, but for a single larger batch.
const READ_BYTES_MAX: u64 = 3 << 20;

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
    let key = (Incarnation(request.incarnation), PartitionId(request.partition));
    let reader = Reader::new(shard, key);
    let from = reader.resolve(request.from, request.clamp)?;
    let until = request.until.map(|until| reader.resolve(until, true)).transpose()?;
    let max_records = u64::from(request.max_records.clamp(1, READ_RECORDS_MAX));
    let deadline = Instant::now() + Duration::from_millis(request.wait_ms.min(WAIT_MS_MAX));
    loop {
        let changed = reader.changed.notified();
        let bounds = reader.bounds()?;
        let end = until.map_or(bounds.end, |until| until.min(bounds.end));
        if from < end {
            let allowance =
                Allowance { records: max_records, bytes: request.max_bytes.clamp(1, READ_BYTES_MAX) };
            let read = reader.read(from, end, allowance).await?;
            let answer = ReadAnswer {
                slices: read.slices.clone(),
                from: from.0,
                next: read.next.0,
                start: bounds.start.0,
                committed_end: bounds.end.0,
                up_to_date: read.next >= bounds.end,
                term: bounds.term,
                closed: bounds.closed,
            };
            return Ok((answer, read));
        }
        let is_over = bounds.closed || call.latest().is_cancelled || until.is_some_and(|until| from >= until);
        let woken = async {
            tokio::select! {
                () = changed => {}
                _ = call.changed() => {}
            }
        };
        if is_over || timeout_at(deadline, woken).await.is_err() {
            let answer = ReadAnswer {
                from: from.0,
                next: from.0,
                start: bounds.start.0,
                committed_end: bounds.end.0,
                up_to_date: from >= bounds.end,
                term: bounds.term,
                closed: bounds.closed,
                ..ReadAnswer::default()
            };
            return Ok((answer, ReadBatches::default()));
        }
    }
}

/// Follows a partition until the caller is gone.
pub(super) async fn subscribe(shard: ShardHandle, body: Bytes, reply: Reply) {
    match follow(shard, body, &reply).await {
        Ok(()) => reply.finish(Vec::new()),
        Err(refusal) => reply.refuse(refusal),
    }
}

async fn follow(shard: ShardHandle, body: Bytes, reply: &Reply) -> Result<(), Refusal> {
    let request: SubscribeRequest = decode(body)?;
    let key = (Incarnation(request.incarnation), PartitionId(request.partition));
    let metrics = shard.shared.metrics().clone();
    let reader = Reader::new(shard, key);
    let mut cursor = Cursor::start(&reader, request.from)?;
    let _counted = metrics.subscription();
    let mut credit = reply.credit();
    let mut limit = request.limit;
    if send(reply, cursor.started(&reader)?).await.is_err() {
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
        // Enabled before the state is read: a change in between is not missed.
        let changed = reader.changed.notified();
        match cursor.step(&reader, limit).await? {
            Step::Send(event, payload) => {
                if reply.send_when_ready(encode_packet(&event, payload)).await.is_err() {
                    return Ok(());
                }
            }
            Step::Again => {}
            Step::Wait => {
                tokio::select! {
                    () = changed => {}
                    _ = credit.changed() => {}
                }
            }
            Step::Over => return Ok(()),
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
    Over,
}

/// Where a subscription is. Records sent never exceed the limit; bytes exceed it by at most one record.
struct Cursor {
    next: Offset,
    sent: Credit,
    was_caught_up: bool,
}

impl Cursor {
    fn start(reader: &Reader, from: Position) -> Result<Self, Refusal> {
        // Below what exists: the gap is told with the first step. Beyond it: refused.
        let next = match (reader.resolve(from, false), from.at) {
            (Err(refusal), Some(At::Offset(offset))) if refusal.error_code() == ErrorCode::OffsetTrimmed => {
                Offset(offset)
            }
            (resolved, _) => resolved?,
        };
        Ok(Self { next, sent: Credit { records: 0, bytes: 0 }, was_caught_up: false })
    }

    fn started(&self, reader: &Reader) -> Result<SubscribeEvent, Refusal> {
        let bounds = reader.bounds()?;
        let started = Started { from: self.next.max(bounds.start).0, tail: bounds.end.0 };
        Ok(SubscribeEvent { event: Some(Event::Started(started)) })
    }

    async fn step(&mut self, reader: &Reader, limit: Credit) -> Result<Step, Refusal> {
        let bounds = reader.bounds()?;
        if self.next < bounds.start {
            let gap = Gap { from: self.next.0, to: bounds.start.0, why: "retention".to_owned() };
            self.next = bounds.start;
            return Ok(Step::Send(SubscribeEvent { event: Some(Event::Gap(gap)) }, Vec::new()));
        }
        if self.next >= bounds.end {
            if !std::mem::replace(&mut self.was_caught_up, true) {
                let caught_up = Event::CaughtUp(CaughtUp { end: bounds.end.0 });
                return Ok(Step::Send(SubscribeEvent { event: Some(caught_up) }, Vec::new()));
            }
            return Ok(if bounds.closed { Step::Over } else { Step::Wait });
        }
        let records = limit.records.saturating_sub(self.sent.records);
        let bytes = limit.bytes.saturating_sub(self.sent.bytes);
        if records == 0 || bytes == 0 {
            return Ok(Step::Wait);
        }
        let allowance = Allowance { records, bytes: bytes.min(STEP_BYTES) };
        let read = match reader.read(self.next, bounds.end, allowance).await {
            // Retention was faster than this reader: the next step tells the gap.
            Err(refusal) if refusal.error_code() == ErrorCode::OffsetTrimmed => return Ok(Step::Again),
            read => read?,
        };
        self.was_caught_up = read.next < bounds.end && self.was_caught_up;
        self.next = read.next;
        self.sent.records += read.records;
        self.sent.bytes += read.bytes;
        let records = Records { slices: read.slices, committed_end: bounds.end.0, term: bounds.term };
        Ok(Step::Send(SubscribeEvent { event: Some(Event::Records(records)) }, read.payload))
    }
}
