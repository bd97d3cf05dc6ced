//! A storage node as a whole: opens its data, starts its shards, answers gateways, stops.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::{Duration, Instant};

use prometheus::Registry;
use prost::Message as _;
use tokio::sync::{mpsc, watch};
use weir_journal::{Blobs, Class, Disk, Journal, OpenError, RealDisk, Recovered, StreamId};
use weir_protocol::ids::{ClusterId, NodeId, ShardId};
use weir_protocol::rpc::{ListNamespacesRequest, Namespace};
use weir_tier::store::Store;
use weir_transport::server::Identity as ServerIdentity;
use weir_transport::{InProcess, Listener, MetricsCollector, Reserved, ServerConfig, Side};

use crate::carry::Carry;
use crate::config::{NodeConfig, SyncMode};
use crate::keeper::{Growth, Keeper};
use crate::layout::{self, Layout};
use crate::limits::Limits;
use crate::metrics::{
    HoldersCollector, JournalCollector, NodeMetrics, ShardsCollector, StorageCollector, StoreNow,
    TierMetrics, ToldByStore,
};
use crate::opening::{Opened, not_wanted, open_journal};
use crate::outbox::{DeadLetterSender, Forwarder, OutputSender};
use crate::raft::tripwire::Tripwire;
use crate::raft::{LogStore, Machine, group};
use crate::replica::proposer::Proposer;
use crate::replica::{ShardHandle, ShardShared, TailMemory};
use crate::sealing::{Rewriter, Sealer};
use crate::server::{Lapses, NodeService, Room};
use crate::shard::command::{Change, Command, PutNamespace, PutSlots};
use crate::shard::entry::{ENTRY_OVERHEAD_BYTES, SubBatch};
use crate::shard::state::{ShardState, SlotTable};
use crate::shutdown::Tasks;
use crate::tier::{Damaged, Tier, TierError, Trial};

/// The only node there is yet.
pub(crate) const NODE_ID: u64 = 1;

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is out of its range.
    #[error("{0}")]
    Config(String),
    /// The journal could not be opened; its message says what to do.
    #[error(transparent)]
    Journal(#[from] weir_journal::OpenError),
    /// Checkpoints, or the file of what was decided when the directory was made, could not be read or written.
    #[error(transparent)]
    Sealed(#[from] weir_journal::SealedError),
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}; --listen names another address: {source}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// Metrics of another node are in the registry.
    #[error("metrics: {0}")]
    Metrics(#[from] prometheus::Error),
    /// The store of cold messages cannot be used.
    #[error(transparent)]
    Tier(#[from] TierError),
    /// A shard did not start.
    #[error("shard {shard}: {why}")]
    Shard {
        /// Which.
        shard: ShardId,
        /// Why.
        why: String,
    },
    /// The system gives no thread.
    #[error("no thread for what carries messages: {0}")]
    Thread(std::io::Error),
    /// It was not wanted any more: see [`Surroundings::stop`].
    #[error("the start was given up")]
    Stopped,
}

/// What a node takes from its surroundings.
#[derive(Debug, Clone)]
pub struct Surroundings {
    /// The disk; a simulated one in tests.
    pub disk: Arc<dyn Disk>,
    /// Where its metrics are registered.
    pub registry: Registry,
    /// The store of cold messages, instead of the one that the settings name; a failing one in tests.
    pub object_store: Option<Store>,
    /// True as soon as the node is not wanted any more: a start under way ends with [`StartError::Stopped`].
    /// Once it runs, this says nothing.
    pub stop: watch::Receiver<bool>,
}

impl Default for Surroundings {
    fn default() -> Self {
        let (disk, stop) = (Arc::new(RealDisk), watch::channel(false).1);
        Self { disk, registry: Registry::new(), object_store: None, stop }
    }
}

/// A node that runs. Stop it with [`RunningNode::shutdown`].
pub struct RunningNode {
    service: Arc<NodeService>,
    listener: Listener,
    journal: Journal,
    limits: Limits,
    registry: Registry,
    tasks: Tasks,
}

/// Starts nodes.
pub struct Node;

impl Node {
    /// [`Node::start_in`] on the real disk and with a registry of its own.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: NodeConfig) -> Result<RunningNode, StartError> {
        Self::start_in(config, Surroundings::default()).await
    }

    /// Opens the data directory, or makes it, starts every shard, waits until each leads and has applied its log, and
    /// answers gateways from then on.
    ///
    /// # Errors
    /// [`StartError`]; the directory is free again. It was not made if a setting is wrong or the address is taken.
    pub async fn start_in(config: NodeConfig, around: Surroundings) -> Result<RunningNode, StartError> {
        config.check().map_err(StartError::Config)?;
        // Who connects before everything is there is refused, and tries again.
        let socket = Reserved::new(config.listen);
        let socket = socket.map_err(|source| StartError::Listen { addr: config.listen, source })?;
        if around.object_store.is_none() {
            Tier::check(&config)?;
        }
        let opened = open_journal(&config, NODE_ID, &around.disk, around.stop.clone()).await;
        let opened = opened.map_err(|error| match error {
            OpenError::GivenUp => StartError::Stopped,
            error => error.into(),
        })?;
        let (journal, mut tasks) = (opened.0.clone(), Tasks::default());
        let started = tokio::select! {
            biased;
            () = not_wanted(around.stop.clone()) => Err(StartError::Stopped),
            started = Self::start_shards(config, &around, (opened, socket), &mut tasks) => started,
        };
        match started {
            Ok((service, listener, limits)) => {
                Ok(RunningNode { service, listener, journal, limits, registry: around.registry, tasks })
            }
            Err(error) => {
                // Shards that run already end by themselves; nothing of them is written any more.
                tasks.begin_stop();
                if tokio::task::spawn_blocking(move || journal.close()).await.is_err() {
                    tracing::error!("the journal did not close cleanly");
                }
                Err(error)
            }
        }
    }

    async fn start_shards(
        config: NodeConfig,
        around: &Surroundings,
        ((journal, recovered, identity), socket): (Opened, Reserved),
        tasks: &mut Tasks,
    ) -> Result<(Arc<NodeService>, Listener, Limits), StartError> {
        let blobs = Blobs::open(config.data_dir.join("blobs"), Arc::clone(&around.disk))?;
        let metrics = NodeMetrics::register(&around.registry, config.tail_ring_bytes)?;
        around.registry.register(Box::new(JournalCollector::new(journal.clone())?))?;
        let known = recovered.streams.keys().map(|stream| stream.0).max().filter(|shard| *shard > 0);
        let wanted = Layout { data_shards: config.data_shards, dedupe_rows: config.dedupe_rows, epoch: 0 };
        let layout = layout::decide(&blobs, known, wanted)?;
        let Layout { data_shards, dedupe_rows, .. } = layout;
        let tier_metrics = TierMetrics::register(&around.registry)?;
        let (cluster, given) = (ClusterId(identity.cluster_id), around.object_store.clone());
        let (tier, trial) = Tier::open(&config, given, &blobs, cluster, layout, tier_metrics).await?.unzip();
        let mut shards = BTreeMap::new();
        let starter = Starter {
            memory: TailMemory::new(config.tail_ring_bytes, data_shards as usize),
            checkpoint_bytes: config.checkpoint_bytes,
            dedupe_rows: dedupe_rows as usize,
            journal: journal.clone(),
            recovered,
            blobs,
            metrics: metrics.clone(),
            used_permille: Arc::default(),
            tier: tier.clone(),
        };
        for shard in (0..=data_shards).map(ShardId) {
            let handle = starter.start(shard, tasks).await;
            shards.insert(shard, handle.map_err(|why| StartError::Shard { shard, why })?);
        }
        watch_shards(&around.registry, &shards, (dedupe_rows as usize, &config), tier.as_ref())?;
        let limits = Limits::new(journal.config(), data_shards, config.tail_ring_bytes, dedupe_rows as usize);
        metrics.staged_bytes_max(limits.staged_bytes);
        let mut service = NodeService {
            room: Room::new(journal.clone(), &shards),
            shards: Arc::new(shards),
            journal: journal.clone(),
            cluster_id: cluster,
            node_id: NODE_ID,
            address: String::new(),
            is_synced: config.sync == SyncMode::Always,
            is_draining: AtomicBool::new(false),
            metrics,
        };
        ensure_default_namespace(&service, config.auto_create).await?;
        ensure_slots(&service).await?;
        around.registry.register(Box::new(HoldersCollector::new(service.room.holders().clone())?))?;
        tasks.spawn("room".to_owned(), service.room.clone().watch(tasks.stop()));
        let all = Arc::clone(&service.shards);
        keep_promises(&all, &service.room, tasks);
        if let Some(tier) = tier {
            let below_permille = u64::from(config.rewrite_below_percent) * 10;
            keep_store(&tier, trial.flatten(), &all, below_permille, tasks);
        } else {
            let carry = Carry::new(&journal, &all, config.carry_bytes_per_s, tasks.stop());
            tasks.spawn("carry".to_owned(), carry.map_err(StartError::Thread)?.run(tasks.stop()));
        }
        drop(all);
        let identity = ServerIdentity { cluster_id: cluster, node_id: NodeId(NODE_ID) };
        // The port must be known before the map can name it.
        let refused = |source| StartError::Listen { addr: config.listen, source };
        let socket = socket.listen().map_err(refused)?;
        let addr = socket.local_addr().map_err(refused)?;
        service.address = config.advertise.clone().unwrap_or_else(|| addr.to_string());
        let service = Arc::new(service);
        let credential = config.credential.map(|secret| secret.0.into());
        let server = ServerConfig { credential, ..ServerConfig::new(addr, identity) };
        let transport = MetricsCollector::new(Arc::clone(&server.metrics), Side::Server)?;
        around.registry.register(Box::new(transport))?;
        let listener = Listener::serve(socket, server, Arc::clone(&service) as _).map_err(refused)?;
        Ok((service, listener, limits))
    }
}

impl RunningNode {
    /// Where gateways connect.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
    }

    /// How a gateway of this process connects. What it does for a shard takes turns with the shard's own tasks.
    #[must_use]
    pub fn in_process(&self) -> InProcess {
        InProcess::new(self.listener.server().clone()).with_groups(self.tasks.groups())
    }

    /// The registry with this node's metrics.
    #[must_use]
    pub fn registry(&self) -> &Registry {
        &self.registry
    }

    /// What it holds at most.
    #[must_use]
    pub fn limits(&self) -> &Limits {
        &self.limits
    }

    #[cfg(test)]
    pub(crate) fn shard(&self, shard: ShardId) -> ShardHandle {
        self.service.shards[&shard].clone()
    }

    /// The journal's counters.
    #[must_use]
    pub fn journal_metrics(&self) -> weir_journal::Metrics {
        self.journal.metrics()
    }

    /// Why the node confirms nothing any more, if it does not.
    #[must_use]
    pub fn failure(&self) -> Option<String> {
        self.journal.failure().map(|failure| failure.to_string())
    }

    /// True once the node stops by itself, because one of its tasks ended: shut it down then.
    #[must_use]
    pub fn stopping(&self) -> watch::Receiver<bool> {
        self.tasks.stop()
    }

    /// Takes no new work, finishes what is in flight, writes checkpoints and closes the journal. What is in flight and
    /// the checkpoints of all shards have `deadline` together. On return nothing of the node runs and its directory is
    /// free.
    pub async fn shutdown(self, deadline: Duration) {
        let Self { service, listener, journal, tasks, registry, limits: _ } = self;
        service.is_draining.store(true, Ordering::Release);
        tasks.begin_stop();
        let ends = Instant::now() + deadline;
        listener.shutdown(deadline).await;
        // A checkpoint makes the next start fast; without one the log is replayed.
        let checkpoint = async |shard: &ShardHandle| {
            let (given_up, left) =
                (shard.checkpoints_given_up.clone(), ends.saturating_duration_since(Instant::now()));
            if let Err(why) = group::checkpoint(&shard.raft, given_up, left).await {
                tracing::warn!(shard = %shard.shard, %why, "no checkpoint at shutdown");
            }
        };
        futures_util::future::join_all(service.shards.values().map(checkpoint)).await;
        for shard in service.shards.values() {
            if let Err(error) = shard.raft.shutdown().await {
                tracing::warn!(shard = %shard.shard, %error, "the shard did not stop cleanly");
            }
        }
        // With the last handles of the shards their proposers end.
        drop((listener, service, registry));
        tasks.join().await;
        if tokio::task::spawn_blocking(move || journal.close()).await.is_err() {
            tracing::error!("the journal did not close cleanly");
        }
    }
}

/// What is read of the shards when somebody scrapes.
fn watch_shards(
    registry: &Registry,
    shards: &BTreeMap<ShardId, ShardHandle>,
    (dedupe_rows, config): (usize, &NodeConfig),
    tier: Option<&Arc<Tier>>,
) -> Result<(), prometheus::Error> {
    let states = shards.iter().map(|(shard, handle)| (*shard, &handle.state));
    registry.register(Box::new(ShardsCollector::new(states, dedupe_rows)?))?;
    let states = shards.values().map(|handle| &handle.state);
    let store = tier.map(|tier| -> ToldByStore {
        let tier = Arc::downgrade(tier);
        Box::new(move || tier.upgrade().map_or_else(StoreNow::default, |tier| store_now(&tier)))
    });
    let prices = (config.storage_prices, config.price_currency.clone());
    registry.register(Box::new(StorageCollector::new(states, store, prices)?))
}

fn store_now(tier: &Tier) -> StoreNow {
    let (puts_per_day, gets_per_day) = tier.cold.store().metrics().charged_within_a_day();
    StoreNow {
        uploading_bytes: tier.uploads.bytes(),
        puts_per_day,
        gets_per_day,
        damaged_objects: tier.damaged.objects(),
        damaged_objects_max: Damaged::REMEMBERED_MAX,
        damaged_reads: tier.damaged.failed_reads(),
    }
}

/// The tasks that carry what shards owe to others, and that end what nobody ends.
fn keep_promises(all: &Arc<BTreeMap<ShardId, ShardHandle>>, room: &Room, tasks: &mut Tasks) {
    for (shard, handle) in &**all {
        let forwarder = Forwarder::new(handle.clone(), Arc::clone(all));
        tasks.spawn(format!("forwarder of shard {shard}"), forwarder.run(tasks.stop()));
        let outputs = OutputSender::new(handle.clone(), Arc::clone(all));
        tasks.spawn(format!("outputs of shard {shard}"), outputs.run(tasks.stop()));
        let letters = DeadLetterSender::new(handle.clone(), Arc::clone(all));
        tasks.spawn(format!("dead letters of shard {shard}"), letters.run(tasks.stop()));
        let lapses = Lapses::new(handle.clone(), room.clone());
        tasks.spawn(format!("lapses of shard {shard}"), lapses.run(tasks.stop()));
    }
}

/// The tasks that fill the object store and keep it small, once it has passed.
fn keep_store(
    tier: &Arc<Tier>,
    trial: Option<Trial>,
    all: &Arc<BTreeMap<ShardId, ShardHandle>>,
    below_permille: u64,
    tasks: &mut Tasks,
) {
    let rewriter = Rewriter::new(Arc::clone(tier), Arc::clone(all), below_permille);
    let sealer = Sealer::new(Arc::clone(tier), Arc::clone(all));
    let (passed, has_passed) = watch::channel(trial.is_none());
    let (tier, stop) = (Arc::clone(tier), tasks.stop());
    tasks.spawn("sealer".to_owned(), async move {
        if let Some(trial) = trial
            && !trial.pass(&tier, stop.clone()).await
        {
            return;
        }
        passed.send_replace(true);
        sealer.run(stop).await;
    });
    let (mut has_passed, stop) = (has_passed, tasks.stop());
    tasks.spawn("rewriter".to_owned(), async move {
        // An error: the node stops, and the store has not passed.
        if has_passed.wait_for(|passed| *passed).await.is_ok() {
            rewriter.run(stop).await;
        }
    });
}

/// What all shards are started with.
struct Starter {
    memory: TailMemory,
    checkpoint_bytes: u64,
    dedupe_rows: usize,
    journal: Journal,
    recovered: Recovered,
    blobs: Blobs,
    metrics: NodeMetrics,
    used_permille: Arc<AtomicU32>,
    tier: Option<Arc<Tier>>,
}

impl Starter {
    async fn start(&self, shard: ShardId, tasks: &mut Tasks) -> Result<ShardHandle, String> {
        let text = |error: &dyn std::fmt::Display| error.to_string();
        let found = self.recovered.streams.get(&StreamId(shard.0));
        let recovered_end = found.map_or(0, |found| found.entries.end);
        let tripwire = Arc::new(Tripwire::new(shard, NODE_ID, recovered_end));
        let log = LogStore::open(self.journal.clone(), shard, NODE_ID, found, Arc::clone(&tripwire))
            .map_err(|error| text(&error))?;
        // Nobody reads messages of the meta group.
        let none = TailMemory::new(0, 1);
        let memory = if shard == ShardId::META { &none } else { &self.memory };
        let shared = Arc::new(ShardShared::new(shard, memory, self.metrics.of_shard(shard)));
        shared.queues().fences().recovered(found.and_then(|found| found.meta.as_ref()))?;
        let (blobs, listener) = (self.blobs.clone(), Arc::clone(&shared) as _);
        let empty = ShardState::with_dedupe_rows(shard, self.dedupe_rows);
        let machine = Machine::open((shard, empty), log.clone(), tripwire, blobs, listener);
        let machine = machine.map_err(|error| text(&error))?;
        let (state, applied_bytes, checkpoint_bytes) =
            (machine.state(), machine.applied_bytes(), machine.checkpoint_bytes());
        let checkpoints_given_up = machine.checkpoints_given_up();
        let tasks_of_shard = tasks.start_group(shard);
        let starting = group::start(shard, NODE_ID, log, machine);
        let raft = tasks_of_shard.enter_async(starting).await.map_err(|error| text(&error))?;
        let (proposals, queue) = mpsc::unbounded_channel();
        let (journal, used) = (self.journal.clone(), Arc::clone(&self.used_permille));
        let proposer = Proposer::new(raft.clone(), Arc::clone(&state), Arc::clone(&shared), journal, used);
        tasks_of_shard.enter(|| tasks.spawn(format!("proposer of shard {shard}"), proposer.run(queue)));
        let journal = self.journal.clone();
        let tier = self.tier.clone();
        let handle =
            ShardHandle { shard, state, shared, raft, journal, tier, checkpoints_given_up, proposals };
        let used = Arc::clone(&self.used_permille);
        let growth = Growth { floor_bytes: self.checkpoint_bytes, applied_bytes, checkpoint_bytes };
        let keeper = Keeper::new(handle.clone(), growth, used);
        tasks.spawn(format!("keeper of shard {shard}"), keeper.run(tasks.stop()));
        Ok(handle)
    }
}

/// Makes the default namespace unless it is there: an administrator's settings stay, and where the journal is
/// full a change would be refused, and with it the start of the node that alone can make room.
async fn ensure_default_namespace(service: &NodeService, auto_create: bool) -> Result<(), StartError> {
    let (tenant, name) = ("default".to_owned(), "default".to_owned());
    let one =
        ListNamespacesRequest { tenant: tenant.clone(), name: Some(name.clone()), ..Default::default() };
    if !service.shards[&ShardId::META].state.read().topics().list_namespaces(&one).namespaces.is_empty() {
        return Ok(());
    }
    let namespace = Namespace { tenant, name, auto_create, ..Namespace::default() };
    ensure(service, Change::PutNamespace(PutNamespace { namespace, expected_version: Some(0) })).await
}

/// Places the slots evenly over the data shards, unless they were placed before.
async fn ensure_slots(service: &NodeService) -> Result<(), StartError> {
    if service.shards[&ShardId::META].state.read().slots().version > 0 {
        return Ok(());
    }
    let data: Vec<ShardId> = service.shards.keys().copied().filter(|shard| *shard != ShardId::META).collect();
    let put = PutSlots { runs: SlotTable::even(&data), expected_version: 0 };
    ensure(service, Change::PutSlots(put)).await
}

/// Changes the meta group; that it stands like that already is fine.
async fn ensure(service: &NodeService, change: Change) -> Result<(), StartError> {
    let shard = ShardId::META;
    let handle = &service.shards[&shard];
    let command = Command { change: Some(change) }.encode_to_vec();
    let permit = service.journal.try_admit(2 * ENTRY_OVERHEAD_BYTES as u64, Class::Control);
    let permit = permit.map_err(|full| StartError::Shard { shard, why: full.to_string() })?;
    let change = handle.change(vec![SubBatch::command(command.into())], permit).await;
    change.map(drop).map_err(|refusal| StartError::Shard { shard, why: refusal.detail })
}

#[cfg(test)]
pub(crate) mod tests {
    use bytes::Bytes;
    use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
    use weir_protocol::error::{ErrorCode, Outcome};
    use weir_protocol::ids::{Incarnation, PartitionId};
    use weir_protocol::rpc::{TopicConfig, TopicName};

    use super::*;
    use crate::raft::EntryData;
    use crate::replica::ShardHandle;
    use crate::shard::command::CreateTopic;
    use crate::shard::entry::Kind;
    use crate::shard::state::{PartitionKey, Verdict};

    const WAIT: Duration = Duration::from_secs(20);

    /// A node of two shards that keeps next to nothing in memory.
    pub(crate) async fn start(dir: &std::path::Path) -> RunningNode {
        start_with(dir, 1).await
    }

    pub(crate) async fn start_with(dir: &std::path::Path, tail_ring_bytes: usize) -> RunningNode {
        let config = NodeConfig {
            data_dir: dir.to_owned(),
            journal_file_bytes: 16 << 20,
            data_shards: 2,
            tail_ring_bytes,
            ..NodeConfig::default()
        };
        Node::start(config).await.unwrap()
    }

    /// A topic of one partition, with one entry for each value.
    pub(crate) async fn published(shard: &ShardHandle, values: &[Vec<u8>]) -> PartitionKey {
        let change = async |sub| {
            let permit = shard.journal.try_admit(64 << 10, Class::Control).unwrap();
            shard.change(vec![sub], permit).await.unwrap().remove(0)
        };
        let name = TopicName { tenant: "default".into(), namespace: "default".into(), topic: "t".into() };
        let config = TopicConfig { partitions: 1, ..TopicConfig::default() };
        let create = CreateTopic { name, config, accept_existing: false, shards: Vec::new() };
        let create = Command { change: Some(Change::CreateTopic(create)) }.encode_to_vec();
        let Verdict::TopicCreated(made) = change(SubBatch::command(create.into())).await else { panic!() };
        let key = (Incarnation(made.topic.unwrap().incarnation), PartitionId(0));
        for value in values {
            let mut batch = BatchBuilder::anonymous();
            batch.push(RecordParts { key: None, headers: &Headers::default(), value }).unwrap();
            let body = batch.build(Compression::None).unwrap().unplaced().bytes().clone();
            let publish = SubBatch { kind: Kind::Publish, ..SubBatch::command(body) };
            change(SubBatch { incarnation: key.0, partition: key.1, ..publish }).await;
        }
        key
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_node_ends_when_one_of_its_shards_has_stopped() {
        let dir = tempfile::tempdir().unwrap();
        let node = start(dir.path()).await;
        // Committed, and not an entry that this build can read: the shard stops rather than skip it.
        let unreadable = EntryData(Bytes::from_static(b"?"));
        node.service.shards[&ShardId(1)].raft.client_write_ff(unreadable, None).await.unwrap();
        let mut stopping = node.stopping();
        let ended = stopping.wait_for(|stopping| *stopping);
        tokio::time::timeout(WAIT, ended).await.expect("it would serve half").unwrap();
        assert_eq!(node.failure(), None, "the journal is whole");
        tokio::time::timeout(WAIT, node.shutdown(Duration::from_secs(1))).await.unwrap();
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_change_that_another_shard_cannot_be_told_of_is_called_applied_and_answered() {
        let dir = tempfile::tempdir().unwrap();
        let node = start(dir.path()).await;
        let shard = node.service.shards[&ShardId(1)].clone();
        let name = TopicName { tenant: "default".into(), namespace: "default".into(), topic: "t".into() };
        let config = TopicConfig { partitions: 2, ..TopicConfig::default() };
        // The second partition lies in a shard that nobody has.
        let create = CreateTopic { name, config, accept_existing: false, shards: vec![1, 99] };
        let create = Command { change: Some(Change::CreateTopic(create)) }.encode_to_vec();
        let permit = shard.journal.try_admit(4 << 10, Class::Control).unwrap();
        let verdicts = shard.change(vec![SubBatch::command(create.into())], permit).await.unwrap();
        let Some(Verdict::TopicCreated(made)) = verdicts.into_iter().next() else { panic!() };
        let life = Incarnation(made.topic.unwrap().incarnation);
        let refused = shard.told_everywhere(life, Duration::from_millis(100)).await.unwrap_err();
        assert_eq!((refused.error_code(), refused.effect()), (ErrorCode::Unavailable, Outcome::Applied));
        assert_eq!(
            shard.told_everywhere(Incarnation(life.0 + 1), WAIT).await,
            Ok(()),
            "nothing waits for it"
        );
        drop(shard);
        node.shutdown(Duration::from_secs(1)).await;
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn a_change_that_no_entry_can_carry_is_refused_and_the_shard_goes_on() {
        let dir = tempfile::tempdir().unwrap();
        let node = start(dir.path()).await;
        let shard = node.service.shards[&ShardId(1)].clone();
        let change = async |bytes: usize| {
            let sub = SubBatch { kind: Kind::Trim, ..SubBatch::command(vec![0; bytes].into()) };
            let permit = shard.journal.try_admit(bytes as u64 + (4 << 10), Class::Control).unwrap();
            shard.change(vec![sub], permit).await
        };
        let refused = change(weir_protocol::limits::ENTRY_BYTES_MAX).await.expect_err("it is too much");
        assert_eq!((refused.error_code(), refused.effect()), (ErrorCode::TooLarge, Outcome::None));
        assert_eq!(change(0).await, Ok(vec![Verdict::Done]));
        drop(shard);
        node.shutdown(Duration::from_secs(1)).await;
    }
}
