//! A shard: one Raft group with one log for many partitions.
//!
//! ```text
//!   server ─▶ handle ─▶ proposer ─ one entry for all that waits ─▶ raft ─▶ journal
//!                          ▲ verdicts                               │ committed
//!                          └──────────────── state: apply(entry) ◀──┘
//! ```
//!
//! * [`entry`]: the bytes of an entry. [`command`]: changes of topics and namespaces.
//! * [`state`]: pure; what the log means.
//! * [`proposer`], [`handle`]: the task that proposes, and how others reach it.

pub mod command;
pub mod entry;
pub mod handle;
pub mod proposer;
pub mod state;

pub use handle::{ShardHandle, ShardShared};
