//! Entries that were read from the journal lately, in memory: what was nacked together comes again together,
//! and so does what several readers replay.

use std::collections::{HashMap, VecDeque};

use bytes::Bytes;
use weir_protocol::ids::LogIndex;

/// Payloads of entries that had left the [ring](super::ring), bounded in bytes; the one that came first goes
/// first. An applied entry never changes, so what is here is what the journal has.
#[derive(Debug)]
pub struct Reread {
    entries: HashMap<LogIndex, Bytes>,
    order: VecDeque<LogIndex>,
    bytes: usize,
    bytes_max: usize,
}

impl Reread {
    /// Empty, for at most `bytes_max` payload bytes.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { entries: HashMap::new(), order: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Keeps an entry, unless it alone is beyond the limit.
    pub fn put(&mut self, index: LogIndex, payload: Bytes) {
        if payload.len() > self.bytes_max || self.entries.contains_key(&index) {
            return;
        }
        self.bytes += payload.len();
        self.entries.insert(index, payload);
        self.order.push_back(index);
        while self.bytes > self.bytes_max {
            let first = self.order.pop_front().and_then(|first| self.entries.remove(&first));
            self.bytes -= first.expect("what is counted is kept").len();
        }
    }

    /// Payload of an entry, if it is kept.
    #[must_use]
    pub fn get(&self, index: LogIndex) -> Option<&Bytes> {
        self.entries.get(&index)
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.order.clear();
        self.bytes = 0;
    }

    /// Bytes kept.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn what_came_first_goes_first_and_the_bytes_stay_within_the_limit() {
        let mut kept = Reread::new(10);
        for n in [7, 3, 7, 9] {
            kept.put(LogIndex(n), vec![0; 4].into());
            assert!(kept.bytes() <= 10);
        }
        let there = [7, 3, 9].map(|n| kept.get(LogIndex(n)).is_some());
        assert_eq!((there, kept.bytes()), ([false, true, true], 8));
        kept.put(LogIndex(1), vec![0; 11].into());
        assert_eq!((kept.get(LogIndex(1)), kept.bytes()), (None, 8), "it would drive out everything else");
        kept.clear();
        assert_eq!((kept.get(LogIndex(3)), kept.bytes()), (None, 0));
    }
}
