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

use super::checkpoint::{Checkpoint, Checkpoints};
use super::log::LogStore;
use super::tripwire::Tripwire;
use super::types::{AppliedEntry, EntryData, LogId, StoredMembership, TypeConfig, term_of};
use crate::shard::state::{PartitionKey, ShardState};

type SnapshotOf = openraft::alias::SnapshotOf<TypeConfig, Bytes>;
type SnapshotMetaOf = openraft::alias::SnapshotMetaOf<TypeConfig>;

/// Told of every entry that was applied, in order, on the task that applies: it must be short.
pub trait AppliedLog: Send + Sync + 'static {
    /// `payload` is empty for entries without a command; `touched` gained records or changed otherwise.
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
        let newest = checkpoints.newest().map_err(io::Error::other)?;
        let (last, members, state) = match newest {
            Some((Checkpoint { last, members, state }, _)) => (Some(last), members, state),
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
                self.listener.applied(LogIndex(index), term, payload, &changed.touched);
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
    type SnapshotData = Bytes;
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

    async fn install_snapshot(&mut self, meta: &SnapshotMetaOf, snapshot: Bytes) -> Result<(), io::Error> {
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
        let checkpoints = self.checkpoints.clone();
        let newest = tokio::task::spawn_blocking(move || checkpoints.newest()).await;
        let newest = newest.map_err(io::Error::other)?.map_err(io::Error::other)?;
        Ok(newest.map(|(checkpoint, bytes)| snapshot(&checkpoint, bytes)))
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
        "{what}: they are not of the same moment. Stop here and restore the whole data directory from one copy"
    )))
}

fn snapshot(checkpoint: &Checkpoint, bytes: Bytes) -> SnapshotOf {
    let meta =
        SnapshotMetaOf { last_log_id: Some(checkpoint.last), last_membership: checkpoint.members.clone() };
    SnapshotOf { meta, snapshot: bytes }
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
        let write = move || checkpoints.put(&checkpoint).map(|bytes| snapshot(&checkpoint, bytes));
        tokio::task::spawn_blocking(write).await.map_err(io::Error::other)?.map_err(io::Error::other)
    }
}

impl RaftSnapshotBuilder<TypeConfig> for CheckpointWriter {
    type SnapshotData = Bytes;

    /// openraft stops a group whose snapshot fails, but a full disk is no reason to: nothing confirmed is touched. It
    /// is told of an empty snapshot then, which is older than any that it knows and changes nothing.
    async fn build_snapshot(&mut self) -> Result<SnapshotOf, io::Error> {
        let checkpoint = self.checkpoint.take();
        let checkpoint = checkpoint.ok_or_else(|| io::Error::other("nothing was applied yet"))?;
        Ok(self.write(checkpoint).await.unwrap_or_else(|error| {
            self.checkpoints.give_up(&error);
            let meta = SnapshotMetaOf { last_log_id: None, last_membership: StoredMembership::default() };
            SnapshotOf { meta, snapshot: Bytes::new() }
        }))
    }
}
