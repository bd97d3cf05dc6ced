//! When the next bytes of large bodies may go, all of a store together.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::time::Instant;

/// What is smaller than this goes at once.
pub(super) const LARGE_BYTES: usize = 1 << 20;
/// What could have gone within this time may still go at once; what could have gone before may not. So a timer that
/// fires late by a millisecond or two takes nothing from the rate, and a store that took nothing for a second gets no
/// burst.
const LATE_AT_MOST: Duration = Duration::from_millis(4);

/// Holds whoever sends to a rate, unless somebody waits for what is sent.
#[derive(Debug)]
pub(super) struct Pacer {
    bytes_per_second: u64,
    /// For how many it does not hold anybody.
    hurried: AtomicUsize,
    /// Everything that was let go may be sent by then. None before the first.
    next: Mutex<Option<Instant>>,
}

impl Pacer {
    /// Lets go so many bytes a second, one at least.
    pub(super) fn new(bytes_per_second: u64) -> Self {
        Self {
            bytes_per_second: bytes_per_second.max(1),
            hurried: AtomicUsize::new(0),
            next: Mutex::default(),
        }
    }

    /// Everything goes at once from now on.
    pub(super) fn hurry(self: &Arc<Self>) -> Hurried {
        self.hurried.fetch_add(1, Ordering::Relaxed);
        Hurried(Arc::clone(self))
    }

    pub(super) fn is_hurried(&self) -> bool {
        self.hurried.load(Ordering::Relaxed) > 0
    }

    /// When `bytes` that are asked for at `now` may go; they count from here on.
    pub(super) fn take(&self, bytes: usize, now: Instant) -> Instant {
        if self.is_hurried() {
            return now;
        }
        // In microseconds a rate of terabytes would be none.
        let nanos = u128::from(bytes as u64) * 1_000_000_000 / u128::from(self.bytes_per_second);
        let takes = Duration::from_nanos(u64::try_from(nanos).unwrap_or(u64::MAX));
        let earliest = now.checked_sub(LATE_AT_MOST).unwrap_or(now);
        let mut next = self.next.lock();
        let at = next.map_or(earliest, |next| next.max(earliest));
        *next = Some(at + takes);
        at.max(now)
    }
}

/// Somebody waits for what is sent, until this is dropped.
#[derive(Debug)]
pub struct Hurried(Arc<Pacer>);

impl Drop for Hurried {
    fn drop(&mut self) {
        self.0.hurried.fetch_sub(1, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    const SECOND: Duration = Duration::from_secs(1);

    proptest! {
        /// However it is asked, and by however many: in no time more goes than the rate and what may be late.
        #[test]
        fn no_more_goes_than_its_rate(
            asked in prop::collection::vec((1..100_000_usize, 0..20_u64, 1..4_usize), 1..200),
        ) {
            let (pacer, rate) = (Pacer::new(10_000_000), 10_000_000.0);
            let (began, mut now, mut sent) = (Instant::now(), Instant::now(), Vec::new());
            for (bytes, pause_ms, at_once) in asked {
                now += Duration::from_millis(pause_ms);
                let ready: Vec<_> = (0..at_once).map(|_| pacer.take(bytes, now)).collect();
                sent.extend(ready.iter().map(|at| (at.duration_since(began).as_secs_f64(), bytes)));
                now = now.max(*ready.last().unwrap());
            }
            for (i, (from, _)) in sent.iter().enumerate() {
                let mut bytes = 0;
                for (at, more) in &sent[i..] {
                    // The last piece may go as a whole.
                    let may = (at - from + LATE_AT_MOST.as_secs_f64()) * rate;
                    prop_assert!(f64::from(bytes) <= may + 1.0, "{bytes} bytes within {} s", at - from);
                    bytes += u32::try_from(*more).unwrap();
                }
            }
        }
    }

    #[test]
    fn who_asks_without_a_pause_gets_the_rate() {
        let pacer = Pacer::new(1_000_000);
        let began = Instant::now();
        let mut now = began;
        for _ in 0..1_000 {
            // The timer is late each time.
            now = pacer.take(1_000, now) + Duration::from_micros(900);
        }
        let took = now - began;
        let slack = LATE_AT_MOST + Duration::from_millis(1);
        assert!(took >= SECOND - slack && took < SECOND + slack, "{took:?}");
    }

    #[test]
    fn hurried_everything_goes_at_once_and_later_it_is_paced_again() {
        let (pacer, now) = (Arc::new(Pacer::new(1_000)), Instant::now());
        assert_eq!(pacer.take(1_000, now), now);
        assert!(pacer.take(1_000, now) > now + SECOND / 2);
        let both = (pacer.hurry(), pacer.hurry());
        assert_eq!(pacer.take(1_000_000, now), now);
        drop(both.0);
        assert_eq!(pacer.take(1_000_000, now), now, "one of them still waits");
        drop(both.1);
        let behind = pacer.take(1, now) - now;
        assert!(
            behind > SECOND && behind < 3 * SECOND,
            "what went in a hurry is not made up for: {behind:?}"
        );
    }

    #[test]
    fn no_rate_is_a_slow_one() {
        let now = Instant::now();
        let pacer = Pacer::new(0);
        pacer.take(1, now);
        assert!(pacer.take(1, now) > now);
    }
}
