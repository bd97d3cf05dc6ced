//! Many channels over one publish budget, while storage answers late: what credit is for.

use std::collections::VecDeque;

use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::{Name, Seq};
use weir_protocol::rpc::{Level, Placed};
use weir_protocol::ws::{Hello, Limit, Open};

use super::*;
use crate::auth::Principal;
use crate::service::ServiceError;
use crate::service::publish::{Confirm, Content};
use crate::ws::granting::ROUND;
use crate::ws::pool::Sizes;
use crate::ws::publishing::Found;

/// The smallest that `--publish-bytes-max` takes.
const BUDGET: usize = 16 << 20;
const SESSIONS: usize = 4;
const CHANNELS: u16 = 50;
/// Messages of a KiB that each channel publishes, one in a batch.
const MESSAGES: u64 = 160;

/// A channel as its client knows it.
#[derive(Clone, Copy, Default)]
struct Told {
    limit: Limit,
    sent: u64,
    confirmed: u64,
}

/// A connection with channels that publish as fast as they may.
struct Publisher {
    session: Session,
    channels: HashMap<Channel, Told>,
    /// What storage has to answer, oldest first.
    under_way: VecDeque<(u64, OwnedSemaphorePermit)>,
    rejected: u64,
}

/// A gateway whose storage takes what the budget admits, and answers when it is told to.
struct Gateway {
    budget: Arc<Semaphore>,
    pool: Arc<Pool>,
    batch: Batch,
    publishers: Vec<Publisher>,
}

impl Gateway {
    fn new(pool: impl FnOnce((Arc<Semaphore>, u64)) -> Arc<Pool>) -> Self {
        let budget = Arc::new(Semaphore::new(BUDGET));
        let pool = pool((Arc::clone(&budget), BUDGET as u64));
        let mut builder = BatchBuilder::anonymous();
        builder.push(RecordParts { key: None, headers: &Headers::default(), value: &[7; 1_024] }).unwrap();
        let batch = builder.build(Compression::None).unwrap();
        let publishers = (0..SESSIONS).map(|_| Publisher::new(Arc::clone(&pool))).collect();
        Self { budget, pool, batch, publishers }
    }

    /// Every client sends what it may.
    fn send(&mut self, now: Now) {
        for publisher in &mut self.publishers {
            for ch in (1..=CHANNELS).map(Channel) {
                while let Some(seq) = publisher.next(ch, &self.batch) {
                    let frame = ClientFrame::PubBatch { first_seq: Seq(seq), batch: self.batch.clone() };
                    publisher.session.receive(now, ch, frame);
                }
                publisher.turn(now, &self.budget);
            }
        }
    }

    /// Storage answers up to `count` batches of each connection, the oldest first.
    fn answer(&mut self, now: Now, count: usize) {
        for publisher in &mut self.publishers {
            for _ in 0..count {
                let Some((ticket, permit)) = publisher.under_way.pop_front() else { break };
                drop(permit);
                let placed = Placed { count: 1, is_final: true, ..Placed::default() };
                let confirm = Confirm {
                    ticket,
                    level: Level::Quorum,
                    result: Ok(placed),
                    stages: None,
                    round_trip: Duration::ZERO,
                    is_last: true,
                };
                publisher.session.confirmed(now, confirm);
            }
            publisher.turn(now, &self.budget);
        }
    }

    /// What the channels may have under way, as the pool counts it.
    fn counted(&self) -> u64 {
        self.pool.metrics().counted
    }

    /// Messages that were refused when all have been sent once, and the most bytes under way on the way there.
    fn play(mut self) -> (u64, usize) {
        let mut now = Now { instant: Instant::now(), epoch_ms: 7 };
        let mut most = 0;
        // Storage rests for a while first.
        for round in 0.. {
            self.send(now);
            most = most.max(BUDGET - self.budget.available_permits());
            if round >= 3 {
                self.answer(now, 400);
            }
            now.instant += Duration::from_millis(10);
            if self.publishers.iter().all(Publisher::is_done) {
                break;
            }
            assert!(round < 10_000, "they wait for ever");
        }
        (self.publishers.iter().map(|publisher| publisher.rejected).sum(), most)
    }
}

impl Publisher {
    fn new(pool: Arc<Pool>) -> Self {
        let now = Now { instant: Instant::now(), epoch_ms: 7 };
        let config = SessionConfig { record_bytes_max: 1 << 20, pool };
        let authenticate: Authenticate = Arc::new(|_| Err(AuthError::Rejected));
        let principal = Principal::all(Name::default_name());
        let id = ulid::Ulid::nil().to_string();
        let mut session = Session::new(now, id, config, principal, authenticate);
        session.receive(now, Channel::CONNECTION, ClientFrame::Hello(Hello { v: 1, ..Hello::default() }));
        let mut channels = HashMap::new();
        for ch in (1..=CHANNELS).map(Channel) {
            session.receive(now, ch, ClientFrame::Open(Open { topic: "t".into(), ..Open::default() }));
            let Some(Effect::Open { of, .. }) = session.take_effects().pop() else { panic!("not opened") };
            let levels = Level::Quorum.bit();
            let found = Found { incarnation: 1, partitions: 1, levels, ..Found::default() };
            session.opened(now, of, Ok(found));
            let effects = session.take_effects();
            let [Effect::Send(_, ServerFrame::Opened(opened))] = &effects[..] else { panic!("{effects:?}") };
            channels.insert(ch, Told { limit: opened.pub_limit, ..Told::default() });
        }
        Self { session, channels, under_way: VecDeque::new(), rejected: 0 }
    }

    /// Counts one more message as sent, if there is one left and credit for it; its number.
    fn next(&mut self, ch: Channel, batch: &Batch) -> Option<u64> {
        let told = self.channels.get_mut(&ch)?;
        let bytes = (told.sent + 1) * u64::from(batch.header().raw_bytes);
        let may = told.sent < MESSAGES.min(told.limit.msgs) && bytes <= told.limit.bytes;
        may.then(|| {
            told.sent += 1;
            told.sent - 1
        })
    }

    fn turn(&mut self, now: Now, budget: &Arc<Semaphore>) {
        loop {
            self.session.finish_turn(now);
            let effects = self.session.take_effects();
            if effects.is_empty() {
                return;
            }
            effects.into_iter().for_each(|effect| self.run(effect, budget));
        }
    }

    fn run(&mut self, effect: Effect, budget: &Arc<Semaphore>) {
        match effect {
            Effect::Publish { call, content: Content::Batches(batches), .. } => {
                let bytes = batches.iter().map(|batch| batch.bytes().len()).sum::<usize>();
                let bytes = u32::try_from(bytes).unwrap();
                if let Ok(permit) = Arc::clone(budget).try_acquire_many_owned(bytes) {
                    self.under_way.push_back((self.session.next_ticket(), permit));
                    let part = CallPart { partition: 0, records: std::iter::once(0..1).collect() };
                    self.session.sent(call, vec![part], &[]);
                } else {
                    self.session.refused(call, &ServiceError::new(ErrorCode::Busy, "full"));
                }
            }
            Effect::Send(ch, frame) => {
                let told = self.channels.get_mut(&ch).unwrap();
                match frame {
                    ServerFrame::PubLimit(limit) => told.limit = limit,
                    ServerFrame::Confirm(confirm) => told.confirmed = confirm.upto.map_or(0, |upto| upto + 1),
                    ServerFrame::Reject(_) => self.rejected += 1,
                    other => panic!("{other:?}"),
                }
            }
            other => panic!("{other:?}"),
        }
    }

    fn is_done(&self) -> bool {
        self.channels.values().all(|told| told.sent == MESSAGES) && self.under_way.is_empty()
    }
}

#[test]
fn many_channels_that_publish_as_fast_as_they_may_are_slowed_by_credit_and_not_refused() {
    let (rejected, most) = Gateway::new(Pool::new).play();
    assert_eq!(rejected, 0);
    assert!(most > BUDGET / 4, "{most} bytes were under way");
    // The same with windows of one size, as if each channel were alone.
    let fixed = Sizes {
        pool_max: u64::MAX,
        promised_max: 0,
        window_min: 4 << 20..=4 << 20,
        window_max: 4 << 20,
        bytes_per_msg: 512,
    };
    let (rejected, most) = Gateway::new(|budget| Pool::with_sizes(fixed, budget)).play();
    assert!(rejected > 1_000 && most > BUDGET - 2_000, "{rejected} refused, {most} bytes under way");
}

#[test]
fn a_connection_that_stops_publishing_holds_no_credit_and_one_that_breaks_none() {
    let mut gateway = Gateway::new(Pool::new);
    let now = Now { instant: Instant::now(), epoch_ms: 7 };
    gateway.send(now);
    let all = gateway.counted();
    assert!(all > 0);
    gateway.publishers.pop();
    assert!(gateway.counted() < all);
    while gateway.publishers.iter().any(|publisher| !publisher.under_way.is_empty()) {
        gateway.answer(now, 1_000);
    }
    assert!(gateway.counted() > 0, "it was a moment ago");
    for publisher in &mut gateway.publishers {
        let mut later = now;
        assert_eq!(publisher.session.deadline(), now.instant + ROUND);
        for _ in 0..2 {
            later.instant += ROUND;
            publisher.session.tick(later, false);
        }
        assert!(publisher.session.deadline() > later.instant + ROUND, "who rests is not looked at");
    }
    assert_eq!(gateway.counted(), 0);
}

#[test]
fn a_connection_that_only_waits_is_not_looked_at_until_it_is_answered() {
    let mut gateway = Gateway::new(Pool::new);
    let mut now = Now { instant: Instant::now(), epoch_ms: 7 };
    gateway.send(now);
    let passes = |gateway: &mut Gateway, now: &mut Now, rounds: u32| {
        for _ in 0..rounds {
            now.instant += ROUND;
            gateway.publishers.iter_mut().for_each(|publisher| publisher.session.tick(*now, false));
        }
    };
    passes(&mut gateway, &mut now, 2 + 16);
    for publisher in &gateway.publishers {
        assert!(!publisher.under_way.is_empty());
        assert!(publisher.session.deadline() > now.instant + ROUND, "it only waits");
    }
    let waiting = gateway.counted();
    assert!(waiting > 0);
    while gateway.publishers.iter().any(|publisher| !publisher.under_way.is_empty()) {
        gateway.answer(now, 1_000);
    }
    assert!(gateway.publishers.iter().all(|one| one.session.deadline() == now.instant + ROUND));
    passes(&mut gateway, &mut now, 2);
    assert_eq!(gateway.counted(), 0);
}
