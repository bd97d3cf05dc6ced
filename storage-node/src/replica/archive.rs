//! Who waits until something is in the object store, and how far that is.

use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::watch;
use weir_protocol::ids::LogIndex;

use crate::shard::state::PackNo;

/// How far a shard is archived: a record is once its pack is named by a state that is in the object store too.
#[derive(Debug)]
pub struct Archive {
    /// Somebody waits for entries below this.
    wanted: AtomicU64,
    /// Packs up to this number are named by the newest manifest.
    archived: watch::Sender<PackNo>,
}

impl Default for Archive {
    fn default() -> Self {
        Self { wanted: AtomicU64::new(0), archived: watch::channel(0).0 }
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

    /// The newest manifest names packs up to this one.
    pub fn reached(&self, pack: PackNo) {
        self.archived.send_replace(pack);
    }

    /// Number of the newest pack that is archived.
    #[must_use]
    pub fn archived(&self) -> PackNo {
        *self.archived.borrow()
    }

    /// Changes when more is archived.
    #[must_use]
    pub fn watch(&self) -> watch::Receiver<PackNo> {
        self.archived.subscribe()
    }
}
