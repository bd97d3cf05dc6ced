//! The time that entries carry.

use std::time::{Duration, Instant};

use weir_protocol::ids::TimestampMs;

/// The machine's time, except that it never goes back. If the machine's clock is behind it, because that was put
/// right or stood elsewhere on another machine, the log's goes on at half the speed until it is caught up with: so
/// what expires by the log's time does, however far ahead the clock once was.
#[derive(Debug)]
pub(crate) struct LogClock {
    last: TimestampMs,
    /// What has passed since is not in `last` yet.
    since: Instant,
}

impl LogClock {
    /// Goes on from the newest entry's time.
    pub(crate) fn new(last: TimestampMs, now: Instant) -> Self {
        Self { last, since: now }
    }

    /// What entries carry now.
    pub(crate) fn last(&self) -> TimestampMs {
        self.last
    }

    /// The time of the next entry, by the machine's clock and by what has passed.
    pub(crate) fn next(&mut self, machine: TimestampMs, now: Instant) -> TimestampMs {
        let passed = now.saturating_duration_since(self.since);
        let half = u64::try_from(passed.as_millis() / 2).unwrap_or(u64::MAX);
        if machine >= self.last {
            (self.last, self.since) = (machine, now);
        } else if half > 0 {
            // What is less than a step is counted with the next.
            self.last.0 = self.last.0.saturating_add(half);
            self.since += Duration::from_millis(2 * half);
        }
        self.last
    }

    /// An entry of somebody else has this time. If that is later, the log's goes on from there and from now.
    pub(crate) fn saw(&mut self, other: TimestampMs, now: Instant) {
        if other > self.last {
            (self.last, self.since) = (other, now);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_clock_that_was_far_ahead_once_holds_the_time_of_the_log_up_for_ever_no_more() {
        const AHEAD: u64 = 1_000_000;
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        let mut clock = LogClock::new(TimestampMs(0), begun);
        let mut at = |machine, ms| clock.next(TimestampMs(machine), after(ms)).0;
        assert_eq!([at(100, 0), at(101, 1)], [100, 101]);
        assert_eq!(at(AHEAD, 2), AHEAD);
        // Put right: entries come every millisecond, and none goes back.
        let times: Vec<u64> = (3..1_002).map(|ms| at(100 + ms, ms)).collect();
        assert!(times.is_sorted());
        assert_eq!(times.last(), Some(&(AHEAD + 499)));
        // The machine's clock has caught up.
        assert_eq!(at(2 * AHEAD - 1, 2 * AHEAD), AHEAD + AHEAD - 1);
        assert_eq!(at(2 * AHEAD, 2 * AHEAD), 2 * AHEAD);
    }

    #[test]
    fn what_somebody_else_has_written_is_gone_on_from_as_of_now() {
        let begun = Instant::now();
        let after = |ms| begun + Duration::from_millis(ms);
        let mut clock = LogClock::new(TimestampMs(1_000), begun);
        clock.saw(TimestampMs(5), after(1));
        assert_eq!(clock.last(), TimestampMs(1_000));
        // Another led for an hour, by a clock that is ahead.
        clock.saw(TimestampMs(9_000_000), after(3_600_000));
        assert_eq!(clock.next(TimestampMs(3_601_000), after(3_600_000)), TimestampMs(9_000_000));
        assert_eq!(clock.next(TimestampMs(3_601_010), after(3_600_010)), TimestampMs(9_000_005));
    }
}
