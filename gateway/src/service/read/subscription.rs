//! Following one or several partitions, within the client's credit.

use std::sync::Arc;

use tokio::sync::futures::OwnedNotified;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId, TopicPath};
use weir_protocol::rpc::{At, Credit, Level};

use super::budget::Share;
use super::credit::{CreditCell, SubscriptionCredit};
use super::cursor::{Cursor, Early, gone};
use super::event::{PartitionOf, SubscriptionEvent, records_event, small_event};
use super::follower::Follower;
use super::merge::Merge;
use super::reader::{Reader, partitions_of, position};
use super::room::Room;
use super::start::StartAt;
use super::stream::{PartitionEvent, StreamStart};
use crate::service::ServiceError;
use crate::storage::{READING_MAX, Topic};

/// What to follow.
#[derive(Debug, Clone)]
pub struct Subscribe {
    /// Topics, at least one.
    pub topics: Vec<TopicPath>,
    /// Only this partition of each; `None`: all.
    pub partition: Option<PartitionId>,
    /// Where to start. Topics that a cursor does not know start at their end.
    pub from: StartAt,
    /// Where a reader of the first topic was, which goes before `from`.
    pub seen: Option<Seen>,
    /// Only this life of the topics: another is refused.
    pub life: Option<Incarnation>,
    /// Memory or quorum; `Unset`: each topic's `deliver_from`.
    pub min_level: Level,
    /// Only records that match; others cost no credit.
    pub filter: Option<Arc<str>>,
    /// First limit, absolute from now on.
    pub limit: Credit,
    /// How the records are held on their way to a client.
    pub(crate) room: Option<Room>,
}

/// Where a reader was. Of another life of the topic its positions mean nothing: that one is read from its beginning,
/// because all of it is new to who read the one before.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Seen {
    /// The life that the positions are of.
    pub life: Incarnation,
    /// Positions. What is not among them starts at `from`.
    pub partitions: Vec<SeenPartition>,
}

/// Where a reader is on one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeenPartition {
    /// The partition.
    pub partition: PartitionId,
    /// Next offset to be read.
    pub next: Offset,
    /// What it was delivered below quorum.
    pub early: Option<Early>,
}

/// A running subscription. Dropping it ends it.
pub struct Subscription {
    /// The topics, as they were when it started.
    pub topics: Vec<Arc<Topic>>,
    credit: Arc<CreditCell>,
    source: Source,
}

enum Source {
    One(Box<One>),
    Many(Box<Merge>),
}

struct One {
    follower: Follower,
    share: Share,
}

impl std::fmt::Debug for Subscription {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Subscription").field("topics", &self.topics.len()).finish_non_exhaustive()
    }
}

impl Reader {
    /// Starts to follow. Positions that do not exist are told by the first [`Subscription::next`].
    ///
    /// # Errors
    /// `topic_not_found`, `partition_not_found`, `incarnation_gone` (of a cursor), `invalid_parameter` for an offset on
    /// several partitions.
    pub async fn subscribe(&self, subscribe: Subscribe) -> Result<Subscription, ServiceError> {
        let mut topics = Vec::with_capacity(subscribe.topics.len());
        for path in &subscribe.topics {
            // Not from memory: a later `incarnation_gone` then means that the topic was deleted meanwhile.
            let topic = self.topics.get(path).await?;
            if subscribe.life.is_some_and(|life| life != topic.incarnation) {
                let detail =
                    format!("{} was deleted and made again: this is another topic of that name", path.topic);
                return Err(gone(&topic, &detail));
            }
            topics.push(topic);
        }
        let mut followers = Vec::new();
        let several = topics.len() > 1;
        for (place, topic) in topics.iter().enumerate() {
            let partitions = partitions_of(topic, subscribe.partition)?;
            if followers.len() + partitions.len() > READING_MAX {
                let detail =
                    format!("a gateway follows {READING_MAX} partitions at once, and these are more");
                let failure = ServiceError::new(ErrorCode::TooLarge, detail);
                return Err(failure.with_limit(READING_MAX as u64));
            }
            let count = if several { usize::MAX } else { partitions.len() };
            for partition in partitions {
                let mut start = stream_start(topic, partition, &subscribe, count)?;
                // What waits for its turn among several is held as credit is.
                start.room = subscribe.room.clone().filter(|_| count == 1);
                let with = (self.storage.clone(), self.config);
                let follower = Follower::new(with, &self.feeds, Arc::clone(topic), partition, start);
                followers.push((PartitionOf { topic: place, partition }, follower));
            }
        }
        let credit = Arc::new(CreditCell::default());
        credit.raise(subscribe.limit);
        let source = if followers.len() == 1 {
            let (_, follower) = followers.remove(0);
            Source::One(Box::new(One { follower, share: Share::new(Arc::clone(&self.budget)) }))
        } else {
            Source::Many(Box::new(Merge::new(followers, &self.budget, (subscribe.limit, subscribe.room))))
        };
        Ok(Subscription { topics, credit, source })
    }
}

fn stream_start(
    topic: &Topic,
    partition: PartitionId,
    subscribe: &Subscribe,
    count: usize,
) -> Result<StreamStart, ServiceError> {
    let min_level =
        if subscribe.min_level == Level::Unset { topic.deliver_from() } else { subscribe.min_level };
    let filter = subscribe.filter.clone();
    let is_another = |seen: &Seen| seen.life != topic.incarnation;
    if subscribe.seen.as_ref().is_some_and(is_another) {
        return Ok(StreamStart { at: At::Earliest(true), seen: None, min_level, filter, room: None });
    }
    let of = |seen: &SeenPartition| seen.partition == partition;
    let seen = subscribe.seen.as_ref().and_then(|seen| seen.partitions.iter().copied().find(of));
    let (at, seen) = match (seen, &subscribe.from) {
        (Some(seen), _) => (At::Offset(seen.next.0), seen.early),
        (None, StartAt::Cursor(cursor)) => {
            let at = cursor.at(topic, partition)?;
            (at.map_or(At::Latest(true), |at| At::Offset(at.next.0)), at.and_then(|at| at.early))
        }
        (None, from) => (position(topic, partition, from, count)?, None),
    };
    Ok(StreamStart { at, seen, min_level, filter, room: None })
}

impl Subscription {
    /// A handle that raises the limit while [`Subscription::next`] waits.
    #[must_use]
    pub fn credit(&self) -> SubscriptionCredit {
        SubscriptionCredit(Arc::clone(&self.credit))
    }

    /// Raises the limit to these absolute totals; lower or repeated values change nothing.
    pub fn raise_limit(&self, limit: Credit) {
        self.credit.raise(limit);
    }

    /// Where a reader goes on that has seen everything up to the last event. Complete after the first event.
    #[must_use]
    pub fn cursor(&self) -> Cursor {
        match &self.source {
            Source::Many(merge) => merge.cursor(&self.topics),
            Source::One(one) => {
                let mut cursor = Cursor::default();
                if let Some(at) = one.follower.at() {
                    cursor.set(one.follower.topic(), one.follower.partition(), at);
                }
                cursor
            }
        }
    }

    /// The next event, as soon as the limit allows it.
    ///
    /// # Errors
    /// The subscription is over: a position beyond the tail, a deleted topic, no leader in time, damage.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn next(&mut self) -> Result<SubscriptionEvent, ServiceError> {
        match &mut self.source {
            Source::One(one) => one.next(&self.credit).await,
            Source::Many(merge) => merge.next(&self.credit).await,
        }
    }
}

impl One {
    async fn next(&mut self, credit: &CreditCell) -> Result<SubscriptionEvent, ServiceError> {
        let of = PartitionOf { topic: 0, partition: self.follower.partition() };
        let event = loop {
            let limit = credit.latest();
            let freed = self.raise(limit);
            let is_throttled = freed.is_some();
            credit.set_throttled(is_throttled);
            tokio::select! {
                // Grants first: they let the node send while what came is handled.
                biased;
                () = credit.changed(limit) => {}
                () = async { if let Some(freed) = freed { freed.await } }, if is_throttled => {}
                event = self.follower.next() => match event? {
                    Some(event) => break event,
                    None => credit.set_feed(of, self.follower.throttle()),
                },
            }
        };
        Ok(match event {
            PartitionEvent::Records { parcel, bytes } => {
                self.share.hand_on(bytes);
                records_event(of, parcel, bytes)
            }
            other => small_event(of, other),
        })
    }

    /// Raises what may come to the client's limit, of a stream of its own as far as the budget goes; what to
    /// wait for if that is nothing.
    fn raise(&mut self, limit: Credit) -> Option<OwnedNotified> {
        if self.follower.is_shared() {
            // What is handed on at once is owed by nobody.
            self.share.rest();
            self.follower.raise(limit);
            return None;
        }
        let freed = self.share.freed();
        let bytes = self.share.raise(limit.bytes);
        self.follower.reaches(limit);
        self.follower.raise(Credit { records: limit.records, bytes });
        self.share.is_throttled().then_some(freed)
    }
}
