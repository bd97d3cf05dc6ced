//! Subscriptions: credit to the record and byte, gaps, cold reads.

use std::time::Duration;

use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::rpc::{
    At, CaughtUp, Credit, Event, Level, Method, SubscribeRequest, TopicConfig, TopicDescription,
    UpdateTopicRequest,
};
use weir_storage_node::{NodeConfig, Surroundings};
use weir_transport::Link;

use crate::client::{Follower, batch, call, config, create, name, publish, settings, start, start_in};

const PLENTY: Credit = Credit { records: 1 << 20, bytes: 1 << 30 };

fn compressed(values: &[String]) -> Batch {
    let mut builder = BatchBuilder::anonymous();
    for value in values {
        let parts = RecordParts { key: None, headers: &Headers::default(), value: value.as_bytes() };
        builder.push(parts).unwrap();
    }
    builder.build(Compression::Lz4).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn credit_is_kept_to_the_record_and_counts_uncompressed_bytes() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let values: Vec<String> = (0..100).map(|n| format!("{n:0>990}")).collect();
    let batch = compressed(&values);
    let size = batch.records().unwrap().next().unwrap().unwrap().size as u64;
    assert!((batch.bytes().len() as u64) < 20 * size, "it must be compressed for this test");
    publish(&link, life, &batch).await.unwrap();

    // Bytes run out: two whole records and one that overshoots.
    let limit = Credit { records: 10, bytes: 2 * size + 1 };
    let mut follower = Follower::open(&link, life, At::Earliest(true), limit).await;
    assert_eq!(follower.drain(3).await, values[..3]);
    // A repeated and a lower grant change nothing.
    follower.grant(limit);
    follower.grant(Credit { records: 1, bytes: 1 });
    assert_eq!(follower.drain(0).await, [""; 0]);
    // Records run out: totals are absolute.
    follower.grant(Credit { records: 10, bytes: 1 << 30 });
    assert_eq!(follower.drain(7).await, values[3..10]);
    follower.grant(Credit { records: 1_000, bytes: 1 << 30 });
    assert_eq!(follower.drain(90).await, values[10..]);
    node.shutdown(Duration::from_secs(5)).await;
}

/// Closes the topic or opens it.
async fn set_closed(link: &Link, life: u64, closed: bool, expected_version: u32) {
    let config = Some(TopicConfig { closed, ..config() });
    let update =
        UpdateTopicRequest { name: Some(name("orders")), config, incarnation: life, expected_version };
    let _: TopicDescription = call(link, Method::UpdateTopic, &update).await.unwrap();
}

/// Takes the start and `a`, and that there is no more for now: with it or behind it.
async fn caught_up(follower: &mut Follower) {
    assert!(matches!(follower.next().await.0, Event::Started(_)));
    let (event, values) = follower.next().await;
    let Event::Records(records) = event else { panic!("{event:?}") };
    assert_eq!(values, ["a"]);
    if !records.is_caught_up {
        let (event, _) = follower.next().await;
        assert!(matches!(event, Event::CaughtUp(CaughtUp { end: 1, closed: false })), "{event:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_follows_a_closed_topic_is_told_once_and_waits_until_it_is_opened() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a"])).await.unwrap();
    let request = |level: Level, joins_caught_up| SubscribeRequest {
        incarnation: life,
        from: At::Earliest(true).into(),
        min_level: level as i32,
        limit: PLENTY,
        joins_caught_up,
        ..SubscribeRequest::default()
    };
    let mut followers = Vec::new();
    for (level, joins) in [(Level::Quorum, false), (Level::Quorum, true), (Level::Memory, false)] {
        let mut follower = Follower::open_with(&link, request(level, joins)).await;
        caught_up(&mut follower).await;
        followers.push(follower);
    }
    set_closed(&link, life, true, 1).await;
    followers.push(Follower::open_with(&link, request(Level::Quorum, true)).await);
    assert!(matches!(followers[3].next().await.0, Event::Started(_)));
    let (event, values) = followers[3].next().await;
    let Event::Records(records) = event else { panic!("{event:?}") };
    assert_eq!(
        (values, records.is_caught_up),
        (vec!["a".to_owned()], false),
        "more is to be told of this end"
    );
    for follower in &mut followers {
        let (event, _) = follower.next().await;
        assert!(matches!(event, Event::CaughtUp(CaughtUp { end: 1, closed: true })), "{event:?}");
        assert_eq!(follower.drain(0).await, [""; 0], "and nothing more, nor is it over");
    }

    set_closed(&link, life, false, 2).await;
    for follower in &mut followers {
        let (event, _) = follower.next().await;
        assert!(matches!(event, Event::CaughtUp(CaughtUp { end: 1, closed: false })), "{event:?}");
    }
    publish(&link, life, &batch(0, 0, &["b"])).await.unwrap();
    for follower in &mut followers {
        assert_eq!(follower.drain(1).await, ["b"]);
    }
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_reader_that_retention_overtook_is_told_of_the_gap() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    for n in 0..10 {
        publish(&link, life, &batch(0, 0, &[&n.to_string()])).await.unwrap();
    }
    let mut slow = Follower::open(&link, life, At::Offset(0), Credit { records: 2, bytes: 1 << 20 }).await;
    assert_eq!(slow.drain(2).await, ["0", "1"]);
    let update = UpdateTopicRequest {
        name: Some(name("orders")),
        config: Some(TopicConfig { retention_records: Some(3), ..config() }),
        incarnation: life,
        expected_version: 1,
    };
    let _: TopicDescription = call(&link, Method::UpdateTopic, &update).await.unwrap();
    // The gap comes even without credit: it costs none.
    let (event, _) = slow.next().await;
    let Event::Gap(gap) = event else { panic!("{event:?}") };
    assert_eq!((gap.from, gap.to, gap.why.as_str()), (2, 7, "retention"));
    slow.grant(PLENTY);
    assert_eq!(slow.drain(3).await, ["7", "8", "9"]);

    let mut late = Follower::open(&link, life, At::Offset(0), PLENTY).await;
    assert!(matches!(late.next().await.0, Event::Started(started) if started.from == 7));
    assert!(matches!(late.next().await.0, Event::Gap(gap) if (gap.from, gap.to) == (0, 7)));
    assert_eq!(late.drain(3).await, ["7", "8", "9"]);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_left_memory_is_read_from_the_journal_in_order() {
    let dir = tempfile::tempdir().unwrap();
    // Nothing but the newest entry stays in memory, and checkpoints are frequent.
    let config = NodeConfig { tail_ring_bytes: 1, checkpoint_bytes: 1 << 10, ..settings(dir.path()) };
    let (node, link) = start_in(config.clone(), Surroundings::default()).await;
    let (one, two) = (
        create(&link, "one", crate::client::config()).await,
        create(&link, "two", crate::client::config()).await,
    );
    let mut expected = Vec::new();
    let mut publishes = Vec::new();
    for n in 0..200 {
        let (value, link) = (format!("{n}"), link.clone());
        if n % 2 == 0 {
            expected.push(value.clone());
        }
        let life = if n % 2 == 0 { one } else { two };
        publishes
            .push(tokio::spawn(async move { publish(&link, life, &batch(0, 0, &[&value])).await.unwrap() }));
        if n % 10 == 9 {
            for publish in publishes.drain(..) {
                publish.await.unwrap();
            }
        }
    }
    let before = Follower::open(&link, one, At::Earliest(true), PLENTY).await.drain(100).await;
    let mut sorted = before.clone();
    sorted.sort_by_key(|value| value.parse::<u32>().unwrap());
    assert_eq!(sorted, expected, "each once");
    drop(link);
    node.shutdown(Duration::from_secs(5)).await;

    let (node, link) = start_in(config, Surroundings::default()).await;
    let after = Follower::open(&link, one, At::Earliest(true), PLENTY).await.drain(100).await;
    assert_eq!(after, before, "the same order after a restart from a checkpoint");
    node.shutdown(Duration::from_secs(5)).await;
}
