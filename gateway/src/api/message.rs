//! Messages, confirms and reads, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::Level;

/// A stored record. Exactly one of `data` and `data_base64` is present.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Record {
    /// Partition.
    pub partition: u32,
    /// Position in the partition.
    pub offset: u64,
    /// When it was accepted, milliseconds since the epoch.
    pub ts: u64,
    /// Its key; absent if it has none or one that is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key: Option<String>,
    /// Its key in Base64, if it is not UTF-8.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub key_base64: Option<String>,
    /// User headers.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Content type of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub content_type: Option<String>,
    /// Content encoding of the payload, which is then in `data_base64` as it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub content_encoding: Option<String>,
    /// The JSON value of a JSON payload, digit for digit; the text of a `text/*` payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub data: Option<Box<serde_json::value::RawValue>>,
    /// Any other payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub data_base64: Option<String>,
}

/// What a read found.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct ReadPage {
    /// The records, in offset order per partition.
    pub messages: Vec<Record>,
    /// Where to read on: an offset, or an opaque cursor if several partitions were read.
    pub next: Next,
    /// `next` is the end of what may be seen.
    pub up_to_date: bool,
}

/// Where to read on.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum Next {
    /// An offset of the one partition that was read.
    Offset(u64),
    /// An opaque cursor over all partitions.
    Cursor(String),
}

/// A published message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Published {
    /// Partition.
    pub partition: u32,
    /// Its offset; absent at level `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub offset: Option<u64>,
    /// When it was accepted, milliseconds since the epoch; absent at level `none`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ts: Option<u64>,
    /// The level reached.
    pub level: Level,
    /// The offset cannot change any more.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// Term in which the offset was given, while it is not final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub term: Option<u64>,
    /// It had been accepted before; nothing was added.
    pub duplicate: bool,
}

/// A producer as the partitions know it.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Producer {
    /// Its id.
    pub id: String,
    /// Its state on every partition that has seen it.
    pub partitions: Vec<ProducerPartition>,
}

/// A producer as one partition knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct ProducerPartition {
    /// Partition.
    pub partition: u32,
    /// Its epoch.
    pub epoch: u32,
    /// Highest sequence number accepted.
    pub last_seq: u64,
    /// Offset of the record with that number.
    pub last_offset: u64,
}
