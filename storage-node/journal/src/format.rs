//! The bytes of the journal's files. Little-endian throughout; a version in each layer.
//!
//! ```text
//! file:   | file header 4 KiB | block | block | ... zeros or bytes of an earlier life |
//! block:  | header 64 B | frame | frame | ... | zeros to the next multiple of 4 KiB |
//! frame:  | header 40 B | payload |
//!
//! sidecar of a finished file:  | header 4 KiB | page 4 KiB | page | ...
//! carried file:  | header 4 KiB | part | part | ... | zeros | page 4 KiB | page | ...
//! ```

mod block;
mod carried;
mod file_header;
mod frame;
mod sidecar;

pub use block::{
    BLOCK_HEADER_BYTES, BLOCK_VERSION, BlockError, BlockHeader, FLAG_FILE_HEAD, FLAG_SESSION_START,
};
pub(crate) use block::{look_like_blocks, session_of};
pub use carried::{
    CARRIED_PAGE_BYTES, CARRIED_PAGE_ROWS, CARRIED_REPLACES_MAX, CARRIED_VERSION, CarriedError,
    CarriedHeader, CarriedPage, CarriedRow,
};
pub use file_header::{FILE_HEADER_BYTES, FILE_VERSION, FileHeader, FileHeaderError};
pub use frame::{FRAME_HEADER_BYTES, Frame, FrameError, FrameHeader, FrameKind, Frames};
pub use sidecar::{PAGE_BYTES, PAGE_ROWS, Page, Place, SIDECAR_VERSION, SidecarHeader};

use crc_fast::{CrcAlgorithm, Digest};

/// Blocks start at multiples of this many bytes: the largest sector a device may write as a whole, so that a
/// torn write never touches bytes that were acknowledged before.
pub const BLOCK_ALIGN: u32 = 4096;

/// CRC-32C of two slices as if they were one.
pub(crate) fn crc32c_pair(first: &[u8], second: &[u8]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    digest.update(first);
    digest.update(second);
    narrow(digest.finalize())
}

/// CRC-32C of a slice.
pub(crate) fn crc32c(bytes: &[u8]) -> u32 {
    narrow(crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes))
}

pub(crate) fn narrow(crc: u64) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a CRC-32 fits 32 bits; the library widens it")]
    let crc = crc as u32;
    crc
}

/// The next multiple of the block alignment.
#[must_use]
pub const fn align_up(pos: u32) -> u32 {
    pos.next_multiple_of(BLOCK_ALIGN)
}

/// Reads fixed-width fields of a header whose length was checked.
pub(crate) fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes(bytes[at..at + 4].try_into().expect("the slice has four bytes"))
}

pub(crate) fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from_le_bytes(bytes[at..at + 8].try_into().expect("the slice has eight bytes"))
}

pub(crate) fn u128_at(bytes: &[u8], at: usize) -> u128 {
    u128::from_le_bytes(bytes[at..at + 16].try_into().expect("the slice has sixteen bytes"))
}
