//! The task that seals: old batches become packs, packs are committed, objects that nothing needs are deleted.

use std::collections::{BTreeMap, HashSet};
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use ulid::Ulid;
use weir_journal::Usage;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{LogIndex, ShardId, Term};
use weir_tier::pack::{PackIdentity, PackSummary, PackWriter};
use weir_tier::store::{Listed, PackName, StoreError};

use super::deleting::Deleter;
use super::exporter::{Exporter, ExporterError};
use super::making::{PARTITIONS_MAX, SealError, commit, finish, pack_from_log, room_for, seal_of, send};
use super::source;
use super::sweep;
use super::unreadable::Unreadable;
use crate::clock;
use crate::replica::ShardHandle;
use crate::shard::command::Change;
use crate::shard::state::{BatchRow, PartitionKey, oldest_batches};
use crate::tier::{ARCHIVE_EVERY, Tier};

/// How often it looks.
const ROUND: Duration = Duration::from_millis(250);
/// After a failure it waits this long.
pub(super) const PAUSE: Duration = Duration::from_secs(2);
/// Bytes that are read and compressed at a time. Less keeps the thread that does it, which others wait for, from
/// working for long without a pause.
const STEP_BYTES: u64 = 512 << 10;
/// Bytes per second at which packs are made while there is room: publishing goes on beside it.
const PACE_BYTES_PER_SECOND: u64 = 48 << 20;
/// From this share of the journal on, what lies in its older half is sealed however young it is.
const PRESSURE_PERMILLE: u128 = 500;
/// How often the store is searched for objects that nobody knows.
const SWEEP_EVERY: Duration = Duration::from_secs(3_600);
/// When the manifest for that could not be written, it is tried again after this.
const SWEEP_AGAIN: Duration = Duration::from_secs(60);
/// Memory that packs were made in and that nothing needed for so long is given back.
pub(super) const RELEASE_EVERY: Duration = Duration::from_secs(10);
/// Objects that one search has in memory.
const SWEEP_OBJECTS_MAX: usize = 100_000;

/// Seals for the shards of a node, one pack at a time.
pub struct Sealer {
    tier: Arc<Tier>,
    shards: Arc<BTreeMap<ShardId, ShardHandle>>,
    exporter: Exporter,
    deleter: Deleter,
    unreadable: Unreadable,
    /// When a shard may make a pack again because somebody waits for it.
    next_prompted: BTreeMap<ShardId, Instant>,
    pub(super) next_sweep: Instant,
    next_release: Instant,
    is_failing: bool,
}

impl Sealer {
    /// A sealer of `shards`.
    #[must_use]
    pub fn new(tier: Arc<Tier>, shards: Arc<BTreeMap<ShardId, ShardHandle>>) -> Self {
        let exporter = Exporter::new(Arc::clone(&tier), Arc::clone(&shards));
        let (next_prompted, next_sweep) = (BTreeMap::new(), Instant::now());
        let next_release = next_sweep + RELEASE_EVERY;
        let (deleter, unreadable) = (Deleter::default(), Unreadable::default());
        let is_failing = false;
        Self {
            tier,
            shards,
            exporter,
            deleter,
            unreadable,
            next_prompted,
            next_sweep,
            next_release,
            is_failing,
        }
    }

    /// Runs until the node stops. A pack that is being made then is left: its object is nobody's and is swept.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            let pause = if self.is_failing { PAUSE } else { ROUND };
            let round = async {
                tokio::time::sleep(pause).await;
                self.round().await
            };
            let done = tokio::select! {
                _ = stop.wait_for(|stopping| *stopping) => return,
                done = round => done,
            };
            let was_failing = std::mem::replace(&mut self.is_failing, done.is_err());
            match done {
                Err(SealError::Export(ExporterError::Deposed(deposed))) => {
                    self.tier.metrics.failed();
                    self.tier.uploads.attempted(ShardId::META, Some(deposed.to_string()));
                    self.tier.is_deposed.store(true, Ordering::Release);
                    tracing::error!("{deposed}");
                    // Whatever else ends this task ends the node: reads and what is not archived go on.
                    let _ = stop.wait_for(|stopping| *stopping).await;
                    return;
                }
                Err(error) if !was_failing => {
                    self.tier.metrics.failed();
                    tracing::warn!(%error, "cold data does not leave the journal; it is tried again");
                }
                Err(_) => self.tier.metrics.failed(),
                Ok(()) if was_failing => tracing::info!("cold data leaves the journal again"),
                Ok(()) => {}
            }
        }
    }

    /// Seals what is due, a pack of each shard in turn: one that always has more, or that cannot be sealed,
    /// keeps no other waiting, nor who waits for another's. Nor does a store that deletes nothing. The first
    /// failure is told at the end, which comes soon after it: or a shard that failed once would not be tried
    /// again while others have more.
    pub(super) async fn round(&mut self) -> Result<(), SealError> {
        let shards = Arc::clone(&self.shards);
        let mut prompted: BTreeMap<ShardId, u64> = BTreeMap::new();
        let mut failed: Vec<(ShardId, SealError)> = Vec::new();
        let (mut is_more, mut deletes, mut tells, mut ends) = (true, true, true, None);
        while std::mem::take(&mut is_more) && ends.is_none_or(|ends| Instant::now() < ends) {
            for (id, shard) in &*shards {
                if shard.journal.failure().is_some() {
                    // Nothing can be committed any more.
                    return Ok(());
                }
                self.tier.uploads.looked(*id, self.unreadable.told(shard));
                source::forget(&self.tier, shard);
                if failed.iter().all(|(of, _)| of != id) {
                    // Asked at every turn: a shard that always has more may keep the round from ending. What
                    // was waited for once is sealed in this round, however many packs it takes.
                    let prompted = prompted.entry(*id).or_default();
                    *prompted = self.prompted(shard).max(*prompted);
                    let is_due = self.is_due(shard, *prompted);
                    let sealed = if is_due { self.seal(shard).await } else { Ok(()) };
                    is_more |= is_due && sealed.is_ok();
                    match sealed {
                        // The next pack is made without it.
                        Err(error @ SealError::Unreadable(_)) => {
                            is_more = true;
                            failed.push((ShardId::META, error));
                        }
                        sealed => {
                            self.tier.uploads.attempted(*id, sealed.as_ref().err().map(ToString::to_string));
                            failed.extend(sealed.err().map(|error| (*id, error)));
                        }
                    }
                }
                let began = Instant::now();
                if deletes && let Err(error) = self.deleter.round(&self.tier, shard, &self.exporter).await {
                    // One that does not answer is asked once a round; what it refuses is of one shard.
                    deletes = began.elapsed() < PAUSE;
                    failed.push((ShardId::META, error));
                }
            }
            match if tells { self.tell().await } else { Ok(()) } {
                Ok(()) => {}
                // Another writes for the cluster: nothing is left to do here.
                Err(error @ SealError::Export(ExporterError::Deposed(_))) => return Err(error),
                Err(error) => {
                    tells = false;
                    failed.push((ShardId::META, error));
                }
            }
            self.release_memory(Instant::now());
            if !failed.is_empty() {
                ends.get_or_insert(Instant::now() + PAUSE);
            }
        }
        failed.into_iter().next().map_or(Ok(()), |(_, error)| Err(error))
    }

    /// Gives back now and then what packs are no longer made in.
    pub(super) fn release_memory(&mut self, now: Instant) {
        if now >= self.next_release {
            self.next_release = now + RELEASE_EVERY;
            self.tier.pack_memory.release_unused();
        }
    }

    /// Takes the states of the shards to the store when that is due, and looks now and then for what nobody needs.
    async fn tell(&mut self) -> Result<(), SealError> {
        let exported = self.exporter.round(&self.unreadable).await?;
        if Instant::now() >= self.next_sweep {
            // Before the work: a store that fails is not searched again and again.
            self.next_sweep = Instant::now() + SWEEP_AGAIN;
            // Only who writes for the cluster knows what nobody needs: a manifest of just now says that this node does.
            if !exported {
                self.exporter.export(&self.unreadable).await?;
            }
            self.next_sweep = Instant::now() + SWEEP_EVERY;
            let swept = self.sweep(SWEEP_OBJECTS_MAX).await;
            let unstaged = self.sweep_staged().await;
            self.exporter.sweep(clock::now()).await?;
            swept.and(unstaged)?;
        }
        Ok(())
    }

    /// Entries below this are to be sealed now, because somebody waits for them; at most once in a while.
    fn prompted(&mut self, shard: &ShardHandle) -> u64 {
        let wanted = shard.shared.archive().wanted();
        let is_wanted = self.oldest(shard).is_some_and(|oldest| oldest.index.0 < wanted);
        let now = Instant::now();
        if !is_wanted || self.next_prompted.get(&shard.shard).is_some_and(|next| now < *next) {
            return 0;
        }
        self.next_prompted.insert(shard.shard, now + ARCHIVE_EVERY);
        wanted
    }

    /// The shard has a batch that is old enough, in the way of a journal that fills up, or below `prompted`.
    fn is_due(&self, shard: &ShardHandle, prompted: u64) -> bool {
        let oldest = shard.state.read().oldest_unsealed();
        let lag = oldest.map_or(0, |row| clock::now().0.saturating_sub(row.ts.0));
        self.tier.metrics.lag(shard.shard, Duration::from_millis(lag));
        self.oldest(shard).is_some_and(|oldest| {
            let age = clock::now().0.saturating_sub(oldest.ts.0);
            Duration::from_millis(age) >= self.tier.seal_after
                || oldest.index.0 < prompted
                || is_in_the_way(&shard.journal.usage(), shard, oldest.index)
        })
    }

    /// Somebody waits for a pack or a manifest, or the journal, which is one for all, for room: one pack is
    /// made at a time, so whatever shard that concerns waits behind this one.
    fn is_urgent(&self, usage: &Usage) -> bool {
        let waits = |shard: &ShardHandle| {
            self.oldest(shard).is_some_and(|oldest| {
                oldest.index.0 < shard.shared.archive().wanted() || is_in_the_way(usage, shard, oldest.index)
            })
        };
        self.exporter.is_awaited() || self.shards.values().any(waits)
    }

    /// The oldest batch that no pack holds and that can be read, as far as is known.
    fn oldest(&self, shard: &ShardHandle) -> Option<BatchRow> {
        shard.state.read().oldest_unsealed_but(|key| self.unreadable.has(shard.shard, key))
    }

    /// Makes one pack of the oldest batches and commits it.
    async fn seal(&mut self, shard: &ShardHandle) -> Result<(), SealError> {
        let mut partitions = shard.state.read().unsealed(PARTITIONS_MAX + self.unreadable.count());
        partitions.retain(|(key, _)| !self.unreadable.has(shard.shard, *key));
        partitions.truncate(PARTITIONS_MAX);
        let most = self.tier.seal_bytes;
        // Ten thousand rows and more are looked at and sorted.
        let rows = self.tier.background.run(move || oldest_batches(&partitions, most)).await?;
        let entries = || rows.iter().map(|(_, row)| row.index);
        let (Some(first), Some(last)) = (entries().min(), entries().max()) else { return Ok(()) };
        let room = room_for(shard, rows.chunk_by(|(one, _), (next, _)| one == next).count())?;
        let term = Term(shard.shared.term());
        let (cluster, attempt) = (self.tier.cluster, Ulid::new());
        let name = PackName { cluster, shard: shard.shard, first, last, term, attempt };
        let began = Instant::now();
        let _under_way = self.tier.uploads.begin(&rows);
        let summary = match self.upload(shard, &name, &rows).await {
            Err(SealError::Refused(refusal)) if refusal.error_code() == ErrorCode::Corrupt => {
                for step in steps(&rows) {
                    self.unreadable.look(shard, step).await;
                }
                let told = self.unreadable.told(shard).map(SealError::Unreadable);
                return Err(told.unwrap_or(SealError::Refused(refusal)));
            }
            uploaded => uploaded?,
        };
        let seal = seal_of(&name, &summary);
        if commit(shard, &self.tier, &name, Change::Seal(seal), room).await? {
            let raw_bytes: u64 = summary.partitions.iter().map(|row| row.bytes).sum();
            self.tier.metrics.sealed(raw_bytes, summary.pack_bytes);
            self.tier.cold.metrics().wrote(&summary);
            let (took, partitions) = (began.elapsed(), summary.partitions.len());
            tracing::debug!(pack = %name, bytes = summary.pack_bytes, raw_bytes, partitions, ?took, "sealed");
        }
        Ok(())
    }

    /// Sends the pack while it is made: a step's batches, a block and an upload's parts are in memory.
    async fn upload(
        &self,
        shard: &ShardHandle,
        name: &PackName,
        rows: &[(PartitionKey, BatchRow)],
    ) -> Result<PackSummary, SealError> {
        let identity = PackIdentity { cluster: name.cluster, shard: name.shard, term: name.term };
        let mut writer = PackWriter::new(identity, self.tier.codec, &self.tier.pack_memory);
        let mut upload = self.tier.cold.store().upload(name.to_string());
        let (mut is_paced, mut _hurried) = (false, None);
        for step in steps(rows) {
            let began = Instant::now();
            let packed = async {
                let (made, result) = pack_from_log(&self.tier, shard, writer, step.to_vec()).await?;
                Ok::<_, SealError>((made, result?))
            };
            let sent = match packed.await {
                Ok((made, ready)) => {
                    writer = made;
                    send(&mut upload, ready).await.map_err(SealError::from)
                }
                Err(error) => {
                    upload.abort().await;
                    return Err(error);
                }
            };
            if let Err(error) = sent {
                upload.abort().await;
                return Err(error);
            }
            let bytes: u64 = step.iter().map(|(_, row)| u64::from(row.len)).sum();
            // Asked at every step: who waits may come while the pack is made.
            let is_urgent = self.is_urgent(&shard.journal.usage());
            _hurried = is_urgent.then(|| self.tier.cold.store().hurry());
            if !is_urgent {
                is_paced = true;
                let pace = Duration::from_micros(bytes * 1_000_000 / PACE_BYTES_PER_SECOND);
                tokio::time::sleep_until(began + pace).await;
            }
        }
        if !is_paced {
            self.tier.metrics.hurried();
        }
        finish(&self.tier, writer, upload).await
    }

    /// Deletes objects that nobody knows, of at most `most` at a time: where there are more, of one folder
    /// after the other.
    ///
    /// # Errors
    /// The first object that the store does not let go; others go nevertheless.
    pub(super) async fn sweep(&self, most: usize) -> Result<(), SealError> {
        let (store, cluster) = (self.tier.cold.store(), self.tier.cluster);
        let listed = store.list(&PackName::folder(cluster), most).await?;
        if listed.len() < most {
            return self.sweep_listed(&listed).await;
        }
        let mut swept = Ok(());
        for folder in PackName::folders(cluster) {
            let listed = store.list(&folder, most).await?;
            let done = self.sweep_listed(&listed).await;
            let is_away = matches!(done, Err(SealError::Store(StoreError::TimedOut { .. })));
            swept = swept.and(done);
            if is_away {
                break;
            }
        }
        swept
    }

    /// Deletes what a crash left of writes to a store that is a folder, once it is as old as an unknown object is then.
    async fn sweep_staged(&self) -> Result<(), SealError> {
        let before_ms = clock::now().0.saturating_sub(sweep::ORPHAN_AFTER_MS);
        let (store, folder) = (self.tier.cold.store(), self.tier.cluster.to_string());
        let files = store.delete_staged(&folder, before_ms).await?;
        if files > 0 {
            tracing::info!(files, "what was left of interrupted writes is deleted");
        }
        Ok(())
    }

    async fn sweep_listed(&self, listed: &[Listed]) -> Result<(), SealError> {
        let names = || listed.iter().map(|object| object.name.as_str());
        let attempts: HashSet<u128> =
            names().filter_map(|name| Some(name.parse::<PackName>().ok()?.attempt.0)).collect();
        let under_way = self.tier.uploads.attempts();
        let known = |shard: &ShardHandle| -> HashSet<u128> {
            let state = shard.state.read();
            let packs = state.packs();
            let all = packs.live().chain(packs.unneeded()).map(|(_, pack)| pack.attempt);
            all.chain(under_way.iter().copied()).filter(|attempt| attempts.contains(attempt)).collect()
        };
        let known = self.shards.iter().map(|(id, shard)| (*id, known(shard))).collect();
        let mut swept = Ok(());
        for name in sweep::orphans(names(), &known, clock::now()) {
            tracing::info!(name, "an object that no log knows is deleted");
            let deleted = self.tier.cold.store().delete(name).await;
            if matches!(deleted, Err(StoreError::TimedOut { .. })) {
                return Ok(deleted?);
            }
            swept = swept.and(deleted.map_err(SealError::from));
        }
        swept
    }
}

/// The journal is half full, and this entry lies in the older half of its files.
fn is_in_the_way(usage: &Usage, shard: &ShardHandle, entry: LogIndex) -> bool {
    let limit = usage.limit_bytes.saturating_sub(shard.journal.config().control_reserve_bytes).max(1);
    let is_half_full = u128::from(usage.used_bytes) * 1_000 >= u128::from(limit) * PRESSURE_PERMILLE;
    is_half_full && newer_half_from(usage, shard).is_none_or(|newer| entry.0 < newer)
}

/// The shard's lowest entry in the newer half of the journal's files.
fn newer_half_from(usage: &Usage, shard: &ShardHandle) -> Option<u64> {
    let newer = usage.files.iter().skip(usage.files.len().div_ceil(2));
    let pins = newer.flat_map(|file| &file.pinned_by);
    pins.filter(|(stream, _)| *stream == shard.stream()).map(|(_, index)| *index).min()
}

/// Rows in runs of about [`STEP_BYTES`].
fn steps(rows: &[(PartitionKey, BatchRow)]) -> impl Iterator<Item = &[(PartitionKey, BatchRow)]> {
    let mut rest = rows;
    std::iter::from_fn(move || {
        let mut bytes = 0;
        let fits = |(_, row): &&(PartitionKey, BatchRow)| {
            let has_room = bytes < STEP_BYTES;
            bytes += u64::from(row.len);
            has_room
        };
        let (step, behind) = rest.split_at(rest.iter().take_while(fits).count());
        rest = behind;
        (!step.is_empty()).then_some(step)
    })
}
