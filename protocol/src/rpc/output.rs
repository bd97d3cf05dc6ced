//! Settling leases and publishing what came of them, in one entry: the outputs arrive if the leases are settled, once.

use super::{PartRef, Placed, Refusal, SettleItem};

/// Settles leases of a part and puts record batches on their way, all or nothing. The packet's payload is the batches,
/// concatenated. Answered once every output has arrived, or `wait_ms` after it was settled.
///
/// Refused without effect: `lease_lost` unless every lease can be settled; `config_stale` if a topic is not what the
/// caller takes it for; `topic_closed`, `too_large`, `busy`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SettleAndPublishRequest {
    /// The part.
    #[prost(message, required, tag = "1")]
    pub part: PartRef,
    /// What becomes of its leases: done, failed or given up. At least one, at most
    /// [`crate::limits::SETTLE_ITEMS_MAX`], none twice.
    #[prost(message, repeated, tag = "2")]
    pub items: Vec<SettleItem>,
    /// What is published, in order; at least one.
    #[prost(message, repeated, tag = "3")]
    pub outputs: Vec<Output>,
    /// How long the answer waits for outputs that have not arrived.
    #[prost(uint64, tag = "4")]
    pub wait_ms: u64,
}

/// A record batch that a settle publishes. It names no producer.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Output {
    /// Shard of the partition.
    #[prost(uint32, tag = "1")]
    pub shard: u32,
    /// The topic's life.
    #[prost(uint64, tag = "2")]
    pub incarnation: u64,
    /// Partition.
    #[prost(uint32, tag = "3")]
    pub partition: u32,
    /// Length of its batch in the payload.
    #[prost(uint32, tag = "4")]
    pub batch_bytes: u32,
}

/// The answer to [`SettleAndPublishRequest`]: all leases are settled, and the outputs cannot be lost.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SettleAndPublishAnswer {
    /// One per output, in their order.
    #[prost(message, repeated, tag = "1")]
    pub outputs: Vec<OutputResult>,
}

/// What has become of an output. Neither `placed` nor `refused`: it is on its way.
#[derive(Clone, PartialEq, prost::Message)]
pub struct OutputResult {
    /// What it is known by until it has arrived.
    #[prost(message, required, tag = "1")]
    pub name: OutputName,
    /// Where it is.
    #[prost(message, optional, tag = "2")]
    pub placed: Option<Placed>,
    /// Why it is nowhere: its topic was deleted while it was on its way.
    #[prost(message, optional, tag = "3")]
    pub refused: Option<Refusal>,
}

/// Names an output among all that one shard sends to another.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct OutputName {
    /// The shard that sends it.
    #[prost(uint32, tag = "1")]
    pub source: u32,
    /// Its number there; dense, from 0.
    #[prost(uint64, tag = "2")]
    pub number: u64,
}
