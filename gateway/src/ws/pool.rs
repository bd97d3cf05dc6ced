//! What the publishing channels of a gateway may have under way together, and the share of each.

use std::ops::RangeInclusive;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Semaphore;

/// Largest window.
const WINDOW_MAX: u64 = 4 << 20;
/// Smallest window of one of few open channels, and of one of very many. The second is also what a full pool leaves.
const WINDOW_MIN: RangeInclusive<u64> = 16 << 10..=2 << 20;
/// A window of one message has so many bytes.
const BYTES_PER_MSG: u64 = 512;
/// An open channel is promised this part of what is not promised yet.
const PROMISED_PART: u64 = 8;

const _: () = assert!(*WINDOW_MIN.start() >= 16 * BYTES_PER_MSG, "three quarters of it are a batch");
const _: () = assert!(*WINDOW_MIN.end() <= WINDOW_MAX, "no window is always larger than the largest");

/// Sizes of windows, in encoded bytes of records.
#[derive(Debug, Clone)]
pub(super) struct Sizes {
    /// All windows of channels that send, together, before the smallest.
    pub(super) pool_max: u64,
    /// Smallest windows of all open channels, together, before the very smallest.
    pub(super) promised_max: u64,
    /// Smallest window of a channel: this is fixed when it is opened.
    pub(super) window_min: RangeInclusive<u64>,
    /// Largest window of a channel.
    pub(super) window_max: u64,
    /// A window has one message for so many bytes, at least 1.
    pub(super) bytes_per_msg: u64,
}

impl Sizes {
    /// For a publish budget of `budget` bytes: half of it is for windows, a quarter for promises to those who do not
    /// send just now. The rest is for what credit does not count: headers of batches, and publishes over HTTP.
    fn of_budget(budget: u64) -> Self {
        Self {
            pool_max: budget / 2,
            promised_max: budget / 4,
            window_min: WINDOW_MIN,
            window_max: WINDOW_MAX,
            bytes_per_msg: BYTES_PER_MSG,
        }
    }
}

/// ```text
///   counted  = Σ over channels that send: the larger of their window and what they may still have under way
///   promised = Σ over open channels: their smallest window
///   others   = counted, or all bytes under way in this gateway if they are more, without the channel's own
///   share    = ½ (pool_max − others)
///   window   = share, at most what the channel wants, at least its smallest
/// ```
/// A channel gets no more than half of what the others leave, so n that want more than there is come to one
/// (n + 1)-th of the pool each, in whatever order they came, and one that comes finds room at once. Nobody is
/// counted for being open: `counted ≤ pool_max + Σ smallest windows of those who send`, since what is above a
/// smallest window is given only while it fits.
#[derive(Debug)]
pub(crate) struct Pool {
    sizes: Sizes,
    /// Permits for the bytes of all publishes under way, over HTTP too, and how many there are.
    budget: (Arc<Semaphore>, u64),
    // Of all these only the numbers matter: no other memory is read by them, so no order is asked for.
    counted: AtomicU64,
    promised: AtomicU64,
    held_back: AtomicU64,
    halved: AtomicU64,
}

/// What the metrics say.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct PoolMetrics {
    /// Bytes that channels which send may have under way.
    pub(crate) counted: u64,
    /// Bytes of them before channels get their smallest windows.
    pub(crate) counted_max: u64,
    /// Times a channel wanted a larger window than its share.
    pub(crate) held_back: u64,
    /// Windows halved because storage was busy.
    pub(crate) halved: u64,
}

impl Pool {
    /// The pool of a gateway whose publishes take these permits, a byte each, and how many there are.
    pub(super) fn new(budget: (Arc<Semaphore>, u64)) -> Arc<Self> {
        Self::with_sizes(Sizes::of_budget(budget.1), budget)
    }

    /// With sizes of their own.
    pub(super) fn with_sizes(sizes: Sizes, budget: (Arc<Semaphore>, u64)) -> Arc<Self> {
        Arc::new(Self {
            sizes,
            budget,
            counted: AtomicU64::new(0),
            promised: AtomicU64::new(0),
            held_back: AtomicU64::new(0),
            halved: AtomicU64::new(0),
        })
    }

    /// A place for a channel that is opened; it counts nothing yet.
    pub(super) fn open(self: &Arc<Self>) -> Share {
        let (least, most) = (*self.sizes.window_min.start(), *self.sizes.window_min.end());
        let of = |promised: u64| {
            (self.sizes.promised_max.saturating_sub(promised) / PROMISED_PART).clamp(least, most)
        };
        let promise = |promised: u64| Some(promised + of(promised));
        let update = self.promised.fetch_update(Ordering::Relaxed, Ordering::Relaxed, promise);
        let (Ok(before) | Err(before)) = update;
        Share { pool: Arc::clone(self), window_min: of(before), counted: 0 }
    }

    /// What is held and was counted.
    pub(crate) fn metrics(&self) -> PoolMetrics {
        PoolMetrics {
            counted: self.counted.load(Ordering::Relaxed),
            counted_max: self.sizes.pool_max,
            held_back: self.held_back.load(Ordering::Relaxed),
            halved: self.halved.load(Ordering::Relaxed),
        }
    }

    /// Bytes of publishes under way, whoever sent them.
    fn used(&self) -> u64 {
        let (permits, all) = &self.budget;
        all.saturating_sub(permits.available_permits() as u64)
    }
}

/// A channel's place in the pool. Dropping it gives everything back.
#[derive(Debug)]
pub(super) struct Share {
    pool: Arc<Pool>,
    window_min: u64,
    counted: u64,
}

impl Share {
    /// Smallest window: the channel has it whatever others do.
    pub(super) fn window_min(&self) -> u64 {
        self.window_min
    }

    /// What the pool counts of it now.
    pub(super) fn counted(&self) -> u64 {
        self.counted
    }

    /// Largest window that any channel gets.
    pub(super) fn window_max(&self) -> u64 {
        self.pool.sizes.window_max
    }

    /// A window has one message for so many bytes.
    pub(super) fn bytes_per_msg(&self) -> u64 {
        self.pool.sizes.bytes_per_msg
    }

    /// The window of a channel that wants one of `wanted` bytes and may have `owed` under way already; at least its
    /// smallest. Takes no lock, and writes nothing if nothing changes.
    pub(super) fn take(&mut self, wanted: u64, owed: u64) -> u64 {
        let (pool, mine, window_min, used) = (&*self.pool, self.counted, self.window_min, self.pool.used());
        let window_of = |counted: u64| {
            // What is counted holds mine.
            let others = counted.max(used) - mine;
            let share = pool.sizes.pool_max.saturating_sub(others) / 2;
            wanted.min(share).max(window_min)
        };
        // Decided and counted in one step: two channels do not get the same room.
        let update = pool.counted.fetch_update(Ordering::Relaxed, Ordering::Relaxed, |counted| {
            let next = window_of(counted).max(owed);
            (next != mine).then(|| counted - mine + next)
        });
        let (Ok(before) | Err(before)) = update;
        let window = window_of(before);
        self.counted = window.max(owed);
        if window < wanted {
            pool.held_back.fetch_add(1, Ordering::Relaxed);
        }
        window
    }

    /// The channel's window is halved because storage was busy.
    pub(super) fn halved(&self) {
        self.pool.halved.fetch_add(1, Ordering::Relaxed);
    }

    /// The channel sends nothing for now: others may have what it had.
    pub(super) fn rest(&mut self) {
        self.pool.counted.fetch_sub(std::mem::take(&mut self.counted), Ordering::Relaxed);
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.rest();
        self.pool.promised.fetch_sub(self.window_min, Ordering::Relaxed);
    }
}
