//! What recovery found.

use std::collections::BTreeMap;
use std::ops::Range;
use std::path::PathBuf;

use bytes::Bytes;

use crate::entry::{FileSeq, LogPosition, StreamId};

/// What an open journal holds, stream by stream.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// Every stream that the journal has ever been told about.
    pub streams: BTreeMap<StreamId, RecoveredStream>,
    /// The tail that was cut because nothing proves that it was acknowledged.
    pub torn_tail: Option<TornTail>,
    /// Journal files that were read.
    pub files: u64,
    /// Bytes of blocks that were read and verified.
    pub scanned_bytes: u64,
}

/// The state of one stream: its newest facts and the entries that can be read.
#[derive(Debug, Clone, PartialEq, Eq, Default)]
pub struct RecoveredStream {
    /// The newest vote.
    pub vote: Option<Bytes>,
    /// The newest commit position that was noted (lazily: the true one may be higher).
    pub committed: Option<LogPosition>,
    /// The purge point: entries up to and including it are gone.
    pub purged: Option<LogPosition>,
    /// The newest metadata that was noted.
    pub meta: Option<Bytes>,
    /// Indexes of the entries that can be read. Empty at the purge point + 1 (0 if never purged) if there are none.
    pub entries: Range<u64>,
    /// Term and leader of the last entry, if there is one.
    pub last: Option<LogPosition>,
}

/// Bytes at the end of the journal that were never acknowledged.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct TornTail {
    /// The journal file.
    pub path: PathBuf,
    /// That file's number.
    pub file: FileSeq,
    /// Where the journal was cut.
    pub pos: u32,
    /// Valid blocks that lay beyond the cut and were given up (only [`crate::SyncMode::Os`] leaves such holes).
    pub lost_blocks: u64,
}
