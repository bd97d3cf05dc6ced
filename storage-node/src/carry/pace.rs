//! How fast messages are carried: publishes come first, until they are about to be refused.

use std::sync::Arc;
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::watch;
use weir_journal::Journal;

/// From here on making room comes before giving way: four times the pace, and none at all where publishes are held back
/// already.
const HURRIED_PERMILLE: u64 = 850;
const URGENT_PERMILLE: u64 = 900;

/// A journal that may have so much has no bound, and is carried out of as if it had three times what lives, and so much
/// at least.
const UNBOUNDED: u64 = 1 << 62;
const UNBOUNDED_LEAST: u64 = 8 << 30;

/// The pace of one node. Cheap to clone.
#[derive(Clone)]
pub(crate) struct Pace {
    journal: Journal,
    bytes_per_s: u64,
    stop: watch::Receiver<bool>,
    /// Nothing is ever sent: waiting for it is a pause.
    never: Arc<(Mutex<Receiver<()>>, Sender<()>)>,
}

impl Pace {
    pub(super) fn new(journal: Journal, bytes_per_s: u64, stop: watch::Receiver<bool>) -> Self {
        let (sender, receiver) = channel();
        Self { journal, bytes_per_s, stop, never: Arc::new((Mutex::new(receiver), sender)) }
    }

    /// How much of what messages may take of the journal is in use: they are refused at 1,000. A journal without a
    /// bound is measured by what was carried, so that it does not grow by what is dead.
    pub(super) fn used_permille(&self) -> u64 {
        let (used, max) = self.journal.fullness();
        let max = match max {
            UNBOUNDED.. => UNBOUNDED_LEAST.max(self.journal.usage().carried_bytes.saturating_mul(3)),
            max => max,
        };
        let limit = max.saturating_sub(self.journal.config().control_reserve_bytes).max(1);
        used.saturating_mul(1_000) / limit
    }

    /// So many bytes were written: waits as long as they are to take. On the thread that gives way.
    pub(super) fn wrote(&mut self, bytes: u64) {
        // At the end of the node nobody waits for what can be done again.
        if *self.stop.borrow() {
            return;
        }
        let pause = pause(bytes, self.bytes_per_s, self.used_permille());
        if !pause.is_zero() {
            let waited = self.never.0.lock().recv_timeout(pause);
            debug_assert_eq!(waited, Err(RecvTimeoutError::Timeout));
        }
    }
}

fn pause(bytes: u64, bytes_per_s: u64, used_permille: u64) -> Duration {
    let rate = match used_permille {
        ..HURRIED_PERMILLE => bytes_per_s,
        HURRIED_PERMILLE..URGENT_PERMILLE => bytes_per_s.saturating_mul(4),
        _ => return Duration::ZERO,
    };
    Duration::from_micros(bytes.saturating_mul(1_000_000) / rate.max(1))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_gives_way_as_long_as_there_is_room() {
        let took = |used| pause(1 << 20, 1 << 20, used).as_millis();
        assert_eq!([took(0), took(849), took(850), took(899), took(900)], [1_000, 1_000, 250, 250, 0]);
    }
}
