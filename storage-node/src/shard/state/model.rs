//! A naive model of a shard, and the property that [`ShardState`] cannot be told from it over random histories,
//! through checkpoints at random points.

use std::collections::BTreeMap;

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message as _;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Incarnation, LogIndex, Offset, PartitionId, ShardId, TimestampMs};
use weir_protocol::limits::{PRODUCER_IDLE_MS, PRODUCER_WINDOW};
use weir_protocol::rpc::TopicConfig;

use super::super::command::{Change, Command, CreateTopic, DeleteTopic, UpdateTopic};
use super::super::entry::{EntryBuilder, Idempotency, Kind, SubBatch};
use super::tests::{batch, config, name};
use super::{PartitionKey, ShardState, Verdict};

const SHARD: ShardId = ShardId(3);
/// Topics: their names say how many partitions they have.
const TOPICS: [(&str, u32); 2] = [("one", 1), ("two", 2)];

/// What the model is told; it looks like [`SubBatch`] but is made of plain numbers.
#[derive(Debug, Clone)]
struct Publish {
    topic: usize,
    partition: u32,
    producer: u128,
    epoch: u32,
    seq: u64,
    count: u32,
    key: Option<(u128, u128)>,
    expected_end: Option<u64>,
}

#[derive(Debug, Clone)]
enum Step {
    Publish(Vec<Publish>),
    Trim { topic: usize, partition: u32, upto: u64 },
    Recreate { topic: usize },
    SetClosed { topic: usize, closed: bool },
    Wait { ms: u64 },
    Restart,
}

/// One record: who sent it, as which number, and when it was accepted.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Record {
    producer: u128,
    epoch: u32,
    seq: u64,
    ts: u64,
}

/// A partition: every record there ever was, and every key.
#[derive(Debug, Clone, Default)]
struct Naive {
    start: usize,
    records: Vec<Record>,
    keys: Vec<Key>,
}

#[derive(Debug, Clone)]
struct Key {
    key: u128,
    fingerprint: u128,
    base_offset: u64,
    until: u64,
}

#[derive(Debug, PartialEq)]
enum Expected {
    /// Appended at the end.
    Placed,
    /// The key's first answer.
    Answer(u64),
    /// These records are there: either their placement, or a refusal that says that they are.
    Seen,
    /// The same below the window: the refusal need not know it.
    SeenLongAgo,
    Refused(ErrorCode),
}

impl Naive {
    fn expect(&self, sent: &Publish, is_dense: bool, is_closed: bool, now: u64) -> Expected {
        if let Some((key, fingerprint)) = sent.key
            && let Some(used) = self.keys.iter().rev().find(|used| used.key == key && used.until > now)
        {
            return match used.fingerprint == fingerprint {
                true => Expected::Answer(used.base_offset),
                false => Expected::Refused(ErrorCode::KeyReused),
            };
        }
        if sent.producer != 0
            && let Some(expected) = self.expect_of_producer(sent, is_dense, now)
        {
            return expected;
        }
        if is_closed {
            return Expected::Refused(ErrorCode::TopicClosed);
        }
        match sent.expected_end {
            Some(end) if end != self.records.len() as u64 => Expected::Refused(ErrorCode::TailMismatch),
            _ => Expected::Placed,
        }
    }

    /// `None` if the batch is new to its producer.
    fn expect_of_producer(&self, sent: &Publish, is_dense: bool, now: u64) -> Option<Expected> {
        let own = self.of_producer(sent.producer, now);
        let newest = own.last().map(|record| record.epoch);
        if newest.is_some_and(|epoch| epoch > sent.epoch) {
            return Some(Expected::Refused(ErrorCode::StaleEpoch));
        }
        let seqs: Vec<u64> =
            own.iter().filter(|record| record.epoch == sent.epoch).map(|record| record.seq).collect();
        let Some(highest) = seqs.iter().max().copied() else {
            let code = if newest.is_some() { ErrorCode::EpochStart } else { ErrorCode::ProducerGap };
            return (is_dense && sent.seq != 0).then_some(Expected::Refused(code));
        };
        let numbers = sent.seq..sent.seq + u64::from(sent.count);
        let seen = numbers.clone().filter(|seq| seqs.contains(seq)).count() as u64;
        match seen {
            n if !is_dense && sent.seq + PRODUCER_WINDOW <= highest => {
                let is_whole = n == numbers.end - numbers.start;
                Some(if is_whole { Expected::SeenLongAgo } else { Expected::Refused(ErrorCode::SeqTooOld) })
            }
            0 if is_dense && sent.seq > highest + 1 => Some(Expected::Refused(ErrorCode::ProducerGap)),
            0 => None,
            n if n == numbers.end - numbers.start => Some(Expected::Seen),
            _ => Some(Expected::Refused(ErrorCode::SeqOverlap)),
        }
    }

    /// The producer's records since it was last idle for too long, in order of acceptance.
    fn of_producer(&self, producer: u128, now: u64) -> Vec<Record> {
        let mut own: Vec<Record> = Vec::new();
        for record in self.records.iter().filter(|record| record.producer == producer) {
            if own.last().is_some_and(|last| last.ts + PRODUCER_IDLE_MS <= record.ts) {
                own.clear();
            }
            own.push(*record);
        }
        match own.last() {
            Some(last) if last.ts + PRODUCER_IDLE_MS <= now => Vec::new(),
            _ => own,
        }
    }

    fn append(&mut self, sent: &Publish, now: u64, window: u64) {
        let base_offset = self.records.len() as u64;
        let record =
            |i| Record { producer: sent.producer, epoch: sent.epoch, seq: sent.seq + u64::from(i), ts: now };
        self.records.extend((0..sent.count).map(record));
        if let Some((key, fingerprint)) = sent.key {
            self.keys.push(Key { key, fingerprint, base_offset, until: now + window });
        }
    }
}

/// A shard and its model, driven together.
struct Pair {
    state: ShardState,
    entries: Vec<Bytes>,
    now: u64,
    lives: Vec<u64>,
    is_closed: Vec<bool>,
    partitions: BTreeMap<PartitionKey, Naive>,
}

impl Pair {
    fn new() -> Self {
        let mut pair = Self {
            state: ShardState::new(SHARD),
            entries: Vec::new(),
            now: 1_000,
            lives: vec![0; TOPICS.len()],
            is_closed: vec![false; TOPICS.len()],
            partitions: BTreeMap::new(),
        };
        (0..TOPICS.len()).for_each(|topic| pair.create(topic));
        pair
    }

    fn apply(&mut self, subs: &[SubBatch]) -> Vec<Verdict> {
        let mut entry = EntryBuilder::new(TimestampMs(self.now), 0);
        subs.iter().for_each(|sub| entry.push(sub));
        let payload = entry.build();
        let index = LogIndex(self.entries.len() as u64);
        let verdicts = self.state.apply(index, 1, &payload).unwrap().verdicts;
        self.state.check();
        self.entries.push(payload);
        verdicts
    }

    fn command(&mut self, change: Change) -> Verdict {
        self.apply(&[SubBatch::command(Command { change: Some(change) }.encode_to_vec().into())]).remove(0)
    }

    fn key(&self, topic: usize, partition: u32) -> PartitionKey {
        (Incarnation(self.lives[topic]), PartitionId(partition % TOPICS[topic].1))
    }

    fn create(&mut self, topic: usize) {
        let (text, partitions) = TOPICS[topic];
        let create = CreateTopic {
            name: name(text),
            config: config(partitions),
            accept_existing: false,
            shards: Vec::new(),
        };
        let verdict = self.command(Change::CreateTopic(create));
        let Verdict::TopicCreated(made) = verdict else { panic!("{verdict:?}") };
        self.lives[topic] = made.topic.unwrap().incarnation;
        self.is_closed[topic] = false;
        for partition in 0..partitions {
            self.partitions.insert(self.key(topic, partition), Naive::default());
        }
    }

    fn step(&mut self, step: &Step) {
        match step {
            Step::Publish(all) => self.publish(all),
            Step::Trim { topic, partition, upto } => {
                let key = self.key(*topic, *partition);
                let naive = self.partitions.get_mut(&key).unwrap();
                naive.start = naive.start.max((*upto as usize).min(naive.records.len()));
                let trim = SubBatch {
                    kind: Kind::Trim,
                    expected_end: Some(Offset(*upto)),
                    ..sub(key, Bytes::new())
                };
                self.apply(&[trim]);
            }
            Step::Recreate { topic } => {
                let delete =
                    DeleteTopic { name: name(TOPICS[*topic].0), incarnation: None, expected_version: None };
                assert!(matches!(self.command(Change::DeleteTopic(delete)), Verdict::Topic(_)));
                let life = Incarnation(self.lives[*topic]);
                self.partitions.retain(|key, _| key.0 != life);
                self.create(*topic);
            }
            Step::SetClosed { topic, closed } => {
                let description = self.state.topics().describe(&name(TOPICS[*topic].0)).unwrap();
                let update = UpdateTopic {
                    name: name(TOPICS[*topic].0),
                    config: TopicConfig { closed: *closed, ..description.config.unwrap() },
                    incarnation: description.incarnation,
                    expected_version: description.version,
                };
                assert!(matches!(self.command(Change::UpdateTopic(update)), Verdict::Topic(_)));
                self.is_closed[*topic] = *closed;
            }
            Step::Wait { ms } => self.now += ms,
            Step::Restart => {
                let restored = ShardState::decode(SHARD, &self.state.encode()).unwrap();
                restored.check();
                self.state = restored;
            }
        }
        self.compare();
    }

    fn publish(&mut self, all: &[Publish]) {
        let subs: Vec<SubBatch> = all
            .iter()
            .map(|sent| SubBatch {
                idempotency: sent.key.map(|(key, fingerprint)| Idempotency { key, fingerprint }),
                expected_end: sent.expected_end.map(Offset),
                ..sub(
                    self.key(sent.topic, sent.partition),
                    batch(sent.producer, sent.epoch, sent.seq, sent.count),
                )
            })
            .collect();
        let verdicts = self.apply(&subs);
        assert_eq!(verdicts.len(), all.len());
        for (sent, verdict) in all.iter().zip(verdicts) {
            let key = self.key(sent.topic, sent.partition);
            let naive = self.partitions.get_mut(&key).unwrap();
            let is_dense = TOPICS[sent.topic].1 == 1;
            let expected = naive.expect(sent, is_dense, self.is_closed[sent.topic], self.now);
            verify(naive, sent, &expected, &verdict);
            if expected == Expected::Placed {
                naive.append(sent, self.now, config(1).dedupe_window_ms);
            }
        }
    }

    /// Bounds, and every live record found again in the log through its row.
    fn compare(&self) {
        for (key, naive) in &self.partitions {
            let partition = self.state.partition(*key).unwrap();
            let bounds = (partition.start.0 as usize, partition.end.0 as usize);
            assert_eq!(bounds, (naive.start, naive.records.len()), "{key:?}");
            let mut next = None;
            for row in partition.batches_from(Offset(0)) {
                assert!(next.is_none_or(|next| next == row.base_offset));
                next = Some(row.end());
                let payload = &self.entries[row.index.0 as usize];
                let body = payload.slice(row.pos as usize..(row.pos + row.len) as usize);
                let found = weir_protocol::batch::Batch::parse(body).unwrap().header();
                let first = naive.records[row.base_offset.0 as usize];
                assert_eq!(
                    (found.producer.0, found.base_seq.0, found.count),
                    (first.producer, first.seq, row.count)
                );
                assert_eq!(row.ts.0, first.ts);
            }
            assert_eq!(next.unwrap_or(partition.end), partition.end);
            if naive.start < naive.records.len() {
                let ts = TimestampMs(naive.records[naive.start].ts);
                assert_eq!(partition.offset_at(ts), partition.start);
            }
        }
    }
}

fn sub((incarnation, partition): PartitionKey, body: Bytes) -> SubBatch {
    let sub = SubBatch::command(body);
    SubBatch { incarnation, partition, kind: Kind::Publish, ..sub }
}

fn verify(naive: &Naive, sent: &Publish, expected: &Expected, verdict: &Verdict) {
    let told = match verdict {
        Verdict::Placed(placed) => Ok(*placed),
        Verdict::Refused(refusal) => Err((refusal.error_code(), refusal.effect())),
        other => panic!("{other:?}"),
    };
    match (expected, told) {
        (Expected::Placed, Ok(placed)) => {
            assert_eq!((placed.base_offset, placed.duplicate), (naive.records.len() as u64, false));
        }
        (Expected::Answer(offset), Ok(placed)) => {
            assert_eq!((placed.base_offset, placed.duplicate), (*offset, true));
        }
        (Expected::Seen | Expected::SeenLongAgo, Ok(placed)) => {
            assert!(placed.duplicate);
            for i in 0..u64::from(sent.count) {
                let record = naive.records[(placed.base_offset + i) as usize];
                let found = (record.producer, record.epoch, record.seq);
                assert_eq!(found, (sent.producer, sent.epoch, sent.seq + i));
            }
        }
        (Expected::Seen, Err((ErrorCode::SeqTooOld, Outcome::Applied)))
        | (Expected::SeenLongAgo, Err((ErrorCode::SeqTooOld, _))) => {}
        (Expected::Refused(code), Err((told, _))) => assert_eq!(*code, told, "{sent:?}"),
        (expected, told) => panic!("{sent:?}: expected {expected:?}, was told {told:?}"),
    }
}

fn any_publish() -> impl Strategy<Value = Publish> {
    let key = prop_oneof![4 => Just(None), 1 => (0u128..3, 0u128..2).prop_map(Some)];
    // Mostly the next number or near it; now and then far ahead, so that the window moves.
    let seq = prop_oneof![6 => 0u64..12, 1 => 1_000u64..1_040];
    let sent = (0u32..2, seq, 1u32..4, 0u128..4, prop_oneof![5 => Just(0u32), 1 => 1u32..3]);
    (0..TOPICS.len(), sent, key, proptest::option::weighted(0.1, 0u64..8)).prop_map(
        |(topic, (partition, seq, count, producer, epoch), key, expected_end)| Publish {
            topic,
            partition,
            producer,
            epoch,
            seq,
            count,
            key,
            expected_end,
        },
    )
}

fn any_step() -> impl Strategy<Value = Step> {
    let topic = || 0..TOPICS.len();
    prop_oneof![
        12 => proptest::collection::vec(any_publish(), 1..4).prop_map(Step::Publish),
        2 => (topic(), 0u32..2, 0u64..20).prop_map(|(topic, partition, upto)| Step::Trim { topic, partition, upto }),
        1 => topic().prop_map(|topic| Step::Recreate { topic }),
        1 => (topic(), any::<bool>()).prop_map(|(topic, closed)| Step::SetClosed { topic, closed }),
        2 => prop_oneof![4 => 0u64..1_500, 1 => Just(PRODUCER_IDLE_MS)].prop_map(|ms| Step::Wait { ms }),
        2 => Just(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 128, ..ProptestConfig::default() })]
    #[test]
    fn a_shard_cannot_be_told_from_its_model(steps in proptest::collection::vec(any_step(), 1..60)) {
        let mut pair = Pair::new();
        steps.iter().for_each(|step| pair.step(step));
    }
}
