//! How far a subscription may go.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_protocol::rpc::Credit;

use super::event::PartitionOf;

/// Raises a subscription's limit from anywhere. Clones share it.
#[derive(Debug, Clone)]
pub struct SubscriptionCredit(pub(super) Arc<CreditCell>);

impl SubscriptionCredit {
    /// Raises the limit to these absolute totals; lower or repeated values change nothing.
    pub fn raise(&self, limit: Credit) {
        self.0.raise(limit);
    }

    /// True while a grant waits for the gateway's budget.
    #[must_use]
    pub fn is_throttled(&self) -> bool {
        self.0.is_throttled()
    }
}

/// A limit and who waits for it. For one waiter.
#[derive(Debug, Default)]
pub(super) struct CreditCell {
    limit: Mutex<Credit>,
    raised: Notify,
    is_throttled: AtomicBool,
    /// The same of the feeds that are taken from: they say so themselves.
    feeds: Mutex<Vec<(PartitionOf, Arc<AtomicBool>)>>,
}

impl CreditCell {
    pub(super) fn raise(&self, limit: Credit) {
        {
            let mut now = self.limit.lock();
            let raised =
                Credit { records: now.records.max(limit.records), bytes: now.bytes.max(limit.bytes) };
            if raised == *now {
                return;
            }
            *now = raised;
        }
        self.raised.notify_one();
    }

    /// Sets the limit, which may be lower than it was: what is not asked for yet.
    pub(super) fn set(&self, limit: Credit) {
        if std::mem::replace(&mut *self.limit.lock(), limit) != limit {
            self.raised.notify_one();
        }
    }

    pub(super) fn latest(&self) -> Credit {
        *self.limit.lock()
    }

    /// Waits until the limit is another than `seen`. Cancel safe.
    pub(super) async fn changed(&self, seen: Credit) {
        while self.latest() == seen {
            self.raised.notified().await;
        }
    }

    fn is_throttled(&self) -> bool {
        let is_set = |flag: &AtomicBool| flag.load(Ordering::Relaxed);
        is_set(&self.is_throttled) || self.feeds.lock().iter().any(|(_, feed)| is_set(feed))
    }

    /// The feed that a partition is taken from now.
    pub(super) fn set_feed(&self, of: PartitionOf, feed: Option<&Arc<AtomicBool>>) {
        let mut feeds = self.feeds.lock();
        feeds.retain(|known| known.0 != of);
        feeds.extend(feed.map(|feed| (of, Arc::clone(feed))));
    }

    pub(super) fn set_throttled(&self, is_throttled: bool) {
        self.is_throttled.store(is_throttled, Ordering::Relaxed);
    }
}
