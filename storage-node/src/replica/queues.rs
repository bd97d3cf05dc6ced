//! The leases that a leader has given, part by part.

use std::collections::HashMap;
use std::ops::{Deref, DerefMut};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore};
use weir_protocol::ids::{Offset, TimestampMs};

use super::due::DueParts;
use super::fences::Fences;
use crate::shard::state::{HeldPart, PartKey};
use crate::subscription::{Cursor, Delivered, Fence, Leases, Rules};

/// Leases of all parts that somebody pulled from since the term began.
#[derive(Debug, Default)]
pub struct Queues {
    parts: Mutex<HashMap<PartKey, Arc<Queue>>>,
    /// Locked behind a queue.
    due: Arc<Mutex<DueParts>>,
    /// Parts beyond which those that are gone are looked for.
    sweep_at: AtomicUsize,
    fences: Arc<Fences>,
}

/// Parts up to which it is of no account how many of them are gone.
const FEW: usize = 1_024;

/// The leases of one part.
#[derive(Debug)]
pub struct Queue {
    /// Whose it is.
    pub key: PartKey,
    held: Mutex<Held>,
    due: Arc<Mutex<DueParts>>,
    term: u64,
    fences: Arc<Fences>,
    /// Held by who commits acknowledgements of a stream: what comes meanwhile is committed together by the next.
    pub commits: tokio::sync::Mutex<()>,
    /// Held by who looks at records before they are leased: for all who wait for that.
    pub looks: tokio::sync::Mutex<()>,
    /// Notified when something else may be leased, or earlier than before.
    pub changed: Notify,
    /// Notified when this queue is none any more: another term began, or the part is gone.
    pub gone: Notify,
    /// Held by the one who listens for news, see [`Turn`](super::Turn).
    pub(super) turn: Semaphore,
    /// Held by the one of those without credit who notices that the part is gone.
    pub vigil: Semaphore,
}

/// What a leader knows of a part.
#[derive(Debug)]
pub struct Held {
    /// The leases.
    pub leases: Leases,
    /// Of a stream, who reads.
    pub cursor: Cursor,
    /// The next one's fence.
    pub next_fence: Fence,
    /// A seek is on its way through the log: nothing is leased or settled until it is there.
    pub is_seeking: bool,
    /// When somebody pulled last, since the term began.
    pub pulled: Option<TimestampMs>,
    /// When it is due at the latest; `None`: nobody knows.
    due: Option<TimestampMs>,
    /// Version of the configuration that the leases follow.
    version: u32,
    /// The configuration's filter and field of fairness, as what was looked at was judged by.
    sight: Sight,
}

/// What a configuration says of records that are looked at.
type Sight = (Option<String>, Option<String>);

fn sight(part: &HeldPart) -> Sight {
    (part.config.filter.clone(), part.config.fair_by.clone())
}

impl Queues {
    /// The queue of a part that exists, of which earlier leaders may have delivered records below `earlier_end`.
    pub fn of(
        &self,
        key: PartKey,
        part: &HeldPart,
        (partitions, earlier_end): (u32, Offset),
        term: u64,
        now: TimestampMs,
    ) -> Arc<Queue> {
        let make = || {
            // What is below the last seek's settles nothing.
            let next_fence = self.fences.first(term).max(part.part.fence_min());
            let leases = Leases::new(&part.part, rules(part, partitions), next_fence, now);
            let leases = leases.after_leader_of(earlier_end);
            let (version, sight) = (part.version, sight(part));
            let cursor = Cursor::new(next_fence).after_leader_of(earlier_end);
            let (is_seeking, pulled, due) = (false, None, None);
            let held = Held { leases, cursor, next_fence, is_seeking, pulled, due, version, sight };
            Arc::new(Queue {
                key,
                held: Mutex::new(held),
                due: Arc::clone(&self.due),
                term,
                fences: Arc::clone(&self.fences),
                commits: tokio::sync::Mutex::default(),
                looks: tokio::sync::Mutex::default(),
                changed: Notify::new(),
                gone: Notify::new(),
                turn: Semaphore::new(1),
                vigil: Semaphore::new(1),
            })
        };
        Arc::clone(self.parts.lock().entry(key).or_insert_with(make))
    }

    /// The queue of a part that somebody has called for in this term.
    #[must_use]
    pub fn get(&self, key: &PartKey) -> Option<Arc<Queue>> {
        self.parts.lock().get(key).map(Arc::clone)
    }

    /// How far fences were given.
    pub fn fences(&self) -> &Fences {
        &self.fences
    }

    /// Takes the part whose leases have been due for longest, if some are. Who takes it [ends](Held::lapse) them.
    pub fn due(&self, now: TimestampMs) -> Option<Arc<Queue>> {
        loop {
            let key = self.due.lock().pop(now)?;
            // Without one it was forgotten meanwhile.
            if let Some(queue) = self.parts.lock().get(&key) {
                return Some(Arc::clone(queue));
            }
        }
    }

    /// The part is gone.
    pub fn forget(&self, key: &PartKey) {
        let gone = self.parts.lock().remove(key);
        self.due.lock().remove(key);
        if let Some(queue) = gone {
            queue.end();
        }
    }

    /// Forgets parts that are gone, as `gone` tells of all that are known: whoever calls for one notices by itself, but
    /// for one that is deleted nobody may ever call again. It looks once there are twice as many as it left before.
    pub fn sweep(&self, gone: impl FnOnce(Vec<PartKey>) -> Vec<PartKey>) {
        let known: Vec<PartKey> = {
            let parts = self.parts.lock();
            if parts.len() <= self.sweep_at.load(Ordering::Relaxed).max(FEW) {
                return;
            }
            parts.keys().copied().collect()
        };
        // Without the lock: who forgets a part has the state locked before it.
        gone(known).iter().for_each(|key| self.forget(key));
        self.sweep_at.store(2 * self.parts.lock().len(), Ordering::Relaxed);
    }

    /// Another term: nobody holds anything.
    pub(super) fn clear(&self) {
        let gone = std::mem::take(&mut *self.parts.lock());
        *self.due.lock() = DueParts::default();
        gone.values().for_each(|queue| queue.end());
    }
}

impl Queue {
    /// The leases. Whoever hands them a part takes the part's newest state under this lock: one that was taken before
    /// may not have what another has committed meanwhile.
    pub fn lock(&self) -> Locked<'_> {
        Locked { queue: self, held: self.held.lock() }
    }

    /// Everybody looks for another one.
    fn end(&self) {
        self.gone.notify_waiters();
        self.changed.notify_waiters();
    }
}

/// What a leader knows of a part, locked. Whoever lets it go has told when it is due, and which fences were given:
/// nobody can forget to.
#[derive(Debug)]
pub struct Locked<'a> {
    queue: &'a Queue,
    held: MutexGuard<'a, Held>,
}

impl Deref for Locked<'_> {
    type Target = Held;

    fn deref(&self) -> &Held {
        &self.held
    }
}

impl DerefMut for Locked<'_> {
    fn deref_mut(&mut self) -> &mut Held {
        &mut self.held
    }
}

impl Drop for Locked<'_> {
    fn drop(&mut self) {
        let given = self.held.fence_end();
        self.queue.fences.given(self.queue.term, given);
        // After a seek, nothing of before counts: it is told then.
        let Some(at) = self.held.leases.ends_first().filter(|_| !self.held.is_seeking) else { return };
        if self.held.due.is_none_or(|due| at < due) {
            self.held.due = Some(at);
            self.queue.due.lock().put(self.queue.key, at);
        }
    }
}

impl Held {
    /// Lower fences were given, higher ones were not: says of a decision what came before it.
    #[must_use]
    pub fn fence_end(&self) -> Fence {
        self.next_fence.max(self.cursor.fence_end())
    }

    /// Ends the leases whose time is over, of a part that was [due](Queues::due). Returns records that have
    /// had all their deliveries, see [`Leases::expire`].
    #[must_use = "exhausted records are settling until they are committed or failed"]
    pub fn lapse(&mut self, part: &HeldPart, now: TimestampMs) -> Vec<Delivered> {
        self.due = None;
        if self.is_seeking { Vec::new() } else { self.leases.expire(&part.part, now) }
    }

    /// Follows the subscription's newest configuration.
    pub fn follow(&mut self, part: &HeldPart, partitions: u32) {
        if self.version < part.version {
            self.leases.set_rules(rules(part, partitions));
            self.version = part.version;
            let sight = sight(part);
            if self.sight != sight {
                self.leases.look_again(&part.part);
                self.sight = sight;
            }
        }
    }

    /// After a seek: nothing is held any more. If it is not in the log after all, records below `end` may be.
    pub fn begin_again(&mut self, part: &HeldPart, (partitions, end): (u32, Offset), now: TimestampMs) {
        let leases = Leases::new(&part.part, rules(part, partitions), self.next_fence, now);
        self.leases = leases.after_leader_of(end);
        self.cursor.begin_again(self.next_fence);
    }
}

/// What a subscription says, for one of its parts: each has its share of what may be leased at once.
fn rules(part: &HeldPart, partitions: u32) -> Rules {
    let config = &part.config;
    let share = config.max_unacked.div_ceil(partitions.max(1)).max(1) as usize;
    Rules {
        lease_ms: u64::from(config.lease_ms),
        max_attempts: config.max_attempts,
        backoff_ms: config.backoff_ms.clone().into(),
        max_unacked: if config.paused { 0 } else { share },
        looks_ahead: config.is_by_key || config.filter.is_some() || config.fair_by.is_some(),
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::ids::{Incarnation, LogIndex, PartitionId};

    use super::*;
    use crate::subscription::{Part, PartEvent, Seek};

    #[test]
    fn what_is_delivered_in_a_new_term_can_be_settled_however_many_deliveries_the_one_before_had() {
        let mut part = Part::new(Offset(0));
        // Term 3, and more deliveries than one is to have.
        let seek = Some(Seek { to: Offset(0), fence: Fence(5 << 32), keep_as: 0, back_to: 0 });
        part.apply(&PartEvent { seek, ..PartEvent::default() }, Offset(0)..Offset(9));
        let (name, config) = Default::default();
        let held = HeldPart { name, config, version: 1, opened: LogIndex(0), part };
        let key = (Incarnation(2), (Incarnation(1), PartitionId(0)));
        for (term, expected) in [(4, 5 << 32), (7, 7 << 32 | 1)] {
            let queue = Queues::default().of(key, &held, (1, Offset(0)), term, TimestampMs(0));
            let held = queue.lock();
            assert_eq!(
                (held.next_fence, held.cursor.fence_end()),
                (Fence(expected), Fence(expected)),
                "term {term}"
            );
        }
    }

    #[test]
    fn parts_that_are_gone_are_forgotten_though_nobody_calls_for_them_again() {
        let (name, config) = Default::default();
        let part = Part::new(Offset(0));
        let held = HeldPart { name, config, version: 1, opened: LogIndex(0), part };
        let key = |n: u64| (Incarnation(n), (Incarnation(1), PartitionId(0)));
        // Those below are deleted as soon as they were pulled from.
        let lives = |key: &PartKey| key.0.0.is_multiple_of(100);
        let queues = Queues::default();
        for n in 0..20_000 {
            drop(queues.of(key(n), &held, (1, Offset(0)), 1, TimestampMs(0)));
            queues.sweep(|known| known.into_iter().filter(|key| !lives(key)).collect());
            let (known, there) = (queues.parts.lock().len(), n as usize / 100 + 1);
            assert!((there..=FEW + 2 * there).contains(&known), "{known}, and {there} are there");
        }
        assert!((0..20_000).step_by(100).all(|n| queues.parts.lock().contains_key(&key(n))));
    }
}
