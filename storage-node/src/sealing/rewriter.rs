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
use weir_tier::cold::{ColdError, PackRef};
use weir_tier::pack::{PackIdentity, PackSummary, PackWriter, batches};
use weir_tier::spans::Spans;
use weir_tier::store::{PackName, Upload};

use super::making::{SealError, commit, finish, pack, seal_of};
use super::plan::{LeftOut, Plan, Run, is_worth_it, plan};
use crate::replica::ShardHandle;
use crate::shard::command::{Change, Rewrite};
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

/// A pack that is replaced: it may call its partitions by the lives of before a restore.
struct Source {
    pack: PackRef,
    spans: Spans,
}

/// Rewrites for the shards of a node, one pack at a time.
pub struct Rewriter {
    tier: Arc<Tier>,
    shards: Arc<BTreeMap<ShardId, ShardHandle>>,
    below_permille: u64,
    left_out: BTreeMap<ShardId, LeftOut>,
    /// Where nothing fitted together it is looked again at this time.
    next_plan: BTreeMap<ShardId, Instant>,
}

impl Rewriter {
    /// A rewriter of `shards`, for packs of which less than `below_permille` thousandths are referred to.
    #[must_use]
    pub fn new(tier: Arc<Tier>, shards: Arc<BTreeMap<ShardId, ShardHandle>>, below_permille: u64) -> Self {
        Self { tier, shards, below_permille, left_out: BTreeMap::new(), next_plan: BTreeMap::new() }
    }

    /// Runs until the node stops. A pack that is being made then is left: its object is nobody's and is swept, and what it was
    /// to replace stays as it is.
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

    /// Rewrites one plan of each shard that has one. A shard where that fails keeps no other waiting, nor does a pack that cannot
    /// be read keep others of its shard for long: the next plan is without it. The first failure is told at the end.
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
        let planned = tokio::task::spawn_blocking(move || {
            (plan((&seen.packs, &left_out), &seen.partitions, below, bytes_max), seen)
        });
        let planned = planned.await.map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))?;
        let (Some(plan), seen) = planned else {
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
        let began = Instant::now();
        let summary = self.copy(shard, &name, plan, seen).await?;
        let replaced_bytes: u64 = replaced.iter().map(|pack| pack.bytes).sum();
        let (packs, bytes) = (plan.replaced.len() as u64, summary.pack_bytes);
        let replaced = plan.replaced.iter().copied().collect();
        let rewrite = Rewrite { pack: seal_of(&name, &summary), replaced, compacted: Vec::new() };
        if commit(shard, &self.tier, &name, Change::Rewrite(rewrite)).await? {
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
        let mut writer = PackWriter::new(identity, self.tier.codec);
        let mut upload = self.tier.cold.store().upload(name.to_string());
        for run in &plan.runs {
            let copied = async {
                let source = sources.get_mut(&run.pack).ok_or_else(|| wrong("a plan without its pack"))?;
                let partition = seen.partitions.get(run.key).ok_or_else(|| wrong("a run of no partition"))?;
                copy_run(run, partition, source, writer, &mut upload).await
            };
            match copied.await {
                Ok(made) => writer = made,
                Err(error) => {
                    upload.abort().await;
                    return Err(error);
                }
            }
        }
        finish(writer, upload).await
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
            let pack = self.tier.pack_ref(shard.shard, pack);
            let runs = plan.runs.iter().filter(|run| run.pack == *no);
            let runs: Vec<_> = runs.map(|run| (pack.packed(run.key), run.records.clone())).collect();
            let spans = self.tier.cold.spans(&pack, runs).await?;
            sources.insert(*no, Source { pack, spans });
        }
        Ok(sources)
    }
}

/// Copies one run: the batches of its blocks that the partition's rows name, each as it was.
async fn copy_run(
    run: &Run,
    partition: &Partition,
    source: &mut Source,
    mut writer: PackWriter,
    upload: &mut Upload,
) -> Result<PackWriter, SealError> {
    let end = run.records.end;
    let mut rows = partition.batches_from(run.records.start).take_while(|row| row.end() <= end).peekable();
    let packed_key = source.pack.packed(run.key);
    while let Some((block, raw)) = source.spans.next_of(packed_key).await? {
        let began = Instant::now();
        let bytes = raw.len() as u64;
        let (mut of_block, mut found) = (Vec::new(), Vec::new());
        for batch in batches(raw, &block, packed_key) {
            let batch = batch.map_err(|error| damaged(source, &error.to_string()))?;
            let header = batch.header();
            let Some(row) = rows.next_if(|row| row.base_offset == header.base_offset) else { continue };
            if row.count != header.count {
                return Err(damaged(source, "a batch is not the one that was sealed").into());
            }
            of_block.push((run.key, row));
            found.push(batch.unplaced());
        }
        let (made, packed) = pack(writer, of_block, found).await?;
        writer = made;
        upload.write(packed?).await?;
        tokio::time::sleep_until(began + Duration::from_micros(bytes * 1_000_000 / PACE_BYTES_PER_SECOND))
            .await;
    }
    match rows.next() {
        None => Ok(writer),
        Some(_) => Err(damaged(source, "a batch is not where it was sealed").into()),
    }
}

/// The pack is not what its shard says.
fn damaged(source: &Source, what: &str) -> ColdError {
    let object = source.pack.name.to_string();
    ColdError { why: format!("object {object}: {what}"), object, is_damage: true }
}

fn wrong(what: &str) -> Refusal {
    Refusal::new(ErrorCode::Corrupt, what)
}
