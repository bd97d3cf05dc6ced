//! Writers and readers over the WebSocket, or over server-sent events, or as workers of a queue.

mod reader;
mod shape;
mod sse;
mod worker;
mod writer;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use anyhow::Context as _;
use http::{HeaderMap, Method};
use serde_json::json;
use tokio::sync::watch;
use tokio::task::JoinSet;

use self::shape::Consumption;
pub(super) use self::shape::Shape;
use super::Bench;
use super::meter::{Meter, Used};
use super::result::{Figure, Percentiles, RunResult};
use super::schedule::{self, Window};
use super::tally::Tally;
use super::target::Target;
use crate::args::{BenchTarget, Rate, Transport};
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
    /// Messages that each writer has sent, set when it has finished.
    sent: Vec<AtomicU64>,
    /// Messages that all readers got, or all workers settled, for the progress line.
    taken: AtomicU64,
}

impl Shared {
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

    fn subscription(&self) -> String {
        format!("bench-{}", self.run)
    }
}

/// Runs each shape and tells its result.
pub(super) async fn run(bench: &mut Bench, target: &BenchTarget, shapes: Vec<Shape>) -> anyhow::Result<()> {
    for shape in shapes {
        let mut target = Target::start(&bench.connect, target).await?;
        let result = measure(&mut target, shape).await?;
        bench.emit(result)?;
    }
    Ok(())
}

async fn measure(target: &mut Target, shape: Shape) -> anyhow::Result<RunResult> {
    let per_writer = match shape.rate {
        Rate::PerSecond(rate) => Some(rate.div_ceil(u64::from(shape.writers))),
        Rate::Max => None,
    };
    let shared = Arc::new(Shared {
        per_writer,
        run: ulid::Ulid::new().to_string().to_lowercase(),
        sent: (0..shape.writers).map(|_| AtomicU64::new(u64::MAX)).collect(),
        taken: AtomicU64::new(0),
        shape,
    });
    make(target, &shared).await?;
    let mut result = match shared.shape.consumption {
        Consumption::Follow | Consumption::Queue { .. } => live(target, &shared).await?,
        Consumption::Replay | Consumption::Crash => replay(target, &shared).await?,
    };
    result.warmup_s = shared.shape.warmup.as_secs_f64();
    remove(target, &shared).await?;
    Ok(result)
}

/// Topics, and the subscription of a queue.
async fn make(target: &Target, shared: &Shared) -> anyhow::Result<()> {
    let api = Api::new(&target.connect)?;
    let put = async |path: String, body: serde_json::Value| {
        let path = api.path(&path);
        let sent = api.send(Method::PUT, &path, HeaderMap::new(), body.to_string()).await;
        sent.with_context(|| format!("cannot create {path}"))
    };
    for topic in 0..shared.shape.topics {
        let name = shared.shape.topic(&shared.run, topic);
        put(format!("topics/{name}"), config(&shared.shape)).await?;
        if let Consumption::Queue { .. } = shared.shape.consumption {
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
    let api = Api::new(&target.connect)?;
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

/// Everybody at once: writers, and readers or workers.
async fn live(target: &Target, shared: &Arc<Shared>) -> anyhow::Result<RunResult> {
    let shape = &shared.shape;
    let measured = if shape.messages.is_some() { Duration::MAX } else { shape.measured };
    let consumers = consumers(target, shared).await?;
    let writers = connected(shape.writers, |n| writer::Writer::connect(target, shared, n)).await?;
    let start = Instant::now() + LEAD;
    let window = Window::new(start, shape.warmup, measured);
    let (written, all_written) = watch::channel(false);
    let (mut writing, mut reading) = (JoinSet::new(), JoinSet::new());
    for consumer in consumers {
        consumer.spawn(&mut reading, window, all_written.clone());
    }
    let ticks = schedule::ticks(start);
    for writer in writers {
        writing.spawn(writer.run(window, ticks.clone()));
    }
    let progress = tokio::spawn(progress(Arc::clone(shared), window));
    tokio::time::sleep_until((start + shape.warmup).into()).await;
    let meter = Meter::start(Some(target)).await;
    let mut tally = Tally::new();
    let mut used = None;
    if shape.messages.is_none() {
        tokio::time::sleep_until((start + shape.warmup + shape.measured).into()).await;
        used = Some(meter.stop(Some(target)).await);
        confirmed(&mut writing, &mut tally).await?;
    } else {
        joined(&mut writing, &mut tally).await?;
        used.replace(meter.stop(Some(target)).await);
    }
    let done = Instant::now();
    written.send_replace(true);
    joined(&mut reading, &mut tally).await?;
    let drained = done.elapsed();
    progress.abort();
    let mut result = report(shared, &mut tally, used.unwrap_or_default());
    // Whoever waited in vain did so before it gave up, which is not draining.
    result.drain_s = (!result.is_faulty()).then_some(drained.as_secs_f64());
    if let Consumption::Queue { .. } = shape.consumption {
        worker::verify(target, shared, &tally, &mut result).await?;
    }
    Ok(result)
}

/// First all is written, then readers come; in between the product may be killed.
async fn replay(target: &mut Target, shared: &Arc<Shared>) -> anyhow::Result<RunResult> {
    let shape = &shared.shape;
    let writers = connected(shape.writers, |n| writer::Writer::connect(target, shared, n)).await?;
    let window = Window::new(Instant::now() + LEAD, Duration::ZERO, Duration::MAX);
    let mut writing = JoinSet::new();
    let ticks = schedule::ticks(Instant::now() + LEAD);
    for writer in writers {
        writing.spawn(writer.run(window, ticks.clone()));
    }
    let progress = tokio::spawn(progress(Arc::clone(shared), window));
    let mut tally = Tally::new();
    joined(&mut writing, &mut tally).await?;
    let mut figures = Vec::new();
    if shape.consumption == Consumption::Crash {
        figures = crash(target, shared).await?;
    }
    let meter = Meter::start(Some(target)).await;
    let (_written, all_written) = watch::channel(true);
    let mut reading = JoinSet::new();
    for consumer in consumers(target, shared).await? {
        consumer.spawn(&mut reading, window, all_written.clone());
    }
    joined(&mut reading, &mut tally).await?;
    let used = meter.stop(Some(target)).await;
    progress.abort();
    let mut result = RunResult::new(shape.workload, shape.case.clone());
    result.seconds = used.seconds;
    result.latencies = vec![Percentiles::of("replay", &tally.replay)];
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown to three digits")]
    let per_s = tally.delivered as f64 / used.seconds;
    figures.push(Figure::new("read_per_s", per_s));
    figures.push(Figure::new("read_mib_per_s", per_s * mebibytes(shape.payload)));
    result.figures = figures;
    result.figures.extend(used.figures(tally.delivered, shape.payload));
    result.identify(tally.sent, tally.confirmed, tally.delivered, tally.faults);
    Ok(result)
}

/// Kills the product, and what it takes until a message is confirmed again.
async fn crash(target: &mut Target, shared: &Shared) -> anyhow::Result<Vec<Figure>> {
    let journal_bytes = target.metric("weir_journal_written_bytes_total").await;
    let start = Instant::now();
    let ready = target.crash().await?;
    let since_kill = start.elapsed();
    let mut poster = super::poster::Poster::connect(&target.connect.url).await?;
    let path = format!("/v1/ns/{}/topics/bench-{}-after/messages", target.connect.namespace, shared.run);
    poster.send(&format!("POST {path}"), "", b"first").await?;
    let confirm = ready + start.elapsed().saturating_sub(since_kill);
    Ok(vec![
        Figure::new("ready_s", ready.as_secs_f64()),
        Figure::new("first_confirm_s", confirm.as_secs_f64()),
        Figure::new("journal_mib", journal_bytes / 1_048_576.0),
        Figure::new("recovered_mib_per_s", journal_bytes / 1_048_576.0 / confirm.as_secs_f64()),
    ])
}

#[expect(clippy::cast_precision_loss, reason = "a rate is shown to three digits")]
fn mebibytes(bytes: usize) -> f64 {
    bytes as f64 / 1_048_576.0
}

/// What readers and workers have in common.
enum Consumer {
    Reader(Box<reader::Reader>),
    Sse(sse::SseReader),
    Worker(worker::Worker),
}

impl Consumer {
    fn spawn(
        self,
        tasks: &mut JoinSet<anyhow::Result<Tally>>,
        window: Window,
        written: watch::Receiver<bool>,
    ) {
        match self {
            Self::Reader(reader) => tasks.spawn(reader.run(window, written)),
            Self::Sse(reader) => tasks.spawn(reader.run(window, written)),
            Self::Worker(worker) => tasks.spawn(worker.run(window, written)),
        };
    }
}

/// Connects those that read or work.
async fn consumers(target: &Target, shared: &Arc<Shared>) -> anyhow::Result<Vec<Consumer>> {
    let shape = &shared.shape;
    connected(shape.readers, async |n| {
        Ok(match (shape.consumption, shape.transport) {
            (Consumption::Queue { prefetch }, _) => {
                Consumer::Worker(worker::Worker::connect(target, shared, prefetch).await?)
            }
            (_, Transport::Sse) => Consumer::Sse(sse::SseReader::connect(target, shared, n).await?),
            _ => Consumer::Reader(Box::new(reader::Reader::connect(target, shared, n).await?)),
        })
    })
    .await
}

/// Connects all at once, since each waits for answers.
async fn connected<T>(count: u32, connect: impl AsyncFn(u32) -> anyhow::Result<T>) -> anyhow::Result<Vec<T>> {
    futures_util::future::try_join_all((0..count).map(|number| connect(number))).await
}

async fn joined(tasks: &mut JoinSet<anyhow::Result<Tally>>, tally: &mut Tally) -> anyhow::Result<()> {
    while let Some(task) = tasks.join_next().await {
        tally.add(&task.context("a task of the run failed")??);
    }
    Ok(())
}

/// The same for writers whose time is over.
async fn confirmed(tasks: &mut JoinSet<anyhow::Result<Tally>>, tally: &mut Tally) -> anyhow::Result<()> {
    tokio::time::timeout(CONFIRM_TIME_MAX, joined(tasks, tally))
        .await
        .context("the run is void: 30 s after its end not everything is confirmed")?
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

/// The result of a run with everybody at once.
#[expect(clippy::cast_precision_loss, reason = "figures are shown to three digits")]
fn report(shared: &Shared, tally: &mut Tally, used: Used) -> RunResult {
    let shape = &shared.shape;
    let seconds = if shape.messages.is_some() { used.seconds } else { shape.measured.as_secs_f64() };
    let is_queue = matches!(shape.consumption, Consumption::Queue { .. });
    // Unconfirmed publishes are counted where they arrive.
    let messages = if shape.confirm.is_some() { tally.confirmed_in_window } else { tally.deliver.count() };
    let messages =
        messages.checked_div(if shape.confirm.is_some() { 1 } else { per_message(shape) }).unwrap_or(0);
    let delivered = tally.deliver.count();
    let mut result = RunResult::new(shape.workload, shape.case.clone());
    result.seconds = seconds;
    result.latencies = vec![
        Percentiles::of("due to sent", &tally.late),
        Percentiles::of("generator late", &tally.generator),
        Percentiles::of("confirm", &tally.confirm),
        Percentiles::of("deliver", &tally.deliver),
        Percentiles::of("settle", &tally.settle),
    ];
    result.latencies.retain(|latency| latency.count > 0);
    let asked = shared.per_writer.map(|rate| rate * u64::from(shape.writers));
    // Whole messages per second of each writer: what was really asked for.
    result.figures.extend(asked.map(|asked| Figure::new("asked_per_s", asked as f64)));
    result.figures.push(Figure::new("confirmed_per_s", messages as f64 / seconds));
    result.figures.push(Figure::new("delivered_per_s", delivered as f64 / seconds));
    result
        .figures
        .push(Figure::new("published_mib_per_s", messages as f64 / seconds * mebibytes(shape.payload)));
    result.figures.push(Figure::new("batches_per_s", tally.batches as f64 / seconds));
    if let Some(server) = used.server.filter(|_| shape.readers > shape.topics && !is_queue) {
        let each = server.cpu_s * 1e6 / delivered.max(1) as f64;
        result.figures.push(Figure::new("server_cpu_us_per_delivery", each));
    }
    result.figures.extend(used.figures(messages, shape.payload));
    if is_queue {
        result.figures.push(Figure::new("nacked", tally.nacked as f64));
        result.figures.push(Figure::new("dead", tally.dead as f64));
        for (writer, settled) in &tally.settled {
            tally.faults.missing += settled.missing(shared.sent_by(*writer));
            tally.faults.duplicates += settled.duplicates();
        }
    }
    if shape.confirm.is_none() {
        result.figures.retain(|figure| figure.name != "confirmed_per_s");
        result
            .remarks
            .push("publishes were not confirmed: messages are counted where they arrive".to_owned());
    }
    result.identify(tally.sent, tally.confirmed, tally.delivered, tally.faults);
    result.judge_generator(&tally.generator);
    if shape.topics > shape.readers {
        let unread = shape.topics - shape.readers;
        result.remarks.push(format!("{unread} topics had no reader: that they can be read is not proven"));
    }
    result
}

/// Deliveries of each message.
fn per_message(shape: &Shape) -> u64 {
    match shape.consumption {
        Consumption::Queue { .. } => 1,
        _ => u64::from((shape.readers / shape.topics).max(1)),
    }
}
