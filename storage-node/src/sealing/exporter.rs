//! Takes the states of all shards to the object store, so that a cluster can be rebuilt from there alone.
//!
//! ```text
//!   one moment: all shards' states ──▶ a snapshot of each that changed ──▶ a manifest that names one of each
//! ```
//!
//! All states are of one moment, so that what shards have told each other fits together. Objects that the shards need no
//! more stay until no manifest that is kept names a state in which they were needed.

use std::collections::{BTreeMap, HashSet, VecDeque};
use std::sync::Arc;

use tokio::time::Instant;
use ulid::Ulid;
use weir_protocol::ids::{LogIndex, ShardId, Term, TimestampMs};
use weir_tier::snapshot::{ExportError, Manifest, Published, ShardSnapshot, SnapshotName};
use weir_tier::store::StoreError;

use super::sweep::ORPHAN_AFTER_MS;
use crate::clock;
use crate::raft::group;
use crate::replica::ShardHandle;
use crate::shard::state::{Frozen, PackNo};
use crate::tier::{ARCHIVE_EVERY, Tier};

/// Manifests that are kept, with the snapshots that they name: the newest counts, the others are for the case that it is
/// damaged.
const KEPT_MAX: usize = 3;
/// While somebody waits, writing states takes at most one part in so many of the time.
const SHARE: u32 = 10;

/// The cluster was restored elsewhere, or its data directory runs twice: this node writes nothing to the store any more.
#[derive(Debug, thiserror::Error)]
#[error(
    "manifest {number} in the object store is another's, of epoch {epoch} where this node has {own}: the cluster was \
     restored elsewhere, or a copy of this data directory runs. Nothing more is sealed, deleted or archived from here; \
     stop one of the two"
)]
pub(super) struct Deposed {
    number: u64,
    epoch: u64,
    own: u64,
}

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

/// A manifest that is in the store.
struct Kept {
    number: u64,
    shards: Vec<ShardSnapshot>,
    /// The packs in use in its states, sorted; not known of those that an earlier start wrote.
    packs: Option<BTreeMap<ShardId, Vec<PackNo>>>,
}

/// The state of a shard at the moment of an export.
struct Moment {
    shard: ShardId,
    term: Term,
    index: LogIndex,
    newest: LogIndex,
    frozen: Frozen,
    /// What is waited for, if all of it is in packs.
    wanted: Option<u64>,
}

/// Exports the states of a node's shards.
pub(super) struct Exporter {
    tier: Arc<Tier>,
    shards: Arc<BTreeMap<ShardId, ShardHandle>>,
    /// Of this start.
    writer: u128,
    /// The oldest first.
    kept: VecDeque<Kept>,
    has_begun: bool,
    next_number: u64,
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
            has_begun: false,
            next_number: 1,
            exported: BTreeMap::new(),
            satisfied: BTreeMap::new(),
            next_at: now,
            next_prompted_at: now,
        }
    }

    /// Exports if it is time to.
    pub(super) async fn round(&mut self) -> Result<(), ExporterError> {
        let now = Instant::now();
        let is_due =
            (now >= self.next_at && self.has_news()) || (now >= self.next_prompted_at && self.is_awaited());
        if is_due { self.export().await } else { Ok(()) }
    }

    /// No manifest that is kept names a state in which the pack was needed.
    pub(super) fn may_delete(&self, shard: ShardId, no: PackNo) -> bool {
        let is_needed = |kept: &Kept| match &kept.packs {
            Some(packs) => packs.get(&shard).is_some_and(|packs| packs.binary_search(&no).is_ok()),
            None => true,
        };
        self.has_begun && !self.kept.iter().any(is_needed)
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
    fn is_awaited(&self) -> bool {
        self.shards.iter().any(|(id, shard)| {
            let archive = shard.shared.archive();
            archive.wanted() > self.satisfied.get(id).copied().unwrap_or(0)
                && archive.archived() < shard.state.read().packs().newest()
        })
    }

    /// Writes the states that changed and a manifest, then deletes what is too old.
    pub(super) async fn export(&mut self) -> Result<(), ExporterError> {
        self.begin().await?;
        let began = Instant::now();
        let moments = self.freeze();
        let mut shards = Vec::with_capacity(moments.len());
        for moment in &moments {
            let before = self.kept.back().filter(|kept| kept.packs.is_some());
            let before = before.and_then(|kept| kept.shards.iter().find(|of| of.shard() == moment.shard));
            let is_same = self.exported.get(&moment.shard) == Some(&moment.newest);
            shards.push(match before.filter(|_| is_same) {
                Some(before) => *before,
                None => self.put(moment).await?,
            });
        }
        self.publish(&shards).await?;
        self.tier.metrics.exported(clock::now());
        // Their numbers alone: whoever kept the states' own would have the next change copy all packs of the shard.
        let in_use = |moment: &Moment| moment.frozen.packs().live().map(|(no, _)| no).collect();
        let packs = moments.iter().map(|moment| (moment.shard, in_use(moment)));
        self.kept.push_back(Kept { number: self.next_number - 1, shards, packs: Some(packs.collect()) });
        for moment in moments {
            self.exported.insert(moment.shard, moment.newest);
            self.satisfied.extend(moment.wanted.map(|wanted| (moment.shard, wanted)));
            if let Some(shard) = self.shards.get(&moment.shard) {
                shard.shared.archive().reached(moment.frozen.packs().newest());
            }
        }
        let ended = Instant::now();
        self.next_at = began + self.tier.snapshot_every;
        self.next_prompted_at = ended + ARCHIVE_EVERY.max((ended - began) * SHARE);
        self.prune().await
    }

    /// What is in the store already. Nobody who ran before a restore writes on.
    async fn begin(&mut self) -> Result<(), ExporterError> {
        if self.has_begun {
            return Ok(());
        }
        let exports = &self.tier.exports;
        let mut kept = VecDeque::new();
        for number in exports.numbers().await? {
            self.next_number = number + 1;
            match exports.manifest(number).await {
                Ok(manifest) => {
                    self.check(&manifest)?;
                    kept.push_back(Kept { number, shards: manifest.shards, packs: None });
                }
                Err(ExportError::Wrong { object, why }) => {
                    tracing::warn!(object, %why, "a manifest cannot be read; the next one replaces it");
                    kept.push_back(Kept { number, shards: Vec::new(), packs: None });
                }
                Err(error) => return Err(error.into()),
            }
        }
        self.kept = kept;
        self.has_begun = true;
        Ok(())
    }

    fn check(&self, manifest: &Manifest) -> Result<(), Deposed> {
        let (number, epoch, own) = (manifest.number, manifest.epoch, self.tier.epoch);
        if epoch > own { Err(Deposed { number, epoch, own }) } else { Ok(()) }
    }

    /// The states of all shards at one moment: all of them are locked for it, for as long as it takes to share them.
    fn freeze(&self) -> Vec<Moment> {
        // Before the states: what is applied in between is in them, and its index too.
        let applied: Vec<u64> =
            self.shards.values().map(|shard| group::applied_index(&shard.raft).unwrap_or(0)).collect();
        let guards: Vec<_> = self.shards.values().map(|shard| (shard, shard.state.read())).collect();
        let moments = guards.iter().zip(applied).map(|((shard, state), applied)| {
            let wanted = shard.shared.archive().wanted();
            let is_sealed = state.oldest_unsealed().is_none_or(|row| row.index.0 >= wanted);
            Moment {
                shard: shard.shard,
                term: Term(shard.shared.term()),
                index: LogIndex(applied.max(state.newest().0)),
                newest: state.newest(),
                frozen: state.freeze(),
                wanted: is_sealed.then_some(wanted),
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

    /// Takes the next number. A manifest of this start under it is an attempt whose answer was lost: it is kept, and the
    /// number after it taken.
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
            let theirs = match self.tier.exports.publish(&manifest).await? {
                Published::Ours => {
                    self.next_number += 1;
                    return Ok(());
                }
                Published::Theirs(theirs) => theirs,
            };
            if u128::from(theirs.writer) != self.writer {
                let (number, epoch, own) = (theirs.number, theirs.epoch, self.tier.epoch);
                return Err(Deposed { number, epoch, own }.into());
            }
            self.next_number += 1;
            self.kept.push_back(Kept { number: theirs.number, shards: theirs.shards, packs: None });
        }
    }

    /// Deletes manifests beyond those that are kept, the oldest first, and then the snapshots that only they named.
    async fn prune(&mut self) -> Result<(), ExporterError> {
        while self.kept.len() > KEPT_MAX {
            let exports = &self.tier.exports;
            let Some(oldest) = self.kept.front() else { break };
            exports.delete_manifest(oldest.number).await?;
            let named = |of: &ShardSnapshot| self.kept.iter().skip(1).any(|kept| kept.shards.contains(of));
            for unnamed in oldest.shards.iter().filter(|of| !named(of)) {
                exports.delete_snapshot(&SnapshotName::of(self.tier.cluster, unnamed)).await?;
            }
            self.kept.pop_front();
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
