//! Settling, and what becomes of it in the log.

use weir_protocol::ids::{Offset, TimestampMs};

use super::*;

impl Pair {
    pub(super) fn settle(&mut self, delivery: usize, skew: i64, action: Action) {
        let Some(&(offset, fence)) = self.deliveries.get(delivery % self.deliveries.len().max(1)) else {
            return;
        };
        let fence = fence.saturating_add_signed(skew);
        let item = Settle { offset: Offset(offset), fence: Fence(fence), action };
        let leased =
            self.records.iter().filter(|record| !record.settled && matches!(record.is, Is::Leased { .. }));
        let has_room = leased.count() < self.rules.max_unacked;
        self.clock = self.clock.max(self.now);
        let verdict = self.leases.settle(&self.part, self.end(), &item, self.now());
        let record = self.records[offset as usize];
        let is_settling = matches!(record.is, Is::Settling { .. });
        let is_of_before = record.is_revoked || fence < record.logged_fence;
        let is_older =
            fence < record.fence || fence < self.fence_min || record.fence < self.fence_base && is_of_before;
        let is_adopted = fence < self.fence_base && record.fence < self.fence_base;
        match verdict {
            _ if fence == 0 => assert_eq!(verdict, Verdict::Unknown),
            Verdict::AlreadySettled => assert!(record.settled || is_settling),
            _ if record.settled || is_settling => panic!("{verdict:?} {record:?}"),
            Verdict::LeaseLost { current: Some(current) } => {
                assert!(is_older);
                assert_eq!((current.fence.0, current.attempt), (record.fence, record.attempts));
            }
            Verdict::LeaseLost { current: None } => {
                let is_refused =
                    matches!(action, Action::Extend { .. }) && (record.due.is_some() || !has_room);
                // Which delivery it was that was given back is not always known.
                let is_forgotten = record.logged > 0 && record.fence < self.fence_base;
                assert!(
                    is_older && record.fence < self.fence_base || is_refused || is_forgotten,
                    "{record:?}"
                );
            }
            Verdict::Unknown => assert!(!is_older && fence != record.fence && !is_adopted),
            Verdict::Done(effect) => {
                assert!(!is_older && (fence == record.fence || is_adopted), "{effect:?} {record:?}");
                self.done(offset, fence, action, effect);
            }
        }
    }

    pub(super) fn done(&mut self, offset: u64, fence: u64, action: Action, effect: Effect) {
        let is_made_up = !self.deliveries.contains(&(offset, fence));
        let record = &mut self.records[offset as usize];
        record.is_made_up |= is_made_up;
        if record.is == Is::New {
            record.attempts = record.logged;
        }
        let held = match record.is {
            Is::Leased { deadline, lease_ms, previous, .. } => Some(Held { deadline, lease_ms, previous }),
            _ => None,
        };
        let attempts = record.attempts.max(1);
        let had_all = self.rules.max_attempts > 0 && attempts >= self.rules.max_attempts;
        let mut event = PartEvent::default();
        match (action, effect) {
            (Action::Ack, Effect::Settled) => event.settle(Offset(offset)),
            (Action::Nack { .. }, Effect::Waits(due)) => {
                assert!(!matches!(record.is, Is::Leased { .. } | Is::Settling { .. }));
                assert_eq!(Some(due.0), record.due);
                return;
            }
            (Action::Nack { delay_ms }, Effect::Nacked(nacked)) => {
                assert!(!had_all);
                let steps = &self.rules.backoff_ms;
                let last = steps.last().copied().unwrap_or(0);
                let delay_ms = delay_ms.unwrap_or(steps.get(attempts as usize - 1).copied().unwrap_or(last));
                let due = TimestampMs(self.now + delay_ms);
                assert_eq!(nacked, Nacked { offset: Offset(offset), attempts, due });
                event.nacked.push(nacked);
            }
            (Action::Nack { .. } | Action::Dead, Effect::Dead(dead)) => {
                assert!(had_all || action == Action::Dead);
                assert_eq!(dead, Delivered { offset: Offset(offset), attempts });
                (record.fence, record.attempts) = (fence, attempts);
                self.set(offset, Is::Settling { held });
                return self.log_dead(dead);
            }
            (Action::Extend { ms }, Effect::Extended(deadline)) => {
                assert_eq!(deadline.0, self.now + ms);
                let key = if let Is::Leased { key, .. } = record.is { key } else { None };
                let previous = if let Is::Leased { previous, .. } = record.is { previous } else { fence };
                (record.fence, record.attempts) = (fence, attempts);
                self.set(offset, Is::Leased { deadline: deadline.0, lease_ms: ms, previous, key });
                return;
            }
            other => panic!("{other:?} {record:?}"),
        }
        (record.fence, record.attempts) = (fence, attempts);
        self.set(offset, Is::Settling { held });
        self.in_flight.push_back((offset, event));
    }

    /// The next event in flight is applied; `is_told`: this leader sees it.
    pub(super) fn commit(&mut self, is_told: bool) {
        let Some((offset, event)) = self.in_flight.pop_front() else { return };
        let event = PartEvent::decode(&event.encode()).unwrap();
        let applied = self.part.apply(&event, Offset(self.start)..self.end());
        let record = &mut self.records[offset as usize];
        let had_effect = !record.settled;
        record.settled |= event.nacked.is_empty();
        record.is_revoked &= !record.settled;
        record.is_dead |= had_effect && !event.dead.is_empty();
        if let Some(nacked) = event.nacked.first().filter(|_| had_effect) {
            (record.logged, record.due) = (nacked.attempts.max(record.logged), Some(nacked.due.0));
            if is_told {
                self.set(offset, Is::Waiting { until: nacked.due.0 });
            }
        }
        let expected = Applied {
            settled: u64::from(had_effect && !event.settled.is_empty()),
            dead: event.dead.iter().filter(|_| had_effect).map(|dead| dead.offset).collect(),
            nacked: u64::from(had_effect && !event.nacked.is_empty()),
            delivered: 0,
            revived: 0,
        };
        self.dead += expected.dead.len() as u64;
        assert_eq!(applied, expected);
        let again = self.part.clone().apply(&event, Offset(self.start)..self.end());
        assert_eq!((again.settled, again.dead.len()), (0, 0), "a second time has no effect");
        if is_told {
            self.leases.committed(&self.part, [Offset(offset)]);
            if self.records[offset as usize].settled {
                self.leave(offset);
            }
        }
    }

    pub(super) fn fail(&mut self, committed: usize) {
        let lost: Vec<_> = self.in_flight.iter().map(|(offset, _)| Offset(*offset)).collect();
        (0..committed).for_each(|_| self.commit(false));
        self.in_flight.clear();
        for offset in &lost {
            let record = self.records[offset.0 as usize];
            if record.settled {
                self.leave(offset.0);
            } else {
                self.try_again(offset.0);
            }
        }
        self.leases.failed(&self.part, lost, self.now());
    }

    /// What was decided of a record is not in the log.
    fn try_again(&mut self, offset: u64) {
        self.set(offset, self.again_at(offset).map_or(Is::Free, |until| Is::Waiting { until }));
    }

    /// When it may be tried again, if not at once.
    fn again_at(&self, offset: u64) -> Option<u64> {
        let record = self.records[offset as usize];
        let has_had_all = self.rules.max_attempts > 0 && record.attempts >= self.rules.max_attempts;
        record.due.or(has_had_all.then_some(self.now + self.rules.lease_ms))
    }

    /// Whoever held what was to be settled holds it on.
    pub(super) fn refuse(&mut self) {
        let refused: Vec<_> = self.in_flight.drain(..).map(|(offset, _)| Offset(offset)).collect();
        for &Offset(offset) in &refused {
            let record = self.records[offset as usize];
            if record.settled {
                continue;
            }
            let Is::Settling { held } = record.is else { panic!("it is in flight") };
            let Some(Held { deadline, lease_ms, previous }) = held.filter(|held| held.deadline > self.now)
            else {
                self.try_again(offset);
                continue;
            };
            let deadline = self.again_at(offset).map_or(deadline, |until| until.max(deadline));
            self.set(offset, Is::Leased { deadline, lease_ms, previous, key: None });
        }
        self.leases.refused(&self.part, refused, self.now());
    }
}
