//! One record, and the decoder that walks a batch's records.

use std::ops::Range;

use bytes::Bytes;

use super::header::{BatchError, BatchHeader};
use super::headers::{Headers, Reserved};
use super::varint;
use crate::ids::{Offset, Seq, TimestampMs};
use crate::limits::{KEY_BYTES_MAX, RECORD_BYTES_MAX};

/// The record has a key (attr bit 0).
pub(crate) const ATTR_KEY: u8 = 1;

/// A record as it is read. Key and value share the batch's memory.
///
/// Encoded: `varint len` of what follows, then `varint offset delta | varint seq delta | svarint ts delta |
/// u8 attr | varint key length, key | headers | varint value length, value`. Attr bit 0: it has a key. All
/// deltas count from the batch's base; offset and seq deltas are the record's place in the batch, without
/// holes unless its header says so.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Record {
    /// Position in the partition (the place in the batch, if nothing is stamped).
    pub offset: Offset,
    /// The producer's number for it.
    pub seq: Seq,
    /// When the shard's leader accepted it.
    pub ts: TimestampMs,
    /// Key.
    pub key: Option<Bytes>,
    /// Headers.
    pub headers: Headers,
    /// Payload.
    pub value: Bytes,
    /// Encoded bytes, uncompressed: what credit counts.
    pub size: usize,
}

/// Walks the records of a batch. After an error it yields nothing more.
#[derive(Debug)]
pub struct Records {
    header: BatchHeader,
    raw: Bytes,
    at: usize,
    index: u32,
    /// Places below are behind it.
    place: u32,
    failed: bool,
}

impl Records {
    pub(crate) fn new(header: BatchHeader, raw: Bytes) -> Self {
        Self { header, raw, at: 0, index: 0, place: 0, failed: false }
    }

    /// Only the records of `[first, first + take)`, as a slice of a placed batch names them; the others are
    /// stepped over, and errors are kept.
    pub fn within(self, first: Offset, take: u32) -> impl Iterator<Item = Result<Record, BatchError>> {
        let end = Offset(first.0.saturating_add(u64::from(take)));
        self.filter(move |record| record.as_ref().map_or(true, |it| (first..end).contains(&it.offset)))
    }

    fn record(&self, layout: &Layout) -> Result<Record, &'static str> {
        let header = &self.header;
        let offset = place(header.base_offset.0, layout.place).ok_or("offset exceeds 64 bits")?;
        let seq = place(header.base_seq.0, layout.place).ok_or("sequence number exceeds 64 bits")?;
        let ts = header.base_ts.0.checked_add_signed(layout.ts_delta).ok_or("time exceeds 64 bits")?;
        Ok(Record {
            offset: Offset(offset),
            seq: Seq(seq),
            ts: TimestampMs(ts),
            key: layout.key.clone().map(|key| self.raw.slice(key)),
            headers: Headers::from_measured(self.raw.slice(layout.headers.clone())),
            value: self.raw.slice(layout.value.clone()),
            size: layout.whole.len(),
        })
    }
}

impl Iterator for Records {
    type Item = Result<Record, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.index == self.header.records() {
            return None;
        }
        let index = self.index;
        let read = Layout::read(&self.raw, self.at, self.header.places(self.place))
            .and_then(|layout| Ok((self.record(&layout)?, layout)));
        self.index += 1;
        match read {
            Ok((record, layout)) => {
                (self.at, self.place) = (layout.whole.end, layout.place + 1);
                Some(Ok(record))
            }
            Err(why) => {
                self.failed = true;
                Some(Err(BatchError::Record { index, why }))
            }
        }
    }
}

/// The `index`th position from `base` on. `None` if it or its exclusive end exceeds 64 bits.
fn place(base: u64, index: u32) -> Option<u64> {
    base.checked_add(u64::from(index)).filter(|position| *position < u64::MAX)
}

/// Walks all records without taking references to them, under the rules for what a publisher sends.
pub(crate) fn validate(
    header: &BatchHeader,
    raw: &[u8],
    mut admit: impl FnMut(Reserved, &[u8]) -> Result<(), &'static str>,
) -> Result<(), BatchError> {
    let last = header.count - 1;
    let refuse = |index, why| BatchError::Record { index, why };
    if header.left.is_some() {
        return Err(refuse(0, "a published batch has no holes"));
    }
    for (base, why) in [
        (header.base_offset.0, "offset exceeds 64 bits"),
        (header.base_seq.0, "sequence number exceeds 64 bits"),
    ] {
        if place(base, last).is_none() {
            return Err(refuse(last, why));
        }
    }
    let mut at = 0;
    for index in 0..header.count {
        let layout = Layout::read(raw, at, header.places(index)).map_err(|why| refuse(index, why))?;
        Headers::check_if(&raw[layout.headers.clone()], &mut admit).map_err(|why| refuse(index, why))?;
        if layout.ts_delta != 0 {
            return Err(refuse(index, "a published record has no time of its own"));
        }
        at = layout.whole.end;
    }
    if at == raw.len() { Ok(()) } else { Err(BatchError::Trailing(raw.len() - at)) }
}

/// Where the parts of one record are in the records section.
#[derive(Debug)]
pub(crate) struct Layout {
    /// The record with its length prefix.
    pub(crate) whole: Range<usize>,
    /// Its place in the batch.
    pub(crate) place: u32,
    pub(crate) ts_delta: i64,
    pub(crate) key: Option<Range<usize>>,
    pub(crate) headers: Range<usize>,
    pub(crate) value: Range<usize>,
}

impl Layout {
    /// Reads the record that starts at `start` and has one of these places. All ranges lie within `raw`.
    pub(crate) fn read(raw: &[u8], start: usize, places: Range<u32>) -> Result<Self, &'static str> {
        let mut rest = &raw[start..];
        let len = varint::take(&mut rest).ok_or("length is cut short")?;
        let len = usize::try_from(len).ok().filter(|len| *len <= rest.len());
        let len = len.ok_or("length exceeds the batch")?;
        let end = raw.len() - rest.len() + len;
        if end - start > RECORD_BYTES_MAX {
            return Err("larger than the limit");
        }
        let mut rest = &rest[..len];
        let offset_delta = varint::take(&mut rest).ok_or("offset is cut short")?;
        let seq_delta = varint::take(&mut rest).ok_or("sequence number is cut short")?;
        let place = u32::try_from(offset_delta).ok().filter(|place| places.contains(place));
        let place = place.filter(|_| seq_delta == offset_delta).ok_or("not at its place in the batch")?;
        let ts_delta = varint::unzigzag(varint::take(&mut rest).ok_or("timestamp is cut short")?);
        let (&attr, mut rest) = rest.split_first().ok_or("attributes are cut short")?;
        if attr & !ATTR_KEY != 0 {
            return Err("unknown attribute");
        }
        let key_len = varint::take(&mut rest).ok_or("key is cut short")?;
        let key_len = usize::try_from(key_len).ok().filter(|len| *len <= KEY_BYTES_MAX.min(rest.len()));
        let key_len = key_len.ok_or("key is too long")?;
        let has_key = attr & ATTR_KEY != 0;
        if !has_key && key_len != 0 {
            return Err("a key without its attribute");
        }
        let key_start = end - rest.len();
        let headers_start = key_start + key_len;
        let headers_end = headers_start + Headers::measure(&raw[headers_start..end])?;
        let mut rest = &raw[headers_end..end];
        let value_len = varint::take(&mut rest).ok_or("value is cut short")?;
        if value_len != rest.len() as u64 {
            return Err("value length does not match the record's");
        }
        Ok(Self {
            whole: start..end,
            place,
            ts_delta,
            key: has_key.then_some(key_start..headers_start),
            headers: headers_start..headers_end,
            value: end - rest.len()..end,
        })
    }
}
