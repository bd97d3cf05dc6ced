//! One POST at a time, beside the disk's own write and sync of one block, taking turns.
//!
//! Both wait equally long before they start: what a disk's sync costs depends on how long the machine was idle.

use std::time::{Duration, Instant};

use anyhow::ensure;
use bytes::Bytes;

use super::Bench;
use super::disk::{self, Disk};
use super::latencies::Latencies;
use super::meter::Meter;
use super::noise::noise;
use super::poster::Poster;
use super::result::{Percentiles, RunResult};
use super::target::Target;
use crate::args::{LoneArgs, Rate};

/// POSTs that count as a second where there is no rate.
const COUNT_PER_SECOND_MAX: u64 = 1_000;

/// What takes turns.
struct Pair {
    poster: Poster,
    disk: Disk,
    body: Bytes,
}

/// Measures each rate.
pub(super) async fn run(bench: &mut Bench, args: &LoneArgs) -> anyhow::Result<()> {
    ensure!(!args.rate.is_empty(), "nothing would be measured");
    let target = Target::start(&bench.connect, &args.target).await?;
    let body = noise(args.payload);
    let topic = format!("bench-lone-{}", ulid::Ulid::new().to_string().to_lowercase());
    let mut poster = Poster::connect(&target.reach.connect.url).await?;
    let line = format!("POST /v1/ns/{}/topics/{topic}/messages", target.reach.connect.namespace);
    poster.prepare(&line, "", &body);
    let disk = Disk::beside(&target)?;
    let mut pair = Pair { poster, disk, body };
    for rate in &args.rate {
        let result = pair.measure(&target, *rate, args.seconds).await?;
        bench.emit(result)?;
    }
    target.remove_topic(&topic).await
}

impl Pair {
    async fn measure(&mut self, target: &Target, rate: Rate, seconds: u64) -> anyhow::Result<RunResult> {
        let (gap, count) = match rate {
            Rate::PerSecond(rate) => {
                (Duration::from_secs(1) / u32::try_from(rate).unwrap_or(u32::MAX), rate * seconds)
            }
            Rate::Max => (Duration::ZERO, COUNT_PER_SECOND_MAX * seconds),
        };
        let (mut posts, mut syncs) = (Latencies::new(), Latencies::new());
        let warm_up = count / 10;
        let start = Instant::now();
        for _ in 0..warm_up {
            self.turn(gap).await?;
        }
        let warmup_s = start.elapsed().as_secs_f64();
        let meter = Meter::start(Some(target), Vec::new()).await;
        for _ in 0..count {
            let (posted, synced) = self.turn(gap).await?;
            posts.record_time(posted);
            syncs.record_time(synced);
        }
        let used = meter.stop(Some(target)).await;
        let case = format!("{rate}, {} B", self.body.len());
        let mut result = RunResult::new("lone", case);
        (result.warmup_s, result.seconds) = (warmup_s, used.seconds);
        result.latencies = vec![Percentiles::of("confirm", &posts), Percentiles::of(disk::name(gap), &syncs)];
        disk::compare(&mut result);
        result.figures.extend(used.figures(count, self.body.len()));
        Ok(result)
    }

    /// One POST, and one sync.
    async fn turn(&mut self, gap: Duration) -> anyhow::Result<(Duration, Duration)> {
        pause(gap).await;
        let start = Instant::now();
        let status = self.poster.exchange().await?;
        let posted = start.elapsed();
        ensure!((200..300).contains(&status), "the server answered {status}");
        pause(gap).await;
        Ok((posted, self.disk.commit(&self.body)?))
    }
}

async fn pause(gap: Duration) {
    if !gap.is_zero() {
        tokio::time::sleep(gap).await;
    }
}
