//! Records that were given up, on their way to their topic.
//!
//! Each has a number of its own, and each topic's are taken out in any order: what cannot get to its topic
//! keeps nobody waiting who has another.

use std::collections::{BTreeMap, BTreeSet};
use std::ops::{Range, RangeBounds};
use std::sync::Arc;

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, LogIndex, Offset};
use weir_protocol::limits::SETTLE_ITEMS_MAX;
use weir_protocol::rpc::{Refusal, SubscriptionName, TopicName};

use super::super::command::Buried;
use super::apply::{Applied, ShardState};
use super::dedupe::PartitionKey;
use super::packs::{PackNo, Released};
use super::partition::Partition;
use super::parts::PartKey;
use super::rows::BatchRow;
use crate::subscription::EXPIRED_MAX;

/// Dead letters of one shard that may be on their way; with more, no further record is given up.
pub const DEAD_LETTERS_MAX: usize = 100_000;

const _: () = assert!(
    2 * SETTLE_ITEMS_MAX <= DEAD_LETTERS_MAX && 2 * EXPIRED_MAX <= DEAD_LETTERS_MAX,
    "what one event gives up always has room where nothing is on its way: each topic leaves as much free as it has"
);

/// When to ask again while too many are.
const RETRY_AFTER_MS: u64 = 1_000;
/// State version of the first entries that know each letter by itself. Under those before, all of a shard
/// arrive in one order, and pin the log until they have.
pub(super) const EACH_BY_ITSELF: u16 = 6;

/// A record on its way to a dead-letter topic. Its bytes stay in the log, or in their pack, until it has arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetter {
    /// Unlike any other's of the shard, and higher than those of all letters before it: what makes sending it
    /// twice harmless.
    pub seq: u64,
    /// Where it goes.
    pub topic: TopicName,
    /// Name of the topic that it comes from.
    pub source_topic: String,
    /// Life of the subscription that gave it up.
    pub subscription: Incarnation,
    /// Its name.
    pub name: Arc<SubscriptionName>,
    /// Its partition.
    pub from: PartitionKey,
    /// Its offset there.
    pub offset: Offset,
    /// The batch that holds it.
    pub batch: BatchRow,
    /// The pack that holds it, if one does: its entry need not stay.
    pub pack: Option<PackNo>,
    /// Deliveries.
    pub attempts: u32,
    /// Why.
    pub reason: String,
}

/// Dead letters in the order in which they were given up.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct DeadLetters {
    /// Number of the next.
    next: u64,
    /// By number.
    letters: BTreeMap<u64, Arc<DeadLetter>>,
    /// Numbers of those that go to a topic; follows from the letters.
    lanes: BTreeMap<TopicName, BTreeSet<u64>>,
    /// Entries that hold those that are in no pack; follows from the letters.
    pins: BTreeSet<(LogIndex, u64)>,
    /// The same by the place of their records; follows from the letters.
    unpacked: BTreeSet<(PartitionKey, Offset, u64)>,
}

impl DeadLetters {
    /// Those of a checkpoint, whose numbers end before `next`; `None` if the numbers do not ascend to there.
    pub(super) fn restored(next: u64, letters: impl IntoIterator<Item = DeadLetter>) -> Option<Self> {
        let mut restored = Self::default();
        for letter in letters {
            if letter.seq < restored.next || letter.seq >= next {
                return None;
            }
            restored.next = letter.seq + 1;
            restored.insert(letter);
        }
        restored.next = next;
        Some(restored)
    }

    /// Adds one; its number is given here.
    pub(super) fn push(&mut self, letter: DeadLetter) {
        let seq = self.next;
        self.next += 1;
        self.insert(DeadLetter { seq, ..letter });
    }

    fn insert(&mut self, letter: DeadLetter) {
        let seq = letter.seq;
        if letter.pack.is_none() {
            self.pins.insert((letter.batch.index, seq));
            self.unpacked.insert((letter.from, letter.offset, seq));
        }
        self.lanes.entry(letter.topic.clone()).or_default().insert(seq);
        self.letters.insert(seq, Arc::new(letter));
    }

    /// Takes one out.
    pub(super) fn take(&mut self, seq: u64) -> Option<Arc<DeadLetter>> {
        let letter = self.letters.remove(&seq)?;
        self.pins.remove(&(letter.batch.index, seq));
        self.unpacked.remove(&(letter.from, letter.offset, seq));
        let lane = self.lanes.get_mut(&letter.topic).expect("its topic has a lane");
        lane.remove(&seq);
        if lane.is_empty() {
            self.lanes.remove(&letter.topic);
        }
        Some(letter)
    }

    /// A pack has taken these records: how many letters refer to it from now on.
    pub(super) fn packed(&mut self, key: PartitionKey, records: Range<Offset>, pack: PackNo) -> usize {
        let moved = self.unpacked.range((key, records.start, 0)..(key, records.end, 0));
        let moved: Vec<_> = moved.copied().collect();
        for place in &moved {
            let seq = place.2;
            let letter = self.letters.get_mut(&seq).expect("only letters have places");
            Arc::make_mut(letter).pack = Some(pack);
            self.pins.remove(&(letter.batch.index, seq));
            self.unpacked.remove(place);
        }
        moved.len()
    }

    /// The first record from `start` on that is on its way and in no pack.
    pub(super) fn first_unpacked(&self, key: PartitionKey, start: Offset) -> Option<Offset> {
        let mut places = self.unpacked.range((key, start, 0)..);
        places.next().filter(|(of, ..)| *of == key).map(|(_, offset, _)| *offset)
    }

    /// The oldest entry that holds one.
    pub(super) fn needed_from(&self) -> Option<LogIndex> {
        self.pins.first().map(|(index, _)| *index)
    }

    /// Batches in entries of `range` that hold one that is in no pack.
    pub(super) fn in_log(&self, range: Range<LogIndex>) -> impl Iterator<Item = BatchRow> {
        let pins = self.pins.range((range.start, 0)..(range.end, 0));
        pins.map(|(_, seq)| self.letters[seq].batch)
    }

    /// The topic that the one in the oldest entry goes to.
    fn pinned_for(&self) -> Option<&TopicName> {
        self.pins.first().map(|(_, seq)| &self.letters[seq].topic)
    }

    /// Refuses so many more for a topic that fewer would be free than it has: where nothing arrives, what is
    /// left goes in even shares to the topics that it happens to, and one more.
    pub(super) fn has_room(&self, topic: &TopicName, more: usize) -> Result<(), Refusal> {
        let own = self.lanes.get(topic).map_or(0, BTreeSet::len);
        if own + more + self.len() + more <= DEAD_LETTERS_MAX {
            return Ok(());
        }
        let all = self.len();
        let detail = format!(
            "{own} dead letters have not reached their topic {}, of {all} in the shard; see whether the topic exists and is open",
            topic.topic
        );
        Err(Refusal { retry_after_ms: Some(RETRY_AFTER_MS), ..Refusal::new(ErrorCode::Busy, detail) })
    }

    /// Number of the next.
    pub(super) fn next(&self) -> u64 {
        self.next
    }

    /// All of them, the oldest first.
    pub(super) fn iter(&self) -> impl Iterator<Item = &DeadLetter> {
        self.letters.values().map(|letter| &**letter)
    }

    /// How many are on their way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.letters.len()
    }

    /// True if none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.letters.is_empty()
    }

    /// The topics that some are on their way to.
    #[must_use]
    pub fn waiting(&self) -> Vec<TopicName> {
        self.lanes.keys().cloned().collect()
    }

    /// The oldest that go to a topic, of those with numbers in `from`.
    pub fn oldest(
        &self,
        topic: &TopicName,
        from: impl RangeBounds<u64>,
    ) -> impl Iterator<Item = &Arc<DeadLetter>> {
        let lane = self.lanes.get(topic).map(|lane| lane.range(from));
        lane.into_iter().flatten().map(|seq| &self.letters[seq])
    }

    /// Checks that what follows from the letters does.
    ///
    /// # Panics
    /// If it does not.
    pub(super) fn check(&self) {
        let letters = self.iter().cloned();
        let again = Self::restored(self.next, letters).expect("numbers ascend to the next");
        assert_eq!(*self, again, "lanes and pins follow from the letters");
    }
}

impl ShardState {
    /// The topic whose dead letters alone keep the oldest entry that is needed, if any do.
    #[must_use]
    pub fn pinned_for_letters(&self) -> Option<&TopicName> {
        let letters = self.dead_letters.needed_from()?;
        let others = self.floors.pins().find(|(_, key)| !self.waits_for_letters(*key));
        let mut others = others.map(|(index, _)| index).into_iter().chain(self.outputs.needed_from());
        self.dead_letters.pinned_for().filter(|_| others.all(|index| letters < index))
    }

    /// Whether a partition keeps its oldest records for letters alone: everybody has settled them, and they would go.
    fn waits_for_letters(&self, key: PartitionKey) -> bool {
        let is_asked = |partition: &&Arc<Partition>| partition.config.retention_until_settled;
        let Some(partition) = self.partitions.get(&key).filter(is_asked) else { return false };
        let settled = self.parts.lowest_floor(key).and_then(|floor| partition.whole_batches_below(floor));
        let letter = self.dead_letters.first_unpacked(key, partition.start);
        letter.zip(settled).is_some_and(|(letter, settled)| letter < settled)
    }

    /// Whether so many more records of a part may be given up.
    ///
    /// # Errors
    /// `busy`.
    pub(super) fn has_letter_room(&self, version: u16, key: PartKey, more: usize) -> Result<(), Refusal> {
        if version >= EACH_BY_ITSELF {
            let topic = self.parts.get(&key).and_then(|held| held.letters_to());
            return topic.map_or(Ok(()), |topic| self.dead_letters.has_room(&topic, more));
        }
        let on_their_way = self.dead_letters.len();
        if on_their_way + more <= DEAD_LETTERS_MAX {
            return Ok(());
        }
        let detail = format!("{on_their_way} dead letters have not reached their topic");
        Err(Refusal { retry_after_ms: Some(RETRY_AFTER_MS), ..Refusal::new(ErrorCode::Busy, detail) })
    }

    /// A pack has taken these records: the log need not keep them for letters any longer.
    pub(super) fn pack_letters(
        &mut self,
        key: PartitionKey,
        records: Range<Offset>,
        pack: PackNo,
        applied: &mut Applied,
    ) {
        if applied.version < EACH_BY_ITSELF || self.dead_letters.is_empty() {
            return;
        }
        let moved = Arc::make_mut(&mut self.dead_letters).packed(key, records, pack);
        (0..moved).for_each(|_| Arc::make_mut(&mut self.packs).refer(pack, 0));
        if moved > 0 {
            self.trim_settled(key, applied.version, &mut applied.touched);
        }
    }

    /// Dead letters have reached their topic, or cannot be read and stand behind the others from now on.
    pub(super) fn buried(&mut self, buried: &Buried, applied: &mut Applied) {
        applied.is_outbox_changed = true;
        let letters = Arc::make_mut(&mut self.dead_letters);
        let below: Vec<u64> = letters.letters.range(..buried.upto).map(|(seq, _)| *seq).collect();
        let gone = below.iter().chain(&buried.arrived);
        let gone: Vec<_> = gone.filter_map(|seq| letters.take(*seq)).collect();
        for letter in buried.unreadable.iter().filter_map(|seq| letters.take(*seq)).collect::<Vec<_>>() {
            letters.push(Arc::unwrap_or_clone(letter));
        }
        for letter in gone {
            let released = letter.pack.map(|pack| Released { pack, bytes: 0, is_whole: true });
            self.release_packs(released.as_slice());
            self.parts.change(&(letter.subscription, letter.from), |held| held.part.dead_forwarded(1));
            if applied.version >= EACH_BY_ITSELF {
                self.trim_settled(letter.from, applied.version, &mut applied.touched);
            }
        }
    }
}
