//! A consumer of a subscription.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;
use parking_lot::Mutex;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};
use weir_protocol::batch::{BatchError, Record};
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Incarnation, Name, Offset, PartitionId, Term};
use weir_protocol::rpc::{
    ConsumeEvent, ConsumeRequest, Credit, GrantRun, LeaveRequest, Left, Method, NotDone, Packet, PartRef,
    SettleOutcome, SettleRun, SettleRunsAnswer, SettleRunsRequest,
};

use super::super::Subscriptions;
use super::super::cache::{Known, PATTERN_AGE_MAX};
use super::super::described::{PartPlace, Subscription, SubscriptionPath};
use super::super::known::{is_stale, with_parts};
use super::super::manage::STREAMS_MAX;
use super::part::{Part, PartEvent};
use super::shares::Shares;
use crate::service::ServiceError;
use crate::service::read::{Origin, RecordSlice, Share, unpack};
use crate::storage::{CallFor, Safety};

/// Parts that one consumer has had in its life, with those that are gone: they keep their numbers.
const PARTS_HAD_MAX: usize = 65_536;

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Consume {
    /// First limit, absolute from now on.
    pub limit: Credit,
    /// How long messages are leased, milliseconds; `None`: as the subscription says.
    pub lease_ms: Option<u32>,
    /// Who takes them: nobody else.
    pub holder: String,
    /// It takes over what holders with names that begin so hold.
    pub takes_over: Option<String>,
    /// How long leases last beyond the consumer, in milliseconds.
    pub grace_ms: u32,
}

/// Messages that were leased, of one partition.
#[derive(Debug)]
pub struct Leased {
    /// Number of the part among those that the consumer has had: what a settle of the leases names.
    pub part: u32,
    /// Its topic, of a subscription to several.
    pub topic: Option<Name>,
    /// The partition.
    pub partition: PartitionId,
    /// Where the records are. A slice may hold records that were not leased.
    pub slices: Vec<RecordSlice>,
    /// The leases, in offset order; every record of them is in a slice.
    pub runs: Vec<GrantRun>,
    /// When they came: leases run out that much later.
    pub received: Instant,
    /// Number of leases.
    pub count: u64,
    /// Encoded bytes of their records: what credit counts.
    pub bytes: u64,
}

/// What the other side wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
struct Wish {
    limit: Credit,
    is_held: bool,
}

/// Leases messages as they appear. Dropping it ends it; leases then last for the grace, unless
/// [`ConsumerHandle::leave`] ends them.
pub struct Consumer {
    subscriptions: Subscriptions,
    known: Arc<Known>,
    consume: Consume,
    places: Places,
    shares: Shares,
    slots: Vec<Slot>,
    /// Of several topics: what there is now, on its way.
    look: Option<BoxFuture<'static, Result<Arc<Known>, ServiceError>>>,
    looked: Instant,
    running: FuturesUnordered<BoxFuture<'static, Stepped>>,
    /// What is more than the client's credit: the last records of several partitions may overshoot it together.
    waiting: VecDeque<Leased>,
    handed: Credit,
    permits: OwnedSemaphorePermit,
    /// Dropped last: that it is gone says that the streams are.
    wish: watch::Receiver<Wish>,
}

type Stepped = (usize, Box<Part>, Result<PartEvent, ServiceError>);

struct Slot {
    share: Share,
    granted: watch::Sender<Credit>,
}

/// The parts that a consumer has had, by number. One whose topic was deleted keeps its number.
type Places = Arc<Mutex<Vec<PartPlace>>>;

/// A consumer from outside. Clones are the same consumer.
#[derive(Debug, Clone)]
pub struct ConsumerHandle {
    subscriptions: Subscriptions,
    known: Arc<Known>,
    places: Places,
    holder: Arc<str>,
    wish: watch::Sender<Wish>,
}

impl Subscriptions {
    /// Starts consuming.
    ///
    /// # Errors
    /// `subscription_not_found`; `too_many_requests` if the gateway has no place left. What else is wrong,
    /// [`Consumer::next`] says.
    pub async fn consume(
        &self,
        path: &SubscriptionPath,
        consume: Consume,
    ) -> Result<(Consumer, ConsumerHandle), ServiceError> {
        // As its home shard knows it now: of one topic nothing asks again later.
        let known = self.describe(path, self.storage.deadline()).await.and_then(with_parts)?;
        let permits = self.stream_permits(known.subscription.partitions())?;
        let (wish_to, wish) = watch::channel(Wish { limit: consume.limit, is_held: false });
        let places = Places::default();
        let handle = ConsumerHandle {
            subscriptions: self.clone(),
            known: Arc::clone(&known),
            places: Arc::clone(&places),
            holder: Arc::from(consume.holder.as_str()),
            wish: wish_to,
        };
        let is_alone = known.subscription.is_of_one() && known.subscription.partitions() == 1;
        let mut consumer = Consumer {
            subscriptions: self.clone(),
            shares: Shares::new(is_alone, known.subscription.partitions(), consume.limit),
            known: Arc::clone(&known),
            consume,
            places,
            slots: Vec::new(),
            look: None,
            looked: Instant::now(),
            running: FuturesUnordered::new(),
            waiting: VecDeque::new(),
            handed: Credit::default(),
            permits,
            wish,
        };
        known.subscription.parts.iter().for_each(|part| consumer.start(part, false));
        Ok((consumer, handle))
    }

    fn stream_permits(&self, count: u32) -> Result<OwnedSemaphorePermit, ServiceError> {
        Arc::clone(&self.streams).try_acquire_many_owned(count).map_err(|_| {
            let detail =
                format!("this gateway leases from {STREAMS_MAX} partitions at once, and all are taken");
            ServiceError::new(ErrorCode::TooManyRequests, detail).with_limit(STREAMS_MAX as u64)
        })
    }
}

impl Consumer {
    /// Leases from one more part, one of the first or a `late` one.
    fn start(&mut self, place: &PartPlace, is_late: bool) {
        let number = self.slots.len();
        let (granted, limits) = watch::channel(Credit::default());
        self.slots.push(Slot { share: Share::new(Arc::clone(&self.subscriptions.budget)), granted });
        let keeps = self.shares.add(is_late);
        self.places.lock().push(place.clone());
        let request = ConsumeRequest {
            part: PartRef {
                subscription: self.known.subscription.id,
                incarnation: place.incarnation.0,
                partition: place.partition.0,
            },
            limit: Credit::default(),
            keeps_credit: self.shares.keeps_credit(),
            lease_ms: self.consume.lease_ms.unwrap_or(0),
            holder: self.consume.holder.clone(),
            takes_over: self.consume.takes_over.clone(),
            grace_ms: self.consume.grace_ms,
            keeps: (keeps != Credit::default()).then_some(keeps),
            lot: 0,
        };
        let at = (place.shard, place.partition);
        let part = Part::new(self.subscriptions.storage.clone(), at, request, limits);
        self.running.push(step(number, Box::new(part)));
    }

    /// When to ask whether a pattern matches more.
    fn next_look(&self) -> Option<Instant> {
        let is_alone = self.running.is_empty();
        let is_due = self.look.is_none() && (self.known.subscription.is_pattern() || is_alone);
        is_due.then(|| self.looked + PATTERN_AGE_MAX)
    }

    /// Asks which topics there are now.
    fn look(&mut self) {
        if self.look.is_some() {
            return;
        }
        let (subscriptions, path) = (self.subscriptions.clone(), self.known.subscription.path.clone());
        self.look = Some(Box::pin(async move {
            subscriptions.describe(&path, subscriptions.storage.deadline()).await.and_then(with_parts)
        }));
    }

    /// There may be more topics than before. Those that are gone have ended by themselves.
    fn looked(&mut self, answer: Result<Arc<Known>, ServiceError>) -> Result<(), ServiceError> {
        (self.look, self.looked) = (None, Instant::now());
        let now = match answer {
            Ok(now) if now.subscription.id == self.known.subscription.id => now,
            Ok(_) => {
                let detail = "the subscription was deleted and created again";
                return Err(ServiceError::new(ErrorCode::SubscriptionNotFound, detail));
            }
            // It is asked again; what is there goes on.
            Err(failure) if failure.code().retryable() => return Ok(()),
            Err(failure) => return Err(failure),
        };
        let known: BTreeSet<_> = self.places.lock().iter().map(PartPlace::key).collect();
        for part in now.subscription.parts.iter().filter(|part| !known.contains(&part.key())) {
            if self.slots.len() >= PARTS_HAD_MAX {
                let detail = format!("{PARTS_HAD_MAX} partitions of topics came and went: subscribe again");
                return Err(ServiceError::new(ErrorCode::Unavailable, detail));
            }
            match self.subscriptions.stream_permits(1) {
                Ok(permit) => self.permits.merge(permit),
                Err(failure) => {
                    tracing::warn!(topic = %part.topic, partition = %part.partition, %failure, "not consumed yet");
                    continue;
                }
            }
            self.start(part, true);
        }
        Ok(())
    }

    /// A part refuses: its topic is gone, or everything is.
    async fn refused(&mut self, number: usize, failure: ServiceError) -> Result<(), ServiceError> {
        if !is_stale(&failure) {
            return Err(failure);
        }
        if self.known.subscription.is_of_one() {
            let (subscriptions, known) = (self.subscriptions.clone(), Arc::clone(&self.known));
            return Err(subscriptions.explain_refused(&known.subscription, failure).await);
        }
        let bytes = self.shares.lost(number);
        self.slots[number].share.hand_on(bytes);
        drop(self.permits.split(1));
        self.look();
        Ok(())
    }

    /// The next messages, as soon as there are some and credit allows them.
    ///
    /// # Errors
    /// The consumer is over: the subscription or its topic was deleted, or a partition has no leader in time.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn next(&mut self) -> Result<Leased, ServiceError> {
        loop {
            let wish = *self.wish.borrow_and_update();
            self.shares.limit = wish.limit;
            if let Some(leased) = self.pop(wish.limit) {
                return Ok(leased);
            }
            let freed = if wish.is_held { None } else { self.grant() };
            let is_throttled = freed.is_some();
            let next_look = self.next_look();
            tokio::select! {
                biased;
                Ok(()) = self.wish.changed() => {}
                Some((number, part, event)) = self.running.next() => match event {
                    Ok(event) => self.take(number, part, event)?,
                    Err(failure) => self.refused(number, failure).await?,
                },
                answer = async { self.look.as_mut().expect("there is one").await }, if self.look.is_some() => {
                    self.looked(answer)?;
                }
                () = sleep_until(next_look.unwrap_or_else(Instant::now)), if next_look.is_some() => self.look(),
                () = async { if let Some(freed) = freed { freed.await } }, if is_throttled => {}
            }
        }
    }

    /// Passes credit on; what to wait for if some of it waits for the gateway's budget.
    fn grant(&mut self) -> Option<OwnedNotified> {
        let freed = self.slots.first()?.share.freed();
        let mut is_throttled = false;
        for (place, limit) in self.shares.offers() {
            let slot = &mut self.slots[place];
            let limit = Credit { bytes: slot.share.raise(limit.bytes), ..limit };
            is_throttled |= slot.share.is_throttled();
            if self.shares.granted(place, limit) {
                slot.granted.send_replace(self.shares.granted_to(place));
            }
        }
        is_throttled.then_some(freed)
    }

    fn take(&mut self, place: usize, mut part: Box<Part>, event: PartEvent) -> Result<(), ServiceError> {
        let bytes = match event {
            PartEvent::Lost => {
                part.restart(self.shares.granted_to(place));
                self.shares.lost(place)
            }
            PartEvent::Answer { body, base } => {
                let (event, mut leased) = read(part.partition, body)?;
                if let Some(leased) = &mut leased {
                    leased.part = u32::try_from(place).expect("no more parts than permits");
                    let is_told = !self.known.subscription.is_of_one();
                    leased.topic = is_told.then(|| self.places.lock()[place].topic.clone());
                }
                let gone = Credit {
                    records: base.records.saturating_add(event.gone.records),
                    bytes: base.bytes.saturating_add(event.gone.bytes),
                };
                let came = leased.as_ref().map_or(Credit::default(), Leased::credit);
                self.waiting.extend(leased);
                self.shares.heard(place, gone, came, event.is_ready)
            }
        };
        self.slots[place].share.hand_on(bytes);
        self.running.push(step(place, part));
        Ok(())
    }

    /// What may be handed on now.
    fn pop(&mut self, limit: Credit) -> Option<Leased> {
        let next = self.waiting.front()?;
        let after =
            Credit { records: self.handed.records + next.count, bytes: self.handed.bytes + next.bytes };
        let is_within =
            after.bytes <= limit.bytes || after.bytes.saturating_sub(next.last_bytes()) < limit.bytes;
        if after.records > limit.records || !is_within {
            return None;
        }
        self.handed = after;
        self.waiting.pop_front()
    }
}

impl Leased {
    /// Bytes of the last record: while there is any credit another record goes, and this one may overshoot.
    #[must_use]
    pub fn last_bytes(&self) -> u64 {
        let last = self.runs.last().map(|run| run.offset + u64::from(run.count) - 1);
        let records = self.slices.last().and_then(|slice| slice.records().ok());
        let is_last = |record: &Record| Some(record.offset.0) == last;
        let found = records.and_then(|mut records| records.find_map(|record| record.ok().filter(is_last)));
        found.map_or(0, |record| record.size as u64)
    }

    fn credit(&self) -> Credit {
        Credit { records: self.count, bytes: self.bytes }
    }
}

fn step(place: usize, mut part: Box<Part>) -> BoxFuture<'static, Stepped> {
    Box::pin(async move {
        let event = part.next().await;
        (place, part, event)
    })
}

/// Takes an answer apart; what is leased must be there.
fn read(partition: PartitionId, body: bytes::Bytes) -> Result<(ConsumeEvent, Option<Leased>), ServiceError> {
    let bad = |what: &str| ServiceError::bad_answer(what, Outcome::None).with_partition(partition);
    let packet = Packet::<ConsumeEvent>::decode(body).map_err(|error| bad(&error.to_string()))?;
    let mut event = packet.message;
    let origin = Origin { partition, committed_end: Offset(u64::MAX), term: Term(0) };
    let slices = unpack(&event.slices, packet.payload, origin)?;
    let runs = std::mem::take(&mut event.runs);
    if runs.is_empty() {
        return Ok((event, None));
    }
    let count = runs.iter().map(|run| u64::from(run.count)).sum();
    let (found, bytes) = sizes(&slices, &runs)?;
    if found != count {
        return Err(bad("leases of records that did not come"));
    }
    let received = Instant::now();
    Ok((event, Some(Leased { part: 0, topic: None, partition, slices, runs, received, count, bytes })))
}

/// Number and size of the leased records that are there.
fn sizes(slices: &[RecordSlice], runs: &[GrantRun]) -> Result<(u64, u64), ServiceError> {
    let corrupt = |error: BatchError| {
        let detail = format!("a record batch from a storage node is damaged: {error}");
        ServiceError::new(ErrorCode::Corrupt, detail)
    };
    let end = |run: &GrantRun| run.offset + u64::from(run.count);
    let mut runs = runs.iter().peekable();
    let (mut count, mut bytes) = (0, 0);
    for slice in slices {
        while runs.next_if(|run| end(run) <= slice.first.0).is_some() {}
        // Records are looked at only where not all of them are leased.
        if runs.peek().is_some_and(|run| run.offset <= slice.first.0 && end(run) >= slice.end().0) {
            count += u64::from(slice.take);
            bytes += slice.size()?;
            continue;
        }
        for record in slice.records().map_err(corrupt)? {
            let record = record.map_err(corrupt)?;
            while runs.next_if(|run| end(run) <= record.offset.0).is_some() {}
            if runs.peek().is_some_and(|run| run.offset <= record.offset.0) {
                count += 1;
                bytes += record.size as u64;
            }
        }
    }
    Ok((count, bytes))
}

impl ConsumerHandle {
    /// Raises the limit to these absolute totals.
    pub fn raise(&self, limit: Credit) {
        self.wish.send_modify(|wish| wish.limit = limit);
    }

    /// Asks for nothing more, or goes on. What is on its way still comes.
    pub fn hold(&self, on: bool) {
        self.wish.send_modify(|wish| wish.is_held = on);
    }

    /// The life of its topic, if there is one.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.subscription().lives.first().copied().filter(|_| self.subscription().is_of_one())
    }

    /// Whether it consumes a stream: then messages are only acknowledged.
    #[must_use]
    pub fn is_of_stream(&self) -> bool {
        self.subscription().config.is_stream
    }

    /// The parts it has by now: of each the topic, if there are several, and the partition.
    #[must_use]
    pub fn parts(&self) -> Vec<(Option<Name>, PartitionId)> {
        let is_told = !self.subscription().is_of_one();
        let name = |part: &PartPlace| (is_told.then(|| part.topic.clone()), part.partition);
        self.places.lock().iter().map(name).collect()
    }

    fn subscription(&self) -> &Subscription {
        &self.known.subscription
    }

    /// Settles leases of one part; what was not done. On return it cannot be lost.
    ///
    /// # Errors
    /// What the partition says. Settling again is safe, whatever the outcome.
    pub async fn settle(&self, part: u32, runs: Vec<SettleRun>) -> Result<Vec<NotDone>, ServiceError> {
        let (subscription, storage) = (self.subscription(), &self.subscriptions.storage);
        let place = self.places.lock().get(part as usize).cloned();
        let place = place.ok_or_else(|| ServiceError::new(ErrorCode::Internal, "a settle of no part"))?;
        // Twice is safe: what was settled before stays so.
        let call = self.call(&place, Method::SettleRuns);
        let request = SettleRunsRequest { part: self.part(&place), runs };
        let answer: Result<SettleRunsAnswer, ServiceError> = storage.ask(call, &request).await;
        match answer {
            Ok(answer) => Ok(answer.not_done),
            Err(failure) if is_stale(&failure) && !subscription.is_of_one() => {
                // If more than its topic is gone, the consumer says so.
                Ok(none_of(&request.runs))
            }
            Err(failure) if is_stale(&failure) => {
                Err(self.subscriptions.explain_refused(subscription, failure).await)
            }
            Err(failure) => Err(failure.with_partition(place.partition)),
        }
    }

    fn part(&self, place: &PartPlace) -> PartRef {
        let PartPlace { incarnation, partition, .. } = place;
        PartRef { subscription: self.subscription().id, incarnation: incarnation.0, partition: partition.0 }
    }

    fn call(&self, place: &PartPlace, method: Method) -> CallFor {
        let deadline = self.subscriptions.storage.deadline();
        CallFor { shard: place.shard, method, safety: Safety::Repeatable, deadline }
    }

    /// Waits until the consumer is dropped, then ends what it held, so that others get it at once. A partition that
    /// cannot be reached keeps it for the grace.
    pub async fn leave(&self) {
        // A stream that is still there could lease more behind its back.
        self.wish.closed().await;
        let places = self.places.lock().clone();
        let left = places.iter().map(|place| async move {
            let call = self.call(place, Method::Leave);
            let request = LeaveRequest { part: self.part(place), holder: self.holder.to_string() };
            self.subscriptions.storage.ask::<_, Left>(call, &request).await
        });
        let failures = join_all(left).await.into_iter().filter_map(Result::err).count();
        if failures > 0 {
            tracing::debug!(failures, holder = %self.holder, "leases end with their grace");
        }
    }
}

/// Nothing was done of leases whose part is gone.
fn none_of(runs: &[SettleRun]) -> Vec<NotDone> {
    let of_run = |(run, leases): (u32, &SettleRun)| {
        let outcome = SettleOutcome::Unknown as i32;
        (0..leases.count).map(move |place| NotDone { run, place, outcome, current: None })
    };
    (0..).zip(runs).flat_map(of_run).collect()
}
