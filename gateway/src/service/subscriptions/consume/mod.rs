//! Leases of all partitions as they appear, within one credit.
//!
//! ```text
//!   Consumer ── Shares (pure): whose turn it is for credit that is free
//!      ├─ one Part per partition: its stream of leases, across changes of its leader
//!      └─ of a stream Attendance: which of them it reads, as the home shard says; the others rest
//!   ConsumerHandle: raises credit, holds back, settles and leaves from outside
//! ```

mod attendance;
mod consumer;
mod handle;
mod leased;
mod part;
mod shares;

pub use consumer::{Consume, Consumed, Consumer, ShareShift};
pub use handle::{ConsumerHandle, PartName};
pub use leased::Leased;
