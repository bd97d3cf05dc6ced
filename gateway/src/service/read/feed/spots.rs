//! Which readers may share, and what all feeds of a gateway hold.

use std::collections::HashMap;
use std::sync::atomic::{AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Weak};

use parking_lot::Mutex;
use tokio::sync::Notify;
use weir_protocol::ids::{Incarnation, Offset, PartitionId};

use super::ring::End;
use super::shared::{Feed, Inner, Tap};
use super::task::Source;
use crate::service::read::budget::{Budget, Share};
use crate::service::read::config::ReadConfig;
use crate::service::read::stream::NodeStream;
use crate::service::read::texts::TextBudget;

/// Readers of one partition from which on they share: a feed for one of them would be a hop more for each
/// batch, and save nothing.
const READERS_MIN: usize = 2;

/// A life of a topic, and one of its partitions: what names the same records for all time.
type Key = (Incarnation, PartitionId);

/// How feeds stand, and counts since the start.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct FeedMetrics {
    /// Feeds that run.
    pub feeds: u64,
    /// Readers that take from them now.
    pub readers: u64,
    /// Bytes they hold.
    pub bytes: u64,
    /// Bytes beyond which they hold nothing that somebody has taken.
    pub bytes_max: u64,
    /// Bytes of texts that they hold for readers who want them as JSON, and beyond which each reader makes its own.
    pub text_bytes: (u64, u64),
    /// Batches of records that came to them.
    pub batches: u64,
    /// How often a reader went over to one.
    pub joined: u64,
    /// How often a reader was too slow, and went on by a stream of its own.
    pub fell_behind: u64,
}

/// All feeds of a gateway. Clones share them.
#[derive(Debug, Clone)]
pub(in crate::service::read) struct Feeds {
    spots: Arc<Mutex<HashMap<Key, Weak<Spot>>>>,
    budget: Arc<Budget>,
    pool: Arc<Pool>,
}

impl Feeds {
    pub(in crate::service::read) fn new(budget: Arc<Budget>, config: &ReadConfig) -> Self {
        Self { spots: Arc::default(), budget, pool: Arc::new(Pool::new(config)) }
    }

    /// How they stand.
    pub(in crate::service::read) fn metrics(&self) -> FeedMetrics {
        let now = |count: &AtomicU64| count.load(Ordering::Relaxed);
        let pool = &self.pool;
        FeedMetrics {
            feeds: now(&pool.feeds),
            readers: now(&pool.readers),
            bytes: now(&pool.bytes),
            bytes_max: pool.bytes_max,
            text_bytes: pool.texts.state(),
            batches: now(&pool.batches),
            joined: now(&pool.joined),
            fell_behind: now(&pool.fell_behind),
        }
    }

    /// A seat for a reader that may share, taken until it is dropped.
    pub(in crate::service::read) fn seat(&self, incarnation: Incarnation, partition: PartitionId) -> Seat {
        let key = (incarnation, partition);
        let mut spots = self.spots.lock();
        let spot = spots.get(&key).and_then(Weak::upgrade).unwrap_or_else(|| {
            let spot = Arc::new(Spot {
                key,
                feeds: self.clone(),
                readers: AtomicUsize::new(0),
                shared: Notify::new(),
                feed: Mutex::default(),
            });
            spots.insert(key, Arc::downgrade(&spot));
            spot
        });
        drop(spots);
        if spot.readers.fetch_add(1, Ordering::AcqRel) + 1 == READERS_MIN {
            spot.shared.notify_waiters();
        }
        Seat { spot }
    }
}

/// Where readers of one partition meet.
#[derive(Debug)]
struct Spot {
    key: Key,
    feeds: Feeds,
    readers: AtomicUsize,
    /// There are enough readers to share.
    shared: Notify,
    /// Held by those who take from it.
    feed: Mutex<Weak<Feed>>,
}

impl Drop for Spot {
    fn drop(&mut self) {
        let mut spots = self.feeds.spots.lock();
        // Another reader may have come meanwhile, and found this one gone.
        if spots.get(&self.key).is_some_and(|spot| std::ptr::eq(spot.as_ptr(), self)) {
            spots.remove(&self.key);
        }
    }
}

/// A reader that may share.
#[derive(Debug)]
pub(in crate::service::read) struct Seat {
    spot: Arc<Spot>,
}

impl Drop for Seat {
    fn drop(&mut self) {
        self.spot.readers.fetch_sub(1, Ordering::AcqRel);
    }
}

impl Seat {
    /// There are others to share with.
    pub(in crate::service::read) fn is_shared(&self) -> bool {
        self.spot.readers.load(Ordering::Acquire) >= READERS_MIN
    }

    /// Waits for others to share with. Cancel safe.
    pub(in crate::service::read) async fn shared(&self) {
        // Made before the look, and whoever comes counts before it notifies: nobody is missed.
        let shared = self.spot.shared.notified();
        if !self.is_shared() {
            shared.await;
        }
    }

    /// Goes over to the feed at `next`, of a reader that has everything before and was told that this was
    /// all. If there is none yet, one starts there, as `stream` does. `None` if it has moved on: with its
    /// next records the reader is nearer.
    pub(in crate::service::read) fn join(&self, next: Offset, stream: &NodeStream) -> Option<Tap> {
        let feeds = &self.spot.feeds;
        let feed = {
            let mut running = self.spot.feed.lock();
            match running.upgrade().filter(|feed| !feed.has_ended()) {
                Some(feed) => feed,
                None => {
                    let inner = Arc::new(Inner::new(next, Arc::clone(&feeds.pool)));
                    let share = Share::certain(Arc::clone(&feeds.budget));
                    let source = Source::new(Arc::clone(&inner), stream.from(next), share);
                    let task = tokio::spawn(source.run());
                    let feed = Arc::new(Feed::new(inner, task.abort_handle()));
                    *running = Arc::downgrade(&feed);
                    feed
                }
            }
        };
        Tap::new(feed, next, End::known(stream.is_closed()))
    }
}

/// What all feeds hold, and how they stand.
#[derive(Debug)]
pub(super) struct Pool {
    bytes_max: u64,
    ring_bytes_max: u64,
    bytes: AtomicU64,
    feeds: AtomicU64,
    readers: AtomicU64,
    batches: AtomicU64,
    joined: AtomicU64,
    fell_behind: AtomicU64,
    texts: Arc<TextBudget>,
}

impl Pool {
    pub(super) fn new(config: &ReadConfig) -> Self {
        Self {
            bytes_max: config.feed_bytes_max,
            ring_bytes_max: config.ring_bytes_max,
            bytes: AtomicU64::new(0),
            feeds: AtomicU64::new(0),
            readers: AtomicU64::new(0),
            batches: AtomicU64::new(0),
            joined: AtomicU64::new(0),
            fell_behind: AtomicU64::new(0),
            texts: Arc::new(TextBudget::new(config.feed_bytes_max)),
        }
    }

    /// What texts of their records may take beside them.
    pub(super) fn texts(&self) -> &Arc<TextBudget> {
        &self.texts
    }

    /// What one feed may hold, with as many of them as there are now: half of an equal share, because those
    /// who came when there were fewer hold more until their next batch.
    pub(super) fn window(&self) -> u64 {
        let feeds = self.feeds.load(Ordering::Relaxed).max(1);
        (self.bytes_max / (2 * feeds)).min(self.ring_bytes_max)
    }

    /// A ring holds `now` bytes instead of `before`.
    pub(super) fn held(&self, before: u64, now: u64) {
        if now >= before {
            self.bytes.fetch_add(now - before, Ordering::Relaxed);
        } else {
            self.bytes.fetch_sub(before - now, Ordering::Relaxed);
        }
    }

    /// All together hold more than they may: history is let go.
    pub(super) fn is_full(&self) -> bool {
        self.bytes.load(Ordering::Relaxed) > self.bytes_max
    }

    pub(super) fn opened(&self) {
        self.feeds.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn closed(&self) {
        self.feeds.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn joined(&self) {
        self.joined.fetch_add(1, Ordering::Relaxed);
        self.readers.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn left(&self) {
        self.readers.fetch_sub(1, Ordering::Relaxed);
    }

    pub(super) fn came(&self) {
        self.batches.fetch_add(1, Ordering::Relaxed);
    }

    pub(super) fn fell_behind(&self) {
        self.fell_behind.fetch_add(1, Ordering::Relaxed);
    }
}
