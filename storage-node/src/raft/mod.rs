//! Consensus: openraft over the shared journal.
//!
//! * [`types`]: what openraft is told about Weir's entries.
//! * [`log`]: a shard's log is a stream of the journal; appends share its syncs.
//! * [`machine`]: applies committed entries to the shard's state; checkpoints.
//! * [`network`]: the seam where other nodes will be reached.

pub mod log;
pub mod machine;
pub mod network;
pub mod types;

pub use log::LogStore;
pub use machine::{AppliedLog, Machine};
pub use network::NoPeers;
pub use types::{AppliedEntry, EntryData, ShardRaft, TypeConfig};
