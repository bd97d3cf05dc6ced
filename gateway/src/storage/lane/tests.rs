//! Lanes against a node played over memory, which refuses and forgets as it is told.

use std::collections::VecDeque;
use std::io;
use std::pin::Pin;

use tokio::sync::mpsc;
use weir_protocol::ids::{ClusterId, NodeId, ShardId};
use weir_protocol::rpc::{ClusterMap, NodeInfo, Packet, Placed, PublishResult, Refusal, ShardInfo, SlotRun};
use weir_protocol::slots::SLOTS;
use weir_transport::{Connect, Identity, Peer, Reply, Request, Server, ServerConfig, Service, Wire};

use super::*;
use crate::storage::config::StorageConfig;
use crate::storage::links::Dial;
use crate::storage::ticket::Confirm;
use crate::storage::{Storage, Topic};

/// What the node does with the next publish frame.
#[derive(Clone, Copy)]
enum Act {
    Refuse(ErrorCode),
    /// From now on the topic's configuration is at this version; batches of an older one are refused.
    Configure(u32),
    /// Takes the batches and never answers.
    Forget,
    /// Takes the batches, and the connection ends before the answer.
    Cut,
    /// Refuses each batch, and says so only after the next frame is answered: it waits for another batch of the frame.
    RefuseLate(ErrorCode),
}

/// Accepts batches of one producer in the order of their numbers, as a partition does.
#[derive(Default)]
struct Node {
    acts: Mutex<VecDeque<Act>>,
    log: Mutex<Vec<u64>>,
    late: Mutex<Option<(Reply, PublishAnswer)>>,
    version: Mutex<u32>,
    cut: Notify,
}

impl Node {
    fn publish(&self, request: Request) {
        let packet = Packet::<PublishRequest>::decode(request.body.clone()).unwrap();
        let act = self.acts.lock().pop_front();
        if let Some(Act::Refuse(code)) = act {
            return request.reply.refuse(Refusal::new(code, "as told"));
        }
        if let Some(Act::RefuseLate(code)) = act {
            let refused = || PublishResult { placed: None, refused: Some(Refusal::new(code, "as told")) };
            let results = packet.message.items.iter().map(|_| refused()).collect();
            let answer = PublishAnswer { level: Level::Quorum as i32, results, stages: None };
            *self.late.lock() = Some((request.reply, answer));
            return;
        }
        if let Some(Act::Configure(version)) = act {
            *self.version.lock() = version;
        }
        let version = *self.version.lock();
        if let Some(stale) = packet.message.items.iter().find(|item| item.config_version < version) {
            let refusal = Refusal::new(ErrorCode::ConfigStale, "as told");
            let (config_version, incarnation) = (Some(version), Some(stale.incarnation));
            return request.reply.refuse(Refusal { config_version, incarnation, ..refusal });
        }
        let mut log = self.log.lock();
        // The test's batches carry their number in `expected_end`, which nothing else uses here.
        let results = packet.message.items.iter().map(|item| {
            let number = item.expected_end.unwrap_or_default();
            if number > log.len() as u64 {
                let refusal = Refusal::new(ErrorCode::ProducerGap, "a predecessor is missing");
                return PublishResult { placed: None, refused: Some(refusal) };
            }
            let duplicate = number < log.len() as u64;
            if !duplicate {
                log.push(number);
            }
            let placed =
                Placed { base_offset: number, count: 1, is_final: true, duplicate, ..Placed::default() };
            PublishResult { placed: Some(placed), refused: None }
        });
        let answer = PublishAnswer { level: Level::Quorum as i32, results: results.collect(), stages: None };
        match act {
            // Dropped: the connection answers `internal` with unknown outcome.
            Some(Act::Forget) => drop(request),
            Some(Act::Cut) => self.cut.notify_waiters(),
            _ => {
                request.reply.finish(vec![answer.encode_to_vec().into()]);
                if let Some((reply, answer)) = self.late.lock().take() {
                    reply.finish(vec![answer.encode_to_vec().into()]);
                }
            }
        }
    }
}

struct Playing(Arc<Node>);

impl Service for Playing {
    fn call(&self, _: &Peer, request: Request) {
        if request.method == Method::Publish {
            return self.0.publish(request);
        }
        assert_eq!(request.method, Method::ClusterMap);
        let map = ClusterMap {
            version: 1,
            nodes: vec![NodeInfo { node_id: 1, address: "memory".into() }],
            shards: (0..2).map(|shard| ShardInfo { shard, leader_node: 1, term: 1 }).collect(),
            slots: vec![SlotRun { start: 0, end: u32::from(SLOTS), shard: 1 }],
            ..ClusterMap::default()
        };
        request.reply.finish(vec![map.encode_to_vec().into()]);
    }
}

#[derive(Clone)]
struct Memory(Server, Arc<Node>);

impl Connect for Memory {
    fn connect(&self) -> Pin<Box<dyn Future<Output = io::Result<Wire>> + Send + '_>> {
        Box::pin(async {
            let (ours, mut near) = tokio::io::duplex(64 * 1024);
            let (mut far, theirs) = tokio::io::duplex(64 * 1024);
            self.0.attach(Wire::new(theirs));
            let node = Arc::clone(&self.1);
            tokio::spawn(async move {
                tokio::select! {
                    _ = tokio::io::copy_bidirectional(&mut near, &mut far) => {}
                    () = node.cut.notified() => {}
                }
            });
            Ok(Wire::new(ours))
        })
    }
}

impl Dial for Memory {
    fn dial(&self, _: &str) -> Arc<dyn Connect> {
        Arc::new(self.clone())
    }
}

fn storage(acts: &[Act]) -> (Storage, Arc<Node>) {
    let node = Arc::new(Node { acts: Mutex::new(acts.iter().copied().collect()), ..Node::default() });
    let identity = Identity { cluster_id: ClusterId(7), node_id: NodeId(1) };
    let server = Server::new(
        ServerConfig::new(([127, 0, 0, 1], 0).into(), identity),
        Arc::new(Playing(Arc::clone(&node))),
    );
    let dial = Memory(server, Arc::clone(&node));
    (Storage::new(StorageConfig::new(vec!["memory".into()]), Arc::new(dial)), node)
}

fn item(
    storage: &Storage,
    number: u64,
    safety: Safety,
    answers: &mpsc::UnboundedSender<Confirm>,
) -> LaneItem {
    LaneItem {
        topic: None::<Arc<Topic>>,
        item: PublishItem {
            incarnation: 1,
            config_version: 1,
            partition: 0,
            batch_bytes: 4,
            expected_end: Some(number),
            idempotency: None,
        },
        batch: Bytes::from_static(b"rows"),
        levels: Level::Quorum.bit(),
        safety,
        producer: ProducerKey(5),
        deadline: storage.deadline(),
        ticket: Ticket::new(answers.clone(), number, storage.publish_permit(4).unwrap()),
    }
}

/// Publishes `count` batches one after the other without waiting; what became of each.
async fn publish(storage: &Storage, count: u64, safety: Safety) -> Vec<Result<Placed, Failure>> {
    publish_from(storage, 0, count, safety).await
}

async fn publish_from(
    storage: &Storage,
    first: u64,
    count: u64,
    safety: Safety,
) -> Vec<Result<Placed, Failure>> {
    let (sender, mut answers) = mpsc::unbounded_channel();
    let lane = storage.lane(ShardId(1));
    for number in first..first + count {
        lane.push([item(storage, number, safety, &sender)]);
        // The lane takes it while others follow, so that several frames are in flight.
        tokio::task::yield_now().await;
    }
    let mut results: Vec<_> = (0..count).map(|_| None).collect();
    for _ in 0..count {
        let confirm = answers.recv().await.unwrap();
        let place = &mut results[usize::try_from(confirm.ticket - first).unwrap()];
        assert!(place.replace(confirm.result).is_none(), "answered twice");
    }
    results.into_iter().map(Option::unwrap).collect()
}

#[tokio::test(start_paused = true)]
async fn a_producers_batches_keep_their_order_whatever_is_refused_on_the_way() {
    use Act::{Configure, Refuse};
    use ErrorCode::{ConfigBehind, Draining, NotLeader};
    for acts in [
        &[][..],
        &[Refuse(NotLeader)],
        &[Refuse(NotLeader), Refuse(NotLeader), Refuse(Draining)],
        &[Refuse(ConfigBehind), Refuse(NotLeader), Refuse(ConfigBehind), Refuse(Draining), Refuse(NotLeader)],
        &[Configure(2), Refuse(NotLeader), Configure(4)],
    ] {
        let (storage, node) = storage(acts);
        let results = publish(&storage, 40, Safety::Once).await;
        for (number, result) in (0u64..).zip(results) {
            let placed = result.unwrap();
            assert_eq!((placed.base_offset, placed.duplicate), (number, false));
        }
        assert_eq!(*node.log.lock(), (0..40).collect::<Vec<_>>());
        assert_eq!(storage.metrics().publish_bytes, 0, "every permit came back");
    }
}

#[tokio::test(start_paused = true)]
async fn a_batch_is_no_gap_behind_one_of_a_frame_that_lands_after_its_own() {
    let (storage, node) = storage(&[]);
    // From then on it is connected, and what is pushed goes in several frames.
    publish(&storage, 1, Safety::Once).await.remove(0).unwrap();
    node.acts.lock().push_back(Act::RefuseLate(ErrorCode::ConfigBehind));
    for (number, result) in (1u64..).zip(publish_from(&storage, 1, 39, Safety::Once).await) {
        assert_eq!(result.unwrap().base_offset, number);
    }
    assert_eq!(*node.log.lock(), (0..40).collect::<Vec<_>>());
}

#[tokio::test(start_paused = true)]
async fn who_comes_while_a_frame_is_in_flight_shares_the_next() {
    let (storage, node) = storage(&[]);
    publish(&storage, 1, Safety::Once).await.remove(0).unwrap();
    let (lane, before) = (storage.lane(ShardId(1)), storage.metrics().publish_frames);
    let frames = || storage.metrics().publish_frames - before;
    let (sender, mut answers) = mpsc::unbounded_channel();
    // It is answered once the next one is.
    node.acts.lock().push_back(Act::RefuseLate(ErrorCode::JournalFull));
    lane.push([item(&storage, 1, Safety::Once, &sender)]);
    while frames() == 0 {
        tokio::task::yield_now().await;
    }
    lane.push([item(&storage, 1, Safety::Once, &sender)]);
    tokio::task::yield_now().await;
    lane.push([item(&storage, 2, Safety::Once, &sender)]);
    for _ in 0..3 {
        answers.recv().await.unwrap();
    }
    assert_eq!((frames(), &*node.log.lock()), (2, &vec![0, 1, 2]));
}

#[tokio::test(start_paused = true)]
async fn what_nobody_knows_is_said_and_never_tried_again() {
    let (storage, node) = storage(&[Act::Forget]);
    let results = publish(&storage, 1, Safety::Once).await;
    let failure = results.into_iter().next().unwrap().unwrap_err();
    assert_eq!(failure.effect(), Outcome::Unknown);
    assert_eq!(*node.log.lock(), [0], "it did take effect, once");
}

#[tokio::test(start_paused = true)]
async fn what_was_tried_again_after_no_answer_is_found_where_it_is() {
    let (storage, node) = storage(&[Act::Cut]);
    let placed = publish(&storage, 1, Safety::Repeatable).await.remove(0).unwrap();
    assert!(placed.duplicate);
    assert_eq!(*node.log.lock(), [0]);
}

#[tokio::test(start_paused = true)]
async fn no_later_refusal_makes_an_unanswered_attempt_undone() {
    for refusal in [ErrorCode::NotLeader, ErrorCode::JournalFull] {
        let mut acts = vec![Act::Cut];
        acts.resize(10_000, Act::Refuse(refusal));
        let (storage, node) = storage(&acts);
        let failure = publish(&storage, 1, Safety::Repeatable).await.remove(0).unwrap_err();
        assert_eq!(*node.log.lock(), [0], "it did take effect");
        assert_eq!(failure.effect(), Outcome::Unknown, "{refusal:?}");
    }
}

#[tokio::test(start_paused = true)]
async fn a_final_refusal_is_answered_at_once() {
    let (storage, _) = storage(&[Act::Refuse(ErrorCode::JournalFull)]);
    let failure = publish(&storage, 1, Safety::Repeatable).await.remove(0).unwrap_err();
    assert_eq!((failure.code(), failure.effect()), (ErrorCode::JournalFull, Outcome::None));
}

#[tokio::test(start_paused = true)]
async fn without_a_leader_a_publish_ends_at_its_deadline_without_effect() {
    let (storage, node) = storage(&[Act::Refuse(ErrorCode::NotLeader); 10_000]);
    let failure = publish(&storage, 1, Safety::Once).await.remove(0).unwrap_err();
    assert_eq!((failure.code(), failure.effect()), (ErrorCode::Unavailable, Outcome::None));
    assert!(node.log.lock().is_empty());
    assert!(storage.metrics().retries > 3);
}

#[tokio::test]
async fn more_than_the_budget_is_refused_before_it_is_queued() {
    let (storage, _) = storage(&[]);
    let held = storage.publish_permit(64 << 20).unwrap();
    let refused = storage.publish_permit(1).unwrap_err();
    assert_eq!((refused.code(), refused.effect()), (ErrorCode::Busy, Outcome::None));
    drop(held);
    assert!(storage.publish_permit(1).is_ok());
}
