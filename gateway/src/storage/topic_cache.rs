//! Topics that were described lately. Bounded: the one unused for longest goes first.

use std::collections::{BTreeMap, HashMap};
use std::sync::Arc;

use weir_protocol::ids::{ConfigVersion, Incarnation, TopicPath};

use super::topic::Topic;

#[derive(Debug)]
struct Entry {
    topic: Arc<Topic>,
    used: u64,
}

/// Never authoritative: storage nodes refuse what is out of date, and then [`TopicCache::forget`] is called.
#[derive(Debug)]
pub(super) struct TopicCache {
    entries: HashMap<TopicPath, Entry>,
    /// By last use; as many as `entries`.
    order: BTreeMap<u64, TopicPath>,
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
        let entry = self.entries.get_mut(path)?;
        self.clock += 1;
        let path = self.order.remove(&entry.used)?;
        entry.used = self.clock;
        self.order.insert(self.clock, path);
        Some(Arc::clone(&entry.topic))
    }

    /// Remembers a topic unless a newer description is remembered already. Returns how many were forgotten for it.
    pub(super) fn put(&mut self, topic: Arc<Topic>) -> usize {
        let age = |topic: &Topic| (topic.created, topic.incarnation, topic.version);
        if let Some(entry) = self.entries.get_mut(&topic.path) {
            if age(&entry.topic) <= age(&topic) {
                entry.topic = topic;
            }
            return 0;
        }
        self.clock += 1;
        self.order.insert(self.clock, topic.path.clone());
        self.entries.insert(topic.path.clone(), Entry { topic, used: self.clock });
        let mut evicted = 0;
        while self.entries.len() > self.max {
            let Some((_, oldest)) = self.order.pop_first() else { break };
            self.entries.remove(&oldest);
            evicted += 1;
        }
        evicted
    }

    /// Forgets a topic if what is remembered of it is not newer than what turned out to be old.
    pub(super) fn forget(&mut self, path: &TopicPath, old: (Incarnation, ConfigVersion)) {
        let is_old = |topic: &Topic| topic.incarnation != old.0 || topic.version <= old.1;
        if self.entries.get(path).is_some_and(|entry| is_old(&entry.topic))
            && let Some(entry) = self.entries.remove(path)
        {
            self.order.remove(&entry.used);
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
            config: TopicConfig::default(),
            shards: vec![ShardId(1)],
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
}
