//! What all subscriptions of this gateway may be owed at once.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use tokio::sync::Notify;
use tokio::sync::futures::OwnedNotified;

use super::config::ReadConfig;

/// Bytes granted to storage nodes and not handed on yet, over all subscriptions. Never above its limit; what
/// a share has for certain is not of it.
#[derive(Debug)]
pub struct Budget {
    config: ReadConfig,
    granted: AtomicU64,
    members: AtomicU64,
    throttled: AtomicU64,
    freed: Arc<Notify>,
}

/// How the budget stands.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct BudgetMetrics {
    /// Bytes granted and not handed on.
    pub granted_bytes: u64,
    /// Their limit.
    pub granted_bytes_max: u64,
    /// Streams that may be owed something: from each a partition is followed or consumed.
    pub streams: u64,
    /// How often a grant had to wait.
    pub throttled: u64,
}

impl Budget {
    pub(super) fn new(config: ReadConfig) -> Self {
        Self {
            config,
            granted: AtomicU64::new(0),
            members: AtomicU64::new(0),
            throttled: AtomicU64::new(0),
            freed: Arc::default(),
        }
    }

    /// How it stands.
    #[must_use]
    pub fn metrics(&self) -> BudgetMetrics {
        BudgetMetrics {
            granted_bytes: self.granted.load(Ordering::Relaxed),
            granted_bytes_max: self.config.credit_bytes_max,
            streams: self.members.load(Ordering::Relaxed),
            throttled: self.throttled.load(Ordering::Relaxed),
        }
    }

    /// What one stream may be owed, with as many of them as there are now. An eighth of an equal share, because
    /// those who came when there were fewer hold more.
    fn window(&self) -> u64 {
        let members = self.members.load(Ordering::Relaxed).max(1);
        let (min, max) = (self.config.window_bytes_min, self.config.window_bytes_max);
        (self.config.credit_bytes_max / (8 * members)).clamp(min.min(max), max)
    }

    /// Takes up to `wanted`; returns what it got.
    fn reserve(&self, wanted: u64) -> u64 {
        let mut granted = self.granted.load(Ordering::Relaxed);
        loop {
            let got = wanted.min(self.config.credit_bytes_max.saturating_sub(granted));
            let exchanged = self.granted.compare_exchange_weak(
                granted,
                granted + got,
                Ordering::Relaxed,
                Ordering::Relaxed,
            );
            match exchanged {
                Ok(_) => return got,
                Err(now) => granted = now,
            }
        }
    }

    fn release(&self, bytes: u64) {
        if bytes > 0 {
            self.granted.fetch_sub(bytes, Ordering::Relaxed);
            self.freed.notify_waiters();
        }
    }
}

/// One stream's part of the budget, given back when it is dropped.
#[derive(Debug)]
pub(in crate::service) struct Share {
    budget: Arc<Budget>,
    /// Bytes granted since the start, absolute.
    granted: u64,
    /// Bytes handed on since the start.
    handed: u64,
    /// Of what was granted, still reserved.
    reserved: u64,
    /// What it is granted when nothing is left, beside the budget.
    floor: u64,
    is_throttled: bool,
    /// Not counted among the members.
    is_resting: bool,
}

impl Share {
    pub(in crate::service) fn new(budget: Arc<Budget>) -> Self {
        budget.members.fetch_add(1, Ordering::Relaxed);
        Self { budget, granted: 0, handed: 0, reserved: 0, floor: 0, is_throttled: false, is_resting: false }
    }

    /// One that always has the smallest window, whatever others hold: for a stream that serves those who
    /// would have to give back first. What is granted and not handed on exceeds what is reserved by no more
    /// than that.
    pub(super) fn certain(budget: Arc<Budget>) -> Self {
        let floor = budget.config.window_bytes_min;
        let mut share = Self::new(budget);
        share.floor = floor;
        share
    }

    /// Raises the grant towards `limit` as far as window and budget go; the absolute grant.
    pub(in crate::service) fn raise(&mut self, limit: u64) -> u64 {
        if std::mem::replace(&mut self.is_resting, false) {
            self.budget.members.fetch_add(1, Ordering::Relaxed);
        }
        let window = self.budget.window();
        let target = limit.min(self.handed.saturating_add(window));
        let wanted = target.saturating_sub(self.granted);
        // Small raises wait until they are worth a frame, unless nothing is granted at all.
        let is_least = self.granted <= self.handed.saturating_add(self.floor);
        let is_worth_it = wanted >= window / 4 || is_least || target == limit;
        if wanted > 0 && is_worth_it {
            let got = self.budget.reserve(wanted);
            self.granted += got;
            self.reserved += got;
            // With something granted the stream moves on and asks again.
            let is_throttled = got == 0 && is_least;
            if is_throttled && !self.is_throttled {
                self.budget.throttled.fetch_add(1, Ordering::Relaxed);
            }
            self.is_throttled = is_throttled;
        } else if wanted == 0 {
            self.is_throttled = false;
        }
        self.granted = self.granted.max(limit.min(self.handed.saturating_add(self.floor)));
        self.granted
    }

    /// Rests, as [`Share::rest`] says; how far may be handed on of what comes from elsewhere, so that no more
    /// than a window waits for it.
    pub(super) fn raise_resting(&mut self) -> u64 {
        self.rest();
        self.handed.saturating_add(self.budget.window())
    }

    /// This much was handed on.
    pub(in crate::service) fn hand_on(&mut self, bytes: u64) {
        self.handed += bytes;
        // The last record may overshoot what was granted.
        let back = bytes.min(self.reserved);
        self.reserved -= back;
        // After an overshoot the rest of the grant is worth nothing any more.
        self.granted = self.granted.max(self.handed);
        self.budget.release(back);
    }

    /// It is owed nothing for now, and counts among nobody: what was granted and has not come does not come
    /// any more. Until it is raised again.
    pub(super) fn rest(&mut self) {
        if !std::mem::replace(&mut self.is_resting, true) {
            self.budget.members.fetch_sub(1, Ordering::Relaxed);
        }
        self.budget.release(std::mem::take(&mut self.reserved));
        self.granted = self.handed;
        self.is_throttled = false;
    }

    /// A grant is waiting for others to give back.
    pub(in crate::service) fn is_throttled(&self) -> bool {
        self.is_throttled
    }

    /// Waits until something is given back after this call: made before a raise, it misses nothing that the raise
    /// did not find.
    pub(in crate::service) fn freed(&self) -> OwnedNotified {
        Arc::clone(&self.budget.freed).notified_owned()
    }
}

impl Drop for Share {
    fn drop(&mut self) {
        self.rest();
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn budget(max: u64) -> Arc<Budget> {
        let config = ReadConfig {
            credit_bytes_max: max,
            window_bytes_max: 100,
            window_bytes_min: 10,
            ..Default::default()
        };
        Arc::new(Budget::new(config))
    }

    #[test]
    fn a_grant_is_limited_by_client_window_and_budget_and_comes_back() {
        let budget = budget(8_000);
        let mut share = Share::new(Arc::clone(&budget));
        assert_eq!(share.raise(30), 30, "the client's limit");
        assert_eq!(share.raise(1_000), 100, "the window");
        share.hand_on(100);
        assert_eq!(share.raise(1_000), 200);
        drop(share);
        assert_eq!(budget.metrics().granted_bytes, 0);
        assert_eq!(budget.metrics().streams, 0);
    }

    #[test]
    fn who_finds_nothing_left_is_throttled_until_others_give_back() {
        let budget = budget(20);
        let (mut a, mut b) = (Share::new(Arc::clone(&budget)), Share::new(Arc::clone(&budget)));
        assert_eq!(a.raise(1_000), 10);
        assert_eq!(b.raise(1_000), 10);
        let mut c = Share::new(Arc::clone(&budget));
        assert_eq!(c.raise(1_000), 0);
        assert!(c.is_throttled() && !a.is_throttled());
        a.hand_on(10);
        assert_eq!(c.raise(1_000), 10);
        assert!(!c.is_throttled());
    }

    #[test]
    fn who_rests_gives_everything_back_and_goes_on_where_it_was() {
        let budget = budget(8_000);
        let mut share = Share::new(Arc::clone(&budget));
        assert_eq!(share.raise(1_000), 100);
        share.hand_on(60);
        share.rest();
        assert_eq!((budget.metrics().granted_bytes, budget.metrics().streams), (0, 0));
        share.hand_on(500);
        assert_eq!(budget.metrics().granted_bytes, 0, "what came from elsewhere was never granted");
        assert_eq!(share.raise(1_000), 660, "560 were handed on");
        assert_eq!((budget.metrics().granted_bytes, budget.metrics().streams), (100, 1));
        share.rest();
        drop(share);
        assert_eq!((budget.metrics().granted_bytes, budget.metrics().streams), (0, 0));
    }

    #[test]
    fn who_has_something_for_certain_gets_it_when_nothing_is_left_and_gives_back_no_more_than_it_took() {
        let budget = budget(20);
        let (mut a, mut b) = (Share::new(Arc::clone(&budget)), Share::new(Arc::clone(&budget)));
        assert_eq!((a.raise(1_000), b.raise(1_000)), (10, 10));
        let mut certain = Share::certain(Arc::clone(&budget));
        assert_eq!((certain.raise(4), certain.raise(1_000)), (4, 10));
        for handed in 1..5 {
            certain.hand_on(10);
            assert_eq!(certain.raise(1_000), 10 + 10 * handed);
            assert_eq!(budget.metrics().granted_bytes, 20);
        }
        drop((a, certain));
        assert_eq!(budget.metrics().granted_bytes, 10);
        assert!(!b.is_throttled());
    }

    #[tokio::test]
    async fn what_is_given_back_between_a_raise_and_the_wait_is_not_missed() {
        let budget = budget(10);
        let (mut a, mut b) = (Share::new(Arc::clone(&budget)), Share::new(Arc::clone(&budget)));
        assert_eq!(a.raise(1_000), 10);
        let freed = b.freed();
        assert_eq!(b.raise(1_000), 0);
        a.hand_on(10);
        assert!(futures_util::FutureExt::now_or_never(freed).is_some(), "it would wait for ever");
    }

    proptest! {
        #[test]
        fn the_sum_of_grants_never_exceeds_the_budget_and_all_of_it_comes_back(
            steps in proptest::collection::vec((0usize..4, 0u64..300, any::<bool>()), 0..200),
        ) {
            let budget = budget(64);
            let mut shares: Vec<_> = (0..4).map(|_| Share::new(Arc::clone(&budget))).collect();
            let mut limits = [0u64; 4];
            for (who, amount, raises) in steps {
                let share = &mut shares[who];
                if raises {
                    limits[who] = limits[who].max(amount * 3);
                    let before = share.granted;
                    let granted = share.raise(limits[who]);
                    prop_assert!(granted >= before, "grants are absolute and never fall");
                    prop_assert!(granted <= limits[who].max(before));
                } else if share.granted > share.handed {
                    share.hand_on(amount % 40);
                }
                let owed: u64 = shares.iter().map(|share| share.reserved).sum();
                prop_assert_eq!(owed, budget.metrics().granted_bytes);
                prop_assert!(owed <= 64);
            }
            drop(shares);
            prop_assert_eq!(budget.metrics().granted_bytes, 0);
        }
    }
}
