//! What an object store charges, and what a day of it comes to: one estimate, wherever it is told.

use serde::{Deserialize, Serialize};

/// Days of a month, as far as prices go.
const DAYS_PER_MONTH: f64 = 30.0;
const GIB: f64 = (1_u64 << 30) as f64;

/// What an object store charges, in whatever currency.
#[derive(Debug, Clone, Copy, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct Prices {
    /// A GiB for a month of 30 days.
    pub stored_gib_month: f64,
    /// A thousand requests that write.
    pub thousand_puts: f64,
    /// A thousand requests that read.
    pub thousand_gets: f64,
}

/// What a day costs, in the prices' currency.
#[derive(Debug, Clone, Copy, PartialEq)]
pub struct DayCost {
    /// Keeping what there is now.
    pub stored: f64,
    /// Requests that write.
    pub puts: f64,
    /// Requests that read.
    pub gets: f64,
}

impl Prices {
    /// List prices of S3 Standard in us-east-1 (first 50 TB) as of April 2024, in USD.
    pub const S3_STANDARD: Self =
        Self { stored_gib_month: 0.023, thousand_puts: 0.005, thousand_gets: 0.0004 };

    /// What a day of keeping so many bytes and of so many requests costs.
    #[must_use]
    pub fn per_day(&self, object_bytes: u64, puts: f64, gets: f64) -> DayCost {
        #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
        let gib = object_bytes as f64 / GIB;
        DayCost {
            stored: gib * self.stored_gib_month / DAYS_PER_MONTH,
            puts: puts / 1_000.0 * self.thousand_puts,
            gets: gets / 1_000.0 * self.thousand_gets,
        }
    }
}

impl Default for Prices {
    fn default() -> Self {
        Self::S3_STANDARD
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_day_costs_what_is_kept_and_what_was_asked() {
        // 7 days of 100 MB/s in objects of 64 MiB: the figures that docs/operations.md gives.
        let bytes = 7 * 86_400 * 100_000_000;
        let puts = 86_400.0 * 100_000_000.0 / f64::from(64 << 20) * 10.0;
        let cost = Prices::default().per_day(bytes, puts, 0.0);
        assert!((43.0..43.4).contains(&cost.stored), "{cost:?}");
        assert!((6.4..6.5).contains(&cost.puts), "{cost:?}");
        assert!(cost.gets.abs() < 1e-9, "{cost:?}");
        let read = Prices::default().per_day(0, 0.0, 1_000_000.0);
        assert!((read.gets - 0.4).abs() < 1e-9, "{read:?}");
    }
}
