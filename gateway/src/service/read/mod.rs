//! Reading and following.
//!
//! ```text
//!   StartAt, Until   the grammar of `from` and `until`
//!   Cursor           positions on many partitions and topics, as one opaque token
//!   Reader ── read ──────▶ ReadPage: one partition, or several side by side
//!      └───── subscribe ─▶ Subscription ─┬─ one Feed, credit passed straight through
//!                                        └─ Merge of feeds, each with a bounded window
//!   Budget           what all subscriptions of this gateway may be owed at once
//! ```

mod budget;
mod config;
mod cursor;
mod feed;
pub(crate) mod measured;
mod merge;
mod page;
mod reader;
mod records;
mod start;
mod subscription;

pub(in crate::service) use budget::Share;
pub use budget::{Budget, BudgetMetrics};
pub use config::ReadConfig;
pub use cursor::{Cursor, Early};
pub use page::{PartitionEdge, ReadPage};
pub use reader::{Read, Reader};
pub use records::RecordSlice;
pub(in crate::service) use records::{Origin, unpack};
pub use start::{StartAt, Until};
pub use subscription::{
    PartitionOf, SeenPartition, Started, Subscribe, Subscription, SubscriptionCredit, SubscriptionEvent,
};
