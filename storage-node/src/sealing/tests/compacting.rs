//! Tests of compaction, over a store that may fail: whatever happens, the newest record of each key is there,
//! at its offset.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use proptest::prelude::*;
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, Record, RecordParts};
use weir_protocol::error::ErrorCode;
use weir_protocol::filter::Filter;
use weir_protocol::ids::{Incarnation, Offset, PartitionId, ShardId, TimestampMs};
use weir_protocol::rpc::TopicConfig;
use weir_tier::faults::{Fault, Faults, Op};

use super::super::Rewriter;
use super::super::compaction::{DELETED_FOR_MS, Window};
use super::super::compactor::Compactor;
use super::{Play, name};
use crate::clock;
use crate::read::{Allowance, Reader};
use crate::shard::command::{Change, CreateTopic, UpdateTopic};
use crate::shard::entry::{Kind, SubBatch};
use crate::shard::state::{PartitionKey, Verdict};

const SHARD: ShardId = ShardId(1);
const ALL: Allowance = Allowance { records: 1_000, bytes: 1 << 20 };
/// A window in which everything fits, and to which nothing is too little.
const WIDE: Window = Window { keys_max: 1_000, new_bytes_min: 1 };

/// A record: its key, and its value; an empty one says that its key is deleted.
type Said = (Option<u8>, Vec<u8>);

fn said(record: &Record) -> (u64, Said) {
    (record.offset.0, (record.key.as_ref().map(|key| key[0]), record.value.to_vec()))
}

impl Play {
    async fn create_compacted(&self, topic: &str) -> PartitionKey {
        let config = TopicConfig { partitions: 1, compact_by_key: true, ..TopicConfig::default() };
        let create = CreateTopic { name: name(topic), config, accept_existing: false, shards: vec![1] };
        let Verdict::TopicCreated(made) = self.command(1, Change::CreateTopic(create)).await else {
            panic!("it is new")
        };
        (Incarnation(made.topic.unwrap().incarnation), PartitionId(0))
    }

    async fn say(&self, (incarnation, partition): PartitionKey, records: &[Said]) {
        let mut batch = BatchBuilder::anonymous();
        for (key, value) in records {
            let key = key.as_ref().map(std::slice::from_ref);
            batch.push(RecordParts { key, headers: &Headers::default(), value }).unwrap();
        }
        let body = batch.build(Compression::Auto).unwrap().bytes().clone();
        let publish = SubBatch { incarnation, partition, kind: Kind::Publish, ..SubBatch::command(body) };
        assert!(matches!(self.change(1, publish).await, Verdict::Placed(_)));
    }

    fn compactor(&self, window: Window) -> Compactor {
        Compactor::new(self.tier.clone(), window)
    }

    /// Until there is nothing to do.
    async fn compact(&self, window: Window, now: TimestampMs) {
        let mut compactor = self.compactor(window);
        while compactor.round(&self.shards, now).await.unwrap() {}
    }

    fn keyed_reader(&self, key: PartitionKey) -> Reader {
        Reader::new(self.shards[&SHARD].clone(), key)
    }

    /// All that is there from an offset on, read a few at a time.
    async fn all(&self, key: PartitionKey, from: u64, at_once: Allowance) -> Vec<(u64, Said)> {
        let (reader, mut found) = (self.keyed_reader(key), Vec::new());
        let bounds = reader.bounds().unwrap();
        let mut next = Offset(from).max(bounds.start);
        while next < bounds.end {
            let read = reader.read(next, bounds.end, at_once).await.unwrap();
            assert!(read.next > next, "it goes on behind {next}");
            assert!(read.records <= at_once.records);
            let mut taken = 0;
            for (slice, payload) in read.slices.iter().zip(read.payload.chunks(2)) {
                let batch = Batch::parse(payload.concat().into()).unwrap();
                assert_eq!(batch.header().left, None, "readers get no batches with holes");
                for record in batch.records().unwrap().within(Offset(slice.first), slice.take) {
                    found.push(said(&record.unwrap()));
                    taken += 1;
                }
            }
            assert_eq!(taken, read.records);
            let holes: u64 = read.holes(next).map(|hole| hole.end.0 - hole.start.0).sum();
            assert_eq!(holes + read.records, read.next.0 - next.0, "each offset is a record or a hole");
            next = read.next;
        }
        found
    }

    fn compacted_to(&self, key: PartitionKey) -> u64 {
        self.shards[&SHARD].state.read().partition(key).unwrap().compacted_to().0
    }
}

#[derive(Debug, Clone)]
enum Step {
    Publish(Vec<Said>),
    Seal,
    /// A part of a pass, or more of it, at a time that is so many days later.
    Compact(u64),
    /// Whoever compacted is gone, in the middle of a pass perhaps; from now on in windows of so many keys.
    Replace(usize),
    Rewrite,
    Trim(u64),
    Restart,
}

fn any_said() -> impl Strategy<Value = Said> {
    let value = prop_oneof![1 => Just(Vec::new()), 4 => proptest::collection::vec(any::<u8>(), 1..40)];
    (prop_oneof![1 => Just(None), 6 => (b'a'..b'g').prop_map(Some)], value)
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        8 => proptest::collection::vec(any_said(), 1..7).prop_map(Step::Publish),
        4 => Just(Step::Seal),
        6 => (0u64..3).prop_map(Step::Compact),
        2 => (1usize..9).prop_map(Step::Replace),
        1 => Just(Step::Rewrite),
        1 => (1u64..6).prop_map(Step::Trim),
        1 => Just(Step::Restart),
    ]
}

/// What was published, and what is known of what is left of it.
struct Model {
    said: Vec<Said>,
    start: usize,
    /// Records that say that their key is deleted may be gone.
    is_late: bool,
    /// Offsets that were seen to be gone: they do not come back.
    gone: BTreeSet<u64>,
}

impl Model {
    /// What every reader must find, and what it may.
    fn check(&mut self, found: &[(u64, Said)]) {
        assert!(found.is_sorted_by(|a, b| a.0 < b.0), "in order");
        for (offset, said) in found {
            assert_eq!(said, &self.said[usize::try_from(*offset).unwrap()], "record {offset} is another");
            assert!(!self.gone.contains(offset), "record {offset} came back");
        }
        let there: BTreeSet<u64> = found.iter().map(|(offset, _)| *offset).collect();
        let mut newest: BTreeMap<u8, u64> = BTreeMap::new();
        for (offset, (key, _)) in (0u64..).zip(&self.said).skip(self.start) {
            match key {
                Some(key) => _ = newest.insert(*key, offset),
                None => assert!(there.contains(&offset), "record {offset} has no key"),
            }
        }
        for (key, offset) in newest {
            let is_deleted = self.said[usize::try_from(offset).unwrap()].1.is_empty();
            let is_there = there.contains(&offset);
            assert!(
                is_there || (is_deleted && self.is_late),
                "the newest record of {key}, {offset}, is gone"
            );
            let of_key = found.iter().filter(|(_, (of, _))| *of == Some(key));
            assert!(is_there || of_key.count() == 0, "a deleted key came back");
        }
        let all = self.start as u64..self.said.len() as u64;
        self.gone.extend(all.filter(|offset| !there.contains(offset)));
    }
}

async fn run(steps: Vec<Step>) {
    let mut play = Play::with_packs_of(600, &Faults::default()).await;
    let key = play.create_compacted("t").await;
    let mut model = Model { said: Vec::new(), start: 0, is_late: false, gone: BTreeSet::new() };
    let mut window = WIDE;
    let mut compactor = play.compactor(window);
    for step in steps {
        match step {
            Step::Publish(records) => {
                play.say(key, &records).await;
                model.said.extend(records);
            }
            Step::Seal => play.sealer.round().await.unwrap(),
            Step::Compact(days) => {
                model.is_late |= days > 0;
                let now = TimestampMs(clock::now().0 + days * (DELETED_FOR_MS + 60_000));
                compactor.round(&play.shards, now).await.unwrap();
            }
            Step::Replace(keys) => {
                // The keys of one batch always have room.
                window = Window { keys_max: 6 + keys, ..window };
                compactor = play.compactor(window);
            }
            Step::Rewrite => {
                Rewriter::new(play.tier.clone(), play.shards.clone(), 900).round().await.unwrap();
            }
            Step::Trim(by) => {
                model.start = (model.start + usize::try_from(by).unwrap()).min(model.said.len());
                play.trim(1, key, model.start as u64).await;
            }
            Step::Restart => {
                drop(compactor);
                play = play.restart().await;
                compactor = play.compactor(window);
            }
        }
        let found = play.all(key, 0, ALL).await;
        model.check(&found);
    }
    drop(compactor);
    look_from_everywhere(&play, key, model).await;
    play.stop().await;
}

/// However it is read, and from wherever, it is the same; and in the end, of each key in packs one record is left.
async fn look_from_everywhere(play: &Play, key: PartitionKey, mut model: Model) {
    // A day later what is new is compacted, however little it is.
    model.is_late = true;
    play.compact(WIDE, TimestampMs(clock::now().0 + 4 * DELETED_FOR_MS)).await;
    let found = play.all(key, 0, ALL).await;
    model.check(&found);
    let below = play.compacted_to(key).max(model.start as u64);
    let sealed_to = play.shards[&SHARD].state.read().partition(key).unwrap().unsealed_from().0;
    assert_eq!(below, sealed_to, "all that packs hold is compacted");
    let keys: Vec<_> = found.iter().filter(|(at, _)| *at < below).filter_map(|(_, (key, _))| *key).collect();
    assert_eq!(keys.len(), keys.iter().collect::<BTreeSet<_>>().len(), "each key once: {found:?}");
    let reader = play.keyed_reader(key);
    let bounds = reader.bounds().unwrap();
    for from in 0..=model.said.len() as u64 {
        let rest: Vec<_> = found.iter().filter(|(at, _)| *at >= from).cloned().collect();
        assert_eq!(play.all(key, from, Allowance { records: 2, bytes: 60 }).await, rest, "from {from}");
        if from >= bounds.start.0 {
            let there = rest.first().map_or(bounds.end.0, |(at, _)| *at);
            assert_eq!(reader.next_there(Offset(from)).await.unwrap(), Offset(there), "behind {from}");
        }
    }
    let filter = Filter::parse("key == 'c'").unwrap();
    let (mut next, mut matching) = (bounds.start, Vec::new());
    while next < bounds.end {
        let read = reader.read_filtered(&filter, (next, bounds.end), ALL).await.unwrap().read;
        matching.extend(read.slices.iter().flat_map(|it| it.first..it.first + u64::from(it.take)));
        next = read.next;
    }
    let expected = found.iter().filter(|(_, (key, _))| *key == Some(b'c')).map(|(at, _)| *at);
    assert_eq!(matching, expected.collect::<Vec<_>>());
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 24, ..ProptestConfig::default() })]
    #[test]
    fn the_newest_record_of_each_key_and_all_without_one_are_there_whatever_happens(
        steps in proptest::collection::vec(any_step(), 1..60),
    ) {
        let mut runtime = tokio::runtime::Builder::new_multi_thread();
        runtime.worker_threads(2).enable_all().build().unwrap().block_on(run(steps));
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_while_a_partition_is_compacted_costs_no_record() {
    let faults = Faults::default();
    let mut play = Play::with_packs_of(64 << 10, &faults).await;
    let key = play.create_compacted("t").await;
    for n in 0..60u8 {
        play.say(key, &[(Some(n % 3), vec![n; 50]), (None, vec![n])]).await;
        if n % 20 == 19 {
            play.sealer.round().await.unwrap();
        }
    }
    let before = play.all(key, 0, ALL).await;
    for (op, fault) in [(Op::Put, Fault::Error), (Op::Get, Fault::BitFlip), (Op::Get, Fault::Error)] {
        faults.always(Some((op, fault)));
        let failed = play.compactor(WIDE).round(&play.shards, clock::now()).await;
        faults.always(None);
        assert!(failed.is_err(), "{op:?} {fault:?}");
        assert_eq!(play.compacted_to(key), 0, "{op:?} {fault:?}: what is not verified replaces nothing");
        assert_eq!(play.all(key, 0, ALL).await, before);
    }
    let mut compactor = play.compactor(WIDE);
    faults.always(Some((Op::Get, Fault::Error)));
    assert!(compactor.round(&play.shards, clock::now()).await.is_err());
    faults.always(None);
    assert!(!compactor.round(&play.shards, clock::now()).await.unwrap(), "it is left alone for a while");
    assert_eq!(play.compacted_to(key), 0);
    drop(compactor);
    play.compact(WIDE, clock::now()).await;
    let left = play.all(key, 0, ALL).await;
    assert_eq!((before.len(), left.len(), play.compacted_to(key)), (120, 63, 120));
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn only_what_packs_hold_counts_and_what_is_new_must_be_worth_a_pass() {
    let mut play = Play::with_packs_of(64 << 10, &Faults::default()).await;
    let key = play.create_compacted("t").await;
    play.say(key, &[(Some(1), b"old".to_vec())]).await;
    play.sealer.round().await.unwrap();
    // Of what is in no pack a restore knows nothing: on its account nothing is dropped.
    play.say(key, &[(Some(1), b"new".to_vec())]).await;
    play.compact(WIDE, clock::now()).await;
    assert_eq!((play.all(key, 0, ALL).await.len(), play.compacted_to(key)), (2, 1));
    play.sealer.round().await.unwrap();
    let window = Window::default();
    play.compact(window, clock::now()).await;
    assert_eq!(play.compacted_to(key), 1, "so little is not worth it");
    play.compact(window, TimestampMs(clock::now().0 + DELETED_FOR_MS + 60_000)).await;
    let left = play.all(key, 0, ALL).await;
    assert_eq!((left, play.compacted_to(key)), (vec![(1, (Some(1), b"new".to_vec()))], 2));
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packs_of_a_compacted_partition_do_not_become_more_and_smaller_for_ever() {
    let mut play = Play::with_packs_of(64 << 10, &Faults::default()).await;
    let key = play.create_compacted("t").await;
    let mut most = 0;
    for n in 0..40u8 {
        play.say(key, &[(Some(n), vec![n; 50])]).await;
        play.sealer.round().await.unwrap();
        // No key comes twice: nothing is ever dropped.
        play.compact(Window { new_bytes_min: 1, keys_max: 10 }, clock::now()).await;
        most = most.max(play.packs(1).0);
    }
    assert!(most < 20, "{most} packs");
    assert_eq!(play.all(key, 0, ALL).await.len(), 40);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_looks_at_what_it_may_take_and_through_a_hole_at_more() {
    let mut play = Play::with_packs_of(64 << 10, &Faults::default()).await;
    let key = play.create_compacted("t").await;
    for n in 0..50u8 {
        play.say(key, &[(Some(b'a'), vec![n; 50])]).await;
    }
    play.sealer.round().await.unwrap();
    play.compact(WIDE, clock::now()).await;
    let (reader, one) = (play.keyed_reader(key), Allowance { records: 1, bytes: 1 << 20 });
    let at_first = reader.read(Offset(0), Offset(50), one).await.unwrap();
    assert_eq!((at_first.records, at_first.next), (0, Offset(1)), "one batch");
    let then = reader.read(Offset(1), Offset(50), one).await.unwrap();
    assert_eq!((then.slices[0].first, then.next), (49, Offset(50)), "all the others");
    let elsewhere = reader.read(Offset(7), Offset(50), one).await.unwrap();
    assert_eq!((elsewhere.records, elsewhere.next), (0, Offset(8)), "it comes from nowhere");
    // What was trimmed is not told as if it had been dropped.
    play.trim(1, key, 10).await;
    let refused = reader.read(Offset(8), Offset(50), one).await.expect_err("it is not there");
    assert_eq!((refused.error_code(), refused.earliest), (ErrorCode::OffsetTrimmed, Some(10)));
    assert_eq!(reader.next_there(Offset(8)).await.unwrap(), Offset(49));
    drop(reader);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_partition_of_which_packs_hold_nothing_and_one_that_is_not_to_be_compacted_any_more_are_left_alone()
{
    let mut play = Play::with_packs_of(64 << 10, &Faults::default()).await;
    let key = play.create_compacted("t").await;
    play.say(key, &[(Some(b'a'), vec![1]), (Some(b'a'), vec![2])]).await;
    play.sealer.round().await.unwrap();
    play.trim(1, key, 2).await;
    play.say(key, &[(Some(b'a'), vec![3]), (Some(b'a'), vec![4])]).await;
    let late = TimestampMs(clock::now().0 + 2 * DELETED_FOR_MS);
    let mut compactor = play.compactor(WIDE);
    assert!(!compactor.round(&play.shards, late).await.unwrap(), "nothing is sealed: nothing is due");
    play.sealer.round().await.unwrap();
    let config = TopicConfig { partitions: 1, ..TopicConfig::default() };
    let (incarnation, expected_version) = (key.0.0, 1);
    let update = UpdateTopic { name: name("t"), config, incarnation, expected_version };
    play.command(1, Change::UpdateTopic(update)).await;
    while compactor.round(&play.shards, late).await.unwrap() {}
    assert_eq!((play.compacted_to(key), play.all(key, 0, ALL).await.len()), (0, 2));
    drop(compactor);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn tombstones_of_one_hour_go_in_one_pass() {
    let mut play = Play::with_packs_of(64 << 10, &Faults::default()).await;
    let key = play.create_compacted("t").await;
    play.say(key, &[(Some(1), Vec::new())]).await;
    let first = clock::now().0;
    tokio::time::sleep(Duration::from_millis(20)).await;
    play.say(key, &[(Some(2), Vec::new())]).await;
    let second = clock::now().0;
    play.sealer.round().await.unwrap();
    let mut compactor = play.compactor(WIDE);
    let hour = 3_600_000;
    let steps = [
        (second, vec![0, 1]),
        (first + DELETED_FOR_MS, vec![1]),
        (second + DELETED_FOR_MS, vec![1]),
        (first + DELETED_FOR_MS + hour, vec![]),
    ];
    for (now, left) in steps {
        while compactor.round(&play.shards, TimestampMs(now)).await.unwrap() {}
        let found = play.all(key, 0, ALL).await;
        assert_eq!(found.iter().map(|(at, _)| *at).collect::<Vec<_>>(), left, "{} ms later", now - first);
    }
    drop(compactor);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_tombstone_goes_a_day_after_its_time_though_nothing_is_new() {
    let mut play = Play::with_packs_of(64 << 10, &Faults::default()).await;
    let key = play.create_compacted("t").await;
    let (value, deleted) = ((Some(b'k'), b"value".to_vec()), (Some(b'k'), Vec::new()));
    let plain = (None, Vec::new());
    play.say(key, &[value, plain.clone(), deleted.clone()]).await;
    play.sealer.round().await.unwrap();
    let began = clock::now().0;
    let mut compactor = play.compactor(WIDE);
    let hour = 3_600_000;
    for (hours, left) in [(0, vec![1, 2]), (23, vec![1, 2]), (25, vec![1])] {
        while compactor.round(&play.shards, TimestampMs(began + hours * hour)).await.unwrap() {}
        let found = play.all(key, 0, ALL).await;
        assert_eq!(found.iter().map(|(at, _)| *at).collect::<Vec<_>>(), left, "{hours} hours later");
    }
    assert_eq!(play.all(key, 1, ALL).await, [(1, plain)], "an empty record without a key is like any other");
    let reader = play.keyed_reader(key);
    assert_eq!(reader.bounds().unwrap().end, Offset(3), "offsets stay");
    assert_eq!(reader.next_there(Offset(2)).await.unwrap(), Offset(3), "nothing is behind it");
    drop((compactor, reader));
    let mut play = play.restart().await;
    play.say(key, std::slice::from_ref(&deleted)).await;
    play.sealer.round().await.unwrap();
    play.compact(WIDE, TimestampMs(began + 50 * hour)).await;
    assert_eq!(play.all(key, 2, ALL).await, [], "it is old enough at once");
    // Whoever begins anew does not know of any, and looks soon.
    let much = (0..8_000u32).map(|n| n.wrapping_mul(0x9e37_79b1).to_be_bytes()[0]).collect();
    play.say(key, &[deleted, (None, much)]).await;
    play.sealer.round().await.unwrap();
    play.compact(WIDE, TimestampMs(began)).await;
    assert_eq!(play.compacted_to(key), 6, "so much is worth a pass");
    let play = play.restart().await;
    let mut compactor = play.compactor(WIDE);
    for (hours, left) in [(30, 2), (31, 1)] {
        while compactor.round(&play.shards, TimestampMs(began + hours * hour)).await.unwrap() {}
        assert_eq!(play.all(key, 2, ALL).await.len(), left, "{hours} hours later");
    }
    drop(compactor);
    play.stop().await;
}
