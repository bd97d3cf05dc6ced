//! Admission: room is promised before anything is queued.

use crate::entry::{FileSeq, StreamId};
use std::sync::Arc;
use std::sync::atomic::AtomicU64;

/// What the bytes are for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Class {
    /// Messages: stops at the control reserve.
    Data,
    /// Settles of few messages where many more wait: may use half of the control reserve. Each may take a block of
    /// its own, and if they used up all of it, nobody could work a queue off any more.
    Few,
    /// Other settles, changes of topics, membership: may use the control reserve but for its last quarter.
    Control,
    /// What makes room, seals, trims and deletes: may use all of it, and as much as a file beyond, or nobody might ever
    /// have room again.
    Relief,
}

/// Room that is promised. Hold it until the append is answered; dropping it gives the room back.
#[derive(Debug)]
pub struct Permit {
    pub(crate) bytes: u64,
    pub(crate) held: Arc<AtomicU64>,
}

impl Drop for Permit {
    fn drop(&mut self) {
        self.held.fetch_sub(self.bytes, std::sync::atomic::Ordering::AcqRel);
    }
}

/// How full the journal is.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Usage {
    /// Bytes in use: finished files whole, the current one up to its end, and carried files.
    pub used_bytes: u64,
    /// Of these, bytes of carried files.
    pub carried_bytes: u64,
    /// `max_bytes`.
    pub limit_bytes: u64,
    /// Bytes waiting in the writer's queue.
    pub queued_bytes: u64,
    /// Bytes held by permits.
    pub admitted_bytes: u64,
    /// The last attempt to prepare a file found the disk full.
    pub disk_full: bool,
    /// The journal files, oldest first.
    pub files: Vec<FileUsage>,
}

/// One journal file and what pins it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileUsage {
    /// The file.
    pub file: FileSeq,
    /// Bytes in use in it.
    pub used_bytes: u64,
    /// Its size on disk.
    pub file_bytes: u32,
    /// The file being written.
    pub current: bool,
    /// Lowest live index of each stream that has live entries in it. A finished file without any is recycled once
    /// the files before it are.
    pub pinned_by: Vec<(StreamId, u64)>,
    /// Its sidecar is there: the rows of its entries may leave memory.
    pub sidecar: bool,
}
