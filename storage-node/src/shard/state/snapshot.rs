//! A shard's state as bytes: what a checkpoint holds. Deterministic: equal states give equal bytes.

mod decoding;
mod encoding;
mod lives;

use std::collections::BTreeMap;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use weir_protocol::ids::{Epoch, Incarnation, Offset, PartitionId, ProducerKey, Seq, ShardId, TimestampMs};
use weir_protocol::rpc::{Namespace, SlotRun, SubscriptionDescription, TopicDescription, U128};

use super::apply::ShardState;
use super::cow_map::CowMap;
use super::dead_letters::DeadLetters;
use super::dedupe::{Dedupe, PartitionKey};
use super::held_topic::HeldTopic;
use super::outbox::{Inbox, Lane, News, Outbox, OutboxRow, Source};
use super::outputs::{Arrivals, Outputs};
use super::packs::Packs;
use super::partition::Partition;
use super::parts::Parts;
use super::patterns::Patterns;
use super::producers::{Producer, Run, Window};
use super::rows::{Chunk, StoredChunk};
use super::slots::SlotTable;
use super::stored_keys::{StoredKey, stored_key, used_key};
use super::stored_outputs::{StoredArrivals, StoredOutputLane};
use super::stored_packs::{StoredPack, StoredSealed};
use super::stored_subscriptions::{StoredDeadLetter, StoredPart, StoredPattern};
use super::subscriptions::Subscriptions;

/// Format of these messages. Format 1 knew nothing of other shards, 2 nothing of subscriptions, 3 nothing of
/// rules beyond leases, of outputs and of packs, 4 nothing of several topics, of packs that take the place of
/// others and of restores; all of them means the same in 5. In 6 a dead letter has its number; before, they
/// are dense. In 7 a part knows which leases have ended.
const FORMAT: u32 = 7;
const FORMAT_MIN: u32 = 1;

pub use encoding::CHUNK_BYTES;
#[cfg(test)]
pub(crate) use encoding::tests::large_state;
pub use lives::LIVES_PER_EPOCH;

/// Why a checkpoint cannot be used. The caller refuses to start: the log before it may be gone.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Not a checkpoint.
    #[error("the checkpoint is damaged: {0}")]
    Decode(#[from] prost::DecodeError),
    /// Its parts contradict each other.
    #[error("the checkpoint is damaged: {0}")]
    Contradiction(String),
    /// Written by another build.
    #[error("the checkpoint has format {0}; this build reads up to {FORMAT}: use a newer Weir")]
    Format(u32),
}

#[derive(Clone, PartialEq, Message)]
struct Stored {
    #[prost(message, required, tag = "1")]
    head: Head,
    #[prost(message, repeated, tag = "2")]
    topics: Vec<TopicDescription>,
    #[prost(message, repeated, tag = "3")]
    namespaces: Vec<Namespace>,
    #[prost(message, repeated, tag = "4")]
    partitions: Vec<StoredPartition>,
    #[prost(message, repeated, tag = "5")]
    producers: Vec<StoredProducer>,
    #[prost(message, repeated, tag = "6")]
    keys: Vec<StoredKey>,
    #[prost(message, repeated, tag = "7")]
    guests: Vec<TopicDescription>,
    #[prost(message, repeated, tag = "8")]
    outbox: Vec<StoredLane>,
    #[prost(message, repeated, tag = "9")]
    inbox: Vec<StoredSource>,
    #[prost(message, repeated, tag = "10")]
    slots: Vec<SlotRun>,
    #[prost(message, repeated, tag = "11")]
    subscriptions: Vec<SubscriptionDescription>,
    #[prost(message, repeated, tag = "12")]
    parts: Vec<StoredPart>,
    #[prost(message, repeated, tag = "13")]
    dead_letters: Vec<StoredDeadLetter>,
    #[prost(message, repeated, tag = "14")]
    outputs: Vec<StoredOutputLane>,
    #[prost(message, repeated, tag = "15")]
    arrivals: Vec<StoredArrivals>,
    #[prost(message, repeated, tag = "20")]
    patterns: Vec<StoredPattern>,
    #[prost(message, repeated, tag = "30")]
    packs: Vec<StoredPack>,
}

/// What there is one of. The counts say that nothing was cut off.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct Head {
    #[prost(uint32, tag = "1")]
    format: u32,
    #[prost(uint32, tag = "2")]
    shard: u32,
    #[prost(uint64, tag = "3")]
    last_ts: u64,
    #[prost(uint64, tag = "4")]
    next_counter: u64,
    #[prost(uint64, tag = "5")]
    dedupe_rows_max: u64,
    #[prost(uint64, tag = "6")]
    next_bucket: u64,
    #[prost(uint64, tag = "7")]
    orphaned_buckets: u64,
    #[prost(uint64, tag = "8")]
    topics: u64,
    #[prost(uint64, tag = "9")]
    partitions: u64,
    #[prost(uint64, tag = "10")]
    producers: u64,
    #[prost(uint64, tag = "11")]
    keys: u64,
    #[prost(uint64, tag = "12")]
    namespaces: u64,
    #[prost(uint64, tag = "13")]
    guests: u64,
    #[prost(uint64, tag = "14")]
    outbox: u64,
    #[prost(uint64, tag = "15")]
    inbox: u64,
    #[prost(uint32, tag = "16")]
    slots_version: u32,
    #[prost(uint64, tag = "17")]
    subscriptions: u64,
    #[prost(uint64, tag = "18")]
    parts: u64,
    #[prost(uint64, tag = "19")]
    dead_letters: u64,
    #[prost(uint64, tag = "20")]
    pub(super) next_dead_letter: u64,
    #[prost(uint64, tag = "21")]
    outputs: u64,
    #[prost(uint64, tag = "22")]
    arrivals: u64,
    #[prost(uint64, tag = "30")]
    patterns: u64,
    #[prost(uint64, tag = "40")]
    packs: u64,
    #[prost(uint64, tag = "41")]
    newest_pack: u64,
}

/// Rows for one target: numbers end before `next`.
#[derive(Clone, PartialEq, Message)]
struct StoredLane {
    #[prost(uint32, tag = "1")]
    target: u32,
    #[prost(uint64, tag = "2")]
    next: u64,
    #[prost(message, repeated, tag = "3")]
    rows: Vec<StoredRow>,
}

/// Either a topic or a subscription.
#[derive(Clone, PartialEq, Message)]
struct StoredRow {
    #[prost(message, optional, tag = "1")]
    topic: Option<TopicDescription>,
    #[prost(bool, tag = "2")]
    is_deleted: bool,
    #[prost(message, optional, tag = "3")]
    subscription: Option<SubscriptionDescription>,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct StoredSource {
    #[prost(uint32, tag = "1")]
    source: u32,
    #[prost(uint64, tag = "2")]
    next: u64,
    #[prost(uint64, tag = "3")]
    newest: u64,
}

#[derive(Clone, PartialEq, Message)]
struct StoredPartition {
    #[prost(message, required, tag = "1")]
    key: StoredPartitionKey,
    #[prost(uint64, tag = "2")]
    start: u64,
    #[prost(uint64, tag = "3")]
    end: u64,
    #[prost(message, repeated, tag = "4")]
    rows: Vec<StoredChunk>,
    #[prost(message, repeated, tag = "10")]
    sealed: Vec<StoredSealed>,
    #[prost(uint64, tag = "11")]
    compacted_to: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct StoredPartitionKey {
    #[prost(uint64, tag = "1")]
    incarnation: u64,
    #[prost(uint32, tag = "2")]
    partition: u32,
}

#[derive(Clone, PartialEq, Message)]
struct StoredProducer {
    #[prost(message, required, tag = "1")]
    at: StoredPartitionKey,
    #[prost(message, required, tag = "2")]
    key: U128,
    #[prost(uint32, tag = "3")]
    epoch: u32,
    #[prost(uint64, tag = "4")]
    last_seq: u64,
    #[prost(uint64, tag = "5")]
    last_offset: u64,
    #[prost(uint64, tag = "6")]
    seen: u64,
    #[prost(message, repeated, tag = "7")]
    runs: Vec<StoredRun>,
    /// Absent on topics of one partition.
    #[prost(fixed64, repeated, tag = "8")]
    window: Vec<u64>,
    /// Of the window; 0 unless a restore went back.
    #[prost(uint64, tag = "9")]
    sure_from: u64,
}

#[derive(Clone, Copy, PartialEq, Message)]
struct StoredRun {
    #[prost(uint64, tag = "1")]
    first: u64,
    #[prost(uint64, tag = "2")]
    base_offset: u64,
    #[prost(uint64, tag = "3")]
    count: u64,
    #[prost(uint64, tag = "4")]
    ts: u64,
}

/// The state of one moment, shared with the state that goes on. Made in microseconds however large the state is;
/// encoding it takes long and belongs on another thread.
#[derive(Debug, Clone)]
pub struct Frozen {
    head: Head,
    topics: CowMap<Incarnation, Arc<HeldTopic>>,
    namespaces: Arc<BTreeMap<(String, String), Namespace>>,
    partitions: CowMap<PartitionKey, Arc<Partition>>,
    dedupe: Dedupe,
    guests: CowMap<Incarnation, Arc<TopicDescription>>,
    outbox: Arc<Outbox>,
    inbox: Arc<Inbox>,
    slots: Arc<SlotTable>,
    subscriptions: Subscriptions,
    parts: Parts,
    patterns: Arc<Patterns>,
    dead_letters: Arc<DeadLetters>,
    outputs: Arc<Outputs>,
    arrivals: Arc<Arrivals>,
    packs: Arc<Packs>,
}

impl ShardState {
    /// The state of this moment, for a checkpoint.
    #[must_use]
    pub fn freeze(&self) -> Frozen {
        let (topics, dedupe) = (&self.topics, &self.dedupe);
        let head = Head {
            format: FORMAT,
            shard: topics.shard().0,
            last_ts: self.last_ts.0,
            next_counter: topics.next_counter,
            dedupe_rows_max: dedupe.rows_max as u64,
            next_bucket: dedupe.next_bucket as u64,
            orphaned_buckets: dedupe.orphaned_buckets as u64,
            topics: topics.lives.len() as u64,
            partitions: self.partitions.len() as u64,
            producers: dedupe.producers.len() as u64,
            keys: dedupe.keys.len() as u64,
            namespaces: topics.namespaces.len() as u64,
            guests: self.guests.len() as u64,
            outbox: self.outbox.lanes.len() as u64,
            inbox: self.inbox.sources.len() as u64,
            slots_version: self.slots.version,
            subscriptions: self.subscriptions.len() as u64,
            parts: self.parts.len() as u64,
            dead_letters: self.dead_letters.len() as u64,
            next_dead_letter: self.dead_letters.next(),
            outputs: self.outputs.lanes.len() as u64,
            arrivals: self.arrivals.next.len() as u64,
            patterns: self.patterns.lives.len() as u64,
            packs: (self.packs.live.len() + self.packs.unneeded.len()) as u64,
            newest_pack: self.packs.newest,
        };
        Frozen {
            head,
            topics: topics.lives.clone(),
            namespaces: Arc::clone(&topics.namespaces),
            partitions: self.partitions.clone(),
            dedupe: dedupe.clone(),
            guests: self.guests.clone(),
            outbox: Arc::clone(&self.outbox),
            inbox: Arc::clone(&self.inbox),
            slots: Arc::clone(&self.slots),
            subscriptions: self.subscriptions.clone(),
            parts: self.parts.clone(),
            patterns: Arc::clone(&self.patterns),
            dead_letters: Arc::clone(&self.dead_letters),
            outputs: Arc::clone(&self.outputs),
            arrivals: Arc::clone(&self.arrivals),
            packs: Arc::clone(&self.packs),
        }
    }

    /// The state as bytes. Takes long where there is much; beside apply use [`ShardState::freeze`].
    #[must_use]
    pub fn encode(&self) -> Bytes {
        self.freeze().encode()
    }

    /// What other shards have to do with this one, and the slots.
    fn restore_neighbours(
        &mut self,
        head: &Head,
        guests: Vec<TopicDescription>,
        outbox: Vec<StoredLane>,
        inbox: &[StoredSource],
        slots: Vec<SlotRun>,
    ) -> Result<(), SnapshotError> {
        for topic in guests {
            if self.guests.insert(Incarnation(topic.incarnation), Arc::new(topic)).is_some() {
                return Err(SnapshotError::Contradiction("a guest is there twice".to_owned()));
            }
        }
        let lanes = outbox.into_iter().map(lane).collect::<Result<BTreeMap<_, _>, _>>()?;
        let sources = inbox.iter().map(|stored| {
            let source = Source { next: stored.next, newest: Incarnation(stored.newest) };
            (ShardId(stored.source), source)
        });
        self.outbox = Arc::new(Outbox { lanes });
        self.inbox = Arc::new(Inbox { sources: sources.collect() });
        let slots = SlotTable::restored(head.slots_version, slots);
        let slots = slots.ok_or_else(|| SnapshotError::Contradiction("its slots have holes".to_owned()))?;
        self.slots = Arc::new(slots);
        Ok(())
    }
}

impl Frozen {
    /// The packs of that moment.
    #[must_use]
    pub fn packs(&self) -> &Arc<Packs> {
        &self.packs
    }
}

fn row_of_lane(row: &OutboxRow) -> StoredRow {
    let (topic, subscription) = match &row.news {
        News::Topic(topic) => (Some((**topic).clone()), None),
        News::Subscription(subscription) => (None, Some((**subscription).clone())),
    };
    StoredRow { topic, is_deleted: row.is_deleted, subscription }
}

fn lane(stored: StoredLane) -> Result<(ShardId, Lane), SnapshotError> {
    let first = stored.next.checked_sub(stored.rows.len() as u64);
    let first = first.ok_or_else(|| {
        SnapshotError::Contradiction(format!("more rows for shard {} than were numbered", stored.target))
    })?;
    let row = |(seq, row): (u64, StoredRow)| {
        let news = match (row.topic, row.subscription) {
            (Some(topic), None) => News::Topic(Arc::new(topic)),
            (None, Some(subscription)) => News::Subscription(Arc::new(subscription)),
            _ => return Err(SnapshotError::Contradiction("a row speaks of nothing".to_owned())),
        };
        Ok(OutboxRow { seq, news, is_deleted: row.is_deleted })
    };
    let rows = (first..).zip(stored.rows).map(row).collect::<Result<_, _>>()?;
    Ok((ShardId(stored.target), Lane { next: stored.next, rows }))
}

fn number(stored: u64) -> Result<usize, SnapshotError> {
    usize::try_from(stored).map_err(|_| SnapshotError::Contradiction(format!("a count of {stored}")))
}

impl From<PartitionKey> for StoredPartitionKey {
    fn from((incarnation, partition): PartitionKey) -> Self {
        Self { incarnation: incarnation.0, partition: partition.0 }
    }
}

impl From<StoredPartitionKey> for PartitionKey {
    fn from(stored: StoredPartitionKey) -> Self {
        (Incarnation(stored.incarnation), PartitionId(stored.partition))
    }
}

fn stored_chunk(chunk: &Chunk) -> StoredChunk {
    let (offset, ts, index) = chunk.first;
    StoredChunk { offset: offset.0, ts: ts.0, index: index.0, packed: chunk.packed.clone() }
}

fn stored_producer((at, key): (PartitionKey, ProducerKey), producer: &Producer) -> StoredProducer {
    let run = |run: &Run| StoredRun {
        first: run.first.0,
        base_offset: run.base_offset.0,
        count: run.count,
        ts: run.ts.0,
    };
    StoredProducer {
        at: at.into(),
        key: key.0.into(),
        epoch: producer.epoch.0,
        last_seq: producer.last_seq.0,
        last_offset: producer.last_offset.0,
        seen: producer.seen.0,
        runs: producer.runs.iter().map(run).collect(),
        window: producer.window.iter().flat_map(|window| window.seen).collect(),
        sure_from: producer.window.as_ref().map_or(0, |window| window.sure_from.0),
    }
}

fn producer(stored: StoredProducer) -> Result<((PartitionKey, ProducerKey), Producer), SnapshotError> {
    let run = |run: &StoredRun| Run {
        first: Seq(run.first),
        base_offset: Offset(run.base_offset),
        count: run.count,
        ts: TimestampMs(run.ts),
    };
    let wrong = || SnapshotError::Contradiction("a producer's window has another size".to_owned());
    let window = match stored.window.len() {
        0 => None,
        _ => {
            let seen = stored.window.try_into().map_err(|_| wrong())?;
            Some(Box::new(Window { seen, sure_from: Seq(stored.sure_from) }))
        }
    };
    let producer = Producer {
        epoch: Epoch(stored.epoch),
        last_seq: Seq(stored.last_seq),
        last_offset: Offset(stored.last_offset),
        seen: TimestampMs(stored.seen),
        runs: stored.runs.iter().map(run).collect(),
        window,
    };
    Ok(((stored.at.into(), ProducerKey(stored.key.into())), producer))
}
