//! One worker of a queue over HTTP: leases, has every message checked, gives some back, gives some up, acknowledges the
//! rest.

use std::borrow::Cow;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::{Deserialize, Serialize};
use tokio::sync::watch;

use super::{DRAIN_QUIET_MAX, Shared};
use crate::args::Connect;
use crate::bench::check::Check;
use crate::bench::identity::Identity;
use crate::bench::poster::Poster;
use crate::bench::result::RunResult;
use crate::bench::schedule::Window;
use crate::bench::tally::Tally;
use crate::bench::target::Target;
use crate::client::Api;

/// What is given back comes again after this many milliseconds.
pub(super) const DELAY_MS: u64 = 200;
/// A pull that finds nothing waits this long.
const WAIT_MS: u64 = 500;
/// Messages that a pull takes at most.
pub(super) const PULL_MAX: u32 = 10_000;
/// Bytes of messages that a pull takes at most.
const PULL_BYTES: u64 = 4 << 20;
/// How long what was given up may take until it is in its topic.
const DEAD_LETTERS_TIME_MAX: Duration = Duration::from_secs(10);

const JSON: &str = "Content-Type: application/json\r\n";

/// A worker with its connection.
pub(super) struct Worker {
    shared: Arc<Shared>,
    poster: Poster,
    pull: Vec<u8>,
    path: String,
}

#[derive(Deserialize)]
struct Pulled<'a> {
    #[serde(borrow)]
    messages: Vec<Leased<'a>>,
}

#[derive(Deserialize)]
struct Leased<'a> {
    #[serde(borrow)]
    lease: Cow<'a, str>,
    attempt: u32,
    #[serde(borrow)]
    data_base64: Cow<'a, str>,
}

#[derive(Default, Serialize)]
struct Settlement<'a> {
    ack: Vec<&'a str>,
    nack: Vec<Nack<'a>>,
    dead: Vec<Dead<'a>>,
}

#[derive(Serialize)]
struct Nack<'a> {
    lease: &'a str,
    delay_ms: u64,
}

#[derive(Serialize)]
struct Dead<'a> {
    lease: &'a str,
}

/// What becomes of a message.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Fate {
    Ack,
    Nack,
    Dead,
}

/// How many share which fate; the rest is acknowledged.
#[derive(Debug, Clone, Copy, Serialize, Deserialize)]
pub(super) struct Fates {
    /// One in so many messages is given back at its first delivery; 0: none.
    pub(super) nack_one_in: u64,
    /// One in so many is given up; 0: none.
    pub(super) dead_one_in: u64,
}

impl Fates {
    pub(super) fn of(self, identity: Identity, attempt: u32) -> Fate {
        let is_one_in = |n: u64, place: u64| n > 0 && identity.seq % n == place % n;
        match attempt {
            _ if is_one_in(self.dead_one_in, 7) => Fate::Dead,
            1 if is_one_in(self.nack_one_in, 3) => Fate::Nack,
            _ => Fate::Ack,
        }
    }
}

impl Worker {
    pub(super) async fn connect(
        connect: &Connect,
        shared: &Arc<Shared>,
        prefetch: u32,
    ) -> anyhow::Result<Self> {
        let path = format!("/v1/ns/{}/subscriptions/{}", connect.namespace, shared.subscription());
        let prefetch = prefetch.min(PULL_MAX);
        let pull = format!("{{\"max\":{prefetch},\"max_bytes\":{PULL_BYTES},\"wait_ms\":{WAIT_MS}}}");
        let poster = Poster::connect(&connect.url).await?;
        Ok(Self { shared: Arc::clone(shared), poster, pull: pull.into_bytes(), path })
    }

    /// Works until everything that was sent is settled, or nothing comes any more.
    pub(super) async fn run(
        mut self,
        window: Window,
        written: watch::Receiver<bool>,
    ) -> anyhow::Result<Tally> {
        let shared = Arc::clone(&self.shared);
        let mut tally = Tally::new();
        let mut settled = Check::new(0..shared.shape.writers, window);
        let mut quiet_since = Instant::now();
        while !(*written.borrow() && shared.is_all_taken()) {
            if self.turn(&mut settled, &mut tally, &window).await? > 0 || !*written.borrow() {
                quiet_since = Instant::now();
            } else if quiet_since.elapsed() >= DRAIN_QUIET_MAX {
                break;
            }
        }
        tally.delivered = settled.delivered();
        settled.add_to(&mut tally.settled);
        Ok(tally)
    }

    /// One pull and its settlement; how many messages.
    async fn turn(
        &mut self,
        settled: &mut Check,
        tally: &mut Tally,
        window: &Window,
    ) -> anyhow::Result<usize> {
        self.poster.send(&format!("POST {}:pull", self.path), JSON, &self.pull).await?;
        let (now_ns, fates) = (window.now_ns(), self.shared.shape.fates);
        let pulled: Pulled<'_> = serde_json::from_slice(self.poster.body()).context("no pull")?;
        let count = pulled.messages.len();
        if count == 0 {
            return Ok(0);
        }
        let (mut settlement, mut done) = (Settlement::default(), Vec::with_capacity(count));
        for message in &pulled.messages {
            let payload =
                BASE64_STANDARD.decode(&*message.data_base64).context("a payload that is not base64")?;
            let identity = Identity::read(&payload).context("a message that is not of this run")?;
            if message.attempt == 1 {
                tally.first_delivery(identity, now_ns, window);
            }
            let fate = fates.of(identity, message.attempt);
            match fate {
                Fate::Nack => settlement.nack.push(Nack { lease: &message.lease, delay_ms: DELAY_MS }),
                Fate::Dead => settlement.dead.push(Dead { lease: &message.lease }),
                Fate::Ack => settlement.ack.push(&message.lease),
            }
            if fate != Fate::Nack {
                done.push(payload);
            }
        }
        tally.nacked += settlement.nack.len() as u64;
        tally.dead += settlement.dead.len() as u64;
        let body = serde_json::to_vec(&settlement)?;
        drop(settlement);
        let start = Instant::now();
        let status = self.poster.send(&format!("POST {}:settle", self.path), JSON, &body).await?;
        ensure!(status == 200, "not all was settled: {}", String::from_utf8_lossy(self.poster.body()));
        if window.counts(now_ns) {
            tally.settle.record_time(start.elapsed());
        }
        // Only what is settled for good is checked: what was given back has to come again.
        for payload in &done {
            settled.take(payload, now_ns)?;
        }
        self.shared.taken.fetch_add(done.len() as u64, Ordering::Relaxed);
        Ok(count)
    }
}

/// Whether the queue says the same as its workers: nothing left, and every dead letter in its topic.
pub(super) async fn verify(
    target: &Target,
    shared: &Shared,
    tally: &Tally,
    result: &mut RunResult,
) -> anyhow::Result<()> {
    let api = Api::new(&target.reach.connect)?;
    let totals =
        api.get(&api.path(&format!("subscriptions/{}", shared.subscription()))).await?.json()?["totals"]
            .take();
    for name in ["unsettled", "leased"] {
        if totals[name] != 0 {
            result.void.push(format!("the queue has {} {name} at the end", totals[name]));
        }
    }
    let topic = api.path(&format!("topics/{}.dead", shared.shape.topic(&shared.run, 0)));
    let until = Instant::now() + DEAD_LETTERS_TIME_MAX;
    loop {
        let parts = api.get(&topic).await?.json()?["partitions"].take();
        let there: u64 = parts.as_array().into_iter().flatten().filter_map(|part| part["end"].as_u64()).sum();
        if there == tally.dead {
            return Ok(());
        }
        if Instant::now() > until || there > tally.dead {
            result
                .void
                .push(format!("{} were given up, {there} are in the topic of dead letters", tally.dead));
            return Ok(());
        }
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn so_many_come_back_once_and_so_many_are_given_up() {
        let of_attempt = |fates: Fates, attempt| {
            let of = |seq| fates.of(Identity { writer: 0, seq, due_ns: 0 }, attempt);
            let count = |fate| (0..1_000).filter(|seq| of(*seq) == fate).count();
            (count(Fate::Nack), count(Fate::Dead), count(Fate::Ack))
        };
        let usual = Fates { nack_one_in: 20, dead_one_in: 100 };
        assert_eq!((of_attempt(usual, 1), of_attempt(usual, 2)), ((50, 10, 940), (0, 10, 990)));
        let none = Fates { nack_one_in: 0, dead_one_in: 0 };
        assert_eq!(of_attempt(none, 1), (0, 0, 1_000));
        let all = Fates { nack_one_in: 1, dead_one_in: 0 };
        assert_eq!((of_attempt(all, 1), of_attempt(all, 2)), ((1_000, 0, 0), (0, 0, 1_000)));
    }
}
