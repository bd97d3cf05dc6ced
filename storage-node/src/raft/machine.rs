//! Applies committed entries to a shard's state, and writes checkpoints of it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use futures_util::{Stream, StreamExt as _};
use openraft::alias::{LogIdOf, SnapshotMetaOf, SnapshotOf, StoredMembershipOf};
use openraft::storage::{EntryResponder, RaftStateMachine};
use openraft::{EntryPayload, OptionalSend, RaftSnapshotBuilder, StoredMembership};
use parking_lot::{Mutex, RwLock};
use prost::Message as _;
use weir_journal::{Blobs, LogPosition};
use weir_protocol::ids::{LogIndex, ShardId};

use super::log::LogStore;
use super::types::{AppliedEntry, EntryData, Members, StoredMembers, TypeConfig, log_id, position};
use crate::shard::state::{Frozen, PartitionKey, ShardState};

/// Told of every entry that was applied, in order, on the task that applies: it must be short.
pub trait AppliedLog: Send + Sync + 'static {
    /// `touched` gained records or changed otherwise.
    fn applied(&self, index: LogIndex, touched: &[PartitionKey]);
}

/// A checkpoint's bytes: the state and its place in the log.
#[derive(Debug, Clone)]
pub struct CheckpointFile(pub Bytes);

#[derive(Clone, PartialEq, prost::Message)]
struct Checkpoint {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    leader: u64,
    #[prost(uint64, tag = "3")]
    index: u64,
    #[prost(message, optional, tag = "4")]
    members: Option<StoredMembers>,
    #[prost(message, optional, tag = "5")]
    members_at: Option<StoredLogId>,
    #[prost(bytes = "bytes", tag = "6")]
    state: Bytes,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct StoredLogId {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    leader: u64,
    #[prost(uint64, tag = "3")]
    index: u64,
}

/// The applied part of a shard, shared with its readers.
pub struct Machine {
    shard: ShardId,
    node: u64,
    state: Arc<RwLock<ShardState>>,
    applied: Arc<Mutex<AppliedPosition>>,
    log: LogStore,
    blobs: Blobs,
    listener: Arc<dyn AppliedLog>,
    bytes_since_checkpoint: Arc<AtomicU64>,
}

#[derive(Debug, Clone, Default)]
struct AppliedPosition {
    last: Option<LogIdOf<TypeConfig>>,
    members: StoredMembershipOf<TypeConfig>,
}

impl Machine {
    /// The shard's state from its newest checkpoint, or the empty one.
    ///
    /// # Errors
    /// If the checkpoint is damaged or of a newer format: the log before it may be gone, so the node must not start.
    pub fn open(
        shard: ShardId,
        node: u64,
        log: LogStore,
        blobs: Blobs,
        listener: Arc<dyn AppliedLog>,
    ) -> io::Result<Self> {
        let (state, applied) = match blobs.get(&blob_name(shard)).map_err(io::Error::other)? {
            Some(bytes) => decode(shard, bytes)?,
            None => (ShardState::new(shard), AppliedPosition::default()),
        };
        Ok(Self {
            shard,
            node,
            state: Arc::new(RwLock::new(state)),
            applied: Arc::new(Mutex::new(applied)),
            log,
            blobs,
            listener,
            bytes_since_checkpoint: Arc::default(),
        })
    }

    /// The state, for readers.
    #[must_use]
    pub fn state(&self) -> Arc<RwLock<ShardState>> {
        Arc::clone(&self.state)
    }

    /// Bytes of entries applied since the last checkpoint.
    #[must_use]
    pub fn bytes_since_checkpoint(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes_since_checkpoint)
    }

    /// Panics if this leader applies what a quorum has not flushed: with one voter, what its own disk has not. Cheap
    /// insurance against a consensus library that is still an alpha (docs/adr/0001).
    fn tripwire(&self, entry: &LogIdOf<TypeConfig>) {
        let voters = self.applied.lock().members.membership().voter_ids().count();
        let durable_end = self.log.durable_end();
        assert!(
            voters > 1 || entry.leader_id.node_id != self.node || entry.index < durable_end,
            "shard {}: entry {} was committed before it was durable (durable end {durable_end})",
            self.shard,
            entry.index,
        );
    }

    /// The state of this moment and its place in the log; the place's `state` is still empty.
    fn freeze(&self) -> (Checkpoint, Frozen) {
        // Both under the state's lock, so that they belong to the same moment.
        let state = self.state.read();
        let applied = self.applied.lock().clone();
        let at = applied.last.as_ref().map_or(LogPosition { term: 0, leader: 0, index: 0 }, position);
        let members = applied.members;
        let checkpoint = Checkpoint {
            term: at.term,
            leader: at.leader,
            index: at.index,
            members: Some(StoredMembers::from(members.membership())),
            members_at: members.log_id().as_ref().map(|id| {
                let at = position(id);
                StoredLogId { term: at.term, leader: at.leader, index: at.index }
            }),
            state: Bytes::new(),
        };
        (checkpoint, state.freeze())
    }
}

fn blob_name(shard: ShardId) -> String {
    format!("shard-{shard}")
}

fn decode(shard: ShardId, bytes: Bytes) -> io::Result<(ShardState, AppliedPosition)> {
    let stored = Checkpoint::decode(bytes).map_err(io::Error::other)?;
    let state = ShardState::decode(shard, &stored.state).map_err(io::Error::other)?;
    let members = stored.members.unwrap_or_default();
    let members = Members::try_from(members).map_err(io::Error::other)?;
    let at = |id: StoredLogId| log_id(LogPosition { term: id.term, leader: id.leader, index: id.index });
    let last = log_id(LogPosition { term: stored.term, leader: stored.leader, index: stored.index });
    let members = StoredMembership::new(stored.members_at.map(at), members);
    Ok((state, AppliedPosition { last: Some(last), members }))
}

impl RaftStateMachine<TypeConfig> for Machine {
    type SnapshotData = CheckpointFile;
    type SnapshotBuilder = CheckpointWriter;

    async fn applied_state(
        &mut self,
    ) -> Result<(Option<LogIdOf<TypeConfig>>, StoredMembershipOf<TypeConfig>), io::Error> {
        let applied = self.applied.lock();
        Ok((applied.last, applied.members.clone()))
    }

    async fn apply<Strm>(&mut self, mut entries: Strm) -> Result<(), io::Error>
    where
        Strm: Stream<Item = Result<EntryResponder<TypeConfig>, io::Error>> + Unpin + OptionalSend,
    {
        while let Some(next) = entries.next().await {
            let (entry, responder) = next?;
            let id = entry.log_id;
            self.tripwire(&id);
            let index = LogIndex(id.index);
            let (mut answer, mut touched) = (AppliedEntry::default(), Vec::new());
            {
                let mut state = self.state.write();
                if let EntryPayload::Normal(EntryData(payload)) = &entry.payload {
                    let applied = state.apply(index, id.leader_id.term, payload).map_err(io::Error::other)?;
                    self.bytes_since_checkpoint.fetch_add(payload.len() as u64, Ordering::Relaxed);
                    answer.verdicts = applied.verdicts;
                    touched = applied.touched;
                }
                let mut applied = self.applied.lock();
                applied.last = Some(id);
                if let EntryPayload::Membership(members) = entry.payload {
                    applied.members = StoredMembership::new(Some(id), members);
                }
            }
            if !touched.is_empty() {
                self.listener.applied(index, &touched);
            }
            if let Some(responder) = responder {
                responder.send(answer);
            }
        }
        Ok(())
    }

    async fn get_snapshot_builder(&mut self) -> CheckpointWriter {
        self.bytes_since_checkpoint.store(0, Ordering::Relaxed);
        let (checkpoint, frozen) = self.freeze();
        CheckpointWriter { checkpoint, frozen, blobs: self.blobs.clone(), name: blob_name(self.shard) }
    }

    async fn install_snapshot(
        &mut self,
        _meta: &SnapshotMetaOf<TypeConfig>,
        snapshot: CheckpointFile,
    ) -> Result<(), io::Error> {
        let (state, applied) = decode(self.shard, snapshot.0.clone())?;
        self.blobs.put(&blob_name(self.shard), [snapshot.0]).map_err(io::Error::other)?;
        *self.state.write() = state;
        *self.applied.lock() = applied;
        Ok(())
    }

    async fn get_current_snapshot(
        &mut self,
    ) -> Result<Option<SnapshotOf<TypeConfig, CheckpointFile>>, io::Error> {
        let Some(bytes) = self.blobs.get(&blob_name(self.shard)).map_err(io::Error::other)? else {
            return Ok(None);
        };
        let (_, applied) = decode(self.shard, bytes.clone())?;
        let meta =
            SnapshotMetaOf::<TypeConfig> { last_log_id: applied.last, last_membership: applied.members };
        Ok(Some(SnapshotOf::<TypeConfig, _> { meta, snapshot: CheckpointFile(bytes) }))
    }
}

/// Writes one checkpoint. The state was frozen when it was made; encoding and writing go on beside apply.
pub struct CheckpointWriter {
    checkpoint: Checkpoint,
    frozen: Frozen,
    blobs: Blobs,
    name: String,
}

impl RaftSnapshotBuilder<TypeConfig> for CheckpointWriter {
    type SnapshotData = CheckpointFile;

    async fn build_snapshot(&mut self) -> Result<SnapshotOf<TypeConfig, CheckpointFile>, io::Error> {
        let (checkpoint, frozen) = (self.checkpoint.clone(), self.frozen.clone());
        let (blobs, name) = (self.blobs.clone(), self.name.clone());
        let written = tokio::task::spawn_blocking(move || {
            let bytes = Bytes::from(Checkpoint { state: frozen.encode(), ..checkpoint }.encode_to_vec());
            blobs.put(&name, [bytes.clone()]).map(|()| bytes)
        });
        let bytes = written.await.map_err(io::Error::other)?.map_err(io::Error::other)?;
        let at = LogPosition {
            term: self.checkpoint.term,
            leader: self.checkpoint.leader,
            index: self.checkpoint.index,
        };
        let members = self.checkpoint.members.clone().unwrap_or_default();
        let members = Members::try_from(members).map_err(io::Error::other)?;
        let members_at = self
            .checkpoint
            .members_at
            .map(|id| log_id(LogPosition { term: id.term, leader: id.leader, index: id.index }));
        let last_membership = StoredMembership::new(members_at, members);
        let meta = SnapshotMetaOf::<TypeConfig> { last_log_id: Some(log_id(at)), last_membership };
        Ok(SnapshotOf::<TypeConfig, _> { meta, snapshot: CheckpointFile(bytes) })
    }
}
