//! Which messages of one writer arrived: a bit for each, and whether they came in order.

use serde::{Deserialize, Serialize};

/// Beyond this a number is no message's of a run: the bits would not fit into memory.
const SEQ_END: u64 = 1 << 34;

/// The messages of one writer that one reader, or all workers of a queue together, have got.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub(super) struct Arrived {
    bits: Vec<u64>,
    distinct: u64,
    /// Behind the highest number that came.
    end: u64,
    duplicates: u64,
    out_of_order: u64,
}

impl Arrived {
    /// Takes one message; false if its number cannot be one.
    pub(super) fn take(&mut self, seq: u64) -> bool {
        if seq >= SEQ_END {
            return false;
        }
        let (word, bit) = ((seq / 64) as usize, 1 << (seq % 64));
        if word >= self.bits.len() {
            self.bits.resize(word + 1, 0);
        }
        if self.bits[word] & bit != 0 {
            self.duplicates += 1;
            return true;
        }
        self.bits[word] |= bit;
        self.distinct += 1;
        if seq < self.end {
            self.out_of_order += 1;
        }
        self.end = self.end.max(seq + 1);
        true
    }

    /// Adds what another has got; what both have came twice.
    pub(super) fn merge(&mut self, other: &Self) {
        self.bits.resize(self.bits.len().max(other.bits.len()), 0);
        for (mine, theirs) in self.bits.iter_mut().zip(&other.bits) {
            self.duplicates += u64::from((*mine & theirs).count_ones());
            *mine |= theirs;
        }
        self.duplicates += other.duplicates;
        self.out_of_order += other.out_of_order;
        self.end = self.end.max(other.end);
        self.distinct = self.bits.iter().map(|word| u64::from(word.count_ones())).sum();
    }

    /// Messages that arrived, each counted once.
    pub(super) fn distinct(&self) -> u64 {
        self.distinct
    }

    /// Messages that came more than once, each time counted but the first.
    pub(super) fn duplicates(&self) -> u64 {
        self.duplicates
    }

    /// Messages that came behind one with a higher number.
    pub(super) fn out_of_order(&self) -> u64 {
        self.out_of_order
    }

    /// Of `[0, sent)`, those that did not arrive; what arrived beyond was never sent and counts nowhere else.
    pub(super) fn missing(&self, sent: u64) -> u64 {
        let whole = (sent / 64) as usize;
        let full = self.bits.iter().take(whole).map(|word| u64::from(word.count_ones())).sum::<u64>();
        let rest = self.bits.get(whole).map_or(0, |word| word & ((1 << (sent % 64)) - 1));
        sent - full - u64::from(rest.count_ones())
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn of(seqs: &[u64]) -> Arrived {
        let mut arrived = Arrived::default();
        assert!(seqs.iter().all(|seq| arrived.take(*seq)));
        arrived
    }

    #[test]
    fn loss_duplication_and_reordering_are_told_apart() {
        let arrived = of(&[0, 1, 1, 2, 5, 4, 6]);
        let seen = (arrived.missing(7), arrived.duplicates(), arrived.out_of_order(), arrived.distinct());
        assert_eq!(seen, (1, 1, 1, 6));
        assert_eq!(arrived.missing(10), 4, "what never came is missing also at the end");
        let all: Vec<u64> = (0..200).collect();
        let arrived = of(&all);
        assert_eq!((arrived.missing(200), arrived.duplicates(), arrived.out_of_order()), (0, 0, 0));
        assert_eq!((arrived.missing(201), arrived.missing(128), arrived.missing(0)), (1, 0, 0));
    }

    #[test]
    fn what_two_workers_got_is_there_twice() {
        let mut one = of(&[0, 2, 64]);
        one.merge(&of(&[1, 2, 130]));
        assert_eq!((one.missing(131), one.duplicates(), one.distinct()), (131 - 5, 1, 5));
    }

    #[test]
    fn a_number_that_cannot_be_is_refused() {
        assert!(!Arrived::default().take(u64::MAX));
    }
}
