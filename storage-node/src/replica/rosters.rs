//! Who shares the streams that are at home in a shard: in the leader's memory.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use weir_protocol::ids::Incarnation;

use crate::subscription::{Lot, Roster};

/// The rosters of streams that somebody reads.
#[derive(Debug, Default)]
pub struct Rosters {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    by_subscription: HashMap<Incarnation, Arc<SharedRoster>>,
    /// Above all lots of rosters that are gone.
    next_lot: Lot,
}

/// The roster of one stream.
#[derive(Debug)]
pub struct SharedRoster {
    roster: Mutex<Roster>,
    /// Notified when some share is another.
    pub changed: Notify,
}

impl Rosters {
    /// The roster of a stream, in a term of its home shard.
    pub fn of(&self, subscription: Incarnation, term: u64) -> Arc<SharedRoster> {
        let mut inner = self.inner.lock();
        if let Some(roster) = inner.by_subscription.get(&subscription) {
            return Arc::clone(roster);
        }
        // Those that nobody reads any more are swept when the map has doubled.
        if inner.by_subscription.len() == inner.by_subscription.capacity() {
            inner.sweep();
        }
        let next_lot = inner.next_lot.max(Lot(term << 32 | 1));
        let roster =
            Arc::new(SharedRoster { roster: Mutex::new(Roster::new(next_lot)), changed: Notify::new() });
        inner.by_subscription.insert(subscription, Arc::clone(&roster));
        roster
    }

    /// Another term: consumers come anew.
    pub(super) fn clear(&self) {
        let gone = std::mem::take(&mut *self.inner.lock());
        gone.by_subscription.values().for_each(|roster| roster.changed.notify_waiters());
    }
}

impl Inner {
    /// Whoever asks just now has a clone of its roster.
    fn sweep(&mut self) {
        let next_lot = &mut self.next_lot;
        self.by_subscription.retain(|_, shared| {
            let roster = shared.lock();
            *next_lot = roster.next_lot().max(*next_lot);
            !roster.is_empty() || Arc::strong_count(shared) > 1
        });
    }
}

impl SharedRoster {
    /// The roster.
    pub fn lock(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock()
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::ids::{PartitionId, TimestampMs};

    use super::*;
    use crate::subscription::Attend;

    #[test]
    fn what_nobody_reads_is_swept_and_lots_go_on_behind_it() {
        let rosters = Rosters::default();
        let holder: Arc<str> = "a".into();
        let attend = |roster: &SharedRoster| {
            let knows = [(Incarnation(1), PartitionId(0))].into();
            let until = TimestampMs(1);
            roster.lock().attend(Attend { holder: &holder, takes_over: None, knows, until });
            roster.lock().portion("a").parts[0].1
        };
        let (kept, gone) = (rosters.of(Incarnation(1), 7), rosters.of(Incarnation(2), 7));
        let (_, last) = (attend(&kept), attend(&gone));
        gone.lock().expire(TimestampMs(1));
        drop((kept, gone));
        (3..1_000).for_each(|n| drop(rosters.of(Incarnation(n), 7)));
        assert!(rosters.inner.lock().by_subscription.len() < 500);
        assert_eq!(rosters.of(Incarnation(1), 7).lock().len(), 1);
        assert!(attend(&rosters.of(Incarnation(2), 7)) > last);
    }
}
