//! The journal's counters, read at scrape time: nothing is counted twice on the hot path.

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Histogram, Metric, MetricFamily, MetricType};
use prometheus::{IntCounter, IntGauge};
use weir_journal::{Journal, Metrics, SYNC_BUCKETS_US};

/// Shows a journal in a registry.
#[derive(Debug)]
pub struct JournalCollector {
    journal: Journal,
    names: Vec<Desc>,
}

const SYNC_SECONDS: (&str, &str) = ("weir_journal_sync_seconds", "Time that syncs of commits took.");

impl JournalCollector {
    /// For `journal`, which it keeps open.
    ///
    /// # Errors
    /// Never: the names are constants (tested).
    pub fn new(journal: Journal) -> prometheus::Result<Self> {
        let numbers = numbers(&journal)?;
        let mut names: Vec<Desc> = numbers.iter().flat_map(|number| number.desc()).cloned().collect();
        let (name, help) = SYNC_SECONDS;
        names.push(Desc::new(name.to_owned(), help.to_owned(), Vec::new(), Default::default())?);
        Ok(Self { journal, names })
    }
}

type Numbers = prometheus::Result<Vec<Box<dyn Collector>>>;

fn numbers(journal: &Journal) -> Numbers {
    let mut all = work(&journal.metrics())?;
    all.extend(sizes(journal)?);
    Ok(all)
}

/// What was done.
fn work(metrics: &Metrics) -> Numbers {
    [
        counter("weir_journal_commits_total", "Commit blocks written.", metrics.blocks),
        counter(
            "weir_journal_inline_commits_total",
            "Commit blocks written by who appended, in the writer's place.",
            metrics.inline_commits,
        ),
        counter("weir_journal_syncs_total", "Syncs of commits.", metrics.syncs),
        counter("weir_journal_frames_total", "Frames written.", metrics.frames),
        counter("weir_journal_written_bytes_total", "Bytes written, padding included.", metrics.bytes),
        counter("weir_journal_padding_bytes_total", "Bytes of padding written.", metrics.padding_bytes),
        counter(
            "weir_journal_prepared_bytes_total",
            "Bytes written besides, to make files ready: zeros, and headers.",
            metrics.prepared_bytes,
        ),
        counter("weir_journal_rotations_total", "Files finished.", metrics.rotations),
        counter("weir_journal_recycled_files_total", "Files recycled.", metrics.recycled),
        counter(
            "weir_journal_file_waits_total",
            "Times the writer waited for the next file.",
            metrics.file_waits,
        ),
        counter("weir_journal_sidecars_written_total", "Sidecars written.", metrics.sidecars_written),
        counter(
            "weir_journal_evicted_rows_total",
            "Rows of the index that left memory because a sidecar has them.",
            metrics.evicted_rows,
        ),
        counter(
            "weir_journal_sidecar_reads_total",
            "Pages of sidecars read to find entries.",
            metrics.sidecar_reads,
        ),
        counter(
            "weir_journal_sidecar_misses_total",
            "Times a sidecar did not hold and the journal file was searched.",
            metrics.sidecar_misses,
        ),
        counter(
            "weir_journal_carried_files_total",
            "Files written of messages that outlived their journal files, those written anew included.",
            metrics.carried_files,
        ),
        counter(
            "weir_journal_carried_written_bytes_total",
            "Bytes of messages that outlived their journal files and were written once more.",
            metrics.carried_bytes,
        ),
    ]
    .into_iter()
    .collect()
}

/// What is held, and what may be.
fn sizes(journal: &Journal) -> Numbers {
    let (metrics, usage, config) = (journal.metrics(), journal.usage(), journal.config());
    [
        gauge("weir_journal_queue_bytes", "Bytes that wait to be written.", metrics.queue_bytes),
        gauge(
            "weir_journal_queue_bytes_max",
            "Bytes that wait beyond which appends are refused.",
            config.queue_bytes_max(),
        ),
        gauge("weir_journal_memory_bytes", "Bytes of entries held in memory.", metrics.memory_bytes),
        gauge(
            "weir_journal_memory_bytes_max",
            "Bytes of entries held in memory at most.",
            config.memory_bytes_max(),
        ),
        gauge("weir_journal_index_bytes", "Bytes of the index of entries in memory.", metrics.index_bytes),
        gauge(
            "weir_journal_index_bytes_max",
            "Bytes of the index beyond which publishes are refused.",
            config.index_bytes_max,
        ),
        gauge(
            "weir_journal_carried_bytes",
            "Of the bytes of the journal in use, those in carried files.",
            usage.carried_bytes,
        ),
        gauge("weir_journal_used_bytes", "Bytes of the journal in use.", usage.used_bytes),
        gauge("weir_journal_used_bytes_max", "Bytes at which publishes are refused.", usage.limit_bytes),
        gauge(
            "weir_journal_admitted_bytes",
            "Bytes of requests that are admitted and not answered.",
            usage.admitted_bytes,
        ),
        gauge(
            "weir_journal_admitted_bytes_max",
            "Bytes of admitted requests beyond which more are refused.",
            config.pending_bytes_max,
        ),
    ]
    .into_iter()
    .collect()
}

fn gauge(name: &str, help: &str, value: u64) -> prometheus::Result<Box<dyn Collector>> {
    let gauge = IntGauge::new(name, help)?;
    gauge.set(i64::try_from(value).unwrap_or(i64::MAX));
    Ok(Box::new(gauge))
}

fn counter(name: &str, help: &str, value: u64) -> prometheus::Result<Box<dyn Collector>> {
    let counter = IntCounter::new(name, help)?;
    counter.inc_by(value);
    Ok(Box::new(counter))
}

impl Collector for JournalCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.names.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let numbers = numbers(&self.journal).unwrap_or_default();
        let mut families: Vec<MetricFamily> = numbers.iter().flat_map(|number| number.collect()).collect();
        families.push(sync_histogram(&self.journal));
        families
    }
}

fn sync_histogram(journal: &Journal) -> MetricFamily {
    let metrics = journal.metrics();
    let mut below = 0;
    let buckets = SYNC_BUCKETS_US.iter().zip(&metrics.sync_buckets).map(|(bound_us, count)| {
        below += count;
        let mut bucket = Bucket::default();
        bucket.set_cumulative_count(below);
        #[expect(clippy::cast_precision_loss, reason = "a bound of seconds")]
        bucket.set_upper_bound(*bound_us as f64 / 1e6);
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(metrics.syncs);
    histogram.set_sample_sum(metrics.sync_time.as_secs_f64());
    let mut metric = Metric::default();
    metric.set_histogram(histogram);
    let mut family = MetricFamily::default();
    family.set_name(SYNC_SECONDS.0.to_owned());
    family.set_help(SYNC_SECONDS.1.to_owned());
    family.set_field_type(MetricType::HISTOGRAM);
    family.set_metric(vec![metric]);
    family
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use prometheus::{Registry, TextEncoder};
    use weir_journal::{Identity, JournalConfig, RealDisk, StreamId};

    use super::*;

    #[test]
    fn a_journal_shows_its_syncs_and_its_space() {
        let dir = tempfile::tempdir().unwrap();
        let config = JournalConfig::small(dir.path(), Identity { cluster_id: 1, node_id: 1 });
        let (journal, _) = Journal::open(config, Arc::new(RealDisk)).unwrap();
        let (tell, told) = std::sync::mpsc::channel();
        let done = move |outcome: Result<_, _>| tell.send(outcome.is_ok()).unwrap();
        journal.save_vote(StreamId(1), bytes::Bytes::from_static(b"v"), Box::new(done)).unwrap();
        assert!(told.recv().unwrap());

        let registry = Registry::new();
        registry.register(Box::new(JournalCollector::new(journal).unwrap())).unwrap();
        let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        assert!(text.contains("weir_journal_syncs_total 1"), "{text}");
        assert!(text.contains("weir_journal_sync_seconds_count 1"), "{text}");
        for (bound, bytes) in [
            ("admitted", 1 << 20),
            ("queue", 2 << 20),
            ("memory", (64 << 10) + (2 << 20) + (32 << 10)),
            ("index", 512 << 10),
            ("used", 4 << 20),
        ] {
            assert!(text.contains(&format!("\nweir_journal_{bound}_bytes_max {bytes}\n")), "{bound}: {text}");
            assert!(text.contains(&format!("\nweir_journal_{bound}_bytes ")), "{bound}: {text}");
        }
        for name in ["sidecars_written", "evicted_rows", "sidecar_reads", "sidecar_misses"] {
            assert!(text.contains(&format!("weir_journal_{name}_total 0")), "{text}");
        }
    }
}
