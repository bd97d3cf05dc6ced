//! Which parts a subscription has, where it consumes several topics.

/// Asks which parts of a subscription are in a shard.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ListPartsRequest {
    /// [`SubscriptionDescription::id`](super::SubscriptionDescription::id).
    #[prost(uint64, tag = "1")]
    pub subscription: u64,
    /// Of these lives of topics; of a pattern it is the shard that knows them.
    #[prost(uint64, repeated, tag = "2")]
    pub incarnations: Vec<u64>,
    /// It consumes a pattern.
    #[prost(bool, tag = "3")]
    pub is_pattern: bool,
}

/// A part, and the name of its topic.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct FoundPart {
    /// The topic.
    #[prost(string, tag = "1")]
    pub topic: String,
    /// Its life.
    #[prost(uint64, tag = "2")]
    pub incarnation: u64,
    /// The partition.
    #[prost(uint32, tag = "3")]
    pub partition: u32,
}

/// The answer to [`ListPartsRequest`].
#[derive(Clone, PartialEq, prost::Message)]
pub struct FoundParts {
    /// By life and partition.
    #[prost(message, repeated, tag = "1")]
    pub parts: Vec<FoundPart>,
    /// Partitions of topics that match and have no part, because there are [too
    /// many](crate::limits::SUBSCRIPTION_PARTS_MAX).
    #[prost(uint64, tag = "2")]
    pub left_out: u64,
}
