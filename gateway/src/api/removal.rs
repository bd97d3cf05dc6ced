//! Taking messages away by hand: from one subscription, which can be undone, or from a topic for good.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// What a subscription has not settled, to be settled without being delivered.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"what": "all"}))]
pub struct Purge {
    /// `all` by default.
    pub what: Option<PurgeWhat>,
}

/// What a purge takes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PurgeWhat {
    /// Everything that is there: ready, leased, delayed, blocked and dead.
    #[default]
    All,
    /// Only what is dead: it is not listed and not redriven any more. What went to the dead letter topic stays there.
    Dead,
}

/// What a purge did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "dry_run": false, "purged": 121, "dead": 1, "undo": "snap_6f2c9d1e00a47b35",
    "parts": [{"partition": 0, "floor": 76520, "purged": 121, "dead": 1}]
}))]
pub struct Purged {
    /// It was only asked what it would do.
    pub dry_run: bool,
    /// Messages that will not be delivered, and dead ones that are forgotten, as of when it began; those included that
    /// compaction had dropped.
    pub purged: u64,
    /// Of them, the dead ones.
    pub dead: u64,
    /// Undoes it, as `undo` of a seek: of each partition the latest four seeks and purges can be, one of dead
    /// letters alone until the next seek or other purge.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "snap_6f2c9d1e00a47b35")]
    pub undo: Option<String>,
    /// The same per partition.
    pub parts: Vec<PurgedPart>,
}

/// What a purge did to one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PurgedPart {
    /// Its topic, of a subscription to several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub topic: Option<String>,
    /// The partition.
    pub partition: u32,
    /// Where it stands afterwards: all before is settled.
    pub floor: u64,
    /// As of the whole.
    pub purged: u64,
    /// As of the whole.
    pub dead: u64,
}

/// A topic's oldest messages, to be removed for good.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"partition": 3, "before": "76400"}))]
pub struct Trim {
    /// Only this partition; all by default.
    pub partition: Option<u32>,
    /// The first message that stays: an offset, which belongs to one partition, `ts:` and RFC 3339 or
    /// milliseconds, or `end`, which leaves none.
    #[schema(value_type = String, required = true)]
    pub before: serde_json::Value,
}

/// What a trim did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "dry_run": true, "messages": 76400, "bytes": 9100000,
    "partitions": [{"partition": 3, "start": 76400, "messages": 76400, "bytes": 9100000}]
}))]
pub struct Trimmed {
    /// It was only asked what it would do.
    pub dry_run: bool,
    /// Messages that go, those included that compaction had dropped.
    pub messages: u64,
    /// Bytes of the stored batches that go; a batch goes with its last message.
    pub bytes: u64,
    /// The same per partition.
    pub partitions: Vec<TrimmedPartition>,
}

/// What a trim did to one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct TrimmedPartition {
    /// The partition.
    pub partition: u32,
    /// Its earliest offset afterwards.
    pub start: u64,
    /// As of the whole.
    pub messages: u64,
    /// As of the whole.
    pub bytes: u64,
}
