//! The footer: which partitions a pack holds, and where every block lies.

use std::ops::Range;

use weir_protocol::checksum::crc32c;
use weir_protocol::ids::{Incarnation, Offset, PartitionId, TimestampMs};

use super::block::{BLOCK_HEADER_BYTES, BLOCK_RAW_BYTES_MAX};
use super::error::PackError;
use super::trailer::{HEADER_BYTES, TRAILER_BYTES, Trailer};
use super::{PackedPartition, u32_at, u64_at};

/// Bytes of a partition's row.
pub const PARTITION_ROW_BYTES: usize = 64;
/// Bytes of a block's row.
pub const BLOCK_ROW_BYTES: usize = 40;
/// Largest footer: what a reader may have to hold. The writer begins a new pack before it.
pub const FOOTER_BYTES_MAX: u64 = 16 << 20;

/// A partition in a pack.
///
/// | offset | size | meaning (little-endian) |
/// |-------:|-----:|-------------------------|
/// | 0      | 8    | incarnation |
/// | 8      | 4    | partition |
/// | 12     | 4    | its first block |
/// | 16     | 4    | its blocks |
/// | 20     | 4    | zero |
/// | 24     | 8    | offset of the first record |
/// | 32     | 8    | one past the last |
/// | 40     | 8    | time of the first batch |
/// | 48     | 8    | of the last |
/// | 56     | 8    | bytes of its batches, as a log holds them |
///
/// Rows are sorted by incarnation and partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionRow {
    /// Which.
    pub partition: PackedPartition,
    /// Place of its first block.
    pub first_block: u32,
    /// Number of its blocks.
    pub blocks: u32,
    /// Offset of the first record.
    pub start: Offset,
    /// One past the last.
    pub end: Offset,
    /// Time of the first batch.
    pub first_ts: TimestampMs,
    /// Time of the last.
    pub last_ts: TimestampMs,
    /// Bytes of its batches.
    pub bytes: u64,
}

/// A block in a pack.
///
/// | offset | size | meaning (little-endian) |
/// |-------:|-----:|-------------------------|
/// | 0      | 8    | position in the pack |
/// | 8      | 8    | offset of the first record |
/// | 16     | 8    | time of the first batch |
/// | 24     | 8    | of the last |
/// | 32     | 4    | bytes it takes, its header included |
/// | 36     | 4    | bytes of its batches, uncompressed |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BlockRow {
    /// Position in the pack.
    pub pos: u64,
    /// Offset of the first record.
    pub first: Offset,
    /// Time of the first batch.
    pub first_ts: TimestampMs,
    /// Time of the last.
    pub last_ts: TimestampMs,
    /// Bytes it takes.
    pub stored_bytes: u32,
    /// Bytes of its batches.
    pub raw_bytes: u32,
}

impl BlockRow {
    /// Where to fetch it.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.pos..self.pos + u64::from(self.stored_bytes)
    }
}

/// What a pack holds. Read once, then kept: a few hundred bytes for a pack of 64 MiB and one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Footer {
    partitions: Vec<PartitionRow>,
    blocks: Vec<BlockRow>,
}

impl Footer {
    /// A footer of rows that were written in order.
    pub(super) fn new(partitions: Vec<PartitionRow>, blocks: Vec<BlockRow>) -> Self {
        Self { partitions, blocks }
    }

    /// Its bytes.
    pub(super) fn encode(&self) -> Vec<u8> {
        let mut bytes = Vec::with_capacity(
            self.partitions.len() * PARTITION_ROW_BYTES + self.blocks.len() * BLOCK_ROW_BYTES,
        );
        for row in &self.partitions {
            bytes.extend(row.partition.0.0.to_le_bytes());
            bytes.extend(row.partition.1.0.to_le_bytes());
            bytes.extend(row.first_block.to_le_bytes());
            bytes.extend(row.blocks.to_le_bytes());
            bytes.extend([0; 4]);
            for number in [row.start.0, row.end.0, row.first_ts.0, row.last_ts.0, row.bytes] {
                bytes.extend(number.to_le_bytes());
            }
        }
        for row in &self.blocks {
            for number in [row.pos, row.first.0, row.first_ts.0, row.last_ts.0] {
                bytes.extend(number.to_le_bytes());
            }
            bytes.extend(row.stored_bytes.to_le_bytes());
            bytes.extend(row.raw_bytes.to_le_bytes());
        }
        bytes
    }

    /// Reads the footer from the last [`Trailer::tail_bytes`] bytes of a pack.
    ///
    /// # Errors
    /// [`PackError`]: the pack is damaged.
    pub fn decode(tail: &[u8], trailer: &Trailer) -> Result<Self, PackError> {
        let want = trailer.tail_bytes();
        let have = tail.len() as u64;
        if have < want {
            return Err(PackError::Truncated { have, want });
        }
        let begins = usize::try_from(have - want).expect("within a slice");
        let bytes = &tail[begins..tail.len() - TRAILER_BYTES];
        let (stored, computed) = (trailer.footer_crc, crc32c(bytes));
        if stored != computed {
            return Err(PackError::Checksum { what: "footer", stored, computed });
        }
        let (partitions, blocks) = bytes.split_at(trailer.partitions as usize * PARTITION_ROW_BYTES);
        let partitions = partitions.chunks_exact(PARTITION_ROW_BYTES).map(partition_row);
        let partitions = partitions.collect::<Result<Vec<_>, _>>()?;
        let blocks: Vec<_> = blocks.chunks_exact(BLOCK_ROW_BYTES).map(block_row).collect();
        let footer = Self { partitions, blocks };
        footer.check(trailer.footer_pos)?;
        Ok(footer)
    }

    /// All partitions, in order.
    #[must_use]
    pub fn partitions(&self) -> &[PartitionRow] {
        &self.partitions
    }

    /// A partition of the pack, if it holds any of it.
    #[must_use]
    pub fn partition(&self, which: PackedPartition) -> Option<&PartitionRow> {
        let at = self.partitions.binary_search_by_key(&which, |row| row.partition).ok()?;
        Some(&self.partitions[at])
    }

    /// A partition's blocks, in offset order.
    #[must_use]
    pub fn blocks(&self, row: &PartitionRow) -> &[BlockRow] {
        let first = row.first_block as usize;
        &self.blocks[first..first + row.blocks as usize]
    }

    /// Place, among the partition's, of the block that holds `offset`; `None` outside of what the pack has of it.
    #[must_use]
    pub fn block_at(&self, row: &PartitionRow, offset: Offset) -> Option<usize> {
        if !(row.start..row.end).contains(&offset) {
            return None;
        }
        self.blocks(row).partition_point(|block| block.first <= offset).checked_sub(1)
    }

    /// Bytes that it takes in memory, about.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.partitions.len() * size_of::<PartitionRow>() + self.blocks.len() * size_of::<BlockRow>()
    }

    /// Everything that readers rely on: what is fetched, searched and indexed by it lies within the pack.
    fn check(&self, footer_pos: u64) -> Result<(), PackError> {
        let (mut next_block, mut pos) = (0, HEADER_BYTES as u64);
        let mut last = None;
        for row in &self.partitions {
            let blocks = next_block..next_block + u64::from(row.blocks);
            let is_next = last.is_none_or(|last| last < row.partition)
                && u64::from(row.first_block) == blocks.start
                && row.blocks > 0
                && blocks.end <= self.blocks.len() as u64;
            if !is_next {
                return Err(PackError::Contradiction("its partitions are out of order"));
            }
            check_blocks(row, self.blocks(row), &mut pos)?;
            last = Some(row.partition);
            next_block = blocks.end;
        }
        if next_block != self.blocks.len() as u64 || pos != footer_pos {
            return Err(PackError::Contradiction("its blocks do not fill it"));
        }
        Ok(())
    }
}

/// The blocks of a partition lie one after another from `pos` on, cover its offsets and times in order, and
/// are no larger than blocks get.
fn check_blocks(row: &PartitionRow, blocks: &[BlockRow], pos: &mut u64) -> Result<(), PackError> {
    let wrong = Err(PackError::Contradiction("its blocks are out of order"));
    let (mut first, mut ts) = (None, row.first_ts);
    for block in blocks {
        let follows = match first {
            None => block.first == row.start && block.first_ts == row.first_ts,
            Some(before) => block.first > before,
        };
        let is_timed = ts <= block.first_ts && block.first_ts <= block.last_ts;
        // What is larger was never written, and must not be asked for.
        let is_block = block.stored_bytes as usize > BLOCK_HEADER_BYTES
            && block.stored_bytes as usize <= BLOCK_HEADER_BYTES + BLOCK_RAW_BYTES_MAX
            && block.raw_bytes as usize <= BLOCK_RAW_BYTES_MAX;
        if !follows || !is_timed || !is_block || block.pos != *pos {
            return wrong;
        }
        let Some(end) = pos.checked_add(u64::from(block.stored_bytes)) else { return wrong };
        (*pos, first, ts) = (end, Some(block.first), block.last_ts);
    }
    let is_covered = first.is_some_and(|first| first < row.end) && ts == row.last_ts;
    if is_covered { Ok(()) } else { wrong }
}

fn partition_row(bytes: &[u8]) -> Result<PartitionRow, PackError> {
    if bytes[20..24] != [0; 4] {
        return Err(PackError::Unknown("flag"));
    }
    Ok(PartitionRow {
        partition: (Incarnation(u64_at(bytes, 0)), PartitionId(u32_at(bytes, 8))),
        first_block: u32_at(bytes, 12),
        blocks: u32_at(bytes, 16),
        start: Offset(u64_at(bytes, 24)),
        end: Offset(u64_at(bytes, 32)),
        first_ts: TimestampMs(u64_at(bytes, 40)),
        last_ts: TimestampMs(u64_at(bytes, 48)),
        bytes: u64_at(bytes, 56),
    })
}

fn block_row(bytes: &[u8]) -> BlockRow {
    BlockRow {
        pos: u64_at(bytes, 0),
        first: Offset(u64_at(bytes, 8)),
        first_ts: TimestampMs(u64_at(bytes, 16)),
        last_ts: TimestampMs(u64_at(bytes, 24)),
        stored_bytes: u32_at(bytes, 32),
        raw_bytes: u32_at(bytes, 36),
    }
}
