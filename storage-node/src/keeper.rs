//! Keeps one shard's house: retention, checkpoints, freeing the log. One look per second; an idle shard writes
//! nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use tokio::sync::watch;
use weir_journal::{Class, FileUsage, StreamId, Usage};

use crate::clock;
use crate::raft::group;
use crate::replica::{LogClock, ShardHandle};
use crate::shard::entry::{ENTRY_OVERHEAD_BYTES, Kind, SubBatch};

/// How often it looks.
const ROUND: Duration = Duration::from_secs(1);
/// How many rounds a full disk is left alone before a checkpoint is tried again: each writes the whole state.
const PAUSE_ROUNDS: u32 = 5;
/// Trims proposed in one round; more wait for the next one.
const TRIMS_PER_ROUND: usize = 1_000;

/// With an object store, what packs hold leaves the journal once it is this full.
const KEPT_PERMILLE: u128 = 600;

/// A checkpoint writes the whole state: the log grows by this many times its size between two, so that
/// checkpoints stay a small part of what is written.
const GROWTH_PER_SIZE: u64 = 4;

/// How far a shard's log has grown, and what its newest checkpoint took.
#[derive(Debug, Clone)]
pub struct Growth {
    /// A checkpoint is not due for less growth than this, in bytes.
    pub floor_bytes: u64,
    /// Payload bytes applied since start.
    pub applied_bytes: Arc<AtomicU64>,
    /// Bytes of the newest checkpoint; 0 without one.
    pub checkpoint_bytes: Arc<AtomicU64>,
}

impl Growth {
    /// Growth after which a checkpoint is due.
    fn due_bytes(&self) -> u64 {
        let size = self.checkpoint_bytes.load(Ordering::Relaxed);
        self.floor_bytes.max(size.saturating_mul(GROWTH_PER_SIZE))
    }
}

/// The keeper of one shard.
pub struct Keeper {
    shard: ShardHandle,
    growth: Growth,
    used_permille: Arc<AtomicU32>,
    log_time: LogClock,
    /// Payload bytes applied when the newest checkpoint was asked for, and when the one before it was.
    checkpointed_at: u64,
    checkpointed_before: u64,
    /// Rounds left before a checkpoint that could not be written is tried again.
    pause_rounds: u32,
    purged: u64,
}

impl Keeper {
    /// Checkpoints by `growth`, and tells publishers how full the journal is.
    #[must_use]
    pub fn new(shard: ShardHandle, growth: Growth, used_permille: Arc<AtomicU32>) -> Self {
        let log_time = LogClock::new(shard.state.read().last_ts(), Instant::now());
        Self {
            shard,
            growth,
            used_permille,
            log_time,
            checkpointed_at: 0,
            checkpointed_before: 0,
            pause_rounds: 0,
            purged: 0,
        }
    }

    /// Runs until the node stops, or its shard has: that ends the node, which would otherwise serve half.
    pub async fn run(mut self, mut stop: watch::Receiver<bool>) {
        loop {
            tokio::select! {
                _ = stop.wait_for(|stopping| *stopping) => return,
                () = tokio::time::sleep(ROUND) => {}
            }
            if self.shard.journal.failure().is_some() {
                // Nothing is confirmed any more, so nothing is trimmed or freed: reads go on.
                continue;
            }
            if let Some(why) = group::stopped(&self.shard.raft) {
                tracing::error!(shard = %self.shard.shard, why, "the shard has stopped");
                return;
            }
            self.trim().await;
            let usage = self.shard.journal.usage();
            let reserve = self.shard.journal.config().control_reserve_bytes;
            self.used_permille.store(permille(&usage, reserve), Ordering::Relaxed);
            self.checkpoint_if_due(&usage).await;
            self.purge(&usage).await;
            self.flush_if_held(&usage);
        }
    }

    /// Proposes the trims that retention asks for. By the log's own time, as messages carry it: where a clock was far
    /// ahead once, their age is what has passed for the log since.
    async fn trim(&mut self) {
        let due = {
            let state = self.shard.state.read();
            self.log_time.saw(state.last_ts(), Instant::now());
            state.due_trims(self.log_time.next(clock::now(), Instant::now()), TRIMS_PER_ROUND)
        };
        if due.is_empty() {
            return;
        }
        let trims: Vec<_> = due
            .into_iter()
            .map(|((incarnation, partition), upto)| SubBatch {
                incarnation,
                partition,
                kind: Kind::Trim,
                expected_end: Some(upto),
                idempotency: None,
                across: None,
                body: Bytes::new(),
            })
            .collect();
        let bytes = trims.iter().map(SubBatch::encoded_bytes).sum::<usize>() + ENTRY_OVERHEAD_BYTES;
        match self.shard.journal.try_admit(bytes as u64, Class::Relief) {
            Ok(permit) => {
                if let Err(refusal) = self.shard.change(trims, permit).await {
                    tracing::warn!(shard = %self.shard.shard, why = refusal.detail, "retention could not trim");
                }
            }
            Err(full) => tracing::warn!(shard = %self.shard.shard, %full, "no room to trim"),
        }
    }

    /// A checkpoint is due when the log has grown enough for its size, or when it would let go what this
    /// shard keeps of the oldest file. However full the journal is, one that frees nothing helps nobody.
    async fn checkpoint_if_due(&mut self, usage: &Usage) {
        let applied = self.growth.applied_bytes.load(Ordering::Relaxed);
        if self.shard.checkpoints_given_up.has_changed().unwrap_or(false) {
            self.shard.checkpoints_given_up.mark_unchanged();
            self.shard.shared.metrics().checkpoint_failed();
            self.checkpointed_at = self.checkpointed_before;
            self.pause_rounds = PAUSE_ROUNDS;
        }
        if self.pause_rounds > 0 {
            self.pause_rounds -= 1;
            return;
        }
        let log = Log {
            oldest_pin: self.oldest_pin(usage),
            needed: self.shard.state.read().needed_from().map(|needed| needed.0),
            covered: group::snapshot_index(&self.shard.raft),
        };
        if applied - self.checkpointed_at < self.growth.due_bytes() && !log.would_be_freed() {
            return;
        }
        self.checkpointed_before = std::mem::replace(&mut self.checkpointed_at, applied);
        if let Err(error) = self.shard.raft.trigger().snapshot().await {
            tracing::warn!(shard = %self.shard.shard, %error, "no checkpoint");
        }
    }

    /// Lowest entry of this shard in the oldest finished file.
    fn oldest_pin(&self, usage: &Usage) -> Option<u64> {
        let oldest = usage.files.first().filter(|file| !file.current)?;
        oldest.pinned_by.iter().find(|(stream, _)| *stream == self.shard.stream()).map(|(_, index)| *index)
    }

    /// Frees the log below the newest checkpoint and the oldest live record that is nowhere else. With a
    /// store, what packs hold stays as long as there is room: it is read from here for nothing.
    async fn purge(&mut self, usage: &Usage) {
        let Some(covered) = group::snapshot_index(&self.shard.raft) else { return };
        let needed = self.shard.state.read().needed_from();
        let upto =
            needed.map_or(Some(u64::MAX), |index| index.0.checked_sub(1)).map(|upto| upto.min(covered));
        let upto = match (&self.shard.tier, upto) {
            (Some(_), Some(upto)) => {
                let reserve = self.shard.journal.config().control_reserve_bytes;
                kept_from(usage, reserve, self.shard.stream()).map(|kept| upto.min(kept.saturating_sub(1)))
            }
            (_, upto) => upto,
        };
        let Some(upto) = upto.filter(|upto| *upto > self.purged) else { return };
        if let Err(error) = self.shard.raft.trigger().purge_log(upto).await {
            tracing::warn!(shard = %self.shard.shard, %error, "the log was not freed");
            return;
        }
        self.purged = upto;
    }

    /// A purge is lazy; without publishes nothing would carry it to the disk, and its files would stay.
    fn flush_if_held(&self, usage: &Usage) {
        let is_held =
            usage.files.first().is_some_and(|oldest| !oldest.current && oldest.pinned_by.is_empty());
        if is_held && let Err(error) = self.shard.journal.flush(self.shard.stream(), Box::new(|_| {})) {
            tracing::debug!(shard = %self.shard.shard, %error, "the purge waits for the next commit");
        }
    }
}

/// Entries of one shard's log that decide whether a checkpoint frees any.
#[derive(Debug, Clone, Copy)]
struct Log {
    /// The lowest in the oldest finished file, if it has any there.
    oldest_pin: Option<u64>,
    /// The lowest with live records.
    needed: Option<u64>,
    /// The last that a checkpoint covers.
    covered: Option<u64>,
}

impl Log {
    /// Nothing but a missing checkpoint keeps the shard's lowest entry in the oldest file.
    fn would_be_freed(self) -> bool {
        self.oldest_pin.is_some_and(|pin| {
            self.needed.is_none_or(|needed| needed > pin) && self.covered.is_none_or(|covered| covered < pin)
        })
    }
}

/// The shard's lowest entry that may stay in a journal that is to be at most [`KEPT_PERMILLE`] full; `None` if all may,
/// `u64::MAX` if none.
fn kept_from(usage: &Usage, reserve_bytes: u64, stream: StreamId) -> Option<u64> {
    let limit = usage.limit_bytes.saturating_sub(reserve_bytes);
    let kept = u128::from(limit) * KEPT_PERMILLE / 1_000;
    let mut left = u128::from(usage.used_bytes);
    let mut stays = |file: &FileUsage| {
        let stays = left <= kept || file.current;
        left -= u128::from(file.used_bytes).min(left);
        stays
    };
    let first = usage.files.iter().position(&mut stays)?;
    let pins = usage.files[first..].iter().flat_map(|file| &file.pinned_by);
    let lowest = pins.filter(|(of, _)| *of == stream).map(|(_, index)| *index).min();
    (first > 0).then_some(lowest.unwrap_or(u64::MAX))
}

/// How much of what messages may take of the journal is in use: they are refused at 1,000.
fn permille(usage: &Usage, reserve_bytes: u64) -> u32 {
    let limit = usage.limit_bytes.saturating_sub(reserve_bytes).max(1);
    u32::try_from(u128::from(usage.used_bytes) * 1_000 / u128::from(limit)).unwrap_or(u32::MAX)
}

#[cfg(test)]
mod tests {
    use weir_protocol::ids::ShardId;

    use super::*;
    use crate::config::NodeConfig;
    use crate::node::Node;

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_checkpoint_is_due_after_four_times_its_size_and_not_before_the_floor() {
        let dir = tempfile::tempdir().unwrap();
        let config = NodeConfig {
            data_dir: dir.path().to_owned(),
            journal_file_bytes: 16 << 20,
            ..NodeConfig::default()
        };
        let node = Node::start(config).await.unwrap();
        let growth =
            Growth { floor_bytes: 100, applied_bytes: Arc::default(), checkpoint_bytes: Arc::default() };
        let mut keeper = Keeper::new(node.shard(ShardId(1)), growth.clone(), Arc::default());
        let usage = keeper.shard.journal.usage();
        // What was applied when the newest checkpoint was asked for.
        for (size, applied, expected) in [
            (0, 99, 0),
            (0, 100, 100),
            (25, 199, 100),
            (25, 200, 200),
            (26, 303, 200),
            (26, 304, 304),
            (1_000, 4_303, 304),
            (1_000, 4_304, 4_304),
        ] {
            growth.checkpoint_bytes.store(size, Ordering::Relaxed);
            growth.applied_bytes.store(applied, Ordering::Relaxed);
            keeper.checkpoint_if_due(&usage).await;
            assert_eq!(keeper.checkpointed_at, expected, "of {size} bytes, with {applied} applied");
        }
        drop(keeper);
        node.shutdown(Duration::from_secs(1)).await;
    }

    #[test]
    fn a_checkpoint_is_made_early_only_if_it_frees_something() {
        let log = |oldest_pin, needed, covered| Log { oldest_pin, needed, covered };
        for (log, expected) in [
            (log(Some(5), Some(9), Some(4)), true),
            (log(Some(5), None, None), true),
            (log(Some(5), Some(5), Some(4)), false), // a live record keeps it
            (log(Some(5), Some(9), Some(5)), false), // covered: the purge is on its way
            (log(None, Some(9), Some(4)), false),
        ] {
            assert_eq!(log.would_be_freed(), expected, "{log:?}");
        }
    }

    #[test]
    fn with_a_store_only_as_much_leaves_the_journal_as_is_too_much() {
        let stream = StreamId(1);
        let file = |seq: u64, lowest: Option<u64>| FileUsage {
            file: weir_journal::FileSeq(seq),
            used_bytes: 100,
            file_bytes: 100,
            current: seq == 4,
            pinned_by: lowest.map(|index| (stream, index)).into_iter().collect(),
            sidecar: false,
        };
        let files = vec![file(1, Some(10)), file(2, Some(20)), file(3, None), file(4, Some(40))];
        let kept = |limit_bytes| {
            let usage = Usage { used_bytes: 400, limit_bytes, files: files.clone(), ..Usage::default() };
            kept_from(&usage, 0, stream)
        };
        assert_eq!(kept(1_000), None, "there is room for all of it");
        assert_eq!(kept(600), Some(20), "the oldest file is too much");
        assert_eq!(kept(400), Some(40), "two are, and the third holds nothing of the shard");
        assert_eq!(kept(1), Some(40), "the file that is being written stays");
        let other = Usage { used_bytes: 400, limit_bytes: 400, files: files.clone(), ..Usage::default() };
        assert_eq!(
            kept_from(&other, 0, StreamId(2)),
            Some(u64::MAX),
            "a shard without live entries keeps nothing"
        );
    }

    #[test]
    fn how_full_a_journal_is_fits_any_limit() {
        let used =
            |used_bytes, limit_bytes| permille(&Usage { used_bytes, limit_bytes, ..Usage::default() }, 0);
        assert_eq!([used(0, 0), used(1, u64::MAX), used(u64::MAX, u64::MAX)], [0, 0, 1_000]);
        assert_eq!([used(9, 10), used(15, 10)], [900, 1_500]);
        let full = Usage { used_bytes: 56, limit_bytes: 64, ..Usage::default() };
        assert_eq!(
            [permille(&full, 8), permille(&full, 64)],
            [1_000, 56_000],
            "the reserve is not for messages"
        );
    }
}
