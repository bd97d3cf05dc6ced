//! Commands that change a shard's own state: topics, subscriptions, what other shards tell it; namespaces and slots
//! (shard 0).

use bytes::Bytes;
use weir_protocol::rpc::{
    ConsumedTopic, ForkOrigin, Namespace, PartRef, SlotRun, SubscriptionConfig, SubscriptionDescription,
    SubscriptionName, TopicConfig, TopicDescription, TopicName, U128,
};

/// The body of a command sub-batch: exactly one.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Command {
    /// What to do.
    #[prost(oneof = "Change", tags = "1, 2, 3, 4, 5, 6, 7, 8, 9, 10, 11, 12, 13, 14, 15, 30, 31, 32")]
    pub change: Option<Change>,
}

/// The kinds of [`Command`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Change {
    /// Creates a topic.
    #[prost(message, tag = "1")]
    CreateTopic(CreateTopic),
    /// Replaces a topic's configuration.
    #[prost(message, tag = "2")]
    UpdateTopic(UpdateTopic),
    /// Deletes a topic.
    #[prost(message, tag = "3")]
    DeleteTopic(DeleteTopic),
    /// Creates or replaces a namespace.
    #[prost(message, tag = "4")]
    PutNamespace(PutNamespace),
    /// Deletes a namespace.
    #[prost(message, tag = "5")]
    DeleteNamespace(DeleteNamespace),
    /// Tells of a topic that is at home elsewhere.
    #[prost(message, tag = "6")]
    TellTopic(TellTopic),
    /// Deletes what another shard has taken.
    #[prost(message, tag = "7")]
    Taken(NewsTaken),
    /// Places the slots.
    #[prost(message, tag = "8")]
    PutSlots(PutSlots),
    /// Creates a subscription.
    #[prost(message, tag = "9")]
    CreateSubscription(CreateSubscription),
    /// Replaces a subscription's configuration.
    #[prost(message, tag = "10")]
    UpdateSubscription(UpdateSubscription),
    /// Deletes a subscription.
    #[prost(message, tag = "11")]
    DeleteSubscription(DeleteSubscription),
    /// Tells of a subscription that is at home elsewhere.
    #[prost(message, tag = "12")]
    TellSubscription(TellSubscription),
    /// Changes a part of a subscription.
    #[prost(message, tag = "13")]
    ChangePart(ChangePart),
    /// Deletes dead letters that have reached their topic.
    #[prost(message, tag = "14")]
    Buried(Buried),
    /// Deletes outputs that have arrived.
    #[prost(message, tag = "15")]
    OutputsTaken(Taken),
    /// Commits a pack.
    #[prost(message, tag = "30")]
    Seal(Seal),
    /// Forgets packs whose objects are gone.
    #[prost(message, tag = "31")]
    Forget(Forget),
    /// Commits a pack that takes the place of others.
    #[prost(message, tag = "32")]
    Rewrite(Rewrite),
}

/// Creates a topic unless it exists.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateTopic {
    /// Full name.
    #[prost(message, required, tag = "1")]
    pub name: TopicName,
    /// Configuration.
    #[prost(message, required, tag = "2")]
    pub config: TopicConfig,
    /// An existing topic of any configuration is fine.
    #[prost(bool, tag = "3")]
    pub accept_existing: bool,
    /// The data shards of the moment, ascending: partitions are placed over them. Without any (entries of state
    /// version 1) all partitions lie in the home shard.
    #[prost(uint32, repeated, tag = "4")]
    pub shards: Vec<u32>,
}

/// Replaces a configuration.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UpdateTopic {
    /// Full name.
    #[prost(message, required, tag = "1")]
    pub name: TopicName,
    /// New configuration.
    #[prost(message, required, tag = "2")]
    pub config: TopicConfig,
    /// The life that is meant.
    #[prost(uint64, tag = "3")]
    pub incarnation: u64,
    /// The version it was made from.
    #[prost(uint32, tag = "4")]
    pub expected_version: u32,
}

/// Deletes a topic.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteTopic {
    /// Full name.
    #[prost(message, required, tag = "1")]
    pub name: TopicName,
    /// Only this life.
    #[prost(uint64, optional, tag = "2")]
    pub incarnation: Option<u64>,
    /// Only this version.
    #[prost(uint32, optional, tag = "3")]
    pub expected_version: Option<u32>,
}

/// Creates or replaces a namespace.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PutNamespace {
    /// What it shall be.
    #[prost(message, required, tag = "1")]
    pub namespace: Namespace,
    /// Only this version; 0: only if it does not exist.
    #[prost(uint32, optional, tag = "2")]
    pub expected_version: Option<u32>,
}

/// A topic as its home shard knows it, for a shard that holds partitions of it.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TellTopic {
    /// Home shard.
    #[prost(uint32, tag = "1")]
    pub source: u32,
    /// Number among all that the source tells this shard; dense, from 0.
    #[prost(uint64, tag = "2")]
    pub seq: u64,
    /// The topic.
    #[prost(message, required, tag = "3")]
    pub topic: TopicDescription,
    /// It was deleted.
    #[prost(bool, tag = "4")]
    pub is_deleted: bool,
}

/// A shard has committed all that this one had to tell it below a number.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct Taken {
    /// Who has.
    #[prost(uint32, tag = "1")]
    pub target: u32,
    /// First number that it may not have.
    #[prost(uint64, tag = "2")]
    pub upto: u64,
}

/// [`Taken`] of news.
#[derive(Clone, PartialEq, prost::Message)]
pub struct NewsTaken {
    /// Who has.
    #[prost(uint32, tag = "1")]
    pub target: u32,
    /// First number that it may not have.
    #[prost(uint64, tag = "2")]
    pub upto: u64,
    /// Of the subscriptions told of, the lives of forks that it cannot begin: they are taken back.
    #[prost(uint64, repeated, tag = "3")]
    pub unforked: Vec<u64>,
}

/// Places every slot in a home shard.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PutSlots {
    /// Sorted runs that cover all slots.
    #[prost(message, repeated, tag = "1")]
    pub runs: Vec<SlotRun>,
    /// Only if the table has this version; 0: only if there is none.
    #[prost(uint32, tag = "2")]
    pub expected_version: u32,
}

/// Deletes a namespace.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteNamespace {
    /// Owner.
    #[prost(string, tag = "1")]
    pub tenant: String,
    /// Name.
    #[prost(string, tag = "2")]
    pub name: String,
    /// Only this version of it. Not in entries of earlier builds.
    #[prost(uint32, optional, tag = "3")]
    pub expected_version: Option<u32>,
}

/// Creates a subscription unless it exists.
#[derive(Clone, PartialEq, prost::Message)]
pub struct CreateSubscription {
    /// Full name.
    #[prost(message, required, tag = "1")]
    pub name: SubscriptionName,
    /// Configuration.
    #[prost(message, required, tag = "2")]
    pub config: SubscriptionConfig,
    /// The life of its topic; of a pattern 0.
    #[prost(uint64, tag = "3")]
    pub topic_incarnation: u64,
    /// The shard of each of the topic's partitions; of a pattern every shard that may have one.
    #[prost(uint32, repeated, tag = "4")]
    pub shards: Vec<u32>,
    /// The other topics, if there are several.
    #[prost(message, repeated, tag = "5")]
    pub more: Vec<ConsumedTopic>,
    /// What its parts begin as, if not anew.
    #[prost(message, optional, tag = "6")]
    pub fork: Option<ForkOrigin>,
}

/// Replaces a configuration, but for its topic and start.
#[derive(Clone, PartialEq, prost::Message)]
pub struct UpdateSubscription {
    /// Full name.
    #[prost(message, required, tag = "1")]
    pub name: SubscriptionName,
    /// New configuration.
    #[prost(message, required, tag = "2")]
    pub config: SubscriptionConfig,
    /// The life that is meant.
    #[prost(uint64, tag = "3")]
    pub id: u64,
    /// The version it was made from.
    #[prost(uint32, tag = "4")]
    pub expected_version: u32,
}

/// Deletes a subscription.
#[derive(Clone, PartialEq, prost::Message)]
pub struct DeleteSubscription {
    /// Full name.
    #[prost(message, required, tag = "1")]
    pub name: SubscriptionName,
    /// Only this version.
    #[prost(uint32, optional, tag = "2")]
    pub expected_version: Option<u32>,
    /// Only this life.
    #[prost(uint64, optional, tag = "3")]
    pub id: Option<u64>,
}

/// A subscription as its home shard knows it, for a shard that holds partitions of its topic.
#[derive(Clone, PartialEq, prost::Message)]
pub struct TellSubscription {
    /// Home shard.
    #[prost(uint32, tag = "1")]
    pub source: u32,
    /// Number among all that the source tells this shard; dense, from 0.
    #[prost(uint64, tag = "2")]
    pub seq: u64,
    /// The subscription.
    #[prost(message, required, tag = "3")]
    pub subscription: SubscriptionDescription,
    /// It was deleted.
    #[prost(bool, tag = "4")]
    pub is_deleted: bool,
}

/// What happened to records of a part.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ChangePart {
    /// The part.
    #[prost(message, required, tag = "1")]
    pub part: PartRef,
    /// [`crate::subscription::PartEvent`], as it encodes itself.
    #[prost(bytes = "bytes", tag = "2")]
    pub event: Bytes,
    /// Number of [`super::entry::Kind::Output`] that follow it. With any, all of the event takes effect or nothing.
    #[prost(uint32, tag = "3")]
    pub outputs: u32,
    /// Bytes of their batches.
    #[prost(uint64, tag = "4")]
    pub output_bytes: u64,
    /// With outputs the lowest fence of the leases that it settles, without the leader's next fence when it
    /// was decided: a seek with a higher one, applied before it, makes it of no account. 0: it does not say.
    #[prost(uint64, tag = "5")]
    pub fence_min: u64,
    /// What stood before is kept now and then. Not in entries of earlier builds: a part that they changed has
    /// to be the same in who replays them and in who has a checkpoint of those builds.
    #[prost(bool, tag = "6")]
    pub keeps_past: bool,
}

/// Dead letters have reached their topic, or stand behind others for now.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Buried {
    /// First number that may not have arrived. In entries of builds that sent all letters in one order; else 0.
    #[prost(uint64, tag = "1")]
    pub upto: u64,
    /// Numbers of those that have arrived.
    #[prost(uint64, repeated, tag = "2")]
    pub arrived: Vec<u64>,
    /// Numbers of those that cannot be read: they get new ones, behind all others.
    #[prost(uint64, repeated, tag = "3")]
    pub unreadable: Vec<u64>,
}

/// Commits a pack that is in the store and verified.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Seal {
    /// First entry that it has batches of.
    #[prost(uint64, tag = "1")]
    pub first: u64,
    /// Last one.
    #[prost(uint64, tag = "2")]
    pub last: u64,
    /// Term of the leader that made it.
    #[prost(uint64, tag = "3")]
    pub term: u64,
    /// The rest of its name.
    #[prost(message, required, tag = "4")]
    pub attempt: U128,
    /// Its bytes.
    #[prost(uint64, tag = "5")]
    pub bytes: u64,
    /// Bytes at its end that hold its footer.
    #[prost(uint64, tag = "6")]
    pub tail_bytes: u64,
    /// CRC-32C of all of them.
    #[prost(fixed32, tag = "7")]
    pub crc32c: u32,
    /// What it holds.
    #[prost(message, repeated, tag = "8")]
    pub parts: Vec<SealedPart>,
    /// Bytes of the batches in it, as the log held them; 0 in entries before state version 5.
    #[prost(uint64, tag = "9")]
    pub batch_bytes: u64,
}

/// Records of one partition in a pack.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct SealedPart {
    /// Life of the topic.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// Partition.
    #[prost(uint32, tag = "2")]
    pub partition: u32,
    /// First record.
    #[prost(uint64, tag = "3")]
    pub start: u64,
    /// One past the last.
    #[prost(uint64, tag = "4")]
    pub end: u64,
}

/// Commits a pack that holds what is still needed of older ones.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Rewrite {
    /// The new pack.
    #[prost(message, required, tag = "1")]
    pub pack: Seal,
    /// Numbers of those whose records it holds.
    #[prost(uint64, repeated, tag = "2")]
    pub replaced: Vec<u64>,
    /// Partitions of it that were compacted; of all others it holds every record.
    #[prost(message, repeated, tag = "3")]
    pub compacted: Vec<CompactedPart>,
}

/// How far a partition is compacted.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CompactedPart {
    /// The topic's life.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// Partition.
    #[prost(uint32, tag = "2")]
    pub partition: u32,
    /// Below it, and nowhere else, records were left out: of a key that has a newer one below it, or that say
    /// that their key is deleted.
    #[prost(uint64, tag = "3")]
    pub upto: u64,
}

/// Forgets packs that nothing needs and whose objects are gone.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct Forget {
    /// Their numbers.
    #[prost(uint64, repeated, tag = "1")]
    pub packs: Vec<u64>,
}
