//! Publishing: checks what came, takes a permit or refuses, hands it to the shard's proposer.

use std::time::Instant;

use bytes::Bytes;
use prost::Message as _;
use weir_journal::{Class, Full};
use weir_protocol::batch::Batch;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId};
use weir_protocol::limits::ENTRY_BYTES_MAX;
use weir_protocol::rpc::{
    Level, Packet, PublishAnswer, PublishItem, PublishRequest, PublishResult, Refusal, Stages,
};
use weir_transport::Reply;

use crate::replica::ShardHandle;
use crate::replica::proposer::Proposal;
use crate::shard::entry::{Idempotency, Kind, SubBatch};
use crate::shard::state::Verdict;

/// Bytes an entry takes besides its sub-batches, with room to spare.
const ENTRY_OVERHEAD_BYTES: usize = 4 << 10;

/// Answers one publish call, at every level it asks for.
///
/// Nothing is queued before it is admitted. All levels of a single voter are reached by the same sync, so they are
/// answered together, once the entry is applied: a confirm at `memory` is then better than asked for.
pub(super) fn publish(
    shard: &ShardHandle,
    is_synced: bool,
    (body, received): (Bytes, Instant),
    reply: Reply,
) {
    let prepared = prepare(body).and_then(|(levels, subs)| {
        let above_memory = levels & !(Level::Memory.bit() | Level::None.bit()) != 0;
        if levels & Level::Archived.bit() != 0 || (above_memory && !is_synced) {
            let detail = if is_synced {
                "archived needs object storage"
            } else {
                "this node syncs nothing: at most memory"
            };
            return Err(Refusal::new(ErrorCode::LevelUnavailable, detail));
        }
        Ok((levels, subs))
    });
    let (levels, subs) = match prepared {
        Ok(prepared) => prepared,
        Err(refusal) => return reply.refuse(refusal),
    };
    let bytes: usize = subs.iter().map(SubBatch::encoded_bytes).sum::<usize>() + ENTRY_OVERHEAD_BYTES;
    let permit = match shard.journal.try_admit(bytes as u64, Class::Data) {
        Ok(permit) => permit,
        Err(full) => return reply.refuse(full_refusal(shard, full)),
    };
    let answer = move |outcomes: Result<(Vec<Verdict>, Stages), Refusal>| match outcomes {
        Ok((verdicts, stages)) => {
            let results: Vec<_> = verdicts.into_iter().map(result).collect();
            send(reply, levels, &results, stages);
        }
        Err(refusal) => reply.refuse(refusal),
    };
    shard.propose(Proposal::new(subs, permit, received, Box::new(answer)));
}

fn prepare(body: Bytes) -> Result<(u32, Vec<SubBatch>), Refusal> {
    let packet = Packet::<PublishRequest>::decode(body)
        .map_err(|error| Refusal::new(ErrorCode::Malformed, error.to_string()))?;
    let mut payload = packet.payload;
    if payload.len() > ENTRY_BYTES_MAX - ENTRY_OVERHEAD_BYTES {
        let detail = format!("{} bytes in one call; {} are allowed", payload.len(), ENTRY_BYTES_MAX);
        return Err(Refusal::new(ErrorCode::TooLarge, detail));
    }
    let mut subs = Vec::with_capacity(packet.message.items.len());
    for item in packet.message.items {
        subs.push(sub_batch(item, &mut payload)?);
    }
    if subs.is_empty() || !payload.is_empty() {
        return Err(Refusal::new(ErrorCode::Malformed, "items and payload do not match"));
    }
    Ok((packet.message.levels, subs))
}

/// One item. Its batch's checksum is verified here, once, and by every reader; records were walked by the gateway.
fn sub_batch(item: PublishItem, payload: &mut Bytes) -> Result<SubBatch, Refusal> {
    let refuse = |detail: String| Refusal::new(ErrorCode::InvalidBatch, detail);
    if payload.len() < item.batch_bytes as usize {
        return Err(refuse("the payload is shorter than its items say".to_owned()));
    }
    let batch = Batch::parse(payload.split_to(item.batch_bytes as usize))
        .map_err(|error| refuse(error.to_string()))?;
    Ok(SubBatch {
        incarnation: Incarnation(item.incarnation),
        partition: PartitionId(item.partition),
        kind: Kind::Publish,
        expected_end: item.expected_end.map(Offset),
        idempotency: item
            .idempotency
            .map(|used| Idempotency { key: used.key.into(), fingerprint: used.fingerprint.into() }),
        body: batch.unplaced().bytes().clone(),
    })
}

fn result(verdict: Verdict) -> PublishResult {
    match verdict {
        Verdict::Placed(placed) => PublishResult { placed: Some(placed), refused: None },
        Verdict::Refused(refusal) => PublishResult { placed: None, refused: Some(refusal) },
        other => {
            let refusal = Refusal::new(ErrorCode::Internal, format!("a publish was answered with {other:?}"));
            PublishResult { placed: None, refused: Some(refusal) }
        }
    }
}

fn send(reply: Reply, levels: u32, results: &[PublishResult], stages: Stages) {
    let asked =
        [Level::Memory, Level::Durable, Level::Quorum].into_iter().filter(|level| levels & level.bit() != 0);
    let mut answers: Vec<Level> = asked.collect();
    let last = answers.pop().unwrap_or(Level::Unset);
    let message = |level: Level| {
        let answer = PublishAnswer { level: level as i32, results: results.to_vec(), stages: Some(stages) };
        vec![Bytes::from(answer.encode_to_vec())]
    };
    for level in answers {
        reply.send(message(level));
    }
    reply.finish(message(last));
}

/// Why there is no room, and who keeps it.
pub(super) fn full_refusal(shard: &ShardHandle, full: Full) -> Refusal {
    match full {
        Full::Busy { .. } => {
            Refusal { retry_after_ms: Some(100), ..Refusal::new(ErrorCode::Busy, full.to_string()) }
        }
        Full::Journal { .. } | Full::Index { .. } | Full::Disk { .. } => {
            let pinned = shard.state.read().oldest_topics(5).join(", ");
            let detail = format!(
                "{full}; the oldest messages belong to: {pinned}. Shorten retention or delete topics"
            );
            Refusal { retry_after_ms: Some(1_000), ..Refusal::new(ErrorCode::JournalFull, detail) }
        }
    }
}
