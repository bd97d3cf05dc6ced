//! Pins what state version 7 means: a log of 53 entries and the checkpoint it must lead to, byte for byte.
//!
//! A build that fails here would read its predecessor's log differently: raise `STATE_VERSION` and keep the old rules.
//! To write the files of a *new* version: `WEIR_GOLDEN_DIR=$PWD/storage-node/src/shard/state/golden cargo test -p
//! weir-storage-node golden`.
#![expect(clippy::disallowed_methods, reason = "writes golden files when asked to")]

mod before;
mod compacted;
mod ended;
mod forked;
mod letters;
mod purged;

use std::ops::Range;

use bytes::{Buf, Bytes};
use prost::Message as _;
use weir_protocol::ids::{Incarnation, LogIndex, Offset, PartitionId, ShardId, TimestampMs};
use weir_protocol::rpc::{
    At, ConsumedTopic, Namespace, PartRef, SubscriptionConfig, SubscriptionDescription, SubscriptionName,
    TopicConfig, TopicDescription,
};

use super::super::command::{
    Buried, Change, ChangePart, Command, CreateSubscription, CreateTopic, DeleteNamespace,
    DeleteSubscription, DeleteTopic, Forget, NewsTaken, PutNamespace, PutSlots, Rewrite, Seal, SealedPart,
    Taken, TellSubscription, TellTopic, UpdateSubscription, UpdateTopic,
};
use super::super::entry::{Across, EntryBuilder, Idempotency, Kind, SubBatch};
use super::tests::{batch, config, name};
use super::{ShardState, SlotTable, Verdict};
use crate::subscription::{Dead, Fence, Nacked, PartEvent, Redelivered, Seek};

const SHARD: ShardId = ShardId(5);
const LOG: &[u8] = include_bytes!("golden/v7.log");
const CHECKPOINT: &[u8] = include_bytes!("golden/v7.checkpoint");

fn command(change: Change) -> SubBatch {
    SubBatch::command(Command { change: Some(change) }.encode_to_vec().into())
}

fn life(counter: u64) -> u64 {
    Incarnation::compose(SHARD, counter).0
}

fn publish(counter: u64, partition: u32, body: Bytes) -> SubBatch {
    let (incarnation, partition) = (Incarnation(life(counter)), PartitionId(partition));
    let sub = SubBatch::command(body);
    SubBatch { incarnation, partition, kind: Kind::Publish, ..sub }
}

fn set_up() -> Vec<SubBatch> {
    let create = |topic: &str, config: TopicConfig| {
        command(Change::CreateTopic(CreateTopic {
            name: name(topic),
            config,
            accept_existing: false,
            shards: Vec::new(),
        }))
    };
    let namespace = Namespace {
        tenant: "default".into(),
        name: "shop".into(),
        auto_create: true,
        cors_origins: vec!["https://app.example".into()],
        cache_public: false,
        version: 0,
    };
    vec![
        create("orders", TopicConfig { retention_age_ms: Some(60_000), ..config(1) }),
        create("clicks", config(2)),
        create("gone", config(1)),
        create("clicks", config(3)),
        command(Change::PutNamespace(PutNamespace { namespace, expected_version: None })),
        command(Change::DeleteNamespace(DeleteNamespace {
            tenant: "default".into(),
            name: "nothing".into(),
            expected_version: None,
        })),
    ]
}

/// Every kind, every condition, accepted and refused; enough batches for a full chunk of rows.
fn log() -> Vec<Bytes> {
    let entry = |ts: u64, subs: &[SubBatch]| {
        let mut builder = EntryBuilder::new(TimestampMs(ts), 0);
        subs.iter().for_each(|sub| builder.push(sub));
        builder.build()
    };
    let mut entries = vec![entry(1_000, &set_up())];
    for i in 0..35u64 {
        let keyed = Idempotency { key: u128::from(i % 5), fingerprint: u128::from(i % 2) };
        let subs = [
            publish(1, 0, batch(7, 0, i * 2, 2)),
            publish(1, 0, batch(0, 0, 0, 1)),
            publish(2, (i % 2) as u32, batch(8, 1, i * 3 % 50, 1)),
            SubBatch { idempotency: Some(keyed), ..publish(2, 1, batch(0, 0, 0, 1)) },
            SubBatch { expected_end: Some(Offset(i)), ..publish(3, 0, batch(0, 0, 0, 1)) },
        ];
        entries.push(entry(2_000 + i * 40, &subs));
    }
    let update = UpdateTopic {
        name: name("orders"),
        config: TopicConfig { closed: true, ..config(1) },
        incarnation: life(1),
        expected_version: 1,
    };
    let delete = DeleteTopic { name: name("gone"), incarnation: None, expected_version: Some(1) };
    let trim = SubBatch { kind: Kind::Trim, expected_end: Some(Offset(70)), ..publish(1, 0, Bytes::new()) };
    entries.push(entry(9_000, &[trim, command(Change::DeleteTopic(delete))]));
    entries.push(entry(9_001, &[command(Change::UpdateTopic(update)), publish(1, 0, batch(0, 0, 0, 1))]));
    // A clock that went back, a producer that was fenced, a topic that is gone.
    entries.push(entry(8_000, &[publish(2, 0, batch(8, 2, 0, 3)), publish(3, 0, batch(0, 0, 0, 1))]));
    entries.push(entry(9_500, &[publish(2, 0, batch(8, 1, 60, 1)), publish(2, 0, batch(8, 2, 0, 3))]));
    entries.push(entry(9_600, &neighbours()));
    entries.push(entry(9_700, &subscriptions()));
    entries.push(entry(9_800, &settled()));
    entries.push(entry(9_900, &ruled()));
    entries.push(entry(9_950, &outputs()));
    entries.push(entry(9_960, &packs()));
    entries.push(entry(9_970, &unneeded_packs()));
    entries.push(entry(9_980, &several_topics()));
    entries.push(entry(9_990, &rewritten_packs()));
    entries.push(entry(9_995, &forked::forked()));
    // A minute later: what stood before is kept.
    entries.push(entry(61_000, &forked::later()));
    entries.push(entry(61_500, &letters::letters()));
    entries.push(entry(61_600, &ended::ended()));
    entries
}

fn seal(attempt: u128, parts: &[(u64, u32, Range<u64>)]) -> SubBatch {
    command(Change::Seal(pack(attempt, parts)))
}

fn pack(attempt: u128, parts: &[(u64, u32, Range<u64>)]) -> Seal {
    let part = |(counter, partition, run): &(u64, u32, Range<u64>)| SealedPart {
        incarnation: life(*counter),
        partition: *partition,
        start: run.start,
        end: run.end,
    };
    Seal {
        first: 1,
        last: 30,
        term: 2,
        attempt: attempt.into(),
        bytes: 70_000,
        tail_bytes: 400,
        crc32c: 0x1234_5678,
        parts: parts.iter().map(part).collect(),
        batch_bytes: 90_000 + u64::try_from(attempt).unwrap(),
    }
}

fn trim(counter: u64, partition: u32, upto: u64) -> SubBatch {
    let trim = publish(counter, partition, Bytes::new());
    SubBatch { kind: Kind::Trim, expected_end: Some(Offset(upto)), ..trim }
}

/// Packs that are taken and refused; a record that is given up when it is in one.
fn packs() -> Vec<SubBatch> {
    let given_up = Dead { offset: Offset(3), attempts: 2, reason: "cold".into() };
    let event = PartEvent { dead: vec![given_up], ..PartEvent::default() };
    let part = PartRef { subscription: life(6), incarnation: life(2), partition: 0 };
    vec![
        seal(11, &[(1, 0, 70..75), (2, 0, 0..5), (3, 0, 0..1)]), // the third topic is gone
        seal(12, &[(2, 0, 6..8)]),                               // leaves a hole
        seal(13, &[(2, 0, 0..5)]),                               // has nothing new
        seal(14, &[(2, 0, 3..8), (2, 1, 0..4)]),
        seal(15, &[(2, 1, 4..9)]),
        seal(16, &[(2, 1, 9..1_000)]), // beyond the end
        command(Change::ChangePart(ChangePart {
            part,
            event: event.encode().into(),
            ..ChangePart::default()
        })),
    ]
}

/// One pack that only a dead letter needs, one that nothing needs any more and one that was forgotten.
fn unneeded_packs() -> Vec<SubBatch> {
    vec![
        trim(1, 0, 76),
        trim(2, 0, 8),
        trim(2, 1, 9),
        command(Change::Forget(Forget { packs: vec![1, 2, 9] })),
    ]
}

/// Packs that one takes the place of, and those that come too late to.
fn rewritten_packs() -> Vec<SubBatch> {
    let rewrite = |attempt: u128, parts: &[(u64, u32, Range<u64>)], replaced: &[u64]| {
        let replaced = replaced.to_vec();
        command(Change::Rewrite(Rewrite { pack: pack(attempt, parts), replaced, compacted: Vec::new() }))
    };
    vec![
        seal(17, &[(2, 0, 8..12), (2, 1, 9..14)]),
        seal(18, &[(2, 1, 14..20)]),
        trim(2, 1, 11),
        rewrite(19, &[(2, 1, 9..20), (3, 0, 0..1)], &[4, 5]), // the other topic is gone
        rewrite(20, &[(2, 1, 9..20)], &[4, 5]),               // they were replaced before
        rewrite(21, &[(2, 0, 8..11)], &[4]),                  // takes a part of a run
        rewrite(22, &[(2, 1, 3..10)], &[6]),                  // nothing of it is left
    ]
}

fn subscription(name: &str, topic: &str, start: At) -> (SubscriptionName, SubscriptionConfig) {
    let name =
        SubscriptionName { tenant: "default".into(), namespace: "default".into(), subscription: name.into() };
    let config = SubscriptionConfig {
        topic: topic.into(),
        lease_ms: 30_000,
        max_attempts: 3,
        backoff_ms: vec![1_000, 5_000],
        dead_letter_topic: Some("dead".into()),
        start: start.into(),
        max_unacked: 100,
        is_by_key: false,
        filter: None,
        fair_by: None,
        paused: false,
        more_topics: Vec::new(),
        is_stream: false,
    };
    (name, config)
}

/// Subscriptions at home here and elsewhere, changed and deleted.
fn subscriptions() -> Vec<SubBatch> {
    let create = |name: &str, counter: u64, shards: Vec<u32>, start: At| {
        let (name, config) = subscription(name, "clicks", start);
        let topic_incarnation = life(counter);
        let create =
            CreateSubscription { name, config, topic_incarnation, shards, more: Vec::new(), fork: None };
        command(Change::CreateSubscription(create))
    };
    let (name, config) = subscription("billing", "clicks", At::Earliest(true));
    let update = UpdateSubscription {
        name: name.clone(),
        config: SubscriptionConfig { paused: true, ..config },
        id: life(6),
        expected_version: 1,
    };
    let (guest, config) = subscription("guest", "orders", At::TimestampMs(3_000));
    let guest = SubscriptionDescription {
        name: guest,
        id: Incarnation::compose(ShardId(6), 9).0,
        version: 2,
        config,
        topic_incarnation: life(1),
        shards: vec![5],
        created_ms: 7,
        more: Vec::new(),
        fork: None,
    };
    let tell = |seq: u64, is_deleted: bool| {
        let subscription = guest.clone();
        command(Change::TellSubscription(TellSubscription { source: 6, seq, subscription, is_deleted }))
    };
    vec![
        create("billing", 2, vec![5, 5], At::Earliest(true)),
        create("billing", 2, vec![5, 5], At::Latest(true)),
        create("wide", 2, vec![5, 6], At::Latest(true)),
        create("gone", 2, vec![5, 5], At::Tail(3)),
        command(Change::UpdateSubscription(update.clone())),
        command(Change::UpdateSubscription(update)),
        command(Change::DeleteSubscription(DeleteSubscription {
            name: subscription("gone", "clicks", At::Earliest(true)).0,
            expected_version: Some(1),
            id: None,
        })),
        tell(3, false),
        tell(3, false),
    ]
}

/// Subscriptions to several topics: by name, by pattern as a stream, and by pattern from elsewhere.
fn several_topics() -> Vec<SubBatch> {
    let (of_both, config) = subscription("both", "orders", At::Earliest(true));
    let config = SubscriptionConfig { more_topics: vec!["clicks".into()], ..config };
    let more = vec![ConsumedTopic { incarnation: life(2), shards: vec![5, 5, 6] }];
    let both = CreateSubscription {
        name: of_both,
        config,
        topic_incarnation: life(1),
        shards: vec![5],
        more,
        fork: None,
    };
    let (pattern, config) = subscription("pattern", "cl*", At::Latest(true));
    let config = SubscriptionConfig { is_stream: true, ..config };
    let shards = vec![4, 5, 6];
    let create = CreateSubscription {
        name: pattern,
        config,
        topic_incarnation: 0,
        shards: shards.clone(),
        more: Vec::new(),
        fork: None,
    };
    let (guest, config) = subscription("guests", "*", At::Earliest(true));
    let guest = SubscriptionDescription {
        name: guest,
        id: Incarnation::compose(ShardId(6), 10).0,
        version: 1,
        config,
        topic_incarnation: 0,
        shards,
        created_ms: 8,
        more: Vec::new(),
        fork: None,
    };
    let topic = |topic: &str| {
        let (name, config, shards) = (name(topic), super::tests::config(1), vec![5]);
        command(Change::CreateTopic(CreateTopic { name, config, accept_existing: false, shards }))
    };
    let delete = |topic: &str| {
        let name = name(topic);
        command(Change::DeleteTopic(DeleteTopic { name, incarnation: None, expected_version: None }))
    };
    let told = TellSubscription { source: 6, seq: 4, subscription: guest, is_deleted: false };
    vec![
        command(Change::CreateSubscription(both.clone())),
        command(Change::CreateSubscription(CreateSubscription { more: Vec::new(), ..both })),
        command(Change::CreateSubscription(create)),
        command(Change::TellSubscription(told)),
        topic("clouds"),
        topic("storms"),
        delete("storms"),
        topic("clowns"),
    ]
}

/// Subscriptions with rules beyond leases, and what they may not change.
fn ruled() -> Vec<SubBatch> {
    let (name, config) = subscription("ruled", "clicks", At::Earliest(true));
    let filter = Some("header.region == 'eu*'".to_owned());
    let config = SubscriptionConfig { is_by_key: true, filter, ..config };
    let (topic_incarnation, shards) = (life(2), vec![5, 5]);
    let more = Vec::new();
    let create =
        CreateSubscription { name: name.clone(), config, topic_incarnation, shards, more, fork: None };
    let update = UpdateSubscription {
        name,
        config: SubscriptionConfig { is_by_key: false, ..create.config.clone() },
        id: life(9),
        expected_version: 1,
    };
    let fair_by = Some("header.tenant".to_owned());
    let allowed = UpdateSubscription {
        config: SubscriptionConfig { fair_by, filter: None, ..create.config.clone() },
        ..update.clone()
    };
    let seek = |keep_as, back_to| Some(Seek { to: Offset(9), fence: Fence(3 << 32), keep_as, back_to });
    let dead = Dead { offset: Offset(2), attempts: 1, reason: "no such customer".into() };
    let events = [
        PartEvent { settled: vec![Offset(0)..Offset(2)], dead: vec![dead], ..PartEvent::default() },
        PartEvent { seek: seek(7, 0), ..PartEvent::default() },
        PartEvent { seek: seek(8, 7), ..PartEvent::default() },
        PartEvent { revived: vec![Offset(0)..Offset(9)], ..PartEvent::default() },
        PartEvent { seek: seek(9, 6), ..PartEvent::default() },
    ];
    let part = PartRef { subscription: life(9), incarnation: life(2), partition: 0 };
    let change = |event: &PartEvent| {
        command(Change::ChangePart(ChangePart {
            part,
            event: event.encode().into(),
            ..ChangePart::default()
        }))
    };
    let mut subs = vec![
        command(Change::CreateSubscription(create)),
        command(Change::UpdateSubscription(update)),
        command(Change::UpdateSubscription(allowed)),
    ];
    subs.extend(events.iter().map(change));
    subs
}

/// What becomes of records, and of dead letters.
fn settled() -> Vec<SubBatch> {
    let part = |id: u64, counter: u64, partition: u32| PartRef {
        subscription: id,
        incarnation: life(counter),
        partition,
    };
    let guest = Incarnation::compose(ShardId(6), 9).0;
    let run = |run: Range<u64>| Offset(run.start)..Offset(run.end);
    let dead = |offset: u64, attempts: u32, reason: &str| Dead {
        offset: Offset(offset),
        attempts,
        reason: reason.into(),
    };
    let many = PartEvent {
        settled: vec![run(0..3), run(5..7)],
        nacked: vec![Nacked { offset: Offset(4), attempts: 1, due: TimestampMs(11_000) }],
        delivered: vec![Redelivered { offset: Offset(7), attempts: 2, fence: Fence(0) }],
        dead: vec![dead(8, 3, "no such customer"), dead(5, 3, "settled before")],
        seek: None,
        ..PartEvent::default()
    };
    let seek = PartEvent {
        seek: Some(Seek { to: Offset(75), fence: Fence(2 << 32), keep_as: 0, back_to: 0 }),
        ..PartEvent::default()
    };
    let no_partition = PartEvent::default();
    let gone = PartEvent { dead: vec![dead(69, 1, "trimmed")], ..PartEvent::default() };
    let changes = [
        (part(life(6), 2, 0), many),
        (part(guest, 1, 0), seek),
        (part(guest, 1, 9), no_partition),
        (part(guest, 1, 0), gone),
    ];
    let change = |(part, event): &(PartRef, PartEvent)| {
        command(Change::ChangePart(ChangePart {
            part: *part,
            event: event.encode().into(),
            ..ChangePart::default()
        }))
    };
    let mut subs: Vec<_> = changes.iter().map(change).collect();
    subs.push(command(Change::Buried(Buried { upto: 1, ..Buried::default() })));
    subs
}

/// Outputs that are sent, refused, taken, and those that arrive from elsewhere.
fn outputs() -> Vec<SubBatch> {
    let settle = |range: Range<u64>, fence_min: u64, bodies: &[Bytes]| {
        let settled = vec![Offset(range.start)..Offset(range.end)];
        let event = PartEvent { settled, ..PartEvent::default() };
        let change = ChangePart {
            part: PartRef { subscription: life(6), incarnation: life(2), partition: 0 },
            event: event.encode().into(),
            outputs: u32::try_from(bodies.len()).unwrap(),
            output_bytes: bodies.iter().map(|body| body.len() as u64).sum(),
            fence_min,
            keeps_past: true,
        };
        let mut subs = vec![command(Change::ChangePart(change))];
        subs.extend(bodies.iter().zip(6..).map(|(body, shard)| SubBatch {
            kind: Kind::Output,
            across: Some(Across { shard: ShardId(shard), number: 70 + u64::from(shard) }),
            ..publish(9, 1, body.clone())
        }));
        subs
    };
    let arrival = |number: u64, counter: u64| SubBatch {
        across: Some(Across { shard: ShardId(7), number }),
        ..publish(counter, 1, batch(0, 0, 0, 2))
    };
    let mut subs = settle(9..11, 1, &[batch(0, 0, 0, 1), batch(0, 0, 0, 2)]);
    subs.extend(settle(10..12, 1, &[batch(0, 0, 0, 1)]));
    subs.extend(settle(12..13, 1, &[batch(0, 0, 0, 3), batch(0, 0, 0, 1)]));
    subs.push(command(Change::OutputsTaken(Taken { target: 6, upto: 1 })));
    subs.extend([arrival(1, 2), arrival(0, 2), arrival(0, 2), arrival(1, 3), arrival(2, 2)]);
    subs
}

/// Topics over several shards, at home here and elsewhere, and slots.
fn neighbours() -> Vec<SubBatch> {
    let spread = |topic: &str, partitions: u32| {
        let config = config(partitions);
        let shards = vec![4, 5, 6];
        command(Change::CreateTopic(CreateTopic {
            name: name(topic),
            config,
            accept_existing: false,
            shards,
        }))
    };
    let guest = |seq: u64, counter: u64, is_deleted: bool| {
        let topic = TopicDescription {
            name: Some(name("guest")),
            incarnation: Incarnation::compose(ShardId(6), counter).0,
            version: 1,
            config: Some(config(3)),
            shards: vec![6, 4, 5],
            created_ms: 9,
            first_incarnation: 0,
        };
        command(Change::TellTopic(TellTopic { source: 6, seq, topic, is_deleted }))
    };
    let there = |counter: u64, body: Bytes| SubBatch {
        incarnation: Incarnation::compose(ShardId(6), counter),
        ..publish(0, 2, body)
    };
    let slots = SlotTable::even(&[4, 5, 6].map(ShardId));
    vec![
        spread("wide", 5),
        spread("wider", 2),
        command(Change::DeleteTopic(DeleteTopic {
            name: name("wider"),
            incarnation: None,
            expected_version: None,
        })),
        command(Change::Taken(NewsTaken { target: 6, upto: 2, unforked: Vec::new() })),
        guest(0, 1, false),
        guest(2, 2, false),
        guest(1, 2, false),
        guest(1, 2, false),
        there(1, batch(0, 0, 0, 2)),
        there(3, batch(0, 0, 0, 1)),
        guest(2, 1, true),
        there(1, batch(0, 0, 0, 1)),
        command(Change::PutSlots(PutSlots { runs: slots, expected_version: 0 })),
    ]
}

fn joined(entries: &[Bytes]) -> Vec<u8> {
    let mut bytes = Vec::new();
    for entry in entries {
        bytes.extend_from_slice(&u32::try_from(entry.len()).unwrap().to_le_bytes());
        bytes.extend_from_slice(entry);
    }
    bytes
}

fn apply(mut log: &[u8]) -> (ShardState, Vec<Verdict>) {
    let mut state = ShardState::with_dedupe_rows(SHARD, 6);
    let (mut index, mut verdicts) = (0, Vec::new());
    while log.has_remaining() {
        let len = log.get_u32_le() as usize;
        let applied = state.apply(LogIndex(index), 2, &log.copy_to_bytes(len)).unwrap();
        verdicts.extend(applied.verdicts);
        state.check();
        index += 1;
    }
    (state, verdicts)
}

#[test]
fn the_golden_log_leads_to_the_golden_checkpoint() {
    let (written, entries) = (joined(&log()), log().len());
    let (state, verdicts) = apply(&written);
    if let Ok(dir) = std::env::var("WEIR_GOLDEN_DIR") {
        std::fs::write(format!("{dir}/v7.log"), &written).unwrap();
        std::fs::write(format!("{dir}/v7.checkpoint"), state.encode()).unwrap();
        return;
    }
    assert_eq!(entries, 53);
    assert!(written == LOG, "this build writes another log");
    assert!(state.encode() == CHECKPOINT, "this build applies the log differently");
    let refused = verdicts.iter().filter(|verdict| matches!(verdict, Verdict::Refused(_))).count();
    assert!((20..100).contains(&refused), "{refused} of {} were refused", verdicts.len());
}

#[test]
fn the_golden_checkpoint_is_read_and_every_cut_of_it_is_refused() {
    let golden = Bytes::from_static(CHECKPOINT);
    let state = ShardState::decode(SHARD, &golden).unwrap();
    state.check();
    assert_eq!(state.encode(), golden);
    for cut in 0..golden.len() {
        assert!(ShardState::decode(SHARD, &golden.slice(..cut)).is_err(), "cut at {cut}");
    }
    assert!(ShardState::decode(ShardId(6), &golden).is_err(), "of another shard");
}

#[test]
fn a_damaged_checkpoint_never_panics() {
    for at in 0..CHECKPOINT.len() {
        let mut damaged = CHECKPOINT.to_vec();
        damaged[at] ^= 0x11;
        let _ = ShardState::decode(SHARD, &damaged.into());
    }
}
