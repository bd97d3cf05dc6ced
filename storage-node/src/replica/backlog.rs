//! Proposals that wait, taken fairly: no sender waits behind another's backlog.

use std::collections::{HashMap, VecDeque};

/// Who sent a proposal: a connection of a gateway. What one sender sends keeps its order, so batches of one producer
/// stay in theirs, whatever partitions share their calls.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct Sender(pub u64);

/// What can wait.
pub trait Weighted {
    /// Whose turn it uses; `None` comes before all senders.
    fn turn(&self) -> Option<Sender>;
    /// Bytes it adds to an entry.
    fn bytes(&self) -> usize;
    /// Sub-batches it adds to an entry.
    fn subs(&self) -> usize;
}

/// How much one entry takes. One item is always taken, however large.
#[derive(Debug, Clone, Copy)]
pub struct EntryTarget {
    /// Bytes.
    pub bytes: usize,
    /// Sub-batches.
    pub subs: usize,
}

/// Bytes that a sender may take per round before the next one has its turn.
const QUANTUM_BYTES: usize = 64 << 10;

/// Queues by sender, served by deficit round robin (Shreedhar and Varghese, 1995). A sender's order is kept; the
/// shard's own changes come first.
#[derive(Debug)]
pub struct Backlog<T> {
    own: VecDeque<T>,
    queues: HashMap<Sender, Queue<T>>,
    turns: VecDeque<Sender>,
    len: usize,
}

#[derive(Debug)]
struct Queue<T> {
    items: VecDeque<T>,
    deficit: usize,
}

impl<T> Default for Backlog<T> {
    fn default() -> Self {
        Self { own: VecDeque::new(), queues: HashMap::new(), turns: VecDeque::new(), len: 0 }
    }
}

impl<T: Weighted> Backlog<T> {
    /// Adds an item behind those of its sender.
    pub fn push(&mut self, item: T) {
        self.len += 1;
        let Some(key) = item.turn() else { return self.own.push_back(item) };
        let queue = self.queues.entry(key).or_insert_with(|| {
            self.turns.push_back(key);
            Queue { items: VecDeque::new(), deficit: 0 }
        });
        queue.items.push_back(item);
    }

    /// Nothing waits.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.len == 0
    }

    /// Takes what the next entry carries; empty only if nothing waits.
    pub fn take(&mut self, target: EntryTarget) -> Vec<T> {
        let mut taken = Taken { items: Vec::new(), bytes: 0, subs: 0, target };
        while let Some(item) = self.own.front() {
            if !taken.fits(item) {
                break;
            }
            taken.items.extend(self.own.pop_front());
        }
        while self.own.is_empty() && !self.turns.is_empty() {
            if !self.serve_next(&mut taken) {
                break;
            }
        }
        self.len -= taken.items.len();
        taken.items
    }

    /// Everything, in no particular order across senders.
    pub fn drain(&mut self) -> Vec<T> {
        let all = std::mem::take(self);
        all.own.into_iter().chain(all.queues.into_values().flat_map(|queue| queue.items)).collect()
    }

    /// Gives the next sender its turn; false if the entry is full.
    fn serve_next(&mut self, taken: &mut Taken<T>) -> bool {
        let Some(key) = self.turns.front().copied() else { return false };
        let queue = self.queues.get_mut(&key).expect("every turn has a queue");
        queue.deficit += QUANTUM_BYTES;
        while let Some(item) = queue.items.front() {
            let bytes = item.bytes();
            if bytes > queue.deficit && !taken.items.is_empty() {
                self.turns.rotate_left(1);
                return true;
            }
            if !taken.fits(item) {
                // The same sender goes on in the next entry; what it has not used it keeps.
                queue.deficit -= QUANTUM_BYTES.min(queue.deficit);
                return false;
            }
            queue.deficit = queue.deficit.saturating_sub(bytes);
            taken.items.extend(queue.items.pop_front());
        }
        self.queues.remove(&key);
        self.turns.pop_front();
        true
    }
}

struct Taken<T> {
    items: Vec<T>,
    bytes: usize,
    subs: usize,
    target: EntryTarget,
}

impl<T: Weighted> Taken<T> {
    /// Counts the item in if there is room, or if it is the first.
    fn fits(&mut self, item: &T) -> bool {
        let (bytes, subs) = (self.bytes + item.bytes(), self.subs + item.subs());
        if !self.items.is_empty() && (bytes > self.target.bytes || subs > self.target.subs) {
            return false;
        }
        (self.bytes, self.subs) = (bytes, subs);
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const TARGET: EntryTarget = EntryTarget { bytes: 256 << 10, subs: 512 };

    #[derive(Debug, PartialEq, Clone, Copy)]
    struct Item(u32, u32, usize);

    impl Weighted for Item {
        fn turn(&self) -> Option<Sender> {
            (self.0 > 0).then_some(Sender(u64::from(self.0)))
        }
        fn bytes(&self) -> usize {
            self.2
        }
        fn subs(&self) -> usize {
            1
        }
    }

    #[test]
    fn a_small_sender_is_not_kept_waiting_by_a_large_backlog() {
        let mut backlog = Backlog::default();
        (0..100).for_each(|n| backlog.push(Item(1, n, 32 << 10)));
        backlog.push(Item(2, 0, 100));
        let first = backlog.take(TARGET);
        assert!(first.contains(&Item(2, 0, 100)), "{first:?}");
        assert!(first.iter().map(|item| item.2).sum::<usize>() <= TARGET.bytes);
    }

    #[test]
    fn everything_comes_out_once_and_in_each_senders_order() {
        let mut backlog = Backlog::default();
        let items: Vec<Item> = (0..600).map(|n| Item(n % 7, n, (n as usize * 977) % 90_000)).collect();
        items.iter().for_each(|item| backlog.push(*item));
        let mut seen: Vec<Item> = Vec::new();
        while !backlog.is_empty() {
            let entry = backlog.take(TARGET);
            assert!(!entry.is_empty());
            assert!(entry.len() == 1 || entry.iter().map(|item| item.2).sum::<usize>() <= TARGET.bytes);
            seen.extend(entry);
        }
        for sender in 0..7 {
            let of =
                |items: &[Item]| items.iter().filter(|item| item.0 == sender).copied().collect::<Vec<_>>();
            assert_eq!(of(&seen), of(&items), "sender {sender}");
        }
    }

    #[test]
    fn the_shards_own_changes_come_first_and_an_oversize_item_goes_alone() {
        let mut backlog = Backlog::default();
        backlog.push(Item(1, 0, 3 << 20));
        backlog.push(Item(0, 1, 10));
        assert_eq!(backlog.take(TARGET), [Item(0, 1, 10)]);
        assert_eq!(backlog.take(TARGET), [Item(1, 0, 3 << 20)]);
        assert!(backlog.is_empty());
    }
}
