//! Subscriptions, parts and dead letters of a checkpoint.

use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use prost::Message;
use weir_protocol::ids::{Incarnation, LogIndex, Offset, PartitionId, TimestampMs};
use weir_protocol::rpc::{PartRef, SubscriptionConfig, SubscriptionDescription, SubscriptionName, TopicName};

use super::apply::ShardState;
use super::dead_letters::{DeadLetter, DeadLetters};
use super::parts::{HeldPart, PartKey};
use super::patterns::Pattern;
use super::rows::BatchRow;
use super::snapshot::{Head, SnapshotError};
use super::subscribing::part_key;
use super::subscriptions::Subscriptions;
use crate::subscription::{Part, PartError};

#[derive(Clone, PartialEq, Message)]
pub(super) struct StoredPart {
    #[prost(message, required, tag = "1")]
    pub(super) part: PartRef,
    #[prost(message, required, tag = "2")]
    name: SubscriptionName,
    #[prost(message, required, tag = "3")]
    config: SubscriptionConfig,
    #[prost(uint32, tag = "4")]
    version: u32,
    /// As the part encodes itself.
    #[prost(bytes = "bytes", tag = "5")]
    state: Bytes,
}

/// A subscription with a pattern, wherever it is at home.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StoredPattern {
    #[prost(message, required, tag = "1")]
    subscription: SubscriptionDescription,
    #[prost(uint64, tag = "2")]
    left_out: u64,
}

impl StoredPattern {
    pub(super) fn subscription(&mut self) -> &mut SubscriptionDescription {
        &mut self.subscription
    }
}

/// Numbers end before the head's `next_dead_letter`, and ascend.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StoredDeadLetter {
    #[prost(message, required, tag = "1")]
    topic: TopicName,
    #[prost(message, required, tag = "2")]
    name: SubscriptionName,
    #[prost(uint64, tag = "15")]
    pub(super) subscription: u64,
    #[prost(uint64, tag = "3")]
    pub(super) incarnation: u64,
    #[prost(uint32, tag = "4")]
    partition: u32,
    #[prost(uint64, tag = "5")]
    offset: u64,
    #[prost(uint64, tag = "6")]
    base_offset: u64,
    #[prost(uint32, tag = "7")]
    count: u32,
    #[prost(uint32, tag = "8")]
    len: u32,
    #[prost(uint64, tag = "9")]
    ts: u64,
    #[prost(uint64, tag = "10")]
    index: u64,
    #[prost(uint32, tag = "11")]
    pos: u32,
    #[prost(uint32, tag = "12")]
    attempts: u32,
    #[prost(string, tag = "13")]
    reason: String,
    #[prost(string, tag = "14")]
    source_topic: String,
    #[prost(uint64, optional, tag = "16")]
    pack: Option<u64>,
    /// None in formats below 6: they follow each other up to the next.
    #[prost(uint64, optional, tag = "17")]
    seq: Option<u64>,
}

impl ShardState {
    pub(super) fn restore_subscriptions(
        &mut self,
        subscriptions: Vec<SubscriptionDescription>,
    ) -> Result<(), SnapshotError> {
        self.subscriptions = Subscriptions::restored(subscriptions)
            .ok_or_else(|| wrong("two subscriptions share a name or life"))?;
        Ok(())
    }

    /// After its partition.
    pub(super) fn restore_part(&mut self, stored: StoredPart) -> Result<(), SnapshotError> {
        let key = part_key(&stored.part);
        let partition =
            self.partitions.get(&key.1).ok_or_else(|| wrong(format!("part {key:?} has no partition")))?;
        let bounds = partition.start..partition.end;
        let held = held(stored, bounds).map_err(|error| wrong(format!("part {key:?}: {error}")))?;
        if self.parts.open(key, held) { Ok(()) } else { Err(wrong(format!("part {key:?} is there twice"))) }
    }

    pub(super) fn restore_dead_letters(
        &mut self,
        head: &Head,
        letters: Vec<StoredDeadLetter>,
    ) -> Result<(), SnapshotError> {
        let numbered = || wrong("dead letters are not numbered up to the next");
        let first = head.next_dead_letter.checked_sub(letters.len() as u64).ok_or_else(numbered)?;
        let letters =
            (first..).zip(letters).map(|(seq, stored)| restored_letter(stored.seq.unwrap_or(seq), stored));
        let letters = DeadLetters::restored(head.next_dead_letter, letters).ok_or_else(numbered)?;
        self.dead_letters = Arc::new(letters);
        Ok(())
    }

    /// After topics and parts.
    pub(super) fn restore_patterns(&mut self, stored: Vec<StoredPattern>) -> Result<(), SnapshotError> {
        for StoredPattern { subscription, left_out } in stored {
            let life = Incarnation(subscription.id);
            let keys = self.matching(&subscription);
            let parts = keys.iter().filter(|key| self.parts.get(&(life, **key)).is_some()).count();
            if !Arc::make_mut(&mut self.patterns).restore(subscription, parts, left_out) {
                return Err(SnapshotError::Contradiction(format!("the pattern of {life} is there twice")));
            }
        }
        Ok(())
    }
}

fn wrong(what: impl Into<String>) -> SnapshotError {
    SnapshotError::Contradiction(what.into())
}

fn held(stored: StoredPart, bounds: Range<Offset>) -> Result<HeldPart, PartError> {
    Ok(HeldPart {
        opened: LogIndex(0),
        name: Arc::new(stored.name),
        config: Arc::new(stored.config),
        version: stored.version,
        part: Part::decode(&stored.state, bounds)?,
    })
}

pub(super) fn part((subscription, (incarnation, partition)): PartKey, held: &HeldPart) -> StoredPart {
    StoredPart {
        part: PartRef { subscription: subscription.0, incarnation: incarnation.0, partition: partition.0 },
        name: (*held.name).clone(),
        config: (*held.config).clone(),
        version: held.version,
        state: held.part.encode().into(),
    }
}

pub(super) fn pattern(pattern: &Pattern) -> StoredPattern {
    StoredPattern { subscription: (*pattern.subscription).clone(), left_out: pattern.left_out }
}

pub(super) fn dead_letter(letter: &DeadLetter) -> StoredDeadLetter {
    StoredDeadLetter {
        topic: letter.topic.clone(),
        subscription: letter.subscription.0,
        name: (*letter.name).clone(),
        incarnation: letter.from.0.0,
        partition: letter.from.1.0,
        offset: letter.offset.0,
        base_offset: letter.batch.base_offset.0,
        count: letter.batch.count,
        len: letter.batch.len,
        ts: letter.batch.ts.0,
        index: letter.batch.index.0,
        pos: letter.batch.pos,
        attempts: letter.attempts,
        reason: letter.reason.clone(),
        source_topic: letter.source_topic.clone(),
        pack: letter.pack,
        seq: Some(letter.seq),
    }
}

fn restored_letter(seq: u64, stored: StoredDeadLetter) -> DeadLetter {
    DeadLetter {
        seq,
        topic: stored.topic,
        source_topic: stored.source_topic,
        subscription: Incarnation(stored.subscription),
        name: Arc::new(stored.name),
        from: (Incarnation(stored.incarnation), PartitionId(stored.partition)),
        offset: Offset(stored.offset),
        batch: BatchRow {
            base_offset: Offset(stored.base_offset),
            count: stored.count,
            len: stored.len,
            ts: TimestampMs(stored.ts),
            index: LogIndex(stored.index),
            pos: stored.pos,
        },
        pack: stored.pack,
        attempts: stored.attempts,
        reason: stored.reason,
    }
}
