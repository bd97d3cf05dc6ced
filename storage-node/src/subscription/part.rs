//! What a subscription has settled of one partition.

use std::ops::Range;
use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};

use super::event::{Fence, Nacked, PartEvent, Redelivered, Seek};
use super::offset_set::OffsetSet;
use super::past::{Back, Kept, Past};
use super::retries::{Retries, Retry};

/// One part of a subscription as the log tells it; the same in every replica. A copy costs nothing.
///
/// ```text
///   partition.start ≤ floor ≤ partition.end      every record below floor is settled; the one at floor is not
///   settled and retries lie in (floor, end) and [floor, end), and no record is in both
///   revoked lies in [floor, end), and no record of it is settled
/// ```
///
/// Costs: in-order settles move `floor` and touch nothing else. With 10 million records unsettled or settled above
/// the floor, `settled` takes at most 1.3 MB and one more settle a bit in it; each record that was redelivered or
/// nacked takes about 50 bytes more.
#[derive(Debug, Clone, PartialEq)]
pub struct Part {
    pub(super) floor: Offset,
    pub(super) settled: OffsetSet,
    pub(super) retries: Retries,
    pub(super) dead: u64,
    pub(super) dead_pending: u64,
    pub(super) fence_min: Fence,
    /// Settled records that were given up and not revived.
    pub(super) given_up: OffsetSet,
    /// Revived records that were not delivered since: no delivery of before settles them.
    pub(super) revoked: OffsetSet,
    /// What stood before seeks, the oldest first; at most [`KEPT_MAX`].
    pub(super) kept: Arc<Vec<Kept>>,
    /// Where the last seek went.
    pub(super) moved_to: Offset,
    /// What stood before changes now and then, named by no seek.
    pub(super) past: Arc<Past>,
    /// The time of the entry that changed it last; 0: none has that said when.
    pub(super) changed: TimestampMs,
    /// Of a fork, the instant that it began as.
    pub(super) forked_at: Option<TimestampMs>,
}

/// What stood before seeks that a part keeps at most; the oldest is forgotten.
pub const KEPT_MAX: usize = 4;

/// What an event changed.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Applied {
    /// Records that were unsettled before, dead ones not counted.
    pub settled: u64,
    /// The dead letters among them, in the event's order: each is to be forwarded. Any other in the event was
    /// settled before.
    pub dead: Vec<Offset>,
    /// Nacks that had an effect.
    pub nacked: u64,
    /// Redeliveries that had an effect.
    pub delivered: u64,
    /// Records that are unsettled again.
    pub revived: u64,
}

/// What a seek would do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SeekPreview {
    /// Where the part would stand.
    pub floor: Offset,
    /// Records from there to the end that were delivered, settled or dead-lettered before. Deliveries that are not
    /// in the log, the first of each record, count as far as this leader has made them.
    pub redelivered: u64,
    /// Unsettled records before it.
    pub skipped: u64,
}

impl Part {
    /// A part that has settled what is below `start`.
    #[must_use]
    pub fn new(start: Offset) -> Self {
        Self {
            floor: start,
            settled: OffsetSet::default(),
            retries: Retries::default(),
            dead: 0,
            dead_pending: 0,
            fence_min: Fence(0),
            given_up: OffsetSet::default(),
            revoked: OffsetSet::default(),
            kept: Arc::default(),
            moved_to: Offset(0),
            past: Arc::default(),
            changed: TimestampMs(0),
            forked_at: None,
        }
    }

    /// The first unsettled record, or the partition's end.
    #[must_use]
    pub fn floor(&self) -> Offset {
        self.floor
    }

    /// Dead letters so far. A seek does not change it.
    #[must_use]
    pub fn dead(&self) -> u64 {
        self.dead
    }

    /// Dead letters on their way to their topic.
    #[must_use]
    pub fn dead_pending(&self) -> u64 {
        self.dead_pending
    }

    /// Fences below settle nothing: they are from before a seek, or from before another consumer of the stream.
    #[must_use]
    pub fn fence_min(&self) -> Fence {
        self.fence_min
    }

    /// Takes an event into account. `bounds` are the partition's, its end the committed one. A record that is
    /// settled, trimmed or not there yet is passed over, so applying twice changes nothing more.
    pub fn apply(&mut self, event: &PartEvent, bounds: Range<Offset>) -> Applied {
        let mut applied = Applied::default();
        self.start_moved(bounds.start);
        for range in &event.settled {
            applied.settled += self.settle(range.clone(), bounds.end);
        }
        for dead in &event.dead {
            if self.is_unsettled(dead.offset, bounds.end) {
                self.settle(dead.offset..dead.offset.plus(1), bounds.end);
                self.dead += 1;
                if !event.forgets_dead {
                    self.given_up.insert(dead.offset..dead.offset.plus(1));
                }
                applied.dead.push(dead.offset);
            }
        }
        for nacked in &event.nacked {
            applied.nacked += u64::from(self.nack(*nacked, bounds.end));
        }
        for delivered in &event.delivered {
            applied.delivered += u64::from(self.deliver(*delivered, bounds.end));
        }
        if let Some(seek) = event.seek {
            self.seek(seek, &bounds);
        }
        if let Some(forgotten) = event.forgotten {
            self.forget_dead(forgotten);
        }
        for range in &event.revived {
            applied.revived += self.revive(range.clone(), event.keeps_leases);
        }
        self.fence_min = self.fence_min.max(event.voided);
        applied
    }

    /// Whether all that an event says of records takes effect: each of them exists and is unsettled. `end` is the
    /// partition's.
    #[must_use]
    pub fn takes_whole(&self, event: &PartEvent, end: Offset) -> bool {
        let is_free = |range: &Range<Offset>| {
            range.start >= self.floor && range.end <= end && self.settled.count(range) == 0
        };
        let one = |offset: Offset| is_free(&(offset..offset.plus(1)));
        event.settled.iter().all(is_free)
            && event.dead.iter().all(|dead| one(dead.offset))
            && event.nacked.iter().all(|nacked| one(nacked.offset))
    }

    /// Whether it may say anything of records below `start`.
    #[must_use]
    pub fn has_below(&self, start: Offset) -> bool {
        self.floor < start || !self.given_up.is_empty()
    }

    /// Takes into account that records below `start` are gone. Returns how many of them were unsettled.
    pub fn start_moved(&mut self, start: Offset) -> u64 {
        self.given_up.forget_below(start, self.given_up.count(&(Offset(0)..start)));
        if start <= self.floor {
            return 0;
        }
        self.retries.remove(&(self.floor..start));
        self.forget_revoked(&(self.floor..start));
        self.raise_floor(start)
    }

    /// Takes into account that there are no records from `end` on any more: nothing is known of them.
    pub fn cut(&mut self, end: Offset) {
        self.floor = self.floor.min(end);
        self.settled.forget_from(end);
        self.retries.remove(&(end..Offset(u64::MAX)));
        self.given_up.forget_from(end);
        self.revoked.forget_from(end);
        self.moved_to = self.moved_to.min(end);
        Arc::make_mut(&mut self.kept).iter_mut().for_each(|kept| kept.cut(end));
        Arc::make_mut(&mut self.past).cut(end);
    }

    /// `count` dead letters were put on their way.
    pub fn dead_queued(&mut self, count: u64) {
        self.dead_pending += count;
    }

    /// `count` dead letters have arrived, or cannot any more.
    pub fn dead_forwarded(&mut self, count: u64) {
        self.dead_pending = self.dead_pending.saturating_sub(count);
    }

    /// Whether a record below the partition's end is settled. Says nothing of later ones.
    #[must_use]
    pub fn is_settled(&self, offset: Offset) -> bool {
        offset < self.floor || self.settled.contains(offset)
    }

    /// What the log says of an unsettled record that was redelivered or nacked; `None`: it was delivered at most
    /// once, and that is not logged.
    #[must_use]
    pub fn retry(&self, offset: Offset) -> Option<Retry> {
        self.retries.get(offset)
    }

    /// Deliveries that were logged.
    #[must_use]
    pub fn attempts(&self, offset: Offset) -> u32 {
        self.retry(offset).map_or(0, |retry| retry.attempts)
    }

    /// All records of which [`Part::retry`] knows, by offset.
    pub fn retries(&self) -> impl Iterator<Item = (Offset, Retry)> {
        self.retries.iter()
    }

    /// How many [`Part::retries`] there are: what memory beyond the bitmap depends on.
    #[must_use]
    pub fn retries_len(&self) -> usize {
        self.retries.len()
    }

    /// Records settled above the floor.
    #[must_use]
    pub fn settled_above_floor(&self) -> u64 {
        self.settled.len()
    }

    /// Unsettled records below `end`, the partition's end.
    #[must_use]
    pub fn count_unsettled(&self, end: Offset) -> u64 {
        end.0.saturating_sub(self.floor.0).saturating_sub(self.settled.len())
    }

    /// Unsettled records before one of the partition's, or before its end, whatever is settled behind it.
    #[must_use]
    pub fn count_unsettled_before(&self, offset: Offset) -> u64 {
        self.count_unsettled_in(self.floor..offset)
    }

    /// The oldest unsettled record below `end`.
    #[must_use]
    pub fn oldest_unsettled(&self, end: Offset) -> Option<Offset> {
        (self.floor < end).then_some(self.floor)
    }

    /// The first unsettled record at or after `from`, whether it exists yet or not.
    #[must_use]
    pub fn next_unsettled(&self, from: Offset) -> Offset {
        self.settled.next_gap(from.max(self.floor))
    }

    /// Runs of unsettled records from `from` to `end`, in order.
    pub fn unsettled_from(&self, from: Offset, end: Offset) -> impl Iterator<Item = Range<Offset>> {
        let mut at = from;
        std::iter::from_fn(move || {
            let start = self.next_unsettled(at);
            if start >= end {
                return None;
            }
            at = self.settled.next_member(start).map_or(end, |member| member.min(end));
            Some(start..at)
        })
    }

    /// What a seek to `to` would do. `next` is an offset below which every unsettled record was
    /// delivered; see [`super::Leases::seek_preview`].
    #[must_use]
    pub fn seek_preview(&self, to: Offset, next: Offset, bounds: Range<Offset>) -> SeekPreview {
        let to = to.clamp(bounds.start, bounds.end);
        let next = next.clamp(to, bounds.end);
        let settled_beyond = self.settled.count(&(next..bounds.end));
        let logged = self.retries.from(next.max(self.floor)).count() as u64;
        let below_floor = self.floor.0.saturating_sub(next.0);
        SeekPreview {
            floor: to,
            redelivered: (next.0 - to.0) + settled_beyond + logged + below_floor,
            skipped: self.count_unsettled_in(self.floor..to),
        }
    }

    fn is_unsettled(&self, offset: Offset, end: Offset) -> bool {
        offset < end && !self.is_settled(offset)
    }

    /// Unsettled records of a range that begins at the floor or above.
    pub(super) fn count_unsettled_in(&self, range: Range<Offset>) -> u64 {
        range.end.0.saturating_sub(range.start.0) - self.settled.count(&range)
    }

    /// Settles what of a range exists; returns how many records were unsettled before.
    fn settle(&mut self, range: Range<Offset>, end: Offset) -> u64 {
        let range = range.start.max(self.floor)..range.end.min(end);
        if range.start >= range.end {
            return 0;
        }
        self.retries.remove(&range);
        self.forget_revoked(&range);
        if range.start > self.floor {
            return self.settled.insert(range);
        }
        self.raise_floor(range.end)
    }

    /// Everything below `to` is settled; so may be what follows. Returns how many records were unsettled before.
    fn raise_floor(&mut self, to: Offset) -> u64 {
        let passed = to.0 - self.floor.0;
        self.floor = to;
        if self.settled.is_empty() {
            return passed;
        }
        let inside = self.settled.count(&(Offset(to.0 - passed)..to));
        self.floor = self.settled.next_gap(to);
        // From `to` to there is nothing but members: they need no counting.
        self.settled.forget_below(self.floor, inside + (self.floor.0 - to.0));
        passed - inside
    }

    fn nack(&mut self, nacked: Nacked, end: Offset) -> bool {
        let is_unsettled = self.is_unsettled(nacked.offset, end);
        if is_unsettled {
            let before = self.retry(nacked.offset);
            let attempts = nacked.attempts.max(before.map_or(1, |before| before.attempts));
            let fence = before.map_or(Fence(0), |before| before.fence);
            self.retries.insert(nacked.offset, Retry { attempts, due: Some(nacked.due), fence });
        }
        is_unsettled
    }

    fn deliver(&mut self, delivered: Redelivered, end: Offset) -> bool {
        let is_unsettled = self.is_unsettled(delivered.offset, end);
        if is_unsettled {
            let before = self.retry(delivered.offset);
            let attempts = delivered.attempts.max(before.map_or(1, |before| before.attempts));
            let fence = delivered.fence.max(before.map_or(Fence(0), |before| before.fence));
            self.retries.insert(delivered.offset, Retry { attempts, due: None, fence });
            if fence != Fence(0) {
                self.revoked.remove(delivered.offset);
            }
        }
        is_unsettled
    }

    /// A name that there is no going back to any more changes nothing.
    fn seek(&mut self, seek: Seek, bounds: &Range<Offset>) {
        let back = self.to_go_back(seek.back_to).cloned();
        if seek.back_to != 0 && back.is_none() {
            return;
        }
        match seek.keep_as {
            // What was settled since the seeks before cannot be told any more.
            0 => self.kept = Arc::default(),
            name => self.keep(name),
        }
        match back {
            Some(kept) => {
                let is_of_dead = matches!(kept.back, Back::DeadLetters(_));
                self.go_back(kept, bounds);
                if is_of_dead {
                    self.only_dead_changed();
                }
            }
            None => {
                self.moved();
                self.floor = seek.to.clamp(bounds.start, bounds.end);
                self.settled.clear();
                self.retries.clear();
                self.given_up.forget_from(self.floor);
                self.moved_to = if seek.keep_as == 0 { Offset(0) } else { self.floor };
            }
        }
        self.fence_min = self.fence_min.max(seek.fence);
        // All leases have ended.
        self.revoked.clear();
    }

    pub(super) fn keep(&mut self, name: u64) {
        let kept = self.as_kept(name, TimestampMs(0)..TimestampMs(0));
        let all = Arc::make_mut(&mut self.kept);
        if all.len() == KEPT_MAX {
            all.remove(0);
        }
        all.push(kept);
    }

    /// What was kept, with what was settled since the last seek.
    fn go_back(&mut self, kept: Kept, bounds: &Range<Offset>) {
        if let Back::DeadLetters(after) = &kept.back {
            return self.bring_back_dead(&kept.given_up, after, bounds);
        }
        self.moved();
        let since = self.moved_to;
        let (floor, settled, given_up) = (self.floor, self.settled.clone(), self.given_up.clone());
        self.floor = kept.floor;
        (self.settled, self.retries, self.given_up) = (kept.settled, kept.retries, kept.given_up);
        self.settle(since..floor, bounds.end);
        let mut at = since.max(floor);
        while let Some(start) = settled.next_member(at) {
            at = settled.next_gap(start);
            self.settle(start..at, bounds.end);
        }
        given_up.members(since).for_each(|offset| _ = self.given_up.insert(offset..offset.plus(1)));
        self.start_moved(bounds.start);
        self.moved_to = bounds.end;
    }

    /// Unsettles what was given up of a range; returns how many records that are.
    fn revive(&mut self, range: Range<Offset>, keeps_leases: bool) -> u64 {
        let members: Vec<Offset> =
            self.given_up.members(range.start).take_while(|offset| *offset < range.end).collect();
        for offset in &members {
            self.given_up.remove(*offset);
            if *offset >= self.floor {
                self.settled.remove(*offset);
                continue;
            }
            let below = offset.plus(1)..self.floor;
            self.floor = *offset;
            self.settled.lower_to(*offset);
            if below.start < below.end {
                self.settled.insert(below);
            }
        }
        if !keeps_leases {
            members.iter().for_each(|offset| _ = self.revoked.insert(*offset..offset.plus(1)));
        }
        members.len() as u64
    }

    fn forget_revoked(&mut self, range: &Range<Offset>) {
        if self.revoked.is_empty() {
            return;
        }
        let inside: Vec<Offset> =
            self.revoked.members(range.start).take_while(|offset| *offset < range.end).collect();
        inside.into_iter().for_each(|offset| _ = self.revoked.remove(offset));
    }

    /// Whether an unsettled record was revived and not delivered since: no fence of before settles it.
    #[must_use]
    pub fn is_revoked(&self, offset: Offset) -> bool {
        self.revoked.contains(offset)
    }

    /// Names of what stood before seeks and purges, the newest last. Not every one can be gone back to.
    pub fn kept(&self) -> impl Iterator<Item = u64> {
        self.kept.iter().map(|kept| kept.name)
    }

    /// What is kept under a name, if it can be gone back to.
    fn to_go_back(&self, name: u64) -> Option<&Kept> {
        self.kept.iter().find(|kept| kept.name == name && kept.back != Back::Nothing)
    }

    /// Whether there is going back to a name.
    #[must_use]
    pub fn can_go_back(&self, name: u64) -> bool {
        self.to_go_back(name).is_some()
    }

    /// The part as it would stand after a seek back; `None` if there is no going back to the name.
    #[must_use]
    pub fn gone_back(&self, name: u64, bounds: Range<Offset>) -> Option<Self> {
        let kept = self.to_go_back(name)?.clone();
        let mut part = self.clone();
        part.go_back(kept, &bounds);
        Some(part)
    }

    /// Records below `end` that are unsettled here and settled in `other`.
    #[must_use]
    pub fn unsettled_only_here(&self, other: &Self, end: Offset) -> u64 {
        let mut only = 0;
        for run in self.unsettled_from(self.floor, end) {
            let there = other.count_unsettled_in(run.start.max(other.floor)..run.end.max(other.floor));
            only += run.end.0 - run.start.0 - there;
        }
        only
    }

    /// Whether a record was given up, and not revived since.
    #[must_use]
    pub fn is_given_up(&self, offset: Offset) -> bool {
        self.given_up.contains(offset)
    }

    /// Records that were given up and not revived, from an offset on.
    pub fn given_up_from(&self, offset: Offset) -> impl Iterator<Item = Offset> {
        self.given_up.members(offset)
    }

    /// How many records were given up and not revived.
    #[must_use]
    pub fn given_up(&self) -> u64 {
        self.given_up.len()
    }

    /// When a nacked record may be delivered again.
    #[must_use]
    pub fn due(&self, offset: Offset) -> Option<TimestampMs> {
        self.retry(offset).and_then(|retry| retry.due)
    }
}
