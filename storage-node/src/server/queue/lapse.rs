//! Gives up what was delivered for the last time and is not settled, where nobody pulls.
//!
//! ```text
//!   a lease begins ─▶ its part is due when it ends ─▶ a look each second at parts that are ─▶ one entry for all that is dead
//! ```
//!
//! A pull ends the leases of its part by itself; this is for parts that nobody pulls from. A part without leases is not
//! looked at, and nothing is committed but what is dead.

use std::sync::Arc;
use std::time::Duration;

use tokio::sync::watch;
use weir_journal::Class;
use weir_protocol::ids::TimestampMs;
use weir_protocol::rpc::Refusal;

use super::{PartHandle, sub_batch};
use crate::clock;
use crate::replica::{Queue, ShardHandle};
use crate::server::Room;
use crate::shard::command::ChangePart;
use crate::shard::entry::{ENTRY_OVERHEAD_BYTES, SUB_BATCHES_BYTES_MAX, SubBatch};
use crate::shard::state::Verdict;
use crate::subscription::{Dead, Delivered, EXPIRED_MAX, Fence, PartEvent};

/// How often it looks.
const ROUND: Duration = Duration::from_secs(1);
/// Parts that one step looks at.
const PARTS_AT_ONCE: usize = 256;
/// With more records than this one step looks at no further part.
const RECORDS_AT_ONCE: usize = 4_096;
/// Encoded bytes of a record that is given up, and of a part's change without them: more than they are.
const DEAD_BYTES: usize = 128;
const CHANGE_BYTES: usize = 256;

const _: () = assert!(
    (RECORDS_AT_ONCE + EXPIRED_MAX) * DEAD_BYTES + PARTS_AT_ONCE * CHANGE_BYTES < SUB_BATCHES_BYTES_MAX,
    "an entry carries a step"
);

/// Ends the leases of one shard's parts. It is one task, however many parts there are.
pub(crate) struct Lapses {
    shard: ShardHandle,
    room: Room,
    /// The term of which it knows what was in its last delivery when it began.
    term: u64,
}

/// What a part gives up.
struct Lapsed {
    part: PartHandle,
    queue: Arc<Queue>,
    event: PartEvent,
    /// The next fence then.
    decided: Fence,
}

impl Lapses {
    /// Of `shard`.
    #[must_use]
    pub(crate) fn new(shard: ShardHandle, room: Room) -> Self {
        Self { shard, room, term: 0 }
    }

    /// Runs until the node stops.
    pub(crate) async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                _ = stop.wait_for(|stopping| *stopping) => return,
                () = tokio::time::sleep(ROUND) => {}
            }
            if self.shard.journal.failure().is_some() {
                // Nothing can be committed here any more; the node says why.
                continue;
            }
            tokio::select! {
                _ = stop.wait_for(|stopping| *stopping) => return,
                () = self.round(clock::now()) => {}
            }
        }
    }

    async fn round(&mut self, now: TimestampMs) {
        let term = self.shard.shared.term();
        if term != self.term {
            self.recall().await;
            self.term = term;
        }
        self.shard.shared.queues().sweep(|known| {
            let state = self.shard.state.read();
            known.into_iter().filter(|key| state.parts().get(key).is_none()).collect()
        });
        let fences = self.shard.shared.queues().fences();
        fences.note(|note| self.shard.journal.note_meta(self.shard.stream(), note));
        // It ends: of a part that was looked at, what is left ends later, or it gave up as much as one may.
        while self.step(now).await {
            tokio::task::yield_now().await;
        }
    }

    /// A leader that begins has no leases, and nobody may ever pull. What was in its last delivery ends after
    /// the time of one lease, see [`crate::subscription::Leases::new`]; other parts stay as they are, which
    /// costs nothing.
    async fn recall(&self) {
        let tried = self.shard.state.read().parts().tried();
        for (key, held) in tried {
            let max = held.config.max_attempts;
            if max > 0 && held.part.retries().any(|(_, retry)| retry.attempts >= max) {
                let part = PartHandle::of(self.shard.clone(), key);
                if let Ok(view) = part.view() {
                    // Letting it go tells when it is due.
                    drop(part.queue(&view).lock());
                }
            }
            tokio::task::yield_now().await;
        }
    }

    /// Looks at some of the parts that are due, and commits in one entry what they give up. True if there may be more.
    async fn step(&self, now: TimestampMs) -> bool {
        let (mut lapsed, mut parts, mut records) = (Vec::new(), 0, 0);
        while parts < PARTS_AT_ONCE
            && records < RECORDS_AT_ONCE
            && let Some(queue) = self.shard.shared.queues().due(now)
        {
            parts += 1;
            if let Some(found) = self.lapse(queue, now) {
                records += found.event.dead.len();
                lapsed.push(found);
            }
        }
        if !lapsed.is_empty() {
            self.give_up(&lapsed).await;
        }
        parts == PARTS_AT_ONCE || records >= RECORDS_AT_ONCE
    }

    fn lapse(&self, queue: Arc<Queue>, now: TimestampMs) -> Option<Lapsed> {
        let part = PartHandle::of(self.shard.clone(), queue.key);
        let (event, decided) = {
            // Of a part that is gone nothing ends.
            let (mut held, view) = part.lock(&queue).ok()?;
            let dead = dead(&held.lapse(&view.held, now));
            (PartEvent { dead, ..PartEvent::default() }, held.next_fence)
        };
        (!event.is_empty()).then_some(Lapsed { part, queue, event, decided })
    }

    async fn give_up(&self, lapsed: &[Lapsed]) {
        let verdicts = self.commit(lapsed).await;
        if let Err(refusal) = &verdicts {
            let why = &refusal.detail;
            tracing::warn!(shard = %self.shard.shard, why, "dead letters were not given up; it is tried again");
        }
        let verdicts = verdicts.unwrap_or_default();
        for (place, Lapsed { part, queue, event, .. }) in lapsed.iter().enumerate() {
            // Refused: the part was moved meanwhile, or is gone.
            let is_logged = !matches!(verdicts.get(place), None | Some(Verdict::Refused(_)));
            let offsets = event.dead.iter().map(|dead| dead.offset);
            if let Ok((mut held, view)) = part.lock(queue) {
                match is_logged {
                    true => held.leases.committed(&view.held.part, offsets),
                    false => held.leases.failed(&view.held.part, offsets, clock::now()),
                }
            }
            // There is room again, and what waited for their keys.
            queue.changed.notify_waiters();
        }
    }

    async fn commit(&self, lapsed: &[Lapsed]) -> Result<Vec<Verdict>, Refusal> {
        let change = |it: &Lapsed| {
            let (event, fence_min) = (it.event.encode().into(), it.decided.0);
            let part = it.part.part;
            sub_batch(ChangePart { part, event, fence_min, keeps_past: true, ..ChangePart::default() })
        };
        let subs: Vec<SubBatch> = lapsed.iter().map(change).collect();
        let bytes = subs.iter().map(SubBatch::encoded_bytes).sum::<usize>() + ENTRY_OVERHEAD_BYTES;
        let permit = self.shard.journal.try_admit(bytes as u64, Class::Control);
        let permit = permit.map_err(|full| self.room.refusal(full))?;
        self.shard.change(subs, permit).await
    }
}

/// Records that have had all their deliveries, as they are given up.
pub(super) fn dead(exhausted: &[Delivered]) -> Vec<Dead> {
    let dead = |delivered: &Delivered| Dead {
        offset: delivered.offset,
        attempts: delivered.attempts,
        reason: format!("not settled in {} deliveries", delivered.attempts),
    };
    exhausted.iter().map(dead).collect()
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use weir_protocol::ids::{Incarnation, LogIndex, ShardId};

    use super::*;
    use crate::node::tests::{published, start};
    use crate::shard::state::HeldPart;
    use crate::subscription::Part;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn after_a_restart_fences_are_higher_than_any_however_many_deliveries_there_were_before() {
        let dir = tempfile::tempdir().unwrap();
        let node = start(dir.path()).await;
        let shard = node.shard(ShardId(1));
        let key = (Incarnation(99), published(&shard, &[b"a".to_vec()]).await);
        let (name, config) = Default::default();
        let (zero, opened) = (weir_protocol::ids::Offset(0), LogIndex(0));
        let part = HeldPart { name, config, version: 1, opened, part: Part::new(zero) };
        let queue =
            |of: &ShardHandle| of.shared.queues().of(key, &part, (1, zero), of.shared.term(), TimestampMs(0));
        // As many as a part may have within months.
        let given = {
            let of = queue(&shard);
            let mut held = of.lock();
            held.next_fence = Fence(held.next_fence.0 + (5 << 32));
            held.next_fence
        };
        let room = Room::new(shard.journal.clone(), &BTreeMap::from([(ShardId(1), shard.clone())]));
        Lapses::new(shard.clone(), room).round(clock::now()).await;
        // Goes along with whatever is committed.
        let (told, is_told) = tokio::sync::oneshot::channel();
        shard.journal.flush(shard.stream(), Box::new(|flushed| drop(told.send(flushed)))).unwrap();
        is_told.await.unwrap().unwrap();
        drop(shard);
        node.shutdown(Duration::from_secs(5)).await;
        for _ in 0..2 {
            let node = start(dir.path()).await;
            let shard = node.shard(ShardId(1));
            let next = queue(&shard).lock().next_fence;
            assert!(next > given, "{next} after {given}");
            drop(shard);
            node.shutdown(Duration::from_secs(5)).await;
        }
    }
}
