//! The way to storage: which shard a topic is at home in, calls to its leader, and publishes that share frames.

use std::collections::HashMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::{Notify, OnceCell, Semaphore, oneshot};
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{ShardId, TopicPath};
use weir_protocol::rpc::{
    ClusterMap, ClusterMapRequest, Method, PublishAnswer, PublishItem, PublishRequest, PublishResult,
    Refusal, Stages, encode_packet,
};
use weir_protocol::slots::slot_of;
use weir_transport::{Answers, CallError, Link, LinkConfig, Priority, TcpConnect};

/// How long storage may take to answer, beyond what a caller asked to wait.
pub(crate) const ANSWER_TIME_MAX: Duration = Duration::from_secs(15);
/// Bytes of batches that share a frame.
const FRAME_BYTES_TARGET: usize = 1 << 20;
/// Items that share a frame.
const FRAME_ITEMS_MAX: usize = 512;
/// Frames of one lane in flight: enough that the next is built while the node commits.
const FRAMES_IN_FLIGHT: usize = 8;
/// Bytes of publishes that wait or are in flight, all shards together; beyond it publishes are refused.
const PUBLISH_BYTES_MAX: usize = 64 << 20;

/// What became of one publish.
pub(crate) type PublishOutcome = Result<(PublishResult, Stages), Refusal>;

/// One batch on its way.
struct Pending {
    item: PublishItem,
    batch: Bytes,
    levels: u32,
    answer: oneshot::Sender<PublishOutcome>,
}

/// Publishes for one shard that wait together share a frame. No timer: the lane takes what is there when it wakes.
struct Lane {
    shard: ShardId,
    waiting: Mutex<Vec<Pending>>,
    wake: Notify,
}

/// Storage, as gateways reach it. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Storage {
    inner: Arc<Inner>,
}

struct Inner {
    link: Link,
    map: OnceCell<ClusterMap>,
    lanes: Mutex<HashMap<ShardId, Arc<Lane>>>,
    budget: Arc<Semaphore>,
}

/// A failed call as a refusal with an honest outcome.
fn refusal(error: CallError) -> Refusal {
    match error {
        CallError::Refused(refusal) => refusal,
        CallError::NotSent(why) => Refusal {
            retry_after_ms: Some(500),
            ..Refusal::new(ErrorCode::Unavailable, format!("storage cannot be reached: {why}"))
        },
        CallError::Unknown | CallError::Deadline => {
            Refusal::new(ErrorCode::OutcomeUnknown, error.to_string()).with_outcome(Outcome::Unknown)
        }
    }
}

impl Storage {
    /// Starts connecting to the node at `address`. Must be called within a tokio runtime.
    #[must_use]
    pub(crate) fn new(address: String) -> Self {
        let config = LinkConfig::new(Priority::Bulk, LinkConfig::gateway_hello());
        let link = Link::new(config, Arc::new(TcpConnect { address, tls: None }));
        let inner = Inner {
            link,
            map: OnceCell::new(),
            lanes: Mutex::new(HashMap::new()),
            budget: Arc::new(Semaphore::new(PUBLISH_BYTES_MAX)),
        };
        Self { inner: Arc::new(inner) }
    }

    /// The cluster map, asked for once.
    ///
    /// # Errors
    /// `unavailable` while storage cannot be reached.
    pub(crate) async fn map(&self) -> Result<&ClusterMap, Refusal> {
        let load = || async {
            self.call(Method::ClusterMap, ShardId::META, &ClusterMapRequest {}, Duration::ZERO).await
        };
        self.inner.map.get_or_try_init(load).await
    }

    /// The shard a topic is at home in.
    ///
    /// # Errors
    /// As [`Storage::map`].
    pub(crate) async fn home_of(&self, path: &TopicPath) -> Result<ShardId, Refusal> {
        let slot = u32::from(slot_of(path).0);
        let run = self.map().await?.slots.iter().find(|run| run.start <= slot && slot < run.end).copied();
        run.map(|run| ShardId(run.shard))
            .ok_or_else(|| Refusal::new(ErrorCode::Unavailable, "no shard has this slot"))
    }

    /// Calls a method with one answer. `wait` is added to the deadline: what the caller asked to wait for.
    ///
    /// # Errors
    /// The node's refusal, or what is known of a call without an answer.
    pub(crate) async fn call<A: Message + Default>(
        &self,
        method: Method,
        shard: ShardId,
        message: &impl Message,
        wait: Duration,
    ) -> Result<A, Refusal> {
        let answer = self.call_raw(method, shard, message, wait).await?;
        A::decode(answer).map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))
    }

    /// As [`Storage::call`], for answers that carry batches.
    ///
    /// # Errors
    /// As [`Storage::call`].
    pub(crate) async fn call_raw(
        &self,
        method: Method,
        shard: ShardId,
        message: &impl Message,
        wait: Duration,
    ) -> Result<Bytes, Refusal> {
        let body = vec![Bytes::from(message.encode_to_vec())];
        self.inner.link.call(method, shard, body, ANSWER_TIME_MAX + wait).await.map_err(refusal)
    }

    /// Opens a stream of answers.
    ///
    /// # Errors
    /// `unavailable` while storage cannot be reached.
    pub(crate) async fn open(
        &self,
        method: Method,
        shard: ShardId,
        message: &impl Message,
    ) -> Result<Answers, Refusal> {
        let body = vec![Bytes::from(message.encode_to_vec())];
        self.inner.link.open(method, shard, body).await.map_err(refusal)
    }

    /// Publishes one batch; it shares a frame with others that wait for the same shard.
    ///
    /// # Errors
    /// `busy` before anything was queued; else what the node said, or `outcome_unknown`.
    ///
    /// # Cancel safety
    /// If it is dropped, the batch may still be published.
    pub(crate) async fn publish(
        &self,
        shard: ShardId,
        item: PublishItem,
        batch: Bytes,
        levels: u32,
    ) -> PublishOutcome {
        let bytes = u32::try_from(batch.len()).unwrap_or(u32::MAX);
        let Ok(_permit) = Arc::clone(&self.inner.budget).try_acquire_many_owned(bytes) else {
            let detail = format!("{PUBLISH_BYTES_MAX} bytes of publishes are on their way");
            return Err(Refusal { retry_after_ms: Some(100), ..Refusal::new(ErrorCode::Busy, detail) });
        };
        let (answer, answered) = oneshot::channel();
        let lane = self.lane(shard);
        lane.waiting.lock().push(Pending { item, batch, levels, answer });
        lane.wake.notify_one();
        let lost = || Refusal::new(ErrorCode::OutcomeUnknown, "the gateway is shutting down");
        answered.await.unwrap_or_else(|_| Err(lost().with_outcome(Outcome::Unknown)))
    }

    fn lane(&self, shard: ShardId) -> Arc<Lane> {
        let mut lanes = self.inner.lanes.lock();
        let made = lanes.entry(shard).or_insert_with(|| {
            let lane = Arc::new(Lane { shard, waiting: Mutex::default(), wake: Notify::new() });
            tokio::spawn(run_lane(self.inner.link.clone(), Arc::clone(&lane)));
            lane
        });
        Arc::clone(made)
    }
}

async fn run_lane(link: Link, lane: Arc<Lane>) {
    let places = Arc::new(Semaphore::new(FRAMES_IN_FLIGHT));
    loop {
        lane.wake.notified().await;
        let mut waiting = std::mem::take(&mut *lane.waiting.lock());
        while !waiting.is_empty() {
            let Ok(place) = Arc::clone(&places).acquire_owned().await else { return };
            // What came while all places were taken joins the same frame.
            waiting.append(&mut lane.waiting.lock());
            let frame = take_frame(&mut waiting);
            let (link, shard) = (link.clone(), lane.shard);
            tokio::spawn(async move {
                send_frame(&link, shard, frame).await;
                drop(place);
            });
        }
    }
}

/// Takes items of one set of levels, in order, up to a frame's size.
fn take_frame(waiting: &mut Vec<Pending>) -> Vec<Pending> {
    let levels = waiting[0].levels;
    let mut bytes = 0;
    let end = waiting.iter().take(FRAME_ITEMS_MAX).position(|pending| {
        bytes += pending.batch.len();
        pending.levels != levels || (bytes > FRAME_BYTES_TARGET && bytes > pending.batch.len())
    });
    let end = end.unwrap_or(waiting.len().min(FRAME_ITEMS_MAX)).max(1);
    let rest = waiting.split_off(end);
    std::mem::replace(waiting, rest)
}

async fn send_frame(link: &Link, shard: ShardId, frame: Vec<Pending>) {
    let levels = frame[0].levels;
    let (mut items, mut batches, mut answers) = (Vec::new(), Vec::new(), Vec::new());
    for pending in frame {
        items.push(pending.item);
        batches.push(pending.batch);
        answers.push(pending.answer);
    }
    let segments = encode_packet(&PublishRequest { levels, items }, batches);
    let answer = link.call(Method::Publish, shard, segments, ANSWER_TIME_MAX).await.map_err(refusal);
    let answer = answer.and_then(|bytes| {
        PublishAnswer::decode(bytes).map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))
    });
    match answer {
        Ok(answer) if answer.results.len() == answers.len() => {
            let stages = answer.stages.unwrap_or_default();
            for (waiting, result) in answers.into_iter().zip(answer.results) {
                // Who went away does not mind.
                let _ = waiting.send(Ok((result, stages)));
            }
        }
        Ok(_) => {
            let refusal =
                Refusal::new(ErrorCode::Internal, "the node answered for another number of batches");
            answers.into_iter().for_each(|waiting| drop(waiting.send(Err(refusal.clone()))));
        }
        Err(refusal) => answers.into_iter().for_each(|waiting| drop(waiting.send(Err(refusal.clone())))),
    }
}
