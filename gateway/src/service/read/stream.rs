//! One partition's records by a stream of its own from the node, across changes of its leader.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use tokio::time::Instant;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Offset, PartitionId, ShardId, Term};
use weir_protocol::rpc::{At, Credit, Event, Level, Method, Packet, SubscribeEvent, SubscribeRequest};
use weir_transport::{Answers, CallError};

use super::config::ReadConfig;
use super::cursor::{At as CursorAt, Early};
use super::parcel::Parcel;
use super::records::{Origin, RecordSlice, held_bytes, unpack};
use super::room::Room;
use crate::answers::Held;
use crate::service::ServiceError;
use crate::storage::{Attempts, Storage, Topic};

/// What happens on one partition.
#[derive(Debug)]
pub(super) enum PartitionEvent {
    /// Always first, and once.
    Started {
        from: Offset,
        tail: Offset,
        /// What the reader had seen before.
        at: CursorAt,
    },
    /// Records and their size.
    Records {
        parcel: Parcel,
        bytes: u64,
    },
    Gap {
        from: Offset,
        to: Offset,
        why: String,
    },
    CaughtUp {
        end: Offset,
        /// The topic is closed: nothing follows unless it is opened again.
        closed: bool,
    },
    Looked {
        upto: Offset,
    },
    Firm {
        upto: Offset,
    },
    Retract {
        from: Offset,
        to: Offset,
        term: Term,
    },
}

/// Follows one partition. Leaders come and go; what is delivered goes on where it was. Without an open stream
/// it costs the node nothing; the next event opens one.
pub(super) struct NodeStream {
    storage: Storage,
    config: ReadConfig,
    pub(super) topic: Arc<Topic>,
    pub(super) partition: PartitionId,
    shard: ShardId,
    min_level: Level,
    filter: Option<Arc<str>>,
    start: At,
    /// Room that records need on their way to the reader, if it is one.
    room: Option<Room>,
    /// Records of so many bytes found none: they come again once there is.
    lacks: Option<u64>,
    /// Room for them.
    held: Option<Held>,
    /// Where it is, once that is known.
    at: Option<CursorAt>,
    open: Option<Open>,
    attempts: Option<Attempts>,
    is_started: bool,
    /// The last event said that this is all there is, and the stream that said so is still open.
    is_at_end: bool,
    /// What it said then of the topic.
    is_closed: bool,
    /// The records that came last were all: to be told next.
    caught_up: Option<Offset>,
    /// Absolute limits since the start.
    limit: Credit,
    received: Credit,
    /// Where the reader's own limit is, of which `limit` is a window, if that is told.
    reach: Option<Credit>,
}

struct Open {
    answers: Answers,
    /// What had been received when it was opened: its own limits count from there.
    base: Credit,
    granted: Credit,
}

impl NodeStream {
    pub(super) fn new(
        storage: Storage,
        config: ReadConfig,
        topic: Arc<Topic>,
        partition: PartitionId,
        start: StreamStart,
    ) -> Self {
        let shard = topic.shard(partition).expect("one of the topic's partitions");
        Self {
            storage,
            config,
            topic,
            partition,
            shard,
            min_level: start.min_level,
            filter: start.filter,
            start: start.at,
            room: start.room,
            lacks: None,
            held: None,
            at: match (start.at, start.seen) {
                (At::Offset(next), Some(early)) => Some(CursorAt { next: Offset(next), early: Some(early) }),
                _ => None,
            },
            open: None,
            attempts: None,
            is_started: false,
            is_at_end: false,
            is_closed: false,
            caught_up: None,
            limit: Credit::default(),
            received: Credit::default(),
            reach: None,
        }
    }

    /// The reader has credit for so much in all, of which limits are a window: told with the next limits, so that the
    /// node reads ahead no further.
    pub(super) fn reaches(&mut self, reach: Credit) {
        self.reach = Some(reach);
    }

    /// Raises the limits; lower or repeated values change nothing.
    pub(super) fn raise(&mut self, limit: Credit) {
        self.limit.records = self.limit.records.max(limit.records);
        self.limit.bytes = self.limit.bytes.max(limit.bytes);
        if let Some(open) = &mut self.open {
            open.grant(self.limit, self.reach);
        }
    }

    /// What `limit` leaves.
    pub(super) fn left_of(&self, limit: Credit) -> Credit {
        Credit {
            records: limit.records.saturating_sub(self.received.records),
            bytes: limit.bytes.saturating_sub(self.received.bytes),
        }
    }

    /// It was told last that this is all there is, and nothing happened to its stream since.
    pub(super) fn is_at_end(&self) -> bool {
        self.is_at_end
    }

    /// It was told last, at the end, that the topic is closed.
    pub(super) fn is_closed(&self) -> bool {
        self.is_at_end && self.is_closed
    }

    /// The next offset, if that is the end, everything before it is committed and nothing is left to be told
    /// of it: who has that from elsewhere may go on here, and the other way round. `None` from when a stream
    /// is opened until it says where the end is: a gap may come first.
    pub(super) fn shareable_at(&self) -> Option<Offset> {
        self.at.filter(|at| at.early.is_none() && self.is_at_end).map(|at| at.next)
    }

    /// Whether the records that came last were all: the next event is something else then.
    pub(super) fn take_caught_up(&mut self) -> bool {
        self.caught_up.take().is_some()
    }

    /// Records up to `end` came from elsewhere.
    pub(super) fn passed(&mut self, end: Offset, amount: Credit) {
        self.at = Some(CursorAt::new(end));
        self.received.records += amount.records;
        self.received.bytes += amount.bytes;
    }

    /// Ends the stream at the node, and takes back what it was allowed; the next event opens another one
    /// where this one was.
    pub(super) fn rest(&mut self) {
        self.close();
        self.attempts = None;
        self.limit = self.received;
    }

    fn close(&mut self) {
        self.open = None;
        self.is_at_end = false;
    }

    /// Another one of the same partition from `next` on.
    pub(super) fn from(&self, next: Offset) -> Self {
        let start = StreamStart {
            at: At::Offset(next.0),
            seen: None,
            min_level: self.min_level,
            filter: None,
            room: None,
        };
        Self::new(self.storage.clone(), self.config, Arc::clone(&self.topic), self.partition, start)
    }

    /// Where a reader goes on that has seen everything delivered so far.
    pub(super) fn at(&self) -> Option<CursorAt> {
        self.at
    }

    /// The next event.
    ///
    /// # Errors
    /// It is over: refused, or no leader within the deadline.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn next(&mut self) -> Result<PartitionEvent, ServiceError> {
        if let Some(end) = self.caught_up.take() {
            (self.is_at_end, self.is_closed) = (true, false);
            return Ok(PartitionEvent::CaughtUp { end, closed: false });
        }
        loop {
            if let (Some(bytes), Some(room)) = (self.lacks, &self.room) {
                self.held = Box::pin(room.wait(bytes)).await;
                self.lacks = None;
            }
            let Some(open) = &mut self.open else {
                // Boxed: opening and recovering hold ten times what waiting does, and whoever follows mostly waits.
                Box::pin(self.open()).await?;
                continue;
            };
            match open.answers.next().await {
                Some(Ok(body)) => {
                    self.attempts = None;
                    if let Some(event) = self.take(body)? {
                        self.is_at_end = matches!(event, PartitionEvent::CaughtUp { .. });
                        self.is_closed = matches!(event, PartitionEvent::CaughtUp { closed: true, .. });
                        return Ok(event);
                    }
                }
                Some(Err(error)) => Box::pin(self.reopen(error)).await?,
                // A node that ends a stream without a reason is going away.
                None => Box::pin(self.reopen(CallError::Unknown)).await?,
            }
        }
    }

    async fn open(&mut self) -> Result<(), ServiceError> {
        let left = self.left_of(self.limit);
        let reach = self.reach.map(|reach| self.left_of(reach));
        let request = SubscribeRequest {
            incarnation: self.topic.incarnation.0,
            config_version: self.topic.version.0,
            partition: self.partition.0,
            from: self.at.map_or(self.start, |at| At::Offset(at.next.0)).into(),
            min_level: self.min_level as i32,
            limit: left,
            seen_term: self.at.and_then(|at| at.early).map(|early| early.term.0),
            firm_end: self.at.map_or(0, |at| at.firm_end().0),
            filter: self.filter.as_deref().map(str::to_owned),
            joins_caught_up: true,
            reach_bytes: reach.map(|reach| reach.bytes),
            reach_records: reach.map(|reach| reach.records),
        };
        let segments = vec![Bytes::from(request.encode_to_vec())];
        match self.storage.stream(self.shard, Method::Subscribe, segments).await {
            Ok(answers) => {
                self.open = Some(Open { answers, base: self.received, granted: self.limit });
                Ok(())
            }
            Err(error) => self.reopen(error).await,
        }
    }

    /// Does what the retry policy says; the next call opens a new stream.
    async fn reopen(&mut self, error: CallError) -> Result<(), ServiceError> {
        self.close();
        let patience = self.config.resubscribe_deadline;
        let storage = self.storage.clone();
        let attempts = self.attempts.get_or_insert_with(|| storage.attempts(Instant::now() + patience));
        if let CallError::Refused(refusal) = &error
            && refusal.error_code() == ErrorCode::ConfigStale
        {
            return self.refresh().await;
        }
        let recovered = storage.recover(self.shard, error, attempts).await;
        recovered.map_err(|failure| failure.with_partition(self.partition))
    }

    async fn refresh(&mut self) -> Result<(), ServiceError> {
        let topic = self.storage.describe(&self.topic.path, self.storage.deadline()).await?;
        if topic.incarnation != self.topic.incarnation {
            let detail = format!("the topic {} was deleted and recreated", topic.path.topic);
            return Err(ServiceError::new(ErrorCode::IncarnationGone, detail).with_partition(self.partition));
        }
        if topic.version <= self.topic.version {
            let detail = "a storage node knows of a newer configuration than the topic's home shard";
            return Err(ServiceError::new(ErrorCode::Unavailable, detail).with_partition(self.partition));
        }
        self.topic = topic;
        Ok(())
    }

    fn take(&mut self, body: Bytes) -> Result<Option<PartitionEvent>, ServiceError> {
        let bad = |what: &str| ServiceError::bad_answer(what, Outcome::None).with_partition(self.partition);
        let packet = Packet::<SubscribeEvent>::decode(body).map_err(|error| bad(&error.to_string()))?;
        let event = packet.message.event.ok_or_else(|| bad("an event of no kind"))?;
        Ok(Some(match event {
            Event::Started(started) => {
                let is_first = !std::mem::replace(&mut self.is_started, true);
                let (from, tail) = (Offset(started.from), Offset(started.tail));
                // What is missing or may be lost is told next, by the event that moves it there: should the
                // link be lost before, the next stream tells it.
                let at = *self.at.get_or_insert(match self.start {
                    At::Offset(next) => CursorAt::new(Offset(next).min(from)),
                    _ => CursorAt::new(from),
                });
                if !is_first {
                    return Ok(None);
                }
                PartitionEvent::Started { from, tail, at }
            }
            Event::Records(records) => {
                let origin = Origin {
                    partition: self.partition,
                    committed_end: Offset(records.committed_end),
                    term: Term(records.term),
                };
                let slices = unpack(&records.slices, packet.payload.into_bytes(), origin)?;
                if slices.is_empty() {
                    return Err(bad("records without any"));
                }
                if !self.makes_room(&slices) {
                    return Ok(None);
                }
                let came = self.records(slices, origin, Offset(records.next))?;
                self.caught_up = records.is_caught_up.then_some(origin.committed_end);
                return Ok(Some(came));
            }
            Event::Gap(gap) => {
                self.at = Some(CursorAt::new(Offset(gap.to)));
                PartitionEvent::Gap { from: Offset(gap.from), to: Offset(gap.to), why: gap.why }
            }
            Event::CaughtUp(caught_up) => {
                self.looked(Offset(caught_up.end));
                PartitionEvent::CaughtUp { end: Offset(caught_up.end), closed: caught_up.closed }
            }
            Event::Looked(looked) => {
                self.looked(Offset(looked.upto));
                PartitionEvent::Looked { upto: Offset(looked.upto) }
            }
            Event::Firm(firm) => {
                if let Some(at) = &mut self.at {
                    at.firm(Offset(firm.upto));
                }
                PartitionEvent::Firm { upto: Offset(firm.upto) }
            }
            Event::Retract(retract) => {
                let (from, to) = (Offset(retract.from), Offset(retract.to));
                self.at = Some(CursorAt::new(from));
                PartitionEvent::Retract { from, to, term: Term(retract.term) }
            }
        }))
    }

    /// There is no room for records of so many bytes: the next event waits for some.
    pub(super) fn lacks_room(&mut self, bytes: u64) {
        self.lacks = Some(bytes);
    }

    /// Whether there is room for records that have come for this reader alone. If not, they are let go of, and come
    /// again by another stream once there is: a reader that takes nothing keeps nothing.
    fn makes_room(&mut self, slices: &[RecordSlice]) -> bool {
        let Some(room) = &self.room else { return true };
        let bytes = held_bytes(slices);
        if self.held.as_ref().is_some_and(|held| held.bytes() >= bytes) {
            return true;
        }
        match room.hold(bytes, false) {
            Ok(held) => {
                self.held = held;
                true
            }
            Err(_) => {
                (self.lacks, self.held) = (Some(bytes), None);
                self.close();
                false
            }
        }
    }

    /// All below is behind the reader, whether it was sent or not: a filter kept it back, or compaction dropped it.
    fn looked(&mut self, upto: Offset) {
        if self.at.is_none_or(|at| at.next < upto) {
            self.at = Some(CursorAt::new(upto));
        }
    }

    /// Each record exactly once and in order, whatever the node says; without a filter, without a hole unless
    /// the node says where to go on behind what was dropped.
    fn records(
        &mut self,
        slices: Vec<RecordSlice>,
        origin: Origin,
        next: Offset,
    ) -> Result<PartitionEvent, ServiceError> {
        let may_pass = self.filter.is_some() || next > Offset(0);
        let (mut bytes, mut count) = (0, 0);
        for slice in &slices {
            let at = self.at.get_or_insert(CursorAt::new(slice.first));
            let follows = at.next == slice.first || (may_pass && at.next < slice.first);
            if !follows {
                let detail = format!("records from {} follow those before {}", slice.first, at.next);
                return Err(ServiceError::bad_answer(&detail, Outcome::None).with_partition(self.partition));
            }
            at.took(slice.end(), origin.committed_end, origin.term);
            bytes += slice.size()?;
            count += u64::from(slice.take);
        }
        if next > Offset(0) {
            self.looked(next);
        }
        self.received.records += count;
        self.received.bytes += bytes;
        let parcel = Parcel::Own(slices);
        let parcel = match self.held.take() {
            Some(held) => Parcel::Held(Box::new(parcel), Arc::new(held)),
            None => parcel,
        };
        Ok(PartitionEvent::Records { parcel, bytes })
    }
}

/// How it starts.
#[derive(Debug, Clone)]
pub(super) struct StreamStart {
    pub(super) at: At,
    /// The reader resumes at `at`, and has seen this before it was committed.
    pub(super) seen: Option<Early>,
    pub(super) min_level: Level,
    /// Only records that match.
    pub(super) filter: Option<Arc<str>>,
    /// Room that they need on their way to a client.
    pub(super) room: Option<Room>,
}

impl Open {
    /// Passes limits on, counted from where this stream started.
    fn grant(&mut self, limit: Credit, reach: Option<Credit>) {
        if limit == self.granted {
            return;
        }
        self.granted = limit;
        let from_here = |credit: Credit| Credit {
            records: credit.records.saturating_sub(self.base.records),
            bytes: credit.bytes.saturating_sub(self.base.bytes),
        };
        self.answers.grant_towards(from_here(limit), reach.map(from_here));
    }
}
