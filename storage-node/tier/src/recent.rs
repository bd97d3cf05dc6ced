//! What was asked of the store for whom within about a day: for estimates of what it costs.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::pack::PackedPartition;

/// Time over which a count forgets all but 1/e of the past.
const WINDOW: Duration = Duration::from_secs(24 * 3600);
/// Partitions that are remembered; beyond, those that count least are forgotten.
const PARTITIONS_MAX: usize = 8_192;

/// Counts by partition that fade within about a day.
#[derive(Debug, Default)]
pub(crate) struct Recent {
    counts: HashMap<PackedPartition, (f64, Instant)>,
}

impl Recent {
    /// Counts so many more for `partition`.
    pub(crate) fn count(&mut self, partition: PackedPartition, more: f64, now: Instant) {
        if self.counts.len() >= PARTITIONS_MAX && !self.counts.contains_key(&partition) {
            self.forget_half(now);
        }
        let (count, at) = self.counts.entry(partition).or_insert((0.0, now));
        (*count, *at) = (faded(*count, *at, now) + more, now);
    }

    /// About what was counted of it within the last day.
    #[must_use]
    pub(crate) fn of(&self, partition: PackedPartition, now: Instant) -> f64 {
        self.counts.get(&partition).map_or(0.0, |(count, at)| faded(*count, *at, now))
    }

    fn forget_half(&mut self, now: Instant) {
        let mut counts: Vec<f64> = self.counts.values().map(|(count, at)| faded(*count, *at, now)).collect();
        let middle = counts.len() / 2;
        let (_, median, _) = counts.select_nth_unstable_by(middle, f64::total_cmp);
        let median = *median;
        let is_more = |(count, at): &(f64, Instant)| faded(*count, *at, now) > median;
        // Of those that count the same some go too: there must be room.
        let mut left = middle - self.counts.values().filter(|counted| is_more(counted)).count();
        self.counts.retain(|_, counted| {
            let is_kept = is_more(counted) || left > 0 && faded(counted.0, counted.1, now) >= median;
            left -= usize::from(is_kept && !is_more(counted));
            is_kept
        });
    }
}

fn faded(count: f64, at: Instant, now: Instant) -> f64 {
    count * (-now.saturating_duration_since(at).as_secs_f64() / WINDOW.as_secs_f64()).exp()
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
            recent.count(partition(1), 1.0, start + Duration::from_secs(minute * 60));
        }
        let end = start + Duration::from_secs(10 * 24 * 3600);
        let counted = recent.of(partition(1), end);
        assert!((1_400.0..1_480.0).contains(&counted), "{counted} of 1440");
        assert!(recent.of(partition(1), end + 10 * WINDOW) < 0.1);
        assert!(recent.of(partition(2), end).abs() < f64::EPSILON);
    }

    #[test]
    fn those_that_count_least_are_forgotten_when_there_are_too_many() {
        let (mut recent, now) = (Recent::default(), Instant::now());
        for _ in 0..5 {
            recent.count(partition(0), 1.0, now);
        }
        for n in 1..20_000 {
            recent.count(partition(n), 1.0, now);
            assert!(recent.counts.len() <= PARTITIONS_MAX);
        }
        assert!((recent.of(partition(0), now) - 5.0).abs() < 1e-9);
    }
}
