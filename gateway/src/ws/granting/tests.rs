//! Clients that know only what they were told, over one pool.

use std::collections::VecDeque;
use std::sync::Arc;

use proptest::prelude::*;
use tokio::sync::{OwnedSemaphorePermit, Semaphore};

use super::*;
use crate::ws::pool::{Pool, Sizes};

const BUDGET: u32 = 8_000;

fn sizes() -> Sizes {
    Sizes {
        pool_max: 4_000,
        promised_max: 2_000,
        window_min: 100..=200,
        window_max: 1_600,
        bytes_per_msg: 10,
    }
}

/// A channel and the client behind it.
struct Client {
    granting: Granting,
    msgs_max: u64,
    /// As `opened` said.
    agreed: Amount,
    /// As `pub_limit` said last.
    told: Amount,
    sent: Amount,
    under_way: VecDeque<(Amount, OwnedSemaphorePermit)>,
    /// Credit that it had when it rested last, in bytes: it stays granted.
    kept: u64,
}

impl Client {
    fn done(&self) -> Amount {
        self.granting.done
    }

    fn credit(&self) -> Amount {
        self.told.less(self.sent)
    }
}

struct World {
    pool: Arc<Pool>,
    budget: Arc<Semaphore>,
    now: Instant,
    clients: Vec<Client>,
    over_http: Vec<OwnedSemaphorePermit>,
    busy: usize,
}

impl World {
    fn new() -> Self {
        let budget = Arc::new(Semaphore::new(BUDGET as usize));
        let pool = Pool::with_sizes(sizes(), (Arc::clone(&budget), BUDGET.into()));
        Self { pool, budget, now: Instant::now(), clients: Vec::new(), over_http: Vec::new(), busy: 0 }
    }

    fn open(&mut self, msgs_max: u64) -> usize {
        let granting = Granting::new(self.now, self.pool.open(), msgs_max);
        let agreed = granting.limit();
        let (told, sent, under_way) = (agreed, Amount::default(), VecDeque::new());
        self.clients.push(Client { granting, msgs_max, agreed, told, sent, under_way, kept: 0 });
        self.clients.len() - 1
    }

    /// Sends a batch of equal records, as much of it as there is credit for; nothing if there is none.
    fn send(&mut self, at: usize, batch: Amount) {
        let client = &mut self.clients[at];
        let credit = client.credit();
        let bytes = batch.bytes / batch.msgs.max(1);
        let msgs = batch.msgs.min(credit.msgs).min(credit.bytes / bytes.max(1));
        if msgs == 0 {
            return;
        }
        let amount = Amount { msgs, bytes: msgs * bytes };
        assert!(client.granting.fits(amount), "a client within its limit was found beyond it");
        assert!(client.granting.spend(amount, 0), "a client within its limit was found beyond it");
        client.sent = client.sent.plus(amount);
        let wanted = u32::try_from(amount.bytes).unwrap();
        if let Ok(permit) = Arc::clone(&self.budget).try_acquire_many_owned(wanted) {
            client.under_way.push_back((amount, permit));
        } else {
            self.busy += 1;
            client.granting.finished(amount);
            client.granting.busy();
        }
    }

    fn answer(&mut self, at: usize, is_busy: bool) {
        let client = &mut self.clients[at];
        if let Some((amount, _)) = client.under_way.pop_front() {
            client.granting.finished(amount);
            if is_busy {
                client.granting.busy();
            }
        }
    }

    fn turn(&mut self, at: usize) {
        let client = &mut self.clients[at];
        if let Some(raised) = client.granting.take_limit(self.now) {
            assert!(
                raised != client.told && raised.max(client.told) == raised,
                "limits only rise, and say so"
            );
            client.told = raised;
        }
        let left = client.told.less(client.done());
        assert!(left.max(client.agreed) == left, "{left:?} are less than {:?}", client.agreed);
        assert!(left.msgs <= client.msgs_max, "{left:?} may be under way");
    }

    /// Between turns.
    fn look(&mut self, at: usize) -> bool {
        let client = &mut self.clients[at];
        let rests = client.granting.rest(self.now);
        if rests && client.granting.share.counted() == 0 {
            client.kept = client.granting.bytes_of(client.credit());
        }
        rests
    }

    /// Everything under way is answered.
    fn settle(&mut self) {
        for at in 0..self.clients.len() {
            while !self.clients[at].under_way.is_empty() {
                self.answer(at, false);
            }
            self.turn(at);
        }
    }

    fn check(&self) {
        let counted: u64 = self.clients.iter().map(|client| client.granting.share.counted()).sum();
        assert_eq!(self.pool.metrics().counted, counted, "the pool counts what its channels have");
        let sending = self.clients.iter().filter(|client| client.granting.share.counted() > 0);
        let promised: u64 = sending.map(|client| client.granting.share.window_min().max(client.kept)).sum();
        assert!(counted <= sizes().pool_max + promised, "{counted} are granted, {promised} promised");
    }
}

#[derive(Debug, Clone)]
enum Step {
    Open { is_bounded: bool },
    Close(usize),
    Send(usize, u64, u64),
    Answer(usize, bool),
    Turn(usize),
    Pass(u64),
    Look(usize),
    OverHttp(u32),
    HttpAnswered,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let at = 0_usize..8;
    let step = prop_oneof![
        1 => any::<bool>().prop_map(|is_bounded| Step::Open { is_bounded }),
        1 => at.clone().prop_map(Step::Close),
        8 => (at.clone(), 1_u64..40, 1_u64..60).prop_map(|(at, msgs, bytes)| Step::Send(at, msgs, bytes)),
        6 => (at.clone(), any::<bool>()).prop_map(|(at, is_busy)| Step::Answer(at, is_busy)),
        8 => at.clone().prop_map(Step::Turn),
        2 => (1_u64..600).prop_map(Step::Pass),
        2 => at.prop_map(Step::Look),
        1 => (1_u32..BUDGET).prop_map(Step::OverHttp),
        1 => Just(Step::HttpAnswered),
    ];
    proptest::collection::vec(step, 1..250)
}

proptest! {
    #[test]
    fn whoever_sends_what_was_agreed_never_waits_for_ever_and_whoever_keeps_to_its_credit_is_never_beyond_it(
        steps in steps(),
    ) {
        let mut world = World::new();
        world.open(u64::MAX);
        for step in steps {
            let of = |at: usize| at % world.clients.len();
            match step {
                Step::Open { is_bounded } => {
                    world.open(if is_bounded { 15 } else { u64::MAX });
                }
                Step::Close(at) if world.clients.len() > 1 => {
                    world.clients.swap_remove(of(at));
                }
                Step::Close(_) => {}
                Step::Send(at, msgs, bytes) => world.send(of(at), Amount { msgs, bytes: msgs * bytes }),
                Step::Answer(at, is_busy) => world.answer(of(at), is_busy),
                Step::Turn(at) => world.turn(of(at)),
                Step::Pass(ms) => world.now += Duration::from_millis(ms),
                Step::Look(at) => {
                    world.look(of(at));
                }
                Step::OverHttp(bytes) => {
                    world.over_http.extend(Arc::clone(&world.budget).try_acquire_many_owned(bytes));
                }
                Step::HttpAnswered => world.over_http.clear(),
            }
            world.check();
        }
        // Whatever happened: who has been answered may send a whole batch, as large as was agreed, at once.
        world.settle();
        for client in &world.clients {
            prop_assert!(client.under_way.is_empty());
            prop_assert!(client.credit().max(client.agreed) == client.credit(), "waits for ever");
        }
        world.clients.clear();
        world.check();
        prop_assert_eq!(world.pool.open().window_min(), 200, "what was promised is given back");
    }
}

fn batch(msgs: u64) -> Amount {
    Amount { msgs, bytes: 10 * msgs }
}

/// Sends as much as it may, and is answered, `rounds` times.
fn saturate(world: &mut World, rounds: usize) {
    for _ in 0..rounds {
        for at in 0..world.clients.len() {
            world.send(at, batch(1_000));
            world.turn(at);
        }
        world.settle();
    }
}

#[test]
fn one_record_may_overshoot_the_bytes_and_the_next_may_not() {
    let mut world = World::new();
    let at = world.open(u64::MAX);
    let credit = &mut world.clients[at].granting;
    assert!(credit.spend(Amount { msgs: 1, bytes: 5_000 }, 5_000));
    assert!(!credit.spend(Amount { msgs: 1, bytes: 1 }, 1));
}

#[test]
fn a_batch_may_fill_the_limit_to_the_byte() {
    let mut world = World::new();
    let at = world.open(u64::MAX);
    let agreed = world.clients[at].agreed;
    let credit = &mut world.clients[at].granting;
    assert!(credit.fits(agreed));
    // Of a batch that fits nobody looks up its last record.
    assert!(credit.spend(agreed, 0));
    assert!(!credit.fits(Amount { msgs: 1, bytes: 1 }));
}

#[test]
fn of_a_batch_only_the_last_record_may_overshoot() {
    let spend = |msgs, bytes, last| {
        let mut world = World::new();
        let at = world.open(u64::MAX);
        assert_eq!(world.clients[at].agreed, Amount { msgs: 15, bytes: 150 });
        world.clients[at].granting.spend(Amount { msgs, bytes }, last)
    };
    assert!(spend(2, 250, 101));
    assert!(!spend(2, 250, 100));
    assert!(spend(15, 15, 1));
    assert!(!spend(16, 16, 1));
}

#[test]
fn a_channel_alone_gets_the_largest_window_and_one_that_sends_little_keeps_the_smallest() {
    let mut world = World::new();
    let (much, little) = (world.open(u64::MAX), world.open(u64::MAX));
    for _ in 0..20 {
        world.send(much, batch(1_000));
        world.send(little, batch(1));
        (0..2).for_each(|at| world.turn(at));
        world.settle();
        world.now += ROUND / 4;
    }
    assert_eq!(world.clients[much].granting.window, 1_600);
    assert_eq!(world.clients[little].granting.window, 200);
    assert_eq!(world.pool.metrics().counted, 1_800);
}

#[test]
fn a_client_far_away_has_as_large_a_window_as_one_nearby() {
    let mut world = World::new();
    let at = world.open(u64::MAX);
    // What was sent is answered long before the client hears of it: hardly anything is ever under way here.
    for _ in 0..40 {
        for _ in 0..10 {
            world.send(at, batch(2));
            world.settle();
        }
        world.now += ROUND / 4;
    }
    assert!(world.clients[at].granting.window >= 4 * 200, "{}", world.clients[at].granting.window);
}

#[test]
fn many_that_want_more_than_there_is_have_even_shares_whoever_came_first() {
    let mut world = World::new();
    world.open(u64::MAX);
    saturate(&mut world, 10);
    assert_eq!(world.clients[0].granting.window, 1_600);
    for _ in 1..19 {
        world.open(u64::MAX);
    }
    saturate(&mut world, 30);
    let windows: Vec<_> = world.clients.iter().map(|client| client.granting.window).collect();
    assert!(windows.iter().all(|window| (190..=210).contains(window)), "{windows:?}");
    assert_eq!(world.busy, 0, "a budget of {BUDGET} is enough");
    let metrics = world.pool.metrics();
    assert!(metrics.counted <= metrics.counted_max && metrics.held_back > 0, "{metrics:?}");
}

#[test]
fn who_sends_less_gives_up_what_it_had_and_who_stops_all_of_it() {
    let mut world = World::new();
    let at = world.open(u64::MAX);
    saturate(&mut world, 10);
    assert_eq!(world.pool.metrics().counted, 1_600);
    for _ in 0..10 {
        world.now += ROUND;
        world.send(at, batch(1));
        world.turn(at);
        world.settle();
    }
    assert_eq!(world.clients[at].granting.window, 200);
    assert!(!world.look(at), "something came just now");
    for _ in 0..2 {
        world.now += ROUND;
        world.look(at);
    }
    assert_eq!(world.pool.metrics().counted, 0);
    saturate(&mut world, 1);
    assert!(world.pool.metrics().counted >= 200, "it is counted again when it sends again");
}

#[test]
fn what_is_under_way_is_counted_and_not_looked_at_while_nothing_happens() {
    let mut world = World::new();
    let at = world.open(u64::MAX);
    world.send(at, batch(3));
    world.turn(at);
    world.now += ROUND;
    assert!(!world.look(at), "something came in this round");
    for _ in 0..5 {
        world.now += ROUND;
        assert!(world.look(at));
        assert_eq!(world.pool.metrics().counted, 200);
    }
    world.settle();
    world.now += ROUND;
    assert!(world.look(at));
    assert_eq!(world.pool.metrics().counted, 0, "everything is answered");
}

#[test]
fn who_only_waits_is_looked_at_until_it_has_given_back_what_it_does_not_use() {
    let mut world = World::new();
    let at = world.open(u64::MAX);
    saturate(&mut world, 10);
    world.send(at, batch(1));
    world.answer(at, true);
    world.send(at, batch(1));
    world.turn(at);
    assert_eq!(world.clients[at].granting.window, 800);
    let looks = (1..100).find(|_| {
        world.now += ROUND;
        world.look(at)
    });
    // It was halved for a busy storage, and has that back too.
    assert!(looks.is_some_and(|looks| looks <= 1 + RECOVERED_PART), "{looks:?}");
    let granting = &world.clients[at].granting;
    assert_eq!((granting.window, granting.allowed), (200, 1_600));
}

#[test]
fn publishes_over_http_leave_less_to_channels() {
    let mut world = World::new();
    let at = world.open(u64::MAX);
    saturate(&mut world, 10);
    let permits = Arc::clone(&world.budget).try_acquire_many_owned(6_000).unwrap();
    saturate(&mut world, 1);
    assert_eq!(world.clients[at].granting.window, 200);
    drop(permits);
    saturate(&mut world, 10);
    assert_eq!(world.clients[at].granting.window, 1_600);
}

#[test]
fn storage_that_is_busy_halves_a_window_once_for_what_was_under_way_and_it_grows_again() {
    let mut world = World::new();
    let at = world.open(u64::MAX);
    saturate(&mut world, 10);
    for _ in 0..4 {
        world.send(at, batch(20));
    }
    for _ in 0..4 {
        world.answer(at, true);
        world.turn(at);
    }
    assert_eq!(world.clients[at].granting.window, 800, "once, not four times");
    world.send(at, batch(20));
    world.answer(at, true);
    world.turn(at);
    assert_eq!((world.clients[at].granting.window, world.pool.metrics().halved), (400, 2));
    for _ in 0..20 {
        world.now += ROUND;
        saturate(&mut world, 1);
    }
    assert_eq!(world.clients[at].granting.window, 1_600);
}

#[test]
fn the_first_channels_are_promised_more_than_the_last() {
    let budget = (Arc::new(Semaphore::new(0)), 64 << 20);
    let pool = Pool::new(budget);
    let shares: Vec<_> = (0..1_000).map(|_| pool.open()).collect();
    let promised: Vec<_> = shares.iter().map(super::Share::window_min).collect();
    assert_eq!((promised[0], promised[1], promised[999]), (2 << 20, 7 << 18, 16 << 10));
    assert!(promised.is_sorted_by(|a, b| a >= b));
    assert!(promised.iter().sum::<u64>() < 32 << 20, "a thousand open channels leave half of the budget");
    drop(shares);
    assert_eq!(pool.open().window_min(), 2 << 20);
}
