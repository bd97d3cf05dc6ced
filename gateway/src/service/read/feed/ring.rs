//! What a feed holds of its partition, and where a reader stands in it. Pure.

use std::collections::VecDeque;
use std::ops::Range;

use weir_protocol::ids::Offset;

/// Items that follow each other without a hole: the newest of a partition.
///
/// ```text
///          start ≤ end                         items cover [start, end), each a range of its own
///          start ≤ taken, unless nothing is left of what somebody took
///   history = items that end at or before `taken`: kept for who is slower, let go whenever room is wanted
///   ahead   = items that end beyond it: nobody took them yet, so they are never let go
/// ```
#[derive(Debug)]
pub(super) struct Ring<T> {
    items: VecDeque<Item<T>>,
    end: Offset,
    /// The furthest that a reader has come; beyond `end` if it had more from elsewhere.
    taken: Offset,
    /// Memory that all items take.
    held_bytes: u64,
    /// What the items ahead are in credit.
    ahead_bytes: u64,
    mark: Mark,
}

#[derive(Debug)]
struct Item<T> {
    what: T,
    range: Range<Offset>,
    size: Size,
}

/// How large an item is: records that are compressed are less in memory than in credit, and small ones more.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Size {
    /// Memory that it takes, whatever is held beside its records included.
    pub(super) held_bytes: u64,
    /// Of its records as readers ask for them: what credit counts.
    pub(super) credit_bytes: u64,
}

/// What is known of the place where nothing more is there yet.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub(super) enum End {
    /// Nothing: the partition may go on.
    #[default]
    Unknown,
    /// It is the partition's end.
    Open,
    /// It is, and the topic is closed.
    Closed,
}

impl End {
    /// The partition's, of a topic that may be closed.
    pub(super) fn known(closed: bool) -> Self {
        if closed { Self::Closed } else { Self::Open }
    }
}

/// What is known of the partition's end.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
struct Mark {
    /// What the ring's end is.
    end: End,
    /// How often that was said again, with nothing between: after a change of the leader.
    repeats: u64,
}

/// What a reader finds where it stands.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Found<T> {
    /// The item that holds its next offset; it may begin before that.
    Item(T),
    /// The ring has moved on: what it wants is elsewhere.
    Behind,
    /// Nothing more is there yet.
    End,
}

/// Where a reader stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place {
    /// Next offset that it wants.
    pub(super) next: Offset,
    /// What it was told of the end there.
    told: End,
    /// Repeats of that which it knows of.
    repeats: u64,
}

impl<T: Clone> Ring<T> {
    /// An empty ring at `end`.
    pub(super) fn new(end: Offset) -> Self {
        Self { items: VecDeque::new(), end, taken: end, held_bytes: 0, ahead_bytes: 0, mark: Mark::default() }
    }

    /// First offset that is held; the end if nothing is.
    pub(super) fn start(&self) -> Offset {
        self.items.front().map_or(self.end, |item| item.range.start)
    }

    /// End of what came.
    pub(super) fn end(&self) -> Offset {
        self.end
    }

    /// Memory that is held.
    pub(super) fn held_bytes(&self) -> u64 {
        self.held_bytes
    }

    /// Credit for what nobody took yet.
    pub(super) fn ahead_bytes(&self) -> u64 {
        self.ahead_bytes
    }

    /// Adds what follows, which is all there is if `is_end`.
    ///
    /// # Panics
    /// If it does not follow, or is empty: it would be lost for every reader.
    pub(super) fn push(&mut self, what: T, range: Range<Offset>, size: Size, is_end: bool) {
        assert_eq!(range.start, self.end, "a feed's records follow each other: {range:?}");
        assert!(range.start < range.end, "a feed's item holds records: {range:?}");
        self.end = range.end;
        self.held_bytes += size.held_bytes;
        if range.end > self.taken {
            self.ahead_bytes += size.credit_bytes;
        }
        self.items.push_back(Item { what, range, size });
        self.mark.end = if is_end { End::Open } else { End::Unknown };
        self.check();
    }

    /// The ring's end is the partition's, of a topic that may be closed.
    pub(super) fn caught_up(&mut self, closed: bool) {
        let end = End::known(closed);
        if std::mem::replace(&mut self.mark.end, end) == end {
            self.mark.repeats += 1;
        }
    }

    /// Lets the oldest history go until no more than `bytes_max` are held, as far as there is any. What went
    /// is to be dropped where nobody waits for the ring.
    pub(super) fn trim(&mut self, bytes_max: u64) -> Vec<T> {
        let mut gone = Vec::new();
        while self.held_bytes > bytes_max
            && let Some(item) = self.items.pop_front_if(|item| item.range.end <= self.taken)
        {
            self.held_bytes -= item.size.held_bytes;
            gone.push(item.what);
        }
        self.check();
        gone
    }

    /// A place for a reader that has everything before `next`, and knows so much of the end there; `None` if
    /// the ring has moved on.
    pub(super) fn join(&mut self, next: Offset, told: End) -> Option<Place> {
        if next < self.start() {
            return None;
        }
        self.reached(next);
        Some(Place { next, told, repeats: self.mark.repeats })
    }

    /// What a reader finds, who has taken everything before its place.
    pub(super) fn find(&mut self, place: &Place) -> Found<T> {
        self.reached(place.next);
        if place.next >= self.end {
            return Found::End;
        }
        if place.next < self.start() {
            return Found::Behind;
        }
        // Mostly the last one: who keeps up has everything else.
        let is_last = self.items.back().is_some_and(|item| item.range.start <= place.next);
        let at = if is_last {
            self.items.len() - 1
        } else {
            self.items.partition_point(|item| item.range.end <= place.next)
        };
        Found::Item(self.items[at].what.clone())
    }

    /// What a reader that found [`Found::End`] is to be told of it, once: that it is the partition's, if it is.
    pub(super) fn tell_end(&self, place: &mut Place) -> End {
        let is_known = (place.told, place.repeats) == (self.mark.end, self.mark.repeats);
        if place.next != self.end || self.mark.end == End::Unknown || is_known {
            return End::Unknown;
        }
        (place.told, place.repeats) = (self.mark.end, self.mark.repeats);
        place.told
    }

    fn reached(&mut self, next: Offset) {
        if next <= self.taken {
            return;
        }
        let newly = self.items.partition_point(|item| item.range.end <= self.taken);
        for item in self.items.range(newly..).take_while(|item| item.range.end <= next) {
            self.ahead_bytes -= item.size.credit_bytes;
        }
        self.taken = next;
        self.check();
    }

    fn check(&self) {
        debug_assert!(self.items.back().is_none_or(|item| item.range.end == self.end));
        debug_assert!(
            self.items.iter().zip(self.items.iter().skip(1)).all(|(a, b)| a.range.end == b.range.start)
        );
        debug_assert_eq!(self.held_bytes, self.items.iter().map(|item| item.size.held_bytes).sum::<u64>());
        let ahead = self.items.iter().filter(|item| item.range.end > self.taken);
        debug_assert_eq!(self.ahead_bytes, ahead.map(|item| item.size.credit_bytes).sum::<u64>());
    }
}

impl Place {
    /// It took everything before `end`.
    pub(super) fn took(&mut self, end: Offset) {
        *self = Self { next: end, told: End::Unknown, ..*self };
    }
}

#[cfg(test)]
mod tests;
