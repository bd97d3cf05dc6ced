mod limits;
mod memory;

use std::sync::Arc;

use bytes::Bytes;
use proptest::prelude::*;
use prost::Message as _;
use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{
    Epoch, Incarnation, LogIndex, Offset, PartitionId, ProducerKey, Seq, ShardId, TimestampMs,
};
use weir_protocol::rpc::{Level, Namespace, Placed, TopicConfig, TopicName};

use super::super::command::{
    Change, Command, CreateTopic, DeleteNamespace, DeleteTopic, PutNamespace, UpdateTopic,
};
use super::super::entry::{EntryBuilder, Idempotency, Kind, SubBatch};
use super::*;

pub(super) fn config(partitions: u32) -> TopicConfig {
    TopicConfig {
        partitions,
        default_confirm: Level::Quorum as i32,
        deliver_from: Level::Quorum as i32,
        min_confirm: Level::None as i32,
        dedupe_window_ms: 1_000,
        ..TopicConfig::default()
    }
}

pub(super) fn name(topic: &str) -> TopicName {
    TopicName { tenant: "default".into(), namespace: "default".into(), topic: topic.into() }
}

pub(super) fn batch(producer: u128, epoch: u32, base_seq: u64, count: u32) -> Bytes {
    let mut builder = BatchBuilder::new(ProducerKey(producer), Epoch(epoch), Seq(base_seq));
    for i in 0..count {
        let value = format!("{producer}/{epoch}/{}", base_seq + u64::from(i));
        builder
            .push(RecordParts { key: None, headers: &Headers::default(), value: value.as_bytes() })
            .unwrap();
    }
    builder.build(Compression::None).unwrap().bytes().clone()
}

fn publish(life: u64, partition: u32, body: Bytes) -> SubBatch {
    let (incarnation, partition) = (Incarnation(life), PartitionId(partition));
    let sub = SubBatch::command(body);
    SubBatch { incarnation, partition, kind: Kind::Publish, ..sub }
}

struct Log {
    state: ShardState,
    index: u64,
    entries: Vec<Bytes>,
}

impl Log {
    fn new() -> Self {
        Self { state: ShardState::new(ShardId(1)), index: 0, entries: Vec::new() }
    }

    fn apply_at(&mut self, ts: u64, subs: &[SubBatch]) -> Vec<Verdict> {
        let mut entry = EntryBuilder::new(TimestampMs(ts), 0);
        subs.iter().for_each(|sub| entry.push(sub));
        let payload = entry.build();
        let applied = self.state.apply(LogIndex(self.index), 1, &payload).unwrap();
        self.state.check();
        self.index += 1;
        self.entries.push(payload);
        applied.verdicts
    }

    fn one(&mut self, sub: SubBatch) -> Verdict {
        self.apply_at(1, &[sub]).remove(0)
    }

    fn command(&mut self, change: Change) -> Verdict {
        self.one(SubBatch::command(Command { change: Some(change) }.encode_to_vec().into()))
    }

    fn create(&mut self, topic: &str, config: TopicConfig) -> u64 {
        let create = CreateTopic { name: name(topic), config, accept_existing: false, shards: Vec::new() };
        match self.command(Change::CreateTopic(create)) {
            Verdict::TopicCreated(made) => made.topic.unwrap().incarnation,
            other => panic!("{other:?}"),
        }
    }
}

fn placed(verdict: Verdict) -> Placed {
    match verdict {
        Verdict::Placed(placed) => placed,
        other => panic!("{other:?}"),
    }
}

fn refused(verdict: Verdict) -> ErrorCode {
    match verdict {
        Verdict::Refused(refusal) => refusal.error_code(),
        other => panic!("{other:?}"),
    }
}

#[test]
fn a_namespace_is_deleted_at_the_version_that_is_meant_only() {
    let mut log = Log::new();
    let (tenant, name) = ("default".to_owned(), "shop".to_owned());
    for auto_create in [false, true] {
        let namespace =
            Namespace { tenant: tenant.clone(), name: name.clone(), auto_create, ..Namespace::default() };
        log.command(Change::PutNamespace(PutNamespace { namespace, expected_version: None }));
    }
    let mut delete = |expected_version| {
        let (tenant, name) = (tenant.clone(), name.clone());
        log.command(Change::DeleteNamespace(DeleteNamespace { tenant, name, expected_version }))
    };
    for stale in [0, 1, 3] {
        assert_eq!(refused(delete(Some(stale))), ErrorCode::VersionMismatch, "{stale}");
    }
    assert!(matches!(delete(Some(2)), Verdict::Done));
    assert_eq!(refused(delete(Some(2))), ErrorCode::NamespaceNotFound);
}

#[test]
fn offsets_are_dense_per_partition_and_rows_find_them() {
    let mut log = Log::new();
    let life = log.create("orders", config(2));
    assert_eq!(placed(log.one(publish(life, 0, batch(0, 0, 0, 3)))).base_offset, 0);
    assert_eq!(placed(log.one(publish(life, 1, batch(0, 0, 0, 1)))).base_offset, 0);
    assert_eq!(placed(log.one(publish(life, 0, batch(0, 0, 0, 2)))).base_offset, 3);
    let partition = log.state.partition((Incarnation(life), PartitionId(0))).unwrap();
    assert_eq!((partition.start, partition.end), (Offset(0), Offset(5)));
    assert_eq!(partition.batch_at(Offset(4)).unwrap().base_offset, Offset(3));
    assert_eq!(partition.batch_at(Offset(5)), None);
    assert_eq!(refused(log.one(publish(life, 2, batch(0, 0, 0, 1)))), ErrorCode::IncarnationGone);
}

#[test]
fn a_producer_is_held_to_its_sequence() {
    let mut log = Log::new();
    let life = log.create("orders", config(1));
    let mut send = |epoch, seq, count| log.one(publish(life, 0, batch(9, epoch, seq, count)));
    assert_eq!(refused(send(0, 1, 1)), ErrorCode::ProducerGap);
    let first = placed(send(0, 0, 3));
    let again = placed(send(0, 0, 3));
    assert_eq!((again.base_offset, again.duplicate), (first.base_offset, true));
    let part = placed(send(0, 1, 2));
    assert_eq!((part.base_offset, part.duplicate), (1, true));
    assert_eq!(refused(send(0, 2, 2)), ErrorCode::SeqOverlap);
    assert_eq!(refused(send(0, 5, 1)), ErrorCode::ProducerGap);
    assert_eq!(placed(send(0, 3, 1)).base_offset, 3);
    assert_eq!(refused(send(1, 4, 1)), ErrorCode::EpochStart);
    assert_eq!(placed(send(1, 0, 1)).base_offset, 4);
    assert_eq!(refused(send(0, 4, 1)), ErrorCode::StaleEpoch);
}

#[test]
fn an_idempotency_key_gives_its_first_answer_until_its_window_ends() {
    let mut log = Log::new();
    let life = log.create("orders", config(1));
    let keyed = |fingerprint| SubBatch {
        idempotency: Some(Idempotency { key: 5, fingerprint }),
        ..publish(life, 0, batch(0, 0, 0, 1))
    };
    let first = placed(log.apply_at(10, &[keyed(1)]).remove(0));
    let again = placed(log.apply_at(1_009, &[keyed(1)]).remove(0));
    assert_eq!((again.base_offset, again.duplicate, again.ts_ms), (first.base_offset, true, first.ts_ms));
    assert_eq!(refused(log.apply_at(1_009, &[keyed(2)]).remove(0)), ErrorCode::KeyReused);
    assert_eq!(placed(log.apply_at(1_010, &[keyed(2)]).remove(0)).base_offset, 1);
}

#[test]
fn a_condition_on_the_tail_is_checked_where_offsets_are_given() {
    let mut log = Log::new();
    let life = log.create("orders", config(1));
    let at = |end| SubBatch { expected_end: Some(Offset(end)), ..publish(life, 0, batch(0, 0, 0, 1)) };
    let verdicts = log.apply_at(1, &[at(0), at(0), at(1)]);
    assert_eq!(placed(verdicts[0].clone()).base_offset, 0);
    match &verdicts[1] {
        Verdict::Refused(refusal) => {
            assert_eq!((refusal.error_code(), refusal.tail), (ErrorCode::TailMismatch, Some(1)))
        }
        other => panic!("{other:?}"),
    }
    assert_eq!(placed(verdicts[2].clone()).base_offset, 1);
}

#[test]
fn topics_are_created_once_changed_by_version_and_gone_when_deleted() {
    let mut log = Log::new();
    let life = log.create("orders", config(1));
    let other =
        CreateTopic { name: name("orders"), config: config(2), accept_existing: false, shards: Vec::new() };
    assert_eq!(refused(log.command(Change::CreateTopic(other))), ErrorCode::ConfigMismatch);
    let update = |version, closed| UpdateTopic {
        name: name("orders"),
        config: TopicConfig { closed, ..config(1) },
        incarnation: life,
        expected_version: version,
    };
    assert_eq!(refused(log.command(Change::UpdateTopic(update(2, true)))), ErrorCode::VersionMismatch);
    assert!(
        matches!(log.command(Change::UpdateTopic(update(1, true))), Verdict::Topic(topic) if topic.version == 2)
    );
    assert_eq!(refused(log.one(publish(life, 0, batch(0, 0, 0, 1)))), ErrorCode::TopicClosed);
    let delete = DeleteTopic { name: name("orders"), incarnation: None, expected_version: None };
    assert!(matches!(log.command(Change::DeleteTopic(delete)), Verdict::Topic(_)));
    assert_eq!(refused(log.one(publish(life, 0, batch(0, 0, 0, 1)))), ErrorCode::IncarnationGone);
    assert_ne!(log.create("orders", config(1)), life, "a recreated topic is another life");
}

#[test]
fn retention_trims_record_exact_and_frees_entries() {
    let mut log = Log::new();
    let life = log.create("orders", TopicConfig { retention_records: Some(4), ..config(1) });
    for ts in 10..13 {
        log.apply_at(ts, &[publish(life, 0, batch(0, 0, 0, 3))]);
    }
    let key = (Incarnation(life), PartitionId(0));
    assert_eq!(log.state.due_trims(TimestampMs(20), 10), [(key, Offset(5))]);
    let trim = SubBatch { kind: Kind::Trim, expected_end: Some(Offset(5)), ..publish(life, 0, Bytes::new()) };
    assert_eq!(log.one(trim), Verdict::Done);
    let partition = log.state.partition(key).unwrap();
    assert_eq!((partition.start, partition.batches_from(Offset(0)).count()), (Offset(5), 2));
    assert_eq!(partition.bytes, partition.batches_from(Offset(0)).map(|row| u64::from(row.len)).sum::<u64>());
    assert_eq!(log.state.needed_from(), Some(LogIndex(2)));
    assert!(log.state.due_trims(TimestampMs(20), 10).is_empty());
    let by_age = TopicConfig { retention_age_ms: Some(8), ..config(1) };
    let mut aged = partition.clone();
    aged.config = Arc::new(by_age);
    assert_eq!(aged.due_trim(TimestampMs(20)), Some(Offset(6)));
}

fn any_sub(lives: u64) -> impl Strategy<Value = SubBatch> {
    let id = prop_oneof![3 => Just(None), 1 => (0u128..3).prop_map(Some)];
    (0..lives, 0u32..2, 0u128..3, 0u32..2, 0u64..6, 1u32..4, id, proptest::option::weighted(0.1, 0u64..8))
        .prop_map(|(life, partition, producer, epoch, seq, count, key, end)| SubBatch {
            expected_end: end.map(Offset),
            idempotency: key.map(|key| Idempotency { key, fingerprint: u128::from(seq) }),
            ..publish(
                Incarnation::compose(ShardId(1), life + 1).0,
                partition,
                batch(producer, epoch, seq, count),
            )
        })
}

/// What a log of random publishes leads to.
pub(super) fn any_log() -> impl Strategy<Value = ShardState> {
    let entries = proptest::collection::vec(proptest::collection::vec(any_sub(2), 1..4), 1..20);
    entries.prop_map(|entries| {
        let mut log = Log::new();
        log.create("a", config(1));
        log.create("b", config(2));
        for (i, subs) in entries.iter().enumerate() {
            log.apply_at(10 + 90 * i as u64, subs);
        }
        log.state
    })
}

proptest! {
    #[test]
    fn the_same_log_gives_the_same_bytes_through_any_checkpoint(
        entries in proptest::collection::vec(proptest::collection::vec(any_sub(2), 1..4), 1..20), cut in 0usize..20,
    ) {
        let mut log = Log::new();
        log.create("a", config(1));
        log.create("b", config(2));
        for (i, subs) in entries.iter().enumerate() {
            log.apply_at(10 + 90 * i as u64, subs);
        }
        let mut replayed = ShardState::new(ShardId(1));
        for (i, payload) in log.entries.iter().enumerate() {
            if i == cut {
                replayed = ShardState::decode(ShardId(1), &replayed.encode()).unwrap();
            }
            replayed.apply(LogIndex(i as u64), 1, payload).unwrap();
        }
        prop_assert_eq!(replayed.encode(), log.state.encode());
    }
}
