//! Why a message is where it is, and dead letters once more.

use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Incarnation, Name, Offset, PartitionId};
use weir_protocol::rpc::{ExplainRequest, Explanation, Method, RedriveAnswer, RedriveRequest};

use super::Subscriptions;
use super::described::{Subscription, SubscriptionPath};
use super::message_id::MessageId;
use crate::service::ServiceError;
use crate::service::token::{TokenReader, TokenWriter};
use crate::storage::Safety;

const VERSION: u8 = 4;
/// A redrive at a rate ends after this long, and says where to go on.
const REDRIVE_TIME_MAX: Duration = Duration::from_secs(20);
/// At a rate, messages are redriven in as many steps a second.
const STEPS_A_SECOND: u32 = 4;

/// Which dead letters.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum RedriveFrom {
    /// The oldest of every partition.
    Oldest,
    /// Where one before ended.
    Cursor(String),
    /// These, from where one before ended.
    Ids(Vec<MessageId>, Option<String>),
}

/// Dead letters to be delivered once more.
#[derive(Debug, Clone)]
pub struct Redrive {
    /// Which.
    pub from: RedriveFrom,
    /// At most this many.
    pub limit: u32,
    /// Only those that it matches.
    pub filter: Option<String>,
    /// At most this many a second; `None`: at once.
    pub rate: Option<u32>,
    /// Stop when this many of them are dead again; 0: never.
    pub stop_after: u32,
    /// Only say which they would be, at once.
    pub is_dry_run: bool,
}

/// What a redrive did.
#[derive(Debug, Clone, Default)]
pub struct RedriveDone {
    /// What will be delivered again.
    pub redriven: Vec<MessageId>,
    /// How many of them were dead again when the last ones of their partition were asked for.
    pub dead_again: u64,
    /// Too many were.
    pub is_stopped: bool,
    /// Where to go on; `None`: there is nothing beyond.
    pub next: Option<String>,
}

/// Where a redrive goes on: in this part, or in the next one if it is gone.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Place {
    part: (Incarnation, PartitionId),
    from: Offset,
}

impl Subscriptions {
    /// Where a message stands for a subscription, and why. Changes nothing.
    ///
    /// # Errors
    /// `partition_not_found`, `incarnation_gone` if the topic was deleted.
    pub async fn explain(
        &self,
        path: &SubscriptionPath,
        id: &MessageId,
    ) -> Result<Explanation, ServiceError> {
        let deadline = self.storage.deadline();
        self.with_known(path, deadline, |known| async move {
            let subscription = &known.subscription;
            let place = subscription.place_named(topic_name(id), id.partition)?;
            let method = (Method::Explain, Safety::Repeatable);
            let call = Self::call(subscription, place, method, deadline);
            let request = ExplainRequest { part: subscription.part(place), offset: id.offset.0 };
            let answer = self.storage.ask(call, &request).await;
            answer.map_err(|failure: ServiceError| failure.with_partition(id.partition))
        })
        .await
    }

    /// Makes dead letters unsettled again, for this subscription alone.
    ///
    /// # Errors
    /// `partition_not_found`, `invalid_cursor`, `incarnation_gone` if the topic was deleted; with an unknown
    /// outcome some may have been redriven. Redriven twice is redriven once: what is not dead is passed over.
    ///
    /// # Cancel safety
    /// If it is dropped, what was redriven until then stays so.
    pub async fn redrive(
        &self,
        path: &SubscriptionPath,
        redrive: &Redrive,
    ) -> Result<RedriveDone, ServiceError> {
        let deadline = self.storage.deadline();
        // Of several topics none that is gone is asked.
        self.forget_unless(path, Subscription::is_of_one);
        self.with_known(path, deadline, |known| async move {
            match &redrive.from {
                RedriveFrom::Ids(ids, cursor) => {
                    let first = cursor.as_deref().map_or(Ok(Place::FIRST), Place::decode)?;
                    self.redrive_ids(&known.subscription, redrive, ids, first).await
                }
                RedriveFrom::Oldest => self.redrive_from(&known.subscription, redrive, Place::FIRST).await,
                RedriveFrom::Cursor(cursor) => {
                    self.redrive_from(&known.subscription, redrive, Place::decode(cursor)?).await
                }
            }
        })
        .await
    }

    async fn redrive_ids(
        &self,
        subscription: &Subscription,
        redrive: &Redrive,
        ids: &[MessageId],
        first: Place,
    ) -> Result<RedriveDone, ServiceError> {
        let (mut pace, mut asked) = (Pace::new(redrive), 0);
        let place = |id: &MessageId| Ok((subscription.place_named(topic_name(id), id.partition)?, id.offset));
        let mut ids = ids.iter().map(place).collect::<Result<Vec<_>, ServiceError>>()?;
        let begin = first.within(subscription);
        ids.retain(|id| *id >= begin);
        ids.sort_unstable();
        let steps = ids.chunk_by(|(one, _), (other, _)| one == other);
        for some in steps.flat_map(|of_one| of_one.chunks(pace.step as usize)).collect::<Vec<_>>() {
            let (place, from) = some[0];
            pace.done.next = Some(Place { part: subscription.parts[place].key(), from }.encode());
            if !pace.is_allowed(asked).await {
                return Ok(pace.done);
            }
            let mut request = pace.request(subscription, place, redrive);
            request.offsets = some.iter().map(|(_, offset)| offset.0).collect();
            request.limit = u32::try_from(some.len()).unwrap_or(u32::MAX);
            let answer = self.redrive_part(subscription, place, request).await;
            let answer = answer.map_err(|failure| pace.failed(failure, redrive))?;
            pace.add(subscription, place, &answer, redrive);
            if pace.done.is_stopped {
                return Ok(pace.done);
            }
            asked += some.len();
        }
        pace.done.next = None;
        Ok(pace.done)
    }

    async fn redrive_from(
        &self,
        subscription: &Subscription,
        redrive: &Redrive,
        first: Place,
    ) -> Result<RedriveDone, ServiceError> {
        let mut pace = Pace::new(redrive);
        let (mut place, mut from) = first.within(subscription);
        while let Some(part) = subscription.parts.get(place) {
            let left = redrive.limit as usize - pace.done.redriven.len();
            pace.done.next = Some(Place { part: part.key(), from }.encode());
            if left == 0 || !pace.is_allowed(pace.done.redriven.len()).await {
                return Ok(pace.done);
            }
            let mut request = pace.request(subscription, place, redrive);
            let step = u32::try_from(left).unwrap_or(u32::MAX).min(pace.step);
            (request.from, request.limit) = (from.0, step);
            let answer = self.redrive_part(subscription, place, request).await;
            let answer = answer.map_err(|failure| pace.failed(failure, redrive))?;
            pace.add(subscription, place, &answer, redrive);
            (place, from) = match answer.next {
                Some(next) => (place, Offset(next)),
                None => (place + 1, Offset(0)),
            };
        }
        pace.done.next = None;
        Ok(pace.done)
    }

    async fn redrive_part(
        &self,
        subscription: &Subscription,
        place: usize,
        request: RedriveRequest,
    ) -> Result<RedriveAnswer, ServiceError> {
        // Asked twice for a number of them, it would take as many again, and of those it took first nobody would hear.
        let safety = if request.is_dry_run { Safety::Repeatable } else { Safety::Once };
        let method = (Method::Redrive, safety);
        let call = Self::call(subscription, place, method, self.storage.deadline());
        let answer = self.storage.ask(call, &request).await;
        answer.map_err(|failure: ServiceError| failure.with_partition(subscription.parts[place].partition))
    }
}

fn topic_name(id: &MessageId) -> Option<&str> {
    id.topic.as_ref().map(Name::as_str)
}

/// How fast, how long, and what came of it so far.
struct Pace {
    begun: Instant,
    rate: Option<u32>,
    step: u32,
    /// Of the part that was asked last, and how many of its own were dead again then: the next answer of it
    /// counts them once more.
    last: (usize, u64),
    done: RedriveDone,
}

impl Pace {
    fn new(redrive: &Redrive) -> Self {
        let rate = redrive.rate.filter(|_| !redrive.is_dry_run);
        let step = rate.map_or(redrive.limit, |rate| (rate / STEPS_A_SECOND).max(1));
        Self { begun: Instant::now(), rate, step, last: (0, 0), done: RedriveDone::default() }
    }

    /// Waits for the turn of the next one after `count`; false if it would come too late, or all has stopped.
    async fn is_allowed(&self, count: usize) -> bool {
        if self.done.is_stopped {
            return false;
        }
        let Some(rate) = self.rate else { return true };
        let after = Duration::from_secs(1) / rate * u32::try_from(count).unwrap_or(u32::MAX);
        if after > REDRIVE_TIME_MAX {
            return false;
        }
        sleep_until(self.begun + after).await;
        true
    }

    fn request(&self, subscription: &Subscription, place: usize, redrive: &Redrive) -> RedriveRequest {
        let topic = subscription.topic_of(place);
        let partition = subscription.parts[place].partition;
        let is_of_it = |id: &&MessageId| (id.partition, &id.topic) == (partition, &topic);
        RedriveRequest {
            part: subscription.part(place),
            filter: redrive.filter.clone(),
            watched: self.done.redriven.iter().filter(is_of_it).map(|id| id.offset.0).collect(),
            give_up_at: if redrive.is_dry_run { 0 } else { redrive.stop_after },
            is_dry_run: redrive.is_dry_run,
            ..RedriveRequest::default()
        }
    }

    fn add(&mut self, subscription: &Subscription, place: usize, answer: &RedriveAnswer, redrive: &Redrive) {
        let (topic, partition) = (subscription.topic_of(place), subscription.parts[place].partition);
        let id = |offset: &u64| MessageId { topic: topic.clone(), partition, offset: Offset(*offset) };
        self.done.redriven.extend(answer.redriven.iter().map(id));
        let counted = if self.last.0 == place { self.last.1 } else { 0 };
        self.done.dead_again = self.done.dead_again - counted + answer.dead_again;
        self.last = (place, answer.dead_again);
        self.done.is_stopped =
            !redrive.is_dry_run && redrive.stop_after > 0 && answer.dead_again >= redrive.stop_after.into();
    }

    /// A partition does not answer as it should: what others have redriven stays so, and it is not begun anew.
    fn failed(&self, failure: ServiceError, redrive: &Redrive) -> ServiceError {
        let is_without_effect = redrive.is_dry_run || self.done.redriven.is_empty();
        if is_without_effect { failure } else { failure.with_outcome(Outcome::Unknown) }
    }
}

impl Place {
    /// Where everything begins.
    const FIRST: Self = Self { part: (Incarnation(0), PartitionId(0)), from: Offset(0) };

    /// The same as the place of a part, and an offset of it.
    fn within(self, subscription: &Subscription) -> (usize, Offset) {
        let place = subscription.parts.partition_point(|part| part.key() < self.part);
        let is_there = subscription.parts.get(place).is_some_and(|part| part.key() == self.part);
        (place, if is_there { self.from } else { Offset(0) })
    }

    fn encode(self) -> String {
        let (incarnation, partition) = self.part;
        TokenWriter::new(VERSION)
            .number(incarnation.0)
            .number(partition.0.into())
            .number(self.from.0)
            .finish()
    }

    fn decode(token: &str) -> Result<Self, ServiceError> {
        let read = || {
            let mut reader = TokenReader::new(VERSION, token)?;
            let part = (Incarnation(reader.number()?), PartitionId(reader.small()?));
            let place = Self { part, from: Offset(reader.number()?) };
            reader.end()?;
            Some(place)
        };
        read().ok_or_else(|| {
            let failure = ServiceError::new(ErrorCode::InvalidCursor, "the cursor is not one of a redrive");
            failure.with_field("cursor")
        })
    }
}
