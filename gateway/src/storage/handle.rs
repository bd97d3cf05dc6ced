//! The handle that the services hold.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::Instant;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{ConfigVersion, Incarnation, ShardId, TopicPath};
use weir_protocol::rpc::{DescribeTopicRequest, Level, Method, TopicDescription};
use weir_transport::{Answers, CallError, Metrics};

use super::config::StorageConfig;
use super::failure::Failure;
use super::lane::{Lane, LaneContext, LaneCounters, LaneOwner};
use super::links::Dial;
use super::retry::unavailable;
use super::router::{Attempts, CallFor, Router, Safety, decode};
use super::topic::Topic;
use super::topic_cache::TopicCache;

/// Everything this gateway knows of storage nodes. Clones share it.
#[derive(Clone)]
pub struct Storage {
    inner: Arc<Inner>,
}

struct Inner {
    config: StorageConfig,
    router: Arc<Router>,
    topics: Arc<Mutex<TopicCache>>,
    lanes: Mutex<HashMap<ShardId, LaneOwner>>,
    publish_bytes: Arc<Semaphore>,
    lane_counters: Arc<LaneCounters>,
    topic_hits: AtomicU64,
    topic_misses: AtomicU64,
    topic_evictions: AtomicU64,
}

/// Counts since the start, and what is held now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct StorageMetrics {
    /// Topics remembered now.
    pub topics: u64,
    /// Most topics remembered.
    pub topics_max: u64,
    /// Topics found in memory.
    pub topic_hits: u64,
    /// Topics that had to be asked for.
    pub topic_misses: u64,
    /// Topics forgotten for want of room.
    pub topic_evictions: u64,
    /// Bytes of publishes under way now.
    pub publish_bytes: u64,
    /// Most bytes of publishes under way.
    pub publish_bytes_max: u64,
    /// Publish frames sent.
    pub publish_frames: u64,
    /// Record batches in them.
    pub publish_batches: u64,
    /// Cluster maps read.
    pub map_refreshes: u64,
    /// Attempts that were repeated.
    pub retries: u64,
}

impl std::fmt::Debug for Storage {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Storage").field("config", &self.inner.config).finish_non_exhaustive()
    }
}

impl Storage {
    /// Starts; nothing is asked of any node before the first request or [`Storage::connect`]. Must be used
    /// within a tokio runtime.
    #[must_use]
    pub fn new(config: StorageConfig, dial: Arc<dyn Dial>) -> Self {
        let router = Arc::new(Router::new(config.clone(), dial));
        let permits = config.publish_bytes_max.min(Semaphore::MAX_PERMITS);
        let topics = Arc::new(Mutex::new(TopicCache::new(config.topics_max)));
        Self {
            inner: Arc::new(Inner {
                config,
                router,
                topics,
                lanes: Mutex::default(),
                publish_bytes: Arc::new(Semaphore::new(permits)),
                lane_counters: Arc::default(),
                topic_hits: AtomicU64::new(0),
                topic_misses: AtomicU64::new(0),
                topic_evictions: AtomicU64::new(0),
            }),
        }
    }

    /// Starts to connect, so that the log says at once who cannot be reached. Must be called within a tokio runtime.
    pub fn connect(&self) {
        self.inner.router.connect();
    }

    /// Waits until a cluster map is known and a node of it is connected: the gateway is ready.
    ///
    /// # Errors
    /// `unavailable` if no node was there by `deadline`.
    pub async fn ready(&self, deadline: Instant) -> Result<(), Failure> {
        self.inner.router.reachable(deadline).await
    }

    /// Closes the connections to all nodes: whoever stops leaves before they do. What is asked from now on is
    /// refused as `unavailable`.
    pub fn close(&self) {
        self.inner.router.close();
    }

    /// Waits until something is known of storage, which may not be reached by now.
    ///
    /// # Errors
    /// `unavailable` if nothing was by `deadline`.
    pub async fn known(&self, deadline: Instant) -> Result<(), Failure> {
        self.inner.router.known_view(deadline).await.map(drop)
    }

    /// What whoever looks after storage should know now, in words.
    ///
    /// # Errors
    /// `unavailable` if no node says so by `deadline`.
    pub async fn warnings(&self, deadline: Instant) -> Result<Vec<String>, Failure> {
        let router = &self.inner.router;
        // An error: it took too long.
        let asked = tokio::time::timeout_at(deadline, router.refresh(Instant::now())).await;
        asked.map_err(|_| unavailable("no storage node answers with a cluster map"))??;
        Ok(router.view().warnings().to_vec())
    }

    /// Highest level that storage confirms at; quorum while nothing is known of it.
    #[must_use]
    pub fn level_max(&self) -> Level {
        match self.inner.router.view().level_max() {
            Level::Unset => Level::Quorum,
            known => known,
        }
    }

    /// What is counted.
    #[must_use]
    pub fn metrics(&self) -> StorageMetrics {
        let inner = &*self.inner;
        let free = inner.publish_bytes.available_permits() as u64;
        let publish_bytes_max = inner.config.publish_bytes_max as u64;
        StorageMetrics {
            topics: inner.topics.lock().len() as u64,
            topics_max: inner.config.topics_max as u64,
            topic_hits: inner.topic_hits.load(Ordering::Relaxed),
            topic_misses: inner.topic_misses.load(Ordering::Relaxed),
            topic_evictions: inner.topic_evictions.load(Ordering::Relaxed),
            publish_bytes: publish_bytes_max.saturating_sub(free),
            publish_bytes_max,
            publish_frames: inner.lane_counters.frames.load(Ordering::Relaxed),
            publish_batches: inner.lane_counters.batches.load(Ordering::Relaxed),
            map_refreshes: inner.router.refreshes.load(Ordering::Relaxed),
            retries: inner.router.retries.load(Ordering::Relaxed),
        }
    }

    /// Counters of the connections to storage nodes, all together.
    pub(crate) fn transport_metrics(&self) -> Arc<Metrics> {
        self.inner.router.transport_metrics()
    }

    /// Bytes of publishes that may be under way at once, and how many of them are free.
    pub(crate) fn publish_budget(&self) -> (u64, u64) {
        let max = self.inner.config.publish_bytes_max as u64;
        (max, self.inner.publish_bytes.available_permits() as u64)
    }

    /// The permits for the bytes of publishes under way, and how many there are.
    pub(crate) fn publish_permits(&self) -> (Arc<Semaphore>, u64) {
        let max = self.inner.config.publish_bytes_max.min(Semaphore::MAX_PERMITS);
        (Arc::clone(&self.inner.publish_bytes), max as u64)
    }

    /// When a request that starts now has failed.
    #[must_use]
    pub fn deadline(&self) -> Instant {
        Instant::now() + self.inner.config.request_deadline
    }

    /// Home shard of a topic.
    pub(crate) async fn home(&self, path: &TopicPath, deadline: Instant) -> Result<ShardId, Failure> {
        self.inner.router.home(path, deadline).await
    }

    /// All data shards.
    pub(crate) async fn data_shards(&self, deadline: Instant) -> Result<Vec<ShardId>, Failure> {
        Ok(self.inner.router.known_view(deadline).await?.data_shards().collect())
    }

    /// Calls a shard's leader with a message and reads the answer.
    pub(crate) async fn ask<Q: Message, A: Message + Default>(
        &self,
        call: CallFor,
        question: &Q,
    ) -> Result<A, Failure> {
        decode(self.send(call, vec![question.encode_to_vec().into()]).await?)
    }

    /// The same of a message that asks the leader to wait, if `waits`: it leaves places to calls that are answered
    /// at once.
    pub(crate) async fn ask_waiting<Q: Message, A: Message + Default>(
        &self,
        (call, waits): (CallFor, bool),
        question: &Q,
    ) -> Result<A, Failure> {
        decode(self.send_waiting((call, waits), vec![question.encode_to_vec().into()]).await?)
    }

    /// Calls a shard's leader.
    pub(crate) async fn send(&self, call: CallFor, segments: Vec<Bytes>) -> Result<Bytes, Failure> {
        self.send_waiting((call, false), segments).await
    }

    /// The same, as [`Storage::ask_waiting`] does.
    pub(crate) async fn send_waiting(
        &self,
        (call, waits): (CallFor, bool),
        segments: Vec<Bytes>,
    ) -> Result<Bytes, Failure> {
        // Without a map there is no leader to be found, however long the policy retries.
        self.inner.router.known_view(call.deadline).await?;
        self.inner.router.call(call, waits, segments).await
    }

    /// Starts one attempt of a call with several answers; its errors go to [`Storage::recover`].
    pub(crate) async fn stream(
        &self,
        shard: ShardId,
        method: Method,
        segments: Vec<Bytes>,
    ) -> Result<Answers, CallError> {
        self.inner.router.open(shard, method, segments).await
    }

    /// Starts counting attempts, which end at `deadline`.
    pub(crate) fn attempts(&self, deadline: Instant) -> Attempts {
        self.inner.router.attempts(deadline)
    }

    /// Does what the retry policy says after `error` of a repeatable call; its error is the answer.
    pub(crate) async fn recover(
        &self,
        shard: ShardId,
        error: CallError,
        attempts: &mut Attempts,
    ) -> Result<(), Failure> {
        self.inner.router.recover(shard, error, Safety::Repeatable, attempts).await
    }

    /// A topic, from memory or from its home shard.
    pub(crate) async fn topic(&self, path: &TopicPath, deadline: Instant) -> Result<Arc<Topic>, Failure> {
        if let Some(topic) = self.inner.topics.lock().get(path) {
            self.inner.topic_hits.fetch_add(1, Ordering::Relaxed);
            return Ok(topic);
        }
        self.describe(path, deadline).await
    }

    /// A topic, if it is in memory.
    pub(crate) fn cached(&self, path: &TopicPath) -> Option<Arc<Topic>> {
        self.inner.topics.lock().get(path)
    }

    /// A topic as its home shard knows it now.
    pub(crate) async fn describe(&self, path: &TopicPath, deadline: Instant) -> Result<Arc<Topic>, Failure> {
        self.inner.topic_misses.fetch_add(1, Ordering::Relaxed);
        let call = CallFor {
            shard: self.home(path, deadline).await?,
            method: Method::DescribeTopic,
            safety: Safety::Repeatable,
            deadline,
        };
        let described: TopicDescription =
            self.ask(call, &DescribeTopicRequest { name: Some(path.into()) }).await?;
        self.remember(described)
    }

    /// A description that a node gave, from now on used for requests.
    pub(crate) fn remember(&self, described: TopicDescription) -> Result<Arc<Topic>, Failure> {
        let topic = Topic::try_from(described)?;
        let mut topics = self.inner.topics.lock();
        // Everybody who follows it holds it: once for all of them.
        if let Some(known) = topics.get(&topic.path).filter(|known| **known == topic) {
            return Ok(known);
        }
        let topic = topics.shared(topic);
        let evicted = topics.put(Arc::clone(&topic));
        drop(topics);
        self.inner.topic_evictions.fetch_add(evicted as u64, Ordering::Relaxed);
        Ok(topic)
    }

    /// What was known of a topic turned out to be old.
    pub(crate) fn forget(&self, path: &TopicPath, old: (Incarnation, ConfigVersion)) {
        self.inner.topics.lock().forget(path, old);
    }

    /// The publish lane of a shard.
    pub(crate) fn lane(&self, shard: ShardId) -> Lane {
        let inner = &self.inner;
        let mut lanes = inner.lanes.lock();
        let start = || {
            let context = LaneContext {
                router: Arc::clone(&inner.router),
                topics: Arc::clone(&inner.topics),
                counters: Arc::clone(&inner.lane_counters),
                frames_max: inner.config.publish_frames_max,
            };
            LaneOwner::start(shard, context)
        };
        lanes.entry(shard).or_insert_with(start).lane.clone()
    }

    /// Takes `bytes` of the publish budget, until the permit is dropped.
    ///
    /// # Errors
    /// `busy`, before anything was queued.
    pub(crate) fn publish_permit(&self, bytes: usize) -> Result<OwnedSemaphorePermit, Failure> {
        let wanted = u32::try_from(bytes).unwrap_or(u32::MAX);
        Arc::clone(&self.inner.publish_bytes).try_acquire_many_owned(wanted).map_err(|_| {
            let limit = self.inner.config.publish_bytes_max as u64;
            Failure::new(ErrorCode::Busy, format!("{limit} bytes are waiting to be committed"))
                .with_limit(limit)
                .with_retry_after_ms(50)
        })
    }
}
