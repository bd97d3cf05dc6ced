//! Publishes, and says what became of it.

use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::time::{Duration, SystemTime, UNIX_EPOCH};

use futures_util::future::join_all;
use tokio::sync::{OwnedSemaphorePermit, mpsc};
use tokio::time::{Instant, timeout_at};
use weir_protocol::batch::BatchHeader;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{
    Epoch, Incarnation, Offset, PartitionId, ProducerKey, Seq, TimestampMs, TopicPath, hash128,
};
use weir_protocol::rpc::{
    ConfirmState, ConfirmStateRequest, IdempotencyKey, Level, Method, ProducerState, ProducerStateRequest,
    PublishItem, Refusal, Stages,
};
use weir_protocol::slots::partition_of;

use super::archivist::{Archivist, Ended, last_of};
use super::config::PublishConfig;
use super::plan::{Part, Placing, ProducerAt, plan};
use super::published::{Confirmed, Published, PublishedPart, Timing, is_old_duplicate};
use super::receipt::Receipt;
use super::request::{Content, Expected, Publish};
use crate::service::ServiceError;
use crate::service::topics::Topics;
use crate::storage::{CallFor, Confirm, LaneItem, Safety, Storage, Ticket, Topic};

/// How long after a batch's own deadline its lane is given to say so.
const GRACE: Duration = Duration::from_secs(2);
/// Attempts of a request whose topic is recreated while it is under way.
const ATTEMPTS: u32 = 3;

/// Publishes. Clones share the round robin of keyless records.
#[derive(Debug, Clone)]
pub struct Publisher {
    pub(super) storage: Storage,
    pub(super) topics: Topics,
    pub(super) config: PublishConfig,
    pub(super) archivist: Archivist,
    round_robin: Arc<AtomicU32>,
}

/// What has become of a receipt.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReceiptState {
    /// The level reached by now.
    pub level: Level,
    /// The record was lost with its leader: it does not exist.
    pub lost: bool,
    /// When it was accepted, if it exists.
    pub ts: Option<TimestampMs>,
}

/// A producer as one partition knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProducerPartition {
    /// The partition.
    pub partition: PartitionId,
    /// Its epoch.
    pub epoch: Epoch,
    /// Highest number accepted.
    pub last_seq: Seq,
    /// Offset of the record with that number.
    pub last_offset: Offset,
}

impl Publisher {
    pub(in crate::service) fn new(storage: Storage, topics: Topics, config: PublishConfig) -> Self {
        let archivist = Archivist::new(storage.clone());
        Self { storage, topics, config, archivist, round_robin: Arc::default() }
    }

    /// Answers who waits for a message to be archived with what it has reached, and lets nobody else wait: the
    /// gateway stops. Channels go on until they are closed.
    pub fn end_waits(&self) {
        self.archivist.end_waits();
    }

    /// Publishes and waits for the level asked for, or for the request's confirm deadline. Parts that were refused
    /// are in the answer.
    ///
    /// # Errors
    /// The request was refused as a whole, without effect: a topic that is not there is not created for it either.
    ///
    /// # Cancel safety
    /// If it is dropped after it was first polled, the outcome is unknown.
    pub async fn publish(&self, publish: Publish) -> Result<Published, ServiceError> {
        let patience = publish.confirm_deadline.unwrap_or_default();
        let deadline = self.storage.deadline().max(publish.received + patience);
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            let check = |topic: &Topic| self.check_unmade(topic, &publish);
            let topic = self.topics.known_or_created(&publish.topic, deadline, check).await?;
            let known = (topic.incarnation, topic.version);
            let published = self.publish_to(topic, &publish, deadline).await?;
            if attempts == 0 || !published.parts.iter().all(is_stale) {
                return Ok(published);
            }
            // Nothing was accepted: the topic was recreated since it was described. Start from what it is now.
            self.storage.forget(&publish.topic, known);
        }
    }

    async fn publish_to(
        &self,
        topic: Arc<Topic>,
        publish: &Publish,
        deadline: Instant,
    ) -> Result<Published, ServiceError> {
        let Planned { asked, parts, expected_end, idempotency, permits } = self.planned(&topic, publish)?;
        let mut request = InFlight::new(topic, parts, asked);
        let levels = wanted_levels(asked, publish.confirm_deadline.is_some());
        let (sender, answers) = mpsc::unbounded_channel();
        let is_safe = publish.producer.is_some() || idempotency.is_some();
        let safety = if is_safe { Safety::Repeatable } else { Safety::Once };
        self.send(&request, permits, &SendTo { levels, deadline, sender, safety, expected_end, idempotency });
        if asked > Level::None {
            let until = match publish.confirm_deadline {
                Some(patience) => (publish.received + patience).min(deadline + GRACE),
                None => deadline + GRACE,
            };
            request.collect(answers, until).await;
            if asked == Level::Archived {
                self.archive(&mut request, until).await;
            }
        }
        let may_answer_early = publish.confirm_deadline.is_some() || asked == Level::None;
        Ok(request.finish(publish.received, may_answer_early))
    }

    /// What a request comes to on a topic, and its places in the publish budget. Nothing is sent.
    fn planned(&self, topic: &Topic, publish: &Publish) -> Result<Planned, ServiceError> {
        let asked = level_of(topic, publish.confirm, self.storage.level_max())?;
        let placing = self.placing(topic, publish)?;
        let content_type = topic.config.content_type.as_deref();
        let parts = plan(&publish.content, content_type, placing, &self.config)?;
        let idempotency = idempotency_of(publish, parts.len())?;
        let expected_end = match publish.expected {
            Some(Expected::Any) if topic.is_unmade() => {
                let detail = format!("there is no topic {}", topic.path.topic);
                return Err(ServiceError::new(ErrorCode::TailMismatch, detail).with_field("if-match"));
            }
            None | Some(Expected::Any) => None,
            Some(Expected::Empty) => Some(0),
            Some(Expected::Tail { end, .. }) => Some(end.0),
        };
        if expected_end.is_some() && parts.len() > 1 {
            let detail = "only a request that fits one batch of one partition can be conditional";
            return Err(ServiceError::new(ErrorCode::NotSupported, detail).with_field("if-match"));
        }
        // All permits before anything is queued: refused means no effect.
        let permits: Result<_, _> =
            parts.iter().map(|part| self.storage.publish_permit(part.batch.bytes().len())).collect();
        Ok(Planned { asked, parts, expected_end, idempotency, permits: permits? })
    }

    /// Refuses what a topic that is not there would refuse once it was created: nobody has published to it,
    /// so whoever numbers its messages begins.
    fn check_unmade(&self, topic: &Topic, publish: &Publish) -> Result<(), ServiceError> {
        let planned = self.planned(topic, publish)?;
        let headers = || planned.parts.iter().map(|part| part.batch.header());
        let begins = |header: &BatchHeader| header.producer.is_none() || header.base_seq == Seq(0);
        match headers().next() {
            Some(first) if !headers().any(|header| begins(&header)) => {
                let detail = format!("a new producer starts at sequence number 0, not {}", first.base_seq);
                let refusal = Refusal::new(ErrorCode::ProducerGap, detail);
                Err(Refusal { expected_seq: Some(0), ..refusal }.into())
            }
            _ => Ok(()),
        }
    }

    /// Waits until what is committed is archived, at most until then: what is not keeps the level it has, and
    /// its receipt tells about the rest.
    async fn archive(&self, request: &mut InFlight, until: Instant) {
        let topic = Arc::clone(&request.topic);
        let waits = request.parts.iter().zip(&mut request.outcomes).filter_map(|(part, outcome)| {
            let Some(Ok(confirmed)) = outcome else { return None };
            let placed = confirmed.placed.filter(|_| confirmed.level == Level::Quorum)?;
            let topic = Arc::clone(&topic);
            Some(async move {
                let waited = self.archivist.wait(&topic, part.partition, last_of(&placed), Some(until));
                if let Ok(Some(Ended::Archived)) = waited.await {
                    confirmed.level = Level::Archived;
                }
            })
        });
        join_all(waits).await;
    }

    /// Where records go: §3.1, keyed by hash, keyless by the hash of whatever makes a retry find its first
    /// attempt, else round robin.
    fn placing(&self, topic: &Topic, publish: &Publish) -> Result<Placing, ServiceError> {
        let partitions = topic.partitions();
        let producer = publish.producer.as_ref().map(|producer| ProducerAt {
            key: ProducerKey::of(topic.producers_of, &producer.id),
            named: ProducerKey::of(topic.incarnation, &producer.id),
            epoch: producer.epoch,
            seq: producer.seq,
        });
        let id = publish.producer.as_ref().map(|producer| &producer.id).or(publish.idempotency_key.as_ref());
        let (mut keyless, mut is_fixed) = (self.keyless(partitions, id.map(String::as_str)), false);
        if let Some(Expected::Tail { incarnation, partition, .. }) = publish.expected {
            if incarnation != topic.incarnation {
                return Err(gone(topic, incarnation));
            }
            if partition.0 >= partitions {
                let detail = format!("the topic has no partition {partition}");
                return Err(ServiceError::new(ErrorCode::PartitionNotFound, detail));
            }
            if id.is_some() && partitions > 1 && keyless != partition {
                let detail = format!("the id belongs to partition {keyless}, the tag names {partition}");
                return Err(ServiceError::new(ErrorCode::InvalidHeader, detail).with_field("if-match"));
            }
            (keyless, is_fixed) = (partition, true);
        }
        Ok(Placing { partitions, keyless, is_fixed, producer, atomic: publish.atomic, now: now() })
    }

    pub(super) fn keyless(&self, partitions: u32, id: Option<&str>) -> PartitionId {
        match id {
            _ if partitions == 1 => PartitionId(0),
            Some(id) => partition_of(id.as_bytes(), partitions),
            None => PartitionId(self.round_robin.fetch_add(1, Ordering::Relaxed) % partitions),
        }
    }

    fn send(&self, request: &InFlight, permits: Vec<OwnedSemaphorePermit>, to: &SendTo) {
        for (number, (part, permit)) in request.parts.iter().zip(permits).enumerate() {
            let item = LaneItem {
                topic: Some(Arc::clone(&request.topic)),
                item: PublishItem {
                    incarnation: request.topic.incarnation.0,
                    config_version: request.topic.version.0,
                    partition: part.partition.0,
                    batch_bytes: u32::try_from(part.batch.bytes().len()).expect("a batch is below 4 GiB"),
                    expected_end: to.expected_end,
                    idempotency: to.idempotency,
                },
                batch: part.batch.bytes().clone(),
                levels: to.levels,
                safety: to.safety,
                producer: part.batch.header().producer,
                deadline: to.deadline,
                ticket: Ticket::new(to.sender.clone(), number as u64, permit),
            };
            let shard = request.topic.shard(part.partition).expect("planned for the topic's partitions");
            self.storage.lane(shard).push([item]);
        }
    }

    /// Resolves a receipt; waits up to `wait` for `level`.
    ///
    /// # Errors
    /// `incarnation_gone` if the topic was recreated, or what the shard's leader says.
    pub async fn receipt_state(
        &self,
        path: &TopicPath,
        receipt: &Receipt,
        level: Option<Level>,
        wait: Duration,
    ) -> Result<ReceiptState, ServiceError> {
        let (until, deadline) = (Instant::now() + wait, self.storage.deadline() + wait);
        let topic = self.topics.known(path, deadline).await?;
        let topic =
            if topic.incarnation == receipt.incarnation { topic } else { self.topics.get(path).await? };
        if topic.incarnation != receipt.incarnation {
            return Err(gone(&topic, receipt.incarnation));
        }
        let shard = topic.shard(receipt.partition).ok_or_else(|| {
            let detail = format!("the topic has no partition {}", receipt.partition);
            ServiceError::new(ErrorCode::PartitionNotFound, detail)
        })?;
        let request = ConfirmStateRequest {
            incarnation: receipt.incarnation.0,
            partition: receipt.partition.0,
            offset: receipt.offset.0,
            term: receipt.term.0,
            // Who waits for more than that waits here, together with all others.
            level: level.unwrap_or(Level::Unset).min(Level::Quorum) as i32,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            output: None,
        };
        let call = CallFor { shard, method: Method::ConfirmState, safety: Safety::Repeatable, deadline };
        let call = (call, !wait.is_zero());
        let state: ConfirmState = self.storage.ask_waiting(call, &request).await?;
        let ts = (!state.lost).then_some(TimestampMs(state.ts_ms));
        let mut reached = state.level();
        if level == Some(Level::Archived) && reached == Level::Quorum {
            if self.storage.level_max() < Level::Archived {
                let failure = ServiceError::new(ErrorCode::LevelUnavailable, NOT_ARCHIVED);
                return Err(failure.with_field("level"));
            }
            let waited = self.archivist.wait(&topic, receipt.partition, receipt.offset, Some(until));
            if let Some(Ended::Archived) = waited.await? {
                reached = Level::Archived;
            }
        }
        Ok(ReceiptState { level: reached, lost: state.lost, ts })
    }

    /// A producer on every partition that knows it.
    ///
    /// # Errors
    /// `producer_not_found` if none does.
    pub async fn producer(&self, path: &TopicPath, id: &str) -> Result<Vec<ProducerPartition>, ServiceError> {
        let topic = self.topics.get(path).await?;
        let found = self.producer_on(&topic, id, self.storage.deadline()).await?;
        if found.is_empty() {
            let detail = format!("no partition of {} knows the producer", topic.path.topic);
            return Err(ServiceError::new(ErrorCode::ProducerNotFound, detail));
        }
        Ok(found)
    }

    pub(super) async fn producer_on(
        &self,
        topic: &Topic,
        id: &str,
        deadline: Instant,
    ) -> Result<Vec<ProducerPartition>, ServiceError> {
        let producer = ProducerKey::of(topic.producers_of, id);
        let asked = topic.partition_ids().map(|partition| {
            let shard = topic.shard(partition).expect("one of the topic's partitions");
            let call = CallFor { shard, method: Method::ProducerState, safety: Safety::Repeatable, deadline };
            let request = ProducerStateRequest {
                incarnation: topic.incarnation.0,
                partition: partition.0,
                producer: producer.0.into(),
            };
            async move { (partition, self.storage.ask::<_, ProducerState>(call, &request).await) }
        });
        let mut found = Vec::new();
        for (partition, answer) in join_all(asked).await {
            match answer {
                Ok(state) => found.push(ProducerPartition {
                    partition,
                    epoch: Epoch(state.epoch),
                    last_seq: Seq(state.last_seq),
                    last_offset: Offset(state.last_offset),
                }),
                Err(failure) if failure.code() == ErrorCode::ProducerNotFound => {}
                Err(failure) => return Err(failure.with_partition(partition)),
            }
        }
        Ok(found)
    }
}

/// Milliseconds since the epoch by this machine's clock: what times of delivery are measured from.
pub fn now() -> TimestampMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

/// Where there is no object store.
pub(in crate::service) const NOT_ARCHIVED: &str =
    "the storage nodes have no object store to archive to: start them with --object-store, or ask for quorum";

/// A request that may be sent.
struct Planned {
    asked: Level,
    parts: Vec<Part>,
    expected_end: Option<u64>,
    idempotency: Option<IdempotencyKey>,
    /// One for each part.
    permits: Vec<OwnedSemaphorePermit>,
}

/// What all parts of a request are sent with.
struct SendTo {
    levels: u32,
    deadline: Instant,
    sender: mpsc::UnboundedSender<Confirm>,
    safety: Safety,
    expected_end: Option<u64>,
    idempotency: Option<IdempotencyKey>,
}

/// A request whose batches are on their way.
struct InFlight {
    topic: Arc<Topic>,
    parts: Vec<Part>,
    asked: Level,
    outcomes: Vec<Option<Result<Confirmed, ServiceError>>>,
    open: usize,
    round_trip: Duration,
    stages: Option<Stages>,
}

impl InFlight {
    fn new(topic: Arc<Topic>, parts: Vec<Part>, asked: Level) -> Self {
        let open = parts.len();
        let outcomes = vec![None; open];
        Self { topic, parts, asked, outcomes, open, round_trip: Duration::ZERO, stages: None }
    }

    /// Takes confirms until all are in or `until` has come.
    async fn collect(&mut self, mut answers: mpsc::UnboundedReceiver<Confirm>, until: Instant) {
        while self.open > 0 {
            match timeout_at(until, answers.recv()).await {
                Ok(Some(confirm)) => self.take(confirm),
                Ok(None) | Err(_) => return,
            }
        }
    }

    fn take(&mut self, confirm: Confirm) {
        let Some(outcome) = usize::try_from(confirm.ticket).ok().and_then(|at| self.outcomes.get_mut(at))
        else {
            return;
        };
        self.open -= usize::from(confirm.is_last);
        match confirm.result {
            Ok(placed) => *outcome = Some(Ok(Confirmed { level: confirm.level, placed: Some(placed) })),
            // What was reached stays reached; the receipt tells about the rest.
            Err(failure) if matches!(outcome, Some(Ok(_))) && failure.effect() == Outcome::Unknown => {}
            Err(failure) => *outcome = Some(Err(failure)),
        }
        if confirm.round_trip >= self.round_trip {
            self.round_trip = confirm.round_trip;
            self.stages = confirm.stages.or(self.stages);
        }
    }

    fn finish(self, received: Instant, may_answer_early: bool) -> Published {
        let total = received.elapsed();
        let node = self.stages.map_or(Duration::ZERO, |stages| Duration::from_micros(stages.node_us.into()));
        let timing = Timing {
            gw: total.saturating_sub(self.round_trip),
            net: self.round_trip.saturating_sub(node),
            stages: self.stages,
            total,
        };
        let records = self.parts.iter().map(|part| part.batch.header().count).sum();
        let parts: Vec<_> = self
            .parts
            .into_iter()
            .zip(self.outcomes)
            .map(|(part, outcome)| PublishedPart {
                partition: part.partition,
                records: part.records,
                outcome: outcome
                    .unwrap_or_else(|| {
                        if may_answer_early {
                            Ok(Confirmed { level: Level::None, placed: None })
                        } else {
                            Err(ServiceError::unknown("the storage node did not answer in time"))
                        }
                    })
                    .map_err(|failure| failure.with_partition(part.partition)),
            })
            .collect();
        let level = level_reached(&parts, self.asked);
        Published { topic: self.topic, parts, records, asked: self.asked, level, timing }
    }
}

/// The level that all accepted parts have reached. What was accepted long ago is committed at least.
pub(super) fn level_reached(parts: &[PublishedPart], asked: Level) -> Level {
    let reached = parts.iter().filter_map(|part| match &part.outcome {
        Ok(confirmed) => Some(confirmed.level),
        Err(failure) => is_old_duplicate(failure).then_some(asked.min(Level::Quorum)),
    });
    reached.min().unwrap_or(Level::None)
}

/// The level to wait for, where storage confirms at `highest`.
pub(super) fn level_of(topic: &Topic, confirm: Option<Level>, highest: Level) -> Result<Level, ServiceError> {
    let level = confirm.filter(|level| *level != Level::Unset).unwrap_or_else(|| topic.default_confirm());
    let floor = topic.config.min_confirm();
    if level == Level::Archived && highest < level {
        return Err(ServiceError::new(ErrorCode::LevelUnavailable, NOT_ARCHIVED).with_field("confirm"));
    }
    if level < floor {
        let detail = format!("the topic takes no confirm below {}", floor.as_str());
        return Err(ServiceError::new(ErrorCode::LevelUnavailable, detail).with_field("confirm"));
    }
    Ok(level)
}

/// Bits of the levels that storage is to tell with the publish: the last one, or all on the way to it.
/// Archived is asked for afterwards.
fn wanted_levels(asked: Level, each: bool) -> u32 {
    let asked = asked.min(Level::Quorum);
    let on_the_way = [Level::Memory, Level::Durable, Level::Quorum];
    let wanted = on_the_way.into_iter().filter(|level| *level == asked || (each && *level < asked));
    wanted.fold(0, |bits, level| bits | level.bit())
}

fn idempotency_of(publish: &Publish, parts: usize) -> Result<Option<IdempotencyKey>, ServiceError> {
    let Some(key) = &publish.idempotency_key else { return Ok(None) };
    let record = match &publish.content {
        Content::Records(records) if records.len() == 1 && parts == 1 => &records[0],
        _ => {
            let detail = "an idempotency key covers one message";
            return Err(ServiceError::new(ErrorCode::NotSupported, detail).with_field("idempotency-key"));
        }
    };
    let content_type = record.headers.content_type().unwrap_or_default();
    let key_of_record = record.key.as_deref().unwrap_or_default();
    Ok(Some(IdempotencyKey {
        key: hash128(&[key.as_bytes()]).into(),
        fingerprint: hash128(&[&record.value, key_of_record, content_type.as_bytes()]).into(),
    }))
}

/// The client named a life of the topic that is over.
pub(super) fn gone(topic: &Topic, named: Incarnation) -> ServiceError {
    if topic.is_unmade() {
        let detail = format!("incarnation {named} of the topic is over, and there is no other");
        return ServiceError::new(ErrorCode::IncarnationGone, detail);
    }
    let detail = format!("incarnation {named} is not the topic's, which is {}", topic.incarnation);
    let refusal = Refusal {
        incarnation: Some(topic.incarnation.0),
        ..Refusal::new(ErrorCode::IncarnationGone, detail)
    };
    refusal.into()
}

/// Refused without effect because the gateway's picture of the topic was old.
fn is_stale(part: &PublishedPart) -> bool {
    let stale = |failure: &ServiceError| {
        failure.effect() == Outcome::None
            && matches!(
                failure.refusal().error_code(),
                ErrorCode::IncarnationGone | ErrorCode::ConfigStale | ErrorCode::PartitionNotFound
            )
    };
    part.outcome.as_ref().is_err_and(stale)
}
