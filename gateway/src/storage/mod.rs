//! The way to the storage nodes: topic → slot → home shard → leader → link, and the only retry policy.
//!
//! ```text
//!   Storage ── topic ──▶ TopicCache ── miss ──▶ DescribeTopic at the home shard
//!      │ call, open                 view: slots, leaders, nodes (refreshed when a node says otherwise)
//!      ├──▶ Router ── retry::judge ──▶ Links ──▶ one Link per node
//!      └──▶ Lane, one per shard: what waits together shares a Publish frame
//! ```
//!
//! * [`Storage`]: cheap handle to all of it.
//! * [`Failure`]: why not, with the numbers a client needs; the gateway's one error below HTTP.
//! * `retry`, `view`: pure; errors and maps in, decisions out.

mod config;
mod failure;
mod handle;
mod lane;
mod links;
mod retry;
mod router;
mod stay;
mod ticket;
mod topic;
mod topic_cache;
mod view;

pub use config::StorageConfig;
pub use failure::Failure;
pub use handle::{Storage, StorageMetrics};
pub use links::{Dial, TcpDial};
pub use router::Safety;
pub use topic::Topic;

pub(crate) use lane::LaneItem;
pub(crate) use router::{Attempts, CallFor};
pub(crate) use stay::{ARCHIVING_MAX, READING_MAX, WORKING_MAX};
pub(crate) use ticket::{Confirm, Ticket};
