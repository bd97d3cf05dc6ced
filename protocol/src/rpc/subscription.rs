//! Subscriptions: a topic as a work queue. Configuration at the home of its name, leases where the partition is.

use super::{ForkOrigin, Position, Refusal, Slice, U128};

/// Full name of a subscription on the wire.
#[derive(Clone, PartialEq, Eq, Hash, prost::Message)]
pub struct SubscriptionName {
    /// Owner.
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// Namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Subscription.
    #[prost(string, tag = "3")]
    pub subscription: String,
}

/// What an application sets.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SubscriptionConfig {
    /// The topic, in the subscription's namespace; the first of several; or a prefix and `*`: every topic whose name
    /// begins so, now and later.
    #[prost(string, tag = "1")]
    pub topic: String,
    /// How long a delivery is held unless a pull says otherwise, 1 s to 12 h.
    #[prost(uint32, tag = "2")]
    pub lease_ms: u32,
    /// Deliveries of a record after which it is a dead letter; 0: no limit.
    #[prost(uint32, tag = "3")]
    pub max_attempts: u32,
    /// Delay before delivery 2, 3, ..; the last one repeats. Empty: at once.
    #[prost(uint64, repeated, tag = "4")]
    pub backoff_ms: Vec<u64>,
    /// Where dead letters go, in the subscription's namespace; without one they are settled and counted.
    #[prost(string, optional, tag = "5")]
    pub dead_letter_topic: Option<String>,
    /// Where it starts, in every partition.
    #[prost(message, required, tag = "6")]
    pub start: Position,
    /// Most records leased at once, all partitions together.
    #[prost(uint32, tag = "7")]
    pub max_unacked: u32,
    /// No record is leased.
    #[prost(bool, tag = "8")]
    pub paused: bool,
    /// Of the records of one key, one is leased only when those before it are settled. Cannot change.
    #[prost(bool, tag = "9")]
    pub is_by_key: bool,
    /// Only records that this [filter](crate::filter::Filter) matches are delivered; all others are settled.
    #[prost(string, optional, tag = "10")]
    pub filter: Option<String>,
    /// Records that differ in this [field](crate::filter::Field) take turns.
    #[prost(string, optional, tag = "11")]
    pub fair_by: Option<String>,
    /// The other topics, if there are several.
    #[prost(string, repeated, tag = "12")]
    pub more_topics: Vec<String>,
    /// A stream: each part has one reader at a time, which acknowledges up to a record. Cannot change.
    #[prost(bool, tag = "13")]
    pub is_stream: bool,
}

impl SubscriptionConfig {
    /// What names of topics begin with, if it consumes all that do.
    #[must_use]
    pub fn prefix(&self) -> Option<&str> {
        self.topic.strip_suffix('*')
    }

    /// The topics that it names, or the one pattern.
    pub fn topics(&self) -> impl Iterator<Item = &String> {
        std::iter::once(&self.topic).chain(&self.more_topics)
    }

    /// True if it consumes a topic with this name.
    #[must_use]
    pub fn consumes(&self, topic: &str) -> bool {
        match self.prefix() {
            Some(prefix) => topic.starts_with(prefix),
            None => self.topics().any(|name| name == topic),
        }
    }

    /// True if it may have parts of more than one topic.
    #[must_use]
    pub fn is_of_several(&self) -> bool {
        self.prefix().is_some() || !self.more_topics.is_empty()
    }
}

/// A subscription as its home shard knows it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SubscriptionDescription {
    /// Full name.
    #[prost(message, required, tag = "1")]
    pub name: SubscriptionName,
    /// Its life; unique like a topic's incarnation.
    #[prost(uint64, tag = "2")]
    pub id: u64,
    /// Version of its configuration, from 1.
    #[prost(uint32, tag = "3")]
    pub version: u32,
    /// Its configuration.
    #[prost(message, required, tag = "4")]
    pub config: SubscriptionConfig,
    /// The life of the topic that it belongs to; of a pattern 0.
    #[prost(uint64, tag = "5")]
    pub topic_incarnation: u64,
    /// The shard of each of the topic's partitions; of a pattern every shard that may have one.
    #[prost(uint32, repeated, tag = "6")]
    pub shards: Vec<u32>,
    /// When it was made, milliseconds since the epoch.
    #[prost(uint64, tag = "7")]
    pub created_ms: u64,
    /// The other topics, if there are several.
    #[prost(message, repeated, tag = "8")]
    pub more: Vec<ConsumedTopic>,
    /// What it began as, if not anew.
    #[prost(message, optional, tag = "9")]
    pub fork: Option<ForkOrigin>,
}

/// A life of a topic that a subscription consumes.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ConsumedTopic {
    /// The topic's life.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// The shard of each of its partitions.
    #[prost(uint32, repeated, tag = "2")]
    pub shards: Vec<u32>,
}

impl SubscriptionDescription {
    /// The topics that it was made for, in the order of its configuration; of a pattern none.
    pub fn consumed(&self) -> impl Iterator<Item = (u64, &[u32])> {
        let first = (self.topic_incarnation, &self.shards[..]);
        let more = self.more.iter().map(|topic| (topic.incarnation, &topic.shards[..]));
        std::iter::once(first).chain(more).filter(|_| self.config.prefix().is_none())
    }
}

/// Creates a subscription unless it exists. Answered when every partition has its part.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateSubscriptionRequest {
    /// Full name.
    #[prost(message, required, tag = "1")]
    pub name: SubscriptionName,
    /// Configuration.
    #[prost(message, required, tag = "2")]
    pub config: SubscriptionConfig,
    /// The topic's life, as its home shard told the gateway; of a pattern 0.
    #[prost(uint64, tag = "3")]
    pub topic_incarnation: u64,
    /// The shard of each of the topic's partitions; of a pattern nothing.
    #[prost(uint32, repeated, tag = "4")]
    pub shards: Vec<u32>,
    /// The other topics, if there are several.
    #[prost(message, repeated, tag = "5")]
    pub more: Vec<ConsumedTopic>,
    /// Its parts begin as those of another subscription stood, of the same topics: all of them, or it is not made.
    #[prost(message, optional, tag = "6")]
    pub fork: Option<ForkOrigin>,
}

/// The answer to [`CreateSubscriptionRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct SubscriptionCreated {
    /// The subscription.
    #[prost(message, required, tag = "1")]
    pub subscription: SubscriptionDescription,
    /// It did not exist before; otherwise it exists with this very configuration.
    #[prost(bool, tag = "2")]
    pub created: bool,
}

/// Asks for a subscription.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DescribeSubscriptionRequest {
    /// Full name.
    #[prost(message, required, tag = "1")]
    pub name: SubscriptionName,
}

/// Replaces a configuration; its topic and start cannot change.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UpdateSubscriptionRequest {
    /// Full name.
    #[prost(message, required, tag = "1")]
    pub name: SubscriptionName,
    /// New configuration.
    #[prost(message, required, tag = "2")]
    pub config: SubscriptionConfig,
    /// The life that is meant.
    #[prost(uint64, tag = "3")]
    pub id: u64,
    /// The version it was made from.
    #[prost(uint32, tag = "4")]
    pub expected_version: u32,
}

/// Deletes a subscription.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteSubscriptionRequest {
    /// Full name.
    #[prost(message, required, tag = "1")]
    pub name: SubscriptionName,
    /// Only this version.
    #[prost(uint32, optional, tag = "2")]
    pub expected_version: Option<u32>,
    /// Only this life.
    #[prost(uint64, optional, tag = "3")]
    pub id: Option<u64>,
}

/// One part of a subscription: what it holds of one partition.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord, prost::Message)]
pub struct PartRef {
    /// [`SubscriptionDescription::id`].
    #[prost(uint64, tag = "1")]
    pub subscription: u64,
    /// The topic's life.
    #[prost(uint64, tag = "2")]
    pub incarnation: u64,
    /// Partition.
    #[prost(uint32, tag = "3")]
    pub partition: u32,
}

/// Leases records of a part.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PullRequest {
    /// The part.
    #[prost(message, required, tag = "1")]
    pub part: PartRef,
    /// At most this many records; 0 only asks, or waits, whether there is one.
    #[prost(uint32, tag = "2")]
    pub max_records: u32,
    /// Stop once this many encoded bytes are leased; one record is always given.
    #[prost(uint64, tag = "3")]
    pub max_bytes: u64,
    /// How long they are held; 0: as the subscription says.
    #[prost(uint32, tag = "4")]
    pub lease_ms: u32,
    /// With no record to lease, wait up to this long for one.
    #[prost(uint64, tag = "5")]
    pub wait_ms: u64,
    /// Names this pull: repeated, it gets the same leases while any of them is held.
    #[prost(message, optional, tag = "6")]
    pub key: Option<U128>,
    /// Give only what was leased under `key` before.
    #[prost(bool, tag = "7")]
    pub only_repeat: bool,
    /// Who holds the leases, for operators; at most 255 bytes.
    #[prost(string, tag = "8")]
    pub holder: String,
    /// Of a stream, [`GivenPart::lot`](super::GivenPart::lot) under which it reads; 0: parts are not given.
    #[prost(uint64, tag = "9")]
    pub lot: u64,
}

/// A record that was leased.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Grant {
    /// The record.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// Grows with every delivery of the part; what settles it.
    #[prost(uint64, tag = "2")]
    pub fence: u64,
    /// Deliveries of this record so far, this one included.
    #[prost(uint32, tag = "3")]
    pub attempt: u32,
    /// How long it is held from now on.
    #[prost(uint64, tag = "4")]
    pub expires_in_ms: u64,
}

/// The answer to [`PullRequest`]; payload: the batches of `slices`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PullAnswer {
    /// In offset order.
    #[prost(message, repeated, tag = "1")]
    pub grants: Vec<Grant>,
    /// Where their records are, in offset order. A slice may hold records that were not leased.
    #[prost(message, repeated, tag = "2")]
    pub slices: Vec<Slice>,
    /// These leases were given before, under the same key.
    #[prost(bool, tag = "3")]
    pub is_repeat: bool,
    /// There is more to lease now.
    #[prost(bool, tag = "4")]
    pub is_more: bool,
}

/// What becomes of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum SettleAction {
    /// None: refused.
    Unset = 0,
    /// Done: never delivered again.
    Ack = 1,
    /// Failed: delivered again after a delay.
    Nack = 2,
    /// Held longer, from now.
    Extend = 3,
    /// Given up: a dead letter.
    Dead = 4,
}

/// One lease to settle.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SettleItem {
    /// The record.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// [`Grant::fence`].
    #[prost(uint64, tag = "2")]
    pub fence: u64,
    /// What becomes of it.
    #[prost(enumeration = "SettleAction", tag = "3")]
    pub action: i32,
    /// Nack: the delay, absent as the subscription says. Extend: the new time from now.
    #[prost(uint64, optional, tag = "4")]
    pub ms: Option<u64>,
    /// Nack and dead: why, at most 1 KiB.
    #[prost(string, tag = "5")]
    pub reason: String,
}

/// Settles leases of a part. Answered when it is committed.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SettleRequest {
    /// The part.
    #[prost(message, required, tag = "1")]
    pub part: PartRef,
    /// At most [`crate::limits::SETTLE_ITEMS_MAX`].
    #[prost(message, repeated, tag = "2")]
    pub items: Vec<SettleItem>,
}

/// What became of one [`SettleItem`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum SettleOutcome {
    /// The lease is not known here and its record was never leased under it.
    Unknown = 0,
    /// Done.
    Done = 1,
    /// The record was delivered again since; [`SettleResult::current`] says how.
    LeaseLost = 2,
    /// The record was settled before.
    AlreadySettled = 3,
}

/// The answer to one [`SettleItem`].
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SettleResult {
    /// What became of it.
    #[prost(enumeration = "SettleOutcome", tag = "1")]
    pub outcome: i32,
    /// With `LeaseLost`: the delivery that took its place.
    #[prost(message, optional, tag = "2")]
    pub current: Option<Grant>,
}

/// The answer to [`SettleRequest`], in its order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SettleAnswer {
    /// One per item.
    #[prost(message, repeated, tag = "1")]
    pub results: Vec<SettleResult>,
}

/// Asks how parts stand.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartStatsRequest {
    /// Parts of one shard.
    #[prost(message, repeated, tag = "1")]
    pub parts: Vec<PartRef>,
}

/// How a part stands.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartStats {
    /// Why there are no numbers.
    #[prost(message, optional, tag = "1")]
    pub refused: Option<Refusal>,
    /// Everything below is settled.
    #[prost(uint64, tag = "2")]
    pub floor: u64,
    /// End of the partition.
    #[prost(uint64, tag = "3")]
    pub end: u64,
    /// Records that could be leased now.
    #[prost(uint64, tag = "4")]
    pub ready: u64,
    /// Records that are leased.
    #[prost(uint64, tag = "5")]
    pub leased: u64,
    /// Records that wait for their time.
    #[prost(uint64, tag = "6")]
    pub delayed: u64,
    /// Records settled above the floor.
    #[prost(uint64, tag = "7")]
    pub settled_above_floor: u64,
    /// Dead letters so far.
    #[prost(uint64, tag = "8")]
    pub dead: u64,
    /// Dead letters on their way to their topic.
    #[prost(uint64, tag = "9")]
    pub dead_pending: u64,
    /// Time of the oldest unsettled record, milliseconds since the epoch.
    #[prost(uint64, optional, tag = "10")]
    pub oldest_ms: Option<u64>,
    /// Records that wait for their key, as far as was looked ahead.
    #[prost(uint64, tag = "11")]
    pub blocked: u64,
    /// Records that the leader keeps in memory.
    #[prost(uint64, tag = "12")]
    pub in_memory: u64,
    /// Dead letters that were not revived and whose record still exists.
    #[prost(uint64, tag = "13")]
    pub revivable: u64,
    /// Of a stream, who reads.
    #[prost(string, optional, tag = "14")]
    pub reader: Option<String>,
    /// Of a fork, the instant that it began as, if that is known; milliseconds since the epoch.
    #[prost(uint64, optional, tag = "15")]
    pub forked_at_ms: Option<u64>,
}

/// The answer to [`PartStatsRequest`], in its order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartStatsList {
    /// One per part.
    #[prost(message, repeated, tag = "1")]
    pub parts: Vec<PartStats>,
}

/// Lists what is leased and what waits, by offset.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListLeasesRequest {
    /// The part.
    #[prost(message, required, tag = "1")]
    pub part: PartRef,
    /// Only offsets from here on.
    #[prost(uint64, tag = "2")]
    pub from: u64,
    /// At most this many.
    #[prost(uint32, tag = "3")]
    pub limit: u32,
    /// Only records that stand so; `Unset`: what is leased and what waits.
    #[prost(enumeration = "Standing", tag = "4")]
    pub standing: i32,
    /// As it stood before the seek that kept it under this name; 0: now.
    #[prost(fixed64, tag = "5")]
    pub as_of: u64,
    /// As it stood then, milliseconds since the epoch, as far as that is kept; not with `as_of`.
    #[prost(uint64, optional, tag = "6")]
    pub as_of_ms: Option<u64>,
}

/// Where a record stands for a subscription.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, prost::Enumeration)]
#[repr(i32)]
pub enum Standing {
    /// Nothing is said.
    Unset = 0,
    /// It could be leased, as far as the record itself goes.
    Ready = 1,
    /// It is leased.
    Leased = 2,
    /// It waits for its time.
    Delayed = 3,
    /// Another of its key is not settled yet.
    Blocked = 4,
    /// What was decided of it is on its way through the log.
    Settling = 5,
    /// It was looked at and is for nobody: on its way to be settled.
    Skipped = 6,
    /// It is settled.
    Settled = 7,
    /// It was given up, and not revived.
    Dead = 8,
    /// Retention has removed it.
    Trimmed = 9,
    /// It is not committed, or does not exist.
    Absent = 10,
}

/// A record that is leased or waits for its time.
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseInfo {
    /// The record.
    #[prost(uint64, tag = "1")]
    pub offset: u64,
    /// The delivery that holds it; absent: it waits.
    #[prost(message, optional, tag = "2")]
    pub grant: Option<Grant>,
    /// Who holds it.
    #[prost(string, tag = "3")]
    pub holder: String,
    /// How long it has been held.
    #[prost(uint64, tag = "4")]
    pub age_ms: u64,
    /// Deliveries so far.
    #[prost(uint32, tag = "5")]
    pub attempts: u32,
    /// It waits this much longer.
    #[prost(uint64, optional, tag = "6")]
    pub delayed_ms: Option<u64>,
    /// Where it stands.
    #[prost(enumeration = "Standing", tag = "7")]
    pub standing: i32,
    /// The record that holds its key.
    #[prost(uint64, optional, tag = "8")]
    pub blocked_by: Option<u64>,
}

/// The answer to [`ListLeasesRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct LeaseList {
    /// In offset order.
    #[prost(message, repeated, tag = "1")]
    pub leases: Vec<LeaseInfo>,
    /// Where to go on; absent: that was all.
    #[prost(uint64, optional, tag = "2")]
    pub next: Option<u64>,
    /// Of a moment that was, the last instant that it stood so and that is not after what was asked for, if
    /// that is known.
    #[prost(uint64, optional, tag = "3")]
    pub as_of_ms: Option<u64>,
}

/// Moves a part: everything from `to` on is unsettled, everything before is settled. Leases end, attempts begin anew.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SeekRequest {
    /// The part.
    #[prost(message, required, tag = "1")]
    pub part: PartRef,
    /// Where to.
    #[prost(message, required, tag = "2")]
    pub to: Position,
    /// Only say what it would do.
    #[prost(bool, tag = "3")]
    pub is_dry_run: bool,
    /// What stands before is kept under this name, of the latest four seeks; 0: it is not.
    #[prost(fixed64, tag = "4")]
    pub keep_as: u64,
    /// Not `to`, but back to what is kept under this name; 0: `to`.
    #[prost(fixed64, tag = "5")]
    pub back_to: u64,
}

/// What a seek does, or would.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SeekAnswer {
    /// Where the part stands afterwards.
    #[prost(uint64, tag = "1")]
    pub floor: u64,
    /// Records from there to the end that were delivered, settled or dead-lettered before.
    #[prost(uint64, tag = "2")]
    pub redelivered: u64,
    /// Unsettled records before it.
    #[prost(uint64, tag = "3")]
    pub skipped: u64,
}
