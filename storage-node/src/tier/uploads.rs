//! What is on its way to the store, and why it does not get there: for those who ask.

use std::collections::{BTreeMap, BTreeSet};

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
    attempts: Mutex<BTreeSet<u128>>,
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

    /// An object is made that no log knows yet, beside the task that looks for such: until what is returned
    /// is dropped nobody takes it for one that nobody will ever know, however long ago it was begun by a
    /// clock that was set since, or of a machine that slept.
    pub(crate) fn attempt(&self, attempt: u128) -> Attempt<'_> {
        self.attempts.lock().insert(attempt);
        Attempt { uploads: self, attempt }
    }

    /// These objects. To be asked for before the logs are: whatever is not among them any more, the logs
    /// know, or nobody ever will.
    pub(crate) fn attempts(&self) -> BTreeSet<u128> {
        self.attempts.lock().clone()
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

/// An object is made while this lives.
pub(crate) struct Attempt<'a> {
    uploads: &'a Uploads,
    attempt: u128,
}

impl Drop for Attempt<'_> {
    fn drop(&mut self) {
        self.uploads.attempts.lock().remove(&self.attempt);
    }
}
