//! How commits follow each other: whether the next append is likely to be alone.

use std::time::{Duration, Instant};

/// So many commits in a row must have been lone before one is written so: among many publishers a lone one
/// begins a burst, and who writes it keeps the others waiting.
const IN_A_ROW_MIN: u32 = 8;

/// How long commits took lately, when the last one ended, and how many up to it were of one small append,
/// with nothing behind it when it was done.
#[derive(Debug, Default)]
pub(crate) struct Pace {
    ended: Option<Instant>,
    took: Duration,
    lone_in_a_row: u32,
}

impl Pace {
    /// A commit was begun and is synced.
    pub(crate) fn committed(&mut self, begun: Instant, synced: Instant, is_lone: bool) {
        // The longest of late: a disk that has just paused may do it again.
        self.took = (self.took / 8 * 7).max(synced.saturating_duration_since(begun));
        self.ended = Some(synced);
        self.lone_in_a_row = if is_lone { self.lone_in_a_row.saturating_add(1) } else { 0 };
    }

    /// Whether appends are lone, the journal has rested for half as long as a commit takes, which is less than
    /// `longest`.
    pub(crate) fn is_slow_enough(&self, now: Instant, longest: Duration) -> bool {
        self.lone_in_a_row >= IN_A_ROW_MIN && self.took < longest && self.has_rested(now)
    }

    /// Whether the last commit ended half as long ago as a commit takes.
    pub(crate) fn has_rested(&self, now: Instant) -> bool {
        self.ended.is_some_and(|ended| now.saturating_duration_since(ended) >= self.took / 2)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn only_lone_appends_on_a_quick_disk_that_rests_are_slow_enough() {
        let (mut pace, start) = (Pace::default(), Instant::now());
        let (us, most) = (Duration::from_micros, Duration::from_millis(1));
        let slow_enough = |pace: &Pace, at| pace.is_slow_enough(start + us(at), most);
        let commit = |pace: &mut Pace, at, took, is_lone| {
            pace.committed(start + us(at), start + us(at + took), is_lone);
        };
        (0..7).for_each(|at| commit(&mut pace, 300 * at, 100, true));
        assert!(!slow_enough(&pace, 1_000_000), "seven in a row");
        commit(&mut pace, 2_100, 100, true);
        assert!(!slow_enough(&pace, 2_249) && slow_enough(&pace, 2_250));
        // One among others, and it takes eight again.
        commit(&mut pace, 2_400, 100, false);
        (0..7).for_each(|at| commit(&mut pace, 3_000 + 300 * at, 100, true));
        assert!(!slow_enough(&pace, 1_000_000));
        commit(&mut pace, 5_400, 100, true);
        assert!(slow_enough(&pace, 1_000_000));
        // One pause of the disk, and it is the writer's until it has been quick for a while.
        commit(&mut pace, 6_000, 2_000, true);
        (0..5).for_each(|at| commit(&mut pace, 9_000 + 300 * at, 100, true));
        assert!(!slow_enough(&pace, 1_000_000), "{pace:?}");
        commit(&mut pace, 12_000, 100, true);
        assert!(slow_enough(&pace, 1_000_000), "{pace:?}");
    }
}
