//! Publish, read, follow, restart, run full.

use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use prost::Message;
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::{
    At, Credit, DeleteTopicRequest, Event, Method, Packet, ReadAnswer, ReadRequest, SubscribeEvent,
    SubscribeRequest, TopicConfig,
};
use weir_storage_node::{NodeConfig, Surroundings};
use weir_transport::{Answers, Link};

use crate::client::{
    SHARD, WAIT, batch, call, config, create, name, publish, publish_refused, read, settings, start,
    start_in, values,
};

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_confirmed_is_read_back_before_and_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    assert_eq!(publish(&link, life, &batch(0, 0, &["a", "b"])).await.unwrap().base_offset, 0);
    assert_eq!(publish(&link, life, &batch(9, 0, &["c"])).await.unwrap().base_offset, 2);
    let again = publish(&link, life, &batch(9, 0, &["c"])).await.unwrap();
    assert_eq!((again.base_offset, again.duplicate), (2, true));
    for from in [At::Earliest(true), At::Offset(0), At::Tail(3), At::TimestampMs(1)] {
        assert_eq!(read(&link, life, from, 0).await.unwrap().1, ["a", "b", "c"], "{from:?}");
    }
    assert_eq!(read(&link, life, At::Offset(1), 0).await.unwrap().1, ["b", "c"]);
    assert_eq!(read(&link, life, At::Offset(4), 0).await.unwrap_err(), ErrorCode::BeyondTail);
    drop(link);
    node.shutdown(Duration::from_secs(5)).await;

    let (node, link) = start(dir.path()).await;
    let (answer, found) = read(&link, life, At::Earliest(true), 0).await.unwrap();
    assert_eq!(
        (found, answer.committed_end, answer.up_to_date),
        (vec!["a".into(), "b".into(), "c".into()], 3, true)
    );
    assert!(publish(&link, life, &batch(9, 0, &["c"])).await.unwrap().duplicate, "dedupe survives a restart");
    assert_eq!(publish(&link, life, &batch(9, 1, &["d"])).await.unwrap().base_offset, 3);
    let delete = DeleteTopicRequest { name: Some(name("orders")), ..DeleteTopicRequest::default() };
    link.call(Method::DeleteTopic, SHARD, vec![delete.encode_to_vec().into()], WAIT).await.unwrap();
    assert_eq!(publish(&link, life, &batch(0, 0, &["e"])).await, Err(ErrorCode::IncarnationGone));
    node.shutdown(Duration::from_secs(5)).await;
}

/// A read from offset 0 that waits for a record, and is sent: what is sent after it is handled after it.
async fn waiting_read(link: &Link, life: u64) -> Answers {
    let request = ReadRequest {
        incarnation: life,
        from: At::Offset(0).into(),
        max_records: 10,
        max_bytes: 1 << 20,
        wait_ms: 60_000,
        ..ReadRequest::default()
    };
    link.open(Method::Read, SHARD, vec![Bytes::from(request.encode_to_vec())]).await.unwrap()
}

async fn answer_of(mut read: Answers) -> (ReadAnswer, Vec<String>) {
    let answer = tokio::time::timeout(WAIT, read.next()).await.unwrap().unwrap().unwrap();
    let packet = Packet::<ReadAnswer>::decode(answer).unwrap();
    let values = values(&packet.message.slices, packet.payload);
    (packet.message, values)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_waits_for_a_record_and_answers_as_soon_as_it_comes() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let mut waiting = waiting_read(&link, life).await;
    // Handled after it, and answered before it: it waits.
    assert_eq!(read(&link, life, At::Offset(0), 0).await.unwrap().1, [""; 0]);
    assert!(waiting.next().now_or_never().is_none(), "there is nothing to answer yet");
    publish(&link, life, &batch(0, 0, &["late"])).await.unwrap();
    let (answer, found) = answer_of(waiting).await;
    assert_eq!((answer.next, answer.up_to_date, found), (1, true, vec!["late".to_owned()]));
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_read_that_waits_is_answered_by_a_drain_and_does_not_delay_it() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let waiting = waiting_read(&link, life).await;
    read(&link, life, At::Offset(0), 0).await.unwrap();
    tokio::time::timeout(WAIT, node.shutdown(3 * WAIT)).await.expect("nobody waits for a read that waits");
    let (answer, found) = answer_of(waiting).await;
    assert_eq!((answer.next, found), (0, vec![]));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_subscription_never_sends_more_records_than_its_limit() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a", "b", "c", "d", "e"])).await.unwrap();
    let request = SubscribeRequest {
        incarnation: life,
        from: At::Earliest(true).into(),
        limit: Credit { records: 2, bytes: 1 << 20 },
        ..SubscribeRequest::default()
    };
    let body = vec![Bytes::from(request.encode_to_vec())];
    let mut answers = link.open(Method::Subscribe, SHARD, body).await.unwrap();
    let mut seen = Vec::new();
    let mut granted = 2;
    while seen.len() < 6 {
        let answer = tokio::time::timeout(WAIT, answers.next()).await.unwrap().unwrap().unwrap();
        let packet = Packet::<SubscribeEvent>::decode(answer).unwrap();
        match packet.message.event.unwrap() {
            Event::Records(records) => seen.extend(values(&records.slices, packet.payload)),
            Event::CaughtUp(caught_up) => {
                assert_eq!(caught_up.end, 5);
                publish(&link, life, &batch(0, 0, &["f"])).await.unwrap();
            }
            Event::Started(started) => assert_eq!((started.from, started.tail), (0, 5)),
            other => panic!("{other:?}"),
        }
        assert!(seen.len() <= granted, "{seen:?} with a limit of {granted}");
        if seen.len() == granted {
            granted += 2;
            answers.grant(Credit { records: granted as u64, bytes: 1 << 20 });
        }
    }
    assert_eq!(seen, ["a", "b", "c", "d", "e", "f"]);
    drop(answers);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_without_a_limit_is_kept_like_any_other() {
    let dir = tempfile::tempdir().unwrap();
    let node_config = NodeConfig { journal_max_bytes: u64::MAX / 2, ..settings(dir.path()) };
    let (node, link) = start_in(node_config, Surroundings::default()).await;
    let one = TopicConfig { retention_records: Some(1), ..config() };
    let life = create(&link, "orders", one).await;
    // Trimmed twice: the keeper lives after its first round.
    for n in 0..2 {
        publish(&link, life, &batch(0, 0, &["a", "b"])).await.unwrap();
        let trimmed = async {
            while read(&link, life, At::Earliest(true), 0).await.unwrap().0.start < 2 * n + 1 {
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        };
        tokio::time::timeout(WAIT, trimmed).await.expect("retention goes on");
    }
    assert!(!*node.stopping().borrow());
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_journal_refuses_publishes_keeps_reads_and_recovers_without_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    create(&link, "idle", config()).await;
    let large = "x".repeat(900_000);
    let mut confirmed = 0;
    let refused = loop {
        match publish_refused(&link, life, &batch(0, 0, &[&large])).await {
            Ok(_) => confirmed += 1,
            // The next file is being prepared: that ends by itself.
            Err(refusal) if refusal.error_code() == ErrorCode::Busy => tokio::task::yield_now().await,
            Err(refusal) => break refusal,
        }
        assert!(confirmed < 200, "the journal must fill up");
    };
    assert_eq!(refused.error_code(), ErrorCode::JournalFull);
    assert!(refused.detail.contains("the oldest messages belong to: default/orders."), "{}", refused.detail);
    let delete = DeleteTopicRequest { name: Some(name("idle")), ..DeleteTopicRequest::default() };
    let body = vec![delete.encode_to_vec().into()];
    link.call(Method::DeleteTopic, SHARD, body, WAIT).await.expect("deletes go on");
    assert_eq!(read(&link, life, At::Tail(1), 0).await.unwrap().0.committed_end, confirmed);
    let update = weir_protocol::rpc::UpdateTopicRequest {
        name: Some(name("orders")),
        config: Some(TopicConfig { retention_records: Some(2), ..config() }),
        incarnation: life,
        expected_version: 1,
    };
    let _: weir_protocol::rpc::TopicDescription = call(&link, Method::UpdateTopic, &update).await.unwrap();
    let recovered = async {
        while publish(&link, life, &batch(0, 0, &[&large])).await.is_err() {
            tokio::time::sleep(Duration::from_millis(100)).await;
        }
    };
    tokio::time::timeout(WAIT, recovered).await.expect("retention frees the journal");
    assert_eq!(read(&link, life, At::Offset(0), 0).await.unwrap_err(), ErrorCode::OffsetTrimmed);
    node.shutdown(Duration::from_secs(5)).await;
}
