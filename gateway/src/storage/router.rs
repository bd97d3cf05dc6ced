//! Calls to the leader of a shard, tried again as the retry policy says.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use parking_lot::RwLock;
use prost::Message;
use tokio::time::{Instant, sleep_until};
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{ShardId, TopicPath};
use weir_protocol::rpc::{ClusterMap, ClusterMapRequest, Hello, Method};
use weir_transport::{Answers, CallError, Link, LinkConfig, Metrics, NotSent, Priority};

use super::config::StorageConfig;
use super::failure::Failure;
use super::links::{Dial, Links};
pub use super::retry::Safety;
use super::retry::{Pauses, Step, Verdict, judge, unavailable};
use super::stay::Stay;
use super::view::View;

/// Which call, and how long it may be tried.
#[derive(Debug, Clone, Copy)]
pub(crate) struct CallFor {
    /// Shard whose leader is meant.
    pub(crate) shard: ShardId,
    /// What is asked.
    pub(crate) method: Method,
    /// Whether it may be made twice.
    pub(crate) safety: Safety,
    /// Then it has failed.
    pub(crate) deadline: Instant,
}

/// What one request has tried so far.
#[derive(Debug)]
pub(crate) struct Attempts {
    pauses: Pauses,
    hints: u32,
    deadline: Instant,
    /// An attempt was not answered: it may have taken effect, whatever later ones say.
    is_unsure: bool,
}

/// Finds leaders and talks to them.
pub(super) struct Router {
    config: StorageConfig,
    links: Links,
    /// Replaced whole; the lock is held for a clone of the `Arc` only.
    view: RwLock<Arc<View>>,
    /// When the map was last read; held while it is being read, so that a crowd asks once.
    refreshed: tokio::sync::Mutex<Option<Instant>>,
    pub(super) refreshes: AtomicU64,
    pub(super) retries: AtomicU64,
}

impl Router {
    /// Counters of all links together.
    pub(super) fn transport_metrics(&self) -> Arc<Metrics> {
        Arc::clone(&self.links.metrics)
    }

    pub(super) fn new(config: StorageConfig, dial: Arc<dyn Dial>) -> Self {
        let hello = Hello { credential: config.credential.clone(), ..LinkConfig::gateway_hello() };
        Self {
            config,
            links: Links::new(dial, hello),
            view: RwLock::default(),
            refreshed: tokio::sync::Mutex::default(),
            refreshes: AtomicU64::new(0),
            retries: AtomicU64::new(0),
        }
    }

    /// Starts counting attempts; they end at `deadline`.
    pub(super) fn attempts(&self, deadline: Instant) -> Attempts {
        let pauses = Pauses::new(self.config.pause_min, self.config.pause_max);
        Attempts { pauses, hints: 0, deadline, is_unsure: false }
    }

    /// The cluster as known now.
    pub(super) fn view(&self) -> Arc<View> {
        Arc::clone(&self.view.read())
    }

    /// The cluster, asked for if nothing is known of it yet.
    pub(super) async fn known_view(&self, deadline: Instant) -> Result<Arc<View>, Failure> {
        let mut attempts = self.attempts(deadline);
        loop {
            let view = self.view();
            if view.is_known() {
                return Ok(view);
            }
            if self.refresh(Instant::now()).await.is_err() && !self.pause(&mut attempts).await {
                return Err(unavailable("no storage node answers with a cluster map"));
            }
        }
    }

    /// Starts to connect to the configured nodes, if they are not connected.
    pub(super) fn connect(&self) {
        for address in &self.config.nodes {
            let _ = self.links.to(address, Priority::Control);
        }
    }

    /// Waits until a node of the known cluster is connected. A map alone does not say that: it outlives its nodes.
    pub(super) async fn reachable(&self, deadline: Instant) -> Result<(), Failure> {
        let mut attempts = self.attempts(deadline);
        loop {
            let view = self.known_view(deadline).await?;
            for link in view.addresses().filter_map(|address| self.links.to(address, Priority::Control)) {
                let left = deadline.saturating_duration_since(Instant::now());
                if link.connected(left).await.is_ok() {
                    return Ok(());
                }
            }
            if !self.pause(&mut attempts).await {
                return Err(unavailable("no storage node is connected"));
            }
        }
    }

    /// Home shard of a topic.
    pub(super) async fn home(&self, path: &TopicPath, deadline: Instant) -> Result<ShardId, Failure> {
        let view = self.known_view(deadline).await?;
        Ok(view.home(path).expect("a known view places every slot"))
    }

    /// Calls, until it is answered, refused for good, or the deadline is over. `waits`: the node is asked to wait.
    pub(super) async fn call(
        &self,
        call: CallFor,
        waits: bool,
        segments: Vec<Bytes>,
    ) -> Result<Bytes, Failure> {
        let stay = Stay::of_call(call.method, waits);
        let mut attempts = self.attempts(call.deadline);
        loop {
            let error = match self.link(call.shard, stay) {
                None => no_leader(),
                Some(link) => {
                    let left = call.deadline.saturating_duration_since(Instant::now());
                    match link.call(call.method, call.shard, segments.clone(), left).await {
                        Ok(answer) => return Ok(answer),
                        Err(error) => error,
                    }
                }
            };
            self.recover(call.shard, error, call.safety, &mut attempts).await?;
        }
    }

    /// Starts one attempt of a call with several answers. Errors go to [`Router::recover`].
    pub(super) async fn open(
        &self,
        shard: ShardId,
        method: Method,
        segments: Vec<Bytes>,
    ) -> Result<Answers, CallError> {
        match self.link(shard, Stay::of_stream(method)) {
            None => Err(no_leader()),
            Some(link) => link.open(method, shard, segments).await,
        }
    }

    /// Does what must be done before the next attempt.
    ///
    /// # Errors
    /// The answer, if the error is final or the time is over.
    pub(super) async fn recover(
        &self,
        shard: ShardId,
        error: CallError,
        safety: Safety,
        attempts: &mut Attempts,
    ) -> Result<(), Failure> {
        attempts.is_unsure |= error.is_unanswered();
        let failure = match judge(error, safety) {
            Verdict::Final(failure) => failure,
            Verdict::Again(step, failure) => {
                if self.step(shard, step, attempts).await {
                    return Ok(());
                }
                failure
            }
        };
        let is_unsure = attempts.is_unsure && failure.effect() == Outcome::None;
        Err(if is_unsure { failure.with_outcome(Outcome::Unknown) } else { failure })
    }

    /// Takes a step; false if there is no time for another attempt.
    pub(super) async fn step(&self, shard: ShardId, step: Step, attempts: &mut Attempts) -> bool {
        self.retries.fetch_add(1, Ordering::Relaxed);
        if let Step::Leader(node) = step {
            Arc::make_mut(&mut *self.view.write()).set_leader(shard, node);
            attempts.hints += 1;
            // The first hint is followed at once; nodes that point at each other are given time to agree.
            if attempts.hints == 1 && self.view().leader_address(shard).is_some() {
                return Instant::now() < attempts.deadline;
            }
        }
        let asked = Instant::now();
        if !self.pause(attempts).await {
            return false;
        }
        if step != Step::Pause {
            // Without an answer the next attempt fails as this one did, and pauses again.
            let _ = self.refresh(asked).await;
        }
        true
    }

    /// Waits; false if there is no time left for it.
    async fn pause(&self, attempts: &mut Attempts) -> bool {
        let until = Instant::now() + attempts.pauses.take(rand::random());
        if until >= attempts.deadline {
            return false;
        }
        sleep_until(until).await;
        true
    }

    /// Reads the cluster map from whoever answers, unless that was done after `asked`.
    pub(super) async fn refresh(&self, asked: Instant) -> Result<(), Failure> {
        let mut refreshed = self.refreshed.lock().await;
        if refreshed.is_some_and(|at| at >= asked) {
            return Ok(());
        }
        let view = self.view();
        let known = view.addresses().map(str::to_owned);
        let mut addresses: Vec<_> = known.chain(self.config.nodes.iter().cloned()).collect();
        addresses.sort_unstable();
        addresses.dedup();
        for address in addresses {
            let started = Instant::now();
            match self.read_map(&address).await {
                Ok(view) => {
                    self.refreshes.fetch_add(1, Ordering::Relaxed);
                    let mut current = self.view.write();
                    if view.version() >= current.version() {
                        *current = Arc::new(view);
                    }
                    *refreshed = Some(started);
                    return Ok(());
                }
                Err(error) => tracing::debug!(%address, %error, "no cluster map"),
            }
        }
        Err(unavailable("no storage node answers with a cluster map"))
    }

    async fn read_map(&self, address: &str) -> Result<View, String> {
        let link = self.links.to(address, Priority::Control).ok_or("the links are closed")?;
        let segments = vec![Bytes::from(ClusterMapRequest {}.encode_to_vec())];
        let answer = link
            .call(Method::ClusterMap, ShardId::META, segments, self.config.map_deadline)
            .await
            .map_err(|error| error.to_string())?;
        let map = ClusterMap::decode(answer).map_err(|error| error.to_string())?;
        View::new(&map).map_err(|error| error.to_string())
    }

    fn link(&self, shard: ShardId, stay: Stay) -> Option<Link> {
        let view = self.view();
        let link = self.links.to_shard(view.leader_address(shard)?, shard)?;
        Some(if stay == Stay::Brief { link } else { link.leaving_places(stay.calls_max()) })
    }

    /// Runs what `start` spawns beside the tasks of `shard`, if they are in this process.
    pub(super) fn beside<T>(&self, shard: ShardId, start: impl FnOnce() -> T) -> T {
        match self.links.group(shard) {
            Some(group) => group.enter(start),
            None => start(),
        }
    }

    /// Leaves all nodes; what is called from now on finds none.
    pub(super) fn close(&self) {
        self.links.close();
    }
}

/// Judged as what it is: nothing was sent.
fn no_leader() -> CallError {
    CallError::NotSent(NotSent::Ended)
}

/// Reads an answer.
///
/// # Errors
/// `internal` if it is not an `M`.
pub(super) fn decode<M: Message + Default>(answer: Bytes) -> Result<M, Failure> {
    M::decode(answer)
        .map_err(|error| Failure::new(ErrorCode::Internal, format!("an answer cannot be read: {error}")))
}
