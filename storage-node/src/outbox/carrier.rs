//! Carrying what a shard owes to others: the loop that all such tasks have in common.

use std::fmt::Display;

use futures_util::StreamExt as _;
use futures_util::stream::FuturesUnordered;
use tokio::sync::watch;
use tokio::time::{Instant, sleep_until};
use weir_journal::Class;
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::Refusal;

use super::lanes::{Lanes, Told};
use crate::replica::ShardHandle;
use crate::shard::entry::{ENTRY_OVERHEAD_BYTES, SubBatch};
use crate::shard::state::Verdict;

/// What a shard owes to others. What is sent is noted in the shard's own log once it is committed where it
/// goes, and that changes the outbox: so whatever is left is owed still.
pub(super) trait Carry: Sync {
    /// Who is owed something, as operators are told.
    type To: Ord + Display + Clone + Send + Sync;

    /// What it is, for operators.
    const WHAT: &'static str;

    /// The shard that owes.
    fn shard(&self) -> &ShardHandle;

    /// To whom something is owed.
    fn owed(&self) -> Vec<Self::To>;

    /// Sends the oldest of what is owed to one of them, and notes what has arrived. After `Ok` less is owed
    /// to it than before, or nothing.
    fn send_to(&self, to: &Self::To) -> impl Future<Output = Result<(), Refusal>> + Send;
}

/// Carries until the node stops.
pub(super) async fn run<C: Carry>(carry: C, mut stop: watch::Receiver<bool>) {
    let shard = carry.shard().clone();
    let mut lanes = Lanes::new();
    let mut sending = FuturesUnordered::new();
    loop {
        if shard.journal.failure().is_some() {
            // Nothing can be committed here any more; the node says why.
            let _ = stop.wait_for(|stopping| *stopping).await;
            return;
        }
        // Registered before the state is read: what comes meanwhile wakes it.
        let changed = shard.shared.watch_outbox();
        for to in lanes.begin(carry.owed(), Instant::now()) {
            let carry = &carry;
            sending.push(async move {
                let sent = carry.send_to(&to).await;
                (to, sent)
            });
        }
        let due = lanes.next_due();
        tokio::select! {
            _ = stop.wait_for(|stopping| *stopping) => return,
            Some((to, sent)) = sending.next() => {
                let told = lanes.ended(&to, sent.is_err(), Instant::now());
                tell_operators::<C>(&shard, &to, &told, sent);
            }
            () = sleep_until(due.unwrap_or_else(Instant::now)), if due.is_some() => {}
            () = changed => {}
        }
    }
}

/// Logs what has begun to fail, and what works again.
fn tell_operators<C: Carry>(shard: &ShardHandle, to: &C::To, told: &Told, sent: Result<(), Refusal>) {
    let (shard, what) = (shard.shard, C::WHAT);
    match (told, sent) {
        (Told::Fails, Err(refusal)) => {
            let why = &refusal.detail;
            tracing::warn!(%shard, %to, what, why, "it does not get where it goes; it is tried again");
        }
        (Told::Works, _) => tracing::info!(%shard, %to, what, "it gets where it goes again"),
        _ => {}
    }
}

/// Commits sub-batches in a shard and gives their verdicts, from the room that is kept for their `class`:
/// what is owed was admitted before.
pub(super) async fn commit(
    shard: &ShardHandle,
    subs: Vec<SubBatch>,
    class: Class,
) -> Result<Vec<Verdict>, Refusal> {
    let bytes = (subs.iter().map(SubBatch::encoded_bytes).sum::<usize>() + ENTRY_OVERHEAD_BYTES) as u64;
    let permit = shard.journal.try_admit(bytes, class);
    let permit = permit.map_err(|full| Refusal::new(ErrorCode::Busy, full.to_string()))?;
    shard.change(subs, permit).await
}

/// Other nodes are reached over the transport once there are any.
pub(super) fn not_here() -> Refusal {
    Refusal::new(ErrorCode::NotLeader, "the shard is not on this node")
}
