//! Which blocks are being fetched: who asks for neighbours together leaves out what another has asked for.

use std::collections::HashSet;
use std::sync::Arc;

use parking_lot::Mutex;

/// Keys of blocks that are being fetched. Cheap to clone: all clones are one set.
#[derive(Clone, Default)]
pub(crate) struct UnderWay(Arc<Mutex<HashSet<u128>>>);

/// A block is being fetched until this is dropped.
pub(crate) struct Fetching {
    key: u128,
    set: UnderWay,
}

impl UnderWay {
    /// Begins to fetch a block; `None` if somebody else does.
    pub(crate) fn begin(&self, key: u128) -> Option<Fetching> {
        self.0.lock().insert(key).then(|| Fetching { key, set: self.clone() })
    }
}

impl Drop for Fetching {
    fn drop(&mut self) {
        self.set.0.lock().remove(&self.key);
    }
}
