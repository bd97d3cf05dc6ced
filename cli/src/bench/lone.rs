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
use crate::args::{Connect, LoneArgs, Rate};
use crate::output;

/// Bytes of the file that is written in place, again and again.
const DISK_BYTES: u64 = 8 << 20;
/// POSTs that count as a second where there is no rate.
const COUNT_PER_SECOND_MAX: u64 = 1_000;

#[derive(Debug, Serialize)]
struct LoneReport {
    /// A second; none: one right behind the other.
    rate: Option<u64>,
    post: Percentiles,
    sync: Percentiles,
    /// Of the medians.
    ratio: f64,
}

/// What takes turns.
struct Pair {
    poster: Poster,
    disk: BareLoop,
    body: Vec<u8>,
}

/// Measures and prints.
pub(super) async fn run(connect: &Connect, args: &LoneArgs) -> anyhow::Result<()> {
    let target = Target::start(connect, &args.target).await?;
    let mut body = vec![0; args.payload];
    rand::rng().fill_bytes(&mut body);
    let topic = format!("bench-lone-{}", ulid::Ulid::new().to_string().to_lowercase());
    let line = format!("POST /v1/ns/{}/topics/{topic}/messages", target.connect.namespace);
    let poster = Poster::connect(&target.connect.url, &line, &body).await?;
    let dir = tempfile::Builder::new().prefix("weir-bench-disk-").tempdir_in(&target.dir);
    let dir = dir.context("cannot write where the data is")?;
    let disk = BareLoop::create(&dir.path().join("bare"), DISK_BYTES)?;
    let mut pair = Pair { poster, disk, body };
    let mut reports = Vec::with_capacity(args.rate.len());
    for rate in &args.rate {
        reports.push(pair.measure(*rate, args.seconds).await?);
    }
    if connect.json {
        output::line(serde_json::to_string(&reports)?);
        return Ok(());
    }
    let row = |report: &LoneReport| {
        let rate = report.rate.map_or_else(|| "max".to_owned(), |rate| format!("{rate}/s"));
        let (post, sync) = (&report.post, &report.sync);
        let cells = [post.p50_us, post.p99_us, sync.p50_us, sync.p99_us].map(|us| us.to_string());
        std::iter::once(rate).chain(cells).chain([format!("{:.2}", report.ratio)]).collect()
    };
    let rows: Vec<Vec<String>> = reports.iter().map(row).collect();
    output::table(&["microseconds", "POST p50", "p99", "write and sync p50", "p99", "ratio of p50"], &rows);
    Ok(())
}

impl Pair {
    async fn measure(&mut self, rate: Rate, seconds: u64) -> anyhow::Result<LoneReport> {
        let (rate, count) = match rate {
            Rate::PerSecond(rate) => (Some(rate), rate * seconds),
            Rate::Max => (None, COUNT_PER_SECOND_MAX * seconds),
        };
        let gap = rate
            .map_or(Duration::ZERO, |rate| Duration::from_secs(1) / u32::try_from(rate).unwrap_or(u32::MAX));
        let (mut posts, mut syncs) = (Latencies::new(), Latencies::new());
        let warm_up = count / 10;
        for number in 0..count + warm_up {
            pause(gap).await;
            let start = Instant::now();
            let status = self.poster.exchange().await?;
            let posted = start.elapsed();
            ensure!((200..300).contains(&status), "the server answered {status}");
            pause(gap).await;
            let start = Instant::now();
            self.disk.commit(&self.body)?;
            let synced = start.elapsed();
            if number >= warm_up {
                posts.record(micros(posted), 1);
                syncs.record(micros(synced), 1);
            }
        }
        let (post, sync) = (Percentiles::of(&posts), Percentiles::of(&syncs));
        #[expect(clippy::cast_precision_loss, reason = "microseconds below a minute")]
        let ratio = post.p50_us as f64 / sync.p50_us as f64;
        Ok(LoneReport { rate, post, sync, ratio })
    }
}

async fn pause(gap: Duration) {
    if !gap.is_zero() {
        tokio::time::sleep(gap).await;
    }
}

fn micros(duration: Duration) -> u64 {
    u64::try_from(duration.as_micros()).unwrap_or(u64::MAX)
}
