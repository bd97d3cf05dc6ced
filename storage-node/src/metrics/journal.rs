//! The journal's counters, read at scrape time: nothing is counted twice on the hot path.

use std::time::Duration;

use prometheus::core::{Collector, Desc};
use prometheus::proto::{Bucket, Counter, Gauge, Histogram, Metric, MetricFamily, MetricType};
use weir_journal::{Journal, SYNC_BUCKETS_US};

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
    /// # Panics
    /// Never: the names are constants (tested).
    #[must_use]
    pub fn new(journal: Journal) -> Self {
        let mut collector = Self { journal, names: Vec::new() };
        let describe = |name: &str, help: &str| {
            Desc::new(name.to_owned(), help.to_owned(), Vec::new(), Default::default())
                .expect("a constant, valid name")
        };
        collector.names = collector
            .numbers()
            .iter()
            .map(|number| describe(number.name, number.help))
            .chain([describe(SYNC_SECONDS.0, SYNC_SECONDS.1)])
            .collect();
        collector
    }

    fn numbers(&self) -> Vec<Number> {
        let (metrics, usage) = (self.journal.metrics(), self.journal.usage());
        let counter = |name, help, value| Number { name, help, value, is_counter: true };
        let gauge = |name, help, value| Number { name, help, value, is_counter: false };
        vec![
            counter("weir_journal_commits_total", "Commit blocks written.", metrics.blocks),
            counter("weir_journal_syncs_total", "Syncs of commits.", metrics.syncs),
            counter("weir_journal_frames_total", "Frames written.", metrics.frames),
            counter("weir_journal_written_bytes_total", "Bytes written, padding included.", metrics.bytes),
            counter("weir_journal_padding_bytes_total", "Bytes of padding written.", metrics.padding_bytes),
            counter("weir_journal_rotations_total", "Files finished.", metrics.rotations),
            counter("weir_journal_recycled_files_total", "Files recycled.", metrics.recycled),
            counter(
                "weir_journal_file_waits_total",
                "Times the writer waited for the next file.",
                metrics.file_waits,
            ),
            gauge("weir_journal_queue_bytes", "Bytes that wait to be written.", metrics.queue_bytes),
            gauge("weir_journal_memory_bytes", "Bytes of entries held in memory.", metrics.memory_bytes),
            gauge("weir_journal_index_bytes", "Bytes of the index of random reads.", metrics.index_bytes),
            gauge("weir_journal_used_bytes", "Bytes of the journal in use.", usage.used_bytes),
            gauge("weir_journal_limit_bytes", "Bytes at which publishes are refused.", usage.limit_bytes),
            gauge(
                "weir_journal_admitted_bytes",
                "Bytes of requests that are admitted and not answered.",
                usage.admitted_bytes,
            ),
        ]
    }
}

struct Number {
    name: &'static str,
    help: &'static str,
    value: u64,
    is_counter: bool,
}

impl Number {
    fn family(&self) -> MetricFamily {
        #[expect(clippy::cast_precision_loss, reason = "Prometheus knows only floating point")]
        let value = self.value as f64;
        let mut metric = Metric::default();
        let kind = if self.is_counter {
            let mut counter = Counter::default();
            counter.set_value(value);
            metric.set_counter(counter);
            MetricType::COUNTER
        } else {
            let mut gauge = Gauge::default();
            gauge.set_value(value);
            metric.set_gauge(gauge);
            MetricType::GAUGE
        };
        family(self.name, self.help, kind, metric)
    }
}

impl Collector for JournalCollector {
    fn desc(&self) -> Vec<&Desc> {
        self.names.iter().collect()
    }

    fn collect(&self) -> Vec<MetricFamily> {
        let mut families: Vec<MetricFamily> = self.numbers().iter().map(Number::family).collect();
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
        bucket.set_upper_bound(Duration::from_micros(*bound_us).as_secs_f64());
        bucket
    });
    let mut histogram = Histogram::default();
    histogram.set_bucket(buckets.collect());
    histogram.set_sample_count(metrics.syncs);
    histogram.set_sample_sum(metrics.sync_time.as_secs_f64());
    let mut metric = Metric::default();
    metric.set_histogram(histogram);
    family(SYNC_SECONDS.0, SYNC_SECONDS.1, MetricType::HISTOGRAM, metric)
}

fn family(name: &str, help: &str, kind: MetricType, metric: Metric) -> MetricFamily {
    let mut family = MetricFamily::default();
    family.set_name(name.to_owned());
    family.set_help(help.to_owned());
    family.set_field_type(kind);
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
        registry.register(Box::new(JournalCollector::new(journal))).unwrap();
        let text = TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        assert!(text.contains("weir_journal_syncs_total 1"), "{text}");
        assert!(text.contains("weir_journal_sync_seconds_count 1"), "{text}");
        assert!(text.contains("weir_journal_limit_bytes"), "{text}");
    }
}
