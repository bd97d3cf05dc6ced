//! A lone append is written by who appends it: two threads that wake each other cost half of what the disk takes.
//!
//! Only while the writer thread rests and appends have been lone for a while: whoever writes can do nothing
//! else meanwhile. What comes until then is the writer's.

use std::collections::VecDeque;
use std::thread::ThreadId;
use std::time::Instant;

use crate::config::{JournalConfig, SyncMode};
use crate::core::{Core, Inner, Operation, Queued};

/// Most bytes of a lone append. A larger one is of many publishers, or takes as long to form as the writer to wake.
const BYTES_MAX: u64 = 8 << 10;
/// Whether operations of a commit are one small append.
pub(crate) fn is_lone(queue: &VecDeque<Queued>) -> bool {
    let Some(one) = queue.front().filter(|_| queue.len() == 1) else { return false };
    one.bytes <= BYTES_MAX && matches!(one.operation, Operation::Append { .. })
}

/// The writer's place. Given back when this is dropped, whatever became of the commit: what came meanwhile is
/// the writer's.
pub(crate) struct Claim<'a>(&'a Core);

impl Drop for Claim<'_> {
    fn drop(&mut self) {
        let mut inner = self.0.lock();
        inner.claimed_by = None;
        inner.writer_waits = true;
        if !inner.queue.is_empty() || inner.closing {
            self.0.wake_writer(inner);
        }
    }
}

impl Core {
    /// The writer's place, if what is in the queue is a lone append and the writer rests. Until it is given
    /// back nobody wakes the writer, and he takes nothing.
    pub(crate) fn claim(&self, inner: &mut Inner) -> Option<Claim<'_>> {
        inner.may_be_claimed(&self.config, Instant::now).then(|| {
            (inner.writer_waits, inner.claimed_by) = (false, Some(std::thread::current().id()));
            Claim(self)
        })
    }
}

impl Inner {
    fn may_be_claimed(&mut self, config: &JournalConfig, now: impl FnOnce() -> Instant) -> bool {
        // Who closes waits for the writer alone, and then gives up the directory.
        let rests = self.writer_waits && !self.closing;
        let is_plain = config.sync == SyncMode::Always && config.min_fsync_interval.is_zero();
        // Whatever rides in the block: the writer may have to wait for the next file.
        let has_room =
            self.files.back().is_some_and(|file| file.file_bytes - file.end >= config.max_block_bytes);
        let is_lone = rests && is_plain && has_room && is_lone(&self.queue);
        is_lone && self.pace.is_slow_enough(now(), config.inline_commit_max)
    }

    /// Whether this thread is writing in the writer's place.
    pub(crate) fn is_claimed_by(&self, thread: ThreadId) -> bool {
        self.claimed_by == Some(thread)
    }
}

#[cfg(test)]
mod tests {
    use std::path::PathBuf;
    use std::time::Duration;

    use super::*;
    use crate::completion::Waiter;
    use crate::disk::{Disk, OpenMode, sim::SimDisk};
    use crate::entry::{Entry, EntryKind, FileSeq, Identity, StreamId};
    use crate::streams::{FileSpans, LiveFile};

    /// A journal that rests, with one small append in its queue.
    fn lone(now: Instant) -> Inner {
        let path = PathBuf::from("/journal/wal/1.wal");
        let handle = SimDisk::new().open(&path, OpenMode::Create).unwrap();
        let (spans, holds_blocks, sidecar) = (FileSpans::default(), false, None);
        let file = LiveFile {
            seq: FileSeq(1),
            handle,
            path,
            file_bytes: 64 << 10,
            end: 32 << 10,
            spans,
            holds_blocks,
            sidecar,
        };
        let mut inner = Inner { writer_waits: true, ..Inner::default() };
        inner.files.push_back(file);
        inner.queue.push_back(append(1_000));
        (0..8).for_each(|_| {
            inner.pace.committed(now - Duration::from_millis(2), now - Duration::from_millis(1), true)
        });
        inner
    }

    fn append(bytes: u64) -> Queued {
        let entry =
            Entry { kind: EntryKind::Normal, term: 1, leader: 1, index: 0, payload: bytes::Bytes::new() };
        let operation = Operation::Append { entries: vec![entry], first_row: 1 };
        Queued { stream: StreamId(1), operation, waiter: Waiter::nobody(), bytes }
    }

    #[test]
    fn only_a_lone_append_to_a_journal_that_rests_and_stays_open_is_claimed() {
        let now = Instant::now();
        let identity = Identity { cluster_id: 1, node_id: 1 };
        let config = JournalConfig {
            inline_commit_max: Duration::from_millis(2),
            ..JournalConfig::small("/journal", identity)
        };
        let claimed = |change: fn(&mut Inner, &mut JournalConfig)| {
            let (mut inner, mut config) = (lone(now), config.clone());
            change(&mut inner, &mut config);
            inner.may_be_claimed(&config, || now)
        };
        assert!(claimed(|_, _| {}));
        // The writer may have ended already, and the directory be given up at any moment.
        assert!(!claimed(|inner, _| inner.closing = true), "it is being closed");
        assert!(!claimed(|inner, _| inner.writer_waits = false), "the writer is at work, or woken");
        assert!(!claimed(|inner, _| inner.queue.push_back(append(10))), "two");
        assert!(!claimed(|inner, _| inner.queue[0].bytes = 9 << 10), "large");
        assert!(!claimed(|inner, _| inner.queue[0].operation = Operation::Sync), "no append");
        assert!(!claimed(|inner, _| inner.files[0].end = 33 << 10), "no room for the largest block");
        assert!(!claimed(|_, config| config.sync = SyncMode::Os), "nothing is synced");
        assert!(
            !claimed(|_, config| config.min_fsync_interval = Duration::from_millis(1)),
            "commits keep a distance"
        );
        assert!(!claimed(|_, config| config.inline_commit_max = Duration::ZERO), "never");
        assert!(!claimed(|inner, _| inner.pace = Default::default()), "nothing is known of commits");
    }
}
