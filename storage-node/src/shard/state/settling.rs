//! Settles that publish, over three shards: whatever is repeated, lost, refused or restarted, each settled
//! input has its output once, and nothing else has any.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId};
use weir_protocol::rpc::{
    At, PartRef, SubscriptionConfig, SubscriptionDescription, SubscriptionName, TopicDescription,
};

use super::super::command::{Change, ChangePart, Command, CreateSubscription, DeleteTopic, Taken};
use super::super::entry::{Across, Kind, SubBatch};
use super::neighbours::{Neighbours, SHARDS};
use super::outputs::{OUTPUT_BYTES_MAX, OUTPUT_ROWS_MAX};
use super::tests::name;
use super::{Output, Verdict};
use crate::subscription::{Fence, PartEvent, Seek};

const INPUTS: u64 = 12;

/// Three shards with a topic to consume, a subscription of it, a topic to publish to, and every entry ever applied.
struct World {
    shards: Neighbours,
    input: TopicDescription,
    output: TopicDescription,
    subscription: SubscriptionDescription,
    log: BTreeMap<u64, Bytes>,
    /// What was settled with outputs: source, and what each output says, in order.
    settled: Vec<(usize, u32, String)>,
}

fn batch_of(value: &str) -> Bytes {
    let mut builder = BatchBuilder::anonymous();
    builder.push(RecordParts { key: None, headers: &Headers::default(), value: value.as_bytes() }).unwrap();
    builder.build(Compression::None).unwrap().bytes().clone()
}

fn values(batch: Bytes) -> Vec<String> {
    let batch = Batch::parse(batch).unwrap();
    let text = |value: Bytes| String::from_utf8(value.to_vec()).unwrap();
    batch.records().unwrap().map(|record| text(record.unwrap().value)).collect()
}

fn code(verdict: &Verdict) -> Option<ErrorCode> {
    match verdict {
        Verdict::Refused(refusal) => Some(refusal.error_code()),
        _ => None,
    }
}

impl World {
    fn new() -> Self {
        let mut shards = Neighbours::new();
        let (input, output) = (shards.created(0, "in", 3), shards.created(1, "out", 3));
        shards.carry_all();
        let name = SubscriptionName {
            tenant: "default".into(),
            namespace: "default".into(),
            subscription: "work".into(),
        };
        let config = SubscriptionConfig {
            topic: "in".into(),
            start: At::Earliest(true).into(),
            ..SubscriptionConfig::default()
        };
        let create = CreateSubscription {
            name,
            config,
            topic_incarnation: input.incarnation,
            shards: input.shards.clone(),
            more: Vec::new(),
            fork: None,
        };
        let Verdict::SubscriptionCreated(made) = shards.command(2, Change::CreateSubscription(create)) else {
            panic!("it is new")
        };
        shards.carry_all();
        let subscription = made.subscription;
        let log = BTreeMap::new();
        let mut world = Self { shards, input, output, subscription, log, settled: Vec::new() };
        for shard in 0..3 {
            for _ in 0..INPUTS {
                let incarnation = Incarnation(world.input.incarnation);
                let partition = world.partition(&world.input, shard);
                let sub = SubBatch::command(batch_of("input"));
                let publish = SubBatch { incarnation, partition, kind: Kind::Publish, ..sub };
                assert!(matches!(world.apply(shard, &[publish])[0], Verdict::Placed(_)));
            }
        }
        world
    }

    /// The partition of a topic that lies in a shard.
    fn partition(&self, topic: &TopicDescription, shard: usize) -> PartitionId {
        let at = topic.shards.iter().position(|placed| *placed == SHARDS[shard].0).unwrap();
        PartitionId(u32::try_from(at).unwrap())
    }

    fn apply(&mut self, at: usize, subs: &[SubBatch]) -> Vec<Verdict> {
        let (payload, applied) = self.shards.entry(at, subs);
        self.log.insert(self.shards.index, payload);
        applied.verdicts
    }

    fn part(&self, shard: usize) -> PartRef {
        let partition = self.partition(&self.input, shard).0;
        PartRef { subscription: self.subscription.id, incarnation: self.input.incarnation, partition }
    }

    fn settle(&mut self, shard: usize, range: std::ops::Range<u64>, fence: u64, to: &[usize]) -> Verdict {
        let settled = vec![Offset(range.start)..Offset(range.end)];
        let event = PartEvent { settled, ..PartEvent::default() };
        let said: Vec<_> = to
            .iter()
            .map(|target| {
                (*target, format!("{shard}:{}-{} {fence} {}", range.start, range.end, self.shards.index))
            })
            .collect();
        let bodies: Vec<_> = said.iter().map(|(_, value)| batch_of(value)).collect();
        let change = ChangePart {
            part: self.part(shard),
            event: event.encode().into(),
            outputs: u32::try_from(to.len()).unwrap(),
            output_bytes: bodies.iter().map(|body| body.len() as u64).sum(),
            fence_min: fence,
            keeps_past: true,
        };
        let command = prost::Message::encode_to_vec(&Command { change: Some(Change::ChangePart(change)) });
        let mut subs = vec![SubBatch::command(command.into())];
        for ((target, _), body) in said.iter().zip(bodies) {
            subs.push(SubBatch {
                incarnation: Incarnation(self.output.incarnation),
                partition: self.partition(&self.output, *target),
                kind: Kind::Output,
                across: Some(Across { shard: SHARDS[*target], number: 9 }),
                ..SubBatch::command(body)
            });
        }
        let mut verdicts = self.apply(shard, &subs);
        let first = verdicts.remove(0);
        if first == Verdict::Done {
            assert!(verdicts.iter().all(|verdict| matches!(verdict, Verdict::Sent(_))), "{verdicts:?}");
            for (target, value) in said {
                let partition = self.partition(&self.output, target);
                self.settled.push((shard, partition.0, value));
            }
        } else {
            assert!(verdicts.iter().all(|verdict| *verdict == first), "{verdicts:?}");
        }
        first
    }

    fn seek(&mut self, shard: usize, to: u64, fence: u64) {
        let seek = Some(Seek { to: Offset(to), fence: Fence(fence), keep_as: 0, back_to: 0 });
        let event = PartEvent { seek, ..PartEvent::default() };
        let part = self.part(shard);
        let change = ChangePart { part, event: event.encode().into(), ..ChangePart::default() };
        assert_eq!(self.shards.command(shard, Change::ChangePart(change)), Verdict::Done);
    }

    /// The output as the log of its shard has it.
    fn arrival(&self, from: usize, output: &Output) -> SubBatch {
        let (at, len) = (output.batch.pos as usize, output.batch.len as usize);
        SubBatch {
            incarnation: output.to.0,
            partition: output.to.1,
            kind: Kind::Publish,
            across: Some(Across { shard: SHARDS[from], number: output.number }),
            ..SubBatch::command(self.log[&output.batch.index.0].slice(at..at + len))
        }
    }

    /// Sends up to `most` outputs; `is_lost`: the source never hears of it.
    fn carry(&mut self, from: usize, to: usize, most: usize, is_lost: bool) {
        let outputs = self.shards.states[from].outputs().oldest(SHARDS[to], most, u64::MAX);
        let subs: Vec<_> = outputs.iter().map(|output| self.arrival(from, output)).collect();
        if subs.is_empty() {
            return;
        }
        for verdict in self.apply(to, &subs) {
            assert!(matches!(verdict, Verdict::Placed(_) | Verdict::Done), "{verdict:?}");
        }
        if let Some(last) = outputs.last().filter(|_| !is_lost) {
            let taken = Taken { target: SHARDS[to].0, upto: last.number + 1 };
            assert_eq!(self.shards.command(from, Change::OutputsTaken(taken)), Verdict::Done);
        }
    }

    fn carry_all(&mut self) {
        for from in 0..3 {
            (0..3).for_each(|to| self.carry(from, to, usize::MAX, false));
            let outputs = self.shards.states[from].outputs();
            assert_eq!((outputs.len(), outputs.bytes(), outputs.needed_from()), (0, 0, None));
        }
    }

    /// What was published, by partition.
    fn published(&self) -> BTreeMap<u32, Vec<String>> {
        let mut found = BTreeMap::new();
        for (shard, state) in self.shards.states.iter().enumerate() {
            let partition = self.partition(&self.output, shard);
            let rows = state.partition((Incarnation(self.output.incarnation), partition)).unwrap();
            let batch = |row: super::BatchRow| {
                self.log[&row.index.0].slice(row.pos as usize..(row.pos + row.len) as usize)
            };
            let said = rows.batches_from(Offset(0)).flat_map(|row| values(batch(row))).collect();
            found.insert(partition.0, said);
        }
        found
    }

    /// Every settle has its outputs once, those of one shard to one partition in the order of the settles.
    fn check(&self) {
        let published = self.published();
        let count: usize = published.values().map(Vec::len).sum();
        assert_eq!(count, self.settled.len(), "{published:?} of {:?}", self.settled);
        for source in 0..3 {
            for (partition, said) in &published {
                let prefix = format!("{source}:");
                let found: Vec<_> = said.iter().filter(|value| value.starts_with(&prefix)).collect();
                let wanted = self.settled.iter().filter(|(from, to, _)| *from == source && to == partition);
                assert_eq!(found, wanted.map(|(.., value)| value).collect::<Vec<_>>());
            }
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    Settle(usize, u64, u64, Vec<usize>),
    Carry(usize, usize, usize, bool),
    Seek(usize, u64),
    Restart(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let shard = || 0usize..3;
    let targets = || proptest::collection::vec(0usize..3, 1..4);
    prop_oneof![
        5 => (shard(), 0..INPUTS + 1, 1u64..4, targets())
            .prop_map(|(at, from, count, to)| Step::Settle(at, from, count, to)),
        5 => (shard(), shard(), 1usize..4, any::<bool>()).prop_map(|(a, b, n, lost)| Step::Carry(a, b, n, lost)),
        1 => (shard(), 0..INPUTS).prop_map(|(at, to)| Step::Seek(at, to)),
        1 => shard().prop_map(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn every_settled_input_has_its_outputs_once_whatever_is_repeated_lost_or_restarted(
        steps in proptest::collection::vec(any_step(), 1..80),
    ) {
        let mut world = World::new();
        // What a set of settled offsets says.
        let mut done = vec![std::collections::BTreeSet::new(); 3];
        for (n, step) in (1u64..).zip(steps) {
            match step {
                Step::Settle(at, from, count, to) => {
                    let mut range = from..from + count;
                    let is_free = range.end <= INPUTS && !range.any(|offset| done[at].contains(&offset));
                    let verdict = world.settle(at, from..from + count, n, &to);
                    if is_free {
                        prop_assert_eq!(&verdict, &Verdict::Done);
                        done[at].extend(from..from + count);
                    } else {
                        prop_assert_eq!(code(&verdict), Some(ErrorCode::LeaseLost));
                    }
                }
                Step::Carry(from, to, most, is_lost) => world.carry(from, to, most, is_lost),
                Step::Seek(at, to) => {
                    world.seek(at, to, n);
                    done[at] = (0..to).collect();
                }
                Step::Restart(at) => world.shards.restart(at),
            }
        }
        world.carry_all();
        world.check();
        (0..3).for_each(|at| world.shards.restart(at));
        world.carry_all();
        world.check();
    }
}

#[test]
fn a_settle_of_which_anything_is_lost_changes_and_publishes_nothing() {
    let mut world = World::new();
    assert_eq!(world.settle(0, 2..4, 5, &[1]), Verdict::Done);
    let before = world.shards.states[0].encode();
    for (range, fence) in [(1..3, 5), (3..4, 5), (INPUTS - 1..INPUTS + 1, 5)] {
        let refused = world.settle(0, range.clone(), fence, &[0, 1, 2]);
        assert_eq!(code(&refused), Some(ErrorCode::LeaseLost), "{range:?}");
    }
    // But for the time of the newest entry.
    assert_eq!(world.shards.states[0].outputs().len(), 1);
    assert_eq!(before.len(), world.shards.states[0].encode().len());
    world.seek(0, 0, 9);
    assert_eq!(code(&world.settle(0, 0..1, 8, &[1])), Some(ErrorCode::LeaseLost), "leased before the seek");
    assert_eq!(world.settle(0, 0..1, 9, &[1]), Verdict::Done);
    world.carry_all();
    world.check();
}

#[test]
fn what_was_decided_before_a_seek_changes_nothing_behind_it() {
    let mut world = World::new();
    assert_eq!(world.settle(0, 0..2, 8, &[]), Verdict::Done);
    world.seek(0, 0, 9);
    assert_eq!(code(&world.settle(0, 0..1, 8, &[])), Some(ErrorCode::LeaseLost), "it would not come again");
    assert_eq!(world.settle(0, 1..2, 0, &[]), Verdict::Done, "an entry of an earlier build does not say");
    assert_eq!(world.settle(0, 2..3, 9, &[]), Verdict::Done);
    let part = world.part(0);
    let held = world.shards.states[0].parts().get(&super::part_key(&part)).unwrap();
    assert_eq!((held.part.floor(), held.part.settled_above_floor()), (Offset(0), 2));
}

#[test]
fn what_is_on_its_way_is_bounded_and_pins_the_log_until_it_has_arrived() {
    let mut world = World::new();
    assert_eq!(world.settle(0, 0..1, 1, &[1]), Verdict::Done);
    let pinned = world.shards.states[0].outputs().needed_from().unwrap();
    assert_eq!(pinned.0, world.shards.index);
    let to = vec![1; OUTPUT_ROWS_MAX];
    assert_eq!(code(&world.settle(0, 1..2, 1, &to)), Some(ErrorCode::Busy));
    assert_eq!(world.settle(0, 1..2, 1, &to[2..]), Verdict::Done);
    assert_eq!(code(&world.settle(0, 2..3, 1, &[1, 2])), Some(ErrorCode::Busy));
    assert_eq!(world.settle(0, 2..3, 1, &[2]), Verdict::Done, "the last place");
    let state = &world.shards.states[0];
    assert_eq!(state.has_output_room(1, 0).unwrap_err().error_code(), ErrorCode::Busy);
    assert!(world.shards.states[1].has_output_room(1, OUTPUT_BYTES_MAX).is_ok());
    let full = world.shards.states[1].has_output_room(1, OUTPUT_BYTES_MAX + 1).unwrap_err();
    assert_eq!((full.error_code(), full.retry_after_ms.is_some()), (ErrorCode::Busy, true));
    world.carry_all();
    assert_eq!(world.settle(0, 3..4, 1, &[2]), Verdict::Done);
    world.carry_all();
    world.check();
}

#[test]
fn outputs_come_in_their_turn_and_those_of_a_deleted_topic_go_with_it() {
    let mut world = World::new();
    for offset in 0..3 {
        assert_eq!(world.settle(0, offset..offset + 1, 1, &[1]), Verdict::Done);
    }
    let outputs = world.shards.states[0].outputs().oldest(SHARDS[1], 9, u64::MAX);
    let subs: Vec<_> = outputs.iter().map(|output| world.arrival(0, output)).collect();
    assert_eq!(code(&world.apply(1, &subs[1..2])[0]), Some(ErrorCode::ProducerGap), "it is not its turn");
    assert!(matches!(world.apply(1, &subs[..1])[0], Verdict::Placed(_)));
    assert_eq!(world.apply(1, &subs[..1])[0], Verdict::Done, "it is there");
    assert_eq!(world.shards.states[1].arrivals().next(SHARDS[0]), 1);
    let delete = DeleteTopic { name: name("out"), incarnation: None, expected_version: None };
    assert!(matches!(world.shards.command(1, Change::DeleteTopic(delete)), Verdict::Topic(_)));
    let gone = world.apply(1, &subs[1..]);
    assert!(gone.iter().all(|verdict| code(verdict) == Some(ErrorCode::IncarnationGone)), "{gone:?}");
    assert_eq!(world.shards.states[1].arrivals().next(SHARDS[0]), 3, "nobody waits behind them");
    // As many as bytes allow, but one.
    let len = u64::from(outputs[0].batch.len);
    let counts = [1, len, 2 * len, 3 * len - 1, 3 * len]
        .map(|bytes| world.shards.states[0].outputs().oldest(SHARDS[1], 9, bytes).len());
    assert_eq!(counts, [1, 1, 2, 2, 3]);
}

#[test]
fn outputs_that_belong_to_no_settle_stop_the_shard() {
    let world = World::new();
    let output = SubBatch { kind: Kind::Output, ..SubBatch::command(batch_of("x")) };
    let change = ChangePart { part: world.part(0), outputs: 1, ..ChangePart::default() };
    let command = prost::Message::encode_to_vec(&Command { change: Some(Change::ChangePart(change)) });
    let settle = SubBatch::command(command.into());
    for subs in [vec![output.clone()], vec![settle.clone()], vec![settle.clone(), settle, output]] {
        let mut entry = super::super::entry::EntryBuilder::new(weir_protocol::ids::TimestampMs(1), 0);
        subs.iter().for_each(|sub| entry.push(sub));
        let mut state = world.shards.states[0].clone();
        assert!(state.apply(weir_protocol::ids::LogIndex(9_999), 1, &entry.build()).is_err());
    }
}
