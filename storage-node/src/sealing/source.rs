//! A pack that is read to be copied: the batches that its shard's rows name, in order.

use std::iter::Peekable;
use std::ops::Range;

use weir_protocol::batch::Batch;
use weir_protocol::ids::{Offset, ShardId};
use weir_tier::cold::{ColdError, PackRef};
use weir_tier::pack::batches;
use weir_tier::spans::Spans;

use crate::shard::state::{BatchRow, Pack, PartitionKey};
use crate::tier::Tier;

/// It may call its partitions by the lives of before a restore. A span of its blocks is in memory.
pub(super) struct Source {
    pack: PackRef,
    spans: Spans,
}

impl Source {
    /// The blocks of `pack` with records of these runs, which come in its order: by partition and offset.
    ///
    /// # Errors
    /// [`ColdError`].
    pub(super) async fn open(
        tier: &Tier,
        shard: ShardId,
        pack: &Pack,
        runs: impl IntoIterator<Item = (PartitionKey, Range<Offset>)>,
    ) -> Result<Self, ColdError> {
        let pack = tier.pack_ref(shard, pack);
        let runs: Vec<_> = runs.into_iter().map(|(key, records)| (pack.packed(key), records)).collect();
        let spans = tier.cold.spans(&pack, runs).await?;
        Ok(Self { pack, spans })
    }

    /// The batches of the next block of a partition that `rows` name, which are all from here on; `None` behind the last block.
    ///
    /// # Errors
    /// [`ColdError`]: the pack cannot be read, or is not what its shard says.
    pub(super) async fn next(
        &mut self,
        key: PartitionKey,
        rows: &mut Peekable<impl Iterator<Item = BatchRow>>,
    ) -> Result<Option<Vec<(BatchRow, Batch)>>, ColdError> {
        let packed_key = self.pack.packed(key);
        let Some((block, raw)) = self.spans.next_of(packed_key).await? else {
            return match rows.next() {
                None => Ok(None),
                Some(_) => Err(self.damaged("a batch is not where it was sealed")),
            };
        };
        let mut found = Vec::new();
        for batch in batches(raw, &block, packed_key) {
            let batch = batch.map_err(|error| self.damaged(&error.to_string()))?;
            let header = batch.header();
            let Some(row) = rows.next_if(|row| row.base_offset == header.base_offset) else { continue };
            if row.count != header.count {
                return Err(self.damaged("a batch is not the one that was sealed"));
            }
            found.push((row, batch));
        }
        Ok(Some(found))
    }

    /// The pack is not what its shard says.
    pub(super) fn damaged(&self, what: &str) -> ColdError {
        let object = self.pack.name.to_string();
        ColdError { why: format!("object {object}: {what}"), object, is_damage: true }
    }
}
