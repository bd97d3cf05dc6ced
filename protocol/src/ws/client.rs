//! What clients send. Absent fields take the default that is named; an unknown one is refused by name.

use serde::{Deserialize, Serialize};

use super::value::present;
use super::{FrameType, HeaderMap, NumberRange, RawJson, Secret};
use crate::batch::Batch;
use crate::ids::Seq;
use crate::rpc::Level;
use crate::start::Start;

/// A client's frame without its channel.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientFrame {
    /// Who is there.
    Hello(Hello),
    /// Opens a channel for publishing.
    Open(Open),
    /// Publishes a record (JSON form).
    Pub(Pub),
    /// Publishes a batch (binary form). Its header and checksum were checked, its records were not.
    PubBatch {
        /// Sequence number of its first record on this channel.
        first_seq: Seq,
        /// The records.
        batch: Batch,
    },
    /// Opens a channel for receiving.
    Sub(Sub),
    /// Raises the credit of a subscription.
    Limit(Limit),
    /// Settles deliveries.
    Ack(Ack),
    /// Gives deliveries back.
    Nack(Nack),
    /// Keeps leases longer.
    Extend(Extend),
    /// Continues elsewhere.
    Seek(Seek),
    /// Stops or continues delivery.
    Pause(Pause),
    /// Gives deliveries up.
    Dead(Dead),
    /// Closes a subscription.
    Unsub(Unsub),
    /// Closes a publishing channel.
    ClosePub(ClosePub),
    /// Brings a fresh token.
    Auth(Auth),
    /// Asks for a sign of life.
    Ping(ClientPing),
    /// The sign of life.
    Pong(Pong),
    /// The client leaves.
    Bye(Bye),
}

impl ClientFrame {
    /// Its type.
    #[must_use]
    pub const fn frame_type(&self) -> FrameType {
        match self {
            Self::Hello(_) => FrameType::Hello,
            Self::Open(_) => FrameType::Open,
            Self::Pub(_) | Self::PubBatch { .. } => FrameType::Pub,
            Self::Sub(_) => FrameType::Sub,
            Self::Limit(_) => FrameType::Limit,
            Self::Ack(_) => FrameType::Ack,
            Self::Nack(_) => FrameType::Nack,
            Self::Extend(_) => FrameType::Extend,
            Self::Seek(_) => FrameType::Seek,
            Self::Pause(_) => FrameType::Pause,
            Self::Dead(_) => FrameType::Dead,
            Self::Unsub(_) => FrameType::Unsub,
            Self::ClosePub(_) => FrameType::ClosePub,
            Self::Auth(_) => FrameType::Auth,
            Self::Ping(_) => FrameType::Ping,
            Self::Pong(_) => FrameType::Pong,
            Self::Bye(_) => FrameType::Bye,
        }
    }
}

/// First frame of a connection, due within five seconds.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Hello {
    /// Version of the subprotocol: [`super::VERSION`].
    pub v: u32,
    /// Credential, where authentication is on.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub token: Option<Secret>,
    /// Name and version of the client, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub client: Option<String>,
    /// Several frames may come in one message of the JSON form, each on a line of its own; otherwise each is a message.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub batch: bool,
    /// Token of an earlier `welcome`, to continue its session.
    #[serde(default)]
    pub resume: Option<String>,
    /// Where each channel of that session stands.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub channels: Vec<ResumeChannel>,
}

/// Where a channel stood when the connection broke.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ResumeChannel {
    /// The channel.
    pub ch: u16,
    /// The topic's life, as its `subscribed` said: `seen` means nothing without it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inc: Option<u64>,
    /// Last delivery number received; absent before the first and on publishing channels.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
    /// Last record received of each partition.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub seen: Vec<Seen>,
    /// Deliveries that were settled.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub acked: Vec<NumberRange>,
    /// Credit granted so far, in totals.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub limit: Option<Limit>,
}

/// The last record received of a partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seen {
    /// Partition.
    pub p: u32,
    /// Its offset.
    pub o: u64,
    /// Term it was delivered with, if that was below quorum and it is not known to be firm.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// With `term`: everything below this offset is known to be committed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub firm: Option<u64>,
}

/// Opens a channel for publishing to one topic.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Open {
    /// Namespace; absent: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns: Option<String>,
    /// Topic.
    pub topic: String,
    /// Producer, for publishes that survive a reconnect without duplicates.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub producer: Option<Producer>,
    /// Levels to be told of; empty: the topic's default.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub confirm: Vec<Level>,
}

/// A producer.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Producer {
    /// Its id, 1 to [`crate::limits::CLIENT_ID_BYTES_MAX`] bytes.
    pub id: String,
    /// Its epoch; a higher one fences all lower ones.
    pub epoch: u32,
}

/// Publishes one record. Exactly one of `data` and `b64`; at most one of `key` and `key_b64`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pub {
    /// Its number on this channel, one above the previous.
    pub seq: u64,
    /// Key, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Key in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_b64: Option<String>,
    /// User headers.
    #[serde(default, skip_serializing_if = "HeaderMap::is_empty")]
    pub h: HeaderMap,
    /// Content type; absent: the topic's, and if it has none `application/json` with `data`, none with `b64`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ct: Option<String>,
    /// Not to be delivered to queues before, milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<u64>,
    /// Expires this many milliseconds after it was accepted.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Trace context (W3C).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Trace context (W3C), vendor part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
    /// Payload: any JSON value, or a string for a `text/*` content type.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub data: Option<RawJson>,
    /// Payload in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b64: Option<String>,
}

/// Opens a channel for receiving: exactly one of `topic` and `sub`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Sub {
    /// Namespace; absent: `default`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ns: Option<String>,
    /// Topic to follow.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Named subscription to take part in.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub sub: Option<String>,
    /// Only this partition of the topic; absent: all.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub p: Option<u32>,
    /// Only this life of the topic: of another, it is refused. Absent: whichever there is.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub inc: Option<u64>,
    /// Where to start; absent: `latest`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub from: Option<Start>,
    /// `quorum`, or `memory`: before it is committed; absent: the topic's `deliver_from`.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub min_level: Option<Level>,
    /// Only messages that match this [filter](crate::filter); others cost no credit. A named subscription has its own.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub filter: Option<String>,
    /// Of a subscription: how long its deliveries are leased, in milliseconds; absent: as it says.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease_ms: Option<u32>,
    /// Of a subscription: how long what is leased, or read of a stream, stays this consumer's after its
    /// connection broke, in milliseconds; absent: half a minute, or the lease if that is shorter.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub grace_ms: Option<u32>,
    /// Of a subscription: who takes its messages, for operators; absent: the client that `hello` named.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub holder: Option<String>,
    /// First credit.
    pub limit: Limit,
}

/// Credit, as totals since the channel was opened. Lower or repeated values change nothing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Limit {
    /// Records.
    pub msgs: u64,
    /// Their encoded, uncompressed bytes.
    pub bytes: u64,
}

/// A lease by itself: also of an earlier connection, or of one that pulled over HTTP.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct LeaseRef {
    /// Topic; of a subscription to several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Partition.
    #[serde(default)]
    pub p: u32,
    /// Offset.
    pub o: u64,
    /// Fence of its delivery.
    pub fence: u64,
}

/// Settles deliveries: done, never to come again.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Ack {
    /// Delivery numbers of this connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub n: Vec<NumberRange>,
    /// Everything up to the highest number as well.
    #[serde(default)]
    pub cum: bool,
    /// Leases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeaseRef>,
}

/// Gives deliveries back.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Nack {
    /// Delivery numbers of this connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub n: Vec<NumberRange>,
    /// Leases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeaseRef>,
    /// Not to be delivered again before this many milliseconds; absent: the subscription's backoff.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// Why, for people; at most [`crate::limits::SETTLE_REASON_BYTES_MAX`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Keeps leases longer; answered by `extended`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Extend {
    /// Delivery numbers of this connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub n: Vec<NumberRange>,
    /// Leases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeaseRef>,
    /// Milliseconds from now.
    pub ms: u64,
}

/// Gives deliveries up: dead letters.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Dead {
    /// Delivery numbers of this connection.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub n: Vec<NumberRange>,
    /// Leases.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeaseRef>,
    /// Why, for people; at most [`crate::limits::SETTLE_REASON_BYTES_MAX`] bytes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
}

/// Continues a subscription elsewhere; answered by `subscribed`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Seek {
    /// Where.
    pub from: Start,
}

/// Stops delivery without touching credit, or continues it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pause {
    /// True to stop, false to continue.
    #[serde(default = "yes")]
    pub on: bool,
}

const fn yes() -> bool {
    true
}

/// Closes a subscription; deliveries already on their way are to be ignored.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Unsub {}

/// Closes a publishing channel; publishes before it are still confirmed.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClosePub {}

/// Brings a fresh token.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Auth {
    /// The token.
    pub token: Secret,
}

/// Asks for a sign of life.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ClientPing {
    /// Echoed in the answer.
    #[serde(default)]
    pub id: u64,
}

/// The sign of life, of either side.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Pong {
    /// That of the ping.
    #[serde(default)]
    pub id: u64,
}

/// The client leaves: its session need not be kept.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Bye {
    /// Why, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub why: Option<String>,
}
