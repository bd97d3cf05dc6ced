//! What one node confirms per second over TCP on this machine: `cargo bench -p weir-storage-node --bench publish`.
//!
//! Prints a table instead of asserting: figures depend on the disk. Every confirmed record is counted by the end of
//! its partition afterwards, so nothing is reported that is not there.

#![expect(
    clippy::print_stdout,
    clippy::unwrap_used,
    reason = "a bench prints its table and stops on any error"
)]

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use prost::Message;
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::{
    CreateTopicRequest, Level, Method, PartitionRef, PartitionStatsList, PartitionStatsRequest,
    PublishAnswer, PublishItem, PublishRequest, TopicConfig, TopicCreated, TopicName, encode_packet,
};
use weir_storage_node::{Node, NodeConfig};
use weir_transport::{Link, LinkConfig, Priority, TcpConnect};

const SHARD: ShardId = ShardId(1);
const WAIT: Duration = Duration::from_secs(60);
const RUN: Duration = Duration::from_secs(3);

fn batch(records: u32) -> Batch {
    let mut builder = BatchBuilder::anonymous();
    let value = vec![b'x'; 1000];
    for _ in 0..records {
        builder.push(RecordParts { key: None, headers: &Headers::default(), value: &value }).unwrap();
    }
    builder.build(Compression::None).unwrap()
}

async fn create(link: &Link, topic: &str) -> u64 {
    let name = TopicName { tenant: "default".into(), namespace: "default".into(), topic: topic.into() };
    let config = TopicConfig { partitions: 1, dedupe_window_ms: 60_000, ..TopicConfig::default() };
    let request = CreateTopicRequest { name: Some(name), config: Some(config), accept_existing: false };
    let body = vec![Bytes::from(request.encode_to_vec())];
    let made =
        TopicCreated::decode(link.call(Method::CreateTopic, SHARD, body, WAIT).await.unwrap()).unwrap();
    made.topic.unwrap().incarnation
}

async fn publish(link: &Link, life: u64, batch: &Batch) {
    let item = PublishItem {
        incarnation: life,
        config_version: 1,
        batch_bytes: u32::try_from(batch.bytes().len()).unwrap(),
        ..PublishItem::default()
    };
    let request = PublishRequest { levels: Level::Quorum.bit(), items: vec![item] };
    let body = encode_packet(&request, [batch.bytes().clone()]);
    let answer = PublishAnswer::decode(link.call(Method::Publish, SHARD, body, WAIT).await.unwrap()).unwrap();
    assert!(answer.results[0].placed.is_some(), "{answer:?}");
}

async fn end_of(link: &Link, life: u64) -> u64 {
    let request = PartitionStatsRequest {
        partitions: vec![PartitionRef { incarnation: life, partition: 0 }],
        with_storage: false,
    };
    let body = vec![Bytes::from(request.encode_to_vec())];
    let stats = link.call(Method::PartitionStats, SHARD, body, WAIT).await.unwrap();
    PartitionStatsList::decode(stats).unwrap().partitions[0].committed_end
}

async fn measure(link: &Link, callers: u32, records: u32) {
    let life = create(link, &format!("bench-{callers}-{records}")).await;
    let batch = Arc::new(batch(records));
    let confirmed = Arc::new(AtomicU64::new(0));
    let began = Instant::now();
    let tasks: Vec<_> = (0..callers)
        .map(|_| {
            let (link, batch, confirmed) = (link.clone(), Arc::clone(&batch), Arc::clone(&confirmed));
            tokio::spawn(async move {
                let mut waits = Vec::new();
                while began.elapsed() < RUN {
                    let sent = Instant::now();
                    publish(&link, life, &batch).await;
                    waits.push(sent.elapsed());
                    confirmed.fetch_add(u64::from(records), Ordering::Relaxed);
                }
                waits
            })
        })
        .collect();
    let mut waits = Vec::new();
    for task in tasks {
        waits.extend(task.await.unwrap());
    }
    let took = began.elapsed();
    assert_eq!(
        end_of(link, life).await,
        confirmed.load(Ordering::Relaxed),
        "every confirmed record is there"
    );
    waits.sort_unstable();
    let at = |q: f64| {
        #[expect(
            clippy::cast_possible_truncation,
            clippy::cast_sign_loss,
            clippy::cast_precision_loss,
            reason = "a quantile"
        )]
        let i = ((waits.len() - 1) as f64 * q) as usize;
        waits[i].as_micros()
    };
    #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
    let rate = confirmed.load(Ordering::Relaxed) as f64 / took.as_secs_f64();
    println!("{callers:>7} {records:>8} {rate:>12.0} {:>8} {:>8} {:>8}", at(0.5), at(0.99), at(0.999));
}

fn main() {
    let runtime = tokio::runtime::Builder::new_multi_thread().enable_all().build().unwrap();
    runtime.block_on(async {
        let dir = tempfile::tempdir_in(".").unwrap();
        let config = NodeConfig { data_dir: dir.path().to_owned(), ..NodeConfig::default() };
        let node = Node::start(config).await.unwrap();
        let connect = TcpConnect { address: node.local_addr().to_string(), tls: None };
        let link = Link::new(LinkConfig::new(Priority::Bulk, LinkConfig::gateway_hello()), Arc::new(connect));
        println!(
            "callers  rec/call    records/s   p50 us   p99 us p99.9 us   (1,000-byte values, level quorum)"
        );
        for (callers, records) in [(1, 1), (16, 1), (64, 1), (256, 1), (16, 64), (64, 64)] {
            measure(&link, callers, records).await;
        }
        drop(link);
        node.shutdown(Duration::from_secs(5)).await;
    });
}
