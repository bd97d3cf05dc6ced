//! What becomes of leases: acks, nacks, extensions and dead letters, before and after they are committed.

use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};

use super::event::{Delivered, Fence, Nacked};
use super::leases::{Grant, Known, Lease, Leases, State, after};
use super::part::Part;
use super::pulls::PullId;

/// One lease to settle.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Settle {
    /// The record.
    pub offset: Offset,
    /// The delivery that is meant.
    pub fence: Fence,
    /// What becomes of it.
    pub action: Action,
}

/// What becomes of a lease.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Action {
    /// Done.
    Ack,
    /// Failed: again after this long, or as the subscription says.
    Nack {
        /// The delay in milliseconds.
        delay_ms: Option<u64>,
    },
    /// Held longer, from now.
    Extend {
        /// How long, in milliseconds.
        ms: u64,
    },
    /// Given up.
    Dead,
}

/// What to answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Verdict {
    /// Accepted: answer done once what [`Effect`] says is committed.
    Done(Effect),
    /// The record was delivered again since, or the part was moved.
    LeaseLost {
        /// The delivery that took its place, if there is one.
        current: Option<Grant>,
    },
    /// The record is settled, or is being.
    AlreadySettled,
    /// No such delivery.
    Unknown,
}

/// What the caller has to do about an accepted settle. What is logged ends with [`Leases::committed`] or
/// [`Leases::failed`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Effect {
    /// Log it as settled.
    Settled,
    /// Log this.
    Nacked(Nacked),
    /// Log this as dead: it was given up, or failed for the last time.
    Dead(Delivered),
    /// Nothing: it is held until then.
    Extended(TimestampMs),
    /// Nothing: it was nacked before and waits until then.
    Waits(TimestampMs),
}

impl Leases {
    /// Decides what becomes of a lease; `end` is the partition's. An accepted ack, nack or dead letter frees its
    /// place in [`Rules::max_unacked`](super::Rules::max_unacked) at once.
    ///
    /// A delivery settles as long as its record was not delivered again, its deadline over or not. One of an earlier
    /// leader settles as long as this leader has not delivered the record.
    pub fn settle(&mut self, part: &Part, end: Offset, item: &Settle, now: TimestampMs) -> Verdict {
        self.forget_settled(part);
        let Settle { offset, fence, action } = *item;
        if offset >= end || fence == Fence(0) {
            return Verdict::Unknown;
        }
        if part.is_settled(offset) {
            return Verdict::AlreadySettled;
        }
        let known = self.known.get(&offset);
        if known.is_some_and(|known| known.state == State::Settling) {
            return Verdict::AlreadySettled;
        }
        let last = known.map_or(Fence(0), |known| known.fence);
        let is_of_earlier_leader = fence < self.fence_base && last < self.fence_base;
        if fence < last || fence < part.fence_min() {
            return Verdict::LeaseLost { current: self.current(offset, now) };
        }
        if fence != last && !is_of_earlier_leader {
            return Verdict::Unknown;
        }
        let was_nacked = match known.map(|known| known.state) {
            Some(State::Waiting(_) | State::Free(_)) => part.due(offset),
            _ => None,
        };
        match (action, was_nacked) {
            (Action::Ack, _) => {
                self.settling(part, offset, fence);
                Verdict::Done(Effect::Settled)
            }
            (Action::Dead, _) => {
                let attempts = self.settling(part, offset, fence);
                Verdict::Done(Effect::Dead(Delivered { offset, attempts }))
            }
            (Action::Nack { .. }, Some(due)) => Verdict::Done(Effect::Waits(due)),
            (Action::Nack { delay_ms }, None) => {
                let attempts = self.settling(part, offset, fence);
                Verdict::Done(self.nack(offset, attempts, delay_ms, now))
            }
            (Action::Extend { .. }, Some(_)) => Verdict::LeaseLost { current: None },
            (Action::Extend { ms }, None) => self.extend(part, item, ms, now),
        }
    }

    /// What was decided of these records is in the log and applied to `part`. Unknown offsets are passed over.
    pub fn committed(&mut self, part: &Part, offsets: impl IntoIterator<Item = Offset>) {
        for offset in offsets {
            let Some(known) = self.take_settling(offset) else { continue };
            if part.is_settled(offset) {
                continue;
            }
            let retry = part.retry(offset);
            let attempts = known.attempts.max(retry.map_or(0, |retry| retry.attempts));
            let due = retry.and_then(|retry| retry.due);
            let state = due.map_or(State::Free(TimestampMs(0)), State::Waiting);
            self.put(offset, Known { attempts, state, ..known });
        }
    }

    /// What was decided of these records did not get into the log: they are free again, and what settled them before
    /// may try again. Unknown offsets are passed over.
    pub fn failed(&mut self, part: &Part, offsets: impl IntoIterator<Item = Offset>, now: TimestampMs) {
        for offset in offsets {
            if let Some(known) = self.take_settling(offset).filter(|_| !part.is_settled(offset)) {
                self.put(offset, Known { state: State::Free(now), ..known });
            }
        }
    }

    fn take_settling(&mut self, offset: Offset) -> Option<Known> {
        let is_settling = self.known.get(&offset).is_some_and(|known| known.state == State::Settling);
        is_settling.then(|| self.remove(offset))
    }

    /// Ends whatever holds a record, for a decision by the delivery `fence`. Returns the deliveries so far.
    fn settling(&mut self, part: &Part, offset: Offset, fence: Fence) -> u32 {
        let known = self.take_or_adopt(part, offset, fence);
        let attempts = known.attempts;
        self.put(offset, Known { state: State::Settling, ..known });
        attempts
    }

    /// Takes a record out, as held by `fence`: that may be a delivery of an earlier leader.
    fn take_or_adopt(&mut self, part: &Part, offset: Offset, fence: Fence) -> Known {
        if self.known.contains_key(&offset) {
            let known = self.remove(offset);
            return Known { fence, attempts: known.attempts.max(1), ..known };
        }
        let attempts = part.attempts(offset).max(1);
        Known { fence, attempts, holder: Arc::from(""), state: State::Settling }
    }

    fn nack(&self, offset: Offset, attempts: u32, delay_ms: Option<u64>, now: TimestampMs) -> Effect {
        if self.is_exhausted(attempts) {
            return Effect::Dead(Delivered { offset, attempts });
        }
        let steps = &self.rules.backoff_ms;
        let step = (attempts as usize).saturating_sub(1).min(steps.len().saturating_sub(1));
        let delay_ms = delay_ms.or(steps.get(step).copied()).unwrap_or(0);
        Effect::Nacked(Nacked { offset, attempts, due: after(now, delay_ms) })
    }

    /// Holds a lease longer, or again where it ended and nobody else got it.
    fn extend(&mut self, part: &Part, item: &Settle, ms: u64, now: TimestampMs) -> Verdict {
        let held = match self.known.get(&item.offset).map(|known| known.state) {
            Some(State::Leased(lease)) => Some(lease),
            _ => None,
        };
        let deadline = after(now, ms);
        if let Some(lease) = held {
            // In place: the pull keeps it.
            let known = self.known.get_mut(&item.offset).expect("it was found above");
            known.state = State::Leased(Lease { deadline, lease_ms: ms, ..lease });
            known.fence = item.fence;
            self.leased.remove(&(lease.deadline, item.offset));
            self.leased.insert((deadline, item.offset));
            return Verdict::Done(Effect::Extended(deadline));
        }
        if self.leased.len() >= self.rules.max_unacked {
            return Verdict::LeaseLost { current: None };
        }
        let known = self.take_or_adopt(part, item.offset, item.fence);
        let lease = Lease { deadline, taken: now, lease_ms: ms, previous: item.fence, pull: PullId::NONE };
        self.put(item.offset, Known { state: State::Leased(lease), ..known });
        Verdict::Done(Effect::Extended(deadline))
    }

    /// The last delivery of a record by this leader.
    fn current(&self, offset: Offset, now: TimestampMs) -> Option<Grant> {
        let known = self.known.get(&offset).filter(|known| known.fence >= self.fence_base)?;
        let deadline = match known.state {
            State::Leased(lease) => lease.deadline,
            _ => now,
        };
        Some(known.grant(offset, deadline))
    }
}
