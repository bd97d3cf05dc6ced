//! Times that were seen, in a histogram.

use std::time::Duration;

use hdrhistogram::Histogram;
use serde::{Deserialize, Serialize};

/// A minute in microseconds: what took longer counts as that.
const LATENCY_US_MAX: u64 = 60_000_000;

/// Microseconds, to three digits. Between processes: each value with its count.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(from = "Vec<(u64, u64)>", into = "Vec<(u64, u64)>")]
pub(super) struct Latencies(Histogram<u64>);

impl From<Vec<(u64, u64)>> for Latencies {
    fn from(counts: Vec<(u64, u64)>) -> Self {
        let mut latencies = Self::new();
        counts.into_iter().for_each(|(us, count)| latencies.record(us, count));
        latencies
    }
}

impl From<Latencies> for Vec<(u64, u64)> {
    fn from(latencies: Latencies) -> Self {
        latencies.0.iter_recorded().map(|it| (it.value_iterated_to(), it.count_at_value())).collect()
    }
}

impl Latencies {
    pub(super) fn new() -> Self {
        let bounds = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3);
        Self(bounds.expect("the bounds are constants that the histogram accepts"))
    }

    pub(super) fn record(&mut self, us: u64, count: u64) {
        self.0.saturating_record_n(us.max(1), count);
    }

    pub(super) fn record_time(&mut self, time: Duration) {
        self.record(u64::try_from(time.as_micros()).unwrap_or(u64::MAX), 1);
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.0.add(&other.0).expect("both have the same bounds");
    }

    pub(super) fn count(&self) -> u64 {
        self.0.len()
    }

    pub(super) fn at(&self, quantile: f64) -> u64 {
        self.0.value_at_quantile(quantile)
    }

    pub(super) fn max(&self) -> u64 {
        self.0.max()
    }
}
