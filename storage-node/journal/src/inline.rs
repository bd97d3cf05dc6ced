//! A lone append is written by who appends it: two threads that wake each other cost half of what the disk takes.
//!
//! Only while the writer thread rests and appends have been lone for a while: whoever writes can do nothing else meanwhile.
//! What comes until then is the writer's.

use std::thread::ThreadId;
use std::time::Instant;

use crate::config::{JournalConfig, SyncMode};
use crate::core::{Core, Inner, Operation, Queued};

/// Most bytes of a lone append. A larger one is of many publishers, or takes as long to form as the writer to wake.
const BYTES_MAX: u64 = 8 << 10;
/// Whether operations of a commit are one small append.
pub(crate) fn is_lone(taken: &[Queued]) -> bool {
    let [one] = taken else { return false };
    one.bytes <= BYTES_MAX && matches!(one.operation, Operation::Append { .. })
}

impl Inner {
    /// What is in the queue is for this thread to write, if it is a lone append and the writer rests. Then nobody wakes the
    /// writer until [`Core::give_back`].
    pub(crate) fn claim(&mut self, config: &JournalConfig) -> bool {
        let is_plain = config.sync == SyncMode::Always && config.min_fsync_interval.is_zero();
        if !self.writer_waits || !is_plain || !is_lone(self.queue.make_contiguous()) {
            return false;
        }
        // Whatever rides in the block: the writer may have to wait for the next file.
        let has_room =
            self.files.back().is_some_and(|file| file.file_bytes - file.end >= config.max_block_bytes);
        if !has_room || !self.pace.is_slow_enough(Instant::now(), config.inline_commit_max) {
            return false;
        }
        (self.writer_waits, self.claimed_by) = (false, Some(std::thread::current().id()));
        true
    }

    /// Whether this thread is writing in the writer's place.
    pub(crate) fn is_claimed_by(&self, thread: ThreadId) -> bool {
        self.claimed_by == Some(thread)
    }
}

impl Core {
    /// What came meanwhile is the writer's.
    pub(crate) fn give_back(&self) {
        let mut inner = self.lock();
        inner.claimed_by = None;
        inner.writer_waits = true;
        if !inner.queue.is_empty() || inner.closing {
            self.wake_writer(inner);
        }
    }
}
