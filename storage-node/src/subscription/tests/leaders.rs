//! What one leader gave, under those that follow.

use super::*;

/// A leader in `term` over what the log says, that may be behind another.
fn next_leader(before: &Leader, term: u64) -> Leader {
    let bounds = Offset(0)..Offset(before.end);
    let part = Part::decode(&before.part.encode(), bounds).unwrap();
    let fence = Fence(term << 32);
    let leases = Leases::new(&part, rules(), fence, at(0)).after_leader_of(Offset(before.end));
    Leader { part, leases, fence, end: before.end }
}

#[test]
fn a_delivery_that_was_replaced_settles_nothing_whatever_leaders_follow() {
    let mut first = Leader::new(3);
    let old = first.take(0, 3);
    // Two of them are delivered anew by the second leader, which crashes.
    let mut second = next_leader(&first, 6);
    assert_eq!(second.settle(&old[2], Action::Ack, 0), Verdict::Done(Effect::Settled));
    let new = second.take(0, 2);
    assert_eq!((offsets(&new), new[0].attempt), (vec![0, 1], 1), "nothing says that it is not the first");
    let lost = |leader: &mut Leader, grant: &Grant, action| {
        matches!(leader.settle(grant, action, 0), Verdict::LeaseLost { .. })
    };
    let mut third = next_leader(&second, 7);
    for action in [Action::Ack, NACK, Action::Dead, Action::Extend { ms: 9 }] {
        assert!(lost(&mut third, &old[0], action), "{action:?}");
    }
    assert!(third.leases.judge(&third.part, Offset(3), (Offset(0), old[0].fence), at(0)).is_err());
    assert_eq!(third.settle(&new[0], Action::Ack, 0), Verdict::Done(Effect::Settled));
    // The third and the fourth leader deliver the other as well: each time it counts.
    let (taken, mut fourth) = (third.take(0, 9), next_leader(&third, 8));
    assert_eq!((offsets(&taken), taken[0].attempt), (vec![1], 2));
    assert!(lost(&mut fourth, &old[1], Action::Ack) && lost(&mut fourth, &new[1], Action::Ack));
    assert_eq!(fourth.settle(&taken[0], Action::Ack, 0), Verdict::Done(Effect::Settled));
}

#[test]
fn a_delivery_that_was_replaced_within_a_term_settles_nothing_after_it() {
    let mut leader = Leader::new(1);
    let first = leader.take(0, 1)[0];
    let second = leader.take(1_000, 1)[0];
    let mut next = next_leader(&leader, 6);
    assert!(matches!(next.settle(&first, Action::Ack, 0), Verdict::LeaseLost { .. }));
    assert_eq!(next.settle(&second, Action::Ack, 0), Verdict::Done(Effect::Settled));
}

#[test]
fn what_was_delivered_before_a_redrive_settles_nothing_after_it_whatever_leaders_follow() {
    let mut leader = Leader::new(2);
    let old = leader.take(0, 1)[0];
    leader.settle(&old, Action::Dead, 0);
    leader.log(&PartEvent { revived: vec![Offset(0)..Offset(2)], ..PartEvent::default() });
    leader.leases.revived(&leader.part, Offset(0));
    assert_eq!(leader.settle(&old, Action::Ack, 0), Verdict::LeaseLost { current: None });
    let mut next = next_leader(&leader, 6);
    assert_eq!(next.settle(&old, Action::Ack, 0), Verdict::LeaseLost { current: None });
    let again = next.take(0, 1)[0];
    assert_eq!((again.offset, again.attempt), (Offset(0), 1));
    let mut last = next_leader(&next, 7);
    assert!(matches!(last.settle(&old, Action::Ack, 0), Verdict::LeaseLost { .. }));
    assert_eq!(last.settle(&again, Action::Ack, 0), Verdict::Done(Effect::Settled));
}
