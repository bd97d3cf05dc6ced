//! Memory in large pages, from which the disk takes a block at once.
//!
//! A write past the page cache takes hold of every page that it writes from and asks the disk for each by
//! itself. On the machine this was measured on 1 MiB took 320 us from pages of 4 KiB and 210 from one of 2
//! MiB, 256 KiB 120 and 100 (docs/performance/experiments/block-writes.c).

use std::io;
use std::ops::{Deref, DerefMut};

use memmap2::MmapMut;

/// Bytes of a large page; where the system's are others, these are only a place to begin.
const LARGE: usize = 2 << 20;
/// Where smaller memory begins at least: the system maps no less.
const SMALL: usize = 4 << 10;
/// From so many bytes on large pages are asked for. What is not used of the last is memory that nobody else has.
const LARGE_FROM: usize = 1 << 20;

/// Bytes that begin at a page, as a vector's they may become more. Large pages are the system's to give:
/// where it has none these are small.
#[derive(Debug)]
pub(crate) struct Pages {
    map: MmapMut,
    start: usize,
    len: usize,
}

impl Pages {
    /// Room for `capacity` bytes, none of which takes memory before it is used.
    ///
    /// # Errors
    /// The system has no room.
    pub(crate) fn with_capacity(capacity: usize) -> io::Result<Self> {
        let is_large = capacity >= LARGE_FROM;
        let page = if is_large { LARGE } else { SMALL };
        let slack = if is_large { LARGE } else { 0 };
        let map = MmapMut::map_anon(capacity.max(1).next_multiple_of(page) + slack)?;
        let start = map.as_ptr().align_offset(page);
        #[cfg(target_os = "linux")]
        if is_large && let Err(error) = map.advise(memmap2::Advice::HugePage) {
            tracing::debug!(%error, "the system has no large pages: blocks are written from small ones");
        }
        Ok(Self { map, start, len: 0 })
    }

    fn capacity(&self) -> usize {
        self.map.len() - self.start
    }

    /// Empty again.
    pub(crate) fn clear(&mut self) {
        self.len = 0;
    }

    /// `more` bytes behind the last, to be written: they are what was there before.
    ///
    /// # Panics
    /// If the system has no room.
    pub(crate) fn grow(&mut self, more: usize) -> &mut [u8] {
        let len = self.len;
        if len + more > self.capacity() {
            let mut larger = Self::with_capacity((len + more).max(2 * self.capacity())).expect("memory");
            larger.grow(len).copy_from_slice(self);
            *self = larger;
        }
        self.len += more;
        &mut self[len..]
    }
}

impl Deref for Pages {
    type Target = [u8];

    fn deref(&self) -> &[u8] {
        &self.map[self.start..self.start + self.len]
    }
}

impl DerefMut for Pages {
    fn deref_mut(&mut self) -> &mut [u8] {
        &mut self.map[self.start..self.start + self.len]
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn they_begin_at_a_page_and_keep_what_is_in_them_as_they_grow() {
        for (capacity, page) in [(0, SMALL), (1, SMALL), (LARGE_FROM, LARGE), (2 * LARGE, LARGE)] {
            let mut pages = Pages::with_capacity(capacity).unwrap();
            assert!(pages.is_empty() && pages.capacity() >= capacity);
            assert_eq!(pages.map[pages.start..].as_ptr().align_offset(page), 0, "{capacity}");
            let mut all = Vec::new();
            for byte in 0..=u8::MAX {
                let more = vec![byte; 100 * usize::from(byte)];
                pages.grow(more.len()).copy_from_slice(&more);
                all.extend(more);
            }
            assert_eq!(*pages, *all, "{capacity}");
            pages.clear();
            assert!(pages.is_empty());
        }
    }
}
