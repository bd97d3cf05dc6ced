//! Publishing: checks what came, takes a permit or refuses, hands it to the shard's proposer.

use std::cmp::Ordering;
use std::sync::Arc;
use std::time::Instant;

use bytes::Bytes;
use prost::Message as _;
use weir_journal::Class;
use weir_protocol::batch::Batch;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId};
use weir_protocol::rpc::{
    Body, Level, Packet, PublishAnswer, PublishItem, PublishRequest, PublishResult, Refusal, Stages,
};
use weir_transport::Reply;

use super::room::Room;
use crate::replica::proposal::{Change, Outcomes, Proposal, Waiter};
use crate::replica::{Sender, ShardHandle, ShardShared};
use crate::shard::entry::{ENTRY_OVERHEAD_BYTES, Idempotency, Kind, SUB_BATCHES_BYTES_MAX, SubBatch};
use crate::shard::state::{PartitionKey, Verdict};

/// Answers one publish call, at every level it asks for, lowest first. Nothing is queued before it is admitted.
///
/// `memory` is answered when the entry is on its way to the journal, with an offset that holds unless the term is
/// lost; `durable` and `quorum` when it is applied: with one voter the same sync reaches both.
pub(super) fn publish(
    shard: &ShardHandle,
    room: &Room,
    sender: Sender,
    is_synced: bool,
    (body, received): (Body, Instant),
    reply: Reply,
) {
    let metrics = shard.shared.metrics();
    let refuse = |reply: Reply, refusal: Refusal| {
        metrics.refused(refusal.error_code());
        reply.refuse(refusal);
    };
    let (levels, changes) = match prepare(shard, body).and_then(|ready| reachable(ready, is_synced)) {
        Ok(prepared) => prepared,
        Err(refusal) => return refuse(reply, refusal),
    };
    let bytes: usize =
        changes.iter().map(|change| change.sub.encoded_bytes()).sum::<usize>() + ENTRY_OVERHEAD_BYTES;
    if let Some(failure) = shard.journal.failure() {
        return refuse(reply, Refusal::new(ErrorCode::StorageFailed, failure.to_string()));
    }
    let permit = match shard.journal.try_admit(bytes as u64, Class::Data) {
        Ok(permit) => permit,
        Err(full) => return refuse(reply, room.refusal(full)),
    };
    let counted = changes.iter().map(Counted::of).collect();
    let call = PublishCall { reply: Some(reply), levels, counted, shared: Arc::clone(&shard.shared) };
    shard.propose(Proposal::new(Some(sender), changes, permit, received, Box::new(call)));
}

/// Without an object store nothing is ever archived.
pub(super) const NOT_ARCHIVED_HERE: &str =
    "this node has no object store to archive to: start it with --object-store, or ask for quorum";

fn reachable((levels, changes): (u32, Vec<Change>), is_synced: bool) -> Result<(u32, Vec<Change>), Refusal> {
    let detail = if levels & Level::Archived.bit() != 0 {
        "a publish is answered up to quorum; whoever waits for archived asks for the record's level"
    } else if levels & (Level::Durable.bit() | Level::Quorum.bit()) != 0 && !is_synced {
        "this node syncs nothing: at most memory"
    } else {
        return Ok((levels, changes));
    };
    Err(Refusal::new(ErrorCode::LevelUnavailable, detail))
}

/// What is counted of a batch once it is confirmed.
struct Counted {
    key: PartitionKey,
    records: u32,
    bytes: usize,
}

impl Counted {
    fn of(change: &Change) -> Self {
        Self {
            key: (change.sub.incarnation, change.sub.partition),
            records: change.header.map_or(0, |header| header.count),
            bytes: change.sub.body.len(),
        }
    }
}

/// A publish call that waits for its entry.
struct PublishCall {
    /// Taken by the last answer.
    reply: Option<Reply>,
    /// Levels that are still to be answered; empty: one answer once staged.
    levels: u32,
    counted: Vec<Counted>,
    shared: Arc<ShardShared>,
}

impl PublishCall {
    fn is_early(&self) -> bool {
        self.levels == 0 || self.levels & Level::Memory.bit() != 0
    }

    /// Answers at the lowest level that is asked for and not above `reached`; the last answer ends the call.
    fn answer(&mut self, reached: Level, verdicts: &[Verdict], stages: Option<Stages>) {
        let asked = [Level::Memory, Level::Durable, Level::Quorum];
        let due = asked.into_iter().filter(|level| *level <= reached && self.levels & level.bit() != 0);
        let mut due: Vec<Level> = due.collect();
        if self.levels == 0 {
            due.push(Level::Unset);
        }
        let results: Vec<PublishResult> = verdicts.iter().map(result).collect();
        for level in due {
            self.levels &= !level.bit();
            let answer = PublishAnswer { level: level as i32, results: results.clone(), stages };
            let message = vec![Bytes::from(answer.encode_to_vec())];
            self.shared.metrics().confirmed(level);
            if self.levels & !Level::None.bit() & !Level::Unset.bit() == 0 {
                if let Some(reply) = self.reply.take() {
                    reply.finish(message);
                }
            } else if let Some(reply) = &self.reply {
                reply.send(message);
            }
        }
    }

    fn count(&self, verdicts: &[Verdict]) {
        let now = Instant::now();
        for (counted, verdict) in self.counted.iter().zip(verdicts) {
            match verdict {
                Verdict::Placed(placed) if !placed.duplicate => {
                    self.shared.published(counted.key, counted.records, counted.bytes, now);
                }
                Verdict::Refused(refusal) => self.shared.metrics().refused(refusal.error_code()),
                _ => {}
            }
        }
    }
}

impl Waiter for PublishCall {
    fn wants_staged(&self) -> bool {
        self.is_early()
    }

    fn staged(&mut self, verdicts: &[Verdict]) {
        self.answer(Level::Memory, verdicts, None);
    }

    fn done(mut self: Box<Self>, outcomes: Outcomes) {
        match outcomes {
            Ok((verdicts, stages)) => {
                self.count(&verdicts);
                self.shared.metrics().stages(&stages);
                if self.reply.is_some() {
                    self.answer(Level::Quorum, &verdicts, Some(stages));
                }
            }
            Err(refusal) => {
                self.shared.metrics().refused(refusal.error_code());
                if let Some(reply) = self.reply.take() {
                    reply.refuse(refusal);
                }
            }
        }
    }
}

fn prepare(shard: &ShardHandle, body: Body) -> Result<(u32, Vec<Change>), Refusal> {
    let packet = Packet::<PublishRequest>::decode(body)
        .map_err(|error| Refusal::new(ErrorCode::Malformed, error.to_string()))?;
    let mut payload = packet.payload;
    let mut changes = Vec::with_capacity(packet.message.items.len());
    for item in &packet.message.items {
        changes.push(change(item, &mut payload)?);
    }
    if changes.is_empty() || !payload.is_empty() {
        return Err(Refusal::new(ErrorCode::Malformed, "items and payload do not match"));
    }
    fits_entry(changes.iter().map(|change| &change.sub))?;
    for item in &packet.message.items {
        check_version(shard, item)?;
    }
    Ok((packet.message.levels, changes))
}

/// Refuses what no entry can carry: it would stop the shard.
pub(super) fn fits_entry<'a>(subs: impl Iterator<Item = &'a SubBatch>) -> Result<(), Refusal> {
    let bytes: usize = subs.map(SubBatch::encoded_bytes).sum();
    if bytes <= SUB_BATCHES_BYTES_MAX {
        return Ok(());
    }
    let detail = format!("{bytes} bytes with headers in one call; {SUB_BATCHES_BYTES_MAX} are allowed");
    Err(Refusal::new(ErrorCode::TooLarge, detail))
}

/// A sender that acted on an older configuration refreshes it first. One that knows a newer one is ahead of this
/// partition, which hears of it soon. Zero: the sender does not care.
fn check_version(shard: &ShardHandle, item: &PublishItem) -> Result<(), Refusal> {
    let state = shard.state.read();
    let key = (Incarnation(item.incarnation), PartitionId(item.partition));
    // A partition that does not exist is refused in order, by the proposer.
    let Ok(partition) = state.partition(key) else { return Ok(()) };
    let known = partition.version.0;
    let code = match item.config_version.cmp(&known) {
        _ if item.config_version == 0 => return Ok(()),
        Ordering::Equal => return Ok(()),
        Ordering::Less => ErrorCode::ConfigStale,
        Ordering::Greater => ErrorCode::ConfigBehind,
    };
    let detail = format!("the configuration is at version {known}, not at {}", item.config_version);
    let (config_version, incarnation) = (Some(known), Some(item.incarnation));
    Err(Refusal { config_version, incarnation, ..Refusal::new(code, detail) })
}

/// One item. Its batch's checksum is verified here, once, and by every reader; records were walked by the gateway.
fn change(item: &PublishItem, payload: &mut Body) -> Result<Change, Refusal> {
    let refuse = |detail: String| Refusal::new(ErrorCode::InvalidBatch, detail);
    if payload.len() < item.batch_bytes as usize {
        return Err(refuse("the payload is shorter than its items say".to_owned()));
    }
    let batch = Batch::parse(payload.split_to(item.batch_bytes as usize))
        .map_err(|error| refuse(error.to_string()))?;
    if batch.header().left.is_some() {
        return Err(refuse("a published batch has no holes".to_owned()));
    }
    let sub = SubBatch {
        incarnation: Incarnation(item.incarnation),
        partition: PartitionId(item.partition),
        kind: Kind::Publish,
        expected_end: item.expected_end.map(Offset),
        idempotency: item
            .idempotency
            .map(|used| Idempotency { key: used.key.into(), fingerprint: used.fingerprint.into() }),
        across: None,
        body: batch.unplaced().bytes().clone(),
    };
    Ok(Change { sub, header: Some(batch.header()) })
}

fn result(verdict: &Verdict) -> PublishResult {
    match verdict {
        Verdict::Placed(placed) => PublishResult { placed: Some(*placed), refused: None },
        Verdict::Refused(refusal) => PublishResult { placed: None, refused: Some(refusal.clone()) },
        other => {
            let refusal = Refusal::new(ErrorCode::Internal, format!("a publish was answered with {other:?}"));
            PublishResult { placed: None, refused: Some(refusal) }
        }
    }
}
