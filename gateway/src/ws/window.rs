//! Things in flight, numbered in the order they started.

use std::collections::VecDeque;

/// A map from consecutive numbers that forgets its front: no hashing, one slot per number in flight.
#[derive(Debug)]
pub(super) struct Window<T> {
    first: u64,
    items: VecDeque<Option<T>>,
    len: usize,
}

impl<T> Default for Window<T> {
    fn default() -> Self {
        Self { first: 0, items: VecDeque::new(), len: 0 }
    }
}

impl<T> Window<T> {
    /// The number that the next item will have.
    pub(super) fn next(&self) -> u64 {
        self.first + self.items.len() as u64
    }

    /// Adds an item; returns its number.
    pub(super) fn push(&mut self, item: T) -> u64 {
        let number = self.next();
        self.items.push_back(Some(item));
        self.len += 1;
        number
    }

    pub(super) fn get_mut(&mut self, number: u64) -> Option<&mut T> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        self.items.get_mut(at)?.as_mut()
    }

    /// Takes an item out; `None` if it is gone already.
    pub(super) fn take(&mut self, number: u64) -> Option<T> {
        let at = usize::try_from(number.checked_sub(self.first)?).ok()?;
        let item = self.items.get_mut(at)?.take()?;
        self.len -= 1;
        while let Some(None) = self.items.front() {
            self.items.pop_front();
            self.first += 1;
        }
        Some(item)
    }

    /// Items in flight.
    pub(super) fn len(&self) -> usize {
        self.len
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn numbers_stay_valid_in_any_order_of_completion() {
        let mut window = Window::default();
        assert_eq!((window.push('a'), window.push('b'), window.push('c')), (0, 1, 2));
        assert_eq!(window.take(1), Some('b'));
        assert_eq!((window.take(1), window.take(7)), (None, None));
        assert_eq!(window.take(0), Some('a'));
        assert_eq!(window.items.len(), 1, "the front is forgotten");
        assert_eq!(window.get_mut(2), Some(&mut 'c'));
        assert_eq!((window.next(), window.len()), (3, 1));
    }
}
