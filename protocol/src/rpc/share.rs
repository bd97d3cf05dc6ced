//! Sharing the parts of a stream among those who read it.

/// Takes part in reading a stream: says who does, and which parts there are for all it knows. Answered when
/// its share is not what it knows, or when the wait is over.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ShareRequest {
    /// Life of the subscription.
    #[prost(uint64, tag = "1")]
    pub subscription: u64,
    /// Who reads: nobody else of this subscription, 1 to 255 bytes.
    #[prost(string, tag = "2")]
    pub holder: String,
    /// It has what holders with names that begin so had; they are gone.
    #[prost(string, optional, tag = "3")]
    pub takes_over: Option<String>,
    /// What it can read, by life of the topic; at most [`crate::limits::SHARE_PARTS_MAX`] parts.
    #[prost(message, repeated, tag = "4")]
    pub topics: Vec<PartsOf>,
    /// [`ShareAnswer::version`] of the share that it has; 0: none.
    #[prost(uint64, tag = "5")]
    pub version: u64,
    /// How long to wait for another.
    #[prost(uint64, tag = "6")]
    pub wait_ms: u64,
    /// For how long after the answer it counts as one who reads without asking again.
    #[prost(uint64, tag = "7")]
    pub patience_ms: u64,
    /// It reads no more; everything else is of no account.
    #[prost(bool, tag = "8")]
    pub leaves: bool,
}

/// Parts of one life of a topic.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct PartsOf {
    /// The life.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// The partitions.
    #[prost(uint32, repeated, tag = "2")]
    pub partitions: Vec<u32>,
}

/// The answer to [`ShareRequest`].
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct ShareAnswer {
    /// Names this share of this holder; a later one has a higher number.
    #[prost(uint64, tag = "1")]
    pub version: u64,
    /// All that it is to read, by life of the topic and partition.
    #[prost(message, repeated, tag = "2")]
    pub parts: Vec<GivenPart>,
}

/// A part that a holder is to read.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct GivenPart {
    /// Life of the topic.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// The partition.
    #[prost(uint32, tag = "2")]
    pub partition: u32,
    /// Grows with every giving, of any part of the subscription: whoever reads the part under a lower one has to yield.
    #[prost(uint64, tag = "3")]
    pub lot: u64,
}
