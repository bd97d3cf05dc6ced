//! How an append learns that it is durable.

use std::sync::Arc;
use std::time::Instant;

use crate::entry::StreamId;
use crate::error::Failure;

/// Called exactly once, with the outcome: from the writer thread; from the thread that appends, before that
/// call returns, if it writes itself or is refused, so it must hold no lock that this takes; or from one that
/// closes or fails the journal.
///
/// It must be short and must not block: every other waiter of the same commit stands behind it. It may call
/// [`crate::Journal::append`].
pub type Completion = Box<dyn FnOnce(Result<Synced, Arc<Failure>>) + Send>;

/// The commit that made an operation durable (in [`crate::SyncMode::Os`]: handed to the operating system).
#[derive(Debug, Clone, Copy)]
pub struct Synced {
    /// The stream of the operation.
    pub stream: StreamId,
    /// Every entry of the stream below this index is durable now; `None` while the stream is empty.
    pub durable_index_end: Option<u64>,
    /// When the writer took the commit's first operation from the queue.
    pub taken: Instant,
    /// When the write call had returned; when it was made, if it is what syncs ([`crate::Backend::Direct`]).
    pub written: Instant,
    /// When the sync call had returned; equals `written` if the mode needs no sync.
    pub synced: Instant,
    /// Frames in the commit, of all streams.
    pub frames: u32,
    /// Bytes written by the commit, padding included.
    pub bytes: u64,
}

/// A completion that answers by itself when dropped, so that no waiter is ever forgotten.
pub(crate) struct Waiter(Option<Completion>);

impl Waiter {
    pub(crate) fn new(completion: Completion) -> Self {
        Self(Some(completion))
    }

    /// Nobody waits.
    pub(crate) fn nobody() -> Self {
        Self(None)
    }

    pub(crate) fn answer(mut self, outcome: Result<Synced, Arc<Failure>>) {
        if let Some(completion) = self.0.take() {
            completion(outcome);
        }
    }
}

impl Drop for Waiter {
    fn drop(&mut self) {
        if let Some(completion) = self.0.take() {
            completion(Err(Arc::new(Failure::Closed)));
        }
    }
}

impl std::fmt::Debug for Waiter {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        write!(f, "Waiter(pending: {})", self.0.is_some())
    }
}
