//! Whether a silent peer is still there. Pure: takes the time, returns what to do.

use std::time::{Duration, Instant};

/// What to do about a connection at a tick.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Verdict {
    /// Something arrived since the last tick.
    Alive,
    /// Nothing did: ask for a sign of life.
    Ping,
    /// Asked, and nothing arrived for the whole timeout.
    Dead,
}

/// Judges a peer by the bytes that arrive, at every tick of the ping interval. A half-open connection is found
/// after the timeout plus at most two intervals.
#[derive(Debug)]
pub(crate) struct Liveness {
    timeout: Duration,
    received_bytes: u64,
    silent_since: Option<Instant>,
}

impl Liveness {
    /// Gives a peer up after `timeout` of silence, counted from the first tick that noticed it.
    pub(crate) fn new(timeout: Duration) -> Self {
        Self { timeout, received_bytes: 0, silent_since: None }
    }

    /// Judges at `now`, when `received_bytes` have arrived in total.
    pub(crate) fn tick(&mut self, now: Instant, received_bytes: u64) -> Verdict {
        if received_bytes != self.received_bytes {
            self.received_bytes = received_bytes;
            self.silent_since = None;
            return Verdict::Alive;
        }
        let since = *self.silent_since.get_or_insert(now);
        if now.duration_since(since) >= self.timeout { Verdict::Dead } else { Verdict::Ping }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_silent_peer_is_pinged_and_given_up_after_the_timeout() {
        let start = Instant::now();
        let at = |seconds| start + Duration::from_secs(seconds);
        let mut liveness = Liveness::new(Duration::from_secs(6));
        assert_eq!(liveness.tick(at(2), 10), Verdict::Alive);
        assert_eq!(liveness.tick(at(4), 10), Verdict::Ping);
        assert_eq!(liveness.tick(at(9), 10), Verdict::Ping);
        assert_eq!(liveness.tick(at(10), 10), Verdict::Dead);
    }

    #[test]
    fn any_byte_counts_as_a_sign_of_life() {
        let start = Instant::now();
        let mut liveness = Liveness::new(Duration::from_secs(6));
        assert_eq!(liveness.tick(start, 0), Verdict::Ping);
        assert_eq!(liveness.tick(start + Duration::from_secs(10), 1), Verdict::Alive);
        assert_eq!(liveness.tick(start + Duration::from_secs(12), 1), Verdict::Ping);
    }
}
