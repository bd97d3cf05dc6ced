//! What a shard's log says and means: pure, without clock, I/O or tasks.
//!
//! * [`entry`]: the bytes of an entry. [`command`]: changes of topics and namespaces.
//! * [`state`]: what the log means.

pub mod command;
pub mod entry;
pub mod state;
