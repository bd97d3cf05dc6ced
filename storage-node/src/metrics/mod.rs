//! What a storage node counts, as Prometheus metrics in a registry that the caller owns.
//!
//! Names are `weir_node_…`, `weir_journal_…`, `weir_tier_…` and `weir_storage_…`, in seconds and bytes; what
//! is bounded has its bound beside it, `…_max`. Labels come from closed sets (stage, level, code, shard,
//! table, the currency of the settings), never from clients: topics and partitions have their rates in the
//! API instead. But for five: whoever keeps most of a journal that is nearly full is named.
//!
//! * `node`: publishes by stage and shard, records and bytes in and out, refusals.
//! * `holders`: who keeps most of the journal once it is nearly full, and whether the clock has jumped.
//! * `journal`: the journal's own counters, read when somebody scrapes; `shards`: what the shards hold,
//!   likewise; `storage`: where messages are, and what that costs.

mod holders;
mod journal;
mod node;
mod shards;
mod storage;
mod tier;

pub use holders::HoldersCollector;
pub use journal::JournalCollector;
pub use node::{NodeMetrics, SubscriptionGuard};
pub use shards::ShardsCollector;
pub use storage::{StorageCollector, StoreNow, ToldByStore};
pub use tier::TierMetrics;
