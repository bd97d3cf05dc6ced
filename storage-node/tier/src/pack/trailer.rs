//! Both ends of a pack.

use weir_protocol::checksum::crc32c;
use weir_protocol::ids::{ClusterId, ShardId, Term};

use super::error::PackError;
use super::footer::{BLOCK_ROW_BYTES, FOOTER_BYTES_MAX, PARTITION_ROW_BYTES};
use super::{u32_at, u64_at};

/// Bytes of a pack's header.
pub const HEADER_BYTES: usize = 16;
/// Bytes of a pack's trailer.
pub const TRAILER_BYTES: usize = 72;
const MAGIC: [u8; 8] = *b"WEIRPACK";
const VERSION: u16 = 1;

/// Whose pack it is. A pack of another cluster or shard is never read, whatever its name.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackIdentity {
    /// Cluster.
    pub cluster: ClusterId,
    /// The shard whose log its batches were in.
    pub shard: ShardId,
    /// Term of the leader that made it.
    pub term: Term,
}

/// The last bytes of a pack.
///
/// | offset | size | meaning (little-endian) |
/// |-------:|-----:|-------------------------|
/// | 0      | 16   | cluster |
/// | 16     | 4    | shard |
/// | 20     | 2    | version, 1 |
/// | 22     | 2    | zero |
/// | 24     | 8    | term of the leader that made it |
/// | 32     | 8    | position of the footer |
/// | 40     | 4    | partitions: rows of [`PARTITION_ROW_BYTES`] at the footer's beginning |
/// | 44     | 4    | blocks: rows of [`BLOCK_ROW_BYTES`] after them |
/// | 48     | 8    | bytes of the whole pack |
/// | 56     | 4    | CRC-32C of the footer |
/// | 60     | 4    | CRC-32C of bytes 0 to 60 |
/// | 64     | 8    | `WEIRPACK` |
///
/// The header, at the pack's beginning: `WEIRPACK` (8), version (2), zero (6).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Trailer {
    /// Whose pack it is.
    pub identity: PackIdentity,
    /// Where the footer begins.
    pub footer_pos: u64,
    /// Partitions in it.
    pub partitions: u32,
    /// Blocks in it.
    pub blocks: u32,
    /// Bytes of the whole pack.
    pub pack_bytes: u64,
    /// Checksum of the footer.
    pub footer_crc: u32,
}

impl Trailer {
    /// The first bytes of every pack.
    #[must_use]
    pub fn header() -> [u8; HEADER_BYTES] {
        let mut bytes = [0; HEADER_BYTES];
        bytes[..8].copy_from_slice(&MAGIC);
        bytes[8..10].copy_from_slice(&VERSION.to_le_bytes());
        bytes
    }

    /// Checks the first bytes of a pack.
    ///
    /// # Errors
    /// [`PackError::Truncated`], [`PackError::Foreign`], [`PackError::Version`].
    pub fn check_header(bytes: &[u8]) -> Result<(), PackError> {
        if bytes.len() < HEADER_BYTES {
            return Err(PackError::Truncated { have: bytes.len() as u64, want: HEADER_BYTES as u64 });
        }
        if bytes[..8] != MAGIC {
            return Err(PackError::Foreign("beginning"));
        }
        match u16::from_le_bytes([bytes[8], bytes[9]]) {
            VERSION if bytes[10..HEADER_BYTES] == [0; 6] => Ok(()),
            VERSION => Err(PackError::Unknown("flag")),
            other => Err(PackError::Version(other)),
        }
    }

    /// Its bytes.
    #[must_use]
    pub fn encode(&self) -> [u8; TRAILER_BYTES] {
        let mut bytes = [0; TRAILER_BYTES];
        bytes[0..16].copy_from_slice(&self.identity.cluster.0.to_le_bytes());
        bytes[16..20].copy_from_slice(&self.identity.shard.0.to_le_bytes());
        bytes[20..22].copy_from_slice(&VERSION.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.identity.term.0.to_le_bytes());
        bytes[32..40].copy_from_slice(&self.footer_pos.to_le_bytes());
        bytes[40..44].copy_from_slice(&self.partitions.to_le_bytes());
        bytes[44..48].copy_from_slice(&self.blocks.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.pack_bytes.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.footer_crc.to_le_bytes());
        let crc = crc32c(&bytes[..60]);
        bytes[60..64].copy_from_slice(&crc.to_le_bytes());
        bytes[64..].copy_from_slice(&MAGIC);
        bytes
    }

    /// Reads the trailer at the end of `tail`, the last bytes of a pack of `pack_bytes` bytes.
    ///
    /// # Errors
    /// [`PackError`]: the object is no pack, not all of it, or damaged.
    pub fn decode(tail: &[u8], pack_bytes: u64) -> Result<Self, PackError> {
        let smallest = (HEADER_BYTES + TRAILER_BYTES) as u64;
        let Some(bytes) = tail.last_chunk::<TRAILER_BYTES>().filter(|_| pack_bytes >= smallest) else {
            return Err(PackError::Truncated { have: pack_bytes.min(tail.len() as u64), want: smallest });
        };
        if bytes[64..] != MAGIC {
            return Err(PackError::Foreign("end"));
        }
        let (stored, computed) = (u32_at(bytes, 60), crc32c(&bytes[..60]));
        if stored != computed {
            return Err(PackError::Checksum { what: "trailer", stored, computed });
        }
        match u16::from_le_bytes([bytes[20], bytes[21]]) {
            VERSION if bytes[22..24] == [0; 2] => {}
            VERSION => return Err(PackError::Unknown("flag")),
            other => return Err(PackError::Version(other)),
        }
        let mut cluster = [0; 16];
        cluster.copy_from_slice(&bytes[..16]);
        let trailer = Self {
            identity: PackIdentity {
                cluster: ClusterId(u128::from_le_bytes(cluster)),
                shard: ShardId(u32_at(bytes, 16)),
                term: Term(u64_at(bytes, 24)),
            },
            footer_pos: u64_at(bytes, 32),
            partitions: u32_at(bytes, 40),
            blocks: u32_at(bytes, 44),
            pack_bytes: u64_at(bytes, 48),
            footer_crc: u32_at(bytes, 56),
        };
        trailer.check(pack_bytes)?;
        Ok(trailer)
    }

    /// Bytes of footer and trailer together: what a reader fetches from the pack's end.
    #[must_use]
    pub fn tail_bytes(&self) -> u64 {
        self.footer_bytes() + TRAILER_BYTES as u64
    }

    /// Bytes of the footer.
    #[must_use]
    pub fn footer_bytes(&self) -> u64 {
        u64::from(self.partitions) * PARTITION_ROW_BYTES as u64
            + u64::from(self.blocks) * BLOCK_ROW_BYTES as u64
    }

    fn check(&self, pack_bytes: u64) -> Result<(), PackError> {
        if self.pack_bytes != pack_bytes {
            return Err(PackError::Truncated { have: pack_bytes, want: self.pack_bytes });
        }
        if self.footer_bytes() > FOOTER_BYTES_MAX {
            return Err(PackError::Contradiction("its footer is larger than any"));
        }
        let end = self.footer_pos.checked_add(self.tail_bytes());
        if end != Some(pack_bytes) || self.footer_pos < HEADER_BYTES as u64 {
            return Err(PackError::Contradiction("its parts do not add up to its length"));
        }
        Ok(())
    }
}
