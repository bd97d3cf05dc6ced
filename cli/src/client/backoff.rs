//! How long to wait before the next attempt.

use std::time::Duration;

const FIRST: Duration = Duration::from_millis(200);
const MAX: Duration = Duration::from_secs(10);

/// Pauses that double, spread over their upper half so that a crowd of clients does not come back at once.
#[derive(Debug)]
pub(crate) struct Backoff {
    next: Duration,
}

impl Default for Backoff {
    fn default() -> Self {
        Self { next: FIRST }
    }
}

impl Backoff {
    /// Waits.
    pub(crate) async fn wait(&mut self) {
        let pause = self.take(rand::random());
        tokio::time::sleep(pause).await;
    }

    /// Starts over: an attempt has succeeded.
    pub(crate) fn reset(&mut self) {
        self.next = FIRST;
    }

    fn take(&mut self, random: f64) -> Duration {
        let pause = self.next / 2 + (self.next / 2).mul_f64(random);
        self.next = (self.next * 2).min(MAX);
        pause
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn pauses_double_up_to_a_limit_and_start_over() {
        let mut backoff = Backoff::default();
        let pauses: Vec<_> = (0..8).map(|_| backoff.take(1.0).as_millis()).collect();
        assert_eq!(pauses, [200, 400, 800, 1_600, 3_200, 6_400, 10_000, 10_000]);
        backoff.reset();
        assert_eq!(backoff.take(0.0), Duration::from_millis(100));
    }
}
