//! The leases that a leader has given, part by part.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::{Notify, Semaphore};
use weir_protocol::ids::TimestampMs;

use crate::shard::state::{HeldPart, PartKey};
use crate::subscription::{Cursor, Fence, Leases, Rules};

/// Leases of all parts that somebody pulled from since the term began.
#[derive(Debug, Default)]
pub struct Queues {
    parts: Mutex<HashMap<PartKey, Arc<Queue>>>,
}

/// The leases of one part.
#[derive(Debug)]
pub struct Queue {
    held: Mutex<Held>,
    /// Held by who commits acknowledgements of a stream: what comes meanwhile is committed together by the next.
    pub commits: tokio::sync::Mutex<()>,
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
    /// The queue of a part that exists.
    pub fn of(
        &self,
        key: PartKey,
        part: &HeldPart,
        partitions: u32,
        term: u64,
        now: TimestampMs,
    ) -> Arc<Queue> {
        let make = || {
            let next_fence = Fence(term << 32 | 1);
            let leases = Leases::new(&part.part, rules(part, partitions), next_fence, now);
            let (version, sight) = (part.version, sight(part));
            let cursor = Cursor::new(next_fence);
            let held = Held { leases, cursor, next_fence, is_seeking: false, pulled: None, version, sight };
            Arc::new(Queue {
                held: Mutex::new(held),
                commits: tokio::sync::Mutex::default(),
                changed: Notify::new(),
                gone: Notify::new(),
                turn: Semaphore::new(1),
                vigil: Semaphore::new(1),
            })
        };
        Arc::clone(self.parts.lock().entry(key).or_insert_with(make))
    }

    /// The part is gone.
    pub fn forget(&self, key: &PartKey) {
        let gone = self.parts.lock().remove(key);
        if let Some(queue) = gone {
            queue.end();
        }
    }

    /// Another term: nobody holds anything.
    pub(super) fn clear(&self) {
        let gone = std::mem::take(&mut *self.parts.lock());
        gone.values().for_each(|queue| queue.end());
    }
}

impl Queue {
    /// The leases. Whoever hands them a part takes the part's newest state under this lock: one that was taken before
    /// may not have what another has committed meanwhile.
    pub fn lock(&self) -> MutexGuard<'_, Held> {
        self.held.lock()
    }

    /// Everybody looks for another one.
    fn end(&self) {
        self.gone.notify_waiters();
        self.changed.notify_waiters();
    }
}

impl Held {
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

    /// After a seek: nothing is held any more.
    pub fn begin_again(&mut self, part: &HeldPart, partitions: u32, now: TimestampMs) {
        self.leases = Leases::new(&part.part, rules(part, partitions), self.next_fence, now);
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
