//! The state of one shard: a function of its log alone.
//!
//! ```text
//!   apply ──▶ partitions   start ≤ end, rows: where each batch lies in the log
//!     │         └▶ floors  what retention and purging look at, ordered
//!     ├─────▶ dedupe       producers and idempotency keys
//!     ├─────▶ topics       topics at home here; namespaces and slots (shard 0)
//!     │         └▶ outbox  what the other shards of a topic or subscription have to be told
//!     └─────▶ parts        what each subscription holds of a partition; subscriptions at home here
//!               └▶ dead letters on their way to their topic
//!         packs        objects that hold what may leave the log
//!   snapshot               to bytes and back, while apply goes on
//! ```
//!
//! Apply has no clock, no randomness and no I/O: time is the entry's. Offsets are final here (docs/adr/0005).

mod apply;
mod bucket;
mod commands;
mod cow_map;
mod cutting;
mod dead_letters;
mod dedupe;
mod floors;
mod forking;
#[cfg(test)]
mod forks;
#[cfg(test)]
mod golden;
mod held_topic;
mod holding;
#[cfg(test)]
mod letters;
mod listing;
mod living;
#[cfg(test)]
mod model;
#[cfg(test)]
mod neighbours;
mod outbox;
mod outputs;
mod packs;
mod partition;
mod parts;
mod patterns;
mod producers;
#[cfg(test)]
mod rewriting;
mod rows;
#[cfg(test)]
pub(crate) mod sealing;
mod settled;
#[cfg(test)]
mod settling;
#[cfg(test)]
mod several;
mod slots;
mod snapshot;
mod stored_keys;
mod stored_outputs;
mod stored_packs;
mod stored_subscriptions;
mod subscribing;
mod subscriptions;
#[cfg(test)]
mod tests;
mod topics;

pub(in crate::shard) use apply::known;
pub use apply::{Applied, ShardState, StateError, Verdict};
pub use cutting::Restorable;
pub use dead_letters::{DEAD_LETTERS_MAX, DeadLetter, DeadLetters};
pub use dedupe::{Check, Dedupe, PartitionKey, Placement};
pub use holding::{Keeps, Kept};
pub use outbox::{News, OUTBOX_ROWS_MAX, Outbox, OutboxRow};
pub use outputs::{Arrivals, OUTPUT_BYTES_MAX, OUTPUT_ROWS_MAX, Output, Outputs};
pub use packs::{Pack, PackNo, Packs, SharedPartitions, oldest_batches};
pub use partition::Partition;
pub use parts::{HeldPart, PartKey, Parts};
pub use producers::Producer;
pub use rows::BatchRow;
pub use slots::SlotTable;
#[cfg(test)]
pub(crate) use snapshot::large_state;
pub use snapshot::{CHUNK_BYTES, Frozen, LIVES_PER_EPOCH, SnapshotError};
pub use subscribing::part_key;
pub use subscriptions::Subscriptions;
pub use topics::Topics;
