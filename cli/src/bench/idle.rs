//! What topics cost that nobody uses, and WebSockets and connections that say nothing: memory, threads, processor time.

use std::time::Duration;

use anyhow::{Context as _, bail};
use futures_util::{TryStreamExt as _, stream};
use http::{HeaderMap, Method};
use tokio::task::JoinSet;
use weir_protocol::start::parse_from;
use weir_protocol::ws::{Channel, Limit, ServerFrame, Sub};

use super::Bench;
use super::meter::{Meter, Used};
use super::poster::Poster;
use super::result::{Figure, RunResult};
use super::target::Target;
use crate::args::{Connect, IdleArgs};
use crate::client::{Api, Wire};
use crate::output;

/// Requests, or connections that are being made, under way at once.
const AT_ONCE: usize = 16;
/// One of this many topics holds a message.
const ONE_IN: u32 = 10;
/// From the last topic to what counts: what was put off is done by then.
const SETTLE: Duration = Duration::from_secs(10);
/// Credit of a socket that follows a topic.
const CREDIT: Limit = Limit { msgs: 1_000, bytes: 1 << 20 };

/// Makes topics, waits, and measures how little happens; then the same with WebSockets, and with connections.
pub(super) async fn run(bench: &mut Bench, args: &IdleArgs) -> anyhow::Result<()> {
    let target = Target::start(&bench.connect, &args.target).await?;
    let api = Api::new(&target.reach.connect)?;
    let progress = output::spinner("making topics");
    let mut resident = resident(&target).await?;
    let mut sockets = JoinSet::new();
    if args.topics > 0 {
        let making = stream::iter((0..args.topics).map(Ok));
        making.try_for_each_concurrent(AT_ONCE, |n| make(&api, n)).await?;
        progress.set_message(format!("waiting, then measuring for {} s", args.seconds));
        let used = quiet(&target, args.seconds).await;
        let case = format!("{} topics, one in {ONE_IN} with a message", args.topics);
        let (result, now) = report(case, &used, ("topic", args.topics), resident)?;
        bench.emit(result)?;
        resident = now;
    }
    if args.sockets > 0 {
        progress.set_message("connecting");
        let connect = &target.reach.connect;
        let connecting = stream::iter((0..args.sockets).map(Ok));
        let wires: Vec<Wire> = connecting
            .map_ok(|n| socket(connect, n, args.topics))
            .try_buffer_unordered(AT_ONCE)
            .try_collect()
            .await?;
        for wire in wires {
            sockets.spawn(stay(wire));
        }
        progress.set_message(format!("waiting, then measuring for {} s", args.seconds));
        let used = quiet(&target, args.seconds).await;
        if let Some(ended) = sockets.try_join_next() {
            ended.context("a task of the run failed")??;
        }
        let does = if args.topics > 0 { "each following a topic" } else { "welcomed" };
        let case = format!("{} WebSockets, {does}, beside {} topics", args.sockets, args.topics);
        let (result, now) = report(case, &used, ("socket", args.sockets), resident)?;
        bench.emit(result)?;
        resident = now;
    }
    if args.connections > 0 {
        progress.set_message("connecting");
        let connecting = stream::iter((0..args.connections).map(Ok));
        let url = &target.reach.connect.url;
        let kept: Vec<Poster> =
            connecting.map_ok(|_| connection(url)).try_buffer_unordered(AT_ONCE).try_collect().await?;
        progress.set_message(format!("waiting, then measuring for {} s", args.seconds));
        let used = quiet(&target, args.seconds).await;
        let case = format!("{} HTTP connections, kept after one request", kept.len());
        bench.emit(report(case, &used, ("connection", args.connections), resident)?.0)?;
    }
    progress.finish_and_clear();
    Ok(())
}

/// A connection with which one request was made.
async fn connection(url: &str) -> anyhow::Result<Poster> {
    let mut poster = Poster::connect(url).await?;
    poster.send("GET /healthz", "", b"").await?;
    Ok(poster)
}

/// Resident memory of the server now.
async fn resident(target: &Target) -> anyhow::Result<u64> {
    let used = Meter::start(Some(target), Vec::new()).await.stop(Some(target)).await;
    Ok(used.server.context("with --running, name the process with --pid")?.rss_bytes)
}

/// What is used while nothing is asked for.
async fn quiet(target: &Target, seconds: u64) -> Used {
    tokio::time::sleep(SETTLE).await;
    let meter = Meter::start(Some(target), Vec::new()).await;
    tokio::time::sleep(Duration::from_secs(seconds)).await;
    meter.stop(Some(target)).await
}

/// The result, and resident memory at its end.
#[expect(clippy::cast_precision_loss, reason = "figures are shown to three digits")]
fn report(
    case: String,
    used: &Used,
    (what, count): (&str, u32),
    before: u64,
) -> anyhow::Result<(RunResult, u64)> {
    let server = used.server.context("with --running, name the process with --pid")?;
    let grown = server.rss_bytes.saturating_sub(before) as f64;
    let mut result = RunResult::new("idle", case);
    (result.warmup_s, result.seconds) = (SETTLE.as_secs_f64(), used.seconds);
    result.figures = vec![
        Figure::new("core_pct", server.cpu_s / used.seconds * 100.0),
        Figure::new("server_cpu_s", server.cpu_s),
        Figure::new("syncs", used.syncs),
        Figure::new("threads", server.threads as f64),
        Figure::new("server_rss_mib", server.rss_bytes as f64 / 1_048_576.0),
        Figure::new(&format!("grown_rss_bytes_per_{what}"), grown / f64::from(count.max(1))),
        Figure::new("others_cpu_pct", used.others_share * 100.0),
    ];
    Ok((result, server.rss_bytes))
}

async fn make(api: &Api, n: u32) -> anyhow::Result<()> {
    let path = api.path(&format!("topics/idle-{n}"));
    api.send(Method::PUT, &path, HeaderMap::new(), "{}").await.context("cannot create a topic")?;
    if n.is_multiple_of(ONE_IN) {
        let path = format!("{path}/messages");
        api.send(Method::POST, &path, HeaderMap::new(), "1").await.context("cannot publish")?;
    }
    Ok(())
}

/// A connection; if there are topics, it follows one of them from its end.
async fn socket(connect: &Connect, n: u32, topics: u32) -> anyhow::Result<Wire> {
    let mut wire = Wire::connect(connect, Vec::new()).await?;
    if topics == 0 {
        return Ok(wire);
    }
    let sub = Sub {
        ns: Some(connect.namespace.clone()),
        topic: Some(format!("idle-{}", n % topics)),
        from: Some(parse_from("latest")?),
        limit: CREDIT,
        ..Sub::default()
    };
    wire.subscribe(Channel(1), sub).await?;
    Ok(wire)
}

/// Answers pings; nothing else comes.
async fn stay(mut wire: Wire) -> anyhow::Result<()> {
    loop {
        match wire.next().await? {
            (_, ServerFrame::CaughtUp(_)) => {}
            (_, other) => bail!("an idle connection was sent {other:?}"),
        }
    }
}
