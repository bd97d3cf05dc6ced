//! A consumer of a subscription.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use futures_util::future::BoxFuture;
use tokio::sync::futures::OwnedNotified;
use tokio::sync::{OwnedSemaphorePermit, watch};
use tokio::time::{Instant, sleep_until};
use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::{ConsumeRequest, Credit, PartRef};

use super::super::Subscriptions;
use super::super::cache::{Known, PATTERN_AGE_MAX};
use super::super::described::{PartPlace, SubscriptionPath};
use super::super::known::{is_stale, with_parts};
use super::super::manage::STREAMS_MAX;
use super::super::share::by_topic;
use super::attendance::{Attendance, Lots};
use super::handle::{ConsumerHandle, PartName, Places};
use super::leased::{Leased, read};
use super::part::{Granted, Part, PartEvent};
use super::shares::Shares;
use crate::service::ServiceError;
use crate::service::read::Share;
use crate::under_way::UnderWay;

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
    /// How long what is leased or read stays its own beyond the consumer, in milliseconds; `None`: half a minute, or
    /// the lease if that is shorter.
    pub grace_ms: Option<u32>,
}

/// Grace where none is asked for and leases are longer.
const GRACE_MS: u32 = 30_000;

impl Consume {
    /// The grace, where the subscription leases for `lease_ms`.
    pub(super) fn grace_ms(&self, lease_ms: u32) -> u32 {
        self.grace_ms.unwrap_or_else(|| self.lease_ms.unwrap_or(lease_ms).min(GRACE_MS))
    }
}

/// What comes of consuming.
#[derive(Debug)]
pub enum Consumed {
    /// Messages were leased.
    Leased(Leased),
    /// Other parts of a stream are read than before. The first time also if none are.
    Share(ShareShift),
}

/// Parts of a stream that are read from now on, and of which nothing comes behind this.
#[derive(Debug, Default, PartialEq, Eq)]
pub struct ShareShift {
    /// Read from now on.
    pub gained: Vec<PartName>,
    /// Not read any more.
    pub lost: Vec<PartName>,
}

impl ShareShift {
    /// Another one follows, with no message in between: what came and went was never told. What went and came
    /// is told as both, for another may have read it meanwhile.
    fn then(&mut self, next: Self) {
        let Self { gained, mut lost } = next;
        lost.retain(|part| !take(&mut self.gained, part));
        self.lost.extend(lost);
        self.gained.extend(gained);
    }
}

/// Takes a part out, if it is there.
fn take(parts: &mut Vec<PartName>, part: &PartName) -> bool {
    let place = parts.iter().position(|other| other == part);
    place.map(|place| parts.remove(place)).is_some()
}

/// What the other side wants.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Wish {
    pub(super) limit: Credit,
    pub(super) is_held: bool,
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
    /// Of a stream with several parts.
    attendance: Option<Attendance>,
    was_told_share: bool,
    running: UnderWay<BoxFuture<'static, Stepped>>,
    /// What is more than the client's credit: the last records of several partitions may overshoot it together.
    waiting: VecDeque<Consumed>,
    handed: Credit,
    permits: OwnedSemaphorePermit,
    /// Dropped last: that it is gone says that the streams are.
    wish: watch::Receiver<Wish>,
}

type Stepped = (usize, Box<Part>, Result<PartEvent, ServiceError>);

struct Slot {
    share: Share,
    granted: watch::Sender<Granted>,
    /// Under which it is read; `None`: it is another's to read.
    lot: Option<u64>,
    /// Not read here, until there is a lot that is higher than it had.
    resting: Option<Box<Part>>,
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
        let attendance = Attendance::of(self, &known.subscription, &consume);
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
            attendance,
            was_told_share: false,
            running: UnderWay::default(),
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
        let (granted, limits) = watch::channel(Granted::default());
        let lot = self.attendance.is_none().then_some(0);
        let share = Share::new(Arc::clone(&self.subscriptions.budget));
        self.slots.push(Slot { share, granted, lot, resting: None });
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
            grace_ms: self.consume.grace_ms(self.known.subscription.config.lease_ms),
            keeps: (keeps != Credit::default()).then_some(keeps),
            lot: 0,
            reach: None,
        };
        let at = (place.shard, place.partition);
        let part = Box::new(Part::new(self.subscriptions.storage.clone(), at, request, limits));
        match lot {
            Some(_) => self.running.push(step(number, part)),
            None => self.slots[number].resting = Some(part),
        }
    }

    /// When to ask whether a pattern matches more.
    fn next_look(&self) -> Option<Instant> {
        let is_alone = self.running.is_empty() && self.slots.iter().all(|slot| slot.resting.is_none());
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

    /// There may be more topics than before, or fewer. What is read of those that are gone ends by itself;
    /// what rests does not.
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
        let known: Vec<_> = self.places.lock().iter().map(PartPlace::key).collect();
        for (number, _) in known.iter().enumerate().filter(|(_, key)| !now.subscription.has(key)) {
            if self.slots[number].resting.take().is_some() {
                self.ended(number);
            }
        }
        let known = BTreeSet::from_iter(known);
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
        if let Some(attendance) = &mut self.attendance {
            let has: BTreeSet<_> = self.places.lock().iter().map(PartPlace::key).collect();
            let parts = now.subscription.parts.iter().filter(|part| has.contains(&part.key()));
            attendance.knows(by_topic(&parts.cloned().collect::<Vec<_>>()));
        }
        Ok(())
    }

    /// The share of a stream is another one. What it lost is read on until who has it now comes for it.
    fn shared(&mut self, lots: &Lots) {
        let keys: Vec<_> = self.places.lock().iter().map(PartPlace::key).collect();
        let mut gained = Vec::new();
        for (number, key) in keys.iter().enumerate() {
            let slot = &mut self.slots[number];
            slot.lot = lots.get(key).copied();
            let Some(lot) = slot.lot else { continue };
            if let Some(mut part) = slot.resting.take_if(|part| part.request.lot < lot) {
                part.request.lot = lot;
                self.running.push(step(number, part));
                gained.push(number);
            }
        }
        if !gained.is_empty() || !self.was_told_share {
            self.tell_share(&gained, &[]);
        }
    }

    fn tell_share(&mut self, gained: &[usize], lost: &[usize]) {
        self.was_told_share = true;
        let is_told = !self.known.subscription.is_of_one();
        let places = self.places.lock();
        let name = |number: &usize| {
            let place = &places[*number];
            (is_told.then(|| place.topic.clone()), place.partition)
        };
        let (gained, lost) = (gained.iter().map(name).collect(), lost.iter().map(name).collect());
        let shift = ShareShift { gained, lost };
        // Behind the messages of who gives no credit for long there is one at most.
        match self.waiting.back_mut() {
            Some(Consumed::Share(before)) => {
                before.then(shift);
                if *before == ShareShift::default() {
                    self.waiting.pop_back();
                }
            }
            _ => self.waiting.push_back(Consumed::Share(shift)),
        }
    }

    /// The stream of a part is over: it goes on under the lot that there is for it, or rests.
    fn stream_ended(&mut self, number: usize, mut part: Box<Part>, is_displaced: bool) {
        part.restart(self.shares.granted_to(number));
        if is_displaced {
            part.rest();
        }
        let slot = &mut self.slots[number];
        match slot.lot.filter(|lot| !is_displaced || *lot > part.request.lot) {
            Some(lot) => {
                part.request.lot = lot;
                self.running.push(step(number, part));
            }
            None => {
                part.rest();
                slot.resting = Some(part);
                self.tell_share(&[], &[number]);
            }
        }
    }

    /// There is no share to be had.
    async fn not_shared(&mut self, failure: ServiceError) -> ServiceError {
        match is_stale(&failure) && self.known.subscription.is_of_one() {
            true => self.subscriptions.explain_refused(&self.known.subscription, failure).await,
            false => failure,
        }
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
        self.ended(number);
        self.look();
        Ok(())
    }

    /// A part is gone: its credit and its permit are others'.
    fn ended(&mut self, number: usize) {
        let bytes = self.shares.lost(number);
        self.slots[number].share.hand_on(bytes);
        drop(self.permits.split(1));
    }

    /// What happens next: messages, as soon as there are some and credit allows them, or another share of a stream.
    ///
    /// # Errors
    /// The consumer is over: the subscription or its topic was deleted, or a partition has no leader in time.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn next(&mut self) -> Result<Consumed, ServiceError> {
        loop {
            let wish = *self.wish.borrow_and_update();
            self.shares.limit = wish.limit;
            if let Some(consumed) = self.pop(wish.limit) {
                return Ok(consumed);
            }
            let freed = if wish.is_held { None } else { self.grant() };
            let is_throttled = freed.is_some();
            let next_look = self.next_look();
            // Who has no credit at first does not want to read yet.
            let attends = self.attendance.is_some() && wish.limit.records > 0 && wish.limit.bytes > 0;
            tokio::select! {
                biased;
                Ok(()) = self.wish.changed() => {}
                lots = async { self.attendance.as_mut().expect("it attends").next().await }, if attends => {
                    match lots {
                        Ok(lots) => self.shared(&lots),
                        Err(failure) => return Err(self.not_shared(failure).await),
                    }
                }
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
        let (mut is_throttled, mut raised) = (false, Vec::new());
        for (place, limit) in self.shares.offers() {
            let slot = &mut self.slots[place];
            let limit = Credit { bytes: slot.share.raise(limit.bytes), ..limit };
            is_throttled |= slot.share.is_throttled();
            if self.shares.granted(place, limit) {
                raised.push(place);
            }
        }
        for (place, limit, reach) in self.shares.reaches(&raised) {
            self.slots[place].granted.send_replace(Granted { limit, reach });
        }
        is_throttled.then_some(freed)
    }

    fn take(&mut self, place: usize, part: Box<Part>, event: PartEvent) -> Result<(), ServiceError> {
        let mut ended = None;
        let bytes = match event {
            PartEvent::Lost => {
                ended = Some(false);
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
                self.waiting.extend(leased.map(Consumed::Leased));
                let bytes = self.shares.heard(place, gone, came, event.is_ready);
                if event.is_displaced {
                    ended = Some(true);
                    // With what was granted behind its back.
                    bytes + self.shares.lost(place)
                } else {
                    bytes
                }
            }
        };
        self.slots[place].share.hand_on(bytes);
        match ended {
            Some(is_displaced) => self.stream_ended(place, part, is_displaced),
            None => self.running.push(step(place, part)),
        }
        Ok(())
    }

    /// What may be handed on now.
    fn pop(&mut self, limit: Credit) -> Option<Consumed> {
        let Consumed::Leased(next) = self.waiting.front()? else { return self.waiting.pop_front() };
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

fn step(place: usize, mut part: Box<Part>) -> BoxFuture<'static, Stepped> {
    Box::pin(async move {
        let event = part.next().await;
        (place, part, event)
    })
}

#[cfg(test)]
mod tests {
    use weir_protocol::ids::PartitionId;

    use super::*;

    #[test]
    fn shifts_with_no_message_in_between_are_one() {
        let parts = |numbers: &[u32]| numbers.iter().map(|n| (None, PartitionId(*n))).collect::<Vec<_>>();
        let shift = |gained: &[u32], lost: &[u32]| ShareShift { gained: parts(gained), lost: parts(lost) };
        let mut told = shift(&[1, 2], &[3, 4]);
        told.then(shift(&[3, 5], &[]));
        told.then(shift(&[], &[2, 6]));
        assert_eq!(told, shift(&[1, 3, 5], &[3, 4, 6]), "3 may have been another's");
        told.then(shift(&[], &[1, 3, 5]));
        assert_eq!(told, shift(&[], &[3, 4, 6]));
    }
}
