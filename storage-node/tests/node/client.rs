//! Speaks to a node as a gateway would.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Epoch, ProducerKey, Seq, ShardId};
use weir_protocol::rpc::{
    At, Body, CreateTopicRequest, Credit, Event, Level, Method, Packet, Placed, PublishAnswer, PublishItem,
    PublishRequest, ReadAnswer, ReadRequest, Refusal, SubscribeEvent, SubscribeRequest, TopicConfig,
    TopicCreated, TopicName, encode_packet,
};
use weir_storage_node::{Node, NodeConfig, RunningNode, Surroundings};
use weir_transport::{Answers, CallError, Link, LinkConfig, Priority, TcpConnect};

pub(crate) const WAIT: Duration = Duration::from_secs(20);
pub(crate) const SHARD: ShardId = ShardId(1);

/// Settings small enough for a test.
pub(crate) fn settings(dir: &Path) -> NodeConfig {
    NodeConfig {
        data_dir: dir.to_owned(),
        data_shards: 2,
        journal_file_bytes: 16 << 20,
        journal_max_bytes: 64 << 20,
        ..NodeConfig::default()
    }
}

pub(crate) async fn start(dir: &Path) -> (RunningNode, Link) {
    start_in(settings(dir), Surroundings::default()).await
}

pub(crate) async fn start_in(config: NodeConfig, around: Surroundings) -> (RunningNode, Link) {
    let node = Node::start_in(config, around).await.unwrap();
    let link = connect(&node);
    (node, link)
}

pub(crate) fn connect(node: &RunningNode) -> Link {
    let connect = TcpConnect { address: node.local_addr().to_string(), tls: None };
    Link::new(LinkConfig::new(Priority::Bulk, LinkConfig::gateway_hello()), Arc::new(connect))
}

/// Waits until `holds`, looking often; `what` says so if it never does.
pub(crate) async fn until(what: &str, holds: impl Fn() -> bool) {
    let holds = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, holds).await.unwrap_or_else(|_| panic!("{what}: it never did"));
}

pub(crate) async fn call<A: Message + Default>(
    link: &Link,
    method: Method,
    message: &impl Message,
) -> Result<A, CallError> {
    let body = Bytes::from(message.encode_to_vec());
    let answer = link.call(method, SHARD, vec![body], WAIT).await?;
    Ok(A::decode(answer).unwrap())
}

pub(crate) async fn create(link: &Link, topic: &str, config: TopicConfig) -> u64 {
    let request =
        CreateTopicRequest { name: Some(name(topic)), config: Some(config), accept_existing: false };
    let made: TopicCreated = call(link, Method::CreateTopic, &request).await.unwrap();
    made.topic.unwrap().incarnation
}

pub(crate) fn name(topic: &str) -> TopicName {
    TopicName { tenant: "default".into(), namespace: "default".into(), topic: topic.into() }
}

pub(crate) fn config() -> TopicConfig {
    TopicConfig { partitions: 1, dedupe_window_ms: 60_000, ..TopicConfig::default() }
}

pub(crate) fn batch(producer: u128, seq: u64, values: &[&str]) -> Batch {
    let mut builder = BatchBuilder::new(ProducerKey(producer), Epoch(0), Seq(seq));
    for value in values {
        builder
            .push(RecordParts { key: None, headers: &Headers::default(), value: value.as_bytes() })
            .unwrap();
    }
    builder.build(Compression::None).unwrap()
}

pub(crate) fn publish_body(life: u64, levels: u32, batch: &Batch) -> Vec<Bytes> {
    let batch_bytes = u32::try_from(batch.bytes().len()).unwrap();
    let item = PublishItem { incarnation: life, batch_bytes, ..PublishItem::default() };
    encode_packet(&PublishRequest { levels, items: vec![item] }, [batch.bytes().clone()])
}

pub(crate) async fn publish(link: &Link, life: u64, batch: &Batch) -> Result<Placed, ErrorCode> {
    publish_refused(link, life, batch).await.map_err(|refusal| refusal.error_code())
}

/// Publishes at `quorum`; a refusal with all it says.
pub(crate) async fn publish_refused(link: &Link, life: u64, batch: &Batch) -> Result<Placed, Refusal> {
    publish_in(link, SHARD, life, batch).await
}

/// The same, to a partition that lies in `shard`.
pub(crate) async fn publish_in(
    link: &Link,
    shard: ShardId,
    life: u64,
    batch: &Batch,
) -> Result<Placed, Refusal> {
    publish_to(link, shard, (life, 0), batch).await
}

/// The same, to this partition of a topic's life.
pub(crate) async fn publish_to(
    link: &Link,
    shard: ShardId,
    (incarnation, partition): (u64, u32),
    batch: &Batch,
) -> Result<Placed, Refusal> {
    let batch_bytes = u32::try_from(batch.bytes().len()).unwrap();
    let item = PublishItem { incarnation, partition, batch_bytes, ..PublishItem::default() };
    let request = PublishRequest { levels: Level::Quorum.bit(), items: vec![item] };
    let body = encode_packet(&request, [batch.bytes().clone()]);
    let answer = match link.call(Method::Publish, shard, body, WAIT).await {
        Ok(answer) => PublishAnswer::decode(answer).unwrap(),
        Err(CallError::Refused(refusal)) => return Err(refusal),
        Err(other) => panic!("{other}"),
    };
    assert_eq!(answer.level, Level::Quorum as i32);
    assert!(answer.stages.unwrap().node_us > 0);
    let result = answer.results.into_iter().next().unwrap();
    result.placed.ok_or_else(|| result.refused.unwrap())
}

/// Publishes at several levels; the answers as they came.
pub(crate) async fn publish_at(link: &Link, life: u64, levels: u32, batch: &Batch) -> Vec<PublishAnswer> {
    let mut answers = link.open(Method::Publish, SHARD, publish_body(life, levels, batch)).await.unwrap();
    let mut seen = Vec::new();
    while let Some(answer) = tokio::time::timeout(WAIT, answers.next()).await.unwrap() {
        seen.push(PublishAnswer::decode(answer.unwrap()).unwrap());
    }
    seen
}

/// A subscription and what it was sent.
pub(crate) struct Follower {
    answers: Answers,
}

impl Follower {
    pub(crate) async fn open(link: &Link, life: u64, from: At, limit: Credit) -> Self {
        Self::open_with(
            link,
            SubscribeRequest { incarnation: life, from: from.into(), limit, ..SubscribeRequest::default() },
        )
        .await
    }

    pub(crate) async fn open_with(link: &Link, request: SubscribeRequest) -> Self {
        let body = vec![Bytes::from(request.encode_to_vec())];
        Self { answers: link.open(Method::Subscribe, SHARD, body).await.unwrap() }
    }

    pub(crate) fn grant(&self, limit: Credit) {
        self.answers.grant(limit);
    }

    /// The next event and, of records, their values.
    pub(crate) async fn next(&mut self) -> (Event, Vec<String>) {
        let answer = tokio::time::timeout(WAIT, self.answers.next()).await.unwrap().unwrap().unwrap();
        let packet = Packet::<SubscribeEvent>::decode(answer).unwrap();
        let event = packet.message.event.unwrap();
        let found = match &event {
            Event::Records(records) => values(&records.slices, packet.payload),
            _ => Vec::new(),
        };
        (event, found)
    }

    /// So many records, however long they take, and what comes within a moment after them.
    pub(crate) async fn drain(&mut self, count: usize) -> Vec<String> {
        let mut found = Vec::new();
        while found.len() < count {
            found.extend(self.next().await.1);
        }
        while let Ok(event) = tokio::time::timeout(Duration::from_millis(300), self.next()).await {
            found.extend(event.1);
        }
        found
    }
}

pub(crate) async fn read(
    link: &Link,
    life: u64,
    from: At,
    wait_ms: u64,
) -> Result<(ReadAnswer, Vec<String>), ErrorCode> {
    let request = ReadRequest {
        incarnation: life,
        from: from.into(),
        max_records: 1000,
        max_bytes: 1 << 20,
        wait_ms,
        ..ReadRequest::default()
    };
    let body = vec![Bytes::from(request.encode_to_vec())];
    match link.call(Method::Read, SHARD, body, WAIT).await {
        Ok(answer) => {
            let packet = Packet::<ReadAnswer>::decode(answer).unwrap();
            let values = values(&packet.message.slices, packet.payload);
            Ok((packet.message, values))
        }
        Err(CallError::Refused(refusal)) => Err(refusal.error_code()),
        Err(other) => panic!("{other}"),
    }
}

pub(crate) fn values(slices: &[weir_protocol::rpc::Slice], payload: impl Into<Body>) -> Vec<String> {
    let (mut values, mut payload) = (Vec::new(), payload.into().into_bytes());
    for slice in slices {
        let batch = Batch::take_from(&mut payload).unwrap();
        let wanted = slice.first..slice.first + u64::from(slice.take);
        for record in batch.records().unwrap().map(Result::unwrap).filter(|r| wanted.contains(&r.offset.0)) {
            values.push(String::from_utf8(record.value.to_vec()).unwrap());
        }
    }
    values
}
