//! Messages, confirms and reads, as JSON.

use std::collections::BTreeMap;
use std::collections::btree_map::Entry;
use std::fmt;
use std::marker::PhantomData;

use serde::de::{self, MapAccess, Visitor};
use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

use super::{Level, Problem};

/// A stored record. Exactly one of `data` and `data_base64` is present.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
pub struct Record {
    /// Its topic, where a subscription consumes several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub topic: Option<String>,
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
    /// User headers whose values are UTF-8.
    #[serde(default)]
    pub headers: BTreeMap<String, String>,
    /// Those whose values are not, in Base64.
    #[serde(default, skip_serializing_if = "BTreeMap::is_empty")]
    #[schema(required = false)]
    pub headers_base64: BTreeMap<String, String>,
    /// Content type of the payload.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub content_type: Option<String>,
    /// Content encoding of the payload, which is then in `data_base64` as it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub content_encoding: Option<String>,
    /// `Content-Digest` of the payload as it was sent.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub content_digest: Option<String>,
    /// Queue subscriptions do not deliver it before this time (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub deliver_at: Option<String>,
    /// Queue subscriptions do not deliver it when it is older than this, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ttl_ms: Option<u64>,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub traceparent: Option<String>,
    /// W3C trace context, vendor part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub tracestate: Option<String>,
    /// The JSON value of a JSON payload, digit for digit; the text of one whose content type says that it is
    /// text, if it is UTF-8: `text/*`, `application/x-www-form-urlencoded`, XML, YAML, JavaScript and GraphQL.
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

/// One line of an NDJSON batch. Exactly one of `data` and `data_base64`.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct BatchLine<'a> {
    /// Key.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// User headers.
    #[serde(deserialize_with = "unique", skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Content type; the topic's by default. If it has none: `application/json` with `data` (also if the topic's is
    /// neither JSON nor text), `application/octet-stream` with `data_base64`.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The payload as a JSON value; with the content type of a text (`text/*`, XML and others, as in a page) it is a
    /// string, which means its text.
    #[serde(borrow, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub data: Option<&'a serde_json::value::RawValue>,
    /// The payload in Base64.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// Not to be delivered by queue subscriptions before this time (RFC 3339).
    #[serde(skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<String>,
    /// Time to live for queue subscriptions, in milliseconds.
    #[serde(skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub ttl_ms: Option<u64>,
    /// W3C trace context; the request's by default.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// W3C trace context, vendor part; the request's by default, unless `traceparent` is given.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

/// `null` is a value too.
pub(super) fn present<'de: 'a, 'a, D: serde::Deserializer<'de>>(
    deserializer: D,
) -> Result<Option<&'a serde_json::value::RawValue>, D::Error> {
    Deserialize::deserialize(deserializer).map(Some)
}

/// Reads an object whose names occur once each. Which of two is meant nobody can tell.
pub(crate) fn unique<'de, D, V>(deserializer: D) -> Result<BTreeMap<String, V>, D::Error>
where
    D: serde::Deserializer<'de>,
    V: Deserialize<'de>,
{
    deserializer.deserialize_map(Unique(PhantomData))
}

struct Unique<V>(PhantomData<V>);

impl<'de, V: Deserialize<'de>> Visitor<'de> for Unique<V> {
    type Value = BTreeMap<String, V>;

    fn expecting(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("an object")
    }

    fn visit_map<A: MapAccess<'de>>(self, mut map: A) -> Result<Self::Value, A::Error> {
        let mut values = BTreeMap::new();
        while let Some(name) = map.next_key::<String>()? {
            match values.entry(name) {
                Entry::Occupied(earlier) => {
                    return Err(de::Error::custom(format_args!("duplicate field `{}`", earlier.key())));
                }
                Entry::Vacant(place) => place.insert(map.next_value()?),
            };
        }
        Ok(values)
    }
}

/// A published message.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Published {
    /// Partition.
    pub partition: u32,
    /// Its offset; absent at level `none`, and of a repeat of so long ago that its place is forgotten.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub offset: Option<u64>,
    /// When it was accepted, milliseconds since the epoch; absent where `offset` is.
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

/// The answer to a batch, one result per message in input order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct BatchPublished {
    /// What became of each message.
    pub results: Vec<BatchResult>,
    /// The level that all accepted messages have reached.
    pub level: Level,
}

/// What became of one message of a batch.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(untagged)]
pub enum BatchResult {
    /// It was accepted.
    Accepted {
        /// Partition.
        partition: u32,
        /// Its offset; absent at level `none`, and of a repeat of so long ago that its place is forgotten.
        #[serde(default, skip_serializing_if = "Option::is_none")]
        #[schema(nullable = false)]
        offset: Option<u64>,
        /// It had been accepted before; nothing was added.
        #[serde(default, skip_serializing_if = "std::ops::Not::not")]
        #[schema(required = false)]
        duplicate: bool,
    },
    /// It was refused.
    Refused {
        /// Why.
        problem: Box<Problem>,
    },
}

/// What has become of a confirm.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Receipt {
    /// The receipt.
    pub receipt: String,
    /// Partition.
    pub partition: u32,
    /// Offset that was answered; absent of what a settle published and was not there yet.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub offset: Option<u64>,
    /// The level reached by now.
    pub level: Level,
    /// The offset cannot change any more.
    #[serde(rename = "final")]
    pub is_final: bool,
    /// The record was lost with its leader below `quorum`: it does not exist.
    pub lost: bool,
    /// When it was accepted, milliseconds since the epoch; absent if it is lost.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ts: Option<u64>,
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
