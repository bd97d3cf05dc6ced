//! What topics cost that nobody uses: memory, threads, processor time.

use std::time::Duration;

use anyhow::Context as _;
use futures_util::{TryStreamExt as _, stream};
use http::{HeaderMap, Method};
use serde::Serialize;

use super::target::{Server, Target};
use crate::args::{Connect, IdleArgs};
use crate::client::Api;
use crate::output;

/// Requests under way while topics are made.
const AT_ONCE: usize = 16;
/// One of this many topics holds a message.
const ONE_IN: u32 = 10;
/// From the last topic to what counts: what was put off is done by then.
const SETTLE: Duration = Duration::from_secs(10);

#[derive(Debug, Serialize)]
struct IdleReport {
    topics: u32,
    seconds: u64,
    syncs: f64,
    /// Of `seconds`; the operating system counts in hundredths of a second.
    server: Server,
}

/// Makes topics, waits, and measures how little happens.
pub(super) async fn run(connect: &Connect, args: &IdleArgs) -> anyhow::Result<()> {
    let target = Target::start(connect, &args.target).await?;
    let api = Api::new(&target.connect)?;
    let progress = output::spinner("making topics");
    stream::iter((0..args.topics).map(Ok)).try_for_each_concurrent(AT_ONCE, |n| make(&api, n)).await?;
    progress.set_message(format!("waiting, then measuring for {} s", args.seconds));
    tokio::time::sleep(SETTLE).await;
    let before = target.usage().await;
    tokio::time::sleep(Duration::from_secs(args.seconds)).await;
    let used = target.usage().await.since(before);
    progress.finish_and_clear();
    let server = used.server.context("with --running, name the process with --pid")?;
    let report = IdleReport { topics: args.topics, seconds: args.seconds, syncs: used.syncs, server };
    if connect.json {
        output::line(serde_json::to_string(&report)?);
        return Ok(());
    }
    #[expect(clippy::cast_precision_loss, reason = "seconds of a run")]
    let share = server.cpu_s / args.seconds as f64 * 100.0;
    output::line(format_args!(
        "{} topics, one in {ONE_IN} with a message, idle for {} s: {share:.2} % of a core ({:.2} s), {} syncs, {} threads, \
         {} of memory",
        report.topics,
        report.seconds,
        server.cpu_s,
        report.syncs,
        server.threads,
        output::bytes(server.rss_bytes)
    ));
    Ok(())
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
