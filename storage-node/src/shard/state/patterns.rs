//! Subscriptions to all topics whose names begin alike: every shard knows them, and opens parts by itself.
//!
//! ```text
//!   home shard of the subscription ─ outbox ─▶ every shard ─┬─ is told of it: parts of the partitions it has, from `start`
//!                                                          └─ opens a partition that matches: its part, from the beginning
//! ```
//! A part is opened in the entry that opens its partition, so there is no record that it does not know, however late
//! anybody notices that there is another topic.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, PartitionId};
use weir_protocol::limits::SUBSCRIPTION_PARTS_MAX;
use weir_protocol::rpc::{
    At as From, FoundPart, FoundParts, ListPartsRequest, Refusal, SubscriptionDescription, TopicDescription,
    TopicName,
};

use super::apply::{Applied, ShardState};
use super::dedupe::PartitionKey;
use super::subscribing::Begin;

/// A subscription with a pattern, and what this shard has of it.
#[derive(Debug, Clone)]
pub(super) struct Pattern {
    pub(super) subscription: Arc<SubscriptionDescription>,
    /// Parts here.
    parts: usize,
    /// Partitions here that match and have no part, because there were too many.
    pub(super) left_out: u64,
}

/// Those that this shard was told of, by life and by namespace.
#[derive(Debug, Clone, Default)]
pub(super) struct Patterns {
    pub(super) lives: BTreeMap<Incarnation, Pattern>,
    /// Follows from `lives`.
    by_namespace: BTreeMap<(String, String), BTreeSet<Incarnation>>,
}

impl Patterns {
    fn namespace(subscription: &SubscriptionDescription) -> (String, String) {
        (subscription.name.tenant.clone(), subscription.name.namespace.clone())
    }

    /// One of a checkpoint; false if it is there.
    pub(super) fn restore(
        &mut self,
        subscription: SubscriptionDescription,
        parts: usize,
        left_out: u64,
    ) -> bool {
        let life = Incarnation(subscription.id);
        self.by_namespace.entry(Self::namespace(&subscription)).or_default().insert(life);
        let pattern = Pattern { subscription: Arc::new(subscription), parts, left_out };
        self.lives.insert(life, pattern).is_none()
    }

    /// What is said of it now; true if nothing was before.
    fn told(&mut self, subscription: &SubscriptionDescription) -> bool {
        let life = Incarnation(subscription.id);
        self.by_namespace.entry(Self::namespace(subscription)).or_default().insert(life);
        let subscription = Arc::new(subscription.clone());
        if let Some(known) = self.lives.get_mut(&life) {
            known.subscription = subscription;
            return false;
        }
        self.lives.insert(life, Pattern { subscription, parts: 0, left_out: 0 });
        true
    }

    fn remove(&mut self, subscription: &SubscriptionDescription) {
        let (life, namespace) = (Incarnation(subscription.id), Self::namespace(subscription));
        self.lives.remove(&life);
        if let Some(lives) = self.by_namespace.get_mut(&namespace) {
            lives.remove(&life);
            if lives.is_empty() {
                self.by_namespace.remove(&namespace);
            }
        }
    }

    /// How many of a namespace are at home in a shard.
    pub(super) fn at_home(&self, of: &SubscriptionDescription) -> usize {
        let home = Incarnation(of.id).home();
        let lives = self.by_namespace.get(&Self::namespace(of));
        lives.map_or(0, |lives| lives.iter().filter(|life| life.home() == home).count())
    }

    /// Those that consume a topic.
    fn of(&self, topic: &TopicName) -> Vec<Incarnation> {
        let key = (topic.tenant.clone(), topic.namespace.clone());
        let lives = self.by_namespace.get(&key).into_iter().flatten();
        let is_meant = |life: &&Incarnation| self.lives[*life].subscription.config.consumes(&topic.topic);
        lives.filter(is_meant).copied().collect()
    }
}

impl ShardState {
    /// A subscription with a pattern is made or changed: parts of what matches and has none.
    pub(super) fn pattern_told(&mut self, subscription: &SubscriptionDescription, applied: &mut Applied) {
        let is_new = Arc::make_mut(&mut self.patterns).told(subscription);
        // What comes later is new in its topic, and nothing of it is passed over.
        let begin = if is_new { Begin::of(subscription) } else { Begin::At(From::Earliest(true).into()) };
        let life = Incarnation(subscription.id);
        let keys = self.matching(subscription);
        if let Some(pattern) = Arc::make_mut(&mut self.patterns).lives.get_mut(&life) {
            pattern.left_out = 0; // counted anew
        }
        for key in keys {
            self.open_matching(life, key, begin);
            applied.touched.push(key);
        }
    }

    /// It is deleted.
    pub(super) fn pattern_gone(&mut self, subscription: &SubscriptionDescription) {
        Arc::make_mut(&mut self.patterns).remove(subscription);
    }

    /// A topic has partitions here from now on.
    pub(super) fn match_topic(&mut self, topic: &TopicDescription) {
        let Some(name) = &topic.name else { return };
        for life in self.patterns.of(name) {
            for key in self.keys_of(topic) {
                self.open_matching(life, key, Begin::At(From::Earliest(true).into()));
            }
        }
    }

    /// A topic will have no partitions here; its parts are still there.
    pub(super) fn unmatch_topic(&mut self, topic: &TopicDescription) {
        let Some(name) = &topic.name else { return };
        for life in self.patterns.of(name) {
            for key in self.keys_of(topic) {
                let has_part = self.parts.get(&(life, key)).is_some();
                let Some(pattern) = Arc::make_mut(&mut self.patterns).lives.get_mut(&life) else { continue };
                match has_part {
                    true => pattern.parts -= 1,
                    false => pattern.left_out -= 1,
                }
            }
        }
    }

    fn open_matching(&mut self, life: Incarnation, key: PartitionKey, begin: Begin<'_>) {
        let Some(pattern) = self.patterns.lives.get(&life) else { return };
        let (subscription, count) = (Arc::clone(&pattern.subscription), pattern.parts);
        if self.parts.get(&(life, key)).is_some() {
            return;
        }
        let is_opened = count < SUBSCRIPTION_PARTS_MAX && self.open_part((life, key), &subscription, begin);
        let Some(pattern) = Arc::make_mut(&mut self.patterns).lives.get_mut(&life) else { return };
        match is_opened {
            true => pattern.parts += 1,
            false => pattern.left_out += 1,
        }
    }

    /// Partitions here of the topics that a pattern matches, in order.
    pub(super) fn matching(&self, subscription: &SubscriptionDescription) -> Vec<PartitionKey> {
        let (name, config) = (&subscription.name, &subscription.config);
        let Some(prefix) = config.prefix() else { return Vec::new() };
        let is_meant = |topic: &&Arc<TopicDescription>| {
            topic.name.as_ref().is_some_and(|topic| {
                (&topic.tenant, &topic.namespace) == (&name.tenant, &name.namespace)
                    && topic.topic.starts_with(prefix)
            })
        };
        let guests = self.guests.iter().map(|(_, topic)| topic).filter(is_meant);
        let at_home = self.topics.beginning_with(&name.tenant, &name.namespace, prefix);
        let at_home = at_home.flat_map(|topic| self.keys_of(&topic));
        let mut keys: Vec<_> = at_home.chain(guests.flat_map(|topic| self.keys_of(topic))).collect();
        keys.sort_unstable();
        keys
    }

    /// A topic that has partitions here.
    pub(super) fn topic(&self, life: Incarnation) -> Option<TopicDescription> {
        self.topics.life(life).or_else(|| self.guests.get(&life).map(|topic| (**topic).clone()))
    }

    /// What that topic is called in its namespace.
    pub(super) fn topic_name(&self, life: Incarnation) -> Option<&str> {
        let guest = || self.guests.get(&life)?.name.as_ref().map(|name| name.topic.as_str());
        self.topics.name(life).or_else(guest)
    }

    /// The parts that a subscription has here.
    ///
    /// # Errors
    /// `subscription_not_found` of a pattern that this shard knows nothing of.
    pub fn parts_of(&self, request: &ListPartsRequest) -> Result<FoundParts, Refusal> {
        let life = Incarnation(request.subscription);
        let (keys, left_out) = if request.is_pattern {
            let pattern = self.patterns.lives.get(&life).ok_or_else(|| {
                Refusal::new(
                    ErrorCode::SubscriptionNotFound,
                    "the subscription is not known here: it was deleted",
                )
            })?;
            (self.matching(&pattern.subscription), pattern.left_out)
        } else {
            let topics = request.incarnations.iter().filter_map(|life| self.topic(Incarnation(*life)));
            (topics.flat_map(|topic| self.keys_of(&topic)).collect(), 0)
        };
        let found = |key: PartitionKey| {
            let (incarnation, PartitionId(partition)) = key;
            self.parts.get(&(life, key))?;
            let topic = self.topic_name(incarnation)?.to_owned();
            Some(FoundPart { topic, incarnation: incarnation.0, partition })
        };
        Ok(FoundParts { parts: keys.into_iter().filter_map(found).collect(), left_out })
    }

    /// Checks that the counts are those of the parts.
    pub(super) fn check_patterns(&self) {
        for (life, pattern) in &self.patterns.lives {
            let keys = self.matching(&pattern.subscription);
            let parts = keys.iter().filter(|key| self.parts.get(&(*life, **key)).is_some()).count();
            assert_eq!(pattern.parts, parts, "parts of {life}");
            assert_eq!(pattern.left_out, (keys.len() - parts) as u64, "left out of {life}");
        }
    }
}
