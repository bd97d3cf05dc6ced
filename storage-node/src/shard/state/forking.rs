//! Subscriptions that begin as another one stands, or stood: forks.
//!
//! ```text
//!   home shard of the fork: every part here can begin? ── no ─▶ refused, nothing happened
//!        │ yes: made, its parts here opened
//!        └ outbox ─▶ each other shard: every part here can begin? ── yes ─▶ all of them opened
//!                                                                 └─ no ──▶ none; Unforked
//!   home: Unforked comes with what says that the news was taken, in one entry ─▶ taken back: deleted everywhere
//! ```
//! A part is opened from its source's in the shard that holds both, and shares its bitmaps. The creation is answered
//! when nothing of it, or of its being taken back, is on its way any more: it is there as a whole, or not at all.

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, TimestampMs};
use weir_protocol::rpc::{ForkOrigin, Refusal, SubscriptionDescription};

use super::super::command::{CreateSubscription, DeleteSubscription};
use super::apply::{Applied, ShardState};
use super::dedupe::PartitionKey;
use super::subscriptions::described;
use crate::subscription::{Moment, Part};

/// Which moment of its source a fork begins as.
fn moment(origin: &ForkOrigin) -> Moment {
    match (origin.snapshot, origin.at_ms) {
        (0, None) => Moment::Now,
        (0, Some(at)) => Moment::At(TimestampMs(at)),
        (name, _) => Moment::Before(name),
    }
}

impl ShardState {
    /// Refuses what is a fork, not made yet, and cannot begin here.
    pub(super) fn check_fork(&self, create: &CreateSubscription) -> Result<(), Refusal> {
        let Some(origin) = &create.fork else { return Ok(()) };
        if self.subscriptions.describe(&create.name).is_ok() || self.has_origin(&described(create), origin) {
            return Ok(());
        }
        let what = format!(
            "at: not every partition of the subscription {} keeps what stood then; its latest four seeks are kept, and an hour",
            origin.subscription
        );
        Err(Refusal::new(ErrorCode::SnapshotGone, what))
    }

    /// Whether the parts of a subscription are here, or can be opened. `is_news`: they were not to be opened before.
    pub(super) fn can_begin(&self, subscription: &SubscriptionDescription, is_news: bool) -> bool {
        let Some(origin) = &subscription.fork else { return true };
        (is_news && self.has_origin(subscription, origin)) || self.has_begun(subscription)
    }

    /// Whether each of its parts here can begin as the origin's, which may have left some out itself.
    fn has_origin(&self, fork: &SubscriptionDescription, origin: &ForkOrigin) -> bool {
        let source = Incarnation(origin.id);
        if fork.config.prefix().is_some() && !self.patterns.lives.contains_key(&source) {
            return false;
        }
        self.partitions_of(fork).into_iter().filter(|key| self.partitions.get(key).is_some()).all(|key| {
            match self.parts.get(&(source, key)) {
                Some(_) => self.forked(key, origin).is_some(),
                None => fork.config.prefix().is_some(),
            }
        })
    }

    fn has_begun(&self, fork: &SubscriptionDescription) -> bool {
        let life = Incarnation(fork.id);
        if fork.config.prefix().is_some() {
            return self.patterns.lives.contains_key(&life);
        }
        // A partition whose topic was deleted took its parts with it.
        let has_part = |key| self.partitions.get(&key).is_none() || self.parts.get(&(life, key)).is_some();
        self.partitions_of(fork).into_iter().all(has_part)
    }

    /// What a part of a partition begins as; `None` if the origin has none, or not this any more.
    pub(super) fn forked(&self, key: PartitionKey, origin: &ForkOrigin) -> Option<Part> {
        let held = self.parts.get(&(Incarnation(origin.id), key))?;
        held.part.forked(moment(origin), self.partitions.get(&key)?.start, self.last_ts)
    }

    /// Forks that could not begin somewhere are deleted everywhere. However full the outbox is: they had room in it.
    pub(super) fn take_back(&mut self, lives: &[u64], applied: &mut Applied) {
        for life in lives {
            let Some(fork) = self.subscriptions.lives.get(&Incarnation(*life)) else { continue };
            let delete =
                DeleteSubscription { name: fork.name.clone(), expected_version: None, id: Some(*life) };
            if let Ok(fork) = self.subscriptions.delete(&delete) {
                self.close_everywhere(&fork, applied);
            }
        }
    }
}
