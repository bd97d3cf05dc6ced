//! Idempotency keys of a checkpoint.

use prost::Message;
use weir_protocol::ids::{Offset, TimestampMs};
use weir_protocol::rpc::U128;

use super::dedupe::{PartitionKey, Placement, UsedKey};
use super::snapshot::StoredPartitionKey;

#[derive(Clone, PartialEq, Message)]
pub(super) struct StoredKey {
    #[prost(message, required, tag = "1")]
    pub(super) at: StoredPartitionKey,
    #[prost(message, required, tag = "2")]
    pub(super) key: U128,
    #[prost(message, required, tag = "3")]
    pub(super) fingerprint: U128,
    #[prost(uint64, tag = "4")]
    pub(super) base_offset: u64,
    #[prost(uint32, tag = "5")]
    pub(super) count: u32,
    #[prost(uint64, tag = "6")]
    pub(super) ts: u64,
    #[prost(uint64, tag = "7")]
    pub(super) until: u64,
}

pub(super) fn stored_key((at, key): (PartitionKey, u128), used: &UsedKey) -> StoredKey {
    StoredKey {
        at: at.into(),
        key: key.into(),
        fingerprint: used.fingerprint.into(),
        base_offset: used.placement.base_offset.0,
        count: used.placement.count,
        ts: used.placement.ts.0,
        until: used.until.0,
    }
}

pub(super) fn used_key(stored: &StoredKey) -> ((PartitionKey, u128), UsedKey) {
    let placement = Placement {
        base_offset: Offset(stored.base_offset),
        count: stored.count,
        ts: TimestampMs(stored.ts),
    };
    let used =
        UsedKey { fingerprint: stored.fingerprint.into(), placement, until: TimestampMs(stored.until) };
    ((stored.at.into(), stored.key.into()), used)
}
