//! What one read found.

use std::sync::Arc;

use weir_protocol::ids::{Offset, PartitionId};

use super::cursor::Cursor;
use super::records::RecordSlice;
use crate::storage::Topic;

/// What one read found.
#[derive(Debug, Clone)]
pub struct ReadPage {
    /// The topic that was read.
    pub topic: Arc<Topic>,
    /// Records: in offset order per partition; of several partitions about in the order of time.
    pub slices: Vec<RecordSlice>,
    /// The partitions that were read, by number.
    pub partitions: Vec<PartitionEdge>,
    /// Where to read on, valid for all partitions read.
    pub cursor: Cursor,
    /// The end of what may be seen was reached on all of them.
    pub up_to_date: bool,
    /// The topic is closed: nothing will follow the end.
    pub closed: bool,
}

/// What was read of one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct PartitionEdge {
    /// The partition.
    pub partition: PartitionId,
    /// Where it was read from.
    pub from: Offset,
    /// Where to read on.
    pub next: Offset,
    /// Oldest offset that exists.
    pub start: Offset,
    /// End of what is committed.
    pub committed_end: Offset,
    /// Below it messages may have been dropped by compaction, and from it on none was.
    pub compacted_to: Offset,
}

impl ReadPage {
    /// The partition, if only one was read: then `next` is an offset, otherwise the cursor.
    #[must_use]
    pub fn single(&self) -> Option<&PartitionEdge> {
        match &self.partitions[..] {
            [only] => Some(only),
            _ => None,
        }
    }
}
