//! Ends leases and publishes what came of them, in one entry.
//!
//! ```text
//!   judge all leases ─▶ settle them ─▶ one entry: part's change, outputs ─▶ committed ─▶ wait for their arrival
//!      any is lost: refused           refused by apply: nothing happened       `outbox` carries them
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use bytes::Bytes;
use tokio::time::{Instant, timeout_at};
use weir_journal::Class;
use weir_protocol::batch::Batch;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId, ShardId, TimestampMs};
use weir_protocol::limits::{SETTLE_ITEMS_MAX, SETTLE_OUTPUT_BYTES_MAX, SETTLE_OUTPUTS_MAX, WAIT_MS_MAX};
use weir_protocol::rpc::{
    Body, Output, OutputName, OutputResult, Packet, Refusal, SettleAndPublishAnswer, SettleAndPublishRequest,
    SettleItem,
};

use super::settle::{action, note};
use super::stream::refuse_stream;
use super::{PartHandle, settle_ended};
use crate::clock;
use crate::replica::{OutputWait, Queue, ShardHandle};
use crate::server::Room;
use crate::shard::command::ChangePart;
use crate::shard::entry::{Across, Kind, SUB_BATCHES_BYTES_MAX, SubBatch};
use crate::shard::state::Verdict;
use crate::subscription::{Action, Fence, PartEvent, Settle, Verdict as Settled};

/// Bytes of an event that one lease takes at most, without its reason.
const ITEM_BYTES: usize = 64;

/// Settles leases of one part and publishes, all or nothing. Partitions of the outputs that lie in `shards` are looked
/// at first.
pub(in crate::server) async fn settle_and_publish(
    shard: ShardHandle,
    room: Room,
    shards: &BTreeMap<ShardId, ShardHandle>,
    body: Bytes,
) -> Result<SettleAndPublishAnswer, Refusal> {
    let packet = Packet::<SettleAndPublishRequest>::decode(body)
        .map_err(|error| Refusal::new(ErrorCode::Malformed, error.to_string()))?;
    let (request, payload) = (packet.message, packet.payload);
    let deadline = Instant::now() + Duration::from_millis(request.wait_ms.min(WAIT_MS_MAX));
    let actions = actions(&request.items)?;
    let mut outputs = outputs(&request, payload)?;
    for output in &request.outputs {
        is_open(shards, output)?;
    }
    let bytes = outputs.iter().map(|output| output.body.len() as u64).sum();
    let part = PartHandle::new(shard, request.part);
    let view = part.view()?;
    refuse_stream(&view, "publish")?;
    let queue = part.queue(&view);
    part.shard.state.read().has_output_room(outputs.len(), bytes)?;
    // Known before they are proposed: none arrives unnoticed.
    let mut wait = part.shard.shared.awaited_outputs().wait(outputs.len());
    for (at, output) in outputs.iter_mut().enumerate() {
        output.across = output.across.map(|across| Across { number: wait.name(at), ..across });
    }
    let event = loop {
        // Taken before it is looked: a seek that ends meanwhile is not missed.
        let changed = queue.changed.notified();
        match decide(&part, &queue, &request.items, &actions)? {
            Some(event) => break event,
            None => changed.await,
        }
    };
    queue.changed.notify_waiters();
    let change = ChangePart {
        part: request.part,
        event: event.encode().into(),
        outputs: u32::try_from(outputs.len()).expect("bounded"),
        output_bytes: bytes,
        fence_min: request.items.iter().map(|item| item.fence).min().unwrap_or(0),
        keeps_past: true,
    };
    let logged = part.commit_change(&room, change, outputs, Class::Data).await;
    // A part that is gone by now has no leases to speak of.
    if let Ok((mut held, view)) = part.lock(&queue) {
        let offsets = request.items.iter().map(|item| Offset(item.offset));
        settle_ended(&mut held.leases, &view.held.part, &logged, offsets);
    }
    queue.changed.notify_waiters();
    let mut results = named(part.shard.shard, logged?)?;
    arrive(&mut results, &mut wait, deadline).await;
    Ok(SettleAndPublishAnswer { outputs: results })
}

/// What becomes of the leases, each of which is named once.
fn actions(items: &[SettleItem]) -> Result<Vec<Action>, Refusal> {
    let wrong = |detail: &str| Err(Refusal::new(ErrorCode::InvalidParameter, detail));
    if items.is_empty() {
        return wrong("nothing is settled: publish it as it is");
    }
    if items.len() > SETTLE_ITEMS_MAX {
        let detail = format!("{} leases; at most {SETTLE_ITEMS_MAX} are settled at once", items.len());
        return Err(Refusal::new(ErrorCode::TooLarge, detail));
    }
    let offsets: BTreeSet<u64> = items.iter().map(|item| item.offset).collect();
    if offsets.len() < items.len() {
        return wrong("a message is settled twice");
    }
    let actions = items.iter().map(action).collect::<Result<Vec<_>, _>>()?;
    if actions.iter().any(|action| matches!(action, Action::Extend { .. })) {
        return wrong("a lease is extended apart from a settle that publishes");
    }
    Ok(actions)
}

/// The outputs as their entry carries them, but for their names.
fn outputs(request: &SettleAndPublishRequest, mut payload: Body) -> Result<Vec<SubBatch>, Refusal> {
    let wrong = |detail: String| Refusal::new(ErrorCode::InvalidBatch, detail);
    let (mut subs, mut records) = (Vec::with_capacity(request.outputs.len()), 0);
    for output in &request.outputs {
        if payload.len() < output.batch_bytes as usize {
            return Err(wrong("the payload is shorter than its outputs say".to_owned()));
        }
        let batch = Batch::parse(payload.split_to(output.batch_bytes as usize))
            .map_err(|error| wrong(error.to_string()))?;
        let header = batch.header();
        if header.left.is_some() {
            return Err(wrong("a published batch has no holes".to_owned()));
        }
        if !header.producer.is_none() {
            return Err(wrong("an output names a producer".to_owned()));
        }
        records += header.count as usize;
        subs.push(SubBatch {
            incarnation: Incarnation(output.incarnation),
            partition: PartitionId(output.partition),
            kind: Kind::Output,
            across: Some(Across { shard: ShardId(output.shard), number: 0 }),
            ..SubBatch::command(batch.unplaced().bytes().clone())
        });
    }
    if subs.is_empty() || !payload.is_empty() {
        return Err(Refusal::new(ErrorCode::Malformed, "outputs and payload do not match"));
    }
    let reasons: usize = request.items.iter().map(|item| item.reason.len()).sum();
    let bytes: usize = subs.iter().map(|sub| sub.body.len()).sum::<usize>() + reasons;
    let encoded: usize = subs.iter().map(SubBatch::encoded_bytes).sum::<usize>() + reasons;
    let is_too_large = records > SETTLE_OUTPUTS_MAX
        || bytes > SETTLE_OUTPUT_BYTES_MAX
        || encoded + (request.items.len() + 1) * ITEM_BYTES > SUB_BATCHES_BYTES_MAX;
    if is_too_large {
        let detail = format!(
            "{records} messages of {bytes} bytes with {} leases; {SETTLE_OUTPUTS_MAX} messages and \
             {SETTLE_OUTPUT_BYTES_MAX} bytes are published at once",
            request.items.len()
        );
        return Err(Refusal::new(ErrorCode::TooLarge, detail));
    }
    Ok(subs)
}

/// Refuses what would not arrive, as far as it is known here.
fn is_open(shards: &BTreeMap<ShardId, ShardHandle>, output: &Output) -> Result<(), Refusal> {
    let Some(shard) = shards.get(&ShardId(output.shard)) else { return Ok(()) };
    let state = shard.state.read();
    let key = (Incarnation(output.incarnation), PartitionId(output.partition));
    match state.partition(key) {
        Ok(partition) if partition.config.closed => {
            Err(Refusal::new(ErrorCode::TopicClosed, "the topic of an output takes no more messages"))
        }
        Ok(_) => Ok(()),
        Err(gone) if gone.error_code() == ErrorCode::IncarnationGone => {
            Err(Refusal::new(ErrorCode::ConfigStale, "the topic of an output was deleted"))
        }
        Err(refusal) => Err(refusal),
    }
}

/// Settles every lease, or none; `None` while a seek is on its way.
fn decide(
    part: &PartHandle,
    queue: &Queue,
    items: &[SettleItem],
    actions: &[Action],
) -> Result<Option<PartEvent>, Refusal> {
    let (mut held, view) = part.lock(queue)?;
    if held.is_seeking {
        return Ok(None);
    }
    let (now, of) = (clock::now(), &view.held.part);
    for item in items {
        let delivery = (Offset(item.offset), Fence(item.fence));
        match held.leases.judge(of, view.end, delivery, now) {
            Ok(None) => {}
            Ok(Some(_)) => return Err(lost(item, "failed before", None)),
            Err(verdict) => return Err(not_held(item, verdict, now)),
        }
    }
    let mut event = PartEvent::default();
    for (item, action) in items.iter().zip(actions) {
        let (offset, fence) = (Offset(item.offset), Fence(item.fence));
        let settle = Settle { offset, fence, action: *action };
        let verdict = held.leases.settle(of, view.end, &settle, now);
        assert!(
            note(&mut event, verdict, offset, &item.reason),
            "{offset} was judged to be settled, and is {verdict:?}"
        );
    }
    event.coalesce();
    Ok(Some(event))
}

fn not_held(item: &SettleItem, verdict: Settled, now: TimestampMs) -> Refusal {
    match verdict {
        Settled::LeaseLost { current } => {
            lost(item, "was delivered again", current.map(|grant| grant.to_wire(now)))
        }
        Settled::AlreadySettled => lost(item, "is settled", None),
        Settled::Done(_) | Settled::Unknown => lost(item, "was never leased like this", None),
    }
}

fn lost(item: &SettleItem, why: &str, lease: Option<weir_protocol::rpc::Grant>) -> Refusal {
    let detail = format!("message {} with fence {} {why}; nothing is settled", item.offset, item.fence);
    Refusal { lease, ..Refusal::new(ErrorCode::LeaseLost, detail) }
}

/// The outputs by the numbers that apply gave them.
fn named(source: ShardId, verdicts: Vec<Verdict>) -> Result<Vec<OutputResult>, Refusal> {
    let named = |verdict| match verdict {
        Verdict::Sent(number) => {
            let name = OutputName { source: source.0, number };
            Ok(OutputResult { name, placed: None, refused: None })
        }
        other => Err(Refusal::new(ErrorCode::Internal, format!("an output was answered with {other:?}"))),
    };
    verdicts.into_iter().map(named).collect()
}

/// Waits for outputs to arrive.
async fn arrive(results: &mut [OutputResult], wait: &mut OutputWait, deadline: Instant) {
    while let Ok(Some((at, arrived))) = timeout_at(deadline, wait.next()).await {
        match arrived {
            Ok(placed) => results[at].placed = placed,
            Err(refusal) => results[at].refused = Some(refusal),
        }
    }
}
