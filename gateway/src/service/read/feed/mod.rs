//! One stream from the node for all readers of a partition.
//!
//! ```text
//!   Feeds ── seat ──▶ Seat: a reader of the partition may share; with a second one it does
//!                      └─ join ─▶ Tap: a reader's place in the Feed's Ring, as long as it keeps up
//!   Feed: a task that takes from one NodeStream ─▶ Ring of parcels ─▶ all taps, by one notification
//! ```

mod ring;
mod shared;
mod spots;
mod task;

pub(super) use shared::{Tap, Tapped};
pub use spots::FeedMetrics;
pub(super) use spots::{Feeds, Seat};

#[cfg(test)]
mod tests;
