//! Applying entries.

use std::sync::Arc;

use bytes::Bytes;
use weir_protocol::batch::{Batch, BatchError, BatchHeader};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, LogIndex, Offset, ShardId, TimestampMs};
use weir_protocol::limits::DEDUPE_ENTRIES_MAX;
use weir_protocol::rpc::{
    NamespacePut, Placed, Refusal, SubscriptionCreated, SubscriptionDescription, TopicCreated,
    TopicDescription,
};

use super::super::entry::{Entry, EntryError, Kind, SubBatch};
use super::cow_map::CowMap;
use super::dead_letters::DeadLetters;
use super::dedupe::{Check, Dedupe, PartitionKey, Placement};
use super::floors::Floors;
use super::outbox::{Inbox, Outbox};
use super::outputs::{Arrivals, Following, Outputs};
use super::packs::{Packs, Released};
use super::partition::{Marks, Partition};
use super::parts::Parts;
use super::patterns::Patterns;
use super::rows::BatchRow;
use super::slots::SlotTable;
use super::subscriptions::Subscriptions;
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
    /// A command that this build does not know, or outputs that belong to none.
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
    /// A subscription was created or found.
    SubscriptionCreated(SubscriptionCreated),
    /// A subscription was changed or deleted.
    Subscription(SubscriptionDescription),
    /// An output is on its way under this number.
    Sent(u64),
    /// The fork of this life cannot begin here: not all that it is to begin as is kept.
    Unforked(Incarnation),
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
    /// Something waits for another shard or topic, or was taken by it.
    pub is_outbox_changed: bool,
    /// The entry carries batches, whatever became of them.
    pub has_batches: bool,
    /// Rules of the entry.
    pub(super) version: u16,
    /// What belongs to the part's change that was applied last.
    pub(super) following: Following,
}

/// Everything a shard remembers, but for the records' bytes, which stay in the log. Cheap to clone: parts are shared
/// and copied when they change.
///
/// ```text
///   partitions ─▶ floors (what retention and purging need, ordered)
///   topics · guests: topics at home elsewhere with partitions here · outbox · inbox
///   subscriptions at home here · parts: what any subscription holds of a partition here · dead letters
///   patterns: subscriptions, wherever they are at home, that have parts of every topic with such a name
///   outputs of settles here · arrivals: those of settles elsewhere
///   packs: objects that hold what may leave the log
///   dedupe · slots (shard 0) · last time
/// ```
#[derive(Debug, Clone)]
pub struct ShardState {
    pub(super) partitions: CowMap<PartitionKey, Arc<Partition>>,
    pub(super) topics: Topics,
    pub(super) guests: CowMap<Incarnation, Arc<TopicDescription>>,
    pub(super) outbox: Arc<Outbox>,
    pub(super) inbox: Arc<Inbox>,
    pub(super) slots: Arc<SlotTable>,
    pub(super) subscriptions: Subscriptions,
    pub(super) parts: Parts,
    pub(super) patterns: Arc<Patterns>,
    pub(super) dead_letters: Arc<DeadLetters>,
    pub(super) outputs: Arc<Outputs>,
    pub(super) arrivals: Arc<Arrivals>,
    pub(super) packs: Arc<Packs>,
    pub(super) dedupe: Dedupe,
    pub(super) last_ts: TimestampMs,
    /// The newest entry applied since this state was made or read: says whether something changed.
    newest: LogIndex,
    pub(super) floors: Floors,
}

impl ShardState {
    /// The state before the first entry, remembering up to [`DEDUPE_ENTRIES_MAX`] producers and as many keys.
    #[must_use]
    pub fn new(shard: ShardId) -> Self {
        Self::with_dedupe_rows(shard, DEDUPE_ENTRIES_MAX)
    }

    /// The same, remembering up to `rows_max` producers and as many keys. Part of the state: every replica of a shard
    /// must start with the same, and checkpoints carry it.
    #[must_use]
    pub fn with_dedupe_rows(shard: ShardId, rows_max: usize) -> Self {
        Self {
            partitions: CowMap::default(),
            topics: Topics::new(shard),
            guests: CowMap::default(),
            outbox: Arc::default(),
            inbox: Arc::default(),
            slots: Arc::default(),
            subscriptions: Subscriptions::default(),
            parts: Parts::default(),
            patterns: Arc::default(),
            dead_letters: Arc::default(),
            outputs: Arc::default(),
            arrivals: Arc::default(),
            packs: Arc::default(),
            dedupe: Dedupe::new(rows_max),
            last_ts: TimestampMs(0),
            newest: LogIndex(0),
            floors: Floors::default(),
        }
    }

    /// Applies one committed entry. Offsets in its verdicts are final.
    ///
    /// # Errors
    /// [`StateError`]: stop the shard; the state is then not to be used any more.
    pub fn apply(&mut self, index: LogIndex, term: u64, payload: &Bytes) -> Result<Applied, StateError> {
        let entry = Entry::parse(payload).map_err(|source| StateError::Entry { index, source })?;
        // Stamped monotone by the proposer; a new leader's clock may be behind the old one's.
        let ts = entry.ts.max(self.last_ts);
        self.last_ts = ts;
        self.newest = index;
        self.dedupe.sweep(index, ts, |key| self.partitions.get(&key).is_some());
        let mut applied = Applied { version: entry.version, ..Applied::default() };
        applied.verdicts.reserve(entry.subs.len());
        for (pos, sub) in entry.subs {
            let at = At { index, term, ts, pos };
            applied.has_batches |= matches!(sub.kind, Kind::Publish | Kind::Output);
            if sub.kind != Kind::Output && !applied.is_whole() {
                return Err(StateError::Command { index });
            }
            let verdict = match (sub.kind, sub.across) {
                (Kind::Publish, Some(from)) => self.arrive(at, &sub, from, &mut applied)?,
                (Kind::Publish, None) => self.publish(at, &sub, &mut applied.touched)?,
                (Kind::Trim, _) => self.trim(&sub, &mut applied.touched),
                (Kind::Command, _) => self.command(at, &sub.body, &mut applied)?,
                (Kind::Output, _) => self.output(at, &sub, &mut applied)?,
            };
            applied.verdicts.push(verdict);
        }
        if !applied.is_whole() {
            return Err(StateError::Command { index });
        }
        if cfg!(debug_assertions) {
            applied.touched.iter().filter_map(|key| self.partitions.get(key)).for_each(|p| p.check());
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
        let Some(partition) = self.partitions.get(&key) else {
            return Ok(Verdict::Refused(self.missing(key)));
        };
        match self.judge(key, partition, sub, &header, at.ts) {
            Check::New => {}
            Check::Duplicate(seen) => {
                return Ok(known(seen, at.term, self.dedupe.last_seq(key, &header)));
            }
            Check::Refused(refusal) => return Ok(Verdict::Refused(refusal)),
        }
        let is_dense = partition.config.partitions == 1;
        let window = partition.config.dedupe_window_ms;
        let row = BatchRow {
            base_offset: partition.end,
            count: header.count,
            len: u32::try_from(sub.body.len()).expect("an entry is below 4 GiB"),
            ts: at.ts,
            index,
            pos: at.pos,
        };
        self.change(key, |partition| {
            partition.push(&row);
            Vec::new()
        });
        let placement = Placement { base_offset: row.base_offset, count: row.count, ts: at.ts };
        self.dedupe.accepted(key, &header, placement, is_dense);
        if let Some(used) = &sub.idempotency {
            self.dedupe.key_used(key, used, placement, window);
        }
        touched.push(key);
        Ok(Verdict::Placed(placed(placement, at.term)))
    }

    /// Whether a batch may be appended. What was seen comes first: a retry gets its first answer, whatever has changed
    /// since.
    pub(in crate::shard) fn judge(
        &self,
        key: PartitionKey,
        partition: &Partition,
        sub: &SubBatch,
        header: &BatchHeader,
        ts: TimestampMs,
    ) -> Check {
        let by_key = sub.idempotency.as_ref().map_or(Check::New, |used| self.dedupe.check_key(key, used, ts));
        if by_key != Check::New {
            return by_key;
        }
        match self.dedupe.check_producer(key, header, partition.config.partitions == 1, ts) {
            Check::New => {}
            Check::Duplicate(seen) => {
                // A run of batches has the time of its newest; the row, while there is one, has the exact time.
                let ts = partition.batch_at(seen.base_offset).map_or(seen.ts, |row| row.ts);
                return Check::Duplicate(Placement { ts, ..seen });
            }
            refused @ Check::Refused(_) => return refused,
        }
        if partition.config.closed {
            return Check::Refused(Refusal::new(ErrorCode::TopicClosed, "the topic takes no more messages"));
        }
        if let Some(expected) = sub.expected_end.filter(|expected| *expected != partition.end) {
            let detail = format!("the partition ends at {}, not at {expected}", partition.end);
            let refusal = Refusal::new(ErrorCode::TailMismatch, detail);
            return Check::Refused(Refusal { tail: Some(partition.end.0), ..refusal });
        }
        Check::New
    }

    /// Changes a partition that exists, and what follows from it: `change` gives what it does not need any more.
    pub(super) fn change(&mut self, key: PartitionKey, change: impl FnOnce(&mut Partition) -> Vec<Released>) {
        let shared = self.partitions.get_mut(&key).expect("looked up by the caller");
        let partition = Arc::make_mut(shared);
        let before = partition.marks();
        let released = change(partition);
        let after = partition.marks();
        self.floors.moved(key, before, after);
        self.release_packs(&released);
    }

    /// What referred to these packs does not any more.
    pub(super) fn release_packs(&mut self, released: &[Released]) {
        if !released.is_empty() {
            let packs = Arc::make_mut(&mut self.packs);
            released.iter().for_each(|released| packs.release(released));
        }
    }

    /// A trim of a partition that is gone has nothing left to do: the records went with it.
    fn trim(&mut self, sub: &SubBatch, touched: &mut Vec<PartitionKey>) -> Verdict {
        let key = (sub.incarnation, sub.partition);
        if let (Some(_), Some(upto)) = (self.partitions.get(&key), sub.expected_end) {
            self.change(key, |partition| partition.trim(upto));
            self.trim_parts(key);
            touched.push(key);
        }
        Verdict::Done
    }

    /// A partition.
    ///
    /// # Errors
    /// `incarnation_gone` if its topic was deleted or never had it, `config_behind` if this shard may not
    /// have been told of it yet.
    pub fn partition(&self, key: PartitionKey) -> Result<&Partition, Refusal> {
        self.partitions.get(&key).map(|partition| &**partition).ok_or_else(|| self.missing(key))
    }

    /// The same, shared: for whoever looks through its rows, which takes longer than apply should wait.
    ///
    /// # Errors
    /// As [`ShardState::partition`].
    pub fn shared_partition(&self, key: PartitionKey) -> Result<Arc<Partition>, Refusal> {
        self.partitions.get(&key).map(Arc::clone).ok_or_else(|| self.missing(key))
    }

    /// Bytes of the batches of all partitions, and of those that no pack holds.
    #[must_use]
    pub fn batch_bytes(&self) -> (u64, u64) {
        (self.floors.bytes, self.floors.unsealed_bytes)
    }

    /// Topics and namespaces.
    #[must_use]
    pub fn topics(&self) -> &Topics {
        &self.topics
    }

    /// What waits for other shards.
    #[must_use]
    pub fn outbox(&self) -> &Outbox {
        &self.outbox
    }

    /// Subscriptions at home here.
    #[must_use]
    pub fn subscriptions(&self) -> &Subscriptions {
        &self.subscriptions
    }

    /// What subscriptions hold of partitions here.
    #[must_use]
    pub fn parts(&self) -> &Parts {
        &self.parts
    }

    /// Dead letters on their way.
    #[must_use]
    pub fn dead_letters(&self) -> &DeadLetters {
        &self.dead_letters
    }

    /// Where topics are at home; empty in all shards but the meta group.
    #[must_use]
    pub fn slots(&self) -> &SlotTable {
        &self.slots
    }

    /// Producers and keys.
    #[must_use]
    pub fn dedupe(&self) -> &Dedupe {
        &self.dedupe
    }

    /// The newest entry applied since the state was made or read from a checkpoint; 0 before the first.
    #[must_use]
    pub fn newest(&self) -> LogIndex {
        self.newest
    }

    /// Time of the newest entry.
    #[must_use]
    pub fn last_ts(&self) -> TimestampMs {
        self.last_ts
    }

    /// Trims that retention asks for at `now`, at most `most`, longest due first. Visits only partitions that have
    /// something to trim.
    #[must_use]
    pub fn due_trims(&self, now: TimestampMs, most: usize) -> Vec<(PartitionKey, Offset)> {
        let trim = |key| Some((key, self.partitions.get(&key)?.due_trim(now)?));
        self.floors.due(now).take(most).filter_map(trim).collect()
    }

    /// Lowest entry that still holds a live record which no pack holds; `None` if none does. Everything below may be
    /// purged.
    #[must_use]
    pub fn needed_from(&self) -> Option<LogIndex> {
        let records = self.floors.pins().next().map(|(index, _)| index);
        let dead = self.dead_letters.needed_from();
        records.into_iter().chain(dead).chain(self.outputs.needed_from()).min()
    }

    /// Full names of the topics whose records keep the oldest entries, at most `most`.
    #[must_use]
    pub fn oldest_topics(&self, most: usize) -> Vec<String> {
        let mut names = Vec::new();
        for (_, (life, _)) in self.floors.pins() {
            if names.len() == most {
                break;
            }
            let name = self.name_of(life);
            names.extend(name.filter(|name| !names.contains(name)));
        }
        names
    }

    /// What the topic of this life is called, with its namespace.
    #[must_use]
    pub fn name_of(&self, life: Incarnation) -> Option<String> {
        let name = self.topic(life)?.name?;
        Some(format!("{}/{}", name.namespace, name.topic))
    }

    /// Checks every invariant, visiting every partition and topic.
    ///
    /// # Panics
    /// If one does not hold.
    pub fn check(&self) {
        self.topics.check();
        self.outputs.check();
        self.dead_letters.check();
        self.check_patterns();
        self.check_living();
        self.parts.check(|key| self.partitions.get(&key).map(|partition| partition.start..partition.end));
        self.partitions.iter().for_each(|(_, partition)| partition.check());
        let references: Vec<_> = self.count_references().into_iter().collect();
        let counted = self.packs.live().map(|(no, pack)| (no, (pack.references, pack.living_bytes)));
        assert_eq!(counted.collect::<Vec<_>>(), references, "packs know who refers to them, and how much");
        assert_eq!(self.floors, self.floors_of_partitions(), "the order follows from the partitions");
    }

    /// The order computed anew.
    pub(super) fn floors_of_partitions(&self) -> Floors {
        let mut floors = Floors::default();
        for (key, partition) in self.partitions.iter() {
            floors.moved(*key, Marks::default(), partition.marks());
        }
        floors
    }
}

pub(super) fn placed(placement: Placement, term: u64) -> Placed {
    Placed {
        base_offset: placement.base_offset.0,
        count: placement.count,
        ts_ms: placement.ts.0,
        term,
        is_final: true,
        duplicate: false,
        last_seq: None,
    }
}

/// What was accepted before; of its producer `last_seq` was the highest number.
pub(in crate::shard) fn known(seen: Placement, term: u64, last_seq: Option<u64>) -> Verdict {
    Verdict::Placed(Placed { duplicate: true, last_seq, ..placed(seen, term) })
}

/// Where a sub-batch stands in the log.
#[derive(Debug, Clone, Copy)]
pub(super) struct At {
    pub(super) index: LogIndex,
    pub(super) term: u64,
    pub(super) ts: TimestampMs,
    pub(super) pos: u32,
}
