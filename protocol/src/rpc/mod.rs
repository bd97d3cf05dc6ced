//! Messages between gateway and storage node: what is asked ([`Method`]) and answered.
//!
//! ```text
//!   session   Hello, Welcome, Credit
//!   refusal   Refusal: why not, and the numbers a client needs to go on
//!   cluster   who leads which shard, slots, namespaces          (meta group, shard 0)
//!   topic     create, describe, update, delete, list topics     (the topic's home shard)
//!   publish   record batches in, offsets out, per confirm level (the partition's shard)
//!   read      one read, a subscription stream, statistics       (the partition's shard)
//!   subscription  create, describe, update, delete, _list       (the home shard of its name)
//!                 pull, settle, leases, statistics, seek        (the partition's shard)
//!   removal   purge a part, trim a partition                    (the partition's shard)
//!   output    settle and publish in one entry                   (the partition's shard)
//!   consume   a stream of leases, settles in runs, leaving      (the partition's shard)
//!   share     who of a stream's consumers reads which part       (the home shard of its name)
//! ```
//!
//! Messages are Protocol Buffers (prost), so that fields can be added. Those that carry record batches are
//! [`Packet`]s: a message followed by the batches' bytes, which are never re-encoded, nor copied on decode.
//! Field numbers are never reused.

mod body;
mod cluster;
mod consume;
mod fork;
mod operate;
mod output;
mod packet;
mod parts;
mod publish;
mod read;
mod refusal;
mod removal;
mod session;
mod share;
mod subscription;
mod subscription_list;
mod topic;

pub use body::*;
pub use cluster::*;
pub use consume::*;
pub use fork::*;
pub use operate::*;
pub use output::*;
pub use packet::*;
pub use parts::*;
pub use publish::*;
pub use read::*;
pub use refusal::*;
pub use removal::*;
pub use session::*;
pub use share::*;
pub use subscription::*;
pub use subscription_list::*;
pub use topic::*;

/// What a request frame asks for. `A → B`: request message A is answered by B (once unless said otherwise).
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
#[repr(u16)]
pub enum Method {
    /// [`ClusterMapRequest`] → [`ClusterMap`]. Any node answers.
    ClusterMap = 1,
    /// [`PutNamespaceRequest`] → [`NamespacePut`]. Shard 0.
    PutNamespace = 2,
    /// [`DeleteNamespaceRequest`] → empty. Shard 0.
    DeleteNamespace = 3,
    /// [`ListNamespacesRequest`] → [`NamespaceList`]. Shard 0.
    ListNamespaces = 4,

    /// [`CreateTopicRequest`] → [`TopicCreated`]. Home shard. Answered when every partition's shard has it.
    CreateTopic = 10,
    /// [`DescribeTopicRequest`] → [`TopicDescription`]. Home shard.
    DescribeTopic = 11,
    /// [`UpdateTopicRequest`] → [`TopicDescription`]. Home shard. Answered when every partition's shard has it.
    UpdateTopic = 12,
    /// [`DeleteTopicRequest`] → empty. Home shard.
    DeleteTopic = 13,
    /// [`ListTopicsRequest`] → [`TopicList`]. Any data shard: topics at home in it.
    ListTopics = 14,

    /// [`Packet`] of [`PublishRequest`] → one [`PublishAnswer`] per requested level, lowest first.
    Publish = 20,
    /// [`ReadRequest`] → [`Packet`] of [`ReadAnswer`]. May wait for records.
    Read = 21,
    /// [`SubscribeRequest`] → any number of [`Packet`]s of [`SubscribeEvent`], within the credit granted.
    Subscribe = 22,
    /// [`PartitionStatsRequest`] → [`PartitionStatsList`].
    PartitionStats = 23,
    /// [`ProducerStateRequest`] → [`ProducerState`].
    ProducerState = 24,
    /// [`ConfirmStateRequest`] → [`ConfirmState`]. May wait for the level.
    ConfirmState = 25,
    /// [`TrimRequest`] → [`TrimAnswer`].
    Trim = 26,

    /// [`CreateSubscriptionRequest`] → [`SubscriptionCreated`]. Home shard. Answered when every partition has its part.
    CreateSubscription = 40,
    /// [`DescribeSubscriptionRequest`] → [`SubscriptionDescription`]. Home shard.
    DescribeSubscription = 41,
    /// [`UpdateSubscriptionRequest`] → [`SubscriptionDescription`]. Home shard. Answered when every part has it.
    UpdateSubscription = 42,
    /// [`DeleteSubscriptionRequest`] → empty. Home shard.
    DeleteSubscription = 43,
    /// [`ListSubscriptionsRequest`] → [`SubscriptionList`]. Any data shard: subscriptions at home in it.
    ListSubscriptions = 44,
    /// [`PullRequest`] → [`Packet`] of [`PullAnswer`]. May wait for records.
    Pull = 45,
    /// [`SettleRequest`] → [`SettleAnswer`].
    Settle = 46,
    /// [`PartStatsRequest`] → [`PartStatsList`].
    PartStats = 47,
    /// [`ListLeasesRequest`] → [`LeaseList`].
    ListLeases = 48,
    /// [`SeekRequest`] → [`SeekAnswer`].
    Seek = 49,
    /// [`Packet`] of [`SettleAndPublishRequest`] → [`SettleAndPublishAnswer`]. Waits for its outputs.
    SettleAndPublish = 50,
    /// [`ConsumeRequest`] → any number of [`Packet`]s of [`ConsumeEvent`], within the credit granted.
    Consume = 51,
    /// [`SettleRunsRequest`] → [`SettleRunsAnswer`].
    SettleRuns = 52,
    /// [`LeaveRequest`] → [`Left`].
    Leave = 53,
    /// [`ExplainRequest`] → [`Explanation`].
    Explain = 55,
    /// [`RedriveRequest`] → [`RedriveAnswer`].
    Redrive = 56,
    /// [`ListPartsRequest`] → [`FoundParts`]. Any data shard: parts of partitions in it.
    ListParts = 58,
    /// [`ShareRequest`] → [`ShareAnswer`]. Home shard. May wait for another share.
    Share = 59,
    /// [`PurgeRequest`] → [`PurgeAnswer`].
    Purge = 60,
}

impl Method {
    /// The method a peer sent as a number; `None` from a newer peer.
    #[must_use]
    pub const fn from_number(number: u16) -> Option<Self> {
        Some(match number {
            1 => Self::ClusterMap,
            2 => Self::PutNamespace,
            3 => Self::DeleteNamespace,
            4 => Self::ListNamespaces,
            10 => Self::CreateTopic,
            11 => Self::DescribeTopic,
            12 => Self::UpdateTopic,
            13 => Self::DeleteTopic,
            14 => Self::ListTopics,
            20 => Self::Publish,
            21 => Self::Read,
            22 => Self::Subscribe,
            23 => Self::PartitionStats,
            24 => Self::ProducerState,
            25 => Self::ConfirmState,
            26 => Self::Trim,
            40 => Self::CreateSubscription,
            41 => Self::DescribeSubscription,
            42 => Self::UpdateSubscription,
            43 => Self::DeleteSubscription,
            44 => Self::ListSubscriptions,
            45 => Self::Pull,
            46 => Self::Settle,
            47 => Self::PartStats,
            48 => Self::ListLeases,
            49 => Self::Seek,
            50 => Self::SettleAndPublish,
            51 => Self::Consume,
            52 => Self::SettleRuns,
            53 => Self::Leave,
            55 => Self::Explain,
            56 => Self::Redrive,
            58 => Self::ListParts,
            59 => Self::Share,
            60 => Self::Purge,
            _ => return None,
        })
    }
}

/// 128 bits on the wire.
#[derive(Clone, Copy, PartialEq, Eq, Hash, prost::Message)]
pub struct U128 {
    /// Upper half.
    #[prost(fixed64, tag = "1")]
    pub high: u64,
    /// Lower half.
    #[prost(fixed64, tag = "2")]
    pub low: u64,
}

impl From<u128> for U128 {
    fn from(value: u128) -> Self {
        #[expect(clippy::cast_possible_truncation, reason = "split into halves")]
        let (high, low) = ((value >> 64) as u64, value as u64);
        Self { high, low }
    }
}

impl From<U128> for u128 {
    fn from(value: U128) -> Self {
        Self::from(value.high) << 64 | Self::from(value.low)
    }
}
