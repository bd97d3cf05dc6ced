//! The header of a journal file.

use super::{crc32c, u32_at, u64_at, u128_at};
use crate::entry::FileSeq;

/// Bytes of a file header; the first block starts here.
pub const FILE_HEADER_BYTES: u32 = 4096;
/// Newest version of the file format that this build writes and reads.
pub const FILE_VERSION: u32 = 1;

const MAGIC: u64 = u64::from_le_bytes(*b"WEIRWAL\0");
const USED: usize = 72;

/// Header of a journal file.
///
/// | offset | size | meaning |
/// |---|---|---|
/// | 0 | 8 | magic `WEIRWAL\0` |
/// | 8 | 4 | version, 1 |
/// | 12 | 4 | CRC-32C of bytes 0..12 and 16..72 |
/// | 16 | 8 | number of the file |
/// | 24 | 4 | bytes of the file |
/// | 28 | 4 | block alignment, 4096 |
/// | 32 | 16 | journal id: chosen at random when the directory was made |
/// | 48 | 16 | cluster id |
/// | 64 | 8 | node id |
/// | 72 | .. | zero |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FileHeader {
    /// Number of the file.
    pub file: FileSeq,
    /// Bytes of the file.
    pub file_bytes: u32,
    /// Chosen when the directory was made: a file from another directory is not taken for ours.
    pub journal_id: u128,
    /// The cluster.
    pub cluster_id: u128,
    /// The node.
    pub node_id: u64,
}

/// Why bytes are not a file header.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FileHeaderError {
    /// Not a journal file, or damaged.
    #[error("the file header is damaged")]
    Damaged,
    /// Written by a newer version.
    #[error("file format {0}")]
    Newer(u32),
}

impl FileHeader {
    /// The header's bytes, padded.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let mut bytes = vec![0_u8; FILE_HEADER_BYTES as usize];
        bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&FILE_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.file.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.file_bytes.to_le_bytes());
        bytes[28..32].copy_from_slice(&crate::format::BLOCK_ALIGN.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.journal_id.to_le_bytes());
        bytes[48..64].copy_from_slice(&self.cluster_id.to_le_bytes());
        bytes[64..72].copy_from_slice(&self.node_id.to_le_bytes());
        let crc = checksum(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// If it is cut short, damaged, or of a newer format.
    pub fn parse(bytes: &[u8]) -> Result<Self, FileHeaderError> {
        if bytes.len() < USED || u64_at(bytes, 0) != MAGIC || u32_at(bytes, 12) != checksum(bytes) {
            return Err(FileHeaderError::Damaged);
        }
        // The magic, the version and the checksum stay where they are in every version.
        let version = u32_at(bytes, 8);
        if version > FILE_VERSION {
            return Err(FileHeaderError::Newer(version));
        }
        Ok(Self {
            file: FileSeq(u64_at(bytes, 16)),
            file_bytes: u32_at(bytes, 24),
            journal_id: u128_at(bytes, 32),
            cluster_id: u128_at(bytes, 48),
            node_id: u64_at(bytes, 64),
        })
    }
}

fn checksum(bytes: &[u8]) -> u32 {
    let mut covered = [0_u8; USED - 4];
    covered[..12].copy_from_slice(&bytes[..12]);
    covered[12..].copy_from_slice(&bytes[16..USED]);
    crc32c(&covered)
}
