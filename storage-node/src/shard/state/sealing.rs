//! Tests of sealing: what may leave the log, and which objects are still needed.

use std::collections::BTreeMap;

use bytes::Bytes;
use prost::Message as _;
use weir_protocol::ids::{LogIndex, Offset, PartitionId, ShardId, TimestampMs};
use weir_protocol::rpc::TopicConfig;

use super::super::command::{
    Change, Command, CompactedPart, CreateTopic, DeleteTopic, Forget, Rewrite, Seal, SealedPart, UpdateTopic,
};
use super::super::entry::{EntryBuilder, Kind, SubBatch};
use super::tests::{batch, config, name};
use super::{PartitionKey, ShardState, Verdict, oldest_batches};

/// A shard and the index of its next entry.
pub(crate) struct Shard {
    pub(crate) state: ShardState,
    next: u64,
}

impl Shard {
    /// All of them may be compacted.
    pub(crate) fn new(topics: u64) -> Self {
        let mut shard = Self { state: ShardState::new(ShardId(5)), next: 0 };
        for n in 0..topics {
            let create = CreateTopic {
                name: name(&format!("t{n}")),
                config: TopicConfig { partitions: 1, compact_by_key: true, ..config(1) },
                accept_existing: false,
                shards: Vec::new(),
            };
            shard.command(Change::CreateTopic(create));
        }
        shard
    }

    pub(crate) fn key(n: u64) -> PartitionKey {
        (weir_protocol::ids::Incarnation::compose(ShardId(5), n + 1), PartitionId(0))
    }

    fn apply(&mut self, sub: &SubBatch) -> Verdict {
        let mut entry = EntryBuilder::new(TimestampMs(1_000 + self.next), 0);
        entry.push(sub);
        let applied = self.state.apply(LogIndex(self.next), 1, &entry.build()).unwrap();
        self.next += 1;
        self.state.check();
        let again = ShardState::decode(ShardId(5), &self.state.encode()).unwrap();
        again.check();
        assert_eq!(again.encode(), self.state.encode());
        // What follows from the rest is counted on the one side and kept on the other.
        assert_eq!(again.packs(), self.state.packs());
        let runs = |state: &ShardState| -> BTreeMap<PartitionKey, Vec<_>> {
            let all = state.shared_partitions();
            all.iter().map(|(key, partition)| (key, partition.packed_runs().collect())).collect()
        };
        assert_eq!(runs(&again), runs(&self.state));
        applied.verdicts.into_iter().next().unwrap()
    }

    pub(crate) fn command(&mut self, change: Change) -> Verdict {
        self.apply(&SubBatch::command(Command { change: Some(change) }.encode_to_vec().into()))
    }

    fn change(&mut self, n: u64, kind: Kind, upto: Option<u64>, body: Bytes) -> Verdict {
        let (incarnation, partition) = Self::key(n);
        let expected_end = upto.map(Offset);
        self.apply(&SubBatch {
            incarnation,
            partition,
            kind,
            expected_end,
            idempotency: None,
            across: None,
            body,
        })
    }

    /// Publishes three records to topic `n`; the entry that carries them.
    pub(crate) fn publish(&mut self, n: u64) -> LogIndex {
        self.change(n, Kind::Publish, None, batch(0, 0, 0, 3));
        LogIndex(self.next - 1)
    }

    pub(crate) fn trim(&mut self, n: u64, upto: u64) {
        self.change(n, Kind::Trim, Some(upto), Bytes::new());
    }

    pub(crate) fn seal(&mut self, attempt: u128, parts: &[(u64, u64, u64)]) -> bool {
        self.command(Change::Seal(Self::pack(attempt, parts))) == Verdict::Done
    }

    pub(crate) fn rewrite(&mut self, attempt: u128, parts: &[(u64, u64, u64)], replaced: &[u64]) -> bool {
        self.compact(attempt, parts, replaced, &[])
    }

    /// The same with topics that are compacted, and up to where.
    pub(crate) fn compact(
        &mut self,
        attempt: u128,
        parts: &[(u64, u64, u64)],
        replaced: &[u64],
        compacted: &[(u64, u64)],
    ) -> bool {
        let of = |(n, upto): &(u64, u64)| {
            let (life, _) = Self::key(*n);
            CompactedPart { incarnation: life.0, partition: 0, upto: *upto }
        };
        let compacted = compacted.iter().map(of).collect();
        let rewrite = Rewrite { pack: Self::pack(attempt, parts), replaced: replaced.to_vec(), compacted };
        self.command(Change::Rewrite(rewrite)) == Verdict::Done
    }

    pub(crate) fn pack(attempt: u128, parts: &[(u64, u64, u64)]) -> Seal {
        let part = |(n, start, end): &(u64, u64, u64)| SealedPart {
            incarnation: Self::key(*n).0.0,
            partition: 0,
            start: *start,
            end: *end,
        };
        let parts = parts.iter().map(part).collect();
        Seal {
            first: 0,
            last: 9,
            term: 1,
            attempt: attempt.into(),
            bytes: 7,
            tail_bytes: 3,
            crc32c: 1,
            parts,
            batch_bytes: 1_000,
        }
    }

    pub(crate) fn live(&self) -> Vec<u128> {
        self.state.packs().live().map(|(_, pack)| pack.attempt).collect()
    }

    fn unneeded(&self) -> Vec<u128> {
        self.state.packs().unneeded().map(|(_, pack)| pack.attempt).collect()
    }
}

#[test]
fn what_is_sealed_does_not_pin_the_log_and_can_still_be_found() {
    let mut shard = Shard::new(2);
    let first = shard.publish(0);
    let second = shard.publish(1);
    let third = shard.publish(0);
    assert_eq!(shard.state.needed_from(), Some(first));
    assert!(shard.seal(1, &[(0, 0, 3)]));
    assert_eq!(shard.state.needed_from(), Some(second));
    assert!(shard.seal(2, &[(1, 0, 3), (0, 3, 6)]));
    assert_eq!(shard.state.needed_from(), None);
    let partition = shard.state.partition(Shard::key(0)).unwrap();
    assert_eq!(
        [0, 2, 3, 5, 6].map(|at| partition.pack_of(Offset(at))),
        [Some(1), Some(1), Some(2), Some(2), None]
    );
    assert_eq!(partition.batch_at(Offset(4)).map(|row| row.index), Some(third));
    let fourth = shard.publish(0);
    assert_eq!(shard.state.needed_from(), Some(fourth));
    assert_eq!(shard.state.oldest_unsealed().map(|row| row.index), Some(fourth));
}

#[test]
fn a_pack_that_does_not_continue_what_is_sealed_changes_nothing() {
    let mut shard = Shard::new(2);
    for n in [0, 0, 1] {
        shard.publish(n);
    }
    assert!(!shard.seal(1, &[(0, 3, 6)]), "a hole");
    assert!(!shard.seal(2, &[(0, 0, 7)]), "beyond the end");
    assert!(!shard.seal(3, &[(0, 0, 3), (1, 1, 3)]), "one of two leaves a hole");
    assert!(!shard.seal(4, &[(7, 0, 3)]), "no such topic");
    assert!(shard.seal(5, &[(0, 0, 3), (7, 0, 3)]));
    assert!(!shard.seal(6, &[(0, 0, 3)]), "it is sealed: the pack of a leader that was too late");
    assert_eq!((shard.live(), shard.unneeded()), (vec![5], vec![]));
}

#[test]
fn a_pack_is_needed_until_its_last_record_is_trimmed_and_then_until_its_object_is_gone() {
    let mut shard = Shard::new(3);
    for n in [0, 0, 1, 2] {
        shard.publish(n);
    }
    assert!(shard.seal(1, &[(0, 0, 3), (1, 0, 3)]) && shard.seal(2, &[(0, 3, 6), (2, 0, 3)]));
    shard.trim(0, 2);
    assert_eq!(shard.live(), [1, 2]);
    shard.trim(0, 3);
    assert_eq!(shard.live(), [1, 2], "another partition needs it");
    let gone = DeleteTopic { name: name("t1"), incarnation: None, expected_version: None };
    shard.command(Change::DeleteTopic(gone));
    assert_eq!((shard.live(), shard.unneeded()), (vec![2], vec![1]));
    shard.command(Change::Forget(Forget { packs: vec![1, 2] }));
    assert_eq!((shard.live(), shard.unneeded()), (vec![2], vec![]), "one in use is never forgotten");
    shard.trim(0, 6);
    shard.trim(2, 1);
    assert_eq!(shard.live(), [2]);
    shard.trim(2, 3);
    assert_eq!(shard.unneeded(), [2]);
    assert!(shard.state.packs().has_attempt(2) && !shard.state.packs().has_attempt(1));
}

#[test]
fn records_that_were_trimmed_while_their_pack_was_made_leave_no_hole() {
    let mut shard = Shard::new(1);
    for _ in 0..4 {
        shard.publish(0);
    }
    shard.trim(0, 7);
    assert!(shard.seal(1, &[(0, 0, 9)]), "made before the trim");
    shard.trim(0, 10);
    assert_eq!((shard.live(), shard.unneeded()), (vec![], vec![1]));
    assert!(shard.seal(2, &[(0, 9, 12)]));
    let partition = shard.state.partition(Shard::key(0)).unwrap();
    assert_eq!([9, 10, 11].map(|at| partition.pack_of(Offset(at))), [None, Some(2), Some(2)]);
}

#[test]
fn a_pack_that_takes_the_place_of_others_is_whole_or_nothing() {
    let mut shard = Shard::new(3);
    for n in [0, 0, 0, 1, 2] {
        shard.publish(n);
    }
    assert!(shard.seal(1, &[(0, 0, 3), (1, 0, 3)]) && shard.seal(2, &[(0, 3, 6), (2, 0, 3)]));
    shard.trim(0, 1);
    assert!(!shard.rewrite(3, &[(0, 0, 6)], &[1]), "part of it lies in another pack");
    assert!(!shard.rewrite(3, &[(0, 0, 2)], &[1]), "part of a run");
    assert!(!shard.rewrite(3, &[(0, 2, 3)], &[1]), "part of a run, from its middle");
    assert!(!shard.rewrite(3, &[(0, 0, 9)], &[1, 2]), "beyond what is sealed");
    assert!(!shard.rewrite(3, &[(0, 0, 3), (2, 0, 3)], &[1]), "one of two lies elsewhere");
    assert!(!shard.rewrite(3, &[(7, 0, 3)], &[1]), "no such topic");
    assert!(!shard.rewrite(3, &[(0, 0, 3), (0, 3, 6)], &[1, 2]), "twice the same partition");
    assert_eq!((shard.live(), shard.unneeded()), (vec![1, 2], vec![]));
    assert!(shard.rewrite(4, &[(0, 0, 6)], &[1, 2]));
    assert_eq!(shard.live(), [1, 2, 4], "other partitions need them");
    assert!(shard.rewrite(5, &[(1, 0, 3), (2, 0, 3), (7, 0, 3)], &[1, 2]));
    assert_eq!((shard.live(), shard.unneeded()), (vec![4, 5], vec![1, 2]));
    assert!(!shard.rewrite(6, &[(0, 0, 6)], &[1, 2]), "too late");
    let partition = shard.state.partition(Shard::key(0)).unwrap();
    assert_eq!([1, 3, 5, 6].map(|at| partition.pack_of(Offset(at))), [Some(3), Some(3), Some(3), None]);
    let runs: Vec<_> = partition.packed_runs().map(|(no, run, _)| (no, run)).collect();
    assert_eq!(runs, [(3, Offset(1)..Offset(6))], "two runs are one where they lie in one pack");
    shard.trim(0, 6);
    assert_eq!((shard.live(), shard.unneeded()), (vec![5], vec![1, 2, 4]));
    assert!(!shard.rewrite(7, &[(0, 0, 6)], &[3]), "nothing of it is needed");
}

#[test]
fn what_is_compacted_is_compacted_from_the_front() {
    let mut shard = Shard::new(2);
    for n in [0, 0, 0, 1] {
        shard.publish(n);
    }
    for pack in 0..3 {
        assert!(
            shard.seal(pack, &[(0, 3 * u64::try_from(pack).unwrap(), 3 * u64::try_from(pack).unwrap() + 3)])
        );
    }
    let upto = |shard: &Shard| shard.state.partition(Shard::key(0)).unwrap().compacted_to().0;
    assert!(!shard.compact(4, &[(0, 3, 6)], &[2], &[(0, 6)]), "what lies before it is not compacted");
    assert!(!shard.compact(4, &[(0, 0, 6)], &[1, 2], &[(0, 7)]), "beyond the pack");
    assert!(!shard.compact(4, &[(0, 0, 6)], &[1, 2], &[(1, 6)]), "another partition");
    assert_eq!(upto(&shard), 0);
    assert!(shard.compact(4, &[(0, 0, 6)], &[1, 2], &[(0, 3)]), "of the rest nothing was left out");
    assert_eq!(upto(&shard), 3);
    assert!(!shard.compact(5, &[(0, 6, 9)], &[3], &[(0, 9)]), "from 3 on it is not");
    assert!(shard.rewrite(5, &[(0, 6, 9)], &[3]));
    assert!(shard.compact(6, &[(0, 0, 9)], &[4, 5], &[(0, 9)]));
    assert!(shard.rewrite(7, &[(0, 0, 9)], &[6]), "moved as it is");
    assert_eq!(upto(&shard), 9);
    assert!(shard.compact(8, &[(0, 0, 9)], &[7], &[(0, 2)]), "again, of which nothing is new");
    assert_eq!(upto(&shard), 9, "it never moves back");
    shard.trim(0, 9);
    shard.publish(0);
    assert!(shard.seal(9, &[(0, 9, 12)]) && shard.compact(10, &[(0, 9, 12)], &[9], &[(0, 12)]));
    assert_eq!(upto(&shard), 12, "what was before is trimmed");
}

#[test]
fn a_pack_that_was_compacted_before_it_was_turned_off_comes_too_late() {
    let mut shard = Shard::new(1);
    shard.publish(0);
    assert!(shard.seal(1, &[(0, 0, 3)]));
    let turn = |shard: &mut Shard, compact_by_key: bool, expected_version: u32| {
        let config = TopicConfig { partitions: 1, compact_by_key, ..config(1) };
        let (name, incarnation) = (name("t0"), Shard::key(0).0.0);
        let update = UpdateTopic { name, config, incarnation, expected_version };
        let verdict = shard.command(Change::UpdateTopic(update));
        assert!(!matches!(verdict, Verdict::Refused(_)), "{verdict:?}");
    };
    turn(&mut shard, false, 1);
    assert!(!shard.compact(2, &[(0, 0, 3)], &[1], &[(0, 3)]), "nothing is dropped any more");
    assert_eq!(shard.state.partition(Shard::key(0)).unwrap().compacted_to(), Offset(0));
    assert!(shard.rewrite(2, &[(0, 0, 3)], &[1]), "as it is it may move");
    turn(&mut shard, true, 2);
    assert!(shard.compact(3, &[(0, 0, 3)], &[2], &[(0, 3)]));
}

#[test]
fn a_pack_knows_how_much_of_it_is_needed() {
    let mut shard = Shard::new(2);
    for n in [0, 0, 1, 0] {
        shard.publish(n);
    }
    let len = u64::from(oldest_batches(&shard.state.unsealed(1), 1)[0].1.len);
    assert!(shard.seal(1, &[(0, 0, 6), (1, 0, 3)]));
    let living = |shard: &Shard| shard.state.packs().get(1).map(|pack| pack.living_bytes / len);
    assert_eq!((living(&shard), shard.state.batch_bytes()), (Some(3), (4 * len, len)));
    shard.trim(0, 1);
    assert_eq!(living(&shard), Some(3), "a batch goes with its last record");
    shard.trim(0, 4);
    assert_eq!(living(&shard), Some(2));
    shard.trim(1, 3);
    assert_eq!((living(&shard), shard.state.batch_bytes()), (Some(1), (2 * len, len)));
    let pack = *shard.state.packs().get(1).unwrap();
    let share = 1_000 * len / 1_000;
    assert!(pack.is_mostly_dead(share + 1) && !pack.is_mostly_dead(share), "of a thousand bytes");
    shard.trim(0, 8);
    assert_eq!((living(&shard), shard.state.batch_bytes()), (None, (len, len)));
}

#[test]
fn the_oldest_batches_are_taken_first_whatever_partition_they_are_of() {
    let mut shard = Shard::new(3);
    let order = [2, 0, 0, 1, 2, 0, 1];
    for n in order {
        shard.publish(n);
    }
    assert!(shard.seal(1, &[(2, 0, 3)]));
    let partitions = shard.state.unsealed(10);
    let len = u64::from(oldest_batches(&partitions, 1)[0].1.len);
    let taken = |batches: u64| -> Vec<(u64, u64)> {
        let rows = oldest_batches(&partitions, batches * len);
        rows.iter()
            .map(|(key, row)| ((0..3).find(|n| Shard::key(*n) == *key).unwrap(), row.base_offset.0))
            .collect()
    };
    assert_eq!(taken(3), [(0, 0), (0, 3), (1, 0)]);
    assert_eq!(taken(4), [(0, 0), (0, 3), (1, 0), (2, 3)]);
    assert_eq!(taken(100).len(), 6, "all that no pack holds");
    assert_eq!(shard.state.unsealed(1).len(), 1);
}
