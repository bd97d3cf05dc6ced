//! Subscriptions that begin as another one stands, or stood.

/// The subscription that another began as, and when.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ForkOrigin {
    /// Its name then.
    #[prost(string, tag = "1")]
    pub subscription: String,
    /// The life that is meant: [`super::SubscriptionDescription::id`].
    #[prost(uint64, tag = "2")]
    pub id: u64,
    /// Each part as it stood before the seek of this name; 0: as `at_ms` says, or as it stands where it is forked.
    #[prost(uint64, tag = "3")]
    pub snapshot: u64,
    /// Each part as it stood then, milliseconds since the epoch, as far as that is kept; not with `snapshot`.
    #[prost(uint64, optional, tag = "4")]
    pub at_ms: Option<u64>,
}
