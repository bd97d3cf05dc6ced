//! When messages are due, which of them count, and a clock that wakes writers then.

use std::time::{Duration, Instant};

use tokio::sync::watch;

/// How often messages become due: all of an interval at its start.
pub(super) const TICK: Duration = Duration::from_millis(1);

/// One writer's schedule: `per_second` messages, spread evenly over ticks.
#[derive(Debug, Clone, Copy)]
pub(super) struct Schedule {
    per_second: u64,
}

impl Schedule {
    pub(super) fn new(per_second: u64) -> Self {
        Self { per_second }
    }

    /// Messages that are due once `ticks` ticks are over.
    pub(super) fn due(self, ticks: u64) -> u64 {
        let whole = u128::from(ticks) * u128::from(self.per_second) * TICK.as_nanos() / 1_000_000_000;
        u64::try_from(whole).unwrap_or(u64::MAX)
    }

    /// When message `seq` is due, in nanoseconds since the start: at the first tick that makes it due.
    pub(super) fn due_ns(self, seq: u64) -> u64 {
        let tick = TICK.as_nanos();
        let ticks = (u128::from(seq) + 1) * 1_000_000_000;
        let ticks = ticks.div_ceil(u128::from(self.per_second.max(1)) * tick);
        u64::try_from(ticks * tick).unwrap_or(u64::MAX)
    }
}

/// When a run starts and which part of it counts.
#[derive(Debug, Clone, Copy)]
pub(super) struct Window {
    start: Instant,
    /// Nanoseconds after the start.
    from_ns: u64,
    to_ns: u64,
}

impl Window {
    /// From `start` on, what warms up apart.
    pub(super) fn new(start: Instant, warmup: Duration, measured: Duration) -> Self {
        Self { start, from_ns: nanos(warmup), to_ns: nanos(warmup.saturating_add(measured)) }
    }

    /// Nanoseconds since the start; 0 before it.
    pub(super) fn now_ns(&self) -> u64 {
        nanos(Instant::now().saturating_duration_since(self.start))
    }

    /// Whether what was due then counts.
    pub(super) fn counts(&self, at_ns: u64) -> bool {
        (self.from_ns..self.to_ns).contains(&at_ns)
    }

    /// Ticks after which nothing is due any more.
    pub(super) fn ticks(&self) -> u64 {
        self.to_ns / 1_000_000
    }
}

fn nanos(duration: Duration) -> u64 {
    u64::try_from(duration.as_nanos()).unwrap_or(u64::MAX)
}

/// Counts ticks from a thread of its own: the runtime's timer is coarser than a tick.
pub(super) fn ticks(start: Instant) -> watch::Receiver<u64> {
    let (sender, receiver) = watch::channel(0);
    std::thread::spawn(move || {
        for tick in 1u32.. {
            let at = start + TICK * tick;
            std::thread::sleep(at.saturating_duration_since(Instant::now()));
            if sender.send(u64::from(tick)).is_err() {
                return;
            }
        }
    });
    receiver
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_message_is_due_at_the_first_tick_that_counts_it() {
        for per_second in [1, 7, 999, 1_000, 1_001, 15_000, 400_000] {
            let schedule = Schedule::new(per_second);
            for seq in (0..5_000).step_by(13) {
                let ticks = schedule.due_ns(seq) / 1_000_000;
                assert!(schedule.due(ticks) > seq, "{per_second}/s, message {seq}, tick {ticks}");
                assert!(schedule.due(ticks - 1) <= seq, "{per_second}/s, message {seq}, tick {ticks}");
            }
        }
        assert_eq!(Schedule::new(15_000).due(1_000), 15_000);
    }
}
