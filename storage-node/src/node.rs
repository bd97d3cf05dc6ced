//! A storage node as a whole: opens its data, starts its shards, answers gateways, keeps house, stops.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use openraft::async_runtime::WatchReceiver as _;
use prost::Message as _;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use weir_journal::{Blobs, Class, Identity, Journal, JournalConfig, RealDisk, Recovered, StreamId};
use weir_protocol::ids::{ClusterId, NodeId, ShardId, TimestampMs};
use weir_protocol::rpc::Namespace;
use weir_transport::server::Identity as ServerIdentity;
use weir_transport::{Listener, ServerConfig};

use crate::config::{NodeConfig, SyncMode};
use crate::raft::{LogStore, Machine, NoPeers, ShardRaft, TypeConfig};
use crate::replica::{ShardHandle, ShardShared, proposer};
use crate::server::NodeService;
use crate::shard::command::{Change, Command, PutNamespace};
use crate::shard::entry::{Kind, SubBatch};

/// The only node there is yet.
const NODE_ID: u64 = 1;
/// How often retention and checkpoints are looked after.
const HOUSEKEEPING: Duration = Duration::from_secs(1);
/// Trims that one shard proposes in one round.
const TRIMS_PER_ROUND: usize = 1_000;
/// A shard of one voter leads at once; longer means that its disk hangs.
const LEADER_DEADLINE: Duration = Duration::from_secs(30);

/// Why a node did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// A setting is out of its range.
    #[error("{0}")]
    Config(String),
    /// The journal could not be opened; its message says what to do.
    #[error(transparent)]
    Journal(#[from] weir_journal::OpenError),
    /// Checkpoints could not be read.
    #[error(transparent)]
    Sealed(#[from] weir_journal::SealedError),
    /// The listener could not be opened.
    #[error("cannot listen: {0}")]
    Listen(#[source] std::io::Error),
    /// A shard did not start.
    #[error("shard {shard}: {why}")]
    Shard {
        /// Which.
        shard: ShardId,
        /// Why.
        why: String,
    },
}

/// A node that runs. Stop it with [`RunningNode::shutdown`].
pub struct RunningNode {
    service: Arc<NodeService>,
    listener: Listener,
    journal: Journal,
    stopping: watch::Sender<bool>,
    housekeeping: Vec<JoinHandle<()>>,
    proposers: Vec<JoinHandle<()>>,
}

/// Starts nodes.
pub struct Node;

impl Node {
    /// Opens the data directory, or makes it, starts every shard and waits until each leads.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: NodeConfig) -> Result<RunningNode, StartError> {
        config.check().map_err(StartError::Config)?;
        let (journal, recovered, identity) = open_journal(&config)?;
        let blobs = Blobs::open(config.data_dir.join("blobs"), Arc::new(RealDisk))?;
        let known = recovered.streams.keys().map(|stream| stream.0).max().unwrap_or(0);
        let data_shards = if known == 0 { config.data_shards } else { known };
        let (stopping, stop) = watch::channel(false);
        let (mut shards, mut housekeeping, mut proposers) = (BTreeMap::new(), Vec::new(), Vec::new());
        for shard in (0..=data_shards).map(ShardId) {
            let started = start_shard(shard, &journal, &recovered, &blobs).await;
            let started = started.map_err(|why| StartError::Shard { shard, why })?;
            housekeeping.push(tokio::spawn(keep_house(
                started.handle.clone(),
                started.grown,
                config.checkpoint_bytes,
                stop.clone(),
            )));
            proposers.push(started.proposer);
            shards.insert(shard, started.handle);
        }
        let is_synced = config.sync == SyncMode::Always;
        let mut service = NodeService {
            shards,
            journal: journal.clone(),
            cluster_id: ClusterId(identity.cluster_id),
            node_id: NODE_ID,
            address: String::new(),
            is_synced,
            is_draining: AtomicBool::new(false),
        };
        ensure_default_namespace(&service, config.auto_create).await?;
        let identity =
            ServerIdentity { cluster_id: ClusterId(identity.cluster_id), node_id: NodeId(NODE_ID) };
        // The port must be known before the map can name it, so a free one is taken first.
        let addr = free_port(config.listen).map_err(StartError::Listen)?;
        service.address = addr.to_string();
        let service = Arc::new(service);
        let listener = Listener::bind(ServerConfig::new(addr, identity), Arc::clone(&service) as _).await;
        let listener = listener.map_err(StartError::Listen)?;
        Ok(RunningNode { service, listener, journal, stopping, housekeeping, proposers })
    }
}

impl RunningNode {
    /// Where gateways connect.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.listener.local_addr()
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

    /// Takes no new work, finishes what is in flight within `deadline`, writes checkpoints and stops.
    pub async fn shutdown(self, deadline: Duration) {
        self.service.is_draining.store(true, Ordering::Release);
        self.stopping.send_replace(true);
        self.listener.shutdown(deadline).await;
        for task in self.housekeeping {
            if let Err(error) = task.await {
                tracing::error!(%error, "housekeeping ended unexpectedly");
            }
        }
        for shard in self.service.shards.values() {
            // A checkpoint makes the next start fast; without one the log is replayed.
            if let Err(error) = shard.raft.trigger().snapshot().await {
                tracing::warn!(shard = %shard.shard, %error, "no checkpoint at shutdown");
            }
            if let Err(error) = shard.raft.shutdown().await {
                tracing::warn!(shard = %shard.shard, %error, "the shard did not stop cleanly");
            }
        }
        for task in self.proposers {
            task.abort();
        }
        let journal = self.journal;
        if tokio::task::spawn_blocking(move || journal.close()).await.is_err() {
            tracing::error!("the journal did not close cleanly");
        }
    }
}

fn open_journal(config: &NodeConfig) -> Result<(Journal, Recovered, Identity), StartError> {
    let fresh = Identity { cluster_id: ulid::Ulid::new().0, node_id: NODE_ID };
    let identity = Identity::of_dir(&config.data_dir, &RealDisk)?.unwrap_or(fresh);
    let journal = JournalConfig {
        file_bytes: config.journal_file_bytes,
        max_bytes: config.journal_max_bytes,
        control_reserve_bytes: (64 << 20).min(config.journal_max_bytes / 8),
        sync: match config.sync {
            SyncMode::Always => weir_journal::SyncMode::Always,
            SyncMode::Os => weir_journal::SyncMode::Os,
        },
        ..JournalConfig::new(&config.data_dir, identity)
    };
    let (journal, recovered) = Journal::open(journal, Arc::new(RealDisk))?;
    if let Some(torn) = &recovered.torn_tail {
        tracing::warn!(path = %torn.path.display(), pos = torn.pos, "cut an unacknowledged tail of the journal");
    }
    Ok((journal, recovered, identity))
}

struct Started {
    handle: ShardHandle,
    proposer: JoinHandle<()>,
    grown: Arc<AtomicU64>,
}

async fn start_shard(
    shard: ShardId,
    journal: &Journal,
    found: &Recovered,
    blobs: &Blobs,
) -> Result<Started, String> {
    let stream = StreamId(shard.0);
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let log = LogStore::new(journal.clone(), stream, found.streams.get(&stream)).map_err(|e| text(&e))?;
    let shared = Arc::new(ShardShared::default());
    let machine = Machine::open(shard, NODE_ID, log.clone(), blobs.clone(), Arc::clone(&shared) as _)
        .map_err(|e| text(&e))?;
    let (state, grown) = (machine.state(), machine.bytes_since_checkpoint());
    let raft = ShardRaft::new(NODE_ID, raft_config(shard)?, NoPeers, log.clone(), machine)
        .await
        .map_err(|e| text(&e))?;
    if !raft.is_initialized().await.map_err(|e| text(&e))? {
        let members = BTreeMap::from([(NODE_ID, openraft::impls::BasicNode::default())]);
        raft.initialize(members).await.map_err(|e| text(&e))?;
    } else {
        // One voter need not wait for anybody.
        raft.trigger().elect(false).await.map_err(|e| text(&e))?;
    }
    lead(&raft).await?;
    let (proposals, proposer) = proposer::spawn(raft.clone(), log);
    let handle = ShardHandle { shard, state, shared, raft, journal: journal.clone(), proposals };
    Ok(Started { handle, proposer, grown })
}

/// Waits until the shard leads and has applied everything its log held: reads are then as new as before the restart.
async fn lead(raft: &ShardRaft) -> Result<(), String> {
    let leads = |metrics: &openraft::RaftMetrics<TypeConfig>| {
        metrics.state == openraft::ServerState::Leader
            && metrics.last_applied.as_ref().map(|id| id.index) == metrics.last_log_index
    };
    raft.wait(Some(LEADER_DEADLINE))
        .metrics(leads, "leads")
        .await
        .map(drop)
        .map_err(|error| error.to_string())
}

fn raft_config(shard: ShardId) -> Result<Arc<openraft::Config>, String> {
    let config = openraft::Config {
        cluster_name: format!("shard-{shard}"),
        heartbeat_interval: 500,
        election_timeout_min: 1_000,
        election_timeout_max: 2_000,
        max_payload_entries: 1_024,
        snapshot_policy: openraft::SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        replication_lag_threshold: 1 << 20,
        enable_pre_vote: Some(true),
        enable_leader_restore: Some(false),
        ..openraft::Config::default()
    };
    config.validate().map(Arc::new).map_err(|error| error.to_string())
}

/// Retention and checkpoints of one shard, until the node stops.
async fn keep_house(
    shard: ShardHandle,
    grown: Arc<AtomicU64>,
    checkpoint_bytes: u64,
    mut stop: watch::Receiver<bool>,
) {
    let mut purged = 0;
    loop {
        tokio::select! {
            _ = stop.wait_for(|stopping| *stopping) => return,
            () = tokio::time::sleep(HOUSEKEEPING) => {}
        }
        trim(&shard).await;
        // Under pressure every shard that is behind writes one: the quiet ones keep old files too.
        let usage = shard.journal.usage();
        let is_pressed = usage.used_bytes * 10 > usage.limit_bytes * 8 && is_behind(&shard);
        let is_due = grown.load(Ordering::Relaxed) >= checkpoint_bytes || is_pressed;
        if is_due && let Err(error) = shard.raft.trigger().snapshot().await {
            tracing::warn!(shard = %shard.shard, %error, "no checkpoint");
        }
        purged = purge(&shard, purged).await;
        // A purge is lazy; without publishes nothing would carry it to the disk, and its files would stay.
        let is_held =
            usage.files.first().is_some_and(|oldest| !oldest.current && oldest.pinned_by.is_empty());
        if is_held && let Err(error) = shard.journal.flush(shard.stream(), Box::new(|_| {})) {
            tracing::debug!(shard = %shard.shard, %error, "the purge waits for the next commit");
        }
    }
}

/// Whether entries were applied that no checkpoint covers.
fn is_behind(shard: &ShardHandle) -> bool {
    let metrics = shard.raft.metrics();
    let metrics = metrics.borrow_watched();
    metrics.last_applied.as_ref().map(|id| id.index) > metrics.snapshot.as_ref().map(|id| id.index)
}

/// Proposes the trims that retention asks for.
async fn trim(shard: &ShardHandle) {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    let now = TimestampMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX));
    let due = shard.state.read().due_trims(now, TRIMS_PER_ROUND);
    if due.is_empty() {
        return;
    }
    let trims: Vec<_> = due
        .into_iter()
        .map(|((incarnation, partition), upto)| SubBatch {
            incarnation,
            partition,
            kind: Kind::Trim,
            expected_end: Some(upto),
            idempotency: None,
            body: bytes::Bytes::new(),
        })
        .collect();
    let bytes: usize = trims.iter().map(SubBatch::encoded_bytes).sum();
    match shard.journal.try_admit(bytes as u64 + 4096, Class::Control) {
        Ok(permit) => {
            if let Err(refusal) = shard.change(trims, permit).await {
                tracing::warn!(shard = %shard.shard, why = refusal.detail, "retention could not trim");
            }
        }
        Err(full) => tracing::warn!(shard = %shard.shard, %full, "no room to trim"),
    }
}

/// Frees the log below the newest checkpoint and the oldest live record; returns how far.
async fn purge(shard: &ShardHandle, purged: u64) -> u64 {
    let covered = shard.raft.metrics().borrow_watched().snapshot.as_ref().map_or(0, |id| id.index);
    let needed = shard.state.read().needed_from().map_or(u64::MAX, |index| index.0.saturating_sub(1));
    let upto = covered.min(needed);
    if upto <= purged {
        return purged;
    }
    if let Err(error) = shard.raft.trigger().purge_log(upto).await {
        tracing::warn!(shard = %shard.shard, %error, "the log was not freed");
        return purged;
    }
    upto
}

async fn ensure_default_namespace(service: &NodeService, auto_create: bool) -> Result<(), StartError> {
    let shard = ShardId::META;
    let handle = &service.shards[&shard];
    let namespace = Namespace {
        tenant: "default".to_owned(),
        name: "default".to_owned(),
        auto_create,
        cors_origins: Vec::new(),
        version: 0,
    };
    // Only if it does not exist: an administrator's settings stay.
    let put = PutNamespace { namespace, expected_version: Some(0) };
    let command = Command { change: Some(Change::PutNamespace(put)) }.encode_to_vec();
    let permit = service.journal.try_admit(8192, Class::Control);
    let permit = permit.map_err(|full| StartError::Shard { shard, why: full.to_string() })?;
    let change = handle.change(vec![SubBatch::command(command.into())], permit).await;
    change.map(drop).map_err(|refusal| StartError::Shard { shard, why: refusal.detail })
}

fn free_port(listen: SocketAddr) -> std::io::Result<SocketAddr> {
    if listen.port() != 0 {
        return Ok(listen);
    }
    std::net::TcpListener::bind(listen)?.local_addr()
}
