//! Records in, offsets out.
//!
//! ```text
//!   Publish ── plan (pure: which partition, which batches) ── Publisher ── lanes ──▶ Published
//!   Receipt: what a client keeps to ask again
//! ```

mod config;
mod plan;
mod published;
mod publisher;
mod receipt;
mod request;

pub use config::PublishConfig;
pub use published::{Confirmed, Published, PublishedPart, RecordResult, Timing};
pub use publisher::{ProducerPartition, Publisher, ReceiptState};
pub use receipt::Receipt;
pub use request::{Content, Expected, NewRecord, Producer, Publish};
