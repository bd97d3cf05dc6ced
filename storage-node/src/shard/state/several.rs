//! Subscriptions to several topics, over shards that tell each other: whatever is repeated, delayed or restarted, every
//! partition that is meant has its part, and no other has one.

use std::collections::BTreeSet;

use proptest::prelude::*;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId};
use weir_protocol::rpc::{
    At, ConsumedTopic, ListPartsRequest, Refusal, SubscriptionConfig, SubscriptionName,
};

use super::super::command::{
    Change, CreateSubscription, DeleteSubscription, DeleteTopic, UpdateSubscription,
};
use super::super::entry::{Kind, SubBatch};
use super::Verdict;
use super::neighbours::{Neighbours, SHARDS};
use super::parts::PartKey;
use super::tests::{batch, name};

fn subscription(name: &str) -> SubscriptionName {
    SubscriptionName { tenant: "default".into(), namespace: "default".into(), subscription: name.into() }
}

fn config(topic: &str, start: At) -> SubscriptionConfig {
    SubscriptionConfig { topic: topic.into(), start: start.into(), ..SubscriptionConfig::default() }
}

/// Creates a subscription to all topics that begin so; its life.
fn pattern(shards: &mut Neighbours, at: usize, of: &str, config: SubscriptionConfig) -> Option<u64> {
    let create = CreateSubscription {
        name: subscription(of),
        config,
        topic_incarnation: 0,
        shards: SHARDS.map(|shard| shard.0).to_vec(),
        more: Vec::new(),
        fork: None,
    };
    match shards.command(at, Change::CreateSubscription(create)) {
        Verdict::SubscriptionCreated(made) => made.created.then_some(made.subscription.id),
        Verdict::Refused(_) => None,
        other => panic!("{other:?}"),
    }
}

fn publish(shards: &mut Neighbours, at: usize, life: u64, partition: u32, count: u32) {
    let sub = SubBatch::command(batch(0, 0, 0, count));
    let (incarnation, partition) = (Incarnation(life), PartitionId(partition));
    let verdicts =
        shards.entry(at, &[SubBatch { incarnation, partition, kind: Kind::Publish, ..sub }]).1.verdicts;
    assert!(matches!(verdicts[0], Verdict::Placed(_)), "{verdicts:?}");
}

fn delete_topic(shards: &mut Neighbours, at: usize, topic: &str) {
    let delete = DeleteTopic { name: name(topic), incarnation: None, expected_version: None };
    assert!(matches!(shards.command(at, Change::DeleteTopic(delete)), Verdict::Topic(_)));
}

fn floor(shards: &Neighbours, at: usize, key: PartKey) -> Option<Offset> {
    Some(shards.states[at].parts().get(&key)?.part.floor())
}

fn key(subscription: u64, topic: u64, partition: u32) -> PartKey {
    (Incarnation(subscription), (Incarnation(topic), PartitionId(partition)))
}

#[test]
fn what_is_there_starts_as_it_says_and_what_comes_later_at_the_beginning() {
    let mut shards = Neighbours::new();
    let old = shards.created(0, "orders.eu", 3).incarnation;
    shards.created(0, "invoices", 1);
    shards.carry_all();
    (0..3).for_each(|at| publish(&mut shards, at, old, u32::try_from(at).unwrap(), 4));
    let life = pattern(&mut shards, 1, "all", config("orders.*", At::Latest(true))).unwrap();
    shards.carry_all();
    let new = shards.created(2, "orders.us", 3).incarnation;
    publish(&mut shards, 2, new, 0, 2); // before anybody else hears of it
    shards.carry_all();
    for at in 0..3 {
        assert_eq!(floor(&shards, at, key(life, old, u32::try_from(at).unwrap())), Some(Offset(4)));
        let partition = u32::try_from((at + 1) % 3).unwrap(); // its first one is in the third shard
        assert_eq!(floor(&shards, at, key(life, new, partition)), Some(Offset(0)));
        assert_eq!(shards.states[at].parts().len(), 2, "nothing of what does not match");
    }
    let request = ListPartsRequest { subscription: life, incarnations: Vec::new(), is_pattern: true };
    let found = shards.states[0].parts_of(&request).unwrap();
    let found: Vec<_> = found.parts.iter().map(|part| (part.topic.as_str(), part.partition)).collect();
    assert_eq!(found, [("orders.eu", 0), ("orders.us", 1)]);
}

#[test]
fn a_deleted_topic_drops_its_parts_and_a_deleted_subscription_all_of_its() {
    let mut shards = Neighbours::new();
    let (a, b) = (shards.created(0, "a", 3), shards.created(1, "b", 3));
    shards.carry_all();
    let more = vec![ConsumedTopic { incarnation: b.incarnation, shards: b.shards.clone() }];
    let config_of_both =
        SubscriptionConfig { more_topics: vec!["b".into()], ..config("a", At::Earliest(true)) };
    let create = CreateSubscription {
        name: subscription("both"),
        config: config_of_both,
        topic_incarnation: a.incarnation,
        shards: a.shards.clone(),
        more,
        fork: None,
    };
    let again = create.clone();
    assert!(matches!(shards.command(2, Change::CreateSubscription(create)), Verdict::SubscriptionCreated(_)));
    let Verdict::SubscriptionCreated(made) = shards.command(2, Change::CreateSubscription(again.clone()))
    else {
        panic!("it is the same")
    };
    assert!(!made.created);
    let other = CreateSubscription { more: Vec::new(), ..again };
    assert!(matches!(shards.command(2, Change::CreateSubscription(other)), Verdict::Refused(_)));
    let every = pattern(&mut shards, 0, "every", config("*", At::Earliest(true))).unwrap();
    shards.carry_all();
    let count =
        |shards: &Neighbours| shards.states.iter().map(|state| state.parts().len()).collect::<Vec<_>>();
    assert_eq!(count(&shards), [4, 4, 4]);
    delete_topic(&mut shards, 0, "a");
    shards.carry_all();
    assert_eq!(count(&shards), [2, 2, 2], "those of the other topic are left");
    let again = shards.created(0, "a", 1).incarnation;
    assert_eq!(count(&shards), [3, 2, 2], "it matches again, and is another topic for who named it");
    assert!(floor(&shards, 0, key(every, again, 0)).is_some());
    for of in ["both", "every"] {
        let delete = DeleteSubscription { name: subscription(of), expected_version: None, id: None };
        let at = if of == "both" { 2 } else { 0 };
        assert!(matches!(shards.command(at, Change::DeleteSubscription(delete)), Verdict::Subscription(_)));
    }
    shards.carry_all();
    assert_eq!(count(&shards), [0, 0, 0]);
    shards.created(0, "later", 1);
    assert_eq!(count(&shards), [0, 0, 0], "nobody wants it");
}

#[test]
fn a_subscription_waits_where_its_topic_has_not_been_told_of() {
    let mut shards = Neighbours::new();
    let topic = shards.created(0, "a", 3);
    let create = CreateSubscription {
        name: subscription("s"),
        config: config("a", At::Earliest(true)),
        topic_incarnation: topic.incarnation,
        shards: topic.shards.clone(),
        more: Vec::new(),
        fork: None,
    };
    let code = |asked: Result<(), Refusal>| asked.map_err(|refusal| refusal.error_code());
    assert_eq!(code(shards.states[1].may_create(&create)), Err(ErrorCode::ConfigBehind));
    assert_eq!(code(shards.states[0].may_create(&create)), Ok(()), "its own topic it knows");
    shards.carry(0, 1, 1, false);
    assert_eq!(code(shards.states[1].may_create(&create)), Ok(()));
    let Verdict::SubscriptionCreated(made) = shards.command(1, Change::CreateSubscription(create)) else {
        panic!("it is new")
    };
    let made = made.subscription;
    assert_eq!(code(shards.states[2].may_hear(&made, SHARDS[1])), Err(ErrorCode::ConfigBehind));
    assert_eq!(code(shards.states[2].may_hear(&made, SHARDS[0])), Ok(()), "the topic comes before it");
    delete_topic(&mut shards, 0, "a");
    shards.carry(0, 2, 1, false);
    assert_eq!(code(shards.states[2].may_hear(&made, SHARDS[1])), Ok(()));
    shards.carry_all();
    assert_eq!(code(shards.states[2].may_hear(&made, SHARDS[1])), Ok(()), "nothing of it will come");
}

#[test]
fn too_many_partitions_are_left_out_and_a_change_takes_them_in_when_there_is_room() {
    use weir_protocol::limits::{PARTITIONS_MAX, SUBSCRIPTION_PARTS_MAX};
    let mut shards = Neighbours::new();
    let life = pattern(&mut shards, 0, "all", config("t*", At::Earliest(true))).unwrap();
    // A third of each is here, rounded up: two more than there may be.
    let first = shards.created(0, "t1", PARTITIONS_MAX).incarnation;
    ["t2", "t3"].iter().for_each(|topic| drop(shards.created(0, topic, PARTITIONS_MAX)));
    let last = shards.created(0, "t4", 1).incarnation;
    let request = ListPartsRequest { subscription: life, incarnations: Vec::new(), is_pattern: true };
    let found = shards.states[0].parts_of(&request).unwrap();
    assert_eq!((found.parts.len(), found.left_out), (SUBSCRIPTION_PARTS_MAX, 3));
    assert!(
        floor(&shards, 0, key(life, first, 0)).is_some() && floor(&shards, 0, key(life, last, 0)).is_none()
    );
    shards.restart(0);
    delete_topic(&mut shards, 0, "t1");
    let change = |shards: &mut Neighbours| {
        let update = UpdateSubscription {
            name: subscription("all"),
            config: SubscriptionConfig { paused: true, ..config("t*", At::Earliest(true)) },
            id: life,
            expected_version: 1,
        };
        assert!(matches!(shards.command(0, Change::UpdateSubscription(update)), Verdict::Subscription(_)));
    };
    change(&mut shards);
    let found = shards.states[0].parts_of(&request).unwrap();
    assert_eq!((found.parts.len(), found.left_out), (2 * 342 + 1, 0));
    assert_eq!(floor(&shards, 0, key(life, last, 0)), Some(Offset(0)));
}

#[derive(Debug, Clone)]
enum Step {
    CreateTopic(usize, u8, u32),
    DeleteTopic(usize, u8),
    Subscribe(usize, u8),
    Unsubscribe(usize, u8),
    Carry,
    Restart(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let shard = || 0usize..3;
    prop_oneof![
        4 => (shard(), 0u8..6, 1u32..5).prop_map(|(at, topic, parts)| Step::CreateTopic(at, topic, parts)),
        2 => (shard(), 0u8..6).prop_map(|(at, topic)| Step::DeleteTopic(at, topic)),
        2 => (shard(), 0u8..4).prop_map(|(at, of)| Step::Subscribe(at, of)),
        1 => (shard(), 0u8..4).prop_map(|(at, of)| Step::Unsubscribe(at, of)),
        2 => Just(Step::Carry),
        1 => shard().prop_map(Step::Restart),
    ]
}

/// Topics are called a0, a1, .. and b0, b1, ..; each shard has its own.
fn topic_name(at: usize, topic: u8) -> String {
    format!("{}{at}{topic}", if topic.is_multiple_of(2) { "a" } else { "b" })
}

const PREFIXES: [&str; 4] = ["a*", "b*", "*", "a1*"];

proptest! {
    #![proptest_config(ProptestConfig { cases: 16, ..ProptestConfig::default() })]

    #[test]
    fn every_partition_that_matches_has_its_part_and_no_other_has_one(
        steps in proptest::collection::vec(any_step(), 1..50),
    ) {
        let mut shards = Neighbours::new();
        for step in steps {
            match step {
                Step::CreateTopic(at, topic, partitions) => {
                    let name = name(&topic_name(at, topic));
                    if shards.states[at].topics().describe(&name).is_err() {
                        shards.created(at, &name.topic, partitions);
                    }
                }
                Step::DeleteTopic(at, topic) => {
                    let topic = topic_name(at, topic);
                    if shards.states[at].topics().describe(&name(&topic)).is_ok() {
                        delete_topic(&mut shards, at, &topic);
                    }
                }
                Step::Subscribe(at, of) => {
                    let name = format!("{at}{of}");
                    pattern(&mut shards, at, &name, config(PREFIXES[usize::from(of)], At::Earliest(true)));
                }
                Step::Unsubscribe(at, of) => {
                    let name = subscription(&format!("{at}{of}"));
                    let delete = DeleteSubscription { name, expected_version: None, id: None };
                    shards.command(at, Change::DeleteSubscription(delete));
                }
                Step::Carry => shards.carry_all(),
                Step::Restart(at) => shards.restart(at),
            }
        }
        shards.carry_all();
        let mut wanted = BTreeSet::new();
        for home in &shards.states {
            for (life, subscription) in home.subscriptions().lives.iter() {
                for (topic, described) in shards.states.iter().flat_map(|state| state.topics.lives.iter()) {
                    if subscription.config.consumes(described.name()) {
                        let partitions = described.config.partitions;
                        wanted.extend((0..partitions).map(|partition| key(life.0, topic.0, partition)));
                    }
                }
            }
        }
        let found: BTreeSet<PartKey> =
            shards.states.iter().flat_map(|state| state.parts().held.iter().map(|(key, _)| *key)).collect();
        prop_assert_eq!(found, wanted);
        (0..3).for_each(|at| shards.restart(at));
    }
}
