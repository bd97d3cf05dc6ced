//! Blocks of a pack read once and in order, past the cache: whoever copies a pack would drive out of it what
//! readers want.

use std::collections::VecDeque;
use std::ops::Range;

use bytes::Bytes;
use weir_protocol::ids::Offset;

use crate::cold::{Cold, ColdError, PackRef};
use crate::pack::{BlockRow, PackError, PackedPartition, read_block};
use crate::store::{Store, StoreError};

/// Bytes that one request asks for, unless a block is larger.
const SPAN_BYTES_MAX: u64 = 4 << 20;
/// Bytes between two wanted blocks that are read along rather than asking twice.
const GAP_BYTES_MAX: u64 = 256 << 10;

/// The wanted blocks of a pack, in its order. Holds one span of at most a few MiB.
pub struct Spans {
    store: Store,
    pack: PackRef,
    wanted: VecDeque<(PackedPartition, BlockRow)>,
    span: (u64, Bytes),
}

impl Cold {
    /// The blocks of `pack` with records of these runs, which come in the pack's order: by partition.
    ///
    /// # Errors
    /// As [`Cold::footer`]; also damage if the pack does not hold the runs.
    pub async fn spans(
        &self,
        pack: &PackRef,
        runs: impl IntoIterator<Item = (PackedPartition, Range<Offset>)> + Send,
    ) -> Result<Spans, ColdError> {
        let footer = self.footer(pack).await?;
        let mut wanted = VecDeque::new();
        for (partition, run) in runs {
            let places = footer.partition(partition).and_then(|row| {
                let last = Offset(run.end.0.checked_sub(1)?);
                Some((row, footer.block_at(row, run.start)?, footer.block_at(row, last)?))
            });
            let (row, first, last) = places.ok_or_else(|| {
                let source = PackError::Contradiction("it does not hold what its shard says");
                ColdError::from(&StoreError::Damaged { object: pack.name.to_string(), source })
            })?;
            wanted.extend(footer.blocks(row)[first..=last].iter().map(|block| (partition, *block)));
        }
        Ok(Spans { store: self.store().clone(), pack: *pack, wanted, span: (0, Bytes::new()) })
    }
}

impl Spans {
    /// The next block, verified and decompressed, if it is of `partition`.
    ///
    /// # Errors
    /// As [`Cold::footer`].
    pub async fn next_of(
        &mut self,
        partition: PackedPartition,
    ) -> Result<Option<(BlockRow, Bytes)>, ColdError> {
        let Some((_, row)) = self.wanted.pop_front_if(|(of, _)| *of == partition) else { return Ok(None) };
        let stored = self.stored(&row).await.map_err(|error| ColdError::from(&error))?;
        // Decompressing takes a millisecond: other tasks of this worker must not wait for it.
        let read = tokio::task::spawn_blocking(move || read_block(&stored, &row, partition)).await;
        let object = || self.pack.name.to_string();
        let read = read.map_err(|error| StoreError::Failed { object: object(), source: error.into() });
        let read =
            read.and_then(|read| read.map_err(|source| StoreError::Damaged { object: object(), source }));
        read.map(|raw| Some((row, raw))).map_err(|error| ColdError::from(&error))
    }

    /// The block's bytes as they are stored: from the span at hand, or from a new one that begins with it.
    async fn stored(&mut self, row: &BlockRow) -> Result<Bytes, StoreError> {
        let range = row.range();
        let end = self.span.0 + self.span.1.len() as u64;
        if range.start < self.span.0 || range.end > end {
            let mut upto = range.end;
            for (_, next) in &self.wanted {
                let next = next.range();
                if next.start > upto + GAP_BYTES_MAX || next.end - range.start > SPAN_BYTES_MAX {
                    break;
                }
                upto = next.end;
            }
            let (name, pack_bytes) = (self.pack.name.to_string(), self.pack.bytes);
            let bytes = self.store.get_of(&name, pack_bytes, range.start..upto).await?;
            self.span = (range.start, bytes);
        }
        let within = |pos: u64| usize::try_from(pos - self.span.0).expect("within a span in memory");
        Ok(self.span.1.slice(within(range.start)..within(range.end)))
    }
}
