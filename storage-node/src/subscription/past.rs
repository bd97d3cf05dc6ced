//! What a part was: before seeks, which name it, and now and then while it changes.

use std::collections::VecDeque;
use std::ops::Range;
use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};

use super::event::{Fence, PartEvent};
use super::offset_set::OffsetSet;
use super::part::{Applied, Part};
use super::retries::Retries;

/// The first change in each stretch of this many milliseconds keeps what stood before it.
pub const SNAPSHOT_EVERY_MS: u64 = 60_000;
/// What is kept in that way of a part at most; the oldest is forgotten.
pub const SNAPSHOTS_MAX: usize = 60;
/// What one of them weighs at most: one that is heavier is not kept. About 128 KiB.
pub const SNAPSHOT_WEIGHT_MAX: u64 = 65_536;
/// What all of a shard weigh at most together, about 2 bytes each in memory and in a checkpoint.
pub const PAST_WEIGHT_MAX: u64 = 8 << 20;

/// What a snapshot weighs whatever is in it.
const WEIGHT_OF_ONE: u64 = 64;
/// What a record that was tried weighs; one that is settled or dead weighs 1.
const WEIGHT_OF_RETRY: u64 = 20;

/// A part as it stood before something changed it.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Kept {
    /// What it is asked for by: a seek's; 0: by time alone.
    pub(super) name: u64,
    /// It stood so from the first to before the second; an empty range: nobody knows when. From 0 on: as long
    /// as is known.
    pub(super) stood: Range<TimestampMs>,
    pub(super) floor: Offset,
    pub(super) settled: OffsetSet,
    pub(super) retries: Retries,
    pub(super) given_up: OffsetSet,
    /// What going back to it means.
    pub(super) back: Back,
}

/// What going back to what stood before a change brings back.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Back {
    /// Everything.
    Everything,
    /// Which records are known as dead: nothing else changed. These were known right after.
    DeadLetters(OffsetSet),
    /// Nothing: only dead letters changed, and a move since has changed what is settled, so nobody can tell
    /// any more which of them were dead but for the change.
    Nothing,
}

/// What stood before changes, the oldest first.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Past {
    pub(super) ring: VecDeque<Kept>,
    weight: u64,
}

/// Which moment of a part is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// As it stands.
    Now,
    /// Before the seek that kept it under this name.
    Before(u64),
    /// At a time.
    At(TimestampMs),
}

/// A part as it stood.
#[derive(Debug, Clone, PartialEq)]
pub struct Stood {
    /// It shares everything with the part that it was, and is never applied to.
    pub part: Part,
    /// The last instant at which it stood so, up to the one that was asked for; absent where that is not known.
    pub at: Option<TimestampMs>,
}

impl Kept {
    fn weight(&self) -> u64 {
        let records = self.settled.len() + self.given_up.len();
        WEIGHT_OF_ONE + records + self.retries.len() as u64 * WEIGHT_OF_RETRY
    }

    /// Forgets records from `end` on.
    pub(super) fn cut(&mut self, end: Offset) {
        self.floor = self.floor.min(end);
        self.settled.forget_from(end);
        self.retries.remove(&(end..Offset(u64::MAX)));
        self.given_up.forget_from(end);
        if let Back::DeadLetters(after) = &mut self.back {
            after.forget_from(end);
        }
    }
}

impl Past {
    /// Those of a checkpoint.
    pub(super) fn restored(ring: VecDeque<Kept>) -> Self {
        Self { weight: ring.iter().map(Kept::weight).sum(), ring }
    }

    /// Forgets records from `end` on.
    pub(super) fn cut(&mut self, end: Offset) {
        self.ring.iter_mut().for_each(|kept| kept.cut(end));
        self.weight = self.ring.iter().map(Kept::weight).sum();
    }

    /// Keeps one more, if it weighs no more than may be, in the room that the shard has left and what the
    /// oldest give up.
    fn push(&mut self, kept: Kept, room: u64) {
        let weight = kept.weight();
        if weight > SNAPSHOT_WEIGHT_MAX || weight > room + self.weight {
            return;
        }
        let limit = room + self.weight;
        while self.ring.len() >= SNAPSHOTS_MAX || self.weight + weight > limit {
            self.weight -= self.ring.pop_front().map_or(0, |oldest| oldest.weight());
        }
        self.weight += weight;
        self.ring.push_back(kept);
    }
}

impl Part {
    /// [`Part::apply`] of what an entry of `ts` says, and keeps what stood before if that is due. `room` is what the
    /// snapshots of the shard may weigh more.
    pub fn apply_at(
        &mut self,
        ts: TimestampMs,
        event: &PartEvent,
        bounds: Range<Offset>,
        room: u64,
    ) -> Applied {
        let stood = self.changed..ts;
        if stood.start.0 / SNAPSHOT_EVERY_MS < ts.0 / SNAPSHOT_EVERY_MS {
            let kept = self.as_kept(0, stood.clone());
            Arc::make_mut(&mut self.past).push(kept, room);
        }
        let applied = self.apply(event, bounds);
        let named = event.seek.map(|seek| seek.keep_as).or(event.forgotten.map(|dead| dead.keep_as));
        if let Some(name) = named.filter(|name| *name != 0)
            && self.kept.last().is_some_and(|kept| kept.name == name)
            && let Some(last) = Arc::make_mut(&mut self.kept).last_mut()
        {
            last.stood = stood;
        }
        self.changed = ts;
        applied
    }

    /// What it is now, to be kept.
    pub(super) fn as_kept(&self, name: u64, stood: Range<TimestampMs>) -> Kept {
        Kept {
            name,
            stood,
            floor: self.floor,
            settled: self.settled.clone(),
            retries: self.retries.clone(),
            given_up: self.given_up.clone(),
            back: Back::Everything,
        }
    }

    /// What its snapshots weigh that no seek has named.
    #[must_use]
    pub fn past_weight(&self) -> u64 {
        self.past.weight
    }

    /// How many snapshots it has that no seek has named.
    #[must_use]
    pub fn past_len(&self) -> usize {
        self.past.ring.len()
    }

    /// The earliest time of which [`Moment::At`] knows.
    #[must_use]
    pub fn known_from(&self) -> TimestampMs {
        let known = self.past.ring.iter().chain(&*self.kept).filter(|kept| !kept.stood.is_empty());
        known.map(|kept| kept.stood.start).min().unwrap_or(self.changed)
    }

    /// The part as it stood at a moment, over records from `start` on; `None` if nothing of then is kept. Of
    /// a time, the newest that is known and stood then or before. `now` is the shard's time.
    #[must_use]
    pub fn stood(&self, moment: Moment, start: Offset, now: TimestampMs) -> Option<Stood> {
        let last = |kept: &Kept| (!kept.stood.is_empty()).then(|| TimestampMs(kept.stood.end.0 - 1));
        let (kept, at) = match moment {
            Moment::Now => return Some(Stood { part: self.clone(), at: Some(now) }),
            Moment::At(time) if self.changed <= time => {
                return Some(Stood { part: self.clone(), at: Some(time.min(now)) });
            }
            Moment::Before(name) => {
                let kept = self.kept.iter().find(|kept| kept.name == name)?;
                (kept, last(kept))
            }
            Moment::At(time) => {
                let known = self.past.ring.iter().chain(&*self.kept);
                let known = known.filter(|kept| !kept.stood.is_empty() && kept.stood.start <= time);
                let newest = known.max_by_key(|kept| (kept.stood.start, kept.stood.end))?;
                (newest, last(newest).map(|last| last.min(time)))
            }
        };
        let mut part = Self {
            floor: kept.floor,
            settled: kept.settled.clone(),
            retries: kept.retries.clone(),
            given_up: kept.given_up.clone(),
            revoked: OffsetSet::default(),
            ..self.clone()
        };
        part.start_moved(start);
        Some(Stood { part, at })
    }

    /// What the part of another subscription begins as: as this one stood at a moment. It shares everything,
    /// and both go on by themselves. `None` if nothing of then is kept.
    #[must_use]
    pub fn forked(&self, moment: Moment, start: Offset, now: TimestampMs) -> Option<Self> {
        let Stood { part, at } = self.stood(moment, start, now)?;
        // Its own fences begin above what retries say of the other's.
        let fence_last = part.retries().map(|(_, retry)| retry.fence).max().filter(|last| *last != Fence(0));
        let fence_min = fence_last.map_or(Fence(0), |last| Fence(last.0 + 1));
        Some(Self {
            dead: part.given_up.len(),
            // Letters that are on their way are the other's, and so are its fences, its seeks and its past.
            dead_pending: 0,
            fence_min,
            revoked: OffsetSet::default(),
            kept: Arc::default(),
            moved_to: Offset(0),
            past: Arc::default(),
            changed: TimestampMs(0),
            forked_at: at,
            ..part
        })
    }

    /// Of a fork, the instant that it began as, where that is known.
    #[must_use]
    pub fn forked_at(&self) -> Option<TimestampMs> {
        self.forked_at
    }
}
