//! A subscription as its home shard described it.

use std::collections::BTreeSet;

use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Incarnation, Name, PartitionId, ShardId, TimestampMs, TopicPath};
use weir_protocol::rpc::{
    ForkOrigin, PartRef, SubscriptionConfig, SubscriptionDescription, SubscriptionName,
};

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

/// One version of one life of a subscription, and the parts it has.
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
    /// The lives of the topics that it names, in their order; none of a pattern.
    pub lives: Vec<Incarnation>,
    /// What it holds, by life of the topic and partition. Of several topics only what is there still.
    pub parts: Vec<PartPlace>,
    /// Partitions that a pattern matches and that have no part, because there are too many.
    pub left_out: u64,
    /// When it was created.
    pub created: TimestampMs,
    /// What it began as, if not anew.
    pub fork: Option<ForkOrigin>,
}

/// A part: what a subscription holds of one partition, and where.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PartPlace {
    /// The topic.
    pub topic: Name,
    /// Its life.
    pub incarnation: Incarnation,
    /// The partition.
    pub partition: PartitionId,
    /// The shard that holds it.
    pub shard: ShardId,
}

impl Subscription {
    /// It consumes one topic, named by its name.
    #[must_use]
    pub fn is_of_one(&self) -> bool {
        !self.config.is_of_several()
    }

    /// It consumes every topic that matches.
    #[must_use]
    pub fn is_pattern(&self) -> bool {
        self.config.prefix().is_some()
    }

    /// Number of parts; at least 1 of a subscription to one topic.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        u32::try_from(self.parts.len()).expect("checked when it was read")
    }

    /// What the shard of a part calls it.
    #[must_use]
    pub fn part(&self, place: usize) -> PartRef {
        let PartPlace { incarnation, partition, .. } = self.parts[place];
        PartRef { subscription: self.id, incarnation: incarnation.0, partition: partition.0 }
    }

    /// Place of the part that holds a partition of a life of a topic.
    #[must_use]
    pub fn place_of(&self, incarnation: Incarnation, partition: PartitionId) -> Option<usize> {
        self.parts.binary_search_by_key(&(incarnation, partition), PartPlace::key).ok()
    }

    /// Whether it has a part.
    pub(super) fn has(&self, (incarnation, partition): &(Incarnation, PartitionId)) -> bool {
        self.place_of(*incarnation, *partition).is_some()
    }

    /// Place of the part that holds a partition; the topic is told if there are several.
    ///
    /// # Errors
    /// `partition_not_found`; `invalid_parameter` without a topic where one is needed.
    pub fn place_named(&self, topic: Option<&str>, partition: PartitionId) -> Result<usize, ServiceError> {
        if topic.is_none() && !self.is_of_one() {
            let detail = "the subscription consumes several topics: say which, as in orders:0:17";
            return Err(ServiceError::new(ErrorCode::InvalidParameter, detail));
        }
        let is_meant = |part: &PartPlace| {
            part.partition == partition && topic.is_none_or(|topic| part.topic.as_str() == topic)
        };
        self.parts.iter().position(is_meant).ok_or_else(|| {
            let detail = match topic {
                Some(topic) => format!("the subscription has no partition {partition} of a topic {topic}"),
                None => format!("the topic has partitions 0 to {}", self.partitions() - 1),
            };
            ServiceError::new(ErrorCode::PartitionNotFound, detail).with_partition(partition)
        })
    }

    /// The topic of a part, where it has to be told.
    #[must_use]
    pub fn topic_of(&self, place: usize) -> Option<Name> {
        (!self.is_of_one()).then(|| self.parts[place].topic.clone())
    }

    /// The topics that it names and that are there no more.
    #[must_use]
    pub fn deleted_topics(&self) -> Vec<&String> {
        let is_there = |life: &Incarnation| self.parts.iter().any(|part| part.incarnation == *life);
        self.config
            .topics()
            .zip(&self.lives)
            .filter(|(_, life)| !is_there(life))
            .map(|(name, _)| name)
            .collect()
    }

    /// Its topic, if there is one.
    ///
    /// # Errors
    /// `internal` if the home shard named one that cannot be.
    pub fn topic(&self) -> Result<TopicPath, ServiceError> {
        let topic = Name::new(&self.config.topic).map_err(|_| bad("a subscription of an invalid topic"))?;
        let (tenant, namespace) = (self.path.tenant.clone(), self.path.namespace.clone());
        Ok(TopicPath { tenant, namespace, topic })
    }
}

impl PartPlace {
    /// What orders parts.
    #[must_use]
    pub fn key(&self) -> (Incarnation, PartitionId) {
        (self.incarnation, self.partition)
    }
}

/// A description, of which the parts are not looked up yet: those it was made with, and of a pattern none.
pub(super) struct Described {
    pub(super) subscription: Subscription,
    /// Every shard that may hold parts.
    pub(super) shards: BTreeSet<ShardId>,
}

fn bad(what: &str) -> ServiceError {
    ServiceError::bad_answer(what, Outcome::None)
}

impl TryFrom<SubscriptionDescription> for Described {
    type Error = ServiceError;

    fn try_from(description: SubscriptionDescription) -> Result<Self, ServiceError> {
        let name = |text: &str| Name::new(text).map_err(|_| bad("a subscription with an invalid name"));
        let path = SubscriptionPath {
            tenant: name(&description.name.tenant)?,
            namespace: name(&description.name.namespace)?,
            subscription: name(&description.name.subscription)?,
        };
        let all = description.more.iter().flat_map(|topic| &topic.shards).chain(&description.shards);
        let shards = all.map(|shard| ShardId(*shard)).collect();
        let (mut lives, mut parts) = (Vec::new(), Vec::new());
        for (topic, (life, shards)) in description.config.topics().zip(description.consumed()) {
            let (topic, incarnation) = (name(topic)?, Incarnation(life));
            lives.push(incarnation);
            parts.extend((0..).zip(shards).map(|(partition, shard)| PartPlace {
                topic: topic.clone(),
                incarnation,
                partition: PartitionId(partition),
                shard: ShardId(*shard),
            }));
        }
        let is_pattern = description.config.prefix().is_some();
        if (parts.is_empty() && !is_pattern) || u32::try_from(parts.len()).is_err() {
            return Err(bad("a subscription without partitions"));
        }
        parts.sort_unstable_by_key(PartPlace::key);
        let subscription = Subscription {
            path,
            id: description.id,
            version: description.version,
            config: description.config,
            lives,
            parts,
            left_out: 0,
            created: TimestampMs(description.created_ms),
            fork: description.fork,
        };
        Ok(Self { subscription, shards })
    }
}
