//! Where the time of confirmed publishes goes, however they came.

use prometheus::{Histogram, HistogramOpts, HistogramVec, Registry};
use weir_protocol::ws::StageMicros;

/// A histogram per stage, looked up once. Clones are the same histograms.
#[derive(Debug, Clone)]
pub(crate) struct StageSeconds {
    gw: Histogram,
    net: Histogram,
    queue: Histogram,
    write: Histogram,
    fsync: Histogram,
    quorum: Histogram,
    total: Histogram,
}

impl StageSeconds {
    /// Registers `weir_gateway_publish_stage_seconds`.
    ///
    /// # Errors
    /// It is registered already.
    pub(crate) fn register(registry: &Registry) -> Result<Self, prometheus::Error> {
        let buckets = prometheus::exponential_buckets(50e-6, 2.0, 16)?;
        let options = HistogramOpts::new(
            "weir_gateway_publish_stage_seconds",
            "Time that confirmed publishes spent in each stage.",
        );
        let stages = HistogramVec::new(options.buckets(buckets), &["stage"])?;
        registry.register(Box::new(stages.clone()))?;
        let stage = |name| stages.with_label_values(&[name]);
        Ok(Self {
            gw: stage("gw"),
            net: stage("net"),
            queue: stage("queue"),
            write: stage("write"),
            fsync: stage("fsync"),
            quorum: stage("quorum"),
            total: stage("total"),
        })
    }

    /// Counts what one request, or one batch of a socket, took.
    pub(crate) fn observe(&self, us: &StageMicros) {
        for (histogram, us) in [
            (&self.gw, us.gw),
            (&self.net, us.net),
            (&self.queue, us.queue),
            (&self.write, us.write),
            (&self.fsync, us.fsync),
            (&self.quorum, us.quorum),
            (&self.total, us.total),
        ] {
            histogram.observe(f64::from(us) / 1e6);
        }
    }
}
