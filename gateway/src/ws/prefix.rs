//! The contiguous prefix of a set of numbers that come in any order.

use std::collections::BTreeMap;

/// Numbers from 0; ranges are half-open and may repeat.
#[derive(Debug, Clone, Default)]
pub(super) struct Prefix {
    end: u64,
    /// Ranges beyond the prefix, neither overlapping nor touching.
    ahead: BTreeMap<u64, u64>,
}

impl Prefix {
    /// A prefix that ends after `last`.
    pub(super) fn after(last: Option<u64>) -> Self {
        Self { end: last.map_or(0, |last| last + 1), ahead: BTreeMap::new() }
    }

    /// Last number of the prefix; `None` while it is empty.
    pub(super) fn upto(&self) -> Option<u64> {
        self.end.checked_sub(1)
    }

    /// Adds `start..end`.
    pub(super) fn add(&mut self, start: u64, end: u64) {
        if start > self.end {
            self.add_ahead(start, end);
            return;
        }
        self.end = self.end.max(end);
        while let Some((&start, &end)) = self.ahead.first_key_value() {
            if start > self.end {
                break;
            }
            self.end = self.end.max(end);
            self.ahead.remove(&start);
        }
    }

    fn add_ahead(&mut self, mut start: u64, mut end: u64) {
        // Swallow every range that overlaps or touches.
        while let Some((&before, &before_end)) = self.ahead.range(..=end).next_back() {
            if before_end < start {
                break;
            }
            start = start.min(before);
            end = end.max(before_end);
            self.ahead.remove(&before);
        }
        self.ahead.insert(start, end);
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_is_the_longest_run_from_zero_whatever_the_order(
            ranges in proptest::collection::vec((0u64..60, 0u64..8), 0..40),
        ) {
            let (mut prefix, mut numbers) = (Prefix::default(), BTreeSet::new());
            for (start, len) in ranges {
                prefix.add(start, start + len);
                numbers.extend(start..start + len);
                let expected = (0..).find(|number| !numbers.contains(number)).unwrap();
                prop_assert_eq!(prefix.upto(), u64::checked_sub(expected, 1));
                let beyond: u64 = prefix.ahead.iter().map(|(start, end)| end - start).sum();
                let all = numbers.len() as u64;
                prop_assert_eq!(expected + beyond, all, "nothing is counted twice or lost");
            }
        }
    }

    #[test]
    fn it_starts_after_what_was_confirmed_before() {
        let mut prefix = Prefix::after(Some(117));
        prefix.add(119, 120);
        assert_eq!(prefix.upto(), Some(117));
        prefix.add(118, 119);
        assert_eq!(prefix.upto(), Some(119));
        assert_eq!(Prefix::after(None).upto(), None);
    }
}
