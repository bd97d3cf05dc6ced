//! Consensus: openraft over the journal.
//!
//! ```text
//!   proposer ─▶ openraft ─▶ log ─▶ journal ─▶ disk        network: peers (none yet)
//!                  │         └── flushed ─▶ tripwire
//!                  └─ committed ─▶ machine ─▶ ShardState, tail ring, waiters
//! ```
//!
//! | module | job |
//! |---|---|
//! | [`types`] | the types openraft is built with; bytes of votes and memberships |
//! | [`log`] | a shard's entries and vote as a stream of the journal |
//! | [`machine`] | applies entries; hands checkpoints to openraft |
//! | [`checkpoint`] | the shard's state in durable files |
//! | [`network`] | the way to other voters |
//! | [`runtime`] | where openraft's tasks run |
//! | [`tripwire`] | panics if an entry is applied before a quorum flushed it |
//! | [`group`] | starts a group and makes it lead; openraft's settings, with reasons |

pub mod checkpoint;
pub mod group;
pub mod log;
pub mod machine;
pub mod network;
pub mod runtime;
pub mod tripwire;
pub mod types;

pub use checkpoint::Checkpoints;
pub use group::lead_again;
pub use log::LogStore;
pub use machine::{AppliedLog, Machine};
pub use types::{AppliedEntry, EntryData, ShardRaft, TypeConfig, term_of};
