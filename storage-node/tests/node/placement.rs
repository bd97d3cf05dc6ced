//! Topics over several shards: where partitions lie, and what all of their shards know, over restarts and power cuts.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message as _;
use weir_journal::disk::sim::SimDisk;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::{
    ClusterMap, ClusterMapRequest, CreateTopicRequest, DeleteTopicRequest, Level, ListTopicsRequest, Method,
    PublishAnswer, PublishItem, PublishRequest, TopicConfig, TopicCreated, TopicDescription, TopicList,
    encode_packet,
};
use weir_storage_node::{NodeConfig, RunningNode, Surroundings};
use weir_transport::{CallError, Link};

use crate::client::{SHARD, WAIT, batch, call, config, name, settings, start, start_in, until};

async fn create(link: &Link, topic: &str, partitions: u32) -> Result<TopicDescription, CallError> {
    let request = CreateTopicRequest {
        name: Some(name(topic)),
        config: Some(TopicConfig { partitions, ..config() }),
        accept_existing: true,
    };
    let made: TopicCreated = call(link, Method::CreateTopic, &request).await?;
    Ok(made.topic.unwrap())
}

/// The offset of a record published to a partition, wherever it lies.
async fn publish(link: &Link, topic: &TopicDescription, partition: u32) -> Result<u64, ErrorCode> {
    let batch = batch(0, 0, &["x"]);
    let item = PublishItem {
        incarnation: topic.incarnation,
        config_version: topic.version,
        partition,
        batch_bytes: u32::try_from(batch.bytes().len()).unwrap(),
        ..PublishItem::default()
    };
    let request = PublishRequest { levels: Level::Quorum.bit(), items: vec![item] };
    let body = encode_packet(&request, [batch.bytes().clone()]);
    let shard = ShardId(topic.shards[partition as usize]);
    let answer = PublishAnswer::decode(link.call(Method::Publish, shard, body, WAIT).await.unwrap()).unwrap();
    let result = answer.results.into_iter().next().unwrap();
    result.placed.map(|placed| placed.base_offset).ok_or_else(|| result.refused.unwrap().error_code())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn partitions_lie_in_several_shards_and_all_of_them_know_the_topic_when_it_is_created() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (node, link) = start(dir.path()).await;
    let topic = create(&link, "wide", 4).await.unwrap();
    assert_eq!(topic.shards, [1, 2, 1, 2]);
    for partition in 0..4 {
        assert_eq!(publish(&link, &topic, partition).await, Ok(0));
    }
    node.shutdown(Duration::from_secs(5)).await;
    let (node, link) = start(dir.path()).await;
    for partition in 0..4 {
        assert_eq!(publish(&link, &topic, partition).await, Ok(1), "after a restart");
    }
    let delete = DeleteTopicRequest { name: Some(name("wide")), ..DeleteTopicRequest::default() };
    let body = vec![Bytes::from(delete.encode_to_vec())];
    link.call(Method::DeleteTopic, SHARD, body, WAIT).await.unwrap();
    for partition in 0..4 {
        assert_eq!(publish(&link, &topic, partition).await, Err(ErrorCode::IncarnationGone));
    }
    node.shutdown(Duration::from_secs(5)).await;
}

async fn map_of(link: &Link) -> ClusterMap {
    call(link, Method::ClusterMap, &ClusterMapRequest {}).await.unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn slots_stay_where_the_meta_group_placed_them() {
    let dir = tempfile::tempdir_in(env!("CARGO_TARGET_TMPDIR")).unwrap();
    let (node, link) = start(dir.path()).await;
    let before = map_of(&link).await;
    let homes: Vec<u32> = before.slots.iter().map(|run| run.shard).collect();
    assert_eq!((homes, before.version), (vec![1, 2], 1));
    node.shutdown(Duration::from_secs(5)).await;
    let more = NodeConfig { data_shards: 4, ..settings(dir.path()) };
    let (node, link) = start_in(more, Surroundings::default()).await;
    let after = map_of(&link).await;
    assert_eq!((after.slots, after.version), (before.slots, 1));
    node.shutdown(Duration::from_secs(5)).await;
}

async fn start_on(disk: &SimDisk) -> (RunningNode, Link) {
    let config = NodeConfig { checkpoint_bytes: 4 << 10, ..settings(Path::new("/data")) };
    start_in(config, Surroundings { disk: Arc::new(disk.clone()), ..Surroundings::default() }).await
}

/// A partition's shard may still have to be told.
async fn usable_soon(link: &Link, topic: &TopicDescription, partition: u32) -> Result<u64, ErrorCode> {
    let deadline = Instant::now() + WAIT;
    loop {
        match publish(link, topic, partition).await {
            Err(ErrorCode::ConfigBehind) if Instant::now() < deadline => tokio::task::yield_now().await,
            result => return result,
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_topic_that_was_created_is_whole_after_a_power_cut_at_any_moment() {
    for seed in 0..8 {
        let disk = SimDisk::new();
        let (node, link) = start_on(&disk).await;
        let answered = Arc::new(AtomicBool::new(false));
        let creating = {
            let (link, answered) = (link.clone(), Arc::clone(&answered));
            tokio::spawn(async move {
                let mut created = Vec::new();
                for n in 0.. {
                    match create(&link, &format!("t{n}"), 4).await {
                        Ok(topic) => {
                            created.push(topic);
                            answered.store(true, Ordering::Relaxed);
                        }
                        Err(_) => return created,
                    }
                }
                created
            })
        };
        until("a topic is there before the power fails", || answered.load(Ordering::Relaxed)).await;
        tokio::time::sleep(Duration::from_millis(20 + 5 * seed)).await;
        disk.fail_after(seed);
        let created = creating.await.unwrap();
        assert!(!created.is_empty(), "seed {seed} cut too early to tell anything");
        let after = disk.after_crash(seed);
        node.shutdown(Duration::from_millis(200)).await;
        let (node, link) = start_on(&after).await;
        for topic in &created {
            // Answered means that every shard knew.
            assert_eq!(publish(&link, topic, 3).await, Ok(0), "seed {seed}");
        }
        let list = ListTopicsRequest {
            tenant: "default".into(),
            namespace: "default".into(),
            limit: 10_000,
            ..ListTopicsRequest::default()
        };
        let found: TopicList = call(&link, Method::ListTopics, &list).await.unwrap();
        assert!(found.topics.len() >= created.len());
        for topic in &found.topics {
            // What was not answered may still be on its way, and arrives.
            assert!(usable_soon(&link, topic, 1).await.is_ok(), "seed {seed}");
        }
        node.shutdown(Duration::from_secs(2)).await;
    }
}
