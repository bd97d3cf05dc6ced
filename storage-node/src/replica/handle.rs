//! How others reach a shard: its state for reading, its proposer for changing.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Weak};
use std::time::{Duration, Instant};

use bytes::Bytes;
use parking_lot::{Mutex, MutexGuard, RwLock};
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{Notify, mpsc, watch};
use weir_journal::{Journal, Permit, StreamId};
use weir_protocol::batch::Batch;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Incarnation, LogIndex, Offset, ShardId};
use weir_protocol::rpc::Refusal;

use super::archive::Archive;
use super::awaited::AwaitedOutputs;
use super::early::{EarlyTail, STAGED_BYTES_MAX};
use super::proposal::Proposal;
use super::queues::Queues;
use super::rates::{Rate, Rates};
use super::reread::Reread;
use super::returning::Returning;
use super::ring::{TailRings, part};
use super::rosters::Rosters;
use crate::metrics::NodeMetrics;
use crate::raft::{AppliedLog, ShardRaft};
use crate::shard::entry::{SUB_BATCHES_BYTES_MAX, SubBatch};
use crate::shard::staged::Staged;
use crate::shard::state::{BatchRow, PartitionKey, ShardState, Verdict};
use crate::tier::Tier;

/// What shards keep in memory for readers.
#[derive(Debug, Clone)]
pub struct TailMemory {
    rings: Arc<TailRings>,
    /// Of each shard, for entries that had left the rings and were read again.
    reread_bytes_max: usize,
    /// Of each shard, for records that were nacked and come again.
    returning_bytes_max: usize,
}

impl TailMemory {
    /// For so many shards, at most `bytes_max` together: five eighths for the newest entries, a quarter for
    /// those that are read again, the rest for records that come again. The newest entry is kept whatever its
    /// size.
    #[must_use]
    pub fn new(bytes_max: usize, shards: usize) -> Self {
        let (reread, returning) = (bytes_max / 4, bytes_max / 8);
        Self {
            rings: Arc::new(TailRings::new(bytes_max - reread - returning)),
            reread_bytes_max: reread / shards,
            returning_bytes_max: returning / shards,
        }
    }
}

/// What a shard's apply leaves for readers: the newest entries, who waits for them, and how busy partitions are.
#[derive(Debug)]
pub struct ShardShared {
    watchers: Mutex<HashMap<PartitionKey, Weak<Notify>>>,
    shard: ShardId,
    rings: Arc<TailRings>,
    reread: Mutex<Reread>,
    returning: Mutex<Returning>,
    rates: Mutex<Rates>,
    term: AtomicU64,
    /// The first entry that was applied of it.
    term_began: AtomicU64,
    /// What is in flight on top of the applied state. Locked before the state is read.
    staged: Mutex<Staged>,
    /// What of it early readers may have. Locked behind `staged`, before the state is read.
    early: Arc<EarlyTail>,
    /// Notified when something was put into the outbox, or taken.
    outbox: Arc<Notify>,
    queues: Queues,
    rosters: Rosters,
    archive: Archive,
    awaited_outputs: AwaitedOutputs,
    metrics: NodeMetrics,
}

impl ShardShared {
    /// For one shard, with its part of the memory.
    #[must_use]
    pub fn new(shard: ShardId, memory: &TailMemory, metrics: NodeMetrics) -> Self {
        Self {
            watchers: Mutex::default(),
            shard,
            rings: Arc::clone(&memory.rings),
            reread: Mutex::new(Reread::new(memory.reread_bytes_max)),
            returning: Mutex::new(Returning::new(memory.returning_bytes_max)),
            rates: Mutex::default(),
            term: AtomicU64::new(0),
            term_began: AtomicU64::new(0),
            staged: Mutex::default(),
            early: Arc::new(EarlyTail::new(STAGED_BYTES_MAX, metrics.clone())),
            outbox: Arc::default(),
            queues: Queues::default(),
            rosters: Rosters::default(),
            archive: Archive::default(),
            // Outputs of an earlier start may still be on their way.
            awaited_outputs: AwaitedOutputs::new(any_name()),
            metrics,
        }
    }

    /// Notified each time the partition gains records or changes. Take the notification before looking at the
    /// state, and nothing is missed.
    #[must_use]
    pub fn watch(&self, key: PartitionKey) -> Arc<Notify> {
        let mut watchers = self.watchers.lock();
        if let Some(notify) = watchers.get(&key).and_then(Weak::upgrade) {
            return notify;
        }
        // Entries of partitions that nobody follows any more are swept when the map has doubled.
        if watchers.len() == watchers.capacity() {
            watchers.retain(|_, notify| notify.strong_count() > 0);
        }
        let notify = Arc::new(Notify::new());
        watchers.insert(key, Arc::downgrade(&notify));
        notify
    }

    /// Bodies of the rows whose entries are still in memory.
    #[must_use]
    pub fn recent(&self, rows: &[BatchRow]) -> Vec<Option<Bytes>> {
        let bodies = self.in_memory(rows);
        bodies.iter().for_each(|body| self.metrics.entry_read(body.is_some()));
        bodies
    }

    /// The same for whoever can do without: it does not count as read.
    #[must_use]
    pub fn in_memory(&self, rows: &[BatchRow]) -> Vec<Option<Bytes>> {
        let within = |row: &BatchRow| row.pos as usize..(row.pos + row.len) as usize;
        let mut bodies = self.rings.parts(self.shard, rows.iter().map(|row| (row.index, within(row))));
        if bodies.contains(&None) {
            let reread = self.reread.lock();
            let missing = rows.iter().zip(&mut bodies).filter(|(_, found)| found.is_none());
            missing.for_each(|(row, found)| {
                *found = reread.get(row.index).and_then(|entry| part(entry, within(row)));
            });
        }
        bodies
    }

    /// Entries were read from the journal: who reads them again soon finds them in memory.
    pub fn reread(&self, entries: impl IntoIterator<Item = (LogIndex, Bytes)>) {
        let mut reread = self.reread.lock();
        let before = reread.bytes();
        entries.into_iter().for_each(|(index, payload)| reread.put(index, payload));
        self.metrics.ring_changed(before, reread.bytes());
    }

    /// A part of a batch comes again soon.
    pub fn keep_returning(&self, key: PartitionKey, row: BatchRow, part: Batch) {
        let mut returning = self.returning.lock();
        let before = returning.bytes();
        returning.put(key, row, part);
        self.metrics.ring_changed(before, returning.bytes());
    }

    /// The part of a batch that holds a record that comes again, if it is kept.
    #[must_use]
    pub fn returning(&self, key: PartitionKey, offset: Offset) -> Option<(BatchRow, Batch)> {
        let found = self.returning.lock().get(key, offset).cloned();
        found.is_some().then(|| self.metrics.entry_read(true));
        found
    }

    /// Ends when the outbox changes after this call. Take it before looking at the state, and nothing is missed.
    pub fn watch_outbox(&self) -> OwnedNotified {
        Arc::clone(&self.outbox).notified_owned()
    }

    /// Everybody who waits for a partition looks again.
    pub(super) fn wake_all(&self) {
        let woken: Vec<Arc<Notify>> = self.watchers.lock().values().filter_map(Weak::upgrade).collect();
        woken.iter().for_each(|notify| notify.notify_waiters());
    }

    /// Term of the newest applied entry: names what a reader sees.
    #[must_use]
    pub fn term(&self) -> u64 {
        self.term.load(Ordering::Acquire)
    }

    /// The first entry of that term: what is in entries before it, earlier leaders may have delivered.
    #[must_use]
    pub fn term_began(&self) -> LogIndex {
        LogIndex(self.term_began.load(Ordering::Acquire))
    }

    /// What is in flight on top of the applied state. Whoever needs both locks this first: an entry is applied before
    /// it is taken off here, so nothing falls between the two.
    pub(crate) fn staged(&self) -> MutexGuard<'_, Staged> {
        self.staged.lock()
    }

    /// What is in flight, for readers that do not wait for the commit.
    #[must_use]
    pub fn early(&self) -> &Arc<EarlyTail> {
        &self.early
    }

    /// Leases given in this term.
    #[must_use]
    pub fn queues(&self) -> &Queues {
        &self.queues
    }

    /// Who shares the streams that are at home here, in this term.
    #[must_use]
    pub fn rosters(&self) -> &Rosters {
        &self.rosters
    }

    /// How far the shard is archived, and who waits for it.
    #[must_use]
    pub fn archive(&self) -> &Archive {
        &self.archive
    }

    /// Settles that wait for their outputs.
    #[must_use]
    pub fn awaited_outputs(&self) -> &AwaitedOutputs {
        &self.awaited_outputs
    }

    /// Counts what a publish added.
    pub fn published(&self, key: PartitionKey, records: u32, bytes: usize, now: Instant) {
        self.metrics.published(u64::from(records), bytes as u64);
        self.rates.lock().published(key, records, bytes, now);
    }

    /// Counts what a reader was given.
    pub fn delivered(&self, key: PartitionKey, records: u64, bytes: u64, now: Instant) {
        if records > 0 {
            self.metrics.delivered(records, bytes);
            self.rates.lock().delivered(key, records, now);
        }
    }

    /// How busy a partition is.
    #[must_use]
    pub fn rate(&self, key: PartitionKey) -> Rate {
        self.rates.lock().of(key, Instant::now())
    }

    /// The node's counters.
    #[must_use]
    pub fn metrics(&self) -> &NodeMetrics {
        &self.metrics
    }
}

fn any_name() -> u64 {
    u64::try_from(ulid::Ulid::new().random() & u128::from(u64::MAX)).expect("masked")
}

impl AppliedLog for ShardShared {
    fn applied(&self, index: LogIndex, term: u64, payload: &Bytes, touched: &[PartitionKey]) {
        // What was told of an earlier term may be lost with it: everybody looks again.
        let is_new_term = self.term() != term;
        if is_new_term {
            // Before the term: whoever reads that first finds this of it, or of a later one.
            self.term_began.store(index.0, Ordering::Release);
            self.term.store(term, Ordering::Release);
        }
        let (before, after) = self.rings.push(self.shard, index, payload.clone());
        self.metrics.ring_changed(before, after);
        if is_new_term {
            self.queues.clear();
            self.rosters.enter(term);
            self.early.entered(term);
            return self.wake_all();
        }
        if touched.is_empty() {
            return;
        }
        let woken: Vec<Arc<Notify>> = {
            let watchers = self.watchers.lock();
            if watchers.is_empty() {
                return;
            }
            touched.iter().filter_map(|key| watchers.get(key)?.upgrade()).collect()
        };
        woken.iter().for_each(|notify| notify.notify_waiters());
    }

    fn outbox_changed(&self) {
        self.outbox.notify_waiters();
    }

    fn replaced(&self) {
        {
            let (before, after) = self.rings.clear(self.shard);
            self.metrics.ring_changed(before, after);
            let mut reread = self.reread.lock();
            self.metrics.ring_changed(reread.bytes(), 0);
            reread.clear();
            let mut returning = self.returning.lock();
            self.metrics.ring_changed(returning.bytes(), 0);
            returning.clear();
        }
        self.wake_all();
        self.outbox.notify_waiters();
    }
}

/// A running shard. Cheap to clone.
#[derive(Clone)]
pub struct ShardHandle {
    /// Its number.
    pub shard: ShardId,
    /// What its log means.
    pub state: Arc<RwLock<ShardState>>,
    /// Wakes readers.
    pub shared: Arc<ShardShared>,
    /// Its consensus.
    pub raft: ShardRaft,
    /// Where its entries lie.
    pub journal: Journal,
    /// Where they lie when they have left the journal, if the node has a store.
    pub tier: Option<Arc<Tier>>,
    /// Counts its checkpoints that could not be written.
    pub checkpoints_given_up: watch::Receiver<u64>,
    pub(crate) proposals: mpsc::UnboundedSender<Proposal>,
}

impl ShardHandle {
    /// The shard's stream in the journal.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        StreamId(self.shard.0)
    }

    /// Queues a proposal. The queue needs no bound of its own: what waits holds a permit of the journal, and
    /// their bytes are bounded there. One that no entry can carry is refused: the journal would not take it,
    /// and a shard whose log fails stops, and its node with it.
    pub(crate) fn propose(&self, proposal: Proposal) {
        if proposal.bytes > SUB_BATCHES_BYTES_MAX {
            let detail = format!(
                "a change of {} bytes; an entry carries {SUB_BATCHES_BYTES_MAX}: ask for less at once",
                proposal.bytes
            );
            return proposal.refuse(&Refusal::new(ErrorCode::TooLarge, detail));
        }
        if let Err(mpsc::error::SendError(proposal)) = self.proposals.send(proposal) {
            proposal.refuse(&Refusal::new(ErrorCode::Draining, "the node is shutting down"));
        }
    }

    /// Waits until every shard that holds partitions of a topic has been told what it is now.
    ///
    /// # Errors
    /// `unavailable` once `patience` is over: the change stands, and the rest follows.
    pub async fn told_everywhere(&self, life: Incarnation, patience: Duration) -> Result<(), Refusal> {
        let all = async {
            loop {
                let changed = self.shared.watch_outbox();
                if !self.state.read().outbox().speaks_of(life) {
                    return;
                }
                changed.await;
            }
        };
        tokio::time::timeout(patience, all).await.map_err(|_| {
            let detail = "the change is made, but not every shard of the topic has heard of it yet";
            Refusal::new(ErrorCode::Unavailable, detail).with_outcome(Outcome::Applied)
        })
    }

    /// Proposes changes of the shard's own and waits for their verdicts.
    ///
    /// # Errors
    /// If the shard cannot commit, with an outcome that says whether it may have.
    ///
    /// # Cancel safety
    /// If it is dropped, the changes may still happen.
    pub async fn change(&self, subs: Vec<SubBatch>, permit: Permit) -> Result<Vec<Verdict>, Refusal> {
        let (proposal, answer) = Proposal::waiting(subs, permit);
        self.propose(proposal);
        answer.await.unwrap_or_else(|_| Err(Refusal::new(ErrorCode::Draining, "the node is shutting down")))
    }
}

#[cfg(test)]
mod tests {
    use futures_util::FutureExt as _;
    use prometheus::Registry;
    use weir_protocol::ids::{Incarnation, PartitionId};

    use super::*;

    #[test]
    fn a_new_term_wakes_who_waits_for_a_record_of_the_old_one() {
        let metrics = NodeMetrics::register(&Registry::new(), 0).unwrap();
        let shared = ShardShared::new(ShardId(1), &TailMemory::new(1 << 20, 1), metrics);
        let watch = shared.watch((Incarnation(1), PartitionId(0)));
        let entry = |index, term| shared.applied(LogIndex(index), term, &Bytes::new(), &[]);
        entry(0, 1);
        let woken = watch.notified();
        entry(1, 1);
        let mut woken = std::pin::pin!(woken);
        assert!(woken.as_mut().now_or_never().is_none(), "nothing touched the partition");
        entry(2, 2);
        assert!(woken.now_or_never().is_some());
    }
}
