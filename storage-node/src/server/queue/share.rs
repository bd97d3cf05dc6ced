//! Which of a stream's parts each of its consumers is to read.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tokio::time::{Instant, sleep_until};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, PartitionId, TimestampMs};
use weir_protocol::limits::{
    CLIENT_ID_BYTES_MAX, LEASE_MS_MAX, SHARE_CONSUMERS_MAX, SHARE_PARTS_MAX, WAIT_MS_MAX,
};
use weir_protocol::rpc::{GivenPart, Refusal, ShareAnswer, ShareRequest};
use weir_transport::{CreditHandle, Reply};

use crate::clock;
use crate::metrics::NodeMetrics;
use crate::replica::{ShardHandle, SharedRoster};
use crate::server::decode::decode;
use crate::subscription::{Attend, Lot, Portion, SharedPart, Shifted};

/// Answers one consumer, as soon as its share is another than it knows.
pub(in crate::server) async fn share(shard: ShardHandle, body: Bytes, reply: Reply) {
    match share_of(&shard, body, reply.credit()).await {
        Ok(answer) => reply.finish(vec![answer.encode_to_vec().into()]),
        Err(refusal) => reply.refuse(refusal),
    }
}

/// A call of a consumer: while there is one it counts as one that reads.
struct Presence<'a> {
    roster: Arc<SharedRoster>,
    request: &'a ShareRequest,
    call: u64,
    /// Its consumer asks again if it is there.
    is_answered: bool,
}

impl Drop for Presence<'_> {
    fn drop(&mut self) {
        let until = after(self.request.patience_ms);
        self.roster.lock().answered(&self.request.holder, self.call, until, !self.is_answered);
        if !self.is_answered {
            // Who waits is to know how long to wait for it now.
            self.roster.tell();
        }
    }
}

async fn share_of(shard: &ShardHandle, body: Bytes, mut call: CreditHandle) -> Result<ShareAnswer, Refusal> {
    let request: ShareRequest = decode(body)?;
    let knows = check(&request)?;
    let subscription = Incarnation(request.subscription);
    let deadline = Instant::now() + Duration::from_millis(request.wait_ms);
    let mut presence = None::<Presence<'_>>;
    loop {
        // Watched before anything is looked at: what comes meanwhile wakes it, the end of the subscription as well.
        let (roster, changed) = shard.shared.rosters().of(subscription, shard.shared.term(), clock::now());
        let is_there = shard.state.read().subscriptions().life(subscription).is_some();
        if !is_there {
            shard.shared.rosters().forget(subscription);
            let detail = "the subscription is not at home here: it was deleted";
            return Err(Refusal::new(ErrorCode::SubscriptionNotFound, detail));
        }
        if request.leaves {
            let shifted = roster.lock().leave(&request.holder);
            tell(&roster, shard.shared.metrics(), shifted);
            return Ok(ShareAnswer::default());
        }
        if presence.as_ref().is_none_or(|presence| !Arc::ptr_eq(&presence.roster, &roster)) {
            presence = Some(attend(&roster, shard.shared.metrics(), &request, Arc::clone(&knows))?);
        }
        let (portion, next_expiry) = look(&roster, shard.shared.metrics(), &request.holder);
        let is_cut = call.latest().is_cancelled;
        if portion.version != Lot(request.version) || Instant::now() >= deadline || is_cut {
            presence.iter_mut().for_each(|presence| presence.is_answered = !is_cut);
            return Ok(answer(portion));
        }
        let expires_in =
            next_expiry.map(|at| Duration::from_millis(at.0.saturating_sub(clock::now().0).max(1)));
        let until = expires_in.map_or(deadline, |left| deadline.min(Instant::now() + left));
        tokio::select! {
            () = changed => {}
            _ = call.changed() => {}
            () = sleep_until(until) => {}
        }
    }
}

fn check(request: &ShareRequest) -> Result<Arc<[SharedPart]>, Refusal> {
    let wrong = |detail: String| Err(Refusal::new(ErrorCode::InvalidParameter, detail));
    if request.holder.is_empty() || request.holder.len() > CLIENT_ID_BYTES_MAX {
        return wrong(format!("a holder has 1 to {CLIENT_ID_BYTES_MAX} bytes"));
    }
    if request.wait_ms > WAIT_MS_MAX || request.patience_ms > u64::from(LEASE_MS_MAX) + WAIT_MS_MAX {
        return wrong(format!("a wait of {} ms, or patience of {}", request.wait_ms, request.patience_ms));
    }
    let count: usize = request.topics.iter().map(|topic| topic.partitions.len()).sum();
    if count > SHARE_PARTS_MAX {
        return wrong(format!("{count} parts; at most {SHARE_PARTS_MAX} are shared"));
    }
    let of = |life: u64| move |partition: &u32| (Incarnation(life), PartitionId(*partition));
    let parts = request.topics.iter().flat_map(|topic| topic.partitions.iter().map(of(topic.incarnation)));
    let mut parts: Vec<SharedPart> = parts.collect();
    parts.sort_unstable();
    parts.dedup();
    Ok(parts.into())
}

fn attend<'a>(
    roster: &Arc<SharedRoster>,
    metrics: &NodeMetrics,
    request: &'a ShareRequest,
    knows: Arc<[SharedPart]>,
) -> Result<Presence<'a>, Refusal> {
    let takes_over = request.takes_over.as_deref();
    let (attended, [expired, shifted]) = {
        let mut roster = roster.lock();
        let mut expired = Shifted::default();
        // Who is gone holds no place. Else expiring is left to `look`: who asks late and alone keeps its share.
        if roster.is_full_for(&request.holder, takes_over) {
            expired = roster.expire(clock::now());
        }
        if roster.is_full_for(&request.holder, takes_over) {
            (None, [expired, Shifted::default()])
        } else {
            let holder = Arc::from(request.holder.as_str());
            let until = after(request.wait_ms + request.patience_ms);
            let (call, shifted) = roster.attend(Attend { holder: &holder, takes_over, knows, until });
            (Some(call), [expired, shifted])
        }
    };
    tell(roster, metrics, expired);
    tell(roster, metrics, shifted);
    let call = attended.ok_or_else(|| {
        let detail = format!("at most {SHARE_CONSUMERS_MAX} consumers share a stream");
        Refusal::new(ErrorCode::TooManyRequests, detail)
    })?;
    Ok(Presence { roster: Arc::clone(roster), request, call, is_answered: false })
}

/// What a consumer is to read now, and when the next one is gone if it is not heard of.
fn look(roster: &SharedRoster, metrics: &NodeMetrics, holder: &str) -> (Portion, Option<TimestampMs>) {
    let (shifted, portion, next_expiry) = {
        let mut roster = roster.lock();
        let shifted = roster.expire(clock::now());
        (shifted, roster.portion(holder), roster.next_expiry())
    };
    tell(roster, metrics, shifted);
    (portion, next_expiry)
}

fn tell(roster: &SharedRoster, metrics: &NodeMetrics, shifted: Shifted) {
    if shifted.is_changed {
        metrics.parts_moved(shifted.moved);
        roster.tell();
    }
}

fn after(ms: u64) -> TimestampMs {
    TimestampMs(clock::now().0.saturating_add(ms))
}

fn answer(Portion { version, parts }: Portion) -> ShareAnswer {
    let given = |((life, partition), lot): (SharedPart, Lot)| GivenPart {
        incarnation: life.0,
        partition: partition.0,
        lot: lot.0,
    };
    ShareAnswer { version: version.0, parts: parts.into_iter().map(given).collect() }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::replica::Rosters;

    fn asks(holder: String, patience_ms: u64) -> ShareRequest {
        ShareRequest { holder, patience_ms, ..ShareRequest::default() }
    }

    #[test]
    fn a_full_roster_has_room_for_who_comes_after_those_that_are_gone_or_in_the_place_of_one() {
        let metrics = NodeMetrics::register(&prometheus::Registry::new(), 0).unwrap();
        let rosters = Rosters::default();
        let (roster, _) = rosters.of(Incarnation(1), 1, clock::now());
        let knows: Arc<[SharedPart]> = [(Incarnation(1), PartitionId(0))].into();
        let comes = |request: &ShareRequest| {
            attend(&roster, &metrics, request, Arc::clone(&knows))
                .map(drop)
                .map_err(|refusal| refusal.error_code())
        };
        // Each goes away at once, and none is looked for.
        (0..SHARE_CONSUMERS_MAX).for_each(|n| comes(&asks(format!("gone {n}"), 0)).unwrap());
        assert_eq!(roster.lock().len(), SHARE_CONSUMERS_MAX);
        (0..SHARE_CONSUMERS_MAX).for_each(|n| comes(&asks(format!("here ({n})"), 60_000)).unwrap());
        assert_eq!(roster.lock().len(), SHARE_CONSUMERS_MAX);
        assert_eq!(comes(&asks("one more".into(), 60_000)), Err(ErrorCode::TooManyRequests));
        assert_eq!(comes(&asks("here (7)".into(), 60_000)), Ok(()), "it is there");
        let resumed =
            ShareRequest { takes_over: Some("here (7)".into()), ..asks("here again".into(), 60_000) };
        assert_eq!(comes(&resumed), Ok(()));
        assert_eq!(roster.lock().len(), SHARE_CONSUMERS_MAX);
    }
}
