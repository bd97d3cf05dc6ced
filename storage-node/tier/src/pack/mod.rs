//! The pack: one immutable object with committed record batches of many partitions, sorted by partition and offset.
//!
//! ```text
//!   ┌ header ┬ block ┬ block ┬ … ┬ footer: partitions, then blocks ┬ trailer ┐
//!   block    batches of one partition that follow each other, compressed together, with their checksum
//!   footer   which partitions the pack holds, and for every block where it lies, its first offset and its times
//!   trailer  whose pack it is, where the footer lies, its checksum
//! ```
//!
//! A reader that knows a pack's length fetches the end of it (the trailer and, most often, the whole footer) and then
//! one block for any offset or time. Nothing here does I/O: the writer gives out bytes, the readers take them.

mod block;
mod compressing;
mod error;
mod footer;
mod pieces;
mod trailer;
mod writer;

#[cfg(test)]
mod tests;

pub use block::{BLOCK_HEADER_BYTES, BLOCK_RAW_BYTES_MAX, BLOCK_RAW_BYTES_TARGET, BlockCodec};
pub use block::{batches, read_block};
pub use error::PackError;
pub use footer::{BLOCK_ROW_BYTES, BlockRow, FOOTER_BYTES_MAX, Footer, PARTITION_ROW_BYTES, PartitionRow};
pub use pieces::PieceMemory;
pub use trailer::{HEADER_BYTES, PackIdentity, TRAILER_BYTES, Trailer};
pub use writer::{PackSummary, PackWriter, PushError};

use crate::{u32_at, u64_at};

/// A partition as packs know it: of one life of a topic.
pub type PackedPartition = (weir_protocol::ids::Incarnation, weir_protocol::ids::PartitionId);
