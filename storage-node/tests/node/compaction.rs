//! A compacted topic is read, followed, pulled from and streamed: everybody passes over what was dropped.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::rpc::{
    At, CreateSubscriptionRequest, Credit, Event, ExplainRequest, Explanation, Hindrance, Level, Method,
    Packet, PartRef, PublishAnswer, PullRequest, ReadAnswer, ReadRequest, SettleAction, Slice,
    SubscribeRequest, SubscriptionConfig, SubscriptionCreated, SubscriptionName, TopicConfig,
};
use weir_storage_node::{NodeConfig, RunningNode, Surroundings};
use weir_transport::Link;

use crate::client::{
    Follower, SHARD, WAIT, call, config, create, publish_body, settings, start_in, until, values,
};
use crate::queue::{ack, ask, item, part, pull, queue_config, settle, stats};

/// Batches of four records, of which two have keys that come again.
const ROUNDS: u64 = 30;
const END: u64 = 4 * ROUNDS;
/// Of the records with a key that comes again all but the newest go.
const DROPPED: u64 = 2 * (ROUNDS - 1);
const PLENTY: Credit = Credit { records: 1 << 20, bytes: 1 << 30 };

/// All is sealed at once, a while after it was published, so that one pass compacts all of it.
fn compacting(dir: &Path) -> NodeConfig {
    NodeConfig {
        object_store: Some("local".to_owned()),
        seal_after_ms: 4_000,
        seal_bytes: 16 << 20,
        snapshot_every_ms: 200,
        cache_memory_bytes: 16 << 20,
        cache_disk_bytes: 0,
        ..settings(dir)
    }
}

/// What does not compress much.
fn value(n: u64) -> String {
    let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = format!("{n} ");
    while text.len() < 80 << 10 {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}"));
    }
    text
}

/// The value of an offset: large where it will be dropped.
fn said(offset: u64) -> String {
    if offset.is_multiple_of(2) { value(offset) } else { offset.to_string() }
}

fn key(offset: u64) -> Option<String> {
    match offset % 4 {
        0 => Some("a".to_owned()),
        2 => Some("b".to_owned()),
        3 => Some(format!("once {offset}")),
        _ => None,
    }
}

fn is_left(offset: u64) -> bool {
    !offset.is_multiple_of(2) || offset >= END - 4
}

fn left() -> Vec<u64> {
    (0..END).filter(|offset| is_left(*offset)).collect()
}

/// Publishes all before anything of it is old enough to be sealed: nothing waits for what comes before it.
async fn publish_all(link: &Link, life: u64) {
    let mut answers = Vec::new();
    for round in 0..ROUNDS {
        let mut batch = BatchBuilder::anonymous();
        for offset in 4 * round..4 * round + 4 {
            let (key, value) = (key(offset), said(offset));
            let key = key.as_ref().map(|key| key.as_bytes());
            batch.push(RecordParts { key, headers: &Headers::default(), value: value.as_bytes() }).unwrap();
        }
        let body = publish_body(life, Level::Quorum.bit(), &batch.build(Compression::Auto).unwrap());
        answers.push(link.open(Method::Publish, SHARD, body).await.unwrap());
    }
    for (round, mut answers) in (0..).zip(answers) {
        let answer = tokio::time::timeout(WAIT, answers.next()).await.unwrap().unwrap().unwrap();
        let result = PublishAnswer::decode(answer).unwrap().results.remove(0);
        assert_eq!(result.placed.unwrap().base_offset, 4 * round);
    }
}

async fn subscribe_as(link: &Link, life: u64, name: &str, config: SubscriptionConfig) -> PartRef {
    let (tenant, namespace) = ("default".into(), "default".into());
    let request = CreateSubscriptionRequest {
        name: SubscriptionName { tenant, namespace, subscription: name.into() },
        config,
        topic_incarnation: life,
        shards: vec![1],
        more: Vec::new(),
        fork: None,
    };
    let made: SubscriptionCreated = call(link, Method::CreateSubscription, &request).await.unwrap();
    part(&made.subscription, 0)
}

fn dropped(node: &RunningNode) -> u64 {
    let text = prometheus::TextEncoder::new().encode_to_string(&node.registry().gather()).unwrap();
    let line = text.lines().find_map(|line| line.strip_prefix("weir_tier_compacted_records_total "));
    line.unwrap().parse().unwrap()
}

fn offsets(slices: &[Slice]) -> Vec<u64> {
    slices.iter().flat_map(|slice| slice.first..slice.first + u64::from(slice.take)).collect()
}

async fn page(link: &Link, request: ReadRequest) -> (ReadAnswer, Vec<u64>) {
    let body = vec![Bytes::from(request.encode_to_vec())];
    let answer = link.call(Method::Read, SHARD, body, WAIT).await.unwrap();
    let packet = Packet::<ReadAnswer>::decode(answer).unwrap();
    let found = offsets(&packet.message.slices);
    let values = values(&packet.message.slices, packet.payload);
    assert!(values.iter().eq(found.iter().map(|offset| said(*offset)).collect::<Vec<_>>().iter()));
    (packet.message, found)
}

/// Pages of a few records, and single ones.
async fn read_all(link: &Link, life: u64) {
    for max_records in [1, 3, 1_000] {
        let (mut found, mut next) = (Vec::new(), 0);
        while next < END {
            let from = At::Offset(next).into();
            let request = ReadRequest {
                incarnation: life,
                from,
                max_records,
                max_bytes: 1 << 20,
                ..Default::default()
            };
            let (answer, some) = page(link, request).await;
            assert!(answer.next > next && !some.is_empty(), "it passes over what is gone behind {next}");
            assert_eq!(answer.up_to_date, answer.next == END);
            found.extend(some);
            next = answer.next;
        }
        assert_eq!(found, left());
    }
    let only = Some("key == 'a'".to_owned());
    let request = ReadRequest {
        incarnation: life,
        from: At::Earliest(true).into(),
        max_records: 10,
        max_bytes: 1 << 20,
        filter: only,
        ..Default::default()
    };
    assert_eq!(page(link, request).await.1, [END - 4]);
}

/// Followers are told where holes are: what comes next follows what came before, or they are told where to go on.
async fn follow_all(link: &Link, life: u64, joins_caught_up: bool, limit: Credit) {
    let from = At::Earliest(true).into();
    let request = SubscribeRequest { incarnation: life, from, limit, joins_caught_up, ..Default::default() };
    let mut follower = Follower::open_with(link, request).await;
    let (mut at, mut found, mut granted) = (0, Vec::new(), limit);
    loop {
        match follower.next().await.0 {
            Event::Records(records) => {
                for slice in &records.slices {
                    assert!(
                        slice.first == at || (records.next > 0 && slice.first > at),
                        "{slice:?} behind {at}"
                    );
                    at = slice.first + u64::from(slice.take);
                    found.extend(offsets(std::slice::from_ref(slice)));
                }
                at = at.max(records.next);
                if records.is_caught_up {
                    break;
                }
                granted.records += 5;
                follower.grant(granted);
            }
            Event::Looked(looked) => at = at.max(looked.upto),
            Event::CaughtUp(caught_up) => {
                assert_eq!(caught_up.end, END);
                break;
            }
            Event::Started(started) => assert_eq!((started.from, started.tail), (0, END)),
            other => panic!("{other:?}"),
        }
    }
    assert_eq!((at, found), (END, left()));
}

/// Pulls and acknowledges until nothing is left, so many at a time; what came, by delivery.
async fn work_off(link: &Link, part: PartRef, max_records: u32) -> Vec<u64> {
    let mut found = Vec::new();
    let holder = "reader".to_owned();
    loop {
        let request = PullRequest { holder: holder.clone(), wait_ms: 500, ..ask(part, max_records) };
        let (grants, values) = pull(link, &request).await;
        if grants.is_empty() {
            return found;
        }
        let offsets: Vec<_> = grants.iter().map(|grant| grant.offset).collect();
        assert!(values.iter().eq(offsets.iter().map(|offset| said(*offset)).collect::<Vec<_>>().iter()));
        found.extend(offsets);
        ack(link, part, &grants).await;
    }
}

async fn hindrances(link: &Link, part: PartRef, offset: u64) -> Vec<i32> {
    let told: Explanation = call(link, Method::Explain, &ExplainRequest { part, offset }).await.unwrap();
    told.hindrances
}

/// Subscriptions of every kind.
async fn subscribe_all(link: &Link, life: u64) -> BTreeMap<&'static str, PartRef> {
    let mut parts = BTreeMap::new();
    for name in ["queue", "one", "keys", "filter", "stream", "held"] {
        let plain = SubscriptionConfig { backoff_ms: vec![0], ..queue_config("table") };
        let config = match name {
            "keys" => SubscriptionConfig { is_by_key: true, ..plain },
            "filter" => SubscriptionConfig { filter: Some("key == 'b'".to_owned()), ..plain },
            "stream" => SubscriptionConfig { is_stream: true, ..plain },
            _ => plain,
        };
        parts.insert(name, subscribe_as(link, life, name, config).await);
    }
    parts
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_followers_queues_and_streams_pass_over_what_was_dropped() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start_in(compacting(dir.path()), Surroundings::default()).await;
    let life = create(&link, "table", TopicConfig { compact_by_key: true, ..config() }).await;
    let parts = subscribe_all(&link, life).await;
    publish_all(&link, life).await;
    // Leased before it is dropped.
    let (held, _) = pull(&link, &ask(parts["held"], 3)).await;
    assert_eq!(held.iter().map(|grant| grant.offset).collect::<Vec<_>>(), [0, 1, 2]);
    until("it is compacted", || dropped(&node) > 0).await;
    assert_eq!(dropped(&node), DROPPED, "in one pass");
    assert_eq!(hindrances(&link, parts["queue"], 0).await, [Hindrance::Compacted as i32]);
    assert_eq!(hindrances(&link, parts["stream"], 6).await, [Hindrance::Compacted as i32]);
    assert_eq!(hindrances(&link, parts["queue"], 1).await, [Hindrance::NoConsumer as i32]);

    read_all(&link, life).await;
    follow_all(&link, life, true, PLENTY).await;
    follow_all(&link, life, false, Credit { records: 2, ..PLENTY }).await;

    for (name, max, expected) in [
        ("queue", 7, left()),
        ("one", 1, left()),
        ("keys", 7, left()),
        ("stream", 7, left()),
        ("filter", 7, vec![END - 2]),
    ] {
        assert_eq!(work_off(&link, parts[name], max).await, expected, "{name}");
        let stats = stats(&link, parts[name]).await;
        assert_eq!((stats.floor, stats.ready, stats.leased), (END, 0, 0), "{name}: a hole is settled");
    }
    // One is acknowledged and one fails, both of which are gone by now; the third is there.
    let items = vec![
        item(&held[0], SettleAction::Ack),
        item(&held[1], SettleAction::Ack),
        item(&held[2], SettleAction::Nack),
    ];
    settle(&link, parts["held"], items).await;
    let rest: Vec<_> = left().into_iter().filter(|offset| *offset > 2).collect();
    assert_eq!(work_off(&link, parts["held"], 7).await, rest);
    assert_eq!(stats(&link, parts["held"]).await.floor, END);

    drop(link);
    node.shutdown(Duration::from_secs(5)).await;
    let (node, link) = start_in(compacting(dir.path()), Surroundings::default()).await;
    read_all(&link, life).await;
    assert_eq!(stats(&link, parts["queue"]).await.floor, END);
    node.shutdown(Duration::from_secs(5)).await;
}
