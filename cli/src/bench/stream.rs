//! Writers and readers over the binary WebSocket.

mod reader;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::{Context as _, bail};
use http::{HeaderMap, Method};
use tokio::sync::watch;
use tokio::task::JoinSet;
use weir_protocol::rpc::Level;

use super::identity::IDENTITY_BYTES;
use super::report::StreamReport;
use super::schedule;
use super::tally::Tally;
use super::target::Target;
use crate::args::{BenchTarget, Connect, Rate, SteadyArgs};
use crate::client::Api;
use crate::output;

/// What may still arrive after the last message was sent has this long.
const DRAIN_TIME_MAX: Duration = Duration::from_secs(30);
/// From when everybody is connected to the first message.
const LEAD: Duration = Duration::from_millis(200);

/// Who does what.
#[derive(Debug, Clone)]
pub(super) struct Shape {
    writers: u32,
    readers: u32,
    topics: u32,
    payload: usize,
    /// Messages a writer has unconfirmed at most.
    window: u64,
    /// Messages a reader lets come before it has taken them.
    credit: u64,
    /// Messages in a batch at most.
    batch_max: u32,
    /// `None`: publishes are not confirmed.
    confirm: Option<Level>,
    warmup: Duration,
    measured: Duration,
    rates: Vec<Rate>,
}

impl Shape {
    /// A thousand messages a second for five seconds.
    pub(super) fn smoke() -> Self {
        Self {
            writers: 4,
            readers: 4,
            topics: 4,
            payload: 1_024,
            window: 1_024,
            credit: 16_384,
            batch_max: 256,
            confirm: Some(Level::Quorum),
            warmup: Duration::from_secs(1),
            measured: Duration::from_secs(5),
            rates: vec![Rate::PerSecond(1_000)],
        }
    }

    /// As asked for.
    pub(super) fn steady(args: &SteadyArgs) -> anyhow::Result<Self> {
        anyhow::ensure!(args.payload >= IDENTITY_BYTES, "--payload is at least {IDENTITY_BYTES} bytes");
        anyhow::ensure!(args.writers > 0 && args.window > 0 && args.batch > 0, "nothing would be published");
        let topics = args.topics.unwrap_or(args.writers);
        anyhow::ensure!(topics > 0 && topics <= args.writers, "--topics is from 1 to --writers");
        let confirm = match args.confirm.as_str() {
            "none" => None,
            "memory" => Some(Level::Memory),
            "durable" => Some(Level::Durable),
            "quorum" => Some(Level::Quorum),
            other => bail!("--confirm is none, memory, durable or quorum, not {other}"),
        };
        Ok(Self {
            writers: args.writers,
            readers: args.readers,
            topics,
            payload: args.payload,
            window: args.window,
            credit: args.credit,
            batch_max: args.batch,
            confirm,
            warmup: Duration::from_secs(args.warmup),
            measured: Duration::from_secs(args.seconds),
            rates: args.rate.clone(),
        })
    }

    fn topic(&self, run: &str, member: u32) -> String {
        format!("bench-{run}-{}", member % self.topics)
    }
}

/// What all tasks of a run share.
struct Shared {
    shape: Shape,
    /// Messages per second of one writer; `None`: as many as go.
    per_writer: Option<u64>,
    /// Name of this run, in topics and producers.
    run: String,
    /// Messages that each writer has sent, set when it has finished.
    sent: Vec<AtomicU64>,
}

/// When a run starts and which part of it counts.
#[derive(Debug, Clone, Copy)]
struct Window {
    start: Instant,
    /// Nanoseconds after the start.
    from_ns: u64,
    to_ns: u64,
}

impl Window {
    fn now_ns(&self) -> u64 {
        nanos(Instant::now().saturating_duration_since(self.start))
    }

    fn counts(&self, at_ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&at_ns)
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Runs the shape once per rate and prints each.
pub(super) async fn run(connect: &Connect, target: &BenchTarget, shape: &Shape) -> anyhow::Result<()> {
    let mut is_void = false;
    for rate in &shape.rates {
        let target = Target::start(connect, target).await?;
        let asked = match rate {
            Rate::PerSecond(rate) => Some(*rate),
            Rate::Max => None,
        };
        let report = measure(&target, shape, asked).await?;
        report.print(connect.json)?;
        is_void |= report.missing > 0 || report.duplicates > 0;
    }
    anyhow::ensure!(!is_void, "the run is void: messages were lost, repeated or out of order");
    Ok(())
}

async fn measure(target: &Target, shape: &Shape, asked: Option<u64>) -> anyhow::Result<StreamReport> {
    let run = ulid::Ulid::new().to_string().to_lowercase();
    let api = Api::new(&target.connect)?;
    for topic in 0..shape.topics {
        let path = api.path(&format!("topics/{}", shape.topic(&run, topic)));
        api.send(Method::PUT, &path, HeaderMap::new(), "{}").await.context("cannot create a topic")?;
    }
    let shared = Arc::new(Shared {
        shape: shape.clone(),
        per_writer: asked.map(|rate| rate.div_ceil(u64::from(shape.writers))),
        run: run.clone(),
        sent: (0..shape.writers).map(|_| AtomicU64::new(u64::MAX)).collect(),
    });
    let readers = connected(shape.readers, |n| reader::Reader::connect(target, &shared, n)).await?;
    let writers = connected(shape.writers, |n| writer::Writer::connect(target, &shared, n)).await?;
    let start = Instant::now() + LEAD;
    let window = Window { start, from_ns: nanos(shape.warmup), to_ns: nanos(shape.warmup + shape.measured) };
    let (written, all_written) = watch::channel(false);
    let (mut writing, mut reading) = (JoinSet::new(), JoinSet::new());
    for reader in readers {
        reading.spawn(reader.run(window, all_written.clone()));
    }
    let ticks = schedule::ticks(start);
    for writer in writers {
        writing.spawn(writer.run(window, ticks.clone()));
    }
    let progress = output::spinner("warming up");
    tokio::time::sleep_until((start + shape.warmup).into()).await;
    let before = target.usage().await;
    progress.set_message(format!("measuring for {} s", shape.measured.as_secs()));
    tokio::time::sleep_until((start + shape.warmup + shape.measured).into()).await;
    let usage = target.usage().await.since(before);
    progress.set_message("draining");
    let mut tally = Tally::new();
    joined(&mut writing, &mut tally).await?;
    written.send_replace(true);
    joined(&mut reading, &mut tally).await?;
    progress.finish_and_clear();
    for topic in 0..shape.topics {
        let path = api.path(&format!("topics/{}", shape.topic(&run, topic)));
        api.send(Method::DELETE, &path, HeaderMap::new(), "").await.context("cannot delete a topic")?;
    }
    // Whole messages per second of each writer: what was really asked for.
    let asked = shared.per_writer.map(|rate| rate * u64::from(shape.writers));
    let report = StreamReport::of(&tally, usage, shape.measured.as_secs_f64(), asked);
    Ok(StreamReport { topics_without_reader: shape.topics.saturating_sub(shape.readers), ..report })
}

/// Connects all at once, since each waits for answers.
async fn connected<T, F: Future<Output = anyhow::Result<T>>>(
    count: u32,
    connect: impl Fn(u32) -> F,
) -> anyhow::Result<Vec<T>> {
    futures_util::future::try_join_all((0..count).map(connect)).await
}

async fn joined(tasks: &mut JoinSet<anyhow::Result<Tally>>, tally: &mut Tally) -> anyhow::Result<()> {
    let all = async {
        while let Some(task) = tasks.join_next().await {
            tally.add(&task.context("a task of the run failed")??);
        }
        anyhow::Ok(())
    };
    tokio::time::timeout(DRAIN_TIME_MAX, all)
        .await
        .context("the run is void: 30 s after its end not everything has arrived")?
}

impl Shared {
    /// Writers whose messages a reader gets, and whether all of theirs have arrived.
    fn writers_of(&self, reader: u32) -> impl Iterator<Item = u32> {
        let (topics, writers) = (self.shape.topics, self.shape.writers);
        (0..writers).filter(move |writer| writer % topics == reader % topics)
    }

    fn sent_by(&self, writer: u32) -> u64 {
        self.sent[writer as usize].load(Ordering::Acquire)
    }
}
