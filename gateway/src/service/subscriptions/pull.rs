//! Leasing messages: every partition has its turn, and whoever finds nothing waits on all of them.

use std::sync::Arc;
use std::time::Duration;

use futures_util::StreamExt as _;
use futures_util::future::{join_all, try_join_all};
use futures_util::stream::FuturesUnordered;
use prost::Message as _;
use tokio::time::{Instant, timeout_at};
use weir_protocol::batch::{BatchError, Record};
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Incarnation, Name, Offset, PartitionId, Term, hash128};
use weir_protocol::rpc::{Grant, Method, Packet, PullAnswer, PullRequest, ShareRequest, U128};

use super::Subscriptions;
use super::cache::{Known, PATTERN_AGE_MAX};
use super::described::{PartPlace, Subscription, SubscriptionPath};
use super::known::is_stale;
use super::lease::Lease;
use super::share::by_topic;
use crate::answers::{Client, Held};
use crate::service::ServiceError;
use crate::service::read::{Origin, RecordSlice, unpack};
use crate::storage::Safety;

/// A partition that cannot be reached holds up those behind it no longer than this.
const TURN_TIME_MAX: Duration = Duration::from_secs(2);
/// Pauses after a wait that ended with nothing, because somebody else was faster; doubled each time.
const PAUSE_MIN: Duration = Duration::from_millis(5);
const PAUSE_MAX: Duration = Duration::from_millis(250);

/// What is asked for.
#[derive(Debug, Clone)]
pub struct Pull {
    /// Most messages, at least 1.
    pub max: u32,
    /// Stop once this many encoded bytes are leased; one message is always given.
    pub max_bytes: u64,
    /// With nothing to lease, wait this long for something.
    pub wait: Duration,
    /// How long they are leased, milliseconds; `None`: as the subscription says.
    pub lease_ms: Option<u32>,
    /// Names this pull: repeated, it gets the same leases while any of them is held.
    pub key: Option<String>,
    /// Who takes them; may be empty.
    pub holder: String,
    /// All of one partition.
    pub is_of_one_partition: bool,
}

/// A message that was leased.
#[derive(Debug, Clone)]
pub struct Delivery {
    /// What settles it.
    pub lease: Lease,
    /// Its topic, of a subscription to several.
    pub topic: Option<Name>,
    /// Deliveries so far, this one included.
    pub attempt: u32,
    /// When the lease runs out.
    pub expires: Instant,
    /// The message.
    pub record: Record,
}

/// What a pull leased.
pub(crate) struct Pulled {
    /// The messages; none if there was nothing to lease.
    pub(crate) deliveries: Vec<Delivery>,
    /// Where they are held.
    pub(crate) room: Held,
}

impl Subscriptions {
    /// Leases messages. None: there was nothing to lease, also not while waiting.
    ///
    /// Nothing is leased before there is room for it among what is held for `client`; who waits holds none.
    ///
    /// # Errors
    /// `answers_full` before anything is leased, `subscription_not_found`, `incarnation_gone` if the topic was deleted;
    /// `invalid_parameter` of a stream without a holder; `unavailable` if nothing was leased and a partition cannot be
    /// reached.
    ///
    /// # Cancel safety
    /// If it is dropped, waiting ends; what was leased just then comes again when its lease runs out, or at once
    /// when it is pulled with the same key.
    pub(crate) async fn pull(
        &self,
        path: &SubscriptionPath,
        pull: &Pull,
        client: &Arc<Client>,
    ) -> Result<Pulled, ServiceError> {
        let until = Instant::now() + pull.wait;
        let deadline = self.storage.deadline() + pull.wait;
        loop {
            let pulled = self.with_known(path, deadline, |known| async move {
                if known.subscription.config.is_stream && pull.holder.is_empty() {
                    let detail = "a stream has one reader at a time, and knows it by its name";
                    let failure = ServiceError::new(ErrorCode::InvalidParameter, format!("holder: {detail}"));
                    return Err(failure.with_field("holder"));
                }
                // Meanwhile there may be topics that it waits for nothing of, or another share.
                let is_shared = known.subscription.is_shared();
                let is_whole = !known.subscription.is_pattern() && !is_shared;
                let round = if is_whole { until } else { until.min(Instant::now() + PATTERN_AGE_MAX) };
                let lots = if is_shared { self.lots(&known.subscription, pull).await? } else { Vec::new() };
                Puller::new(self, known, lots, (pull, client), round).run().await
            });
            let pulled = pulled.await?;
            if !pulled.deliveries.is_empty() || Instant::now() >= until || *self.ends_waits.borrow() {
                return Ok(pulled);
            }
        }
    }
}

impl Subscriptions {
    /// Which parts of a stream a puller is to read. It counts as a consumer until it was silent for as long as a lease.
    async fn lots(&self, subscription: &Subscription, pull: &Pull) -> Result<Vec<Option<u64>>, ServiceError> {
        let lease_ms = pull.lease_ms.unwrap_or(subscription.config.lease_ms);
        let round_ms = u64::try_from(PATTERN_AGE_MAX.as_millis()).expect("a second");
        let request = ShareRequest {
            subscription: subscription.id,
            holder: pull.holder.clone(),
            topics: by_topic(&subscription.parts),
            // Whoever waits asks again after each round.
            patience_ms: u64::from(lease_ms) + round_ms,
            ..ShareRequest::default()
        };
        let answer = self.share(&subscription.path, &request).await?;
        let mut lots = vec![None; subscription.parts.len()];
        for part in answer.parts {
            let key = (Incarnation(part.incarnation), PartitionId(part.partition));
            if let Some(place) = subscription.place_of(key.0, key.1) {
                lots[place] = Some(part.lot);
            }
        }
        Ok(lots)
    }
}

/// One pull under way.
struct Puller<'a> {
    subscriptions: &'a Subscriptions,
    known: Arc<Known>,
    /// Of a shared stream, under which each part is read; `None`: it is another's to read.
    lots: Vec<Option<u64>>,
    pull: &'a Pull,
    until: Instant,
    key: Option<U128>,
    taken: Vec<Delivery>,
    bytes: u64,
    /// Room for what is asked for, while something may be leased.
    room: Held,
    /// Bytes of the batches that keep what was taken.
    kept_bytes: u64,
    /// Why a partition did not answer; told if nothing else can be.
    failure: Option<ServiceError>,
}

impl<'a> Puller<'a> {
    fn new(
        subscriptions: &'a Subscriptions,
        known: Arc<Known>,
        lots: Vec<Option<u64>>,
        (pull, client): (&'a Pull, &Arc<Client>),
        until: Instant,
    ) -> Self {
        let id = known.subscription.id.to_le_bytes();
        let key = pull.key.as_ref().map(|key| hash128(&[&id, key.as_bytes()]).into());
        Self {
            subscriptions,
            known,
            lots,
            pull,
            until,
            key,
            taken: Vec::new(),
            bytes: 0,
            room: client.nothing(),
            kept_bytes: 0,
            failure: None,
        }
    }

    async fn run(mut self) -> Result<Pulled, ServiceError> {
        let order = self.order();
        if order.is_empty() {
            // Others read all there is.
            self.sleep_until(self.until).await;
            return Ok(Pulled { deliveries: Vec::new(), room: self.room });
        }
        if self.key.is_some() {
            self.repeat().await?;
        }
        if self.taken.is_empty() {
            self.turns(&order).await;
        }
        let mut pause = PAUSE_MIN;
        while self.taken.is_empty() && !self.is_over() {
            self.room.shrink(0);
            self.wait(&order).await;
            if self.taken.is_empty() && !self.is_over() {
                self.sleep_until(self.until.min(Instant::now() + pause)).await;
                pause = (pause * 2).min(PAUSE_MAX);
            }
        }
        match self.failure {
            Some(failure) if self.taken.is_empty() => Err(failure),
            _ => {
                // They are leased: whatever they take is told.
                self.room.shrink(self.kept_bytes);
                self.room.grow_anyway(self.kept_bytes - self.room.bytes());
                Ok(Pulled { deliveries: self.taken, room: self.room })
            }
        }
    }

    fn subscription(&self) -> &Subscription {
        &self.known.subscription
    }

    /// Nothing can be waited for: the time is over, the gateway stops, or everything that is known is old.
    fn is_over(&self) -> bool {
        let is_late = Instant::now() >= self.until || *self.subscriptions.ends_waits.borrow();
        is_late || self.is_over_already()
    }

    /// Until then, or until nobody is to wait.
    async fn sleep_until(&self, until: Instant) {
        let mut ends = self.subscriptions.ends_waits.subscribe();
        let _ = timeout_at(until, ends.wait_for(|ends| *ends)).await;
    }

    fn is_full(&self) -> bool {
        self.taken.len() >= self.pull.max as usize || self.bytes >= self.pull.max_bytes
    }

    /// No other partition is asked.
    fn is_enough(&self) -> bool {
        self.is_full() || (self.pull.is_of_one_partition && !self.taken.is_empty())
    }

    /// All partitions, whose turn it is first. Repeats of a pull ask in the same order.
    fn order(&self) -> Vec<usize> {
        let partitions = self.subscription().partitions();
        let first = match self.key {
            Some(key) => u32::try_from(key.low % u64::from(partitions.max(1))).expect("a remainder of a u32"),
            None => self.known.take_turn(),
        };
        let all = (first..partitions).chain(0..first).map(|place| place as usize);
        all.filter(|place| self.lots.get(*place).is_none_or(Option::is_some)).collect()
    }

    /// What was leased under the key before, wherever it was.
    async fn repeat(&mut self) -> Result<(), ServiceError> {
        self.make_room().await?;
        let asked = (0..self.subscription().parts.len()).map(|partition| {
            let request = PullRequest {
                max_records: self.pull.max,
                max_bytes: self.pull.max_bytes,
                key: self.key,
                only_repeat: true,
                ..self.request(partition)
            };
            let deadline = self.subscriptions.storage.deadline();
            self.ask(partition, request, deadline)
        });
        // A partition that cannot be reached may be the one that holds them: then nothing new may be leased.
        for found in try_join_all(asked).await? {
            if !self.is_enough() {
                self.add(found);
            }
        }
        Ok(())
    }

    /// Every partition's turn, until there is enough. Whether those behind the first have anything is asked of all
    /// at once, so that empty partitions cost one round trip however many they are.
    async fn turns(&mut self, order: &[usize]) {
        let Some((first, others)) = order.split_first() else { return };
        self.take(*first).await;
        if self.is_enough() || others.is_empty() || self.is_over_already() {
            return;
        }
        let until = Instant::now() + TURN_TIME_MAX;
        let asked = others.iter().map(|partition| self.ask(*partition, self.request(*partition), until));
        let answers = join_all(asked).await;
        for (partition, answer) in others.iter().zip(answers) {
            match answer {
                Ok(found) if found.is_more && !self.is_enough() => self.take(*partition).await,
                Ok(_) => {}
                Err(failure) => self.failed(failure),
            }
        }
    }

    /// The first partition refused what is known, or there is no room: others would refuse too.
    fn is_over_already(&self) -> bool {
        let is_full = |failure: &ServiceError| failure.code() == ErrorCode::AnswersFull;
        self.taken.is_empty() && self.failure.as_ref().is_some_and(|why| is_stale(why) || is_full(why))
    }

    /// Room for what is asked for, before anything is leased.
    async fn make_room(&mut self) -> Result<(), ServiceError> {
        Ok(self.room.resize_soon(self.pull.max_bytes.max(self.kept_bytes)).await?)
    }

    /// Leases what is missing from one partition.
    async fn take(&mut self, place: usize) {
        if let Err(failure) = self.make_room().await {
            return self.failed(failure);
        }
        let is_only = self.subscription().partitions() == 1;
        let deadline = self.subscriptions.storage.deadline();
        let deadline = if is_only { deadline } else { deadline.min(Instant::now() + TURN_TIME_MAX) };
        let taken = u32::try_from(self.taken.len()).unwrap_or(u32::MAX);
        let request = PullRequest {
            max_records: self.pull.max.saturating_sub(taken),
            max_bytes: self.pull.max_bytes.saturating_sub(self.bytes),
            key: self.key,
            ..self.request(place)
        };
        match self.ask(place, request, deadline).await {
            Ok(found) => self.add(found),
            Err(failure) => self.failed(failure),
        }
    }

    /// Waits until one of the partitions has something, or the time is over, and leases it.
    async fn wait(&mut self, order: &[usize]) {
        let count = u32::try_from(order.len()).unwrap_or(u32::MAX);
        let Ok(place) = Arc::clone(&self.subscriptions.waits).try_acquire_many_owned(count) else {
            // Too many wait: this one asks again later.
            self.sleep_until(self.until.min(Instant::now() + PAUSE_MAX)).await;
            return self.turns(order).await;
        };
        let left = self.until.saturating_duration_since(Instant::now());
        let wait_ms = u64::try_from(left.as_millis()).unwrap_or(u64::MAX).max(1);
        let deadline = self.until + TURN_TIME_MAX;
        let mut failures = Vec::new();
        let found = {
            let mut waiting: FuturesUnordered<_> = order
                .iter()
                .map(|place| {
                    let request = PullRequest { wait_ms, ..self.request(*place) };
                    async { (*place, self.ask(*place, request, deadline).await) }
                })
                .collect();
            let found = async {
                while let Some((place, answer)) = waiting.next().await {
                    match answer {
                        Ok(found) if found.is_more => return Some(place),
                        Ok(_) => {}
                        Err(failure) if is_stale(&failure) => {
                            failures.push(failure);
                            return None;
                        }
                        Err(failure) => failures.push(failure),
                    }
                }
                None
            };
            // Nothing is leased yet by those who only wait: whoever stops them loses nothing.
            tokio::select! {
                biased;
                found = found => found,
                () = self.sleep_until(self.until) => None,
            }
        };
        drop(place);
        failures.into_iter().for_each(|failure| self.failed(failure));
        if let Some(place) = found {
            self.take(place).await;
        }
    }

    /// Asks for nothing, under no key: with `max_records` 0 only whether there is something.
    fn request(&self, place: usize) -> PullRequest {
        PullRequest {
            part: self.subscription().part(place),
            max_records: 0,
            max_bytes: 0,
            lease_ms: self.pull.lease_ms.unwrap_or(0),
            wait_ms: 0,
            key: None,
            only_repeat: false,
            holder: self.pull.holder.clone(),
            lot: self.lots.get(place).copied().flatten().unwrap_or(0),
        }
    }

    async fn ask(
        &self,
        place: usize,
        request: PullRequest,
        deadline: Instant,
    ) -> Result<Found, ServiceError> {
        let subscription = self.subscription();
        // Twice is safe: what the first attempt leased, if it did, comes again later.
        let method = (Method::Pull, Safety::Repeatable);
        let call = Subscriptions::call(subscription, place, method, deadline);
        let partition = subscription.parts[place].partition;
        let (call, segments) = ((call, request.wait_ms > 0), vec![request.encode_to_vec().into()]);
        let answer = self.subscriptions.storage.send_waiting(call, segments).await;
        let answer = answer.map_err(|failure| failure.with_partition(partition))?;
        let packet = Packet::<PullAnswer>::decode(answer)
            .map_err(|error| ServiceError::bad_answer(&error.to_string(), Outcome::Unknown))?;
        let origin = Origin { partition, committed_end: Offset(u64::MAX), term: Term(0) };
        let slices = unpack(&packet.message.slices, packet.payload.into_bytes(), origin)?;
        let kept_bytes = kept_bytes(&slices);
        let mut records = Vec::with_capacity(packet.message.grants.len());
        for slice in slices {
            for record in slice.records().map_err(|error| corrupt(&error))? {
                records.push(record.map_err(|error| corrupt(&error))?);
            }
        }
        let deliveries = deliveries(subscription, place, &packet.message.grants, records);
        Ok(Found { deliveries, is_more: packet.message.is_more, kept_bytes })
    }

    fn add(&mut self, found: Found) {
        self.bytes += found.deliveries.iter().map(|delivery| delivery.record.size as u64).sum::<u64>();
        self.kept_bytes += found.kept_bytes;
        self.taken.extend(found.deliveries);
    }

    /// The first failure stands, but one that says that everything known is old goes before.
    fn failed(&mut self, failure: ServiceError) {
        if self.failure.is_none() || is_stale(&failure) {
            self.failure = Some(failure);
        }
    }
}

/// What a partition answered.
struct Found {
    deliveries: Vec<Delivery>,
    is_more: bool,
    kept_bytes: u64,
}

/// Memory that the records of these keep, once they are taken out of their batches.
fn kept_bytes(slices: &[RecordSlice]) -> u64 {
    let kept =
        |slice: &RecordSlice| (slice.batch.bytes().len() as u64).max(slice.batch.header().raw_bytes.into());
    slices.iter().map(kept).sum()
}

/// The records that were leased, of all that came: a slice may hold others. Both are in the order of offsets.
fn deliveries(
    subscription: &Subscription,
    place: usize,
    grants: &[Grant],
    records: Vec<Record>,
) -> Vec<Delivery> {
    let now = Instant::now();
    let PartPlace { incarnation, partition, .. } = subscription.parts[place];
    let mut records = records.into_iter().peekable();
    let mut leased = Vec::with_capacity(grants.len());
    for grant in grants {
        while records.next_if(|record| record.offset.0 < grant.offset).is_some() {}
        let Some(record) = records.next_if(|record| record.offset.0 == grant.offset) else {
            // It comes again when its lease runs out.
            tracing::warn!(%partition, offset = grant.offset, "a message was leased and did not come");
            continue;
        };
        let lease = Lease {
            subscription: subscription.id,
            incarnation,
            partition,
            offset: record.offset,
            fence: grant.fence,
        };
        let expires = now + Duration::from_millis(grant.expires_in_ms);
        let topic = subscription.topic_of(place);
        leased.push(Delivery { lease, topic, attempt: grant.attempt, expires, record });
    }
    leased
}

fn corrupt(error: &BatchError) -> ServiceError {
    ServiceError::new(ErrorCode::Corrupt, format!("a record batch from a storage node is damaged: {error}"))
}
