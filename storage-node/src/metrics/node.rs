//! Counters of the serving side.

use prometheus::{
    Histogram, HistogramOpts, HistogramVec, IntCounter, IntCounterVec, IntGauge, Opts, Registry,
};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::{Level, Stages};

/// Upper bounds of stage histograms, in seconds: 25 µs to 1.6 s, each twice the one before.
const STAGE_BUCKETS: [f64; 17] = [
    25e-6, 50e-6, 100e-6, 200e-6, 400e-6, 800e-6, 1.6e-3, 3.2e-3, 6.4e-3, 12.8e-3, 25.6e-3, 51.2e-3,
    102.4e-3, 204.8e-3, 409.6e-3, 819.2e-3, 1.638_4,
];

fn signed(count: usize) -> i64 {
    i64::try_from(count).unwrap_or(i64::MAX)
}

/// Times of one shard's publishes, found once: labels are not looked up per publish.
#[derive(Debug, Clone)]
struct StageSeconds {
    queue: Histogram,
    write: Histogram,
    fsync: Histogram,
    quorum: Histogram,
    total: Histogram,
}

impl StageSeconds {
    fn of(stages: &HistogramVec, shard: ShardId) -> Self {
        let shard = shard.to_string();
        let stage = |stage| stages.with_label_values(&[stage, shard.as_str()]);
        Self {
            queue: stage("queue"),
            write: stage("write"),
            fsync: stage("fsync"),
            quorum: stage("quorum"),
            total: stage("total"),
        }
    }
}

/// Counters of one node; clones share them.
#[derive(Debug, Clone)]
pub struct NodeMetrics {
    all_stages: HistogramVec,
    stages: StageSeconds,
    confirmed: IntCounterVec,
    refused: IntCounterVec,
    published_records: IntCounter,
    published_bytes: IntCounter,
    delivered_records: IntCounter,
    delivered_bytes: IntCounter,
    subscriptions: IntGauge,
    ring_bytes: IntGauge,
    ring_hits: IntCounter,
    ring_misses: IntCounter,
    checkpoints_failed: IntCounter,
    staged_bytes: IntGauge,
    staged_bytes_max: IntGauge,
    early_records: IntCounter,
    retracted: IntCounter,
    filtered_out: IntCounter,
    look_ahead_full: IntCounter,
    parts_moved: IntCounter,
}

impl NodeMetrics {
    /// Makes the metrics, as those of the meta group, and registers them; the tail rings of all shards together take at
    /// most `tail_ring_bytes_max`.
    ///
    /// # Errors
    /// If the registry already holds a storage node's metrics.
    #[expect(clippy::too_many_lines, reason = "one entry for each metric")]
    pub fn register(registry: &Registry, tail_ring_bytes_max: usize) -> prometheus::Result<Self> {
        let stages = HistogramVec::new(
            HistogramOpts::new(
                "weir_node_publish_stage_seconds",
                "Time that confirmed publishes spent in each stage.",
            )
            .buckets(STAGE_BUCKETS.to_vec()),
            &["stage", "shard"],
        )?;
        registry.register(Box::new(stages.clone()))?;
        let labelled = |name, help, label| {
            let counters = IntCounterVec::new(Opts::new(name, help), &[label])?;
            registry.register(Box::new(counters.clone()))?;
            Ok::<_, prometheus::Error>(counters)
        };
        let counter = |name, help| {
            let counter = IntCounter::new(name, help)?;
            registry.register(Box::new(counter.clone()))?;
            Ok::<_, prometheus::Error>(counter)
        };
        let gauge = |name, help| {
            let gauge = IntGauge::new(name, help)?;
            registry.register(Box::new(gauge.clone()))?;
            Ok::<_, prometheus::Error>(gauge)
        };
        gauge("weir_node_tail_ring_bytes_max", "Bytes of the newest entries kept in memory at most.")?
            .set(signed(tail_ring_bytes_max));
        Ok(Self {
            stages: StageSeconds::of(&stages, ShardId::META),
            all_stages: stages,
            confirmed: labelled(
                "weir_node_confirmed_total",
                "Publish calls that were confirmed, by level.",
                "level",
            )?,
            refused: labelled(
                "weir_node_refused_total",
                "Publish calls, and batches of them, that were refused, by code.",
                "code",
            )?,
            published_records: counter("weir_node_published_records_total", "Records that were confirmed.")?,
            published_bytes: counter(
                "weir_node_published_bytes_total",
                "Encoded bytes of the batches that were confirmed.",
            )?,
            delivered_records: counter(
                "weir_node_delivered_records_total",
                "Records sent to readers and consumers.",
            )?,
            delivered_bytes: counter(
                "weir_node_delivered_bytes_total",
                "Encoded bytes of the batches sent to readers and consumers.",
            )?,
            subscriptions: gauge(
                "weir_node_subscriptions",
                "Streams of records to gateways that are open, of readers and of consumers.",
            )?,
            ring_bytes: gauge("weir_node_tail_ring_bytes", "Bytes of the newest entries in memory.")?,
            ring_hits: counter("weir_node_tail_ring_hits_total", "Entries that were read from memory.")?,
            ring_misses: counter(
                "weir_node_tail_ring_misses_total",
                "Entries that memory no longer had and the journal was read for.",
            )?,
            checkpoints_failed: counter(
                "weir_node_checkpoints_failed_total",
                "Checkpoints that could not be written; the one before stays.",
            )?,
            staged_bytes: gauge(
                "weir_node_staged_bytes",
                "Bytes kept for readers who do not wait for the commit.",
            )?,
            staged_bytes_max: gauge("weir_node_staged_bytes_max", "Bytes kept for such readers at most.")?,
            early_records: counter(
                "weir_node_early_records_total",
                "Records sent to readers before they were committed.",
            )?,
            retracted: counter(
                "weir_node_retracted_total",
                "Times a reader was told to forget records that were not committed.",
            )?,
            filtered_out: counter("weir_node_filtered_out_records_total", "Records that filters kept back.")?,
            look_ahead_full: counter(
                "weir_node_look_ahead_full_total",
                "Pulls that found too much looked at already to look further.",
            )?,
            parts_moved: counter(
                "weir_node_stream_partitions_moved_total",
                "Partitions of stream subscriptions that were given from one consumer to another.",
            )?,
        })
    }

    /// The same counters, with the times of `shard`.
    #[must_use]
    pub fn of_shard(&self, shard: ShardId) -> Self {
        Self { stages: StageSeconds::of(&self.all_stages, shard), ..self.clone() }
    }

    /// Counts where a confirmed publish call spent its time.
    pub fn stages(&self, stages: &Stages) {
        let seconds = |us: u32| f64::from(us) * 1e-6;
        self.stages.queue.observe(seconds(stages.queue_us));
        self.stages.write.observe(seconds(stages.write_us));
        self.stages.fsync.observe(seconds(stages.fsync_us));
        self.stages.quorum.observe(seconds(stages.quorum_us));
        self.stages.total.observe(seconds(stages.node_us));
    }

    /// Counts a publish call that was answered at `level`.
    pub fn confirmed(&self, level: Level) {
        self.confirmed.with_label_values(&[level.as_str()]).inc();
    }

    /// Counts a refusal.
    pub fn refused(&self, code: ErrorCode) {
        self.refused.with_label_values(&[code.as_str()]).inc();
    }

    /// Counts what a publish added.
    pub fn published(&self, records: u64, bytes: u64) {
        self.published_records.inc_by(records);
        self.published_bytes.inc_by(bytes);
    }

    /// Counts what a reader was sent.
    pub fn delivered(&self, records: u64, bytes: u64) {
        self.delivered_records.inc_by(records);
        self.delivered_bytes.inc_by(bytes);
    }

    /// Counts where an entry was read from.
    pub fn entry_read(&self, from_memory: bool) {
        if from_memory { &self.ring_hits } else { &self.ring_misses }.inc();
    }

    /// Counts a checkpoint that could not be written.
    pub fn checkpoint_failed(&self) {
        self.checkpoints_failed.inc();
    }

    /// A tail ring that held `before` bytes now holds `after`.
    pub fn ring_changed(&self, before: usize, after: usize) {
        self.ring_bytes.add(signed(after) - signed(before));
    }

    /// Staged bytes for early readers were `before` and are `after`.
    pub fn staged_changed(&self, before: usize, after: usize) {
        self.staged_bytes.add(signed(after) - signed(before));
    }

    /// What [`NodeMetrics::staged_changed`] can add up to, all shards together.
    pub fn staged_bytes_max(&self, bytes: usize) {
        self.staged_bytes_max.set(signed(bytes));
    }

    /// Counts records that a reader was sent before they were committed.
    pub fn delivered_early(&self, records: u64) {
        self.early_records.inc_by(records);
    }

    /// Counts a reader that was told to forget what was not committed.
    pub fn retracted(&self) {
        self.retracted.inc();
    }

    /// Counts a pull of a queue that could look no further.
    pub fn look_ahead_full(&self) {
        self.look_ahead_full.inc();
    }

    /// Counts records that were looked at and that a reader's filter kept back.
    pub fn filtered_out(&self, records: u64) {
        self.filtered_out.inc_by(records);
    }

    /// Counts parts of streams that were given from one consumer to another.
    pub fn parts_moved(&self, parts: usize) {
        self.parts_moved.inc_by(parts as u64);
    }

    /// Counts a subscription for as long as the guard lives.
    #[must_use]
    pub fn subscription(&self) -> SubscriptionGuard {
        self.subscriptions.inc();
        SubscriptionGuard(self.subscriptions.clone())
    }
}

/// See [`NodeMetrics::subscription`].
#[derive(Debug)]
pub struct SubscriptionGuard(IntGauge);

impl Drop for SubscriptionGuard {
    fn drop(&mut self) {
        self.0.dec();
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_is_counted_can_be_scraped_and_a_second_node_is_refused() {
        let registry = Registry::new();
        let metrics = NodeMetrics::register(&registry, 77).unwrap();
        metrics.of_shard(ShardId(2)).stages(&Stages { node_us: 300, ..Stages::default() });
        metrics.confirmed(Level::Quorum);
        metrics.refused(ErrorCode::Busy);
        metrics.published(3, 900);
        let open = metrics.subscription();
        let text = prometheus::TextEncoder::new().encode_to_string(&registry.gather()).unwrap();
        for line in [
            "weir_node_publish_stage_seconds_bucket{shard=\"2\",stage=\"total\",le=\"0.0004\"} 1",
            "weir_node_publish_stage_seconds_bucket{shard=\"0\",stage=\"total\",le=\"0.0004\"} 0",
            "weir_node_tail_ring_bytes_max 77",
            "weir_node_confirmed_total{level=\"quorum\"} 1",
            "weir_node_refused_total{code=\"busy\"} 1",
            "weir_node_published_bytes_total 900",
            "weir_node_subscriptions 1",
        ] {
            assert!(text.contains(line), "{line} in {text}");
        }
        drop(open);
        assert_eq!(metrics.subscriptions.get(), 0);
        assert!(NodeMetrics::register(&registry, 0).is_err());
    }
}
