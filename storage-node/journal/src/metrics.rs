//! Counters of the journal, read as a snapshot.

use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

/// Upper bounds of the sync-duration buckets, in microseconds; a last bucket takes the rest.
pub const SYNC_BUCKETS_US: [u64; 14] =
    [50, 100, 200, 400, 800, 1_600, 3_200, 6_400, 12_800, 25_600, 51_200, 102_400, 409_600, 1_638_400];

/// What the journal has done since it was opened, and what it holds now.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Metrics {
    /// Commit blocks written.
    pub blocks: u64,
    /// Syncs of journal files for commits.
    pub syncs: u64,
    /// Of these, written by who appended, in the writer's place.
    pub inline_commits: u64,
    /// Frames written.
    pub frames: u64,
    /// Bytes written, headers and padding included.
    pub bytes: u64,
    /// Bytes of padding among them.
    pub padding_bytes: u64,
    /// Bytes written besides, to make files ready: zeros, and headers.
    pub prepared_bytes: u64,
    /// Files finished.
    pub rotations: u64,
    /// Files recycled.
    pub recycled: u64,
    /// Times the writer had to wait for the next file.
    pub file_waits: u64,
    /// Bytes waiting in the writer's queue.
    pub queue_bytes: u64,
    /// Bytes of entries held in memory, durable or not.
    pub memory_bytes: u64,
    /// Bytes of the index of entries in memory.
    pub index_bytes: u64,
    /// Sidecars written, those written again included.
    pub sidecars_written: u64,
    /// Rows of the index that left memory because a sidecar has them.
    pub evicted_rows: u64,
    /// Pages of sidecars read to find entries.
    pub sidecar_reads: u64,
    /// Times a sidecar did not hold and the journal file was searched instead.
    pub sidecar_misses: u64,
    /// Carried files written.
    pub carried_files: u64,
    /// Bytes of them, index included.
    pub carried_bytes: u64,
    /// Sum of the sync durations.
    pub sync_time: Duration,
    /// Syncs by duration: one count per bound of [`SYNC_BUCKETS_US`] (not cumulative), and one for the rest.
    pub sync_buckets: [u64; SYNC_BUCKETS_US.len() + 1],
}

/// The counters behind [`Metrics`].
#[derive(Debug, Default)]
pub(crate) struct Counters {
    pub(crate) blocks: AtomicU64,
    pub(crate) syncs: AtomicU64,
    pub(crate) inline_commits: AtomicU64,
    pub(crate) frames: AtomicU64,
    pub(crate) bytes: AtomicU64,
    pub(crate) padding_bytes: AtomicU64,
    pub(crate) prepared_bytes: AtomicU64,
    pub(crate) rotations: AtomicU64,
    pub(crate) recycled: AtomicU64,
    pub(crate) file_waits: AtomicU64,
    pub(crate) memory_bytes: AtomicU64,
    pub(crate) index_bytes: AtomicU64,
    pub(crate) sidecars_written: AtomicU64,
    pub(crate) evicted_rows: AtomicU64,
    pub(crate) sidecar_reads: AtomicU64,
    pub(crate) sidecar_misses: AtomicU64,
    pub(crate) carried_files: AtomicU64,
    pub(crate) carried_bytes: AtomicU64,
    sync_ns: AtomicU64,
    sync_buckets: [AtomicU64; SYNC_BUCKETS_US.len() + 1],
}

pub(crate) fn add(counter: &AtomicU64, n: u64) {
    counter.fetch_add(n, Ordering::Relaxed);
}

impl Counters {
    pub(crate) fn synced(&self, took: Duration) {
        let us = u64::try_from(took.as_micros()).unwrap_or(u64::MAX);
        let bucket = SYNC_BUCKETS_US.partition_point(|bound| *bound < us);
        add(&self.sync_buckets[bucket], 1);
        add(&self.syncs, 1);
        add(&self.sync_ns, u64::try_from(took.as_nanos()).unwrap_or(u64::MAX));
    }

    pub(crate) fn snapshot(&self, queue_bytes: u64) -> Metrics {
        let get = |counter: &AtomicU64| counter.load(Ordering::Relaxed);
        Metrics {
            blocks: get(&self.blocks),
            syncs: get(&self.syncs),
            inline_commits: get(&self.inline_commits),
            frames: get(&self.frames),
            bytes: get(&self.bytes),
            padding_bytes: get(&self.padding_bytes),
            prepared_bytes: get(&self.prepared_bytes),
            rotations: get(&self.rotations),
            recycled: get(&self.recycled),
            file_waits: get(&self.file_waits),
            queue_bytes,
            memory_bytes: get(&self.memory_bytes),
            index_bytes: get(&self.index_bytes),
            sidecars_written: get(&self.sidecars_written),
            evicted_rows: get(&self.evicted_rows),
            sidecar_reads: get(&self.sidecar_reads),
            sidecar_misses: get(&self.sidecar_misses),
            carried_files: get(&self.carried_files),
            carried_bytes: get(&self.carried_bytes),
            sync_time: Duration::from_nanos(get(&self.sync_ns)),
            sync_buckets: std::array::from_fn(|i| get(&self.sync_buckets[i])),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_sync_is_counted_in_the_bucket_whose_bound_holds_it() {
        let counters = Counters::default();
        counters.synced(Duration::from_micros(50));
        counters.synced(Duration::from_micros(51));
        counters.synced(Duration::from_secs(60));
        let metrics = counters.snapshot(7);
        assert_eq!(metrics.sync_buckets[0], 1);
        assert_eq!(metrics.sync_buckets[1], 1);
        assert_eq!(metrics.sync_buckets[SYNC_BUCKETS_US.len()], 1);
        assert_eq!((metrics.syncs, metrics.queue_bytes), (3, 7));
        assert_eq!(metrics.sync_time, Duration::from_micros(101) + Duration::from_secs(60));
    }
}
