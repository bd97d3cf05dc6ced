//! What a storage node counts, as Prometheus metrics in a registry that the caller owns.
//!
//! Names are `weir_node_…` and `weir_journal_…`, in seconds and bytes. Labels come from closed sets (stage, level,
//! code, shard), never from clients: topics and partitions have their rates in the API instead.
//!
//! * `node`: publishes by stage, records and bytes in and out, refusals.
//! * `journal`: the journal's own counters, read when somebody scrapes.

mod journal;
mod node;

pub use journal::JournalCollector;
pub use node::NodeMetrics;
