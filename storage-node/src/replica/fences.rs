//! How far fences run ahead of the terms that they begin with.
//!
//! ```text
//!   (term + ahead) << 32 | 1 ─── fences of a part in this term ───▶ ...   2^32 of them before those of the next term
//!                                        near the end of these: ahead + 1 is noted ──▶ for the terms that follow
//! ```
//! A leader that stays for months may deliver more of a part than its term has fences for. It goes on with those of the
//! next term; so that the next leader does not give them again, and lower ones than this one gave, `ahead` is noted in
//! the journal, as metadata of the shard's stream: long before, so that it may go there with whatever is committed
//! next. Terms are in the journal before they begin, so nothing has to be noted when one does.
//!
//! A part begins above whatever any part of the shard has given. So a topic or subscription that was deleted and made
//! again gives no fence that the one before has given, and a lease of that one settles nothing of this one.

use std::sync::atomic::{AtomicU64, Ordering};

use bytes::{Buf, BufMut, Bytes, BytesMut};
use parking_lot::Mutex;

use crate::subscription::Fence;

/// Fences before those of the next term at which these count as given.
const MARGIN: u64 = 1 << 31;
/// Layout of the note: version u8, `ahead` u64 (little-endian).
const NOTE_VERSION: u8 = 1;

/// By how many terms the fences of a shard's parts are ahead of its term.
#[derive(Debug, Default)]
pub struct Fences {
    ahead: AtomicU64,
    /// Lower ones were given.
    end: AtomicU64,
    noted: Mutex<u64>,
}

impl Fences {
    /// Goes on from what an earlier start noted.
    ///
    /// # Errors
    /// Why the note cannot be read: the node must not start, or it would give fences again.
    pub fn recovered(&self, note: Option<&Bytes>) -> Result<(), String> {
        let Some(mut note) = note.cloned() else { return Ok(()) };
        let version = note.try_get_u8().map_err(|error| error.to_string())?;
        if version != NOTE_VERSION {
            return Err(format!("a note of fences has version {version}; this build reads {NOTE_VERSION}"));
        }
        let ahead = note.try_get_u64_le().map_err(|error| format!("a note of fences is damaged: {error}"))?;
        self.ahead.fetch_max(ahead, Ordering::AcqRel);
        *self.noted.lock() = ahead;
        Ok(())
    }

    /// The first fence of a part of which nothing was delivered in a term.
    pub(super) fn first(&self, term: u64) -> Fence {
        let first = (term + self.ahead.load(Ordering::Acquire)) << 32 | 1;
        Fence(first.max(self.end.load(Ordering::Acquire)))
    }

    /// Fences below `end` were given in a term.
    pub(super) fn given(&self, term: u64, end: Fence) {
        if end.0 > self.end.load(Ordering::Acquire) {
            self.end.fetch_max(end.0, Ordering::AcqRel);
        }
        let ahead = (end.0.saturating_add(MARGIN) >> 32).saturating_sub(term);
        if ahead > self.ahead.load(Ordering::Acquire) {
            self.ahead.fetch_max(ahead, Ordering::AcqRel);
        }
    }

    /// Has it noted by how many terms they are ahead, if that has changed. On return it is.
    pub fn note(&self, note: impl FnOnce(Bytes)) {
        let (ahead, mut noted) = (self.ahead.load(Ordering::Acquire), self.noted.lock());
        if ahead <= *noted {
            return;
        }
        let mut bytes = BytesMut::new();
        bytes.put_u8(NOTE_VERSION);
        bytes.put_u64_le(ahead);
        note(bytes.freeze());
        *noted = ahead;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fences_grow_across_terms_however_many_were_given_in_each() {
        let (mut fences, mut note, mut last, mut notes) = (Fences::default(), None, Fence(0), 0);
        // Each term gives so many, in steps that are as long as a round may be.
        let given = [10, 3 << 31, 5 << 32, 0, 1 << 31, 10, 9 << 32];
        for (term, many) in (7..).zip(given) {
            let first = fences.first(term);
            assert!(first > last, "{first} in term {term}, after {last}");
            for step in 0..=(many >> 30) {
                last = Fence(first.0 + many.min(step << 30));
                fences.given(term, last);
                fences.note(|noted| {
                    note = Some(noted);
                    notes += 1;
                });
            }
            fences.note(|_| panic!("nothing has changed"));
            // Another start.
            fences = Fences::default();
            fences.recovered(note.as_ref()).unwrap();
        }
        assert!(notes < 20, "{notes}");
    }

    #[test]
    fn a_part_begins_above_what_any_other_has_given() {
        let fences = Fences::default();
        let first = fences.first(3);
        fences.given(3, Fence(first.0 + 5));
        fences.given(3, Fence(first.0 + 2));
        assert_eq!(fences.first(3), Fence(first.0 + 5));
        assert_eq!(fences.first(4), Fence(4 << 32 | 1));
    }

    #[test]
    fn a_few_deliveries_note_nothing_and_a_note_that_cannot_be_read_is_refused() {
        let fences = Fences::default();
        fences.recovered(None).unwrap();
        assert_eq!(fences.first(3), Fence(3 << 32 | 1));
        fences.given(3, Fence((3 << 32) + 1_000_000));
        fences.note(|_| panic!("there are enough"));
        assert_eq!(fences.first(4), Fence(4 << 32 | 1));
        for note in [&[][..], &[1, 0], &[2, 0, 0, 0, 0, 0, 0, 0, 0]] {
            assert!(fences.recovered(Some(&Bytes::copy_from_slice(note))).is_err(), "{note:?}");
        }
    }
}
