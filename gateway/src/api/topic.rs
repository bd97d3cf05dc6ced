//! Topics and their configuration, as JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_protocol::limits::DEDUPE_WINDOW_MS_DEFAULT;
use weir_protocol::rpc;

use super::storage::{PartitionStorage, TopicStorage};

/// How safe a record is. Ordered: each level includes those before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Level {
    /// A gateway admitted it.
    None,
    /// The leader assigned an offset.
    Memory,
    /// Synced on the leader's disk.
    Durable,
    /// Synced on a majority of the shard's replicas.
    Quorum,
    /// In object storage.
    Archived,
}

/// The levels from which a message may be delivered. Others are refused by name where a configuration is checked.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum DeliverFrom {
    /// Before it is committed.
    Memory,
    /// Once it is.
    Quorum,
}

impl From<Level> for rpc::Level {
    fn from(level: Level) -> Self {
        match level {
            Level::None => Self::None,
            Level::Memory => Self::Memory,
            Level::Durable => Self::Durable,
            Level::Quorum => Self::Quorum,
            Level::Archived => Self::Archived,
        }
    }
}

/// Which caches may keep what never changes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Cache {
    /// That of the client who asked.
    #[default]
    Private,
    /// Also those that several clients share, which then read it whoever they are.
    Public,
}

impl Cache {
    /// As storage knows it.
    #[must_use]
    pub const fn of(is_public: bool) -> Self {
        if is_public { Self::Public } else { Self::Private }
    }

    /// True if clients may share it.
    #[must_use]
    pub fn is_public(self) -> bool {
        self == Self::Public
    }
}

/// What an administrator sets. Fields that are left out take their default.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TopicConfig {
    /// Number of partitions, 1 to 1024. Cannot be changed later.
    #[schema(minimum = 1, maximum = 1024, default = 1)]
    pub partitions: u32,
    /// Content type of messages whose publisher names none. JSON values keep `application/json` unless this is the
    /// type of JSON or of text; record batches that a client built are stored as they are.
    #[schema(example = "application/json")]
    pub content_type: Option<String>,
    /// What is removed, and when. Unlimited by default.
    pub retention: Retention,
    /// `none`, or `key`: of messages with a key, the newest of each key is kept and older ones are dropped
    /// once they are in the object store, without which it is refused as `not_supported`. Offsets stay what
    /// they were. A key whose newest message is empty is deleted, and a day later that message goes too.
    /// Cannot be combined with `retention.until_settled`; other limits of `retention` count what was
    /// published, dropped or not.
    pub compaction: Compaction,
    /// Confirm level of publishes that name none.
    pub default_confirm: Level,
    /// Level from which who follows is delivered a message, unless it says `min_level`: `quorum`, or `memory`: before
    /// it is committed. Pages and queues are of committed messages.
    #[schema(value_type = DeliverFrom)]
    pub deliver_from: Level,
    /// Publishes that ask for less are refused.
    pub min_confirm: Level,
    /// Idempotency keys.
    pub dedupe: Dedupe,
    /// Time to live of messages that name none, in milliseconds: queue subscriptions do not deliver a message that is
    /// older. Readers are shown it as long as it is retained.
    #[schema(minimum = 1)]
    pub ttl_ms: Option<u64>,
    /// No more records are accepted.
    pub closed: bool,
    /// Which caches may keep what never changes: `private`, those of browsers, or `public`, those of proxies and
    /// CDNs too, which give it to whoever asks them. By default what the namespace said when the topic was made.
    pub cache: Cache,
}

impl Default for TopicConfig {
    fn default() -> Self {
        Self {
            partitions: 1,
            content_type: None,
            retention: Retention::default(),
            compaction: Compaction::None,
            default_confirm: Level::Quorum,
            deliver_from: Level::Quorum,
            min_confirm: Level::None,
            dedupe: Dedupe::default(),
            ttl_ms: None,
            closed: false,
            cache: Cache::Private,
        }
    }
}

/// What is removed. Absent limits mean unlimited.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Retention {
    /// Records older than this many milliseconds.
    #[schema(minimum = 1)]
    pub age_ms: Option<u64>,
    /// Per partition: the oldest records beyond this many encoded bytes.
    #[schema(minimum = 1)]
    pub bytes: Option<u64>,
    /// Per partition: the oldest records beyond this many.
    #[schema(minimum = 1)]
    pub records: Option<u64>,
    /// Also the oldest batches that every subscription has settled. A topic without subscriptions keeps its messages.
    pub until_settled: bool,
}

/// Whether older records of a key are dropped.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum Compaction {
    /// Every record is kept.
    #[default]
    None,
    /// The newest record of each key is kept, and records without a key.
    Key,
}

/// How long idempotency keys are remembered.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct Dedupe {
    /// Milliseconds. 600,000 by default.
    #[serde(deserialize_with = "window_or_default")]
    #[schema(minimum = 1000, default = 600_000)]
    pub window_ms: u64,
}

impl Default for Dedupe {
    fn default() -> Self {
        Self { window_ms: DEDUPE_WINDOW_MS_DEFAULT }
    }
}

impl From<&rpc::TopicConfig> for TopicConfig {
    fn from(config: &rpc::TopicConfig) -> Self {
        let level = |text: i32, otherwise: Level| match rpc::Level::try_from(text) {
            Ok(rpc::Level::None) => Level::None,
            Ok(rpc::Level::Memory) => Level::Memory,
            Ok(rpc::Level::Durable) => Level::Durable,
            Ok(rpc::Level::Quorum) => Level::Quorum,
            Ok(rpc::Level::Archived) => Level::Archived,
            Ok(rpc::Level::Unset) | Err(_) => otherwise,
        };
        Self {
            partitions: config.partitions,
            content_type: config.content_type.clone(),
            retention: Retention {
                age_ms: config.retention_age_ms,
                bytes: config.retention_bytes,
                records: config.retention_records,
                until_settled: config.retention_until_settled,
            },
            compaction: if config.compact_by_key { Compaction::Key } else { Compaction::None },
            default_confirm: level(config.default_confirm, Level::Quorum),
            deliver_from: level(config.deliver_from, Level::Quorum),
            min_confirm: level(config.min_confirm, Level::None),
            dedupe: Dedupe { window_ms: config.dedupe_window_ms },
            ttl_ms: config.ttl_ms,
            closed: config.closed,
            cache: Cache::of(config.cache_public),
        }
    }
}

impl From<&TopicConfig> for rpc::TopicConfig {
    fn from(config: &TopicConfig) -> Self {
        Self {
            partitions: config.partitions,
            content_type: config.content_type.clone(),
            retention_age_ms: config.retention.age_ms,
            retention_bytes: config.retention.bytes,
            retention_records: config.retention.records,
            retention_until_settled: config.retention.until_settled,
            compact_by_key: config.compaction == Compaction::Key,
            default_confirm: rpc::Level::from(config.default_confirm) as i32,
            deliver_from: rpc::Level::from(config.deliver_from) as i32,
            min_confirm: rpc::Level::from(config.min_confirm) as i32,
            dedupe_window_ms: config.dedupe.window_ms,
            ttl_ms: config.ttl_ms,
            closed: config.closed,
            cache_public: config.cache.is_public(),
        }
    }
}

/// A topic.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Topic {
    /// Namespace.
    pub ns: String,
    /// Name.
    pub name: String,
    /// This life of it; a recreated topic has another.
    pub incarnation: u64,
    /// Version of the configuration, from 1. Also in the `ETag`.
    pub version: u32,
    /// When it was created, milliseconds since the epoch.
    pub created_ms: u64,
    /// Its configuration, complete.
    pub config: TopicConfig,
    /// Its partitions, by number.
    pub partitions: Vec<Partition>,
    /// What goes in and out at the moment.
    pub rates: Rates,
    /// What it takes of the object store; absent in lists, without an object store, and while a shard cannot
    /// be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub storage: Option<TopicStorage>,
}

/// A partition. Its records are `[start, end)`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Partition {
    /// Its number, from 0.
    pub partition: u32,
    /// Oldest offset that exists; `null` while its shard cannot be reached.
    pub start: Option<u64>,
    /// End of what is committed, exclusive; `null` while its shard cannot be reached.
    pub end: Option<u64>,
    /// Encoded bytes between the two; `null` while its shard cannot be reached.
    pub bytes: Option<u64>,
    /// The shard that holds it.
    pub shard: u32,
    /// Where its messages are; absent in lists, without an object store, and while its shard cannot be reached.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub storage: Option<PartitionStorage>,
}

/// Averages over about the last ten seconds, all partitions together.
#[derive(Debug, Clone, Copy, Default, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Rates {
    /// Records published per second.
    pub publish_records_per_second: f64,
    /// Encoded bytes published per second.
    pub publish_bytes_per_second: f64,
    /// Records delivered to readers per second.
    pub deliver_records_per_second: f64,
}

/// A page of topics, in name order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TopicPage {
    /// The topics.
    pub items: Vec<Topic>,
    /// Pass as `cursor` for the next page; `null` on the last.
    pub next: Option<String>,
}

/// Changes to a configuration. Fields that are left out stay; `null` removes a limit.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct TopicPatch {
    /// Must be what it is: growing is not supported yet.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1, maximum = 1024)]
    pub partitions: Option<u32>,
    /// Content type of records that name none.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    #[schema(value_type = Option<String>)]
    pub content_type: Option<Option<String>>,
    /// What is removed, and when.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub retention: Option<RetentionPatch>,
    /// Whether older messages of a key are dropped. What was dropped does not come back.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub compaction: Option<Compaction>,
    /// Confirm level of publishes that name none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub default_confirm: Option<Level>,
    /// Level from which who follows is delivered a message: `quorum` or `memory`.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<DeliverFrom>)]
    pub deliver_from: Option<Level>,
    /// Publishes that ask for less are refused.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub min_confirm: Option<Level>,
    /// How long idempotency keys are remembered.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub dedupe: Option<Dedupe>,
    /// Time to live of messages that name none, in milliseconds, for queue subscriptions.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub ttl_ms: Option<Option<u64>>,
    /// No more records are accepted.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub closed: Option<bool>,
    /// Which caches may keep what never changes. What they keep already they keep.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub cache: Option<Cache>,
}

/// Changes to what is removed. Fields that are left out stay; `null` removes a limit.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct RetentionPatch {
    /// Records older than this many milliseconds.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub age_ms: Option<Option<u64>>,
    /// Per partition: the oldest records beyond this many encoded bytes.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub bytes: Option<Option<u64>>,
    /// Per partition: the oldest records beyond this many.
    #[serde(skip_serializing_if = "Option::is_none", deserialize_with = "some")]
    #[schema(value_type = Option<u64>, minimum = 1)]
    pub records: Option<Option<u64>>,
    /// Also the oldest batches that every subscription has settled. A topic without subscriptions keeps its messages.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub until_settled: Option<bool>,
}

/// `null` is as if it were left out.
fn window_or_default<'de, D: serde::Deserializer<'de>>(from: D) -> Result<u64, D::Error> {
    Ok(Option::deserialize(from)?.unwrap_or(DEDUPE_WINDOW_MS_DEFAULT))
}

/// Tells `null` (`Some(None)`) from absent (`None`).
pub(super) fn some<'de, T: Deserialize<'de>, D: serde::Deserializer<'de>>(
    from: D,
) -> Result<Option<Option<T>>, D::Error> {
    Option::<T>::deserialize(from).map(Some)
}

impl TopicPatch {
    /// `config` with these changes.
    #[must_use]
    pub fn apply(self, mut config: TopicConfig) -> TopicConfig {
        fn set<T>(target: &mut T, change: Option<T>) {
            if let Some(value) = change {
                *target = value;
            }
        }
        set(&mut config.partitions, self.partitions);
        set(&mut config.content_type, self.content_type);
        set(&mut config.compaction, self.compaction);
        set(&mut config.default_confirm, self.default_confirm);
        set(&mut config.deliver_from, self.deliver_from);
        set(&mut config.min_confirm, self.min_confirm);
        set(&mut config.dedupe, self.dedupe);
        set(&mut config.ttl_ms, self.ttl_ms);
        set(&mut config.closed, self.closed);
        set(&mut config.cache, self.cache);
        if let Some(retention) = self.retention {
            set(&mut config.retention.age_ms, retention.age_ms);
            set(&mut config.retention.bytes, retention.bytes);
            set(&mut config.retention.records, retention.records);
            set(&mut config.retention.until_settled, retention.until_settled);
        }
        config
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_configuration_survives_the_way_to_the_node_and_back() {
        let config = TopicConfig {
            partitions: 12,
            content_type: Some("text/plain".into()),
            retention: Retention { age_ms: Some(1), bytes: Some(2), records: Some(3), until_settled: true },
            compaction: Compaction::Key,
            default_confirm: Level::Memory,
            deliver_from: Level::Memory,
            min_confirm: Level::Memory,
            dedupe: Dedupe { window_ms: 5000 },
            ttl_ms: Some(9),
            closed: true,
            cache: Cache::Public,
        };
        assert_eq!(TopicConfig::from(&rpc::TopicConfig::from(&config)), config);
    }

    #[test]
    fn unknown_fields_are_refused_by_name_at_every_depth() {
        for (text, name) in [
            (r#"{"partitons":2}"#, "partitons"),
            (r#"{"retention":{"age":1}}"#, "age"),
            (r#"{"dedupe":{"w":1}}"#, "w"),
        ] {
            assert!(serde_json::from_str::<TopicConfig>(text).unwrap_err().to_string().contains(name));
            assert!(serde_json::from_str::<TopicPatch>(text).unwrap_err().to_string().contains(name));
        }
    }

    #[test]
    fn a_patch_tells_null_from_absent() {
        let before =
            TopicConfig { ttl_ms: Some(7), content_type: Some("a/b".into()), ..TopicConfig::default() };
        let patch: TopicPatch = serde_json::from_str(r#"{"ttl_ms":null,"retention":{"bytes":5}}"#).unwrap();
        let after = patch.apply(before.clone());
        assert_eq!(after.ttl_ms, None);
        assert_eq!(after.content_type, before.content_type);
        assert_eq!(after.retention, Retention { bytes: Some(5), ..Retention::default() });
    }
}
