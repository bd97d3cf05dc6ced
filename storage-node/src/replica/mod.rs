//! A shard that runs on this node.
//!
//! ```text
//!   server ─▶ handle ─▶ proposer ─ one entry for all that waits ─▶ raft ─▶ journal
//!                          ▲ verdicts                               │ committed
//!                          └──────────────── state: apply(entry) ◀──┘
//! ```

mod handle;
pub mod proposer;

pub use handle::{ShardHandle, ShardShared};
