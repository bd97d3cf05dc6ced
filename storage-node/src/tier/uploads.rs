//! What is on its way to the store, and why it does not get there: for those who ask.

use std::collections::BTreeMap;

use parking_lot::Mutex;
use weir_protocol::ids::{Offset, ShardId};

use crate::shard::state::{BatchRow, PartitionKey};

/// What one pack takes of a partition.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Upload {
    /// One past the last record.
    pub end: Offset,
    /// Bytes of the batches.
    pub bytes: u64,
}

/// The pack that is being made, and what became of each shard's last one.
#[derive(Debug, Default)]
pub struct Uploads {
    under_way: Mutex<BTreeMap<PartitionKey, Upload>>,
    failures: Mutex<BTreeMap<ShardId, String>>,
    unreadable: Mutex<BTreeMap<ShardId, String>>,
}

impl Uploads {
    /// What is being uploaded of a partition.
    #[must_use]
    pub fn of(&self, key: PartitionKey) -> Option<Upload> {
        self.under_way.lock().get(&key).copied()
    }

    /// Bytes of batches that are being uploaded.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.under_way.lock().values().map(|upload| upload.bytes).sum()
    }

    /// These batches are on their way until what is returned is dropped.
    pub(crate) fn begin(&self, rows: &[(PartitionKey, BatchRow)]) -> UnderWay<'_> {
        let mut under_way = BTreeMap::<PartitionKey, Upload>::new();
        for (key, row) in rows {
            let upload = under_way.entry(*key).or_default();
            upload.end = upload.end.max(row.end());
            upload.bytes += u64::from(row.len);
        }
        *self.under_way.lock() = under_way;
        UnderWay(self)
    }

    /// Why a shard's last attempt failed, if one did.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.failures.lock().values().next().cloned()
    }

    /// What became of a shard's attempt.
    pub(crate) fn attempted(&self, shard: ShardId, failure: Option<String>) {
        note(&self.failures, shard, failure);
    }

    /// Which message cannot be uploaded because it cannot be read, and what is to be done about it, if there is one.
    #[must_use]
    pub fn unreadable(&self) -> Option<String> {
        self.unreadable.lock().values().next().cloned()
    }

    /// What a shard cannot read.
    pub(crate) fn looked(&self, shard: ShardId, unreadable: Option<String>) {
        note(&self.unreadable, shard, unreadable);
    }
}

fn note(of_shards: &Mutex<BTreeMap<ShardId, String>>, shard: ShardId, what: Option<String>) {
    let mut of_shards = of_shards.lock();
    match what {
        Some(what) => drop(of_shards.insert(shard, what)),
        None => drop(of_shards.remove(&shard)),
    }
}

/// A pack is being made while this lives.
pub(crate) struct UnderWay<'a>(&'a Uploads);

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.0.under_way.lock().clear();
    }
}
