use proptest::prelude::*;

use super::*;

/// A ring of the ranges themselves.
type Ranges = Ring<Range<u64>>;

/// An item that takes so much memory, and three times as much credit.
fn push(ring: &mut Ranges, count: u64, held_bytes: u64, is_end: bool) {
    let range = ring.end..ring.end.plus(count);
    let size = Size { held_bytes, credit_bytes: 3 * held_bytes };
    ring.push(range.start.0..range.end.0, range, size, is_end);
}

#[test]
fn a_reader_takes_what_follows_and_is_told_once_that_it_was_all() {
    let mut ring = Ranges::new(Offset(10));
    let mut place = ring.join(Offset(10), End::Open).unwrap();
    assert_eq!(ring.find(&place), Found::End);
    assert_eq!(ring.tell_end(&mut place), End::Unknown, "it knew");
    ring.caught_up(false);
    assert_eq!(ring.tell_end(&mut place), End::Unknown, "and nothing came since");
    push(&mut ring, 3, 30, true);
    assert_eq!(ring.find(&place), Found::Item(10..13));
    place.took(Offset(13));
    assert_eq!(ring.find(&place), Found::End);
    assert_eq!([ring.tell_end(&mut place), ring.tell_end(&mut place)], [End::Open, End::Unknown]);
    ring.caught_up(false);
    assert_eq!(ring.tell_end(&mut place), End::Open, "who follows hears it again from another leader");
    assert_eq!(ring.tell_end(&mut place), End::Unknown);
}

#[test]
fn who_is_at_the_end_is_told_once_when_the_topic_is_closed_and_when_it_is_opened() {
    let mut ring = Ranges::new(Offset(10));
    let mut place = ring.join(Offset(10), End::Open).unwrap();
    ring.caught_up(false);
    for (closed, told) in [(true, End::Closed), (false, End::Open)] {
        ring.caught_up(closed);
        assert_eq!([ring.tell_end(&mut place), ring.tell_end(&mut place)], [told, End::Unknown]);
    }
    let mut late = ring.join(Offset(10), End::Closed).unwrap();
    assert_eq!(ring.tell_end(&mut late), End::Open, "it was opened since");
}

#[test]
fn who_is_not_at_the_end_is_not_told_of_it() {
    let mut ring = Ranges::new(Offset(0));
    let mut place = ring.join(Offset(0), End::Unknown).unwrap();
    push(&mut ring, 1, 1, true);
    push(&mut ring, 1, 1, true);
    place.took(Offset(1));
    assert_eq!(ring.tell_end(&mut place), End::Unknown);
    let mut ahead = ring.join(Offset(9), End::Unknown).unwrap();
    assert_eq!(ring.tell_end(&mut ahead), End::Unknown, "the feed has not come that far");
}

#[test]
fn only_what_the_fastest_has_taken_is_let_go() {
    let mut ring = Ranges::new(Offset(0));
    let slow = ring.join(Offset(0), End::Open).unwrap();
    let mut fast = ring.join(Offset(0), End::Open).unwrap();
    for _ in 0..3 {
        push(&mut ring, 2, 100, false);
    }
    assert_eq!((ring.trim(0), ring.ahead_bytes()), (vec![], 900), "nobody has any of it");
    fast.took(Offset(3));
    assert_eq!(ring.find(&fast), Found::Item(2..4), "within an item");
    assert_eq!(ring.ahead_bytes(), 600, "credit");
    assert_eq!((ring.trim(250).len(), ring.held_bytes()), (1, 200), "memory");
    assert_eq!(ring.find(&slow), Found::Behind);
    assert_eq!(ring.join(Offset(1), End::Unknown), None);
    assert_eq!(ring.trim(0), vec![]);
}

#[test]
fn who_joins_beyond_the_end_lets_the_feed_run_there_and_waits() {
    let mut ring = Ranges::new(Offset(0));
    push(&mut ring, 2, 100, true);
    assert_eq!(ring.ahead_bytes(), 300);
    let place = ring.join(Offset(5), End::Open).unwrap();
    assert_eq!((ring.ahead_bytes(), ring.find(&place)), (0, Found::End));
    push(&mut ring, 2, 100, false);
    assert_eq!((ring.ahead_bytes(), ring.find(&place)), (0, Found::End), "it has that already");
    push(&mut ring, 2, 100, false);
    assert_eq!(ring.ahead_bytes(), 300);
    assert_eq!(ring.find(&place), Found::Item(4..6));
}

/// A reader as the gateway drives it: on the feed, or behind it by a stream of its own.
#[derive(Debug)]
struct Reader {
    next: u64,
    place: Option<Place>,
    got: Vec<u64>,
}

impl Reader {
    /// One step, with credit for `credit` records: takes from the ring, or from `log`, which it joins at the ring's.
    fn step(&mut self, ring: &mut Ranges, log_end: u64, credit: u64) {
        let Some(place) = &mut self.place else {
            let end = log_end.min(self.next + credit);
            self.got.extend(self.next..end);
            self.next = end;
            let told = if self.next == log_end { End::Open } else { End::Unknown };
            self.place = ring.join(Offset(self.next), told);
            return;
        };
        assert_eq!(place.next.0, self.next);
        let range = match ring.find(place) {
            Found::Item(range) => range,
            Found::End => return,
            Found::Behind => {
                self.place = None;
                return;
            }
        };
        assert!(range.contains(&self.next), "{range:?} at {}", self.next);
        let end = range.end.min(self.next + credit);
        self.got.extend(self.next..end);
        if end > self.next {
            place.took(Offset(end));
            self.next = end;
        }
    }
}

#[derive(Debug, Clone)]
enum Step {
    /// So many records are written to the log.
    Append(u64),
    /// The feed takes so many of them.
    Feed(u64),
    Trim(u64),
    /// A reader takes.
    Take(usize, u64),
    /// A reader is sent back to a stream of its own, as when a feed ends, and comes again.
    Fall(usize),
    /// The feed ends and the next reader opens another where it stands.
    Reopen(usize),
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let step = prop_oneof![
        (1u64..6).prop_map(Step::Append),
        (1u64..6).prop_map(Step::Feed),
        (0u64..80).prop_map(Step::Trim),
        (0usize..4, 0u64..9).prop_map(|(who, credit)| Step::Take(who, credit)),
        (0usize..4, 0u64..9).prop_map(|(who, credit)| Step::Take(who, credit)),
        (0usize..4).prop_map(Step::Fall),
        (0usize..4).prop_map(Step::Reopen),
    ];
    proptest::collection::vec(step, 0..300)
}

proptest! {
    /// Whatever comes between, each reader gets each record once and in order; the ring never holds more than what
    /// nobody took and the room for history.
    #[test]
    fn each_reader_gets_each_record_once_in_order(steps in steps(), starts in proptest::array::uniform4(0u64..4)) {
        let mut log_end = 3;
        let mut ring = Ranges::new(Offset(3));
        let mut readers = starts.map(|next| Reader { next, place: None, got: Vec::new() });
        for step in steps {
            match step {
                Step::Append(count) => log_end += count,
                Step::Feed(count) => {
                    let count = count.min(log_end - ring.end.0);
                    if count > 0 {
                        let is_end = ring.end.0 + count == log_end;
                        push(&mut ring, count, 10 * count, is_end);
                    }
                }
                Step::Trim(bytes_max) => {
                    ring.trim(bytes_max);
                    prop_assert!(ring.held_bytes() <= bytes_max.max(ring.ahead_bytes() / 3));
                }
                Step::Take(who, credit) => readers[who].step(&mut ring, log_end, credit),
                Step::Fall(who) => readers[who].place = None,
                Step::Reopen(who) => {
                    ring = Ranges::new(Offset(readers[who].next));
                    readers.iter_mut().for_each(|reader| reader.place = None);
                }
            }
        }
        // Everything that is left.
        while ring.end.0 < log_end {
            push(&mut ring, 1, 10, false);
        }
        for reader in &mut readers {
            while reader.next < log_end {
                reader.step(&mut ring, log_end, 5);
            }
        }
        for (reader, start) in readers.iter().zip(starts) {
            prop_assert_eq!(&reader.got, &(start..log_end).collect::<Vec<_>>());
        }
    }
}
