//! What a shard has to tell other shards, and what it was told: each thing once and in order.
//!
//! ```text
//!   source shard                                   target shard
//!   lane: next number, rows not yet taken ──────▶  next number expected
//!         rows are deleted once the target has committed them
//! ```
//!
//! Numbers are dense per (source, target) and given in apply, so a row that is sent twice is recognised and one that
//! is missing is noticed.

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;

use weir_protocol::ids::{Incarnation, ShardId};
use weir_protocol::rpc::{SubscriptionDescription, TopicDescription};

use super::super::command::{Change, TellSubscription, TellTopic};

/// Rows of one shard that wait to be taken; further changes that need one are refused.
pub const OUTBOX_ROWS_MAX: usize = 10_000;

/// A row: something that the target holds parts of, as it is now.
#[derive(Debug, Clone, PartialEq)]
pub struct OutboxRow {
    /// Number within its lane.
    pub seq: u64,
    /// What is told.
    pub news: News,
    /// It was deleted.
    pub is_deleted: bool,
}

/// What one shard tells another.
#[derive(Debug, Clone, PartialEq)]
pub enum News {
    /// A topic.
    Topic(Arc<TopicDescription>),
    /// A subscription.
    Subscription(Arc<SubscriptionDescription>),
}

impl News {
    /// The life of what it speaks of.
    fn life(&self) -> Incarnation {
        match self {
            Self::Topic(topic) => Incarnation(topic.incarnation),
            Self::Subscription(subscription) => Incarnation(subscription.id),
        }
    }

    /// The shards that have to know of it.
    pub(super) fn shards(&self) -> impl Iterator<Item = u32> {
        let (first, more) = match self {
            Self::Topic(topic) => (&topic.shards, &[][..]),
            Self::Subscription(subscription) => (&subscription.shards, &subscription.more[..]),
        };
        first.iter().chain(more.iter().flat_map(|topic| &topic.shards)).copied()
    }
}

impl OutboxRow {
    /// The command for the target.
    #[must_use]
    pub fn command(&self, source: ShardId) -> Change {
        let (source, seq, is_deleted) = (source.0, self.seq, self.is_deleted);
        match &self.news {
            News::Topic(topic) => {
                Change::TellTopic(TellTopic { source, seq, topic: (**topic).clone(), is_deleted })
            }
            News::Subscription(subscription) => {
                let subscription = (**subscription).clone();
                Change::TellSubscription(TellSubscription { source, seq, subscription, is_deleted })
            }
        }
    }
}

/// Rows for one target.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Lane {
    /// Number of the next row.
    pub(super) next: u64,
    /// Rows that were not taken yet, the oldest first, without holes.
    pub(super) rows: VecDeque<OutboxRow>,
}

/// What waits to be told.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outbox {
    pub(super) lanes: BTreeMap<ShardId, Lane>,
}

impl Outbox {
    /// Adds a row for every shard that has to know but `home`.
    pub(super) fn tell(&mut self, home: ShardId, news: &News, is_deleted: bool) {
        let mut targets: Vec<u32> = news.shards().collect();
        targets.sort_unstable();
        targets.dedup();
        targets.retain(|target| *target != home.0);
        for target in &targets {
            let lane = self.lanes.entry(ShardId(*target)).or_default();
            lane.rows.push_back(OutboxRow { seq: lane.next, news: news.clone(), is_deleted });
            lane.next += 1;
        }
    }

    /// The target has committed everything below `upto`.
    pub(super) fn taken(&mut self, target: ShardId, upto: u64) {
        if let Some(lane) = self.lanes.get_mut(&target) {
            while lane.rows.front().is_some_and(|row| row.seq < upto) {
                lane.rows.pop_front();
            }
        }
    }

    /// Number of rows.
    #[must_use]
    pub fn count(&self) -> usize {
        self.lanes.values().map(|lane| lane.rows.len()).sum()
    }

    /// Targets that something waits for.
    #[must_use]
    pub fn waiting(&self) -> Vec<ShardId> {
        let waiting = self.lanes.iter().filter(|(_, lane)| !lane.rows.is_empty());
        waiting.map(|(target, _)| *target).collect()
    }

    /// The oldest rows for a target, at most `most`.
    #[must_use]
    pub fn rows(&self, target: ShardId, most: usize) -> Vec<OutboxRow> {
        self.lanes.get(&target).map_or_else(Vec::new, |lane| lane.rows.iter().take(most).cloned().collect())
    }

    /// True while some shard has not taken what there is to say of this topic or subscription.
    #[must_use]
    pub fn speaks_of(&self, life: Incarnation) -> bool {
        self.lanes.values().any(|lane| lane.rows.iter().any(|row| row.news.life() == life))
    }
}

/// What was heard of one source.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Source {
    /// Number of the next row.
    pub(super) next: u64,
    /// Newest topic of it that this shard was told of. Its incarnations come in order, so an older one that is not
    /// known here is gone, and a newer one is on its way.
    pub(super) newest: Incarnation,
}

/// What becomes of a row.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Heard {
    /// It is the next one.
    Now,
    /// It was heard before.
    Before,
    /// Others come before it, from this number on.
    TooEarly(u64),
}

/// What was told by other shards.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Inbox {
    pub(super) sources: BTreeMap<ShardId, Source>,
}

impl Inbox {
    /// Takes a row's number; `life` is the topic's, if it speaks of one.
    pub(super) fn hear(&mut self, source: ShardId, seq: u64, life: Option<Incarnation>) -> Heard {
        let known = self.sources.entry(source).or_default();
        match seq.cmp(&known.next) {
            std::cmp::Ordering::Less => Heard::Before,
            std::cmp::Ordering::Greater => Heard::TooEarly(known.next),
            std::cmp::Ordering::Equal => {
                known.next += 1;
                known.newest = known.newest.max(life.unwrap_or(known.newest));
                Heard::Now
            }
        }
    }

    /// True if the home of a topic that is not known here may still have to tell of it.
    pub(super) fn may_come(&self, life: Incarnation) -> bool {
        self.sources.get(&life.home()).is_none_or(|source| source.newest < life)
    }
}
