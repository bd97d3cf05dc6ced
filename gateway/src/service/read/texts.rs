//! Texts of shared records, made once for all readers that want them in the same form.

use std::sync::Arc;
use std::sync::OnceLock;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use weir_protocol::batch::{BatchError, Record};
use weir_protocol::ids::{Offset, PartitionId};

use super::records::RecordSlice;

/// In which form readers are told of records.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum TextForm {
    /// Of a WebSocket, without channel and number.
    Message,
    /// Of an event stream that follows nothing else: with an id.
    Event,
    /// Of an event stream that follows more, whose ids are its own.
    EventOfMany,
}

const FORMS: usize = 3;

/// One text per record, one behind the other.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Texts {
    /// All of them.
    pub bytes: Bytes,
    /// Where each ends, and the offset behind its record.
    ends: Vec<(u32, Offset)>,
}

impl Texts {
    /// What `append` adds to a text for each record.
    ///
    /// # Errors
    /// A batch cannot be read.
    ///
    /// # Panics
    /// If there is more than 4 GiB of it: what goes out together is far below.
    pub fn of(
        slices: &[RecordSlice],
        mut append: impl FnMut(&mut String, &Record, PartitionId),
    ) -> Result<Self, BatchError> {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for slice in slices {
            for record in slice.records()? {
                let record = record?;
                append(&mut text, &record, slice.partition);
                let end = u32::try_from(text.len()).expect("texts that go out together are below 4 GiB");
                ends.push((end, record.offset.plus(1)));
            }
        }
        Ok(Self { bytes: text.into(), ends })
    }

    /// Each by itself.
    pub fn iter(&self) -> impl ExactSizeIterator<Item = &str> + Clone {
        (0..self.ends.len()).map(|place| self.at(place))
    }

    /// Each, with the offset behind its record.
    pub fn with_next(&self) -> impl Iterator<Item = (&str, Offset)> {
        self.ends.iter().enumerate().map(|(place, (_, next))| (self.at(place), *next))
    }

    fn at(&self, place: usize) -> &str {
        let start = place.checked_sub(1).map_or(0, |before| self.ends[before].0);
        let text = &self.bytes[start as usize..self.ends[place].0 as usize];
        std::str::from_utf8(text).expect("cut where texts end")
    }

    /// Memory that they take.
    fn held_bytes(&self) -> u64 {
        (self.bytes.len() + size_of_val(self.ends.as_slice())) as u64
    }
}

/// What all kept texts of a gateway take.
#[derive(Debug)]
pub(super) struct TextBudget {
    bytes: AtomicU64,
    bytes_max: u64,
}

impl TextBudget {
    pub(super) fn new(bytes_max: u64) -> Self {
        Self { bytes: AtomicU64::new(0), bytes_max }
    }

    /// Bytes that are held, and how many may be.
    pub(super) fn state(&self) -> (u64, u64) {
        (self.bytes.load(Ordering::Relaxed), self.bytes_max)
    }

    fn take(&self, bytes: u64) -> bool {
        let add = |held: u64| held.checked_add(bytes).filter(|held| *held <= self.bytes_max);
        self.bytes.fetch_update(Ordering::Relaxed, Ordering::Relaxed, add).is_ok()
    }
}

/// The texts of one parcel: made when the first reader wants them, and kept as long as there is room for them.
/// Otherwise each reader makes its own.
#[derive(Debug, Default)]
pub(super) struct TextsOf {
    kept: [OnceLock<Texts>; FORMS],
    budget: Option<Arc<TextBudget>>,
}

impl TextsOf {
    pub(super) fn within(budget: Option<Arc<TextBudget>>) -> Self {
        Self { kept: Default::default(), budget }
    }

    /// Those of a form.
    ///
    /// # Errors
    /// As `make`.
    pub(super) fn get<E>(&self, form: TextForm, make: impl FnOnce() -> Result<Texts, E>) -> Result<Texts, E> {
        let place = &self.kept[form as usize];
        if let Some(kept) = place.get() {
            return Ok(kept.clone());
        }
        let texts = make()?;
        let bytes = texts.held_bytes();
        let has_room = self.budget.as_ref().is_none_or(|budget| budget.take(bytes));
        if has_room && place.set(texts.clone()).is_err() {
            // Another reader was faster.
            self.give_back(bytes);
        }
        Ok(texts)
    }

    fn give_back(&self, bytes: u64) {
        if let Some(budget) = &self.budget {
            budget.bytes.fetch_sub(bytes, Ordering::Relaxed);
        }
    }
}

impl Drop for TextsOf {
    fn drop(&mut self) {
        let held: u64 = self.kept.iter().filter_map(OnceLock::get).map(Texts::held_bytes).sum();
        if held > 0 {
            self.give_back(held);
        }
    }
}

#[cfg(test)]
mod tests {
    use std::convert::Infallible;

    use super::*;

    fn texts(of: &[&str]) -> Texts {
        let (mut text, mut ends) = (String::new(), Vec::new());
        for one in of {
            text.push_str(one);
            ends.push((u32::try_from(text.len()).unwrap(), Offset(7)));
        }
        Texts { bytes: text.into(), ends }
    }

    #[test]
    fn each_form_is_made_once_and_its_texts_are_cut_where_they_end() {
        let budget = Arc::new(TextBudget::new(1_000));
        let of = TextsOf::within(Some(Arc::clone(&budget)));
        let made = of.get(TextForm::Message, || Ok::<_, Infallible>(texts(&["a", "", "äb"]))).unwrap();
        assert_eq!(made.iter().collect::<Vec<_>>(), ["a", "", "äb"]);
        assert_eq!(of.get(TextForm::Message, || Err("made again")), Ok(made));
        assert_eq!(of.get(TextForm::Event, || Err("cannot be read")), Err("cannot be read"));
        assert_eq!(budget.state(), (4 + 3 * 16, 1_000));
        drop(of);
        assert_eq!(budget.state(), (0, 1_000));
    }

    #[test]
    fn what_there_is_no_room_for_is_made_for_each_reader() {
        let budget = Arc::new(TextBudget::new(8));
        let of = TextsOf::within(Some(Arc::clone(&budget)));
        for _ in 0..2 {
            let made = of.get(TextForm::Message, || Ok::<_, Infallible>(texts(&["abcdef"]))).unwrap();
            assert_eq!(made.iter().collect::<Vec<_>>(), ["abcdef"]);
            assert_eq!(budget.state(), (0, 8));
        }
    }
}
