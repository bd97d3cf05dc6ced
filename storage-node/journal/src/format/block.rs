//! The header of a block: one group commit.

use crc_fast::{CrcAlgorithm, Digest};

use super::{BLOCK_ALIGN, FRAME_HEADER_BYTES, crc32c, crc32c_pair, frame, narrow, u32_at, u64_at};
use crate::entry::{FileSeq, Lsn};

/// Bytes of a block header.
pub const BLOCK_HEADER_BYTES: usize = 64;
/// First block of a journal's life between two opens. Its sequence number may jump forward.
pub const FLAG_SESSION_START: u8 = 1;
/// First block of a file: begins with the newest vote, purge, commit and meta of every stream.
pub const FLAG_FILE_HEAD: u8 = 2;

const MAGIC: u32 = u32::from_le_bytes(*b"WJB1");
/// Version of the blocks that are written, and the newest that is read.
pub const BLOCK_VERSION: u8 = 2;
/// The version whose checksum is over all bytes of the frames. Read, and no longer written.
const FIRST_VERSION: u8 = 1;
const CRC_AT: usize = 12;
const FILE_AT: usize = 24;
const FILE_END: usize = FILE_AT + 8;
const GUARD_AT: usize = 52;

/// Header of a block.
///
/// | offset | size | meaning |
/// |---|---|---|
/// | 0 | 4 | magic `WJB1` |
/// | 4 | 1 | version, 2 |
/// | 5 | 1 | flags: 1 session start, 2 file head |
/// | 6 | 2 | frames |
/// | 8 | 4 | bytes of all frames, padding not included |
/// | 12 | 4 | CRC-32C of bytes 0..12, 16..64 and the headers of the frames, which have those of the payloads; in version 1 of bytes 0..12, 16..64 and the frames |
/// | 16 | 8 | block sequence: session << 32 \| count; never repeats in a journal |
/// | 24 | 8 | number of the file: a recycled file's old blocks have another |
/// | 32 | 8 | durable LSN: everything below was durable when this block was made |
/// | 40 | 8 | time, milliseconds since 1970 |
/// | 48 | 4 | file head: where the blocks of the file before end; else 0 |
/// | 52 | 4 | guard, where a page of it but the first begins like a block: CRC-32C of bytes 0..12 and 16..52; else 0 |
/// | 56 | 8 | zero |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockHeader {
    /// [`FLAG_SESSION_START`] and [`FLAG_FILE_HEAD`].
    pub flags: u8,
    /// Frames in the block.
    pub frames: u16,
    /// Bytes of all frames.
    pub body_len: u32,
    /// Session and count; never repeats.
    pub block_seq: u64,
    /// The file it was written into.
    pub file: FileSeq,
    /// Everything below was durable when this block was made.
    pub durable: Lsn,
    /// Milliseconds since 1970.
    pub ts_ms: u64,
    /// Where the blocks of the previous file end (file heads only).
    pub prev_end: u32,
    /// It says by itself how long the block is: messages in it look like blocks.
    pub is_guarded: bool,
}

/// Why bytes are not a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BlockError {
    /// No block starts here.
    #[error("no block starts here")]
    NoMagic,
    /// A whole block of another format version.
    #[error("block version {0}")]
    Version(u8),
    /// A block of another life of the file.
    #[error("a block of file {0}")]
    OtherFile(FileSeq),
    /// The lengths do not fit.
    #[error("block is longer than the file or than allowed")]
    Length,
    /// The bytes changed.
    #[error("block checksum does not match")]
    Checksum,
}

impl BlockHeader {
    /// Whether `later` may follow a block with the sequence number `self_seq`.
    #[must_use]
    pub fn follows(&self, previous_seq: u64) -> bool {
        self.block_seq == previous_seq + 1
            || (self.flags & FLAG_SESSION_START != 0 && self.block_seq > previous_seq)
    }

    /// The session part of the sequence number.
    #[must_use]
    pub fn session(&self) -> u32 {
        session_of(self.block_seq)
    }

    /// Header and frames, without padding.
    #[must_use]
    pub fn len(&self) -> usize {
        BLOCK_HEADER_BYTES + self.body_len as usize
    }

    /// Never: a block has at least its header.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        false
    }

    /// The header's bytes for a block whose frames have the headers in `heads`, one behind the other.
    #[must_use]
    pub fn encode(&self, heads: &[u8]) -> [u8; BLOCK_HEADER_BYTES] {
        let mut header = [0; BLOCK_HEADER_BYTES];
        header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
        header[4] = BLOCK_VERSION;
        header[5] = self.flags;
        header[6..8].copy_from_slice(&self.frames.to_le_bytes());
        header[8..12].copy_from_slice(&self.body_len.to_le_bytes());
        header[16..24].copy_from_slice(&self.block_seq.to_le_bytes());
        header[24..32].copy_from_slice(&self.file.0.to_le_bytes());
        header[32..40].copy_from_slice(&self.durable.0.to_le_bytes());
        header[40..48].copy_from_slice(&self.ts_ms.to_le_bytes());
        header[48..52].copy_from_slice(&self.prev_end.to_le_bytes());
        if self.is_guarded {
            let guard = guard_of(&header);
            header[GUARD_AT..GUARD_AT + 4].copy_from_slice(&guard.to_le_bytes());
        }
        let mut digest = begun(&header);
        digest.update(heads);
        header[CRC_AT..CRC_AT + 4].copy_from_slice(&narrow(digest.finalize()).to_le_bytes());
        header
    }

    /// Reads a header without its checksum, which is of the frames too, and its version, which counts only in a whole
    /// block: see [`BlockHeader::verify`].
    ///
    /// # Errors
    /// If no block of `file` starts here, or its length is more than `len_max`.
    ///
    /// # Panics
    /// If `bytes` is shorter than a header.
    pub fn parse(bytes: &[u8], file: FileSeq, len_max: usize) -> Result<Self, BlockError> {
        if u32_at(bytes, 0) != MAGIC {
            return Err(BlockError::NoMagic);
        }
        let header = Self {
            flags: bytes[5],
            frames: u16::from_le_bytes([bytes[6], bytes[7]]),
            body_len: u32_at(bytes, 8),
            block_seq: u64_at(bytes, 16),
            file: FileSeq(u64_at(bytes, FILE_AT)),
            durable: Lsn(u64_at(bytes, 32)),
            ts_ms: u64_at(bytes, 40),
            prev_end: u32_at(bytes, 48),
            is_guarded: u32_at(bytes, GUARD_AT) != 0 && u32_at(bytes, GUARD_AT) == guard_of(bytes),
        };
        if header.file != file {
            return Err(BlockError::OtherFile(header.file));
        }
        if header.len() > len_max {
            return Err(BlockError::Length);
        }
        Ok(header)
    }

    /// Checks the whole block, header and frames.
    ///
    /// # Errors
    /// [`BlockError::Checksum`]; [`BlockError::Version`] if it is of a version that this build does not know,
    /// and whole by what makes one whole in either that it does: magic, version, length, checksum and file
    /// number have their places in all.
    ///
    /// # Panics
    /// If `block` is shorter than a header.
    pub fn verify(block: &[u8]) -> Result<(), BlockError> {
        let first = || crc32c_pair(&block[..CRC_AT], &block[CRC_AT + 4..]) == u32_at(block, CRC_AT);
        let (is_whole, is_known) = match block[4] {
            BLOCK_VERSION => (holds(block), true),
            FIRST_VERSION => (first(), true),
            _ => (holds(block) || first(), false),
        };
        match (is_whole, is_known) {
            (false, _) => Err(BlockError::Checksum),
            (true, true) => Ok(()),
            (true, false) => Err(BlockError::Version(block[4])),
        }
    }
}

/// The checksum of a block's header without its own two.
fn guard_of(header: &[u8]) -> u32 {
    crc32c_pair(&header[..CRC_AT], &header[CRC_AT + 4..GUARD_AT])
}

/// The checksum of a block before the headers of its frames.
fn begun(header: &[u8]) -> Digest {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(&header[..CRC_AT]);
    digest.update(&header[CRC_AT + 4..BLOCK_HEADER_BYTES]);
    digest
}

/// Whether the block's checksum is that of its header and of the headers of its frames, and theirs those of
/// their payloads. Each byte is looked at once.
fn holds(block: &[u8]) -> bool {
    let mut digest = begun(block);
    let mut rest = &block[BLOCK_HEADER_BYTES..];
    while !rest.is_empty() {
        let Some((header, behind)) = rest.split_at_checked(FRAME_HEADER_BYTES) else { return false };
        let (len, payload_crc) = frame::len_and_checksum(header);
        let Some((payload, next)) = behind.split_at_checked(len) else { return false };
        if crc32c(payload) != payload_crc {
            return false;
        }
        digest.update(header);
        rest = next;
    }
    narrow(digest.finalize()) == u32_at(block, CRC_AT)
}

/// Whether one of some pages of a block, which are not its first, begins like a block of `file` or a later
/// one. Nobody but a message says so, and under that number it would be one.
pub(crate) fn look_like_blocks(pages: &[u8], file: FileSeq) -> bool {
    pages.chunks(BLOCK_ALIGN as usize).any(|page| {
        // Behind a block lie zeros.
        let (mut begins, len) = ([0; FILE_END], page.len().min(FILE_END));
        begins[..len].copy_from_slice(&page[..len]);
        u32_at(&begins, 0) == MAGIC && u64_at(&begins, FILE_AT) >= file.0
    })
}

/// The session part of a block sequence number.
pub(crate) fn session_of(block_seq: u64) -> u32 {
    (block_seq >> 32) as u32
}
