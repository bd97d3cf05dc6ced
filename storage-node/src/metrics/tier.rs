//! Cold data: what leaves the journal, and what is asked of the store.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use prometheus::core::{Collector, Desc};
use prometheus::proto::MetricFamily;
use prometheus::{Gauge, GaugeVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use weir_protocol::ids::{ShardId, TimestampMs};
use weir_tier::cold::Cold;
use weir_tier::pack::PieceMemory;

/// Counters of cold data; clones share them.
#[derive(Clone)]
pub struct TierMetrics {
    sealed_bytes: IntCounter,
    pack_bytes: IntCounter,
    packs: IntCounter,
    hurried: IntCounter,
    failures: IntCounter,
    replaced: IntCounter,
    replaced_bytes: IntCounter,
    compacted: IntCounter,
    compacted_bytes: IntCounter,
    snapshots: IntCounter,
    snapshot_bytes: IntCounter,
    exported_at: Gauge,
    store_awaited: IntGauge,
    lag: GaugeVec,
    watched: Arc<Mutex<Option<Watched>>>,
}

/// What is read when somebody scrapes.
#[derive(Clone)]
struct Watched {
    cold: Cold,
    memory_bytes_max: usize,
    pack_memory: PieceMemory,
}

impl TierMetrics {
    /// Makes the metrics and registers them.
    ///
    /// # Errors
    /// If the registry already holds a storage node's metrics.
    pub fn register(registry: &Registry) -> prometheus::Result<Self> {
        let counter = |name, help| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let lag = Opts::new("weir_tier_lag_seconds", "Age of the oldest batch that no pack holds.");
        let lag = GaugeVec::new(lag, &["shard"])?;
        registry.register(Box::new(lag.clone()))?;
        let exported_at = Gauge::new(
            "weir_tier_manifest_seconds",
            "When the newest manifest was written, in seconds since the epoch: what a restore would start from.",
        )?;
        registry.register(Box::new(exported_at.clone()))?;
        let store_awaited = IntGauge::new(
            "weir_tier_store_awaited",
            "1 while the object store has not passed its self-test since the start: nothing is written or deleted there.",
        )?;
        registry.register(Box::new(store_awaited.clone()))?;
        let metrics = Self {
            sealed_bytes: counter("weir_tier_sealed_bytes_total", "Bytes of batches that packs took over.")?,
            pack_bytes: counter("weir_tier_pack_bytes_total", "Bytes of these packs in the store.")?,
            packs: counter("weir_tier_packs_total", "Packs that were committed.")?,
            hurried: counter(
                "weir_tier_packs_hurried_total",
                "Packs that were made without pauses: somebody waited, or the journal was half full.",
            )?,
            failures: counter("weir_tier_failures_total", "Rounds of sealing and deleting that failed.")?,
            replaced: counter("weir_tier_packs_replaced_total", "Mostly dead packs that others took over.")?,
            replaced_bytes: counter("weir_tier_packs_replaced_bytes_total", "Bytes of these packs.")?,
            compacted: counter(
                "weir_tier_compacted_records_total",
                "Messages dropped because their key has a newer one, or was deleted.",
            )?,
            compacted_bytes: counter(
                "weir_tier_compacted_bytes_total",
                "Bytes of these messages, before compression.",
            )?,
            snapshots: counter(
                "weir_tier_snapshots_total",
                "States of shards that went to the object store.",
            )?,
            snapshot_bytes: counter("weir_tier_snapshot_bytes_total", "Bytes of these objects.")?,
            exported_at,
            store_awaited,
            lag,
            watched: Arc::default(),
        };
        registry.register(Box::new(StoreCollector::new(Arc::clone(&metrics.watched))?))?;
        Ok(metrics)
    }

    /// The store and the cache in front of it, of at most `memory_bytes_max`, and what packs are made in,
    /// once there are any.
    pub fn watch(&self, cold: Cold, memory_bytes_max: usize, pack_memory: PieceMemory) {
        *self.watched.lock() = Some(Watched { cold, memory_bytes_max, pack_memory });
    }

    /// Counts a pack that was committed.
    pub fn sealed(&self, raw_bytes: u64, pack_bytes: u64) {
        self.packs.inc();
        self.sealed_bytes.inc_by(raw_bytes);
        self.pack_bytes.inc_by(pack_bytes);
    }

    /// Counts a pack that was made without a pause.
    pub fn hurried(&self) {
        self.hurried.inc();
    }

    /// Packs that were made without a pause.
    #[cfg(test)]
    pub(crate) fn hurried_packs(&self) -> u64 {
        self.hurried.get()
    }

    /// Counts packs that another takes the place of, and their bytes.
    pub fn replaced(&self, packs: u64, bytes: u64) {
        self.replaced.inc_by(packs);
        self.replaced_bytes.inc_by(bytes);
    }

    /// Counts records that compaction dropped, and their encoded bytes.
    pub fn compacted(&self, records: u64, bytes: u64) {
        self.compacted.inc_by(records);
        self.compacted_bytes.inc_by(bytes);
    }

    /// Counts the state of a shard that went to the store.
    pub fn snapshot(&self, bytes: u64) {
        self.snapshots.inc();
        self.snapshot_bytes.inc_by(bytes);
    }

    /// All states are in the store, and a manifest names them.
    pub fn exported(&self, now: TimestampMs) {
        self.exported_at.set(Duration::from_millis(now.0).as_secs_f64());
    }

    /// The store has not passed since the start, or has now.
    pub fn store_awaited(&self, is_awaited: bool) {
        self.store_awaited.set(i64::from(is_awaited));
    }

    /// Counts a round that failed.
    pub fn failed(&self) {
        self.failures.inc();
    }

    /// How old the oldest batch is that no pack of the shard holds.
    pub fn lag(&self, shard: ShardId, age: Duration) {
        self.lag.with_label_values(&[&shard.to_string()]).set(age.as_secs_f64());
    }
}

/// Counters of the store and the cache, read when somebody scrapes.
struct StoreCollector {
    watched: Arc<Mutex<Option<Watched>>>,
    names: Vec<Desc>,
}

impl StoreCollector {
    fn new(watched: Arc<Mutex<Option<Watched>>>) -> prometheus::Result<Self> {
        let mut collector = Self { watched, names: Vec::new() };
        collector.names = collector.counters()?.iter().flat_map(|counter| counter.desc()).cloned().collect();
        Ok(collector)
    }

    fn counters(&self) -> prometheus::Result<[Box<dyn Collector>; 8]> {
        let by = |name, help, label| IntCounterVec::new(Opts::new(name, help), &[label]);
        let requests = by(
            "weir_tier_requests_total",
            "Requests to the object store, by kind, and those that failed.",
            "request",
        )?;
        let bytes = by("weir_tier_request_bytes_total", "Bytes to and from the object store.", "request")?;
        let blocks = by(
            "weir_tier_blocks_total",
            "Blocks of packs that readers asked for, that no cache had, and that were fetched.",
            "what",
        )?;
        let disk =
            by("weir_tier_cache_disk_bytes_total", "Bytes that the cache on disk wrote and read.", "what")?;
        let memory = IntGauge::new("weir_tier_cache_memory_bytes", "Bytes of blocks of packs in memory.")?;
        let memory_max = IntGauge::new(
            "weir_tier_cache_memory_bytes_max",
            "Bytes of blocks of packs kept in memory at most.",
        )?;
        let making = IntGauge::new(
            "weir_tier_pack_memory_bytes",
            "Memory that packs are made in: on its way to the store, or kept for the next pack.",
        )?;
        let hurried = IntGauge::new(
            "weir_tier_uploads_hurried",
            "1 while uploads go as fast as they can: somebody waits, or the journal is half full.",
        )?;
        if let Some(Watched { cold, memory_bytes_max, pack_memory }) = self.watched.lock().clone() {
            let signed = |bytes: usize| i64::try_from(bytes).unwrap_or(i64::MAX);
            memory.set(signed(cold.memory_bytes()));
            memory_max.set(signed(memory_bytes_max));
            making.set(i64::try_from(pack_memory.bytes()).unwrap_or(i64::MAX));
            hurried.set(i64::from(cold.store().is_hurried()));
            let (written, read) = cold.disk_bytes();
            disk.with_label_values(&["written"]).inc_by(written as u64);
            disk.with_label_values(&["read"]).inc_by(read as u64);
            let (store, cold) = (cold.store().metrics(), cold.metrics());
            let set = |counters: &IntCounterVec, label: &str, value: &AtomicU64| {
                counters.with_label_values(&[label]).inc_by(value.load(Ordering::Relaxed));
            };
            set(&requests, "get", &store.gets);
            set(&requests, "put", &store.puts);
            set(&requests, "delete", &store.deletes);
            set(&requests, "failed", &store.failures);
            set(&bytes, "get", &store.get_bytes);
            set(&bytes, "put", &store.put_bytes);
            set(&blocks, "asked", &cold.asked);
            set(&blocks, "missed", &cold.missed);
            set(&blocks, "fetched", &cold.fetched);
        }
        Ok([
            Box::new(requests),
            Box::new(bytes),
            Box::new(blocks),
            Box::new(disk),
            Box::new(memory),
            Box::new(memory_max),
            Box::new(making),
            Box::new(hurried),
        ])
    }
}

impl Collector for StoreCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.names.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let counters = self.counters();
        counters.iter().flatten().flat_map(|counter| counter.collect()).collect()
    }
}
