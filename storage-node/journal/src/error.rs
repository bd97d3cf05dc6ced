//! What can go wrong, one type per verb; a variant exists where a caller acts differently.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use crate::config::ConfigError;
use crate::entry::{FileSeq, StreamId};

/// Why the journal stopped for good. The first one is kept and every waiter gets it; only a restart helps.
#[derive(Debug, thiserror::Error)]
pub enum Failure {
    /// A write failed; what reached the disk is unknown. Never retried.
    #[error("write of {len} bytes at {pos} of {} failed: {source}; the journal takes no more until a restart", path.display())]
    Write {
        /// The journal file.
        path: PathBuf,
        /// Byte position of the write.
        pos: u32,
        /// Bytes of the write.
        len: u32,
        /// What the operating system said.
        source: io::Error,
    },
    /// A sync failed; the pages may be gone, so it is never retried.
    #[error("sync of {} failed: {source}; the journal takes no more until a restart", path.display())]
    Sync {
        /// The journal file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
    /// The journal was closed before the operation was written.
    #[error("the journal is closed")]
    Closed,
    /// The writer thread ended by a panic (in a completion, or a broken invariant).
    #[error("the journal's writer ended unexpectedly; the journal takes no more until a restart")]
    WriterLost,
}

/// Why an operation was not queued. It had no effect.
#[derive(Debug, thiserror::Error)]
pub enum AppendError {
    /// The journal has stopped; step down.
    #[error(transparent)]
    Failed(#[from] Arc<Failure>),
    /// The entries do not continue the stream: a bug of the caller.
    #[error("stream {stream} ends at {expected}, entry {found} does not continue it")]
    NotContiguous {
        /// The stream.
        stream: StreamId,
        /// The index that must come next.
        expected: u64,
        /// The index that came.
        found: u64,
    },
    /// A payload larger than a block can hold.
    #[error("stream {stream}: {len} bytes are more than the {max} that fit a block")]
    TooLarge {
        /// The stream.
        stream: StreamId,
        /// Bytes of the payload.
        len: usize,
        /// Bytes allowed.
        max: usize,
    },
    /// The writer's queue is full; try again when completions have come.
    #[error("{queued} bytes wait for the journal's writer, {max} are allowed")]
    QueueFull {
        /// Bytes that wait.
        queued: u64,
        /// The limit.
        max: u64,
    },
}

/// Why admission was refused. Nothing was reserved; it ends by itself when files are recycled.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum Full {
    /// `max_bytes` is reached (for data: but for the control reserve). Purging is needed.
    #[error("the journal is full: {used} of {limit} bytes in use")]
    Journal {
        /// Bytes in use, waiting or promised.
        used: u64,
        /// Bytes that this class may use.
        limit: u64,
    },
    /// The disk has no room for another journal file.
    #[error("the disk is full: {free} bytes are left in prepared journal files")]
    Disk {
        /// Bytes left in files that exist.
        free: u64,
    },
    /// The process has no file descriptor left for another journal file.
    #[error(
        "the process may open no more files, and {free} bytes are left in prepared journal files: close connections, or \
         raise its limit of open files"
    )]
    Descriptors {
        /// Bytes left in files that exist.
        free: u64,
    },
    /// The index in memory holds `index_bytes_max`, and nothing of it can leave: sidecars cannot be written, or the
    /// current file alone has that many entries. Purging is needed, or room on the disk.
    #[error("the journal's index is full: {used} of {limit} bytes in use")]
    Index {
        /// Bytes in use.
        used: u64,
        /// The limit.
        limit: u64,
    },
    /// Permits hold `pending_bytes_max`; come back when some are dropped.
    #[error("{pending} bytes are admitted and not yet answered, {max} are allowed")]
    Busy {
        /// Bytes held by permits.
        pending: u64,
        /// The limit.
        max: u64,
    },
}

/// Why nothing was carried, or not all of it. Nothing that it was read from may go; trying again goes on where
/// it ended.
#[derive(Debug, thiserror::Error)]
pub enum CarryError {
    /// The journal has failed, or is closed.
    #[error(transparent)]
    Failed(Arc<Failure>),
    /// What is to be carried cannot be read.
    #[error(transparent)]
    Read(ReadError),
    /// The operating system refused; trying again may help (a full disk).
    #[error("{}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Why a read gave nothing.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The entry is below the stream's purge point, or its file was recycled.
    #[error("stream {stream}: entries below {first} are purged")]
    Purged {
        /// The stream.
        stream: StreamId,
        /// The first index that is still there.
        first: u64,
    },
    /// A location in a file that was recycled.
    #[error("journal file {file} was recycled")]
    Recycled {
        /// The file.
        file: FileSeq,
    },
    /// The index is at or beyond the stream's end.
    #[error("stream {stream} ends at {end}, {index} is beyond")]
    BeyondEnd {
        /// The stream.
        stream: StreamId,
        /// The index asked for.
        index: u64,
        /// The stream's end.
        end: u64,
    },
    /// [`crate::Journal::locate`] only: the entry is not on disk yet.
    #[error("stream {stream}: entry {index} is not on disk yet")]
    NotWritten {
        /// The stream.
        stream: StreamId,
        /// The index asked for.
        index: u64,
    },
    /// Bytes that were acknowledged are not what was written: fail the replica, never skip.
    #[error("{} is damaged at {pos}: {what}; restore the directory from a copy", path.display())]
    Corrupt {
        /// The journal file.
        path: PathBuf,
        /// Byte position.
        pos: u32,
        /// What does not hold.
        what: &'static str,
    },
    /// The operating system refused; trying again may help.
    #[error("cannot read {}: {source}", path.display())]
    Io {
        /// The journal file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Damage in bytes that had been acknowledged.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error(
    "{} is damaged at byte {pos} ({what}), and a later block proves that these bytes had been acknowledged. \
     Restore this file from a copy, or replace this node by a new one. It does not start without them: \
     what follows this place was confirmed to somebody. Without a copy, `weir repair --data-dir DIR` says what \
     would be lost by cutting the journal off here, and changes nothing",
    path.display()
)]
pub struct Damage {
    /// The journal file.
    pub path: PathBuf,
    /// That file's number.
    pub file: FileSeq,
    /// Byte position of the first block that is damaged.
    pub pos: u32,
    /// What does not hold.
    pub what: String,
}

/// Why a journal was not opened. Nothing was changed in it, but sidecars may have been written again.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// A setting is out of its range.
    #[error(transparent)]
    Config(#[from] ConfigError),
    /// Another process has it open.
    #[error("{} is in use by {holder}; stop that process or choose another directory", dir.display())]
    Locked {
        /// The journal's directory.
        dir: PathBuf,
        /// What the holder wrote about itself.
        holder: String,
    },
    /// Written by a newer version of Weir.
    #[error("{} has {what} format {found}; this build reads up to {known}: use a newer Weir", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// Which format.
        what: &'static str,
        /// The format found.
        found: u32,
        /// The newest format this build reads.
        known: u32,
    },
    /// The directory belongs to another node or cluster.
    #[error("{} belongs to cluster {found_cluster:032x} node {found_node}, not to cluster {cluster:032x} node {node}", dir.display())]
    WrongIdentity {
        /// The journal's directory.
        dir: PathBuf,
        /// Cluster found in `IDENTITY`.
        found_cluster: u128,
        /// Node found in `IDENTITY`.
        found_node: u64,
        /// Cluster asked for.
        cluster: u128,
        /// Node asked for.
        node: u64,
    },
    /// Acknowledged bytes are damaged.
    #[error(transparent)]
    Damaged(#[from] Damage),
    /// A small file (IDENTITY, a file header) is not what was written.
    #[error("{} is damaged: {what}; restore it from a copy", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What does not hold.
        what: String,
    },
    /// A journal file between others is missing, or the oldest ones went before they were purged.
    #[error("{}: journal file {file} is missing ({what}); restore it from a copy. Without one, see `weir repair`", dir.display())]
    Missing {
        /// The directory of journal files.
        dir: PathBuf,
        /// The missing file.
        file: FileSeq,
        /// How it is known.
        what: String,
    },
    /// More was synced once than is there.
    #[error(
        "{} lacks the end of its journal: it ends at byte {} of file {}, and everything up to byte {} of file {} had been \
         synced and may have been confirmed. It looks like a copy that was made while a node ran on the directory: copy it \
         again while nothing does. To start with what is there, and lose what is not, remove SYNCED and wal/SYNCED in it",
        dir.display(), found.1, found.0, synced.1, synced.0
    )]
    Behind {
        /// The journal's directory.
        dir: PathBuf,
        /// Up to where it was synced: file and byte.
        synced: (FileSeq, u32),
        /// Up to where it is there.
        found: (FileSeq, u32),
    },
    /// Whoever opened it did not want it any more.
    #[error("the opening of the journal was given up")]
    GivenUp,
    /// The operating system refused.
    #[error("cannot open the journal: {}: {source}", path.display())]
    Io {
        /// The file or directory.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}

/// Why a blob could not be written or read.
#[derive(Debug, thiserror::Error)]
pub enum SealedError {
    /// The bytes are not what was written. Never the same as absence.
    #[error("{} is damaged: {what}", path.display())]
    Corrupt {
        /// The file.
        path: PathBuf,
        /// What does not hold.
        what: &'static str,
    },
    /// Written by a newer version of Weir.
    #[error("{} has format {found}; this build reads up to {known}", path.display())]
    NewerFormat {
        /// The file.
        path: PathBuf,
        /// The format found.
        found: u32,
        /// The newest format this build reads.
        known: u32,
    },
    /// Not a name for a blob.
    #[error("{name:?} is not a name of a blob: 1..=100 of a-z, 0-9, '.', '_', '-', not starting with '.'")]
    Name {
        /// The name.
        name: String,
    },
    /// The operating system refused; trying again may help (a full disk).
    #[error("{}: {source}", path.display())]
    Io {
        /// The file.
        path: PathBuf,
        /// What the operating system said.
        source: io::Error,
    },
}
