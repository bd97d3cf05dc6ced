//! Compacts partitions, a pack at a time: of each key the newest record stays.
//!
//! A pass reads what is new in packs, notes the newest offset of each key, and then copies the partition from
//! its front without what goes, to where it has read. Only packs count: what is in the log alone a restore
//! may lose, and with it the newest record of a key whose older ones were dropped. A pass that ends half way
//! leaves a partition that is compacted up to somewhere.

use std::collections::BTreeMap;
use std::iter::Peekable;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::Instant;
use ulid::Ulid;
use weir_protocol::batch::{Batch, BatchError};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{LogIndex, Offset, ShardId, Term, TimestampMs};
use weir_protocol::rpc::Refusal;
use weir_tier::cold::ColdError;
use weir_tier::pack::{PackIdentity, PackWriter};
use weir_tier::store::{PackName, Upload};

use super::compaction::{Left, Rules, Standing, Window, object_bytes};
use super::making::{SealError, commit, finish, pack, room_for, seal_of, send};
use super::newest::Newest;
use super::rewriter::pace;
use super::source::Source;
use crate::replica::ShardHandle;
use crate::shard::command::{Change, CompactedPart, Rewrite, Seal};
use crate::shard::state::{BatchRow, PackNo, Packs, Partition, PartitionKey, SharedPartitions};
use crate::tier::Tier;

/// Runs that one new pack takes over: they are named in one command.
const RUNS_MAX: usize = 64;
/// So many compacted runs become one, though nothing of them goes: packs must not become more and smaller for ever.
const RUNS_JOINED: usize = 8;
/// A partition of which something could not be read is left alone for this long.
const LEFT_OUT_FOR: Duration = Duration::from_secs(600);

/// What was compacted before this process began is looked through after this: nobody knows when the first
/// record of it that says that a key is deleted may go, and a node that starts often would else never drop
/// any.
const AFTER_START_MS: u64 = 3_600 * 1_000;
/// A partition with nothing new is looked through again no sooner than this: where one key after the other is
/// deleted, each of the records that say so would else have all of the partition read, and a pack of it
/// written.
const AGAIN_AFTER_MS: u64 = 3_600 * 1_000;
/// While no pack comes and nothing is due by its time, partitions are looked through this often.
const LOOK_EVERY_MS: u64 = 60 * 1_000;

/// Which partition.
type Place = (ShardId, PartitionKey);

/// Compacts the partitions of a node, one at a time.
pub(super) struct Compactor {
    tier: Arc<Tier>,
    window: Window,
    pass: Option<Pass>,
    /// When a partition without anything new is looked through again: records that say that a key is deleted go then.
    again: BTreeMap<Place, TimestampMs>,
    left_out: BTreeMap<Place, Instant>,
    quiet: Option<Quiet>,
}

/// Nothing is due while no shard has a newer pack than these, but by its time.
struct Quiet {
    newest: BTreeMap<ShardId, PackNo>,
    /// And no longer than this.
    until: TimestampMs,
}

/// A pass through a partition.
struct Pass {
    place: Place,
    /// Shared with the threads that look into batches.
    rules: Arc<Rules>,
    stage: Stage,
    /// Where it goes on.
    next: Offset,
    /// What was compacted before it began ends here …
    new_from: Offset,
    /// … and what is new here.
    new_end: Offset,
    /// When the first of what stays for a while may go.
    again: Option<TimestampMs>,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    /// Reads what is new.
    Noting,
    /// Copies all without what goes.
    Dropping,
}

/// Consecutive records of the partition in a pack.
struct Run {
    pack: PackNo,
    records: Range<Offset>,
    bytes: u64,
}

/// A shard's packs and partitions of one moment.
struct Seen {
    shard: ShardHandle,
    packs: Arc<Packs>,
    partitions: SharedPartitions,
}

impl Seen {
    fn of(shard: &ShardHandle) -> Self {
        let state = shard.state.read();
        Self { shard: shard.clone(), packs: state.shared_packs(), partitions: state.shared_partitions() }
    }
}

/// What became of a step.
enum Step {
    /// So many bytes of objects were read, and there may be more.
    Read(u64),
    /// There is no more.
    Over,
    /// The log refused what was made: it is not what was seen any more.
    Refused,
}

/// What a look or a copy found.
#[derive(Default)]
struct Found {
    dropped: u64,
    dropped_bytes: u64,
    again: Option<TimestampMs>,
}

impl Found {
    fn add(&mut self, left: &Left) {
        self.dropped += left.dropped;
        self.dropped_bytes += left.dropped_bytes;
        self.again = self.again.into_iter().chain(left.again).min();
    }
}

impl Compactor {
    /// In passes of this size.
    pub(super) fn new(tier: Arc<Tier>, window: Window) -> Self {
        let (again, left_out) = (BTreeMap::new(), BTreeMap::new());
        Self { tier, window, pass: None, again, left_out, quiet: None }
    }

    /// Goes on with a pass, or begins the one that is most due, and then others, until about a pack's bytes
    /// were read. False if there is no more to do.
    ///
    /// # Errors
    /// [`SealError`]: the pass is over where it is, and begins anew in a while.
    pub(super) async fn round(
        &mut self,
        shards: &BTreeMap<ShardId, ShardHandle>,
        now: TimestampMs,
    ) -> Result<bool, SealError> {
        let mut left = self.tier.seal_bytes.max(1);
        while left > 0 {
            if self.tier.is_deposed.load(Ordering::Acquire) {
                return Ok(false);
            }
            let Some(mut pass) = self.next_pass(shards, now).await? else { return Ok(false) };
            let (shard, _) = pass.place;
            let Some(shard) = shards.get(&shard).filter(|shard| shard.journal.failure().is_none()) else {
                return Ok(false);
            };
            match self.step(shard, &mut pass).await {
                Ok(Step::Read(bytes)) => {
                    left = left.saturating_sub(bytes.max(1));
                    self.pass = Some(pass);
                }
                Ok(Step::Over) => {
                    left -= 1;
                    let soonest = TimestampMs(now.0.saturating_add(AGAIN_AFTER_MS));
                    let again = pass.again.map_or(TimestampMs(u64::MAX), |found| found.max(soonest));
                    self.again.insert(pass.place, again);
                }
                Ok(Step::Refused) => self.leave_out(&pass),
                Err(error) => {
                    self.leave_out(&pass);
                    return Err(error);
                }
            }
        }
        Ok(true)
    }

    /// A pass ends half way: what it found that goes later is not forgotten.
    fn leave_out(&mut self, pass: &Pass) {
        self.left_out.insert(pass.place, Instant::now() + LEFT_OUT_FOR);
        if let Some(found) = pass.again {
            let again = self.again.entry(pass.place).or_insert(found);
            *again = found.min(*again);
        }
    }

    /// Whether all was looked through, and nothing has become due since.
    fn is_quiet(&self, newest: &BTreeMap<ShardId, PackNo>, now: TimestampMs) -> bool {
        let stands = self.quiet.as_ref().is_some_and(|quiet| now < quiet.until && quiet.newest == *newest);
        stands && self.again.values().all(|at| *at > now)
    }

    /// The pass that is under way, or one through the partition with most that is new among those that are due.
    async fn next_pass(
        &mut self,
        shards: &BTreeMap<ShardId, ShardHandle>,
        now: TimestampMs,
    ) -> Result<Option<Pass>, Refusal> {
        if let Some(pass) = self.pass.take() {
            return Ok(Some(pass));
        }
        let newest = |shard: &ShardHandle| shard.state.read().packs().newest();
        let newest = shards.iter().map(|(id, shard)| (*id, newest(shard))).collect();
        if self.is_quiet(&newest, now) {
            return Ok(None);
        }
        self.left_out.retain(|_, until| Instant::now() < *until);
        let mut there = Vec::new();
        for (id, shard) in shards {
            let seen = Seen::of(shard);
            let found = self.tier.background.run(move || compacted_partitions(&seen)).await?;
            there.extend(found.into_iter().map(|(key, standing)| ((*id, key), standing)));
        }
        self.again.retain(|place, _| there.iter().any(|(of, _)| of == place));
        for (place, standing) in &there {
            if standing.compacted_bytes > 0 {
                self.again.entry(*place).or_insert(TimestampMs(now.0.saturating_add(AFTER_START_MS)));
            }
        }
        let is_due = |(place, standing): &&(Place, Standing)| {
            let is_again = self.again.get(place).is_some_and(|at| *at <= now);
            !self.left_out.contains_key(place) && (is_again || standing.is_due(&self.window, now))
        };
        let chosen = there.iter().filter(is_due).max_by_key(|(_, standing)| standing.new_bytes);
        let until = TimestampMs(now.0.saturating_add(LOOK_EVERY_MS));
        self.quiet = chosen.is_none().then_some(Quiet { newest, until });
        Ok(chosen.and_then(|((shard, key), _)| self.begin(&shards[shard], *key, now)))
    }

    fn begin(&self, shard: &ShardHandle, key: PartitionKey, now: TimestampMs) -> Option<Pass> {
        let state = shard.state.read();
        let partition = state.partition(key).ok()?;
        let new_from = partition.compacted_to().max(partition.start);
        let new_end = partition.unsealed_from();
        let rules = Rules { newest: Newest::new(self.window.keys_max), upto: new_from, now };
        Some(Pass {
            place: (shard.shard, key),
            rules: Arc::new(rules),
            stage: Stage::Noting,
            next: new_from,
            new_from,
            new_end,
            again: None,
        })
    }

    /// Goes on for about a pack.
    async fn step(&self, shard: &ShardHandle, pass: &mut Pass) -> Result<Step, SealError> {
        let seen = Seen::of(shard);
        let key = pass.place.1;
        // Deleted meanwhile, or not to be compacted any more.
        let partition = seen.partitions.get(key).filter(|partition| partition.config.compact_by_key);
        let Some(partition) = partition else { return Ok(Step::Over) };
        let runs = self.runs(partition, &seen.packs, pass);
        let bytes = runs.iter().map(|run| object_bytes(&seen.packs, run.pack, run.bytes)).sum();
        match pass.stage {
            Stage::Noting => {
                self.note(pass, &seen, &runs).await?;
                Ok(Step::Read(bytes))
            }
            Stage::Dropping if runs.is_empty() => Ok(Step::Over),
            Stage::Dropping => {
                let is_done = self.drop_some(pass, &seen, &runs).await?;
                Ok(if is_done { Step::Read(bytes) } else { Step::Refused })
            }
        }
    }

    /// The next runs of a pass, of about the bytes of a pack; at least one if there is one.
    fn runs(&self, partition: &Partition, packs: &Packs, pass: &Pass) -> Vec<Run> {
        let end = match pass.stage {
            Stage::Noting => pass.new_end,
            Stage::Dropping => pass.rules.upto,
        };
        let next = pass.next.max(partition.start);
        let (mut runs, mut bytes): (Vec<Run>, u64) = (Vec::new(), 0);
        for (pack, records, run_bytes) in partition.packed_runs() {
            if records.end <= next {
                continue;
            }
            bytes += object_bytes(packs, pack, run_bytes);
            let is_enough = runs.len() >= RUNS_MAX || bytes > self.tier.seal_bytes;
            if records.start >= end || (is_enough && !runs.is_empty()) {
                break;
            }
            runs.push(Run { pack, records, bytes: run_bytes });
        }
        runs
    }

    /// Notes the newest record of each key of some runs. Once there is no more, or no room for more, dropping begins.
    async fn note(&self, pass: &mut Pass, seen: &Seen, runs: &[Run]) -> Result<(), SealError> {
        let mut is_full = false;
        for run in runs {
            let records = run.records.start.max(pass.next)..run.records.end;
            let mut reading = Reading::open(&self.tier, seen, (pass.place.1, run.pack), records).await?;
            while let Some((_, batches)) = reading.next().await? {
                let rules = std::mem::take(&mut pass.rules);
                let mut rules = Arc::into_inner(rules).expect("nobody else has it while it is made");
                let noting = move || {
                    let noted = note_all(&mut rules, &batches);
                    (rules, noted)
                };
                let (rules, noted) = self.tier.background.run(noting).await?;
                pass.rules = Arc::new(rules);
                is_full = !noted.map_err(|error| reading.damaged(&error))?;
                if is_full {
                    break;
                }
            }
            pass.next = run.records.end;
            if is_full {
                break;
            }
        }
        if is_full || runs.is_empty() || pass.next >= pass.new_end {
            (pass.stage, pass.next) = (Stage::Dropping, Offset(0));
        }
        Ok(())
    }

    /// Copies some runs without what goes, unless nothing does. False if the log refused it.
    async fn drop_some(&self, pass: &mut Pass, seen: &Seen, runs: &[Run]) -> Result<bool, SealError> {
        let end = runs.last().map_or(pass.next, |run| run.records.end);
        let is_new = end > pass.new_from;
        let mut found = Found::default();
        if !is_new && runs.len() < RUNS_JOINED {
            self.look(pass, seen, runs, &mut found).await?;
        }
        if is_new || runs.len() >= RUNS_JOINED || found.dropped > 0 {
            found = Found::default();
            if !self.replace(pass, seen, runs, &mut found).await? {
                return Ok(false);
            }
        }
        pass.again = pass.again.into_iter().chain(found.again).min();
        pass.next = end;
        Ok(true)
    }

    /// What a copy of the runs would leave out.
    async fn look(&self, pass: &Pass, seen: &Seen, runs: &[Run], found: &mut Found) -> Result<(), SealError> {
        for run in runs {
            let place = (pass.place.1, run.pack);
            let mut reading = Reading::open(&self.tier, seen, place, run.records.clone()).await?;
            while let Some((_, batches)) = reading.next().await? {
                let left = left_of(&self.tier, &pass.rules, batches)
                    .await?
                    .map_err(|error| reading.damaged(&error))?;
                left.iter().for_each(|left| found.add(left));
            }
        }
        Ok(())
    }

    /// Makes the pack that takes the place of the runs, and commits it. False if the log refused it.
    async fn replace(
        &self,
        pass: &Pass,
        seen: &Seen,
        runs: &[Run],
        found: &mut Found,
    ) -> Result<bool, SealError> {
        let mut replaced: Vec<PackNo> = runs.iter().map(|run| run.pack).collect();
        replaced.sort_unstable();
        replaced.dedup();
        let packs: Vec<_> = replaced.iter().filter_map(|no| seen.packs.get(*no)).collect();
        let first = packs.iter().map(|pack| pack.first).min().unwrap_or(LogIndex(0));
        let last = packs.iter().map(|pack| pack.last).max().unwrap_or(LogIndex(0));
        let shard = &seen.shard;
        let room = room_for(shard, 1)?;
        let (term, cluster) = (Term(shard.shared.term()), self.tier.cluster);
        let name = PackName { cluster, shard: shard.shard, first, last, term, attempt: Ulid::new() };
        let _attempt = self.tier.uploads.attempt(name.attempt.0);
        let identity = PackIdentity { cluster, shard: shard.shard, term };
        let mut writer = PackWriter::new(identity, self.tier.codec, &self.tier.pack_memory);
        let mut upload = self.tier.cold.store().upload(name.to_string());
        for run in runs {
            match self.copy(pass, seen, run, (writer, &mut upload), found).await {
                Ok(made) => writer = made,
                Err(error) => {
                    upload.abort().await;
                    return Err(error);
                }
            }
        }
        let summary = finish(&self.tier, writer, upload).await?;
        let (key, end) = (pass.place.1, runs.last().map_or(Offset(0), |run| run.records.end));
        let upto = end.min(pass.rules.upto).0;
        let compacted = vec![CompactedPart { incarnation: key.0.0, partition: key.1.0, upto }];
        // As the rows count them: so it is known how much of the pack is needed when some of them go.
        let batch_bytes = runs.iter().map(|run| run.bytes).sum();
        let pack = Seal { batch_bytes, ..seal_of(&name, &summary) };
        let rewrite = Rewrite { pack, replaced, compacted };
        let is_done = commit(shard, &self.tier, &name, Change::Rewrite(rewrite), room).await?;
        if is_done {
            self.tier.metrics.compacted(found.dropped, found.dropped_bytes);
            self.tier.cold.metrics().wrote(&summary);
            let (dropped, bytes) = (found.dropped, summary.pack_bytes);
            tracing::debug!(pack = %name, runs = runs.len(), upto, dropped, bytes, "compacted");
        }
        Ok(is_done)
    }

    async fn copy(
        &self,
        pass: &Pass,
        seen: &Seen,
        run: &Run,
        (mut writer, upload): (PackWriter, &mut Upload),
        found: &mut Found,
    ) -> Result<PackWriter, SealError> {
        let key = pass.place.1;
        let mut reading = Reading::open(&self.tier, seen, (key, run.pack), run.records.clone()).await?;
        while let Some((rows, batches)) = reading.next().await? {
            let left =
                left_of(&self.tier, &pass.rules, batches).await?.map_err(|error| reading.damaged(&error))?;
            left.iter().for_each(|left| found.add(left));
            let of_block = rows.into_iter().map(|row| (key, row)).collect();
            let kept = left.into_iter().map(|left| left.batch.unplaced()).collect();
            let (made, packed) = pack(&self.tier, writer, of_block, kept).await?;
            writer = made;
            send(upload, packed?).await?;
        }
        Ok(writer)
    }
}

/// A run that is read: its blocks, at the pace of everything that is copied.
struct Reading<'a> {
    source: Source,
    key: PartitionKey,
    rows: Peekable<Box<dyn Iterator<Item = BatchRow> + Send + 'a>>,
    /// The first row of what was read last.
    last: Option<BatchRow>,
}

impl<'a> Reading<'a> {
    async fn open(
        tier: &Tier,
        seen: &'a Seen,
        (key, no): (PartitionKey, PackNo),
        records: Range<Offset>,
    ) -> Result<Self, SealError> {
        let gone = || Refusal::new(ErrorCode::Corrupt, "a run of no partition, or in no pack");
        let (pack, partition) = seen.packs.get(no).zip(seen.partitions.get(key)).ok_or_else(gone)?;
        let end = records.end;
        let rows = partition.batches_from(records.start).take_while(move |row| row.end() <= end);
        let rows: Box<dyn Iterator<Item = BatchRow> + Send + 'a> = Box::new(rows);
        let source = Source::open(tier, &seen.shard, (no, pack), [(key, records)]).await?;
        Ok(Self { source, key, rows: rows.peekable(), last: None })
    }

    /// The next batches, with the rows that name them.
    async fn next(&mut self) -> Result<Option<(Vec<BatchRow>, Vec<Batch>)>, SealError> {
        let began = Instant::now();
        let Some(found) = self.source.next(self.key, &mut self.rows).await? else { return Ok(None) };
        let (rows, batches): (Vec<_>, Vec<_>) = found.into_iter().unzip();
        self.last = rows.first().copied();
        pace(began, batches.iter().map(|batch| batch.bytes().len() as u64).sum()).await;
        Ok(Some((rows, batches)))
    }

    fn damaged(&self, error: &BatchError) -> ColdError {
        let error = self.source.damaged(&error.to_string());
        if let Some(row) = self.last {
            self.source.tell(self.key, row, &error);
        }
        error
    }
}

/// The partitions that are to be compacted, and how they stand.
fn compacted_partitions(seen: &Seen) -> Vec<(PartitionKey, Standing)> {
    let all = seen.partitions.iter().filter(|(_, partition)| partition.config.compact_by_key);
    all.map(|(key, partition)| (key, Standing::of(partition, &seen.packs))).collect()
}

/// Notes the keys of some batches; false if they have no room.
fn note_all(rules: &mut Rules, batches: &[Batch]) -> Result<bool, BatchError> {
    for batch in batches {
        if !rules.add(batch)? {
            return Ok(false);
        }
    }
    Ok(true)
}

/// What is left of some batches, on another thread: they are decompressed, and perhaps compressed again.
async fn left_of(
    tier: &Tier,
    rules: &Arc<Rules>,
    batches: Vec<Batch>,
) -> Result<Result<Vec<Left>, BatchError>, Refusal> {
    let rules = Arc::clone(rules);
    tier.background.run(move || batches.iter().map(|batch| rules.left_of(batch)).collect()).await
}
