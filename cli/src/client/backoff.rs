//! How long to wait before the next attempt, and when to stop trying.

use std::time::{Duration, Instant};

const FIRST: Duration = Duration::from_millis(200);
const MAX: Duration = Duration::from_secs(10);

/// Pauses that double, spread over their upper half so that a crowd of clients does not come back at once. Attempts
/// that connect and get nowhere count as failures: only progress makes the pauses short again.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
    give_up: Duration,
    failing_since: Option<Instant>,
}

impl Backoff {
    /// Gives up once nothing has succeeded for `give_up`.
    pub(crate) fn new(give_up: Duration) -> Self {
        Self { next: FIRST, give_up, failing_since: None }
    }

    /// Something was achieved.
    pub(crate) fn progressed(&mut self) {
        (self.next, self.failing_since) = (FIRST, None);
    }

    /// True if nothing has failed since something was achieved: of an interruption, people want to read once.
    pub(crate) fn is_fresh(&self) -> bool {
        self.failing_since.is_none()
    }

    /// Waits; false, at once, if it is time to give up.
    pub(crate) async fn wait(&mut self) -> bool {
        match self.take(Instant::now(), rand::random()) {
            Some(pause) => {
                tokio::time::sleep(pause).await;
                true
            }
            None => false,
        }
    }

    fn take(&mut self, now: Instant, random: f64) -> Option<Duration> {
        let since = *self.failing_since.get_or_insert(now);
        if now.saturating_duration_since(since) >= self.give_up {
            return None;
        }
        let pause = self.next / 2 + (self.next / 2).mul_f64(random);
        self.next = (self.next * 2).min(MAX);
        Some(pause)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_start_over_with_progress() {
        let (mut backoff, now) = (Backoff::new(Duration::from_secs(60)), Instant::now());
        let pauses: Vec<_> =
            (0..8).filter_map(|_| backoff.take(now, 1.0)).map(|pause| pause.as_millis()).collect();
        assert_eq!(pauses, [200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        assert!(!backoff.is_fresh());
        backoff.progressed();
        assert!(backoff.is_fresh());
        assert_eq!(backoff.take(now, 0.0), Some(Duration::from_millis(100)));
    }

    #[test]
    fn it_gives_up_when_nothing_has_succeeded_for_long_enough() {
        let (mut backoff, start) = (Backoff::new(Duration::from_secs(60)), Instant::now());
        let after = |seconds| start + Duration::from_secs(seconds);
        assert!(backoff.take(start, 1.0).is_some());
        assert!(backoff.take(after(59), 1.0).is_some());
        assert!(backoff.take(after(60), 1.0).is_none());
        backoff.progressed();
        assert!(backoff.take(after(61), 1.0).is_some());
    }
}
