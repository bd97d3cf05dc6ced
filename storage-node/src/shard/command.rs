//! Commands that change a shard's own state: topics at home in it, namespaces (shard 0).

use weir_protocol::rpc::{Namespace, TopicConfig, TopicName};

/// The body of a command sub-batch: exactly one.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Command {
    /// What to do.
    #[prost(oneof = "Change", tags = "1, 2, 3, 4, 5")]
    pub change: Option<Change>,
}

/// The kinds of [`Command`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Change {
    /// Creates a topic.
    #[prost(message, tag = "1")]
    CreateTopic(CreateTopic),
    /// Replaces a topic's configuration.
    #[prost(message, tag = "2")]
    UpdateTopic(UpdateTopic),
    /// Deletes a topic.
    #[prost(message, tag = "3")]
    DeleteTopic(DeleteTopic),
    /// Creates or replaces a namespace.
    #[prost(message, tag = "4")]
    PutNamespace(PutNamespace),
    /// Deletes a namespace.
    #[prost(message, tag = "5")]
    DeleteNamespace(DeleteNamespace),
}

/// Creates a topic unless it exists.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateTopic {
    /// Full name.
    #[prost(message, required, tag = "1")]
    pub name: TopicName,
    /// Configuration.
    #[prost(message, required, tag = "2")]
    pub config: TopicConfig,
    /// An existing topic of any configuration is fine.
    #[prost(bool, tag = "3")]
    pub accept_existing: bool,
}

/// Replaces a configuration.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UpdateTopic {
    /// Full name.
    #[prost(message, required, tag = "1")]
    pub name: TopicName,
    /// New configuration.
    #[prost(message, required, tag = "2")]
    pub config: TopicConfig,
    /// The life that is meant.
    #[prost(uint64, tag = "3")]
    pub incarnation: u64,
    /// The version it was made from.
    #[prost(uint32, tag = "4")]
    pub expected_version: u32,
}

/// Deletes a topic.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteTopic {
    /// Full name.
    #[prost(message, required, tag = "1")]
    pub name: TopicName,
    /// Only this life.
    #[prost(uint64, optional, tag = "2")]
    pub incarnation: Option<u64>,
    /// Only this version.
    #[prost(uint32, optional, tag = "3")]
    pub expected_version: Option<u32>,
}

/// Creates or replaces a namespace.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PutNamespace {
    /// What it shall be.
    #[prost(message, required, tag = "1")]
    pub namespace: Namespace,
    /// Only this version; 0: only if it does not exist.
    #[prost(uint32, optional, tag = "2")]
    pub expected_version: Option<u32>,
}

/// Deletes a namespace.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteNamespace {
    /// Owner.
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// Name.
    #[prost(string, tag = "2")]
    pub name: String,
}
