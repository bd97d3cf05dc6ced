//! A pack that is read to be copied: the batches that its shard's rows name, in order.

use std::iter::Peekable;
use std::ops::Range;

use weir_protocol::batch::Batch;
use weir_protocol::ids::Offset;
use weir_tier::cold::{ColdError, PackRef};
use weir_tier::pack::batches;
use weir_tier::spans::Spans;

use crate::replica::ShardHandle;
use crate::shard::state::{BatchRow, Pack, PackNo, PartitionKey};
use crate::tier::{Lost, Tier};

/// It may call its partitions by the lives of before a restore. A span of its blocks is in memory.
pub(super) struct Source {
    shard: ShardHandle,
    no: PackNo,
    pack: PackRef,
    spans: Spans,
}

impl Source {
    /// The blocks of `pack`, the shard's number `no`, with records of these runs, which come in its order: by
    /// partition and offset.
    ///
    /// # Errors
    /// [`ColdError`].
    pub(super) async fn open(
        tier: &Tier,
        shard: &ShardHandle,
        (no, pack): (PackNo, &Pack),
        runs: impl IntoIterator<Item = (PartitionKey, Range<Offset>)>,
    ) -> Result<Self, ColdError> {
        let pack = tier.pack_ref(shard.shard, pack);
        let runs: Vec<_> = runs.into_iter().collect();
        let packed: Vec<_> = runs.iter().map(|(key, records)| (pack.packed(*key), records.clone())).collect();
        match tier.cold.spans(&pack, packed).await {
            Ok(spans) => Ok(Self { shard: shard.clone(), no, pack, spans }),
            Err(error) => {
                if let Some((key, records)) = runs.first() {
                    tell(shard, (no, &pack), *key, (records.start, None), &error);
                }
                Err(error)
            }
        }
    }

    /// The batches of the next block of a partition that `rows` name, which are all from here on; `None`
    /// behind the last block.
    ///
    /// # Errors
    /// [`ColdError`]: the pack cannot be read, or is not what its shard says.
    pub(super) async fn next(
        &mut self,
        key: PartitionKey,
        rows: &mut Peekable<impl Iterator<Item = BatchRow>>,
    ) -> Result<Option<Vec<(BatchRow, Batch)>>, ColdError> {
        let first = rows.peek().copied();
        let found = self.next_of(key, rows).await;
        if let (Err(error), Some(row)) = (&found, first) {
            self.tell(key, row, error);
        }
        found
    }

    async fn next_of(
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
        ColdError::damaged(&self.pack.name, what)
    }

    /// Those who ask are told that the batch of `row`, or one close behind it, could not be read.
    pub(super) fn tell(&self, key: PartitionKey, row: BatchRow, error: &ColdError) {
        tell(&self.shard, (self.no, &self.pack), key, (row.base_offset, Some(row.end())), error);
    }
}

/// Remembers damage, unless another pack has taken the place of this one meanwhile: its object may be gone then.
fn tell(
    shard: &ShardHandle,
    (no, pack): (PackNo, &PackRef),
    key: PartitionKey,
    (from, end): (Offset, Option<Offset>),
    error: &ColdError,
) {
    let is_needed = shard.state.read().packs().get(no).is_some();
    if let Some(tier) = shard.tier.as_ref().filter(|_| error.is_damage && is_needed) {
        tier.lost(key, Lost { object: pack.name, from, end, why: error.why.clone() });
    }
}

/// Forgets damage of messages of the shard that are removed, or that another pack holds now.
pub(super) fn forget(tier: &Tier, shard: &ShardHandle) {
    if tier.damaged.is_empty() {
        return;
    }
    let state = shard.state.read();
    let is_needed = |key: PartitionKey, lost: &Lost| {
        let Ok(partition) = state.partition(key) else { return false };
        let pack = partition.pack_of(lost.from.max(partition.start)).and_then(|no| state.packs().get(no));
        let is_there = lost.end.is_none_or(|end| partition.start < end);
        is_there && pack.is_some_and(|pack| pack.attempt == lost.object.id())
    };
    tier.damaged.retain(|key, lost| lost.object.shard != shard.shard || is_needed(key, lost));
}
