//! Which subscriptions there are.

use super::SubscriptionDescription;

/// Lists subscriptions at home in a shard, by name.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListSubscriptionsRequest {
    /// Owner.
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// Namespace.
    #[prost(string, tag = "2")]
    pub namespace: String,
    /// Only names that contain this.
    #[prost(string, optional, tag = "3")]
    pub contains: Option<String>,
    /// Only names after this.
    #[prost(string, optional, tag = "4")]
    pub after: Option<String>,
    /// At most this many.
    #[prost(uint32, tag = "5")]
    pub limit: u32,
    /// Only those that consume the topic with this name.
    #[prost(string, optional, tag = "6")]
    pub topic: Option<String>,
}

/// The answer to [`ListSubscriptionsRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct SubscriptionList {
    /// In the order of their names.
    #[prost(message, repeated, tag = "1")]
    pub subscriptions: Vec<SubscriptionDescription>,
    /// Names up to this one were looked at, where others are left.
    #[prost(string, optional, tag = "2")]
    pub looked_to: Option<String>,
}
