//! A shard's state as bytes: what a checkpoint holds. Deterministic: equal states give equal bytes.

use bytes::Bytes;
use prost::Message as _;
use weir_protocol::ids::{
    ConfigVersion, Epoch, Incarnation, LogIndex, Offset, PartitionId, ProducerKey, Seq, ShardId, TimestampMs,
};
use weir_protocol::rpc::{Namespace, TopicConfig, TopicDescription, U128};

use super::apply::ShardState;
use super::dedupe::{Dedupe, PartitionKey, Placement, Producer};
use super::partition::{BatchRow, Partition};
use super::topics::Topics;

/// Format of these messages; a newer one is refused.
const FORMAT: u32 = 1;

/// Why a checkpoint cannot be used. The caller refuses to start: the log before it may be gone.
#[derive(Debug, thiserror::Error)]
pub enum SnapshotError {
    /// Not a checkpoint.
    #[error("the checkpoint is damaged")]
    Decode(#[from] prost::DecodeError),
    /// Written by a newer build.
    #[error("the checkpoint has format {0}; this build reads {FORMAT}")]
    Newer(u32),
}

#[derive(Clone, PartialEq, prost::Message)]
struct Stored {
    #[prost(uint32, tag = "1")]
    format: u32,
    #[prost(uint64, tag = "2")]
    last_ts: u64,
    #[prost(uint64, tag = "3")]
    next_counter: u64,
    #[prost(message, repeated, tag = "4")]
    topics: Vec<TopicDescription>,
    #[prost(message, repeated, tag = "5")]
    namespaces: Vec<Namespace>,
    #[prost(message, repeated, tag = "6")]
    partitions: Vec<StoredPartition>,
    #[prost(message, repeated, tag = "7")]
    producers: Vec<StoredProducer>,
    #[prost(message, repeated, tag = "8")]
    keys: Vec<StoredKey>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredPartition {
    #[prost(uint64, tag = "1")]
    incarnation: u64,
    #[prost(uint32, tag = "2")]
    partition: u32,
    #[prost(uint64, tag = "3")]
    start: u64,
    #[prost(uint64, tag = "4")]
    end: u64,
    #[prost(uint32, tag = "5")]
    version: u32,
    #[prost(message, required, tag = "6")]
    config: TopicConfig,
    #[prost(message, repeated, tag = "7")]
    rows: Vec<StoredRow>,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct StoredRow {
    #[prost(uint64, tag = "1")]
    base_offset: u64,
    #[prost(uint32, tag = "2")]
    count: u32,
    #[prost(uint32, tag = "3")]
    len: u32,
    #[prost(uint64, tag = "4")]
    ts: u64,
    #[prost(uint64, tag = "5")]
    index: u64,
    #[prost(uint32, tag = "6")]
    pos: u32,
}

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct StoredPlacement {
    #[prost(uint64, tag = "1")]
    base_offset: u64,
    #[prost(uint32, tag = "2")]
    count: u32,
    #[prost(uint64, tag = "3")]
    ts: u64,
    #[prost(uint64, tag = "4")]
    base_seq: u64,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredProducer {
    #[prost(uint64, tag = "1")]
    incarnation: u64,
    #[prost(uint32, tag = "2")]
    partition: u32,
    #[prost(message, required, tag = "3")]
    key: U128,
    #[prost(uint32, tag = "4")]
    epoch: u32,
    #[prost(uint64, tag = "5")]
    last_seq: u64,
    #[prost(uint64, tag = "6")]
    last_offset: u64,
    #[prost(uint64, tag = "7")]
    seen: u64,
    #[prost(message, repeated, tag = "8")]
    recent: Vec<StoredPlacement>,
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredKey {
    #[prost(uint64, tag = "1")]
    until: u64,
    #[prost(uint64, tag = "2")]
    incarnation: u64,
    #[prost(uint32, tag = "3")]
    partition: u32,
    #[prost(message, required, tag = "4")]
    key: U128,
    #[prost(message, required, tag = "5")]
    fingerprint: U128,
    #[prost(message, required, tag = "6")]
    placement: StoredPlacement,
}

impl ShardState {
    /// The state as bytes.
    #[must_use]
    pub fn encode(&self) -> Bytes {
        let mut partitions: Vec<_> = self.partitions.iter().map(stored_partition).collect();
        partitions.sort_by_key(|stored| (stored.incarnation, stored.partition));
        let mut producers: Vec<_> = self.dedupe.producers.iter().map(stored_producer).collect();
        producers
            .sort_by_key(|stored| (stored.incarnation, stored.partition, stored.key.high, stored.key.low));
        let stored = Stored {
            format: FORMAT,
            last_ts: self.last_ts.0,
            next_counter: self.topics.next_counter,
            topics: self.topics.by_name.values().cloned().collect(),
            namespaces: self.topics.namespaces.values().cloned().collect(),
            partitions,
            producers,
            keys: self
                .dedupe
                .key_order
                .iter()
                .filter_map(|queued| stored_key(&self.dedupe, queued))
                .collect(),
        };
        stored.encode_to_vec().into()
    }

    /// The state from [`ShardState::encode`]'s bytes.
    ///
    /// # Errors
    /// [`SnapshotError`].
    pub fn decode(shard: ShardId, bytes: &Bytes) -> Result<Self, SnapshotError> {
        let stored = Stored::decode(bytes.clone())?;
        if stored.format > FORMAT {
            return Err(SnapshotError::Newer(stored.format));
        }
        let mut state = Self::new(shard);
        state.last_ts = TimestampMs(stored.last_ts);
        state.topics = topics(shard, stored.next_counter, stored.topics, stored.namespaces);
        state.partitions = stored.partitions.into_iter().map(partition).collect();
        state.dedupe.producers = stored.producers.into_iter().map(producer).collect();
        for stored in stored.keys {
            let at = (Incarnation(stored.incarnation), PartitionId(stored.partition));
            let key = u128::from(stored.key);
            state.dedupe.keys.insert((at, key), (stored.fingerprint.into(), placement(&stored.placement)));
            state.dedupe.key_order.push_back((TimestampMs(stored.until), at, key));
        }
        Ok(state)
    }
}

fn topics(
    shard: ShardId,
    next_counter: u64,
    topics: Vec<TopicDescription>,
    namespaces: Vec<Namespace>,
) -> Topics {
    let key = |topic: &TopicDescription| {
        let name = topic.name.clone().unwrap_or_default();
        (name.tenant, name.namespace, name.topic)
    };
    Topics {
        shard,
        next_counter,
        by_name: topics.into_iter().map(|topic| (key(&topic), topic)).collect(),
        namespaces: namespaces.into_iter().map(|n| ((n.tenant.clone(), n.name.clone()), n)).collect(),
    }
}

fn stored_partition((key, partition): (&PartitionKey, &Partition)) -> StoredPartition {
    let row = |row: &BatchRow| StoredRow {
        base_offset: row.base_offset.0,
        count: row.count,
        len: row.len,
        ts: row.ts.0,
        index: row.index.0,
        pos: row.pos,
    };
    StoredPartition {
        incarnation: key.0.0,
        partition: key.1.0,
        start: partition.start.0,
        end: partition.end.0,
        version: partition.version.0,
        config: partition.config.clone(),
        rows: partition.rows.iter().map(row).collect(),
    }
}

fn partition(stored: StoredPartition) -> (PartitionKey, Partition) {
    let row = |row: &StoredRow| BatchRow {
        base_offset: Offset(row.base_offset),
        count: row.count,
        len: row.len,
        ts: TimestampMs(row.ts),
        index: LogIndex(row.index),
        pos: row.pos,
    };
    let partition = Partition {
        start: Offset(stored.start),
        end: Offset(stored.end),
        bytes: stored.rows.iter().map(|row| u64::from(row.len)).sum(),
        config: stored.config,
        version: ConfigVersion(stored.version),
        rows: stored.rows.iter().map(row).collect(),
    };
    ((Incarnation(stored.incarnation), PartitionId(stored.partition)), partition)
}

fn stored_placement(base_seq: u64, placement: &Placement) -> StoredPlacement {
    StoredPlacement {
        base_offset: placement.base_offset.0,
        count: placement.count,
        ts: placement.ts.0,
        base_seq,
    }
}

fn placement(stored: &StoredPlacement) -> Placement {
    Placement { base_offset: Offset(stored.base_offset), count: stored.count, ts: TimestampMs(stored.ts) }
}

fn stored_producer(((at, key), producer): (&(PartitionKey, ProducerKey), &Producer)) -> StoredProducer {
    StoredProducer {
        incarnation: at.0.0,
        partition: at.1.0,
        key: key.0.into(),
        epoch: producer.epoch.0,
        last_seq: producer.last_seq.0,
        last_offset: producer.last_offset.0,
        seen: producer.seen.0,
        recent: producer.recent.iter().map(|(seq, placed)| stored_placement(seq.0, placed)).collect(),
    }
}

fn producer(stored: StoredProducer) -> ((PartitionKey, ProducerKey), Producer) {
    let at = (Incarnation(stored.incarnation), PartitionId(stored.partition));
    let producer = Producer {
        epoch: Epoch(stored.epoch),
        last_seq: Seq(stored.last_seq),
        last_offset: Offset(stored.last_offset),
        seen: TimestampMs(stored.seen),
        recent: stored.recent.iter().map(|placed| (Seq(placed.base_seq), placement(placed))).collect(),
    };
    ((at, ProducerKey(stored.key.into())), producer)
}

fn stored_key(dedupe: &Dedupe, (until, at, key): &(TimestampMs, PartitionKey, u128)) -> Option<StoredKey> {
    let (fingerprint, placed) = dedupe.keys.get(&(*at, *key))?;
    Some(StoredKey {
        until: until.0,
        incarnation: at.0.0,
        partition: at.1.0,
        key: (*key).into(),
        fingerprint: (*fingerprint).into(),
        placement: stored_placement(0, placed),
    })
}
