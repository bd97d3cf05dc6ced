//! A topic as its home shard described it.

use std::sync::Arc;

use weir_protocol::error::Outcome;
use weir_protocol::ids::{ConfigVersion, Incarnation, PartitionId, ShardId, TimestampMs, TopicPath};
use weir_protocol::rpc::{Level, TopicConfig, TopicDescription};

use super::failure::Failure;

/// No topic's life: the first is 1.
const UNMADE: Incarnation = Incarnation(0);

/// One version of one life of a topic.
#[derive(Debug, Clone, PartialEq)]
pub struct Topic {
    /// Full name.
    pub path: TopicPath,
    /// This life of it.
    pub incarnation: Incarnation,
    /// Version of its configuration.
    pub version: ConfigVersion,
    /// Its configuration; most topics share one with others.
    pub config: Arc<TopicConfig>,
    /// Shard of each partition; at least one.
    pub shards: Box<[ShardId]>,
    /// When it was created.
    pub created: TimestampMs,
    /// The life under which its producers are known.
    pub producers_of: Incarnation,
}

impl Topic {
    /// A topic that is not there, as it would be made: for whoever asks what it would refuse. Its shard is nobody's.
    pub(crate) fn unmade(path: TopicPath, config: TopicConfig) -> Self {
        let shards = (0..config.partitions.max(1)).map(|_| ShardId::META).collect();
        Self {
            path,
            incarnation: UNMADE,
            version: ConfigVersion(0),
            config: Arc::new(config),
            shards,
            created: TimestampMs(0),
            producers_of: UNMADE,
        }
    }

    /// It is not there.
    pub(crate) fn is_unmade(&self) -> bool {
        self.incarnation == UNMADE
    }

    /// Holds what is the same as in `known` once for both.
    pub(super) fn share(&mut self, known: &Self) {
        self.path.tenant.share(&known.path.tenant);
        self.path.namespace.share(&known.path.namespace);
        if self.config == known.config {
            self.config = Arc::clone(&known.config);
        }
    }

    /// Number of partitions, at least 1.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.shards.len()).expect("checked when it was read")
    }

    /// All partitions.
    pub fn partition_ids(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.partitions()).map(PartitionId)
    }

    /// Shard of a partition; `None` if the topic has no such partition.
    #[must_use]
    pub fn shard(&self, partition: PartitionId) -> Option<ShardId> {
        self.shards.get(partition.0 as usize).copied()
    }

    /// Confirm level of publishes that name none.
    #[must_use]
    pub fn default_confirm(&self) -> Level {
        self.config.default_confirm().or(Level::Quorum)
    }

    /// Level from which readers that name none see a record.
    #[must_use]
    pub fn deliver_from(&self) -> Level {
        self.config.deliver_from().or(Level::Quorum)
    }
}

/// `Unset` gives way.
trait OrLevel {
    fn or(self, otherwise: Level) -> Level;
}

impl OrLevel for Level {
    fn or(self, otherwise: Level) -> Level {
        if self == Level::Unset { otherwise } else { self }
    }
}

impl TryFrom<TopicDescription> for Topic {
    type Error = Failure;

    fn try_from(description: TopicDescription) -> Result<Self, Failure> {
        let producers_of = description.producers_of();
        let bad = |what| Failure::bad_answer(what, Outcome::None);
        let name = description.name.ok_or_else(|| bad("a topic without a name"))?;
        let path = TopicPath::try_from(&name).map_err(|_| bad("a topic with an invalid name"))?;
        let config = description.config.ok_or_else(|| bad("a topic without a configuration"))?;
        let shards: Box<[_]> = description.shards.into_iter().map(ShardId).collect();
        if shards.is_empty() || u32::try_from(shards.len()).ok() != Some(config.partitions) {
            return Err(bad("a topic whose partitions have no shards"));
        }
        Ok(Self {
            path,
            incarnation: Incarnation(description.incarnation),
            version: ConfigVersion(description.version),
            config: Arc::new(config),
            shards,
            created: TimestampMs(description.created_ms),
            producers_of,
        })
    }
}
