//! Takes the states of all shards to the object store, so that a cluster can be rebuilt from there alone.
//!
//! ```text
//!   one moment: all shards' states ──▶ a snapshot of each that changed ──▶ a manifest that names one of each
//! ```
//!
//! All states are of one moment, so that what shards have told each other fits together. Objects that the
//! shards need no more stay until no manifest that is kept names a state in which they were needed.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;
use ulid::Ulid;
use weir_protocol::ids::{LogIndex, ShardId, Term, TimestampMs};
use weir_tier::snapshot::{ExportError, Manifest, Published, ShardSnapshot, SnapshotName};
use weir_tier::store::StoreError;

use super::sweep::ORPHAN_AFTER_MS;
use super::unreadable::Unreadable;
use crate::clock;
use crate::raft::group;
use crate::replica::{Archived, ShardHandle};
use crate::shard::state::{Frozen, PackNo};
use crate::tier::{ARCHIVE_EVERY, Tier};

/// Manifests that are kept, with the snapshots that they name: the newest counts, the others are for the case
/// that it is damaged.
const KEPT_MAX: usize = 3;
/// Manifests that could not be deleted yet whose snapshots are remembered.
const STALE_SNAPSHOTS_MAX: usize = 1_000;
/// While somebody waits, writing states takes at most one part in so many of the time.
const SHARE: u32 = 10;

/// The cluster was restored elsewhere, or its data directory runs twice: this node writes nothing to the
/// store any more.
#[derive(Debug, thiserror::Error)]
pub(super) enum Deposed {
    #[error(
        "manifest {number} in the object store is another's, of epoch {epoch} where this node has {own}: the cluster was \
         restored elsewhere, or a copy of this data directory runs. {STOPPED}"
    )]
    Another { number: u64, epoch: u64, own: u64 },
    #[error(
        "{0}. The cluster was restored elsewhere, or a copy of this data directory runs, with another build. {STOPPED}"
    )]
    Newer(ExportError),
}

/// What a node does that is deposed.
const STOPPED: &str = "Nothing more is sealed, deleted or archived from here; stop one of the two";

/// Why states did not get into the store.
#[derive(Debug, thiserror::Error)]
pub(super) enum ExporterError {
    #[error(transparent)]
    Export(#[from] ExportError),
    #[error(transparent)]
    Store(#[from] StoreError),
    #[error(transparent)]
    Deposed(#[from] Deposed),
}

/// A manifest that is in the store, and that a restore may start from.
struct Kept {
    number: u64,
    shards: Vec<ShardSnapshot>,
    /// The packs in use in its states, sorted; not known of those that an earlier start wrote.
    packs: Option<BTreeMap<ShardId, Vec<PackNo>>>,
}

/// A manifest that is to be deleted, and the snapshots that no later one names.
struct Stale {
    number: u64,
    snapshots: Vec<SnapshotName>,
}

/// A state of a shard that is in the store, whether a manifest names it or not.
#[derive(Clone, Copy)]
struct Written {
    newest: LogIndex,
    snapshot: ShardSnapshot,
}

/// The state of a shard at the moment of an export.
struct Moment {
    shard: ShardId,
    term: Term,
    index: LogIndex,
    newest: LogIndex,
    frozen: Frozen,
    /// What is waited for, if all of it that can be read is in packs.
    wanted: Option<u64>,
    /// All live records of entries below this are in packs.
    sealed_to: LogIndex,
}

/// Exports the states of a node's shards.
pub(super) struct Exporter {
    tier: Arc<Tier>,
    shards: Arc<BTreeMap<ShardId, ShardHandle>>,
    /// Of this start.
    writer: u128,
    /// The oldest first; at most [`KEPT_MAX`].
    kept: VecDeque<Kept>,
    /// The oldest first. It grows only while the store deletes nothing.
    stale: VecDeque<Stale>,
    has_begun: bool,
    next_number: u64,
    /// The newest manifest that was found at the start, or that this start knows to be in the store.
    known: Option<u64>,
    /// A manifest of this start is in the store. Before, others may come to be there that an earlier start
    /// sent: a store may take what was on its way when a process died.
    has_published: bool,
    /// What has the next number is not known: an attempt to take it was not answered.
    is_unsettled: bool,
    /// This number was found taken by what cannot be read.
    unreadable: Option<u64>,
    is_pruning_failing: bool,
    written: BTreeMap<ShardId, Written>,
    /// The newest entry of each shard that the newest manifest knows.
    exported: BTreeMap<ShardId, LogIndex>,
    /// What was waited for and is archived.
    satisfied: BTreeMap<ShardId, u64>,
    next_at: Instant,
    next_prompted_at: Instant,
}

impl Exporter {
    pub(super) fn new(tier: Arc<Tier>, shards: Arc<BTreeMap<ShardId, ShardHandle>>) -> Self {
        let now = Instant::now();
        Self {
            tier,
            shards,
            writer: Ulid::new().0,
            kept: VecDeque::new(),
            stale: VecDeque::new(),
            has_begun: false,
            next_number: 1,
            known: None,
            has_published: false,
            is_unsettled: false,
            unreadable: None,
            is_pruning_failing: false,
            written: BTreeMap::new(),
            exported: BTreeMap::new(),
            satisfied: BTreeMap::new(),
            next_at: now,
            next_prompted_at: now,
        }
    }

    /// Exports if it is time to; true if it did. What is `unreadable` is waited for by nobody: only somebody
    /// who trims can help.
    pub(super) async fn round(&mut self, unreadable: &Unreadable) -> Result<bool, ExporterError> {
        let now = Instant::now();
        let is_awaited = self.is_awaited();
        let is_due = (now >= self.next_at && self.has_news()) || (now >= self.next_prompted_at && is_awaited);
        if is_due {
            let _hurried = is_awaited.then(|| self.tier.cold.store().hurry());
            self.export(unreadable).await?;
        }
        Ok(is_due)
    }

    /// No manifest that is kept, or may be there though its answer was lost, names a state in which the pack
    /// was needed.
    pub(super) fn may_delete(&self, shard: ShardId, no: PackNo) -> bool {
        let is_needed = |kept: &Kept| match &kept.packs {
            Some(packs) => packs.get(&shard).is_some_and(|packs| packs.binary_search(&no).is_ok()),
            None => true,
        };
        self.has_begun && !self.is_unsettled && !self.kept.iter().any(is_needed)
    }

    /// Something changed since the newest manifest, or its successor would let a pack go.
    fn has_news(&self) -> bool {
        self.shards.iter().any(|(id, shard)| {
            let state = shard.state.read();
            let is_known = self.exported.get(id) == Some(&state.newest());
            !is_known || state.packs().unneeded().any(|(no, _)| !self.may_delete(*id, no))
        })
    }

    /// Somebody waits for packs that no manifest names yet.
    pub(super) fn is_awaited(&self) -> bool {
        self.shards.iter().any(|(id, shard)| {
            let archive = shard.shared.archive();
            archive.wanted() > self.satisfied.get(id).copied().unwrap_or(0)
                && archive.archived().packs < shard.state.read().packs().newest()
        })
    }

    /// Writes the states that changed and a manifest, then deletes what is too old. Whatever becomes of it,
    /// the next one has its time: a store that fails is not sent all states again and again.
    pub(super) async fn export(&mut self, unreadable: &Unreadable) -> Result<(), ExporterError> {
        let began = Instant::now();
        let exported = self.export_now(unreadable).await;
        let ended = Instant::now();
        self.next_at = began + self.tier.snapshot_every;
        self.next_prompted_at = ended + ARCHIVE_EVERY.max((ended - began) * SHARE);
        exported?;
        self.prune().await;
        Ok(())
    }

    async fn export_now(&mut self, unreadable: &Unreadable) -> Result<(), ExporterError> {
        self.begin().await?;
        let moments = self.freeze(unreadable);
        let mut shards = Vec::with_capacity(moments.len());
        for moment in &moments {
            shards.push(self.write(moment).await?);
        }
        self.is_unsettled = true;
        self.publish(&shards).await?;
        self.is_unsettled = false;
        // Before anybody is told that something is archived.
        if let Some(known) = &self.tier.known {
            known.note_manifest().await;
        }
        self.tier.metrics.exported(clock::now());
        // Their numbers alone: whoever kept the states' own would have the next change copy all packs of the shard.
        let in_use = |moment: &Moment| moment.frozen.packs().live().map(|(no, _)| no).collect();
        let packs = moments.iter().map(|moment| (moment.shard, in_use(moment)));
        self.keep(Kept { number: self.next_number - 1, shards, packs: Some(packs.collect()) });
        for moment in moments {
            self.exported.insert(moment.shard, moment.newest);
            self.satisfied.extend(moment.wanted.map(|wanted| (moment.shard, wanted)));
            if let Some(shard) = self.shards.get(&moment.shard) {
                let (packs, entries_to) = (moment.frozen.packs().newest(), moment.sealed_to);
                shard.shared.archive().reached(Archived { packs, entries_to });
            }
        }
        Ok(())
    }

    /// The state of a shard is in the store: written now, or before if it is the same since.
    async fn write(&mut self, moment: &Moment) -> Result<ShardSnapshot, ExporterError> {
        let before = self.written.get(&moment.shard).filter(|written| written.newest == moment.newest);
        if let Some(written) = before {
            return Ok(written.snapshot);
        }
        let snapshot = self.put(moment).await?;
        self.written.insert(moment.shard, Written { newest: moment.newest, snapshot });
        Ok(snapshot)
    }

    /// A manifest is in the store; the oldest of too many is to go, and no longer keeps any pack.
    fn keep(&mut self, kept: Kept) {
        self.kept.push_back(kept);
        while self.kept.len() > KEPT_MAX {
            let Some(oldest) = self.kept.pop_front() else { return };
            let named = |of: &&ShardSnapshot| !self.kept.iter().any(|kept| kept.shards.contains(of));
            // Beyond some they are left to the sweep, which needs no list of them.
            let has_room = self.stale.len() < STALE_SNAPSHOTS_MAX;
            let unnamed = oldest.shards.iter().filter(named).filter(|_| has_room);
            let snapshots = unnamed.map(|of| SnapshotName::of(self.tier.cluster, of)).collect();
            self.stale.push_back(Stale { number: oldest.number, snapshots });
        }
    }

    /// What is in the store already. Nobody who ran before a restore writes on. Only the newest are read, one
    /// that can be at least: where the store deletes nothing there are a hundred thousand after a month.
    async fn begin(&mut self) -> Result<(), ExporterError> {
        if self.has_begun {
            return Ok(());
        }
        let tier = Arc::clone(&self.tier);
        let mut numbers = tier.exports.numbers().await?;
        let (mut found, mut is_checked) = (VecDeque::new(), false);
        while found.len() < KEPT_MAX || !is_checked {
            let Some(number) = numbers.pop() else { break };
            let shards = match tier.exports.manifest(number).await {
                Ok(manifest) => {
                    self.check(&manifest)?;
                    is_checked = true;
                    manifest.shards
                }
                Err(error) if error.is_newer() => return Err(Deposed::Newer(error).into()),
                Err(ExportError::Wrong { object, why }) => {
                    tracing::warn!(object, %why, "a manifest cannot be read; the next one replaces it");
                    Vec::new()
                }
                Err(error) => return Err(error.into()),
            };
            found.push_front(Kept { number, shards, packs: None });
        }
        // What only these name is left to the sweep.
        let stale = |number| Stale { number, snapshots: Vec::new() };
        self.stale = numbers.into_iter().map(stale).collect();
        self.known = found.back().map(|newest| newest.number);
        self.next_number = self.known.map_or(1, |newest| newest + 1);
        found.into_iter().for_each(|kept| self.keep(kept));
        self.has_begun = true;
        Ok(())
    }

    fn check(&self, manifest: &Manifest) -> Result<(), Deposed> {
        let (number, epoch, own) = (manifest.number, manifest.epoch, self.tier.epoch);
        if epoch > own { Err(Deposed::Another { number, epoch, own }) } else { Ok(()) }
    }

    /// The states of all shards at one moment: all of them are locked for it, for as long as it takes to share them.
    fn freeze(&self, unreadable: &Unreadable) -> Vec<Moment> {
        // Before the states: what is applied in between is in them, and its index too.
        let applied: Vec<u64> =
            self.shards.values().map(|shard| group::applied_index(&shard.raft).unwrap_or(0)).collect();
        let guards: Vec<_> = self.shards.values().map(|shard| (shard, shard.state.read())).collect();
        let moments = guards.iter().zip(applied).map(|((shard, state), applied)| {
            let wanted = shard.shared.archive().wanted();
            let oldest = state.oldest_unsealed_but(|key| unreadable.has(shard.shard, key));
            let is_sealed = oldest.is_none_or(|row| row.index.0 >= wanted);
            Moment {
                shard: shard.shard,
                term: Term(shard.shared.term()),
                index: LogIndex(applied.max(state.newest().0)),
                newest: state.newest(),
                frozen: state.freeze(),
                wanted: is_sealed.then_some(wanted),
                sealed_to: state.oldest_unsealed().map_or(LogIndex(state.newest().0 + 1), |row| row.index),
            }
        });
        moments.collect()
    }

    async fn put(&self, moment: &Moment) -> Result<ShardSnapshot, ExporterError> {
        let (shard, term, index, attempt) = (moment.shard, moment.term, moment.index, Ulid::new());
        let frozen = moment.frozen.clone();
        let name = SnapshotName { cluster: self.tier.cluster, shard, term, index, attempt };
        let failed = |source: tokio::task::JoinError| StoreError::Failed {
            object: name.to_string(),
            source: source.into(),
        };
        let state = tokio::task::spawn_blocking(move || frozen.encode()).await.map_err(failed)?;
        let uploaded = self.tier.exports.put_snapshot(name, state).await?;
        self.tier.metrics.snapshot(uploaded.bytes);
        Ok(ShardSnapshot {
            shard: shard.0,
            term: term.0,
            index: index.0,
            attempt: attempt.0.into(),
            bytes: uploaded.bytes,
            crc32c: uploaded.crc32c,
            epoch: self.tier.epoch,
        })
    }

    /// Takes the next number. A manifest of this start under it is an attempt whose answer was lost, and one
    /// of another, there or beyond, that is met before this start has any is as if it had been there at the
    /// start: it is kept, and the number after it taken.
    async fn publish(&mut self, shards: &[ShardSnapshot]) -> Result<(), ExporterError> {
        loop {
            let manifest = Manifest {
                number: self.next_number,
                epoch: self.tier.epoch,
                written_ms: clock::now().0,
                data_shards: self.tier.data_shards,
                dedupe_rows: self.tier.dedupe_rows,
                writer: self.writer.into(),
                shards: shards.to_vec(),
            };
            let theirs = match self.tier.exports.publish(&manifest, self.known).await {
                Ok(Published::Ours) => {
                    self.has_published = true;
                    self.known = Some(self.next_number);
                    self.next_number += 1;
                    return Ok(());
                }
                Ok(Published::Theirs(theirs)) => theirs,
                Err(error) if error.is_newer() => return Err(Deposed::Newer(error).into()),
                // Found twice: it is not only what came on the way that is damaged. As at a start the next
                // one replaces it.
                Err(ExportError::Wrong { object, why }) if self.unreadable == Some(self.next_number) => {
                    tracing::warn!(object, %why, "a manifest cannot be read; the next one replaces it");
                    self.keep(Kept { number: self.next_number, shards: Vec::new(), packs: None });
                    self.next_number += 1;
                    continue;
                }
                Err(error) => {
                    if matches!(error, ExportError::Wrong { .. }) {
                        self.unreadable = Some(self.next_number);
                    }
                    return Err(error.into());
                }
            };
            self.check(&theirs)?;
            let is_ours = u128::from(theirs.writer) == self.writer;
            if self.has_published && !is_ours {
                let (number, epoch, own) = (theirs.number, theirs.epoch, self.tier.epoch);
                return Err(Deposed::Another { number, epoch, own }.into());
            }
            self.has_published |= is_ours;
            // It is not known yet: whether others had gone beyond it when it was written was not answered either.
            self.next_number = theirs.number + 1;
            self.keep(Kept { number: theirs.number, shards: theirs.shards, packs: None });
        }
    }

    /// Deletes manifests beyond those that are kept, the oldest first, and then the snapshots that only they
    /// named. A store that deletes nothing keeps nobody from writing there.
    async fn prune(&mut self) {
        let pruned = self.delete_stale().await;
        let was_failing = std::mem::replace(&mut self.is_pruning_failing, pruned.is_err());
        if let Err(error) = pruned {
            self.tier.metrics.failed();
            if !was_failing {
                tracing::warn!(%error, "manifests and snapshots that are too old stay; deleting them is tried again");
            }
        }
    }

    async fn delete_stale(&mut self) -> Result<(), StoreError> {
        while let Some(oldest) = self.stale.front_mut() {
            self.tier.exports.delete_manifest(oldest.number).await?;
            while let Some(snapshot) = oldest.snapshots.last() {
                // Of a shard that does not change it may be named again, where those in between could not be read.
                let mut named = self.kept.iter().flat_map(|kept| &kept.shards);
                if named.all(|of| u128::from(of.attempt) != snapshot.attempt.0) {
                    self.tier.exports.delete_snapshot(snapshot).await?;
                }
                oldest.snapshots.pop();
            }
            self.stale.pop_front();
        }
        Ok(())
    }

    /// Deletes snapshots that no manifest names: left by a crash, or by attempts that failed.
    pub(super) async fn sweep(&self, now: TimestampMs) -> Result<(), ExporterError> {
        let named: HashSet<u128> =
            self.kept.iter().flat_map(|kept| &kept.shards).map(|of| of.attempt.into()).collect();
        for name in self.tier.exports.snapshots().await? {
            let age_ms = now.0.saturating_sub(name.attempt.timestamp_ms());
            if !named.contains(&name.attempt.0) && age_ms > ORPHAN_AFTER_MS {
                tracing::info!(%name, "a snapshot that no manifest names is deleted");
                self.tier.exports.delete_snapshot(&name).await?;
            }
        }
        Ok(())
    }
}
