//! Taking messages away by hand: from one subscription, or from a topic for good.

use super::{PartRef, PartitionRef, Position};

/// Settles everything that a part has not settled, undelivered, and forgets its dead letters. Leases end.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PurgeRequest {
    /// The part.
    #[prost(message, required, tag = "1")]
    pub part: PartRef,
    /// Only forgets dead letters.
    #[prost(bool, tag = "2")]
    pub is_dead_only: bool,
    /// Only say what it would do.
    #[prost(bool, tag = "3")]
    pub is_dry_run: bool,
    /// What stands before is kept under this name, as by a [`super::SeekRequest`], which can go back to it.
    #[prost(fixed64, tag = "4")]
    pub keep_as: u64,
}

/// What a purge does, or would.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PurgeAnswer {
    /// Where the part stands afterwards.
    #[prost(uint64, tag = "1")]
    pub floor: u64,
    /// Records that were not settled, and are.
    #[prost(uint64, tag = "2")]
    pub settled: u64,
    /// Dead letters that are not known any more.
    #[prost(uint64, tag = "3")]
    pub dead: u64,
}

/// Removes a partition's oldest records, for everybody and for good.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TrimRequest {
    /// The partition.
    #[prost(message, required, tag = "1")]
    pub partition: PartitionRef,
    /// The first record that stays. What is gone already is no error.
    #[prost(message, required, tag = "2")]
    pub before: Position,
    /// Only say what it would do.
    #[prost(bool, tag = "3")]
    pub is_dry_run: bool,
}

/// What a trim does, or would.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct TrimAnswer {
    /// The partition's first record afterwards.
    #[prost(uint64, tag = "1")]
    pub start: u64,
    /// Offsets that go.
    #[prost(uint64, tag = "2")]
    pub records: u64,
    /// Bytes of the batches that go. One of which a record stays does not.
    #[prost(uint64, tag = "3")]
    pub bytes: u64,
}
