//! One rule each; what random histories show is in [`super::model`].

use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};

use super::*;

mod leaders;

const BASE: Fence = Fence(5 << 32);

/// A leader over a part, told everything at once.
pub(super) struct Leader {
    pub(super) part: Part,
    pub(super) leases: Leases,
    fence: Fence,
    pub(super) end: u64,
}

pub(super) fn rules() -> Rules {
    Rules {
        lease_ms: 1_000,
        max_attempts: 3,
        backoff_ms: Arc::from([100, 200]),
        max_unacked: 10,
        looks_ahead: false,
    }
}

pub(super) fn at(ms: u64) -> TimestampMs {
    TimestampMs(ms)
}

pub(super) fn offsets(grants: &[Grant]) -> Vec<u64> {
    grants.iter().map(|grant| grant.offset.0).collect()
}

impl Leader {
    pub(super) fn new(end: u64) -> Self {
        Self::over(Part::new(Offset(0)), rules(), end, 0)
    }

    pub(super) fn over(part: Part, rules: Rules, end: u64, now: u64) -> Self {
        Self { leases: Leases::new(&part, rules, BASE, at(now)), part, fence: BASE, end }
    }

    /// Takes what is not sent yet.
    fn lease(&mut self, now: u64, max_records: usize, key: Option<u128>) -> Taken {
        let (end, holder, key) = (Offset(self.end), Arc::from("me"), key.map(PullKey));
        let ask = Ask { now: at(now), end, max_records, lease_ms: 0, holder, key };
        self.leases.take(&self.part, &ask, &mut self.fence)
    }

    fn try_take(&mut self, now: u64, max_records: usize, key: Option<u128>) -> Taken {
        let taken = self.lease(now, max_records, key);
        taken.grants.iter().for_each(|grant| _ = self.leases.leaves(grant.offset, grant.fence));
        taken
    }

    pub(super) fn take(&mut self, now: u64, max_records: usize) -> Vec<Grant> {
        let taken = self.try_take(now, max_records, None);
        self.log(&PartEvent { delivered: taken.redelivered, ..PartEvent::default() });
        taken.grants
    }

    pub(super) fn log(&mut self, event: &PartEvent) -> Applied {
        self.part.apply(event, Offset(0)..Offset(self.end))
    }

    fn decide(&mut self, offset: u64, fence: Fence, action: Action, now: u64) -> Verdict {
        let item = Settle { offset: Offset(offset), fence, action };
        self.leases.settle(&self.part, Offset(self.end), &item, at(now))
    }

    /// Decides and commits.
    pub(super) fn settle(&mut self, grant: &Grant, action: Action, now: u64) -> Verdict {
        let verdict = self.decide(grant.offset.0, grant.fence, action, now);
        let mut event = PartEvent::default();
        match verdict {
            Verdict::Done(Effect::Settled) => event.settle(grant.offset),
            Verdict::Done(Effect::Nacked(nacked)) => event.nacked.push(nacked),
            Verdict::Done(Effect::Dead(dead)) => {
                let (offset, attempts, reason) = (dead.offset, dead.attempts, String::new());
                event.dead.push(Dead { offset, attempts, reason });
            }
            _ => {}
        }
        self.log(&event);
        self.leases.committed(&self.part, [grant.offset]);
        verdict
    }
}

const NACK: Action = Action::Nack { delay_ms: None };

#[test]
fn the_window_frees_when_an_ack_is_accepted_and_a_second_one_is_late() {
    let mut leader = Leader::new(20);
    let grants = leader.take(0, 100);
    assert_eq!(offsets(&grants), (0..10).collect::<Vec<_>>());
    assert!(leader.take(0, 100).is_empty());
    assert!(!leader.leases.ready(&leader.part, Offset(20), at(0)));
    assert_eq!(leader.decide(0, grants[0].fence, Action::Ack, 1), Verdict::Done(Effect::Settled));
    assert_eq!(leader.decide(0, grants[0].fence, Action::Ack, 1), Verdict::AlreadySettled);
    assert_eq!(offsets(&leader.take(1, 100)), [10]);
    leader.leases.failed(&leader.part, [Offset(0)], at(2));
    assert_eq!(leader.settle(&grants[0], Action::Ack, 3), Verdict::Done(Effect::Settled));
    assert_eq!(leader.part.floor(), Offset(1));
    assert_eq!(leader.settle(&grants[0], Action::Ack, 3), Verdict::AlreadySettled);
}

#[test]
fn a_lease_of_what_another_pull_has_settled_does_not_hold_its_place_in_the_window() {
    let mut leader = Leader::new(100);
    let (held, first, other) = (leader.take(0, 2), leader.take(0, 4), leader.take(0, 4));
    assert!(!leader.leases.ready(&leader.part, Offset(100), at(0)), "the window is full");
    // The first found that nothing is there from 2 up to 12: four of them the other has leased.
    for grant in &first {
        assert_eq!(
            leader.decide(grant.offset.0, grant.fence, Action::Ack, 1),
            Verdict::Done(Effect::Settled)
        );
    }
    leader.log(&PartEvent { settled: vec![Offset(2)..Offset(12)], ..PartEvent::default() });
    leader.leases.committed(&leader.part, first.iter().map(|grant| grant.offset));
    leader.leases.forget_settled_in(&leader.part, Offset(6)..Offset(12));
    for grant in &other {
        assert_eq!(leader.decide(grant.offset.0, grant.fence, Action::Ack, 1), Verdict::AlreadySettled);
        assert_eq!(leader.leases.started(grant.offset, grant.fence, at(1)), None);
    }
    assert_eq!(offsets(&leader.take(1, 100)), (12..20).collect::<Vec<_>>());
    assert_eq!(leader.settle(&held[0], Action::Ack, 1), Verdict::Done(Effect::Settled));
}

#[test]
fn a_lease_that_ends_before_it_was_sent_is_no_delivery() {
    let mut leader = Leader::new(2);
    // As long as reading takes longer than a lease: three deliveries are allowed.
    for now in (0..10).map(|round| 1_000 * round) {
        let taken = leader.lease(now, 2, None);
        assert_eq!(taken.grants.iter().map(|grant| grant.attempt).collect::<Vec<_>>(), [1, 1], "{now}");
        assert!(taken.redelivered.is_empty());
        assert!(leader.leases.expire(&leader.part, at(now + 1_000)).is_empty());
        for grant in &taken.grants {
            assert_eq!(leader.leases.started(grant.offset, grant.fence, at(now + 1_000)), None, "too late");
        }
    }
    let mut leader = Leader::new(1);
    for (now, attempt) in [(10_000, 1), (11_000, 2)] {
        assert_eq!(leader.take(now, 1)[0].attempt, attempt);
        assert!(leader.leases.expire(&leader.part, at(now + 1_000)).is_empty());
    }
    let last = leader.lease(12_000, 1, None).grants[0];
    assert_eq!(last.attempt, 3);
    assert!(leader.leases.expire(&leader.part, at(13_000)).is_empty(), "nobody had it a third time");
    let held = leader.lease(13_000, 1, None).grants[0];
    assert_eq!(leader.leases.renew(held.offset, held.fence, at(13_500)), Some(at(14_500)));
    assert!(leader.leases.expire(&leader.part, at(14_499)).is_empty());
    assert_eq!(leader.leases.renew(held.offset, held.fence, at(14_500)), Some(at(15_500)), "still held");
    assert!(
        leader.leases.expire(&leader.part, at(15_500)).is_empty(),
        "held for long, and still nobody had it"
    );
    let last = leader.lease(13_000, 1, None).grants[0];
    assert_eq!(leader.leases.started(last.offset, last.fence, at(13_500)), Some(at(14_500)));
    let dead = [Delivered { offset: last.offset, attempts: 3 }];
    assert_eq!(leader.leases.expire(&leader.part, at(14_500)), dead);
}

#[test]
fn an_expired_lease_settles_until_its_record_is_delivered_again() {
    let mut leader = Leader::new(2);
    let grants = leader.take(0, 2);
    assert_eq!(leader.leases.next_event(), Some(at(1_000)));
    assert!(leader.leases.expire(&leader.part, at(1_000)).is_empty());
    assert_eq!(leader.settle(&grants[0], Action::Ack, 1_000), Verdict::Done(Effect::Settled));
    let again = leader.take(1_000, 2);
    assert_eq!((offsets(&again), again[0].attempt), (vec![1], 2));
    assert_eq!(leader.part.attempts(Offset(1)), 2);
    let lost = Verdict::LeaseLost { current: Some(again[0]) };
    assert_eq!(leader.settle(&grants[1], Action::Ack, 1_001), lost);
    assert_eq!(leader.decide(1, Fence(again[0].fence.0 + 1), Action::Ack, 1_001), Verdict::Unknown);
    assert_eq!(leader.decide(2, again[0].fence, Action::Ack, 1_001), Verdict::Unknown);
}

#[test]
fn the_record_that_is_free_longest_goes_first_in_turns_with_new_ones() {
    let mut leader = Leader::new(10);
    let grants = leader.take(0, 4);
    leader.settle(&grants[0], Action::Nack { delay_ms: Some(500) }, 0);
    leader.settle(&grants[3], Action::Nack { delay_ms: Some(300) }, 0);
    assert_eq!(leader.leases.next_event(), Some(at(300)));
    assert_eq!(offsets(&leader.take(299, 1)), [4]);
    assert_eq!(offsets(&leader.take(600, 1)), [3]);
    assert_eq!(offsets(&leader.take(1_000, 1)), [5]);
    assert_eq!(offsets(&leader.take(1_000, 3)), [0, 1, 6]);
    assert_eq!(offsets(&leader.take(1_000, 4)), [2, 7, 8, 9]);
}

#[test]
fn backoff_follows_its_steps_and_the_last_attempt_makes_a_dead_letter() {
    let mut leader = Leader::new(1);
    let mut dues = Vec::new();
    for now in [0, 1_000] {
        let grants = leader.take(now, 1);
        let Verdict::Done(Effect::Nacked(nacked)) = leader.settle(&grants[0], NACK, now) else { panic!() };
        assert_eq!(leader.settle(&grants[0], NACK, now), Verdict::Done(Effect::Waits(nacked.due)));
        assert_eq!(
            leader.decide(0, grants[0].fence, Action::Extend { ms: 9 }, now),
            Verdict::LeaseLost { current: None }
        );
        dues.push(nacked.due.0);
    }
    assert_eq!(dues, [100, 1_200]);
    let grants = leader.take(2_000, 1);
    let dead = Delivered { offset: Offset(0), attempts: 3 };
    assert_eq!(leader.settle(&grants[0], NACK, 2_000), Verdict::Done(Effect::Dead(dead)));
    assert_eq!((leader.part.dead(), leader.part.count_unsettled(Offset(1))), (1, 0));
}

#[test]
fn a_lease_that_ends_for_the_last_time_makes_a_dead_letter_once() {
    let mut leader = Leader::new(1);
    for now in [0, 1_000, 2_000] {
        assert_eq!(leader.take(now, 1).len(), 1);
    }
    assert!(leader.leases.ready(&leader.part, Offset(1), at(3_000)));
    let exhausted = leader.try_take(3_000, 1, None).exhausted;
    assert_eq!(exhausted, [Delivered { offset: Offset(0), attempts: 3 }]);
    assert_eq!(leader.try_take(9_000, 1, None), Taken::default());
    // The proposal is lost, so it comes again, when whoever was too late to be heard had time to say so once more.
    leader.leases.failed(&leader.part, [Offset(0)], at(9_000));
    assert_eq!(leader.try_take(9_999, 1, None), Taken::default());
    assert_eq!(leader.leases.ends_first(), Some(at(10_000)));
    assert_eq!(leader.try_take(10_000, 1, None).exhausted, exhausted);
    let event = PartEvent {
        dead: vec![Dead { offset: Offset(0), attempts: 3, reason: "max_attempts".to_owned() }],
        ..PartEvent::default()
    };
    assert_eq!(leader.log(&event).dead, [Offset(0)]);
    assert_eq!(leader.log(&event), Applied::default());
}

#[test]
fn what_is_released_counts_no_attempt_and_is_next() {
    let mut leader = Leader::new(10);
    let grants = leader.take(0, 3);
    leader.take(1_000, 1);
    let again = leader.try_take(1_000, 4, None).grants;
    assert_eq!(offsets(&again), [1, 2, 3, 4]);
    for grant in again.iter().rev() {
        leader.leases.release(&leader.part, grant.offset, grant.fence);
        assert_eq!(leader.decide(grant.offset.0, grant.fence, Action::Ack, 1_000), Verdict::Unknown);
    }
    assert_eq!(leader.leases.next(), Offset(3));
    // The delivery before holds again.
    assert_eq!(leader.settle(&grants[1], Action::Ack, 1_000), Verdict::Done(Effect::Settled));
    let then = leader.take(1_001, 2);
    assert_eq!(
        then.iter().map(|grant| (grant.offset.0, grant.attempt)).collect::<Vec<_>>(),
        [(2, 2), (3, 1)]
    );
    assert!(then[0].fence > again[3].fence);
}

#[test]
fn the_clock_of_a_lease_starts_when_it_is_sent_and_can_be_moved() {
    let mut leader = Leader::new(1);
    let grant = leader.take(0, 1)[0];
    assert_eq!(leader.leases.started(Offset(0), grant.fence, at(50)), Some(at(1_050)));
    assert_eq!(leader.leases.started(Offset(0), Fence(1), at(60)), None);
    let extended = Verdict::Done(Effect::Extended(at(5_500)));
    assert_eq!(leader.decide(0, grant.fence, Action::Extend { ms: 5_000 }, 500), extended);
    assert!(leader.take(5_499, 1).is_empty());
    assert!(leader.leases.expire(&leader.part, at(5_500)).is_empty());
    // It ended, but nobody else got it.
    let extended = Verdict::Done(Effect::Extended(at(5_600)));
    assert_eq!(leader.decide(0, grant.fence, Action::Extend { ms: 100 }, 5_500), extended);
    assert_eq!(leader.take(5_600, 1)[0].attempt, 2);
}

#[test]
fn a_pull_is_repeated_with_what_of_it_is_still_held() {
    let mut leader = Leader::new(9);
    let grants = leader.try_take(0, 3, Some(7)).grants;
    leader.try_take(0, 3, Some(8));
    leader.settle(&grants[1], Action::Ack, 1);
    assert_eq!(leader.leases.repeat(PullKey(7), at(999)), [grants[0], grants[2]]);
    assert!(leader.leases.repeat(PullKey(7), at(1_000)).is_empty());
    assert!(leader.leases.repeat(PullKey(6), at(0)).is_empty());
    leader.settle(&grants[0], Action::Ack, 1);
    leader.settle(&grants[2], NACK, 1);
    assert_eq!(leader.leases.pulls.len(), 1);
}

#[test]
fn after_a_restart_old_deliveries_settle_and_retries_wait() {
    let mut leader = Leader::new(6);
    let grants = leader.take(0, 4);
    leader.settle(&grants[1], Action::Ack, 0);
    leader.settle(&grants[2], Action::Nack { delay_ms: Some(700) }, 0);
    let bounds = Offset(0)..Offset(6);
    let part = Part::decode(&leader.part.encode(), bounds).unwrap();
    let old = leader.fence;
    let mut leader = Leader { fence: Fence(6 << 32), ..Leader::over(part, rules(), 6, 100) };
    leader.leases = Leases::new(&leader.part, rules(), leader.fence, at(100));
    // Adopted: held longer under the fence of the leader before.
    let extended = Verdict::Done(Effect::Extended(at(1_100)));
    assert_eq!(leader.decide(0, grants[0].fence, Action::Extend { ms: 1_000 }, 100), extended);
    assert_eq!(leader.settle(&grants[3], Action::Ack, 100), Verdict::Done(Effect::Settled));
    let taken = leader.take(100, 9);
    assert_eq!(offsets(&taken), [4, 5]);
    assert!(taken[0].fence > old);
    assert_eq!(leader.take(700, 9)[0].attempt, 2);
    assert_eq!(leader.settle(&grants[0], Action::Ack, 701), Verdict::Done(Effect::Settled));
    assert!(matches!(leader.settle(&grants[2], Action::Ack, 701), Verdict::LeaseLost { current: Some(_) }));
}

#[test]
fn the_last_delivery_of_an_earlier_leader_gets_the_time_of_a_lease() {
    let mut part = Part::new(Offset(0));
    let delivered = vec![Redelivered { offset: Offset(0), attempts: 3, fence: Fence(0) }];
    part.apply(&PartEvent { delivered, ..PartEvent::default() }, Offset(0)..Offset(1));
    let mut leader = Leader::over(part, rules(), 1, 100);
    assert_eq!(leader.try_take(1_099, 1, None), Taken::default());
    assert_eq!(leader.leases.clone().expire(&leader.part, at(1_100)).len(), 1);
    assert_eq!(leader.decide(0, Fence(77), Action::Ack, 1_099), Verdict::Done(Effect::Settled));
}

#[test]
fn a_seek_delivers_again_and_ends_what_was_delivered_before() {
    let mut leader = Leader::new(8);
    let grants = leader.take(0, 4);
    leader.settle(&grants[0], Action::Ack, 0);
    leader.settle(&grants[2], Action::Dead, 0);
    leader.settle(&grants[3], NACK, 0);
    let preview = |leader: &Leader, to| {
        let preview = leader.leases.seek_preview(&leader.part, Offset(to), Offset(0)..Offset(8));
        (preview.redelivered, preview.skipped)
    };
    assert_eq!(preview(&leader, 0), (4, 0));
    assert_eq!(preview(&leader, 2), (2, 1));
    assert_eq!(preview(&leader, 6), (0, 4));
    let seek = Some(Seek { to: Offset(0), fence: leader.fence, keep_as: 0, back_to: 0 });
    leader.log(&PartEvent { seek, ..PartEvent::default() });
    leader.leases = Leases::new(&leader.part, rules(), leader.fence, at(0));
    assert_eq!(leader.settle(&grants[1], Action::Ack, 0), Verdict::LeaseLost { current: None });
    let again = leader.take(0, 9);
    assert_eq!(offsets(&again), (0..8).collect::<Vec<_>>());
    assert!(again.iter().all(|grant| grant.attempt == 1));
    assert_eq!((leader.part.dead(), leader.part.settled_above_floor()), (1, 0));
}

#[test]
fn trimmed_records_are_gone_with_their_leases_and_retries() {
    let mut leader = Leader::new(8);
    let grants = leader.take(0, 6);
    leader.settle(&grants[0], NACK, 0);
    leader.settle(&grants[3], Action::Ack, 0);
    leader.settle(&grants[4], Action::Ack, 0);
    assert_eq!(leader.part.start_moved(Offset(3)), 3);
    assert_eq!((leader.part.floor(), leader.part.retries_len()), (Offset(5), 0));
    let counts = leader.leases.counts(&leader.part, Offset(8), at(0));
    assert_eq!(counts, Counts { ready: 2, leased: 1, delayed: 0, blocked: 0, settling: 0 });
    assert_eq!(leader.settle(&grants[1], Action::Ack, 0), Verdict::AlreadySettled);
    assert_eq!(leader.part.start_moved(Offset(2)), 0);
}

#[test]
fn a_smaller_window_and_fewer_attempts_hold_from_the_next_pull_on() {
    let mut leader = Leader::new(20);
    let grants = leader.take(0, 5);
    leader.leases.set_rules(Rules { max_unacked: 3, max_attempts: 1, ..rules() });
    assert!(leader.take(1, 9).is_empty());
    leader.settle(&grants[0], Action::Ack, 1);
    assert_eq!(leader.try_take(1_000, 9, None).exhausted.len(), 4);
    leader.leases.set_rules(Rules { max_unacked: 0, ..rules() });
    assert!(!leader.leases.ready(&leader.part, Offset(20), at(1_000)));
}

#[test]
fn operators_see_who_holds_what_and_what_waits() {
    let mut leader = Leader::new(9);
    let grants = leader.take(0, 4);
    leader.settle(&grants[1], NACK, 0);
    leader.settle(&grants[2], Action::Ack, 0);
    let page = leader.leases.list(&leader.part, Offset(0), 2, at(40));
    assert_eq!(page.leases.len(), 2);
    assert_eq!((page.leases[0].holder.as_str(), page.leases[0].age_ms), ("me", 40));
    assert_eq!(page.leases[0].grant.map(|grant| grant.expires_in_ms), Some(960));
    assert_eq!((page.leases[1].delayed_ms, page.leases[1].attempts), (Some(60), 1));
    assert_eq!(page.next, Some(Offset(3)));
    let rest = leader.leases.list(&leader.part, Offset(3), 2, at(40));
    assert_eq!((rest.leases.len(), rest.next), (1, None));
}

#[test]
fn what_is_over_is_ready_though_nobody_has_asked_since() {
    let mut leader = Leader::new(9);
    let grants = leader.take(0, 4);
    leader.settle(&grants[1], NACK, 0);
    let counted = |leader: &mut Leader, ms| leader.leases.counts(&leader.part, Offset(9), at(ms));
    let counts = Counts { ready: 5, leased: 3, delayed: 1, blocked: 0, settling: 0 };
    assert_eq!(counted(&mut leader, 99), counts);
    assert_eq!(counted(&mut leader, 100), Counts { ready: 6, delayed: 0, ..counts });
    assert_eq!(counted(&mut leader, 1_000), Counts { ready: 9, leased: 0, delayed: 0, ..counts });
    assert_eq!(leader.leases.list(&leader.part, Offset(0), 9, at(999)).leases.len(), 3);
    assert_eq!(leader.leases.list(&leader.part, Offset(0), 9, at(1_000)).leases.len(), 0);
    assert_eq!(offsets(&leader.take(1_000, 9)), (0..9).collect::<Vec<_>>());
}

#[test]
fn a_seek_counts_what_is_held_behind_a_redriven_record() {
    let mut leader = Leader::new(5);
    let grants = leader.take(0, 3);
    leader.settle(&grants[0], Action::Dead, 0);
    leader.log(&PartEvent { revived: vec![Offset(0)..Offset(1)], ..PartEvent::default() });
    leader.leases.revived(&leader.part, Offset(0));
    let preview = leader.leases.seek_preview(&leader.part, Offset(0), Offset(0)..Offset(5));
    assert_eq!(preview.redelivered, 2, "1 and 2 were delivered, and nobody has had 0 since");
}

#[test]
fn what_is_over_is_looked_at_within_bounds() {
    let many = Rules { max_unacked: 200_000, ..rules() };
    let mut leader = Leader::over(Part::new(Offset(0)), many, 100_001, 0);
    while !leader.take(0, 100_001).is_empty() {}
    let counts = leader.leases.counts(&leader.part, Offset(100_001), at(1_000));
    assert_eq!((counts.leased, counts.ready), (1, 100_000));
    let page = leader.leases.list(&leader.part, Offset(0), 9, at(1_000));
    assert_eq!((page.leases.len(), page.next), (0, Some(Offset(65_536))));
    assert_eq!(leader.leases.list(&leader.part, Offset(65_536), 9, at(1_000)).next, None);
}

#[test]
fn settles_in_any_order_move_the_floor_over_what_is_contiguous() {
    let mut part = Part::new(Offset(10));
    let mut settle = |ranges: &[(u64, u64)]| {
        let settled = ranges.iter().map(|(start, end)| Offset(*start)..Offset(*end)).collect();
        let applied = part.apply(&PartEvent { settled, ..PartEvent::default() }, Offset(10)..Offset(100));
        (applied.settled, part.floor().0, part.settled_above_floor())
    };
    assert_eq!(settle(&[(0, 5), (20, 30), (25, 35), (99, 200)]), (16, 10, 16));
    assert_eq!(settle(&[(12, 20)]), (8, 10, 24));
    assert_eq!(settle(&[(10, 11), (11, 12)]), (2, 35, 1));
    assert_eq!(settle(&[(35, 99), (40, 30)]), (64, 100, 0));
    let again = part.apply(&PartEvent::default(), Offset(120)..Offset(130));
    assert_eq!((again, part.floor()), (Applied::default(), Offset(120)));
}

#[test]
fn copies_do_not_see_what_comes_after_them() {
    let mut leader = Leader::new(50);
    let grants = leader.take(0, 10);
    leader.settle(&grants[3], Action::Ack, 0);
    leader.settle(&grants[5], NACK, 0);
    let (copy, bytes) = (leader.part.clone(), leader.part.encode());
    leader.settle(&grants[4], Action::Ack, 0);
    leader.settle(&grants[6], NACK, 0);
    assert_ne!(leader.part, copy);
    assert_eq!(copy.encode(), bytes);
}

#[test]
fn looking_says_where_every_record_stands_and_changes_nothing() {
    let rules = Rules { looks_ahead: true, ..rules() };
    let mut leader = Leader::over(Part::new(Offset(0)), rules, 9, 0);
    let seen = |at: u64, key: u128, fate| Seen { offset: Offset(at), key: Key(key), lane: Lane(0), fate };
    let fates =
        [(0, 0), (1, 0), (2, 0), (3, 7), (4, 7), (5, 0)].map(|(at, key)| seen(at, key, Fate::Deliver));
    let fates = fates.into_iter().chain([seen(6, 0, Fate::Skip), seen(7, 0, Fate::DeliverAt(at(900)))]);
    leader.leases.looked(&leader.part, Offset(0)..Offset(8), fates);
    let grants = leader.take(0, 4);
    assert_eq!(offsets(&grants), [0, 1, 2, 3]);
    leader.settle(&grants[0], Action::Ack, 1);
    leader.settle(&grants[1], Action::Dead, 1);
    leader.settle(&grants[2], NACK, 1);
    let before = format!("{:?} {:?}", leader.part, leader.leases);
    let standing = |offset: u64| leader.leases.standing(&leader.part, Offset(offset), at(50));
    use weir_protocol::rpc::Standing as S;
    let all =
        [S::Settled, S::Dead, S::Delayed, S::Leased, S::Blocked, S::Ready, S::Skipped, S::Delayed, S::Ready];
    for (offset, expected) in (0..).zip(all) {
        assert_eq!(standing(offset).standing(), expected, "{offset}");
    }
    let (leased, blocked, delayed) = (standing(3), standing(4), standing(2));
    assert_eq!((leased.holder.as_str(), leased.age_ms, leased.attempts), ("me", 50, 1));
    assert_eq!(leased.grant.unwrap().expires_in_ms, 950);
    assert_eq!((blocked.blocked_by, delayed.delayed_ms, delayed.attempts), (Some(3), Some(51), 1));
    let all_as = |as_asked, limit| {
        let page = leader.leases.standing_as(&leader.part, Offset(0)..Offset(9), as_asked, limit, at(50));
        (page.leases.iter().map(|info| info.offset).collect::<Vec<_>>(), page.next)
    };
    assert_eq!(all_as(S::Ready, 9), (vec![5, 8], None));
    assert_eq!(all_as(S::Ready, 1), (vec![5], Some(Offset(6))));
    assert_eq!(all_as(S::Dead, 9), (vec![1], None));
    assert_eq!(all_as(S::Delayed, 9), (vec![2, 7], None));
    assert_eq!(format!("{:?} {:?}", leader.part, leader.leases), before);
}

#[test]
fn a_dead_letter_that_is_redriven_is_delivered_once_more_with_its_attempts_begun_anew() {
    let mut leader = Leader::new(5);
    let grants = leader.take(0, 5);
    for grant in &grants {
        let action = if grant.offset.0 == 2 { Action::Dead } else { Action::Ack };
        leader.settle(grant, action, 0);
    }
    assert_eq!((leader.part.floor(), leader.part.given_up()), (Offset(5), 1));
    let event = PartEvent { revived: vec![Offset(0)..Offset(5)], ..PartEvent::default() };
    assert_eq!(leader.log(&event).revived, 1);
    assert_eq!(leader.log(&event).revived, 0, "twice is once");
    leader.leases.revived(&leader.part, Offset(0));
    let again = leader.take(1, 5);
    assert_eq!((offsets(&again), again[0].attempt), (vec![2], 1));
    assert_eq!(leader.settle(&grants[2], Action::Ack, 1), Verdict::LeaseLost { current: Some(again[0]) });
    leader.settle(&again[0], Action::Ack, 1);
    assert_eq!((leader.part.floor(), leader.part.dead(), leader.part.given_up()), (Offset(5), 1, 0));
}

#[test]
fn what_expires_at_once_is_given_up_in_steps() {
    let rules = Rules { max_attempts: 1, max_unacked: 20_000, ..rules() };
    let mut leader = Leader::over(Part::new(Offset(0)), rules, 20_000, 0);
    assert_eq!(leader.take(0, 20_000).len(), 20_000);
    let mut given_up = Vec::new();
    while given_up.len() < 20_000 {
        assert!(leader.leases.ready(&leader.part, Offset(20_000), at(1_000)), "after {}", given_up.len());
        let step = leader.leases.expire(&leader.part, at(1_000));
        assert!((1..=8_192).contains(&step.len()), "{} in one entry", step.len());
        given_up.extend(step.iter().map(|dead| dead.offset.0));
    }
    assert_eq!(given_up, (0..20_000).collect::<Vec<_>>());
    assert_eq!(leader.leases.next_event(), None);
}

#[test]
fn nobody_is_woken_for_what_may_not_be_leased() {
    let mut leader = Leader::new(20);
    let grants = leader.take(0, 1);
    leader.settle(&grants[0], Action::Nack { delay_ms: Some(10) }, 0);
    leader.take(5, 10);
    assert_eq!(leader.leases.next_event(), Some(at(1_005)), "the window is full of leases until then");
    assert!(!leader.leases.ready(&leader.part, Offset(20), at(500)));
    leader.leases.set_rules(Rules { max_unacked: 0, ..rules() });
    assert_eq!(leader.leases.next_event(), None, "paused");
    assert!(!leader.leases.ready(&leader.part, Offset(20), at(2_000)));
    leader.leases.set_rules(rules());
    assert!(leader.leases.ready(&leader.part, Offset(20), at(2_000)));
}
