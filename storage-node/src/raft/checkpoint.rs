//! A checkpoint: a shard's state and its place in the log, in a durable file beside the journal. It speeds restart,
//! and the log below it may be purged as far as no live record needs it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use prost::Message as _;
use tokio::sync::watch;
use weir_journal::{Blobs, SealedError};
use weir_protocol::ids::ShardId;

use super::types::{
    CodecError, LogId, Membership, StoredMembership, decode_membership, encode_membership, log_id, term_of,
};
use crate::shard::state::{ShardState, SnapshotError};

/// Why a checkpoint cannot be read.
#[derive(Debug, thiserror::Error)]
pub enum CheckpointError {
    /// The file is damaged or unreadable.
    #[error(transparent)]
    Blob(#[from] SealedError),
    /// Its content is not a checkpoint.
    #[error("not a checkpoint that this build can read")]
    Content(#[from] prost::DecodeError),
    /// Its state is damaged or newer than this build.
    #[error(transparent)]
    State(#[from] SnapshotError),
    /// Its membership is damaged.
    #[error(transparent)]
    Membership(#[from] CodecError),
}

/// A shard's state at a place in its log.
#[derive(Debug, Clone)]
pub struct Checkpoint {
    /// The last entry that is part of it.
    pub last: LogId,
    /// The group's members then.
    pub members: StoredMembership,
    /// The state.
    pub state: ShardState,
}

#[derive(Clone, PartialEq, prost::Message)]
struct Stored {
    #[prost(uint64, tag = "1")]
    term: u64,
    #[prost(uint64, tag = "2")]
    index: u64,
    #[prost(bytes = "bytes", tag = "3")]
    members: Bytes,
    #[prost(uint64, optional, tag = "4")]
    members_term: Option<u64>,
    #[prost(uint64, optional, tag = "5")]
    members_index: Option<u64>,
    #[prost(bytes = "bytes", tag = "6")]
    state: Bytes,
}

impl Checkpoint {
    /// As bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let at = self.members.log_id().as_ref();
        let stored = Stored {
            term: term_of(&self.last),
            index: self.last.index,
            members: encode_membership(self.members.membership()),
            members_term: at.map(term_of),
            members_index: at.map(|at| at.index),
            state: self.state.encode(),
        };
        stored.encode_to_vec().into()
    }

    /// From bytes of [`Checkpoint::encode`].
    ///
    /// # Errors
    /// [`CheckpointError`].
    pub fn decode(shard: ShardId, bytes: &Bytes) -> Result<Self, CheckpointError> {
        let stored = Stored::decode(bytes.clone())?;
        let at = stored.members_term.zip(stored.members_index).map(|(term, index)| log_id(term, index));
        let members: Membership = decode_membership(&stored.members)?;
        Ok(Self {
            last: log_id(stored.term, stored.index),
            members: StoredMembership::new(at, members),
            state: ShardState::decode(shard, &stored.state)?,
        })
    }
}

/// Where the newest checkpoint of one shard is kept.
#[derive(Debug, Clone)]
pub struct Checkpoints {
    blobs: Blobs,
    shard: ShardId,
    given_up: Arc<watch::Sender<u64>>,
    /// Bytes of the newest one; 0 without one.
    bytes: Arc<AtomicU64>,
}

impl Checkpoints {
    /// That of `shard` in `blobs`.
    #[must_use]
    pub fn new(blobs: Blobs, shard: ShardId) -> Self {
        Self { blobs, shard, given_up: Arc::new(watch::channel(0).0), bytes: Arc::default() }
    }

    /// Bytes of the newest one, once it was read or written; 0 without one.
    #[must_use]
    pub fn bytes(&self) -> Arc<AtomicU64> {
        Arc::clone(&self.bytes)
    }

    /// Counts checkpoints that could not be written.
    #[must_use]
    pub fn given_up(&self) -> watch::Receiver<u64> {
        self.given_up.subscribe()
    }

    /// A checkpoint could not be written: the old one counts on, and the log below the new one stays.
    pub fn give_up(&self, why: &dyn std::fmt::Display) {
        tracing::warn!(shard = %self.shard, %why, "no checkpoint; the one before it stays, and it is tried again");
        self.given_up.send_modify(|count| *count += 1);
    }

    fn name(&self) -> String {
        format!("shard-{}", self.shard)
    }

    /// The file that it is in, for people.
    #[must_use]
    pub fn path(&self) -> String {
        self.blobs.path(&self.name()).map_or_else(|_| self.name(), |path| path.display().to_string())
    }

    /// The newest one and its bytes; `None` if there is none. Blocking.
    ///
    /// # Errors
    /// [`CheckpointError`]: the log before it may be gone, so the caller refuses to start.
    pub fn newest(&self) -> Result<Option<(Checkpoint, Bytes)>, CheckpointError> {
        let Some(bytes) = self.blobs.get(&self.name())? else { return Ok(None) };
        self.bytes.store(bytes.len() as u64, Ordering::Relaxed);
        Ok(Some((Checkpoint::decode(self.shard, &bytes)?, bytes)))
    }

    /// Replaces the newest one, durably on return; returns its bytes. Blocking.
    ///
    /// # Errors
    /// [`SealedError`]: the old one is still there.
    pub fn put(&self, checkpoint: &Checkpoint) -> Result<Bytes, SealedError> {
        let bytes = checkpoint.encode();
        self.blobs.put(&self.name(), [bytes.clone()])?;
        self.bytes.store(bytes.len() as u64, Ordering::Relaxed);
        Ok(bytes)
    }
}

#[cfg(test)]
mod tests {
    use weir_journal::disk::sim::SimDisk;

    use super::*;

    #[test]
    fn the_size_of_the_newest_checkpoint_is_known_once_it_was_written_or_read() {
        let blobs = Blobs::open("/blobs", Arc::new(SimDisk::new())).unwrap();
        let checkpoint = Checkpoint {
            last: log_id(1, 5),
            members: StoredMembership::default(),
            state: ShardState::new(ShardId(1)),
        };
        let writes = Checkpoints::new(blobs.clone(), ShardId(1));
        assert_eq!(writes.bytes().load(Ordering::Relaxed), 0);
        let written = writes.put(&checkpoint).unwrap().len() as u64;
        assert_eq!(writes.bytes().load(Ordering::Relaxed), written);
        let reads = Checkpoints::new(blobs, ShardId(1));
        assert!(reads.newest().unwrap().is_some());
        assert_eq!(reads.bytes().load(Ordering::Relaxed), written);
    }
}
