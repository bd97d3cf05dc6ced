//! Shards that tell each other of topics: whatever is repeated, delayed or restarted, everybody ends up knowing the
//! same.

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message as _;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, LogIndex, PartitionId, ShardId, TimestampMs};
use weir_protocol::rpc::{TopicConfig, TopicDescription};

use super::super::command::{Change, Command, CreateTopic, DeleteTopic, NewsTaken, UpdateTopic};
use super::super::entry::{EntryBuilder, Kind, SubBatch};
use super::outbox::OUTBOX_ROWS_MAX;
use super::tests::{batch, config, name};
use super::{Applied, ShardState, Verdict};

pub(super) const SHARDS: [ShardId; 3] = [ShardId(1), ShardId(2), ShardId(3)];

/// Three shards and their logs' ends.
pub(super) struct Neighbours {
    pub(super) states: Vec<ShardState>,
    pub(super) index: u64,
    /// How much time has passed beside the entries', milliseconds.
    pub(super) waited_ms: u64,
}

impl Neighbours {
    pub(super) fn new() -> Self {
        Self { states: SHARDS.map(ShardState::new).into(), index: 0, waited_ms: 0 }
    }

    fn apply(&mut self, at: usize, sub: SubBatch) -> (Verdict, Applied) {
        let mut applied = self.entry(at, &[sub]).1;
        (applied.verdicts.remove(0), applied)
    }

    /// Applies one entry; its payload, and what it did.
    pub(super) fn entry(&mut self, at: usize, subs: &[SubBatch]) -> (Bytes, Applied) {
        self.index += 1;
        let mut entry = EntryBuilder::new(TimestampMs(1_000 + self.index + self.waited_ms), 0);
        subs.iter().for_each(|sub| entry.push(sub));
        let payload = entry.build();
        let applied = self.states[at].apply(LogIndex(self.index), 1, &payload).unwrap();
        // Every entry of a short history; of a long one now and then.
        if self.index < 500 || self.index.is_multiple_of(500) {
            self.states[at].check();
        }
        (payload, applied)
    }

    pub(super) fn command(&mut self, at: usize, change: Change) -> Verdict {
        let command = Command { change: Some(change) }.encode_to_vec();
        self.apply(at, SubBatch::command(command.into())).0
    }

    fn create(&mut self, at: usize, topic: &str, partitions: u32) -> Verdict {
        let (name, config, shards) = (name(topic), config(partitions), SHARDS.map(|shard| shard.0).to_vec());
        self.command(at, Change::CreateTopic(CreateTopic { name, config, accept_existing: false, shards }))
    }

    pub(super) fn created(&mut self, at: usize, topic: &str, partitions: u32) -> TopicDescription {
        match self.create(at, topic, partitions) {
            Verdict::TopicCreated(made) => made.topic.unwrap(),
            other => panic!("{other:?}"),
        }
    }

    fn publish(&mut self, at: usize, life: u64, partition: u32) -> Result<(), ErrorCode> {
        let sub = SubBatch {
            incarnation: Incarnation(life),
            partition: PartitionId(partition),
            kind: Kind::Publish,
            expected_end: None,
            idempotency: None,
            across: None,
            body: batch(0, 0, 0, 1),
        };
        match self.apply(at, sub).0 {
            Verdict::Placed(_) => Ok(()),
            Verdict::Refused(refusal) => Err(refusal.error_code()),
            other => panic!("{other:?}"),
        }
    }

    /// Sends up to `most` rows from one shard to another and deletes them; `is_lost`: the source never hears of it.
    pub(super) fn carry(&mut self, from: usize, to: usize, most: usize, is_lost: bool) {
        let rows = self.states[from].outbox().rows(SHARDS[to], most);
        let mut unforked = Vec::new();
        for row in &rows {
            match self.command(to, row.command(SHARDS[from])) {
                Verdict::Done => {}
                Verdict::Unforked(life) => unforked.push(life.0),
                other => panic!("{other:?}"),
            }
        }
        if let Some(last) = rows.last().filter(|_| !is_lost) {
            let taken = NewsTaken { target: SHARDS[to].0, upto: last.seq + 1, unforked };
            assert_eq!(self.command(from, Change::Taken(taken)), Verdict::Done);
        }
    }

    pub(super) fn carry_all(&mut self) {
        // What cannot begin where it is told is taken back, which is told as well.
        for _ in 0..2 {
            for from in 0..3 {
                (0..3).for_each(|to| self.carry(from, to, usize::MAX, false));
            }
        }
        assert!(self.states.iter().all(|state| state.outbox().count() == 0));
    }

    pub(super) fn restart(&mut self, at: usize) {
        let restored = ShardState::decode(SHARDS[at], &self.states[at].encode()).unwrap();
        assert_eq!(restored.encode(), self.states[at].encode());
        self.states[at] = restored;
    }

    /// Every shard has exactly the partitions that the home shards placed in it, as they are configured there.
    fn check_agreement(&self) {
        for (here, state) in SHARDS.iter().zip(&self.states) {
            let mut wanted = Vec::new();
            for home in &self.states {
                for (life, topic) in home.topics.lives.iter() {
                    let placed = topic.shards.iter().zip(0..).filter(|(shard, _)| **shard == here.0);
                    wanted.extend(
                        placed.map(|(_, partition)| ((*life, PartitionId(partition)), topic.version)),
                    );
                }
            }
            let mut found: Vec<_> =
                state.partitions.iter().map(|(key, partition)| (*key, partition.version.0)).collect();
            wanted.sort_unstable();
            found.sort_unstable();
            assert_eq!(found, wanted, "shard {here}");
        }
    }
}

#[test]
fn partitions_are_spread_evenly_from_the_home_shard_on() {
    let mut shards = Neighbours::new();
    assert_eq!(shards.created(1, "a", 5).shards, [2, 3, 1, 2, 3]);
    assert_eq!(shards.created(1, "b", 1).shards, [2]);
    assert_eq!(shards.states[1].outbox().waiting(), [SHARDS[0], SHARDS[2]], "b has nobody to tell");
}

#[test]
fn a_partition_elsewhere_is_behind_until_its_shard_was_told_and_gone_when_it_was_deleted() {
    let mut shards = Neighbours::new();
    let topic = shards.created(0, "a", 3);
    let life = topic.incarnation;
    assert_eq!(shards.publish(0, life, 0), Ok(()));
    assert_eq!(shards.publish(1, life, 1), Err(ErrorCode::ConfigBehind));
    assert!(shards.states[0].outbox().speaks_of(Incarnation(life)));
    shards.carry_all();
    assert!(!shards.states[0].outbox().speaks_of(Incarnation(life)));
    assert_eq!((shards.publish(1, life, 1), shards.publish(2, life, 2)), (Ok(()), Ok(())));
    let update = UpdateTopic {
        name: name("a"),
        config: TopicConfig { closed: true, ..config(3) },
        incarnation: life,
        expected_version: 1,
    };
    assert!(matches!(shards.command(0, Change::UpdateTopic(update)), Verdict::Topic(_)));
    assert_eq!(shards.publish(1, life, 1), Ok(()), "it has not heard of the change");
    shards.carry_all();
    assert_eq!(shards.publish(1, life, 1), Err(ErrorCode::TopicClosed));
    let delete = DeleteTopic { name: name("a"), incarnation: None, expected_version: None };
    assert!(matches!(shards.command(0, Change::DeleteTopic(delete)), Verdict::Topic(_)));
    shards.carry_all();
    assert_eq!(shards.publish(1, life, 1), Err(ErrorCode::IncarnationGone));
    shards.check_agreement();
}

#[test]
fn a_row_that_comes_before_its_predecessor_is_refused() {
    let mut shards = Neighbours::new();
    shards.created(0, "a", 3);
    shards.created(0, "b", 3);
    let rows = shards.states[0].outbox().rows(SHARDS[1], 2);
    let early = shards.command(1, rows[1].command(SHARDS[0]));
    assert!(
        matches!(&early, Verdict::Refused(refusal) if refusal.error_code() == ErrorCode::ProducerGap),
        "{early:?}"
    );
    shards.carry_all();
    shards.check_agreement();
}

#[test]
fn a_full_outbox_refuses_changes_until_something_is_taken() {
    let mut shards = Neighbours::new();
    // Two rows each.
    (0..OUTBOX_ROWS_MAX / 2).for_each(|n| drop(shards.created(0, &format!("t{n}"), 3)));
    let refused = shards.create(0, "one-more", 3);
    assert!(
        matches!(&refused, Verdict::Refused(refusal) if refusal.error_code() == ErrorCode::Busy),
        "{refused:?}"
    );
    let delete = |topic: &str| DeleteTopic { name: name(topic), incarnation: None, expected_version: None };
    let refused = shards.command(0, Change::DeleteTopic(delete("t0")));
    assert!(matches!(refused, Verdict::Refused(_)), "{refused:?}");
    shards.created(0, "alone", 1);
    let deleted = shards.command(0, Change::DeleteTopic(delete("alone")));
    assert!(matches!(deleted, Verdict::Topic(_)), "nobody has to be told: {deleted:?}");
    shards.carry(0, 1, 1, false);
    shards.created(0, "another", 3);
}

#[derive(Debug, Clone)]
enum Step {
    Create(usize, u8, u32),
    Update(usize, u8, bool),
    Delete(usize, u8),
    Carry(usize, usize, usize, bool),
    Restart(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let shard = || 0usize..3;
    prop_oneof![
        3 => (shard(), 0u8..4, 1u32..6).prop_map(|(at, topic, parts)| Step::Create(at, topic, parts)),
        2 => (shard(), 0u8..4, any::<bool>()).prop_map(|(at, topic, closed)| Step::Update(at, topic, closed)),
        2 => (shard(), 0u8..4).prop_map(|(at, topic)| Step::Delete(at, topic)),
        5 => (shard(), shard(), 1usize..4, any::<bool>()).prop_map(|(a, b, n, lost)| Step::Carry(a, b, n, lost)),
        1 => shard().prop_map(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]

    #[test]
    fn whatever_is_repeated_delayed_or_restarted_all_shards_agree_in_the_end(
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let mut shards = Neighbours::new();
        let named = |at: usize, topic: u8| name(&format!("{at}-{topic}"));
        for step in steps {
            match step {
                Step::Create(at, topic, partitions) => {
                    shards.create(at, &format!("{at}-{topic}"), partitions);
                }
                Step::Update(at, topic, closed) => {
                    let Ok(now) = shards.states[at].topics().describe(&named(at, topic)) else { continue };
                    let config = TopicConfig { closed, ..now.config.unwrap() };
                    let (incarnation, expected_version) = (now.incarnation, now.version);
                    let update = UpdateTopic { name: named(at, topic), config, incarnation, expected_version };
                    prop_assert!(matches!(shards.command(at, Change::UpdateTopic(update)), Verdict::Topic(_)));
                }
                Step::Delete(at, topic) => {
                    let name = named(at, topic);
                    let delete = DeleteTopic { name, incarnation: None, expected_version: None };
                    shards.command(at, Change::DeleteTopic(delete));
                }
                Step::Carry(from, to, most, is_lost) => shards.carry(from, to, most, is_lost),
                Step::Restart(at) => shards.restart(at),
            }
        }
        shards.carry_all();
        shards.check_agreement();
        (0..3).for_each(|at| shards.restart(at));
        shards.check_agreement();
    }
}

#[test]
fn what_is_not_understood_stops_the_shard() {
    let mut shards = Neighbours::new();
    let mut entry = EntryBuilder::new(TimestampMs(1), 0);
    entry.push(&SubBatch::command(Bytes::from_static(b"\xfa\x7f\x00")));
    assert!(shards.states[0].apply(LogIndex(1), 1, &entry.build()).is_err());
}
