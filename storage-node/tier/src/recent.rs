//! What was asked of the cache and the store, and for whom, within about a day: for estimates of what it costs.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::pack::PackedPartition;

/// Time over which a count forgets all but 1/e of the past.
const WINDOW: Duration = Duration::from_secs(24 * 3600);
/// Partitions that are remembered; beyond, those that count least are forgotten.
const PARTITIONS_MAX: usize = 8_192;

/// `N` counts of which all but 1/e is forgotten within a day.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Fading<const N: usize> {
    counts: [f64; N],
    /// When they were these; never, before anything is counted.
    at: Option<Instant>,
}

impl<const N: usize> Default for Fading<N> {
    fn default() -> Self {
        Self { counts: [0.0; N], at: None }
    }
}

impl<const N: usize> Fading<N> {
    /// Counts so many more.
    pub(crate) fn count(&mut self, more: [f64; N], now: Instant) {
        let faded = self.of(now);
        *self = Self { counts: std::array::from_fn(|n| faded[n] + more[n]), at: Some(now) };
    }

    /// About what was counted within the last day.
    #[must_use]
    pub(crate) fn of(&self, now: Instant) -> [f64; N] {
        let age = self.at.map_or(Duration::ZERO, |at| now.saturating_duration_since(at));
        let left = (-age.as_secs_f64() / WINDOW.as_secs_f64()).exp();
        self.counts.map(|count| count * left)
    }
}

/// `N` such counts by partition, the one that says who counts least first.
#[derive(Debug, Default)]
pub(crate) struct Recent<const N: usize> {
    counts: HashMap<PackedPartition, Fading<N>>,
}

impl<const N: usize> Recent<N> {
    /// Counts so many more for `partition`.
    pub(crate) fn count(&mut self, partition: PackedPartition, more: [f64; N], now: Instant) {
        if self.counts.len() >= PARTITIONS_MAX && !self.counts.contains_key(&partition) {
            self.forget_half(now);
        }
        self.counts.entry(partition).or_default().count(more, now);
    }

    /// About what was counted of it within the last day.
    #[must_use]
    pub(crate) fn of(&self, partition: PackedPartition, now: Instant) -> [f64; N] {
        self.counts.get(&partition).map_or([0.0; N], |counted| counted.of(now))
    }

    fn forget_half(&mut self, now: Instant) {
        let first = |counted: &Fading<N>| counted.of(now)[0];
        let mut counts: Vec<f64> = self.counts.values().map(first).collect();
        let middle = counts.len() / 2;
        let (_, median, _) = counts.select_nth_unstable_by(middle, f64::total_cmp);
        let median = *median;
        // Of those that count the same some go too: there must be room.
        let mut left = middle - self.counts.values().filter(|counted| first(counted) > median).count();
        self.counts.retain(|_, counted| {
            let count = first(counted);
            let is_more = count > median;
            let is_kept = is_more || left > 0 && count >= median;
            left -= usize::from(is_kept && !is_more);
            is_kept
        });
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::ids::{Incarnation, PartitionId};

    use super::*;

    fn partition(n: u64) -> PackedPartition {
        (Incarnation(n), PartitionId(0))
    }

    #[test]
    fn a_steady_count_is_that_of_a_day_and_fades_when_nothing_is_counted() {
        let (mut recent, start) = (Recent::default(), Instant::now());
        for minute in 0..10 * 24 * 60 {
            recent.count(partition(1), [1.0, 2.0], start + Duration::from_secs(minute * 60));
        }
        let end = start + Duration::from_secs(10 * 24 * 3600);
        let [counted, twice] = recent.of(partition(1), end);
        assert!((twice - 2.0 * counted).abs() < 1e-6, "each has a count of its own: {twice}");
        assert!((1_400.0..1_480.0).contains(&counted), "{counted} of 1440");
        assert!(recent.of(partition(1), end + 10 * WINDOW)[0] < 0.1);
        assert!(recent.of(partition(2), end)[0].abs() < f64::EPSILON);
    }

    #[test]
    fn those_that_count_least_are_forgotten_when_there_are_too_many() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        for _ in 0..5 {
            recent.count(partition(0), [1.0], now);
        }
        for n in 1..20_000 {
            recent.count(partition(n), [1.0], now);
            assert!(recent.counts.len() <= PARTITIONS_MAX);
        }
        assert!((recent.of(partition(0), now)[0] - 5.0).abs() < 1e-9);
    }
}
