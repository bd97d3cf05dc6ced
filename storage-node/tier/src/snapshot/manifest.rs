//! What a manifest says.

use weir_protocol::ids::{LogIndex, ShardId, Term};

/// One moment of a cluster: the snapshots of all its shards, which fit together.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Manifest {
    /// Its number, as in its name.
    #[prost(uint64, tag = "1")]
    pub number: u64,
    /// How often the cluster was restored before: raised by every restore, so that who ran before it knows.
    #[prost(uint64, tag = "2")]
    pub epoch: u64,
    /// When it was written, by its writer's clock, in milliseconds since the epoch.
    #[prost(uint64, tag = "3")]
    pub written_ms: u64,
    /// Data shards of the cluster.
    #[prost(uint32, tag = "4")]
    pub data_shards: u32,
    /// Producers, and as many idempotency keys, that a shard remembers.
    #[prost(uint32, tag = "5")]
    pub dedupe_rows: u32,
    /// Who wrote it: another start of a node, or a restore, is another.
    #[prost(message, required, tag = "6")]
    pub writer: StoredId,
    /// One per shard, the meta group included, by number.
    #[prost(message, repeated, tag = "7")]
    pub shards: Vec<ShardSnapshot>,
}

/// 128 bits.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct StoredId {
    /// The upper half.
    #[prost(fixed64, tag = "1")]
    pub high: u64,
    /// The lower half.
    #[prost(fixed64, tag = "2")]
    pub low: u64,
}

impl From<u128> for StoredId {
    fn from(id: u128) -> Self {
        let half = |bits: u128| u64::try_from(bits & u128::from(u64::MAX)).expect("masked");
        Self { high: half(id >> 64), low: half(id) }
    }
}

impl From<StoredId> for u128 {
    fn from(id: StoredId) -> Self {
        Self::from(id.high) << 64 | Self::from(id.low)
    }
}

/// A snapshot of one shard.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct ShardSnapshot {
    /// The shard.
    #[prost(uint32, tag = "1")]
    pub shard: u32,
    /// Term of the leader that made it.
    #[prost(uint64, tag = "2")]
    pub term: u64,
    /// The last entry that is part of it.
    #[prost(uint64, tag = "3")]
    pub index: u64,
    /// The rest of its name.
    #[prost(message, required, tag = "4")]
    pub attempt: StoredId,
    /// Bytes of the object.
    #[prost(uint64, tag = "5")]
    pub bytes: u64,
    /// CRC-32C of all of them.
    #[prost(fixed32, tag = "6")]
    pub crc32c: u32,
    /// The manifest's epoch when it was made: a restore that nothing followed names snapshots of the epoch before.
    #[prost(uint64, tag = "7")]
    pub epoch: u64,
}

impl ShardSnapshot {
    /// The shard.
    #[must_use]
    pub fn shard(&self) -> ShardId {
        ShardId(self.shard)
    }

    /// Where in the shard's log it stands.
    #[must_use]
    pub fn at(&self) -> (Term, LogIndex) {
        (Term(self.term), LogIndex(self.index))
    }
}

#[cfg(feature = "store")]
impl Manifest {
    /// Why it cannot be: its shards are not those that it says there are.
    pub(super) fn contradiction(&self) -> Option<String> {
        let shards: Vec<u32> = self.shards.iter().map(|of| of.shard).collect();
        let expected: Vec<u32> = (0..=self.data_shards).collect();
        (shards != expected).then(|| format!("it names the shards {shards:?} of 0 to {}", self.data_shards))
    }
}

#[cfg(test)]
mod tests {
    use prost::Message as _;

    use super::*;

    /// What restores of later builds have to read.
    const GOLDEN: &str = "0801100218032004280532120906000000000000001107000000000000003a230808\
                          1009180a2212090b00000000000000110c00000000000000280d350e000000380f";

    #[test]
    fn fields_keep_their_numbers() {
        let shard = ShardSnapshot {
            shard: 8,
            term: 9,
            index: 10,
            attempt: StoredId { high: 11, low: 12 },
            bytes: 13,
            crc32c: 14,
            epoch: 15,
        };
        let manifest = Manifest {
            number: 1,
            epoch: 2,
            written_ms: 3,
            data_shards: 4,
            dedupe_rows: 5,
            writer: StoredId { high: 6, low: 7 },
            shards: vec![shard],
        };
        let bytes = manifest.encode_to_vec();
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
        assert_eq!(Manifest::decode(&*bytes), Ok(manifest));
    }
}
