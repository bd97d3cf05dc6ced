//! What the log says of a part: decided by the leader, applied by every replica.

use std::fmt;
use std::ops::Range;

use prost::Message;
use weir_protocol::ids::{Offset, TimestampMs};

/// Names one delivery. Grows with every delivery of a part, across leaders too: `term << 32 | n`. Zero is none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Fence(pub u64);

impl fmt::Display for Fence {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(&self.0, f)
    }
}

/// A delivery failed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Nacked {
    /// The record.
    pub offset: Offset,
    /// Deliveries so far.
    pub attempts: u32,
    /// Not to be delivered before.
    pub due: TimestampMs,
}

/// How often a record was delivered.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Delivered {
    /// The record.
    pub offset: Offset,
    /// Deliveries so far.
    pub attempts: u32,
}

/// A record is about to be delivered, and an earlier delivery of it may still be held.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Redelivered {
    /// The record.
    pub offset: Offset,
    /// Deliveries so far, this one included.
    pub attempts: u32,
    /// What settles it from now on: no lower fence does. 0: an entry of an earlier build does not say.
    pub fence: Fence,
}

/// A record was given up.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Dead {
    /// The record.
    pub offset: Offset,
    /// Deliveries so far.
    pub attempts: u32,
    /// Why, for who reads the dead letter.
    pub reason: String,
}

/// A part was moved.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seek {
    /// Everything from here on is unsettled, everything before is settled.
    pub to: Offset,
    /// The first fence of deliveries after it; lower ones settle nothing any more.
    pub fence: Fence,
    /// What stood before is kept under this name; 0: it is not, and nothing that was kept before either.
    pub keep_as: u64,
    /// Not `to`, but what was kept under this name; 0: `to`.
    pub back_to: u64,
}

/// All dead letters were forgotten.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Forgotten {
    /// What stood before is kept under this name; 0: with a seek, which keeps it itself.
    pub keep_as: u64,
}

/// One step of a part, applied in the order of the fields. An ack takes 2 to 4 bytes where ranges coalesce.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct PartEvent {
    /// Never delivered again.
    pub settled: Vec<Range<Offset>>,
    /// Given up: settled and counted.
    pub dead: Vec<Dead>,
    /// To be delivered again later.
    pub nacked: Vec<Nacked>,
    /// Delivered again, logged before the bytes leave.
    pub delivered: Vec<Redelivered>,
    /// Moved, after all of the above.
    pub seek: Option<Seek>,
    /// What was given up until here, and not revived, stays settled and is not known as dead any more.
    pub forgotten: Option<Forgotten>,
    /// Given up before, and to be delivered again after all.
    pub revived: Vec<Range<Offset>>,
    /// Of an earlier build: what is dead in it cannot be revived.
    pub forgets_dead: bool,
    /// Of an earlier build: deliveries from before still settle what is revived in it.
    pub keeps_leases: bool,
    /// Lower fences settle nothing any more: another consumer reads the stream. 0: nothing changes.
    pub voided: Fence,
}

impl PartEvent {
    /// Whether it says nothing.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.settled.is_empty()
            && self.dead.is_empty()
            && self.nacked.is_empty()
            && self.delivered.is_empty()
            && self.seek.is_none()
            && self.forgotten.is_none()
            && self.revived.is_empty()
            && self.voided == Fence(0)
    }

    /// Deliveries and settles in it.
    #[must_use]
    pub fn records(&self) -> u64 {
        let settled: u64 = self.settled.iter().map(|range| range.end.0.saturating_sub(range.start.0)).sum();
        settled + (self.dead.len() + self.nacked.len() + self.delivered.len()) as u64
    }

    /// Adds an ack. Acks in the order of their offsets coalesce.
    pub fn settle(&mut self, offset: Offset) {
        match self.settled.last_mut() {
            Some(last) if last.end == offset => last.end = offset.plus(1),
            _ => self.settled.push(offset..offset.plus(1)),
        }
    }

    /// Brings acks that came in any order into one, so that they coalesce.
    pub fn coalesce(&mut self) {
        self.settled.sort_unstable_by_key(|range| range.start);
        self.settled.dedup_by(|next, last| {
            let is_joined = next.start <= last.end;
            if is_joined {
                last.end = last.end.max(next.end);
            }
            is_joined
        });
    }
}

/// Why bytes are no event. Events come out of the log, so the caller stops the shard.
#[derive(Debug, thiserror::Error)]
pub enum EventError {
    /// Not such a message.
    #[error("the subscription event is damaged: {0}")]
    Decode(#[from] prost::DecodeError),
    /// Its numbers are not what they should be.
    #[error("the subscription event is damaged: {0}")]
    Contradiction(&'static str),
}

/// An event as the log holds it. Numbers are distances from the element before, from 0 at first.
#[derive(Clone, PartialEq, Message)]
struct StoredEvent {
    /// Start (from the end before), length.
    #[prost(sint64, repeated, tag = "1")]
    settled: Vec<i64>,
    #[prost(message, repeated, tag = "2")]
    dead: Vec<StoredDead>,
    /// Offset, attempts, due.
    #[prost(sint64, repeated, tag = "3")]
    nacked: Vec<i64>,
    /// Offset, attempts.
    #[prost(sint64, repeated, tag = "4")]
    delivered: Vec<i64>,
    #[prost(message, optional, tag = "5")]
    seek: Option<StoredSeek>,
    /// Start (from the end before), length.
    #[prost(sint64, repeated, tag = "6")]
    revived: Vec<i64>,
    /// With dead ones: they can be revived.
    #[prost(bool, tag = "7")]
    remembers_dead: bool,
    #[prost(message, optional, tag = "8")]
    forgotten: Option<StoredForgotten>,
    /// Of each of `delivered`, as distances; absent where none is known.
    #[prost(sint64, repeated, tag = "9")]
    fences: Vec<i64>,
    /// With revived ones: earlier deliveries do not settle them.
    #[prost(bool, tag = "10")]
    ends_leases: bool,
    #[prost(uint64, tag = "11")]
    voided: u64,
}

#[derive(Clone, PartialEq, Message)]
struct StoredDead {
    #[prost(uint64, tag = "1")]
    offset: u64,
    #[prost(uint32, tag = "2")]
    attempts: u32,
    #[prost(string, tag = "3")]
    reason: String,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct StoredForgotten {
    #[prost(uint64, tag = "1")]
    keep_as: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct StoredSeek {
    #[prost(uint64, tag = "1")]
    to: u64,
    #[prost(uint64, tag = "2")]
    fence: u64,
    #[prost(uint64, tag = "3")]
    keep_as: u64,
    #[prost(uint64, tag = "4")]
    back_to: u64,
}

/// The distance from `last`, which then stands at `to`. Wraps, so that every pair of numbers has one.
fn step(last: &mut u64, to: u64) -> i64 {
    let distance = to.wrapping_sub(*last).cast_signed();
    *last = to;
    distance
}

fn walk(last: &mut u64, distance: i64) -> u64 {
    *last = last.wrapping_add(distance.cast_unsigned());
    *last
}

fn steps(ranges: &[Range<Offset>]) -> Vec<i64> {
    let mut last = 0;
    let ends = ranges.iter().flat_map(|range| [range.start.0, range.end.0]);
    ends.map(|offset| step(&mut last, offset)).collect()
}

fn walked(steps: &[i64]) -> Result<Vec<Range<Offset>>, EventError> {
    let (steps, rest) = steps.as_chunks::<2>();
    if !rest.is_empty() {
        return Err(EventError::Contradiction("half an element"));
    }
    let mut last = 0;
    let range = |&[start, len]: &[i64; 2]| {
        let range = Offset(walk(&mut last, start))..Offset(walk(&mut last, len));
        if range.start >= range.end {
            return Err(EventError::Contradiction("a range without records"));
        }
        Ok(range)
    };
    steps.iter().map(range).collect()
}

impl PartEvent {
    /// The event as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        let (settled, revived) = (steps(&self.settled), steps(&self.revived));
        let (mut last, mut last_due) = (0, 0);
        let nacked = self.nacked.iter().flat_map(|nacked| {
            let offset = step(&mut last, nacked.offset.0);
            [offset, i64::from(nacked.attempts), step(&mut last_due, nacked.due.0)]
        });
        let nacked = nacked.collect();
        let mut last = 0;
        let delivered = self
            .delivered
            .iter()
            .flat_map(|delivered| [step(&mut last, delivered.offset.0), i64::from(delivered.attempts)]);
        let delivered = delivered.collect();
        let mut last = 0;
        let has_fences = self.delivered.iter().any(|delivered| delivered.fence != Fence(0));
        let fences = self.delivered.iter().filter(|_| has_fences);
        let fences = fences.map(|delivered| step(&mut last, delivered.fence.0)).collect();
        let dead = self.dead.iter().map(|dead| StoredDead {
            offset: dead.offset.0,
            attempts: dead.attempts,
            reason: dead.reason.clone(),
        });
        let seek = self.seek.map(|seek| StoredSeek {
            to: seek.to.0,
            fence: seek.fence.0,
            keep_as: seek.keep_as,
            back_to: seek.back_to,
        });
        let remembers_dead = !self.dead.is_empty() && !self.forgets_dead;
        let forgotten = self.forgotten.map(|Forgotten { keep_as }| StoredForgotten { keep_as });
        let ends_leases = !self.revived.is_empty() && !self.keeps_leases;
        let stored = StoredEvent {
            settled,
            dead: dead.collect(),
            nacked,
            delivered,
            seek,
            revived,
            remembers_dead,
            forgotten,
            fences,
            ends_leases,
            voided: self.voided.0,
        };
        stored.encode_to_vec()
    }

    /// The event from [`PartEvent::encode`]'s bytes.
    ///
    /// # Errors
    /// [`EventError`]: the log is damaged, or a newer build wrote it.
    pub fn decode(bytes: &[u8]) -> Result<Self, EventError> {
        let stored = StoredEvent::decode(bytes)?;
        let attempts = |number: i64| {
            u32::try_from(number).map_err(|_| EventError::Contradiction("attempts out of range"))
        };
        let (nacked, more) = stored.nacked.as_chunks::<3>();
        let (delivered, still) = stored.delivered.as_chunks::<2>();
        let has_fences = !stored.fences.is_empty();
        if !(more.is_empty() && still.is_empty()) || has_fences && stored.fences.len() != delivered.len() {
            return Err(EventError::Contradiction("half an element"));
        }
        let (settled, revived) = (walked(&stored.settled)?, walked(&stored.revived)?);
        let forgets_dead = !stored.dead.is_empty() && !stored.remembers_dead;
        let (keeps_leases, voided) = (!revived.is_empty() && !stored.ends_leases, Fence(stored.voided));
        let forgotten = stored.forgotten.map(|StoredForgotten { keep_as }| Forgotten { keep_as });
        let mut event =
            Self { settled, revived, forgets_dead, keeps_leases, voided, forgotten, ..Self::default() };
        let (mut last, mut last_due) = (0, 0);
        for &[offset, count, due] in nacked {
            let (offset, due) = (Offset(walk(&mut last, offset)), TimestampMs(walk(&mut last_due, due)));
            event.nacked.push(Nacked { offset, attempts: attempts(count)?, due });
        }
        let (mut last, mut last_fence) = (0, 0);
        let fences = stored.fences.iter().map(Some).chain(std::iter::repeat(None));
        for (&[offset, count], fence) in delivered.iter().zip(fences) {
            let offset = Offset(walk(&mut last, offset));
            let fence = Fence(fence.map_or(0, |distance| walk(&mut last_fence, *distance)));
            event.delivered.push(Redelivered { offset, attempts: attempts(count)?, fence });
        }
        event.dead.extend(stored.dead.into_iter().map(|dead| Dead {
            offset: Offset(dead.offset),
            attempts: dead.attempts,
            reason: dead.reason,
        }));
        event.seek = stored.seek.map(|seek| Seek {
            to: Offset(seek.to),
            fence: Fence(seek.fence),
            keep_as: seek.keep_as,
            back_to: seek.back_to,
        });
        Ok(event)
    }
}
