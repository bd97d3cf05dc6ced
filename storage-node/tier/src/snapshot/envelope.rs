//! Header and checksums of snapshots and manifests.

use bytes::Bytes;
use weir_protocol::checksum::crc32c;
use weir_protocol::ids::{ClusterId, ShardId};

use crate::{u32_at, u64_at};

/// Bytes before the content.
pub const ENVELOPE_BYTES: usize = 48;
const VERSION: u16 = 1;
const RAW: u16 = 0;
const ZSTD: u16 = 1;
const LEVEL: i32 = 1;
/// Stands where a snapshot has its shard.
const NO_SHARD: u32 = u32::MAX;

/// What is in an object.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// The state of this shard.
    Snapshot(ShardId),
    /// A manifest.
    Manifest,
}

/// Why bytes are not what they should be. They are refused whole.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum EnvelopeError {
    /// Fewer bytes than there should be.
    #[error("it is cut short: {have} of {want} bytes")]
    Truncated {
        /// Bytes there are.
        have: u64,
        /// Bytes there should be.
        want: u64,
    },
    /// It does not begin as such objects do.
    #[error("it is no {0} of Weir's")]
    NotOurs(&'static str),
    /// Written by a newer build.
    #[error(
        "it has version {0}, which this build does not know; use the build that wrote it, or a newer one"
    )]
    Version(u16),
    /// It belongs to another cluster.
    #[error("it belongs to cluster {0}")]
    Cluster(ClusterId),
    /// It belongs to another shard.
    #[error("it belongs to shard {0}")]
    Shard(ShardId),
    /// A checksum does not match.
    #[error("checksum of its {what} is {computed:#010x}, it says {stored:#010x}")]
    Checksum {
        /// Which part.
        what: &'static str,
        /// What it says.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// What is in it contradicts itself, or cannot be read.
    #[error("{0}")]
    Content(String),
}

impl Kind {
    fn magic(self) -> &'static [u8; 8] {
        match self {
            Self::Snapshot(_) => b"WEIRSNAP",
            Self::Manifest => b"WEIRMANI",
        }
    }

    fn shard(self) -> u32 {
        match self {
            Self::Snapshot(shard) => shard.0,
            Self::Manifest => NO_SHARD,
        }
    }

    fn as_str(self) -> &'static str {
        match self {
            Self::Snapshot(_) => "snapshot",
            Self::Manifest => "manifest",
        }
    }
}

/// An object of `cluster` with this content, compressed where that saves something.
///
/// | offset | size | meaning (little-endian) |
/// |-------:|-----:|-------------------------|
/// | 0      | 8    | `WEIRSNAP` or `WEIRMANI` |
/// | 8      | 2    | version, 1 |
/// | 10     | 2    | 0: content as it is, 1: zstd |
/// | 12     | 4    | shard; all bits set in a manifest |
/// | 16     | 16   | cluster |
/// | 32     | 8    | bytes of the content, decompressed |
/// | 40     | 4    | CRC-32C of what follows the header |
/// | 44     | 4    | CRC-32C of bytes 0 to 44 |
#[must_use]
pub fn wrap(kind: Kind, cluster: ClusterId, content: &[u8]) -> Bytes {
    let packed = zstd::bulk::compress(content, LEVEL).ok().filter(|packed| packed.len() < content.len());
    let (codec, body) = match &packed {
        Some(packed) => (ZSTD, packed.as_slice()),
        None => (RAW, content),
    };
    let mut bytes = Vec::with_capacity(ENVELOPE_BYTES + body.len());
    bytes.extend_from_slice(kind.magic());
    bytes.extend_from_slice(&VERSION.to_le_bytes());
    bytes.extend_from_slice(&codec.to_le_bytes());
    bytes.extend_from_slice(&kind.shard().to_le_bytes());
    bytes.extend_from_slice(&cluster.0.to_le_bytes());
    bytes.extend_from_slice(&(content.len() as u64).to_le_bytes());
    bytes.extend_from_slice(&crc32c(body).to_le_bytes());
    bytes.extend_from_slice(&crc32c(&bytes).to_le_bytes());
    bytes.extend_from_slice(body);
    bytes.into()
}

/// The content of an object of [`wrap`].
///
/// # Errors
/// [`EnvelopeError`].
pub fn open(kind: Kind, cluster: ClusterId, bytes: &Bytes) -> Result<Bytes, EnvelopeError> {
    let have = bytes.len() as u64;
    let head =
        bytes.get(..ENVELOPE_BYTES).ok_or(EnvelopeError::Truncated { have, want: ENVELOPE_BYTES as u64 })?;
    if head[..8] != kind.magic()[..] {
        return Err(EnvelopeError::NotOurs(kind.as_str()));
    }
    check("header", u32_at(head, 44), crc32c(&head[..44]))?;
    let version = u16::from_le_bytes([head[8], head[9]]);
    if version != VERSION {
        return Err(EnvelopeError::Version(version));
    }
    let of = ClusterId(u128::from(u64_at(head, 16)) | u128::from(u64_at(head, 24)) << 64);
    if of != cluster {
        return Err(EnvelopeError::Cluster(of));
    }
    if u32_at(head, 12) != kind.shard() {
        return Err(EnvelopeError::Shard(ShardId(u32_at(head, 12))));
    }
    let body = bytes.slice(ENVELOPE_BYTES..);
    check("content", u32_at(head, 40), crc32c(&body))?;
    let want = u64_at(head, 32);
    let content = match u16::from_le_bytes([head[10], head[11]]) {
        RAW => body,
        ZSTD => {
            let unreadable = |error: &dyn std::fmt::Display| EnvelopeError::Content(error.to_string());
            // Checked above: nobody but this build's writer says how long it is.
            let capacity = usize::try_from(want).map_err(|error| unreadable(&error))?;
            zstd::bulk::decompress(&body, capacity).map_err(|error| unreadable(&error))?.into()
        }
        other => {
            return Err(EnvelopeError::Content(format!(
                "compressed in a way unknown to this build, {other}"
            )));
        }
    };
    let have = content.len() as u64;
    if have == want { Ok(content) } else { Err(EnvelopeError::Truncated { have, want }) }
}

fn check(what: &'static str, stored: u32, computed: u32) -> Result<(), EnvelopeError> {
    if stored == computed { Ok(()) } else { Err(EnvelopeError::Checksum { what, stored, computed }) }
}

#[cfg(test)]
mod tests {
    use super::*;

    const KIND: Kind = Kind::Snapshot(ShardId(3));
    const CLUSTER: ClusterId = ClusterId(u128::MAX / 7);

    #[test]
    fn what_is_wrapped_comes_back_and_any_flipped_bit_is_refused() {
        for content in [Vec::new(), b"short".to_vec(), vec![7; 10_000]] {
            let bytes = wrap(KIND, CLUSTER, &content);
            assert_eq!(open(KIND, CLUSTER, &bytes).unwrap(), content);
            assert!(bytes.len() < 200, "it is compressed where that helps");
            for bit in 0..bytes.len() * 8 {
                let mut damaged = bytes.to_vec();
                damaged[bit / 8] ^= 1 << (bit % 8);
                assert!(open(KIND, CLUSTER, &damaged.into()).is_err(), "bit {bit}");
            }
            for cut in 0..bytes.len() {
                assert!(open(KIND, CLUSTER, &bytes.slice(..cut)).is_err(), "cut at {cut}");
            }
        }
    }

    #[test]
    fn another_clusters_and_another_shards_are_named() {
        let bytes = wrap(KIND, CLUSTER, b"x");
        assert_eq!(open(KIND, ClusterId(1), &bytes), Err(EnvelopeError::Cluster(CLUSTER)));
        assert_eq!(open(Kind::Snapshot(ShardId(4)), CLUSTER, &bytes), Err(EnvelopeError::Shard(ShardId(3))));
        assert_eq!(open(Kind::Manifest, CLUSTER, &bytes), Err(EnvelopeError::NotOurs("manifest")));
    }

    #[test]
    fn the_bytes_are_what_earlier_builds_wrote() {
        let bytes = wrap(Kind::Manifest, ClusterId(0x0102_0304), b"content");
        let hex: String = bytes.iter().map(|byte| format!("{byte:02x}")).collect();
        assert_eq!(hex, GOLDEN);
    }

    const GOLDEN: &str = "574549524d414e4901000000ffffffff0403020100000000000000000000000007000000000000003375af61a3b6e565636f6e74656e74";
}
