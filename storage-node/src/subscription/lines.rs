//! Who holds which key, and who waits for it.

use std::collections::{BTreeMap, BTreeSet};

use roaring::RoaringTreemap;
use weir_protocol::ids::Offset;

use super::ahead::Key;
use super::leases::State;
use super::offsets::Offsets;
use super::ready::Lane;

/// Of the records of one key, all but one are blocked; but for those of which a delivery of the leader before
/// is settled or extended while another holds the key. Of those that were looked at and wait behind it there
/// are offsets alone, by whose they are.
#[derive(Debug, Clone, Default)]
pub(super) struct Lines {
    holders: BTreeMap<Key, Offset>,
    /// Known records that wait for their key.
    blocked: BTreeSet<(Key, Offset)>,
    /// In work, though another holds their key: it is theirs before it is of any that is blocked.
    in_work: BTreeSet<(Key, Offset)>,
    /// Records that were looked at, and of which nothing else is known.
    queued: BTreeMap<(Key, Lane), Offsets>,
    /// All of them.
    all_queued: RoaringTreemap,
    queued_len: usize,
}

/// Who holds a key next.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Next {
    /// It is known, and was blocked.
    Known(Offset),
    /// It was looked at, and is blocked no more.
    Queued(Lane, Offset),
}

impl Lines {
    /// The state of a known record that would be in this one: if another holds its key, it is blocked until
    /// that has left, unless it is in work already.
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

    /// Puts a record that was looked at behind the one that holds its key; false if none does.
    pub(super) fn queue(&mut self, key: Key, lane: Lane, offset: Offset) -> bool {
        if key == Key::NONE || self.holders.get(&key).is_none_or(|holder| *holder == offset) {
            return false;
        }
        self.queued_len += usize::from(self.queued.entry((key, lane)).or_default().insert(offset));
        self.all_queued.insert(offset.0);
        true
    }

    /// Takes out a record that was looked at and is blocked. Returns its key and whose it is.
    pub(super) fn unqueue(&mut self, offset: Offset) -> Option<(Key, Lane)> {
        if self.queued_len == 0 || !self.all_queued.remove(offset.0) {
            return None;
        }
        let (place, line) = self.queued.iter_mut().find(|(_, line)| line.contains(offset))?;
        let place = *place;
        line.remove(offset);
        if line.is_empty() {
            self.queued.remove(&place);
        }
        self.queued_len -= 1;
        Some(place)
    }

    /// Forgets what was looked at, is blocked and lies below `floor`.
    pub(super) fn forget_below(&mut self, floor: Offset) {
        if self.queued_len == 0 || self.all_queued.min().is_none_or(|lowest| lowest >= floor.0) {
            return;
        }
        self.all_queued.remove_range(..floor.0);
        self.queued.retain(|_, line| {
            while line.first().is_some_and(|first| first < floor) {
                line.pop_first();
            }
            !line.is_empty()
        });
        self.queued_len = self.queued.values().map(Offsets::len).sum();
    }

    /// Forgets all that was looked at and is blocked.
    pub(super) fn forget_queued(&mut self) {
        (self.queued, self.all_queued, self.queued_len) = Default::default();
    }

    /// A known record is blocked no more.
    pub(super) fn unblock(&mut self, key: Key, offset: Offset) {
        self.blocked.remove(&(key, offset));
    }

    /// The record leaves its line. Returns who holds the key instead, if another waited for it.
    pub(super) fn leave(&mut self, key: Key, offset: Offset) -> Option<Next> {
        if self.holders.get(&key) != Some(&offset) {
            self.blocked.remove(&(key, offset));
            self.in_work.remove(&(key, offset));
            return None;
        }
        self.holders.remove(&key);
        self.next(key)
    }

    /// Who holds a key that nobody holds, if somebody waits for it.
    pub(super) fn next(&mut self, key: Key) -> Option<Next> {
        if let Some(next) = first_of(&self.in_work, key) {
            self.in_work.remove(&(key, next));
            self.holders.insert(key, next);
            return None;
        }
        let known = first_of(&self.blocked, key);
        let queued = self.first_queued(key);
        match (known, queued) {
            (Some(known), queued) if queued.is_none_or(|(_, queued)| known < queued) => {
                self.blocked.remove(&(key, known));
                self.holders.insert(key, known);
                Some(Next::Known(known))
            }
            (_, Some((lane, offset))) => {
                self.unqueue_first(key, lane);
                Some(Next::Queued(lane, offset))
            }
            _ => None,
        }
    }

    fn first_queued(&self, key: Key) -> Option<(Lane, Offset)> {
        if self.queued_len == 0 {
            return None;
        }
        let lines = self.queued.range((key, Lane(0))..=(key, Lane(u128::MAX)));
        lines.filter_map(|((_, lane), line)| Some((*lane, line.first()?))).min_by_key(|(_, offset)| *offset)
    }

    fn unqueue_first(&mut self, key: Key, lane: Lane) {
        let Some(line) = self.queued.get_mut(&(key, lane)) else { return };
        let Some(offset) = line.pop_first() else { return };
        if line.is_empty() {
            self.queued.remove(&(key, lane));
        }
        self.all_queued.remove(offset.0);
        self.queued_len -= 1;
    }

    /// The record that holds a key.
    pub(super) fn holder(&self, key: Key) -> Option<Offset> {
        self.holders.get(&key).copied()
    }

    /// Who holds the key of a record that was looked at and is blocked; `None` of any other.
    pub(super) fn holder_before(&self, offset: Offset) -> Option<Offset> {
        if self.queued_len == 0 || !self.all_queued.contains(offset.0) {
            return None;
        }
        let ((key, _), _) = self.queued.iter().find(|(_, line)| line.contains(offset))?;
        self.holder(*key)
    }

    /// Keys that somebody holds.
    pub(super) fn keys(&self) -> usize {
        self.holders.len()
    }

    /// Records that wait for their key.
    pub(super) fn blocked_len(&self) -> usize {
        self.blocked.len() + self.queued_len
    }

    /// Those of them of which only the offset is held.
    pub(super) fn queued_len(&self) -> usize {
        self.queued_len
    }

    /// The lowest of these.
    pub(super) fn lowest_queued(&self) -> Option<Offset> {
        self.all_queued.min().map(Offset)
    }
}

/// The first record of a key.
fn first_of(records: &BTreeSet<(Key, Offset)>, key: Key) -> Option<Offset> {
    records.range((key, Offset(0))..=(key, Offset(u64::MAX))).next().map(|(_, offset)| *offset)
}
