//! Leasing messages and settling them, as JSON.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_protocol::rpc;

use super::message::{present, unique};
use super::{BatchLine, Level, Problem, Record};

/// Asks for messages. Fields that are left out take their default.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"max": 32, "wait_ms": 20000, "lease_ms": 30000, "holder": "worker-7"}))]
pub struct Pull {
    /// Most messages; 32 by default.
    #[schema(minimum = 1, maximum = 10_000)]
    pub max: Option<u64>,
    /// Stop at this many encoded bytes; 1 MiB by default. One message is always given.
    #[schema(minimum = 1, maximum = 4_194_304)]
    pub max_bytes: Option<u64>,
    /// With nothing to lease, wait up to this many milliseconds; 0 by default.
    #[schema(minimum = 0, maximum = 60_000)]
    pub wait_ms: Option<u64>,
    /// How long the messages are leased, milliseconds; as the subscription says by default.
    #[schema(minimum = 1000, maximum = 43_200_000)]
    pub lease_ms: Option<u64>,
    /// Who takes them, shown in the list of leases; at most 255 bytes. Of a stream it must be given, and be
    /// nobody else's.
    #[schema(max_length = 255)]
    pub holder: Option<String>,
    /// `partition`: only messages of one partition, which a settle that publishes needs. `any` by default.
    pub scope: Option<PullScope>,
}

/// Where the messages of one pull may come from.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "lowercase")]
pub enum PullScope {
    /// Any partitions.
    #[default]
    Any,
    /// One partition, whichever has something.
    Partition,
}

/// What was leased.
#[derive(Debug, Clone, Serialize, ToSchema)]
#[schema(example = json!({"messages": [{
    "id": "0:76531", "lease": "l_AYKAgICAIIGAgICAgAEAAIGAgIAQiHsRUw", "fence": 981, "attempt": 1,
    "lease_expires_in_ms": 29988, "partition": 0, "offset": 76531, "ts": 1_787_654_321_123_u64,
    "key": "cust-42", "headers": {}, "content_type": "application/json", "data": {"total": 10}
}]}))]
pub struct Pulled {
    /// The messages; none if there was nothing to lease.
    pub messages: Vec<Delivery>,
}

/// A message that was leased.
#[derive(Debug, Clone, Serialize, ToSchema)]
pub struct Delivery {
    /// Partition and offset; of a subscription to several topics the topic before them: `orders:0:76531`.
    #[schema(example = "0:76531")]
    pub id: String,
    /// Settle it with this.
    pub lease: String,
    /// Grows with every delivery: what a database compares, so that an older delivery cannot undo a newer one.
    pub fence: u64,
    /// Deliveries of this message so far, this one included.
    pub attempt: u32,
    /// How long it is leased from now on, milliseconds.
    pub lease_expires_in_ms: u64,
    /// The message.
    #[serde(flatten)]
    pub record: Record,
}

/// What becomes of leases. Each list may be left out.
#[derive(Debug, Clone, Default, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({
    "ack": ["l_AYKAgICAIIGAgICAgAEAAIGAgIAQiHsRUw"],
    "nack": [{"lease": "l_AYKAgICAIIGAgICAgAEQAIKAgIAQ7JIkyw", "delay_ms": 5000, "reason": "no stock"}],
    "extend": [{"lease": "l_AYKAgICAIIGAgICAgAEBAIGAgIAQXIZG4w", "ms": 60000}],
    "dead": [{"lease": "l_AYKAgICAIIGAgICAgAEBAYWAgIAQ6YJnNA", "reason": "no such customer"}]
}))]
pub struct Settle {
    /// Done: never delivered again.
    #[schema(max_items = 10_000)]
    pub ack: Vec<String>,
    /// Failed: delivered again after a delay.
    #[schema(max_items = 10_000)]
    pub nack: Vec<Rejection>,
    /// Held longer.
    #[schema(max_items = 10_000)]
    pub extend: Vec<Extension>,
    /// Given up: a dead letter.
    #[schema(max_items = 10_000)]
    pub dead: Vec<Dismissal>,
    /// Published in the same step, all or nothing with the leases, which then are of one partition.
    #[serde(skip_serializing_if = "Vec::is_empty")]
    #[schema(value_type = Vec<OutputMessage>, required = false, max_items = 1_000)]
    pub publish: Vec<Box<serde_json::value::RawValue>>,
}

/// A message that a settle publishes. Exactly one of `data` and `data_base64`.
#[derive(Debug, Clone, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
#[schema(example = json!({"topic": "invoices", "key": "cust-42", "data": {"order": 7, "total": 10}}))]
pub struct OutputMessage<'a> {
    /// Topic in the subscription's namespace.
    pub topic: String,
    /// Key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub key: Option<String>,
    /// User headers.
    #[serde(default, deserialize_with = "unique", skip_serializing_if = "BTreeMap::is_empty")]
    pub headers: BTreeMap<String, String>,
    /// Content type; by default as in a batch line.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub content_type: Option<String>,
    /// The payload as a JSON value; with the content type of a text (`text/*`, XML and others, as in a page) it is a
    /// string, which means its text.
    #[serde(default, borrow, deserialize_with = "present", skip_serializing_if = "Option::is_none")]
    #[schema(value_type = Option<serde_json::Value>)]
    pub data: Option<&'a serde_json::value::RawValue>,
    /// The payload in Base64.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub data_base64: Option<String>,
    /// Not to be delivered by queue subscriptions before this time (RFC 3339).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub deliver_at: Option<String>,
    /// Time to live for queue subscriptions, in milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(minimum = 1)]
    pub ttl_ms: Option<u64>,
    /// W3C trace context.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub traceparent: Option<String>,
    /// W3C trace context, vendor part.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub tracestate: Option<String>,
}

impl<'a> OutputMessage<'a> {
    /// The topic, and the rest as a line of a batch.
    #[must_use]
    pub fn into_line(self) -> (String, BatchLine<'a>) {
        let line = BatchLine {
            key: self.key,
            headers: self.headers,
            content_type: self.content_type,
            data: self.data,
            data_base64: self.data_base64,
            deliver_at: self.deliver_at,
            ttl_ms: self.ttl_ms,
            traceparent: self.traceparent,
            tracestate: self.tracestate,
        };
        (self.topic, line)
    }
}

/// A delivery that failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Rejection {
    /// The lease.
    pub lease: String,
    /// When it may be delivered again, milliseconds from now; as the subscription's `backoff_ms` says by default.
    #[schema(nullable = false, maximum = 31_622_400_000_u64)]
    pub delay_ms: Option<u64>,
    /// Why, for operators; at most 1 KiB.
    #[serde(default)]
    pub reason: String,
}

/// A delivery that takes longer.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Extension {
    /// The lease.
    pub lease: String,
    /// How long it is held, milliseconds from now; the subscription's `lease_ms` by default.
    #[schema(nullable = false, minimum = 1000, maximum = 43_200_000)]
    pub ms: Option<u64>,
}

/// A message that is given up.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields)]
pub struct Dismissal {
    /// The lease.
    pub lease: String,
    /// Why, stored with the dead letter; at most 1 KiB.
    #[serde(default)]
    pub reason: String,
}

/// The answer to a settle: one result per lease, those of `ack` first, then `nack`, `extend`, `dead`, each in its
/// order.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct Settled {
    /// The results.
    pub results: Vec<SettledLease>,
    /// What was published, in the order of the request.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    #[schema(required = false)]
    pub published: Vec<PublishedMessage>,
    /// Level that all of it has reached: `none` while some is on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub level: Option<Level>,
}

/// A message that a settle has published: it cannot be lost, and is in its partition once.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct PublishedMessage {
    /// Its topic.
    pub topic: String,
    /// Its partition.
    pub partition: u32,
    /// Its offset; absent while it is on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub offset: Option<u64>,
    /// When it arrived, milliseconds since the epoch.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub ts: Option<u64>,
    /// Resolves to `quorum` once it has arrived.
    pub receipt: String,
    /// Why it will never arrive: its topic was deleted while it was on its way.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub problem: Option<Box<Problem>>,
}

/// What became of one lease.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct SettledLease {
    /// The lease.
    pub lease: String,
    /// What became of it.
    pub result: SettleOutcome,
    /// With `lease_lost`: the delivery that took its place, if one did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub current: Option<Takeover>,
    /// With `failed`: why.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub problem: Option<Box<Problem>>,
}

/// What can become of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum SettleOutcome {
    /// It is settled as was asked, for good.
    Ok,
    /// The message was delivered again since, or a seek has ended the lease: nothing was changed.
    LeaseLost,
    /// The message was settled before.
    AlreadySettled,
    /// No lease of this subscription.
    Unknown,
    /// Its partition could not be reached while others could: settle it again.
    Failed,
}

impl SettleOutcome {
    /// The text clients see.
    #[must_use]
    pub const fn as_str(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::LeaseLost => "lease_lost",
            Self::AlreadySettled => "already_settled",
            Self::Unknown => "unknown",
            Self::Failed => "failed",
        }
    }
}

/// The delivery that took a lost lease's place.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Takeover {
    /// Its number among the deliveries of the message.
    pub attempt: u32,
    /// Its fence.
    pub fence: u64,
}

/// Moves a subscription.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"to": "ts:2026-09-01T10:00:00Z"}))]
pub struct Seek {
    /// `earliest`, `latest`, `ts:` and RFC 3339 or milliseconds, or, if there is one partition in all, an offset.
    /// Or `undo`, with `undo`.
    #[schema(value_type = String, required = true)]
    pub to: serde_json::Value,
    /// With `"to": "undo"`: the `undo` of the answer to the seek or purge that is to be undone.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub undo: Option<String>,
}

/// What a seek did, or would do.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "dry_run": true, "redelivered": 120, "skipped": 0,
    "parts": [{"partition": 0, "floor": 76400, "redelivered": 120, "skipped": 0}]
}))]
pub struct Seeked {
    /// It was only asked what it would do.
    pub dry_run: bool,
    /// Messages from there to the end that had been delivered, settled or dead-lettered before.
    pub redelivered: u64,
    /// Messages before it that were not settled.
    pub skipped: u64,
    /// Undoes it: of each partition the latest four seeks and purges can be.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false, example = "snap_6f2c9d1e00a47b35")]
    pub undo: Option<String>,
    /// The same per partition.
    pub parts: Vec<SeekedPart>,
}

/// What a seek did to one partition.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct SeekedPart {
    /// Its topic, of a subscription to several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub topic: Option<String>,
    /// The partition.
    pub partition: u32,
    /// Where it stands afterwards: everything from here on is delivered.
    pub floor: u64,
    /// As of the whole.
    pub redelivered: u64,
    /// As of the whole.
    pub skipped: u64,
}

/// A page of what is leased and what waits for its time, by partition and offset.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({"items": [{
    "id": "0:76531", "partition": 0, "offset": 76531, "attempts": 1, "holder": "worker-7", "fence": 981,
    "lease_expires_in_ms": 12044, "age_ms": 17956, "state": "leased"
}], "next": null}))]
pub struct LeasePage {
    /// The messages.
    pub items: Vec<LeasedRecord>,
    /// Pass as `cursor` for the next page; `null` on the last.
    pub next: Option<String>,
    /// With `as_of`: the instant of which the page tells, milliseconds since the epoch, the earliest where
    /// its partitions differ. The newest that is kept and not after what was asked for; absent where it is
    /// not known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub as_of_ms: Option<u64>,
}

/// A message that is leased, or that waits for its time.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct LeasedRecord {
    /// Partition and offset; of a subscription to several topics the topic before them.
    pub id: String,
    /// Its topic, of a subscription to several.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub topic: Option<String>,
    /// Partition.
    pub partition: u32,
    /// Offset.
    pub offset: u64,
    /// Deliveries so far; 0 of a message that is settled or dead. A dead letter has its number in `weir-dead-attempts`.
    pub attempts: u32,
    /// Who holds it, if they said so.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub holder: Option<String>,
    /// Fence of the delivery that holds it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub fence: Option<u64>,
    /// How long it is held from now on, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub lease_expires_in_ms: Option<u64>,
    /// How long it has been held, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub age_ms: Option<u64>,
    /// It is not leased, and waits this much longer, milliseconds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub delayed_ms: Option<u64>,
    /// Where it stands.
    pub state: MessageState,
    /// The message that holds its key.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    #[schema(nullable = false)]
    pub blocked_by: Option<String>,
}

/// Where a message stands for a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum MessageState {
    /// It could be leased, as far as the message itself goes.
    Ready,
    /// It is leased.
    Leased,
    /// It backs off after a failure, or waits for its `Deliver-At`.
    Delayed,
    /// Another of its key is not settled yet.
    Blocked,
    /// What was decided of it is on its way to the disk.
    Settling,
    /// The filter does not match it, or it has expired: it is on its way to be settled.
    Filtered,
    /// It is settled.
    Settled,
    /// It was given up: a dead letter.
    Dead,
    /// Retention has removed it.
    Trimmed,
    /// It does not exist, or is not confirmed yet.
    Absent,
    /// A newer storage node says something that this gateway does not know.
    Unknown,
}

impl MessageState {
    /// What the node says.
    #[must_use]
    pub const fn of(standing: rpc::Standing) -> Self {
        use rpc::Standing as S;
        match standing {
            S::Ready => Self::Ready,
            S::Leased => Self::Leased,
            S::Delayed => Self::Delayed,
            S::Blocked => Self::Blocked,
            S::Settling => Self::Settling,
            S::Skipped => Self::Filtered,
            S::Settled => Self::Settled,
            S::Dead => Self::Dead,
            S::Trimmed => Self::Trimmed,
            S::Absent => Self::Absent,
            S::Unset => Self::Unknown,
        }
    }
}

/// Where one message stands, and why. Asking changes nothing.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "id": "0:76531", "partition": 0, "offset": 76531, "attempts": 2, "state": "ready",
    "reasons": ["window_full"], "ahead": 12, "pulled_ms_ago": 250, "start": 0, "end": 80000
}))]
pub struct Explained {
    /// The message, who has it, and until when.
    #[serde(flatten)]
    pub message: LeasedRecord,
    /// What keeps it from being leased; none if nobody has asked for it yet, or somebody has it.
    pub reasons: Vec<Hindrance>,
    /// Unsettled messages before it in its partition.
    pub ahead: u64,
    /// How long ago somebody pulled, milliseconds; `null`: not since the partition's leader began.
    pub pulled_ms_ago: Option<u64>,
    /// The partition's oldest offset.
    pub start: u64,
    /// One past its newest.
    pub end: u64,
}

/// What keeps a message from being leased.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(rename_all = "snake_case")]
pub enum Hindrance {
    /// The subscription is paused.
    Paused,
    /// `max_unacked` messages of the partition's share are leased.
    WindowFull,
    /// Nobody has pulled for a minute.
    NoConsumer,
    /// Too many messages wait to come again.
    ComesAgainFull,
    /// So many messages, keys or lanes wait behind what may not run, that nothing further is looked at.
    LookAheadFull,
    /// The filter does not match it.
    Filtered,
    /// Its time to live is over.
    Expired,
    /// Its publisher wants it later.
    Scheduled,
    /// Others go before it.
    InLine,
    /// A seek is on its way.
    Seeking,
    /// It was dropped by compaction: its key has a newer message, or was deleted.
    Compacted,
    /// It has had all its deliveries and waits to be given up, not to be delivered again.
    Exhausted,
}

impl Hindrance {
    /// What the node says; `None` for what this build does not know.
    #[must_use]
    pub fn of(number: i32) -> Option<Self> {
        use rpc::Hindrance as H;
        Some(match H::try_from(number).ok()? {
            H::Unset => return None,
            H::Paused => Self::Paused,
            H::WindowFull => Self::WindowFull,
            H::NoConsumer => Self::NoConsumer,
            H::ComesAgainFull => Self::ComesAgainFull,
            H::LookAheadFull => Self::LookAheadFull,
            H::Filtered => Self::Filtered,
            H::Expired => Self::Expired,
            H::Scheduled => Self::Scheduled,
            H::InLine => Self::InLine,
            H::Seeking => Self::Seeking,
            H::Compacted => Self::Compacted,
            H::Exhausted => Self::Exhausted,
        })
    }
}

/// Dead letters to be delivered once more, to this subscription alone.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
#[schema(example = json!({"max": 500, "filter": "header.region == 'eu*'", "rate": 50, "stop_after": 5}))]
pub struct Redrive {
    /// These; without any, the oldest of each partition.
    #[schema(max_items = 10_000)]
    pub ids: Vec<String>,
    /// At most this many; 100 by default.
    #[schema(minimum = 1, maximum = 10_000)]
    pub max: Option<u32>,
    /// Only those that this matches.
    #[schema(max_length = 1024)]
    pub filter: Option<String>,
    /// At most this many a second. What does not fit into 20 seconds is left for the next request.
    #[schema(minimum = 1, maximum = 10_000)]
    pub rate: Option<u32>,
    /// Stop when this many of one partition are dead again; 10 by default, 0 never.
    pub stop_after: Option<u32>,
    /// `next` of the answer before; with `ids`, the same ones again.
    pub cursor: Option<String>,
}

/// What a redrive did.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
#[schema(example = json!({
    "dry_run": false, "redriven": ["0:76531"], "dead_again": 0, "stopped": false, "next": null
}))]
pub struct Redriven {
    /// Nothing was redriven: this is what would be.
    pub dry_run: bool,
    /// What will be delivered again. What was not dead, or does not exist any more, is not among them.
    pub redriven: Vec<String>,
    /// How many of them were dead again before the last one of their partition was redriven.
    pub dead_again: u64,
    /// It ended early: too many were.
    pub stopped: bool,
    /// Pass as `cursor` to go on, with `ids` beside the same ones; `null`: there is nothing beyond.
    pub next: Option<String>,
}
