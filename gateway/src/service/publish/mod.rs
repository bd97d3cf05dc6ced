//! Records in, offsets out.
//!
//! ```text
//!   Publish ── plan (pure: which partition, which batches) ── Publisher ── lanes ──▶ Published
//!   socket ──▶ PublishChannel ── plan ── lanes ──▶ Confirm … (one queue per socket)
//!   delivery: when a message may be delivered, for the plan and for those who name the header at fault
//!   archiving: confirms of a channel at `archived` ──▶ Archivist: one call waits for each partition
//!   outputs: messages that a settle publishes, as batches
//!   Receipt: what a client keeps to ask again
//! ```

mod archiving;
mod archivist;
mod channel;
mod config;
mod delivery;
mod outputs;
mod plan;
mod published;
mod publisher;
mod receipt;
mod request;

pub use channel::{ChannelPublish, OpenChannel, PublishChannel};
pub use config::PublishConfig;
pub use delivery::{check_content_type, check_deliver_at, check_ttl_ms};
pub use outputs::OutputReceipt;
pub use published::{Confirmed, Published, PublishedPart, RecordResult, Timing};
pub(super) use publisher::NOT_ARCHIVED;
pub use publisher::{ProducerPartition, Publisher, ReceiptState, now};
pub use receipt::Receipt;
pub use request::{Content, Expected, NewRecord, Producer, Publish, Unnamed};

pub(in crate::service) use outputs::OutputPart;

pub(crate) use channel::ChannelPart;
pub(crate) use published::is_old_duplicate;

pub(crate) use crate::storage::Confirm;
