//! What topics cost that nobody uses: memory, threads, processor time.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::{TryStreamExt as _, stream};
use http::{HeaderMap, Method};

use super::Bench;
use super::meter::Meter;
use super::result::{Figure, RunResult};
use super::target::Target;
use crate::args::IdleArgs;
use crate::client::Api;
use crate::output;

/// Requests under way while topics are made.
const AT_ONCE: usize = 16;
/// One of this many topics holds a message.
const ONE_IN: u32 = 10;
/// From the last topic to what counts: what was put off is done by then.
const SETTLE: Duration = Duration::from_secs(10);

/// Makes topics, waits, and measures how little happens.
pub(super) async fn run(bench: &mut Bench, args: &IdleArgs) -> anyhow::Result<()> {
    let target = Target::start(&bench.connect, &args.target).await?;
    let api = Api::new(&target.connect)?;
    let progress = output::spinner("making topics");
    let before = Meter::start(Some(&target)).await.stop(Some(&target)).await;
    stream::iter((0..args.topics).map(Ok)).try_for_each_concurrent(AT_ONCE, |n| make(&api, n)).await?;
    progress.set_message(format!("waiting, then measuring for {} s", args.seconds));
    tokio::time::sleep(SETTLE).await;
    let meter = Meter::start(Some(&target)).await;
    tokio::time::sleep(Duration::from_secs(args.seconds)).await;
    let used = meter.stop(Some(&target)).await;
    progress.finish_and_clear();
    let server = used.server.context("with --running, name the process with --pid")?;
    let empty = before.server.map_or(0, |server| server.rss_bytes);
    let case = format!("{} topics, one in {ONE_IN} with a message", args.topics);
    let mut result = RunResult::new("idle", case);
    (result.warmup_s, result.seconds) = (SETTLE.as_secs_f64(), used.seconds);
    #[expect(clippy::cast_precision_loss, reason = "figures are shown to three digits")]
    let (resident, each) = (
        server.rss_bytes as f64,
        server.rss_bytes.saturating_sub(empty) as f64 / f64::from(args.topics.max(1)),
    );
    #[expect(clippy::cast_precision_loss, reason = "figures are shown to three digits")]
    let threads = server.threads as f64;
    result.figures = vec![
        Figure::new("core_pct", server.cpu_s / used.seconds * 100.0),
        Figure::new("server_cpu_s", server.cpu_s),
        Figure::new("syncs", used.syncs),
        Figure::new("threads", threads),
        Figure::new("server_rss_mib", resident / 1_048_576.0),
        Figure::new("grown_rss_bytes_per_topic", each),
    ];
    bench.emit(result)
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
