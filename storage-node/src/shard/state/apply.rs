//! Applying entries.

use std::collections::HashMap;

use bytes::Bytes;
use prost::Message as _;
use weir_protocol::batch::{Batch, BatchError};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{ConfigVersion, Incarnation, LogIndex, Offset, PartitionId, ShardId, TimestampMs};
use weir_protocol::rpc::{NamespacePut, Placed, Refusal, TopicCreated, TopicDescription};

use super::super::command::{Change, Command};
use super::super::entry::{Entry, EntryError, Kind, SubBatch};
use super::dedupe::{Check, Dedupe, PartitionKey, Placement};
use super::partition::{BatchRow, Partition};
use super::topics::Topics;

/// A committed entry that cannot be applied: written by a newer build or damaged. The shard stops; nothing is
/// ever skipped.
#[derive(Debug, thiserror::Error)]
pub enum StateError {
    /// Not an entry.
    #[error("entry {index}: {source}")]
    Entry {
        /// The entry.
        index: LogIndex,
        /// What is wrong.
        source: EntryError,
    },
    /// A record batch that the proposer should have refused.
    #[error("entry {index}: {source}")]
    Batch {
        /// The entry.
        index: LogIndex,
        /// What is wrong.
        source: BatchError,
    },
    /// A command that this build does not know.
    #[error("entry {index}: unknown command")]
    Command {
        /// The entry.
        index: LogIndex,
    },
}

/// The final word on one sub-batch.
#[derive(Debug, Clone, PartialEq)]
pub enum Verdict {
    /// Records have their offsets.
    Placed(Placed),
    /// No effect.
    Refused(Refusal),
    /// A topic was created or found.
    TopicCreated(TopicCreated),
    /// A topic was changed or deleted.
    Topic(TopicDescription),
    /// A namespace was created or changed.
    Namespace(NamespacePut),
    /// Done.
    Done,
}

/// What an entry did.
#[derive(Debug, Default)]
pub struct Applied {
    /// One per sub-batch, in order.
    pub verdicts: Vec<Verdict>,
    /// Partitions that gained records or changed otherwise.
    pub touched: Vec<PartitionKey>,
}

/// Everything a shard remembers, but for the records' bytes, which stay in the log.
#[derive(Debug, Clone)]
pub struct ShardState {
    pub(super) partitions: HashMap<PartitionKey, Partition>,
    pub(super) topics: Topics,
    pub(super) dedupe: Dedupe,
    pub(super) last_ts: TimestampMs,
}

impl ShardState {
    /// The state before the first entry.
    #[must_use]
    pub fn new(shard: ShardId) -> Self {
        Self {
            partitions: HashMap::new(),
            topics: Topics::new(shard),
            dedupe: Dedupe::default(),
            last_ts: TimestampMs(0),
        }
    }

    /// Applies one committed entry.
    ///
    /// # Errors
    /// [`StateError`]: stop the shard.
    pub fn apply(&mut self, index: LogIndex, term: u64, payload: &Bytes) -> Result<Applied, StateError> {
        let entry = Entry::parse(payload).map_err(|source| StateError::Entry { index, source })?;
        // Stamped monotone by the proposer; a new leader's clock may be behind the old one's.
        let ts = entry.ts.max(self.last_ts);
        self.last_ts = ts;
        self.dedupe.expire(ts);
        let mut applied = Applied::default();
        for (pos, sub) in entry.subs {
            let at = At { index, term, ts, pos };
            let verdict = match sub.kind {
                Kind::Publish => self.publish(at, &sub, &mut applied.touched)?,
                Kind::Trim => self.trim(&sub, &mut applied.touched),
                Kind::Command => self.command(at, &sub.body, &mut applied.touched)?,
            };
            applied.verdicts.push(verdict);
        }
        Ok(applied)
    }

    fn publish(
        &mut self,
        at: At,
        sub: &SubBatch,
        touched: &mut Vec<PartitionKey>,
    ) -> Result<Verdict, StateError> {
        let index = at.index;
        let batch = Batch::parse(sub.body.clone()).map_err(|source| StateError::Batch { index, source })?;
        let header = batch.header();
        let key = (sub.incarnation, sub.partition);
        let partition = match find(&mut self.partitions, key) {
            Ok(partition) => partition,
            Err(refusal) => return Ok(Verdict::Refused(refusal)),
        };
        let placed = |placement: Placement, duplicate| {
            Verdict::Placed(Placed {
                base_offset: placement.base_offset.0,
                count: placement.count,
                ts_ms: placement.ts.0,
                term: at.term,
                is_final: true,
                duplicate,
            })
        };
        // Whether it was seen comes first: a retry gets its first answer, whatever has changed since.
        let by_key = sub.idempotency.as_ref().map_or(Check::New, |used| self.dedupe.check_key(key, used));
        let by_producer = || self.dedupe.check_producer(key, &header, partition.config.partitions == 1);
        match if by_key == Check::New { by_producer() } else { by_key } {
            Check::New => {}
            Check::Duplicate(placement) => return Ok(placed(placement, true)),
            Check::Refused(refusal) => return Ok(Verdict::Refused(refusal)),
        }
        if partition.config.closed {
            return Ok(Verdict::Refused(Refusal::new(
                ErrorCode::TopicClosed,
                "the topic takes no more messages",
            )));
        }
        if let Some(expected) = sub.expected_end.filter(|expected| *expected != partition.end) {
            let detail = format!("the partition ends at {}, not at {expected}", partition.end);
            let refusal = Refusal::new(ErrorCode::TailMismatch, detail);
            return Ok(Verdict::Refused(Refusal { tail: Some(partition.end.0), ..refusal }));
        }
        let row = BatchRow {
            base_offset: partition.end,
            count: header.count,
            len: u32::try_from(sub.body.len()).expect("an entry is below 4 GiB"),
            ts: at.ts,
            index,
            pos: at.pos,
        };
        partition.push(row);
        let placement = Placement { base_offset: row.base_offset, count: row.count, ts: at.ts };
        let window = partition.config.dedupe_window_ms;
        self.dedupe.accepted(key, &header, placement);
        if let Some(used) = &sub.idempotency {
            self.dedupe.key_used(key, used, placement, window);
        }
        touched.push(key);
        Ok(placed(placement, false))
    }

    fn trim(&mut self, sub: &SubBatch, touched: &mut Vec<PartitionKey>) -> Verdict {
        let key = (sub.incarnation, sub.partition);
        match (find(&mut self.partitions, key), sub.expected_end) {
            (Ok(partition), Some(upto)) => {
                partition.trim(upto);
                touched.push(key);
                Verdict::Done
            }
            // The topic went meanwhile, and its records with it.
            _ => Verdict::Done,
        }
    }

    fn command(
        &mut self,
        at: At,
        body: &Bytes,
        touched: &mut Vec<PartitionKey>,
    ) -> Result<Verdict, StateError> {
        let unknown = StateError::Command { index: at.index };
        let Ok(Command { change: Some(change) }) = Command::decode(body.clone()) else { return Err(unknown) };
        let verdict = match change {
            Change::CreateTopic(create) => self.topics.create(&create, at.ts).map(|made| {
                if let Some(topic) = made.topic.as_ref().filter(|_| made.created) {
                    self.open_partitions(topic);
                }
                Verdict::TopicCreated(made)
            }),
            Change::UpdateTopic(update) => self.topics.update(&update).map(|topic| {
                touched.extend(self.configure_partitions(&topic));
                Verdict::Topic(topic)
            }),
            Change::DeleteTopic(delete) => self.topics.delete(&delete).map(|topic| {
                touched.extend(self.close_partitions(&topic));
                Verdict::Topic(topic)
            }),
            Change::PutNamespace(put) => self.topics.put_namespace(&put).map(Verdict::Namespace),
            Change::DeleteNamespace(delete) => {
                self.topics.delete_namespace(&delete.tenant, &delete.name).map(|()| Verdict::Done)
            }
        };
        Ok(verdict.unwrap_or_else(Verdict::Refused))
    }

    fn open_partitions(&mut self, topic: &TopicDescription) {
        let config = topic.config.clone().unwrap_or_default();
        for partition in 0..config.partitions {
            let key = (Incarnation(topic.incarnation), PartitionId(partition));
            self.partitions.insert(key, Partition::new(config.clone(), ConfigVersion(topic.version)));
        }
    }

    fn configure_partitions(&mut self, topic: &TopicDescription) -> Vec<PartitionKey> {
        let config = topic.config.clone().unwrap_or_default();
        let keys = keys_of(topic);
        for key in &keys {
            if let Some(partition) = self.partitions.get_mut(key) {
                partition.config = config.clone();
                partition.version = ConfigVersion(topic.version);
            }
        }
        keys
    }

    fn close_partitions(&mut self, topic: &TopicDescription) -> Vec<PartitionKey> {
        let keys = keys_of(topic);
        for key in &keys {
            self.partitions.remove(key);
        }
        self.dedupe.forget_topic(Incarnation(topic.incarnation));
        keys
    }

    /// A partition.
    ///
    /// # Errors
    /// `incarnation_gone` if its topic was deleted, `partition_not_found` if it never had it.
    pub fn partition(&self, key: PartitionKey) -> Result<&Partition, Refusal> {
        self.partitions.get(&key).ok_or_else(|| missing(key))
    }

    /// Topics and namespaces.
    #[must_use]
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// Producers and keys.
    #[must_use]
    pub fn dedupe(&self) -> &Dedupe {
        &self.dedupe
    }

    /// Time of the newest entry.
    #[must_use]
    pub fn last_ts(&self) -> TimestampMs {
        self.last_ts
    }

    /// Trims that retention asks for at `now`, at most `most`.
    #[must_use]
    pub fn due_trims(&self, now: TimestampMs, most: usize) -> Vec<(PartitionKey, Offset)> {
        let due =
            self.partitions.iter().filter_map(|(key, partition)| Some((*key, partition.due_trim(now)?)));
        due.take(most).collect()
    }

    /// Lowest entry that still holds a live record; `None` if none does. Everything below may be purged.
    #[must_use]
    pub fn needed_from(&self) -> Option<LogIndex> {
        self.partitions.values().filter_map(|partition| partition.rows.front().map(|row| row.index)).min()
    }

    /// Full names of the topics whose records keep the oldest entries, at most `most`.
    #[must_use]
    pub fn oldest_topics(&self, most: usize) -> Vec<String> {
        let mut lives: Vec<_> = self
            .partitions
            .iter()
            .filter_map(|(key, partition)| Some((partition.rows.front()?.index, key.0)))
            .collect();
        lives.sort_unstable();
        lives.dedup_by_key(|(_, life)| *life);
        let name = |life: Incarnation| {
            self.topics.by_name.values().find(|topic| topic.incarnation == life.0)?.name.clone()
        };
        let named = lives.into_iter().filter_map(|(_, life)| name(life));
        named.take(most).map(|name| format!("{}/{}", name.namespace, name.topic)).collect()
    }

    /// Checks every partition's invariant.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        self.partitions.values().for_each(Partition::check);
    }
}

#[derive(Debug, Clone, Copy)]
struct At {
    index: LogIndex,
    term: u64,
    ts: TimestampMs,
    pos: u32,
}

fn find(
    partitions: &mut HashMap<PartitionKey, Partition>,
    key: PartitionKey,
) -> Result<&mut Partition, Refusal> {
    partitions.get_mut(&key).ok_or_else(|| missing(key))
}

fn missing((incarnation, partition): PartitionKey) -> Refusal {
    let detail = format!("partition {partition} of incarnation {incarnation} is not here");
    Refusal::new(ErrorCode::IncarnationGone, detail)
}

fn keys_of(topic: &TopicDescription) -> Vec<PartitionKey> {
    let partitions = topic.config.as_ref().map_or(0, |config| config.partitions);
    (0..partitions).map(|partition| (Incarnation(topic.incarnation), PartitionId(partition))).collect()
}
