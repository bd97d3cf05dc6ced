//! Staged batches, for readers that want records before they are committed.
//!
//! ```text
//!   proposer ─ stage ─▶ lines ─ look ─▶ cursors of early readers        committed_end ≤ what they are sent ≤ staged_end
//!   entry landed ─▶ its batches leave: they are read as committed from here on
//!   entry lost, new term ─▶ all leave and `losses` grows: cursors retract what they sent beyond their firm end
//! ```
//!
//! Nothing is kept and nobody is woken for a partition that no early reader watches: then a publish costs one load of
//! an atomic per entry.
//!
//! **Why a firm end is never wrong.** A cursor calls firm what it sent and what lies below the committed end, if
//! `losses` has not grown since it started to send it. Until then every staged offset is the final one (ADR 0005). It
//! grows, under this lock, before anything else can take an offset that was staged: where an entry is lost the proposer
//! stops until a new term, and a new term is entered by an entry without records, applied before any that has some.

use std::collections::{HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_protocol::ids::{Offset, TimestampMs};

use crate::metrics::NodeMetrics;
use crate::shard::state::PartitionKey;

/// Encoded bytes of staged batches that a shard keeps for early readers. What comes beyond is sent to them once it is
/// committed, as to everybody.
pub const STAGED_BYTES_MAX: usize = 8 << 20;

/// A batch that is on its way through the journal.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StagedBatch {
    /// Offset of its first record, unless its term is lost.
    pub base: Offset,
    /// Records in it.
    pub count: u32,
    /// Time of its entry.
    pub ts: TimestampMs,
    /// The batch, with nothing stamped.
    pub body: Bytes,
}

impl StagedBatch {
    /// One past its last record.
    #[must_use]
    pub fn end(&self) -> Offset {
        self.base.plus(u64::from(self.count))
    }
}

/// What an early reader finds.
#[derive(Debug)]
pub struct EarlyLook {
    /// How often staged records of the shard were lost so far.
    pub losses: u64,
    /// The term that staged records belong to.
    pub term: u64,
    /// Nothing that was staged in this term holds any more.
    pub is_lost: bool,
    /// Consecutive batches; the first holds the record that was asked for.
    pub batches: Vec<StagedBatch>,
}

/// The staged batches of a shard whose partitions early readers watch.
#[derive(Debug)]
pub struct EarlyTail {
    /// Early readers of the shard.
    readers: AtomicUsize,
    lines: Mutex<Lines>,
    bytes_max: usize,
    metrics: NodeMetrics,
}

#[derive(Debug, Default)]
struct Lines {
    of: HashMap<PartitionKey, Line>,
    bytes: usize,
    losses: u64,
    term: u64,
    is_lost: bool,
}

#[derive(Debug, Default)]
struct Line {
    readers: usize,
    changed: Arc<Notify>,
    batches: VecDeque<StagedBatch>,
}

/// A reader's wish to see a partition's records before they are committed; ends with it.
#[derive(Debug)]
pub struct EarlyWatch {
    tail: Arc<EarlyTail>,
    key: PartitionKey,
    /// Notified when something was staged, or lost.
    pub changed: Arc<Notify>,
}

impl EarlyTail {
    /// Nothing staged; at most `bytes_max` will be kept.
    #[must_use]
    pub fn new(bytes_max: usize, metrics: NodeMetrics) -> Self {
        Self { readers: AtomicUsize::new(0), lines: Mutex::default(), bytes_max, metrics }
    }

    /// Keeps what is staged on a partition from now on, for as long as the answer lives.
    #[must_use]
    pub fn watch(self: &Arc<Self>, key: PartitionKey) -> EarlyWatch {
        let mut lines = self.lines.lock();
        let line = lines.of.entry(key).or_default();
        line.readers += 1;
        let changed = Arc::clone(&line.changed);
        self.readers.fetch_add(1, Ordering::Release);
        EarlyWatch { tail: Arc::clone(self), key, changed }
    }

    /// Whether anybody wants staged records of the shard.
    #[must_use]
    pub fn is_watched(&self) -> bool {
        self.readers.load(Ordering::Acquire) > 0
    }

    /// Keeps those batches of an entry that somebody watches, before the entry is handed on; whom to wake after it was.
    pub(crate) fn stage(&self, batches: Vec<(PartitionKey, StagedBatch)>) -> Vec<Arc<Notify>> {
        let mut woken: Vec<Arc<Notify>> = Vec::new();
        let mut lines = self.lines.lock();
        let lines = &mut *lines;
        if lines.is_lost {
            return woken;
        }
        let before = lines.bytes;
        for (key, batch) in batches {
            let Some(line) = lines.of.get_mut(&key) else { continue };
            if lines.bytes + batch.body.len() > self.bytes_max {
                continue;
            }
            if woken.last().is_none_or(|last| !Arc::ptr_eq(last, &line.changed)) {
                woken.push(Arc::clone(&line.changed));
            }
            lines.bytes += batch.body.len();
            line.batches.push_back(batch);
        }
        self.metrics.staged_changed(before, lines.bytes);
        woken
    }

    /// A batch's entry was applied; where it was placed, if it was. It is read as committed from now on. One that was
    /// told another place than it got, which only a defect can bring about, is treated as lost.
    pub(crate) fn landed(&self, key: PartitionKey, body: &Bytes, placed: Option<Offset>) {
        let mut lines = self.lines.lock();
        let Some(line) = lines.of.get_mut(&key) else { return };
        // The very bytes: a batch that was not kept, for want of room or of a reader, is none of the line's.
        if line.batches.front().is_none_or(|first| first.body.as_ptr() != body.as_ptr()) {
            return;
        }
        let batch = line.batches.pop_front().expect("looked at before");
        lines.bytes -= batch.body.len();
        self.metrics.staged_changed(batch.body.len(), 0);
        if placed != Some(batch.base) {
            tracing::error!(told = %batch.base, ?placed, "a staged record got another place than it was told");
            debug_assert!(false, "staged at {}, placed at {placed:?}", batch.base);
            self.clear(&mut lines);
        }
    }

    /// An entry is lost, and what was staged behind it has other offsets than were told: until [`EarlyTail::regained`]
    /// nothing is kept.
    pub(crate) fn lost(&self) {
        let mut lines = self.lines.lock();
        lines.is_lost = true;
        self.clear(&mut lines);
    }

    /// The shard leads in a new term, with nothing of the old one in flight.
    pub(crate) fn regained(&self) {
        self.lines.lock().is_lost = false;
    }

    /// The first entry of a term is applied: what was staged before and is not applied yet is not to be relied on.
    pub(crate) fn entered(&self, term: u64) {
        let mut lines = self.lines.lock();
        lines.term = term;
        self.clear(&mut lines);
    }

    /// Consecutive staged batches from the record `next` on, of about `bytes_max` bytes. What `committed` reads is of
    /// the same moment: a batch that is not found is below its end, or was never staged, or lost.
    ///
    /// # Errors
    /// Those of `committed`.
    pub fn look<T, E>(
        &self,
        key: PartitionKey,
        (next, bytes_max): (Offset, u64),
        committed: impl FnOnce() -> Result<T, E>,
    ) -> Result<(T, EarlyLook), E> {
        let lines = self.lines.lock();
        let committed = committed()?;
        let mut batches: Vec<StagedBatch> = Vec::new();
        let (mut end, mut bytes) = (next, 0);
        for batch in lines.of.get(&key).map(|line| &line.batches).into_iter().flatten() {
            let is_next = batch.base <= end && end < batch.end();
            if is_next && bytes < bytes_max {
                end = batch.end();
                bytes += batch.body.len() as u64;
                batches.push(batch.clone());
            }
        }
        let Lines { losses, term, is_lost, .. } = *lines;
        Ok((committed, EarlyLook { losses, term, is_lost, batches }))
    }

    fn clear(&self, lines: &mut Lines) {
        lines.losses += 1;
        self.metrics.staged_changed(std::mem::take(&mut lines.bytes), 0);
        for line in lines.of.values_mut() {
            line.batches.clear();
            line.changed.notify_waiters();
        }
    }
}

impl Drop for EarlyWatch {
    fn drop(&mut self) {
        let mut lines = self.tail.lines.lock();
        // Counted with the line, under its lock: or a batch may land between the two, unnoticed, in a line that another
        // reader has found meanwhile, and stay there.
        self.tail.readers.fetch_sub(1, Ordering::Release);
        let Some(line) = lines.of.get_mut(&self.key) else { return };
        line.readers -= 1;
        if line.readers == 0 {
            let bytes: usize = line.batches.iter().map(|batch| batch.body.len()).sum();
            lines.of.remove(&self.key);
            lines.bytes -= bytes;
            self.tail.metrics.staged_changed(bytes, 0);
        }
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use prometheus::Registry;
    use weir_protocol::ids::{Incarnation, PartitionId};

    use super::*;

    const A: PartitionKey = (Incarnation(1), PartitionId(0));
    const B: PartitionKey = (Incarnation(1), PartitionId(1));

    fn tail(bytes_max: usize) -> Arc<EarlyTail> {
        Arc::new(EarlyTail::new(bytes_max, NodeMetrics::register(&Registry::new(), 0).unwrap()))
    }

    fn batch(base: u64, count: u32, len: usize) -> StagedBatch {
        StagedBatch { base: Offset(base), count, ts: TimestampMs(1), body: vec![7; len].into() }
    }

    fn found(tail: &EarlyTail, key: PartitionKey, next: u64) -> (u64, Vec<u64>) {
        let look = tail.look(key, (Offset(next), u64::MAX), || Ok::<_, ()>(())).unwrap().1;
        (look.losses, look.batches.iter().map(|batch| batch.base.0).collect())
    }

    #[test]
    fn only_what_somebody_watches_is_kept_and_only_they_are_woken() {
        let tail = tail(1_000);
        assert!(!tail.is_watched());
        assert!(tail.stage(vec![(A, batch(0, 1, 10))]).is_empty());
        let watch = tail.watch(A);
        let woken = tail.stage(vec![(A, batch(1, 2, 10)), (A, batch(3, 1, 10)), (B, batch(0, 1, 10))]);
        assert!(matches!(&woken[..], [one] if Arc::ptr_eq(one, &watch.changed)));
        assert_eq!(found(&tail, A, 0), (0, vec![]), "it was staged before anybody watched");
        assert_eq!(found(&tail, A, 2), (0, vec![1, 3]), "within a batch");
        assert_eq!(found(&tail, B, 0), (0, vec![]));
        drop(watch);
        assert!(!tail.is_watched());
        assert_eq!((found(&tail, A, 1), tail.lines.lock().bytes), ((0, vec![]), 0));
    }

    #[test]
    fn what_landed_leaves_and_what_found_no_room_leaves_a_hole_that_is_not_jumped() {
        let tail = tail(25);
        let _watch = tail.watch(A);
        let batches = [batch(0, 1, 10), batch(1, 1, 10), batch(2, 1, 10), batch(3, 1, 4)];
        tail.stage(batches.iter().map(|batch| (A, batch.clone())).collect());
        assert_eq!(found(&tail, A, 0), (0, vec![0, 1]), "the third has no room");
        assert_eq!(found(&tail, A, 3), (0, vec![3]));
        for batch in &batches[..3] {
            tail.landed(A, &batch.body, Some(batch.base));
        }
        assert_eq!((found(&tail, A, 0), found(&tail, A, 3)), ((0, vec![]), (0, vec![3])));
        assert_eq!(tail.lines.lock().bytes, 4);
    }

    #[test]
    fn a_loss_takes_everything_and_nothing_is_kept_until_a_new_term() {
        let tail = tail(1_000);
        let watch = tail.watch(A);
        tail.stage(vec![(A, batch(0, 1, 10))]);
        let woken = watch.changed.notified();
        tail.lost();
        assert!(woken.now_or_never().is_some(), "cursors look again");
        assert_eq!(found(&tail, A, 0), (1, vec![]));
        assert!(tail.stage(vec![(A, batch(0, 1, 10))]).is_empty(), "an entry that was built meanwhile");
        tail.entered(2);
        tail.regained();
        tail.stage(vec![(A, batch(0, 1, 10))]);
        assert_eq!(found(&tail, A, 0), (2, vec![0]));
        assert_eq!(tail.look(A, (Offset(0), 1), || Ok::<_, ()>(())).unwrap().1.term, 2);
    }
}
