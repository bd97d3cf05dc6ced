//! What subscriptions hold of the partitions of a shard.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use weir_protocol::ids::{Incarnation, LogIndex, Offset};
use weir_protocol::rpc::{SubscriptionConfig, SubscriptionName, TopicName};

use super::cow_map::CowMap;
use super::dedupe::PartitionKey;
use crate::subscription::Part;

/// A part: a subscription's life and a partition.
pub type PartKey = (Incarnation, PartitionKey);

/// A part and what its subscription says.
#[derive(Debug, Clone)]
pub struct HeldPart {
    /// The subscription.
    pub name: Arc<SubscriptionName>,
    /// Its configuration, as far as this shard was told.
    pub config: Arc<SubscriptionConfig>,
    /// Version of that.
    pub version: u32,
    /// The entry that opened it; 0: one that a checkpoint covers, which does not say.
    pub opened: LogIndex,
    /// What is settled, and what is known of the rest.
    pub part: Part,
}

impl HeldPart {
    /// The topic that its dead letters go to, if any does.
    #[must_use]
    pub(super) fn letters_to(&self) -> Option<TopicName> {
        let topic = self.config.dead_letter_topic.clone()?;
        let SubscriptionName { tenant, namespace, .. } = &*self.name;
        Some(TopicName { tenant: tenant.clone(), namespace: namespace.clone(), topic })
    }
}

/// Parts by key, and which subscriptions a partition has, lowest floor first, which follows from them.
#[derive(Debug, Clone, Default)]
pub struct Parts {
    pub(super) held: CowMap<PartKey, Arc<HeldPart>>,
    by_partition: BTreeMap<PartitionKey, BTreeSet<(Offset, Incarnation)>>,
    /// What the snapshots of all of them weigh that no seek has named.
    past_weight: u64,
}

impl Parts {
    /// A part.
    #[must_use]
    pub fn get(&self, key: &PartKey) -> Option<&Arc<HeldPart>> {
        self.held.get(key)
    }

    /// Number of parts.
    #[must_use]
    pub fn len(&self) -> usize {
        self.held.len()
    }

    /// True if there is none.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len() == 0
    }

    /// Parts of queues with records that were delivered before and are not settled, in no order.
    #[must_use]
    pub fn tried(&self) -> Vec<(PartKey, Arc<HeldPart>)> {
        let tried =
            self.held.iter().filter(|(_, held)| !held.config.is_stream && held.part.retries_len() > 0);
        tried.map(|(key, held)| (*key, Arc::clone(held))).collect()
    }

    /// Opens a part; false if it is there.
    pub(super) fn open(&mut self, key: PartKey, held: HeldPart) -> bool {
        if self.held.get(&key).is_some() {
            return false;
        }
        self.past_weight += held.part.past_weight();
        self.by_partition.entry(key.1).or_default().insert((held.part.floor(), key.0));
        self.held.insert(key, Arc::new(held));
        true
    }

    pub(super) fn close(&mut self, key: PartKey) {
        if let Some(held) = self.held.remove(&key)
            && let Some(subscriptions) = self.by_partition.get_mut(&key.1)
        {
            self.past_weight -= held.part.past_weight();
            subscriptions.remove(&(held.part.floor(), key.0));
            if subscriptions.is_empty() {
                self.by_partition.remove(&key.1);
            }
        }
    }

    /// The partition is gone, and with it what subscriptions held of it.
    pub(super) fn close_partition(&mut self, partition: PartitionKey) {
        for (_, subscription) in self.by_partition.remove(&partition).unwrap_or_default() {
            if let Some(held) = self.held.remove(&(subscription, partition)) {
                self.past_weight -= held.part.past_weight();
            }
        }
    }

    /// Changes a part; `None` if it is not here.
    pub(super) fn change<R>(&mut self, key: &PartKey, change: impl FnOnce(&mut HeldPart) -> R) -> Option<R> {
        self.held.get(key)?;
        let held = Arc::make_mut(self.held.get_mut(key).expect("looked up just now"));
        let (before, weight) = (held.part.floor(), held.part.past_weight());
        let changed = change(held);
        let after = held.part.floor();
        self.past_weight = self.past_weight - weight + held.part.past_weight();
        if before != after {
            let floors = self.by_partition.get_mut(&key.1).expect("every part is listed");
            floors.remove(&(before, key.0));
            floors.insert((after, key.0));
        }
        Some(changed)
    }

    /// What their snapshots weigh that no seek has named: at most [`crate::subscription::PAST_WEIGHT_MAX`].
    #[must_use]
    pub fn past_weight(&self) -> u64 {
        self.past_weight
    }

    /// Subscriptions that hold a part of a partition.
    pub(super) fn of(&self, partition: PartitionKey) -> Vec<Incarnation> {
        let subscriptions = self.by_partition.get(&partition).into_iter().flatten();
        subscriptions.map(|(_, subscription)| *subscription).collect()
    }

    /// Below it every subscription of a partition has settled all; `None` if it has none.
    pub(super) fn lowest_floor(&self, partition: PartitionKey) -> Option<Offset> {
        self.by_partition.get(&partition)?.first().map(|(floor, _)| *floor)
    }

    /// The subscription that has settled least of a partition from its beginning on.
    pub(super) fn last_of(&self, partition: PartitionKey) -> Option<&SubscriptionName> {
        let (_, life) = self.by_partition.get(&partition)?.first()?;
        self.held.get(&(*life, partition)).map(|held| &*held.name)
    }

    /// Checks that parts and partitions agree.
    ///
    /// # Panics
    /// If they do not.
    pub(super) fn check(&self, bounds: impl Fn(PartitionKey) -> Option<Range<Offset>>) {
        let listed: usize = self.by_partition.values().map(BTreeSet::len).sum();
        assert_eq!(listed, self.held.len(), "every part is listed once");
        let weight: u64 = self.held.iter().map(|(_, held)| held.part.past_weight()).sum();
        assert_eq!(weight, self.past_weight, "what snapshots weigh");
        for ((subscription, partition), held) in self.held.iter() {
            let bounds = bounds(*partition).expect("a part has its partition");
            let floor = held.part.floor();
            assert!(self.by_partition[partition].contains(&(floor, *subscription)), "listed by its floor");
            assert!(
                bounds.start <= floor && floor <= bounds.end,
                "part of {subscription} at {floor} of {bounds:?}"
            );
        }
    }
}
