//! Which leases were given under which key, for a pull that is repeated because its answer was lost.

use std::collections::{BTreeMap, BTreeSet};

use weir_protocol::ids::Offset;

/// What a client calls a pull.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct PullKey(pub u128);

/// Names a pull inside its leases; 0 is a pull without a key.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub(super) struct PullId(u64);

impl PullId {
    pub(super) const NONE: Self = Self(0);
}

/// Pulls with a key of which a lease is held: there are never more of them than leases.
#[derive(Debug, Clone, Default)]
pub(super) struct Pulls {
    ids: BTreeMap<PullKey, PullId>,
    pulls: BTreeMap<PullId, Pull>,
    last: u64,
}

#[derive(Debug, Clone)]
struct Pull {
    key: PullKey,
    /// What is leased under it.
    held: BTreeSet<Offset>,
}

impl Pulls {
    /// A pull leased these records.
    pub(super) fn begin(&mut self, key: PullKey, held: BTreeSet<Offset>) -> PullId {
        // A key that is used again without asking for its leases first names the new ones from now on.
        if let Some(old) = self.ids.remove(&key) {
            self.pulls.remove(&old);
        }
        self.last += 1;
        let id = PullId(self.last);
        self.ids.insert(key, id);
        self.pulls.insert(id, Pull { key, held });
        id
    }

    /// A lease of a pull ended. With the last one the pull is forgotten.
    pub(super) fn end(&mut self, id: PullId, offset: Offset) {
        if id == PullId::NONE {
            return;
        }
        let Some(pull) = self.pulls.get_mut(&id) else { return };
        pull.held.remove(&offset);
        if pull.held.is_empty() {
            self.ids.remove(&pull.key);
            self.pulls.remove(&id);
        }
    }

    /// What is leased under a key.
    pub(super) fn held(&self, key: PullKey) -> impl Iterator<Item = Offset> {
        let pull = self.ids.get(&key).map(|id| &self.pulls[id]);
        pull.into_iter().flat_map(|pull| pull.held.iter().copied())
    }
}
