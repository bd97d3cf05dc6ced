//! How messages make room: by age, by bytes, by deletion; and what publishers are told when there is none.

use std::path::Path;
use std::sync::Arc;
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use weir_journal::disk::sim::SimDisk;
use weir_protocol::batch::Batch;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::{
    At, CreateTopicRequest, DeleteTopicRequest, ExplainRequest, Explanation, Method, Placed, PullRequest,
    Refusal, SettleAction, SettleAnswer, SettleRequest, Standing, SubscriptionConfig, TopicConfig,
    TopicCreated, TopicDescription, UpdateTopicRequest,
};
use weir_storage_node::{NodeConfig, RunningNode, Surroundings};
use weir_transport::{CallError, Link};

use crate::client::{
    SHARD, WAIT, batch, call, config, create, name, publish, publish_refused, read, settings, start, start_in,
};
use crate::queue::{ask, item, part, pull, queue_config, stats, subscribe, with};

const HOUR_MS: u64 = 3_600_000;

/// Waits until retention has trimmed up to `start`.
async fn trimmed_to(link: &Link, life: u64, start: u64) {
    let trimmed = async {
        while read(link, life, At::Earliest(true), 0).await.unwrap().0.start < start {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, trimmed).await.unwrap_or_else(|_| panic!("never trimmed to {start}"));
}

async fn update(link: &Link, topic: &str, life: u64, version: u32, config: TopicConfig) {
    let update = UpdateTopicRequest {
        name: Some(name(topic)),
        config: Some(config),
        incarnation: life,
        expected_version: version,
    };
    let _: TopicDescription = call(link, Method::UpdateTopic, &update).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_older_than_the_age_go_and_offsets_go_on() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let by_age = |age| TopicConfig { retention_age_ms: Some(age), ..config() };
    let short = create(&link, "short", by_age(1)).await;
    let long = create(&link, "long", by_age(HOUR_MS)).await;
    for life in [short, long] {
        publish(&link, life, &batch(0, 0, &["a", "b"])).await.unwrap();
    }
    trimmed_to(&link, short, 2).await;
    let (answer, found) = read(&link, short, At::Earliest(true), 0).await.unwrap();
    assert_eq!((answer.start, answer.committed_end, found), (2, 2, vec![]));
    assert_eq!(read(&link, short, At::Offset(0), 0).await.unwrap_err(), ErrorCode::OffsetTrimmed);
    // Rounds that trimmed one topic looked at the other too.
    assert_eq!(read(&link, long, At::Offset(0), 0).await.unwrap().1, ["a", "b"]);
    assert_eq!(publish(&link, short, &batch(0, 0, &["c"])).await.unwrap().base_offset, 2);
    // An age that is shortened counts for what is there.
    update(&link, "long", long, 1, by_age(1)).await;
    trimmed_to(&link, long, 2).await;
    node.shutdown(Duration::from_secs(5)).await;

    let (node, link) = start(dir.path()).await;
    trimmed_to(&link, short, 3).await;
    assert_eq!(read(&link, long, At::Offset(1), 0).await.unwrap_err(), ErrorCode::OffsetTrimmed);
    assert_eq!(publish(&link, long, &batch(0, 0, &["c"])).await.unwrap().base_offset, 2);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn records_beyond_the_bytes_go_oldest_first_and_no_further() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let one = batch(0, 0, &[&"x".repeat(1_000)]);
    let limit = 3 * one.bytes().len() as u64 + 10;
    let life = create(&link, "orders", TopicConfig { retention_bytes: Some(limit), ..config() }).await;
    for _ in 0..3 {
        publish(&link, life, &one).await.unwrap();
    }
    assert_eq!(read(&link, life, At::Offset(0), 0).await.unwrap().1.len(), 3, "three fit");
    for end in [5, 9] {
        while read(&link, life, At::Earliest(true), 0).await.unwrap().0.committed_end < end {
            publish(&link, life, &one).await.unwrap();
        }
        trimmed_to(&link, life, end - 3).await;
        let (answer, found) = read(&link, life, At::Earliest(true), 0).await.unwrap();
        assert_eq!((answer.start, answer.committed_end, found.len()), (end - 3, end, 3));
        assert_eq!(read(&link, life, At::Offset(end - 4), 0).await.unwrap_err(), ErrorCode::OffsetTrimmed);
    }
    node.shutdown(Duration::from_secs(5)).await;
}

/// Publishes, again while the next file is being prepared: that ends by itself.
pub(crate) async fn publish_large(link: &Link, life: u64, batch: &Batch) -> Result<Placed, Refusal> {
    loop {
        match publish_refused(link, life, batch).await {
            Err(refusal) if refusal.error_code() == ErrorCode::Busy => tokio::task::yield_now().await,
            answer => return answer,
        }
    }
}

/// A topic whose one partition lies in `shard`.
async fn create_in(link: &Link, shard: ShardId, topic: &str) -> u64 {
    let request =
        CreateTopicRequest { name: Some(name(topic)), config: Some(config()), accept_existing: false };
    let body = vec![Bytes::from(request.encode_to_vec())];
    let made = link.call(Method::CreateTopic, shard, body, WAIT).await.unwrap();
    let made = TopicCreated::decode(made).unwrap().topic.unwrap();
    assert_eq!(made.shards, [shard.0]);
    made.incarnation
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_journal_names_the_topics_of_all_shards_and_is_freed_by_deleting_them() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let elsewhere = ShardId(2);
    let oldest = create_in(&link, elsewhere, "oldest").await;
    let (empty, large) = (create(&link, "empty", config()).await, create(&link, "large", config()).await);
    let value = "x".repeat(900_000);
    crate::client::publish_in(&link, elsewhere, oldest, &batch(0, 0, &[&value])).await.unwrap();
    while publish_large(&link, large, &batch(0, 0, &[&value])).await.is_ok() {}
    // Asked in another shard than where the oldest messages lie, for a topic that keeps nothing.
    let refused = publish_large(&link, empty, &batch(0, 0, &[&value])).await.unwrap_err();
    assert_eq!((refused.error_code(), refused.retry_after_ms), (ErrorCode::JournalFull, Some(1_000)));
    let named =
        refused.detail.split_once("belong to: ").and_then(|(_, named)| named.split_once(". ")).unwrap().0;
    let mut named: Vec<_> = named.split(", ").collect();
    named.sort_unstable();
    assert_eq!(named, ["default/large", "default/oldest"], "{}", refused.detail);

    for (shard, topic) in [(elsewhere, "oldest"), (SHARD, "large")] {
        let delete = DeleteTopicRequest { name: Some(name(topic)), ..DeleteTopicRequest::default() };
        let body = vec![Bytes::from(delete.encode_to_vec())];
        link.call(Method::DeleteTopic, shard, body, WAIT).await.expect("deletes go on");
    }
    let recovered = async {
        while publish(&link, empty, &batch(0, 0, &[&value])).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, recovered).await.expect("what was deleted frees the journal");
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_that_changes_have_filled_up_is_freed_by_a_deletion_in_whatever_shard() {
    let dir = tempfile::tempdir().unwrap();
    // As small as may be: each change takes a block of 4 KiB, synced, of 3 MiB that are for changes.
    let small = NodeConfig { journal_max_bytes: 32 << 20, ..settings(dir.path()) };
    let (node, link) = start_in(small.clone(), Surroundings::default()).await;
    let (empty, elsewhere) = (create(&link, "empty", config()).await, ShardId(2));
    // A topic at home in one shard whose messages lie in another.
    let wide = CreateTopicRequest {
        name: Some(name("wide")),
        config: Some(TopicConfig { partitions: 2, ..config() }),
        accept_existing: false,
    };
    let wide: TopicCreated = call(&link, Method::CreateTopic, &wide).await.unwrap();
    let wide = wide.topic.unwrap();
    let partition = wide.shards.iter().position(|shard| *shard == elsewhere.0).unwrap();
    let value = "x".repeat(900_000);
    let partition = (wide.incarnation, u32::try_from(partition).unwrap());
    loop {
        match crate::client::publish_to(&link, elsewhere, partition, &batch(0, 0, &[&value])).await {
            Ok(_) => {}
            // While the next file is being prepared.
            Err(refusal) if refusal.error_code() == ErrorCode::Busy => tokio::task::yield_now().await,
            Err(_) => break,
        }
    }
    let mut version = 1;
    let refused = loop {
        let update = UpdateTopicRequest {
            name: Some(name("empty")),
            config: Some(TopicConfig { retention_records: Some(version.into()), ..config() }),
            incarnation: empty,
            expected_version: version,
        };
        match call::<TopicDescription>(&link, Method::UpdateTopic, &update).await {
            Ok(updated) => version = updated.version,
            Err(refused) => break refused,
        }
    };
    assert!(version > 500, "{version}: {refused}");
    // Somebody restarts it first, as people do.
    node.shutdown(Duration::from_secs(5)).await;
    let (node, link) = start_in(small, Surroundings::default()).await;
    let delete = DeleteTopicRequest { name: Some(name("wide")), ..DeleteTopicRequest::default() };
    let _: TopicDescription =
        call(&link, Method::DeleteTopic, &delete).await.expect("there is room for that");
    let recovered = async {
        while publish(&link, empty, &batch(0, 0, &[&value])).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, recovered).await.expect("what was deleted frees the journal");
    node.shutdown(Duration::from_secs(5)).await;
}

/// A node whose journal is as small as may be, on a disk of memory: many small changes fill it up.
async fn start_small() -> (RunningNode, Link) {
    let small = NodeConfig { journal_max_bytes: 32 << 20, ..settings(Path::new("/data")) };
    let disk = Surroundings { disk: Arc::new(SimDisk::new()), ..Surroundings::default() };
    start_in(small, disk).await
}

/// Changes a topic as long as that is let in: each change takes a block of 4 KiB.
async fn fill_with_changes(link: &Link) {
    let incarnation = create(link, "changed", config()).await;
    for version in 1.. {
        let longer = TopicConfig { retention_records: Some(version.into()), ..config() };
        let (name, config) = (Some(name("changed")), Some(longer));
        let update = UpdateTopicRequest { name, config, incarnation, expected_version: version };
        if call::<TopicDescription>(link, Method::UpdateTopic, &update).await.is_err() {
            assert!(version > 500, "{version}");
            return;
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_journal_that_changes_have_filled_up_is_freed_by_a_shorter_retention() {
    let (node, link) = start_small().await;
    let (empty, large) = (create(&link, "empty", config()).await, create(&link, "large", config()).await);
    let value = "x".repeat(900_000);
    while publish_large(&link, large, &batch(0, 0, &[&value])).await.is_ok() {}
    fill_with_changes(&link).await;
    // As the refusal of a publish says.
    update(&link, "large", large, 1, TopicConfig { retention_bytes: Some(1), ..config() }).await;
    let recovered = async {
        while publish(&link, empty, &batch(0, 0, &[&value])).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, recovered).await.expect("what is kept no longer frees the journal");
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn publishers_are_held_back_before_the_journal_is_full() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    // Messages may take all but the reserve for changes, an eighth.
    let (room, value) = ((64 << 20) / 8 * 7, "x".repeat(250_000));
    while node.journal_metrics().bytes < room / 100 * 94 {
        publish_large(&link, life, &batch(0, 0, &[&value])).await.unwrap();
    }
    // At 94 % each entry waits for 20 ms; a lone publisher's publishes take an entry each.
    let ten = async || {
        let begun = Instant::now();
        for _ in 0..10 {
            let answer = publish_large(&link, life, &batch(0, 0, &["small"])).await;
            answer.expect("they are slowed, not refused");
        }
        begun.elapsed()
    };
    // Looked at once a second; asked seldom enough that what is left of the room is not used up.
    let held_back = async {
        while ten().await < Duration::from_millis(200) {
            tokio::time::sleep(Duration::from_millis(200)).await;
        }
    };
    tokio::time::timeout(WAIT, held_back).await.expect("nobody is held back");
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_acknowledgement_of_a_stream_that_a_full_journal_refuses_leaves_what_it_was_to_acknowledge() {
    let (node, link) = start_small().await;
    let life = create(&link, "orders", config()).await;
    let stream = SubscriptionConfig { is_stream: true, ..queue_config("orders") };
    let part = part(&subscribe(&link, life, stream, &[1]).await, 0);
    publish(&link, life, &batch(0, 0, &["a"; 2_000])).await.unwrap();
    let value = "x".repeat(900_000);
    while publish_large(&link, life, &batch(0, 0, &[&value])).await.is_ok() {}
    let next = PullRequest { holder: "reader".into(), ..ask(part, 2_000) };
    let (shown, _) = pull(&link, &next).await;
    // Each takes a block of 4 KiB, synced, of what is left for those that settle few.
    let mut acknowledged = 0;
    let refused = loop {
        let items = vec![item(&shown[acknowledged], SettleAction::Ack)];
        match call::<SettleAnswer>(&link, Method::Settle, &SettleRequest { part, items }).await {
            Ok(_) => acknowledged += 1,
            Err(CallError::Refused(refused)) => break refused,
            Err(other) => panic!("{other}"),
        }
    };
    assert_eq!((refused.error_code(), refused.effect()), (ErrorCode::JournalFull, Outcome::None));
    assert!(acknowledged > 100, "{acknowledged}");
    let (again, _) = pull(&link, &next).await;
    assert_eq!(again[0].offset, acknowledged as u64, "a refusal means no effect");
    let stats = stats(&link, part).await;
    assert_eq!((stats.floor, stats.ready + stats.leased), (acknowledged as u64, stats.end - stats.floor));
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_that_have_expired_are_passed_over_also_where_a_full_journal_cannot_settle_them() {
    let (node, link) = start_small().await;
    let life = create(&link, "orders", config()).await;
    let queue = SubscriptionConfig { max_attempts: 1, lease_ms: 1_000, ..queue_config("orders") };
    let part = part(&subscribe(&link, life, queue, &[1]).await, 0);
    publish(&link, life, &with(None, Some(1), "expired")).await.unwrap();
    publish(&link, life, &batch(0, 0, &["a", "b"])).await.unwrap();
    let value = "x".repeat(900_000);
    while publish_large(&link, life, &batch(0, 0, &[&value])).await.is_ok() {}
    fill_with_changes(&link).await;
    let (grants, found) = pull(&link, &ask(part, 3)).await;
    assert_eq!((found, grants[0].offset), (vec!["a".to_owned(), "b".to_owned()], 1));
    // They end with their last delivery, which cannot be logged; the one that nobody was sent had none.
    let explained = async || {
        let request = ExplainRequest { part, offset: 0 };
        let explained: Explanation = call(&link, Method::Explain, &request).await.unwrap();
        (explained.record.standing(), explained.record.attempts)
    };
    assert_eq!(explained().await, (Standing::Skipped, 0));
    assert_eq!(stats(&link, part).await.dead, 0);
    let delete = DeleteTopicRequest { name: Some(name("changed")), ..DeleteTopicRequest::default() };
    let _: TopicDescription = call(&link, Method::DeleteTopic, &delete).await.unwrap();
    node.shutdown(Duration::from_secs(5)).await;
}
