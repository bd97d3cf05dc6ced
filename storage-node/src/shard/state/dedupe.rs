//! What was published before: producers and idempotency keys, bounded in number and in the work they cause.

use weir_protocol::batch::BatchHeader;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, LogIndex, Offset, PartitionId, ProducerKey, TimestampMs};
use weir_protocol::limits::PRODUCER_IDLE_MS;
use weir_protocol::rpc::Refusal;

use super::super::entry::Idempotency;
use super::cow_map::{BUCKETS, CowMap};
use super::producers::{self, Producer};

/// One bucket of each table is swept with every so many entries of the log.
const SWEEP_EVERY: u64 = 4;

/// A partition of one life of a topic.
pub type PartitionKey = (Incarnation, PartitionId);

/// Where a batch went.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Placement {
    /// Offset of its first record.
    pub base_offset: Offset,
    /// Records.
    pub count: u32,
    /// When.
    pub ts: TimestampMs,
}

/// What a batch is to those who remember.
#[derive(Debug, Clone, PartialEq)]
pub enum Check {
    /// New.
    New,
    /// Accepted before, here.
    Duplicate(Placement),
    /// Neither.
    Refused(Refusal),
}

/// What an idempotency key was used for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct UsedKey {
    pub(super) fingerprint: u128,
    pub(super) placement: Placement,
    /// Forgotten from this time on.
    pub(super) until: TimestampMs,
}

/// Producers and idempotency keys of one shard.
///
/// A row that has expired counts as absent from that moment of the log's time on; its memory is freed when its bucket
/// is swept. Sweeping goes by entry index, so that replicas, and replays from any checkpoint, hold the same rows.
#[derive(Debug, Clone)]
pub struct Dedupe {
    pub(super) producers: CowMap<(PartitionKey, ProducerKey), Producer>,
    pub(super) keys: CowMap<(PartitionKey, u128), UsedKey>,
    /// Most rows of each table; part of the state, since verdicts depend on it.
    pub(super) rows_max: usize,
    /// The next bucket to sweep.
    pub(super) next_bucket: usize,
    /// Buckets still to be searched for rows of deleted topics.
    pub(super) orphaned_buckets: usize,
}

impl Dedupe {
    pub(super) fn new(rows_max: usize) -> Self {
        Self {
            producers: CowMap::default(),
            keys: CowMap::default(),
            rows_max,
            next_bucket: 0,
            orphaned_buckets: 0,
        }
    }

    /// Compares a batch with what its producer sent before. `dense`: the topic has one partition.
    #[must_use]
    pub fn check_producer(
        &self,
        at: PartitionKey,
        header: &BatchHeader,
        dense: bool,
        now: TimestampMs,
    ) -> Check {
        if header.producer.is_none() {
            return Check::New;
        }
        let row = self.producers.get(&(at, header.producer));
        let check = producers::check(row.filter(|row| !is_idle(row, now)), header, dense);
        if check == Check::New && row.is_none() && self.producers.len() >= self.rows_max {
            return self.full("producers");
        }
        check
    }

    /// The highest number that was accepted of a batch's producer.
    #[must_use]
    pub fn last_seq(&self, at: PartitionKey, header: &BatchHeader) -> Option<u64> {
        let row = self.producers.get(&(at, header.producer)).filter(|_| !header.producer.is_none());
        row.filter(|row| row.epoch == header.epoch).map(|row| row.last_seq.0)
    }

    /// Compares an idempotency key with what it was used for before.
    #[must_use]
    pub fn check_key(&self, at: PartitionKey, idempotency: &Idempotency, now: TimestampMs) -> Check {
        match self.keys.get(&(at, idempotency.key)) {
            Some(used) if used.until <= now => Check::New,
            Some(used) if used.fingerprint == idempotency.fingerprint => Check::Duplicate(used.placement),
            Some(_) => {
                let detail = "the idempotency key was used for another message";
                Check::Refused(Refusal::new(ErrorCode::KeyReused, detail))
            }
            None if self.keys.len() >= self.rows_max => self.full("idempotency keys"),
            None => Check::New,
        }
    }

    fn full(&self, what: &str) -> Check {
        let detail = format!("{} {what} are remembered", self.rows_max);
        Check::Refused(Refusal::new(ErrorCode::DedupeFull, detail))
    }

    /// A batch that was [`Check::New`] to its producer is now at `placement`.
    pub(super) fn accepted(
        &mut self,
        at: PartitionKey,
        header: &BatchHeader,
        placement: Placement,
        dense: bool,
    ) {
        if header.producer.is_none() {
            return;
        }
        let key = (at, header.producer);
        let is_known = |row: &&Producer| row.epoch == header.epoch && !is_idle(row, placement.ts);
        if self.producers.get(&key).filter(is_known).is_some() {
            let row = self.producers.get_mut(&key).expect("found just now");
            row.accept(header, placement);
        } else {
            self.producers.insert(key, Producer::new(header, placement, dense));
        }
    }

    /// A key that was [`Check::New`] is now used; it is remembered for `window_ms`.
    pub(super) fn key_used(
        &mut self,
        at: PartitionKey,
        used: &Idempotency,
        placement: Placement,
        window_ms: u64,
    ) {
        let until = TimestampMs(placement.ts.0.saturating_add(window_ms));
        let used_key = UsedKey { fingerprint: used.fingerprint, placement, until };
        self.keys.insert((at, used.key), used_key);
    }

    /// Frees the rows of one bucket that have expired by `now`, or whose partition `exists` no more.
    pub(super) fn sweep(&mut self, entry: LogIndex, now: TimestampMs, exists: impl Fn(PartitionKey) -> bool) {
        if !entry.0.is_multiple_of(SWEEP_EVERY) {
            return;
        }
        let search_orphans = self.orphaned_buckets > 0;
        let is_orphan = |at| search_orphans && !exists(at);
        let bucket = self.next_bucket;
        self.producers.sweep(bucket, |(at, _), row| !is_idle(row, now) && !is_orphan(*at));
        self.keys.sweep(bucket, |(at, _), used| used.until > now && !is_orphan(*at));
        self.orphaned_buckets = self.orphaned_buckets.saturating_sub(1);
        self.next_bucket = (bucket + 1) % BUCKETS;
    }

    /// A topic was deleted: its rows are freed by the sweeps of the next round. Nobody can ask for them meanwhile, its
    /// incarnation never comes back.
    pub(super) fn topic_deleted(&mut self) {
        self.orphaned_buckets = BUCKETS;
    }

    /// A producer's state; `None` if it never published there or is idle too long by `now`.
    #[must_use]
    pub fn producer(&self, at: PartitionKey, key: ProducerKey, now: TimestampMs) -> Option<&Producer> {
        self.producers.get(&(at, key)).filter(|row| !is_idle(row, now))
    }

    /// Most producers, and most idempotency keys.
    #[must_use]
    pub fn rows_max(&self) -> usize {
        self.rows_max
    }

    /// Producers and idempotency keys that take up room.
    #[must_use]
    pub fn rows(&self) -> (usize, usize) {
        (self.producers.len(), self.keys.len())
    }
}

fn is_idle(row: &Producer, now: TimestampMs) -> bool {
    row.seen.0.saturating_add(PRODUCER_IDLE_MS) <= now.0
}
