//! How busy partitions are, over about the last ten seconds.

use std::collections::HashMap;
use std::time::{Duration, Instant};

use crate::shard::state::PartitionKey;

/// Time over which a rate forgets all but 1/e of the past.
const WINDOW_SECONDS: f64 = 10.0;
/// A partition that was quiet for this long is forgotten: its rates are zero to three digits.
const FORGET_AFTER: Duration = Duration::from_secs(120);
/// Partitions beyond which quiet ones are looked for.
const SWEEP_AT: usize = 1_024;

/// Rates of one partition, per second.
#[derive(Debug, Clone, Copy, Default, PartialEq)]
pub struct Rate {
    /// Records published.
    pub published_records: f64,
    /// Encoded bytes published.
    pub published_bytes: f64,
    /// Records delivered to readers.
    pub delivered_records: f64,
}

/// Exponentially weighted rates of the partitions that were busy lately.
#[derive(Debug, Default)]
pub struct Rates {
    partitions: HashMap<PartitionKey, (Rate, Instant)>,
    sweep_at: usize,
}

impl Rates {
    /// Counts a batch that was published.
    pub fn published(&mut self, key: PartitionKey, records: u32, bytes: usize, now: Instant) {
        let rate = self.at(key, now);
        rate.published_records += f64::from(records) / WINDOW_SECONDS;
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let bytes = bytes as f64;
        rate.published_bytes += bytes / WINDOW_SECONDS;
    }

    /// Counts records that were delivered.
    pub fn delivered(&mut self, key: PartitionKey, records: u64, now: Instant) {
        #[expect(clippy::cast_precision_loss, reason = "a rate for people")]
        let records = records as f64;
        self.at(key, now).delivered_records += records / WINDOW_SECONDS;
    }

    /// The rates of a partition as of `now`.
    #[must_use]
    pub fn of(&self, key: PartitionKey, now: Instant) -> Rate {
        self.partitions.get(&key).map_or_else(Rate::default, |(rate, at)| decayed(*rate, *at, now))
    }

    fn at(&mut self, key: PartitionKey, now: Instant) -> &mut Rate {
        if self.partitions.len() > self.sweep_at.max(SWEEP_AT) {
            self.partitions.retain(|_, (_, at)| now.saturating_duration_since(*at) < FORGET_AFTER);
            // Sweeping again is worth it only when the number has doubled.
            self.sweep_at = self.partitions.len() * 2;
        }
        let (rate, at) = self.partitions.entry(key).or_insert((Rate::default(), now));
        *rate = decayed(*rate, *at, now);
        *at = now;
        rate
    }
}

fn decayed(rate: Rate, at: Instant, now: Instant) -> Rate {
    let keep = (-now.saturating_duration_since(at).as_secs_f64() / WINDOW_SECONDS).exp();
    Rate {
        published_records: rate.published_records * keep,
        published_bytes: rate.published_bytes * keep,
        delivered_records: rate.delivered_records * keep,
    }
}

#[cfg(test)]
mod tests {
    use weir_protocol::ids::{Incarnation, PartitionId};

    use super::*;

    #[test]
    fn a_steady_rate_is_reported_and_silence_brings_it_to_zero() {
        let mut rates = Rates::default();
        let (key, start) = ((Incarnation(1), PartitionId(0)), Instant::now());
        for tenth in 0..600 {
            rates.published(key, 10, 1_000, start + Duration::from_millis(tenth * 100));
        }
        let end = start + Duration::from_secs(60);
        let rate = rates.of(key, end);
        assert!((90.0..110.0).contains(&rate.published_records), "{rate:?}");
        assert!((9_000.0..11_000.0).contains(&rate.published_bytes), "{rate:?}");
        assert!(rates.of(key, end + Duration::from_secs(100)).published_records < 0.01);
        assert_eq!(rates.of((Incarnation(2), PartitionId(0)), end), Rate::default());
    }
}
