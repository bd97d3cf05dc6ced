//! Placement by hash: which slot a topic belongs to, which partition a key belongs to.

use crate::ids::{PartitionId, Slot, TopicPath, hash128};

/// Number of slots. A versioned table in the meta group maps each to a home shard.
pub const SLOTS: u16 = 16_384;

/// Slot of a topic: first 8 bytes, little-endian, of BLAKE3 over length-prefixed tenant, namespace and topic,
/// modulo [`SLOTS`].
#[must_use]
pub fn slot_of(path: &TopicPath) -> Slot {
    let hash = low64(&[
        path.tenant.as_str().as_bytes(),
        path.namespace.as_str().as_bytes(),
        path.topic.as_str().as_bytes(),
    ]);
    #[expect(clippy::cast_possible_truncation, reason = "a remainder below 2^14")]
    let slot = (hash % u64::from(SLOTS)) as u16;
    Slot(slot)
}

/// Partition of a routing key (message key, else producer id, else idempotency key) among `partitions`.
///
/// # Panics
/// If `partitions` is zero; every topic has at least one.
#[must_use]
pub fn partition_of(routing_key: &[u8], partitions: u32) -> PartitionId {
    assert!(partitions > 0, "a topic has at least one partition");
    #[expect(clippy::cast_possible_truncation, reason = "a remainder of a u32")]
    let partition = (low64(&[routing_key]) % u64::from(partitions)) as u32;
    PartitionId(partition)
}

fn low64(parts: &[&[u8]]) -> u64 {
    #[expect(clippy::cast_possible_truncation, reason = "the low half is what the format names")]
    let low = hash128(parts) as u64;
    low
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Name;

    #[test]
    fn placement_is_pinned_forever() {
        let path = TopicPath {
            tenant: Name::default_name(),
            namespace: Name::default_name(),
            topic: Name::new("orders").unwrap(),
        };
        // Changing either value would send existing topics and keys elsewhere.
        assert_eq!(slot_of(&path), Slot(SLOT_OF_ORDERS));
        assert_eq!(partition_of(b"cust-42", 12), PartitionId(PARTITION_OF_CUST_42));
    }

    const SLOT_OF_ORDERS: u16 = 13_572;
    const PARTITION_OF_CUST_42: u32 = 6;
}
