//! Makes a pack, batch by batch, giving out its bytes as they come.

use bytes::Bytes;
use weir_protocol::batch::Batch;
use weir_protocol::checksum::crc32c;
use weir_protocol::ids::{Offset, TimestampMs};

use super::PackedPartition;
use super::block::{BLOCK_RAW_BYTES_TARGET, BlockCodec, put_block};
use super::compressing::Compressing;
use super::footer::{BLOCK_ROW_BYTES, BlockRow, FOOTER_BYTES_MAX, Footer, PARTITION_ROW_BYTES, PartitionRow};
use super::pieces::{PieceMemory, Written};
use super::trailer::{PackIdentity, Trailer};

/// Why a batch was not taken. The pack is as it was before.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum PushError {
    /// It does not follow the last one: partitions come in order, and a partition's batches without holes.
    #[error("the batch at {0} of a partition does not follow the one before it")]
    OutOfOrder(Offset),
    /// The footer has no room for another block: finish this pack and begin another.
    #[error("the pack's footer is full")]
    Full,
}

/// What a finished pack is.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PackSummary {
    /// Bytes of the object.
    pub pack_bytes: u64,
    /// CRC-32C of the whole object.
    pub crc32c: u32,
    /// Bytes at its end that hold footer and trailer.
    pub tail_bytes: u64,
    /// What it holds, by partition.
    pub partitions: Vec<PartitionRow>,
}

/// Writes one pack. Holds one block's batches and what they are compressed to, a piece of a MiB, what was not
/// taken yet, and 40 bytes per block: the caller bounds memory by taking what is ready after every push.
pub struct PackWriter {
    identity: PackIdentity,
    compressing: Compressing,
    written: Written,
    partitions: Vec<PartitionRow>,
    blocks: Vec<BlockRow>,
    /// Batches of the block that is being filled: all of the last partition.
    open: Vec<u8>,
    /// First offset, first and last time of the open block.
    open_at: (Offset, TimestampMs, TimestampMs),
}

impl PackWriter {
    /// An empty pack, which is made in `memory`.
    #[must_use]
    pub fn new(identity: PackIdentity, codec: BlockCodec, memory: &PieceMemory) -> Self {
        let mut written = Written::new(memory.clone());
        written.write(&Trailer::header());
        Self {
            identity,
            compressing: Compressing::new(codec),
            written,
            partitions: Vec::new(),
            blocks: Vec::new(),
            open: Vec::with_capacity(BLOCK_RAW_BYTES_TARGET),
            open_at: Default::default(),
        }
    }

    /// Adds a batch of `partition`, whose first record has the offset `first` and which was accepted at `ts`.
    ///
    /// # Errors
    /// [`PushError`].
    pub fn push(
        &mut self,
        partition: PackedPartition,
        first: Offset,
        ts: TimestampMs,
        batch: &Batch,
    ) -> Result<(), PushError> {
        let is_same = self.partitions.last().is_some_and(|last| last.partition == partition);
        let is_next = match self.partitions.last() {
            Some(last) if is_same => last.end == first && last.last_ts <= ts,
            Some(last) => last.partition < partition,
            None => true,
        };
        if !is_next {
            return Err(PushError::OutOfOrder(first));
        }
        if !is_same || self.open.is_empty() {
            self.has_room(!is_same)?;
        }
        if !is_same {
            self.close_block();
            self.begin_partition(partition, first, ts);
        }
        if self.open.is_empty() {
            self.open_at = (first, ts, ts);
        }
        let [header, body] = batch.placed(first, ts, partition.1);
        self.open.extend_from_slice(&header);
        self.open.extend_from_slice(&body);
        self.open_at.2 = ts;
        let row = self.partitions.last_mut().expect("begun above");
        row.end = first.plus(u64::from(batch.header().count));
        row.last_ts = ts;
        row.bytes += batch.bytes().len() as u64;
        if self.open.len() >= BLOCK_RAW_BYTES_TARGET {
            self.close_block();
        }
        Ok(())
    }

    /// Takes what is ready: the next bytes of the object, in pieces whose memory is used again when they are dropped.
    pub fn take_ready(&mut self) -> Vec<Bytes> {
        self.written.take_full()
    }

    /// Closes the pack: the last bytes of the object, and what it holds.
    #[must_use]
    pub fn finish(mut self) -> (Vec<Bytes>, PackSummary) {
        self.close_block();
        let footer_pos = self.written.bytes();
        let count = |rows: usize| u32::try_from(rows).expect("the footer's size is limited");
        let (partitions, blocks) = (count(self.partitions.len()), count(self.blocks.len()));
        let footer = Footer::new(std::mem::take(&mut self.partitions), std::mem::take(&mut self.blocks));
        let bytes = footer.encode();
        let mut trailer = Trailer {
            identity: self.identity,
            footer_pos,
            partitions,
            blocks,
            pack_bytes: 0,
            footer_crc: crc32c(&bytes),
        };
        trailer.pack_bytes = footer_pos + trailer.tail_bytes();
        self.written.write(&bytes);
        self.written.write(&trailer.encode());
        assert_eq!(self.written.bytes(), trailer.pack_bytes, "a pack is as long as its trailer says");
        let (rest, crc32c) = self.written.finish();
        let summary = PackSummary {
            pack_bytes: trailer.pack_bytes,
            crc32c,
            tail_bytes: trailer.tail_bytes(),
            partitions: footer.partitions().to_vec(),
        };
        (rest, summary)
    }

    /// Room in the footer for the open block, another one, and perhaps another partition.
    fn has_room(&self, for_partition: bool) -> Result<(), PushError> {
        let partitions = (self.partitions.len() + usize::from(for_partition)) * PARTITION_ROW_BYTES;
        let blocks = (self.blocks.len() + 2) * BLOCK_ROW_BYTES;
        if (partitions + blocks) as u64 > FOOTER_BYTES_MAX { Err(PushError::Full) } else { Ok(()) }
    }

    fn begin_partition(&mut self, partition: PackedPartition, start: Offset, ts: TimestampMs) {
        self.compressing.begin_partition();
        let first_block = u32::try_from(self.blocks.len()).expect("the footer's size is limited");
        self.partitions.push(PartitionRow {
            partition,
            first_block,
            blocks: 0,
            start,
            end: start,
            first_ts: ts,
            last_ts: ts,
            bytes: 0,
        });
    }

    fn close_block(&mut self) {
        if self.open.is_empty() {
            return;
        }
        let pos = self.written.bytes();
        let (first, first_ts, last_ts) = self.open_at;
        let row = self.partitions.last_mut().expect("an open block has a partition");
        row.blocks += 1;
        let (codec, stored) = self.compressing.compress(&self.open);
        let stored_bytes = put_block(&mut self.written, codec, first, row.partition, stored, self.open.len());
        let raw_bytes = u32::try_from(self.open.len()).expect("blocks are limited to a few MiB");
        self.blocks.push(BlockRow { pos, first, first_ts, last_ts, stored_bytes, raw_bytes });
        self.open.clear();
    }
}
