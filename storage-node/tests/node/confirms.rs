//! Confirm levels, configuration versions, and what is counted.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use weir_journal::disk::sim::SimDisk;
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::{
    ConfirmState, ConfirmStateRequest, IdempotencyKey, Level, Method, PartitionRef, PartitionStatsList,
    PartitionStatsRequest, PublishAnswer, PublishItem, PublishRequest, TopicDescription, UpdateTopicRequest,
    encode_packet,
};
use weir_storage_node::{NodeConfig, Surroundings, SyncMode};
use weir_transport::CallError;

use crate::client::{
    SHARD, WAIT, batch, call, config, create, name, publish, publish_at, read, settings, start, start_in,
    until,
};
use crate::failures::{news_is_taken, start_on};

const ALL: u32 = Level::Memory.bit() | Level::Durable.bit() | Level::Quorum.bit();

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_level_is_answered_lowest_first_and_memory_is_not_final() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["before"])).await.unwrap();
    let answers = publish_at(&link, life, ALL, &batch(0, 0, &["a", "b"])).await;
    let levels: Vec<i32> = answers.iter().map(|answer| answer.level).collect();
    assert_eq!(levels, [Level::Memory as i32, Level::Durable as i32, Level::Quorum as i32]);
    let placed: Vec<_> = answers.iter().map(|answer| answer.results[0].placed.unwrap()).collect();
    assert!(placed.iter().all(|placed| (placed.base_offset, placed.count) == (1, 2)), "{placed:?}");
    assert_eq!(placed.iter().map(|placed| placed.is_final).collect::<Vec<_>>(), [false, true, true]);
    assert!(placed.iter().all(|each| each.term > 0 && each.term == placed[0].term), "one term");
    assert_eq!(placed[0].ts_ms, placed[2].ts_ms, "the time is stamped once");
    assert!(answers[0].stages.is_none() && answers[2].stages.unwrap().node_us > 0);

    let unset = publish_at(&link, life, 0, &batch(0, 0, &["c"])).await;
    assert_eq!(unset.len(), 1);
    assert_eq!(unset[0].level, Level::Unset as i32);
    assert_eq!(unset[0].results[0].placed.unwrap().base_offset, 3);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_duplicate_is_answered_at_every_level_with_its_first_place() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(7, 0, &["a"])).await.unwrap();
    publish(&link, life, &batch(7, 1, &["b"])).await.unwrap();
    for answer in publish_at(&link, life, ALL, &batch(7, 0, &["a"])).await {
        let placed = answer.results[0].placed.unwrap();
        assert_eq!((placed.base_offset, placed.duplicate), (0, true), "{answer:?}");
    }
    assert_eq!(read(&link, life, weir_protocol::rpc::At::Earliest(true), 0).await.unwrap().1, ["a", "b"]);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_that_syncs_nothing_confirms_at_most_memory() {
    let dir = tempfile::tempdir().unwrap();
    let config = weir_storage_node::NodeConfig { sync: SyncMode::Os, ..settings(dir.path()) };
    let (node, link) = start_in(config, Surroundings::default()).await;
    let life = create(&link, "orders", crate::client::config()).await;
    assert_eq!(publish(&link, life, &batch(0, 0, &["a"])).await, Err(ErrorCode::LevelUnavailable));
    let answers = publish_at(&link, life, Level::Memory.bit(), &batch(0, 0, &["a"])).await;
    assert_eq!(answers[0].results[0].placed.unwrap().base_offset, 0);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_sender_with_another_configuration_is_told_which_one_counts() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let with_version = |config_version| {
        let batch = batch(0, 0, &["a"]);
        let item = weir_protocol::rpc::PublishItem {
            incarnation: life,
            config_version,
            batch_bytes: u32::try_from(batch.bytes().len()).unwrap(),
            ..Default::default()
        };
        let request = weir_protocol::rpc::PublishRequest { levels: Level::Quorum.bit(), items: vec![item] };
        let body = weir_protocol::rpc::encode_packet(&request, [batch.bytes().clone()]);
        let link = link.clone();
        async move {
            match link.call(Method::Publish, SHARD, body, WAIT).await {
                Ok(_) => None,
                Err(weir_transport::CallError::Refused(refusal)) => Some(refusal),
                Err(other) => panic!("{other}"),
            }
        }
    };
    assert_eq!(with_version(1).await, None);
    let behind = with_version(2).await.unwrap();
    assert_eq!((behind.error_code(), behind.config_version), (ErrorCode::ConfigBehind, Some(1)));
    let update = UpdateTopicRequest {
        name: Some(name("orders")),
        config: Some(weir_protocol::rpc::TopicConfig { retention_records: Some(9), ..config() }),
        incarnation: life,
        expected_version: 1,
    };
    let _: TopicDescription = call(&link, Method::UpdateTopic, &update).await.unwrap();
    let stale = with_version(1).await.unwrap();
    assert_eq!((stale.error_code(), stale.config_version), (ErrorCode::ConfigStale, Some(2)));
    assert_eq!(stale.incarnation, Some(life), "which of the call's topics it is");
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_done_shows_in_metrics_and_in_the_partitions_rates() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["a", "b", "c"])).await.unwrap();
    read(&link, life, weir_protocol::rpc::At::Earliest(true), 0).await.unwrap();
    let text = prometheus::TextEncoder::new().encode_to_string(&node.registry().gather()).unwrap();
    for line in [
        "weir_node_published_records_total 3",
        "weir_node_delivered_records_total 3",
        "weir_node_confirmed_total{level=\"quorum\"} 1",
        "weir_node_tail_ring_hits_total 1",
        "weir_node_publish_stage_seconds_count{shard=\"1\",stage=\"fsync\"} 1",
        "weir_node_publish_stage_seconds_count{shard=\"2\",stage=\"fsync\"} 0",
        "weir_node_topics{shard=\"1\"} 1",
        "weir_node_tail_ring_bytes_max 67108864",
        "weir_node_dedupe_rows_max 1000000",
        "weir_node_outbox_rows{shard=\"2\"} 0",
        "weir_journal_syncs_total",
    ] {
        assert!(text.contains(line), "{line} in {text}");
    }
    let request = PartitionStatsRequest {
        partitions: vec![PartitionRef { incarnation: life, partition: 0 }],
        with_storage: false,
    };
    let body = vec![request.encode_to_vec().into()];
    let stats = link.call(Method::PartitionStats, SHARD, body, WAIT).await.unwrap();
    let stats = PartitionStatsList::decode(stats).unwrap().partitions.remove(0);
    assert_eq!((stats.start, stats.committed_end), (0, 3));
    assert!(stats.publish_records_per_second > 0.0 && stats.deliver_records_per_second > 0.0, "{stats:?}");
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_comes_alone_is_written_by_who_brings_it_unless_that_is_turned_off() {
    let topic = config();
    let inline_commits = async |inline_commit_max_us| {
        let config = NodeConfig { inline_commit_max_us, ..settings(Path::new("/data")) };
        // A disk of memory: a real one may take longer than any limit.
        let disk = Surroundings { disk: Arc::new(SimDisk::new()), ..Surroundings::default() };
        let (node, link) = start_in(config, disk).await;
        let life = create(&link, "orders", topic.clone()).await;
        let mut inline = 0;
        for _ in 0..500 {
            publish(&link, life, &batch(0, 0, &["a"])).await.unwrap();
            inline = node.journal_metrics().inline_commits;
            if inline > 0 {
                break;
            }
        }
        node.shutdown(Duration::from_secs(5)).await;
        inline
    };
    assert!(inline_commits(10_000).await >= 1);
    assert_eq!(inline_commits(0).await, 0);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_idle_node_neither_writes_nor_syncs() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    for n in 0..20 {
        create(&link, &format!("topic-{n}"), config()).await;
    }
    news_is_taken(&node).await;
    let before = node.journal_metrics();
    // Longer than a heartbeat, an election timeout and a few rounds of every keeper.
    tokio::time::sleep(Duration::from_secs(4)).await;
    let after = node.journal_metrics();
    assert_eq!((before.syncs, before.blocks), (after.syncs, after.blocks));
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn producers_that_share_calls_keep_their_order_whoever_comes_first_in_a_call() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let lives = [create(&link, "a", config()).await, create(&link, "b", config()).await];
    let big = "x".repeat(40 << 10);
    let mut answers = Vec::new();
    for seq in 0..200u64 {
        // Both topics in every call, in turns.
        let order = if seq % 3 == 0 { [0, 1] } else { [1, 0] };
        let batches = order.map(|at| batch(at as u128 + 1, seq, &[&big]));
        let items = order.iter().zip(&batches).map(|(at, batch)| PublishItem {
            incarnation: lives[*at],
            batch_bytes: u32::try_from(batch.bytes().len()).unwrap(),
            ..PublishItem::default()
        });
        let request = PublishRequest { levels: Level::Quorum.bit(), items: items.collect() };
        let body = encode_packet(&request, batches.iter().map(|batch| batch.bytes().clone()));
        answers.push(link.open(Method::Publish, SHARD, body).await.unwrap());
    }
    for mut answers in answers {
        let answer = tokio::time::timeout(WAIT, answers.next()).await.unwrap().unwrap().unwrap();
        for result in PublishAnswer::decode(answer).unwrap().results {
            assert_eq!(result.refused, None);
        }
    }
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_call_that_fits_no_entry_is_refused_and_the_shard_goes_on() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    // Many small batches: their headers in the entry count, not only their bytes.
    let small = batch(0, 0, &["a"]);
    let count = (3 << 20) / small.bytes().len();
    let item = PublishItem {
        incarnation: life,
        batch_bytes: u32::try_from(small.bytes().len()).unwrap(),
        ..PublishItem::default()
    };
    let request = PublishRequest { levels: Level::Quorum.bit(), items: vec![item; count] };
    let body = encode_packet(&request, vec![small.bytes().clone(); count]);
    let Err(CallError::Refused(refusal)) = link.call(Method::Publish, SHARD, body, WAIT).await else {
        panic!("more than an entry holds")
    };
    assert_eq!(refusal.error_code(), ErrorCode::TooLarge);
    let numbers: Vec<usize> = refusal.detail.split(' ').filter_map(|word| word.parse().ok()).collect();
    assert!(matches!(numbers[..], [found, allowed] if found > allowed), "{}", refusal.detail);
    assert_eq!(publish(&link, life, &small).await.unwrap().base_offset, 0);
    node.shutdown(Duration::from_secs(5)).await;
}

/// What the shard says of a receipt.
async fn state_of(
    link: &weir_transport::Link,
    life: u64,
    placed: weir_protocol::rpc::Placed,
) -> Result<ConfirmState, CallError> {
    let request = ConfirmStateRequest {
        incarnation: life,
        partition: 0,
        offset: placed.base_offset,
        term: placed.term,
        level: Level::Quorum as i32,
        wait_ms: 0,
        output: None,
    };
    call(link, Method::ConfirmState, &request).await
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_confirmed_in_any_term_is_never_called_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let first = publish(&link, life, &batch(7, 0, &["a"])).await.unwrap();
    node.shutdown(Duration::from_secs(5)).await;
    // A retry in a later term is answered with that term, for a record of an earlier one.
    let (node, link) = start(dir.path()).await;
    let again = publish(&link, life, &batch(7, 0, &["a"])).await.unwrap();
    assert!(again.duplicate && again.term > first.term, "{first:?} {again:?}");
    node.shutdown(Duration::from_secs(5)).await;
    let (node, link) = start(dir.path()).await;
    for placed in [first, again] {
        let state = state_of(&link, life, placed).await.unwrap();
        assert_eq!(
            (state.level(), state.lost, state.ts_ms),
            (Level::Quorum, false, first.ts_ms),
            "{placed:?}"
        );
    }
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_offset_that_was_never_given_is_refused_and_one_of_a_lost_term_is_lost() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let placed = publish(&link, life, &batch(0, 0, &["a"])).await.unwrap();
    let invented = weir_protocol::rpc::Placed { base_offset: 99, ..placed };
    match state_of(&link, life, invented).await {
        Err(CallError::Refused(refusal)) => {
            assert_eq!((refusal.error_code(), refusal.tail), (ErrorCode::BeyondTail, Some(1)));
        }
        other => panic!("{other:?}"),
    }
    let lost = weir_protocol::rpc::Placed { base_offset: 99, term: placed.term - 1, ..placed };
    assert!(state_of(&link, life, lost).await.unwrap().lost);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nobody_is_told_of_a_record_whose_sync_failed_that_it_does_not_exist() {
    let disk = SimDisk::new();
    let (node, link) = start_on(&disk).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["kept"])).await.unwrap();
    news_is_taken(&node).await;
    disk.fail_syncs();
    let told = publish_at(&link, life, Level::Memory.bit(), &batch(0, 0, &["lost, perhaps"])).await;
    let placed = told[0].results[0].placed.unwrap();
    until("the journal fails", || node.failure().is_some()).await;
    // What was under way is counted out a moment later.
    let answered = async {
        loop {
            match state_of(&link, life, placed).await {
                Ok(state) => assert_eq!((state.level(), state.lost), (Level::Memory, false)),
                Err(CallError::Refused(refusal)) => return refusal,
                Err(other) => panic!("{other}"),
            }
        }
    };
    let refused = tokio::time::timeout(WAIT, answered).await.expect("nobody knows what became of it");
    assert_eq!(refused.error_code(), ErrorCode::StorageFailed, "{}", refused.detail);
    // What the disk has of it counts: the next start may find it.
    let survived = disk.after_crash(0);
    node.shutdown(Duration::from_millis(200)).await;
    let (node, link) = start_on(&survived).await;
    let state = state_of(&link, life, placed).await.unwrap();
    let found = read(&link, life, weir_protocol::rpc::At::Earliest(true), 0).await.unwrap().1;
    assert_eq!(state.lost, found.len() == 1, "{found:?}");
    node.shutdown(Duration::from_secs(5)).await;
}

/// The promise for a repeat that comes before the first is done: it waits and gets the first one's answer.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repeat_of_an_idempotency_key_that_is_under_way_waits_for_the_first_ones_answer() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let ask = |key: u64| {
        let batch = batch(0, 0, &["once"]);
        let idempotency = IdempotencyKey { key: u128::from(key).into(), fingerprint: 7_u128.into() };
        let item = PublishItem {
            incarnation: life,
            config_version: 0,
            partition: 0,
            batch_bytes: u32::try_from(batch.bytes().len()).unwrap(),
            expected_end: None,
            idempotency: Some(idempotency),
        };
        let request = PublishRequest { levels: Level::Quorum.bit(), items: vec![item] };
        let body = encode_packet(&request, [batch.bytes().clone()]);
        let link = link.clone();
        tokio::spawn(async move { link.call(Method::Publish, SHARD, body, WAIT).await.unwrap() })
    };
    for key in 0..20 {
        let asked: Vec<_> = (0..8).map(|_| ask(key)).collect();
        let mut news = 0;
        for answer in asked {
            let answer = PublishAnswer::decode(answer.await.unwrap()).unwrap();
            let placed = answer.results.into_iter().next().unwrap().placed.expect("no repeat is refused");
            assert_eq!((placed.base_offset, placed.is_final), (key, true));
            news += u32::from(!placed.duplicate);
        }
        assert_eq!(news, 1, "key {key} is stored once");
    }
    node.shutdown(Duration::from_secs(5)).await;
}
