//! Reading and following.
//!
//! ```text
//!   StartAt, Until   the grammar of `from` and `until`
//!   Cursor           positions on many partitions and topics, as one opaque token
//!   Reader ── read ──────▶ ReadPage: one partition, or several side by side
//!      └───── subscribe ─▶ Subscription ─┬─ one Follower, credit passed straight through
//!                                        └─ Merge of followers, each with a bounded window
//!   Follower         one partition: by a NodeStream of its own, or, once it is at the end, by the Feed of all readers
//!   Budget           what all subscriptions of this gateway may be owed at once
//! ```

mod awaited;
mod budget;
mod config;
mod credit;
mod cursor;
mod event;
mod feed;
mod follower;
pub(crate) mod measured;
mod merge;
mod page;
mod parcel;
#[cfg(test)]
pub(super) mod played;
mod reader;
mod records;
mod room;
mod start;
mod stream;
mod subscription;
mod texts;

pub use awaited::Awaited;
pub(in crate::service) use budget::Share;
pub use budget::{Budget, BudgetMetrics};
pub use config::ReadConfig;
pub use credit::SubscriptionCredit;
pub use cursor::{Cursor, Early};
pub use event::{PartitionOf, Started, SubscriptionEvent};
pub use feed::FeedMetrics;
pub use page::{PartitionEdge, ReadPage};
pub use parcel::{Parcel, SharedParcel};
pub use reader::{Read, Reader};
pub use records::RecordSlice;
pub(crate) use records::held_bytes;
pub(in crate::service) use records::{Origin, unpack};
pub(crate) use room::Room;
pub use start::{StartAt, Until};
pub use subscription::{Seen, SeenPartition, Subscribe, Subscription};
pub use texts::{TextForm, Texts};
