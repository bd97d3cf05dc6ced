//! The wall clock. Apply never asks it: an entry carries its time.
//!
//! A clock that jumps, for a moment or for good, must not trim what is a week old, deliver what is due in a year, or
//! forget who has published what. So the machine's clock is compared with the time that passes by itself, and a
//! step beyond [`STEP_MS`] is not followed until it has lasted for [`LASTS_MS`], or until the process is
//! started anew: then the clock is taken as it stands. Meanwhile time passes as before.
#![expect(clippy::disallowed_methods, reason = "the one clock")]

use std::sync::LazyLock;
use std::sync::atomic::{AtomicBool, AtomicI64, Ordering};
use std::time::{Instant, SystemTime, UNIX_EPOCH};

use parking_lot::Mutex;
use weir_protocol::ids::TimestampMs;

/// The machine's clock may be put by so much at once, and is followed.
pub const STEP_MS: i64 = 600_000;
/// A longer step is followed when it has lasted for so long.
pub const LASTS_MS: i64 = 3_600_000;

static CLOCK: LazyLock<(Instant, Option<i64>, Clock)> = LazyLock::new(|| {
    let clock = Clock { ahead: AtomicI64::new(machine_ms()), ..Clock::default() };
    (Instant::now(), uptime_ms(), clock)
});

/// The time now; zero if the machine's clock stands before 1970.
#[must_use]
pub fn now() -> TimestampMs {
    let (begun, up_then, clock) = &*CLOCK;
    let passed = i64::try_from(begun.elapsed().as_millis()).unwrap_or(i64::MAX);
    // Where a machine sleeps, its uptime goes on and the time that passes for processes does not.
    let slept = || uptime_ms().zip(*up_then).map_or(0, |(now, then)| now - then - passed);
    TimestampMs(u64::try_from(clock.at(machine_ms(), passed, slept)).unwrap_or(0))
}

/// By how many milliseconds the machine's clock is ahead of the time that is used, or behind it if negative; 0
/// unless it has stepped and is not followed.
#[must_use]
pub fn step_ms() -> i64 {
    // It may be right again, and nobody has asked since.
    let _asked = now();
    let used = CLOCK.2.ahead.load(Ordering::Relaxed);
    CLOCK.2.step.lock().map_or(0, |step| step.ahead - used)
}

fn machine_ms() -> i64 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
}

/// How long the machine has been up, time in which it slept included; `None` where it does not say.
fn uptime_ms() -> Option<i64> {
    let text = std::fs::read_to_string("/proc/uptime").ok()?;
    let (seconds, rest) = text.split_whitespace().next()?.split_once('.')?;
    let hundredths: i64 = rest.parse().ok()?;
    Some(seconds.parse::<i64>().ok()? * 1_000 + hundredths * 10)
}

/// A clock that follows another one, but no steps.
#[derive(Debug, Default)]
struct Clock {
    /// What the time that is used is ahead of the time that has passed.
    ahead: AtomicI64,
    step: Mutex<Option<Step>>,
    has_stepped: AtomicBool,
}

/// The machine's clock stands elsewhere than it did.
#[derive(Debug, Clone, Copy)]
struct Step {
    /// What it is ahead of the time that has passed.
    ahead: i64,
    since: i64,
}

impl Clock {
    /// The time by the machine's clock, and by the time that has passed since the beginning, without what it `slept`.
    fn at(&self, machine: i64, passed: i64, slept: impl FnOnce() -> i64) -> i64 {
        let (ahead, used) = (machine.saturating_sub(passed), self.ahead.load(Ordering::Relaxed));
        if is_near(ahead, used) {
            if ahead != used {
                self.ahead.store(ahead, Ordering::Relaxed);
            }
            if self.has_stepped.load(Ordering::Relaxed) && self.step.lock().take().is_some() {
                self.has_stepped.store(false, Ordering::Relaxed);
                tracing::info!("the machine's clock stands again where it is expected");
            }
            return machine;
        }
        let mut step = self.step.lock();
        match *step {
            Some(Step { ahead: before, since }) if is_near(ahead, before) => {
                if passed - since < LASTS_MS {
                    return passed.saturating_add(used);
                }
                tracing::warn!(
                    seconds = (ahead - used) / 1_000,
                    "the machine's clock has stood there for an hour, and is followed"
                );
            }
            _ => {
                if !is_near(ahead, used.saturating_add(slept())) {
                    *step = Some(Step { ahead, since: passed });
                    self.has_stepped.store(true, Ordering::Relaxed);
                    tracing::error!(
                        seconds = (ahead - used) / 1_000,
                        "the machine's clock has jumped and is not followed: time goes on as before, nothing is trimmed, \
                         delivered or forgotten by it. Put it right; or, if it is right now, wait for an hour or start \
                         the node anew"
                    );
                    return passed.saturating_add(used);
                }
                tracing::info!("the machine has slept");
            }
        }
        *step = None;
        self.has_stepped.store(false, Ordering::Relaxed);
        self.ahead.store(ahead, Ordering::Relaxed);
        machine
    }
}

fn is_near(a: i64, b: i64) -> bool {
    a.abs_diff(b) <= STEP_MS.unsigned_abs()
}

#[cfg(test)]
mod tests {
    use super::*;

    const START: i64 = 1_800_000_000_000;
    const DAY: i64 = 86_400_000;

    fn clock() -> Clock {
        Clock { ahead: AtomicI64::new(START), ..Clock::default() }
    }

    #[test]
    fn a_clock_that_is_far_ahead_for_a_moment_moves_nothing() {
        let clock = clock();
        let at = |machine, passed| clock.at(machine, passed, || 0) - START;
        assert_eq!([at(START, 0), at(START + 1_000, 1_000), at(START + 300_000, 2_000)], [0, 1_000, 300_000]);
        // Within the bound it was followed; from there it jumps.
        assert_eq!(at(START + 400 * DAY, 3_000), 301_000);
        assert_eq!(at(START + 400 * DAY + 1_000, 4_000), 302_000);
        assert!(clock.step.lock().is_some());
        assert_eq!(at(START + 303_000, 5_000), 303_000);
        assert!(clock.step.lock().is_none());
        // The same backwards.
        assert_eq!(at(START - 400 * DAY, 6_000), 304_000);
        assert_eq!(at(START + 305_000, 7_000), 305_000);
    }

    #[test]
    fn a_step_is_followed_when_it_has_lasted() {
        let clock = clock();
        let at = |machine, passed| clock.at(machine, passed, || 0) - START;
        assert_eq!(at(START + DAY, 0), 0);
        // Another one begins anew.
        assert_eq!(at(START + 3 * DAY + 1_000, 1_000), 1_000);
        assert_eq!(at(START + 3 * DAY + LASTS_MS + 999, LASTS_MS + 999), LASTS_MS + 999);
        assert_eq!(at(START + 3 * DAY + LASTS_MS + 1_000, LASTS_MS + 1_000), 3 * DAY + LASTS_MS + 1_000);
        assert_eq!(at(START + 3 * DAY + LASTS_MS + 1_001, LASTS_MS + 1_001), 3 * DAY + LASTS_MS + 1_001);
    }

    #[test]
    fn a_machine_that_slept_has_its_time_at_once() {
        let clock = clock();
        assert_eq!(clock.at(START + DAY + 10, 10, || DAY - 4_000), START + DAY + 10);
        assert_eq!(clock.at(START + DAY + 20, 20, || 0), START + DAY + 20);
    }
}
