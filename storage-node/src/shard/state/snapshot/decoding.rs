//! A state from its bytes. Of what there is much of, one message at a time is taken apart and goes into the state at
//! once: nothing but the bytes and the state takes memory.

use std::sync::Arc;

use bytes::{Buf as _, Bytes};
use prost::Message;
use prost::encoding::{DecodeContext, WireType, decode_key, message, skip_field};
use weir_protocol::ids::{ConfigVersion, Incarnation, Offset, ShardId, TimestampMs};
use weir_protocol::rpc::TopicConfig;

use super::{
    FORMAT, FORMAT_MIN, Head, PartitionKey, ShardState, SnapshotError, Stored, StoredKey, StoredPart,
    StoredPartition, StoredProducer, number, producer, used_key,
};
use crate::shard::state::cow_map::BUCKETS;
use crate::shard::state::partition::Partition;
use crate::shard::state::rows::Rows;
use crate::shard::state::stored_packs;
use crate::shard::state::topics::Topics;

/// Fields of [`Stored`] that there may be very many of.
const PARTITION: u32 = 4;
const PRODUCER: u32 = 5;
const KEY: u32 = 6;
const PART: u32 = 12;

/// How many of them there are.
#[derive(Default)]
struct Many {
    partitions: usize,
    producers: usize,
    keys: usize,
    parts: usize,
}

impl ShardState {
    /// The state from [`super::Frozen::encode`]'s bytes.
    ///
    /// # Errors
    /// [`SnapshotError`]: the shard must not start with it.
    pub fn decode(shard: ShardId, bytes: &Bytes) -> Result<Self, SnapshotError> {
        let (stored, many) = few(bytes)?;
        let head = stored.head;
        if !(FORMAT_MIN..=FORMAT).contains(&head.format) {
            return Err(SnapshotError::Format(head.format));
        }
        check_head(&head, shard, &stored, &many)?;
        let mut state = Self::with_dedupe_rows(shard, number(head.dedupe_rows_max)?);
        state.last_ts = TimestampMs(head.last_ts);
        state.topics = Topics::restored(shard, head.next_counter, stored.topics, stored.namespaces)
            .ok_or_else(|| SnapshotError::Contradiction("two topics share a name or life".to_owned()))?;
        state.restore_neighbours(&head, stored.guests, stored.outbox, &stored.inbox, stored.slots)?;
        state.restore_subscriptions(stored.subscriptions)?;
        state.restore_many(bytes)?;
        state.restore_dead_letters(&head, stored.dead_letters)?;
        state.restore_patterns(stored.patterns)?;
        state.restore_outputs(stored.outputs, &stored.arrivals)?;
        state.restore_packs(head.newest_pack, stored.packs)?;
        state.dedupe.next_bucket = number(head.next_bucket)? % BUCKETS;
        state.dedupe.orphaned_buckets = number(head.orphaned_buckets)?;
        state.floors = state.floors_of_partitions();
        Ok(state)
    }

    /// What there may be very many of, in the order of the bytes: parts stand behind their partitions.
    fn restore_many(&mut self, bytes: &Bytes) -> Result<(), SnapshotError> {
        each_field(bytes, |tag, wire, rest| {
            match tag {
                PARTITION => self.restore_partition(taken(wire, rest)?)?,
                PRODUCER => {
                    let (key, producer) = producer(taken::<StoredProducer>(wire, rest)?)?;
                    self.dedupe.producers.insert(key, producer);
                }
                KEY => {
                    let (key, used) = used_key(&taken::<StoredKey>(wire, rest)?);
                    self.dedupe.keys.insert(key, used);
                }
                PART => self.restore_part(taken::<StoredPart>(wire, rest)?)?,
                _ => skip_field(wire, tag, rest, DecodeContext::default())?,
            }
            Ok(())
        })
    }

    fn restore_partition(&mut self, stored: StoredPartition) -> Result<(), SnapshotError> {
        // Partitions share their topic's configuration in memory, so it is stored once, with the topic.
        let key = PartitionKey::from(stored.key);
        let wrong = |what: &str| SnapshotError::Contradiction(format!("partition {key:?} {what}"));
        let (config, version) = self.config_of(key.0).ok_or_else(|| wrong("has no topic"))?;
        let rows = Rows::from_chunks(stored.rows).ok_or_else(|| wrong("has damaged rows"))?;
        let bounds = Offset(stored.start)..Offset(stored.end);
        let packed = (stored_packs::sealed(&stored.sealed), Offset(stored.compacted_to));
        let partition = Partition::restored(bounds, config, version, rows, packed);
        let partition = partition.ok_or_else(|| wrong("is not covered by its rows and packs"))?;
        match self.partitions.insert(key, Arc::new(partition)) {
            None => Ok(()),
            Some(_) => Err(wrong("is there twice")),
        }
    }

    /// The configuration of a topic that has partitions here, and its version.
    fn config_of(&mut self, life: Incarnation) -> Option<(Arc<TopicConfig>, ConfigVersion)> {
        if let Some(topic) = self.topics.lives.get(&life) {
            return Some((Arc::clone(&topic.config), ConfigVersion(topic.version)));
        }
        let guest = self.guests.get(&life)?;
        let config = self.topics.held_config(guest.config.as_ref().unwrap_or(&TopicConfig::default()));
        Some((config, ConfigVersion(guest.version)))
    }
}

/// Everything but what there may be very many of, which is counted.
fn few(bytes: &Bytes) -> Result<(Stored, Many), SnapshotError> {
    let (mut stored, mut many) = (Stored::default(), Many::default());
    each_field(bytes, |tag, wire, rest| {
        let counted = match tag {
            PARTITION => &mut many.partitions,
            PRODUCER => &mut many.producers,
            KEY => &mut many.keys,
            PART => &mut many.parts,
            _ => return Ok(stored.merge_field(tag, wire, rest, DecodeContext::default())?),
        };
        *counted += 1;
        Ok(skip_field(wire, tag, rest, DecodeContext::default())?)
    })?;
    Ok((stored, many))
}

/// Tells of the fields of a message in order; `each` takes the content.
fn each_field(
    bytes: &Bytes,
    mut each: impl FnMut(u32, WireType, &mut Bytes) -> Result<(), SnapshotError>,
) -> Result<(), SnapshotError> {
    let mut rest = bytes.clone();
    while rest.has_remaining() {
        let (tag, wire) = decode_key(&mut rest)?;
        each(tag, wire, &mut rest)?;
    }
    Ok(())
}

fn taken<M: Message + Default>(wire: WireType, rest: &mut Bytes) -> Result<M, SnapshotError> {
    let mut taken = M::default();
    message::merge(wire, &mut taken, rest, DecodeContext::default())?;
    Ok(taken)
}

fn check_head(head: &Head, shard: ShardId, stored: &Stored, many: &Many) -> Result<(), SnapshotError> {
    if head.shard != shard.0 {
        let detail = format!("it is of shard {}, not of shard {shard}", head.shard);
        return Err(SnapshotError::Contradiction(detail));
    }
    let counts = [
        ("topics", head.topics, stored.topics.len()),
        ("partitions", head.partitions, many.partitions),
        ("producers", head.producers, many.producers),
        ("keys", head.keys, many.keys),
        ("namespaces", head.namespaces, stored.namespaces.len()),
        ("guests", head.guests, stored.guests.len()),
        ("outbox lanes", head.outbox, stored.outbox.len()),
        ("sources", head.inbox, stored.inbox.len()),
        ("subscriptions", head.subscriptions, stored.subscriptions.len()),
        ("parts", head.parts, many.parts),
        ("dead letters", head.dead_letters, stored.dead_letters.len()),
        ("lanes of outputs", head.outputs, stored.outputs.len()),
        ("sources of outputs", head.arrivals, stored.arrivals.len()),
        ("patterns", head.patterns, stored.patterns.len()),
        ("packs", head.packs, stored.packs.len()),
    ];
    match counts.into_iter().find(|(_, said, found)| *said != *found as u64) {
        Some((what, said, found)) => {
            Err(SnapshotError::Contradiction(format!("it has {found} of {said} {what}")))
        }
        None => Ok(()),
    }
}
