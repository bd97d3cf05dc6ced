//! Past the gateway: publishing to the storage node, and following it, in the words that gateways use.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail, ensure};
use bytes::Bytes;
use futures_util::StreamExt as _;
use futures_util::future::BoxFuture;
use futures_util::stream::FuturesOrdered;
use prost::Message as _;
use tokio::sync::watch;
use weir_protocol::batch::Batch;
use weir_protocol::ids::{Name, ShardId, TopicPath};
use weir_protocol::rpc::{
    At, ClusterMap, ClusterMapRequest, CreateTopicRequest, Credit, DeleteTopicRequest, DescribeTopicRequest,
    Event, Level, Method, Packet, PublishAnswer, PublishItem, PublishRequest, Records, SubscribeEvent,
    SubscribeRequest, TopicConfig, TopicCreated, TopicDescription, encode_packet,
};
use weir_protocol::slots::slot_of;
use weir_protocol::ws::Delivery;
use weir_transport::{Answers, CallError, Link, LinkConfig, Priority, TcpConnect};

use super::Shared;
use super::reading::{Source, read_all};
use crate::bench::check::Check;
use crate::bench::schedule::Window;
use crate::bench::tally::Tally;
use crate::bench::target::Reach;

/// How long a call may take.
const CALL_TIME_MAX: Duration = Duration::from_secs(30);
/// Batches under way at once.
const CALLS_MAX: usize = 1 << 16;
/// As topics have that a gateway makes.
const DEDUPE_WINDOW_MS: u64 = 120_000;
/// Bytes that a reader lets come: well below what a link buffers for one stream.
const CREDIT_BYTES: u64 = 8 << 20;

/// A connection to the storage node.
pub(super) struct NodeDoor {
    link: Link,
    namespace: String,
    map: ClusterMap,
}

impl NodeDoor {
    pub(super) async fn open(reach: &Reach) -> anyhow::Result<Self> {
        let address = reach.node.clone().context("no storage node was started for the run")?;
        let connect = TcpConnect { address, tls: None };
        // As many batches as all writers of a process may have under way.
        let config = LinkConfig {
            calls_max: CALLS_MAX,
            ..LinkConfig::new(Priority::Bulk, LinkConfig::gateway_hello())
        };
        let link = Link::new(config, Arc::new(connect));
        let map = ask(&link, Method::ClusterMap, ShardId::META, &ClusterMapRequest {}).await?;
        Ok(Self { link, namespace: reach.connect.namespace.clone(), map })
    }

    fn path(&self, topic: &str) -> anyhow::Result<TopicPath> {
        Ok(TopicPath {
            tenant: Name::default_name(),
            namespace: Name::new(&self.namespace)?,
            topic: Name::new(topic)?,
        })
    }

    /// Where the topic's configuration is.
    fn home(&self, path: &TopicPath) -> anyhow::Result<ShardId> {
        let slot = u32::from(slot_of(path).0);
        let run = self.map.slots.iter().find(|run| (run.start..run.end).contains(&slot));
        Ok(ShardId(run.context("the node's map has a hole")?.shard))
    }

    pub(super) async fn create(
        &self,
        topic: &str,
        partitions: u32,
        deliver_from: Level,
    ) -> anyhow::Result<()> {
        let path = self.path(topic)?;
        let config = TopicConfig {
            partitions,
            default_confirm: Level::Quorum as i32,
            deliver_from: deliver_from as i32,
            min_confirm: Level::None as i32,
            dedupe_window_ms: DEDUPE_WINDOW_MS,
            ..TopicConfig::default()
        };
        let request =
            CreateTopicRequest { name: Some((&path).into()), config: Some(config), accept_existing: false };
        let _: TopicCreated = ask(&self.link, Method::CreateTopic, self.home(&path)?, &request).await?;
        Ok(())
    }

    pub(super) async fn delete(&self, topic: &str) -> anyhow::Result<()> {
        let path = self.path(topic)?;
        let request = DeleteTopicRequest { name: Some((&path).into()), ..DeleteTopicRequest::default() };
        let body = vec![request.encode_to_vec().into()];
        self.link.call(Method::DeleteTopic, self.home(&path)?, body, CALL_TIME_MAX).await?;
        Ok(())
    }

    /// The one partition of a topic.
    async fn part(&self, topic: &str) -> anyhow::Result<Part> {
        let path = self.path(topic)?;
        let request = DescribeTopicRequest { name: Some((&path).into()) };
        let found: TopicDescription =
            ask(&self.link, Method::DescribeTopic, self.home(&path)?, &request).await?;
        ensure!(found.shards.len() == 1, "past the gateway topics have one partition");
        let shard = ShardId(found.shards[0]);
        Ok(Part { link: self.link.clone(), shard, incarnation: found.incarnation, version: found.version })
    }
}

async fn ask<A: prost::Message + Default>(
    link: &Link,
    method: Method,
    shard: ShardId,
    question: &impl prost::Message,
) -> anyhow::Result<A> {
    let body = vec![question.encode_to_vec().into()];
    Ok(A::decode(link.call(method, shard, body, CALL_TIME_MAX).await?)?)
}

/// A partition and the way there.
struct Part {
    link: Link,
    shard: ShardId,
    incarnation: u64,
    version: u32,
}

/// Batches on their way, answered in order.
pub(super) struct NodePublishing {
    part: Part,
    level: Level,
    under_way: FuturesOrdered<BoxFuture<'static, (u64, Result<Bytes, CallError>)>>,
}

impl NodePublishing {
    pub(super) async fn open(door: &NodeDoor, topic: &str, level: Level) -> anyhow::Result<Self> {
        Ok(Self { part: door.part(topic).await?, level, under_way: FuturesOrdered::new() })
    }

    /// The topic's life.
    pub(super) fn incarnation(&self) -> u64 {
        self.part.incarnation
    }

    /// Sends a batch; `end` is the number behind its last message.
    pub(super) async fn put(&mut self, end: u64, batch: &Batch) -> anyhow::Result<()> {
        let Part { link, shard, incarnation, version } = &self.part;
        let item = PublishItem {
            incarnation: *incarnation,
            config_version: *version,
            batch_bytes: u32::try_from(batch.bytes().len()).expect("a batch's length is a u32"),
            ..PublishItem::default()
        };
        let request = PublishRequest { levels: self.level.bit(), items: vec![item] };
        let body = encode_packet(&request, [batch.bytes().clone()]);
        let mut answers = link.open(Method::Publish, *shard, body).await?;
        let answer = async move { (end, answers.next().await.unwrap_or(Err(CallError::Unknown))) };
        self.under_way.push_back(Box::pin(answer));
        Ok(())
    }

    /// The number behind what was confirmed next; waits for ever where nothing is under way.
    pub(super) async fn next(&mut self) -> anyhow::Result<u64> {
        if self.under_way.is_empty() {
            std::future::pending::<()>().await;
        }
        let (end, answer) = self.under_way.next().await.context("one is under way")?;
        let answer = PublishAnswer::decode(answer?)?;
        match answer.results.into_iter().find_map(|result| result.refused) {
            Some(refused) => bail!("messages up to {end} were refused: {}", refused.detail),
            None => Ok(end),
        }
    }
}

/// A reader with its stream.
pub(super) struct NodeReader {
    number: u32,
    shared: Arc<Shared>,
    answers: Answers,
    started: Instant,
    taken: Credit,
    granted: Credit,
}

impl NodeReader {
    pub(super) async fn connect(door: &NodeDoor, shared: &Arc<Shared>, number: u32) -> anyhow::Result<Self> {
        let part = door.part(&shared.shape.topic(&shared.run, number)).await?;
        let granted = credit(shared, Credit::default());
        let request = SubscribeRequest {
            incarnation: part.incarnation,
            config_version: part.version,
            from: At::Earliest(true).into(),
            limit: granted,
            ..SubscribeRequest::default()
        };
        let started = Instant::now();
        let answers =
            part.link.open(Method::Subscribe, part.shard, vec![request.encode_to_vec().into()]).await?;
        Ok(Self { number, shared: Arc::clone(shared), answers, started, taken: Credit::default(), granted })
    }

    /// Reads until everything that its writers sent has arrived, or nothing comes any more.
    pub(super) async fn run(self, window: Window, written: watch::Receiver<bool>) -> anyhow::Result<Tally> {
        let (of, shared) = ((self.number, self.started), Arc::clone(&self.shared));
        read_all(self, of, shared, window, written).await
    }

    fn take_event(&mut self, event: Bytes, check: &mut Check, now_ns: u64) -> anyhow::Result<()> {
        let Packet { message: SubscribeEvent { event }, mut payload } = Packet::decode(event)?;
        match event.context("an event without a kind")? {
            Event::Records(Records { slices, .. }) => {
                let before = self.taken.records;
                for slice in slices {
                    let batch = payload.split_to(slice.batch_bytes as usize);
                    let (first, batch) = (weir_protocol::ids::Offset(slice.first), [batch, Bytes::new()]);
                    for record in (Delivery { first, take: slice.take, batch }).records()? {
                        let record = record?;
                        self.taken.records += 1;
                        self.taken.bytes += record.size as u64;
                        check.take(&record.value, now_ns)?;
                    }
                }
                self.shared.taken.fetch_add(self.taken.records - before, Ordering::Relaxed);
            }
            Event::Started(_) | Event::CaughtUp(_) | Event::Firm(_) => {}
            other => bail!("unexpected: {other:?}"),
        }
        check.end_of_group(now_ns);
        let raised = credit(&self.shared, self.taken);
        let is_low = raised.records - self.granted.records >= self.shared.shape.credit / 2
            || self.granted.bytes.saturating_sub(self.taken.bytes) <= CREDIT_BYTES / 2;
        if is_low {
            self.granted = raised;
            self.answers.grant(raised);
        }
        Ok(())
    }
}

impl Source for NodeReader {
    async fn take(&mut self, check: &mut Check, window: &Window) -> anyhow::Result<()> {
        let event = self.answers.next().await.context("the node ended the stream")??;
        self.take_event(event, check, window.now_ns())
    }
}

fn credit(shared: &Shared, taken: Credit) -> Credit {
    Credit { records: taken.records + shared.shape.credit, bytes: taken.bytes + CREDIT_BYTES }
}
