//! A subscription as its home shard described it.

use weir_protocol::error::Outcome;
use weir_protocol::ids::{Incarnation, Name, PartitionId, ShardId, TimestampMs, TopicPath};
use weir_protocol::rpc::{PartRef, SubscriptionConfig, SubscriptionDescription, SubscriptionName};

use crate::service::ServiceError;

/// Full name of a subscription.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct SubscriptionPath {
    /// Owner.
    pub tenant: Name,
    /// Namespace.
    pub namespace: Name,
    /// Subscription.
    pub subscription: Name,
}

impl SubscriptionPath {
    /// What places it: a subscription is at home where a topic of its name would be.
    pub(super) fn place(&self) -> TopicPath {
        TopicPath {
            tenant: self.tenant.clone(),
            namespace: self.namespace.clone(),
            topic: self.subscription.clone(),
        }
    }
}

impl From<&SubscriptionPath> for SubscriptionName {
    fn from(path: &SubscriptionPath) -> Self {
        Self {
            tenant: path.tenant.to_string(),
            namespace: path.namespace.to_string(),
            subscription: path.subscription.to_string(),
        }
    }
}

/// One version of one life of a subscription.
#[derive(Debug, Clone, PartialEq)]
pub struct Subscription {
    /// Full name.
    pub path: SubscriptionPath,
    /// This life of it.
    pub id: u64,
    /// Version of its configuration.
    pub version: u32,
    /// Its configuration.
    pub config: SubscriptionConfig,
    /// The life of its topic.
    pub topic_incarnation: Incarnation,
    /// Shard of each of the topic's partitions; at least one.
    pub shards: Vec<ShardId>,
    /// When it was created.
    pub created: TimestampMs,
}

impl Subscription {
    /// Number of partitions, at least 1.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.shards.len()).expect("checked when it was read")
    }

    /// All partitions, by number.
    pub fn partition_ids(&self) -> impl Iterator<Item = PartitionId> + use<> {
        (0..self.partitions()).map(PartitionId)
    }

    /// Shard of a partition; `None` if the topic has no such partition.
    #[must_use]
    pub fn shard(&self, partition: PartitionId) -> Option<ShardId> {
        self.shards.get(partition.0 as usize).copied()
    }

    /// What it holds of a partition.
    #[must_use]
    pub fn part(&self, partition: PartitionId) -> PartRef {
        PartRef { subscription: self.id, incarnation: self.topic_incarnation.0, partition: partition.0 }
    }

    /// Its topic.
    ///
    /// # Errors
    /// `internal` if the home shard named one that cannot be.
    pub fn topic(&self) -> Result<TopicPath, ServiceError> {
        let topic = Name::new(&self.config.topic).map_err(|_| bad("a subscription of an invalid topic"))?;
        let (tenant, namespace) = (self.path.tenant.clone(), self.path.namespace.clone());
        Ok(TopicPath { tenant, namespace, topic })
    }
}

fn bad(what: &str) -> ServiceError {
    ServiceError::bad_answer(what, Outcome::None)
}

impl TryFrom<SubscriptionDescription> for Subscription {
    type Error = ServiceError;

    fn try_from(description: SubscriptionDescription) -> Result<Self, ServiceError> {
        let name = |text: &str| Name::new(text).map_err(|_| bad("a subscription with an invalid name"));
        let path = SubscriptionPath {
            tenant: name(&description.name.tenant)?,
            namespace: name(&description.name.namespace)?,
            subscription: name(&description.name.subscription)?,
        };
        if description.shards.is_empty() || u32::try_from(description.shards.len()).is_err() {
            return Err(bad("a subscription without partitions"));
        }
        Ok(Self {
            path,
            id: description.id,
            version: description.version,
            config: description.config,
            topic_incarnation: Incarnation(description.topic_incarnation),
            shards: description.shards.into_iter().map(ShardId).collect(),
            created: TimestampMs(description.created_ms),
        })
    }
}
