//! What gateways send. Clients skip fields they do not know.

use serde::{Deserialize, Serialize};

use super::value::present;
use super::{Deliveries, FrameType, HeaderMap, LeaseRef, Limit, NumberRange, Pong, RawJson};
use crate::rpc::Level;

/// A gateway's frame without its channel.
#[derive(Debug, Clone, PartialEq)]
pub enum ServerFrame {
    /// Answers `hello`.
    Welcome(Welcome),
    /// Answers `open`.
    Opened(Opened),
    /// Confirms publishes.
    Confirm(Confirm),
    /// Refuses publishes.
    Reject(Reject),
    /// Raises the credit of a publisher.
    PubLimit(Limit),
    /// Answers `sub` and `seek`.
    Subscribed(Subscribed),
    /// Delivers a record (JSON form).
    Msg(Box<Msg>),
    /// Delivers records (JSON form).
    Msgs(Msgs),
    /// Delivers records (binary form).
    Deliveries(Deliveries),
    /// Settles took effect.
    Settled(Settled),
    /// Leases were lost.
    LeaseLost(LeaseLost),
    /// Leases last longer.
    Extended(Extended),
    /// Records were skipped.
    Gap(Gap),
    /// The end was reached.
    CaughtUp(CaughtUp),
    /// What a filter kept back was passed over.
    Looked(Looked),
    /// Which partitions of a stream the client reads has changed.
    Share(ShareChange),
    /// Speculative deliveries are withdrawn.
    Retract(Retract),
    /// Speculative deliveries became final.
    Firm(Firm),
    /// Another gateway serves this.
    Moved(Moved),
    /// The gateway will close soon.
    Goaway(Goaway),
    /// The token's time is running out.
    AuthExpiring(AuthExpiring),
    /// A request was refused.
    Err(Problem),
    /// Asks for a sign of life.
    Ping(ServerPing),
    /// The sign of life.
    Pong(Pong),
}

impl ServerFrame {
    /// Its type.
    #[must_use]
    pub const fn frame_type(&self) -> FrameType {
        match self {
            Self::Welcome(_) => FrameType::Welcome,
            Self::Opened(_) => FrameType::Opened,
            Self::Confirm(_) => FrameType::Confirm,
            Self::Reject(_) => FrameType::Reject,
            Self::PubLimit(_) => FrameType::PubLimit,
            Self::Subscribed(_) => FrameType::Subscribed,
            Self::Msg(_) => FrameType::Msg,
            Self::Msgs(_) | Self::Deliveries(_) => FrameType::Msgs,
            Self::Settled(_) => FrameType::Settled,
            Self::LeaseLost(_) => FrameType::LeaseLost,
            Self::Extended(_) => FrameType::Extended,
            Self::Gap(_) => FrameType::Gap,
            Self::CaughtUp(_) => FrameType::CaughtUp,
            Self::Looked(_) => FrameType::Looked,
            Self::Share(_) => FrameType::Share,
            Self::Retract(_) => FrameType::Retract,
            Self::Firm(_) => FrameType::Firm,
            Self::Moved(_) => FrameType::Moved,
            Self::Goaway(_) => FrameType::Goaway,
            Self::AuthExpiring(_) => FrameType::AuthExpiring,
            Self::Err(_) => FrameType::Err,
            Self::Ping(_) => FrameType::Ping,
            Self::Pong(_) => FrameType::Pong,
        }
    }
}

/// Answers `hello`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Welcome {
    /// Id of the session, for logs.
    pub sid: String,
    /// Token to continue the session on any gateway.
    pub resume: String,
    /// How long the session is kept after the connection broke.
    pub grace_ms: u64,
    /// A ping comes at least this often; the client answers within the same time.
    pub hb_ms: u64,
    /// Milliseconds since the epoch.
    pub now: u64,
    /// What the client must stay within.
    pub limits: Limits,
}

/// Limits of a connection.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Limits {
    /// Longest message, in bytes.
    pub message_bytes: u64,
    /// Largest record: its encoded length.
    pub record_bytes: u64,
    /// Most records in one batch.
    pub batch_records: u64,
    /// Most open channels.
    pub channels: u64,
}

/// Answers `open`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Opened {
    /// Last number of the producer's confirmed contiguous prefix; `null` before the first.
    pub last_seq: Option<u64>,
    /// The topic's life: binary publishers derive their producer key from it.
    pub inc: u64,
    /// Number of partitions.
    pub partitions: u32,
    /// First credit.
    pub pub_limit: Limit,
}

/// Everything up to `upto` has reached `level`; cumulative per level.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Confirm {
    /// Last number of the contiguous prefix over all partitions; `null` before the first.
    pub upto: Option<u64>,
    /// The level.
    #[serde(default = "quorum")]
    pub level: Level,
    /// Term of the offsets while they may still change; absent once they are final.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// Where records went that this frame confirms for the first time at this level.
    #[serde(default)]
    pub base: Vec<Base>,
    /// Where the time went, for the slowest of them.
    #[serde(default)]
    pub us: StageMicros,
}

const fn quorum() -> Level {
    Level::Quorum
}

/// `n` records from number `seq` on went to partition `p` from offset `o` on.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Base {
    /// Number of the first.
    pub seq: u64,
    /// How many.
    pub n: u32,
    /// Partition.
    pub p: u32,
    /// Offset of the first.
    pub o: u64,
}

/// Microseconds per stage.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct StageMicros {
    /// In the gateway.
    pub gw: u32,
    /// Between gateway and storage node, both ways.
    pub net: u32,
    /// Waiting for the journal.
    pub queue: u32,
    /// Writing.
    pub write: u32,
    /// Syncing.
    pub fsync: u32,
    /// From the local sync to commit.
    pub quorum: u32,
    /// All of it.
    pub total: u32,
}

/// Publishes were refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Reject {
    /// Number of the first.
    pub seq: u64,
    /// How many from there on; absent: one.
    #[serde(default = "one", skip_serializing_if = "is_one")]
    pub n: u32,
    /// Why: an RFC 9457 problem.
    pub problem: RawJson,
}

const fn one() -> u32 {
    1
}

#[expect(clippy::trivially_copy_pass_by_ref, reason = "serde asks for a reference")]
const fn is_one(n: &u32) -> bool {
    *n == 1
}

/// Answers `sub` and `seek`.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Subscribed {
    /// The topic's life.
    pub inc: u64,
    /// First offset that will be delivered, where one partition is followed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub start: Option<u64>,
    /// Its end at this moment.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tail: Option<u64>,
    /// The same per partition, where several are followed.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub parts: Vec<Part>,
    /// Nothing is missing between the last delivery before a resume and the next. True for a new subscription.
    pub recovered: bool,
}

/// Where a partition is followed from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Part {
    /// Partition.
    pub p: u32,
    /// First offset that will be delivered.
    pub start: u64,
    /// Its end at this moment.
    pub tail: u64,
}

/// A record. Exactly one of `data` and `b64`; at most one of `key` and `key_b64`.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Msg {
    /// Delivery number on this channel, from 1.
    pub n: u64,
    /// Topic; of a subscription to several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Partition.
    pub p: u32,
    /// Offset.
    pub o: u64,
    /// When it was accepted, milliseconds since the epoch.
    pub ts: u64,
    /// Level it had when it was sent.
    #[serde(default = "quorum")]
    pub lvl: Level,
    /// Term of the offset, below quorum.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub term: Option<u64>,
    /// Its bytes in terms of credit.
    pub size: u64,
    /// Key, if it is text.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// Key in base64, if it is not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key_b64: Option<String>,
    /// User headers whose values are text.
    #[serde(default)]
    pub h: HeaderMap,
    /// User headers whose values are not, in base64.
    #[serde(default, skip_serializing_if = "HeaderMap::is_empty")]
    pub h_b64: HeaderMap,
    /// Content type.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ct: Option<String>,
    /// Content encoding: the payload is `b64` then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ce: Option<String>,
    /// Digest of the payload, as `Content-Digest` has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub digest: Option<String>,
    /// Not to be delivered to queues before, milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<u64>,
    /// Time to live for queues, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub ttl_ms: Option<u64>,
    /// Trace context (W3C).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// Trace context (W3C), vendor part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
    /// Payload: the JSON value, or a string for `text/*`.
    #[serde(default, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    pub data: Option<RawJson>,
    /// Payload in base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub b64: Option<String>,
    /// The lease, of a subscription.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub lease: Option<Lease>,
}

/// A lease on a delivery.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lease {
    /// How long it lasts, from when it was sent.
    pub ms: u64,
    /// The how-manieth delivery of the record, from 1.
    pub attempt: u32,
    /// Fencing token.
    pub fence: u64,
}

/// Records.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct Msgs {
    /// The records, in order.
    pub msgs: Vec<Msg>,
}

/// Settles took effect: they are committed.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Settled {
    /// Every delivery of this connection up to this number, inclusive, is settled or lost; 0: not even the first.
    pub upto: u64,
    /// Deliveries that were settled just now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub n: Vec<NumberRange>,
    /// Leases that were settled by themselves just now.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeaseRef>,
}

/// What was asked for some leases was not done.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct LeaseLost {
    /// Their delivery numbers.
    #[serde(default)]
    pub n: Vec<NumberRange>,
    /// Each of them, and leases that were named by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<Lost>,
}

/// A lease that was lost.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Lost {
    /// Delivery number, if it was named by that.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub n: Option<u64>,
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
    /// Why.
    pub result: LostResult,
    /// The delivery that took its place, if there is one.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub current: Option<Takeover>,
}

/// Why a lease was lost, in the words of a settle over HTTP.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum LostResult {
    /// The message was delivered again since.
    LeaseLost,
    /// The message was settled before.
    AlreadySettled,
    /// No lease of this subscription, or one that is too old to be known.
    Unknown,
}

/// The delivery that took a lost one's place.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Takeover {
    /// The how-manieth delivery of the message it is.
    pub attempt: u32,
    /// Its fence.
    pub fence: u64,
}

/// Leases last this much longer from now.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Extended {
    /// Delivery numbers.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub n: Vec<NumberRange>,
    /// Leases that were named by themselves.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub leases: Vec<LeaseRef>,
    /// Milliseconds.
    pub ms: u64,
}

/// Offsets `[from, to)` were skipped.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Gap {
    /// Partition.
    #[serde(default)]
    pub p: u32,
    /// First missing offset.
    pub from: u64,
    /// First offset that exists.
    pub to: u64,
    /// `retention` or `corrupt`.
    pub why: String,
}

/// Everything below `end` was delivered.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct CaughtUp {
    /// Partition.
    #[serde(default)]
    pub p: u32,
    /// Its end.
    pub end: u64,
    /// The topic is closed: nothing follows unless it is opened again, which is told by another of these.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub closed: bool,
}

/// Nothing below `upto` matches the filter but what was delivered: whoever resumes may go on there.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Looked {
    /// Partition.
    #[serde(default)]
    pub p: u32,
    /// Exclusive.
    pub upto: u64,
}

/// The client reads other partitions of a stream than before. Sent first behind `subscribed`, also if it reads none.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ShareChange {
    /// Read from now on.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub gained: Vec<PartitionOf>,
    /// Not read any more: nothing of them comes behind this.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub lost: Vec<PartitionOf>,
}

/// A partition.
#[derive(Debug, Clone, Default, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct PartitionOf {
    /// Its topic, of a subscription to several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub topic: Option<String>,
    /// Partition.
    #[serde(default)]
    pub p: u32,
}

/// Deliveries of offsets `[from, to)` may be lost with their term and shall be forgotten; what has these offsets now is
/// delivered behind this.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Retract {
    /// Partition.
    #[serde(default)]
    pub p: u32,
    /// First offset that is taken back.
    pub from: u64,
    /// One past the last that was delivered.
    pub to: u64,
    /// The term that they were delivered with.
    pub term: u64,
}

/// Everything below `upto` is committed. Sent only behind deliveries that were not.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Firm {
    /// Partition.
    #[serde(default)]
    pub p: u32,
    /// Exclusive.
    pub upto: u64,
}

/// Another gateway serves this: reconnect and resume.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Moved {
    /// Why, for people.
    pub why: String,
}

/// The gateway will close the connection.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Goaway {
    /// In this many milliseconds.
    pub deadline_ms: u64,
    /// Why, e.g. `drain`.
    pub why: String,
}

/// The token's time is running out: send `auth`.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct AuthExpiring {
    /// Milliseconds left.
    pub in_ms: u64,
}

/// A request on this channel, or the connection, was refused.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Problem {
    /// Why: an RFC 9457 problem.
    pub problem: RawJson,
}

/// Asks for a sign of life and says how things stand.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ServerPing {
    /// To be echoed.
    #[serde(default)]
    pub id: u64,
    /// Milliseconds since the epoch.
    pub now: u64,
    /// Ends of the partitions that this connection follows.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub tails: Vec<Tail>,
    /// Credit beyond the gateway's memory budget is honoured later.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub throttled: bool,
}

/// The end of a partition that a channel follows.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Tail {
    /// The channel.
    pub ch: u16,
    /// Partition.
    pub p: u32,
    /// Its end.
    pub tail: u64,
}
