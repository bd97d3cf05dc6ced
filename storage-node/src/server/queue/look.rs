//! How subscriptions stand, and seeking.

use bytes::Bytes;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Offset, ShardId};
use weir_protocol::limits::READ_RECORDS_MAX;
use weir_protocol::rpc::{
    DescribeSubscriptionRequest, LeaseList, ListLeasesRequest, ListSubscriptionsRequest, PartRef, PartStats,
    PartStatsList, PartStatsRequest, Refusal, SeekAnswer, SeekRequest, SubscriptionDescription,
    SubscriptionList,
};

use super::PartHandle;
use crate::clock;
use crate::read::Reader;
use crate::replica::ShardHandle;
use crate::server::Room;
use crate::server::dispatch::decode;
use crate::subscription::{PartEvent, Seek};

pub(in crate::server) fn describe(
    shard: &ShardHandle,
    body: Bytes,
) -> Result<SubscriptionDescription, Refusal> {
    let request: DescribeSubscriptionRequest = decode(body)?;
    shard.state.read().subscriptions().describe(&request.name).map(|found| (**found).clone())
}

pub(in crate::server) fn list(shard: &ShardHandle, body: Bytes) -> Result<SubscriptionList, Refusal> {
    if shard.shard == ShardId::META {
        return Err(Refusal::new(ErrorCode::NotLeader, "no subscription is at home in the meta group"));
    }
    let request: ListSubscriptionsRequest = decode(body)?;
    Ok(shard.state.read().subscriptions().list(&request))
}

pub(in crate::server) fn part_stats(shard: &ShardHandle, body: Bytes) -> Result<PartStatsList, Refusal> {
    let request: PartStatsRequest = decode(body)?;
    let stats = |part: &PartRef| match stats(shard, *part) {
        Ok(stats) => stats,
        Err(refusal) => PartStats { refused: Some(refusal), ..PartStats::default() },
    };
    Ok(PartStatsList { parts: request.parts.iter().map(stats).collect() })
}

fn stats(shard: &ShardHandle, part: PartRef) -> Result<PartStats, Refusal> {
    let handle = PartHandle::new(shard.clone(), part);
    let queue = handle.queue(&handle.view()?);
    let (held, view) = handle.lock(&queue)?;
    let part = &view.held.part;
    let counts = held.leases.counts(part, view.end);
    let in_memory = held.leases.known_len() as u64;
    drop(held);
    let oldest = part.oldest_unsettled(view.end).and_then(|offset| {
        let state = shard.state.read();
        let batch = state.partition(handle.key.1).ok()?.batch_at(offset)?;
        Some(batch.ts.0)
    });
    Ok(PartStats {
        refused: None,
        floor: part.floor().0,
        end: view.end.0,
        ready: counts.ready,
        leased: counts.leased,
        delayed: counts.delayed,
        settled_above_floor: part.settled_above_floor(),
        dead: part.dead(),
        dead_pending: part.dead_pending(),
        oldest_ms: oldest,
        blocked: counts.blocked,
        in_memory,
    })
}

pub(in crate::server) fn leases(shard: &ShardHandle, body: Bytes) -> Result<LeaseList, Refusal> {
    let request: ListLeasesRequest = decode(body)?;
    let handle = PartHandle::new(shard.clone(), request.part);
    let queue = handle.queue(&handle.view()?);
    let limit = request.limit.clamp(1, READ_RECORDS_MAX) as usize;
    let (held, _) = handle.lock(&queue)?;
    let page = held.leases.list(Offset(request.from), limit, clock::now());
    Ok(LeaseList { leases: page.leases, next: page.next.map(|offset| offset.0) })
}

/// Moves a part, or says what that would do.
pub(in crate::server) async fn seek(
    shard: ShardHandle,
    room: Room,
    body: Bytes,
) -> Result<SeekAnswer, Refusal> {
    let request: SeekRequest = decode(body)?;
    let handle = PartHandle::new(shard.clone(), request.part);
    let queue = handle.queue(&handle.view()?);
    let to = Reader::new(shard, handle.key.1).resolve(request.to, true)?;
    let (preview, fence) = {
        let (mut held, view) = handle.lock(&queue)?;
        if held.is_seeking && !request.is_dry_run {
            let refusal = Refusal::new(ErrorCode::Busy, "another seek of this subscription is on its way");
            return Err(Refusal { retry_after_ms: Some(100), ..refusal });
        }
        // What is decided until the seek is in the log would be decided on what it undoes.
        held.is_seeking |= !request.is_dry_run;
        let preview = held.leases.seek_preview(&view.held.part, to, view.start..view.end);
        (preview, held.next_fence)
    };
    if !request.is_dry_run {
        let logged =
            handle.commit(&room, &PartEvent { seek: Some(Seek { to, fence }), ..PartEvent::default() }).await;
        let mut held = queue.lock();
        held.is_seeking = false;
        // Also where nobody knows whether it is in the log: a new beginning asks the part.
        if let Ok(view) = handle.view() {
            held.begin_again(&view.held, view.partitions, clock::now());
        }
        drop(held);
        queue.changed.notify_waiters();
        logged?;
    }
    Ok(SeekAnswer { floor: preview.floor.0, redelivered: preview.redelivered, skipped: preview.skipped })
}
