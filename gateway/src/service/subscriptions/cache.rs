//! Subscriptions that were described lately. Bounded: the one unused for longest goes first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

use super::described::{Subscription, SubscriptionPath};

/// How long a topic that a pattern matches may exist before it is consumed.
pub(super) const PATTERN_AGE_MAX: Duration = Duration::from_secs(1);

/// A description, and which partition is asked first the next time.
#[derive(Debug)]
pub(super) struct Known {
    pub(super) subscription: Subscription,
    turn: AtomicU32,
    /// When its parts were looked up last.
    looked_up: Mutex<Instant>,
}

impl Known {
    /// The first turn is anybody's, so that gateways that start together do not all begin with the same partition.
    pub(super) fn new(subscription: Subscription) -> Self {
        Self { subscription, turn: AtomicU32::new(rand::random()), looked_up: Mutex::new(Instant::now()) }
    }

    /// Whether parts may have come that nobody here knows of.
    pub(super) fn is_old(&self) -> bool {
        self.subscription.is_pattern() && self.looked_up.lock().elapsed() >= PATTERN_AGE_MAX
    }

    /// Counts pulls; each begins with the next partition.
    pub(super) fn take_turn(&self) -> u32 {
        self.turn.fetch_add(1, Ordering::Relaxed) % self.subscription.partitions().max(1)
    }
}

#[derive(Debug)]
struct Entry {
    known: Arc<Known>,
    used: u64,
}

/// Never authoritative: parts refuse what is out of date, and then [`Cache::forget`] is called.
#[derive(Debug)]
pub(super) struct Cache {
    entries: HashMap<SubscriptionPath, Entry>,
    /// By last use; as many as `entries`.
    order: BTreeMap<u64, SubscriptionPath>,
    clock: u64,
    max: usize,
}

impl Cache {
    /// Remembers at most `max` subscriptions, at least one.
    pub(super) fn new(max: usize) -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), clock: 0, max: max.max(1) }
    }

    /// The subscription, if it is remembered.
    pub(super) fn get(&mut self, path: &SubscriptionPath) -> Option<Arc<Known>> {
        let entry = self.entries.get_mut(path)?;
        self.clock += 1;
        let path = self.order.remove(&entry.used)?;
        entry.used = self.clock;
        self.order.insert(self.clock, path);
        Some(Arc::clone(&entry.known))
    }

    /// Remembers a description unless a newer one is remembered; whichever is remembered then.
    pub(super) fn put(&mut self, subscription: Subscription) -> Arc<Known> {
        let age = |of: &Subscription| (of.created, of.id, of.version);
        if let Some(entry) = self.entries.get(&subscription.path) {
            let known = &entry.known.subscription;
            if *known == subscription {
                *entry.known.looked_up.lock() = Instant::now();
                return Arc::clone(&entry.known);
            }
            if age(known) > age(&subscription) {
                return Arc::clone(&entry.known);
            }
            self.remove(&subscription.path);
        }
        self.clock += 1;
        let (path, known) = (subscription.path.clone(), Arc::new(Known::new(subscription)));
        self.order.insert(self.clock, path.clone());
        self.entries.insert(path, Entry { known: Arc::clone(&known), used: self.clock });
        while self.entries.len() > self.max {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.entries.remove(&oldest);
        }
        known
    }

    /// Forgets a subscription if what is remembered of it is `old`, or anything at all without it.
    pub(super) fn forget(&mut self, path: &SubscriptionPath, old: Option<&Subscription>) {
        let known = self.entries.get(path).map(|entry| &entry.known.subscription);
        if known.is_some_and(|known| old.is_none_or(|old| known == old)) {
            self.remove(path);
        }
    }

    fn remove(&mut self, path: &SubscriptionPath) {
        if let Some(entry) = self.entries.remove(path) {
            self.order.remove(&entry.used);
        }
    }

    /// Subscriptions remembered.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::ids::{Incarnation, Name, PartitionId, ShardId, TimestampMs};
    use weir_protocol::rpc::SubscriptionConfig;

    use super::super::described::PartPlace;
    use super::*;

    fn part(partition: u32) -> PartPlace {
        let (topic, shard) = (Name::default_name(), ShardId(1));
        PartPlace { topic, incarnation: Incarnation(1), partition: PartitionId(partition), shard }
    }

    fn subscription(name: &str, id: u64, version: u32) -> Subscription {
        Subscription {
            path: SubscriptionPath {
                tenant: Name::default_name(),
                namespace: Name::default_name(),
                subscription: Name::new(name).unwrap(),
            },
            id,
            version,
            config: SubscriptionConfig::default(),
            lives: vec![Incarnation(1)],
            parts: (0..3).map(part).collect(),
            left_out: 0,
            fork: None,
            created: TimestampMs(id),
        }
    }

    #[test]
    fn the_one_unused_for_longest_goes_first() {
        let mut cache = Cache::new(2);
        let [a, b, c] =
            ["a", "b", "c"].map(|name| cache.put(subscription(name, 1, 1)).subscription.path.clone());
        assert!(cache.get(&a).is_none() && cache.get(&b).is_some() && cache.get(&c).is_some());
        cache.get(&b);
        cache.put(subscription("d", 1, 1));
        assert!(cache.get(&b).is_some() && cache.get(&c).is_none());
        assert_eq!((cache.len(), cache.order.len()), (2, 2));
    }

    #[test]
    fn an_older_answer_changes_nothing_and_the_same_one_keeps_the_turns() {
        let mut cache = Cache::new(2);
        let known = cache.put(subscription("a", 2, 5));
        let path = known.subscription.path.clone();
        for older in [subscription("a", 2, 4), subscription("a", 1, 9), subscription("a", 2, 5)] {
            assert!(Arc::ptr_eq(&known, &cache.put(older)));
        }
        cache.forget(&path, Some(&subscription("a", 2, 4)));
        assert!(cache.get(&path).is_some(), "what is remembered is not what was old");
        assert_eq!(cache.put(subscription("a", 3, 1)).subscription.id, 3);
        cache.forget(&path, Some(&subscription("a", 3, 1)));
        assert!(cache.get(&path).is_none());
        assert_eq!(cache.order.len(), 0);
    }

    #[test]
    fn every_partition_has_its_turn() {
        let known = Known::new(subscription("a", 1, 1));
        let mut turns: Vec<_> = (0..3).map(|_| known.take_turn()).collect();
        turns.sort_unstable();
        assert_eq!(turns, [0, 1, 2]);
    }
}
