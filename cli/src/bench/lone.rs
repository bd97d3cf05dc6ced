//! One POST at a time, beside the disk's own write and sync of one block, taking turns.
//!
//! Both wait equally long before they start: what a disk's sync costs depends on how long the machine was idle.

use std::time::{Duration, Instant};

use anyhow::{Context as _, ensure};
use rand::RngCore as _;
use serde::Serialize;
use weir_journal::BareLoop;

use super::http::Poster;
use super::report::Percentiles;
use super::tally::Latencies;
use super::target::Target;
use crate::args::{Connect, LoneArgs};
use crate::output;

/// Bytes of the file that is written in place, again and again.
const DISK_BYTES: u64 = 8 << 20;

#[derive(Debug, Serialize)]
struct LoneReport {
    gap_us: u64,
    post: Percentiles,
    sync: Percentiles,
    /// Of the medians.
    ratio: f64,
}

/// Measures and prints.
pub(super) async fn run(connect: &Connect, args: &LoneArgs) -> anyhow::Result<()> {
    let target = Target::start(connect, &args.target).await?;
    let mut body = vec![0; args.payload];
    rand::rng().fill_bytes(&mut body);
    let topic = format!("bench-lone-{}", ulid::Ulid::new().to_string().to_lowercase());
    let line = format!("POST /v1/ns/{}/topics/{topic}/messages", target.connect.namespace);
    let mut poster = Poster::connect(&target.connect.url, &line, &body).await?;
    let dir = tempfile::Builder::new().prefix("weir-bench-disk-").tempdir_in(&target.dir);
    let dir = dir.context("cannot write where the data is")?;
    let mut disk = BareLoop::create(&dir.path().join("bare"), DISK_BYTES)?;
    let (mut posts, mut syncs) = (Latencies::new(), Latencies::new());
    let gap = Duration::from_micros(args.gap_us);
    for number in 0..args.count + args.count / 10 {
        let posted = {
            pause(gap).await;
            let start = Instant::now();
            let status = poster.exchange().await?;
            ensure!((200..300).contains(&status), "the server answered {status}");
            start.elapsed()
        };
        pause(gap).await;
        let start = Instant::now();
        disk.commit(&body)?;
        let synced = start.elapsed();
        // The first tenth warms up.
        if number >= args.count / 10 {
            posts.record(micros(posted), 1);
            syncs.record(micros(synced), 1);
        }
    }
    let (post, sync) = (Percentiles::of(&posts), Percentiles::of(&syncs));
    #[expect(clippy::cast_precision_loss, reason = "microseconds below a minute")]
    let ratio = post.p50_us as f64 / sync.p50_us as f64;
    let report = LoneReport { gap_us: args.gap_us, post, sync, ratio };
    if connect.json {
        output::line(serde_json::to_string(&report)?);
        return Ok(());
    }
    let row = |name: &str, of: &Percentiles| {
        let cells = [of.p50_us, of.p99_us, of.p999_us, of.max_us].map(|us| us.to_string());
        std::iter::once(name.to_owned()).chain(cells).collect()
    };
    let rows = [row("POST to confirm", &report.post), row("write and sync", &report.sync)];
    output::table(&["microseconds", "p50", "p99", "p99.9", "max"], &rows);
    output::line(format_args!("a lone POST takes {ratio:.2} of the disk's own sync (medians)"));
    Ok(())
}

async fn pause(gap: Duration) {
    if !gap.is_zero() {
        tokio::time::sleep(gap).await;
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
