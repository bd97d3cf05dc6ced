//! What is known of records that were delivered and are not settled.

use std::collections::BTreeMap;
use std::ops::Range;
use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};

use super::event::Fence;

/// Offsets of one page, and so the most entries that a change copies after the part was shared.
const PAGE: u64 = 1024;

/// A record that was delivered and not settled, as far as the log tells.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Retry {
    /// Deliveries so far, at least 1.
    pub attempts: u32,
    /// It was given back since the last of them: not to be delivered before this time.
    pub due: Option<TimestampMs>,
    /// The last delivery that is in the log: lower fences do not settle it. 0: none with a fence is.
    pub fence: Fence,
}

type Page = BTreeMap<Offset, Retry>;

/// Retries by offset, in pages that copies share; a copy costs nothing, a change after it one page and a list of
/// pages. About 50 bytes each.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Retries {
    pages: Arc<BTreeMap<u64, Arc<Page>>>,
    len: usize,
}

impl Retries {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, offset: Offset) -> Option<Retry> {
        if self.len == 0 {
            return None;
        }
        self.pages.get(&(offset.0 / PAGE))?.get(&offset).copied()
    }

    pub(super) fn insert(&mut self, offset: Offset, retry: Retry) {
        let page = Arc::make_mut(&mut self.pages).entry(offset.0 / PAGE).or_default();
        self.len += usize::from(Arc::make_mut(page).insert(offset, retry).is_none());
    }

    /// Removes what lies in a range. Copies no page that has nothing in it.
    pub(super) fn remove(&mut self, range: &Range<Offset>) {
        if self.len == 0 || range.start >= range.end {
            return;
        }
        let pages = range.start.0 / PAGE..=(range.end.0 - 1) / PAGE;
        let touched: Vec<u64> = self.pages.range(pages).map(|(number, _)| *number).collect();
        for number in touched {
            self.remove_in(number, range);
        }
    }

    fn remove_in(&mut self, number: u64, range: &Range<Offset>) {
        let inside = self.pages[&number].range(range.clone()).count();
        if inside == 0 {
            return;
        }
        self.len -= inside;
        let pages = Arc::make_mut(&mut self.pages);
        let page = pages.get_mut(&number).expect("it was found above");
        if inside == page.len() {
            pages.remove(&number);
            return;
        }
        let page = Arc::make_mut(page);
        if inside == 1 {
            let (offset, _) = page.range(range.clone()).next().expect("there is one");
            let offset = *offset;
            page.remove(&offset);
        } else {
            page.retain(|offset, _| !range.contains(offset));
        }
    }

    pub(super) fn clear(&mut self) {
        *self = Self::default();
    }

    /// All in the order of offsets.
    pub(super) fn iter(&self) -> impl Iterator<Item = (Offset, Retry)> {
        self.pages.values().flat_map(|page| page.iter().map(|(offset, retry)| (*offset, *retry)))
    }

    /// Those from `offset` on, in order.
    pub(super) fn from(&self, offset: Offset) -> impl Iterator<Item = (Offset, Retry)> {
        let pages = self.pages.range(offset.0 / PAGE..);
        pages.flat_map(move |(_, page)| page.range(offset..).map(|(offset, retry)| (*offset, *retry)))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pages_answer_like_one_map(steps in proptest::collection::vec((0u64..5_000, 0u64..1_500, 1u32..9), 1..60)) {
            let (mut pages, mut plain) = (Retries::default(), BTreeMap::new());
            for (at, len, attempts) in steps {
                let (before, then) = (pages.clone(), plain.clone());
                let retry = Retry { attempts, due: (attempts > 4).then_some(TimestampMs(at)), fence: Fence(at) };
                pages.insert(Offset(at), retry);
                plain.insert(Offset(at), retry);
                let range = Offset(at + 1)..Offset(at + 1 + len / 2);
                pages.remove(&range);
                plain.retain(|offset, _| !range.contains(offset));
                prop_assert_eq!(pages.len(), plain.len());
                prop_assert!(pages.iter().eq(plain.clone()));
                prop_assert!(pages.from(Offset(len)).eq(plain.range(Offset(len)..).map(|(at, is)| (*at, *is))));
                prop_assert_eq!(pages.get(Offset(at)), Some(retry));
                prop_assert!(before.iter().eq(then));
            }
        }
    }
}
