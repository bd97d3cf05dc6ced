//! What must hold after every step, and that everything is delivered in the end.

use weir_protocol::ids::{Offset, TimestampMs};

use super::*;
use crate::subscription::leases::State;

impl Pair {
    pub(super) fn check(&mut self) {
        let end = self.end();
        check(&self.leases);
        let unsettled: Vec<u64> =
            (self.start..end.0).filter(|at| !self.records[*at as usize].settled).collect();
        assert_eq!(self.part.oldest_unsettled(end).map(|offset| offset.0), unsettled.first().copied());
        assert_eq!(self.part.count_unsettled(end), unsettled.len() as u64);
        assert_eq!(self.part.dead(), self.dead);
        let found = self.part.unsettled_from(Offset(0), end).flat_map(|range| range.start.0..range.end.0);
        assert!(found.eq(unsettled.iter().copied()));
        for (offset, record) in self.records.iter().enumerate().filter(|(_, record)| !record.settled) {
            let Record { logged, due, logged_fence, is_revoked, .. } = *record;
            let (due, fence) = (due.map(TimestampMs), Fence(logged_fence));
            let retry = (logged > 0).then_some(Retry { attempts: logged, due, fence });
            assert_eq!(self.part.retry(Offset(offset as u64)), retry);
            assert_eq!(self.part.is_revoked(Offset(offset as u64)), is_revoked);
        }
        let is_ready = self.leases.ready(&self.part, end, self.now());
        let expected = self.check_counts();
        let of = |wanted: &dyn Fn(&Is) -> bool| {
            let records = unsettled.iter().map(|at| &self.records[*at as usize]);
            records.filter(|record| wanted(&record.is)).count() as u64
        };
        let leased = of(&|is| matches!(is, Is::Leased { .. }));
        let over = leased - expected.leased;
        let now = self.now;
        let is_due = |is: &Is| matches!(*is, Is::Waiting { until: at } | Is::Later { met: at } if at <= now);
        let ends = |at: &u64| match self.records[*at as usize].is {
            Is::Leased { deadline: at, .. } | Is::Waiting { until: at } | Is::Later { met: at } => {
                Some(TimestampMs(at))
            }
            _ => None,
        };
        assert_eq!(self.leases.ends_first(), unsettled.iter().filter_map(ends).min());
        assert_eq!(self.leases.is_full(self.now()), expected.leased >= self.rules.max_unacked as u64);
        let has_room = leased < self.rules.max_unacked as u64;
        let can = |is: &Is| match *is {
            Is::New | Is::Unmet => !self.rules.looks_ahead,
            Is::Free | Is::Fresh => true,
            ref is => is_due(is),
        };
        let may_look_at = |at: &u64| *at >= self.frontier || self.records[*at as usize].is == Is::Unmet;
        let may_look = self.rules.looks_ahead && unsettled.iter().any(may_look_at);
        assert_eq!(is_ready, over > 0 || has_room && (of(&can) > 0 || may_look));
        for key in 0..2 {
            let held = unsettled.iter().filter_map(|at| match self.records[*at as usize] {
                Record { is: Is::Leased { deadline, key: Some(of), .. }, fence, .. } => {
                    (of == key && deadline > self.now).then_some((*at, fence))
                }
                _ => None,
            });
            let told = self.leases.repeat(PullKey(key), self.now());
            assert!(told.iter().map(|grant| (grant.offset.0, grant.fence.0)).eq(held));
        }
        let listed = self.leases.list(&self.part, Offset(0), usize::MAX, self.now()).leases;
        assert_eq!(listed.len() as u64, expected.leased + expected.delayed);
    }

    /// How many records are where, as leases and part together tell it.
    pub(super) fn check_counts(&mut self) -> Counts {
        let of = |wanted: &dyn Fn(&Is) -> bool| {
            let unsettled = self.records.iter().filter(|record| !record.settled);
            unsettled.filter(|record| wanted(&record.is)).count() as u64
        };
        let now = self.now;
        let over = of(&|is| matches!(*is, Is::Leased { deadline, .. } if deadline <= now));
        let due = of(&|is| matches!(*is, Is::Waiting { until: at } | Is::Later { met: at } if at <= now));
        let expected = Counts {
            ready: of(&|is| matches!(is, Is::New | Is::Free | Is::Fresh | Is::Unmet)) + over + due,
            leased: of(&|is| matches!(is, Is::Leased { .. })) - over,
            delayed: of(&|is| matches!(is, Is::Waiting { .. } | Is::Later { .. })) - due,
            blocked: of(&|is| matches!(is, Is::Blocked { .. })),
            settling: of(&|is| matches!(is, Is::Settling { .. } | Is::Skipped)),
        };
        assert_eq!(self.leases.counts(&self.part, self.end(), self.now()), expected);
        expected
    }

    /// Nobody pulls any more: with time, whatever has had all its deliveries is given up, and nothing else is.
    pub(super) fn abandon(&mut self) {
        while !self.in_flight.is_empty() {
            self.commit(true);
        }
        while let Some(at) = self.leases.ends_first() {
            self.now = self.now.max(at.0);
            self.step(&Step::Expire);
            while !self.in_flight.is_empty() {
                self.commit(true);
            }
            self.check();
        }
        let max = self.rules.max_attempts;
        let has_had_all = |record: &&Record| max > 0 && record.attempts.max(record.logged) >= max;
        // What is blocked dies when it is its turn.
        let left = self.records.iter().filter(|it| !it.settled && !matches!(it.is, Is::Blocked { .. }));
        assert_eq!(left.filter(has_had_all).count(), 0, "{:?}", self.records);
    }

    /// With time, every unsettled record is delivered, or is a dead letter.
    pub(super) fn drain(&mut self) {
        while !self.in_flight.is_empty() {
            self.commit(true);
        }
        for _ in 0..self.records.len() * 40 + 40 {
            if self.part.count_unsettled(self.end()) == 0 {
                return;
            }
            self.step(&Step::Look { count: 50 });
            self.step(&Step::LogSkips { is_lost: false });
            self.step(&Step::Take { max: 7, lease_ms: 1_000, sent: u8::MAX, key: None });
            let held: Vec<_> = self.deliveries.iter().rev().take(7).copied().collect();
            for (offset, fence) in held {
                let item = Settle { offset: Offset(offset), fence: Fence(fence), action: Action::Ack };
                if let Verdict::Done(effect) = self.leases.settle(&self.part, self.end(), &item, self.now()) {
                    self.done(offset, fence, Action::Ack, effect);
                }
            }
            while !self.in_flight.is_empty() {
                self.commit(true);
            }
            let (end, now) = (self.end(), self.now());
            if !self.leases.ready(&self.part, end, now) && self.part.count_unsettled(end) > 0 {
                let next = self.leases.next_event().expect("something unsettled is held or waits");
                assert!(next > now);
                self.now = next.0;
            }
        }
        panic!("unsettled records are not delivered: {:?}", self.records);
    }
}

/// The orders hold exactly what is known, and pulls exactly what is leased.
fn check(leases: &Leases) {
    let (mut leased, mut waiting, mut again, mut blocked, mut settling) = (0, 0, 0, 0, 0);
    for (offset, known) in &leases.known {
        assert!(*offset < leases.next || *offset < leases.ahead_end);
        assert!(!leases.later.contains(*offset) && !leases.unmet.contains(*offset));
        match known.state {
            State::Leased(lease) => {
                leased += 1;
                assert!(leases.leased.contains(&(lease.deadline, *offset)));
            }
            State::Waiting(due) => {
                waiting += 1;
                assert!(leases.waiting.contains(&(due, *offset)));
            }
            State::Free(since) => {
                again += 1;
                assert!(leases.ready.contains(known.lane, Some(since), *offset));
            }
            State::Fresh => assert!(leases.ready.contains(known.lane, None, *offset)),
            State::Blocked(_) => blocked += 1,
            State::Settling(_) => settling += 1,
        }
    }
    assert_eq!((leases.leased.len(), leases.waiting.len()), (leased, waiting));
    assert_eq!((leases.ready.again_len(), leases.settling), (again, settling));
    assert_eq!(leases.lines.blocked_len(), blocked + leases.lines.queued_len());
}
