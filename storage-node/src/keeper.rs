//! Keeps one shard's house: retention, checkpoints, freeing the log. One look per second; an idle shard writes
//! nothing.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use bytes::Bytes;
use tokio::sync::watch;
use weir_journal::{Class, Usage};
use weir_protocol::ids::TimestampMs;

use crate::raft::group;
use crate::replica::ShardHandle;
use crate::shard::entry::{Kind, SubBatch};

/// How often it looks.
const ROUND: Duration = Duration::from_secs(1);
/// How many rounds a full disk is left alone before a checkpoint is tried again: each writes the whole state.
const PAUSE_ROUNDS: u32 = 5;
/// Trims proposed in one round; more wait for the next one.
const TRIMS_PER_ROUND: usize = 1_000;
/// Room for an entry's header and its journal frame.
const ENTRY_OVERHEAD_BYTES: u64 = 4 << 10;

/// The keeper of one shard.
pub struct Keeper {
    shard: ShardHandle,
    checkpoint_bytes: u64,
    applied_bytes: Arc<AtomicU64>,
    used_permille: Arc<AtomicU32>,
    /// Payload bytes applied when the newest checkpoint was asked for, and when the one before it was.
    checkpointed_at: u64,
    checkpointed_before: u64,
    /// Rounds left before a checkpoint that could not be written is tried again.
    pause_rounds: u32,
    purged: u64,
}

impl Keeper {
    /// Checkpoints whenever `checkpoint_bytes` more were applied, and tells publishers how full the journal is.
    #[must_use]
    pub fn new(
        shard: ShardHandle,
        checkpoint_bytes: u64,
        applied_bytes: Arc<AtomicU64>,
        used_permille: Arc<AtomicU32>,
    ) -> Self {
        Self {
            shard,
            checkpoint_bytes,
            applied_bytes,
            used_permille,
            checkpointed_at: 0,
            checkpointed_before: 0,
            pause_rounds: 0,
            purged: 0,
        }
    }

    /// Runs until the node stops.
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
            self.trim().await;
            let usage = self.shard.journal.usage();
            self.used_permille.store(permille(&usage), Ordering::Relaxed);
            self.checkpoint_if_due(&usage).await;
            self.purge().await;
            self.flush_if_held(&usage);
        }
    }

    /// Proposes the trims that retention asks for.
    async fn trim(&self) {
        let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
        let now = TimestampMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
        let due = self.shard.state.read().due_trims(now, TRIMS_PER_ROUND);
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
                body: Bytes::new(),
            })
            .collect();
        let bytes = trims.iter().map(SubBatch::encoded_bytes).sum::<usize>() as u64 + ENTRY_OVERHEAD_BYTES;
        match self.shard.journal.try_admit(bytes, Class::Control) {
            Ok(permit) => {
                if let Err(refusal) = self.shard.change(trims, permit).await {
                    tracing::warn!(shard = %self.shard.shard, why = refusal.detail, "retention could not trim");
                }
            }
            Err(full) => tracing::warn!(shard = %self.shard.shard, %full, "no room to trim"),
        }
    }

    /// A checkpoint is due when the log has grown enough, or when this shard alone keeps the oldest file and a
    /// checkpoint would let it go.
    async fn checkpoint_if_due(&mut self, usage: &Usage) {
        let applied = self.applied_bytes.load(Ordering::Relaxed);
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
        let has_grown = applied - self.checkpointed_at >= self.checkpoint_bytes;
        let covered = group::snapshot_index(&self.shard.raft);
        let is_holding = self.oldest_pin(usage).is_some_and(|pin| {
            let needed = self.shard.state.read().needed_from();
            needed.is_none_or(|needed| needed.0 > pin) && covered.is_none_or(|covered| covered < pin)
        });
        if !(has_grown || is_holding || (self.is_pressed(usage) && applied > self.checkpointed_at)) {
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

    fn is_pressed(&self, usage: &Usage) -> bool {
        usage.used_bytes * 10 > usage.limit_bytes * 8
    }

    /// Frees the log below the newest checkpoint and the oldest live record.
    async fn purge(&mut self) {
        let Some(covered) = group::snapshot_index(&self.shard.raft) else { return };
        let needed = self.shard.state.read().needed_from();
        let upto =
            needed.map_or(Some(u64::MAX), |index| index.0.checked_sub(1)).map(|upto| upto.min(covered));
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

fn permille(usage: &Usage) -> u32 {
    u32::try_from(usage.used_bytes * 1_000 / usage.limit_bytes.max(1)).unwrap_or(u32::MAX)
}
