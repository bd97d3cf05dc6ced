//! Looking ahead: what must be read of a record before it may be leased.
//!
//! With order by key, a filter or fairness, new records are not leased as they come but looked at first, in
//! the order of offsets, and none is passed over. What was looked at waits in memory, at most
//! [`LOOK_AHEAD_MAX`] records, so cost and memory are the same with one record behind and with 10 million.
//!
//! ```text
//!   looked at ─┬─ does not match ─▶ skipped: settled with the next event of the part
//!              ├─ its key is held ─▶ blocked ──the record before it is settled──┐
//!              └─ ready, or waits for its time ◀────────────────────────────────┘
//! ```

use std::collections::{BTreeMap, BTreeSet};
use std::ops::Range;
use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};

use super::event::Fence;
use super::leases::{Known, Leases, State, after, is_exhausted};
use super::part::Part;
use super::ready::Lane;

/// Most records of a part that were looked at and are neither leased nor wait for their time. About 200 bytes each. A
/// key that is held with as many behind it holds up what follows.
pub const LOOK_AHEAD_MAX: usize = 16_384;
/// Most records of a part that wait or come again; with more, no new one is leased. About 200 bytes each.
pub const COME_AGAIN_MAX: usize = 262_144;
/// Skipped records of a part after which they are to be logged, whatever else there is.
pub const SKIPPED_MAX: u64 = 16_384;

/// What orders records: one of the same key is leased only when the one before it is settled. 0: none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub struct Key(pub u64);

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

/// Who holds which key, and who waits for it. Of the records of one key, all but one are blocked; but for those of
/// which a delivery of the leader before is settled or extended while another holds the key.
#[derive(Debug, Clone, Default)]
pub(super) struct Lines {
    holders: BTreeMap<Key, Offset>,
    blocked: BTreeSet<(Key, Offset)>,
    /// In work, though another holds their key: it is theirs before it is of any that is blocked.
    in_work: BTreeSet<(Key, Offset)>,
}

impl Lines {
    /// The state of a record that would be in this one: if another holds its key, it is blocked until that has left,
    /// unless it is in work already.
    pub(super) fn admit(&mut self, key: Key, offset: Offset, state: State) -> State {
        if key == Key::NONE {
            return state;
        }
        let due = match state {
            State::Leased(_) | State::Settling(_) => {
                if *self.holders.entry(key).or_insert(offset) != offset {
                    self.in_work.insert((key, offset));
                }
                return state;
            }
            State::Waiting(due) => Some(due),
            State::Blocked(due) => due,
            State::Free(_) | State::Fresh => None,
        };
        if *self.holders.entry(key).or_insert(offset) == offset {
            return state;
        }
        self.in_work.remove(&(key, offset));
        self.blocked.insert((key, offset));
        State::Blocked(due)
    }

    /// The record is blocked no more.
    pub(super) fn unblock(&mut self, key: Key, offset: Offset) {
        self.blocked.remove(&(key, offset));
    }

    /// The record leaves its line. Returns who holds the key instead, if another waited for it.
    fn leave(&mut self, key: Key, offset: Offset) -> Option<Offset> {
        if self.holders.get(&key) != Some(&offset) {
            self.blocked.remove(&(key, offset));
            self.in_work.remove(&(key, offset));
            return None;
        }
        if let Some(next) = pop_first(&mut self.in_work, key) {
            self.holders.insert(key, next);
            return None;
        }
        let next = pop_first(&mut self.blocked, key);
        match next {
            Some(next) => self.holders.insert(key, next),
            None => self.holders.remove(&key),
        };
        next
    }

    /// The record that holds a key.
    pub(super) fn holder(&self, key: Key) -> Option<Offset> {
        self.holders.get(&key).copied()
    }

    /// Records that wait for their key.
    pub(super) fn blocked_len(&self) -> usize {
        self.blocked.len()
    }
}

/// Takes out the first record of a key.
fn pop_first(records: &mut BTreeSet<(Key, Offset)>, key: Key) -> Option<Offset> {
    let first = *records.range((key, Offset(0))..=(key, Offset(u64::MAX))).next()?;
    records.remove(&first);
    Some(first.1)
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

impl Leases {
    /// Where to look on, if there are fewer than `wanted` records to lease; `None`: nothing has to be looked at, or
    /// nothing may. What is found there is [told](Leases::looked).
    #[must_use]
    pub fn look_from(&mut self, part: &Part, end: Offset, wanted: usize) -> Option<Offset> {
        if !self.rules.looks_ahead {
            return None;
        }
        self.forget_settled(part);
        let has_room = self.leased.len() < self.rules.max_unacked;
        if !has_room || self.ready.len() >= wanted || !self.may_look() {
            return None;
        }
        self.next = part.next_unsettled(self.next);
        (self.next < end).then_some(self.next)
    }

    /// Whether there is room for more records that were looked at.
    pub(super) fn may_look(&self) -> bool {
        self.looked_ahead() < LOOK_AHEAD_MAX && self.may_take_new()
    }

    /// Whether a record that never was leased may be: not if too many wait to come again.
    pub(super) fn may_take_new(&self) -> bool {
        self.waiting.len() + self.ready.again_len() < COME_AGAIN_MAX
    }

    fn looked_ahead(&self) -> usize {
        self.ready.len() - self.ready.again_len() + self.lines.blocked_len()
    }

    /// What was found from `from`, which [`Leases::look_from`] said, up to `upto`: every record that is
    /// there. If others have looked there meanwhile, or have to look before it again, what was found is of no
    /// account.
    pub fn looked(&mut self, part: &Part, found: Range<Offset>, seen: impl IntoIterator<Item = Seen>) {
        self.next = part.next_unsettled(self.next);
        if self.next < found.start || !self.rules.looks_ahead {
            return;
        }
        for seen in seen {
            if seen.offset >= self.next && !part.is_settled(seen.offset) {
                self.look_at(part, seen);
            }
        }
        self.next = self.next.max(found.end);
    }

    fn look_at(&mut self, part: &Part, seen: Seen) {
        let Seen { offset, key, lane, fate } = seen;
        if self.known.contains_key(&offset) {
            return self.look_at_known(offset, key, lane);
        }
        let retry = part.retry(offset);
        let attempts = retry.map_or(0, |retry| retry.attempts);
        let due = match fate {
            Fate::Skip => return self.skipped.push(offset),
            Fate::Deliver => None,
            Fate::DeliverAt(due) => Some(due),
        };
        // It may be in work with a client of the leader before.
        let last_chance = is_exhausted(&self.rules, attempts).then(|| after(self.begun, self.rules.lease_ms));
        let due = retry.and_then(|retry| retry.due).or(last_chance).or(due);
        let state = due.map_or(State::Fresh, State::Waiting);
        self.put(offset, Known { attempts, key, lane, ..Known::new(Arc::from(""), state) });
    }

    /// A delivery of the leader before was settled or extended before its record was looked at.
    fn look_at_known(&mut self, offset: Offset, key: Key, lane: Lane) {
        if self.known[&offset].key == Key::NONE {
            self.change(offset, |known| (known.key, known.lane) = (key, lane));
        }
    }

    /// A record has left: whoever waited for its key holds it now.
    pub(super) fn leave_line(&mut self, key: Key, offset: Offset) {
        if key == Key::NONE {
            return;
        }
        let Some(next) = self.lines.leave(key, offset) else { return };
        self.change(next, |known| {
            if let State::Blocked(due) = known.state {
                known.state = due.map_or(State::Fresh, State::Waiting);
            }
        });
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
            is && known.fence == Fence(0) && known.attempts == 0
        };
        let ahead: Vec<Offset> =
            self.known.iter().filter(|(_, known)| is_ahead(known)).map(|(offset, _)| *offset).collect();
        let unsettled = |range: &Range<Offset>| part.next_unsettled(range.start)..range.end;
        let skipped = self.skipped.ranges.iter().map(unsettled).filter(|range| !range.is_empty());
        let first_skipped = skipped.map(|range| range.start).min();
        let first = ahead.first().copied().into_iter().chain(first_skipped).min();
        for range in std::mem::take(&mut self.skipped.ranges) {
            self.skipped.len -= range.end.0 - range.start.0;
        }
        // The last in line leaves first, so that nobody takes a key for a moment.
        ahead.into_iter().rev().for_each(|offset| _ = self.remove(offset));
        self.go_back(part, first.unwrap_or(self.next));
    }

    /// From `to` on there may be unsettled records that are not known.
    pub(super) fn go_back(&mut self, part: &Part, to: Offset) {
        if to < self.next {
            self.ahead_end = self.ahead_end.max(self.next);
            self.next = part.next_unsettled(to);
        }
    }
}
