//! Where a record is found that something is known of, or that waits.

use weir_protocol::ids::{Offset, TimestampMs};

use super::ahead::Key;
use super::event::Fence;
use super::later::FAR_MS;
use super::leases::{Known, Leases, State, after};
use super::part::Part;
use super::ready::Lane;

impl Leases {
    /// Puts a record where its state says, or behind the one that holds its key. It must not be in an order.
    pub(super) fn put(&mut self, offset: Offset, mut known: Known) {
        if offset >= self.next {
            self.ahead_end = self.ahead_end.max(offset.plus(1));
        }
        if let Some(due) = self.later_due(known.key, known.fence, known.state) {
            return self.later.put(offset, due, self.clock);
        }
        known.state = self.lines.admit(known.key, offset, known.state);
        self.enter(offset, known.state, known.lane);
        self.known.insert(offset, known);
    }

    /// Until when a record waits with others, if it does: nothing is known of it but when it is due, that is
    /// far away, or there are many. Of some that were given back it stays known which delivery that was.
    fn later_due(&self, key: Key, fence: Fence, state: State) -> Option<TimestampMs> {
        let State::Waiting(due) = state else { return None };
        if key != Key::NONE || due <= self.clock {
            return None;
        }
        let is_far = due > after(self.clock, FAR_MS);
        let room = match (is_far, fence) {
            (true, Fence(0)) => 0,
            (true, _) => self.limits.near / 2,
            (false, _) => self.limits.near,
        };
        (self.waiting.len() >= room).then_some(due)
    }

    /// Takes a known record out; whoever waited for its key holds it.
    pub(super) fn remove(&mut self, part: &Part, offset: Offset) -> Known {
        let known = self.known.remove(&offset).expect("what is in an order is known");
        self.leave(offset, known.state, known.lane);
        self.leave_line(part, known.key, offset);
        known
    }

    /// Changes a known record in its place, and where it is found by.
    pub(super) fn change(&mut self, offset: Offset, change: impl FnOnce(&mut Known)) {
        self.change_known(offset, change).expect("what is in an order is known");
    }

    /// The same if it is known; its deliveries then.
    pub(super) fn change_known(&mut self, offset: Offset, change: impl FnOnce(&mut Known)) -> Option<u32> {
        let known = self.known.get_mut(&offset)?;
        let (old, old_lane) = (known.state, known.lane);
        change(known);
        if matches!(old, State::Blocked(_)) {
            self.lines.unblock(known.key, offset);
        }
        let (key, fence, state) = (known.key, known.fence, known.state);
        let (lane, attempts) = (known.lane, known.attempts);
        let waits = matches!(old, State::Waiting(_));
        if let Some(due) = self.later_due(key, fence, state).filter(|_| !waits) {
            self.known.remove(&offset);
            self.leave(offset, old, old_lane);
            self.later.put(offset, due, self.clock);
            return Some(attempts);
        }
        let new = self.lines.admit(key, offset, state);
        self.known.get_mut(&offset)?.state = new;
        match (old, new) {
            // The pull keeps it.
            (State::Leased(old), State::Leased(new)) if old.pull == new.pull => {
                self.leased.remove(&(old.deadline, offset));
            }
            _ => self.leave(offset, old, old_lane),
        }
        self.enter(offset, new, lane);
        Some(attempts)
    }

    fn enter(&mut self, offset: Offset, state: State, lane: Lane) {
        match state {
            State::Leased(lease) => _ = self.leased.insert((lease.deadline, offset)),
            State::Waiting(due) => _ = self.waiting.insert((due, offset)),
            State::Free(since) => self.ready.insert(lane, Some(since), offset),
            State::Fresh => self.ready.insert(lane, None, offset),
            State::Settling(_) => self.settling += 1,
            State::Blocked(_) => {}
        }
    }

    fn leave(&mut self, offset: Offset, state: State, lane: Lane) {
        match state {
            State::Leased(lease) => {
                self.leased.remove(&(lease.deadline, offset));
                self.pulls.end(lease.pull, offset);
            }
            State::Waiting(due) => _ = self.waiting.remove(&(due, offset)),
            State::Free(since) => self.ready.remove(lane, Some(since), offset),
            State::Fresh => self.ready.remove(lane, None, offset),
            State::Settling(_) => self.settling -= 1,
            State::Blocked(_) => {}
        }
    }
}
