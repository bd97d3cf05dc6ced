//! Carrying what a shard owes to others: the loop that all such tasks have in common.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Display;
use std::time::Duration;

use tokio::sync::watch;
use weir_journal::Class;
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::Refusal;

use crate::replica::ShardHandle;
use crate::shard::entry::{ENTRY_OVERHEAD_BYTES, SubBatch};
use crate::shard::state::Verdict;

/// After a failure the next attempt waits this long.
const PAUSE: Duration = Duration::from_millis(200);

/// What a shard owes to others. What is sent is noted in the shard's own log once it is committed where it goes, and that
/// changes the outbox: so whatever is left comes with the next round.
pub(super) trait Carry: Sync {
    /// Who is owed something, as operators are told.
    type To: Ord + Display + Clone + Send;

    /// What it is, for operators.
    const WHAT: &'static str;

    /// The shard that owes.
    fn shard(&self) -> &ShardHandle;

    /// Sends the oldest of what is owed, to everybody at once. Answers for each to whom something was sent.
    fn send(&self) -> impl Future<Output = Vec<(Self::To, Result<(), Refusal>)>> + Send;
}

/// Carries until the node stops.
pub(super) async fn run<C: Carry>(carry: C, mut stop: watch::Receiver<bool>) {
    let shard = carry.shard().clone();
    let mut failing = BTreeSet::new();
    loop {
        if shard.journal.failure().is_some() {
            // Nothing can be committed here any more; the node says why.
            let _ = stop.wait_for(|stopping| *stopping).await;
            return;
        }
        // Registered before the state is read: what comes meanwhile wakes it.
        let changed = shard.shared.watch_outbox();
        let sent = tokio::select! {
            _ = stop.wait_for(|stopping| *stopping) => return,
            sent = carry.send() => sent,
        };
        let failed = sent.into_iter().filter_map(|(to, sent)| Some((to, sent.err()?))).collect();
        let has_failed = tell_operators::<C>(&shard, &mut failing, failed);
        tokio::select! {
            _ = stop.wait_for(|stopping| *stopping) => return,
            () = tokio::time::sleep(PAUSE), if has_failed => {}
            () = changed, if !has_failed => {}
        }
    }
}

/// Logs what has begun to fail, and what works again; true if anything must be tried again.
fn tell_operators<C: Carry>(
    shard: &ShardHandle,
    failing: &mut BTreeSet<C::To>,
    failed: BTreeMap<C::To, Refusal>,
) -> bool {
    let (shard, what) = (shard.shard, C::WHAT);
    for (to, refusal) in failed.iter().filter(|(to, _)| !failing.contains(to)) {
        let why = &refusal.detail;
        tracing::warn!(%shard, %to, what, why, "it does not get where it goes; it is tried again");
    }
    for to in failing.iter().filter(|to| !failed.contains_key(to)) {
        tracing::info!(%shard, %to, what, "it gets where it goes again");
    }
    *failing = failed.into_keys().collect();
    !failing.is_empty()
}

/// Commits sub-batches in a shard and gives their verdicts, from the room that is kept for control: what is owed was
/// admitted before.
pub(super) async fn commit(shard: &ShardHandle, subs: Vec<SubBatch>) -> Result<Vec<Verdict>, Refusal> {
    let bytes = (subs.iter().map(SubBatch::encoded_bytes).sum::<usize>() + ENTRY_OVERHEAD_BYTES) as u64;
    let permit = shard.journal.try_admit(bytes, Class::Control);
    let permit = permit.map_err(|full| Refusal::new(ErrorCode::Busy, full.to_string()))?;
    shard.change(subs, permit).await
}

/// Other nodes are reached over the transport once there are any.
pub(super) fn not_here() -> Refusal {
    Refusal::new(ErrorCode::NotLeader, "the shard is not on this node")
}
