//! What a part was, against a list of all that it ever was.

use std::ops::Range;

use proptest::prelude::*;
use weir_protocol::ids::{Offset, TimestampMs};

use super::past::{SNAPSHOT_EVERY_MS, SNAPSHOT_WEIGHT_MAX, SNAPSHOTS_MAX};
use super::*;

const END: u64 = 30;
const BOUNDS: Range<Offset> = Offset(0)..Offset(END);

fn unsettled(part: &Part) -> Vec<u64> {
    part.unsettled_from(Offset(0), Offset(END)).flat_map(|run| run.start.0..run.end.0).collect()
}

fn settle(from: u64, to: u64) -> PartEvent {
    PartEvent { settled: vec![Offset(from)..Offset(to)], ..PartEvent::default() }
}

fn seek(to: u64, keep_as: u64) -> PartEvent {
    let seek = Some(Seek { to: Offset(to), fence: Fence(1), keep_as, back_to: 0 });
    PartEvent { seek, ..PartEvent::default() }
}

/// A part, and all that it was: from when on, and what was unsettled.
struct History {
    part: Part,
    was: Vec<(u64, Vec<u64>)>,
}

impl History {
    fn new() -> Self {
        let part = Part::new(Offset(0));
        Self { was: vec![(0, unsettled(&part))], part }
    }

    fn apply(&mut self, ts: u64, event: &PartEvent) {
        self.part.apply_at(TimestampMs(ts), event, BOUNDS, PAST_WEIGHT_MAX);
        self.was.push((ts, unsettled(&self.part)));
    }

    fn at(&self, instant: u64) -> &[u64] {
        &self.was.iter().rev().find(|(since, _)| *since <= instant).unwrap().1
    }
}

#[derive(Debug, Clone)]
enum Step {
    Settle(u64, u64),
    Seek(u64, bool),
    Wait(u64),
}

fn any_step() -> impl Strategy<Value = Step> {
    prop_oneof![
        5 => (0..END, 1u64..4).prop_map(|(from, len)| Step::Settle(from, from + len)),
        2 => (0..END, any::<bool>()).prop_map(|(to, is_kept)| Step::Seek(to, is_kept)),
        3 => (0u64..50_000).prop_map(Step::Wait),
        2 => (50_000u64..200_000).prop_map(Step::Wait),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 256, ..ProptestConfig::default() })]
    #[test]
    fn what_stood_at_a_time_is_what_stood_at_the_instant_that_is_told(
        steps in proptest::collection::vec(any_step(), 1..50), asked in 0u64..3_000_000,
    ) {
        let (mut history, mut ts) = (History::new(), 120_000);
        for (name, step) in (1u64..).zip(steps) {
            match step {
                Step::Settle(from, to) => history.apply(ts, &settle(from, to)),
                Step::Seek(to, is_kept) => history.apply(ts, &seek(to, if is_kept { name } else { 0 })),
                Step::Wait(ms) => ts += ms,
            }
            let again = Part::decode(&history.part.encode(), BOUNDS).unwrap();
            prop_assert_eq!(&again, &history.part);
            history.part = again;
        }
        let stood = history.part.stood(Moment::At(TimestampMs(asked)), Offset(0), TimestampMs(ts));
        // Fewer minutes than are kept: of every one the beginning is known.
        let stood = stood.unwrap();
        let at = stood.at.unwrap().0;
        prop_assert!(at <= asked && at <= ts);
        let minute = asked.min(ts) / SNAPSHOT_EVERY_MS * SNAPSHOT_EVERY_MS;
        prop_assert!(at + 1 >= minute, "asked for {asked}, told {at}");
        prop_assert_eq!(unsettled(&stood.part), history.at(at));
        let fork = history.part.forked(Moment::At(TimestampMs(asked)), Offset(0), TimestampMs(ts)).unwrap();
        prop_assert_eq!(unsettled(&fork), history.at(at));
        prop_assert_eq!((fork.forked_at().map(|at| at.0), fork.past_len(), fork.kept().count()), (Some(at), 0, 0));
    }
}

#[test]
fn an_hour_is_kept_and_then_the_oldest_is_forgotten() {
    let mut history = History::new();
    for minute in 1..=END {
        history.apply(minute * SNAPSHOT_EVERY_MS, &settle(minute - 1, minute));
    }
    for minute in END + 1..=SNAPSHOTS_MAX as u64 + 5 {
        history.apply(minute * SNAPSHOT_EVERY_MS, &PartEvent::default());
    }
    assert_eq!(
        (history.part.past_len(), history.part.past_weight()),
        (SNAPSHOTS_MAX, SNAPSHOTS_MAX as u64 * 64)
    );
    assert_eq!(history.part.known_from(), TimestampMs(5 * SNAPSHOT_EVERY_MS));
    let at = |ts: u64| history.part.stood(Moment::At(TimestampMs(ts)), Offset(0), TimestampMs(1 << 40));
    assert!(at(5 * SNAPSHOT_EVERY_MS - 1).is_none());
    let oldest = at(5 * SNAPSHOT_EVERY_MS).unwrap();
    assert_eq!(unsettled(&oldest.part), (5..END).collect::<Vec<_>>());
    // What retention has removed since is not unsettled any more.
    let later =
        history.part.stood(Moment::At(TimestampMs(400_000)), Offset(9), TimestampMs(1 << 40)).unwrap();
    assert_eq!(unsettled(&later.part), (9..END).collect::<Vec<_>>());
}

#[test]
fn what_weighs_too_much_is_not_kept_and_the_oldest_make_room() {
    let bounds = Offset(0)..Offset(1 << 20);
    let mut part = Part::new(Offset(0));
    let every_other = |range: Range<u64>| PartEvent {
        settled: range.map(|n| Offset(2 * n + 1)..Offset(2 * n + 2)).collect(),
        ..PartEvent::default()
    };
    let step = |part: &mut Part, minute: u64, event: &PartEvent, room: u64| {
        part.apply_at(TimestampMs(minute * SNAPSHOT_EVERY_MS), event, bounds.clone(), room);
        (part.past_len(), part.past_weight())
    };
    assert_eq!(step(&mut part, 1, &every_other(0..1_000), 10_000), (1, 64), "of before there was anything");
    assert_eq!(step(&mut part, 2, &PartEvent::default(), 10_000), (2, 64 + 1_064));
    assert_eq!(step(&mut part, 3, &PartEvent::default(), 100), (1, 1_064), "two make room for one");
    assert_eq!(step(&mut part, 4, &every_other(1_000..70_000), 10_000), (2, 2 * 1_064));
    assert!(part.settled_above_floor() > SNAPSHOT_WEIGHT_MAX);
    assert_eq!(step(&mut part, 5, &PartEvent::default(), PAST_WEIGHT_MAX), (2, 2 * 1_064), "it is too large");
    let stood =
        part.stood(Moment::At(TimestampMs(5 * SNAPSHOT_EVERY_MS - 1)), Offset(0), TimestampMs(1 << 40));
    let stood = stood.unwrap();
    // The state from minute 4 to 5 was not kept: what stood before is told, and when that ended.
    assert_eq!(
        (stood.part.settled_above_floor(), stood.at),
        (1_000, Some(TimestampMs(4 * SNAPSHOT_EVERY_MS - 1)))
    );
    part.cut(Offset(9));
    assert!(part.past_weight() < 2 * 1_064);
}

#[test]
fn what_an_earlier_build_changed_counts_as_of_always_until_this_one_changes_it() {
    let mut part = Part::new(Offset(0));
    part.apply(&settle(0, 3), BOUNDS);
    let at = |part: &Part, ts| {
        let stood = part.stood(Moment::At(TimestampMs(ts)), Offset(0), TimestampMs(1 << 40))?;
        Some((unsettled(&stood.part)[0], stood.at?.0))
    };
    assert_eq!(at(&part, 5), Some((3, 5)));
    part.apply_at(TimestampMs(90_000), &settle(3, 5), BOUNDS, PAST_WEIGHT_MAX);
    assert_eq!(
        (at(&part, 5), at(&part, 89_999), at(&part, 90_000)),
        (Some((3, 5)), Some((3, 89_999)), Some((5, 90_000)))
    );
    part.apply_at(TimestampMs(95_000), &seek(0, 7), BOUNDS, PAST_WEIGHT_MAX);
    assert_eq!(at(&part, 94_000), Some((5, 94_000)), "what stood before a seek is known by its time as well");
    let before = part.stood(Moment::Before(7), Offset(0), TimestampMs(1 << 40)).unwrap();
    assert_eq!((unsettled(&before.part)[0], before.at), (5, Some(TimestampMs(94_999))));
}
