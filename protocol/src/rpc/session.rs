//! How a connection between rooms starts, and credit of its streams.

use super::U128;

/// Version of the internal protocol that this build speaks.
pub const PROTOCOL_VERSION: u32 = 1;

/// Who is connecting. First frame, due within the handshake deadline.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Hello {
    /// Highest protocol version the caller speaks.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The cluster it means; absent while a gateway does not know it yet.
    #[prost(message, optional, tag = "2")]
    pub cluster_id: Option<U128>,
    /// Its node id; 0 for a gateway.
    #[prost(uint64, tag = "3")]
    pub node_id: u64,
    /// Optional abilities, one bit each; none are defined yet.
    #[prost(uint64, tag = "4")]
    pub features: u64,
    /// Shared secret of the cluster; empty where none is configured. Never logged.
    #[prost(bytes = "bytes", tag = "5")]
    pub credential: bytes::Bytes,
}

/// The answer to [`Hello`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct Welcome {
    /// Version spoken from here on: the lower of the two.
    #[prost(uint32, tag = "1")]
    pub version: u32,
    /// The node's cluster.
    #[prost(message, optional, tag = "2")]
    pub cluster_id: Option<U128>,
    /// The node.
    #[prost(uint64, tag = "3")]
    pub node_id: u64,
    /// Abilities both sides have.
    #[prost(uint64, tag = "4")]
    pub features: u64,
}

/// Body of a credit frame: a [`Credit`], and how far it will be raised.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct RaiseCredit {
    /// As [`Credit::records`].
    #[prost(uint64, tag = "1")]
    pub records: u64,
    /// As [`Credit::bytes`].
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
    /// As [`SubscribeRequest::reach_bytes`](super::SubscribeRequest::reach_bytes).
    #[prost(uint64, optional, tag = "3")]
    pub reach_bytes: Option<u64>,
    /// As [`SubscribeRequest::reach_records`](super::SubscribeRequest::reach_records).
    #[prost(uint64, optional, tag = "4")]
    pub reach_records: Option<u64>,
}

/// Absolute, cumulative limit of a stream: totals since it was opened. Lower or repeated values change nothing.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Credit {
    /// Records.
    #[prost(uint64, tag = "1")]
    pub records: u64,
    /// Encoded, uncompressed record bytes.
    #[prost(uint64, tag = "2")]
    pub bytes: u64,
}
