//! `weir restore`: a data directory from the object store alone.

use std::time::{Duration, SystemTime, UNIX_EPOCH};

use serde::Serialize;
use weir_protocol::ids::ClusterId;
use weir_storage_node::{NodeRestore, RestorableShard, RestoreFrom, Step};

use crate::args::RestoreArgs;
use crate::output;

/// What is, or would be, restored.
#[derive(Debug, Serialize)]
struct Report {
    cluster: String,
    restored: bool,
    manifest: u64,
    epoch: u64,
    /// When the newest states were written, milliseconds since the epoch.
    manifest_ms: u64,
    data_shards: u32,
    topics: usize,
    subscriptions: usize,
    messages: u64,
    bytes: u64,
    lost_messages_known: u64,
    lost_dead_letters: u64,
    lost_outputs: u64,
    /// Producers of a partition that nothing is known of any more.
    forgotten_producers: u64,
    skipped: Vec<String>,
    shards: Vec<ShardReport>,
}

#[derive(Debug, Serialize)]
struct ShardReport {
    shard: u32,
    topics: usize,
    subscriptions: usize,
    packs: usize,
    messages: u64,
    bytes: u64,
    /// When the newest message that is there was accepted, milliseconds since the epoch.
    newest_archived_ms: Option<u64>,
    lost_messages_known: u64,
}

impl From<&RestorableShard> for ShardReport {
    fn from(shard: &RestorableShard) -> Self {
        Self {
            shard: shard.shard.0,
            topics: shard.topics,
            subscriptions: shard.subscriptions,
            packs: shard.packs,
            messages: shard.holds.records,
            bytes: shard.holds.bytes,
            newest_archived_ms: shard.holds.newest.map(|ts| ts.0),
            lost_messages_known: shard.holds.lost_records,
        }
    }
}

pub(crate) async fn run(args: &RestoreArgs, is_json: bool) -> anyhow::Result<()> {
    NodeRestore::check_directory(&args.data_dir)?;
    let cluster = args.cluster.as_deref().map(cluster_of).transpose()?;
    let (url, skip_damaged) = (args.bucket.clone(), args.skip_damaged);
    let from = RestoreFrom { url, options: Vec::new(), cluster, skip_damaged };
    let mut skipped = Vec::new();
    let restore = NodeRestore::look(&from, |step| match step {
        Step::Skipped(why) => {
            output::note(format_args!("passed over: {why}"));
            skipped.push(why);
        }
        Step::Read(shard, bytes) => {
            output::note(format_args!("read the state of shard {shard}, {}", output::bytes(bytes)));
        }
        Step::Looking(packs) => output::note(format_args!("looking for {packs} packs")),
    })
    .await?;
    let report = report(&restore, !args.dry_run, skipped);
    if !args.dry_run {
        restore.write(&args.data_dir).await?;
    }
    if is_json {
        output::line(serde_json::to_string(&report)?);
    } else {
        say(&report, args);
    }
    Ok(())
}

fn cluster_of(text: &str) -> anyhow::Result<ClusterId> {
    let cluster = u128::from_str_radix(text, 16).map(ClusterId).ok();
    let cluster = cluster.filter(|cluster| cluster.to_string() == text);
    cluster.ok_or_else(|| anyhow::anyhow!("--cluster {text}: an id has 32 hexadecimal digits"))
}

fn report(restore: &NodeRestore, restored: bool, skipped: Vec<String>) -> Report {
    let (manifest, shards) = (restore.manifest(), restore.shards());
    Report {
        cluster: restore.cluster().to_string(),
        restored,
        manifest: manifest.number,
        epoch: restore.epoch(),
        manifest_ms: manifest.written_ms,
        data_shards: manifest.data_shards,
        topics: shards.iter().map(|shard| shard.topics).sum(),
        subscriptions: shards.iter().map(|shard| shard.subscriptions).sum(),
        messages: shards.iter().map(|shard| shard.holds.records).sum(),
        bytes: shards.iter().map(|shard| shard.holds.bytes).sum(),
        lost_messages_known: shards.iter().map(|shard| shard.holds.lost_records).sum(),
        lost_dead_letters: shards.iter().map(|shard| shard.holds.lost_letters).sum(),
        lost_outputs: shards.iter().map(|shard| shard.holds.lost_outputs).sum(),
        forgotten_producers: shards.iter().map(|shard| shard.holds.forgotten_producers).sum(),
        skipped,
        shards: shards.iter().map(ShardReport::from).collect(),
    }
}

fn say(report: &Report, args: &RestoreArgs) {
    let rows: Vec<Vec<String>> = report
        .shards
        .iter()
        .map(|shard| {
            let newest = shard.newest_archived_ms.map_or_else(|| "-".to_owned(), ago);
            let numbers = [
                shard.shard.to_string(),
                shard.topics.to_string(),
                shard.subscriptions.to_string(),
                shard.messages.to_string(),
                output::bytes(shard.bytes),
                shard.packs.to_string(),
                newest,
                shard.lost_messages_known.to_string(),
            ];
            numbers.to_vec()
        })
        .collect();
    let headings =
        ["SHARD", "TOPICS", "SUBSCRIPTIONS", "MESSAGES", "SIZE", "PACKS", "NEWEST ARCHIVED", "KNOWN LOST"];
    output::table(&headings, &rows);
    let Report { cluster, manifest, manifest_ms, .. } = report;
    output::line(format_args!("cluster {cluster}, manifest {manifest}, written {}", ago(*manifest_ms)));
    output::line(format_args!(
        "Lost: {} messages that the manifest knows of and no pack holds, and whatever came after it; {} dead letters and {} \
         outputs of settles that were on their way",
        report.lost_messages_known, report.lost_dead_letters, report.lost_outputs
    ));
    if report.forgotten_producers > 0 {
        output::line(format_args!(
            "Of {} producers, counted by partition, nothing archived is remembered: what they send again of it may be stored again, or \
             refused with producer_gap",
            report.forgotten_producers
        ));
    }
    let (bucket, dir) = (output::word(&args.bucket), output::word(&args.data_dir.to_string_lossy()));
    if report.restored {
        output::line(format_args!(
            "Restored to {dir}. Start it with `weir dev --object-store {bucket} --data-dir {dir}`, or `weir node`; never \
             start what ran before"
        ));
    } else {
        output::line("Nothing was written. Without --dry-run this is restored.");
    }
}

/// How long ago a time is.
fn ago(ms: u64) -> String {
    let now = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    format!("{} ago", lasted(now.saturating_sub(Duration::from_millis(ms)).as_secs()))
}

/// Seconds in the largest unit of which there are at least two.
fn lasted(seconds: u64) -> String {
    let units = [("d", 86_400), ("h", 3_600), ("min", 60)];
    let fit = units.into_iter().find(|(_, factor)| seconds >= 2 * factor);
    let (unit, factor) = fit.unwrap_or(("s", 1));
    format!("{} {unit}", seconds / factor)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_long_ago_is_said_in_units_that_people_count_in() {
        let said = [0, 90, 120, 7_199, 7_200, 172_799, 345_600].map(lasted);
        assert_eq!(said, ["0 s", "90 s", "2 min", "119 min", "2 h", "47 h", "4 d"]);
    }
}
