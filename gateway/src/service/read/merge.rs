//! Several partitions as one stream. Each has a bounded window of its own, so that none starves the others and a
//! client without credit makes the gateway hold no more than the windows.

use std::collections::VecDeque;
use std::sync::Arc;

use futures_util::future::BoxFuture;
use parking_lot::Mutex;
use tokio::sync::futures::OwnedNotified;
use weir_protocol::ids::Offset;
use weir_protocol::rpc::Credit;

use super::budget::{Budget, Share};
use super::credit::CreditCell;
use super::cursor::{At, Cursor};
use super::event::{PartitionOf, Started, SubscriptionEvent, records_event, small_event};
use super::follower::Follower;
use super::parcel::{Parcel, Split};
use super::room::Room;
use super::stream::PartitionEvent;
use crate::service::ServiceError;
use crate::storage::Topic;
use crate::under_way::UnderWay;

/// Events of one partition that wait to be handed on; then it is not asked for more.
const WAITING_MAX: usize = 64;
/// The same of one that follows with others: what waits is owed by nobody, so it is not reserved, and it may
/// be all there is that holds it. One event keeps it from waiting for the next.
const WAITING_SHARED_MAX: usize = 1;

/// `None`: it goes on in another way.
type Stepped = (usize, Box<Follower>, Result<Option<PartitionEvent>, ServiceError>);

struct Slot {
    of: PartitionOf,
    share: Share,
    grant: Arc<Grant>,
    /// What of it was handed on.
    handed: Credit,
    /// Position after the last event handed on.
    at: Option<At>,
    started: Option<Started>,
    is_caught_up: bool,
    /// Its follower follows with others: the node owes it nothing, and it reserves nothing.
    is_shared: bool,
    waiting: usize,
    /// The follower, while too many of its events wait.
    parked: Option<Box<Follower>>,
}

/// What a partition is granted, and how far the client's credit goes behind that.
#[derive(Default)]
struct Grant {
    window: CreditCell,
    reach: Mutex<Credit>,
}

/// Followers and what came from them.
pub(super) struct Merge {
    slots: Vec<Slot>,
    running: UnderWay<BoxFuture<'static, Stepped>>,
    ready: VecDeque<(usize, PartitionEvent)>,
    is_started: bool,
    sent: Credit,
    /// How what is handed on is held.
    room: Option<Room>,
    /// What is next found no room.
    lacks_room: bool,
}

impl Merge {
    /// `limit` is what the client allows at first. What is handed on is held in `room`.
    pub(super) fn new(
        followers: Vec<(PartitionOf, Follower)>,
        budget: &Arc<Budget>,
        (limit, room): (Credit, Option<Room>),
    ) -> Self {
        let mut running = UnderWay::default();
        let mut slots = Vec::with_capacity(followers.len());
        for (place, (of, follower)) in followers.into_iter().enumerate() {
            let grant = Arc::<Grant>::default();
            running.push(step(place, Box::new(follower), Arc::clone(&grant)));
            slots.push(Slot {
                of,
                share: Share::new(Arc::clone(budget)),
                grant,
                handed: Credit::default(),
                at: None,
                started: None,
                is_caught_up: false,
                is_shared: false,
                waiting: 0,
                parked: None,
            });
        }
        let mut merge = Self {
            slots,
            running,
            ready: VecDeque::new(),
            is_started: false,
            sent: Credit::default(),
            room,
            lacks_room: false,
        };
        merge.slots.iter_mut().for_each(|slot| slot.raise(limit));
        merge
    }

    pub(super) fn cursor(&self, topics: &[Arc<Topic>]) -> Cursor {
        let mut cursor = Cursor::default();
        for slot in &self.slots {
            if let Some(at) = slot.at {
                cursor.set(&topics[slot.of.topic], slot.of.partition, at);
            }
        }
        cursor
    }

    /// The next event. Cancel safe: what arrived is kept.
    pub(super) async fn next(&mut self, credit: &CreditCell) -> Result<SubscriptionEvent, ServiceError> {
        loop {
            let limit = credit.latest();
            self.lacks_room = false;
            if let Some(event) = self.pop(limit)? {
                return Ok(event);
            }
            let freed = self.raise_throttled(limit);
            credit.set_throttled(freed.is_some());
            let is_throttled = freed.is_some();
            tokio::select! {
                biased;
                () = credit.changed(limit) => {}
                Some((place, follower, event)) = self.running.next() => {
                    self.take((place, follower, event?), credit);
                }
                () = async { if let Some(freed) = freed { freed.await } }, if is_throttled => {}
                () = Room::later(), if self.lacks_room => {}
            }
        }
    }

    /// Raises what waits for the budget; what to wait for if something still does.
    fn raise_throttled(&mut self, limit: Credit) -> Option<OwnedNotified> {
        let left = self.left_of(limit);
        let is_throttled = |slot: &&mut Slot| slot.share.is_throttled();
        let freed = self.slots.iter_mut().find(is_throttled)?.share.freed();
        self.slots.iter_mut().filter(is_throttled).for_each(|slot| slot.raise(left));
        self.slots.iter().any(|slot| slot.share.is_throttled()).then_some(freed)
    }

    /// What the client still allows.
    fn left_of(&self, limit: Credit) -> Credit {
        Credit {
            records: limit.records.saturating_sub(self.sent.records),
            bytes: limit.bytes.saturating_sub(self.sent.bytes),
        }
    }

    fn take(
        &mut self,
        (place, follower, event): (usize, Box<Follower>, Option<PartitionEvent>),
        credit: &CreditCell,
    ) {
        let left = self.left_of(credit.latest());
        let slot = &mut self.slots[place];
        if let Some(event) = event {
            slot.waiting += 1;
            self.ready.push_back((place, event));
        }
        if slot.is_shared != follower.is_shared() {
            slot.is_shared = follower.is_shared();
            credit.set_feed(slot.of, follower.throttle());
            slot.raise(left);
        }
        if slot.waiting < if slot.is_shared { WAITING_SHARED_MAX } else { WAITING_MAX } {
            self.running.push(step(place, follower, Arc::clone(&slot.grant)));
        } else {
            slot.parked = Some(follower);
        }
    }

    /// What may be handed on now.
    fn pop(&mut self, limit: Credit) -> Result<Option<SubscriptionEvent>, ServiceError> {
        if !self.is_started {
            return Ok(self.pop_started());
        }
        while let Some((place, event)) = self.ready.pop_front() {
            let of = self.slots[place].of;
            match event {
                PartitionEvent::Records { parcel, .. } => return self.pop_records(place, parcel, limit),
                PartitionEvent::CaughtUp { end, closed } => {
                    self.slots[place].looked(end);
                    self.slots[place].is_caught_up = true;
                    self.popped(place);
                    let all = self.slots.iter().all(|slot| slot.is_caught_up);
                    if all {
                        self.slots.iter_mut().for_each(|slot| slot.is_caught_up = false);
                    }
                    return Ok(Some(SubscriptionEvent::CaughtUp { of, end, closed, all }));
                }
                PartitionEvent::Gap { to: next, .. } | PartitionEvent::Retract { from: next, .. } => {
                    self.slots[place].at = Some(At::new(next));
                    self.popped(place);
                    return Ok(Some(small_event(of, event)));
                }
                PartitionEvent::Looked { upto } => {
                    self.slots[place].looked(upto);
                    self.popped(place);
                    return Ok(Some(small_event(of, event)));
                }
                PartitionEvent::Firm { upto } => {
                    if let Some(at) = &mut self.slots[place].at {
                        at.firm(upto);
                    }
                    self.popped(place);
                    return Ok(Some(small_event(of, event)));
                }
                // Once per follower, and taken by `pop_started`.
                PartitionEvent::Started { .. } => self.popped(place),
            }
        }
        Ok(None)
    }

    /// Starts of all partitions, once all are there. Nothing else is handed on before.
    fn pop_started(&mut self) -> Option<SubscriptionEvent> {
        let mut kept = VecDeque::with_capacity(self.ready.len());
        for (place, event) in std::mem::take(&mut self.ready) {
            if let PartitionEvent::Started { from, tail, at } = event {
                let slot = &mut self.slots[place];
                slot.started = Some(Started { of: slot.of, from, tail });
                slot.at = Some(at);
                self.popped(place);
            } else {
                kept.push_back((place, event));
            }
        }
        self.ready = kept;
        let started: Option<Vec<_>> = self.slots.iter().map(|slot| slot.started).collect();
        self.is_started = started.is_some();
        started.map(SubscriptionEvent::Started)
    }

    fn pop_records(
        &mut self,
        place: usize,
        parcel: Parcel,
        limit: Credit,
    ) -> Result<Option<SubscriptionEvent>, ServiceError> {
        let Split { now, rest, used } = parcel.split(self.left_of(limit))?;
        let now = match Room::held(self.room.as_ref(), now, used.bytes) {
            Ok(now) => now,
            Err(now) => {
                self.lacks_room = true;
                let parcel =
                    if rest.is_empty() { now } else { Parcel::Own([now.into_slices(), rest].concat()) };
                self.ready.push_front((place, PartitionEvent::Records { parcel, bytes: 0 }));
                return Ok(None);
            }
        };
        if !rest.is_empty() {
            let bytes = 0; // counted again when it is its turn
            self.ready.push_front((place, PartitionEvent::Records { parcel: Parcel::Own(rest), bytes }));
        } else {
            self.popped(place);
        }
        let Some(last) = now.slices().last() else { return Ok(None) };
        self.sent.records += used.records;
        self.sent.bytes += used.bytes;
        let left = self.left_of(limit);
        let slot = &mut self.slots[place];
        slot.at.get_or_insert(At::new(last.first)).took(last.end(), last.committed_end, last.term);
        slot.share.hand_on(used.bytes);
        slot.handed.records += used.records;
        slot.handed.bytes += used.bytes;
        slot.raise(left);
        Ok(Some(records_event(slot.of, now, used.bytes)))
    }

    /// One event less waits.
    fn popped(&mut self, place: usize) {
        let slot = &mut self.slots[place];
        slot.waiting -= 1;
        if let Some(follower) = slot.parked.take() {
            self.running.push(step(place, follower, Arc::clone(&slot.grant)));
        }
    }
}

impl Slot {
    /// All below was handed on, or kept back by a filter.
    fn looked(&mut self, upto: Offset) {
        if self.at.is_some_and(|at| at.next < upto) {
            self.at = Some(At::new(upto));
        }
    }

    /// Grants another window. What was granted in one way does not hold in the other. All that is left of the
    /// client's credit may be for this partition: behind that the node prepares nothing but the window.
    fn raise(&mut self, left: Credit) {
        let bytes = if self.is_shared { self.share.raise_resting() } else { self.share.raise(u64::MAX) };
        *self.grant.reach.lock() = Credit {
            records: self.handed.records.saturating_add(left.records),
            bytes: self.handed.bytes.saturating_add(left.bytes),
        };
        self.grant.window.set(Credit { records: u64::MAX, bytes });
    }
}

/// The follower's next event, with grants that come meanwhile.
fn step(place: usize, mut follower: Box<Follower>, grant: Arc<Grant>) -> BoxFuture<'static, Stepped> {
    Box::pin(async move {
        loop {
            let limit = grant.window.latest();
            follower.reaches(*grant.reach.lock());
            follower.raise(limit);
            tokio::select! {
                biased;
                () = grant.window.changed(limit) => {}
                event = follower.next() => return (place, follower, event),
            }
        }
    })
}

#[cfg(test)]
mod tests;
