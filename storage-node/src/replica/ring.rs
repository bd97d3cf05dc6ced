//! The newest entries of a shard, in memory: what live readers are served from.

use std::collections::VecDeque;

use bytes::Bytes;
use weir_protocol::ids::LogIndex;

/// Payloads of the newest applied entries, bounded in bytes. Indexes are contiguous but for entries without a
/// payload, which are held as empty ones.
#[derive(Debug)]
pub struct TailRing {
    first: u64,
    entries: VecDeque<Bytes>,
    bytes: usize,
    bytes_max: usize,
}

impl TailRing {
    /// An empty ring of at most `bytes_max` payload bytes; the newest entry is held even if it is larger.
    #[must_use]
    pub fn new(bytes_max: usize) -> Self {
        Self { first: 0, entries: VecDeque::new(), bytes: 0, bytes_max }
    }

    /// Adds the entry `index`, and drops the oldest beyond the limit.
    pub fn push(&mut self, index: LogIndex, payload: Bytes) {
        if self.first + self.entries.len() as u64 != index.0 {
            self.clear();
            self.first = index.0;
        }
        self.bytes += payload.len();
        self.entries.push_back(payload);
        while self.bytes > self.bytes_max && self.entries.len() > 1 {
            let oldest = self.entries.pop_front().expect("longer than one");
            self.bytes -= oldest.len();
            self.first += 1;
        }
    }

    /// Payload of an entry, if it is held.
    #[must_use]
    pub fn get(&self, index: LogIndex) -> Option<&Bytes> {
        let at = usize::try_from(index.0.checked_sub(self.first)?).ok()?;
        self.entries.get(at).filter(|payload| !payload.is_empty())
    }

    /// Forgets everything.
    pub fn clear(&mut self) {
        self.entries.clear();
        self.bytes = 0;
    }

    /// Bytes held.
    #[must_use]
    pub fn bytes(&self) -> usize {
        self.bytes
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn payload(n: u8, len: usize) -> Bytes {
        vec![n; len].into()
    }

    #[test]
    fn the_oldest_go_first_and_the_bytes_stay_within_the_limit() {
        let mut ring = TailRing::new(10);
        for n in 0..5 {
            ring.push(LogIndex(u64::from(n) + 7), payload(n, 4));
            assert!(ring.bytes() <= 10);
        }
        assert_eq!(ring.get(LogIndex(9)), None);
        assert_eq!(ring.get(LogIndex(10)), Some(&payload(3, 4)));
        assert_eq!(ring.get(LogIndex(11)), Some(&payload(4, 4)));
        assert_eq!(ring.get(LogIndex(12)), None);
        ring.push(LogIndex(12), payload(9, 50));
        assert_eq!((ring.bytes(), ring.get(LogIndex(11))), (50, None));
    }

    #[test]
    fn a_jump_in_the_log_forgets_what_was_before_it() {
        let mut ring = TailRing::new(100);
        ring.push(LogIndex(1), payload(1, 1));
        ring.push(LogIndex(50), payload(2, 1));
        assert_eq!(ring.get(LogIndex(1)), None);
        assert_eq!(ring.get(LogIndex(50)), Some(&payload(2, 1)));
    }
}
