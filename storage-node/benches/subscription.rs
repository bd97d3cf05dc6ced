//! What leasing and settling cost per message: `cargo bench -p weir-storage-node --bench subscription`.
//!
//! One part, no log and no network. A batch is published unless there are records behind, taken, each lease
//! of it settled, the event applied, the leases told.
//!
//! * `whole`: all of that, with nothing unsettled but the batch, with 10 million never leased, and with every
//!   second of 10 million settled; with every 20th nacked, to come back later, and with none; as they come,
//!   and in the order of a million keys or of a thousand.
//! * `steps`: the same with nothing behind and batches of 64, each step alone: take, settle, apply; and
//!   `redeliver`: leases that ran out, taken again.

use std::hint::black_box;
use std::sync::Arc;
use std::time::{Duration, Instant};

use criterion::{Criterion, Throughput, criterion_group, criterion_main};
use weir_protocol::ids::{Offset, TimestampMs};
use weir_storage_node::subscription::{
    Action, Ask, Effect, Fate, Fence, Key, Lane, Leases, Part, PartEvent, Rules, Seen, Settle, Taken, Verdict,
};

const BACKLOG: u64 = 10_000_000;
const LEASE_MS: u64 = 30_000;

/// How the records beside the batch lie.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Backlog {
    /// There are none.
    None,
    /// 10 million behind it that nobody has pulled.
    New,
    /// Every second one of 10 million is settled: the measured ones are the others, with 10 million more behind.
    Holes,
}

/// What is measured.
#[derive(Debug, Clone, Copy)]
struct Case {
    backlog: Backlog,
    size: usize,
    /// Every how manieth is nacked.
    nack_every: u64,
    /// How many keys there are; 0: no order.
    keys: u64,
}

/// The time of each step.
#[derive(Debug, Clone, Copy, Default)]
struct Steps {
    take: Duration,
    settle: Duration,
    apply: Duration,
}

/// One of them.
type Step = fn(&Steps) -> Duration;

struct Bench {
    case: Case,
    part: Part,
    leases: Leases,
    fence: Fence,
    now: u64,
    end: Offset,
    settled: u64,
}

impl Bench {
    fn new(case: Case) -> Self {
        let rules = Rules {
            lease_ms: LEASE_MS,
            max_attempts: 0,
            backoff_ms: Arc::from([500]),
            max_unacked: 10_000,
            looks_ahead: case.keys > 0,
        };
        let mut part = Part::new(Offset(0));
        if case.backlog == Backlog::Holes {
            let mut event = PartEvent::default();
            (0..BACKLOG).filter(|at| at % 2 == 1).for_each(|at| event.settle(Offset(at)));
            part.apply(&event, Offset(0)..Offset(2 * BACKLOG));
        }
        let leases = Leases::new(&part, rules, Fence(1), TimestampMs(0));
        Self { case, part, leases, fence: Fence(1), now: 1, end: Offset(0), settled: 0 }
    }

    /// As many records behind as the case says.
    fn publish(&mut self) {
        let behind = match self.case.backlog {
            Backlog::None => self.case.size as u64,
            Backlog::New | Backlog::Holes => BACKLOG,
        };
        self.end = self.end.max(self.leases.next().plus(behind));
        while let Some(range) = self.leases.look_from(&self.part, self.end, self.case.size) {
            let found = range.start..range.start.plus(1_024).min(range.end);
            let (keys, lane) = (self.case.keys, Lane::default());
            let seen = (found.start.0..found.end.0).map(|at| {
                let key = Key(u128::from(at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys + 1));
                Seen { offset: Offset(at), key, lane, fate: Fate::Deliver }
            });
            self.leases.looked(&self.part, found, seen);
        }
    }

    fn take(&mut self) -> Taken {
        let ask = Ask {
            now: TimestampMs(self.now),
            end: self.end,
            max_records: self.case.size,
            lease_ms: 0,
            holder: Arc::from("bench"),
            key: None,
        };
        let mut taken = self.leases.take(&self.part, &ask, &mut self.fence);
        if !taken.redelivered.is_empty() {
            let delivered = std::mem::take(&mut taken.redelivered);
            let event = PartEvent { delivered, ..PartEvent::default() };
            self.part.apply(&event, Offset(0)..self.end);
        }
        taken
    }

    fn settle(&mut self, taken: &Taken) -> PartEvent {
        let mut event = PartEvent::default();
        for grant in &taken.grants {
            self.settled += 1;
            let is_nacked = self.settled.is_multiple_of(self.case.nack_every);
            let action = if is_nacked { Action::Nack { delay_ms: None } } else { Action::Ack };
            let item = Settle { offset: grant.offset, fence: grant.fence, action };
            match self.leases.settle(&self.part, self.end, &item, TimestampMs(self.now)) {
                Verdict::Done(Effect::Settled) => event.settle(grant.offset),
                Verdict::Done(Effect::Nacked(nacked)) => event.nacked.push(nacked),
                other => panic!("{other:?}"),
            }
        }
        event
    }

    fn apply(&mut self, taken: &Taken, event: &PartEvent) {
        self.part.apply(event, Offset(0)..self.end);
        self.leases.committed(&self.part, taken.grants.iter().map(|grant| grant.offset));
    }

    /// One batch: publish, take, settle, apply; how many messages that were.
    fn batch(&mut self) -> u64 {
        self.publish();
        self.now += 1;
        let taken = self.take();
        let event = self.settle(&taken);
        self.apply(&taken, &event);
        taken.grants.len() as u64
    }

    fn timed_batch(&mut self, steps: &mut Steps) {
        self.publish();
        self.now += 1;
        let start = Instant::now();
        let taken = self.take();
        let was_taken = Instant::now();
        let event = self.settle(&taken);
        let was_settled = Instant::now();
        self.apply(&taken, &event);
        steps.take += was_taken - start;
        steps.settle += was_settled - was_taken;
        steps.apply += was_settled.elapsed();
    }

    /// The holes were all measured: from the start, not counted.
    fn renew(&mut self) {
        if self.case.backlog == Backlog::Holes && self.leases.next() >= Offset(BACKLOG) {
            *self = Self::new(self.case);
        }
    }
}

fn whole(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("whole");
    group.sample_size(20);
    let kinds = [
        ("nothing behind", Backlog::None, 0, &[1, 64][..]),
        ("10 million never leased", Backlog::New, 0, &[1, 64]),
        ("10 million, half settled", Backlog::Holes, 0, &[1, 64]),
        ("10 million, a million keys", Backlog::New, 1_000_000, &[64]),
        ("10 million, a thousand keys", Backlog::New, 1_000, &[64]),
    ];
    for (name, backlog, keys, sizes) in kinds {
        for size in sizes.iter().copied() {
            for (nacks, nack_every) in [("", u64::MAX), (", 5 % nacked", 20)] {
                group.throughput(Throughput::Elements(size as u64));
                let case = Case { backlog, size, nack_every, keys };
                let mut bench = None;
                group.bench_function(format!("{name}, batches of {size}{nacks}"), |bencher| {
                    // Made when it is measured: the holes take a second.
                    let bench = bench.get_or_insert_with(|| Bench::new(case));
                    bencher.iter_custom(|batches| {
                        let (mut spent, mut left) = (Duration::ZERO, batches * size as u64);
                        while left > 0 {
                            bench.renew();
                            let start = Instant::now();
                            // In the order of keys a batch may be smaller.
                            for _ in 0..1_000 {
                                left = left.saturating_sub(black_box(bench.batch()));
                                if left == 0 {
                                    break;
                                }
                            }
                            spent += start.elapsed();
                        }
                        spent
                    });
                });
            }
        }
    }
    group.finish();
}

fn steps(criterion: &mut Criterion) {
    let mut group = criterion.benchmark_group("steps");
    group.throughput(Throughput::Elements(64));
    let case = Case { backlog: Backlog::None, size: 64, nack_every: u64::MAX, keys: 0 };
    let kinds: [(&str, Step); 3] =
        [("take", |it| it.take), ("settle", |it| it.settle), ("apply", |it| it.apply)];
    for (name, of) in kinds {
        let mut bench = Bench::new(case);
        group.bench_function(name, |bencher| {
            bencher.iter_custom(|batches| {
                let mut steps = Steps::default();
                (0..batches).for_each(|_| bench.timed_batch(&mut steps));
                of(&steps)
            });
        });
    }
    let mut bench = Bench::new(case);
    bench.publish();
    group.bench_function("redeliver", |bencher| {
        bencher.iter(|| {
            bench.now += LEASE_MS + 1;
            assert_eq!(bench.take().grants.len(), 64, "all leases ran out");
        });
    });
    group.finish();
}

criterion_group!(benches, whole, steps);
criterion_main!(benches);
