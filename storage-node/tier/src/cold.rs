//! Packs read back: footers and blocks, each fetched once however many readers want it, within bounds of memory and disk.

use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use bytes::Bytes;
use foyer::{
    BlockEngineConfig, Cache, CacheBuilder, DeviceBuilder as _, FsDeviceBuilder, HybridCache,
    HybridCacheBuilder, HybridCachePolicy, PsyncIoEngineConfig,
};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use weir_protocol::ids::Incarnation;

use crate::pack::{Footer, PackError, PackIdentity, PackSummary, PackedPartition, Trailer, read_block};
use crate::recent::Recent;
use crate::store::{PackName, Store, StoreError, requests_of};

/// Memory for footers.
const FOOTER_BYTES_MAX: usize = 16 << 20;
/// Requests under way at once, all readers together: each holds one block at most.
const FETCHES_MAX: usize = 32;
/// Of these, what reading ahead leaves to readers that wait.
const FETCHES_KEPT: usize = 8;
/// Smallest disk that the cache can use: a few of its files.
pub const DISK_BYTES_MIN: u64 = 64 << 20;
/// Bytes of one file of the cache on disk.
const DISK_FILE_BYTES: usize = 16 << 20;

const _: () = assert!(DISK_BYTES_MIN >= 4 * DISK_FILE_BYTES as u64, "the engine needs a few files");

/// A pack that a shard refers to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PackRef {
    /// Its name.
    pub name: PackName,
    /// Its bytes.
    pub bytes: u64,
    /// Bytes at its end that hold footer and trailer.
    pub tail_bytes: u64,
    /// What it holds, it holds under lives that are lower by this.
    pub life_shift: u64,
}

impl PackRef {
    /// A partition as the pack calls it.
    #[must_use]
    pub fn packed(&self, (life, partition): PackedPartition) -> PackedPartition {
        (Incarnation(life.0.saturating_sub(self.life_shift)), partition)
    }

    /// What is called so now that the pack calls `packed`.
    fn now(&self, (life, partition): PackedPartition) -> PackedPartition {
        (Incarnation(life.0.saturating_add(self.life_shift)), partition)
    }
}

/// How much is kept of what was read.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CacheConfig {
    /// Memory for blocks. Default 64 MiB.
    pub memory_bytes: usize,
    /// Disk for blocks, 0 for none, else at least [`DISK_BYTES_MIN`]. Default 2 GiB.
    pub disk_bytes: u64,
    /// Folder for them, made if missing; what is in it may be deleted while nothing runs.
    pub folder: PathBuf,
}

/// Why records of a pack cannot be read. Shared by all who waited for it.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{why}")]
pub struct ColdError {
    /// Name of the object.
    pub object: String,
    /// The object is gone or not what was written; otherwise trying again may help.
    pub is_damage: bool,
    /// What happened; names the object.
    pub why: String,
}

impl From<&StoreError> for ColdError {
    fn from(error: &StoreError) -> Self {
        Self { object: error.object().to_owned(), is_damage: error.is_damage(), why: error.to_string() }
    }
}

/// Counters, since start.
#[derive(Debug, Default)]
pub struct ColdMetrics {
    /// Blocks that readers asked for.
    pub asked: AtomicU64,
    /// Of these, the blocks that no cache had and nobody was fetching.
    pub missed: AtomicU64,
    /// Blocks that had to be fetched from the store, reading ahead included.
    pub fetched: AtomicU64,
    fetched_for: Mutex<Recent>,
    /// Requests like a PUT, and like a GET, that made packs.
    written_for: Mutex<(Recent, Recent)>,
}

impl ColdMetrics {
    /// About how many blocks of `partition` were fetched within the last day.
    #[must_use]
    pub fn fetched_within_a_day(&self, partition: PackedPartition) -> f64 {
        self.fetched_for.lock().of(partition, Instant::now())
    }

    fn fetched(&self, partition: PackedPartition) {
        self.fetched.fetch_add(1, Ordering::Relaxed);
        self.fetched_for.lock().count(partition, 1.0, Instant::now());
    }

    /// About how many requests wrote packs for `partition` within the last day, and compared them: its share of each by bytes.
    #[must_use]
    pub fn written_within_a_day(&self, partition: PackedPartition) -> (f64, f64) {
        let (written, now) = (self.written_for.lock(), Instant::now());
        (written.0.of(partition, now), written.1.of(partition, now))
    }

    /// A pack was committed.
    pub fn wrote(&self, pack: &PackSummary) {
        let (puts, gets) = requests_of(pack.pack_bytes);
        let all: u64 = pack.partitions.iter().map(|row| row.bytes).sum();
        let (mut written, now) = (self.written_for.lock(), Instant::now());
        for row in &pack.partitions {
            #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
            let share = row.bytes as f64 / all.max(1) as f64;
            written.0.count(row.partition, f64::from(puts) * share, now);
            written.1.count(row.partition, f64::from(gets) * share, now);
        }
    }
}

/// Reads packs of one store. Cheap to clone.
#[derive(Clone)]
pub struct Cold {
    store: Store,
    blocks: HybridCache<u128, Bytes>,
    footers: Cache<u128, Arc<Footer>>,
    fetches: Arc<Semaphore>,
    metrics: Arc<ColdMetrics>,
}

impl Cold {
    /// A reader over `store`.
    ///
    /// # Errors
    /// If the cache's folder cannot be used.
    pub async fn open(store: Store, config: CacheConfig) -> Result<Self, std::io::Error> {
        let memory = HybridCacheBuilder::new()
            .with_name("weir-blocks")
            .with_policy(HybridCachePolicy::WriteOnInsertion)
            .memory(config.memory_bytes)
            .with_weighter(|_: &u128, block: &Bytes| block.len() + 64);
        let storage = memory.storage();
        let built = if config.disk_bytes == 0 {
            storage.build().await
        } else {
            let disk = usize::try_from(config.disk_bytes).unwrap_or(usize::MAX);
            let device = FsDeviceBuilder::new(&config.folder).with_capacity(disk).build();
            let device = device.map_err(std::io::Error::other)?;
            let engine = BlockEngineConfig::new(device).with_block_size(DISK_FILE_BYTES);
            storage.with_io_engine_config(PsyncIoEngineConfig::new()).with_engine_config(engine).build().await
        };
        let blocks = built.map_err(std::io::Error::other)?;
        let footers = CacheBuilder::new(FOOTER_BYTES_MAX)
            .with_weighter(|_: &u128, footer: &Arc<Footer>| footer.memory_bytes() + 64)
            .build();
        let fetches = Arc::new(Semaphore::new(FETCHES_MAX));
        Ok(Self { store, blocks, footers, fetches, metrics: Arc::default() })
    }

    /// Bytes of blocks in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.blocks.memory().usage()
    }

    /// The store that it reads.
    #[must_use]
    pub fn store(&self) -> &Store {
        &self.store
    }

    /// Its counters.
    #[must_use]
    pub fn metrics(&self) -> Arc<ColdMetrics> {
        Arc::clone(&self.metrics)
    }

    /// What a pack holds.
    ///
    /// # Errors
    /// [`ColdError`]: the object is gone, damaged or another cluster's, or the store does not answer.
    pub async fn footer(&self, pack: &PackRef) -> Result<Arc<Footer>, ColdError> {
        let (store, fetches, pack) = (self.store.clone(), Arc::clone(&self.fetches), *pack);
        let fetched = self.footers.get_or_fetch(&pack.name.id(), move || async move {
            let _permit = fetches.acquire().await.expect("never closed");
            fetch_footer(&store, &pack).await.map(Arc::new)
        });
        fetched.await.map(|entry| Arc::clone(entry.value())).map_err(|error| told(&pack, &error))
    }

    /// The batches of the block at `place` among those of `partition`, concatenated and verified.
    ///
    /// # Errors
    /// As [`Cold::footer`].
    pub async fn block(
        &self,
        pack: &PackRef,
        footer: &Footer,
        partition: PackedPartition,
        place: usize,
    ) -> Result<Bytes, ColdError> {
        self.metrics.asked.fetch_add(1, Ordering::Relaxed);
        self.fetch(pack, footer, partition, place, true).await
    }

    /// Begins to fetch up to `count` blocks from `place` on, if requests are to spare; nobody waits for them.
    pub fn read_ahead(
        &self,
        pack: &PackRef,
        footer: &Arc<Footer>,
        partition: PackedPartition,
        place: usize,
        count: usize,
    ) {
        let Some(row) = footer.partition(partition) else { return };
        for place in (place..row.blocks as usize).take(count) {
            let is_here = self.blocks.contains(&block_key(pack, footer, partition, place));
            if is_here || self.fetches.available_permits() <= FETCHES_KEPT {
                continue;
            }
            let (cold, pack, footer) = (self.clone(), *pack, Arc::clone(footer));
            tokio::spawn(async move {
                if let Err(error) = cold.fetch(&pack, &footer, partition, place, false).await {
                    tracing::debug!(%error, "not read ahead");
                }
            });
        }
    }

    async fn fetch(
        &self,
        pack: &PackRef,
        footer: &Footer,
        partition: PackedPartition,
        place: usize,
        is_asked: bool,
    ) -> Result<Bytes, ColdError> {
        let row = footer.partition(partition).and_then(|row| footer.blocks(row).get(place)).copied();
        let row = row.ok_or_else(|| {
            let source = PackError::Contradiction("it does not hold what its shard says");
            ColdError::from(&StoreError::Damaged { object: pack.name.to_string(), source })
        })?;
        let (store, fetches, metrics, pack) =
            (self.store.clone(), Arc::clone(&self.fetches), Arc::clone(&self.metrics), *pack);
        let key = block_key(&pack, footer, partition, place);
        let fetched = self.blocks.get_or_fetch(&key, move || async move {
            let _permit = fetches.acquire().await.expect("never closed");
            metrics.fetched(pack.now(partition));
            metrics.missed.fetch_add(u64::from(is_asked), Ordering::Relaxed);
            let name = pack.name.to_string();
            let stored = store.get(&name, row.range()).await?;
            // Decompressing takes a millisecond: other tasks of this worker must not wait for it.
            let read = tokio::task::spawn_blocking(move || read_block(&stored, &row, partition)).await;
            let read =
                read.map_err(|error| StoreError::Failed { object: name.clone(), source: error.into() })?;
            read.map_err(|source| StoreError::Damaged { object: name, source })
        });
        fetched.await.map(|entry| entry.value().clone()).map_err(|error| told(&pack, &error))
    }
}

async fn fetch_footer(store: &Store, pack: &PackRef) -> Result<Footer, StoreError> {
    let object = pack.name.to_string();
    let from = pack.bytes.saturating_sub(pack.tail_bytes);
    let tail = store.get(&object, from..pack.bytes).await?;
    let read = Trailer::decode(&tail, pack.bytes).and_then(|trailer| {
        let (cluster, shard) = (pack.name.cluster, pack.name.shard);
        let PackIdentity { cluster: its, shard: of, .. } = trailer.identity;
        if (its, of) != (cluster, shard) {
            return Err(PackError::Misplaced(format!("shard {of} of cluster {its}")));
        }
        Footer::decode(&tail, &trailer)
    });
    read.map_err(|source| StoreError::Damaged { object, source })
}

/// Blocks are known by their pack's 128 bits, of which 80 are random, and their place in the pack.
fn block_key(pack: &PackRef, footer: &Footer, partition: PackedPartition, place: usize) -> u128 {
    let first = footer.partition(partition).map_or(0, |row| row.first_block);
    pack.name.id() ^ (u128::from(first) + place as u128)
}

fn told(pack: &PackRef, error: &foyer::Error) -> ColdError {
    match error.downcast_ref::<StoreError>() {
        Some(error) => error.into(),
        None => {
            let object = pack.name.to_string();
            ColdError { why: format!("object {object}: {}", error.message()), object, is_damage: false }
        }
    }
}
