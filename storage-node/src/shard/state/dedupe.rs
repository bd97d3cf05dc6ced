//! What was published before: producers and idempotency keys, bounded.

use std::collections::{HashMap, VecDeque};

use weir_protocol::batch::BatchHeader;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Epoch, Incarnation, Offset, PartitionId, ProducerKey, Seq, TimestampMs};
use weir_protocol::limits::{DEDUPE_ENTRIES_MAX, PRODUCER_IDLE_MS};
use weir_protocol::rpc::Refusal;

use super::super::entry::Idempotency;

/// Batches of one producer whose placement is remembered, so that a retry gets the offsets it got the first time.
const REMEMBERED_BATCHES: usize = 16;

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

/// A producer on one partition.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    /// Its epoch; lower ones are fenced.
    pub epoch: Epoch,
    /// Highest sequence number accepted.
    pub last_seq: Seq,
    /// Offset of the record with that number.
    pub last_offset: Offset,
    /// When it was last heard of.
    pub seen: TimestampMs,
    /// Its newest batches: first sequence number and placement.
    pub recent: VecDeque<(Seq, Placement)>,
}

/// What a producer's batch is.
#[derive(Debug, Clone, PartialEq)]
pub enum Check {
    /// New.
    New,
    /// Accepted before, here.
    Duplicate(Placement),
    /// Neither.
    Refused(Refusal),
}

/// Producers and idempotency keys of one shard.
#[derive(Debug, Default, Clone)]
pub struct Dedupe {
    pub(super) producers: HashMap<(PartitionKey, ProducerKey), Producer>,
    pub(super) keys: HashMap<(PartitionKey, u128), (u128, Placement)>,
    /// Keys by the time they are forgotten. Windows differ by topic, so this is ordered by insertion and checked.
    pub(super) key_order: VecDeque<(TimestampMs, PartitionKey, u128)>,
}

impl Dedupe {
    /// Compares a batch with what its producer sent before. `dense`: the topic has one partition, so sequence
    /// numbers must be contiguous; on several they only rise.
    #[must_use]
    pub fn check_producer(&self, at: PartitionKey, header: &BatchHeader, dense: bool) -> Check {
        if header.producer.is_none() {
            return Check::New;
        }
        let (first, last) = (header.base_seq.0, header.base_seq.0 + u64::from(header.count) - 1);
        let refuse = |code, detail: String| Refusal::new(code, detail);
        let known = self.producers.get(&(at, header.producer));
        let Some(known) = known.filter(|known| known.epoch >= header.epoch) else {
            if dense && first != 0 {
                let (code, what) = match known {
                    Some(_) => (ErrorCode::EpochStart, "a new epoch"),
                    None => (ErrorCode::ProducerGap, "a new producer"),
                };
                let detail = format!("{what} starts at sequence number 0, not {first}");
                return Check::Refused(Refusal { expected_seq: Some(0), ..refuse(code, detail) });
            }
            if known.is_none() && self.producers.len() >= DEDUPE_ENTRIES_MAX {
                let detail = format!("{DEDUPE_ENTRIES_MAX} producers are remembered");
                return Check::Refused(refuse(ErrorCode::DedupeFull, detail));
            }
            return Check::New;
        };
        if known.epoch > header.epoch {
            let detail = format!("epoch {} is fenced by epoch {}", header.epoch, known.epoch);
            let refusal = Refusal { epoch: Some(known.epoch.0), ..refuse(ErrorCode::StaleEpoch, detail) };
            return Check::Refused(refusal);
        }
        let last_seq = known.last_seq.0;
        if first == last_seq + 1 || (!dense && first > last_seq) {
            return Check::New;
        }
        if first > last_seq {
            let detail = format!("sequence number {first} after {last_seq}");
            let gap = Refusal { expected_seq: Some(last_seq + 1), ..refuse(ErrorCode::ProducerGap, detail) };
            return Check::Refused(gap);
        }
        if last > last_seq {
            let detail = format!("{first} to {last} overlap what was accepted up to {last_seq}");
            let overlap = Refusal { last_seq: Some(last_seq), ..refuse(ErrorCode::SeqOverlap, detail) };
            return Check::Refused(overlap);
        }
        remembered(known, first, header.count).map_or_else(
            || {
                let detail = format!("{first} to {last} were accepted, too long ago to know where");
                Check::Refused(Refusal { last_seq: Some(last_seq), ..refuse(ErrorCode::SeqTooOld, detail) })
            },
            Check::Duplicate,
        )
    }

    /// Compares an idempotency key with what it was used for before.
    #[must_use]
    pub fn check_key(&self, at: PartitionKey, idempotency: &Idempotency) -> Check {
        match self.keys.get(&(at, idempotency.key)) {
            Some((fingerprint, placement)) if *fingerprint == idempotency.fingerprint => {
                Check::Duplicate(*placement)
            }
            Some(_) => Check::Refused(Refusal::new(
                ErrorCode::KeyReused,
                "the idempotency key was used for another message",
            )),
            None if self.keys.len() >= DEDUPE_ENTRIES_MAX => {
                let detail = format!("{DEDUPE_ENTRIES_MAX} idempotency keys are remembered");
                Check::Refused(Refusal::new(ErrorCode::DedupeFull, detail))
            }
            None => Check::New,
        }
    }

    pub(super) fn accepted(&mut self, at: PartitionKey, header: &BatchHeader, placement: Placement) {
        if header.producer.is_none() {
            return;
        }
        let last = u64::from(header.count) - 1;
        let producer = self.producers.entry((at, header.producer)).or_insert_with(|| Producer {
            epoch: header.epoch,
            last_seq: Seq(0),
            last_offset: Offset(0),
            seen: placement.ts,
            recent: VecDeque::new(),
        });
        if producer.epoch != header.epoch {
            producer.recent.clear();
            producer.epoch = header.epoch;
        }
        producer.last_seq = Seq(header.base_seq.0 + last);
        producer.last_offset = placement.base_offset.plus(last);
        producer.seen = placement.ts;
        if producer.recent.len() == REMEMBERED_BATCHES {
            producer.recent.pop_front();
        }
        producer.recent.push_back((header.base_seq, placement));
    }

    pub(super) fn key_used(
        &mut self,
        at: PartitionKey,
        used: &Idempotency,
        placement: Placement,
        window_ms: u64,
    ) {
        self.keys.insert((at, used.key), (used.fingerprint, placement));
        self.key_order.push_back((TimestampMs(placement.ts.0 + window_ms), at, used.key));
    }

    /// Forgets keys whose window has passed, and idle producers when there are many.
    pub(super) fn expire(&mut self, now: TimestampMs) {
        while let Some((_, at, key)) = self.key_order.pop_front_if(|(until, ..)| *until <= now) {
            self.keys.remove(&(at, key));
        }
        // Walking all producers is worth it only when room is needed.
        if self.producers.len() >= DEDUPE_ENTRIES_MAX {
            self.producers.retain(|_, producer| producer.seen.0 + PRODUCER_IDLE_MS > now.0);
        }
    }

    pub(super) fn forget_topic(&mut self, incarnation: Incarnation) {
        self.producers.retain(|((life, _), _), _| *life != incarnation);
        self.keys.retain(|((life, _), _), _| *life != incarnation);
        self.key_order.retain(|(_, (life, _), _)| *life != incarnation);
    }

    /// A producer's state.
    #[must_use]
    pub fn producer(&self, at: PartitionKey, key: ProducerKey) -> Option<&Producer> {
        self.producers.get(&(at, key))
    }
}

/// Placement of the batch that held exactly these records, or of the part of one.
fn remembered(producer: &Producer, first: u64, count: u32) -> Option<Placement> {
    let batch = producer.recent.iter().rev().find(|(base, placement)| {
        base.0 <= first && first + u64::from(count) <= base.0 + u64::from(placement.count)
    });
    batch.map(|(base, placement)| Placement {
        base_offset: placement.base_offset.plus(first - base.0),
        count,
        ts: placement.ts,
    })
}
