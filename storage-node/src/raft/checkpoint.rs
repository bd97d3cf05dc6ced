//! A checkpoint: a shard's state and its place in the log, in a durable file beside the journal. It speeds restart,
//! and the log below it may be purged as far as no live record needs it.

use std::io;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message as _;
use prost::encoding::{WireType, encode_key, encode_varint};
use tokio::sync::watch;
use weir_journal::{Blobs, SealedError};
use weir_protocol::ids::ShardId;

use super::types::{
    CodecError, LogId, Membership, StoredMembership, decode_membership, encode_membership, log_id, term_of,
};
use crate::shard::state::{CHUNK_BYTES, ShardState, SnapshotError};

/// Field of the state in [`Stored`], the last one.
const STATE: u32 = 6;

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

/// The bytes of a checkpoint. The state comes last, so that it can follow the others as it is made.
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
    /// Writes the bytes in order, at most [`CHUNK_BYTES`] at once, and returns how many. Whatever the state's
    /// size, this takes the memory of one chunk; it goes through the state twice, as its length stands before
    /// it.
    ///
    /// # Errors
    /// Those of `to`, at once; some bytes may have been written.
    pub fn encode_to(&self, to: &mut dyn io::Write) -> io::Result<u64> {
        let at = self.members.log_id().as_ref();
        let before = Stored {
            term: term_of(&self.last),
            index: self.last.index,
            members: encode_membership(self.members.membership()),
            members_term: at.map(term_of),
            members_index: at.map(|at| at.index),
            state: Bytes::new(),
        };
        let mut head = before.encode_to_vec();
        let state = self.state.freeze();
        let len = state.encoded_len();
        encode_key(STATE, WireType::LengthDelimited, &mut head);
        encode_varint(len, &mut head);
        head.chunks(CHUNK_BYTES).try_for_each(|chunk| to.write_all(chunk))?;
        let written = state.encode_to(to)?;
        // Its length stands before it already: with another one nobody could read what is about to replace the last.
        if written != len {
            return Err(io::Error::other(format!("a state of {len} bytes came to {written}")));
        }
        Ok(head.len() as u64 + len)
    }

    /// From the bytes of [`Checkpoint::encode_to`].
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
    /// Place and members of the newest one, if it was read or written.
    known: Arc<Mutex<Option<(LogId, StoredMembership)>>>,
}

impl Checkpoints {
    /// That of `shard` in `blobs`.
    #[must_use]
    pub fn new(blobs: Blobs, shard: ShardId) -> Self {
        Self {
            blobs,
            shard,
            given_up: Arc::new(watch::channel(0).0),
            bytes: Arc::default(),
            known: Arc::default(),
        }
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

    /// The newest one; `None` if there is none. Blocking.
    ///
    /// # Errors
    /// [`CheckpointError`]: the log before it may be gone, so the caller refuses to start.
    pub fn newest(&self) -> Result<Option<Checkpoint>, CheckpointError> {
        let Some(bytes) = self.blobs.get(&self.name())? else { return Ok(None) };
        let checkpoint = Checkpoint::decode(self.shard, &bytes)?;
        self.is_now(&checkpoint, bytes.len() as u64);
        Ok(Some(checkpoint))
    }

    /// Place and members of the newest one, once it was read or written.
    #[must_use]
    pub fn known(&self) -> Option<(LogId, StoredMembership)> {
        self.known.lock().clone()
    }

    /// Replaces the newest one, durably on return. Blocking.
    ///
    /// # Errors
    /// [`SealedError`]: the old one is still there.
    pub fn put(&self, checkpoint: &Checkpoint) -> Result<(), SealedError> {
        let mut bytes = 0;
        self.blobs.put_with(&self.name(), |to| {
            bytes = checkpoint.encode_to(to)?;
            Ok(())
        })?;
        self.is_now(checkpoint, bytes);
        Ok(())
    }

    fn is_now(&self, checkpoint: &Checkpoint, bytes: u64) {
        *self.known.lock() = Some((checkpoint.last, checkpoint.members.clone()));
        self.bytes.store(bytes, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use weir_journal::disk::sim::SimDisk;

    use super::*;
    use crate::shard::state::large_state;

    fn checkpoint(state: ShardState) -> Checkpoint {
        Checkpoint { last: log_id(1, 5), members: StoredMembership::default(), state }
    }

    #[test]
    fn the_size_of_the_newest_checkpoint_is_known_once_it_was_written_or_read() {
        let blobs = Blobs::open("/blobs", Arc::new(SimDisk::new())).unwrap();
        let writes = Checkpoints::new(blobs.clone(), ShardId(1));
        assert_eq!((writes.bytes().load(Ordering::Relaxed), writes.known()), (0, None));
        writes.put(&checkpoint(ShardState::new(ShardId(1)))).unwrap();
        let written = blobs.get("shard-1").unwrap().unwrap().len() as u64;
        assert_eq!(writes.bytes().load(Ordering::Relaxed), written);
        let reads = Checkpoints::new(blobs, ShardId(1));
        assert!(reads.newest().unwrap().is_some());
        assert_eq!(reads.bytes().load(Ordering::Relaxed), written);
        assert_eq!(
            (writes.known(), reads.known().map(|(last, _)| last)),
            (reads.known(), Some(log_id(1, 5)))
        );
    }

    #[test]
    fn a_checkpoint_of_many_chunks_is_the_message_that_it_was_in_one_buffer() {
        let checkpoint = checkpoint(large_state());
        let mut written = Vec::new();
        let bytes = checkpoint.encode_to(&mut written).unwrap();
        assert_eq!(bytes, written.len() as u64);
        assert!(written.len() > 3 * CHUNK_BYTES, "{} bytes", written.len());
        let stored = Stored {
            term: 1,
            index: 5,
            members: encode_membership(checkpoint.members.membership()),
            members_term: None,
            members_index: None,
            state: checkpoint.state.encode(),
        };
        assert!(stored.encode_to_vec() == written, "as prost makes it");
        let read = Checkpoint::decode(ShardId(1), &Bytes::from(written)).unwrap();
        assert!(read.state.encode() == checkpoint.state.encode());
    }
}
