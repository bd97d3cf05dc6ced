//! Positions on many partitions and topics as one opaque token.

use std::collections::BTreeMap;

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId, Term, TopicPath, hash128};
use weir_protocol::limits::{PARTITIONS_MAX, SSE_TOPICS_MAX};
use weir_protocol::rpc::Refusal;

use crate::service::ServiceError;
use crate::service::token::{TokenReader, TokenWriter};
use crate::storage::Topic;

const VERSION: u8 = 1;

/// Where a reader is. Topics are named by a hash of their path and by their incarnation, so that a recreated topic
/// is never mistaken for the old one.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Cursor {
    topics: BTreeMap<u32, TopicPositions>,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct TopicPositions {
    incarnation: Incarnation,
    partitions: BTreeMap<PartitionId, At>,
}

/// A position on one partition.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct At {
    /// Next offset to be read.
    pub(super) next: Offset,
    /// What was seen before it was committed.
    pub(super) early: Option<Early>,
}

/// Records that were seen before they were committed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Early {
    /// The term that they belong to, and may be lost with.
    pub term: Term,
    /// The first of them: everything below is committed.
    pub firm_end: Offset,
}

impl At {
    /// Behind records that are all committed.
    pub(super) fn new(next: Offset) -> Self {
        Self { next, early: None }
    }

    /// End of what was seen and is known to be committed.
    pub(super) fn firm_end(&self) -> Offset {
        self.early.map_or(self.next, |early| early.firm_end)
    }

    /// Records up to `end` were seen, with what was committed then and the term of the rest.
    pub(super) fn took(&mut self, end: Offset, committed_end: Offset, term: Term) {
        let firm_end = self.firm_end().max(committed_end.min(end));
        *self = Self { next: end, early: (firm_end < end).then_some(Early { term, firm_end }) };
    }

    /// What was seen below `upto` is committed.
    pub(super) fn firm(&mut self, upto: Offset) {
        if let Some(early) = &mut self.early {
            early.firm_end = early.firm_end.max(upto);
        }
        self.early = self.early.filter(|early| early.firm_end < self.next);
    }
}

/// Refuses another life of a topic than the one that there is.
pub(super) fn gone(topic: &Topic, detail: &str) -> ServiceError {
    let refusal = Refusal::new(ErrorCode::IncarnationGone, detail);
    Refusal { incarnation: Some(topic.incarnation.0), ..refusal }.into()
}

impl Cursor {
    /// Sets a position.
    pub(super) fn set(&mut self, topic: &Topic, partition: PartitionId, at: At) {
        let fresh = || TopicPositions { incarnation: topic.incarnation, partitions: BTreeMap::new() };
        let positions = self.topics.entry(name_hash(&topic.path)).or_insert_with(fresh);
        if positions.incarnation != topic.incarnation {
            *positions = fresh();
        }
        positions.partitions.insert(partition, at);
    }

    /// Moves to `next`; everything seen before is committed.
    pub fn advance(&mut self, topic: &Topic, partition: PartitionId, next: Offset) {
        self.set(topic, partition, At::new(next));
    }

    /// Moves behind a record that was seen when everything below `committed_end` was committed; `term` names the rest.
    pub fn took(
        &mut self,
        topic: &Topic,
        partition: PartitionId,
        next: Offset,
        (committed_end, term): (Offset, Term),
    ) {
        let mut at = self.known(topic, partition).unwrap_or(At::new(committed_end.min(next)));
        at.took(next, committed_end, term);
        self.set(topic, partition, at);
    }

    /// Everything committed below `end` is behind the reader: what came, and what a filter kept back.
    pub fn reached(&mut self, topic: &Topic, partition: PartitionId, end: Offset) {
        if self.known(topic, partition).is_none_or(|at| at.next < end) {
            self.advance(topic, partition, end);
        }
    }

    /// What was seen below `upto` is committed.
    pub fn firm(&mut self, topic: &Topic, partition: PartitionId, upto: Offset) {
        if let Some(mut at) = self.known(topic, partition) {
            at.firm(upto);
            self.set(topic, partition, at);
        }
    }

    /// It knows one partition of one topic, and nothing else.
    #[must_use]
    pub fn is_of_one(&self) -> bool {
        self.topics.len() == 1 && self.topics.values().all(|positions| positions.partitions.len() == 1)
    }

    /// Takes the positions of `other` for the topics that it knows.
    pub fn take(&mut self, other: Self) {
        self.topics.extend(other.topics);
    }

    /// A topic that does not exist yet is read from its first record on once it does: whichever life it then has, this
    /// is another.
    pub fn awaits(&mut self, path: &TopicPath) {
        let none = || TopicPositions { incarnation: Incarnation(0), partitions: BTreeMap::new() };
        self.topics.entry(name_hash(path)).or_insert_with(none);
    }

    /// Begins with a topic's first record if another life of it was known or it was awaited. True if another was
    /// known.
    pub fn renew(&mut self, topic: &Topic) -> bool {
        let known = self.topics.get(&name_hash(&topic.path)).map(|positions| positions.incarnation);
        let Some(known) = known.filter(|known| *known != topic.incarnation) else { return false };
        topic.partition_ids().for_each(|partition| self.advance(topic, partition, Offset(0)));
        known != Incarnation(0)
    }

    fn known(&self, topic: &Topic, partition: PartitionId) -> Option<At> {
        let positions = self.topics.get(&name_hash(&topic.path))?;
        positions.partitions.get(&partition).copied().filter(|_| positions.incarnation == topic.incarnation)
    }

    /// The position on a partition; `None` if the cursor does not know the topic or the partition.
    ///
    /// # Errors
    /// `incarnation_gone` if it is of another life of the topic.
    pub(super) fn at(&self, topic: &Topic, partition: PartitionId) -> Result<Option<At>, ServiceError> {
        let Some(positions) = self.topics.get(&name_hash(&topic.path)) else { return Ok(None) };
        if positions.incarnation != topic.incarnation {
            let detail = format!("the cursor is of another topic {} that was deleted", topic.path.topic);
            return Err(gone(topic, &detail));
        }
        Ok(positions.partitions.get(&partition).copied())
    }

    /// The token, without `cursor:`.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut writer = TokenWriter::new(VERSION);
        writer.number(self.topics.len() as u64);
        for (name, positions) in &self.topics {
            writer.number(u64::from(*name)).number(positions.incarnation.0);
            writer.number(positions.partitions.len() as u64);
            for (partition, at) in &positions.partitions {
                writer.number(u64::from(partition.0)).number(at.next.0);
                // Terms are positive, so zero says that all is committed.
                writer.number(at.early.map_or(0, |early| early.term.0));
                if let Some(early) = at.early {
                    writer.number(at.next.0 - early.firm_end.0);
                }
            }
        }
        writer.finish()
    }

    /// Reads a token, without `cursor:`.
    ///
    /// # Errors
    /// `invalid_cursor` for what no gateway wrote.
    pub fn decode(token: &str) -> Result<Self, ServiceError> {
        read(token)
            .ok_or_else(|| ServiceError::new(ErrorCode::InvalidCursor, "the cursor is none of this service"))
    }
}

fn read(token: &str) -> Option<Cursor> {
    let mut reader = TokenReader::new(VERSION, token)?;
    let mut cursor = Cursor::default();
    let topics = reader.number()?;
    if topics > SSE_TOPICS_MAX as u64 {
        return None;
    }
    for _ in 0..topics {
        let (name, incarnation) = (reader.small()?, Incarnation(reader.number()?));
        let count = reader.number()?;
        if count > u64::from(PARTITIONS_MAX) {
            return None;
        }
        let mut partitions = BTreeMap::new();
        for _ in 0..count {
            let partition = PartitionId(reader.small()?);
            let next = Offset(reader.number()?);
            let early = match reader.number()? {
                0 => None,
                term => {
                    let firm_end = Offset(next.0.checked_sub(reader.number()?)?);
                    Some(Early { term: Term(term), firm_end })
                }
            };
            partitions.insert(partition, At { next, early });
        }
        cursor.topics.insert(name, TopicPositions { incarnation, partitions });
    }
    reader.end()?;
    Some(cursor)
}

/// 32 bits of the path's hash: two topics of one cursor share it once in 10^5 cursors of 100 topics, and then their
/// incarnations differ, which is answered as gone, never as the wrong position.
fn name_hash(path: &TopicPath) -> u32 {
    let parts = [path.tenant.as_str(), path.namespace.as_str(), path.topic.as_str()].map(str::as_bytes);
    #[expect(clippy::cast_possible_truncation, reason = "the low quarter is what the token holds")]
    let low = hash128(&parts) as u32;
    low
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use proptest::prelude::*;
    use weir_protocol::ids::{ConfigVersion, Name, ShardId, TimestampMs};

    use super::*;

    fn topic(name: &str, incarnation: u64) -> Topic {
        Topic {
            path: TopicPath {
                tenant: Name::default_name(),
                namespace: Name::default_name(),
                topic: Name::new(name).unwrap(),
            },
            incarnation: Incarnation(incarnation),
            version: ConfigVersion(1),
            config: Arc::default(),
            shards: [ShardId(1)].into(),
            created: TimestampMs(0),
            producers_of: Incarnation(1),
        }
    }

    proptest! {
        #[test]
        fn every_position_comes_back(
            positions in proptest::collection::vec((0u64..5, 0u32..50, any::<u64>(), 0u64..4, any::<u64>()), 0..40),
        ) {
            let mut cursor = Cursor::default();
            for &(name, partition, next, term, firm_end) in &positions {
                let firm_end = Offset(firm_end.min(next));
                let early = (term > 0).then_some(Early { term: Term(term), firm_end });
                cursor.set(&topic(&format!("t{name}"), name + 1), PartitionId(partition), At { next: Offset(next), early });
            }
            prop_assert_eq!(Cursor::decode(&cursor.encode()).unwrap(), cursor);
        }
    }

    #[test]
    fn what_is_firm_grows_with_what_is_committed_and_the_rest_keeps_its_term() {
        let mut at = At::new(Offset(4));
        at.took(Offset(6), Offset(9), Term(2));
        assert_eq!(at, At::new(Offset(6)));
        at.took(Offset(9), Offset(7), Term(2));
        assert_eq!(at.early, Some(Early { term: Term(2), firm_end: Offset(7) }));
        at.took(Offset(10), Offset(0), Term(3));
        assert_eq!(at.early, Some(Early { term: Term(3), firm_end: Offset(7) }), "it never falls");
        at.firm(Offset(9));
        assert_eq!((at.next, at.firm_end()), (Offset(10), Offset(9)));
        at.firm(Offset(11));
        assert_eq!(at, At::new(Offset(10)));
    }

    #[test]
    fn a_cursor_of_a_deleted_topic_is_gone_and_of_an_unknown_one_says_nothing() {
        let mut cursor = Cursor::default();
        cursor.set(&topic("a", 1), PartitionId(0), At::new(Offset(9)));
        assert_eq!(cursor.at(&topic("a", 1), PartitionId(0)).unwrap().unwrap().next, Offset(9));
        assert_eq!(cursor.at(&topic("a", 1), PartitionId(1)).unwrap(), None);
        assert_eq!(cursor.at(&topic("b", 1), PartitionId(0)).unwrap(), None);
        let gone = cursor.at(&topic("a", 2), PartitionId(0)).unwrap_err();
        assert_eq!(gone.code(), ErrorCode::IncarnationGone);
        assert_eq!(gone.refusal().incarnation, Some(2));
    }

    #[test]
    fn a_topic_that_was_awaited_or_is_made_again_begins_with_its_first_record() {
        let mut cursor = Cursor::default();
        cursor.set(&topic("a", 1), PartitionId(0), At::new(Offset(9)));
        cursor.awaits(&topic("a", 1).path);
        cursor.awaits(&topic("b", 1).path);
        let mut cursor = Cursor::decode(&cursor.encode()).unwrap();
        assert!(!cursor.renew(&topic("a", 1)));
        assert_eq!(cursor.at(&topic("a", 1), PartitionId(0)).unwrap(), Some(At::new(Offset(9))));
        assert!(!cursor.renew(&topic("b", 7)), "there was none before");
        assert_eq!(cursor.at(&topic("b", 7), PartitionId(0)).unwrap(), Some(At::new(Offset(0))));
        assert!(!cursor.renew(&topic("c", 7)));
        assert_eq!(cursor.at(&topic("c", 7), PartitionId(0)).unwrap(), None, "nothing is known of it");
        assert!(cursor.renew(&topic("a", 2)));
        assert_eq!(cursor.at(&topic("a", 2), PartitionId(0)).unwrap(), Some(At::new(Offset(0))));
    }
}
