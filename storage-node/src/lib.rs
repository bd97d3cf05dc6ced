//! A storage node: shards over one journal, answering gateways.
//!
//! ```text
//!   server ─ frames ─▶ replica ─ proposer ─▶ raft ─▶ journal (one fsync for all shards)
//!      │                 ▲ state ◀─ apply ──┘
//!      └─ read: journal entries ◀─ rows of the state ─▶ outbox ─▶ other shards
//!               ├ carry: what outlives its journal file, where there is no store
//!               └ tier: packs in the object store ◀─ sealing
//! ```
//!
//! [`Node::start`] makes it run; `weir dev` runs one beside a gateway.

mod background;
mod carry;
pub mod clock;
pub mod config;
pub mod holders;
pub mod keeper;
pub mod layout;
pub mod limits;
pub mod metrics;
pub mod node;
mod opening;
pub mod outbox;
pub mod raft;
pub mod read;
pub mod repair;
pub mod replica;
pub mod restore;
pub mod sealing;
pub mod server;
pub mod shard;
pub mod shutdown;
pub mod subscription;
pub mod tier;

pub use config::{Backend, NodeConfig, PackCodec, SyncMode};
pub use limits::Limits;
pub use node::{Node, RunningNode, StartError, Surroundings};
pub use repair::{NodeRepair, RepairError, ShardLoss};
pub use restore::{NodeRestore, RestorableShard, RestoreError, RestoreFrom, Step};
