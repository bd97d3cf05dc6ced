//! Looking ahead, and waiting: rules where much is looked at, or waits.

use std::ops::Range;

use weir_protocol::ids::Offset;

use super::tests::{Leader, at, offsets, rules};
use super::*;

/// Looks at everything, as `see` says, in steps of a thousand.
fn look(leader: &mut Leader, see: impl Fn(u64) -> Seen) {
    let end = Offset(leader.end);
    while let Some(Range { start, end }) = leader.leases.look_from(&leader.part, end, usize::MAX) {
        let found = start..start.plus(1_000).min(end);
        let seen: Vec<Seen> = (found.start.0..found.end.0).map(&see).collect();
        leader.leases.looked(&leader.part, found, seen);
    }
}

fn seen(offset: u64, key: u128, lane: u128) -> Seen {
    Seen { offset: Offset(offset), key: Key(key), lane: Lane(lane), fate: Fate::Deliver }
}

fn looking(max_unacked: usize, end: u64) -> Leader {
    let rules = Rules { looks_ahead: true, max_unacked, max_attempts: 0, ..rules() };
    Leader::over(Part::new(Offset(0)), rules, end, 0)
}

#[test]
fn one_key_after_the_other_and_what_is_beyond_the_look_ahead_waits_unseen() {
    let rules = Rules { looks_ahead: true, ..rules() };
    let mut leader = Leader::over(Part::new(Offset(0)), rules, 10_000_000, 0);
    leader.leases.limits.ahead = 16_384;
    let (end, mut looked) = (Offset(10_000_000), 0);
    // One key holds up all others of it, and with them everything beyond the look-ahead.
    while let Some(Range { start, .. }) = leader.leases.look_from(&leader.part, end, usize::MAX) {
        let found = start..start.plus(1_000);
        let seen = (found.start.0..found.end.0).map(|at| {
            let key = if at == 7 { Key(9) } else { Key(1) };
            Seen { offset: Offset(at), key, lane: Lane::default(), fate: Fate::Deliver }
        });
        leader.leases.looked(&leader.part, found, seen);
        looked += 1_000;
    }
    assert_eq!(looked, 17_000, "bounded, however much there is");
    assert!(leader.leases.is_full_of_what_was_looked_at());
    let grants = leader.take(0, 10);
    assert_eq!(offsets(&grants), [0, 7]);
    let counts = leader.leases.counts(&leader.part, end, at(0));
    assert_eq!((counts.blocked, counts.leased, counts.ready), (16_998, 2, 10_000_000 - 17_000));
    leader.settle(&grants[0], Action::Nack { delay_ms: Some(500) }, 1);
    assert!(leader.take(2, 10).is_empty(), "it is given back, and nobody else gets its key");
    let again = leader.take(501, 10);
    assert_eq!(offsets(&again), [0]);
    leader.settle(&again[0], Action::Dead, 502);
    assert_eq!(offsets(&leader.take(503, 10)), [1], "a dead letter frees the key");
}

#[test]
fn who_comes_behind_a_million_of_another_is_next_in_turn() {
    let mut leader = looking(100, 1_000_010);
    look(&mut leader, |at| seen(at, 0, if at < 1_000_000 { 7 } else { 9 }));
    let first = leader.take(0, 6);
    assert_eq!(offsets(&first), [0, 1, 2, 1_000_000, 1_000_001, 1_000_002]);
    first.iter().for_each(|grant| _ = leader.settle(grant, Action::Ack, 0));
    assert_eq!(offsets(&leader.take(0, 3)), [3, 4, 1_000_003]);
    assert_eq!(leader.leases.known.len(), 3, "the others are offsets in sets");
}

#[test]
fn a_key_that_is_held_holds_up_no_other_though_a_million_wait_behind_it() {
    let mut leader = looking(100, 1_000_010);
    look(&mut leader, |at| seen(at, if at < 1_000_000 { 7 } else { 9 }, 0));
    let first = leader.take(0, 9);
    assert_eq!(offsets(&first), [0, 1_000_000]);
    assert!(leader.take(0, 9).is_empty());
    for next in 1..1_000 {
        let grants = leader.take(0, 9);
        assert!(grants.is_empty(), "{next}");
        let held = if next == 1 { first[0] } else { leader_holds(&leader, next - 1) };
        leader.settle(&held, Action::Ack, 0);
        assert_eq!(offsets(&leader.take(0, 9)), [next]);
    }
    assert_eq!(leader.leases.counts(&leader.part, Offset(leader.end), at(0)).blocked, 999_000 + 9);
}

fn leader_holds(leader: &Leader, offset: u64) -> Grant {
    leader.leases.known[&Offset(offset)].grant(Offset(offset), at(0))
}

#[test]
fn more_lanes_than_there_may_be_are_not_looked_at() {
    let mut leader = looking(100, 10_000);
    leader.leases.limits.lanes = 3_000;
    look(&mut leader, |at| seen(at, 0, u128::from(at) + 1));
    assert!(leader.leases.is_full_of_what_was_looked_at());
    assert_eq!(leader.leases.next(), Offset(3_000));
    let first = leader.take(0, 1);
    assert!(!leader.leases.is_full_of_what_was_looked_at());
    leader.settle(&first[0], Action::Ack, 0);
}

#[test]
fn what_waits_holds_up_nothing_that_is_new_however_much_it_is() {
    let many = 300_000;
    let rules = Rules { max_unacked: usize::MAX, max_attempts: 0, ..rules() };
    let mut leader = Leader::over(Part::new(Offset(0)), rules, many + 1, 0);
    let mut nacked = 0;
    while nacked < many {
        let grants = leader.take(0, 1_000);
        nacked += grants.len() as u64;
        grants
            .iter()
            .for_each(|grant| _ = leader.settle(grant, Action::Nack { delay_ms: Some(7_200_000) }, 0));
    }
    assert_eq!(offsets(&leader.take(1, 10)), [many]);
    let known = leader.leases.known.len();
    assert!(known <= NEAR_MAX, "{known} are held one by one");
    let counts = leader.leases.counts(&leader.part, Offset(many + 1), at(1));
    assert_eq!((counts.delayed, counts.leased), (many, 1));
    // Another leader, who finds them in the log.
    let rules = leader.leases.rules.clone();
    leader.leases = Leases::new(&leader.part, rules, Fence(9 << 32), at(1));
    assert_eq!(leader.leases.known.len(), 0);
    assert_eq!(offsets(&leader.take(1, 10)), [many]);
    // They come when they are due, in turns with what is new, and each once.
    assert!(leader.take(7_199_999, 10).len() <= 1, "but for the lease that has ended");
    leader.end += 5;
    let grants = leader.take(7_201_000, 10);
    assert_eq!(grants.iter().filter(|grant| grant.offset.0 >= many).count(), 5, "{grants:?}");
    let mut came = grants.len() as u64;
    while let grants = leader.take(7_201_000, 1_000)
        && !grants.is_empty()
    {
        came += grants.len() as u64;
    }
    assert_eq!(came, many + 6);
}

#[test]
fn a_late_worker_of_what_waits_with_many_is_told_that_it_has_lost_it() {
    let rules = Rules { max_unacked: usize::MAX, max_attempts: 0, ..rules() };
    let mut leader = Leader::over(Part::new(Offset(0)), rules, 3, 0);
    leader.leases.limits.near = 2;
    let grants = leader.take(0, 3);
    for grant in &grants {
        leader.settle(grant, Action::Nack { delay_ms: Some(60_000) }, 0);
    }
    assert_eq!(leader.settle(&grants[1], Action::Ack, 1), Verdict::Done(Effect::Settled));
    assert_eq!(leader.settle(&grants[2], Action::Ack, 1), Verdict::LeaseLost { current: None });
}

#[test]
fn what_lapses_is_bounded_and_goes_before_what_is_new() {
    let rules = Rules { max_unacked: usize::MAX, max_attempts: 0, ..rules() };
    let end = 2 * COME_AGAIN_MAX as u64;
    let mut leader = Leader::over(Part::new(Offset(0)), rules, end, 0);
    let mut now = 0;
    // All leases end, and a thousand are given anew, of which half are new ones.
    while leader.take(now, 1_000).iter().any(|grant| grant.attempt == 1) {
        now += 1_000;
    }
    let again = leader.leases.ready.again_len();
    assert!((COME_AGAIN_MAX - 1_000..COME_AGAIN_MAX + 1_000).contains(&again), "{again}");
}
