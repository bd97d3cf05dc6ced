//! Reading and following a partition.

use super::{Credit, Refusal};

/// Where to start.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Position {
    /// Exactly one.
    #[prost(oneof = "At", tags = "1, 2, 3, 4, 5")]
    pub at: Option<At>,
}

/// The kinds of [`Position`].
#[derive(Clone, Copy, PartialEq, Eq, prost::Oneof)]
pub enum At {
    /// This offset.
    #[prost(uint64, tag = "1")]
    Offset(u64),
    /// The oldest record there is.
    #[prost(bool, tag = "2")]
    Earliest(bool),
    /// The end: only records that come later.
    #[prost(bool, tag = "3")]
    Latest(bool),
    /// The first record at or after this time, milliseconds since the epoch; the end if there is none.
    #[prost(uint64, tag = "4")]
    TimestampMs(u64),
    /// This many records before the end, or the oldest.
    #[prost(uint64, tag = "5")]
    Tail(u64),
}

impl From<At> for Position {
    fn from(at: At) -> Self {
        Self { at: Some(at) }
    }
}

/// Reads once.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadRequest {
    /// The topic's life.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// Configuration version the sender acted on.
    #[prost(uint32, tag = "2")]
    pub config_version: u32,
    /// Partition.
    #[prost(uint32, tag = "3")]
    pub partition: u32,
    /// Where to start.
    #[prost(message, required, tag = "4")]
    pub from: Position,
    /// Read no record at or beyond this position: an offset or a time.
    #[prost(message, optional, tag = "5")]
    pub until: Option<Position>,
    /// At most this many records.
    #[prost(uint32, tag = "6")]
    pub max_records: u32,
    /// Stop once this many encoded bytes are collected; one record is always returned.
    #[prost(uint64, tag = "7")]
    pub max_bytes: u64,
    /// If there is nothing to read, wait up to this long for something.
    #[prost(uint64, tag = "8")]
    pub wait_ms: u64,
    /// Memory or quorum; `Unset`: the topic's `deliver_from`.
    #[prost(enumeration = "super::Level", tag = "9")]
    pub min_level: i32,
    /// A position outside what exists is moved to the nearest that does, instead of being refused.
    #[prost(bool, tag = "10")]
    pub clamp: bool,
    /// Only records that match; a [`Filter`](crate::filter::Filter). One answer looks at a bounded number of
    /// offsets: it may have no record and still say in `next` how far it looked, as it may where records were
    /// dropped by compaction.
    #[prost(string, optional, tag = "11")]
    pub filter: Option<String>,
    /// Reads among which that bound is divided, because together they answer one request; 0 is 1.
    #[prost(uint32, tag = "12")]
    pub filter_share: u32,
}

/// Records `[first, first + take)` of the next `batch_bytes` of the payload, a record batch stamped with its
/// offsets. A batch may hold more records than are meant.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Slice {
    /// Offset of the first record meant.
    #[prost(uint64, tag = "1")]
    pub first: u64,
    /// Number of records meant.
    #[prost(uint32, tag = "2")]
    pub take: u32,
    /// Length of the batch in the payload.
    #[prost(uint32, tag = "3")]
    pub batch_bytes: u32,
}

/// The answer to [`ReadRequest`]; payload: the batches of `slices`.
#[derive(Clone, PartialEq, prost::Message)]
pub struct ReadAnswer {
    /// What was read, in offset order.
    #[prost(message, repeated, tag = "1")]
    pub slices: Vec<Slice>,
    /// Where it was read from.
    #[prost(uint64, tag = "2")]
    pub from: u64,
    /// Where to read on.
    #[prost(uint64, tag = "3")]
    pub next: u64,
    /// Oldest offset that exists.
    #[prost(uint64, tag = "4")]
    pub start: u64,
    /// End of what is committed.
    #[prost(uint64, tag = "5")]
    pub committed_end: u64,
    /// `next` is the end of what may be seen.
    #[prost(bool, tag = "6")]
    pub up_to_date: bool,
    /// Current term of the shard; names what lies beyond `committed_end`.
    #[prost(uint64, tag = "7")]
    pub term: u64,
    /// The topic is closed: nothing follows the end unless it is opened again.
    #[prost(bool, tag = "8")]
    pub closed: bool,
    /// Below it records may have been dropped by compaction, and from it on none was; 0: nowhere.
    #[prost(uint64, tag = "9")]
    pub compacted_to: u64,
}

/// Follows a partition.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SubscribeRequest {
    /// The topic's life.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// Configuration version the sender acted on.
    #[prost(uint32, tag = "2")]
    pub config_version: u32,
    /// Partition.
    #[prost(uint32, tag = "3")]
    pub partition: u32,
    /// Where to start. An offset below what exists starts at the oldest record after a [`Gap`].
    #[prost(message, required, tag = "4")]
    pub from: Position,
    /// Memory or quorum; `Unset`: the topic's `deliver_from`.
    #[prost(enumeration = "super::Level", tag = "5")]
    pub min_level: i32,
    /// First limit; raised by credit frames.
    #[prost(message, required, tag = "6")]
    pub limit: Credit,
    /// A reader below quorum resumes: the term in which the record before `from` was seen, which is an offset. If what
    /// it saw from `firm_end` on may be lost, the first event is a [`Retract`] from there on.
    #[prost(uint64, optional, tag = "7")]
    pub seen_term: Option<u64>,
    /// With `seen_term`: everything that the reader saw below is committed.
    #[prost(uint64, tag = "8")]
    pub firm_end: u64,
    /// Only records that match; a [`Filter`](crate::filter::Filter). Others cost no credit.
    #[prost(string, optional, tag = "9")]
    pub filter: Option<String>,
    /// Records that reach the end of what is committed say so themselves, in [`Records::is_caught_up`]: no
    /// [`CaughtUp`] follows them. Of no effect with a filter, below quorum or once the topic is closed.
    #[prost(bool, tag = "10")]
    pub joins_caught_up: bool,
    /// Bytes that the limit will be raised to as what is sent is taken, as far as is known, in the same
    /// totals; raised by credit frames. Nothing behind them is prepared to be sent. Absent: that is not
    /// known, and bytes bound nothing but what is sent.
    #[prost(uint64, optional, tag = "11")]
    pub reach_bytes: Option<u64>,
    /// The same of records; absent: the limit of records is no window. It may be lower than the limit is: of
    /// a reader of several partitions, each of them has a window of its own.
    #[prost(uint64, optional, tag = "12")]
    pub reach_records: Option<u64>,
}

/// What happens on a subscription; payload: the batches of a [`Records`] event.
#[derive(Clone, PartialEq, prost::Message)]
pub struct SubscribeEvent {
    /// Exactly one.
    #[prost(oneof = "Event", tags = "1, 2, 3, 4, 5, 6, 7")]
    pub event: Option<Event>,
}

/// The kinds of [`SubscribeEvent`].
#[derive(Clone, PartialEq, prost::Oneof)]
pub enum Event {
    /// Always first.
    #[prost(message, tag = "1")]
    Started(Started),
    /// Records.
    #[prost(message, tag = "2")]
    Records(Records),
    /// Records that no longer exist were skipped.
    #[prost(message, tag = "3")]
    Gap(Gap),
    /// Everything up to here was sent. Sent each time the end is reached after having been behind, and when
    /// the topic is closed or opened while the reader is there.
    #[prost(message, tag = "4")]
    CaughtUp(CaughtUp),
    /// Everything below is committed (readers below quorum).
    #[prost(message, tag = "5")]
    Firm(Firm),
    /// What was sent from here on may be lost with its term and shall be forgotten (readers below quorum).
    #[prost(message, tag = "6")]
    Retract(Retract),
    /// Nothing below matches, or is still there, but what was sent.
    #[prost(message, tag = "7")]
    Looked(Looked),
}

/// Where a subscription starts.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Started {
    /// First offset that will be sent.
    #[prost(uint64, tag = "1")]
    pub from: u64,
    /// End at this moment.
    #[prost(uint64, tag = "2")]
    pub tail: u64,
}

/// Records, in offset order, each exactly once; without a filter, without a hole but for what was dropped by
/// compaction.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Records {
    /// The records.
    #[prost(message, repeated, tag = "1")]
    pub slices: Vec<Slice>,
    /// End of what is committed.
    #[prost(uint64, tag = "2")]
    pub committed_end: u64,
    /// Term of the shard; names what lies beyond `committed_end`.
    #[prost(uint64, tag = "3")]
    pub term: u64,
    /// With [`SubscribeRequest::joins_caught_up`]: they end where what is committed ends, as a [`CaughtUp`]
    /// would say of a topic that is not closed.
    #[prost(bool, tag = "4")]
    pub is_caught_up: bool,
    /// Some offsets have no record any more, before these or among them: everything below this one was sent
    /// or was dropped by compaction. 0: they follow what was sent before, and each other.
    #[prost(uint64, tag = "5")]
    pub next: u64,
}

/// Offsets `[from, to)` were skipped.
#[derive(Clone, PartialEq, prost::Message)]
pub struct Gap {
    /// First missing offset.
    #[prost(uint64, tag = "1")]
    pub from: u64,
    /// First offset that exists.
    #[prost(uint64, tag = "2")]
    pub to: u64,
    /// `retention` or `corrupt`.
    #[prost(string, tag = "3")]
    pub why: String,
}

/// The end was reached.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct CaughtUp {
    /// The end.
    #[prost(uint64, tag = "1")]
    pub end: u64,
    /// The topic is closed: nothing follows unless it is opened again.
    #[prost(bool, tag = "2")]
    pub closed: bool,
}

/// Everything below `upto` was looked at: what matches of it was sent.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Looked {
    /// Exclusive.
    #[prost(uint64, tag = "1")]
    pub upto: u64,
}

/// Everything below `upto` is committed.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Firm {
    /// Exclusive.
    #[prost(uint64, tag = "1")]
    pub upto: u64,
}

/// Offsets `[from, to)` may be lost and shall be forgotten; what has these offsets now follows.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Retract {
    /// First offset that is taken back.
    #[prost(uint64, tag = "1")]
    pub from: u64,
    /// One past the last record that was sent.
    #[prost(uint64, tag = "2")]
    pub to: u64,
    /// The term that they were sent with.
    #[prost(uint64, tag = "3")]
    pub term: u64,
}

/// Asks for the statistics of partitions in one shard.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartitionStatsRequest {
    /// Which.
    #[prost(message, repeated, tag = "1")]
    pub partitions: Vec<PartitionRef>,
    /// Also where their messages are: dearer, for one topic at a time.
    #[prost(bool, tag = "2")]
    pub with_storage: bool,
}

/// A partition of one life of a topic.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct PartitionRef {
    /// The topic's life.
    #[prost(uint64, tag = "1")]
    pub incarnation: u64,
    /// Partition.
    #[prost(uint32, tag = "2")]
    pub partition: u32,
}

/// One answer per partition asked for, in order.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartitionStatsList {
    /// The statistics.
    #[prost(message, repeated, tag = "1")]
    pub partitions: Vec<PartitionStats>,
}

/// Statistics of a partition.
#[derive(Clone, PartialEq, prost::Message)]
pub struct PartitionStats {
    /// Why there are none.
    #[prost(message, optional, tag = "1")]
    pub refused: Option<Refusal>,
    /// Oldest offset that exists.
    #[prost(uint64, tag = "2")]
    pub start: u64,
    /// End of what is committed.
    #[prost(uint64, tag = "3")]
    pub committed_end: u64,
    /// Encoded bytes of the batches between the two.
    #[prost(uint64, tag = "4")]
    pub bytes: u64,
    /// Records published per second, over about the last ten seconds.
    #[prost(double, tag = "5")]
    pub publish_records_per_second: f64,
    /// Encoded bytes published per second, likewise.
    #[prost(double, tag = "6")]
    pub publish_bytes_per_second: f64,
    /// Records delivered to readers per second, likewise.
    #[prost(double, tag = "7")]
    pub deliver_records_per_second: f64,
    /// Where its messages are, if it was asked for and the node has an object store.
    #[prost(message, optional, tag = "20")]
    pub storage: Option<PartitionStorage>,
    /// Objects that its messages could not be read from, newest failure first, if `storage` is told.
    #[prost(message, repeated, tag = "21")]
    pub damaged: Vec<DamagedObject>,
}

/// An object that messages of a partition could not be read from: it is gone, or not what was written.
#[derive(Clone, PartialEq, Eq, prost::Message)]
pub struct DamagedObject {
    /// Its name.
    #[prost(string, tag = "1")]
    pub object: String,
    /// What happened; names the object.
    #[prost(string, tag = "2")]
    pub why: String,
    /// Offset of the first record that cannot be read.
    #[prost(uint64, tag = "3")]
    pub from: u64,
    /// One past the last.
    #[prost(uint64, tag = "4")]
    pub to: u64,
    /// How often reading failed since the node started, or since it last worked.
    #[prost(uint64, tag = "5")]
    pub times: u64,
    /// When it failed first, milliseconds since the epoch.
    #[prost(uint64, tag = "6")]
    pub first_ms: u64,
    /// When it failed last.
    #[prost(uint64, tag = "7")]
    pub last_ms: u64,
}

/// Where the messages of a partition are. In offset order: cold, archived, uploading, local.
#[derive(Clone, Copy, PartialEq, prost::Message)]
pub struct PartitionStorage {
    /// One past the last record that is only in the object store.
    #[prost(uint64, tag = "1")]
    pub cold_to: u64,
    /// One past the last that is in the object store.
    #[prost(uint64, tag = "2")]
    pub archived_to: u64,
    /// One past the last of those that are being uploaded.
    #[prost(uint64, tag = "3")]
    pub uploading_to: u64,
    /// Encoded bytes that are only in the object store.
    #[prost(uint64, tag = "4")]
    pub cold_bytes: u64,
    /// Encoded bytes that are in the object store and in the journal.
    #[prost(uint64, tag = "5")]
    pub archived_bytes: u64,
    /// Encoded bytes that are being uploaded.
    #[prost(uint64, tag = "6")]
    pub uploading_bytes: u64,
    /// Encoded bytes that are only in the journal, and not being uploaded.
    #[prost(uint64, tag = "7")]
    pub local_bytes: u64,
    /// Age of the oldest record that is not in the object store; 0 if all are.
    #[prost(uint64, tag = "8")]
    pub upload_lag_ms: u64,
    /// Its share of the bytes of objects.
    #[prost(uint64, tag = "9")]
    pub object_bytes: u64,
    /// Its share of the requests that wrote objects within the last day.
    #[prost(double, tag = "10")]
    pub puts_per_day: f64,
    /// Its share of the requests that compared those objects, and those that read its own blocks, within about a day.
    #[prost(double, tag = "11")]
    pub gets_per_day: f64,
    /// Blocks of objects that its readers asked for within about a day.
    #[prost(double, tag = "12")]
    pub blocks_asked_per_day: f64,
    /// Of these, the blocks that no cache of the node had and nobody was fetching.
    #[prost(double, tag = "13")]
    pub blocks_missed_per_day: f64,
    /// Bytes that came from the store for its readers within about a day.
    #[prost(double, tag = "14")]
    pub read_bytes_per_day: f64,
}
