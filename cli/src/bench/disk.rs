//! The disk's own write and sync right after a run: what a disk takes drifts within minutes, so it stands beside.

use std::time::{Duration, Instant};

use anyhow::Context as _;
use weir_journal::BareLoop;

use super::latencies::Latencies;
use super::noise::noise;
use super::result::{Figure, Percentiles, RunResult};
use super::target::Target;
use crate::args::Rate;

/// Names of its times in results: one right after the other, and as far apart as the load's.
const AT_ONCE: &str = "disk write and sync";
const PACED: &str = "disk write and sync, paced";
/// Bytes of the file that is written in place, again and again.
const FILE_BYTES: u64 = 8 << 20;
/// Bytes of each write, padded to a block as the journal pads them.
const PAYLOAD: usize = 1_024;
/// How often it is tried, and for how long at most.
const COUNT: u32 = 500;
const TIME_MAX: Duration = Duration::from_secs(1);
/// Up to this rate the disk rests in between as it does under the load; above, it never rests.
const PACED_PER_S_MAX: u64 = 10_000;

/// A file on the disk of the data, removed at the end.
pub(super) struct Disk {
    file: BareLoop,
    _dir: tempfile::TempDir,
}

impl Disk {
    pub(super) fn beside(target: &Target) -> anyhow::Result<Self> {
        let dir = tempfile::Builder::new().prefix("weir-bench-disk-").tempdir_in(&target.dir);
        let dir = dir.context("cannot write where the data is")?;
        Ok(Self { file: BareLoop::create(&dir.path().join("bare"), FILE_BYTES)?, _dir: dir })
    }

    /// One write and its sync.
    pub(super) fn commit(&mut self, body: &[u8]) -> anyhow::Result<Duration> {
        let start = Instant::now();
        self.file.commit(body)?;
        Ok(start.elapsed())
    }
}

/// Adds to a result what the disk takes now, if it comes as often as a load of `rate` does.
pub(super) async fn measure(target: &Target, rate: Rate, result: &mut RunResult) -> anyhow::Result<()> {
    let mut disk = Disk::beside(target)?;
    let (body, gap) = (noise(PAYLOAD), gap(rate));
    let mut syncs = Latencies::new();
    let start = Instant::now();
    for _ in 0..COUNT {
        if !gap.is_zero() {
            tokio::time::sleep(gap).await;
        }
        syncs.record_time(disk.commit(&body)?);
        if start.elapsed() >= TIME_MAX {
            break;
        }
    }
    result.latencies.push(Percentiles::of(name(gap), &syncs));
    // A disk that never rests is nothing to compare a loaded server with.
    if !gap.is_zero() {
        compare(result);
    }
    Ok(())
}

/// Adds how the median confirm compares with the median write and sync beside it.
pub(super) fn compare(result: &mut RunResult) {
    let p50 = |is: fn(&str) -> bool| result.latencies.iter().find(|it| is(&it.name)).map(|it| it.p50_us);
    let confirm = p50(|name| name == "confirm");
    if let (Some(confirm), Some(sync @ 1..)) = (confirm, p50(is_name)) {
        #[expect(clippy::cast_precision_loss, reason = "microseconds below a minute")]
        let ratio = confirm as f64 / sync as f64;
        result.figures.push(Figure::new("confirm_p50_per_disk_p50", ratio));
    }
}

/// Name of times with pauses of `gap` between them.
pub(super) fn name(gap: Duration) -> &'static str {
    if gap.is_zero() { AT_ONCE } else { PACED }
}

/// Whether a name is one of those.
fn is_name(text: &str) -> bool {
    [AT_ONCE, PACED].contains(&text)
}

/// Messages of a tick are due together, so nothing comes more often than that.
fn gap(rate: Rate) -> Duration {
    match rate {
        Rate::PerSecond(rate) if rate <= PACED_PER_S_MAX => {
            let each = Duration::from_secs(1) / u32::try_from(rate.max(1)).unwrap_or(u32::MAX);
            each.max(super::schedule::TICK)
        }
        _ => Duration::ZERO,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_rests_as_under_the_load_if_that_lets_it() {
        for (rate, gap_us) in [(50, 20_000), (1_000, 1_000), (10_000, 1_000), (50_000, 0)] {
            assert_eq!(gap(Rate::PerSecond(rate)), Duration::from_micros(gap_us), "{rate}/s");
        }
        assert_eq!(gap(Rate::Max), Duration::ZERO);
    }
}
