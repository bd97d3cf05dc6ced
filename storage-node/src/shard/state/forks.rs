//! Forks over shards that tell each other: each begins as its source stood, the source does not notice, and
//! one that cannot begin everywhere is nowhere, whatever is repeated, lost or restarted.

use proptest::prelude::*;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId};
use weir_protocol::rpc::{
    At, ForkOrigin, PartRef, SubscriptionConfig, SubscriptionDescription, SubscriptionName, TopicDescription,
};

use super::super::command::{
    Change, ChangePart, CreateSubscription, DeleteSubscription, DeleteTopic, UpdateSubscription,
};
use super::super::entry::{Kind, SubBatch};
use super::Verdict;
use super::neighbours::{Neighbours, SHARDS};
use super::tests::{batch, name};
use crate::subscription::{Dead, Fence, Nacked, Part, PartEvent, Seek};

/// Messages of each partition.
const END: u64 = 12;

fn subscription(name: &str) -> SubscriptionName {
    SubscriptionName { tenant: "default".into(), namespace: "default".into(), subscription: name.into() }
}

/// Three shards, a topic with a partition in each, and a subscription to it.
struct World {
    shards: Neighbours,
    topic: TopicDescription,
    source: SubscriptionDescription,
}

impl World {
    fn new(topic: &str) -> Self {
        let mut shards = Neighbours::new();
        let made = shards.created(0, "in", 3);
        shards.carry_all();
        let config = SubscriptionConfig {
            topic: topic.into(),
            start: At::Earliest(true).into(),
            ..SubscriptionConfig::default()
        };
        let is_pattern = config.prefix().is_some();
        let create = CreateSubscription {
            name: subscription("source"),
            config,
            topic_incarnation: if is_pattern { 0 } else { made.incarnation },
            shards: if is_pattern { SHARDS.map(|shard| shard.0).to_vec() } else { made.shards.clone() },
            more: Vec::new(),
            fork: None,
        };
        let Verdict::SubscriptionCreated(source) = shards.command(2, Change::CreateSubscription(create))
        else {
            panic!("it is new")
        };
        shards.carry_all();
        let mut world = Self { shards, topic: made, source: source.subscription };
        (0..3).for_each(|shard| world.publish(shard));
        world
    }

    fn publish(&mut self, shard: usize) {
        let (incarnation, partition) = (Incarnation(self.topic.incarnation), self.partition(shard));
        let count = u32::try_from(END).unwrap();
        let sub = SubBatch::command(batch(0, 0, 0, count));
        let publish = SubBatch { incarnation, partition, kind: Kind::Publish, ..sub };
        assert!(matches!(self.shards.entry(shard, &[publish]).1.verdicts[0], Verdict::Placed(_)));
    }

    /// The topic's partition that lies in a shard.
    fn partition(&self, shard: usize) -> PartitionId {
        let at = self.topic.shards.iter().position(|placed| *placed == SHARDS[shard].0).unwrap();
        PartitionId(u32::try_from(at).unwrap())
    }

    fn change(&mut self, life: u64, shard: usize, event: &PartEvent) {
        let part = PartRef {
            subscription: life,
            incarnation: self.topic.incarnation,
            partition: self.partition(shard).0,
        };
        let change =
            ChangePart { part, event: event.encode().into(), keeps_past: true, ..ChangePart::default() };
        assert_eq!(self.shards.command(shard, Change::ChangePart(change)), Verdict::Done);
    }

    fn settle(&mut self, life: u64, shard: usize, from: u64, to: u64) {
        let settled = vec![Offset(from)..Offset(to)];
        self.change(life, shard, &PartEvent { settled, ..PartEvent::default() });
    }

    fn seek(&mut self, shard: usize, to: u64, keep_as: u64) {
        let seek = Seek { to: Offset(to), fence: Fence(1), keep_as, back_to: 0 };
        self.change(self.source.id, shard, &PartEvent { seek: Some(seek), ..PartEvent::default() });
    }

    fn forking(&self, of: &str, snapshot: u64) -> CreateSubscription {
        let source = &self.source;
        let origin = ForkOrigin { subscription: "source".into(), id: source.id, snapshot, at_ms: None };
        CreateSubscription {
            name: subscription(of),
            config: SubscriptionConfig { lease_ms: 5_000, ..source.config.clone() },
            topic_incarnation: source.topic_incarnation,
            shards: source.shards.clone(),
            more: source.more.clone(),
            fork: Some(origin),
        }
    }

    /// Forks in the shard `home`; the life of what is made, before the others have heard of it.
    fn fork(&mut self, home: usize, of: &str, snapshot: u64) -> Result<u64, ErrorCode> {
        let create = self.forking(of, snapshot);
        self.create(home, create)
    }

    fn create(&mut self, home: usize, create: CreateSubscription) -> Result<u64, ErrorCode> {
        match self.shards.command(home, Change::CreateSubscription(create)) {
            Verdict::SubscriptionCreated(made) => Ok(made.subscription.id),
            Verdict::Refused(refusal) => Err(refusal.error_code()),
            other => panic!("{other:?}"),
        }
    }

    /// The same, of a time.
    fn fork_at(&mut self, home: usize, of: &str, at_ms: u64) -> Result<u64, ErrorCode> {
        let mut create = self.forking(of, 0);
        create.fork.iter_mut().for_each(|origin| origin.at_ms = Some(at_ms));
        self.create(home, create)
    }

    fn part(&self, life: u64, shard: usize) -> Option<&Part> {
        let key = (Incarnation(life), (Incarnation(self.topic.incarnation), self.partition(shard)));
        Some(&self.shards.states[shard].parts().get(&key)?.part)
    }

    fn unsettled(&self, life: u64, shard: usize) -> Option<Vec<u64>> {
        let runs = self.part(life, shard)?.unsettled_from(Offset(0), Offset(END));
        Some(runs.flat_map(|run| run.start.0..run.end.0).collect())
    }

    /// How many shards have anything of a subscription.
    fn shards_with(&self, life: u64) -> usize {
        let has = |shard: &usize| {
            let state = &self.shards.states[*shard];
            self.part(life, *shard).is_some()
                || state.subscriptions().life(Incarnation(life)).is_some()
                || state.patterns.lives.contains_key(&Incarnation(life))
        };
        (0..3).filter(has).count()
    }
}

#[test]
fn a_fork_begins_as_its_source_stands_and_both_go_on_by_themselves() {
    let mut world = World::new("in");
    let source = world.source.id;
    world.settle(source, 0, 0, 3);
    world.settle(source, 1, 5, 9);
    let dead = vec![Dead { offset: Offset(3), attempts: 4, reason: "no".into() }];
    let nacked = vec![Nacked { offset: Offset(4), attempts: 2, due: weir_protocol::ids::TimestampMs(9_000) }];
    world.change(source, 1, &PartEvent { dead, nacked, ..PartEvent::default() });
    let fork = world.fork(0, "fork", 0).unwrap();
    world.shards.carry_all();
    (0..3).for_each(|shard| world.shards.restart(shard));
    for shard in 0..3 {
        assert_eq!(world.unsettled(fork, shard), world.unsettled(source, shard), "shard {shard}");
    }
    let part = world.part(fork, 1).unwrap();
    assert_eq!((part.dead(), part.dead_pending(), part.given_up(), part.attempts(Offset(4))), (1, 0, 1, 2));
    world.settle(source, 1, 0, 3);
    world.settle(fork, 1, 9, 12);
    world.settle(fork, 0, 3, 12);
    assert_eq!(world.unsettled(source, 1).unwrap(), [4, 9, 10, 11]);
    assert_eq!(world.unsettled(fork, 1).unwrap(), [0, 1, 2, 4]);
    assert_eq!(world.unsettled(source, 0).unwrap(), (3..12).collect::<Vec<_>>());
    let delete = DeleteSubscription { name: subscription("source"), expected_version: None, id: None };
    assert!(matches!(world.shards.command(2, Change::DeleteSubscription(delete)), Verdict::Subscription(_)));
    world.shards.carry_all();
    assert_eq!((world.shards_with(source), world.shards_with(fork)), (0, 3));
    // Told again, it needs no source.
    let config = SubscriptionConfig { paused: true, ..world.forking("fork", 0).config };
    let update = UpdateSubscription { name: subscription("fork"), config, id: fork, expected_version: 1 };
    assert!(matches!(world.shards.command(0, Change::UpdateSubscription(update)), Verdict::Subscription(_)));
    world.shards.carry_all();
    assert_eq!(world.unsettled(fork, 1).unwrap(), [0, 1, 2, 4]);
    assert_eq!(world.fork(1, "late", 0), Err(ErrorCode::SnapshotGone));
}

#[test]
fn a_fork_of_what_stood_before_a_seek_has_what_was_unsettled_then() {
    for topic in ["in", "i*"] {
        let mut world = World::new(topic);
        let source = world.source.id;
        for shard in 0..3 {
            world.settle(source, shard, 2, 5);
            world.seek(shard, END, 7);
        }
        let fork = world.fork(0, "fork", 7).unwrap();
        world.shards.carry_all();
        for shard in 0..3 {
            assert_eq!(world.unsettled(source, shard).unwrap(), [0u64; 0]);
            assert_eq!(world.unsettled(fork, shard).unwrap(), [0, 1, 5, 6, 7, 8, 9, 10, 11], "{topic}");
            assert_eq!(world.part(fork, shard).unwrap().kept().count(), 0, "its seeks are not the source's");
        }
    }
}

#[test]
fn a_fork_that_exists_is_the_same_one_and_another_origin_is_another_configuration() {
    let mut world = World::new("in");
    (0..3).for_each(|shard| world.seek(shard, 4, 7));
    let fork = world.fork(1, "fork", 7).unwrap();
    world.shards.carry_all();
    assert_eq!(world.fork(1, "fork", 7), Ok(fork));
    assert_eq!(world.fork(1, "fork", 0), Err(ErrorCode::ConfigMismatch));
    (0..3).for_each(|shard| (11..16).for_each(|name| world.seek(shard, 4, name)));
    assert_eq!(world.fork(1, "fork", 7), Ok(fork), "also when nobody could make it any more");
    assert_eq!(world.fork(1, "other", 7), Err(ErrorCode::SnapshotGone));
    let plain = CreateSubscription { fork: None, ..world.forking("fork", 0) };
    let found = world.shards.command(1, Change::CreateSubscription(plain));
    assert!(
        matches!(found, Verdict::SubscriptionCreated(made) if !made.created),
        "it is configured like that"
    );
}

#[test]
fn what_one_partition_cannot_begin_is_taken_back_everywhere() {
    for topic in ["in", "in*"] {
        let mut world = World::new(topic);
        (0..2).for_each(|shard| world.seek(shard, 4, 7));
        assert_eq!(world.fork(2, "here", 7), Err(ErrorCode::SnapshotGone), "its own shard has none");
        let before = world.shards.states[2].encode();
        let fork = world.fork(0, "fork", 7).unwrap();
        // Told twice, and crashed in between: it is refused again.
        world.shards.carry(0, 2, 1, true);
        world.shards.restart(2);
        world.shards.carry_all();
        assert_eq!(world.shards_with(fork), 0, "{topic}");
        assert_eq!(before.len(), world.shards.states[2].encode().len());
        // A second attempt is a new one, with another life.
        world.seek(2, 4, 7);
        let again = world.fork(0, "fork", 7).unwrap();
        world.shards.carry_all();
        assert!(again != fork && world.shards_with(again) == 3, "{topic}");
    }
}

#[test]
fn a_fork_of_a_time_begins_as_each_partition_stood_then_also_one_that_never_changed() {
    for topic in ["in", "in*"] {
        let mut world = World::new(topic);
        let source = world.source.id;
        world.settle(source, 0, 0, 2);
        world.shards.waited_ms += 120_000;
        let asked = world.shards.states[0].last_ts().0 + 60_000;
        world.shards.waited_ms += 120_000;
        (0..2).for_each(|shard| world.settle(source, shard, 4, 9));
        (0..3).for_each(|shard| world.shards.restart(shard));
        let fork = world.fork_at(1, "fork", asked).unwrap();
        world.shards.carry_all();
        (0..3).for_each(|shard| world.shards.restart(shard));
        let all: Vec<u64> = (0..END).collect();
        assert_eq!(world.unsettled(fork, 0).unwrap(), all[2..], "{topic}");
        assert_eq!(
            (world.unsettled(fork, 1).unwrap(), world.unsettled(fork, 2).unwrap()),
            (all.clone(), all.clone())
        );
        assert_eq!(world.part(fork, 0).unwrap().forked_at().map(|at| at.0), Some(asked));
        // An hour of changes in one partition drives out what stood then, and that one keeps the whole from
        // being forked.
        for _ in 0..61 {
            world.shards.waited_ms += 60_000;
            world.settle(source, 1, 0, 1);
        }
        let late = world.fork_at(0, "late", asked).unwrap();
        world.shards.carry_all();
        assert_eq!(world.shards_with(late), 0, "{topic}");
        assert_eq!(world.fork_at(1, "late", asked), Err(ErrorCode::SnapshotGone));
    }
}

#[test]
fn a_partition_of_a_deleted_topic_keeps_no_fork_from_being_made() {
    let mut world = World::new("in*");
    let gone = world.shards.created(1, "in.gone", 3);
    world.shards.carry_all();
    let delete =
        DeleteTopic { name: name("in.gone"), incarnation: Some(gone.incarnation), expected_version: None };
    assert!(matches!(world.shards.command(1, Change::DeleteTopic(delete)), Verdict::Topic(_)));
    let fork = world.fork(0, "fork", 0).unwrap();
    world.shards.carry_all();
    assert_eq!(world.shards_with(fork), 3);
    let parts: Vec<_> = world.shards.states.iter().map(|state| state.parts().len()).collect();
    assert_eq!(parts, [2, 2, 2], "of each subscription one");
}

#[derive(Debug, Clone)]
enum Step {
    Settle(bool, usize, u64, u64),
    Seek(usize, u64, u64),
    Fork(usize, u64),
    Carry(usize, usize, usize, bool),
    Restart(usize),
}

fn any_step() -> impl Strategy<Value = Step> {
    let shard = || 0usize..3;
    prop_oneof![
        4 => (any::<bool>(), shard(), 0..END, 1u64..5)
            .prop_map(|(is_fork, at, from, len)| Step::Settle(is_fork, at, from, len)),
        3 => (shard(), 0..END, 1u64..4).prop_map(|(at, to, name)| Step::Seek(at, to, name)),
        3 => (shard(), 0u64..4).prop_map(|(at, name)| Step::Fork(at, name)),
        4 => (shard(), shard(), 1usize..3, any::<bool>()).prop_map(|(a, b, n, lost)| Step::Carry(a, b, n, lost)),
        1 => shard().prop_map(Step::Restart),
    ]
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 96, ..ProptestConfig::default() })]

    #[test]
    fn a_fork_is_there_as_a_whole_or_not_at_all(
        steps in proptest::collection::vec(any_step(), 1..60), is_pattern in any::<bool>(),
    ) {
        let mut world = World::new(if is_pattern { "in*" } else { "in" });
        let mut forks = Vec::new();
        for (n, step) in steps.into_iter().enumerate() {
            match step {
                Step::Settle(is_fork, at, from, len) => {
                    let fork = forks.last().copied().filter(|_| is_fork);
                    let life = fork.unwrap_or(world.source.id);
                    if world.part(life, at).is_some() {
                        world.settle(life, at, from, from + len);
                    }
                }
                Step::Seek(at, to, name) => world.seek(at, to, name),
                Step::Fork(at, name) => {
                    let before: Vec<_> = (0..3).map(|shard| world.unsettled(world.source.id, shard)).collect();
                    forks.extend(world.fork(at, &format!("fork-{n}"), name));
                    let after: Vec<_> = (0..3).map(|shard| world.unsettled(world.source.id, shard)).collect();
                    prop_assert_eq!(before, after);
                }
                Step::Carry(from, to, most, is_lost) => world.shards.carry(from, to, most, is_lost),
                Step::Restart(at) => world.shards.restart(at),
            }
        }
        world.shards.carry_all();
        for fork in forks {
            let count = world.shards_with(fork);
            prop_assert!(count == 0 || count == 3, "{count} shards have a fork");
            let known = world.shards.states.iter().filter(|state| state.subscriptions().life(Incarnation(fork)).is_some());
            prop_assert_eq!(known.count(), usize::from(count == 3));
        }
        (0..3).for_each(|at| world.shards.restart(at));
    }
}
