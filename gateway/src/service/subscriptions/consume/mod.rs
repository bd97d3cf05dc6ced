//! Leases of all partitions as they appear, within one credit.
//!
//! ```text
//!   Consumer ── Shares (pure): whose turn it is for credit that is free
//!      └─ one Part per partition: its stream of leases, across changes of its leader
//!   ConsumerHandle: raises credit, holds back, settles and leaves from outside
//! ```

mod consumer;
mod part;
mod shares;

pub use consumer::{Consume, Consumer, ConsumerHandle, Leased};
