//! Objects that no log knows: left by a crash between upload and commit, or by a leader that lost its term.

use std::collections::{BTreeMap, HashSet};

use weir_protocol::ids::{ShardId, TimestampMs};
use weir_tier::store::PackName;

/// How old an object must be: far beyond any upload and any commit.
pub(super) const ORPHAN_AFTER_MS: u64 = 24 * 3600 * 1000;

/// Names of the listed objects that are packs of `known` shards, are not among the attempts that those shards
/// know, and were begun long before `now`. The attempts must have been taken after the listing: then a pack
/// that was committed meanwhile is among them.
pub(super) fn orphans<'a>(
    listed: impl Iterator<Item = &'a str>,
    known: &BTreeMap<ShardId, HashSet<u128>>,
    now: TimestampMs,
) -> Vec<&'a str> {
    let is_orphan = |text: &&str| {
        let Ok(name) = text.parse::<PackName>() else { return false };
        let Some(attempts) = known.get(&name.shard) else { return false };
        let age_ms = now.0.saturating_sub(name.attempt.timestamp_ms());
        !attempts.contains(&name.attempt.0) && age_ms > ORPHAN_AFTER_MS
    };
    listed.filter(is_orphan).collect()
}

#[cfg(test)]
mod tests {
    use ulid::Ulid;
    use weir_protocol::ids::{ClusterId, LogIndex, Term};

    use super::*;

    #[test]
    fn only_old_packs_that_no_log_knows_are_orphans() {
        let now = TimestampMs(1_800_000_000_000);
        let name = |shard: u32, age_ms: u64, random: u128| {
            let attempt = Ulid::from_parts(now.0 - age_ms, random);
            let (first, last, term) = (LogIndex(1), LogIndex(2), Term(3));
            PackName { cluster: ClusterId(5), shard: ShardId(shard), first, last, term, attempt }
        };
        let old = ORPHAN_AFTER_MS + 1;
        let (orphan, needed, young, other) =
            (name(1, old, 1), name(1, old, 2), name(1, ORPHAN_AFTER_MS, 3), name(9, old, 4));
        let known =
            BTreeMap::from([(ShardId(1), HashSet::from([needed.attempt.0])), (ShardId(2), HashSet::new())]);
        let mut listed: Vec<String> =
            [orphan, needed, young, other].iter().map(ToString::to_string).collect();
        listed.push("00000000000000000000000000000005/data/manual-backup.pack".to_owned());
        let found = orphans(listed.iter().map(String::as_str), &known, now);
        assert_eq!(found, [orphan.to_string()]);
    }
}
