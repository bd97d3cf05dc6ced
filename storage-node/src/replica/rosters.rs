//! Who shares the streams that are at home in a shard: in the leader's memory.

use std::collections::HashMap;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};
use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;
use weir_protocol::ids::{Incarnation, TimestampMs};

use crate::subscription::{Lot, Roster};

/// The rosters of streams that somebody reads.
#[derive(Debug, Default)]
pub struct Rosters {
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    /// Of the home shard, which they are of.
    term: u64,
    by_subscription: HashMap<Incarnation, Arc<SharedRoster>>,
    /// Above all lots of rosters that are gone.
    next_lot: Lot,
}

/// The roster of one stream.
#[derive(Debug)]
pub struct SharedRoster {
    roster: Mutex<Roster>,
    changed: Arc<Notify>,
}

impl Rosters {
    /// The roster of a stream, in a term of its home shard; and what ends when some share is another from now
    /// on, or the roster is gone.
    pub fn of(
        &self,
        subscription: Incarnation,
        term: u64,
        now: TimestampMs,
    ) -> (Arc<SharedRoster>, OwnedNotified) {
        let mut inner = self.inner.lock();
        // Who asks may know of a term first: what it makes now is of it.
        inner.enter(term);
        if let Some(roster) = inner.by_subscription.get(&subscription) {
            return (Arc::clone(roster), roster.watch());
        }
        // Those that nobody reads any more are swept when the map has doubled.
        if inner.by_subscription.len() == inner.by_subscription.capacity() {
            inner.sweep(now);
        }
        let next_lot = inner.next_lot.max(Lot(inner.term << 32 | 1));
        let roster = SharedRoster { roster: Mutex::new(Roster::new(next_lot)), changed: Arc::default() };
        let roster = Arc::new(roster);
        inner.by_subscription.insert(subscription, Arc::clone(&roster));
        (Arc::clone(&roster), roster.watch())
    }

    /// A subscription was deleted: who waits for a share of it looks again.
    pub fn forget(&self, subscription: Incarnation) {
        let mut inner = self.inner.lock();
        if let Some(gone) = inner.by_subscription.remove(&subscription) {
            inner.next_lot = inner.next_lot.max(gone.lock().next_lot());
            gone.tell();
        }
    }

    /// Another term: consumers come anew.
    pub(super) fn enter(&self, term: u64) {
        self.inner.lock().enter(term);
    }
}

impl Inner {
    fn enter(&mut self, term: u64) {
        if term <= self.term {
            return;
        }
        self.term = term;
        for gone in std::mem::take(&mut self.by_subscription).into_values() {
            self.next_lot = self.next_lot.max(gone.lock().next_lot());
            gone.tell();
        }
    }

    /// Whoever asks just now has a clone of its roster. Who is silent for too long is expired by nobody else,
    /// if no other asks.
    fn sweep(&mut self, now: TimestampMs) {
        let next_lot = &mut self.next_lot;
        self.by_subscription.retain(|_, shared| {
            let roster = shared.lock();
            *next_lot = roster.next_lot().max(*next_lot);
            !roster.is_over(now) || Arc::strong_count(shared) > 1
        });
    }
}

impl SharedRoster {
    /// The roster.
    pub fn lock(&self) -> MutexGuard<'_, Roster> {
        self.roster.lock()
    }

    /// Some share is another.
    pub fn tell(&self) {
        self.changed.notify_waiters();
    }

    fn watch(&self) -> OwnedNotified {
        Arc::clone(&self.changed).notified_owned()
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use weir_protocol::ids::PartitionId;

    use super::*;
    use crate::subscription::Attend;

    const NOW: TimestampMs = TimestampMs(1);

    /// Attends until then; the lot under which it is to read.
    fn attend(roster: &SharedRoster, until: u64) -> Lot {
        let holder: Arc<str> = "a".into();
        let knows = [(Incarnation(1), PartitionId(0))].into();
        let until = TimestampMs(until);
        roster.lock().attend(Attend { holder: &holder, takes_over: None, knows, until });
        roster.lock().portion("a").parts[0].1
    }

    #[test]
    fn what_nobody_reads_is_swept_and_lots_go_on_behind_it() {
        let rosters = Rosters::default();
        let of = |n| rosters.of(Incarnation(n), 7, NOW).0;
        attend(&of(1), 2);
        // It pulled, and was silent since.
        let last = attend(&of(2), 1);
        (3..1_000).for_each(|n| drop(of(n)));
        assert!(rosters.inner.lock().by_subscription.len() < 500);
        assert_eq!(of(1).lock().len(), 1);
        assert_eq!(of(2).lock().len(), 0);
        assert!(attend(&of(2), 2) > last);
    }

    #[test]
    fn the_roster_of_a_deleted_subscription_is_gone_and_who_waits_is_told() {
        let rosters = Rosters::default();
        let (roster, changed) = rosters.of(Incarnation(1), 7, NOW);
        let last = attend(&roster, 2);
        rosters.forget(Incarnation(1));
        assert!(changed.now_or_never().is_some());
        assert!(rosters.inner.lock().by_subscription.is_empty());
        assert!(attend(&rosters.of(Incarnation(1), 7, NOW).0, 2) > last);
    }

    #[test]
    fn who_knows_of_a_term_first_begins_it_and_no_lot_is_given_twice() {
        let rosters = Rosters::default();
        let (_, changed) = rosters.of(Incarnation(1), 7, NOW);
        let (roster, still) = rosters.of(Incarnation(1), 8, NOW);
        assert!(changed.now_or_never().is_some(), "who waits in the old term looks again");
        let lot = attend(&roster, 2);
        assert!(lot > Lot(8 << 32));
        rosters.enter(8);
        let (same, _) = rosters.of(Incarnation(1), 7, NOW);
        assert!(Arc::ptr_eq(&roster, &same));
        assert!(still.now_or_never().is_none());
        rosters.enter(9);
        assert!(attend(&rosters.of(Incarnation(1), 9, NOW).0, 2) > lot);
    }
}
