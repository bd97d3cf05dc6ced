//! Offsets that wait in line, few or many.

use std::collections::BTreeSet;

use roaring::RoaringTreemap;
use weir_protocol::ids::Offset;

/// Up to so many are held one by one, the lowest; the others in a bitmap.
const FEW_MAX: usize = 64;

/// A set of offsets of which the lowest goes first. About 20 bytes each for the first 64, at most 2 for others,
/// and less where they lie close to each other: 1 bit where nothing lies between them.
///
/// ```text
///   few ≤ 64 ──all lower than──▶ many        few is only empty if many is
/// ```
#[derive(Debug, Clone, Default)]
pub(super) struct Offsets {
    few: BTreeSet<Offset>,
    many: RoaringTreemap,
    len: usize,
}

impl Offsets {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// The lowest.
    pub(super) fn first(&self) -> Option<Offset> {
        self.few.first().copied()
    }

    pub(super) fn contains(&self, offset: Offset) -> bool {
        self.few.contains(&offset) || (self.len > self.few.len() && self.many.contains(offset.0))
    }

    /// All, ascending.
    pub(super) fn iter(&self) -> impl Iterator<Item = Offset> {
        self.few.iter().copied().chain(self.many.iter().map(Offset))
    }

    /// Whether it was not there.
    pub(super) fn insert(&mut self, offset: Offset) -> bool {
        let has_many = self.len > self.few.len();
        let is_beyond = self.few.last().is_none_or(|last| offset > *last);
        let is_new = if is_beyond && (has_many || self.few.len() >= FEW_MAX) {
            self.many.insert(offset.0)
        } else {
            let is_new = self.few.insert(offset);
            if self.few.len() > FEW_MAX
                && let Some(last) = self.few.pop_last()
            {
                self.many.insert(last.0);
            }
            is_new
        };
        self.len += usize::from(is_new);
        is_new
    }

    /// Whether it was there.
    pub(super) fn remove(&mut self, offset: Offset) -> bool {
        let was_there = self.few.remove(&offset) || (self.len > self.few.len() && self.many.remove(offset.0));
        self.len -= usize::from(was_there);
        self.refill();
        was_there
    }

    /// Takes out the lowest.
    pub(super) fn pop_first(&mut self) -> Option<Offset> {
        let first = self.few.pop_first()?;
        self.len -= 1;
        self.refill();
        Some(first)
    }

    fn refill(&mut self) {
        if !self.few.is_empty() || self.len == 0 {
            return;
        }
        self.few.extend(self.many.iter().take(FEW_MAX).map(Offset));
        if let Some(last) = self.few.last() {
            self.many.remove_range(..=last.0);
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn it_answers_like_a_plain_set(steps in proptest::collection::vec((0u64..400, 0u8..8), 1..900)) {
            let (mut set, mut plain) = (Offsets::default(), BTreeSet::new());
            for (at, step) in steps {
                let offset = Offset(at * 7_000);
                match step {
                    0 => prop_assert_eq!(set.remove(offset), plain.remove(&offset)),
                    1 => prop_assert_eq!(set.pop_first(), plain.pop_first()),
                    _ => prop_assert_eq!(set.insert(offset), plain.insert(offset)),
                }
                prop_assert_eq!((set.len(), set.first()), (plain.len(), plain.first().copied()));
                prop_assert_eq!(set.contains(offset), plain.contains(&offset));
            }
            prop_assert!(set.iter().eq(plain.iter().copied()));
            prop_assert!(std::iter::from_fn(|| set.pop_first()).eq(plain));
        }
    }
}
