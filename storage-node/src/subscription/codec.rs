//! The bytes of events and parts: pinned, the same for equal values, refused when damaged.

use proptest::prelude::*;
use weir_protocol::ids::{Offset, TimestampMs};

use super::*;

fn hex(bytes: &[u8]) -> String {
    bytes.iter().map(|byte| format!("{byte:02x}")).collect()
}

fn event() -> PartEvent {
    PartEvent {
        settled: vec![Offset(100)..Offset(164), Offset(166)..Offset(167)],
        dead: vec![Dead { offset: Offset(165), attempts: 8, reason: "poison".to_owned() }],
        nacked: vec![
            Nacked { offset: Offset(170), attempts: 1, due: TimestampMs(1_700_000_000_000) },
            Nacked { offset: Offset(164), attempts: 2, due: TimestampMs(1_700_000_000_010) },
        ],
        delivered: vec![Redelivered { offset: Offset(171), attempts: 2, fence: Fence(0) }],
        seek: Some(Seek { to: Offset(7), fence: Fence(3 << 32), keep_as: 9, back_to: 0 }),
        forgotten: None,
        revived: vec![Offset(3)..Offset(5)],
        forgets_dead: false,
        keeps_leases: true,
        voided: Fence(0),
    }
}

fn part() -> Part {
    let mut part = Part::new(Offset(100));
    part.apply(&PartEvent { seek: None, revived: Vec::new(), ..event() }, Offset(90)..Offset(1_000));
    part.dead_queued(1);
    part
}

#[test]
fn the_bytes_are_what_earlier_builds_wrote() {
    assert_eq!(hex(&event().encode()), EVENT);
    assert_eq!(PartEvent::decode(&event().encode()).unwrap(), event());
    assert_eq!(hex(&part().encode()), PART);
    let bytes: Vec<u8> = EVENT_V3
        .as_bytes()
        .chunks(2)
        .map(|hex| u8::from_str_radix(str::from_utf8(hex).unwrap(), 16).unwrap())
        .collect();
    let old = PartEvent::decode(&bytes).unwrap();
    let seek = event().seek.map(|seek| Seek { keep_as: 0, ..seek });
    let keeps_leases = false; // there is nothing of which
    let meant = PartEvent { seek, revived: Vec::new(), forgets_dead: true, keeps_leases, ..event() };
    assert_eq!(old, meant);
    let mut part = Part::new(Offset(100));
    part.apply(&PartEvent { seek: None, ..old }, Offset(90)..Offset(1_000));
    assert_eq!((part.dead(), part.given_up()), (1, 0), "it means what it meant");
}

const EVENT: &str = "0a06c80180010402120d08a50110081a06706f69736f6e1a0cd4020280a0abfef9620b04142203d602042a0a08071080808080301809320206043801";
/// Of a build that could neither go back nor revive.
const EVENT_V3: &str = "0a06c80180010402120d08a50110081a06706f69736f6e1a0cd4020280a0abfef9620b04142203d602042a080807108080808030";
const PART: &str = "080110a4011a200100000000000000000000003a300000010000000000010010000000a500a60020022a14a401028bd095ffbc31060181d095ffbc31010200300138014a1e0100000000000000000000003a300000010000000000000010000000a500";

#[test]
fn what_is_known_of_leases_that_ended_survives_a_checkpoint() {
    let (bounds, mut part) = (Offset(90)..Offset(1_000), part());
    let delivered = vec![Redelivered { offset: Offset(180), attempts: 1, fence: Fence(7 << 32 | 3) }];
    let revived = vec![Offset(165)..Offset(166)];
    part.apply(&PartEvent { delivered, revived, ..PartEvent::default() }, bounds.clone());
    assert_eq!((part.is_revoked(Offset(165)), part.retry(Offset(180)).unwrap().fence.0), (true, 7 << 32 | 3));
    assert_eq!(Part::decode(&part.encode(), bounds.clone()).unwrap(), part);
    let fence = Fence(8 << 32);
    let again = vec![Redelivered { offset: Offset(165), attempts: 1, fence }];
    let voided = Fence(9 << 32);
    part.apply(&PartEvent { delivered: again, voided, ..PartEvent::default() }, bounds);
    assert_eq!((part.is_revoked(Offset(165)), part.retry(Offset(165)).unwrap().fence), (false, fence));
    assert_eq!(part.fence_min(), voided);
}

#[test]
fn acks_in_any_order_coalesce_to_a_few_bytes() {
    let mut event = PartEvent::default();
    (0..1_000).for_each(|at| event.settle(Offset(5_000_000 + at * 7 % 1_000)));
    event.coalesce();
    assert_eq!(event.settled, [Offset(5_000_000)..Offset(5_001_000)]);
    assert!(event.encode().len() <= 8);
    // Every second one, as when two clients share a partition.
    let mut event = PartEvent::default();
    (0..1_000).for_each(|at| event.settle(Offset(5_000_000 + at * 2)));
    assert!(event.encode().len() < 2_010, "{}", event.encode().len());
}

#[test]
fn a_part_is_refused_when_it_contradicts_itself_or_its_partition() {
    let (bytes, bounds) = (part().encode(), Offset(90)..Offset(1_000));
    assert_eq!(Part::decode(&bytes, bounds.clone()).unwrap(), part());
    for bounds in [Offset(165)..Offset(1_000), Offset(90)..Offset(160), Offset(90)..Offset(170)] {
        assert!(matches!(Part::decode(&bytes, bounds), Err(PartError::Contradiction(_))));
    }
    for cut in 1..bytes.len() {
        // What is cut between two fields is a message still: it must contradict itself or be a smaller part.
        if let Ok(found) = Part::decode(&bytes[..cut], bounds.clone()) {
            assert_ne!(found, part());
        }
    }
    let mut other = bytes.clone();
    other[1] = 9;
    assert!(matches!(Part::decode(&other, bounds), Err(PartError::Format(9))));
}

fn any_ranges() -> impl Strategy<Value = Vec<(u64, u64)>> {
    let range = (0u64..200_000, prop_oneof![9 => 1u64..4, 2 => 1u64..6_000, 1 => 60_000u64..90_000]);
    proptest::collection::vec(range, 0..40)
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 48, ..ProptestConfig::default() })]
    #[test]
    fn equal_parts_have_equal_bytes_however_they_came_about(ranges in any_ranges(), singly: bool) {
        let bounds = Offset(0)..Offset(300_000);
        let settled: Vec<_> = ranges.iter().map(|(at, len)| Offset(*at)..Offset(at + len)).collect();
        let mut one = Part::new(Offset(0));
        one.apply(&PartEvent { settled: settled.clone(), ..PartEvent::default() }, bounds.clone());
        let mut two = Part::new(Offset(0));
        for range in settled.into_iter().rev() {
            let mut event = PartEvent::default();
            if singly {
                (range.start.0..range.end.0).rev().for_each(|at| event.settle(Offset(at)));
            } else {
                event.settled.push(range);
            }
            two = Part::decode(&two.encode(), bounds.clone()).unwrap();
            two.apply(&event, bounds.clone());
        }
        prop_assert_eq!(&one, &two);
        prop_assert_eq!(one.encode(), two.encode());
    }

    #[test]
    fn events_come_back_as_they_were(
        ranges in any_ranges(),
        numbers in proptest::collection::vec((any::<u64>(), any::<u32>(), any::<u64>()), 0..9),
        keeps_leases: bool,
        voided: u64,
    ) {
        let event = PartEvent {
            settled: ranges.iter().map(|(at, len)| Offset(*at)..Offset(at + len)).collect(),
            nacked: numbers.iter().map(|&(at, attempts, due)| {
                Nacked { offset: Offset(at), attempts, due: TimestampMs(due) }
            }).collect(),
            delivered: numbers.iter().map(|&(at, attempts, _)| {
                Redelivered { offset: Offset(at), attempts, fence: Fence(at ^ u64::from(attempts)) }
            }).collect(),
            keeps_leases,
            voided: Fence(voided),
            ..event()
        };
        prop_assert_eq!(PartEvent::decode(&event.encode()).unwrap(), event);
    }

    #[test]
    fn damage_is_refused_or_read_but_never_panics(
        noise in proptest::collection::vec(any::<u8>(), 0..80), at: prop::sample::Index, with: u8,
    ) {
        let bounds = Offset(0)..Offset(1_000);
        for mut bytes in [noise, part().encode(), event().encode()] {
            if !bytes.is_empty() {
                let at = at.index(bytes.len());
                bytes[at] = with;
            }
            if let Ok(event) = PartEvent::decode(&bytes) {
                part().apply(&event, bounds.clone());
            }
            if let Ok(found) = Part::decode(&bytes, bounds.clone()) {
                prop_assert!(found.unsettled_from(Offset(0), bounds.end).count() <= 1_000);
            }
        }
    }
}
