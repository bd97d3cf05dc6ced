//! A naive model of objects and what lies in them, and the property that every record of a pack can always be
//! read from an object that is there, whatever is trimmed, deleted or rewritten meanwhile.

use std::collections::{BTreeMap, BTreeSet};

use proptest::prelude::*;
use weir_protocol::ids::Offset;

use super::super::command::{Change, DeleteTopic, Forget};
use super::sealing::Shard;
use super::tests::name;
use super::{PackNo, Verdict, oldest_batches};

const TOPICS: u64 = 4;

#[derive(Debug, Clone)]
enum Step {
    Publish(u64),
    Trim {
        topic: u64,
        by: u64,
    },
    Delete(u64),
    /// Makes a pack of so many of the oldest batches.
    Seal(u64),
    /// Looks at the packs of this mask, and copies what lives of them, compacted or not: to be committed
    /// later, if at all.
    Copy(u8, bool),
    /// Commits the oldest copy.
    Commit,
    /// Deletes the objects that are not needed.
    DeleteObjects,
}

/// A copy that was made of what there was at one moment.
struct Copied {
    attempt: u128,
    parts: Vec<(u64, u64, u64)>,
    replaced: Vec<PackNo>,
    is_compacted: bool,
}

struct Pair {
    shard: Shard,
    /// What lies in each object that is there: topics and offsets.
    objects: BTreeMap<u128, BTreeSet<(u64, u64)>>,
    copies: Vec<Copied>,
    attempts: u128,
    /// How far each topic is compacted.
    compacted: BTreeMap<u64, u64>,
}

impl Pair {
    fn new() -> Self {
        Self {
            shard: Shard::new(TOPICS),
            objects: BTreeMap::new(),
            copies: Vec::new(),
            attempts: 0,
            compacted: BTreeMap::new(),
        }
    }

    fn put(&mut self, parts: &[(u64, u64, u64)]) -> u128 {
        self.attempts += 1;
        let records = parts.iter().flat_map(|(topic, start, end)| (*start..*end).map(|at| (*topic, at)));
        self.objects.insert(self.attempts, records.collect());
        self.attempts
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Publish(topic) => {
                self.shard.publish(*topic);
            }
            Step::Trim { topic, by } => {
                if let Ok(partition) = self.shard.state.partition(Shard::key(*topic)) {
                    let upto = partition.start.0 + by;
                    self.shard.trim(*topic, upto);
                }
            }
            Step::Delete(topic) => {
                let name = name(&format!("t{topic}"));
                let delete = DeleteTopic { name, incarnation: None, expected_version: None };
                self.shard.command(Change::DeleteTopic(delete));
            }
            Step::Seal(batches) => self.seal(*batches),
            Step::Copy(mask, is_compacted) => self.copy(*mask, *is_compacted),
            Step::Commit => self.commit(),
            Step::DeleteObjects => {
                let packs = self.shard.state.packs().unneeded().map(|(no, pack)| (no, pack.attempt));
                let (numbers, attempts): (Vec<_>, Vec<_>) = packs.unzip();
                attempts.iter().for_each(|attempt| drop(self.objects.remove(attempt)));
                self.shard.command(Change::Forget(Forget { packs: numbers }));
            }
        }
        self.compare();
    }

    fn seal(&mut self, batches: u64) {
        let partitions = self.shard.state.unsealed(10);
        let one = oldest_batches(&partitions, 1).first().map_or(0, |(_, row)| u64::from(row.len));
        let mut parts: Vec<(u64, u64, u64)> = Vec::new();
        for (key, row) in oldest_batches(&partitions, one * batches) {
            let topic = (0..TOPICS).find(|topic| Shard::key(*topic) == key).unwrap();
            match parts.last_mut() {
                Some(part) if part.0 == topic => part.2 = row.end().0,
                _ => parts.push((topic, row.base_offset.0, row.end().0)),
            }
        }
        if !parts.is_empty() {
            let attempt = self.put(&parts);
            assert_eq!(self.shard.command(Change::Seal(Shard::pack(attempt, &parts))), Verdict::Done);
        }
    }

    fn copy(&mut self, mask: u8, is_compacted: bool) {
        let live = self.shard.state.packs().live().map(|(no, _)| no);
        let replaced: Vec<_> = live.filter(|no| mask & (1 << (no % 8)) != 0).collect();
        let mut parts = Vec::new();
        for topic in 0..TOPICS {
            let Ok(partition) = self.shard.state.partition(Shard::key(topic)) else { continue };
            let mut runs = partition.packed_runs().filter(|(no, ..)| replaced.contains(no));
            let Some((_, mut records, _)) = runs.next() else { continue };
            for (_, next, _) in runs {
                if next.start != records.end {
                    break;
                }
                records.end = next.end;
            }
            parts.push((topic, records.start.0, records.end.0));
        }
        if !parts.is_empty() {
            let attempt = self.put(&parts);
            self.copies.push(Copied { attempt, parts, replaced, is_compacted });
        }
    }

    /// Whether every live record of the copy still lies in a pack that it copied, and there is one; and, if
    /// it is compacted, whether all before it is.
    fn is_fresh(&self, copied: &Copied) -> bool {
        let mut living = 0;
        for (topic, start, end) in &copied.parts {
            let Ok(partition) = self.shard.state.partition(Shard::key(*topic)) else { continue };
            let front = self.compacted.get(topic).copied().unwrap_or(0).max(partition.start.0);
            if copied.is_compacted && *start > front {
                return false;
            }
            for at in (*start).max(partition.start.0)..*end {
                living += 1;
                match partition.pack_of(Offset(at)) {
                    Some(no) if copied.replaced.contains(&no) => {}
                    _ => return false,
                }
            }
        }
        living > 0
    }

    fn commit(&mut self) {
        if self.copies.is_empty() {
            return;
        }
        let copied = self.copies.remove(0);
        let expected = self.is_fresh(&copied);
        let before = self.shard.state.encode();
        let ends = copied.parts.iter().filter(|_| copied.is_compacted).map(|(topic, _, end)| (*topic, *end));
        let ends: Vec<_> = ends.collect();
        let done = self.shard.compact(copied.attempt, &copied.parts, &copied.replaced, &ends);
        assert_eq!(done, expected, "{:?} of {:?}", copied.parts, copied.replaced);
        for (topic, end) in ends.iter().filter(|_| done) {
            // Of what was trimmed meanwhile nothing is moved, and nothing is said.
            let is_there = |start: Offset| start.0 < *end;
            if self.shard.state.partition(Shard::key(*topic)).is_ok_and(|partition| is_there(partition.start))
            {
                let compacted = self.compacted.entry(*topic).or_default();
                *compacted = (*compacted).max(*end);
            }
        }
        if !done {
            self.objects.remove(&copied.attempt);
            // Only the time of the newest entry has changed.
            let after = self.shard.state.packs().clone();
            let decoded = super::ShardState::decode(weir_protocol::ids::ShardId(5), &before).unwrap();
            assert_eq!(*decoded.packs(), after, "a copy that comes too late changes nothing");
        }
    }

    /// Every record that a pack holds is in an object that is there, and objects that may be deleted hold none.
    fn compare(&self) {
        for topic in 0..TOPICS {
            let Ok(partition) = self.shard.state.partition(Shard::key(topic)) else { continue };
            let compacted = self.compacted.get(&topic).copied().unwrap_or(0);
            assert_eq!(partition.compacted_to(), Offset(compacted), "topic {topic}");
            for at in partition.start.0..partition.unsealed_from().0 {
                let no = partition.pack_of(Offset(at)).unwrap();
                let attempt = self.shard.state.packs().get(no).unwrap().attempt;
                let object = self.objects.get(&attempt).unwrap_or_else(|| panic!("object {attempt} is gone"));
                assert!(object.contains(&(topic, at)), "record {at} of {topic} is not in object {attempt}");
            }
        }
    }
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        6 => (0..TOPICS).prop_map(Step::Publish),
        4 => (0..TOPICS, 1u64..7).prop_map(|(topic, by)| Step::Trim { topic, by }),
        1 => (0..TOPICS * 8).prop_map(|n| if n < TOPICS { Step::Delete(n) } else { Step::DeleteObjects }),
        4 => (1u64..6).prop_map(Step::Seal),
        3 => (any::<u8>(), any::<bool>()).prop_map(|(mask, is_compacted)| Step::Copy(mask, is_compacted)),
        3 => Just(Step::Commit),
        1 => Just(Step::DeleteObjects),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn records_are_always_in_an_object_that_is_there(steps in proptest::collection::vec(any_step(), 1..80)) {
        let mut pair = Pair::new();
        steps.iter().for_each(|step| pair.step(step));
    }
}
