//! A part as a checkpoint holds it.

use std::ops::Range;
use std::sync::Arc;

use prost::Message;
use roaring::RoaringTreemap;
use weir_protocol::ids::{Offset, TimestampMs};

use super::event::Fence;
use super::offset_set::OffsetSet;
use super::part::Part;
use super::past::{Back, Kept, Past, SNAPSHOTS_MAX};
use super::retries::{Retries, Retry};

/// Format of [`StoredPart`].
const FORMAT: u32 = 1;

/// Why a stored part cannot be used. The shard must not start with it.
#[derive(Debug, thiserror::Error)]
pub enum PartError {
    /// Not such a message.
    #[error("the subscription part is damaged: {0}")]
    Decode(#[from] prost::DecodeError),
    /// Its bitmap is none.
    #[error("the subscription part is damaged: {0}")]
    Bitmap(#[from] std::io::Error),
    /// Its parts contradict each other or the partition.
    #[error("the subscription part is damaged: {0}")]
    Contradiction(&'static str),
    /// Written by another build.
    #[error("the subscription part has format {0}; this build reads {FORMAT}")]
    Format(u32),
}

/// A part as a checkpoint holds it. Equal parts give equal bytes.
#[derive(Clone, PartialEq, Message)]
pub struct StoredPart {
    /// Format of this message.
    #[prost(uint32, tag = "1")]
    format: u32,
    #[prost(uint64, tag = "2")]
    floor: u64,
    /// Roaring's portable form of a 64-bit bitmap, shortest containers; absent when empty.
    #[prost(bytes = "vec", optional, tag = "3")]
    settled: Option<Vec<u8>>,
    /// How many are in it.
    #[prost(uint64, tag = "4")]
    settled_len: u64,
    /// Of each retry: offset as distance from the one before, attempts, and 0 or one more than the time it is due.
    #[prost(uint64, repeated, tag = "5")]
    retries: Vec<u64>,
    #[prost(uint64, tag = "6")]
    dead: u64,
    #[prost(uint64, tag = "7")]
    dead_pending: u64,
    #[prost(uint64, tag = "8")]
    fence_min: u64,
    /// A bitmap, as `settled`.
    #[prost(bytes = "vec", optional, tag = "9")]
    given_up: Option<Vec<u8>>,
    #[prost(message, repeated, tag = "10")]
    kept: Vec<StoredKept>,
    #[prost(uint64, tag = "11")]
    moved_to: u64,
    /// What no seek has named.
    #[prost(message, repeated, tag = "12")]
    past: Vec<StoredKept>,
    #[prost(uint64, tag = "13")]
    changed: u64,
    #[prost(uint64, optional, tag = "14")]
    forked_at: Option<u64>,
    /// The fence of each retry, or 0; absent where all are.
    #[prost(uint64, repeated, tag = "16")]
    retry_fences: Vec<u64>,
    /// A bitmap, as `settled`.
    #[prost(bytes = "vec", optional, tag = "17")]
    revoked: Option<Vec<u8>>,
}

/// A part as it stood before a change; fields as in [`StoredPart`].
#[derive(Clone, PartialEq, Message)]
struct StoredKept {
    #[prost(uint64, tag = "1")]
    name: u64,
    #[prost(uint64, tag = "2")]
    floor: u64,
    #[prost(bytes = "vec", optional, tag = "3")]
    settled: Option<Vec<u8>>,
    #[prost(uint64, repeated, tag = "4")]
    retries: Vec<u64>,
    #[prost(bytes = "vec", optional, tag = "5")]
    given_up: Option<Vec<u8>>,
    /// It stood so from here, or since ever.
    #[prost(uint64, tag = "6")]
    since: u64,
    /// Until before; 0: nobody knows when.
    #[prost(uint64, tag = "7")]
    until: u64,
    /// Dead letters alone changed, and were these right after; absent: everything did.
    #[prost(message, optional, tag = "8")]
    dead_after: Option<StoredDeadAfter>,
    #[prost(uint64, repeated, tag = "9")]
    retry_fences: Vec<u64>,
}

#[derive(Clone, PartialEq, Message)]
struct StoredDeadAfter {
    /// A bitmap, as in [`StoredPart`].
    #[prost(bytes = "vec", optional, tag = "1")]
    given_up: Option<Vec<u8>>,
    /// Something was moved since: there is no going back, and the bitmap is absent.
    #[prost(bool, tag = "2")]
    is_overtaken: bool,
}

impl Part {
    /// The part for a checkpoint. Takes long where much is settled above the floor; a clone taken beside apply and
    /// stored on another thread is the same.
    #[must_use]
    pub fn stored(&self) -> StoredPart {
        StoredPart {
            format: FORMAT,
            floor: self.floor.0,
            settled: bitmap(&self.settled),
            settled_len: self.settled.len(),
            retries: numbers(&self.retries),
            dead: self.dead,
            dead_pending: self.dead_pending,
            fence_min: self.fence_min.0,
            given_up: bitmap(&self.given_up),
            kept: self.kept.iter().map(stored_kept).collect(),
            moved_to: self.moved_to.0,
            past: self.past.ring.iter().map(stored_kept).collect(),
            changed: self.changed.0,
            forked_at: self.forked_at.map(|at| at.0),
            retry_fences: fences(&self.retries),
            revoked: bitmap(&self.revoked),
        }
    }

    /// The part from a checkpoint, over a partition with these bounds.
    ///
    /// # Errors
    /// [`PartError`]: the shard must not start with it.
    pub fn restored(stored: &StoredPart, bounds: Range<Offset>) -> Result<Self, PartError> {
        if stored.format != FORMAT {
            return Err(PartError::Format(stored.format));
        }
        let floor = Offset(stored.floor);
        if floor < bounds.start || floor > bounds.end {
            return Err(PartError::Contradiction("its floor is outside the partition"));
        }
        let settled = set(stored.settled.as_ref())?;
        if settled.len() != stored.settled_len || settled.is_empty() != stored.settled.is_none() {
            return Err(PartError::Contradiction("the bitmap has another size"));
        }
        let is_outside = |offset: Offset| offset <= floor || offset >= bounds.end;
        if settled.next_member(Offset(0)).is_some_and(is_outside) || settled.max().is_some_and(is_outside) {
            return Err(PartError::Contradiction("settled records outside the partition"));
        }
        let retries = retries(&stored.retries, &stored.retry_fences)?;
        for (offset, _) in retries.iter() {
            if offset < floor || offset >= bounds.end || settled.contains(offset) {
                return Err(PartError::Contradiction("a retry of a settled record"));
            }
        }
        let given_up = set(stored.given_up.as_ref())?;
        if given_up.members(Offset(0)).any(|at| at < bounds.start || at >= floor && !settled.contains(at)) {
            return Err(PartError::Contradiction("a dead record that is not settled"));
        }
        let revoked = set(stored.revoked.as_ref())?;
        if revoked.members(Offset(0)).any(|at| at < floor || at >= bounds.end || settled.contains(at)) {
            return Err(PartError::Contradiction("a revived record that is settled"));
        }
        if stored.past.len() > SNAPSHOTS_MAX {
            return Err(PartError::Contradiction("more of its past than is kept"));
        }
        let kept = stored.kept.iter().map(|kept| restored_kept(kept, bounds.end));
        let past = stored.past.iter().map(|kept| restored_kept(kept, bounds.end));
        Ok(Self {
            floor,
            settled,
            retries,
            dead: stored.dead,
            dead_pending: stored.dead_pending,
            fence_min: Fence(stored.fence_min),
            given_up,
            revoked,
            kept: Arc::new(kept.collect::<Result<_, _>>()?),
            moved_to: Offset(stored.moved_to),
            past: Arc::new(Past::restored(past.collect::<Result<_, _>>()?)),
            changed: TimestampMs(stored.changed),
            forked_at: stored.forked_at.map(TimestampMs),
        })
    }

    /// [`Part::stored`] as bytes.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        self.stored().encode_to_vec()
    }

    /// [`Part::restored`] from [`Part::encode`]'s bytes.
    ///
    /// # Errors
    /// [`PartError`]: the shard must not start with it.
    pub fn decode(bytes: &[u8], bounds: Range<Offset>) -> Result<Self, PartError> {
        Self::restored(&StoredPart::decode(bytes)?, bounds)
    }
}

/// The bitmap in its shortest form, which depends on its members alone and not on how it came to have them.
fn portable(mut map: RoaringTreemap) -> Vec<u8> {
    map.optimize();
    let mut bytes = Vec::with_capacity(map.serialized_size());
    map.serialize_into(&mut bytes).expect("writing to memory does not fail");
    bytes
}

/// The bitmap of a set; none of an empty one.
fn bitmap(set: &OffsetSet) -> Option<Vec<u8>> {
    (!set.is_empty()).then(|| portable(set.to_map()))
}

fn set(stored: Option<&Vec<u8>>) -> Result<OffsetSet, PartError> {
    let Some(bytes) = stored else { return Ok(OffsetSet::default()) };
    let mut rest = bytes.as_slice();
    let map = RoaringTreemap::deserialize_from(&mut rest)?;
    if !rest.is_empty() {
        return Err(PartError::Contradiction("bytes after the bitmap"));
    }
    Ok(OffsetSet::new(map))
}

fn numbers(retries: &Retries) -> Vec<u64> {
    let mut last = 0;
    let numbers = retries.iter().flat_map(|(offset, retry)| {
        let distance = offset.0 - std::mem::replace(&mut last, offset.0);
        [distance, u64::from(retry.attempts), retry.due.map_or(0, |due| due.0.saturating_add(1))]
    });
    numbers.collect()
}

/// Fences of retries, in their order.
fn fences(retries: &Retries) -> Vec<u64> {
    let has_some = retries.iter().any(|(_, retry)| retry.fence != Fence(0));
    retries.iter().filter(|_| has_some).map(|(_, retry)| retry.fence.0).collect()
}

fn stored_kept(kept: &Kept) -> StoredKept {
    StoredKept {
        name: kept.name,
        floor: kept.floor.0,
        settled: bitmap(&kept.settled),
        retries: numbers(&kept.retries),
        retry_fences: fences(&kept.retries),
        given_up: bitmap(&kept.given_up),
        since: kept.stood.start.0,
        until: kept.stood.end.0,
        dead_after: match &kept.back {
            Back::Everything => None,
            Back::DeadLetters(after) => {
                Some(StoredDeadAfter { given_up: bitmap(after), is_overtaken: false })
            }
            Back::Nothing => Some(StoredDeadAfter { given_up: None, is_overtaken: true }),
        },
    }
}

fn restored_kept(stored: &StoredKept, end: Offset) -> Result<Kept, PartError> {
    let back = match &stored.dead_after {
        None => Back::Everything,
        Some(StoredDeadAfter { is_overtaken: true, given_up: None }) => Back::Nothing,
        Some(StoredDeadAfter { is_overtaken: true, .. }) => {
            return Err(PartError::Contradiction("dead letters to go back to, and no going back"));
        }
        Some(after) => Back::DeadLetters(set(after.given_up.as_ref())?),
    };
    let last_after = match &back {
        Back::DeadLetters(after) => after.max(),
        _ => None,
    };
    let kept = Kept {
        name: stored.name,
        stood: TimestampMs(stored.since)..TimestampMs(stored.until),
        floor: Offset(stored.floor),
        settled: set(stored.settled.as_ref())?,
        retries: retries(&stored.retries, &stored.retry_fences)?,
        given_up: set(stored.given_up.as_ref())?,
        back,
    };
    let last = [Some(kept.floor), kept.settled.max(), kept.given_up.max(), last_after];
    let last = last.into_iter().flatten().max();
    let is_outside = last.is_some_and(|last| last > end) || kept.retries.from(end).next().is_some();
    let wrong = PartError::Contradiction("what stood before a change lies outside the partition");
    if is_outside { Err(wrong) } else { Ok(kept) }
}

fn retries(stored: &[u64], fences: &[u64]) -> Result<Retries, PartError> {
    let (elements, rest) = stored.as_chunks::<3>();
    let wrong = PartError::Contradiction;
    if !rest.is_empty() || !fences.is_empty() && fences.len() != elements.len() {
        return Err(wrong("half a retry"));
    }
    let fences = fences.iter().copied().chain(std::iter::repeat(0));
    let (mut retries, mut last) = (Retries::default(), None::<u64>);
    for (&[distance, attempts, due], fence) in elements.iter().zip(fences) {
        let offset = match last {
            Some(_) if distance == 0 => return Err(wrong("a retry is there twice")),
            Some(last) => last.checked_add(distance).ok_or(wrong("an offset out of range"))?,
            None => distance,
        };
        last = Some(offset);
        let attempts = u32::try_from(attempts).map_err(|_| wrong("attempts out of range"))?;
        if attempts == 0 {
            return Err(wrong("a retry without a delivery"));
        }
        let due = due.checked_sub(1).map(TimestampMs);
        retries.insert(Offset(offset), Retry { attempts, due, fence: Fence(fence) });
    }
    Ok(retries)
}
