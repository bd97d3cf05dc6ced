//! Leasing, and what ends by itself.

use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};

use super::*;

impl Pair {
    pub(super) fn take(&mut self, max: usize, lease_ms: u64, sent: u8, key: Option<u128>) {
        let ask = Ask {
            now: self.now(),
            end: self.end(),
            max_records: max,
            lease_ms,
            holder: Arc::from("someone"),
            key: key.map(PullKey),
        };
        self.clock = self.clock.max(self.now);
        let before = self.next_fence.0;
        let taken = self.leases.take(&self.part, &ask, &mut self.next_fence);
        self.expire(&taken.exhausted);
        let is_leased = |record: &&Record| !record.settled && matches!(record.is, Is::Leased { .. });
        let leased = self.records.iter().filter(is_leased).count();
        let (looks_ahead, looks) = (self.rules.looks_ahead, self.leases.looks());
        let may_go = |record: &Record| match record.is {
            Is::New => !looks_ahead,
            Is::Unmet => !looks,
            Is::Free | Is::Fresh => true,
            _ => false,
        };
        let free = self.records.iter().filter(|record| !record.settled && may_go(record)).count();
        let expected = max.min(self.rules.max_unacked.saturating_sub(leased)).min(free);
        assert_eq!(taken.grants.len(), expected, "{taken:?}");
        assert!(taken.grants.is_sorted_by(|one, two| one.offset < two.offset && one.fence < two.fence));
        // A key that is used again names the new leases only.
        if let Some(key) = key.filter(|_| expected > 0) {
            for record in &mut self.records {
                if let Is::Leased { key: old, .. } = &mut record.is {
                    *old = old.filter(|old| *old != key);
                }
            }
        }
        let lease_ms = if lease_ms == 0 { self.rules.lease_ms } else { lease_ms };
        let mut redelivered = Vec::new();
        for grant in &taken.grants {
            self.check_order(grant);
            let record = &mut self.records[grant.offset.0 as usize];
            assert!(!record.settled && may_go(record), "{grant:?} {record:?}");
            let is_unknown = matches!(record.is, Is::New | Is::Unmet);
            let attempts = if is_unknown { record.logged } else { record.attempts };
            assert_eq!(grant.attempt, attempts + 1);
            assert!(grant.fence.0 >= before && grant.fence < self.next_fence);
            let deadline = self.now + lease_ms;
            assert_eq!(grant.deadline.0, deadline);
            let is = Is::Leased { deadline, lease_ms, previous: record.fence, key };
            record.fence = grant.fence.0;
            record.attempts = grant.attempt;
            self.set(grant.offset.0, is);
            if self.is_logged(grant) {
                redelivered.push(grant.redelivered());
            }
        }
        assert_eq!(taken.redelivered, redelivered);
        self.send(&taken, sent);
    }

    /// Somebody else may hold it, of this leader or an earlier one.
    fn is_logged(&self, grant: &Grant) -> bool {
        let may_be_held = grant.offset.0 < self.earlier_end && self.fence_min < self.fence_base;
        grant.attempt >= 2 || may_be_held || self.records[grant.offset.0 as usize].is_revoked
    }

    /// Sends some of what was taken, after it is logged, and releases the others.
    fn send(&mut self, taken: &Taken, sent: u8) {
        let is_sent = |(at, grant): (usize, &Grant)| (sent >> (at % 8) & 1 == 1).then_some(*grant);
        let sent: Vec<Grant> = taken.grants.iter().enumerate().filter_map(is_sent).collect();
        for grant in taken.grants.iter().rev().filter(|grant| !sent.contains(grant)) {
            self.leases.release(&self.part, grant.offset, grant.fence);
            let record = &mut self.records[grant.offset.0 as usize];
            let Is::Leased { previous, .. } = record.is else { panic!("{record:?}") };
            (record.fence, record.attempts) = (previous, record.attempts - 1);
            let is_new = previous == 0 && record.attempts == record.logged;
            let is_next = self.leases.next() == grant.offset;
            self.set(
                grant.offset.0,
                match self.rules.looks_ahead {
                    true if is_new => Is::Fresh,
                    false if is_new && is_next => Is::New,
                    _ => Is::Free,
                },
            );
        }
        let mut event = PartEvent::default();
        for grant in &sent {
            if self.postpone(grant) {
                continue;
            }
            self.leases.leaves(grant.offset, grant.fence);
            self.deliveries.push((grant.offset.0, grant.fence.0));
            if self.is_logged(grant) {
                event.delivered.push(grant.redelivered());
                let record = &mut self.records[grant.offset.0 as usize];
                (record.logged, record.due) = (grant.attempt.max(record.logged), None);
                (record.logged_fence, record.is_revoked) = (grant.fence.0, false);
            }
        }
        let applied = self.part.apply(&event, Offset(self.start)..self.end());
        assert_eq!(applied.delivered, event.delivered.len() as u64);
    }

    /// What its publisher does not want delivered yet waits on; true if it is such.
    fn postpone(&mut self, grant: &Grant) -> bool {
        let record = &mut self.records[grant.offset.0 as usize];
        let Fated::At(due) = record.fated else { return false };
        let Is::Leased { previous, .. } = record.is else { panic!("{record:?}") };
        if due <= self.now {
            return false;
        }
        self.leases.postpone(grant.offset, grant.fence, TimestampMs(due));
        (record.fence, record.attempts) = (previous, record.attempts - 1);
        self.set(grant.offset.0, Is::Waiting { until: due });
        true
    }

    pub(super) fn started(&mut self, delivery: usize) {
        let Some(&(offset, fence)) = self.deliveries.get(delivery % self.deliveries.len().max(1)) else {
            return;
        };
        let told = self.leases.started(Offset(offset), Fence(fence), self.now());
        let record = &mut self.records[offset as usize];
        let expected = match &mut record.is {
            Is::Leased { deadline, lease_ms, .. }
                if record.fence == fence && offset >= self.part.floor().0 =>
            {
                *deadline = self.now + *lease_ms;
                Some(TimestampMs(*deadline))
            }
            _ => None,
        };
        if offset >= self.part.floor().0 {
            assert_eq!(told, expected);
        }
    }

    /// Leases whose time is over end, what is due wakes; what has had all its deliveries is dead.
    pub(super) fn expire(&mut self, exhausted: &[Delivered]) {
        let (now, max_attempts) = (self.now, self.rules.max_attempts);
        let mut expected = Vec::new();
        for offset in 0..self.records.len() {
            let record = self.records[offset];
            if record.settled {
                continue;
            }
            let is_over = match record.is {
                Is::Leased { deadline, .. } => deadline <= now,
                Is::Waiting { until } => until <= now,
                _ => false,
            };
            let has_had_all = max_attempts > 0 && record.attempts >= max_attempts;
            if is_over && !has_had_all {
                self.set(offset as u64, Is::Free);
            }
            if (is_over || matches!(record.is, Is::Free | Is::Fresh)) && has_had_all {
                expected.push(Delivered { offset: Offset(offset as u64), attempts: record.attempts });
            }
        }
        self.meet_again(&mut expected);
        for found in exhausted {
            assert!(expected.contains(found), "{found:?} is not among {expected:?}");
            self.set(found.offset.0, Is::Settling { held: None });
            self.log_dead(*found);
        }
    }

    /// What waited with others and is due, as far as is known, is met again.
    fn meet_again(&mut self, expected: &mut Vec<Delivered>) {
        let met_by_now = |(at, it): (usize, &Record)| match it.is {
            Is::Later { met } if met <= self.now && !it.settled => Some((met, at)),
            _ => None,
        };
        let mut met: Vec<_> = self.records.iter().enumerate().filter_map(met_by_now).collect();
        met.sort_unstable();
        let max = self.rules.max_attempts;
        for (_, at) in met {
            let record = &mut self.records[at];
            record.is = Is::Unmet;
            if let Some(until) = record.due.filter(|due| *due > self.now) {
                self.set(at as u64, Is::Waiting { until });
            } else if max > 0 && record.logged >= max {
                expected.push(Delivered { offset: Offset(at as u64), attempts: record.logged });
            }
        }
    }

    pub(super) fn log_dead(&mut self, found: Delivered) {
        let dead = Dead { offset: found.offset, attempts: found.attempts, reason: "why".to_owned() };
        self.in_flight.push_back((found.offset.0, PartEvent { dead: vec![dead], ..PartEvent::default() }));
    }
}
