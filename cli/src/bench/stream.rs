//! Writers and readers over the WebSocket, or over server-sent events, or as workers of a queue.

mod apart;
mod cold;
mod crew;
mod door;
mod node;
mod payloads;
mod publishing;
mod reader;
mod reading;
mod replay;
mod report;
mod shape;
mod sse;
mod worker;
mod writer;
mod ws_worker;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use http::{HeaderMap, Method};
use serde_json::json;

use self::apart::Apart;
pub(super) use self::apart::client;
use self::crew::{Crew, Members};
use self::door::Door;
use self::payloads::Noise;
use self::shape::Consumption;
pub(super) use self::shape::Shape;
use super::Bench;
use super::disk;
use super::meter::Meter;
use super::result::RunResult;
use super::schedule::Window;
use super::tally::Tally;
use super::target::{Reach, Target};
use crate::args::{BenchTarget, Rate};
use crate::client::Api;
use crate::output;

/// What may still be confirmed after the last message was sent has this long.
const CONFIRM_TIME_MAX: Duration = Duration::from_secs(30);
/// A reader that gets nothing for this long, once all is written, has got all that comes.
const DRAIN_QUIET_MAX: Duration = Duration::from_secs(5);
/// From when everybody is connected to the first message.
const LEAD: Duration = Duration::from_millis(200);
/// How often the progress line changes.
const PROGRESS_EVERY: Duration = Duration::from_millis(500);

/// What all tasks of a run share.
struct Shared {
    shape: Shape,
    /// Messages per second of one writer; `None`: as many as go.
    per_writer: Option<u64>,
    /// Name of this run, in topics, producers and the subscription.
    run: String,
    /// What messages are made of.
    noise: Noise,
    /// Messages that each writer has sent, set when it has finished.
    sent: Vec<AtomicU64>,
    /// Messages that all readers got, or all workers settled, for the progress line.
    taken: AtomicU64,
    /// The same of readers or workers in other processes.
    taken_by_others: AtomicU64,
}

impl Shared {
    fn new(shape: Shape, run: String) -> Self {
        let per_writer = match shape.rate {
            Rate::PerSecond(rate) => Some(rate.div_ceil(u64::from(shape.writers))),
            Rate::Max => None,
        };
        let sent = (0..shape.writers).map(|_| AtomicU64::new(u64::MAX)).collect();
        let (taken, taken_by_others) = (AtomicU64::new(0), AtomicU64::new(0));
        let noise = Noise::new(shape.payload);
        Self { shape, per_writer, run, noise, sent, taken, taken_by_others }
    }

    /// Writers whose messages a reader gets.
    fn writers_of(&self, reader: u32) -> impl Iterator<Item = u32> + use<> {
        let (topics, writers) = (self.shape.topics, self.shape.writers);
        (0..writers).filter(move |writer| writer % topics == reader % topics)
    }

    /// `u64::MAX` until it is known.
    fn sent_by(&self, writer: u32) -> u64 {
        self.sent[writer as usize].load(Ordering::Acquire)
    }

    fn sent_by_all(&self) -> u64 {
        self.sent.iter().map(|sent| sent.load(Ordering::Acquire)).fold(0, u64::saturating_add)
    }

    /// Whether everything that was sent is taken, or settled.
    fn is_all_taken(&self) -> bool {
        let taken = self.taken.load(Ordering::Relaxed) + self.taken_by_others.load(Ordering::Relaxed);
        taken >= self.sent_by_all()
    }

    fn subscription(&self) -> String {
        format!("bench-{}", self.run)
    }
}

/// Runs each shape and tells its result.
pub(super) async fn run(bench: &mut Bench, target: &BenchTarget, shapes: Vec<Shape>) -> anyhow::Result<()> {
    for shape in shapes {
        let mut target = Target::start_as(&bench.connect, target, shape.setup()).await?;
        for result in Box::pin(measure(&mut target, shape)).await? {
            bench.emit(result)?;
        }
    }
    Ok(())
}

async fn measure(target: &mut Target, shape: Shape) -> anyhow::Result<Vec<RunResult>> {
    let run = ulid::Ulid::new().to_string().to_lowercase();
    let shared = Arc::new(Shared::new(shape, run));
    make(target, &shared).await?;
    let mut results = match shared.shape.consumption {
        Consumption::Follow | Consumption::Queue { .. } => vec![live(target, &shared).await?],
        Consumption::Replay | Consumption::Crash => vec![replay::run(target, &shared).await?],
        Consumption::Cold => Box::pin(cold::run(target, &shared)).await?,
    };
    for result in &mut results {
        result.warmup_s = shared.shape.warmup.as_secs_f64();
    }
    if let Some(last) = results.last_mut() {
        disk::measure(target, shared.shape.rate, last).await?;
    }
    remove(target, &shared).await?;
    Ok(results)
}

/// Topics, and the subscription of a queue.
async fn make(target: &Target, shared: &Shared) -> anyhow::Result<()> {
    let shape = &shared.shape;
    if let Door::Node(node) = Door::open(&target.reach, shape.transport).await? {
        for topic in 0..shape.topics {
            node.create(&shape.topic(&shared.run, topic), shape.partitions, shape.deliver_from).await?;
        }
        return Ok(());
    }
    let api = Api::new(&target.reach.connect)?;
    let put = async |path: String, body: serde_json::Value| {
        let path = api.path(&path);
        let sent = api.send(Method::PUT, &path, HeaderMap::new(), body.to_string()).await;
        sent.with_context(|| format!("cannot create {path}"))
    };
    for topic in 0..shape.topics {
        let name = shape.topic(&shared.run, topic);
        put(format!("topics/{name}"), config(shape)).await?;
        if let Consumption::Queue { .. } = shape.consumption {
            put(format!("topics/{name}.dead"), json!({})).await?;
            let body = json!({"mode": "queue", "topics": [name], "dlq": format!("{name}.dead"),
                "max_unacked": 1_000_000, "backoff_ms": [worker::DELAY_MS]});
            put(format!("subscriptions/{}", shared.subscription()), body).await?;
        }
    }
    Ok(())
}

fn config(shape: &Shape) -> serde_json::Value {
    json!({"partitions": shape.partitions, "deliver_from": shape.deliver_from.as_str()})
}

async fn remove(target: &Target, shared: &Shared) -> anyhow::Result<()> {
    if let Door::Node(node) = Door::open(&target.reach, shared.shape.transport).await? {
        for topic in 0..shared.shape.topics {
            node.delete(&shared.shape.topic(&shared.run, topic)).await?;
        }
        return Ok(());
    }
    let api = Api::new(&target.reach.connect)?;
    let mut paths = Vec::new();
    for topic in 0..shared.shape.topics {
        let name = shared.shape.topic(&shared.run, topic);
        paths.push(format!("topics/{name}"));
        if let Consumption::Queue { .. } = shared.shape.consumption {
            paths.insert(0, format!("subscriptions/{}", shared.subscription()));
            paths.push(format!("topics/{name}.dead"));
        }
    }
    for path in paths {
        let path = api.path(&path);
        api.send(Method::DELETE, &path, HeaderMap::new(), "").await.context("cannot clean up")?;
    }
    Ok(())
}

/// Writers and readers, in this process or in others.
enum Clients {
    Here(Crew),
    Apart(Apart),
}

impl Clients {
    async fn connect(reach: &Reach, shared: &Arc<Shared>) -> anyhow::Result<Self> {
        Ok(match shared.shape.clients {
            1 => Self::Here(Crew::connect(reach, shared, Members::ALL).await?),
            clients => Self::Apart(Apart::connect(reach, shared, clients).await?),
        })
    }

    fn pids(&self) -> Vec<u32> {
        match self {
            Self::Here(_) => Vec::new(),
            Self::Apart(apart) => apart.pids(),
        }
    }

    async fn begin(&mut self, start: Instant, window: Window, measured: Duration) -> anyhow::Result<()> {
        match self {
            Self::Here(crew) => crew.begin(start, window),
            Self::Apart(apart) => apart.begin(start, measured).await?,
        }
        Ok(())
    }

    async fn write(&mut self) -> anyhow::Result<Tally> {
        match self {
            Self::Here(crew) => crew.write().await,
            Self::Apart(apart) => apart.write().await,
        }
    }

    async fn read(&mut self) -> anyhow::Result<Tally> {
        match self {
            Self::Here(crew) => {
                crew.all_is_written();
                crew.read().await
            }
            Self::Apart(apart) => {
                apart.all_is_written().await?;
                apart.read().await
            }
        }
    }
}

/// Everybody at once: writers, and readers or workers.
async fn live(target: &Target, shared: &Arc<Shared>) -> anyhow::Result<RunResult> {
    let shape = &shared.shape;
    let measured = if shape.messages.is_some() { Duration::MAX } else { shape.measured };
    let mut clients = Clients::connect(&target.reach, shared).await?;
    let start = Instant::now() + LEAD;
    let window = Window::new(start, shape.warmup, measured);
    clients.begin(start, window, measured).await?;
    let progress = tokio::spawn(progress(Arc::clone(shared), window));
    tokio::time::sleep_until((start + shape.warmup).into()).await;
    let meter = Meter::start(Some(target), clients.pids()).await;
    let (mut tally, used) = if shape.messages.is_none() {
        // Whoever fails meanwhile is heard at once.
        let end = start + shape.warmup + shape.measured;
        let mut writing = Box::pin(clients.write());
        let early = tokio::time::timeout_at(end.into(), &mut writing).await;
        let used = meter.stop(Some(target)).await;
        let tally = match early {
            Ok(tally) => tally?,
            Err(_) => tokio::time::timeout(CONFIRM_TIME_MAX, writing)
                .await
                .context("the run is void: 30 s after its end not everything is confirmed")??,
        };
        (tally, used)
    } else {
        let tally = clients.write().await?;
        (tally, meter.stop(Some(target)).await)
    };
    let done = Instant::now();
    tally.add(&clients.read().await?);
    let drained_s = done.elapsed().as_secs_f64();
    progress.abort();
    let mut result = report::report(shared, &mut tally, &used, drained_s);
    // Whoever waited in vain did so before it gave up, which is not draining.
    result.drain_s = (!result.is_faulty()).then_some(drained_s);
    if let Consumption::Queue { .. } = shape.consumption {
        worker::verify(target, shared, &tally, &mut result).await?;
    }
    Ok(result)
}

#[expect(clippy::cast_precision_loss, reason = "a rate is shown to three digits")]
fn mebibytes(bytes: usize) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// A line on the terminal: which part of the run it is, and how fast readers get messages.
async fn progress(shared: Arc<Shared>, window: Window) {
    let bar = output::spinner("");
    let mut before = 0;
    loop {
        tokio::time::sleep(PROGRESS_EVERY).await;
        let taken = shared.taken.load(Ordering::Relaxed);
        let now = window.now_ns();
        let part = if shared.sent_by_all() < u64::MAX {
            "draining"
        } else if window.counts(now) {
            "measuring"
        } else {
            "warming up"
        };
        let per_s = (taken - before) * 1_000 / PROGRESS_EVERY.as_millis().max(1) as u64;
        before = taken;
        bar.set_message(format!(
            "{} {}: {part}, {taken} taken, {per_s}/s",
            shared.shape.workload, shared.shape.case
        ));
    }
}
