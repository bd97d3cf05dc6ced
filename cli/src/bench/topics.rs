//! One POST after the other on each connection, over many topics in turn; at the end every topic is read back.

use std::sync::Arc;
use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use serde::Deserialize;
use tokio::task::JoinSet;

use super::Bench;
use super::arrived::Arrived;
use super::check::Faults;
use super::disk;
use super::identity::Identity;
use super::latencies::Latencies;
use super::meter::Meter;
use super::noise::noise;
use super::poster::Poster;
use super::result::{Figure, Percentiles, RunResult};
use super::target::Target;
use crate::args::{ManyTopicsArgs, Rate};
use crate::output;

/// Messages of one page when topics are read back.
const PAGE: u32 = 2_000;

/// What all connections of a run share.
struct Plan {
    url: String,
    /// Path of topics, the number of one behind it.
    path: String,
    topics: u32,
    connections: u32,
    payload: usize,
}

/// What one connection did.
struct Done {
    number: u32,
    latencies: Latencies,
    /// Messages confirmed while it counted.
    counted: u64,
    /// Messages confirmed of each of its topics, in the order in which it takes them.
    confirmed: Vec<u64>,
}

#[derive(Deserialize)]
struct Page<'a> {
    #[serde(borrow)]
    messages: Vec<Read<'a>>,
    next: u64,
    up_to_date: bool,
}

#[derive(Deserialize)]
struct Read<'a> {
    #[serde(borrow)]
    data_base64: &'a str,
}

/// Once per number of topics.
pub(super) async fn run(bench: &mut Bench, args: &ManyTopicsArgs) -> anyhow::Result<()> {
    for topics in &args.topics {
        let result = measure(bench, args, *topics).await?;
        bench.emit(result)?;
    }
    Ok(())
}

async fn measure(bench: &Bench, args: &ManyTopicsArgs, topics: u32) -> anyhow::Result<RunResult> {
    let target = Target::start(&bench.connect, &args.target).await?;
    let run = ulid::Ulid::new().to_string().to_lowercase();
    let plan = Arc::new(Plan {
        url: target.reach.connect.url.clone(),
        path: format!("/v1/ns/{}/topics/bench-{run}-", target.reach.connect.namespace),
        topics,
        // A connection has topics of its own, so that each topic has one writer.
        connections: args.connections.min(topics),
        payload: usize::try_from(args.payload)?,
    });
    let progress = output::spinner("making topics");
    each(Arc::clone(&plan), |plan, number| plan.make(number)).await?;
    let duration = Duration::from_secs(args.seconds);
    let warmup = duration / 5;
    progress.set_message(format!("measuring {topics} topics for {} s", args.seconds));
    let from = Instant::now() + warmup;
    let posting =
        tokio::spawn(each(Arc::clone(&plan), move |plan, number| plan.post(number, from, duration)));
    tokio::time::sleep_until(from.into()).await;
    let meter = Meter::start(Some(&target), Vec::new()).await;
    let done = posting.await.context("a task of the run failed")??;
    let used = meter.stop(Some(&target)).await;
    progress.set_message("reading back");
    let mut latencies = Latencies::new();
    let (mut counted, mut sent) = (0, 0);
    for one in &done {
        latencies.add(&one.latencies);
        counted += one.counted;
        sent += one.confirmed.iter().sum::<u64>();
    }
    let mut reading = JoinSet::new();
    for one in done {
        let plan = Arc::clone(&plan);
        reading.spawn(async move { plan.read_back(&one).await });
    }
    let (mut faults, mut read) = (Faults::default(), 0);
    while let Some(one) = reading.join_next().await {
        let (found, count) = one.context("a task of the run failed")??;
        faults.add(found);
        read += count;
    }
    each(Arc::clone(&plan), |plan, number| plan.remove(number)).await?;
    progress.finish_and_clear();
    let case = format!("{topics} topics, {} connections, {} B", plan.connections, plan.payload);
    let mut result = RunResult::new("many-topics", case);
    (result.warmup_s, result.seconds) = (warmup.as_secs_f64(), duration.as_secs_f64());
    result.latencies = vec![Percentiles::of("confirm", &latencies)];
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown to three digits")]
    let per_s = counted as f64 / duration.as_secs_f64();
    result.figures = vec![Figure::new("post_per_s", per_s)];
    result.figures.extend(used.figures(counted, plan.payload));
    result.identify(sent, sent, read, faults);
    disk::measure(&target, Rate::Max, &mut result).await?;
    Ok(result)
}

/// Does something on every connection at once.
async fn each<T: Send + 'static, F>(
    plan: Arc<Plan>,
    act: impl Fn(Arc<Plan>, u32) -> F,
) -> anyhow::Result<Vec<T>>
where
    F: Future<Output = anyhow::Result<T>> + Send + 'static,
{
    let tasks = (0..plan.connections).map(|number| tokio::spawn(act(Arc::clone(&plan), number)));
    let tasks: Vec<_> = tasks.collect();
    let mut all = Vec::new();
    for task in tasks {
        all.push(task.await.context("a task of the run failed")??);
    }
    Ok(all)
}

impl Plan {
    /// Topics of a connection, which nobody else writes.
    fn topics_of(&self, number: u32) -> impl Iterator<Item = u32> + use<> {
        (number..self.topics).step_by(self.connections as usize)
    }

    async fn make(self: Arc<Self>, number: u32) -> anyhow::Result<()> {
        let mut poster = Poster::connect(&self.url).await?;
        for topic in self.topics_of(number) {
            let line = format!("PUT {}{topic}", self.path);
            poster.send(&line, "Content-Type: application/json\r\n", b"{}").await?;
        }
        Ok(())
    }

    async fn remove(self: Arc<Self>, number: u32) -> anyhow::Result<()> {
        let mut poster = Poster::connect(&self.url).await?;
        for topic in self.topics_of(number) {
            poster.send(&format!("DELETE {}{topic}", self.path), "", b"").await?;
        }
        Ok(())
    }

    /// Publishes until the time is over.
    async fn post(self: Arc<Self>, number: u32, from: Instant, duration: Duration) -> anyhow::Result<Done> {
        let mut poster = Poster::connect(&self.url).await?;
        let mut payload = noise(self.payload).to_vec();
        let topics: Vec<u32> = self.topics_of(number).collect();
        let lines: Vec<String> =
            topics.iter().map(|topic| format!("POST {}{topic}/messages", self.path)).collect();
        let mut done =
            Done { number, latencies: Latencies::new(), counted: 0, confirmed: vec![0; topics.len()] };
        let mut now = Instant::now();
        for at in (0..topics.len()).cycle() {
            if now >= from + duration {
                break;
            }
            Identity { writer: topics[at], seq: done.confirmed[at], due_ns: 0 }.stamp(&mut payload);
            poster.send(&lines[at], "Content-Type: application/octet-stream\r\n", &payload).await?;
            done.confirmed[at] += 1;
            let after = Instant::now();
            if now >= from && after < from + duration {
                done.latencies.record_time(after - now);
                done.counted += 1;
            }
            now = after;
        }
        Ok(done)
    }

    /// Reads all topics of a connection: what is wrong, and how many messages there were.
    async fn read_back(&self, done: &Done) -> anyhow::Result<(Faults, u64)> {
        let mut poster = Poster::connect(&self.url).await?;
        let (mut faults, mut count) = (Faults::default(), 0);
        for (topic, confirmed) in self.topics_of(done.number).zip(&done.confirmed) {
            let mut arrived = Arrived::default();
            let (mut next, mut is_over) = (0, false);
            while !is_over {
                let line = format!("GET {}{topic}/messages?from={next}&limit={PAGE}", self.path);
                poster.send(&line, "Accept: application/json\r\n", b"").await?;
                let page: Page<'_> = serde_json::from_slice(poster.body()).context("no page of messages")?;
                for message in &page.messages {
                    let payload = BASE64_STANDARD.decode(message.data_base64)?;
                    let identity = Identity::read(&payload).filter(|identity| identity.writer == topic);
                    let identity = identity.context("a message that is not of this topic")?;
                    ensure!(arrived.take(identity.seq), "a message with an impossible number");
                    count += 1;
                }
                (next, is_over) = (page.next, page.up_to_date);
            }
            faults.add(Faults {
                missing: arrived.missing(*confirmed),
                duplicates: arrived.duplicates(),
                out_of_order: arrived.out_of_order(),
            });
        }
        Ok((faults, count))
    }
}
