//! What was seen: latencies, and which messages arrived.

use hdrhistogram::Histogram;

/// A minute in microseconds: what took longer counts as that.
const LATENCY_US_MAX: u64 = 60_000_000;

/// Microseconds, to three digits.
#[derive(Debug, Clone)]
pub(super) struct Latencies(Histogram<u64>);

impl Latencies {
    pub(super) fn new() -> Self {
        let bounds = Histogram::new_with_bounds(1, LATENCY_US_MAX, 3);
        Self(bounds.expect("the bounds are constants that the histogram accepts"))
    }

    pub(super) fn record(&mut self, us: u64, count: u64) {
        self.0.saturating_record_n(us.max(1), count);
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

/// Which numbers of one writer arrived.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Arrived {
    /// The number that must come next.
    pub(super) next: u64,
    /// Messages that had come before.
    pub(super) duplicates: u64,
    /// Messages that were skipped: lost, or out of order.
    pub(super) missing: u64,
}

impl Arrived {
    /// Takes one message.
    pub(super) fn take(&mut self, seq: u64) {
        if seq < self.next {
            self.duplicates += 1;
            return;
        }
        self.missing += seq - self.next;
        self.next = seq + 1;
    }
}

/// All of a run, or one task's share of it.
#[derive(Debug, Clone)]
pub(super) struct Tally {
    /// From due to sent: how late the generator was.
    pub(super) late: Latencies,
    /// From due to confirmed.
    pub(super) confirm: Latencies,
    /// From due to delivered.
    pub(super) deliver: Latencies,
    pub(super) sent: u64,
    pub(super) confirmed: u64,
    /// Confirms that came while it counted, whenever their messages were due.
    pub(super) confirmed_in_window: u64,
    pub(super) batches: u64,
    pub(super) delivered: u64,
    pub(super) duplicates: u64,
    pub(super) missing: u64,
}

impl Tally {
    pub(super) fn new() -> Self {
        Self {
            late: Latencies::new(),
            confirm: Latencies::new(),
            deliver: Latencies::new(),
            sent: 0,
            confirmed: 0,
            confirmed_in_window: 0,
            batches: 0,
            delivered: 0,
            duplicates: 0,
            missing: 0,
        }
    }

    pub(super) fn add(&mut self, other: &Self) {
        self.late.add(&other.late);
        self.confirm.add(&other.confirm);
        self.deliver.add(&other.deliver);
        self.sent += other.sent;
        self.confirmed += other.confirmed;
        self.confirmed_in_window += other.confirmed_in_window;
        self.batches += other.batches;
        self.delivered += other.delivered;
        self.duplicates += other.duplicates;
        self.missing += other.missing;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_comes_twice_and_what_is_skipped_is_counted() {
        let mut arrived = Arrived::default();
        for seq in [0, 1, 1, 2, 5, 4, 6] {
            arrived.take(seq);
        }
        assert_eq!(arrived, Arrived { next: 7, duplicates: 2, missing: 2 });
    }
}
