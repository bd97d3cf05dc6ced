//! A naive model of a part and its leases, and the property that the real ones cannot be told from it over random
//! histories: settles with right, wrong and old fences, lost proposals, trims, seeks and restarts from a checkpoint.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;
use weir_protocol::ids::{Offset, TimestampMs};

use super::leases::State;
use super::*;

#[derive(Debug, Clone)]
enum Step {
    Publish {
        count: u64,
    },
    /// Of what was given, the records whose bit is set leave; the others are released.
    Take {
        max: usize,
        lease_ms: u64,
        sent: u8,
        key: Option<u128>,
    },
    Started {
        delivery: usize,
    },
    /// A delivery that was made at some time, with its fence as it was or `skew` beside.
    Settle {
        delivery: usize,
        skew: i64,
        action: Action,
    },
    Expire,
    Commit {
        count: usize,
    },
    /// Some of what is in flight gets into the log all the same.
    Fail {
        committed: usize,
    },
    Wait {
        ms: u64,
    },
    Trim {
        count: u64,
    },
    Seek {
        to: u64,
    },
    Restart {
        committed: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Is {
    New,
    Leased { deadline: u64, lease_ms: u64, previous: u64, key: Option<u128> },
    Settling,
    Waiting { until: u64 },
    Free,
}

/// A record: the first line is what the log knows, the second what the leader knows.
#[derive(Debug, Clone, Copy)]
struct Record {
    settled: bool,
    logged: u32,
    due: Option<u64>,
    is: Is,
    fence: u64,
    attempts: u32,
}

const NEW: Record = Record { settled: false, logged: 0, due: None, is: Is::New, fence: 0, attempts: 0 };

struct Pair {
    // The real ones.
    part: Part,
    leases: Leases,
    next_fence: Fence,
    // The model.
    rules: Rules,
    records: Vec<Record>,
    start: u64,
    now: u64,
    fence_base: u64,
    fence_min: u64,
    dead: u64,
    /// Every delivery that was ever made, released ones too.
    deliveries: Vec<(u64, u64)>,
    in_flight: VecDeque<(u64, PartEvent)>,
}

impl Pair {
    fn new(rules: Rules) -> Self {
        let part = Part::new(Offset(0));
        let next_fence = Fence(1 << 32);
        let leases = Leases::new(&part, rules.clone(), next_fence, TimestampMs(0));
        Self {
            part,
            leases,
            next_fence,
            rules,
            records: Vec::new(),
            start: 0,
            now: 1_000,
            fence_base: next_fence.0,
            fence_min: 0,
            dead: 0,
            deliveries: Vec::new(),
            in_flight: VecDeque::new(),
        }
    }

    fn end(&self) -> Offset {
        Offset(self.records.len() as u64)
    }

    fn now(&self) -> TimestampMs {
        TimestampMs(self.now)
    }

    fn step(&mut self, step: &Step) {
        match *step {
            Step::Publish { count } => self.records.extend((0..count).map(|_| NEW)),
            Step::Take { max, lease_ms, sent, key } => self.take(max, lease_ms, sent, key),
            Step::Started { delivery } => self.started(delivery),
            Step::Settle { delivery, skew, action } => self.settle(delivery, skew, action),
            Step::Expire => {
                let exhausted = self.leases.expire(&self.part, self.now());
                self.expire(&exhausted);
            }
            Step::Commit { count } => (0..count).for_each(|_| self.commit(true)),
            Step::Fail { committed } => self.fail(committed),
            Step::Wait { ms } => self.now += ms,
            Step::Trim { count } => {
                self.start = (self.start + count).min(self.end().0);
                self.part.start_moved(Offset(self.start));
                (0..self.start).for_each(|at| self.records[at as usize].settled = true);
            }
            Step::Seek { to } => self.seek(to),
            Step::Restart { committed } => {
                (0..committed).for_each(|_| self.commit(false));
                self.in_flight.clear();
                self.restart(Fence(((self.next_fence.0 >> 32) + 1) << 32));
            }
        }
        self.check();
    }

    fn take(&mut self, max: usize, lease_ms: u64, sent: u8, key: Option<u128>) {
        let ask = Ask {
            now: self.now(),
            end: self.end(),
            max_records: max,
            lease_ms,
            holder: Arc::from("someone"),
            key: key.map(PullKey),
        };
        let before = self.next_fence.0;
        let taken = self.leases.take(&self.part, &ask, &mut self.next_fence);
        self.expire(&taken.exhausted);
        let is_leased = |record: &&Record| !record.settled && matches!(record.is, Is::Leased { .. });
        let leased = self.records.iter().filter(is_leased).count();
        let is_free = |record: &&Record| !record.settled && matches!(record.is, Is::New | Is::Free);
        let free = self.records.iter().filter(is_free).count();
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
            let record = &mut self.records[grant.offset.0 as usize];
            assert!(!record.settled && matches!(record.is, Is::New | Is::Free), "{grant:?} {record:?}");
            let attempts = if record.is == Is::New { record.logged } else { record.attempts };
            assert_eq!(grant.attempt, attempts + 1);
            assert!(grant.fence.0 >= before && grant.fence < self.next_fence);
            let deadline = self.now + lease_ms;
            assert_eq!(grant.deadline.0, deadline);
            record.is = Is::Leased { deadline, lease_ms, previous: record.fence, key };
            record.fence = grant.fence.0;
            record.attempts = grant.attempt;
            if grant.attempt >= 2 {
                redelivered.push(Delivered { offset: grant.offset, attempts: grant.attempt });
            }
        }
        assert_eq!(taken.redelivered, redelivered);
        self.send(&taken, sent);
    }

    /// Sends some of what was taken, after it is logged, and releases the others.
    fn send(&mut self, taken: &Taken, sent: u8) {
        let is_sent = |(at, grant): (usize, &Grant)| (sent >> (at % 8) & 1 == 1).then_some(*grant);
        let sent: Vec<Grant> = taken.grants.iter().enumerate().filter_map(is_sent).collect();
        for grant in taken.grants.iter().rev().filter(|grant| !sent.contains(grant)) {
            self.leases.release(&self.part, grant.offset, grant.fence);
            let record = &mut self.records[grant.offset.0 as usize];
            let Is::Leased { previous, .. } = record.is else { panic!("{record:?}") };
            (record.is, record.fence, record.attempts) = (Is::Free, previous, record.attempts - 1);
        }
        let mut event = PartEvent::default();
        for grant in &sent {
            self.deliveries.push((grant.offset.0, grant.fence.0));
            if grant.attempt >= 2 {
                event.delivered.push(Delivered { offset: grant.offset, attempts: grant.attempt });
                let record = &mut self.records[grant.offset.0 as usize];
                (record.logged, record.due) = (grant.attempt, None);
            }
        }
        let applied = self.part.apply(&event, Offset(self.start)..self.end());
        assert_eq!(applied.delivered, event.delivered.len() as u64);
    }

    fn started(&mut self, delivery: usize) {
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
    fn expire(&mut self, exhausted: &[Delivered]) {
        let (now, max_attempts) = (self.now, self.rules.max_attempts);
        let mut expected = Vec::new();
        for (offset, record) in self.records.iter_mut().enumerate().filter(|(_, record)| !record.settled) {
            let is_over = match record.is {
                Is::Leased { deadline, .. } => deadline <= now,
                Is::Waiting { until } => until <= now,
                _ => false,
            };
            if is_over {
                record.is = Is::Free;
            }
            let has_had_all = max_attempts > 0 && record.attempts >= max_attempts;
            if record.is == Is::Free && has_had_all {
                expected.push(Delivered { offset: Offset(offset as u64), attempts: record.attempts });
            }
        }
        for found in exhausted {
            assert!(expected.contains(found), "{found:?} is not among {expected:?}");
            self.records[found.offset.0 as usize].is = Is::Settling;
            self.log_dead(*found);
        }
    }

    fn log_dead(&mut self, found: Delivered) {
        let dead = Dead { offset: found.offset, attempts: found.attempts, reason: "why".to_owned() };
        self.in_flight.push_back((found.offset.0, PartEvent { dead: vec![dead], ..PartEvent::default() }));
    }

    fn settle(&mut self, delivery: usize, skew: i64, action: Action) {
        let Some(&(offset, fence)) = self.deliveries.get(delivery % self.deliveries.len().max(1)) else {
            return;
        };
        let fence = fence.saturating_add_signed(skew);
        let item = Settle { offset: Offset(offset), fence: Fence(fence), action };
        let leased =
            self.records.iter().filter(|record| !record.settled && matches!(record.is, Is::Leased { .. }));
        let has_room = leased.count() < self.rules.max_unacked;
        let verdict = self.leases.settle(&self.part, self.end(), &item, self.now());
        let record = self.records[offset as usize];
        let is_older = fence < record.fence || fence < self.fence_min;
        let is_adopted = fence < self.fence_base && record.fence < self.fence_base;
        match verdict {
            _ if fence == 0 => assert_eq!(verdict, Verdict::Unknown),
            Verdict::AlreadySettled => assert!(record.settled || record.is == Is::Settling),
            _ if record.settled || record.is == Is::Settling => panic!("{verdict:?} {record:?}"),
            Verdict::LeaseLost { current: Some(current) } => {
                assert!(is_older);
                assert_eq!((current.fence.0, current.attempt), (record.fence, record.attempts));
            }
            Verdict::LeaseLost { current: None } => {
                let is_refused =
                    matches!(action, Action::Extend { .. }) && (record.due.is_some() || !has_room);
                assert!((is_older && record.fence < self.fence_base) || is_refused, "{record:?}");
            }
            Verdict::Unknown => assert!(!is_older && fence != record.fence && !is_adopted),
            Verdict::Done(effect) => {
                assert!(!is_older && (fence == record.fence || is_adopted), "{effect:?} {record:?}");
                self.done(offset, fence, action, effect);
            }
        }
    }

    fn done(&mut self, offset: u64, fence: u64, action: Action, effect: Effect) {
        let record = &mut self.records[offset as usize];
        if record.is == Is::New {
            record.attempts = record.logged;
        }
        let attempts = record.attempts.max(1);
        let had_all = self.rules.max_attempts > 0 && attempts >= self.rules.max_attempts;
        let mut event = PartEvent::default();
        match (action, effect) {
            (Action::Ack, Effect::Settled) => event.settle(Offset(offset)),
            (Action::Nack { .. }, Effect::Waits(due)) => {
                assert!(matches!(record.is, Is::Waiting { .. } | Is::Free));
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
                (record.is, record.fence, record.attempts) = (Is::Settling, fence, attempts);
                return self.log_dead(dead);
            }
            (Action::Extend { ms }, Effect::Extended(deadline)) => {
                assert_eq!(deadline.0, self.now + ms);
                let key = if let Is::Leased { key, .. } = record.is { key } else { None };
                record.is = Is::Leased { deadline: deadline.0, lease_ms: ms, previous: fence, key };
                (record.fence, record.attempts) = (fence, attempts);
                return;
            }
            other => panic!("{other:?} {record:?}"),
        }
        (record.is, record.fence, record.attempts) = (Is::Settling, fence, attempts);
        self.in_flight.push_back((offset, event));
    }

    /// The next event in flight is applied; `is_told`: this leader sees it.
    fn commit(&mut self, is_told: bool) {
        let Some((offset, event)) = self.in_flight.pop_front() else { return };
        let event = PartEvent::decode(&event.encode()).unwrap();
        let applied = self.part.apply(&event, Offset(self.start)..self.end());
        let record = &mut self.records[offset as usize];
        let had_effect = !record.settled;
        record.settled |= event.nacked.is_empty();
        if let Some(nacked) = event.nacked.first().filter(|_| had_effect) {
            (record.logged, record.due) = (nacked.attempts.max(record.logged), Some(nacked.due.0));
            record.is = Is::Waiting { until: nacked.due.0 };
        }
        let expected = Applied {
            settled: u64::from(had_effect && !event.settled.is_empty()),
            dead: event.dead.iter().filter(|_| had_effect).map(|dead| dead.offset).collect(),
            nacked: u64::from(had_effect && !event.nacked.is_empty()),
            delivered: 0,
        };
        self.dead += expected.dead.len() as u64;
        assert_eq!(applied, expected);
        let again = self.part.clone().apply(&event, Offset(self.start)..self.end());
        assert_eq!((again.settled, again.dead.len()), (0, 0), "a second time has no effect");
        if is_told {
            self.leases.committed(&self.part, [Offset(offset)]);
        }
    }

    fn fail(&mut self, committed: usize) {
        let lost: Vec<_> = self.in_flight.iter().map(|(offset, _)| Offset(*offset)).collect();
        (0..committed).for_each(|_| self.commit(false));
        self.in_flight.clear();
        for offset in &lost {
            let record = &mut self.records[offset.0 as usize];
            record.is = record.due.map_or(Is::Free, |until| Is::Waiting { until });
        }
        self.leases.failed(&self.part, lost, self.now());
    }

    fn seek(&mut self, to: u64) {
        while !self.in_flight.is_empty() {
            self.commit(true);
        }
        let to = to.clamp(self.start, self.end().0);
        let delivered = |record: &Record| record.settled || record.logged > 0 || record.attempts > 0;
        let redelivered =
            self.records[to as usize..].iter().filter(|record| delivered(record)).count() as u64;
        let skipped = self.records[..to as usize].iter().filter(|record| !record.settled).count() as u64;
        let bounds = Offset(self.start)..self.end();
        let preview = self.part.seek_preview(Offset(to), self.leases.next(), bounds.clone());
        assert_eq!((preview.floor.0, preview.skipped), (to, skipped));
        // Released records count as delivered, adopted ones do not.
        if self.records.iter().all(|record| record.is == Is::New || record.fence >= self.fence_base) {
            assert_eq!(preview.redelivered, redelivered);
        }
        let seek = Some(Seek { to: Offset(to), fence: self.next_fence });
        self.part.apply(&PartEvent { seek, ..PartEvent::default() }, bounds);
        for (offset, record) in self.records.iter_mut().enumerate() {
            *record = Record { settled: (offset as u64) < to, ..NEW };
        }
        self.fence_min = self.next_fence.0;
        self.restart(self.next_fence);
    }

    /// Another leader, or this one after a seek: from a checkpoint.
    fn restart(&mut self, fence_base: Fence) {
        let bounds = Offset(self.start)..self.end();
        let again = Part::decode(&self.part.encode(), bounds).unwrap();
        assert_eq!(again, self.part);
        assert_eq!(again.encode(), self.part.encode());
        self.part = again;
        (self.next_fence, self.fence_base) = (fence_base, fence_base.0);
        self.leases = Leases::new(&self.part, self.rules.clone(), fence_base, self.now());
        for record in &mut self.records {
            let has_had_all = self.rules.max_attempts > 0 && record.logged >= self.rules.max_attempts;
            let last_chance = has_had_all.then_some(self.now + self.rules.lease_ms);
            let until = record.due.or(last_chance);
            let is = until.map_or(Is::New, |until| Is::Waiting { until });
            *record = Record { is, fence: 0, attempts: record.logged, ..*record };
        }
    }

    fn check(&mut self) {
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
            let logged = (record.logged > 0)
                .then_some(Retry { attempts: record.logged, due: record.due.map(TimestampMs) });
            assert_eq!(self.part.retry(Offset(offset as u64)), logged);
        }
        let is_ready = self.leases.ready(&self.part, end, self.now());
        let of = |wanted: fn(&Is) -> bool| {
            let records = unsettled.iter().map(|at| &self.records[*at as usize]);
            records.filter(|record| wanted(&record.is)).count() as u64
        };
        let leased = of(|is| matches!(is, Is::Leased { .. }));
        let expected = Counts {
            ready: of(|is| matches!(is, Is::New | Is::Free)),
            leased,
            delayed: of(|is| matches!(is, Is::Waiting { .. })),
            settling: of(|is| *is == Is::Settling),
        };
        assert_eq!(self.leases.counts(&self.part, end), expected);
        let over = |is: &Is| matches!(*is, Is::Leased { deadline, .. } if deadline <= self.now);
        let any =
            |wanted: &dyn Fn(&Is) -> bool| unsettled.iter().any(|at| wanted(&self.records[*at as usize].is));
        let has_room = leased < self.rules.max_unacked as u64;
        let can = |is: &Is| match *is {
            Is::New | Is::Free => true,
            Is::Waiting { until } => until <= self.now,
            _ => false,
        };
        assert_eq!(is_ready, any(&over) || has_room && any(&can));
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
        let listed = self.leases.list(Offset(0), usize::MAX, self.now()).leases;
        assert_eq!(listed.len() as u64, expected.leased + expected.delayed);
    }

    /// With time, every unsettled record is delivered, or is a dead letter.
    fn drain(&mut self) {
        while !self.in_flight.is_empty() {
            self.commit(true);
        }
        for _ in 0..self.records.len() * 20 + 20 {
            if self.part.count_unsettled(self.end()) == 0 {
                return;
            }
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
    let (mut leased, mut waiting, mut free) = (0, 0, 0);
    for (offset, known) in &leases.known {
        assert!(*offset < leases.next || *offset < leases.ahead_end);
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
                free += 1;
                assert!(leases.free.contains(&(since, *offset)));
            }
            State::Settling => {}
        }
    }
    assert_eq!((leases.leased.len(), leases.waiting.len(), leases.free.len()), (leased, waiting, free));
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        5 => Just(Action::Ack),
        4 => proptest::option::of(0u64..900).prop_map(|delay_ms| Action::Nack { delay_ms }),
        2 => (1u64..900).prop_map(|ms| Action::Extend { ms }),
        1 => Just(Action::Dead),
    ]
}

fn any_step() -> impl Strategy<Value = Step> {
    let skew =
        prop_oneof![12 => Just(0i64), 1 => Just(-1), 1 => Just(1), 1 => Just(1 << 32), 1 => Just(-(1 << 32))];
    let lease_ms = prop_oneof![1 => Just(0u64), 3 => 1u64..600];
    let take = (
        0usize..8,
        lease_ms,
        prop_oneof![3 => Just(u8::MAX), 2 => any::<u8>()],
        proptest::option::of(0u128..2),
    );
    let delivery = || 0usize..1_000;
    prop_oneof![
        6 => (1u64..9).prop_map(|count| Step::Publish { count }),
        10 => take.prop_map(|(max, lease_ms, sent, key)| Step::Take { max, lease_ms, sent, key }),
        2 => delivery().prop_map(|delivery| Step::Started { delivery }),
        16 => (delivery(), skew, any_action())
            .prop_map(|(delivery, skew, action)| Step::Settle { delivery, skew, action }),
        2 => Just(Step::Expire),
        8 => (1usize..5).prop_map(|count| Step::Commit { count }),
        1 => (0usize..3).prop_map(|committed| Step::Fail { committed }),
        5 => (1u64..700).prop_map(|ms| Step::Wait { ms }),
        1 => (1u64..6).prop_map(|count| Step::Trim { count }),
        1 => (0u64..60).prop_map(|to| Step::Seek { to }),
        2 => (0usize..4).prop_map(|committed| Step::Restart { committed }),
    ]
}

fn any_rules() -> impl Strategy<Value = Rules> {
    (1u64..800, 0u32..4, proptest::collection::vec(0u64..500, 0..3), 1usize..12).prop_map(
        |(lease_ms, max_attempts, backoff_ms, max_unacked)| Rules {
            lease_ms,
            max_attempts,
            backoff_ms: backoff_ms.into(),
            max_unacked,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn leases_cannot_be_told_from_their_model(
        rules in any_rules(), steps in proptest::collection::vec(any_step(), 1..120),
    ) {
        let mut pair = Pair::new(rules);
        steps.iter().for_each(|step| pair.step(step));
        pair.drain();
    }
}
