//! A node over memory whose subscriptions a test answers itself.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::time::Duration;

use prost::Message;
use tokio::sync::mpsc;
use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::{ClusterId, Name, NodeId, Offset, PartitionId, TimestampMs, TopicPath};
use weir_protocol::rpc::{
    At, CaughtUp, ClusterMap, Credit, DescribeTopicRequest, Event, Gap, Level, Method, NodeInfo, Records,
    ShardInfo, Slice, SlotRun, Started, SubscribeEvent, SubscribeRequest, TopicConfig, TopicDescription,
    encode_packet,
};
use weir_protocol::slots::SLOTS;
use weir_transport::{Connect, Identity, Peer, Reply, Request, Server, ServerConfig, Service, Wire};

use super::{ReadConfig, Reader, StartAt, Subscribe, Subscription, SubscriptionEvent};
use crate::service::{ServiceConfig, Services};
use crate::storage::{Dial, Storage, StorageConfig};

/// Plenty of time, which is virtual.
const SOON: Duration = Duration::from_secs(600);

/// The node, of topics with one partition.
#[derive(Clone)]
struct Playing(mpsc::UnboundedSender<Call>);

/// A subscription that is asked of the node.
pub(super) struct Call {
    pub(super) request: SubscribeRequest,
    pub(super) reply: Reply,
}

impl Call {
    /// Where it is to begin.
    pub(super) fn from(&self) -> At {
        self.request.from.at.expect("a position")
    }

    /// What it may be sent, all together.
    pub(super) fn allowed_bytes(&self) -> u64 {
        self.request.limit.bytes.max(self.reply.credit().latest().credit.bytes)
    }

    pub(super) fn started(&self, from: u64) {
        self.say(Event::Started(Started { from, tail: from }));
    }

    pub(super) fn caught_up(&self, end: u64) {
        self.say(Event::CaughtUp(CaughtUp { end, closed: false }));
    }

    /// The end, of a topic that is closed.
    pub(super) fn closed(&self, end: u64) {
        self.say(Event::CaughtUp(CaughtUp { end, closed: true }));
    }

    pub(super) fn gap(&self, from: u64, to: u64) {
        self.say(Event::Gap(Gap { from, to, why: "retention".into() }));
    }

    /// It starts at the end.
    pub(super) fn at_end(&self, end: u64) {
        self.started(end);
        self.caught_up(end);
    }

    /// The link is lost.
    pub(super) fn lose(self) {
        self.reply.finish(Vec::new());
    }

    fn say(&self, event: Event) {
        self.reply.send(encode_packet(&SubscribeEvent { event: Some(event) }, []));
    }

    /// One record of so many bytes, which is all there is.
    pub(super) fn record(&self, offset: u64, bytes: usize) {
        self.records(offset, bytes, true);
    }

    /// One behind which there is more.
    pub(super) fn records_before_the_end(&self, offset: u64, bytes: usize) {
        self.records(offset, bytes, false);
    }

    fn records(&self, offset: u64, bytes: usize, is_caught_up: bool) {
        let mut builder = BatchBuilder::anonymous();
        let value = vec![b'x'; bytes];
        builder.push(RecordParts { key: None, headers: &Headers::default(), value: &value }).unwrap();
        let batch = builder.build(Compression::None).unwrap();
        let batch = batch.placed(Offset(offset), TimestampMs(1), PartitionId(0)).concat();
        let slice = Slice { first: offset, take: 1, batch_bytes: u32::try_from(batch.len()).unwrap() };
        let (slices, committed_end) = (vec![slice], offset + 1);
        let records = Records { slices, committed_end, term: 1, is_caught_up, next: 0 };
        let event = SubscribeEvent { event: Some(Event::Records(records)) };
        self.reply.send(encode_packet(&event, Some(batch.into())));
    }
}

/// Of one node, which leads shards 1 to `last`.
pub(in crate::service) fn cluster_map(last: u32) -> ClusterMap {
    ClusterMap {
        version: 1,
        nodes: vec![NodeInfo { node_id: 1, address: "memory".into() }],
        shards: (1..=last).map(|shard| ShardInfo { shard, leader_node: 1, term: 1 }).collect(),
        slots: vec![SlotRun { start: 0, end: u32::from(SLOTS), shard: 1 }],
        ..ClusterMap::default()
    }
}

impl Service for Playing {
    fn call(&self, _: &Peer, request: Request) {
        let body = match request.method {
            Method::ClusterMap => cluster_map(1).encode_to_vec(),
            Method::DescribeTopic => {
                let name = DescribeTopicRequest::decode(request.body).unwrap().name.unwrap();
                TopicDescription {
                    // Another life for each name.
                    incarnation: name.topic.bytes().map(u64::from).sum(),
                    name: Some(name),
                    version: 1,
                    config: Some(TopicConfig { partitions: 1, ..TopicConfig::default() }),
                    shards: vec![1],
                    created_ms: 1,
                    first_incarnation: 0,
                }
                .encode_to_vec()
            }
            Method::Subscribe => {
                let asked = SubscribeRequest::decode(request.body).unwrap();
                // Nobody answers once the test is over.
                let _ = self.0.send(Call { request: asked, reply: request.reply });
                return;
            }
            other => panic!("{other:?}"),
        };
        request.reply.finish(vec![body.into()]);
    }
}

/// Connects whatever is dialled to a node over memory.
#[derive(Clone)]
pub(super) struct OverMemory<S>(pub(super) S);

impl<S: Service + Clone> Connect for OverMemory<S> {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Wire>> + Send + '_>> {
        let (ours, theirs) = tokio::io::duplex(64 * 1024);
        let identity = Identity { cluster_id: ClusterId(7), node_id: NodeId(1) };
        let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), identity);
        Server::new(config, Arc::new(self.0.clone())).attach(Wire::new(theirs));
        Box::pin(async { Ok(Wire::new(ours)) })
    }
}

impl<S: Service + Clone> Dial for OverMemory<S> {
    fn dial(&self, _: &str) -> Arc<dyn Connect> {
        Arc::new(self.clone())
    }
}

/// A gateway's reader, and what it asks of the node.
pub(super) struct Played {
    pub(super) reader: Reader,
    calls: mpsc::UnboundedReceiver<Call>,
}

impl Played {
    pub(super) fn new(read: ReadConfig) -> Self {
        let (asked, calls) = mpsc::unbounded_channel();
        let storage =
            Storage::new(StorageConfig::new(vec!["memory".into()]), Arc::new(OverMemory(Playing(asked))));
        let config = ServiceConfig { read, ..ServiceConfig::default() };
        Self { reader: Services::new(storage, config).reader, calls }
    }

    pub(super) async fn follow(&self, topics: &[&str], from: StartAt, limit: Credit) -> Subscription {
        let name = |text: &str| Name::new(text).unwrap();
        let path = |topic: &&str| TopicPath {
            tenant: name("default"),
            namespace: name("default"),
            topic: name(topic),
        };
        let subscribe = Subscribe {
            topics: topics.iter().map(path).collect(),
            partition: None,
            from,
            seen: None,
            life: None,
            min_level: Level::Quorum,
            filter: None,
            limit,
            room: None,
        };
        self.reader.subscribe(subscribe).await.unwrap()
    }

    /// The next subscription that is asked of the node, while `readers` wait for what comes.
    pub(super) async fn call(&mut self, readers: &mut [&mut Subscription]) -> Call {
        let waiting =
            futures_util::future::select_all(readers.iter_mut().map(|reader| Box::pin(reader.next())));
        tokio::select! {
            call = self.calls.recv() => call.unwrap(),
            (event, ..) = waiting => panic!("{event:?} before the node is asked"),
            () = tokio::time::sleep(SOON) => panic!("the node is not asked"),
        }
    }
}

/// What comes next, in short.
pub(super) async fn told(reader: &mut Subscription) -> String {
    match tokio::time::timeout(SOON, reader.next()).await.expect("an event") {
        Ok(SubscriptionEvent::Started(started)) => format!("from {}", started[0].from),
        Ok(SubscriptionEvent::Records { parcel, .. }) => {
            let slices = parcel.slices();
            format!("{}..{}", slices[0].first, slices[slices.len() - 1].end())
        }
        Ok(SubscriptionEvent::Gap { from, to, .. }) => format!("gap {from}..{to}"),
        Ok(SubscriptionEvent::CaughtUp { end, closed: false, .. }) => format!("end {end}"),
        Ok(SubscriptionEvent::CaughtUp { end, .. }) => format!("closed {end}"),
        Ok(other) => panic!("{other:?}"),
        Err(why) => format!("{:?}", why.code()),
    }
}

pub(super) const PLENTY: Credit = Credit { records: u64::MAX, bytes: 1 << 40 };
