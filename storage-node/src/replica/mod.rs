//! A shard that runs on this node.
//!
//! ```text
//!   server ─▶ handle ─▶ backlog ─▶ proposer ─ one entry for all that waits ─▶ raft ─▶ journal
//!                          answers ◀─ in_flight ◀───────── state: apply(entry) ◀──┘ committed
//!                          readers ◀─ handle: ring, watchers ◀──────┘
//! ```
//!
//! | module | job |
//! |---|---|
//! | `handle` | how others reach a shard; what its apply leaves for readers |
//! | [`proposal`] | what is proposed, and who waits for it |
//! | [`backlog`] | whose turn it is |
//! | [`proposer`] | the task that proposes |
//! | [`in_flight`] | the answers that an entry owes |
//! | `archive` | who waits until something is in the object store |
//! | `awaited` | who waits for outputs of settles |
//! | [`due`] | which parts hold something that ends by itself, and when |
//! | [`early`] | staged batches for readers that do not wait for the commit |
//! | [`fences`] | how far fences run ahead of their terms |
//! | `log_clock` | the time that entries carry |
//! | [`queues`] | leases that the leader has given |
//! | [`reread`] | entries in memory that were read from the journal lately |
//! | [`returning`] | records in memory that were nacked and come again soon |
//! | [`ring`] | the newest entries in memory |
//! | `rosters` | who shares the streams that are at home here |
//! | `turn` | which of those who wait for records listens |
//! | [`rates`] | how busy partitions are |

mod archive;
mod awaited;
pub mod backlog;
pub mod due;
pub mod early;
pub mod fences;
mod handle;
pub mod in_flight;
mod log_clock;
pub mod proposal;
pub mod proposer;
pub mod queues;
pub mod rates;
pub mod reread;
pub mod returning;
pub mod ring;
mod rosters;
mod turn;

pub use archive::{Archive, Archived};
pub use awaited::{Arrived, AwaitedOutputs, OutputWait};
pub use backlog::Sender;
pub use early::{EarlyTail, EarlyWatch, StagedBatch};
pub use handle::{ShardHandle, ShardShared, TailMemory};
pub(crate) use log_clock::LogClock;
pub use queues::{Held, Locked, Queue, Queues};
pub use rosters::{Rosters, SharedRoster};
pub use turn::Turn;
