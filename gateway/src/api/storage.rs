//! Where messages are and what keeping them costs, as JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;

/// Days of a month, as far as prices go.
const DAYS_PER_MONTH: f64 = 30.0;
const GIB: f64 = (1_u64 << 30) as f64;

/// Where the messages of a partition are. In offset order: cold, archived, uploading, local.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct PartitionStorage {
    /// One past the last offset that is only in the object store.
    pub cold_to: u64,
    /// One past the last offset that is in the object store.
    pub archived_to: u64,
    /// One past the last offset that is on its way there.
    pub uploading_to: u64,
    /// Encoded bytes that are only in the object store.
    pub cold_bytes: u64,
    /// Encoded bytes that are in the object store and still on the node's disk.
    pub archived_bytes: u64,
    /// Encoded bytes that are on their way to the object store.
    pub uploading_bytes: u64,
    /// Encoded bytes that are only on the node's disk.
    pub local_bytes: u64,
    /// Age of the oldest committed message that is not in the object store, in milliseconds; 0 if all are.
    pub upload_lag_ms: u64,
}

/// What a topic takes of the object store. An estimate: objects are shared with other topics, by bytes.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct TopicStorage {
    /// Bytes of objects.
    pub object_bytes: u64,
    /// Requests that wrote its objects within the last day.
    pub puts_per_day: f64,
    /// Requests that compared and read its objects within about a day.
    pub gets_per_day: f64,
    /// Bytes that came from the store for its readers within about a day.
    pub read_bytes_per_day: f64,
    /// Blocks of objects that its readers asked for within about a day. A block is what is read at once: about 512 KiB of
    /// messages of a partition, before compression.
    pub blocks_asked_per_day: f64,
    /// Of these, the blocks that the caches had, or that were on their way already: nothing was fetched for them.
    pub blocks_cached_per_day: f64,
    /// What that costs.
    pub cost_per_day: CostPerDay,
}

/// What a day like the last one costs, at the gateway's prices.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
pub struct CostPerDay {
    /// Keeping what there is now.
    pub stored: f64,
    /// Writing.
    pub puts: f64,
    /// Reading and comparing.
    pub gets: f64,
    /// All three.
    pub total: f64,
    /// The prices.
    pub prices: StoragePrices,
}

/// What an object store charges. The defaults are list prices of S3 Standard in us-east-1.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize, ToSchema)]
#[serde(deny_unknown_fields, default)]
pub struct StoragePrices {
    /// What the prices are in. Default `USD`.
    pub currency: String,
    /// A GiB for a month of 30 days. Default 0.023.
    pub stored_gib_month: f64,
    /// A thousand requests that write. Default 0.005.
    pub thousand_puts: f64,
    /// A thousand requests that read. Default 0.0004.
    pub thousand_gets: f64,
    /// Whose prices, and of when.
    pub source: String,
}

impl Default for StoragePrices {
    fn default() -> Self {
        Self {
            currency: "USD".to_owned(),
            stored_gib_month: 0.023,
            thousand_puts: 0.005,
            thousand_gets: 0.0004,
            source: "list prices of S3 Standard, us-east-1, first 50 TB, as of April 2024".to_owned(),
        }
    }
}

impl CostPerDay {
    /// An estimate at these prices.
    #[must_use]
    pub fn at(prices: &StoragePrices, object_bytes: u64, puts_per_day: f64, gets_per_day: f64) -> Self {
        #[expect(clippy::cast_precision_loss, reason = "an estimate for people")]
        let gib = object_bytes as f64 / GIB;
        let stored = gib * prices.stored_gib_month / DAYS_PER_MONTH;
        let puts = puts_per_day / 1_000.0 * prices.thousand_puts;
        let gets = gets_per_day / 1_000.0 * prices.thousand_gets;
        Self { stored, puts, gets, total: stored + puts + gets, prices: prices.clone() }
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
        let cost = CostPerDay::at(&StoragePrices::default(), bytes, puts, 0.0);
        assert!((43.0..43.4).contains(&cost.stored), "{cost:?}");
        assert!((6.4..6.5).contains(&cost.puts), "{cost:?}");
        assert!((cost.total - cost.stored - cost.puts).abs() < 1e-9);
        let none = CostPerDay::at(&StoragePrices::default(), 0, 0.0, 1_000_000.0);
        assert!((none.total - 0.4).abs() < 1e-9, "{none:?}");
    }
}
