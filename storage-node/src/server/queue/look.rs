//! How subscriptions stand.

use bytes::Bytes;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Offset, ShardId, TimestampMs};
use weir_protocol::limits::READ_RECORDS_MAX;
use weir_protocol::rpc::{
    DescribeSubscriptionRequest, FoundParts, LeaseList, ListLeasesRequest, ListPartsRequest,
    ListSubscriptionsRequest, PartRef, PartStats, PartStatsList, PartStatsRequest, Refusal, Standing,
    SubscriptionDescription, SubscriptionList, snapshot_name,
};

use super::{PartHandle, View};
use crate::clock;
use crate::replica::ShardHandle;
use crate::server::dispatch::decode;

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

pub(in crate::server) fn parts(shard: &ShardHandle, body: Bytes) -> Result<FoundParts, Refusal> {
    let request: ListPartsRequest = decode(body)?;
    shard.state.read().parts_of(&request)
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
    let (counts, now) = (held.leases.counts(part, view.end), clock::now());
    let in_memory = held.leases.known_len() as u64;
    let (ready, leased) = match view.held.config.is_stream {
        true => held.cursor.counts(part, view.end, now),
        false => (counts.ready, counts.leased),
    };
    let reader = held.cursor.holder(now).map(|holder| holder.as_ref().to_owned());
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
        ready,
        leased,
        delayed: counts.delayed,
        settled_above_floor: part.settled_above_floor(),
        dead: part.dead(),
        dead_pending: part.dead_pending(),
        oldest_ms: oldest,
        blocked: counts.blocked,
        in_memory,
        revivable: part.given_up(),
        reader,
    })
}

pub(in crate::server) fn leases(shard: &ShardHandle, body: Bytes) -> Result<LeaseList, Refusal> {
    let request: ListLeasesRequest = decode(body)?;
    let handle = PartHandle::new(shard.clone(), request.part);
    let queue = handle.queue(&handle.view()?);
    let limit = request.limit.clamp(1, READ_RECORDS_MAX) as usize;
    let (from, now) = (Offset(request.from), clock::now());
    if request.as_of > 0 {
        return as_of(&handle.view()?, &request, limit, now);
    }
    let (held, view) = handle.lock(&queue)?;
    let page = match request.standing() {
        standing if view.held.config.is_stream => {
            let range = from.max(view.start)..view.end;
            held.cursor.standing_as(&view.held.part, range, standing, limit, now)
        }
        Standing::Unset => held.leases.list(from, limit, now),
        standing => {
            held.leases.standing_as(&view.held.part, from.max(view.start)..view.end, standing, limit, now)
        }
    };
    Ok(LeaseList { leases: page.leases, next: page.next.map(|offset| offset.0) })
}

/// What was unsettled or dead before a seek; holds nobody up.
fn as_of(
    view: &View,
    request: &ListLeasesRequest,
    limit: usize,
    now: TimestampMs,
) -> Result<LeaseList, Refusal> {
    let part = &view.held.part;
    let then = part.as_of(request.as_of, view.start).ok_or_else(|| {
        let known: Vec<_> = part.kept().map(snapshot_name).collect();
        let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
        let detail = format!("as_of: what stood before that seek is not kept here any more; known: {known}");
        Refusal::new(ErrorCode::SnapshotGone, detail)
    })?;
    let range = Offset(request.from).max(view.start)..view.end;
    let page = then.stood_as(range, request.standing(), limit, now).ok_or_else(|| {
        let detail =
            "as_of: only what was ready, delayed or dead is known of then; leases are not in the log";
        Refusal::new(ErrorCode::InvalidParameter, detail)
    })?;
    Ok(LeaseList { leases: page.leases, next: page.next.map(|offset| offset.0) })
}
