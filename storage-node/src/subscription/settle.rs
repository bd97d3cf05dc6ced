//! What becomes of leases: acks, nacks, extensions and dead letters, before and after they are committed.

use std::collections::btree_map::Entry;
use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};

use super::ahead::Key;
use super::event::{Delivered, Fence, Nacked};
use super::leases::{Grant, Known, Lease, Leases, State, after, is_exhausted};
use super::part::Part;
use super::pulls::PullId;
use super::ready::Lane;

/// How long a record that has had all its deliveries can still be settled when that failed once, in
/// milliseconds, if a lease is not shorter.
const TRY_AGAIN_MS: u64 = 30_000;

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
    /// leader settles as long as no leader since has delivered the record, or revived it.
    pub fn settle(&mut self, part: &Part, end: Offset, item: &Settle, now: TimestampMs) -> Verdict {
        self.clock = self.clock.max(now);
        self.forget_settled(part);
        let Settle { offset, fence, action } = *item;
        let was_nacked = match self.judge(part, end, (offset, fence), now) {
            Ok(was_nacked) => was_nacked,
            Err(verdict) => return verdict,
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

    /// Settles what was leased and is not to be sent, and says which records that are: to be logged, and then
    /// [`Leases::committed`] or [`Leases::failed`]. What somebody else settles is not among them: that ends when theirs
    /// does, and whoever ends it before lets a third have it.
    #[must_use = "they are settling until they are committed or failed"]
    pub fn settle_unsent(
        &mut self,
        part: &Part,
        end: Offset,
        unsent: &[Grant],
        now: TimestampMs,
    ) -> Vec<Offset> {
        let mut settles = |grant: &&Grant| {
            let item = Settle { offset: grant.offset, fence: grant.fence, action: Action::Ack };
            matches!(self.settle(part, end, &item, now), Verdict::Done(Effect::Settled))
        };
        unsent.iter().filter(|grant| settles(grant)).map(|grant| grant.offset).collect()
    }

    /// What was to be settled unsent finds no room in the log. It is passed over, and logged along with something else
    /// that is, see [`Leases::skips_to_log`]: it was no delivery, and nobody behind it waits for that. If too much is
    /// skipped, it is as if it had never been leased, and the answer false.
    pub fn skip_unsent(&mut self, part: &Part, unsent: &[Grant]) -> bool {
        let settles = |leases: &Self, grant: &Grant| {
            let known = leases.known.get(&grant.offset).filter(|known| known.fence == grant.fence)?;
            if let State::Settling(lease) = known.state { Some(lease) } else { None }
        };
        if self.has_skipped_much() {
            for grant in unsent.iter().rev() {
                let Some(Some(lease)) = settles(self, grant) else { continue };
                self.change(grant.offset, |known| known.state = State::Leased(lease));
                self.release(part, grant.offset, grant.fence);
            }
            return false;
        }
        for grant in unsent {
            if settles(self, grant).is_some() {
                self.remove(part, grant.offset);
                if !part.is_settled(grant.offset) {
                    self.skipped.push(grant.offset);
                }
            }
        }
        true
    }

    /// Whether a delivery can still be settled, without any effect: when its record is due if it was nacked, or what
    /// [`Leases::settle`] answers.
    ///
    /// # Errors
    /// What is not [`Verdict::Done`].
    pub fn judge(
        &self,
        part: &Part,
        end: Offset,
        (offset, fence): (Offset, Fence),
        now: TimestampMs,
    ) -> Result<Option<TimestampMs>, Verdict> {
        if offset >= end || fence == Fence(0) {
            return Err(Verdict::Unknown);
        }
        if part.is_settled(offset) {
            return Err(Verdict::AlreadySettled);
        }
        let known = self.known.get(&offset);
        if known.is_some_and(|known| matches!(known.state, State::Settling(_))) {
            return Err(Verdict::AlreadySettled);
        }
        let last = known.map_or(Fence(0), |known| known.fence);
        let is_of_earlier_leader = fence < self.fence_base;
        // Of what this leader has not delivered, the log says what the last delivery was.
        let is_lost_before = last < self.fence_base
            && (part.is_revoked(offset) || part.retry(offset).is_some_and(|retry| fence < retry.fence));
        if fence < last || fence < part.fence_min() || is_lost_before {
            return Err(Verdict::LeaseLost { current: self.current(offset, now) });
        }
        if fence != last && !is_of_earlier_leader {
            // Of what was given back and waits with many others it is not known which delivery that was.
            let is_forgotten = known.is_none() && part.retry(offset).is_some();
            return Err(if is_forgotten { Verdict::LeaseLost { current: None } } else { Verdict::Unknown });
        }
        Ok(match known.map(|known| known.state) {
            Some(State::Leased(_)) => None,
            _ => part.due(offset),
        })
    }

    /// What was decided of these records is in the log and applied to `part`. Unknown offsets are passed over.
    pub fn committed(&mut self, part: &Part, offsets: impl IntoIterator<Item = Offset>) {
        offsets.into_iter().for_each(|offset| self.decided(part, offset, None, None));
    }

    /// What was decided of these records did not get into the log, or nobody knows: as far as `part` says
    /// nothing else they are free again, and what settled them before may try again. Of those that have had
    /// all their deliveries it has half a minute, or the time of a lease if that is less, before they are
    /// given up. Unknown offsets are passed over.
    pub fn failed(&mut self, part: &Part, offsets: impl IntoIterator<Item = Offset>, now: TimestampMs) {
        offsets.into_iter().for_each(|offset| self.decided(part, offset, Some(now), None));
    }

    /// What was decided of these records was refused, and will never be in the log: whoever held them holds
    /// them on until their leases end, and may settle them again. So there may be more leases than
    /// [`Rules::max_unacked`](super::Rules::max_unacked) for a while. For the rest, and for those whose
    /// leases have ended meanwhile, the same as [`Leases::failed`].
    pub fn refused(&mut self, part: &Part, offsets: impl IntoIterator<Item = Offset>, now: TimestampMs) {
        for offset in offsets {
            let held = self.known.get(&offset).and_then(|known| match known.state {
                State::Settling(lease) => lease.filter(|lease| lease.deadline > now),
                _ => None,
            });
            self.decided(part, offset, Some(now), held);
        }
    }

    /// A decision ended, or failed at a time; what became of it, the part says. What is `held` still goes on
    /// being leased, if it had all its deliveries for as long as it would wait to be given up.
    fn decided(&mut self, part: &Part, offset: Offset, failed_at: Option<TimestampMs>, held: Option<Lease>) {
        let Entry::Occupied(known) = self.known.entry(offset) else { return };
        if !matches!(known.get().state, State::Settling(_)) {
            return;
        }
        if part.is_settled(offset) {
            // It is in no order.
            let known = known.remove();
            self.settling -= 1;
            return self.leave_line(part, known.key, offset);
        }
        let retry = part.retry(offset);
        // A failure that is in the log is known there: this one was settled, and was revived before anybody told.
        let is_revived = failed_at.is_none() && retry.is_none();
        let (attempts, fence) =
            if is_revived { (0, Fence(0)) } else { (known.get().attempts, known.get().fence) };
        let attempts = attempts.max(retry.map_or(0, |retry| retry.attempts));
        let last_chance = failed_at
            .filter(|_| is_exhausted(&self.rules, attempts))
            .map(|now| after(now, self.rules.lease_ms.min(TRY_AGAIN_MS)));
        let due = retry.and_then(|retry| retry.due).or(last_chance);
        let free = State::Free(failed_at.unwrap_or(TimestampMs(0)));
        let state = match held {
            Some(lease) => {
                let deadline = due.map_or(lease.deadline, |due| due.max(lease.deadline));
                State::Leased(Lease { deadline, ..lease })
            }
            None => due.map_or(free, State::Waiting),
        };
        self.change(offset, |known| {
            (known.fence, known.attempts, known.state) = (fence, attempts, state);
        });
    }

    /// Ends whatever holds a record, for a decision by the delivery `fence`. Returns the deliveries so far.
    fn settling(&mut self, part: &Part, offset: Offset, fence: Fence) -> u32 {
        self.hold(part, offset, fence, |before| match before {
            // Whoever settles it was sent it: the pull need not be repeated.
            Some(State::Leased(lease)) => {
                State::Settling(Some(Lease { pull: PullId::NONE, has_left: true, ..lease }))
            }
            _ => State::Settling(None),
        })
    }

    /// Puts a record into the state that follows from the one before, if that is known, for the delivery
    /// `fence`, which may be one of an earlier leader. Returns the deliveries so far.
    fn hold(
        &mut self,
        part: &Part,
        offset: Offset,
        fence: Fence,
        state: impl Fn(Option<State>) -> State,
    ) -> u32 {
        let changed = self.change_known(offset, |known| {
            let state = state(Some(known.state));
            (known.fence, known.attempts, known.state) = (fence, known.attempts.max(1), state);
        });
        changed.unwrap_or_else(|| {
            let attempts = part.attempts(offset).max(1);
            let (key, lane) = self.take_out(offset);
            let known = Known::new(Arc::from(""), state(None));
            self.put(offset, Known { fence, attempts, key, lane, ..known });
            attempts
        })
    }

    /// Takes an unknown record out of whatever set it waits in; what was seen of it then.
    fn take_out(&mut self, offset: Offset) -> (Key, Lane) {
        self.skipped.remove(offset);
        if !self.later.remove(offset) && !self.unmet.remove(offset) {
            return self.lines.unqueue(offset).unwrap_or_default();
        }
        (Key::NONE, Lane::default())
    }

    fn nack(&self, offset: Offset, attempts: u32, delay_ms: Option<u64>, now: TimestampMs) -> Effect {
        if is_exhausted(&self.rules, attempts) {
            return Effect::Dead(Delivered { offset, attempts });
        }
        let steps = &self.rules.backoff_ms;
        let step = (attempts as usize).saturating_sub(1).min(steps.len().saturating_sub(1));
        let delay_ms = delay_ms.or(steps.get(step).copied()).unwrap_or(0);
        Effect::Nacked(Nacked { offset, attempts, due: after(now, delay_ms) })
    }

    /// Holds a lease longer, or again where it ended and nobody else got it.
    fn extend(&mut self, part: &Part, item: &Settle, ms: u64, now: TimestampMs) -> Verdict {
        let deadline = after(now, ms);
        let lease = match self.known.get(&item.offset).map(|known| known.state) {
            Some(State::Leased(lease)) => Lease { deadline, lease_ms: ms, has_left: true, ..lease },
            _ if self.leased.len() >= self.rules.max_unacked => {
                return Verdict::LeaseLost { current: None };
            }
            _ => Lease {
                deadline,
                taken: now,
                lease_ms: ms,
                previous: item.fence,
                pull: PullId::NONE,
                has_left: true,
            },
        };
        self.hold(part, item.offset, item.fence, |_| State::Leased(lease));
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

#[cfg(test)]
mod tests {
    use super::super::ahead::SKIPPED_MAX;
    use super::super::event::{Dead, PartEvent};
    use super::super::leases::{Ask, Rules, Taken};
    use super::*;

    const END: Offset = Offset(1);

    /// A queue of one record, and its first delivery.
    fn delivered(max_attempts: u32) -> (Part, Leases, Grant) {
        let rules = Rules {
            lease_ms: 1_000,
            max_attempts,
            backoff_ms: Arc::new([]),
            max_unacked: 9,
            looks_ahead: false,
        };
        let part = Part::new(Offset(0));
        let mut leases = Leases::new(&part, rules, Fence(1 << 32), TimestampMs(0));
        let grant = take(&part, &mut leases, 1).grants[0];
        leases.leaves(grant.offset, grant.fence);
        (part, leases, grant)
    }

    fn take(part: &Part, leases: &mut Leases, now: u64) -> Taken {
        let ask = Ask {
            now: TimestampMs(now),
            end: END,
            max_records: 9,
            lease_ms: 0,
            holder: Arc::from("worker"),
            key: None,
        };
        leases.take(part, &ask, &mut Fence((1 << 32) + now))
    }

    fn settle(part: &Part, leases: &mut Leases, grant: &Grant, action: Action) -> Verdict {
        let item = Settle { offset: grant.offset, fence: grant.fence, action };
        leases.settle(part, END, &item, TimestampMs(2))
    }

    /// A redrive may get to the leases before the settle that it follows in the log.
    #[test]
    fn what_is_redriven_before_its_leases_hear_of_its_end_begins_anew() {
        let (mut part, mut leases, first) = delivered(1);
        let Verdict::Done(Effect::Dead(Delivered { offset, attempts })) =
            settle(&part, &mut leases, &first, Action::Dead)
        else {
            panic!("it is held")
        };
        let dead = vec![Dead { offset, attempts, reason: String::new() }];
        part.apply(&PartEvent { dead, ..PartEvent::default() }, Offset(0)..END);
        part.apply(&PartEvent { revived: vec![Offset(0)..END], ..PartEvent::default() }, Offset(0)..END);
        leases.revived(&part, offset);
        leases.committed(&part, [offset]);
        let again = take(&part, &mut leases, 3);
        assert_eq!(again.exhausted, [], "it is given up again, and nobody had it");
        assert_eq!((again.grants.len(), again.grants[0].attempt), (1, 1));
        let late = settle(&part, &mut leases, &first, Action::Ack);
        assert!(matches!(late, Verdict::LeaseLost { .. }), "{late:?}");
    }

    /// A repetition of a pull finds what the pull is settling.
    #[test]
    fn what_somebody_else_settles_does_not_end_with_what_is_not_sent() {
        let (mut part, mut leases, first) = delivered(0);
        let now = TimestampMs(2);
        let settling = leases.settle_unsent(&part, END, &[first], now);
        assert_eq!(settling, [first.offset]);
        let again = leases.settle_unsent(&part, END, &[first], now);
        leases.committed(&part, again);
        assert_eq!(take(&part, &mut leases, 3).grants, [], "it is on its way to the log");
        part.apply(&PartEvent { settled: vec![Offset(0)..END], ..PartEvent::default() }, Offset(0)..END);
        leases.committed(&part, settling);
        assert_eq!(take(&part, &mut leases, 4).grants, []);
        // Those of which nobody knows whether they are settled are free again.
        let (part, mut leases, first) = delivered(0);
        let settling = leases.settle_unsent(&part, END, &[first], now);
        leases.failed(&part, settling, now);
        assert_eq!(take(&part, &mut leases, 3).grants.len(), 1);
    }

    #[test]
    fn who_was_refused_and_leaves_or_has_left_holds_nothing() {
        for has_left in [false, true] {
            let (part, mut leases, first) = delivered(0);
            settle(&part, &mut leases, &first, Action::Ack);
            let leave = |leases: &mut Leases| leases.holder_left("worker", TimestampMs(2));
            if has_left {
                leave(&mut leases);
            }
            leases.refused(&part, [first.offset], TimestampMs(2));
            assert_eq!(take(&part, &mut leases, 2).grants.len(), usize::from(has_left), "it holds it on");
            if !has_left {
                leave(&mut leases);
                assert_eq!(take(&part, &mut leases, 3).grants.len(), 1);
            }
        }
    }
    #[test]
    fn what_finds_no_room_to_be_settled_unsent_is_passed_over_and_was_no_delivery() {
        let rules = Rules {
            lease_ms: 1_000,
            max_attempts: 1,
            backoff_ms: Arc::new([]),
            max_unacked: 9,
            looks_ahead: false,
        };
        let end = Offset(20_000);
        let part = Part::new(Offset(0));
        let mut leases = Leases::new(&part, rules, Fence(1 << 32), TimestampMs(0));
        let mut fence = Fence(1 << 32);
        let mut take = |leases: &mut Leases, now: u64| {
            let now = TimestampMs(now);
            let ask = Ask { now, end, max_records: 3, lease_ms: 0, holder: Arc::from("worker"), key: None };
            leases.take(&part, &ask, &mut fence)
        };
        let offsets = |taken: &Taken| taken.grants.iter().map(|grant| grant.offset.0).collect::<Vec<_>>();
        let first = take(&mut leases, 1);
        let settling = leases.settle_unsent(&part, end, &first.grants[..2], TimestampMs(1));
        assert_eq!(
            (settling, leases.skip_unsent(&part, &first.grants[..2])),
            (vec![Offset(0), Offset(1)], true)
        );
        assert_eq!(leases.counts(&part, end, TimestampMs(1)).settling, 2);
        assert_eq!(offsets(&take(&mut leases, 9_000)), [2, 3, 4], "of which the first was not sent either");
        // With what is logged next it is settled.
        assert_eq!(leases.skips_to_log(), vec![Offset(0)..Offset(2)]);
        leases.skips_logged(&part);
        // Not for ever: then they are free as they were.
        leases.skipped.push(Offset(18_000));
        (0..SKIPPED_MAX).for_each(|at| leases.skipped.push(Offset(18_001 + at)));
        let last = take(&mut leases, 20_000);
        let settling = leases.settle_unsent(&part, end, &last.grants, TimestampMs(20_000));
        assert_eq!((settling.len(), leases.skip_unsent(&part, &last.grants)), (3, false));
        let again = take(&mut leases, 40_000);
        assert_eq!((offsets(&again), again.exhausted.len()), (offsets(&last), 0), "it never was delivered");
        assert!(again.grants.iter().all(|grant| grant.attempt == 1), "{again:?}");
    }
}
