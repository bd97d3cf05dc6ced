//! A naive model of a part and its leases, and the property that the real ones cannot be told from it over
//! random histories: settles with right, wrong and old fences, lost proposals, trims, seeks, purges, redrives
//! and restarts from a checkpoint, with records that are leased as they come and with records that are looked
//! at first, by key.

mod ahead;
mod checks;
mod moving;
mod settling;
mod taking;

use std::collections::{BTreeMap, VecDeque};

use proptest::prelude::*;
use weir_protocol::ids::{Offset, TimestampMs};

use self::ahead::Fated;
use super::ahead::Limits;
use super::*;

#[derive(Debug, Clone)]
enum Step {
    Publish {
        records: Vec<(u8, Fated)>,
    },
    Look {
        count: u64,
    },
    LookAgain,
    LogSkips {
        is_lost: bool,
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
    /// Nothing of what is in flight gets into the log.
    Refuse,
    Wait {
        ms: u64,
    },
    Trim {
        count: u64,
    },
    Seek {
        to: u64,
    },
    Purge,
    /// Of what is dead, all from an offset on.
    Redrive {
        from: u64,
    },
    Restart {
        committed: usize,
    },
}

#[derive(Debug, Clone, Copy, PartialEq)]
enum Is {
    New,
    Leased {
        deadline: u64,
        lease_ms: u64,
        previous: u64,
        key: Option<u128>,
    },
    Settling {
        held: Option<Held>,
    },
    Waiting {
        until: u64,
    },
    /// Waits with others until they are met again.
    Later {
        met: u64,
    },
    /// Waited with others.
    Unmet,
    Free,
    /// Looked at, and never leased by this leader.
    Fresh,
    Blocked {
        until: Option<u64>,
        /// Nothing else was known of it when it was looked at.
        is_queued: bool,
    },
    Skipped,
}

/// A lease of which something was decided.
#[derive(Debug, Clone, Copy, PartialEq)]
struct Held {
    deadline: u64,
    lease_ms: u64,
    previous: u64,
}

/// A record: the first line is what it says itself, the second what the log knows, the third what the leader knows.
#[derive(Debug, Clone, Copy)]
struct Record {
    key: u8,
    fated: Fated,
    settled: bool,
    is_dead: bool,
    logged: u32,
    due: Option<u64>,
    is: Is,
    fence: u64,
    attempts: u32,
    /// It was looked at, and has its place behind the one that holds its key.
    in_line: bool,
    /// It was settled or extended with a fence that nobody ever got.
    is_made_up: bool,
    /// It was dead: others of its key may have gone before it since.
    is_redriven: bool,
    /// The last delivery that is in the log.
    logged_fence: u64,
    /// It was redriven, and no delivery since is in the log.
    is_revoked: bool,
}

const NEW: Record = Record {
    key: 0,
    fated: Fated::Now,
    settled: false,
    is_dead: false,
    logged: 0,
    due: None,
    is: Is::New,
    fence: 0,
    attempts: 0,
    in_line: false,
    is_made_up: false,
    is_redriven: false,
    logged_fence: 0,
    is_revoked: false,
};

fn limits(near: usize) -> Limits {
    Limits { near, ..Limits::default() }
}

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
    /// From here on nothing was looked at.
    frontier: u64,
    begun: u64,
    /// Records below may be with a client of an earlier leader.
    earlier_end: u64,
    /// The latest time that the leases were told.
    clock: u64,
    near: usize,
    holders: BTreeMap<u8, u64>,
}

impl Pair {
    fn new(rules: Rules, near: usize) -> Self {
        let part = Part::new(Offset(0));
        let next_fence = Fence(1 << 32);
        let leases = Leases::within(limits(near), &part, rules.clone(), next_fence, TimestampMs(0));
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
            frontier: 0,
            begun: 0,
            earlier_end: 0,
            clock: 0,
            near,
            holders: BTreeMap::new(),
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
            Step::Publish { ref records } => {
                self.records.extend(records.iter().map(|(key, fated)| Record {
                    key: *key,
                    fated: *fated,
                    ..NEW
                }));
            }
            Step::Look { count } => self.look(count),
            Step::LookAgain => self.look_again(),
            Step::LogSkips { is_lost } => self.log_skips(is_lost),
            Step::Take { max, lease_ms, sent, key } => self.take(max, lease_ms, sent, key),
            Step::Started { delivery } => self.started(delivery),
            Step::Settle { delivery, skew, action } => self.settle(delivery, skew, action),
            Step::Expire => {
                self.clock = self.clock.max(self.now);
                let exhausted = self.leases.expire(&self.part, self.now());
                self.expire(&exhausted);
            }
            Step::Commit { count } => (0..count).for_each(|_| self.commit(true)),
            Step::Fail { committed } => self.fail(committed),
            Step::Refuse => self.refuse(),
            Step::Wait { ms } => self.now += ms,
            Step::Trim { count } => {
                self.start = (self.start + count).min(self.end().0);
                self.part.start_moved(Offset(self.start));
                (0..self.start).for_each(|at| self.records[at as usize].settled = true);
                (0..self.start).for_each(|at| self.leave(at));
            }
            Step::Seek { to } => self.seek(to),
            Step::Purge => self.purge(),
            Step::Redrive { from } => self.redrive(from),
            Step::Restart { committed } => {
                (0..committed).for_each(|_| self.commit(false));
                self.in_flight.clear();
                self.restart(Fence(((self.next_fence.0 >> 32) + 1) << 32));
            }
        }
        self.check();
    }
}

fn any_action() -> impl Strategy<Value = Action> {
    prop_oneof![
        5 => Just(Action::Ack),
        4 => proptest::option::of(0u64..900).prop_map(|delay_ms| Action::Nack { delay_ms }),
        1 => (0u64..1 << 34).prop_map(|ms| Action::Nack { delay_ms: Some(ms) }),
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
        6 => proptest::collection::vec((0u8..3, any_fated()), 1..9)
            .prop_map(|records| Step::Publish { records }),
        10 => (1u64..9).prop_map(|count| Step::Look { count }),
        1 => Just(Step::LookAgain),
        3 => any::<bool>().prop_map(|is_lost| Step::LogSkips { is_lost }),
        10 => take.prop_map(|(max, lease_ms, sent, key)| Step::Take { max, lease_ms, sent, key }),
        2 => delivery().prop_map(|delivery| Step::Started { delivery }),
        16 => (delivery(), skew, any_action())
            .prop_map(|(delivery, skew, action)| Step::Settle { delivery, skew, action }),
        2 => Just(Step::Expire),
        8 => (1usize..5).prop_map(|count| Step::Commit { count }),
        1 => (0usize..3).prop_map(|committed| Step::Fail { committed }),
        1 => Just(Step::Refuse),
        5 => (1u64..700).prop_map(|ms| Step::Wait { ms }),
        1 => (1u64..1 << 33).prop_map(|ms| Step::Wait { ms }),
        1 => (1u64..6).prop_map(|count| Step::Trim { count }),
        1 => (0u64..60).prop_map(|to| Step::Seek { to }),
        1 => Just(Step::Purge),
        2 => (0u64..40).prop_map(|from| Step::Redrive { from }),
        2 => (0usize..4).prop_map(|committed| Step::Restart { committed }),
    ]
}

fn any_fated() -> impl Strategy<Value = Fated> {
    let at = prop_oneof![(0u64..9_000).prop_map(Fated::At), (0u64..1 << 34).prop_map(Fated::At)];
    prop_oneof![6 => Just(Fated::Now), 1 => at, 1 => Just(Fated::Never)]
}

/// How many wait in order: none, some or all.
fn any_near() -> impl Strategy<Value = usize> {
    prop_oneof![Just(0), 1usize..4, Just(NEAR_MAX)]
}

fn any_rules() -> impl Strategy<Value = Rules> {
    let backoff_ms = proptest::collection::vec(0u64..500, 0..3);
    (1u64..800, 0u32..4, backoff_ms, 1usize..12, any::<bool>()).prop_map(
        |(lease_ms, max_attempts, backoff_ms, max_unacked, looks_ahead)| Rules {
            lease_ms,
            max_attempts,
            backoff_ms: backoff_ms.into(),
            max_unacked,
            looks_ahead,
        },
    )
}

proptest! {
    #![proptest_config(ProptestConfig { cases: 512, ..ProptestConfig::default() })]
    #[test]
    fn leases_cannot_be_told_from_their_model(
        rules in any_rules(), near in any_near(), steps in proptest::collection::vec(any_step(), 1..120),
    ) {
        let mut pair = Pair::new(rules, near);
        steps.iter().for_each(|step| pair.step(step));
        pair.drain();
    }

    #[test]
    fn what_has_had_all_its_deliveries_dies_though_nobody_pulls(
        rules in any_rules(), near in any_near(), steps in proptest::collection::vec(any_step(), 1..120),
    ) {
        let mut pair = Pair::new(rules, near);
        steps.iter().for_each(|step| pair.step(step));
        pair.abandon();
    }
}

/// Long leases, and deliveries without end.
fn looking_ahead(max_unacked: usize) -> Rules {
    Rules { lease_ms: 10_000, max_attempts: 0, backoff_ms: Vec::new().into(), max_unacked, looks_ahead: true }
}

/// Found by chance: a fence that the second leader could have given, but did not.
#[test]
fn a_made_up_fence_of_a_leader_before_moves_nothing_but_the_record_that_it_names() {
    let rules = Rules { lease_ms: 10, max_attempts: 2, ..looking_ahead(2) };
    let publish =
        |keys: &[u8]| Step::Publish { records: keys.iter().map(|key| (*key, Fated::Now)).collect() };
    let take = || Step::Take { max: 1, lease_ms: 0, sent: u8::MAX, key: None };
    let steps = [
        publish(&[0, 0, 0, 1]),
        Step::Seek { to: 4 },
        publish(&[1]),
        Step::Look { count: 1 },
        take(),
        Step::Restart { committed: 0 },
        Step::Seek { to: 0 },
        Step::Restart { committed: 0 },
        Step::Settle { delivery: 0, skew: 1 << 32, action: Action::Nack { delay_ms: None } },
        Step::Commit { count: 1 },
        take(),
        Step::Look { count: 9 },
        take(),
    ];
    let mut pair = Pair::new(rules, NEAR_MAX);
    steps.iter().for_each(|step| pair.step(step));
    pair.drain();
}

/// Of three records of one key the first is a dead letter, the second with a client, and the first comes back
/// before another leader begins, who gives it to another: the third is for nobody until the second is settled.
#[test]
fn what_a_client_of_the_leader_before_works_on_keeps_its_key_whoever_holds_that() {
    let rules = looking_ahead(9);
    let take = || Step::Take { max: 1, lease_ms: 0, sent: u8::MAX, key: None };
    let settle = |delivery, action| Step::Settle { delivery, skew: 0, action };
    for going_on in [Action::Extend { ms: 10_000 }, Action::Nack { delay_ms: Some(10) }] {
        let steps = [
            Step::Publish { records: vec![(1, Fated::Now); 3] },
            Step::Look { count: 3 },
            take(),
            settle(0, Action::Dead),
            Step::Commit { count: 1 },
            take(),
            Step::Redrive { from: 0 },
            Step::Restart { committed: 0 },
            Step::Look { count: 3 },
            take(),
            settle(2, Action::Ack),
            settle(1, going_on),
            Step::Commit { count: 1 },
            take(),
        ];
        let mut pair = Pair::new(rules.clone(), NEAR_MAX);
        steps.iter().for_each(|step| pair.step(step));
        assert_eq!(pair.deliveries.len(), 3, "the third would go before the second");
        pair.drain();
    }
}

#[test]
fn what_its_time_has_come_for_and_nobody_was_given_is_looked_at_again() {
    let rules = looking_ahead(1);
    let steps = [
        Step::Publish { records: vec![(0, Fated::Now), (1, Fated::At(1_500)), (1, Fated::Now)] },
        Step::Look { count: 3 },
        // All places are taken.
        Step::Take { max: 1, lease_ms: 0, sent: u8::MAX, key: None },
        Step::Wait { ms: 600 },
        Step::Expire,
        Step::LookAgain,
    ];
    let mut pair = Pair::new(rules, NEAR_MAX);
    steps.iter().for_each(|step| pair.step(step));
    assert_eq!(pair.leases.counts(&pair.part, pair.end(), pair.now()).blocked, 0);
    assert_eq!(pair.leases.known_len(), 1, "but for what is leased, all is as if nobody had looked");
    pair.drain();
}
