//! Publishing, and what became of it.

use super::{OutputName, Refusal, U128};

/// Batches for partitions of one shard, in order. The packet's payload is their record batches, concatenated.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PublishRequest {
    /// Set of [`super::Level`] bits to answer at, lowest first. Empty: one answer once all items are staged.
    #[prost(uint32, tag = "1")]
    pub levels: u32,
    /// The batches.
    #[prost(message, repeated, tag = "2")]
    pub items: Vec<PublishItem>,
}

/// One record batch for one partition. Accepted or refused whole.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PublishItem {
    /// The topic's life.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// Configuration version the sender acted on.
    #[prost(uint32, tag = "2")]
    pub config_version: u32,
    /// Partition.
    #[prost(uint32, tag = "3")]
    pub partition: u32,
    /// Length of its batch in the payload.
    #[prost(uint32, tag = "4")]
    pub batch_bytes: u32,
    /// Accept only if the partition's end is this (`tail_mismatch` otherwise).
    #[prost(uint64, optional, tag = "5")]
    pub expected_end: Option<u64>,
    /// Accept once per key.
    #[prost(message, optional, tag = "6")]
    pub idempotency: Option<IdempotencyKey>,
}

/// An idempotency key and what it was used for.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct IdempotencyKey {
    /// 128-bit hash of the client's key.
    #[prost(message, required, tag = "1")]
    pub key: U128,
    /// 128-bit hash of payload, message key and content type: another one under the same key is `key_reused`.
    #[prost(message, required, tag = "2")]
    pub fingerprint: U128,
}

/// All items have reached `level`, or were refused.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PublishAnswer {
    /// The [`super::Level`] reached; `Unset` answers a request without levels.
    #[prost(enumeration = "super::Level", tag = "1")]
    pub level: i32,
    /// One per item, in their order. A refusal is repeated at every level.
    #[prost(message, repeated, tag = "2")]
    pub results: Vec<PublishResult>,
    /// Where the time went, for the slowest entry of the request.
    #[prost(message, optional, tag = "3")]
    pub stages: Option<Stages>,
}

/// What became of one item: exactly one of the two.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PublishResult {
    /// Where its records are.
    #[prost(message, optional, tag = "1")]
    pub placed: Option<Placed>,
    /// Why there are none.
    #[prost(message, optional, tag = "2")]
    pub refused: Option<Refusal>,
}

/// Where a batch's records are.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Placed {
    /// Offset of the first.
    #[prost(uint64, tag = "1")]
    pub base_offset: u64,
    /// Number of records.
    #[prost(uint32, tag = "2")]
    pub count: u32,
    /// Their timestamp, milliseconds since the epoch.
    #[prost(uint64, tag = "3")]
    pub ts_ms: u64,
    /// Term in which the offset was given.
    #[prost(uint64, tag = "4")]
    pub term: u64,
    /// The offset cannot change any more.
    #[prost(bool, tag = "5")]
    pub is_final: bool,
    /// The batch had been accepted before; nothing was added.
    #[prost(bool, tag = "6")]
    pub duplicate: bool,
    /// Of a duplicate with a producer: the highest number that this partition accepted of it.
    #[prost(uint64, optional, tag = "7")]
    pub last_seq: Option<u64>,
}

/// Time spent per stage at the storage node, in microseconds, and the commit it shared.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Stages {
    /// From receipt to the start of the journal write: proposer and writer queues.
    #[prost(uint32, tag = "1")]
    pub queue_us: u32,
    /// Journal write call.
    #[prost(uint32, tag = "2")]
    pub write_us: u32,
    /// Journal sync call.
    #[prost(uint32, tag = "3")]
    pub fsync_us: u32,
    /// From the local sync to commit.
    #[prost(uint32, tag = "4")]
    pub quorum_us: u32,
    /// From receipt to the answer, all of the above included.
    #[prost(uint32, tag = "5")]
    pub node_us: u32,
    /// Records that shared the entry.
    #[prost(uint32, tag = "6")]
    pub batch_records: u32,
    /// Bytes that shared the entry.
    #[prost(uint32, tag = "7")]
    pub batch_bytes: u32,
}

/// Asks what a partition knows of a producer.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ProducerStateRequest {
    /// The topic's life.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// Partition.
    #[prost(uint32, tag = "2")]
    pub partition: u32,
    /// [`crate::ids::ProducerKey`].
    #[prost(message, required, tag = "3")]
    pub producer: U128,
}

/// A producer as one partition knows it; `producer_not_found` if it does not.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ProducerState {
    /// Its epoch.
    #[prost(uint32, tag = "1")]
    pub epoch: u32,
    /// Highest sequence number accepted.
    #[prost(uint64, tag = "2")]
    pub last_seq: u64,
    /// Offset of the record with that number.
    #[prost(uint64, tag = "3")]
    pub last_offset: u64,
}

/// Asks which level a staged record has reached.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ConfirmStateRequest {
    /// The topic's life.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// Partition.
    #[prost(uint32, tag = "2")]
    pub partition: u32,
    /// Offset that was answered.
    #[prost(uint64, tag = "3")]
    pub offset: u64,
    /// Term that was answered with it.
    #[prost(uint64, tag = "4")]
    pub term: u64,
    /// Wait until this level is reached …
    #[prost(enumeration = "super::Level", tag = "5")]
    pub level: i32,
    /// … for at most this long.
    #[prost(uint64, tag = "6")]
    pub wait_ms: u64,
    /// An output of a settle, instead of `offset` and `term`: committed once it has arrived.
    #[prost(message, optional, tag = "7")]
    pub output: Option<OutputName>,
}

/// Which level it has.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct ConfirmState {
    /// The [`super::Level`] reached.
    #[prost(enumeration = "super::Level", tag = "1")]
    pub level: i32,
    /// The record was staged in a term whose suffix was lost: it does not exist.
    #[prost(bool, tag = "2")]
    pub lost: bool,
    /// Its timestamp, if it exists.
    #[prost(uint64, tag = "3")]
    pub ts_ms: u64,
    /// Of what is archived: the partition's oldest offset that is kept.
    #[prost(uint64, tag = "4")]
    pub start: u64,
}
