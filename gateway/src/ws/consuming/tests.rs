//! What a worker may rely on: every delivery is settled once or told as lost, whatever is asked in whatever order.

use proptest::prelude::*;
use weir_protocol::rpc::Grant;

use super::*;

const PLENTY: Limit = Limit { msgs: 1 << 40, bytes: 1 << 40 };

fn consuming() -> Consuming {
    let mut consuming = Consuming::new(PLENTY, 0);
    consuming.started(&[part(0), part(1), part(2)], false);
    consuming
}

fn part(partition: u32) -> PartName {
    (None, PartitionId(partition))
}

/// Delivers `count` records of a partition from an offset on, with fences from the same number on.
fn deliver(consuming: &mut Consuming, partition: u32, offset: u64, count: u32) -> u64 {
    deliver_run(consuming, (partition, part(partition)), offset, count)
}

fn deliver_of(consuming: &mut Consuming, part: (u32, PartName), offset: u64) {
    deliver_run(consuming, part, offset, 1);
}

fn deliver_run(consuming: &mut Consuming, part: (u32, PartName), offset: u64, count: u32) -> u64 {
    let run = GrantRun { offset, fence: offset + 100, count, attempt: 1, expires_in_ms: 1_000 };
    consuming.deliver(part, &[run], Amount { msgs: count.into(), bytes: 1 }, || 1).unwrap()
}

fn range(first: u64, last: u64) -> NumberRange {
    NumberRange { first, last }
}

fn what(action: SettleAction) -> What {
    let ms = (action == SettleAction::Extend).then_some(5_000);
    What { action, ms, reason: String::new() }
}

fn ask(consuming: &mut Consuming, n: &[NumberRange], action: SettleAction) {
    consuming.ask(Which { n, cum: false, leases: &[] }, &what(action)).unwrap();
}

fn settled(upto: u64, n: &[NumberRange]) -> ServerFrame {
    ServerFrame::Settled(Settled { upto, n: n.to_vec(), leases: Vec::new() })
}

#[test]
fn deliveries_that_follow_each_other_are_settled_as_one_run() {
    let mut worker = consuming();
    deliver(&mut worker, 0, 10, 5);
    for n in 1..=5 {
        ask(&mut worker, &[range(n, n)], SettleAction::Ack);
    }
    let sent = worker.take_calls();
    let run = &sent[0].runs[0];
    assert_eq!((sent.len(), sent[0].runs.len()), (1, 1));
    assert_eq!((run.offset, run.fence, run.count), (10, 110, 5));
    assert_eq!(worker.take_frames(), [], "told when it is committed");
    worker.answered(sent[0].call, &[]);
    assert_eq!(worker.take_frames(), [settled(5, &[range(1, 5)])]);
    assert!(!worker.is_busy());
}

#[test]
fn upto_waits_for_the_first_and_a_cumulative_ack_takes_all_before() {
    let mut worker = consuming();
    deliver(&mut worker, 0, 0, 4);
    deliver(&mut worker, 1, 0, 4);
    ask(&mut worker, &[range(3, 3), range(6, 7)], SettleAction::Ack);
    for sent in worker.take_calls() {
        worker.answered(sent.call, &[]);
    }
    assert_eq!(worker.take_frames(), [settled(0, &[range(3, 3), range(6, 7)])]);
    let cum = Which { n: &[range(7, 7)], cum: true, leases: &[] };
    worker.ask(cum, &what(SettleAction::Ack)).unwrap();
    let sent = worker.take_calls();
    assert_eq!(sent.iter().map(|sent| sent.part).collect::<Vec<_>>(), [0, 1]);
    assert_eq!(sent[0].runs.iter().map(|run| (run.offset, run.count)).collect::<Vec<_>>(), [(0, 2), (3, 1)]);
    sent.iter().for_each(|sent| worker.answered(sent.call, &[]));
    assert_eq!(worker.take_frames(), [settled(7, &[range(1, 2), range(4, 5)])]);
}

#[test]
fn a_lost_lease_is_told_with_the_delivery_that_took_its_place() {
    let mut worker = consuming();
    deliver(&mut worker, 2, 50, 3);
    ask(&mut worker, &[range(1, 3)], SettleAction::Nack);
    let sent = worker.take_calls();
    let current = Some(Grant { offset: 51, fence: 999, attempt: 2, expires_in_ms: 1 });
    let lost = NotDone { run: 0, place: 1, outcome: SettleOutcome::LeaseLost as i32, current };
    worker.answered(sent[0].call, &[lost]);
    let lost = Lost {
        topic: None,
        n: Some(2),
        p: 2,
        o: 51,
        fence: 151,
        result: LostResult::LeaseLost,
        current: Some(Takeover { attempt: 2, fence: 999 }),
    };
    assert_eq!(
        worker.take_frames(),
        [
            ServerFrame::LeaseLost(LeaseLost { n: vec![range(2, 2)], lost: vec![lost] }),
            settled(3, &[range(1, 1), range(3, 3)])
        ]
    );
}

#[test]
fn an_extension_settles_nothing_and_one_that_failed_ends_the_delivery() {
    let mut worker = consuming();
    deliver(&mut worker, 0, 0, 3);
    ask(&mut worker, &[range(1, 3)], SettleAction::Extend);
    let sent = worker.take_calls();
    let lost = NotDone { run: 0, place: 0, outcome: SettleOutcome::AlreadySettled as i32, current: None };
    worker.answered(sent[0].call, &[lost]);
    let frames = worker.take_frames();
    let [ServerFrame::LeaseLost(lost), ServerFrame::Settled(first), ServerFrame::Extended(extended)] =
        &frames[..]
    else {
        panic!("{frames:?}")
    };
    assert_eq!((first.upto, extended.ms, &extended.n[..]), (1, 5_000, &[range(2, 3)][..]));
    assert_eq!((lost.lost[0].result, lost.lost[0].n), (LostResult::AlreadySettled, Some(1)));
    ask(&mut worker, &[range(1, 3)], SettleAction::Ack);
    assert_eq!(worker.take_calls()[0].runs[0].count, 2, "the first is decided");
}

#[test]
fn leases_by_themselves_wait_for_the_subscription_and_partitions_that_are_none_are_told() {
    let mut worker = Consuming::new(PLENTY, 41);
    let leases = [
        LeaseRef { p: 1, o: 7, fence: 8, ..LeaseRef::default() },
        LeaseRef { p: 3, o: 1, fence: 2, ..LeaseRef::default() },
    ];
    worker.ask(Which { n: &[], cum: false, leases: &leases }, &what(SettleAction::Ack)).unwrap();
    assert!(worker.take_calls().is_empty() && !worker.is_idle());
    worker.started(&[part(0), part(1), part(2)], false);
    let sent = worker.take_calls();
    assert_eq!((sent.len(), sent[0].part, sent[0].runs[0].offset), (1, 1, 7));
    worker.answered(sent[0].call, &[]);
    let frames = worker.take_frames();
    let [ServerFrame::LeaseLost(lost), ServerFrame::Settled(done)] = &frames[..] else {
        panic!("{frames:?}")
    };
    assert_eq!((done.upto, &done.leases[..]), (41, &leases[..1]), "numbers go on where they were");
    assert_eq!((lost.lost[0].p, lost.lost[0].result), (3, LostResult::Unknown));
    assert_eq!(deliver(&mut worker, 0, 0, 1), 42);
}

#[test]
fn of_several_topics_a_lease_is_named_with_its_own_and_a_new_life_has_a_part_of_its_own() {
    let topic = |name: &str| Some(Name::new(name).unwrap());
    let mut worker = Consuming::new(PLENTY, 0);
    worker.started(&[(topic("a"), PartitionId(0)), (topic("b"), PartitionId(0))], false);
    let lease = |topic: Option<&str>| LeaseRef { topic: topic.map(str::to_owned), p: 0, o: 7, fence: 8 };
    let leases = [lease(Some("b")), lease(None), lease(Some("c"))];
    worker.ask(Which { n: &[], cum: false, leases: &leases }, &what(SettleAction::Ack)).unwrap();
    let sent = worker.take_calls();
    assert_eq!((sent.len(), sent[0].part), (1, 1));
    worker.answered(sent[0].call, &[]);
    let frames = worker.take_frames();
    let [ServerFrame::LeaseLost(lost), ServerFrame::Settled(done)] = &frames[..] else {
        panic!("{frames:?}")
    };
    assert_eq!(done.leases, leases[..1]);
    let topics: Vec<_> = lost.lost.iter().map(|lost| lost.topic.as_deref()).collect();
    assert_eq!(topics, [None, Some("c")]);
    // The topic was deleted and created again: its old deliveries are settled where they were leased.
    deliver_of(&mut worker, (0, (topic("a"), PartitionId(0))), 5);
    deliver_of(&mut worker, (2, (topic("a"), PartitionId(0))), 5);
    ask(&mut worker, &[range(1, 2)], SettleAction::Ack);
    let sent = worker.take_calls();
    assert_eq!(sent.iter().map(|sent| sent.part).collect::<Vec<_>>(), [0, 2]);
    worker.ask(Which { n: &[], cum: false, leases: &[lease(Some("a"))] }, &what(SettleAction::Ack)).unwrap();
    assert_eq!(worker.take_calls()[0].part, 2, "the newest life is meant");
}

#[test]
fn a_number_that_was_never_delivered_is_an_error_and_one_asked_twice_is_not() {
    let mut worker = consuming();
    deliver(&mut worker, 0, 0, 2);
    let which = |n| Which { n, cum: false, leases: &[] };
    assert_eq!(worker.ask(which(&[range(2, 3)]), &what(SettleAction::Ack)), Err(NeverDelivered(3)));
    ask(&mut worker, &[range(1, 2), range(1, 1)], SettleAction::Ack);
    ask(&mut worker, &[range(0, 2)], SettleAction::Nack);
    let sent = worker.take_calls();
    assert_eq!((sent.len(), sent[0].runs.len()), (1, 1), "{sent:?}");
}

#[test]
fn what_a_worker_never_settles_is_bounded_and_told() {
    let mut worker = consuming();
    let runs = OPEN_MAX as u64 + 3;
    for n in 0..runs {
        deliver(&mut worker, 0, 2 * n, 1);
    }
    assert_eq!(worker.open.len(), OPEN_MAX);
    let frames = worker.take_frames();
    let [ServerFrame::LeaseLost(lost), ServerFrame::Settled(done)] = &frames[..] else {
        panic!("{frames:?}")
    };
    assert_eq!((done.upto, &lost.n[..]), (3, &[range(1, 3)][..]));
}

#[test]
fn settles_under_way_are_bounded_and_what_waits_goes_together() {
    let mut worker = consuming();
    deliver(&mut worker, 0, 0, 100);
    let mut calls = Vec::new();
    for n in 1..=100 {
        ask(&mut worker, &[range(n, n)], SettleAction::Ack);
        calls.extend(worker.take_calls());
    }
    assert_eq!(calls.len(), CALLS_MAX);
    worker.answered(calls[0].call, &[]);
    let rest = worker.take_calls();
    assert_eq!((rest.len(), rest[0].runs.len()), (1, 1));
    assert_eq!(rest[0].runs[0].count as usize, 100 - CALLS_MAX);
}

proptest! {
    #[test]
    fn every_delivery_is_decided_exactly_once(
        steps in proptest::collection::vec((0u8..4, any::<prop::sample::Index>(), 1u64..9, any::<u64>()), 1..80),
    ) {
        let mut worker = consuming();
        let (mut delivered, mut offset) = (0u64, 0u64);
        let (mut decided, mut leases) = (std::collections::BTreeSet::new(), std::collections::BTreeSet::new());
        let mut calls: Vec<Sent> = Vec::new();
        let mut finish = |worker: &mut Consuming, sent: &Sent, noise: u64| {
            let mut not_done = Vec::new();
            for (run, asked) in (0u32..).zip(&sent.runs) {
                for place in 0..asked.count {
                    if asked.action != SettleAction::Extend as i32 {
                        let lease = (sent.part, asked.offset + u64::from(place));
                        assert!(leases.insert(lease), "{lease:?} is settled twice");
                    }
                    if (noise >> (place % 64)) & 1 == 1 {
                        let outcome = SettleOutcome::LeaseLost as i32;
                        not_done.push(NotDone { run, place, outcome, current: None });
                    }
                }
            }
            worker.answered(sent.call, &not_done);
        };
        let (mut upto, mut settled_once) = (0, std::collections::BTreeSet::new());
        for (kind, index, count, noise) in steps {
            match kind {
                0 => {
                    deliver(&mut worker, u32::try_from(count % 3).unwrap(), offset, u32::try_from(count).unwrap());
                    (delivered, offset) = (delivered + count, offset + count + noise % 2);
                }
                1 if delivered > 0 => {
                    let first = 1 + index.index(usize::try_from(delivered).unwrap()) as u64;
                    let action =
                        [SettleAction::Ack, SettleAction::Nack, SettleAction::Extend][usize::try_from(noise % 3).unwrap()];
                    ask(&mut worker, &[range(first, delivered.min(first + count))], action);
                }
                2 => calls.extend(worker.take_calls()),
                _ if !calls.is_empty() => finish(&mut worker, &calls.remove(index.index(calls.len())), noise),
                _ => {}
            }
            for frame in worker.take_frames() {
                match frame {
                    ServerFrame::Settled(settled) => {
                        prop_assert!(settled.upto >= upto);
                        upto = settled.upto;
                        for n in settled.n.iter().flat_map(|range| range.first..=range.last) {
                            // An extension that came before may have failed.
                            prop_assert!(settled_once.insert(n), "{n} is settled twice");
                            decided.insert(n);
                        }
                    }
                    ServerFrame::LeaseLost(lost) => {
                        for lost in lost.lost {
                            decided.insert(lost.n.unwrap());
                        }
                    }
                    ServerFrame::Extended(_) => {}
                    other => prop_assert!(false, "{other:?}"),
                }
                prop_assert!((1..=upto).all(|n| decided.contains(&n)), "up to {upto}");
            }
        }
        if delivered > 0 {
            ask(&mut worker, &[range(1, delivered)], SettleAction::Ack);
        }
        while !worker.is_idle() {
            calls.extend(worker.take_calls());
            for sent in std::mem::take(&mut calls) {
                finish(&mut worker, &sent, 0);
            }
        }
        prop_assert!(!worker.is_busy());
    }
}

#[test]
fn a_number_that_is_named_a_thousand_times_costs_one_look() {
    let mut worker = consuming();
    deliver(&mut worker, 0, 0, 4);
    let often: Vec<_> = (0..1_000).map(|n| range(1 + n % 3, 4)).collect();
    ask(&mut worker, &often, SettleAction::Extend);
    assert_eq!(worker.pending_runs(), 1);
    let sent = worker.take_calls();
    assert_eq!(sent.iter().map(|sent| sent.runs.len()).sum::<usize>(), 1, "{sent:?}");
    assert_eq!((sent[0].runs[0].offset, sent[0].runs[0].count), (0, 4));
}

#[test]
fn settles_with_long_reasons_go_in_calls_that_a_node_takes() {
    let mut worker = consuming();
    (0..5_000).for_each(|n| _ = deliver(&mut worker, 0, 2 * n, 1));
    let reason = "y".repeat(weir_protocol::limits::SETTLE_REASON_BYTES_MAX);
    let what = What { reason, ..what(SettleAction::Dead) };
    worker.ask(Which { n: &[range(1, 5_000)], cum: false, leases: &[] }, &what).unwrap();
    let mut count = 0;
    while worker.pending_runs() > 0 {
        for sent in worker.take_calls() {
            let bytes: usize = sent.runs.iter().map(|run| run.reason.len()).sum();
            assert!(bytes <= 1 << 20, "{bytes} bytes of reasons");
            count += sent.runs.len();
            worker.answered(sent.call, &[]);
        }
    }
    assert_eq!(count, 5_000);
    assert_eq!(worker.take_frames(), [settled(5_000, &[range(1, 5_000)])]);
}

#[test]
fn of_a_stream_an_acknowledgement_covers_what_came_before_it_of_its_part_and_nothing_of_others() {
    let mut reader = Consuming::new(PLENTY, 0);
    reader.started(&[part(0), part(1)], true);
    deliver(&mut reader, 0, 0, 1);
    deliver(&mut reader, 0, 1, 2);
    deliver(&mut reader, 1, 0, 3);
    deliver(&mut reader, 0, 3, 2);
    assert_eq!(reader.open.len(), 3, "what follows is one run");
    ask(&mut reader, &[range(7, 7)], SettleAction::Ack);
    let sent = reader.take_calls();
    let runs: Vec<_> = sent[0].runs.iter().map(|run| (run.offset, run.count)).collect();
    assert_eq!((sent.len(), sent[0].part, runs), (1, 0, vec![(0, 3), (3, 1)]));
    reader.answered(sent[0].call, &[]);
    assert_eq!(reader.take_frames(), [settled(3, &[range(1, 3), range(7, 7)])]);
    ask(&mut reader, &[range(5, 5)], SettleAction::Ack);
    let sent = reader.take_calls();
    assert_eq!((sent[0].part, sent[0].runs[0].offset, sent[0].runs[0].count), (1, 0, 2));
    reader.answered(sent[0].call, &[]);
    assert_eq!(reader.take_frames(), [settled(5, &[range(4, 5)])]);
    // One record at a time, acknowledged at the end.
    for offset in 5..20_000 {
        deliver(&mut reader, 0, offset, 1);
    }
    assert!(reader.take_frames().is_empty(), "none is lost");
}
