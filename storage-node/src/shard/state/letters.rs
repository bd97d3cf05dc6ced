//! Tests of dead letters: what is on its way keeps nobody else waiting, and does not hold the log for ever.

use proptest::prelude::*;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{LogIndex, Offset};
use weir_protocol::rpc::{At, PartRef, SubscriptionConfig, SubscriptionName, TopicConfig};

use super::super::command::{Buried, Change, ChangePart, CreateSubscription, UpdateTopic};
use super::dead_letters::{DeadLetter, DeadLetters};
use super::sealing::Shard;
use super::tests::{config, name};
use super::{BatchRow, Verdict};
use crate::subscription::{Dead, PartEvent};

/// A shard with so many topics, each with a queue whose dead letters go to `to`.
fn shard(topics: u64, to: impl Fn(u64) -> String) -> Shard {
    let mut shard = Shard::new(topics);
    for n in 0..topics {
        let name = SubscriptionName {
            tenant: "default".into(),
            namespace: "default".into(),
            subscription: format!("s{n}"),
        };
        let config = SubscriptionConfig {
            topic: format!("t{n}"),
            dead_letter_topic: Some(to(n)),
            start: At::Earliest(true).into(),
            ..SubscriptionConfig::default()
        };
        let create = CreateSubscription {
            name,
            config,
            topic_incarnation: Shard::key(n).0.0,
            shards: vec![5],
            more: Vec::new(),
            fork: None,
        };
        let Verdict::SubscriptionCreated(made) = shard.command(Change::CreateSubscription(create)) else {
            panic!("it is new")
        };
        assert_eq!(made.subscription.id, part(topics, n).subscription);
    }
    shard
}

/// Its parts have the lives after those of the topics.
fn part(topics: u64, n: u64) -> PartRef {
    let (life, partition) = Shard::key(n);
    PartRef { subscription: Shard::key(topics + n).0.0, incarnation: life.0, partition: partition.0 }
}

fn give_up(shard: &mut Shard, part: PartRef, offset: u64) -> Verdict {
    let dead = vec![Dead { offset: Offset(offset), attempts: 1, reason: "bad".into() }];
    let event = PartEvent { dead, ..PartEvent::default() }.encode().into();
    shard.command(Change::ChangePart(ChangePart { part, event, ..ChangePart::default() }))
}

fn settle(shard: &mut Shard, part: PartRef, upto: u64) {
    let settled = vec![Offset(0)..Offset(upto)];
    let event = PartEvent { settled, ..PartEvent::default() }.encode().into();
    let done = shard.command(Change::ChangePart(ChangePart { part, event, ..ChangePart::default() }));
    assert_eq!(done, Verdict::Done);
}

fn arrived(shard: &mut Shard, arrived: Vec<u64>) {
    let buried = Buried { upto: 0, arrived, unreadable: Vec::new() };
    assert_eq!(shard.command(Change::Buried(buried)), Verdict::Done);
}

fn numbers(shard: &Shard) -> Vec<u64> {
    shard.state.dead_letters().iter().map(|letter| letter.seq).collect()
}

#[test]
fn letters_arrive_one_by_one_and_those_of_each_topic_in_their_order() {
    let mut shard = shard(2, |n| format!("dead{n}"));
    let parts = [part(2, 0), part(2, 1)];
    for n in 0..2 {
        shard.publish(n);
    }
    for offset in 0..3 {
        parts.iter().for_each(|part| assert_eq!(give_up(&mut shard, *part, offset), Verdict::Done));
    }
    let of = |shard: &Shard, topic: &str, from: u64| {
        let topic = name(topic);
        let letters = shard.state.dead_letters().oldest(&topic, from..);
        letters.map(|letter| letter.seq).collect::<Vec<_>>()
    };
    assert_eq!(shard.state.dead_letters().waiting(), [name("dead0"), name("dead1")]);
    assert_eq!((of(&shard, "dead0", 0), of(&shard, "dead1", 2)), (vec![0, 2, 4], vec![3, 5]));
    // Those of the first topic go nowhere; the others do.
    arrived(&mut shard, vec![1, 3, 77]);
    assert_eq!(numbers(&shard), [0, 2, 4, 5]);
    let pending = |shard: &Shard, n: u64| {
        let part = part(2, n);
        let key = (weir_protocol::ids::Incarnation(part.subscription), Shard::key(n));
        shard.state.parts().get(&key).unwrap().part.dead_pending()
    };
    assert_eq!((pending(&shard, 0), pending(&shard, 1)), (3, 1));
    // The second of them cannot be read: it stands behind all others.
    let buried = Buried { upto: 0, arrived: Vec::new(), unreadable: vec![2] };
    shard.command(Change::Buried(buried));
    assert_eq!((of(&shard, "dead0", 0), numbers(&shard)), (vec![0, 4, 6], vec![0, 4, 5, 6]));
    assert_eq!(pending(&shard, 0), 3, "it is still on its way");
    arrived(&mut shard, vec![0, 4, 6, 5]);
    assert!(shard.state.dead_letters().is_empty() && shard.state.dead_letters().waiting().is_empty());
}

#[test]
fn what_a_pack_has_taken_pins_the_log_no_longer_and_its_pack_stays_until_it_has_arrived() {
    let mut shard = shard(1, |_| "gone".into());
    let first = shard.publish(0);
    give_up(&mut shard, part(1, 0), 1);
    settle(&mut shard, part(1, 0), 3);
    shard.publish(0);
    assert_eq!(shard.state.needed_from(), Some(first));
    assert!(shard.seal(1, &[(0, 0, 3)]));
    assert_ne!(shard.state.needed_from(), Some(first), "or a topic that is missing fills the journal");
    shard.trim(0, 3);
    assert_eq!(shard.live(), [1], "the letter is read from there");
    arrived(&mut shard, vec![0]);
    assert_eq!(shard.live(), [0u128; 0]);
}

#[test]
fn what_goes_once_it_is_settled_stays_until_its_letter_has_arrived_or_is_in_a_pack() {
    for is_sealed in [false, true] {
        let mut shard = shard(1, |_| "gone".into());
        let (life, _) = Shard::key(0);
        let config = TopicConfig { retention_until_settled: true, ..config(1) };
        let update = UpdateTopic { name: name("t0"), config, incarnation: life.0, expected_version: 1 };
        assert!(matches!(shard.command(Change::UpdateTopic(update)), Verdict::Topic(_)));
        let first = shard.publish(0);
        let second = shard.publish(0);
        let start = |shard: &Shard| shard.state.partition(Shard::key(0)).unwrap().start.0;
        give_up(&mut shard, part(1, 0), 4);
        settle(&mut shard, part(1, 0), 6);
        assert_eq!((start(&shard), shard.state.needed_from()), (3, Some(second)), "after {first}");
        let named = shard.state.pinned_for_letters().map(|topic| topic.topic.as_str());
        assert_eq!(named, Some("gone"), "its messages would be gone but for the letter");
        if is_sealed {
            assert!(shard.seal(1, &[(0, 3, 6)]));
            assert_eq!((start(&shard), shard.state.needed_from(), shard.live()), (6, None, vec![1]));
        }
        arrived(&mut shard, vec![0]);
        assert_eq!((start(&shard), shard.state.needed_from(), shard.live()), (6, None, Vec::new()));
    }
}

fn letter(topic: &str, at: u64) -> DeadLetter {
    let name =
        SubscriptionName { tenant: "default".into(), namespace: "default".into(), subscription: "s".into() };
    let batch = BatchRow {
        base_offset: Offset(at),
        count: 1,
        len: 1,
        ts: weir_protocol::ids::TimestampMs(0),
        index: LogIndex(at),
        pos: 0,
    };
    DeadLetter {
        seq: 0,
        topic: super::tests::name(topic),
        source_topic: "t".into(),
        subscription: Shard::key(9).0,
        name: std::sync::Arc::new(name),
        from: Shard::key(0),
        offset: Offset(at),
        batch,
        pack: None,
        attempts: 1,
        reason: "bad".into(),
    }
}

#[test]
fn topics_that_take_no_letters_leave_room_for_those_of_others() {
    let mut letters = DeadLetters::default();
    let mut fill = |topic: &str| {
        let mut count = 0;
        while let Ok(()) = letters.has_room(&name(topic), 1) {
            letters.push(letter(topic, count));
            count += 1;
        }
        let refused = letters.has_room(&name(topic), 1).unwrap_err();
        assert_eq!(refused.error_code(), ErrorCode::Busy);
        assert!(refused.retry_after_ms.is_some() && refused.detail.contains(topic), "{}", refused.detail);
        count
    };
    assert_eq!([fill("a"), fill("b"), fill("c")], [50_000, 25_000, 12_500]);
    assert_eq!(letters.len(), 87_500);
}

#[derive(Debug, Clone)]
enum Step {
    Push(u8, u64),
    Arrive(Vec<u64>),
    Unreadable(Vec<u64>),
    Pack(u64, u64),
    Checkpoint,
}

fn any_step() -> impl Strategy<Value = Step> {
    let some = || proptest::collection::vec(0u64..40, 0..4);
    prop_oneof![
        5 => (0u8..3, 0u64..20).prop_map(|(topic, at)| Step::Push(topic, at)),
        2 => some().prop_map(Step::Arrive),
        1 => some().prop_map(Step::Unreadable),
        1 => (0u64..20, 1u64..5).prop_map(|(from, count)| Step::Pack(from, count)),
        1 => Just(Step::Checkpoint),
    ]
}

proptest! {
    /// A plain list is the model: numbers ascend, each letter is there once until it arrives, and all that
    /// follows does.
    #[test]
    fn letters_cannot_be_told_from_a_list(steps in proptest::collection::vec(any_step(), 1..80)) {
        let (mut letters, mut list, mut next) = (DeadLetters::default(), Vec::<DeadLetter>::new(), 0u64);
        for step in steps {
            match step {
                Step::Push(topic, at) => {
                    let letter = letter(&format!("d{topic}"), at);
                    letters.push(letter.clone());
                    list.push(DeadLetter { seq: next, ..letter });
                    next += 1;
                }
                Step::Arrive(seqs) => {
                    seqs.iter().for_each(|seq| drop(letters.take(*seq)));
                    list.retain(|letter| !seqs.contains(&letter.seq));
                }
                Step::Unreadable(seqs) => {
                    for seq in seqs {
                        let taken = letters.take(seq);
                        let at = list.iter().position(|letter| letter.seq == seq);
                        prop_assert_eq!(taken.is_some(), at.is_some());
                        if let (Some(taken), Some(at)) = (taken, at) {
                            letters.push(std::sync::Arc::unwrap_or_clone(taken));
                            let letter = list.remove(at);
                            list.push(DeadLetter { seq: next, ..letter });
                            next += 1;
                        }
                    }
                }
                Step::Pack(from, count) => {
                    let taken = letters.packed(Shard::key(0), Offset(from)..Offset(from + count), 7);
                    let mut packed = 0;
                    for letter in &mut list {
                        let is_in = (from..from + count).contains(&letter.offset.0) && letter.pack.is_none();
                        letter.pack = if is_in { Some(7) } else { letter.pack };
                        packed += usize::from(is_in);
                    }
                    prop_assert_eq!(taken, packed);
                }
                Step::Checkpoint => {
                    let all: Vec<_> = letters.iter().cloned().collect();
                    letters = DeadLetters::restored(next, all).unwrap();
                }
            }
            letters.check();
            prop_assert_eq!(letters.iter().cloned().collect::<Vec<_>>(), list.clone());
            let in_log = || list.iter().filter(|letter| letter.pack.is_none());
            prop_assert_eq!(letters.needed_from(), in_log().map(|letter| letter.batch.index).min());
            let first = letters.first_unpacked(Shard::key(0), Offset(5));
            prop_assert_eq!(first, in_log().map(|letter| letter.offset).filter(|at| at.0 >= 5).min());
        }
    }
}
