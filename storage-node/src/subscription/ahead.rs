//! Looking ahead: what must be read of a record before it may be leased.
//!
//! With order by key, a filter or fairness, new records are not leased as they come but looked at first, in
//! the order of offsets, and none is passed over. So are they elsewhere, as long as those that are met are not for
//! now. What was looked at waits in memory, as offsets in sets, and looking goes on behind what may not run: at most
//! [`LOOK_AHEAD_MAX`] records of [`LANES_MAX`] keys or lanes.
//!
//! ```text
//!   looked at ─┬─ does not match ─▶ skipped: settled with the next event of the part
//!              ├─ its key is held ─▶ blocked ──the record before it is settled──┐
//!              ├─ ready ◀───────────────────────────────────────────────────────┘
//!              └─ waits for its time, in order or with others ──its time comes──▶ ready, or looked at again
//! ```

use std::ops::Range;
use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};

use super::event::Fence;
use super::leases::{Known, Leases, State, after, is_exhausted};
use super::lines::Next;
use super::offsets::Offsets;
use super::part::Part;
use super::ready::Lane;

/// Most records of a part that were looked at and are neither leased nor wait for their time; with more, nothing
/// further is looked at. At most about 2 bytes each.
pub const LOOK_AHEAD_MAX: usize = 4 << 20;
/// Most keys and most lanes of a part that have such records. Some hundred bytes each.
pub const LANES_MAX: usize = 65_536;
/// Most records of a part that were leased, are free again and not leased yet; with more, no new one is leased. About
/// 200 bytes each.
pub const COME_AGAIN_MAX: usize = 262_144;
/// Most records of a part of which it is kept in order when they are due; with more, they are put with others that are
/// due at about the same time. About 200 bytes each.
pub const NEAR_MAX: usize = 65_536;
/// Skipped records of a part after which they are to be logged, whatever else there is.
pub const SKIPPED_MAX: u64 = 16_384;

/// What orders records: one of the same key is leased only when the one before it is settled. 0: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub u128);

impl Key {
    /// In no order.
    pub const NONE: Self = Self(0);
}

/// What was found of a record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Seen {
    /// The record.
    pub offset: Offset,
    /// Its key.
    pub key: Key,
    /// Whose it is.
    pub lane: Lane,
    /// What is to be done with it.
    pub fate: Fate,
}

impl Seen {
    /// Its record is not there any more.
    #[must_use]
    pub fn dropped(offset: Offset) -> Self {
        Self { offset, key: Key::NONE, lane: Lane::default(), fate: Fate::Skip }
    }
}

/// What is to be done with a record that was looked at.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fate {
    /// It is for whoever pulls.
    Deliver,
    /// The same, not before a time.
    DeliverAt(TimestampMs),
    /// It is settled without being delivered.
    Skip,
}

/// Records that were skipped and are not in the log as settled yet: ranges in no order.
#[derive(Debug, Clone, Default)]
pub(super) struct Skipped {
    ranges: Vec<Range<Offset>>,
    /// On their way through the log.
    logging: Vec<Range<Offset>>,
    /// Records in both.
    len: u64,
}

impl Skipped {
    pub(super) fn contains(&self, offset: Offset) -> bool {
        self.ranges.iter().chain(&self.logging).any(|range| range.contains(&offset))
    }

    /// How many of them `part` has not settled. What is on its way is settled a moment before that is
    /// [told](Leases::skips_logged), each range of it as a whole.
    pub(super) fn count_unsettled(&self, part: &Part) -> u64 {
        let floor = part.floor();
        let on_their_way = self.logging.iter().filter(|range| !part.is_settled(range.start.max(floor)));
        let ranges = self.ranges.iter().chain(on_their_way);
        ranges.map(|range| range.end.0.saturating_sub(range.start.max(floor).0)).sum()
    }

    pub(super) fn push(&mut self, offset: Offset) {
        self.len += 1;
        match self.ranges.last_mut().filter(|last| last.end == offset) {
            Some(last) => last.end = offset.plus(1),
            None => self.ranges.push(offset..offset.plus(1)),
        }
    }

    /// The record is not skipped, unless that is on its way.
    pub(super) fn remove(&mut self, offset: Offset) {
        let Some(at) = self.ranges.iter().position(|range| range.contains(&offset)) else { return };
        let Range { start, end } = std::mem::replace(&mut self.ranges[at], offset.plus(1)..offset.plus(1));
        let left = [start..offset, offset.plus(1)..end];
        self.ranges.splice(at..=at, left.into_iter().filter(|range| !range.is_empty()));
        self.len -= 1;
    }

    /// What was skipped from `start` on is looked at again, but for what is on its way.
    pub(super) fn forget_from(&mut self, start: Offset) {
        for range in &mut self.ranges {
            let end = range.end.min(start).max(range.start);
            self.len -= range.end.0 - end.0;
            range.end = end;
        }
        self.ranges.retain(|range| !range.is_empty());
    }

    /// Forgets what the part has settled of what was on its way; the rest was not logged.
    fn logged(&mut self, part: &Part) {
        self.ranges.append(&mut self.logging);
        self.ranges.retain_mut(|range| {
            range.start = part.next_unsettled(range.start);
            range.start < range.end
        });
        self.len = self.ranges.iter().map(|range| range.end.0 - range.start.0).sum();
    }
}

/// What is held of records that are not leased: see the constants, which tests lower.
#[derive(Debug, Clone, Copy)]
pub(super) struct Limits {
    /// [`LOOK_AHEAD_MAX`].
    pub(super) ahead: usize,
    /// [`LANES_MAX`].
    pub(super) lanes: usize,
    /// [`NEAR_MAX`].
    pub(super) near: usize,
}

impl Default for Limits {
    fn default() -> Self {
        Self { ahead: LOOK_AHEAD_MAX, lanes: LANES_MAX, near: NEAR_MAX }
    }
}

impl Leases {
    /// Where to look on, and how far, if there are fewer than `wanted` records to lease; `None`: nothing has to
    /// be looked at, or nothing may. What is found there is [told](Leases::looked). What waited and is met
    /// again takes turns with what is new.
    #[must_use]
    pub fn look_from(&mut self, part: &Part, end: Offset, wanted: usize) -> Option<Range<Offset>> {
        if !self.looks() {
            return None;
        }
        self.forget_settled(part);
        let has_room = self.leased.len() < self.rules.max_unacked;
        if !has_room || self.ready_len(part) >= wanted || !self.may_look() {
            return None;
        }
        let next = self.next_new(part);
        let new = (next < end).then_some(next..end);
        let again = self.unmet.first().map(|first| first..next);
        if self.looked_back { new.or(again) } else { again.or(new) }
    }

    /// Whether records are looked at before they are leased.
    pub(super) fn looks(&self) -> bool {
        self.rules.looks_ahead || self.sifts
    }

    /// What was met is not for now: what follows is looked at, many at once, before it is leased, until enough is.
    pub fn sift(&mut self) {
        self.sifts = true;
    }

    /// Whether there is room for more records that were looked at.
    pub(super) fn may_look(&self) -> bool {
        !self.is_full_of_what_was_looked_at() && self.may_take_new()
    }

    /// Whether so much was looked at that nothing further is.
    #[must_use]
    pub fn is_full_of_what_was_looked_at(&self) -> bool {
        let ahead = self.ready.len() - self.ready.again_len() + self.lines.queued_len();
        ahead >= self.limits.ahead
            || self.ready.lanes() >= self.limits.lanes
            || self.lines.keys() >= self.limits.lanes
    }

    /// Whether a record that never was leased may be: not if too many come again.
    pub(super) fn may_take_new(&self) -> bool {
        self.ready.again_len() < COME_AGAIN_MAX
    }

    /// What was found in a range of which [`Leases::look_from`] said the beginning: every record that is there. If
    /// others have looked there meanwhile, or have to look before it again, what was found is of no account.
    pub fn looked(&mut self, part: &Part, found: Range<Offset>, seen: impl IntoIterator<Item = Seen>) {
        if !self.looks() {
            return;
        }
        let next = self.next_new(part);
        self.looked_back = found.start < next;
        let (mut looked, mut are_for_now) = (false, true);
        for seen in seen {
            let is_meant = self.unmet.remove(seen.offset) || next >= found.start && seen.offset >= next;
            if is_meant && !part.is_settled(seen.offset) {
                (looked, are_for_now) = (true, are_for_now && seen.fate == Fate::Deliver);
                self.look_at(part, seen);
            }
        }
        if next >= found.start {
            self.next = next.max(found.end);
        }
        self.sifts &= !(looked && are_for_now);
        self.has_looked = true;
    }

    fn look_at(&mut self, part: &Part, seen: Seen) {
        let Seen { offset, key, lane, fate } = seen;
        if self.known.contains_key(&offset) {
            return self.look_at_known(offset, key, lane);
        }
        let mut waits = None;
        if self.later.contains(offset) {
            // It was given back before its key was known: from now on it holds that.
            if key == Key::NONE || fate == Fate::Skip {
                return;
            }
            waits = self.later.time_of(offset);
            self.later.remove(offset);
        }
        let due = match fate {
            Fate::Skip => return self.skipped.push(offset),
            Fate::Deliver => waits,
            Fate::DeliverAt(due) => Some(due),
        };
        if !self.lines.queue(key, lane, offset) {
            self.enter_line(part, offset, (key, lane), due);
        }
    }

    /// Nobody holds the key of a record that was looked at.
    fn enter_line(
        &mut self,
        part: &Part,
        offset: Offset,
        (key, lane): (Key, Lane),
        due: Option<TimestampMs>,
    ) {
        let retry = part.retry(offset);
        let attempts = retry.map_or(0, |retry| retry.attempts);
        // It may be in work with a client of the leader before.
        let last_chance = is_exhausted(&self.rules, attempts).then(|| after(self.begun, self.rules.lease_ms));
        let due = retry.and_then(|retry| retry.due).or(last_chance).or(due);
        match due {
            None if key == Key::NONE => self.ready.insert(lane, None, offset),
            _ => {
                let state = due.map_or(State::Fresh, State::Waiting);
                self.put(offset, Known { attempts, key, lane, ..Known::new(Arc::from(""), state) });
            }
        }
    }

    /// A delivery of the leader before was settled or extended before its record was looked at.
    fn look_at_known(&mut self, offset: Offset, key: Key, lane: Lane) {
        if self.known[&offset].key == Key::NONE {
            self.change(offset, |known| (known.key, known.lane) = (key, lane));
        }
    }

    /// A record has left: whoever waited for its key holds it now.
    pub(super) fn leave_line(&mut self, part: &Part, key: Key, offset: Offset) {
        if key == Key::NONE {
            return;
        }
        let mut next = self.lines.leave(key, offset);
        while let Some(Next::Queued(_, settled)) = next
            && part.is_settled(settled)
        {
            next = self.lines.next(key);
        }
        match next {
            Some(Next::Known(next)) => self.change(next, |known| {
                if let State::Blocked(due) = known.state {
                    known.state = due.map_or(State::Fresh, State::Waiting);
                }
            }),
            // When its publisher wants it is found out when it is read to be sent.
            Some(Next::Queued(lane, next)) => self.enter_line(part, next, (key, lane), None),
            None => {}
        }
    }

    /// How many records may be leased now: none that was settled, or is known elsewhere by now, is before them.
    pub(super) fn ready_len(&mut self, part: &Part) -> usize {
        while let Some((lane, offset)) = self.ready.first_fresh() {
            if self.is_fresh(part, offset) {
                break;
            }
            self.ready.remove(lane, None, offset);
        }
        self.ready.len()
    }

    /// Whether a record that was looked at still stands as it did then.
    pub(super) fn is_fresh(&self, part: &Part, offset: Offset) -> bool {
        let is_known = self.known.get(&offset).is_some_and(|known| known.state != State::Fresh);
        !is_known && !part.is_settled(offset) && !self.later.contains(offset) && !self.unmet.contains(offset)
    }

    /// Records that were looked at and are not for anybody, for whoever logs next: to be logged as settled, and then,
    /// whatever came of it, [told](Leases::skips_logged). None while others are on their way.
    #[must_use = "they are logged by nobody else until it is told"]
    pub fn skips_to_log(&mut self) -> Vec<Range<Offset>> {
        if self.skipped.logging.is_empty() {
            self.skipped.logging = std::mem::take(&mut self.skipped.ranges);
            return self.skipped.logging.clone();
        }
        Vec::new()
    }

    /// What [`Leases::skips_to_log`] gave is in the log, or is not, as `part` says.
    pub fn skips_logged(&mut self, part: &Part) {
        self.skipped.logged(part);
    }

    /// Whether what is skipped should be logged now, whatever else there is.
    #[must_use]
    pub fn has_skipped_much(&self) -> bool {
        self.skipped.len >= SKIPPED_MAX
    }

    /// Records that were never delivered are looked at again: under another filter, say.
    pub fn look_again(&mut self, part: &Part) {
        let is_ahead = |known: &Known| {
            // Free is also what its time has come for, or was given back, though nobody was sent it.
            let is = !matches!(known.state, State::Leased(_) | State::Settling(_));
            known.state == State::Fresh || is && known.fence == Fence(0) && known.attempts == 0
        };
        let ahead: Vec<Offset> =
            self.known.iter().filter(|(_, known)| is_ahead(known)).map(|(offset, _)| *offset).collect();
        let unsettled = |range: &Range<Offset>| part.next_unsettled(range.start)..range.end;
        let skipped = self.skipped.ranges.iter().map(unsettled).filter(|range| !range.is_empty());
        let first_skipped = skipped.map(|range| range.start).min();
        let in_sets = [
            self.ready.lowest_fresh(|offset| self.is_fresh(part, offset)),
            self.lines.lowest_queued(),
            self.later.lowest(),
            self.unmet.first(),
        ];
        let in_sets = in_sets.into_iter().flatten().map(|offset| part.next_unsettled(offset));
        let first = ahead.first().copied().into_iter().chain(first_skipped).chain(in_sets).min();
        for range in std::mem::take(&mut self.skipped.ranges) {
            self.skipped.len -= range.end.0 - range.start.0;
        }
        self.lines.forget_queued();
        self.ready.forget_fresh();
        self.unmet = Offsets::default();
        self.forget_never_delivered(part);
        // The last in line leaves first, so that nobody takes a key for a moment.
        ahead.into_iter().rev().for_each(|offset| _ = self.remove(part, offset));
        self.go_back(part, first.unwrap_or(self.next));
    }

    /// Of what waits with others, only what was given back does so on.
    fn forget_never_delivered(&mut self, part: &Part) {
        let later = std::mem::take(&mut self.later);
        if later.len() == 0 {
            return;
        }
        for (offset, retry) in part.retries().filter(|(offset, _)| later.contains(*offset)) {
            match retry.due.or_else(|| later.time_of(offset)) {
                Some(due) if due > self.clock => self.later.put(offset, due, self.clock),
                _ => _ = self.unmet.insert(offset),
            }
        }
    }

    /// From `to` on there may be unsettled records that are not known.
    pub(super) fn go_back(&mut self, part: &Part, to: Offset) {
        if to < self.next {
            self.ahead_end = self.ahead_end.max(self.next);
            self.next = part.next_unsettled(to);
        }
    }
}
