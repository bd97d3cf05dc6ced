//! Whom a carrier sends to, and when: each for itself, so that nobody waits for another who cannot be reached.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use tokio::time::Instant;

/// Sent to at the same time, at most.
const LANES_AT_ONCE: usize = 16;
/// After a failure the next attempt waits this long, after each further one twice as long,
const PAUSE_MIN: Duration = Duration::from_millis(200);
/// up to this.
const PAUSE_MAX: Duration = Duration::from_secs(2);

/// Those to whom something is owed.
///
/// ```text
///   owed ──begin──▶ sending ──ended, ok───▶ (owed again, or not)
///     ▲                └─────ended, failed─▶ failing ──pause is over──┐
///     └───────────────────────────────────────────────────────────────┘
/// ```
#[derive(Debug)]
pub(super) struct Lanes<To> {
    sending: BTreeSet<To>,
    failing: BTreeMap<To, Failing>,
    /// Who was begun last: the next is the one behind, so that all have their turn.
    last: Option<To>,
}

#[derive(Debug)]
struct Failing {
    pause: Duration,
    again: Instant,
}

/// What operators are told of an attempt that has ended.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Told {
    /// It failed, and the one before did not.
    Fails,
    /// It did not fail, and the one before did.
    Works,
    /// As before.
    Nothing,
}

impl<To: Ord + Clone> Lanes<To> {
    pub(super) fn new() -> Self {
        Self { sending: BTreeSet::new(), failing: BTreeMap::new(), last: None }
    }

    /// Who of `owed` is to be sent to from now on. Whoever is owed nothing any more is forgotten.
    pub(super) fn begin(&mut self, owed: Vec<To>, now: Instant) -> Vec<To> {
        let owed: BTreeSet<To> = owed.into_iter().collect();
        self.failing.retain(|to, _| owed.contains(to) || self.sending.contains(to));
        let is_behind = |to: &&To| self.last.as_ref().is_none_or(|last| *to > last);
        let in_turn = owed.iter().filter(is_behind).chain(owed.iter().filter(|to| !is_behind(to)));
        let is_due = |to: &&To| {
            !self.sending.contains(to) && self.failing.get(to).is_none_or(|failing| failing.again <= now)
        };
        let free = LANES_AT_ONCE - self.sending.len();
        let begun: Vec<To> = in_turn.filter(is_due).take(free).cloned().collect();
        self.last = begun.last().cloned().or_else(|| self.last.take());
        self.sending.extend(begun.iter().cloned());
        begun
    }

    /// An attempt has ended.
    pub(super) fn ended(&mut self, to: &To, has_failed: bool, now: Instant) -> Told {
        self.sending.remove(to);
        let before = self.failing.remove(to);
        match (before, has_failed) {
            (None, false) => Told::Nothing,
            (Some(_), false) => Told::Works,
            (before, true) => {
                let pause = before.as_ref().map_or(PAUSE_MIN, |before| (before.pause * 2).min(PAUSE_MAX));
                self.failing.insert(to.clone(), Failing { pause, again: now + pause });
                if before.is_some() { Told::Nothing } else { Told::Fails }
            }
        }
    }

    /// When somebody's pause is over.
    pub(super) fn next_due(&self) -> Option<Instant> {
        let waiting = self.failing.iter().filter(|(to, _)| !self.sending.contains(to));
        waiting.map(|(_, failing)| failing.again).min()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn who_fails_waits_twice_as_long_each_time_and_the_others_go_on() {
        let mut lanes = Lanes::new();
        let mut now = Instant::now();
        let mut pauses = Vec::new();
        for attempt in 0..6 {
            assert_eq!(lanes.begin(vec!["a", "b"], now), ["a", "b"]);
            assert_eq!(lanes.begin(vec!["a", "b"], now), [""; 0], "both are being sent to");
            let told = lanes.ended(&"a", true, now);
            assert_eq!(told, if attempt == 0 { Told::Fails } else { Told::Nothing });
            assert_eq!(lanes.ended(&"b", false, now), Told::Nothing);
            assert_eq!(lanes.begin(vec!["a", "b"], now), ["b"], "it has not failed");
            lanes.ended(&"b", false, now);
            let again = lanes.next_due().unwrap();
            pauses.push((again - now).as_millis());
            now = again;
        }
        assert_eq!(pauses, [200, 400, 800, 1_600, 2_000, 2_000]);
        assert_eq!(lanes.begin(vec!["a"], now), ["a"]);
        assert_eq!(lanes.next_due(), None, "it is being sent to");
        assert_eq!(lanes.ended(&"a", false, now), Told::Works);
        assert_eq!(lanes.next_due(), None);
    }

    #[test]
    fn whoever_is_owed_nothing_any_more_is_forgotten() {
        let mut lanes = Lanes::new();
        let now = Instant::now();
        lanes.begin(vec!["a"], now);
        lanes.ended(&"a", true, now);
        assert_eq!(lanes.begin(Vec::new(), now), [""; 0]);
        assert_eq!(lanes.next_due(), None);
        assert_eq!(lanes.begin(vec!["a"], now), ["a"], "as if it had never failed");
    }

    #[test]
    fn so_many_are_sent_to_at_once_and_all_have_their_turn() {
        let mut lanes = Lanes::new();
        let now = Instant::now();
        let all: Vec<usize> = (0..3 * LANES_AT_ONCE).collect();
        let mut served = BTreeSet::new();
        for _ in 0..3 {
            let begun = lanes.begin(all.clone(), now);
            assert_eq!(begun.len(), LANES_AT_ONCE);
            assert_eq!(lanes.begin(all.clone(), now), [0; 0], "no more at once");
            for to in begun {
                lanes.ended(&to, false, now);
                served.insert(to);
            }
        }
        assert_eq!(served.len(), all.len(), "who is served first has more, and waits for the last");
    }
}
