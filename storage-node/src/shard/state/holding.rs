//! Who keeps messages in the journal, by name: for those who have to make room.

use std::collections::BTreeMap;

use weir_protocol::ids::TimestampMs;
use weir_protocol::rpc::TopicName;

use super::apply::ShardState;

/// Why messages are kept.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Keeps {
    /// A topic keeps them by its retention.
    Topic,
    /// A topic that removes what is settled (`until_settled`) keeps them, for the subscription with this name.
    Subscription,
    /// They are dead letters on their way to the topic with this name.
    DeadLetters,
    /// A settle has published them, and the shard of the topic with this name has not taken them yet.
    Outputs,
}

impl Keeps {
    /// A word for labels and people.
    #[must_use]
    pub fn word(self) -> &'static str {
        match self {
            Self::Topic => "topic",
            Self::Subscription => "subscription",
            Self::DeadLetters => "dead letters for topic",
            Self::Outputs => "outputs for topic",
        }
    }
}

/// What somebody keeps in the journal.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Kept {
    /// Bytes of batches.
    pub bytes: u64,
    /// When the oldest came.
    pub since: TimestampMs,
}

impl ShardState {
    /// What each keeps of the journal, by what it is and its name with its namespace. Visits every partition.
    #[must_use]
    pub fn holding(&self) -> BTreeMap<(Keeps, String), Kept> {
        let mut all: BTreeMap<(Keeps, String), Kept> = BTreeMap::new();
        let mut add = |who, bytes, since| {
            let kept = all.entry(who).or_insert(Kept { bytes: 0, since });
            (kept.bytes, kept.since) = (kept.bytes + bytes, kept.since.min(since));
        };
        for (key, partition) in self.partitions.iter() {
            let Some(oldest) = partition.oldest_unsealed() else { continue };
            let subscription =
                partition.config.retention_until_settled.then(|| self.parts.last_of(*key)).flatten();
            let who = match subscription {
                Some(name) => (Keeps::Subscription, format!("{}/{}", name.namespace, name.subscription)),
                None => (Keeps::Topic, self.name_of(key.0).unwrap_or_default()),
            };
            add(who, partition.unsealed_bytes(), oldest.ts);
        }
        for letter in self.dead_letters.iter().filter(|letter| letter.pack.is_none()) {
            let TopicName { namespace, topic, .. } = &letter.topic;
            let who = (Keeps::DeadLetters, format!("{namespace}/{topic}"));
            add(who, u64::from(letter.batch.len), letter.batch.ts);
        }
        for output in self.outputs.lanes.values().flat_map(|lane| &lane.rows) {
            let who = (Keeps::Outputs, self.name_of(output.to.0).unwrap_or_default());
            add(who, u64::from(output.batch.len), output.batch.ts);
        }
        all
    }
}
