//! openraft's state machine: applies entries to the shard, makes and installs snapshots.

use std::io;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder};
use parking_lot::RwLock;
use tokio::sync::watch;
use weir_journal::Blobs;
use weir_protocol::ids::{LogIndex, ShardId};

use super::checkpoint::{Checkpoint, CheckpointError, Checkpoints};
use super::log::LogStore;
use super::tripwire::Tripwire;
use super::types::{AppliedEntry, EntryData, LogId, StoredMembership, TypeConfig, term_of};
use crate::shard::state::{PartitionKey, ShardState};

type SnapshotOf = openraft::alias::SnapshotOf<TypeConfig, SnapshotBytes>;
type SnapshotMetaOf = openraft::alias::SnapshotMetaOf<TypeConfig>;

/// Where the bytes of a snapshot are.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum SnapshotBytes {
    /// In the file of the newest checkpoint: nobody holds them in memory, and who sends them reads them there.
    Kept,
    /// Here: they came from a peer.
    Given(Bytes),
}

/// Told of every entry that was applied, in order, on the task that applies: it must be short.
pub trait AppliedLog: Send + Sync + 'static {
    /// `payload` is empty for entries without batches: nobody reads those again. `touched` gained records or changed
    /// otherwise.
    fn applied(&self, index: LogIndex, term: u64, payload: &Bytes, touched: &[PartitionKey]);

    /// The entry put something into the outbox, or another shard has taken something.
    fn outbox_changed(&self);

    /// Everything was replaced by a snapshot.
    fn replaced(&self);
}

/// Applies the log of one shard. Owned by openraft's worker: nothing else changes the shard's state.
pub struct Machine {
    shard: ShardId,
    state: Arc<RwLock<ShardState>>,
    log: LogStore,
    tripwire: Arc<Tripwire>,
    checkpoints: Checkpoints,
    listener: Arc<dyn AppliedLog>,
    last: Option<LogId>,
    members: StoredMembership,
    /// Payload bytes applied since start, for the rule of when to checkpoint.
    applied_bytes: Arc<AtomicU64>,
}

impl Machine {
    /// The shard's state from its newest checkpoint, or the one given, which is empty. Blocking.
    ///
    /// # Errors
    /// If the checkpoint is damaged, of a newer format, or does not touch the log: the node must not start, it would
    /// lose what was confirmed.
    pub fn open(
        (shard, empty): (ShardId, ShardState),
        log: LogStore,
        tripwire: Arc<Tripwire>,
        blobs: Blobs,
        listener: Arc<dyn AppliedLog>,
    ) -> io::Result<Self> {
        let checkpoints = Checkpoints::new(blobs, shard);
        let newest = checkpoints.newest().map_err(|error| match error {
            // Names its file.
            CheckpointError::Blob(error) => io::Error::other(error),
            error => io::Error::other(format!("{}: {error}", checkpoints.path())),
        });
        let (last, members, state) = match newest? {
            Some(Checkpoint { last, members, state }) => (Some(last), members, state),
            None => (None, StoredMembership::default(), empty),
        };
        fits(last, log.range(), &checkpoints)?;
        tripwire.members(members.membership());
        Ok(Self {
            shard,
            state: Arc::new(RwLock::new(state)),
            log,
            tripwire,
            checkpoints,
            listener,
            last,
            members,
            applied_bytes: Arc::default(),
        })
    }

    /// The state, for readers.
    #[must_use]
    pub fn state(&self) -> Arc<RwLock<ShardState>> {
        Arc::clone(&self.state)
    }

    /// Counts checkpoints that could not be written.
    #[must_use]
    pub fn checkpoints_given_up(&self) -> watch::Receiver<u64> {
        self.checkpoints.given_up()
    }

    /// Bytes of the newest checkpoint.
    #[must_use]
    pub fn checkpoint_bytes(&self) -> Arc<AtomicU64> {
        self.checkpoints.bytes()
    }

    /// Payload bytes applied since start.
    #[must_use]
    pub fn applied_bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.applied_bytes)
    }

    fn apply_one(&mut self, (entry, responder): EntryResponder<TypeConfig>) -> io::Result<()> {
        let (index, term) = (entry.log_id.index, term_of(&entry.log_id));
        self.tripwire.check(index);
        let mut applied = AppliedEntry::default();
        match &entry.payload {
            EntryPayload::Blank => self.listener.applied(LogIndex(index), term, &Bytes::new(), &[]),
            EntryPayload::Normal(EntryData(payload)) => {
                let changed = self.state.write().apply(LogIndex(index), term, payload);
                let changed = changed.map_err(io::Error::other)?;
                self.applied_bytes.fetch_add(payload.len() as u64, Ordering::Relaxed);
                let none = Bytes::new();
                let batches = if changed.has_batches { payload } else { &none };
                self.listener.applied(LogIndex(index), term, batches, &changed.touched);
                if changed.is_outbox_changed {
                    self.listener.outbox_changed();
                }
                applied.verdicts = changed.verdicts;
            }
            EntryPayload::Membership(members) => {
                self.tripwire.members(members);
                self.members = StoredMembership::new(Some(entry.log_id), members.clone());
                self.listener.applied(LogIndex(index), term, &Bytes::new(), &[]);
            }
        }
        self.last = Some(entry.log_id);
        applied.synced = self.log.applied(index);
        if let Some(responder) = responder {
            responder.send(applied);
        }
        Ok(())
    }
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = SnapshotBytes;
    type SnapshotBuilder = CheckpointWriter;

    async fn applied_state(&mut self) -> Result<(Option<LogId>, StoredMembership), io::Error> {
        Ok((self.last, self.members.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some(entry) = entries.next().await {
            self.apply_one(entry?)?;
        }
        Ok(())
    }

    /// The state is copied here, at one place in the log; encoding and writing go on beside apply.
    async fn get_snapshot_builder(&mut self) -> CheckpointWriter {
        let state = self.state.read().clone();
        let checkpoint = self.last.map(|last| Checkpoint { last, members: self.members.clone(), state });
        CheckpointWriter { checkpoint, checkpoints: self.checkpoints.clone(), log: self.log.clone() }
    }

    async fn install_snapshot(
        &mut self,
        meta: &SnapshotMetaOf,
        snapshot: SnapshotBytes,
    ) -> Result<(), io::Error> {
        // A state begins with its newest checkpoint and is never behind it.
        let SnapshotBytes::Given(snapshot) = snapshot else {
            return Err(io::Error::other("the snapshot is this node's own"));
        };
        let checkpoint = Checkpoint::decode(self.shard, &snapshot).map_err(io::Error::other)?;
        if Some(checkpoint.last) != meta.last_log_id {
            return Err(io::Error::other("the snapshot is not the one its header names"));
        }
        let (checkpoints, copy) = (self.checkpoints.clone(), checkpoint.clone());
        let put = tokio::task::spawn_blocking(move || checkpoints.put(&copy));
        put.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
        self.tripwire.members(checkpoint.members.membership());
        self.last = Some(checkpoint.last);
        self.members = checkpoint.members;
        *self.state.write() = checkpoint.state;
        self.listener.replaced();
        Ok(())
    }

    async fn get_current_snapshot(&mut self) -> Result<Option<SnapshotOf>, io::Error> {
        Ok(self.checkpoints.known().map(|(last, members)| snapshot(Some(last), members)))
    }
}

/// Refuses a checkpoint at `last` beyond the end of the log, or with a hole between them. A checkpoint is written
/// after the log that it covers was synced, and nothing is purged above it: so they are of different moments.
fn fits(last: Option<LogId>, log: Range<u64>, checkpoints: &Checkpoints) -> io::Result<()> {
    let (next, path) = (last.map_or(0, |last| last.index + 1), checkpoints.path());
    let what = if next > log.end {
        format!("the checkpoint {path} covers entries up to {next}, and the log in wal/ ends at {}", log.end)
    } else if next < log.start {
        format!("the log in wal/ begins at entry {}, and the checkpoint {path} ends at {next}", log.start)
    } else {
        return Ok(());
    };
    Err(io::Error::other(format!(
        "{what}: they are not of the same moment. Stop here and restore the whole data directory from one copy; after a \
         repair that was interrupted, run `weir repair` again"
    )))
}

fn snapshot(last: Option<LogId>, members: StoredMembership) -> SnapshotOf {
    let meta = SnapshotMetaOf { last_log_id: last, last_membership: members };
    SnapshotOf { meta, snapshot: SnapshotBytes::Kept }
}

/// Writes one checkpoint.
#[derive(Debug)]
pub struct CheckpointWriter {
    checkpoint: Option<Checkpoint>,
    checkpoints: Checkpoints,
    log: LogStore,
}

impl CheckpointWriter {
    /// Durable on return, and never ahead of the log: a power cut must not leave a checkpoint of entries that are gone.
    async fn write(&self, checkpoint: Checkpoint) -> io::Result<SnapshotOf> {
        self.log.sync(checkpoint.last.index).await?;
        let checkpoints = self.checkpoints.clone();
        let write = move || {
            checkpoints.put(&checkpoint).map(|()| snapshot(Some(checkpoint.last), checkpoint.members))
        };
        tokio::task::spawn_blocking(write).await.map_err(io::Error::other)?.map_err(io::Error::other)
    }
}

impl RaftSnapshotBuilder<TypeConfig> for CheckpointWriter {
    type SnapshotData = SnapshotBytes;

    /// openraft stops a group whose snapshot fails, but a full disk is no reason to: nothing confirmed is touched. It
    /// is told of an empty snapshot then, which is older than any that it knows and changes nothing.
    async fn build_snapshot(&mut self) -> Result<SnapshotOf, io::Error> {
        let checkpoint = self.checkpoint.take();
        let checkpoint = checkpoint.ok_or_else(|| io::Error::other("nothing was applied yet"))?;
        Ok(self.write(checkpoint).await.unwrap_or_else(|error| {
            self.checkpoints.give_up(&error);
            snapshot(None, StoredMembership::default())
        }))
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use parking_lot::Mutex;
    use weir_journal::disk::sim::SimDisk;
    use weir_journal::{Identity, Journal, JournalConfig, StreamId};
    use weir_protocol::ids::TimestampMs;

    use super::*;
    use crate::raft::{ShardRaft, group};
    use crate::shard::entry::EntryBuilder;

    const SHARD: ShardId = ShardId(1);

    /// The indexes of what was applied, in order.
    #[derive(Default)]
    struct Counting {
        applied: Mutex<Vec<u64>>,
    }

    impl AppliedLog for Counting {
        fn applied(&self, index: LogIndex, _: u64, _: &Bytes, _: &[PartitionKey]) {
            self.applied.lock().push(index.0);
        }

        fn outbox_changed(&self) {}

        fn replaced(&self) {}
    }

    /// One life of a shard that is alone on its disk.
    struct Life {
        journal: Journal,
        raft: ShardRaft,
        counting: Arc<Counting>,
        given_up: watch::Receiver<u64>,
    }

    impl Life {
        async fn begin(disk: &SimDisk) -> Self {
            Self::begin_on(disk, disk).await
        }

        /// With checkpoints on another disk than the log.
        async fn begin_on(disk: &SimDisk, of_checkpoints: &SimDisk) -> Self {
            let (disk, of_checkpoints) = (Arc::new(disk.clone()), Arc::new(of_checkpoints.clone()));
            let config = JournalConfig::small("/data", Identity { cluster_id: 1, node_id: 1 });
            let (journal, found) = Journal::open(config, disk as _).unwrap();
            let found = found.streams.get(&StreamId(SHARD.0));
            let tripwire = Arc::new(Tripwire::new(SHARD, 1, found.map_or(0, |found| found.entries.end)));
            let log = LogStore::open(journal.clone(), SHARD, 1, found, Arc::clone(&tripwire)).unwrap();
            let blobs = Blobs::open("/data/blobs", of_checkpoints).unwrap();
            let counting = Arc::<Counting>::default();
            let listener = Arc::clone(&counting) as _;
            let machine =
                Machine::open((SHARD, ShardState::new(SHARD)), log.clone(), tripwire, blobs, listener)
                    .unwrap();
            let given_up = machine.checkpoints_given_up();
            let raft = group::start(SHARD, 1, log, machine).await.unwrap();
            Self { journal, raft, counting, given_up }
        }

        /// Index of the last of `count` entries.
        async fn write(&self, count: u64) -> u64 {
            let mut last = 0;
            for ts in 0..count {
                let entry = EntryData(EntryBuilder::new(TimestampMs(ts), 0).build());
                last = self.raft.client_write(entry).await.unwrap().log_id.index;
            }
            last
        }

        /// Ends without a checkpoint; what was applied in this life.
        async fn end(self) -> Vec<u64> {
            self.raft.shutdown().await.unwrap();
            self.journal.close();
            let applied = self.counting.applied.lock();
            applied.clone()
        }
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_restart_applies_only_what_came_after_the_checkpoint() {
        let disk = SimDisk::new();
        let first = Life::begin(&disk).await;
        let last = first.write(10).await;
        assert_eq!(first.end().await, (0..=last).collect::<Vec<_>>());

        let second = Life::begin(&disk).await;
        let covered = second.write(5).await;
        group::checkpoint(&second.raft, second.given_up.clone(), Duration::from_secs(20)).await.unwrap();
        let last = second.write(3).await;
        assert_eq!(second.end().await, (0..=last).collect::<Vec<_>>(), "there was no checkpoint before");

        let third = Life::begin(&disk).await;
        assert_eq!(group::snapshot_index(&third.raft), Some(covered));
        let next = third.write(1).await;
        let applied = third.end().await;
        assert_eq!(applied, (covered + 1..=next).collect::<Vec<_>>());
        // Three of the life before; this one's: of its election, and the one that was written.
        assert_eq!((last - covered, applied.len()), (3, 5));
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_checkpoint_that_is_asked_for_while_another_is_written_follows_it() {
        let (disk, slow) = (SimDisk::new(), SimDisk::new());
        let life = Life::begin_on(&disk, &slow).await;
        life.write(3).await;
        slow.stall_syncs();
        life.raft.trigger().snapshot().await.unwrap();
        while !slow.is_waited_for() {
            tokio::task::yield_now().await;
        }
        let covered = life.write(2).await;
        while group::applied_index(&life.raft) < Some(covered) {
            tokio::task::yield_now().await;
        }
        let raft = life.raft.clone();
        let asked = group::checkpoint(&raft, life.given_up.clone(), Duration::from_secs(20));
        let mut asked = std::pin::pin!(asked);
        assert!(futures_util::poll!(&mut asked).is_pending());
        // What is asked of a group it takes in order.
        life.write(1).await;
        slow.go_on();
        asked.await.unwrap();
        assert!(group::snapshot_index(&life.raft) >= Some(covered));
        life.end().await;
    }
}
