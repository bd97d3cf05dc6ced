//! Insurance against a consensus library in its alpha: no entry is applied on a leader before a quorum of voters
//! is known to have flushed it.

use std::collections::{BTreeMap, BTreeSet};

use parking_lot::Mutex;
use weir_protocol::ids::ShardId;

use super::types::Membership;

/// What is known to be flushed where. The journal's completions and the followers' acknowledgements raise it.
#[derive(Debug)]
pub struct Tripwire {
    shard: ShardId,
    node: u64,
    seen: Mutex<Seen>,
}

#[derive(Debug, Default)]
struct Seen {
    /// Voters of each config; all configs must agree (joint consensus).
    configs: Vec<BTreeSet<u64>>,
    /// One past the highest index that a node has flushed.
    flushed_ends: BTreeMap<u64, u64>,
    is_leading: bool,
}

impl Tripwire {
    /// For `shard` on `node`, whose log on disk ends at `recovered_end`.
    #[must_use]
    pub fn new(shard: ShardId, node: u64, recovered_end: u64) -> Self {
        let seen = Seen { flushed_ends: BTreeMap::from([(node, recovered_end)]), ..Seen::default() };
        Self { shard, node, seen: Mutex::new(seen) }
    }

    /// The group's members, when they change.
    pub fn members(&self, membership: &Membership) {
        self.seen.lock().configs = membership.get_joint_config().clone();
    }

    /// Whether this node leads: its vote for itself is committed. False as soon as it votes anew.
    pub fn leading(&self, is_leading: bool) {
        self.seen.lock().is_leading = is_leading;
    }

    /// `node` has flushed everything below `end`.
    pub fn flushed(&self, node: u64, end: u64) {
        let mut seen = self.seen.lock();
        let known = seen.flushed_ends.entry(node).or_insert(0);
        *known = end.max(*known);
    }

    /// This node has flushed everything below `end`.
    pub fn flushed_here(&self, end: u64) {
        self.flushed(self.node, end);
    }

    /// This node's log was cut: what lies at `end` and beyond is not flushed any more.
    pub fn truncated_here(&self, end: u64) {
        let mut seen = self.seen.lock();
        let known = seen.flushed_ends.entry(self.node).or_insert(0);
        *known = end.min(*known);
    }

    /// Called before `index` is applied.
    ///
    /// # Panics
    /// If this node leads and no quorum is known to have flushed it: confirming would be a lie.
    pub fn check(&self, index: u64) {
        let seen = self.seen.lock();
        let alone =
            seen.configs.len() == 1 && seen.configs[0].len() == 1 && seen.configs[0].contains(&self.node);
        if !(seen.is_leading || alone) {
            return;
        }
        let has = |node: &u64| seen.flushed_ends.get(node).is_some_and(|end| index < *end);
        for voters in &seen.configs {
            let flushed = voters.iter().filter(|node| has(node)).count();
            assert!(
                flushed * 2 > voters.len(),
                "shard {}: entry {index} is to be applied, but of voters {voters:?} only {flushed} flushed it ({:?})",
                self.shard,
                seen.flushed_ends,
            );
        }
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;

    fn members(voters: &[u64]) -> Membership {
        Membership::new_with_defaults(vec![voters.iter().copied().collect()], [])
    }

    fn trips(tripwire: &Tripwire, index: u64) -> bool {
        catch_unwind(AssertUnwindSafe(|| tripwire.check(index))).is_err()
    }

    #[test]
    fn a_single_voter_applies_only_what_it_flushed_itself() {
        let tripwire = Tripwire::new(ShardId(1), 1, 3);
        tripwire.members(&members(&[1]));
        assert!(!trips(&tripwire, 2));
        assert!(trips(&tripwire, 3));
        tripwire.flushed_here(4);
        assert!(!trips(&tripwire, 3));
        tripwire.truncated_here(3);
        assert!(trips(&tripwire, 3));
    }

    #[test]
    fn a_leader_of_three_needs_two_and_a_follower_is_not_judged() {
        let tripwire = Tripwire::new(ShardId(1), 1, 0);
        tripwire.members(&members(&[1, 2, 3]));
        assert!(!trips(&tripwire, 5), "a follower may apply before its own flush");
        tripwire.leading(true);
        assert!(trips(&tripwire, 5));
        tripwire.flushed(2, 6);
        assert!(trips(&tripwire, 5));
        tripwire.flushed(3, 6);
        assert!(!trips(&tripwire, 5));
    }
}
