//! Subscriptions: topics as work queues. Configured at the home of their name, consumed where the partitions are.
//!
//! ```text
//!   Subscriptions ─┬─ create, fork, get, view, update, delete, list ─▶ home shard of the name
//!                  ├─ pull    leases of all partitions in turns; waits for any of them
//!                  ├─ consume leases of all partitions as they appear, within credit
//!                  ├─ share   which partitions of a stream a consumer reads ─▶ home shard of the name
//!                  ├─ settle  leases back to their partitions, results in the order they were given
//!                  ├─ settle_and_publish  leases of one partition, and what came of them
//!                  └─ seek, purge, leases, explain, redrive           ─▶ the partitions' shards
//!   Lease    what a token says: subscription, topic's life, partition, offset, fence
//!   PartPlace  a partition of one of its topics, and the shard that has it; what counts parts counts these
//!   Known    a description that was asked for lately, and whose turn it is; forgotten when a part refuses it
//! ```

mod cache;
mod consume;
mod described;
mod fork;
mod known;
mod lease;
mod leases;
mod manage;
mod message_id;
mod operate;
mod pull;
mod purge;
mod seek;
mod settle;
mod settle_and_publish;
mod share;

pub use consume::{Consume, Consumed, Consumer, ConsumerHandle, Leased, PartName, ShareShift};
pub use described::{PartPlace, Subscription, SubscriptionPath};
pub use fork::Moment;
pub use lease::Lease;
pub use leases::{LeaseListing, ListLeases};
pub use manage::{ListSubscriptions, SubscriptionView, Subscriptions, SubscriptionsMetrics};
pub use message_id::MessageId;
pub use operate::{Redrive, RedriveDone, RedriveFrom};
pub(crate) use pull::Pulled;
pub use pull::{Delivery, Pull};
pub use purge::{Purge, Purged};
pub use seek::{Seek, Seeked};
pub use settle::{SettleLease, Settled};
pub use settle_and_publish::{PublishedOutput, SettleAndPublish};
