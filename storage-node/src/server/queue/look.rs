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
use crate::server::decode::decode;
use crate::shard::state::part_key;
use crate::subscription::{Moment, Part, Stood};

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
    let (mut held, view) = handle.lock(&queue)?;
    let part = &view.held.part;
    let now = clock::now();
    let counts = held.leases.counts(part, view.end, now);
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
        forked_at_ms: part.forked_at().map(|at| at.0),
    })
}

pub(in crate::server) fn leases(shard: &ShardHandle, body: Bytes) -> Result<LeaseList, Refusal> {
    let request: ListLeasesRequest = decode(body)?;
    let handle = PartHandle::new(shard.clone(), request.part);
    let queue = handle.queue(&handle.view()?);
    let limit = request.limit.clamp(1, READ_RECORDS_MAX) as usize;
    let (from, now) = (Offset(request.from), clock::now());
    if request.as_of > 0 || request.as_of_ms.is_some() {
        return as_of(shard, &handle.view()?, &request, limit, now);
    }
    let (held, view) = handle.lock(&queue)?;
    let page = match request.standing() {
        standing if view.held.config.is_stream => {
            let range = from.max(view.start)..view.end;
            held.cursor.standing_as(&view.held.part, range, standing, limit, now)
        }
        Standing::Unset => held.leases.list(&view.held.part, from.max(view.start), limit, now),
        standing => {
            held.leases.standing_as(&view.held.part, from.max(view.start)..view.end, standing, limit, now)
        }
    };
    let next = page.next.map(|offset| offset.0);
    Ok(LeaseList { leases: page.leases, next, as_of_ms: None })
}

/// What was unsettled or dead at a moment; holds nobody up.
fn as_of(
    shard: &ShardHandle,
    view: &View,
    request: &ListLeasesRequest,
    limit: usize,
    now: TimestampMs,
) -> Result<LeaseList, Refusal> {
    let part = &view.held.part;
    let moment = request.as_of_ms.map_or(Moment::Before(request.as_of), |ms| Moment::At(TimestampMs(ms)));
    let Stood { part: then, at } =
        part.stood(moment, view.start, now).ok_or_else(|| unknown(part, moment))?;
    // Of a time it is known where the partition ended, and what waited then.
    let (end, now) = match (moment, at) {
        (Moment::At(_), Some(at)) => {
            let state = shard.state.read();
            let end = state.partition(part_key(&request.part).1)?.offset_at(TimestampMs(at.0 + 1));
            (end.min(view.end), at)
        }
        _ => (view.end, now),
    };
    let range = Offset(request.from).max(view.start)..end;
    let page = then.stood_as(range, request.standing(), limit, now).ok_or_else(|| {
        let detail =
            "as_of: only what was ready, delayed or dead is known of then; leases are not in the log";
        Refusal::new(ErrorCode::InvalidParameter, detail)
    })?;
    let next = page.next.map(|offset| offset.0);
    Ok(LeaseList { leases: page.leases, next, as_of_ms: at.map(|at| at.0) })
}

/// Says what is known instead.
fn unknown(part: &Part, moment: Moment) -> Refusal {
    let detail = match moment {
        Moment::At(_) => {
            format!("as_of: what stood then is not kept any more; it is from ts:{} on", part.known_from().0)
        }
        _ => {
            let known: Vec<_> = part.kept().map(snapshot_name).collect();
            let known = if known.is_empty() { "none".to_owned() } else { known.join(", ") };
            format!("as_of: what stood before that seek is not kept here any more; known: {known}")
        }
    };
    Refusal::new(ErrorCode::SnapshotGone, detail)
}
