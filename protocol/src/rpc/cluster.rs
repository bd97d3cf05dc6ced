//! What the meta group knows: nodes, shards, slots and namespaces.

use super::U128;

/// Asks for the cluster map.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ClusterMapRequest {}

/// Where everything is. Gateways cache it and refresh when a node answers `not_leader`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ClusterMap {
    /// Raised by every change.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// The cluster.
    #[prost(message, optional, tag = "2")]
    pub cluster_id: Option<U128>,
    /// Storage nodes.
    #[prost(message, repeated, tag = "3")]
    pub nodes: Vec<NodeInfo>,
    /// Shards, the meta group included, sorted by number.
    #[prost(message, repeated, tag = "4")]
    pub shards: Vec<ShardInfo>,
    /// Home shard of every slot, as sorted runs that cover all slots.
    #[prost(message, repeated, tag = "5")]
    pub slots: Vec<SlotRun>,
    /// Highest level that nodes confirm at; unset: quorum.
    #[prost(enumeration = "super::Level", tag = "6")]
    pub level_max: i32,
    /// What whoever looks after the cluster should know, in words.
    #[prost(string, repeated, tag = "7")]
    pub warnings: Vec<String>,
}

/// A storage node.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NodeInfo {
    /// Its id.
    #[prost(uint64, tag = "1")]
    pub node_id: u64,
    /// Where gateways reach it: `host:port`.
    #[prost(string, tag = "2")]
    pub address: String,
}

/// A shard and who leads it.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ShardInfo {
    /// Its number.
    #[prost(uint32, tag = "1")]
    pub shard: u32,
    /// Leading node; 0 while there is none.
    #[prost(uint64, tag = "2")]
    pub leader_node: u64,
    /// Term of that leadership.
    #[prost(uint64, tag = "3")]
    pub term: u64,
}

/// Slots `[start, end)` are at home in `shard`.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct SlotRun {
    /// First slot.
    #[prost(uint32, tag = "1")]
    pub start: u32,
    /// One past the last.
    #[prost(uint32, tag = "2")]
    pub end: u32,
    /// Their home shard.
    #[prost(uint32, tag = "3")]
    pub shard: u32,
}

/// A namespace and its settings.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Namespace {
    /// Owner.
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// Name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Publishing to a topic that does not exist creates it with the defaults.
    #[prost(bool, tag = "3")]
    pub auto_create: bool,
    /// Browser origins that may use it, exact (`https://app.example`).
    #[prost(string, repeated, tag = "4")]
    pub cors_origins: Vec<String>,
    /// From 1, raised by every change.
    #[prost(uint32, tag = "5")]
    pub version: u32,
    /// Of topics that are made in it and say nothing: see [`super::TopicConfig::cache_public`].
    #[prost(bool, tag = "6")]
    pub cache_public: bool,
}

/// Creates a namespace or replaces its settings.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PutNamespaceRequest {
    /// What it shall be; `version` is ignored.
    #[prost(message, optional, tag = "1")]
    pub namespace: Option<Namespace>,
    /// Refuse (`version_mismatch`) unless this is its version; 0: unless it does not exist.
    #[prost(uint32, optional, tag = "2")]
    pub expected_version: Option<u32>,
}

/// The answer to [`PutNamespaceRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct NamespacePut {
    /// As it now stands.
    #[prost(message, optional, tag = "1")]
    pub namespace: Option<Namespace>,
    /// It did not exist before.
    #[prost(bool, tag = "2")]
    pub created: bool,
    /// Something was changed or created.
    #[prost(bool, tag = "3")]
    pub changed: bool,
}

/// Deletes a namespace. The gateway has checked that no shard holds a topic of it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteNamespaceRequest {
    /// Owner.
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// Name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Refuse (`version_mismatch`) unless this is its version.
    #[prost(uint32, optional, tag = "3")]
    pub expected_version: Option<u32>,
}

/// Asks for namespaces in name order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListNamespacesRequest {
    /// Owner.
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// Only this one.
    #[prost(string, optional, tag = "2")]
    pub name: Option<String>,
    /// Only those after this name.
    #[prost(string, optional, tag = "3")]
    pub after: Option<String>,
    /// At most this many.
    #[prost(uint32, tag = "4")]
    pub limit: u32,
    /// Only names that contain this text.
    #[prost(string, optional, tag = "5")]
    pub contains: Option<String>,
}

/// Namespaces in name order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NamespaceList {
    /// The namespaces.
    #[prost(message, repeated, tag = "1")]
    pub namespaces: Vec<Namespace>,
    /// Names up to this one were looked at, where others are left.
    #[prost(string, optional, tag = "3")]
    pub looked_to: Option<String>,
}
