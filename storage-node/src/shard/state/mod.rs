//! The state of one shard: a function of its log alone.
//!
//! ```text
//!   partition   start ≤ end, rows: where each batch lies in the log
//!   dedupe      producers and idempotency keys
//!   topics      topics at home here; namespaces (shard 0)
//!   snapshot    to bytes and back
//! ```
//!
//! Apply has no clock, no randomness and no I/O: time is the entry's. Offsets are final here.

mod apply;
mod dedupe;
mod partition;
mod snapshot;
#[cfg(test)]
mod tests;
mod topics;

pub use apply::{Applied, ShardState, StateError, Verdict};
pub use dedupe::{Check, Dedupe, PartitionKey, Placement, Producer};
pub use partition::{BatchRow, Partition};
pub use topics::Topics;
