//! Topics that were described lately. Bounded: the one unused for longest goes first.

use std::borrow::Borrow;
use std::collections::{BTreeMap, HashMap};
use std::hash::{Hash, Hasher};
use std::sync::Arc;

use weir_protocol::ids::{ConfigVersion, Incarnation, TopicPath};

use super::topic::Topic;

/// Topics that one which is new is compared with: most have the names and the configuration of some neighbour.
const NEIGHBOURS: usize = 4;

/// A topic that is found by its path.
#[derive(Debug)]
struct ByPath(Arc<Topic>);

impl Borrow<TopicPath> for ByPath {
    fn borrow(&self) -> &TopicPath {
        &self.0.path
    }
}

impl PartialEq for ByPath {
    fn eq(&self, other: &Self) -> bool {
        self.0.path == other.0.path
    }
}

impl Eq for ByPath {}

impl Hash for ByPath {
    fn hash<H: Hasher>(&self, state: &mut H) {
        self.0.path.hash(state);
    }
}

/// Never authoritative: storage nodes refuse what is out of date, and then [`TopicCache::forget`] is called.
#[derive(Debug)]
pub(super) struct TopicCache {
    /// When each was last used.
    entries: HashMap<ByPath, u64>,
    /// By last use; as many as `entries`, and the same.
    order: BTreeMap<u64, Arc<Topic>>,
    clock: u64,
    max: usize,
}

impl TopicCache {
    /// Remembers at most `max` topics, at least one.
    pub(super) fn new(max: usize) -> Self {
        Self { entries: HashMap::new(), order: BTreeMap::new(), clock: 0, max: max.max(1) }
    }

    /// The topic, if it is remembered.
    pub(super) fn get(&mut self, path: &TopicPath) -> Option<Arc<Topic>> {
        let used = self.entries.get_mut(path)?;
        self.clock += 1;
        let topic = self.order.remove(used)?;
        *used = self.clock;
        self.order.insert(self.clock, Arc::clone(&topic));
        Some(topic)
    }

    /// The topic, which shares what is the same with some that were used last: that is most of what one takes.
    pub(super) fn shared(&self, mut topic: Topic) -> Arc<Topic> {
        for known in self.order.values().rev().take(NEIGHBOURS) {
            topic.share(known);
        }
        Arc::new(topic)
    }

    /// Remembers a topic unless a newer description is remembered already. Returns how many were forgotten for it.
    pub(super) fn put(&mut self, topic: Arc<Topic>) -> usize {
        let age = |topic: &Topic| (topic.created, topic.incarnation, topic.version);
        if let Some((known, used)) = self.entries.get_key_value(&topic.path) {
            if age(&known.0) <= age(&topic) {
                let used = *used;
                self.entries.remove(&topic.path);
                self.order.insert(used, Arc::clone(&topic));
                self.entries.insert(ByPath(topic), used);
            }
            return 0;
        }
        self.clock += 1;
        self.order.insert(self.clock, Arc::clone(&topic));
        self.entries.insert(ByPath(topic), self.clock);
        let mut evicted = 0;
        while self.entries.len() > self.max {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.entries.remove(&oldest.path);
            evicted += 1;
        }
        evicted
    }

    /// Forgets a topic if what is remembered of it is not newer than what turned out to be old.
    pub(super) fn forget(&mut self, path: &TopicPath, old: (Incarnation, ConfigVersion)) {
        let is_old = |topic: &Topic| topic.incarnation != old.0 || topic.version <= old.1;
        if self.entries.get_key_value(path).is_some_and(|(known, _)| is_old(&known.0))
            && let Some(used) = self.entries.remove(path)
        {
            self.order.remove(&used);
        }
    }

    /// Topics remembered.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::ids::{Name, ShardId, TimestampMs};
    use weir_protocol::rpc::TopicConfig;

    use super::*;

    fn path(name: &str) -> TopicPath {
        TopicPath {
            tenant: Name::default_name(),
            namespace: Name::default_name(),
            topic: Name::new(name).unwrap(),
        }
    }

    fn topic(name: &str, incarnation: u64, version: u32) -> Arc<Topic> {
        Arc::new(Topic {
            path: path(name),
            incarnation: Incarnation(incarnation),
            version: ConfigVersion(version),
            config: Arc::default(),
            shards: [ShardId(1)].into(),
            created: TimestampMs(incarnation),
            producers_of: Incarnation(incarnation),
        })
    }

    #[test]
    fn the_topic_unused_for_longest_goes_first() {
        let mut cache = TopicCache::new(2);
        cache.put(topic("a", 1, 1));
        cache.put(topic("b", 2, 1));
        assert!(cache.get(&path("a")).is_some());
        assert_eq!(cache.put(topic("c", 3, 1)), 1);
        assert!(cache.get(&path("b")).is_none());
        assert!(cache.get(&path("a")).is_some() && cache.get(&path("c")).is_some());
        assert_eq!((cache.len(), cache.order.len()), (2, 2));
    }

    #[test]
    fn an_answer_that_was_overtaken_changes_nothing() {
        let mut cache = TopicCache::new(2);
        cache.put(topic("a", 1, 5));
        cache.put(topic("a", 1, 4));
        assert_eq!(cache.get(&path("a")).unwrap().version, ConfigVersion(5));
        cache.forget(&path("a"), (Incarnation(1), ConfigVersion(4)));
        assert!(cache.get(&path("a")).is_some(), "what is remembered is newer than what was old");
        cache.forget(&path("a"), (Incarnation(1), ConfigVersion(5)));
        assert!(cache.get(&path("a")).is_none());
        assert_eq!(cache.order.len(), 0);
    }

    #[test]
    fn topics_alike_share_their_names_and_their_configuration_and_others_keep_their_own() {
        let mut cache = TopicCache::new(8);
        let alike = |name: &str, ttl_ms| {
            let config = TopicConfig { partitions: 1, ttl_ms, ..TopicConfig::default() };
            Topic { config: Arc::new(config), ..Arc::unwrap_or_clone(topic(name, 1, 1)) }
        };
        let [a, other, b] = [("a", None), ("other", Some(5)), ("b", None)].map(|(name, ttl_ms)| {
            let topic = cache.shared(alike(name, ttl_ms));
            cache.put(Arc::clone(&topic));
            topic
        });
        assert!(Arc::ptr_eq(&a.config, &b.config));
        assert!(a.path.tenant.shares(&b.path.tenant) && a.path.namespace.shares(&other.path.namespace));
        assert_eq!((*b).clone(), alike("b", None), "it is what it was");
        assert_eq!((*other).clone(), alike("other", Some(5)));
    }

    #[test]
    fn a_newer_description_takes_the_place_of_an_older_one_which_is_free() {
        let mut cache = TopicCache::new(2);
        let old = topic("a", 1, 1);
        cache.put(Arc::clone(&old));
        cache.put(topic("a", 1, 2));
        assert_eq!(cache.get(&path("a")).unwrap().version, ConfigVersion(2));
        assert_eq!(Arc::strong_count(&old), 1, "nothing but this test holds it");
        assert_eq!((cache.len(), cache.order.len()), (1, 1));
    }
}
