//! What the journal stores for its streams, and where it lies.

use bytes::Bytes;

/// One ordered log inside the journal: one shard of the storage node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct StreamId(pub u32);

impl std::fmt::Display for StreamId {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{}", self.0)
    }
}

/// Number of a journal file, counted from 1; never used twice in one journal, even when a file is recycled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct FileSeq(pub u64);

impl FileSeq {
    /// The first of a journal.
    pub(crate) const FIRST: Self = Self(1);

    /// The file after this one.
    #[must_use]
    pub fn next(self) -> Self {
        Self(self.0 + 1)
    }
}

impl std::fmt::Display for FileSeq {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "{:016x}", self.0)
    }
}

/// Log sequence number: `file_seq << 32 | position`, so that it grows across files of any size.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Default)]
pub struct Lsn(pub u64);

impl Lsn {
    /// The position `pos` of file `file`.
    #[must_use]
    pub fn new(file: FileSeq, pos: u32) -> Self {
        Self((file.0 << 32) | u64::from(pos))
    }

    /// The file this position lies in.
    #[must_use]
    pub fn file(self) -> FileSeq {
        FileSeq(self.0 >> 32)
    }

    /// The byte position inside that file.
    #[must_use]
    pub fn pos(self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "the low half is the position by construction")]
        let pos = self.0 as u32;
        pos
    }
}

/// What an entry's payload is; the journal only keeps it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum EntryKind {
    /// A command for the state machine.
    Normal,
    /// An entry without a command (a new leader's first one).
    Blank,
    /// A change of the group's members.
    Membership,
}

/// One entry of a stream. `index` is dense: each append starts where the stream ends.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Entry {
    /// What the payload is.
    pub kind: EntryKind,
    /// Term of the leader that proposed it.
    pub term: u64,
    /// Node id of that leader.
    pub leader: u64,
    /// Place in the stream.
    pub index: u64,
    /// The bytes, opaque to the journal; at most [`crate::JournalConfig::entry_bytes_max`].
    pub payload: Bytes,
}

/// The name of an entry: who proposed it, when, and its place in the stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct LogPosition {
    /// Term of the proposing leader.
    pub term: u64,
    /// Node id of the proposing leader.
    pub leader: u64,
    /// Place in the stream.
    pub index: u64,
}

/// Where the payload of one entry lies on disk. Stays valid until its file is recycled, after which reads
/// through it answer [`crate::ReadError::Purged`], never other bytes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Location {
    /// The journal file.
    pub file: FileSeq,
    /// Byte position of the payload's first byte in that file.
    pub pos: u32,
    /// Payload bytes.
    pub len: u32,
}

/// Whose journal it is. Written into the directory when it is made, compared at every open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster_id: u128,
    /// The node; never used again for another disk.
    pub node_id: u64,
}
