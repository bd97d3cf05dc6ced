//! Partitions with a batch that the log cannot give any more: packs are made without them.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::ShardId;

use crate::read;
use crate::replica::ShardHandle;
use crate::shard::state::{BatchRow, PartitionKey};

/// A disk may give tomorrow what it does not today: it is tried again after this long.
const AGAIN_AFTER: Duration = Duration::from_secs(600);

/// What cannot be read, of all shards.
#[derive(Default)]
pub(super) struct Unreadable {
    batches: BTreeMap<(ShardId, PartitionKey), (BatchRow, Instant)>,
}

impl Unreadable {
    /// Notes the first batch of each partition among `rows` that the log cannot give.
    pub(super) async fn look(&mut self, shard: &ShardHandle, rows: &[(PartitionKey, BatchRow)]) {
        let all: Vec<_> = rows.iter().map(|(_, row)| *row).collect();
        if !is_corrupt(shard, &all).await {
            return;
        }
        for (key, row) in rows {
            if !self.has(shard.shard, *key) && is_corrupt(shard, &[*row]).await {
                self.batches.insert((shard.shard, *key), (*row, Instant::now() + AGAIN_AFTER));
            }
        }
    }

    /// The partition has a batch that cannot be read.
    pub(super) fn has(&self, shard: ShardId, key: PartitionKey) -> bool {
        self.batches.contains_key(&(shard, key))
    }

    /// Partitions of all shards with such a batch.
    pub(super) fn count(&self) -> usize {
        self.batches.len()
    }

    /// Forgets what was trimmed or is to be tried again, and names the first of what is left of the shard.
    pub(super) fn told(&mut self, shard: &ShardHandle) -> Option<String> {
        if self.batches.is_empty() {
            return None;
        }
        let (now, state) = (Instant::now(), shard.state.read());
        self.batches.retain(|(of, key), (row, until)| {
            let is_there = |row: &BatchRow| state.partition(*key).is_ok_and(|of| of.start < row.end());
            *of != shard.shard || (now < *until && is_there(row))
        });
        let mut of_shard = self.batches.iter().filter(|((of, _), _)| *of == shard.shard);
        let ((_, (life, partition)), (row, _)) = of_shard.next()?;
        let topic = state.name_of(*life).unwrap_or_default();
        Some(format!(
            "message {} of {topic}, partition {partition}, cannot be read from the journal, nor can it leave for the object \
             store: trim the topic to {} or beyond, or delete it, and what follows it leaves too",
            row.base_offset,
            row.end()
        ))
    }
}

async fn is_corrupt(shard: &ShardHandle, rows: &[BatchRow]) -> bool {
    read::from_log(shard, rows).await.is_err_and(|refusal| refusal.error_code() == ErrorCode::Corrupt)
}
