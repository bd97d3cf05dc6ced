//! Who reads a part of a stream, and how far: in the leader's memory only. Pure: no clock, no I/O.
//!
//! ```text
//!             Part: a function of the log             Cursor
//!   records   ───────────────┬──────────────────┬────────────────────┬──────────▶
//!             acknowledged   │ shown            │ not shown          │ not there
//!                          floor ≤ accepted    shown                end
//! ```
//! One reader at a time, in the order of offsets. The next one begins at the floor when the one before has left, or was
//! silent for too long: what was shown and not acknowledged is shown again, and nothing is passed over.
//!
//! Of a subscription with several parts each part is given to one of its consumers, see
//! [`Roster`](super::Roster), under a lot. Whoever comes with a higher lot makes the reader *yield*: it is
//! shown nothing more, and others begin once all that it was shown is acknowledged and committed,
//! [`YIELD_MS_MAX`] later at the latest. Who has a lower lot does not begin.
//!
//! Whoever acknowledges a record was shown everything from the floor of its time up to it. So an acknowledgement of a
//! reader that is gone loses nothing while nobody has begun after it, across a restart too; only a seek makes it void.

use std::ops::Range;
use std::sync::Arc;

use weir_protocol::ids::{Offset, TimestampMs};

use super::event::Fence;
use super::part::Part;
use super::roster::Lot;

/// For how long a reader that yields may acknowledge what it was shown.
pub const YIELD_MS_MAX: u64 = 2_000;

/// A part's reader. Fences of its records are as far apart as their offsets are, and those of the next one are higher.
#[derive(Debug)]
pub struct Cursor {
    pub(super) next_fence: Fence,
    next_connection: u64,
    /// Everything below is acknowledged, if not committed yet; since the reader began.
    pub(super) accepted: Offset,
    pub(super) reader: Option<Reader>,
    /// The highest that anybody came with.
    lot: Lot,
    reading: Reading,
    /// Records below may have been shown to a reader before this one, or by an earlier leader.
    shown_before: Offset,
}

/// The time of one reader, or of nobody; what was shown in another is acknowledged by nobody.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Reading(u64);

#[derive(Debug)]
pub(super) struct Reader {
    pub(super) holder: Arc<str>,
    connection: Option<Connection>,
    /// Where it began.
    pub(super) first: Offset,
    pub(super) first_fence: Fence,
    /// One past the last record that it was shown.
    pub(super) shown: Offset,
    /// How long it may be silent.
    pub(super) patience_ms: u64,
    /// Others may begin from then on; `None` as long as it is connected.
    pub(super) until: Option<TimestampMs>,
    /// When it began.
    pub(super) begun: TimestampMs,
    /// It yields once there is a higher one.
    lot: Lot,
}

/// One call that reads as long as it is there; no two of a part are alike.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Connection(u64);

/// Who wants to read.
#[derive(Debug, Clone, Copy)]
pub struct Wants<'a> {
    /// Its name; nobody else's.
    pub holder: &'a Arc<str>,
    /// It has its place until it leaves, and goes on behind what it was shown. `None`: it pulls, may be silent for a
    /// time, and goes on behind what it acknowledged, for an answer may not have reached it.
    pub connection: Option<Connection>,
    /// How long it may be silent.
    pub patience_ms: u64,
    /// Under which the part was given to it.
    pub lot: Lot,
}

/// Somebody else reads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Occupied {
    /// When to ask again; `None`: when something changed.
    pub until: Option<TimestampMs>,
}

/// What an acknowledgement did.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Acked {
    /// Everything below this offset is to be settled.
    Upto(Offset),
    /// Another reader has taken its place, or the part was moved.
    Lost,
    /// It was acknowledged by an earlier reader.
    Already,
    /// It was never shown.
    Unknown,
}

/// Whose turn it is.
enum Place {
    Its,
    Free,
    Others(Occupied),
}

impl Cursor {
    /// Nobody reads yet. Fences begin at `next_fence`, above all that were given before.
    #[must_use]
    pub fn new(next_fence: Fence) -> Self {
        // Connections of an earlier term may still be there: they are none of these.
        let (accepted, reader, lot, reading) = (Offset(0), None, Lot(0), Reading(0));
        let shown_before = Offset(0);
        Self { next_fence, next_connection: next_fence.0, accepted, reader, lot, reading, shown_before }
    }

    /// The same where earlier leaders may have shown records below `end`.
    #[must_use]
    pub fn after_leader_of(self, end: Offset) -> Self {
        Self { shown_before: end, ..self }
    }

    /// The fence below which nothing settles any more, to be logged before the reader is shown its first record: what
    /// was shown to others and is not acknowledged is its own. `None`: nothing was, or it is in the log.
    #[must_use]
    pub fn voids(&self, part: &Part) -> Option<Fence> {
        let reader = self.reader.as_ref()?;
        let is_needed = reader.first < self.shown_before && part.fence_min() < reader.first_fence;
        is_needed.then_some(reader.first_fence)
    }

    /// A call that will read. It comes in the place of an earlier one of the same holder, whose last records
    /// may not have reached it, and of whoever has a name that begins with `takes_over`.
    pub fn connect(&mut self, holder: &str, takes_over: Option<&str>) -> Connection {
        let is_before = |reader: &Reader| {
            *reader.holder == *holder || takes_over.is_some_and(|name| reader.holder.starts_with(name))
        };
        if self.reader.as_ref().is_some_and(is_before) {
            self.end();
        }
        self.next_connection += 1;
        Connection(self.next_connection)
    }

    /// Somebody comes with its lot. True if that is higher than any before: who reads and who waits looks again.
    pub fn claim(&mut self, wants: Wants<'_>, now: TimestampMs) -> bool {
        if wants.lot <= self.lot {
            return false;
        }
        self.lot = wants.lot;
        if let Some(reader) = &mut self.reader {
            if reader.holder == *wants.holder {
                reader.lot = wants.lot;
            } else {
                let deadline = TimestampMs(now.0.saturating_add(reader.patience_ms.min(YIELD_MS_MAX)));
                reader.until = Some(reader.until.map_or(deadline, |until| until.min(deadline)));
            }
        }
        true
    }

    /// Somebody came with a higher lot.
    #[must_use]
    pub fn is_displaced(&self, lot: Lot) -> bool {
        lot < self.lot
    }

    /// The reader is shown nothing more: others wait until it has acknowledged what it was.
    #[must_use]
    pub fn is_yielding(&self) -> bool {
        self.reader.as_ref().is_some_and(|reader| reader.lot < self.lot)
    }

    /// Begins to read, or goes on: where.
    ///
    /// # Errors
    /// Somebody else reads.
    pub fn begin(&mut self, wants: Wants<'_>, floor: Offset, now: TimestampMs) -> Result<Offset, Occupied> {
        let until = wants.connection.is_none().then(|| TimestampMs(now.0.saturating_add(wants.patience_ms)));
        let is_its = match self.place(wants, floor, now) {
            Place::Others(occupied) => return Err(occupied),
            Place::Its => true,
            Place::Free => false,
        };
        // Where retention has removed what it was not shown it begins anew, so that fences do not run ahead.
        let reader = self.reader.as_mut().filter(|reader| is_its && reader.shown >= floor);
        if let Some(reader) = reader {
            (reader.until, reader.patience_ms) = (until, wants.patience_ms);
            self.accepted = self.accepted.max(floor);
            return Ok(if wants.connection.is_some() { reader.shown } else { self.accepted });
        }
        self.end();
        self.accepted = floor;
        self.reader = Some(Reader {
            holder: Arc::clone(wants.holder),
            connection: wants.connection,
            first: floor,
            first_fence: self.next_fence,
            shown: floor,
            patience_ms: wants.patience_ms,
            until,
            begun: now,
            lot: wants.lot,
        });
        Ok(floor)
    }

    /// Where it would begin or go on; `None` while somebody else reads. Changes nothing.
    #[must_use]
    pub fn would_begin(&self, wants: Wants<'_>, floor: Offset, now: TimestampMs) -> Option<Offset> {
        match (self.place(wants, floor, now), &self.reader) {
            (Place::Others(_), _) => None,
            (Place::Its, Some(reader)) if wants.connection.is_some() => Some(reader.shown.max(floor)),
            (Place::Its, _) => Some(self.accepted.max(floor)),
            (Place::Free, _) => Some(floor),
        }
    }

    /// Whether it reads.
    #[must_use]
    pub fn is_read_by(&self, wants: Wants<'_>, floor: Offset, now: TimestampMs) -> bool {
        matches!(self.place(wants, floor, now), Place::Its)
    }

    fn place(&self, wants: Wants<'_>, floor: Offset, now: TimestampMs) -> Place {
        match &self.reader {
            _ if self.is_displaced(wants.lot) => Place::Others(Occupied { until: None }),
            None => Place::Free,
            Some(reader) if reader.is(wants) => Place::Its,
            // What was acknowledged must be committed: the next begins at the floor.
            Some(reader) if reader.is_over(now) || (reader.lot < self.lot && reader.shown <= floor) => {
                Place::Free
            }
            Some(reader) => Place::Others(Occupied { until: reader.until }),
        }
    }

    /// The reader was shown what is in a range; the fence of its first record. `None` if it is not the reader any more.
    pub fn shown(&mut self, wants: Wants<'_>, range: Range<Offset>) -> Option<Fence> {
        if self.is_displaced(wants.lot) {
            return None;
        }
        let reader = self.reader.as_mut().filter(|reader| reader.is(wants) && range.start >= reader.first)?;
        reader.shown = reader.shown.max(range.end);
        Some(reader.fence_of(range.start))
    }

    /// Everything up to and with a record is acknowledged. `end` is the partition's.
    pub fn ack(&mut self, offset: Offset, fence: Fence, part: &Part, end: Offset, now: TimestampMs) -> Acked {
        let floor = part.floor();
        let of_before = if offset < floor { Acked::Already } else { Acked::Lost };
        match &mut self.reader {
            Some(reader) if fence < reader.first_fence => return of_before,
            Some(reader) => {
                let is_shown = (reader.first..reader.shown).contains(&offset);
                if !is_shown || reader.fence_of(offset) != fence {
                    return Acked::Unknown;
                }
                // A sign of life of whoever pulls; one that has left, or yields, does not stay for it.
                if let (None, Some(until), true) =
                    (reader.connection, &mut reader.until, reader.lot >= self.lot)
                {
                    *until = (*until).max(TimestampMs(now.0.saturating_add(reader.patience_ms)));
                }
            }
            None if fence >= self.next_fence || offset >= end => return Acked::Unknown,
            None if offset < floor || fence < part.fence_min() => return of_before,
            None => {}
        }
        let upto = offset.plus(1).max(floor);
        self.accepted = self.accepted.max(upto);
        Acked::Upto(upto)
    }

    /// Whose time it is: to be told to [`Cursor::to_settle`] with what was acknowledged in it.
    #[must_use]
    pub fn reading(&self) -> Reading {
        self.reading
    }

    /// What to settle so that everything below `upto` is, which was acknowledged in `reading`: with what was
    /// acknowledged since. Empty if it is settled; `None` if the reader was replaced before.
    #[must_use]
    pub fn to_settle(&mut self, upto: Offset, reading: Reading, floor: Offset) -> Option<Range<Offset>> {
        if floor >= upto {
            return Some(floor..floor);
        }
        if reading == self.reading {
            // What was accepted before or beside it may have been refused since.
            self.accepted = self.accepted.max(upto);
        }
        (self.accepted >= upto).then_some(floor..self.accepted)
    }

    /// What was to be settled below `end` did not get into the log, or nobody knows: it counts as not acknowledged,
    /// and whoever pulls is shown it again. What waits to be settled still counts once its turn comes.
    pub fn failed(&mut self, end: Offset, floor: Offset) {
        if self.accepted == end {
            self.accepted = floor;
        }
    }

    /// A holder is gone, with any connection or this one: others may begin from then on. True if it read.
    pub fn left(&mut self, holder: &str, connection: Option<Connection>, deadline: TimestampMs) -> bool {
        let is_it = |reader: &&mut Reader| {
            *reader.holder == *holder && connection.is_none_or(|it| reader.connection == Some(it))
        };
        self.reader.as_mut().filter(is_it).is_some_and(|reader| {
            reader.until = Some(reader.until.map_or(deadline, |until| until.min(deadline)));
            true
        })
    }

    /// The part was moved: nobody reads, and fences go on at `next_fence` at the lowest.
    pub fn begin_again(&mut self, next_fence: Fence) {
        self.end();
        self.next_fence = self.next_fence.max(next_fence);
    }

    /// Lower fences were given, higher ones were not.
    #[must_use]
    pub fn fence_end(&self) -> Fence {
        self.reader.as_ref().map_or(self.next_fence, |reader| reader.fence_of(reader.shown))
    }

    /// Nobody reads any more, and what was shown is acknowledged by nobody.
    fn end(&mut self) {
        self.next_fence = self.fence_end();
        self.shown_before = self.reader.as_ref().map_or(Offset(0), |it| it.shown).max(self.shown_before);
        (self.reader, self.accepted) = (None, Offset(0));
        self.reading.0 += 1;
    }
}

impl Reader {
    fn is(&self, wants: Wants<'_>) -> bool {
        self.holder == *wants.holder && self.connection == wants.connection
    }

    /// Its place is free for others.
    pub(super) fn is_over(&self, now: TimestampMs) -> bool {
        self.until.is_some_and(|until| until <= now)
    }

    pub(super) fn fence_of(&self, offset: Offset) -> Fence {
        Fence(self.first_fence.0 + (offset.0 - self.first.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PATIENCE_MS: u64 = 1_000;
    const END: Offset = Offset(100);

    fn pulls(holder: &Arc<str>) -> Wants<'_> {
        Wants { holder, connection: None, patience_ms: PATIENCE_MS, lot: Lot(0) }
    }

    fn at(ms: u64) -> TimestampMs {
        TimestampMs(ms)
    }

    fn settled_below(floor: u64) -> Part {
        Part::new(Offset(floor))
    }

    #[test]
    fn one_reads_until_it_is_silent_for_too_long_and_the_next_begins_at_the_floor() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let mut cursor = Cursor::new(Fence(100));
        let part = settled_below(5);
        assert_eq!(cursor.begin(pulls(&a), Offset(5), at(0)), Ok(Offset(5)));
        assert_eq!(cursor.shown(pulls(&a), Offset(5)..Offset(9)), Some(Fence(100)));
        assert_eq!(cursor.begin(pulls(&b), Offset(5), at(999)), Err(Occupied { until: Some(at(1_000)) }));
        assert_eq!(cursor.ack(Offset(6), Fence(101), &part, END, at(900)), Acked::Upto(Offset(7)));
        // An acknowledgement is a sign of life, and a repeated pull begins behind it.
        let part = settled_below(7);
        assert_eq!(cursor.begin(pulls(&b), Offset(7), at(1_500)), Err(Occupied { until: Some(at(1_900)) }));
        assert_eq!(cursor.begin(pulls(&a), Offset(7), at(1_500)), Ok(Offset(7)));
        // It was silent, but nobody came: its leases are good.
        assert_eq!(cursor.begin(pulls(&a), Offset(7), at(9_000)), Ok(Offset(7)));
        assert_eq!(cursor.begin(pulls(&b), Offset(7), at(10_000)), Ok(Offset(7)));
        assert_eq!(cursor.shown(pulls(&b), Offset(7)..Offset(8)), Some(Fence(104)));
        assert_eq!(cursor.ack(Offset(8), Fence(103), &part, END, at(2_600)), Acked::Lost);
        assert_eq!(cursor.ack(Offset(5), Fence(100), &part, END, at(2_600)), Acked::Already);
        assert_eq!(cursor.ack(Offset(8), Fence(105), &part, END, at(2_600)), Acked::Unknown, "not shown");
        assert_eq!(cursor.shown(pulls(&a), Offset(7)..Offset(9)), None, "it reads no more");
    }

    #[test]
    fn who_is_connected_goes_on_where_it_was_and_has_its_place_until_it_leaves() {
        let (a, b): (Arc<str>, Arc<str>) = ("a (1)".into(), "a (2)".into());
        let mut cursor = Cursor::new(Fence(1));
        fn connected<'a>(cursor: &mut Cursor, holder: &'a Arc<str>, takes_over: Option<&str>) -> Wants<'a> {
            let connection = Some(cursor.connect(holder, takes_over));
            Wants { holder, connection, patience_ms: PATIENCE_MS, lot: Lot(0) }
        }
        let first = connected(&mut cursor, &a, None);
        cursor.begin(first, Offset(0), at(0)).unwrap();
        cursor.shown(first, Offset(0)..Offset(4));
        assert_eq!(cursor.begin(first, Offset(0), at(9_999)), Ok(Offset(4)));
        let other = connected(&mut cursor, &b, None);
        assert_eq!(cursor.begin(other, Offset(0), at(9_999)), Err(Occupied { until: None }));
        // The call broke and is made anew: what was on its way is shown again, and to the new call alone.
        let again = connected(&mut cursor, &a, None);
        assert_eq!(cursor.begin(again, Offset(0), at(9_999)), Ok(Offset(0)));
        assert!(!cursor.left("a (1)", first.connection, at(0)), "the first call ended");
        assert_eq!(cursor.begin(first, Offset(0), at(9_999)), Err(Occupied { until: None }));
        assert!(cursor.left("a (1)", None, at(10_500)));
        assert_eq!(cursor.begin(other, Offset(0), at(10_000)), Err(Occupied { until: Some(at(10_500)) }));
        let other = connected(&mut cursor, &b, Some("a ("));
        assert_eq!(cursor.begin(other, Offset(2), at(10_000)), Ok(Offset(2)));
        assert_eq!(cursor.ack(Offset(3), Fence(4), &settled_below(2), END, at(10_000)), Acked::Lost);
    }

    #[test]
    fn whoever_comes_with_a_higher_lot_begins_when_the_other_has_acknowledged_what_it_was_shown() {
        let (a, b): (Arc<str>, Arc<str>) = ("a".into(), "b".into());
        let under = |holder, lot| Wants { lot: Lot(lot), ..pulls(holder) };
        let mut cursor = Cursor::new(Fence(100));
        assert!(cursor.claim(under(&a, 1), at(0)));
        cursor.begin(under(&a, 1), Offset(0), at(0)).unwrap();
        cursor.shown(under(&a, 1), Offset(0)..Offset(4));
        assert!(cursor.claim(under(&b, 2), at(0)) && !cursor.claim(under(&b, 2), at(0)));
        assert!(cursor.is_yielding() && cursor.is_displaced(Lot(1)) && !cursor.is_displaced(Lot(2)));
        assert_eq!(cursor.shown(under(&a, 1), Offset(4)..Offset(5)), None, "it is shown nothing more");
        assert_eq!(cursor.begin(under(&a, 1), Offset(0), at(0)), Err(Occupied { until: None }));
        let part = settled_below(0);
        assert_eq!(cursor.ack(Offset(3), Fence(103), &part, END, at(500)), Acked::Upto(Offset(4)));
        let waits = Err(Occupied { until: Some(at(1_000)) });
        assert_eq!(
            cursor.begin(under(&b, 2), Offset(0), at(500)),
            waits,
            "not committed, and no later for it"
        );
        let reading = cursor.reading();
        assert_eq!(cursor.to_settle(Offset(4), reading, Offset(0)), Some(Offset(0)..Offset(4)));
        assert_eq!(cursor.begin(under(&b, 2), Offset(4), at(500)), Ok(Offset(4)));
        assert!(!cursor.is_yielding());
        cursor.shown(under(&b, 2), Offset(4)..Offset(6));
        // It is given back, but what was shown is acknowledged by nobody: its time is over.
        cursor.claim(under(&a, 3), at(600));
        assert_eq!(
            cursor.begin(under(&a, 3), Offset(4), at(1_499)),
            Err(Occupied { until: Some(at(1_500)) })
        );
        assert_eq!(cursor.begin(under(&a, 3), Offset(4), at(1_500)), Ok(Offset(4)));
        assert_eq!(cursor.ack(Offset(5), Fence(105), &settled_below(4), END, at(1_500)), Acked::Lost);
    }

    #[test]
    fn after_a_restart_an_acknowledgement_counts_until_somebody_else_begins() {
        let (a, part): (Arc<str>, _) = ("a".into(), settled_below(3));
        let mut cursor = Cursor::new(Fence(200));
        assert_eq!(cursor.ack(Offset(2), Fence(102), &part, END, at(0)), Acked::Already);
        assert_eq!(cursor.ack(Offset(7), Fence(107), &part, END, at(0)), Acked::Upto(Offset(8)));
        let reading = cursor.reading();
        assert_eq!(cursor.to_settle(Offset(8), reading, Offset(3)), Some(Offset(3)..Offset(8)));
        assert_eq!(cursor.ack(END, Fence(107), &part, END, at(0)), Acked::Unknown);
        assert_eq!(cursor.ack(Offset(4), Fence(200), &part, END, at(0)), Acked::Unknown);
        cursor.begin(pulls(&a), Offset(3), at(0)).unwrap();
        assert_eq!(cursor.to_settle(Offset(8), reading, Offset(3)), None, "it was not committed before");
        assert_eq!(cursor.ack(Offset(7), Fence(107), &part, END, at(0)), Acked::Lost);
    }
    #[test]
    fn what_is_refused_of_acknowledgements_is_shown_again_and_those_that_wait_stand_for_themselves() {
        let (a, part): (Arc<str>, _) = ("a".into(), settled_below(0));
        let mut cursor = Cursor::new(Fence(100));
        cursor.begin(pulls(&a), Offset(0), at(0)).unwrap();
        cursor.shown(pulls(&a), Offset(0)..Offset(9));
        let ack = |cursor: &mut Cursor, at_offset: u64| {
            let acked = cursor.ack(Offset(at_offset), Fence(100 + at_offset), &part, END, at(1));
            assert_eq!(acked, Acked::Upto(Offset(at_offset + 1)), "no more than it says");
        };
        ack(&mut cursor, 6);
        let reading = cursor.reading();
        assert_eq!(cursor.to_settle(Offset(7), reading, Offset(0)), Some(Offset(0)..Offset(7)));
        ack(&mut cursor, 2);
        cursor.failed(Offset(7), Offset(0));
        assert_eq!(cursor.begin(pulls(&a), Offset(0), at(1)), Ok(Offset(0)), "it is shown what was refused");
        assert_eq!(
            cursor.to_settle(Offset(3), reading, Offset(0)),
            Some(Offset(0)..Offset(3)),
            "and no more"
        );
        // One that came meanwhile covers what was refused.
        ack(&mut cursor, 8);
        cursor.failed(Offset(3), Offset(0));
        assert_eq!(cursor.to_settle(Offset(9), reading, Offset(0)), Some(Offset(0)..Offset(9)));
    }
}
