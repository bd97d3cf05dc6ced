//! The publish lane of one shard: whatever waits goes into one frame, several frames are in flight, no timer.
//!
//! Order is kept: frames are written in the order of their batches, and when some must be sent again, nothing new
//! is sent until all that is in flight has landed; what goes back to the queue takes its old place. So batches of
//! one producer arrive in their order, whatever fails.

use std::collections::{BTreeSet, HashMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use bytes::Bytes;
use futures_util::FutureExt as _;
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::Notify;
use tokio::time::{Instant, timeout_at};
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{ProducerKey, ShardId};
use weir_protocol::rpc::{
    Level, Method, Placed, PublishAnswer, PublishItem, PublishRequest, Stages, encode_packet,
};
use weir_transport::task_group::{self, GroupTask};
use weir_transport::{Answers, CallError};

use super::failure::Failure;
use super::retry::{Safety, Step, Verdict, judge, judge_refusal};
use super::router::{Attempts, Router};
use super::ticket::{Ticket, TripEnd};
use super::topic::Topic;
use super::topic_cache::TopicCache;
use crate::under_way::UnderWay;

/// A frame is full at this many bytes of batches; a larger batch has one of its own.
const FRAME_BYTES: usize = 1 << 20;
/// A frame is full at this many batches.
const FRAME_ITEMS: usize = 2_048;
/// Corrected configuration versions remembered; then all are forgotten and learnt again.
const VERSIONS_MAX: usize = 1_024;

/// A batch on its way.
#[derive(Debug)]
pub(crate) struct LaneItem {
    /// The topic as the sender knew it; forgotten by the gateway if that turns out to be old.
    pub(crate) topic: Option<Arc<Topic>>,
    /// What goes into the frame's message.
    pub(crate) item: PublishItem,
    /// The batch.
    pub(crate) batch: Bytes,
    /// Set of level bits that the ticket is answered at; 0: it is only sent.
    pub(crate) levels: u32,
    /// Whether it may be sent twice.
    pub(crate) safety: Safety,
    /// Its producer.
    pub(crate) producer: ProducerKey,
    /// Not sent after this.
    pub(crate) deadline: Instant,
    /// Who waits, and the batch's bytes of the gateway's budget.
    pub(crate) ticket: Ticket,
}

#[derive(Debug)]
struct Queued {
    number: u64,
    entry: LaneItem,
}

#[derive(Debug, Default)]
struct Queue {
    items: VecDeque<Queued>,
    next_number: u64,
}

#[derive(Debug, Default)]
struct Shared {
    /// Held for pushes and pops only.
    queue: Mutex<Queue>,
    wake: Notify,
}

/// Counts of one gateway's lanes.
#[derive(Debug, Default)]
pub(super) struct LaneCounters {
    pub(super) frames: AtomicU64,
    pub(super) batches: AtomicU64,
}

/// What a lane shares with the rest of the gateway.
#[derive(Clone)]
pub(super) struct LaneContext {
    pub(super) router: Arc<Router>,
    pub(super) topics: Arc<Mutex<TopicCache>>,
    pub(super) counters: Arc<LaneCounters>,
    /// Frames in flight, at least 1.
    pub(super) frames_max: usize,
}

/// Handle to a shard's lane.
#[derive(Debug, Clone)]
pub(crate) struct Lane(Arc<Shared>);

/// The lane and its task, which ends with it.
pub(super) struct LaneOwner {
    pub(super) lane: Lane,
    task: GroupTask<()>,
}

impl Drop for LaneOwner {
    fn drop(&mut self) {
        self.task.abort();
    }
}

impl LaneOwner {
    /// Starts the lane of `shard`, beside the shard if that is in this process. Must be called within a tokio runtime.
    pub(super) fn start(shard: ShardId, context: LaneContext) -> Self {
        let shared = Arc::new(Shared::default());
        let lane = Lane(Arc::clone(&shared));
        let attempts = context.router.attempts(far_future());
        let router = Arc::clone(&context.router);
        let runner = Runner {
            shard,
            context,
            shared,
            attempts,
            stall: None,
            retry: Vec::new(),
            in_flight: BTreeSet::new(),
            gaps: Vec::new(),
            versions: HashMap::new(),
        };
        let task = router.beside(shard, || task_group::spawn(runner.run()));
        Self { lane, task }
    }
}

impl Lane {
    /// Queues batches, together and in this order. Never waits: their permits were taken before.
    pub(crate) fn push(&self, items: impl IntoIterator<Item = LaneItem>) {
        {
            let mut queue = self.0.queue.lock();
            for entry in items {
                let number = queue.next_number;
                queue.next_number += 1;
                queue.items.push_back(Queued { number, entry });
            }
        }
        self.0.wake.notify_one();
    }
}

struct Runner {
    shard: ShardId,
    context: LaneContext,
    shared: Arc<Shared>,
    attempts: Attempts,
    /// What must be done before anything is sent again.
    stall: Option<Step>,
    /// What goes back to the queue once nothing is in flight.
    retry: Vec<Queued>,
    /// The first batch of each frame in flight.
    in_flight: BTreeSet<u64>,
    /// Refused for a gap, and a frame before theirs has not landed.
    gaps: Vec<(Queued, Failure)>,
    /// Configuration versions that nodes named: what was queued with an older one is sent with this.
    versions: HashMap<u64, u32>,
}

impl Runner {
    async fn run(mut self) {
        let mut flying = UnderWay::default();
        loop {
            if flying.is_empty()
                && let Some(step) = self.stall.take()
            {
                self.requeue();
                // Items past their deadline are answered when they are taken.
                self.context.router.step(self.shard, step, &mut self.attempts).await;
            }
            if !flying.is_empty() && !self.shared.queue.lock().items.is_empty() {
                // Whoever else is about to send shares the next frame. A lone batch waits for nobody.
                tokio::task::yield_now().await;
            }
            while self.stall.is_none()
                && flying.len() < self.context.frames_max.max(1)
                && let Some(frame) = take_frame(&self.shared)
            {
                let first = frame.first().map_or(0, |queued| queued.number);
                self.in_flight.insert(first);
                // Awaited here, one after the other, because that keeps the order of frames on the connection.
                match self.launch(frame).await {
                    Ok(flight) => flying.push(flight.land().map(move |landed| (first, landed))),
                    Err((items, error)) => {
                        let landed = fail_all(items, &error);
                        self.landed(first, landed);
                    }
                }
            }
            if self.stall.is_some() && flying.is_empty() {
                continue;
            }
            tokio::select! {
                biased;
                Some((first, landed)) = flying.next() => self.landed(first, landed),
                () = self.shared.wake.notified() => {}
            }
        }
    }

    async fn launch(&self, mut items: Vec<Queued>) -> Result<Flight, (Vec<Queued>, CallError)> {
        if !self.versions.is_empty() {
            items.iter_mut().for_each(|queued| self.correct(&mut queued.entry.item));
        }
        let levels = items.iter().fold(0, |levels, queued| levels | queued.entry.levels);
        let request =
            PublishRequest { levels, items: items.iter().map(|queued| queued.entry.item.clone()).collect() };
        let segments = encode_packet(&request, items.iter().map(|queued| queued.entry.batch.clone()));
        let deadline = items.iter().map(|queued| queued.entry.deadline).max().unwrap_or_else(Instant::now);
        let written = Instant::now();
        let opening = self.context.router.open(self.shard, Method::Publish, segments);
        let opened = match timeout_at(deadline, opening).await {
            Ok(opened) => opened,
            Err(_) => Err(CallError::NotSent(weir_transport::NotSent::Connecting)),
        };
        match opened {
            Err(error) => Err((items, error)),
            Ok(answers) => {
                items.iter_mut().for_each(|queued| queued.entry.ticket.sent());
                self.context.counters.frames.fetch_add(1, Ordering::Relaxed);
                self.context.counters.batches.fetch_add(items.len() as u64, Ordering::Relaxed);
                Ok(Flight { items: items.into_iter().map(Some).collect(), answers, written, deadline })
            }
        }
    }

    fn correct(&self, item: &mut PublishItem) {
        if let Some(&version) = self.versions.get(&item.incarnation) {
            item.config_version = item.config_version.max(version);
        }
    }

    /// Others shall not start from what this batch started from.
    fn learn(&mut self, queued: &Queued, version: u32) {
        if let Some(topic) = &queued.entry.topic {
            self.context.topics.lock().forget(&topic.path, (topic.incarnation, topic.version));
        }
        if self.versions.len() >= VERSIONS_MAX {
            self.versions.clear();
        }
        self.versions.insert(queued.entry.item.incarnation, version);
    }

    /// The frame that began with batch `first` is over.
    fn landed(&mut self, first: u64, landed: Landed) {
        self.in_flight.remove(&first);
        if landed.step.is_none() && landed.delivered {
            self.attempts = self.context.router.attempts(far_future());
        }
        let mut again = landed.again;
        for (queued, version) in landed.stale {
            self.learn(&queued, version);
            again.push(queued);
        }
        self.gaps.extend(landed.gaps);
        // A gap behind a batch that is about to be sent again is no gap: it follows its predecessor. What is
        // in a frame before may be about to, though that lands later: another batch of it waits for its
        // answer.
        let oldest = self.in_flight.first().copied().unwrap_or(u64::MAX);
        let (mut told, early) =
            std::mem::take(&mut self.gaps).into_iter().partition::<Vec<_>, _>(|(it, _)| it.number < oldest);
        self.gaps = early;
        told.sort_unstable_by_key(|(queued, _)| queued.number);
        for (queued, failure) in told {
            let follows =
                |earlier: &Queued| earlier.number < queued.number && same_producer(earlier, &queued);
            if self.retry.iter().chain(&again).any(follows) {
                again.push(queued);
            } else {
                queued.entry.ticket.failed(failure);
            }
        }
        again.iter_mut().for_each(|queued| queued.entry.ticket.returned());
        if let Some(step) = landed.step {
            self.stall = Some(step);
        } else if !again.is_empty() {
            self.stall = self.stall.or(Some(Step::Pause));
        }
        self.retry.append(&mut again);
    }

    fn requeue(&mut self) {
        self.retry.sort_unstable_by_key(|queued| queued.number);
        let mut queue = self.shared.queue.lock();
        for queued in self.retry.drain(..).rev() {
            queue.items.push_front(queued);
        }
    }
}

fn same_producer(a: &Queued, b: &Queued) -> bool {
    let of =
        |queued: &Queued| (queued.entry.item.incarnation, queued.entry.item.partition, queued.entry.producer);
    !b.entry.producer.is_none() && of(a) == of(b)
}

/// Takes what waits, up to the limits of a frame; answers what waited too long. `None`: nothing waits.
fn take_frame(shared: &Shared) -> Option<Vec<Queued>> {
    let (mut taken, mut expired, mut bytes) = (Vec::new(), Vec::new(), 0);
    let now = Instant::now();
    {
        let mut queue = shared.queue.lock();
        while let Some(first) = queue.items.front() {
            let batch = first.entry.batch.len();
            let is_full = taken.len() == FRAME_ITEMS || bytes + batch > FRAME_BYTES;
            if is_full && !taken.is_empty() {
                break;
            }
            let Some(queued) = queue.items.pop_front() else { break };
            if queued.entry.deadline <= now {
                expired.push(queued);
            } else {
                bytes += batch;
                taken.push(queued);
            }
        }
    }
    for queued in expired {
        let failure = Failure::new(ErrorCode::Unavailable, "no leader was reached in time");
        queued.entry.ticket.failed(failure.with_retry_after_ms(500));
    }
    (!taken.is_empty()).then_some(taken)
}

/// A frame in flight.
struct Flight {
    /// Taken out as they are over.
    items: Vec<Option<Queued>>,
    answers: Answers,
    written: Instant,
    deadline: Instant,
}

/// What is left of a frame.
#[derive(Default)]
struct Landed {
    again: Vec<Queued>,
    /// Refused for a gap in their producer's numbers.
    gaps: Vec<(Queued, Failure)>,
    /// Sent with an older configuration than this version.
    stale: Vec<(Queued, u32)>,
    step: Option<Step>,
    /// At least one batch was accepted.
    delivered: bool,
}

impl Flight {
    async fn land(mut self) -> Landed {
        let mut landed = Landed::default();
        loop {
            let answer = match timeout_at(self.deadline, self.answers.next()).await {
                Err(_) => Some(Err(CallError::Deadline)),
                Ok(answer) => answer,
            };
            match answer {
                Some(Ok(body)) => match PublishAnswer::decode(body) {
                    Ok(answer) if answer.results.len() == self.items.len() => {
                        self.take(answer, &mut landed);
                    }
                    _ => return self.give_up("not one result per batch", landed),
                },
                Some(Err(error)) => {
                    let left: Vec<_> = self.items.drain(..).flatten().collect();
                    let failed = fail_all(left, &error);
                    landed.again.extend(failed.again);
                    landed.stale.extend(failed.stale);
                    landed.step = landed.step.or(failed.step);
                    return landed;
                }
                None => return self.give_up("it ended before all levels", landed),
            }
            if self.items.iter().all(Option::is_none) {
                return landed;
            }
        }
    }

    fn take(&mut self, answer: PublishAnswer, landed: &mut Landed) {
        let (level, stages) = (answer.level(), answer.stages);
        let round_trip = self.written.elapsed();
        for (place, result) in self.items.iter_mut().zip(answer.results) {
            let Some(queued) = place else { continue };
            match (result.placed, result.refused) {
                (Some(placed), None) => {
                    landed.delivered = true;
                    if confirm(queued, Reached { level, placed, stages, round_trip }) {
                        *place = None;
                    }
                }
                (None, Some(refusal)) => {
                    let Some(queued) = place.take() else { continue };
                    refuse(queued, refusal, landed);
                }
                _ => {
                    let Some(queued) = place.take() else { continue };
                    queued
                        .entry
                        .ticket
                        .failed(Failure::bad_answer("neither placed nor refused", Outcome::Unknown));
                }
            }
        }
    }

    fn give_up(self, why: &str, landed: Landed) -> Landed {
        for queued in self.items.into_iter().flatten() {
            // A batch that nobody waits for is only sent.
            if queued.entry.levels != 0 {
                queued.entry.ticket.failed(Failure::bad_answer(why, Outcome::Unknown));
            }
        }
        landed
    }
}

struct Reached {
    level: Level,
    placed: Placed,
    stages: Option<Stages>,
    round_trip: Duration,
}

/// Tells who waits; true if nothing more will be told.
fn confirm(queued: &mut Queued, reached: Reached) -> bool {
    let wanted = queued.entry.levels;
    let is_last = wanted >> (reached.level as u32 + 1) == 0;
    if wanted & reached.level.bit() != 0 || (is_last && wanted == 0) {
        let end = TripEnd { round_trip: reached.round_trip, is_last };
        queued.entry.ticket.reached(reached.level, reached.placed, reached.stages, end);
    }
    is_last
}

fn refuse(queued: Queued, refusal: weir_protocol::rpc::Refusal, landed: &mut Landed) {
    let is_gap = refusal.error_code() == ErrorCode::ProducerGap;
    match judge_refusal(refusal) {
        Verdict::Again(step, _) => {
            landed.step = Some(step);
            landed.again.push(queued);
        }
        Verdict::Final(failure) if is_gap => landed.gaps.push((queued, failure)),
        Verdict::Final(failure) => queued.entry.ticket.failed(failure),
    }
}

/// A topic's configuration that a node knows and the sender did not.
#[derive(Clone, Copy)]
struct Newer {
    incarnation: u64,
    version: u32,
}

impl Newer {
    fn is_of(self, item: &PublishItem) -> bool {
        item.incarnation == self.incarnation && item.config_version < self.version
    }
}

fn newer_configuration(error: &CallError) -> Option<Newer> {
    let CallError::Refused(refusal) = error else { return None };
    let is_stale = refusal.error_code() == ErrorCode::ConfigStale;
    let (incarnation, version) = (refusal.incarnation?, refusal.config_version?);
    is_stale.then_some(Newer { incarnation, version })
}

/// The whole frame failed.
fn fail_all(items: Vec<Queued>, error: &CallError) -> Landed {
    let mut landed = Landed::default();
    if let Some(newer) = newer_configuration(error)
        && items.iter().any(|queued| newer.is_of(&queued.entry.item))
    {
        // Refused for one topic's sake: what came with it is sent again as it is.
        let (stale, others): (Vec<_>, Vec<_>) =
            items.into_iter().partition(|queued| newer.is_of(&queued.entry.item));
        landed.stale = stale.into_iter().map(|queued| (queued, newer.version)).collect();
        landed.again = others;
        return landed;
    }
    for mut queued in items {
        if error.is_unanswered() {
            queued.entry.ticket.lost();
        }
        match judge(error.clone(), queued.entry.safety) {
            Verdict::Again(step, failure) => {
                landed.step = Some(step);
                if queued.entry.deadline <= Instant::now() {
                    queued.entry.ticket.failed(failure);
                } else {
                    landed.again.push(queued);
                }
            }
            Verdict::Final(failure) => queued.entry.ticket.failed(failure),
        }
    }
    landed
}

/// A lane itself never gives up; its batches do, each at its own deadline.
fn far_future() -> Instant {
    Instant::now() + Duration::from_secs(30 * 365 * 24 * 3600)
}

#[cfg(test)]
mod tests;
