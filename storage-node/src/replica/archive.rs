//! Who waits until something is in the object store, and how far that is.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;
use weir_protocol::ids::LogIndex;

use crate::shard::state::PackNo;

/// How far a shard is archived: a record is once its pack is named by a state that is in the object store too.
#[derive(Debug, Default)]
pub struct Archive {
    /// Somebody waits for entries below this.
    wanted: AtomicU64,
    archived: watch::Sender<Archived>,
}

/// What the newest manifest of this start names.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Archived {
    /// Packs up to this number.
    pub packs: PackNo,
    /// Packs, whichever, with all live records of entries below this.
    pub entries_to: LogIndex,
}

impl Archived {
    /// Whether a live record is archived that came with an entry and is in this pack by now. It may have been moved
    /// there since: the manifest still names the pack where it was.
    #[must_use]
    pub fn holds(&self, pack: PackNo, entry: LogIndex) -> bool {
        pack <= self.packs || entry < self.entries_to
    }
}

impl Archive {
    /// Somebody waits for this entry.
    pub fn want(&self, entry: LogIndex) {
        self.wanted.fetch_max(entry.0 + 1, Ordering::AcqRel);
    }

    /// Entries below this are, or were, waited for.
    #[must_use]
    pub fn wanted(&self) -> u64 {
        self.wanted.load(Ordering::Acquire)
    }

    /// This is archived from now on.
    pub fn reached(&self, archived: Archived) {
        self.archived.send_replace(archived);
    }

    /// What is archived.
    #[must_use]
    pub fn archived(&self) -> Archived {
        *self.archived.borrow()
    }

    /// Changes when more is archived.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<Archived> {
        self.archived.subscribe()
    }
}
