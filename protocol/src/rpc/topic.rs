//! Topics and their configuration.

use std::fmt;

/// Confirm level of a publish, or the level below which a reader sees nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Enumeration)]
#[repr(i32)]
pub enum Level {
    /// Not chosen: the topic's default applies.
    Unset = 0,
    /// A gateway admitted it.
    None = 1,
    /// The leader assigned an offset.
    Memory = 2,
    /// Synced on the leader's disk.
    Durable = 3,
    /// Synced on a majority of the shard's replicas.
    Quorum = 4,
    /// In object storage.
    Archived = 5,
}

impl Level {
    /// The text clients use.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Unset => "unset",
            Self::None => "none",
            Self::Memory => "memory",
            Self::Durable => "durable",
            Self::Quorum => "quorum",
            Self::Archived => "archived",
        }
    }

    /// The level a client named. `unset` is not one of them.
    #[must_use]
    pub fn from_text(text: &str) -> Option<Self> {
        [Self::None, Self::Memory, Self::Durable, Self::Quorum, Self::Archived]
            .into_iter()
            .find(|level| level.as_str() == text)
    }

    /// Its bit in a set of levels.
    #[must_use]
    pub const fn bit(self) -> u32 {
        1 << self as u32
    }
}

/// Full name of a topic on the wire.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Message)]
pub struct TopicName {
    /// Owner.
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// Namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Topic.
    #[prost(string, tag = "3")]
    pub topic: String,
}

impl fmt::Display for TopicName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.tenant, self.namespace, self.topic)
    }
}

impl From<&crate::ids::TopicPath> for TopicName {
    fn from(path: &crate::ids::TopicPath) -> Self {
        Self {
            tenant: path.tenant.to_string(),
            namespace: path.namespace.to_string(),
            topic: path.topic.to_string(),
        }
    }
}

impl TryFrom<&TopicName> for crate::ids::TopicPath {
    type Error = crate::ids::NameError;
    fn try_from(name: &TopicName) -> Result<Self, Self::Error> {
        Ok(Self {
            tenant: name.tenant.parse()?,
            namespace: name.namespace.parse()?,
            topic: name.topic.parse()?,
        })
    }
}

/// What an administrator sets. Absent limits mean unlimited.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TopicConfig {
    /// Number of partitions, 1 to [`crate::limits::PARTITIONS_MAX`]; cannot be changed yet.
    #[prost(uint32, tag = "1")]
    pub partitions: u32,
    /// Content type of records that name none.
    #[prost(string, optional, tag = "2")]
    pub content_type: Option<String>,
    /// Records older than this are removed.
    #[prost(uint64, optional, tag = "3")]
    pub retention_age_ms: Option<u64>,
    /// Per partition: the oldest records beyond this many encoded bytes are removed.
    #[prost(uint64, optional, tag = "4")]
    pub retention_bytes: Option<u64>,
    /// Per partition: the oldest records beyond this many are removed.
    #[prost(uint64, optional, tag = "5")]
    pub retention_records: Option<u64>,
    /// Records settled by every subscription are removed.
    #[prost(bool, tag = "6")]
    pub retention_until_settled: bool,
    /// Keep the newest record of each key when cold data is rewritten.
    #[prost(bool, tag = "7")]
    pub compact_by_key: bool,
    /// Confirm level of publishes that name none.
    #[prost(enumeration = "Level", tag = "8")]
    pub default_confirm: i32,
    /// Level from which readers see a record unless they say otherwise: memory or quorum.
    #[prost(enumeration = "Level", tag = "9")]
    pub deliver_from: i32,
    /// Publishes that ask for less are refused.
    #[prost(enumeration = "Level", tag = "10")]
    pub min_confirm: i32,
    /// How long idempotency keys are remembered.
    #[prost(uint64, tag = "11")]
    pub dedupe_window_ms: u64,
    /// Records expire after this long unless they say otherwise.
    #[prost(uint64, optional, tag = "12")]
    pub ttl_ms: Option<u64>,
    /// No more records are accepted.
    #[prost(bool, tag = "13")]
    pub closed: bool,
    /// Caches that several clients share may keep what never changes.
    #[prost(bool, tag = "14")]
    pub cache_public: bool,
}

/// A topic as its home shard knows it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TopicDescription {
    /// Full name.
    #[prost(message, optional, tag = "1")]
    pub name: Option<TopicName>,
    /// This life of it.
    #[prost(uint64, tag = "2")]
    pub incarnation: u64,
    /// Version of its configuration, from 1.
    #[prost(uint32, tag = "3")]
    pub version: u32,
    /// Its configuration.
    #[prost(message, optional, tag = "4")]
    pub config: Option<TopicConfig>,
    /// Shard of each partition, indexed by partition.
    #[prost(uint32, repeated, tag = "5")]
    pub shards: Vec<u32>,
    /// When it was created.
    #[prost(uint64, tag = "6")]
    pub created_ms: u64,
    /// The life under which its producers are known; 0: this one. A restore gives a new life, and producers
    /// stay who they are.
    #[prost(uint64, tag = "20")]
    pub first_incarnation: u64,
}

impl TopicDescription {
    /// The life under which producers of this topic are known.
    #[must_use]
    pub fn producers_of(&self) -> crate::ids::Incarnation {
        let first = Some(self.first_incarnation).filter(|first| *first > 0);
        crate::ids::Incarnation(first.unwrap_or(self.incarnation))
    }
}

/// Creates a topic.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateTopicRequest {
    /// Full name. Its namespace has been checked by the gateway.
    #[prost(message, optional, tag = "1")]
    pub name: Option<TopicName>,
    /// Its configuration, complete.
    #[prost(message, optional, tag = "2")]
    pub config: Option<TopicConfig>,
    /// An existing topic of any configuration is fine (auto-create).
    #[prost(bool, tag = "3")]
    pub accept_existing: bool,
}

/// The answer to [`CreateTopicRequest`]. An existing topic with another configuration is `config_mismatch`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TopicCreated {
    /// The topic.
    #[prost(message, optional, tag = "1")]
    pub topic: Option<TopicDescription>,
    /// It did not exist before.
    #[prost(bool, tag = "2")]
    pub created: bool,
}

/// Asks for one topic; `topic_not_found` if there is none.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DescribeTopicRequest {
    /// Full name.
    #[prost(message, optional, tag = "1")]
    pub name: Option<TopicName>,
}

/// Replaces a topic's configuration.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UpdateTopicRequest {
    /// Full name.
    #[prost(message, optional, tag = "1")]
    pub name: Option<TopicName>,
    /// The new configuration, complete. Another number of partitions is `not_supported`.
    #[prost(message, optional, tag = "2")]
    pub config: Option<TopicConfig>,
    /// The life that is meant; another is `incarnation_gone`.
    #[prost(uint64, tag = "3")]
    pub incarnation: u64,
    /// The version the change was made from; another is `version_mismatch`.
    #[prost(uint32, tag = "4")]
    pub expected_version: u32,
}

/// Deletes a topic with all its records.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteTopicRequest {
    /// Full name.
    #[prost(message, optional, tag = "1")]
    pub name: Option<TopicName>,
    /// Only this life of it (`incarnation_gone` otherwise).
    #[prost(uint64, optional, tag = "2")]
    pub incarnation: Option<u64>,
    /// Only this version of its configuration (`version_mismatch` otherwise).
    #[prost(uint32, optional, tag = "3")]
    pub expected_version: Option<u32>,
}

/// Asks a shard for the topics at home in it, in name order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListTopicsRequest {
    /// Owner.
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// Namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Only names that contain this text.
    #[prost(string, optional, tag = "3")]
    pub contains: Option<String>,
    /// Only names after this one.
    #[prost(string, optional, tag = "4")]
    pub after: Option<String>,
    /// At most this many.
    #[prost(uint32, tag = "5")]
    pub limit: u32,
}

/// Topics in name order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TopicList {
    /// The topics.
    #[prost(message, repeated, tag = "1")]
    pub topics: Vec<TopicDescription>,
    /// Names up to this one were looked at, where others are left.
    #[prost(string, optional, tag = "3")]
    pub looked_to: Option<String>,
}
