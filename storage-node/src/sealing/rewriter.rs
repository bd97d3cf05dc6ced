//! The task that rewrites: what still lives of mostly dead packs moves to a new one, and their objects come free.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::sync::watch;
use tokio::time::Instant;
use ulid::Ulid;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{LogIndex, ShardId, Term};
use weir_protocol::rpc::Refusal;
use weir_tier::pack::{PackIdentity, PackSummary, PackWriter};
use weir_tier::store::{PackName, Upload};

use super::compaction::Window;
use super::compactor::Compactor;
use super::making::{SealError, commit, finish, pack, room_for, seal_of, send};
use super::plan::{LeftOut, Plan, Run, is_worth_it, plan};
use super::source::Source;
use crate::clock;
use crate::replica::ShardHandle;
use crate::shard::command::{Change, Rewrite, Seal};
use crate::shard::state::{PackNo, Packs, Partition, SharedPartitions};
use crate::tier::Tier;

/// How often it looks.
const ROUND: Duration = Duration::from_secs(2);
/// After a failure it waits this long.
const PAUSE: Duration = Duration::from_secs(30);
/// A pack that could not be read is in no plan for this long.
const LEFT_OUT_FOR: Duration = Duration::from_secs(600);
/// Bytes of batches per second that are copied: sealing and readers have the store and the processors before it.
const PACE_BYTES_PER_SECOND: u64 = 16 << 20;

/// What a shard's packs and partitions were when the plan was made.
struct Seen {
    packs: Arc<Packs>,
    partitions: SharedPartitions,
}

/// Rewrites for the shards of a node, one pack at a time.
pub struct Rewriter {
    tier: Arc<Tier>,
    shards: Arc<BTreeMap<ShardId, ShardHandle>>,
    below_permille: u64,
    left_out: BTreeMap<ShardId, LeftOut>,
    /// Where nothing fitted together it is looked again at this time.
    next_plan: BTreeMap<ShardId, Instant>,
    compactor: Compactor,
}

impl Rewriter {
    /// A rewriter of `shards`, for packs of which less than `below_permille` thousandths are referred to.
    #[must_use]
    pub fn new(tier: Arc<Tier>, shards: Arc<BTreeMap<ShardId, ShardHandle>>, below_permille: u64) -> Self {
        let compactor = Compactor::new(Arc::clone(&tier), Window::default());
        let (left_out, next_plan) = (BTreeMap::new(), BTreeMap::new());
        Self { tier, shards, below_permille, left_out, next_plan, compactor }
    }

    /// Runs until the node stops. A pack that is being made then is left: its object is nobody's and is
    /// swept, and what it was to replace stays as it is.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        let mut is_failing = false;
        loop {
            let pause = if is_failing { PAUSE } else { ROUND };
            let round = async {
                tokio::time::sleep(pause).await;
                self.round().await
            };
            let done = tokio::select! {
                _ = stop.wait_for(|stopping| *stopping) => return,
                done = round => done,
            };
            if let Err(error) = &done {
                self.tier.metrics.failed();
                if !is_failing {
                    tracing::warn!(%error, "a mostly dead object is not rewritten; it is tried again");
                }
            }
            is_failing = done.is_err();
        }
    }

    /// Rewrites one plan of each shard that has one, and compacts some of what is to be compacted. A shard
    /// where that fails keeps no other waiting, nor does a pack that cannot be read keep others of its shard
    /// for long: the next plan is without it. The first failure is told at the end.
    pub(super) async fn round(&mut self) -> Result<(), SealError> {
        let mut failed = None;
        for shard in Arc::clone(&self.shards).values() {
            if shard.journal.failure().is_some() || self.tier.is_deposed.load(Ordering::Acquire) {
                // Nothing can be committed any more, or another writes for the cluster.
                return Ok(());
            }
            if let Err(error) = self.rewrite(shard).await {
                failed.get_or_insert(error);
            }
        }
        if let Err(error) = self.compactor.round(&self.shards, clock::now()).await {
            failed.get_or_insert(error);
        }
        failed.map_or(Ok(()), Err)
    }

    /// Replaces the packs of one plan, if there is one.
    async fn rewrite(&mut self, shard: &ShardHandle) -> Result<(), SealError> {
        let below = self.below_permille;
        if self.next_plan.get(&shard.shard).is_some_and(|next| Instant::now() < *next) {
            return Ok(());
        }
        let left_out = self.left_out.entry(shard.shard).or_default();
        left_out.retain(|_, until| Instant::now() < *until);
        let seen = {
            let state = shard.state.read();
            if !is_worth_it(state.packs(), below, left_out) {
                return Ok(());
            }
            Seen { packs: state.shared_packs(), partitions: state.shared_partitions() }
        };
        let (left_out, bytes_max) = (left_out.clone(), self.tier.seal_bytes);
        // It walks through all partitions.
        let planned = move || (plan((&seen.packs, &left_out), &seen.partitions, below, bytes_max), seen);
        let (Some(plan), seen) = self.tier.background.run(planned).await? else {
            self.next_plan.insert(shard.shard, Instant::now() + PAUSE);
            return Ok(());
        };
        let replaced = self.replace(shard, &plan, &seen).await;
        if let Err(SealError::Cold(error)) = &replaced {
            let is_it = |no: &&PackNo| {
                let pack = seen.packs.get(**no);
                pack.is_some_and(|pack| pack.name(self.tier.cluster, shard.shard).to_string() == error.object)
            };
            let until = Instant::now() + LEFT_OUT_FOR;
            let unreadable = plan.replaced.iter().find(is_it).map(|no| (*no, until));
            self.left_out.entry(shard.shard).or_default().extend(unreadable);
        }
        replaced
    }

    /// Makes the new pack and commits it.
    async fn replace(&self, shard: &ShardHandle, plan: &Plan, seen: &Seen) -> Result<(), SealError> {
        let replaced: Vec<_> = plan.replaced.iter().filter_map(|no| seen.packs.get(*no)).collect();
        let first = replaced.iter().map(|pack| pack.first).min().unwrap_or(LogIndex(0));
        let last = replaced.iter().map(|pack| pack.last).max().unwrap_or(LogIndex(0));
        let (term, cluster) = (Term(shard.shared.term()), self.tier.cluster);
        let name = PackName { cluster, shard: shard.shard, first, last, term, attempt: Ulid::new() };
        let (began, room) = (Instant::now(), room_for(shard, plan.runs.len())?);
        let _attempt = self.tier.uploads.attempt(name.attempt.0);
        let summary = self.copy(shard, &name, plan, seen).await?;
        let replaced_bytes: u64 = replaced.iter().map(|pack| pack.bytes).sum();
        let (packs, bytes) = (plan.replaced.len() as u64, summary.pack_bytes);
        let replaced = plan.replaced.iter().copied().collect();
        // As its runs count them, though less is left where records were dropped before.
        let batch_bytes = plan.runs.iter().map(|run| run.bytes).sum();
        let pack = Seal { batch_bytes, ..seal_of(&name, &summary) };
        let rewrite = Rewrite { pack, replaced, compacted: Vec::new() };
        if commit(shard, &self.tier, &name, Change::Rewrite(rewrite), room).await? {
            self.tier.metrics.replaced(packs, replaced_bytes);
            self.tier.cold.metrics().wrote(&summary);
            tracing::debug!(pack = %name, packs, replaced_bytes, bytes, took = ?began.elapsed(), "rewritten");
        }
        Ok(())
    }

    /// Sends the new pack while the old ones are read: a span of each, a block and an upload's parts are in memory.
    async fn copy(
        &self,
        shard: &ShardHandle,
        name: &PackName,
        plan: &Plan,
        seen: &Seen,
    ) -> Result<PackSummary, SealError> {
        let identity = PackIdentity { cluster: name.cluster, shard: name.shard, term: name.term };
        let mut sources = self.sources(shard, plan, seen).await?;
        let mut writer = PackWriter::new(identity, self.tier.codec, &self.tier.pack_memory);
        let mut upload = self.tier.cold.store().upload(name.to_string());
        for run in &plan.runs {
            let copied = async {
                let source = sources.get_mut(&run.pack).ok_or_else(|| wrong("a plan without its pack"))?;
                let partition = seen.partitions.get(run.key).ok_or_else(|| wrong("a run of no partition"))?;
                copy_run(&self.tier, (run, partition), source, writer, &mut upload).await
            };
            match copied.await {
                Ok(made) => writer = made,
                Err(error) => {
                    upload.abort().await;
                    return Err(error);
                }
            }
        }
        finish(&self.tier, writer, upload).await
    }

    /// The blocks of each pack that the plan needs.
    async fn sources(
        &self,
        shard: &ShardHandle,
        plan: &Plan,
        seen: &Seen,
    ) -> Result<BTreeMap<PackNo, Source>, SealError> {
        let mut sources = BTreeMap::new();
        for no in &plan.replaced {
            let pack = seen.packs.get(*no).ok_or_else(|| wrong("a plan of an unknown pack"))?;
            let runs = plan.runs.iter().filter(|run| run.pack == *no);
            let runs = runs.map(|run| (run.key, run.records.clone()));
            sources.insert(*no, Source::open(&self.tier, shard, (*no, pack), runs).await?);
        }
        Ok(sources)
    }
}

/// Copies one run: the batches of its blocks that the partition's rows name, each as it was.
async fn copy_run(
    tier: &Tier,
    (run, partition): (&Run, &Partition),
    source: &mut Source,
    mut writer: PackWriter,
    upload: &mut Upload,
) -> Result<PackWriter, SealError> {
    let end = run.records.end;
    let mut rows = partition.batches_from(run.records.start).take_while(|row| row.end() <= end).peekable();
    loop {
        let began = Instant::now();
        let Some(found) = source.next(run.key, &mut rows).await? else { return Ok(writer) };
        let bytes: u64 = found.iter().map(|(_, batch)| batch.bytes().len() as u64).sum();
        let (of_block, found) =
            found.into_iter().map(|(row, batch)| ((run.key, row), batch.unplaced())).unzip();
        let (made, packed) = pack(tier, writer, of_block, found).await?;
        writer = made;
        send(upload, packed?).await?;
        pace(began, bytes).await;
    }
}

/// Waits until so many bytes may be behind.
pub(super) async fn pace(began: Instant, bytes: u64) {
    tokio::time::sleep_until(began + Duration::from_micros(bytes * 1_000_000 / PACE_BYTES_PER_SECOND)).await;
}

fn wrong(what: &str) -> Refusal {
    Refusal::new(ErrorCode::Corrupt, what)
}
