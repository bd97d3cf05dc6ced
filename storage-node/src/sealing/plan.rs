//! Which mostly dead packs are worth a new one.

use std::cmp::Reverse;
use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;

use tokio::time::Instant;
use weir_protocol::ids::Offset;

use super::making::PARTITIONS_MAX;
use crate::shard::state::{Pack, PackNo, Packs, PartitionKey, SharedPartitions};

/// Packs that one new one replaces: each has a span of its blocks in memory meanwhile.
const PACKS_MAX: usize = 8;
/// Packs of which one plan looks for the partitions, because they free most.
const LOOKED_AT_MAX: usize = 64;
/// Of these so many are tried as the first of a plan, each with its neighbours in the log: where a lasting
/// partition lies in all of them, it adjoins in no others.
const FIRSTS_MAX: usize = 8;
/// Bytes of objects that must come free: a new object is some requests, which cost what a MiB costs in a week.
const GAIN_BYTES_MIN: u64 = 1 << 20;

/// Consecutive records of a partition in a pack.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Run {
    pub(super) key: PartitionKey,
    pub(super) pack: PackNo,
    pub(super) records: Range<Offset>,
    pub(super) bytes: u64,
}

/// Packs that could not be read, and until when they are in no plan.
pub(super) type LeftOut = BTreeMap<PackNo, Instant>;

/// What one new pack takes over.
#[derive(Debug, Default, PartialEq, Eq)]
pub(super) struct Plan {
    pub(super) replaced: BTreeSet<PackNo>,
    /// By partition and offset: the order of a pack.
    pub(super) runs: Vec<Run>,
}

/// Something is worth a new pack, apart from what is `left_out`: cheap, for it looks at packs alone.
pub(super) fn is_worth_it(packs: &Packs, below_permille: u64, left_out: &LeftOut) -> bool {
    let most = mostly_dead(packs, below_permille, left_out).into_iter().take(PACKS_MAX);
    most.map(|(_, pack)| dead_object_bytes(pack)).sum::<u64>() >= GAIN_BYTES_MIN
}

/// Mostly dead packs, those first that free most, whose living batches, of at most `bytes_max` bytes about,
/// fit one new pack. `None` if that frees too little.
pub(super) fn plan(
    (packs, left_out): (&Packs, &LeftOut),
    partitions: &SharedPartitions,
    below_permille: u64,
    bytes_max: u64,
) -> Option<Plan> {
    let candidates = candidates(packs, below_permille, left_out);
    let mut of_packs: BTreeMap<PackNo, Vec<Run>> =
        candidates.iter().map(|(no, _)| (*no, Vec::new())).collect();
    for (key, partition) in partitions.iter() {
        for (pack, records, bytes) in partition.packed_runs() {
            if let Some(runs) = of_packs.get_mut(&pack) {
                add(runs, Run { key, pack, records, bytes });
            }
        }
    }
    let firsts = 0..candidates.len().min(FIRSTS_MAX);
    firsts
        .map(|first| grown(&candidates, &of_packs, first, bytes_max))
        .find_map(|(chosen, gain)| (gain >= GAIN_BYTES_MIN).then(|| chosen.into_plan()))
}

/// The `first` candidate and what fits it, and what that frees. A pack that was refused may adjoin what was
/// taken later.
fn grown(
    candidates: &[(PackNo, &Pack)],
    of_packs: &BTreeMap<PackNo, Vec<Run>>,
    first: usize,
    bytes_max: u64,
) -> (Chosen, u64) {
    let (mut chosen, mut gain) = (Chosen::default(), 0);
    let mut left = candidates.to_vec();
    left[..=first].rotate_right(1);
    let mut taken =
        |(no, _): &(PackNo, &Pack)| of_packs.get(no).is_some_and(|runs| chosen.take(*no, runs, bytes_max));
    while let Some(at) = left.iter().position(&mut taken) {
        gain += dead_object_bytes(left.remove(at).1);
    }
    (chosen, gain)
}

/// Adds the next run of a pack. One that continues the run before is a part of it: a pack that took the place
/// of others may be referred to in as many runs as they were, and their blocks are shared.
fn add(runs: &mut Vec<Run>, run: Run) {
    match runs.last_mut() {
        Some(before) if before.key == run.key && before.records.end == run.records.start => {
            before.records.end = run.records.end;
            before.bytes += run.bytes;
        }
        _ => runs.push(run),
    }
}

/// The mostly dead packs, those first that free most.
fn mostly_dead<'a>(packs: &'a Packs, below_permille: u64, left_out: &LeftOut) -> Vec<(PackNo, &'a Pack)> {
    let is_dead =
        |(no, pack): &(PackNo, &Pack)| pack.is_mostly_dead(below_permille) && !left_out.contains_key(no);
    let mut found: Vec<_> = packs.live().filter(is_dead).collect();
    found.sort_by_key(|(_, pack)| Reverse(dead_object_bytes(pack)));
    found
}

/// Of these the first [`LOOKED_AT_MAX`], and of the first [`FIRSTS_MAX`] the neighbours in the log.
fn candidates<'a>(packs: &'a Packs, below_permille: u64, left_out: &LeftOut) -> Vec<(PackNo, &'a Pack)> {
    let found = mostly_dead(packs, below_permille, left_out);
    let mut in_log: Vec<usize> = (0..found.len()).collect();
    in_log.sort_by_key(|at| found[*at].1.first);
    let mut looked_at: BTreeSet<usize> = (0..found.len().min(LOOKED_AT_MAX)).collect();
    for (place, _) in in_log.iter().enumerate().filter(|(_, at)| **at < FIRSTS_MAX) {
        let near = place.saturating_sub(PACKS_MAX - 1)..(place + PACKS_MAX).min(in_log.len());
        looked_at.extend(&in_log[near]);
    }
    looked_at.into_iter().map(|at| found[at]).collect()
}

/// Bytes of the object that nothing needs, about.
fn dead_object_bytes(pack: &Pack) -> u64 {
    let all = u128::from(if pack.batch_bytes == 0 { pack.bytes } else { pack.batch_bytes }).max(1);
    let living = u128::from(pack.bytes) * u128::from(pack.living_bytes) / all;
    pack.bytes.saturating_sub(u64::try_from(living).unwrap_or(u64::MAX))
}

/// What goes into the new pack so far.
#[derive(Default)]
struct Chosen {
    plan: Plan,
    bytes: u64,
    /// What it has of each partition: a pack has one range of each, without holes.
    covered: BTreeMap<PartitionKey, Range<Offset>>,
}

impl Chosen {
    /// Takes all of a pack, or nothing: what is left of one would have to be copied again.
    fn take(&mut self, no: PackNo, runs: &[Run], bytes_max: u64) -> bool {
        let bytes: u64 = runs.iter().map(|run| run.bytes).sum();
        let is_first = self.plan.replaced.is_empty();
        let has_room = is_first || (self.bytes + bytes <= bytes_max && self.plan.replaced.len() < PACKS_MAX);
        let adjoins = |run: &Run| match self.covered.get(&run.key) {
            Some(all) => all.end == run.records.start || run.records.end == all.start,
            None => true,
        };
        if runs.is_empty() || !has_room || !runs.iter().all(adjoins) {
            return false;
        }
        let mut covered = self.covered.clone();
        for run in runs {
            let all = match covered.get(&run.key) {
                None => run.records.clone(),
                Some(before) if before.end == run.records.start => before.start..run.records.end,
                Some(behind) if behind.start == run.records.end => run.records.start..behind.end,
                Some(_) => return false,
            };
            covered.insert(run.key, all);
        }
        if covered.len() > PARTITIONS_MAX {
            return false;
        }
        self.covered = covered;
        self.bytes += bytes;
        self.plan.replaced.insert(no);
        self.plan.runs.extend_from_slice(runs);
        true
    }

    fn into_plan(mut self) -> Plan {
        self.plan.runs.sort_unstable_by_key(|run| (run.key, run.records.start));
        self.plan
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::ids::{Incarnation, PartitionId};

    use super::*;
    use crate::shard::command::{Change, Seal};
    use crate::shard::state::Verdict;
    use crate::shard::state::sealing::Shard;

    fn run(life: u64, records: Range<u64>) -> Run {
        let records = Offset(records.start)..Offset(records.end);
        let bytes = records.end.0 - records.start.0;
        Run { key: (Incarnation(life), PartitionId(0)), pack: 3, records, bytes }
    }

    /// A shard of one topic, `packs` of whose batches lie in a mostly dead pack each.
    fn of_one_topic(packs: u64, bytes: impl Fn(u64) -> u64) -> Shard {
        let mut shard = Shard::new(1);
        for n in 0..packs {
            shard.publish(0);
            let seal = Shard::pack(n.into(), &[(0, 3 * n, 3 * n + 3)]);
            let seal = Seal { first: n, last: n, bytes: bytes(n), batch_bytes: 1 << 20, ..seal };
            assert_eq!(shard.command(Change::Seal(seal)), Verdict::Done);
        }
        shard
    }

    #[test]
    fn small_dead_packs_are_joined_with_their_neighbours_though_others_free_more() {
        let shard = of_one_topic(200, |n| (300 << 10) + (n % 2) * 10_000);
        let plan =
            plan((shard.state.packs(), &LeftOut::new()), &shard.state.shared_partitions(), 250, 64 << 20);
        let plan = plan.expect("eight of them free more than a MiB");
        assert_eq!(plan.replaced.len(), PACKS_MAX);
        assert!(plan.runs.is_sorted_by(|a, b| a.records.end == b.records.start), "{:?}", plan.runs);
    }

    #[test]
    fn what_adjoins_in_a_pack_is_one_run() {
        let mut runs = Vec::new();
        for next in [run(1, 0..2), run(1, 2..5), run(1, 5..6), run(2, 6..8), run(2, 9..10)] {
            add(&mut runs, next);
        }
        assert_eq!(runs, [run(1, 0..6), run(2, 6..8), run(2, 9..10)]);
    }
}
