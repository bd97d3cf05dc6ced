//! What leasing and settling cost per message: `cargo bench -p weir-storage-node --bench subscription`.
//!
//! One part, no log and no network: take a batch, settle each lease of it, apply, tell the leases. With nothing
//! unsettled but the batch, and with 10 million; with every 20th nacked, to come back 500 batches later, and with
//! none; as they come, and in the order of a million keys or of a thousand. Prints the mean of the fastest of five passes instead of asserting: figures depend on the machine.

#![expect(clippy::print_stdout, reason = "a bench prints its table")]

use std::sync::Arc;
use std::time::{Duration, Instant};

use weir_protocol::ids::{Offset, TimestampMs};
use weir_storage_node::subscription::{
    Action, Ask, Effect, Fate, Fence, Key, Lane, Leases, Part, PartEvent, Rules, Seen, Settle, Verdict,
};

const PASS: u64 = 400_000;
const PASSES: u32 = 5;
const BACKLOG: u64 = 10_000_000;

/// How the 10 million records before the measured ones lie.
#[derive(Debug, Clone, Copy, PartialEq)]
enum Backlog {
    /// There is none.
    None,
    /// Nobody has pulled them.
    New,
    /// Every second one is settled: the measured ones are the others, with 10 million more behind.
    Holes,
}

struct Bench {
    part: Part,
    leases: Leases,
    fence: Fence,
    now: u64,
    end: Offset,
    nack_every: u64,
    settled: u64,
    /// How many keys there are; 0: no order.
    keys: u64,
}

impl Bench {
    fn new(backlog: Backlog, nack_every: u64, keys: u64) -> Self {
        let rules = Rules {
            lease_ms: 30_000,
            max_attempts: 0,
            backoff_ms: Arc::from([500]),
            max_unacked: 10_000,
            looks_ahead: keys > 0,
        };
        let mut part = Part::new(Offset(0));
        let first = if backlog == Backlog::Holes { BACKLOG } else { 0 };
        let end = Offset(first + BACKLOG + PASS * u64::from(PASSES) * 2);
        if backlog == Backlog::Holes {
            let mut event = PartEvent::default();
            (0..BACKLOG).filter(|at| at % 2 == 1).for_each(|at| event.settle(Offset(at)));
            part.apply(&event, Offset(0)..end);
        }
        let leases = Leases::new(&part, rules, Fence(1), TimestampMs(0));
        let mut bench = Self { part, leases, fence: Fence(1), now: 1, end, nack_every, settled: 0, keys };
        if backlog == Backlog::None {
            bench.end = Offset(0);
        }
        bench
    }

    /// One batch: publish unless there is a backlog, take, settle, apply, tell.
    fn batch(&mut self, size: usize, is_published: bool) -> u64 {
        if is_published {
            self.end = self.leases.next().plus(size as u64);
        }
        self.now += 1;
        while let Some(from) = self.leases.look_from(&self.part, self.end, size) {
            let found = from..from.plus(1_024).min(self.end);
            let (keys, lane) = (self.keys, Lane::default());
            let seen = (found.start.0..found.end.0).map(|at| {
                let key = Key(at.wrapping_mul(0x9e37_79b9_7f4a_7c15) % keys + 1);
                Seen { offset: Offset(at), key, lane, fate: Fate::Deliver }
            });
            self.leases.looked(&self.part, found, seen);
        }
        let ask = Ask {
            now: TimestampMs(self.now),
            end: self.end,
            max_records: size,
            lease_ms: 0,
            holder: Arc::from("bench"),
            key: None,
        };
        let taken = self.leases.take(&self.part, &ask, &mut self.fence);
        let mut event = PartEvent { delivered: taken.redelivered, ..PartEvent::default() };
        if !event.is_empty() {
            self.part.apply(&event, Offset(0)..self.end);
            event = PartEvent::default();
        }
        for grant in &taken.grants {
            self.settled += 1;
            let is_nacked = self.settled.is_multiple_of(self.nack_every);
            let action = if is_nacked { Action::Nack { delay_ms: None } } else { Action::Ack };
            let item = Settle { offset: grant.offset, fence: grant.fence, action };
            match self.leases.settle(&self.part, self.end, &item, TimestampMs(self.now)) {
                Verdict::Done(Effect::Settled) => event.settle(grant.offset),
                Verdict::Done(Effect::Nacked(nacked)) => event.nacked.push(nacked),
                other => panic!("{other:?}"),
            }
        }
        self.part.apply(&event, Offset(0)..self.end);
        self.leases.committed(&self.part, taken.grants.iter().map(|grant| grant.offset));
        taken.grants.len() as u64
    }
}

fn measure(name: &str, backlog: Backlog, size: usize, nack_every: u64, keys: u64) {
    let mut bench = Bench::new(backlog, nack_every, keys);
    let mut fastest = Duration::MAX;
    for _ in 0..PASSES {
        let (start, mut done) = (Instant::now(), 0);
        while done < PASS {
            done += bench.batch(size, backlog == Backlog::None);
        }
        fastest = fastest.min(
            start.elapsed() * u32::try_from(PASS).expect("it fits") / u32::try_from(done).expect("it fits"),
        );
    }
    let unsettled = bench.part.count_unsettled(bench.end);
    println!(
        "{name:<34} batches of {size:>2}, nacked {:>2} %: {:>5} ns per message, {unsettled} unsettled",
        100 / nack_every,
        fastest.as_nanos() / u128::from(PASS),
    );
}

fn main() {
    let kinds = [
        ("nothing behind", Backlog::None),
        ("10 million never leased", Backlog::New),
        ("10 million behind, half settled", Backlog::Holes),
    ];
    for (name, backlog) in kinds {
        for size in [1, 64] {
            for nack_every in [u64::MAX, 20] {
                measure(name, backlog, size, nack_every, 0);
            }
        }
    }
    for (name, keys) in [("10 million, a million keys", 1_000_000), ("10 million, a thousand keys", 1_000)] {
        for nack_every in [u64::MAX, 20] {
            measure(name, Backlog::New, 64, nack_every, keys);
        }
    }
}
