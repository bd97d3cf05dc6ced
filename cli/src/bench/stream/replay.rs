//! First all is written, then readers come; in between the product may be killed.

use std::sync::Arc;
use std::time::{Duration, Instant};

use tokio::sync::watch;
use tokio::task::JoinSet;

use super::door::Door;
use super::shape::Consumption;
use super::{LEAD, Shared, crew, mebibytes, progress, writer};
use crate::bench::meter::{Meter, Used};
use crate::bench::poster::Poster;
use crate::bench::result::{Figure, Percentiles, RunResult};
use crate::bench::schedule::{self, Window};
use crate::bench::tally::Tally;
use crate::bench::target::Target;

pub(super) async fn run(target: &mut Target, shared: &Arc<Shared>) -> anyhow::Result<RunResult> {
    let written = write(target, shared).await?;
    let mut figures = Vec::new();
    if shared.shape.consumption == Consumption::Crash {
        figures = crash(target, shared).await?;
    }
    let (read, used) = read(target, shared).await?;
    let mut result = report(shared, &written, &read, &used);
    result.figures.splice(0..0, figures);
    Ok(result)
}

/// Writes everything; what the writers saw.
pub(super) async fn write(target: &Target, shared: &Arc<Shared>) -> anyhow::Result<Tally> {
    let door = Door::open(&target.reach, shared.shape.transport).await?;
    let window = whole();
    let mut writing = JoinSet::new();
    let ticks = schedule::ticks(Instant::now() + LEAD);
    for number in 0..shared.shape.writers {
        writing.spawn(writer::Writer::connect(&door, shared, number).await?.run(window, ticks.clone()));
    }
    let progress = tokio::spawn(progress(Arc::clone(shared), window));
    let written = crew::joined(&mut writing).await;
    progress.abort();
    written
}

/// Reads everything; what the readers saw, and what it cost.
pub(super) async fn read(target: &Target, shared: &Arc<Shared>) -> anyhow::Result<(Tally, Used)> {
    let (shape, window) = (&shared.shape, whole());
    let progress = tokio::spawn(progress(Arc::clone(shared), window));
    let meter = Meter::start(Some(target), Vec::new()).await;
    let (_written, all_written) = watch::channel(true);
    let door = Door::open(&target.reach, shape.transport).await?;
    let connecting = (0..shape.readers).map(|number| crew::consumer(&door, shared, number));
    let mut reading = JoinSet::new();
    for consumer in futures_util::future::try_join_all(connecting).await? {
        consumer.spawn(&mut reading, window, all_written.clone());
    }
    let read = crew::joined(&mut reading).await;
    let used = meter.stop(Some(target)).await;
    progress.abort();
    Ok((read?, used))
}

/// Everything counts.
fn whole() -> Window {
    Window::new(Instant::now() + LEAD, Duration::ZERO, Duration::MAX)
}

/// The result of reading what was written.
pub(super) fn report(shared: &Shared, written: &Tally, read: &Tally, used: &Used) -> RunResult {
    let shape = &shared.shape;
    let mut result = RunResult::new(&shape.workload, shape.case.clone());
    result.seconds = used.seconds;
    result.latencies = vec![Percentiles::of("replay", &read.replay)];
    #[expect(clippy::cast_precision_loss, reason = "a rate is shown to three digits")]
    let per_s = read.delivered as f64 / used.seconds;
    result.figures.push(Figure::new("read_per_s", per_s));
    result.figures.push(Figure::new("read_mib_per_s", per_s * mebibytes(shape.payload)));
    result.figures.extend(used.figures(read.delivered, shape.payload));
    // Nothing is written while it is read.
    result.figures.retain(|figure| !figure.name.ends_with("_per_published_byte"));
    result.identify(written.sent, written.confirmed, read.delivered, read.faults);
    result
}

/// Kills the product, and what it takes until a message is confirmed again.
async fn crash(target: &mut Target, shared: &Shared) -> anyhow::Result<Vec<Figure>> {
    let journal_bytes = target.metrics(["weir_journal_written_bytes_total"]).await[0].unwrap_or(0.0);
    let start = Instant::now();
    let ready = target.crash().await?;
    let since_kill = start.elapsed();
    let mut poster = Poster::connect(&target.reach.connect.url).await?;
    let path =
        format!("/v1/ns/{}/topics/bench-{}-after/messages", target.reach.connect.namespace, shared.run);
    poster.send(&format!("POST {path}"), "", b"first").await?;
    let confirm = ready + start.elapsed().saturating_sub(since_kill);
    Ok(vec![
        Figure::new("ready_s", ready.as_secs_f64()),
        Figure::new("first_confirm_s", confirm.as_secs_f64()),
        Figure::new("journal_mib", journal_bytes / 1_048_576.0),
        Figure::new("recovered_mib_per_s", journal_bytes / 1_048_576.0 / confirm.as_secs_f64()),
    ])
}
