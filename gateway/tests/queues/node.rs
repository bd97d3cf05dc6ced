//! A storage node that keeps subscriptions in memory, as plainly as the calls allow.

use std::collections::{BTreeMap, BTreeSet, HashMap};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use tokio::io::copy_bidirectional;
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::Notify;
use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{ClusterId, NodeId, Offset, PartitionId, TimestampMs};
use weir_protocol::rpc::*;
use weir_protocol::slots::SLOTS;
use weir_transport::{Identity, Listener, Peer, Request, ServerConfig, Service};

/// What was leased.
#[derive(Clone)]
struct Leased {
    fence: u64,
    key: Option<U128>,
    holder: String,
}

/// One part.
#[derive(Default, Clone)]
struct Part {
    end: u64,
    ready: BTreeSet<u64>,
    leased: BTreeMap<u64, Leased>,
    settled: BTreeSet<u64>,
    dead: BTreeSet<u64>,
    attempts: HashMap<u64, u32>,
    fence: u64,
}

#[derive(Default)]
pub(crate) struct State {
    /// Life of the topic `orders`, while it exists.
    pub(crate) topic: Option<u64>,
    /// Shard of each of its partitions.
    pub(crate) shards: Vec<u32>,
    pub(crate) subscriptions: BTreeMap<String, SubscriptionDescription>,
    parts: HashMap<(u64, u32), Part>,
    /// Calls for these shards are refused.
    pub(crate) failing: HashMap<u32, ErrorCode>,
    /// On a [way](breakable) that breaks, it breaks before the next answer to this method.
    pub(crate) loses: Option<Method>,
    /// Calls so far, with the shard.
    pub(crate) calls: Vec<(Method, u32)>,
    /// What was asked to be settled, by partition.
    pub(crate) settles: Vec<(u32, Vec<SettleItem>)>,
    /// Whatever is redriven is dead again at once.
    pub(crate) dies_again: bool,
    /// Pulls under way.
    pub(crate) pulling: usize,
    address: String,
}

#[derive(Default)]
pub(crate) struct Node {
    pub(crate) state: Mutex<State>,
    pub(crate) changed: Notify,
    lost: Notify,
}

struct Playing(Arc<Node>);

/// Starts a node with the topic `orders`, whose partitions lie in `shards`; its address.
pub(crate) async fn start(shards: &[u32]) -> (Arc<Node>, Listener, String) {
    let node = Arc::new(Node::default());
    let state = State { topic: Some(70), shards: shards.to_vec(), ..State::default() };
    *node.state.lock() = state;
    let identity = Identity { cluster_id: ClusterId(7), node_id: NodeId(1) };
    let config = ServerConfig::new(([127, 0, 0, 1], 0).into(), identity);
    let listener = Listener::bind(config, Arc::new(Playing(Arc::clone(&node)))).await.unwrap();
    let address = listener.local_addr().to_string();
    node.state.lock().address.clone_from(&address);
    (node, listener, address)
}

/// A way to the node that breaks, for everybody who is on it, where an answer is to be lost; its address.
pub(crate) async fn breakable(node: &Arc<Node>, to: String) -> String {
    let socket = TcpListener::bind(("127.0.0.1", 0)).await.unwrap();
    let address = socket.local_addr().unwrap().to_string();
    node.state.lock().address.clone_from(&address);
    let node = Arc::clone(node);
    tokio::spawn(async move {
        while let Ok((mut client, _)) = socket.accept().await {
            let (node, mut server) = (Arc::clone(&node), TcpStream::connect(&to).await.unwrap());
            tokio::spawn(async move {
                let lost = node.lost.notified();
                tokio::select! {
                    _ = copy_bidirectional(&mut client, &mut server) => {}
                    () = lost => {}
                }
            });
        }
    });
    address
}

impl Service for Playing {
    fn call(&self, _: &Peer, request: Request) {
        let (node, runtime) = (Arc::clone(&self.0), tokio::runtime::Handle::current());
        let Request { method, shard, body, reply, .. } = request;
        let body = body.into_bytes();
        if method == Method::ClusterMap {
            return reply.finish(vec![node.map().encode_to_vec().into()]);
        }
        let failing = {
            let mut state = node.state.lock();
            state.calls.push((method, shard.0));
            state.failing.get(&shard.0).copied()
        };
        if let Some(code) = failing {
            return reply.refuse(Refusal::new(code, "as told"));
        }
        if method == Method::Pull {
            runtime.spawn(async move {
                let (mut caller, request) = (reply.credit(), decode(body));
                node.state.lock().pulling += 1;
                let answer = tokio::select! {
                    answer = node.pull(&request) => Some(answer),
                    () = async { while !caller.changed().await.is_cancelled {} } => None,
                };
                node.state.lock().pulling -= 1;
                match answer {
                    Some(Ok(segments)) => reply.finish(segments),
                    Some(Err(refusal)) => reply.refuse(refusal),
                    None => {}
                }
            });
            return;
        }
        let is_lost = node.state.lock().loses.take_if(|lost| *lost == method).is_some();
        let answer = node.answer(method, body);
        // Changes are told after they are seen.
        node.changed.notify_waiters();
        match answer {
            _ if is_lost => {
                node.lost.notify_waiters();
                let mut caller = reply.credit();
                runtime.spawn(async move {
                    while !caller.changed().await.is_cancelled {}
                    drop(reply);
                });
            }
            Ok(answer) => reply.finish(vec![answer.into()]),
            Err(refusal) => reply.refuse(refusal),
        }
    }
}

fn decode<M: Message + Default>(body: Bytes) -> M {
    M::decode(body).unwrap()
}

fn refuse<T>(code: ErrorCode) -> Result<T, Refusal> {
    Err(Refusal::new(code, "as a node would"))
}

impl Node {
    fn map(&self) -> ClusterMap {
        let state = self.state.lock();
        let shards: BTreeSet<u32> = state.shards.iter().copied().chain([0, 1]).collect();
        ClusterMap {
            version: 1,
            nodes: vec![NodeInfo { node_id: 1, address: state.address.clone() }],
            shards: shards.iter().map(|&shard| ShardInfo { shard, leader_node: 1, term: 1 }).collect(),
            slots: vec![SlotRun { start: 0, end: u32::from(SLOTS), shard: 1 }],
            ..ClusterMap::default()
        }
    }

    /// Adds `count` records to a partition of every subscription.
    pub(crate) fn publish(&self, partition: u32, count: u64) {
        let mut state = self.state.lock();
        for ((_, of), part) in &mut state.parts {
            if *of == partition {
                part.ready.extend(part.end..part.end + count);
                part.end += count;
            }
        }
        drop(state);
        self.changed.notify_waiters();
    }

    /// All leases run out.
    pub(crate) fn expire(&self) {
        for part in self.state.lock().parts.values_mut() {
            part.ready.extend(std::mem::take(&mut part.leased).into_keys());
        }
        self.changed.notify_waiters();
    }

    fn answer(&self, method: Method, body: Bytes) -> Result<Vec<u8>, Refusal> {
        let mut state = self.state.lock();
        Ok(match method {
            Method::ListNamespaces => NamespaceList::default().encode_to_vec(),
            Method::DescribeTopic => state.topic(&decode(body))?.encode_to_vec(),
            Method::CreateSubscription => state.create(decode(body))?.encode_to_vec(),
            Method::DescribeSubscription => {
                let request: DescribeSubscriptionRequest = decode(body);
                state.found(&request.name.subscription)?.encode_to_vec()
            }
            Method::UpdateSubscription => state.update(decode(body))?.encode_to_vec(),
            Method::DeleteSubscription => {
                state.delete(&decode(body))?;
                Vec::new()
            }
            Method::ListSubscriptions => state.list(&decode(body)).encode_to_vec(),
            Method::Settle => state.settle(decode(body))?.encode_to_vec(),
            Method::PartStats => {
                let request: PartStatsRequest = decode(body);
                let parts = request.parts.iter().map(|part| state.stats(part)).collect();
                PartStatsList { parts }.encode_to_vec()
            }
            Method::ListLeases => state.leases(&decode(body))?.encode_to_vec(),
            Method::Seek => state.seek(&decode(body))?.encode_to_vec(),
            Method::Purge => state.purge(&decode(body))?.encode_to_vec(),
            Method::Redrive => state.redrive(&decode(body))?.encode_to_vec(),
            other => panic!("{other:?} was not expected"),
        })
    }

    async fn pull(&self, request: &PullRequest) -> Result<Vec<Bytes>, Refusal> {
        let until = tokio::time::Instant::now() + Duration::from_millis(request.wait_ms);
        loop {
            let changed = self.changed.notified();
            let answer = self.state.lock().pull(request)?;
            let is_nothing = answer.grants.is_empty() && !answer.is_more;
            if !is_nothing || tokio::time::timeout_at(until, changed).await.is_err() {
                return Ok(with_batches(request.part.partition, answer));
            }
        }
    }
}

impl State {
    fn topic(&self, request: &DescribeTopicRequest) -> Result<TopicDescription, Refusal> {
        let name = request.name.clone().unwrap();
        let (Some(incarnation), "orders" | "orders.dlq") = (self.topic, name.topic.as_str()) else {
            return refuse(ErrorCode::TopicNotFound);
        };
        let partitions = u32::try_from(self.shards.len()).unwrap();
        Ok(TopicDescription {
            name: Some(name),
            incarnation,
            version: 1,
            config: Some(TopicConfig { partitions, ..TopicConfig::default() }),
            shards: self.shards.clone(),
            ..TopicDescription::default()
        })
    }

    fn found(&self, name: &str) -> Result<SubscriptionDescription, Refusal> {
        self.subscriptions.get(name).cloned().map_or_else(|| refuse(ErrorCode::SubscriptionNotFound), Ok)
    }

    fn create(&mut self, request: CreateSubscriptionRequest) -> Result<SubscriptionCreated, Refusal> {
        let name = request.name.subscription.clone();
        if let Ok(subscription) = self.found(&name) {
            if subscription.config != request.config {
                return refuse(ErrorCode::ConfigMismatch);
            }
            return Ok(SubscriptionCreated { subscription, created: false });
        }
        let id = 900 + self.calls.len() as u64;
        for partition in 0..request.shards.len() {
            self.parts.insert((id, u32::try_from(partition).unwrap()), Part::default());
        }
        let subscription = SubscriptionDescription {
            name: request.name,
            id,
            version: 1,
            config: request.config,
            topic_incarnation: request.topic_incarnation,
            shards: request.shards,
            created_ms: id,
            more: request.more,
            fork: None,
        };
        self.subscriptions.insert(name, subscription.clone());
        Ok(SubscriptionCreated { subscription, created: true })
    }

    fn update(&mut self, request: UpdateSubscriptionRequest) -> Result<SubscriptionDescription, Refusal> {
        let mut found = self.found(&request.name.subscription)?;
        if (found.id, found.version) != (request.id, request.expected_version) {
            return refuse(ErrorCode::VersionMismatch);
        }
        found.version += 1;
        found.config = request.config;
        self.subscriptions.insert(request.name.subscription, found.clone());
        Ok(found)
    }

    fn delete(&mut self, request: &DeleteSubscriptionRequest) -> Result<(), Refusal> {
        let found = self.found(&request.name.subscription)?;
        if request.id.is_some_and(|id| id != found.id) {
            return refuse(ErrorCode::IncarnationGone);
        }
        if request.expected_version.is_some_and(|version| version != found.version) {
            return refuse(ErrorCode::VersionMismatch);
        }
        self.subscriptions.remove(&request.name.subscription);
        self.parts.retain(|(id, _), _| *id != found.id);
        Ok(())
    }

    fn list(&self, request: &ListSubscriptionsRequest) -> SubscriptionList {
        let after = request.after.clone().unwrap_or_default();
        let is_meant =
            |name: &String| *name > after && name.contains(request.contains.as_deref().unwrap_or(""));
        let of_topic = |found: &SubscriptionDescription| {
            request.topic.as_ref().is_none_or(|topic| found.config.topic == *topic)
        };
        let found = self.subscriptions.iter().filter(|(name, found)| is_meant(name) && of_topic(found));
        let mut subscriptions: Vec<_> = found.map(|(_, found)| found.clone()).collect();
        let is_whole = subscriptions.len() <= usize::try_from(request.limit).unwrap();
        subscriptions.truncate(usize::try_from(request.limit).unwrap());
        let last = subscriptions.last().map(|last| last.name.subscription.clone());
        SubscriptionList { subscriptions, looked_to: last.filter(|_| !is_whole) }
    }

    fn part(&mut self, part: &PartRef) -> Result<&mut Part, Refusal> {
        if self.topic != Some(part.incarnation) {
            return refuse(ErrorCode::IncarnationGone);
        }
        let found = self.parts.get_mut(&(part.subscription, part.partition));
        found.map_or_else(|| refuse(ErrorCode::SubscriptionNotFound), Ok)
    }

    fn pull(&mut self, request: &PullRequest) -> Result<PullAnswer, Refusal> {
        let part = self.part(&request.part)?;
        let repeated =
            part.leased.iter().filter(|(_, leased)| leased.key.is_some() && leased.key == request.key);
        let repeated: Vec<u64> = repeated.map(|(offset, _)| *offset).collect();
        let is_repeat = !repeated.is_empty();
        let meant = if is_repeat || request.only_repeat {
            repeated
        } else {
            part.ready.iter().copied().take(usize::try_from(request.max_records).unwrap()).collect()
        };
        let mut grants = Vec::new();
        for offset in meant {
            if part.ready.remove(&offset) {
                part.fence += 1;
                *part.attempts.entry(offset).or_default() += 1;
                let (fence, key, holder) = (part.fence, request.key, request.holder.clone());
                part.leased.insert(offset, Leased { fence, key, holder });
            }
            grants.push(part.grant(offset).unwrap());
        }
        Ok(PullAnswer { grants, slices: Vec::new(), is_repeat, is_more: !part.ready.is_empty() })
    }

    fn settle(&mut self, request: SettleRequest) -> Result<SettleAnswer, Refusal> {
        self.settles.push((request.part.partition, request.items.clone()));
        let part = self.part(&request.part)?;
        let results = request.items.iter().map(|item| {
            let result = |outcome: SettleOutcome, current| SettleResult { outcome: outcome as i32, current };
            if part.settled.contains(&item.offset) {
                return result(SettleOutcome::AlreadySettled, None);
            }
            match part.leased.get(&item.offset).map(|leased| leased.fence) {
                None => result(SettleOutcome::Unknown, None),
                Some(fence) if fence != item.fence => {
                    result(SettleOutcome::LeaseLost, part.grant(item.offset))
                }
                Some(_) => {
                    match item.action() {
                        action @ (SettleAction::Ack | SettleAction::Dead) => {
                            part.leased.remove(&item.offset);
                            part.dead.extend((action == SettleAction::Dead).then_some(item.offset));
                            part.settled.insert(item.offset);
                        }
                        SettleAction::Nack => {
                            part.leased.remove(&item.offset);
                            part.ready.insert(item.offset);
                        }
                        SettleAction::Extend | SettleAction::Unset => {}
                    }
                    result(SettleOutcome::Done, None)
                }
            }
        });
        Ok(SettleAnswer { results: results.collect() })
    }

    fn stats(&mut self, reference: &PartRef) -> PartStats {
        match self.part(reference) {
            Err(refusal) => PartStats { refused: Some(refusal), ..PartStats::default() },
            Ok(part) => PartStats {
                floor: (0..part.end).take_while(|offset| part.settled.contains(offset)).count() as u64,
                end: part.end,
                ready: part.ready.len() as u64,
                leased: part.leased.len() as u64,
                oldest_ms: Some(1_000 - u64::from(reference.partition)),
                ..PartStats::default()
            },
        }
    }

    fn leases(&mut self, request: &ListLeasesRequest) -> Result<LeaseList, Refusal> {
        let part = self.part(&request.part)?;
        let mut leases: Vec<_> = part
            .leased
            .range(request.from..)
            .map(|(offset, leased)| LeaseInfo {
                offset: *offset,
                grant: part.grant(*offset),
                holder: leased.holder.clone(),
                age_ms: 5,
                attempts: part.attempts[offset],
                delayed_ms: None,
                standing: weir_protocol::rpc::Standing::Leased.into(),
                blocked_by: None,
            })
            .collect();
        let limit = usize::try_from(request.limit).unwrap();
        let next = leases.get(limit).map(|lease| lease.offset);
        leases.truncate(limit);
        Ok(LeaseList { leases, next, as_of_ms: None })
    }

    fn seek(&mut self, request: &SeekRequest) -> Result<SeekAnswer, Refusal> {
        let part = self.part(&request.part)?;
        let floor = match request.to.at.unwrap() {
            At::Earliest(_) => 0,
            At::Offset(offset) => offset,
            _ => part.end,
        };
        let answer = SeekAnswer {
            floor,
            redelivered: part.attempts.keys().filter(|offset| **offset >= floor).count() as u64,
            skipped: (0..floor).filter(|offset| !part.settled.contains(offset)).count() as u64,
        };
        if !request.is_dry_run {
            part.leased.clear();
            part.settled = (0..floor).collect();
            part.ready = (floor..part.end).collect();
        }
        Ok(answer)
    }

    fn purge(&mut self, request: &PurgeRequest) -> Result<PurgeAnswer, Refusal> {
        let part = self.part(&request.part)?;
        let unsettled = (0..part.end).filter(|offset| !part.settled.contains(offset)).count() as u64;
        if !(request.is_dry_run || request.is_dead_only) {
            part.leased.clear();
            part.settled = (0..part.end).collect();
            part.ready.clear();
        }
        let settled = if request.is_dead_only { 0 } else { unsettled };
        Ok(PurgeAnswer { floor: part.end, settled, dead: 1 })
    }

    fn redrive(&mut self, request: &RedriveRequest) -> Result<RedriveAnswer, Refusal> {
        let dead_again = if self.dies_again { request.watched.len() as u64 } else { 0 };
        if request.give_up_at > 0 && dead_again >= request.give_up_at.into() {
            return Ok(RedriveAnswer { redriven: Vec::new(), next: Some(request.from), dead_again });
        }
        let part = self.part(&request.part)?;
        let is_wanted = |offset: &u64| request.offsets.is_empty() || request.offsets.contains(offset);
        let mut dead = part.dead.range(request.from..).copied().filter(is_wanted);
        let redriven: Vec<u64> = dead.by_ref().take(usize::try_from(request.limit).unwrap()).collect();
        let next = dead.next();
        for offset in redriven.iter().filter(|_| !request.is_dry_run) {
            part.dead.remove(offset);
            part.settled.remove(offset);
            part.ready.insert(*offset);
        }
        Ok(RedriveAnswer { redriven, next, dead_again })
    }
}

impl Part {
    fn grant(&self, offset: u64) -> Option<Grant> {
        let fence = self.leased.get(&offset)?.fence;
        Some(Grant { offset, fence, attempt: self.attempts[&offset], expires_in_ms: 30_000 })
    }
}

/// The answer with one batch from the first to the last record that was leased: it may hold others between them.
fn with_batches(partition: u32, mut answer: PullAnswer) -> Vec<Bytes> {
    let (Some(first), Some(last)) = (answer.grants.first(), answer.grants.last()) else {
        return encode_packet(&answer, []);
    };
    let (first, last) = (first.offset, last.offset);
    let mut builder = BatchBuilder::anonymous();
    for offset in first..=last {
        let value = format!("m{partition}-{offset}");
        let record = RecordParts { key: Some(b"k"), headers: &Headers::default(), value: value.as_bytes() };
        builder.push(record).unwrap();
    }
    let batch = builder.build(Compression::None).unwrap();
    let placed = batch.placed(Offset(first), TimestampMs(1_000 + first), PartitionId(partition));
    let batch_bytes = placed.iter().map(Bytes::len).sum::<usize>();
    let (take, batch_bytes) = (u32::try_from(last - first + 1).unwrap(), u32::try_from(batch_bytes).unwrap());
    answer.slices = vec![Slice { first, take, batch_bytes }];
    encode_packet(&answer, placed)
}
