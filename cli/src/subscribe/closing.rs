//! Whether a topic is closed, as its partitions say it one by one.

use std::collections::BTreeSet;

/// What the partitions of one topic have said.
#[derive(Debug, Default)]
pub(super) struct Closing {
    /// How many are followed.
    partitions: usize,
    closed: BTreeSet<u32>,
    /// It was told that the topic is closed.
    is_told: bool,
}

impl Closing {
    /// A connection begins, on which every partition says it anew.
    pub(super) fn started(&mut self, partitions: usize) {
        self.partitions = partitions;
        self.closed.clear();
    }

    /// A partition's end was reached, and its topic is closed or not. What is to be told now: that the topic
    /// is closed, once all of it has come, or, after that, that it is open again.
    pub(super) fn caught_up(&mut self, partition: u32, closed: bool) -> Option<bool> {
        if closed {
            self.closed.insert(partition);
        } else {
            self.closed.remove(&partition);
        }
        let is_closed = if closed { self.closed.len() >= self.partitions } else { false };
        let changes = closed == is_closed && is_closed != self.is_told;
        self.is_told ^= changes;
        changes.then_some(is_closed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_is_told_once_all_partitions_say_so_and_once_the_first_does_not_any_more() {
        let mut closing = Closing::default();
        closing.started(2);
        assert_eq!(closing.caught_up(0, false), None);
        assert_eq!(closing.caught_up(1, true), None, "the other one may have more");
        assert_eq!(closing.caught_up(0, false), None);
        assert_eq!(closing.caught_up(0, true), Some(true));
        assert_eq!(closing.caught_up(0, true), None, "once");
        // Another connection says it again, which is no news.
        closing.started(2);
        assert_eq!((closing.caught_up(0, true), closing.caught_up(1, true)), (None, None));
        assert_eq!(closing.caught_up(1, false), Some(false));
        assert_eq!(closing.caught_up(0, false), None);
    }
}
