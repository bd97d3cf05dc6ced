//! Records that were given up, on their way to their topic.

use std::collections::{BTreeSet, VecDeque};
use std::sync::Arc;

use weir_protocol::ids::{Incarnation, LogIndex, Offset};
use weir_protocol::rpc::{SubscriptionName, TopicName};

use super::dedupe::PartitionKey;
use super::packs::PackNo;
use super::rows::BatchRow;

/// Dead letters of one shard that may be on their way; with more, no further record is given up.
pub(super) const DEAD_LETTERS_MAX: usize = 100_000;

/// A record on its way to a dead-letter topic. Its bytes stay in the log, or in their pack, until it has arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct DeadLetter {
    /// Dense per shard, from 0: what makes sending it twice harmless.
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
    /// The pack that holds it, if one did when it was given up: its entry need not stay.
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
    pub(super) next: u64,
    pub(super) letters: VecDeque<DeadLetter>,
    /// Entries that hold those that are in no pack; follows from the letters.
    pins: BTreeSet<(LogIndex, u64)>,
}

impl DeadLetters {
    /// Those of a checkpoint, whose numbers end before `next`; `None` if there are more than were numbered.
    pub(super) fn restored(next: u64, letters: Vec<DeadLetter>) -> Option<Self> {
        let first = next.checked_sub(letters.len() as u64)?;
        let mut restored = Self { next: first, ..Self::default() };
        letters.into_iter().for_each(|letter| restored.push(letter));
        Some(restored)
    }

    /// Adds one; its number is given here.
    pub(super) fn push(&mut self, letter: DeadLetter) {
        if letter.pack.is_none() {
            self.pins.insert((letter.batch.index, self.next));
        }
        self.letters.push_back(DeadLetter { seq: self.next, ..letter });
        self.next += 1;
    }

    /// Takes out those below `upto`, which have arrived.
    pub(super) fn buried(&mut self, upto: u64) -> Vec<DeadLetter> {
        let mut arrived = Vec::new();
        while let Some(letter) = self.letters.pop_front_if(|letter| letter.seq < upto) {
            self.pins.remove(&(letter.batch.index, letter.seq));
            arrived.push(letter);
        }
        arrived
    }

    /// The oldest entry that holds one.
    pub(super) fn needed_from(&self) -> Option<LogIndex> {
        self.pins.first().map(|(index, _)| *index)
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

    /// The oldest, at most `most`.
    #[must_use]
    pub fn oldest(&self, most: usize) -> Vec<DeadLetter> {
        self.letters.iter().take(most).cloned().collect()
    }
}
