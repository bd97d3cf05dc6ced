//! Channels at `archived` against a node played over memory, whose store is as far as it is told.

use bytes::Bytes;
use prost::Message;
use tokio::sync::watch;
use weir_protocol::batch::Batch;
use weir_protocol::error::Outcome;
use weir_protocol::ids::{ClusterId, Epoch, Name, NodeId, Seq, TopicPath};
use weir_protocol::rpc::*;
use weir_transport::{Identity, InProcess, Peer, Request, Server, ServerConfig, Service};

use super::*;
use crate::service::publish::{ChannelPublish, Content, NewRecord, OpenChannel, Publish, PublishChannel};
use crate::service::read::played::cluster_map;
use crate::service::{ServiceConfig, Services};
use crate::storage::{Storage, StorageConfig};

const INCARNATION: u64 = 7;

/// How a partition of one producer stands, whose numbers are its offsets.
#[derive(Debug, Clone, Copy, Default)]
struct Stands {
    start: u64,
    archived_end: u64,
    end: u64,
    /// Numbers below were accepted nobody knows where.
    forgotten_end: u64,
    /// Calls that wait.
    waiting: usize,
}

struct Node(watch::Sender<Stands>);

impl Node {
    fn publish(&self, body: Body) -> PublishAnswer {
        let packet = Packet::<PublishRequest>::decode(body).unwrap();
        let mut payload = packet.payload.into_bytes();
        let results = packet.message.items.iter().map(|_| {
            let batch = Batch::take_from(&mut payload).unwrap();
            let header = batch.header();
            let stands = *self.0.borrow();
            let is_known = !header.producer.is_none() && header.base_seq.0 < stands.end;
            if is_known && header.base_seq.0 < stands.forgotten_end {
                let refusal = Refusal::new(ErrorCode::SeqTooOld, "long ago").with_outcome(Outcome::Applied);
                return PublishResult { placed: None, refused: Some(refusal) };
            }
            let base_offset = if is_known { header.base_seq.0 } else { stands.end };
            let count = header.count;
            self.0.send_modify(|stands| stands.end = stands.end.max(base_offset + u64::from(count)));
            let placed =
                Placed { base_offset, count, is_final: true, duplicate: is_known, ..Placed::default() };
            PublishResult { placed: Some(placed), refused: None }
        });
        PublishAnswer { level: Level::Quorum as i32, results: results.collect(), stages: None }
    }

    async fn confirm_state(&self, request: ConfirmStateRequest) -> Result<ConfirmState, Refusal> {
        let is_over = |stands: &Stands| request.offset < stands.archived_end.max(stands.start);
        let until = Duration::from_millis(request.wait_ms);
        self.0.send_modify(|stands| stands.waiting += 1);
        let _ = tokio::time::timeout(until, self.0.subscribe().wait_for(is_over)).await;
        self.0.send_modify(|stands| stands.waiting -= 1);
        let Stands { start, archived_end, .. } = *self.0.borrow();
        if request.offset < start {
            return Err(Refusal::new(ErrorCode::OffsetTrimmed, "it is kept no longer"));
        }
        let level = if request.offset < archived_end { Level::Archived } else { Level::Quorum };
        Ok(ConfirmState { level: level as i32, lost: false, ts_ms: 1, start })
    }
}

struct Playing(Arc<Node>);

impl Service for Playing {
    fn call(&self, _: &Peer, request: Request) {
        let (node, body) = (Arc::clone(&self.0), request.body);
        let stands = *node.0.borrow();
        let answer = match request.method {
            Method::ClusterMap => {
                ClusterMap { level_max: Level::Archived as i32, ..cluster_map(1) }.encode_to_vec()
            }
            Method::DescribeTopic => TopicDescription {
                name: Some((&path()).into()),
                incarnation: INCARNATION,
                version: 1,
                config: Some(TopicConfig { partitions: 1, ..TopicConfig::default() }),
                shards: vec![1],
                ..TopicDescription::default()
            }
            .encode_to_vec(),
            Method::ProducerState if stands.end == 0 => {
                return request.reply.refuse(Refusal::new(ErrorCode::ProducerNotFound, "nothing came"));
            }
            Method::ProducerState => {
                let last = stands.end - 1;
                ProducerState { epoch: 0, last_seq: last, last_offset: last }.encode_to_vec()
            }
            Method::PartitionStats => {
                let stats = PartitionStats { committed_end: stands.end, ..PartitionStats::default() };
                PartitionStatsList { partitions: vec![stats] }.encode_to_vec()
            }
            Method::Publish => node.publish(body).encode_to_vec(),
            Method::ConfirmState => {
                tokio::spawn(async move {
                    match node.confirm_state(ConfirmStateRequest::decode(body).unwrap()).await {
                        Ok(state) => request.reply.finish(vec![state.encode_to_vec().into()]),
                        Err(refusal) => request.reply.refuse(refusal),
                    }
                });
                return;
            }
            other => panic!("{other:?}"),
        };
        request.reply.finish(vec![answer.into()]);
    }
}

fn path() -> TopicPath {
    let name = |text: &str| Name::new(text).unwrap();
    TopicPath { tenant: name("default"), namespace: name("default"), topic: name("t") }
}

fn start(stands: Stands) -> (Arc<Node>, Services) {
    let node = Arc::new(Node(watch::Sender::new(stands)));
    let identity = Identity { cluster_id: ClusterId(7), node_id: NodeId(1) };
    let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), identity);
    let server = Server::new(config, Arc::new(Playing(Arc::clone(&node))));
    let dial = Arc::new(InProcess::new(server));
    let storage = Storage::new(StorageConfig::new(vec!["memory".into()]), dial);
    (node, Services::new(storage, ServiceConfig::default()))
}

async fn open(services: &Services) -> PublishChannel {
    let producer = Some(("p".to_owned(), Epoch(0)));
    services.storage.ready(services.storage.deadline()).await.unwrap();
    let confirm = vec![Level::Quorum, Level::Archived];
    services.publisher.open(OpenChannel { topic: path(), producer, confirm }).await.unwrap()
}

fn one() -> Content {
    Content::Records(vec![NewRecord { value: Bytes::from_static(b"1"), ..NewRecord::default() }])
}

fn send(channel: &PublishChannel, seq: u64, answers: &mpsc::UnboundedSender<Confirm>) {
    let publish = ChannelPublish { content: one(), seq: Seq(seq), ticket: seq };
    assert_eq!(channel.publish(&publish, answers).unwrap().len(), 1);
}

type Answers = mpsc::UnboundedReceiver<Confirm>;

/// The next confirm; `None` if there is none for a while.
async fn next(answers: &mut Answers) -> Option<(u64, Level, bool)> {
    let next = tokio::time::timeout(Duration::from_secs(30), answers.recv()).await.ok()?.unwrap();
    Some((next.ticket, next.level, next.is_last))
}

#[tokio::test(start_paused = true)]
async fn nothing_is_told_to_be_archived_before_all_that_upto_speaks_of_is() {
    // 0 to 17 are committed, of which only the first is archived.
    let (node, services) = start(Stands { end: 18, archived_end: 1, ..Stands::default() });
    let channel = open(&services).await;
    assert_eq!(channel.last_seq, Some(Seq(17)));
    let (sender, mut answers) = mpsc::unbounded_channel();
    send(&channel, 0, &sender);
    assert_eq!(next(&mut answers).await, Some((0, Level::Quorum, false)));
    assert_eq!(next(&mut answers).await, None, "the others up to 17 are not archived");
    node.0.send_modify(|stands| stands.archived_end = 18);
    assert_eq!(next(&mut answers).await, Some((0, Level::Archived, true)));
    send(&channel, 18, &sender);
    assert_eq!(next(&mut answers).await, Some((18, Level::Quorum, false)));
    node.0.send_modify(|stands| stands.archived_end = 19);
    assert_eq!(next(&mut answers).await, Some((18, Level::Archived, true)));
}

#[tokio::test(start_paused = true)]
async fn a_repeat_of_long_ago_is_archived_when_all_that_was_there_is() {
    let (node, services) = start(Stands { end: 18, archived_end: 17, forgotten_end: 9, ..Stands::default() });
    let channel = open(&services).await;
    let (sender, mut answers) = mpsc::unbounded_channel();
    send(&channel, 4, &sender);
    assert_eq!(next(&mut answers).await, Some((4, Level::Unset, false)));
    assert_eq!(next(&mut answers).await, None);
    node.0.send_modify(|stands| stands.archived_end = 18);
    assert_eq!(next(&mut answers).await, Some((4, Level::Archived, true)));
}

#[tokio::test(start_paused = true)]
async fn what_is_trimmed_before_it_is_archived_ends_and_what_follows_it_is_archived() {
    let (node, services) = start(Stands::default());
    let channel = open(&services).await;
    let (sender, mut answers) = mpsc::unbounded_channel();
    for seq in 0..2 {
        send(&channel, seq, &sender);
        assert_eq!(next(&mut answers).await, Some((seq, Level::Quorum, false)));
    }
    node.0.send_modify(|stands| (stands.start, stands.archived_end) = (1, 2));
    let mut ended = [next(&mut answers).await, next(&mut answers).await];
    ended.sort_unstable();
    assert_eq!(ended, [Some((0, Level::None, true)), Some((1, Level::Archived, true))]);
}

#[tokio::test(start_paused = true)]
async fn however_many_wait_for_a_store_that_is_away_publishing_goes_on() {
    let (node, services) = start(Stands::default());
    let channel = open(&services).await;
    let (sender, mut answers) = mpsc::unbounded_channel();
    for seq in 0..5_000 {
        send(&channel, seq, &sender);
        assert_eq!(next(&mut answers).await, Some((seq, Level::Quorum, false)));
    }
    assert!((1..=2).contains(&node.0.borrow().waiting), "{:?}", node.0.borrow());
    let publish = Publish::new(path(), one());
    let published = services.publisher.publish(publish).await.unwrap();
    assert_eq!(published.level, Level::Quorum);
    // It comes back, and nobody waits for a call any more.
    node.0.send_modify(|stands| stands.archived_end = stands.end);
    for _ in 0..5_000 {
        assert!(matches!(next(&mut answers).await, Some((_, Level::Archived, true))));
    }
    drop(answers);
    node.0.subscribe().wait_for(|stands| stands.waiting == 0).await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_store_that_lags_behind_answers_who_waits_though_more_is_published_all_the_time() {
    let (node, services) = start(Stands::default());
    let channel = open(&services).await;
    let (sender, mut answers) = mpsc::unbounded_channel();
    // What is published is archived twelve seconds later, longer than one call waits.
    let archived = async {
        for seq in 0..60 {
            send(&channel, seq, &sender);
            tokio::time::sleep(Duration::from_secs(1)).await;
            node.0.send_modify(|stands| stands.archived_end = seq.saturating_sub(12));
        }
        let told = std::iter::from_fn(|| answers.try_recv().ok());
        told.filter(|told| told.level == Level::Archived).count()
    };
    // Each is told within twice the lag.
    assert!(archived.await >= 60 - 2 * 14);
}
