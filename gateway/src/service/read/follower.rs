//! One partition, followed by a stream of its own or with others.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Offset, PartitionId};
use weir_protocol::rpc::{Credit, Level};

use super::config::ReadConfig;
use super::cursor::At as CursorAt;
use super::feed::{Feeds, Seat, Tap, Tapped};
use super::records::RecordSlice;
use super::room::Room;
use super::stream::{NodeStream, PartitionEvent, StreamStart};
use crate::service::ServiceError;
use crate::storage::{Storage, Topic};

/// Follows one partition. It begins with a stream of its own, which says where it starts and what it missed,
/// and goes over to the feed of all readers when it has come to the end: then it holds no stream, and nothing
/// waits for it anywhere. It goes back to a stream of its own when it was too slow for the feed, or the feed
/// is over.
///
/// Where it is is one position, whichever way records come: each comes once and in order.
pub(super) struct Follower {
    stream: NodeStream,
    /// It may share: it waits for the commit, and wants everything.
    seat: Option<Seat>,
    tap: Option<Tap>,
    limit: Credit,
    end: ToldEnd,
    /// Room that records need which come from others.
    room: Option<Room>,
}

/// Records after which a reader that comes to the end was really behind, and is told that it is there.
const LAG_RECORDS: u64 = 1_000;

/// What the reader was told of the end: once that it is there, and not again behind each record of a quiet partition.
#[derive(Debug, Default)]
struct ToldEnd {
    /// It was there, of a topic that was closed then or not.
    told: Option<bool>,
    /// What has come since it was last there.
    records: u64,
    /// How far it was told of. Where the end is elsewhere something was passed over, of which it has to know.
    upto: Offset,
}

impl ToldEnd {
    /// Whether the reader is to hear of an event.
    fn is_news(&mut self, event: &PartitionEvent) -> bool {
        match event {
            PartitionEvent::Records { parcel, .. } => {
                self.records += parcel.slices().iter().map(|slice| u64::from(slice.take)).sum::<u64>();
                self.upto = parcel.slices().last().map_or(self.upto, RecordSlice::end);
            }
            PartitionEvent::CaughtUp { end, closed } => {
                let is_where_it_was = self.upto == *end && self.records <= LAG_RECORDS;
                let is_news = self.told != Some(*closed) || !is_where_it_was;
                *self = Self { told: Some(*closed), records: 0, upto: *end };
                return is_news;
            }
            PartitionEvent::Looked { upto } => self.upto = *upto,
            PartitionEvent::Gap { to: upto, .. } | PartitionEvent::Retract { from: upto, .. } => {
                (self.told, self.upto) = (None, *upto);
            }
            PartitionEvent::Started { .. } | PartitionEvent::Firm { .. } => {}
        }
        true
    }
}

impl Follower {
    pub(super) fn new(
        (storage, config): (Storage, ReadConfig),
        feeds: &Feeds,
        topic: Arc<Topic>,
        partition: PartitionId,
        start: StreamStart,
    ) -> Self {
        let may_share = start.min_level == Level::Quorum && start.filter.is_none();
        let seat = may_share.then(|| feeds.seat(topic.incarnation, partition));
        let room = start.room.clone();
        let stream = NodeStream::new(storage, config, topic, partition, start);
        Self { stream, seat, tap: None, limit: Credit::default(), end: ToldEnd::default(), room }
    }

    /// Sets the limits, absolute totals. As long as it follows with others nothing has to be asked for.
    pub(super) fn raise(&mut self, limit: Credit) {
        self.limit = limit;
        if self.tap.is_none() {
            self.stream.raise(limit);
        }
    }

    /// Where the reader's own limit is, of which that of [`Follower::raise`] may be a window.
    pub(super) fn reaches(&mut self, reach: Credit) {
        self.stream.reaches(reach);
    }

    /// It follows with others: the node owes it nothing.
    pub(super) fn is_shared(&self) -> bool {
        self.tap.is_some()
    }

    /// Of those with whom it follows, whether they wait for the gateway's budget.
    pub(super) fn throttle(&self) -> Option<&Arc<AtomicBool>> {
        self.tap.as_ref().map(Tap::throttle)
    }

    /// The topic, as it is known now.
    pub(super) fn topic(&self) -> &Topic {
        &self.stream.topic
    }

    /// Which partition.
    pub(super) fn partition(&self) -> PartitionId {
        self.stream.partition
    }

    /// Where a reader goes on that has seen everything delivered so far.
    pub(super) fn at(&self) -> Option<CursorAt> {
        self.stream.at()
    }

    /// The next event; `None` if it goes on in another way, for which limits are to be raised.
    ///
    /// # Errors
    /// It is over: refused, or no leader within the deadline.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Option<PartitionEvent>, ServiceError> {
        loop {
            match self.step().await? {
                Some(event) if !self.end.is_news(&event) => {}
                event => return Ok(event),
            }
        }
    }

    async fn step(&mut self) -> Result<Option<PartitionEvent>, ServiceError> {
        if let Some(tap) = &mut self.tap {
            let tapped = tap.next(self.stream.left_of(self.limit)).await?;
            return self.tapped(tapped);
        }
        if self.stream.is_at_end() && self.join() {
            return Ok(None);
        }
        let waits = self.seat.as_ref().filter(|seat| self.stream.is_at_end() && !seat.is_shared());
        let event = tokio::select! {
            biased;
            event = self.stream.next() => event?,
            () = async { if let Some(seat) = waits { seat.shared().await } }, if waits.is_some() => return Ok(None),
        };
        Ok(Some(event))
    }

    fn tapped(&mut self, tapped: Tapped) -> Result<Option<PartitionEvent>, ServiceError> {
        match tapped {
            Tapped::Records { parcel, used, end } => {
                let Ok(parcel) = Room::held(self.room.as_ref(), parcel, used.bytes) else {
                    self.tap = None;
                    self.stream.lacks_room(used.bytes);
                    return Ok(None);
                };
                self.stream.passed(end, used);
                Ok(Some(PartitionEvent::Records { parcel, bytes: used.bytes }))
            }
            Tapped::CaughtUp { end, closed } => Ok(Some(PartitionEvent::CaughtUp { end, closed })),
            Tapped::Behind => {
                (self.tap, self.end.told) = (None, None);
                Ok(None)
            }
            // The feed has looked for a leader as long as this would. Anything else depends on where one is,
            // or cannot be shared: a stream of its own says what it comes to.
            Tapped::Ended(why) if is_patience_over(&why) => Err(why),
            Tapped::Ended(_) => {
                self.tap = None;
                Ok(None)
            }
        }
    }

    /// Goes over to the feed, if there are others, and it is not behind it.
    fn join(&mut self) -> bool {
        let Some(seat) = self.seat.as_ref().filter(|seat| seat.is_shared()) else { return false };
        let Some(next) = self.stream.shareable_at() else { return false };
        self.tap = seat.join(next, &self.stream);
        if self.tap.is_some() {
            self.stream.rest();
        }
        self.tap.is_some()
    }
}

/// What is answered when no leader was found in time: every one of these is tried again until then.
fn is_patience_over(why: &ServiceError) -> bool {
    use ErrorCode::{Busy, ConfigBehind, Draining, NotLeader, OutcomeUnknown, Unavailable};
    matches!(why.code(), Unavailable | OutcomeUnknown | NotLeader | Draining | ConfigBehind | Busy)
}

#[cfg(test)]
mod tests;
