//! A shard as a pure state machine: one log for many partitions, and what it means.
//!
//! * [`entry`]: the bytes of an entry. [`command`]: changes of topics and namespaces.
//! * [`state`]: what the log means. [`staged`]: what is in flight on top of it.

pub mod command;
pub mod entry;
pub mod staged;
pub mod state;
