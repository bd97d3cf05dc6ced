//! Packs read back: footers and blocks, each fetched once however many readers want it, within bounds of
//! memory and disk.

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use foyer::{Cache, CacheBuilder, HybridCache};
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_protocol::ids::{Incarnation, Offset};

use crate::again::Again;
use crate::cache;
pub use crate::cache::{CacheConfig, DISK_BYTES_MIN};
use crate::pack::{
    BlockRow, Footer, PackError, PackIdentity, PackSummary, PackedPartition, Trailer, read_block,
};
use crate::recent::Recent;
use crate::store::{PackName, Store, StoreError, requests_of};
use crate::under_way::UnderWay;

/// Blocks that begin in the same stretch of so many bytes of a pack are fetched by one request …
const TOGETHER_BYTES: u64 = 2 << 20;
/// … and no more than so many, however well they compress.
const TOGETHER_BLOCKS: usize = 8;
/// Memory for footers.
const FOOTER_BYTES_MAX: usize = 16 << 20;
/// KiB of blocks, stored or decompressed, whichever is more, that are fetched and verified at once, all
/// readers together …
const FETCH_KIB_MAX: usize = 32 << 10;
/// … of which reading ahead leaves so many to readers that wait …
const FETCH_KIB_KEPT: usize = 8 << 10;
/// … and each request counts as so many at least, so there are no more than 64, and at most as what is left
/// to who waits.
const REQUEST_KIB_MIN: u64 = 512;

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

/// How far to read ahead of what is needed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Ahead {
    /// About so many blocks: to the end of those that the last of them comes together with, …
    pub blocks: usize,
    /// … but none that begins at this offset or behind it, …
    pub until: Offset,
    /// … nor any that begins behind so many bytes of batches that nobody needs yet.
    pub bytes: u64,
}

impl Ahead {
    /// Nothing.
    pub const NONE: Self = Self { blocks: 0, until: Offset(0), bytes: 0 };

    /// So many blocks, whatever they hold.
    #[must_use]
    pub fn blocks(blocks: usize) -> Self {
        Self { blocks, until: Offset(u64::MAX), bytes: u64::MAX }
    }

    /// How many of `rows`, which lie behind what is needed, may be fetched.
    fn allowed(&self, rows: &[BlockRow]) -> usize {
        let mut bytes = 0;
        let is_within = |row: &&BlockRow| {
            let is_within = row.first < self.until && bytes < self.bytes;
            bytes += u64::from(row.raw_bytes);
            is_within
        };
        rows.iter().take(self.blocks + TOGETHER_BLOCKS).take_while(is_within).count()
    }
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
    /// The store takes too long: asking at once again takes as long.
    is_slowness: bool,
}

impl ColdError {
    /// The object is not what was written: `what` says in which way.
    #[must_use]
    pub fn damaged(object: &PackName, what: &str) -> Self {
        let why = format!("object {object}: {what}");
        Self { object: object.to_string(), is_damage: true, why, is_slowness: false }
    }
}

impl From<&StoreError> for ColdError {
    fn from(error: &StoreError) -> Self {
        let (is_damage, is_slowness) = (error.is_damage(), error.is_slowness());
        Self { object: error.object().to_owned(), is_damage, why: error.to_string(), is_slowness }
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
    /// As [`ReadWithinADay`] has them, in its order.
    read_for: Mutex<Recent<4>>,
    /// Requests like a PUT, and like a GET, that made packs.
    written_for: Mutex<Recent<2>>,
}

/// What the readers of a partition asked for within about a day, and what came from the store for them.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct ReadWithinADay {
    /// Blocks that they asked for.
    pub asked: f64,
    /// Of these, the blocks that no cache had and nobody was fetching.
    pub missed: f64,
    /// Requests that fetched blocks, reading ahead included.
    pub gets: f64,
    /// Bytes that these brought.
    pub get_bytes: f64,
}

impl ColdMetrics {
    /// About what was read of `partition` within the last day. Beyond some thousand partitions, those that
    /// were read least are forgotten.
    #[must_use]
    pub fn read_within_a_day(&self, partition: PackedPartition) -> ReadWithinADay {
        let [asked, missed, gets, get_bytes] = self.read_for.lock().of(partition, Instant::now());
        ReadWithinADay { asked, missed, gets, get_bytes }
    }

    /// A reader wants a block.
    fn asked(&self, partition: PackedPartition) {
        self.asked.fetch_add(1, Ordering::Relaxed);
        self.read_for.lock().count(partition, [1.0, 0.0, 0.0, 0.0], Instant::now());
    }

    /// One request for so many blocks, and so many bytes.
    #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
    fn requested(&self, partition: PackedPartition, blocks: u64, bytes: u64, is_asked: bool) {
        let missed = if is_asked { blocks } else { 0 };
        self.fetched.fetch_add(blocks, Ordering::Relaxed);
        self.missed.fetch_add(missed, Ordering::Relaxed);
        self.read_for.lock().count(partition, [0.0, missed as f64, 1.0, bytes as f64], Instant::now());
    }

    /// About how many requests wrote packs for `partition` within the last day, and compared them: its share
    /// of each by bytes.
    #[must_use]
    pub fn written_within_a_day(&self, partition: PackedPartition) -> (f64, f64) {
        let [puts, gets] = self.written_for.lock().of(partition, Instant::now());
        (puts, gets)
    }

    /// A pack was committed.
    pub fn wrote(&self, pack: &PackSummary) {
        let (puts, gets) = requests_of(pack.pack_bytes);
        let all: u64 = pack.partitions.iter().map(|row| row.bytes).sum();
        let (mut written, now) = (self.written_for.lock(), Instant::now());
        for row in &pack.partitions {
            #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
            let share = row.bytes as f64 / all.max(1) as f64;
            written.count(row.partition, [f64::from(puts) * share, f64::from(gets) * share], now);
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
    under_way: UnderWay,
    again: Again,
    metrics: Arc<ColdMetrics>,
}

impl Cold {
    /// A reader over `store`.
    ///
    /// # Errors
    /// If the cache's folder cannot be used.
    pub async fn open(store: Store, config: CacheConfig) -> Result<Self, std::io::Error> {
        let again = Again::default();
        let blocks = cache::open(&config, &again).await?;
        let footers = CacheBuilder::new(FOOTER_BYTES_MAX)
            .with_weighter(|_: &u128, footer: &Arc<Footer>| footer.memory_bytes() + 64)
            .build();
        let fetches = Arc::new(Semaphore::new(FETCH_KIB_MAX));
        let (under_way, metrics) = (UnderWay::default(), Arc::default());
        Ok(Self { store, blocks, footers, fetches, under_way, again, metrics })
    }

    /// Bytes of blocks in memory.
    #[must_use]
    pub fn memory_bytes(&self) -> usize {
        self.blocks.memory().usage()
    }

    /// Bytes that the cache on disk has written and read since the start.
    #[must_use]
    pub fn disk_bytes(&self) -> (usize, usize) {
        let statistics = self.blocks.statistics();
        (statistics.disk_write_bytes(), statistics.disk_read_bytes())
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
            let _room = room(&fetches, kib(pack.tail_bytes), &pack, store.patience()).await?;
            fetch_footer(&store, &pack).await.map(Arc::new)
        });
        fetched.await.map(|entry| Arc::clone(entry.value())).map_err(|error| told(&pack, &error))
    }

    /// The batches of the block at `place` among those of `partition`, concatenated and verified, for whom
    /// the `wanted` records of them are read: what is asked for again is kept on disk once memory has no room
    /// for it.
    ///
    /// # Errors
    /// As [`Cold::footer`].
    pub async fn block(
        &self,
        pack: &PackRef,
        footer: &Footer,
        partition: PackedPartition,
        place: usize,
        wanted: &Range<Offset>,
    ) -> Result<Bytes, ColdError> {
        self.metrics.asked(pack.now(partition));
        self.again.asked(block_key(pack, footer, partition, place), wanted);
        match self.fetch_alone(pack, footer, partition, place).await {
            // It was fetched together with others, any of which may be what cannot be had. A store that takes
            // too long would take as long for one alone.
            (Err(error), false) if !error.is_slowness => {
                self.fetch_alone(pack, footer, partition, place).await.0
            }
            (read, _) => read,
        }
    }

    /// Begins to fetch the `needed` blocks, neighbours together, and those `ahead` behind them: as far as
    /// there is room to spare, for nobody waits for those.
    pub fn read_ahead(
        &self,
        pack: &PackRef,
        footer: &Arc<Footer>,
        partition: PackedPartition,
        needed: Range<usize>,
        ahead: Ahead,
    ) {
        let Some(row) = footer.partition(partition) else { return };
        let rows = footer.blocks(row);
        // Always cut at the same places, so that what is asked for piece by piece does not come in crumbs.
        let group = |place: usize| (rows[place].pos / TOGETHER_BYTES, place / TOGETHER_BLOCKS);
        let allowed = needed.end + ahead.allowed(rows.get(needed.end..).unwrap_or_default());
        let end = (needed.end + ahead.blocks).min(allowed).min(rows.len());
        let mut next = needed.start;
        while next < end {
            let is_needed = next < needed.end;
            // Who waits does not wait for what may be wanted later.
            let upto = if is_needed { needed.end.min(end) } else { allowed };
            let behind = (next + 1..upto).find(|place| group(*place) != group(next)).unwrap_or(upto);
            if !self.fetch_together(pack, footer, partition, next..behind, is_needed) {
                return;
            }
            next = behind;
        }
    }

    /// Begins to fetch those of the blocks at `places` that no cache has and nobody is fetching, with one
    /// request. False if nobody waits for them and there is no room to spare.
    fn fetch_together(
        &self,
        pack: &PackRef,
        footer: &Arc<Footer>,
        partition: PackedPartition,
        places: Range<usize>,
        is_asked: bool,
    ) -> bool {
        let Some(rows) = footer.partition(partition).map(|row| footer.blocks(row)) else { return true };
        let _beginning = self.under_way.beginning();
        let missing = places.filter_map(|place| {
            let key = block_key(pack, footer, partition, place);
            // In this order: what is no longer being fetched is in the cache by then.
            let fetching = self.under_way.begin(key).filter(|_| !self.blocks.contains(&key));
            fetching.map(|fetching| (key, rows[place], fetching))
        });
        let missing: Vec<_> = missing.collect();
        let rows: Vec<BlockRow> = missing.iter().map(|(_, row, _)| *row).collect();
        let (Some(first), Some(last)) = (rows.first(), rows.last()) else { return true };
        let raw = rows.iter().map(|row| u64::from(row.raw_bytes)).sum::<u64>();
        let stored_bytes = last.range().end - first.pos;
        let kib = kib(raw.max(stored_bytes));
        let spare = if is_asked { None } else { self.spare(kib) };
        if !is_asked && spare.is_none() {
            return false;
        }
        let (cold, pack) = (self.clone(), *pack);
        let fetched = async move {
            // Until all are verified: what is fetched and what it becomes are held together.
            let _room = match spare {
                Some(room) => room,
                None => cold.room(kib, &pack).await?,
            };
            cold.metrics.requested(pack.now(partition), rows.len() as u64, stored_bytes, is_asked);
            let ranges: Vec<Range<u64>> = rows.iter().map(BlockRow::range).collect();
            let stored = cold.store.get_ranges(&pack.name.to_string(), &ranges).await;
            let stored = stored.map_err(|error| ColdError::from(&error))?;
            verified(&pack.name, stored, rows, partition).await.map(Arc::<[_]>::from)
        };
        let fetched = fetched.boxed().shared();
        let blocks = missing.into_iter().enumerate().map(|(at, (key, _, fetching))| {
            let fetched = fetched.clone();
            let block = self.blocks.get_or_fetch(&key, move || async move {
                let read: Result<Bytes, ColdError> = fetched.await?[at].clone();
                read
            });
            (block, fetching)
        });
        let blocks: Vec<_> = blocks.collect();
        tokio::spawn(async move {
            // What is in the cache is no longer being fetched, and not before.
            for (block, _fetching) in blocks {
                if let Err(error) = block.await {
                    tracing::debug!(error = %told(&pack, &error), "not fetched");
                }
            }
        });
        true
    }

    /// Room that nobody who waits will miss. Taken at once: whoever comes later waits behind what was asked for before.
    fn spare(&self, kib: u32) -> Option<OwnedSemaphorePermit> {
        let is_spare = self.fetches.available_permits() >= FETCH_KIB_KEPT + kib as usize;
        is_spare.then(|| Arc::clone(&self.fetches).try_acquire_many_owned(kib).ok()).flatten()
    }

    /// Waits until so much may be fetched of `pack`.
    async fn room(&self, kib: u32, pack: &PackRef) -> Result<OwnedSemaphorePermit, ColdError> {
        let room = room(&self.fetches, kib, pack, self.store.patience()).await;
        room.map_err(|error| ColdError::from(&error))
    }

    /// Fetches one block, unless it is there or being fetched; and whether that was for this call.
    async fn fetch_alone(
        &self,
        pack: &PackRef,
        footer: &Footer,
        partition: PackedPartition,
        place: usize,
    ) -> (Result<Bytes, ColdError>, bool) {
        let row = footer.partition(partition).and_then(|row| footer.blocks(row).get(place)).copied();
        let Some(row) = row else {
            let source = PackError::Contradiction("it does not hold what its shard says");
            let error = StoreError::Damaged { object: pack.name.to_string(), source };
            return (Err(ColdError::from(&error)), true);
        };
        let (cold, pack, asked) = (self.clone(), *pack, Arc::new(AtomicBool::new(false)));
        let (key, is_ours) = (block_key(&pack, footer, partition, place), Arc::clone(&asked));
        let beginning = self.under_way.beginning();
        // Gone early if nobody waits any more: then it may be asked for once more, for nothing.
        let _fetching = self.under_way.begin(key);
        let fetched = self.blocks.get_or_fetch(&key, move || async move {
            asked.store(true, Ordering::Relaxed);
            let _room = cold.room(kib(u64::from(row.stored_bytes.max(row.raw_bytes))), &pack).await?;
            cold.metrics.requested(pack.now(partition), 1, u64::from(row.stored_bytes), true);
            let stored = cold.store.get_of(&pack.name.to_string(), pack.bytes, row.range()).await;
            let stored = stored.map_err(|error| ColdError::from(&error))?;
            let mut read = verified(&pack.name, vec![stored], vec![row], partition).await?;
            read.pop().expect("one for each row")
        });
        drop(beginning);
        let read = fetched.await.map(|entry| entry.value().clone()).map_err(|error| told(&pack, &error));
        (read, is_ours.load(Ordering::Relaxed))
    }
}

/// What so many bytes count as.
fn kib(bytes: u64) -> u32 {
    let kib = bytes.div_ceil(1024).clamp(REQUEST_KIB_MIN, FETCH_KIB_KEPT as u64);
    u32::try_from(kib).expect("limited above")
}

/// Waits until so much may be fetched, no longer than for an answer: a store that gives none keeps all the
/// room, three patiences long.
async fn room(
    fetches: &Arc<Semaphore>,
    kib: u32,
    pack: &PackRef,
    patience: Duration,
) -> Result<OwnedSemaphorePermit, StoreError> {
    let permits = Arc::clone(fetches).acquire_many_owned(kib);
    match tokio::time::timeout(patience, permits).await {
        Ok(permits) => Ok(permits.expect("never closed")),
        Err(_) => Err(StoreError::Crowded { object: pack.name.to_string(), after: patience }),
    }
}

/// The batches of blocks as they were stored, each of them or why not. Decompressing takes milliseconds:
/// other tasks of this worker must not wait for it.
async fn verified(
    pack: &PackName,
    stored: Vec<Bytes>,
    rows: Vec<BlockRow>,
    partition: PackedPartition,
) -> Result<Vec<Result<Bytes, ColdError>>, ColdError> {
    let pack = *pack;
    let read = tokio::task::spawn_blocking(move || {
        let read = stored.iter().zip(&rows).map(|(stored, row)| read_block(stored, row, partition));
        let damaged = |source| StoreError::Damaged { object: pack.to_string(), source };
        read.map(|read| read.map_err(|error| ColdError::from(&damaged(error)))).collect()
    });
    read.await.map_err(|error| {
        ColdError::from(&StoreError::Failed { object: pack.to_string(), source: error.into() })
    })
}

async fn fetch_footer(store: &Store, pack: &PackRef) -> Result<Footer, StoreError> {
    let object = pack.name.to_string();
    let from = pack.bytes.saturating_sub(pack.tail_bytes);
    let tail = store.get_of(&object, pack.bytes, from..pack.bytes).await?;
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
    if let Some(error) = error.downcast_ref::<StoreError>() {
        return error.into();
    }
    error.downcast_ref::<ColdError>().cloned().unwrap_or_else(|| {
        let object = pack.name.to_string();
        let why = format!("object {object}: {}", error.message());
        ColdError { object, is_damage: false, why, is_slowness: false }
    })
}
