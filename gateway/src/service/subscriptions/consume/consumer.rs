//! A consumer of a subscription.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::StreamExt as _;
use futures_util::future::{BoxFuture, join_all};
use futures_util::stream::FuturesUnordered;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::Instant;
use weir_protocol::batch::{BatchError, Record};
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Incarnation, Offset, PartitionId, Term};
use weir_protocol::rpc::{
    ConsumeEvent, ConsumeRequest, Credit, GrantRun, LeaveRequest, Left, Method, NotDone, Packet, SettleRun,
    SettleRunsAnswer, SettleRunsRequest,
};

use super::super::Subscriptions;
use super::super::cache::Known;
use super::super::described::{Subscription, SubscriptionPath};
use super::super::known::is_stale;
use super::super::manage::STREAMS_MAX;
use super::part::{Part, PartEvent};
use super::shares::Shares;
use crate::service::ServiceError;
use crate::service::read::{Origin, RecordSlice, Share, unpack};
use crate::storage::Safety;

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
    shares: Shares,
    slots: Vec<Slot>,
    running: FuturesUnordered<BoxFuture<'static, Stepped>>,
    /// What is more than the client's credit: the last records of several partitions may overshoot it together.
    waiting: VecDeque<Leased>,
    handed: Credit,
    _place: OwnedSemaphorePermit,
    /// Dropped last: that it is gone says that the streams are.
    wish: watch::Receiver<Wish>,
}

type Stepped = (usize, Box<Part>, Result<PartEvent, ServiceError>);

struct Slot {
    share: Share,
    granted: watch::Sender<Credit>,
}

/// A consumer from outside. Clones are the same consumer.
#[derive(Debug, Clone)]
pub struct ConsumerHandle {
    subscriptions: Subscriptions,
    known: Arc<Known>,
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
        // As its home shard knows it now: nothing asks again later.
        let known = self.describe(path, self.storage.deadline()).await?;
        let partitions = known.subscription.partitions();
        let place = Arc::clone(&self.streams).try_acquire_many_owned(partitions).map_err(|_| {
            let detail =
                format!("this gateway leases from {STREAMS_MAX} partitions at once, and all are taken");
            ServiceError::new(ErrorCode::TooManyRequests, detail).with_limit(STREAMS_MAX as u64)
        })?;
        let (wish_to, wish) = watch::channel(Wish { limit: consume.limit, is_held: false });
        let handle = ConsumerHandle {
            subscriptions: self.clone(),
            known: Arc::clone(&known),
            holder: Arc::from(consume.holder.as_str()),
            wish: wish_to,
        };
        let mut consumer = Consumer {
            subscriptions: self.clone(),
            known,
            shares: Shares::new(partitions as usize, consume.limit),
            slots: Vec::with_capacity(partitions as usize),
            running: FuturesUnordered::new(),
            waiting: VecDeque::new(),
            handed: Credit::default(),
            _place: place,
            wish,
        };
        consumer.start(&consume);
        Ok((consumer, handle))
    }
}

impl Consumer {
    fn start(&mut self, consume: &Consume) {
        let known = Arc::clone(&self.known);
        let subscription = &known.subscription;
        for (place, partition) in subscription.partition_ids().enumerate() {
            let (granted, limits) = watch::channel(Credit::default());
            self.slots.push(Slot { share: Share::new(Arc::clone(&self.subscriptions.budget)), granted });
            let request = ConsumeRequest {
                part: subscription.part(partition),
                limit: Credit::default(),
                keeps_credit: self.shares.keeps_credit(),
                lease_ms: consume.lease_ms.unwrap_or(0),
                holder: consume.holder.clone(),
                takes_over: consume.takes_over.clone(),
                grace_ms: consume.grace_ms,
            };
            let at = (subscription.shards[place], partition);
            let part = Part::new(self.subscriptions.storage.clone(), at, request, limits);
            self.running.push(step(place, Box::new(part)));
        }
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
            tokio::select! {
                biased;
                Ok(()) = self.wish.changed() => {}
                Some((place, part, event)) = self.running.next() => match event {
                    Ok(event) => self.take(place, part, event)?,
                    Err(failure) if is_stale(&failure) => {
                        let (subscriptions, known) = (self.subscriptions.clone(), Arc::clone(&self.known));
                        return Err(subscriptions.explain_refused(&known.subscription, failure).await);
                    }
                    Err(failure) => return Err(failure),
                },
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
                let (event, leased) = read(part.partition, body)?;
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
    Ok((event, Some(Leased { partition, slices, runs, received, count, bytes })))
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

    /// The life of its topic.
    #[must_use]
    pub fn incarnation(&self) -> Incarnation {
        self.subscription().topic_incarnation
    }

    /// Partitions of its topic.
    #[must_use]
    pub fn partitions(&self) -> u32 {
        self.subscription().partitions()
    }

    fn subscription(&self) -> &Subscription {
        &self.known.subscription
    }

    /// Settles leases of one partition; what was not done. On return it cannot be lost.
    ///
    /// # Errors
    /// What the partition says. Settling again is safe, whatever the outcome.
    pub async fn settle(
        &self,
        partition: PartitionId,
        runs: Vec<SettleRun>,
    ) -> Result<Vec<NotDone>, ServiceError> {
        let (subscription, storage) = (self.subscription(), &self.subscriptions.storage);
        // Twice is safe: what was settled before stays so.
        let method = (Method::SettleRuns, Safety::Repeatable);
        let call = self.subscriptions.call(subscription, partition, method, storage.deadline())?;
        let request = SettleRunsRequest { part: subscription.part(partition), runs };
        let answer: Result<SettleRunsAnswer, ServiceError> = storage.ask(call, &request).await;
        match answer {
            Ok(answer) => Ok(answer.not_done),
            Err(failure) if is_stale(&failure) => {
                Err(self.subscriptions.explain_refused(subscription, failure).await)
            }
            Err(failure) => Err(failure.with_partition(partition)),
        }
    }

    /// Waits until the consumer is dropped, then ends what it held, so that others get it at once. A partition that
    /// cannot be reached keeps it for the grace.
    pub async fn leave(&self) {
        // A stream that is still there could lease more behind its back.
        self.wish.closed().await;
        let (subscription, storage) = (self.subscription(), &self.subscriptions.storage);
        let left = subscription.partition_ids().map(|partition| async move {
            let method = (Method::Leave, Safety::Repeatable);
            let call = self.subscriptions.call(subscription, partition, method, storage.deadline())?;
            let request =
                LeaveRequest { part: subscription.part(partition), holder: self.holder.to_string() };
            storage.ask::<_, Left>(call, &request).await
        });
        let failures = join_all(left).await.into_iter().filter_map(Result::err).count();
        if failures > 0 {
            tracing::debug!(failures, holder = %self.holder, "leases end with their grace");
        }
    }
}
