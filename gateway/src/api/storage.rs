//! Where messages are and what keeping them costs, as JSON.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_protocol::prices::{DayCost, Prices};

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
    /// Blocks of objects that its readers asked for within about a day. A block is what is read at once:
    /// about 512 KiB of messages of a partition, before compression.
    pub blocks_asked_per_day: f64,
    /// Of these, the blocks that the caches had, or that were on their way already: nothing was fetched for them.
    pub blocks_cached_per_day: f64,
    /// What that costs.
    pub cost_per_day: CostPerDay,
    /// Objects that its messages could not be read from, the newest failure first, no more than 64. Empty if
    /// all is well, as far as anybody has read.
    pub damaged: Vec<DamagedObject>,
}

/// An object that messages of a partition could not be read from: it is gone, or not what was written. Told
/// from a read that failed until one of the same messages works, none of them is needed any more, or the
/// storage node is restarted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct DamagedObject {
    /// Its name in the store, below the prefix of `--object-store`.
    pub object: String,
    /// What happened.
    pub why: String,
    /// The partition.
    pub partition: u32,
    /// Offset of the first message that cannot be read.
    pub from: u64,
    /// One past the last.
    pub to: u64,
    /// How often reading failed.
    pub times: u64,
    /// When it failed first, milliseconds since the epoch.
    pub first_ms: u64,
    /// When it failed last.
    pub last_ms: u64,
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

impl StoragePrices {
    /// The numbers alone.
    #[must_use]
    pub fn numbers(&self) -> Prices {
        let Self { stored_gib_month, thousand_puts, thousand_gets, .. } = *self;
        Prices { stored_gib_month, thousand_puts, thousand_gets }
    }
}

impl Default for StoragePrices {
    fn default() -> Self {
        let Prices { stored_gib_month, thousand_puts, thousand_gets } = Prices::S3_STANDARD;
        Self {
            currency: "USD".to_owned(),
            stored_gib_month,
            thousand_puts,
            thousand_gets,
            source: "list prices of S3 Standard, us-east-1, first 50 TB, as of April 2024".to_owned(),
        }
    }
}

impl CostPerDay {
    /// An estimate at these prices.
    #[must_use]
    pub fn at(prices: &StoragePrices, object_bytes: u64, puts_per_day: f64, gets_per_day: f64) -> Self {
        let DayCost { stored, puts, gets } =
            prices.numbers().per_day(object_bytes, puts_per_day, gets_per_day);
        Self { stored, puts, gets, total: stored + puts + gets, prices: prices.clone() }
    }
}
