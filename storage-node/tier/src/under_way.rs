//! Which blocks are being fetched: who asks for neighbours together leaves out what another has asked for.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::{Mutex, MutexGuard};

/// Keys of blocks that are being fetched. Cheap to clone: all clones are one set.
#[derive(Clone, Default)]
pub(crate) struct UnderWay {
    keys: Arc<Mutex<HashSet<u128>>>,
    beginning: Arc<Mutex<()>>,
}

/// A block is being fetched until this is dropped.
pub(crate) struct Fetching {
    key: u128,
    keys: Arc<Mutex<HashSet<u128>>>,
}

impl UnderWay {
    /// Held from before a block is said to be fetched until the cache knows who fetches it: another who wants
    /// it in between would become the one, and it would be fetched twice.
    pub(crate) fn beginning(&self) -> MutexGuard<'_, ()> {
        self.beginning.lock()
    }

    /// Begins to fetch a block; `None` if somebody else does.
    pub(crate) fn begin(&self, key: u128) -> Option<Fetching> {
        self.keys.lock().insert(key).then(|| Fetching { key, keys: Arc::clone(&self.keys) })
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.keys.lock().remove(&self.key);
    }
}
