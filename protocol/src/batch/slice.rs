//! A part of a batch as a batch of its own, and a batch without some of its records.

use std::ops::Range;

use super::builder::{Compression, compress};
use super::header::{Batch, BatchError, BatchHeader, Codec};
use super::record::{ATTR_KEY, Layout};
use super::varint;
use crate::ids::{Offset, Seq};

/// Records shorter than this are not compressed again: a few hundred bytes are not worth it.
const COMPRESS_BYTES_MIN: usize = 512;

impl Batch {
    /// The records `[first, first + take)` of a placed batch, as a batch placed the same way, with the times,
    /// sequence numbers and codec they had. What lies outside the batch is left out. Decodes and re-encodes:
    /// for readers that must not see the neighbours; others get the whole batch and a range.
    ///
    /// # Errors
    /// [`BatchError::Count`] if no record is in the range; [`BatchError::Decompress`] and
    /// [`BatchError::Record`] if the stored records are damaged.
    pub fn slice_of(&self, first: Offset, take: u32) -> Result<Self, BatchError> {
        let header = self.header();
        let base = header.base_offset.0;
        let end = base.checked_add(u64::from(header.count));
        let end = end.ok_or(damaged(header.count - 1, "offset exceeds 64 bits"))?;
        let (start, end) = (first.0.max(base), first.0.saturating_add(u64::from(take)).min(end));
        if start >= end {
            return Err(BatchError::Count(0));
        }
        let count = |n: u64| u32::try_from(n).expect("a part of a batch's count");
        let place = count(start - base)..count(end - base);
        Ok(self.parts_of(std::slice::from_ref(&place))?.remove(0))
    }

    /// The same of several ranges of places in the batch, which ascend and do not meet: read in one pass.
    ///
    /// # Errors
    /// As [`Batch::slice_of`]; [`BatchError::Count`] for a range that is empty, goes beyond the batch or has no record.
    pub fn parts_of(&self, ranges: &[Range<u32>]) -> Result<Vec<Self>, BatchError> {
        let header = self.header();
        if let [all] = ranges
            && *all == (0..header.count)
            && header.records() > 0
        {
            return Ok(vec![self.clone()]);
        }
        let raw = self.raw()?;
        let mut walk = Walk::new(&header, &raw);
        let mut parts = Vec::with_capacity(ranges.len());
        for range in ranges {
            if range.is_empty() || range.start < walk.upto || range.end > header.count {
                return Err(BatchError::Count(0));
            }
            let (records, found) = walk.renumbered(range)?;
            if found == 0 {
                return Err(BatchError::Count(0));
            }
            parts.push(self.part(range, &records, found)?);
        }
        Ok(parts)
    }

    /// The batch without the records at places that are not to be kept, whose offsets stay its own: it has
    /// holes then. All other bytes of a record are as they were.
    ///
    /// # Errors
    /// As [`Batch::slice_of`] for damaged records.
    pub fn retain(&self, mut is_kept: impl FnMut(u32) -> bool) -> Result<Self, BatchError> {
        let header = self.header();
        let raw = self.raw()?;
        let (mut walk, mut records, mut left) = (Walk::new(&header, &raw), Vec::new(), 0);
        while let Some(layout) = walk.next(header.count)? {
            if is_kept(layout.place) {
                records.extend_from_slice(&raw[layout.whole]);
                left += 1;
            }
        }
        if left == header.records() {
            return Ok(self.clone());
        }
        let header = BatchHeader { left: holes(left, header.count), ..header };
        Ok(Self::with_records(header, &records))
    }

    fn part(&self, range: &Range<u32>, records: &[u8], found: u32) -> Result<Self, BatchError> {
        let header = self.header();
        let later =
            |base: u64, why| base.checked_add(u64::from(range.start)).ok_or(damaged(range.start, why));
        let count = range.end - range.start;
        let header = BatchHeader {
            base_offset: Offset(later(header.base_offset.0, "offset exceeds 64 bits")?),
            base_seq: Seq(later(header.base_seq.0, "sequence number exceeds 64 bits")?),
            count,
            left: holes(found, count),
            ..header
        };
        Ok(Self::with_records(header, records))
    }

    /// These records of a batch behind their header, compressed as its own were if that is worth it.
    fn with_records(header: BatchHeader, records: &[u8]) -> Self {
        let compressed = match header.codec {
            Codec::None => None,
            _ if records.len() < COMPRESS_BYTES_MIN => None,
            Codec::Lz4 => compress(records, Compression::Lz4),
            Codec::Zstd => compress(records, Compression::Zstd),
        };
        let header = BatchHeader {
            codec: compressed.as_ref().map_or(Codec::None, |(codec, _)| *codec),
            raw_bytes: u32::try_from(records.len()).expect("no longer than the batch's records"),
            ..header
        };
        Self::assemble(header, compressed.as_ref().map_or(records, |(_, bytes)| bytes))
    }
}

/// What a header says of `found` records at `count` offsets.
fn holes(found: u32, count: u32) -> Option<u16> {
    (found < count).then(|| u16::try_from(found).expect("a batch's records fit 16 bits"))
}

fn damaged(index: u32, why: &'static str) -> BatchError {
    BatchError::Record { index, why }
}

/// A batch's records, walked once.
struct Walk<'a> {
    header: &'a BatchHeader,
    raw: &'a [u8],
    at: usize,
    /// Records before `at`.
    read: u32,
    /// Below it all places were passed.
    upto: u32,
}

impl<'a> Walk<'a> {
    fn new(header: &'a BatchHeader, raw: &'a [u8]) -> Self {
        Self { header, raw, at: 0, read: 0, upto: 0 }
    }

    /// The next record, if its place is below `end`.
    fn next(&mut self, end: u32) -> Result<Option<Layout>, BatchError> {
        if self.read == self.header.records() || self.upto >= end {
            return Ok(None);
        }
        let layout = Layout::read(self.raw, self.at, self.header.places(self.upto))
            .map_err(|why| damaged(self.read, why))?;
        if layout.place >= end {
            return Ok(None);
        }
        (self.at, self.read, self.upto) = (layout.whole.end, self.read + 1, layout.place + 1);
        Ok(Some(layout))
    }

    /// The records of `range`, counted from 0 again, and how many there are. Smaller numbers never take more
    /// bytes, so the result is no longer than what it is taken from.
    fn renumbered(&mut self, range: &Range<u32>) -> Result<(Vec<u8>, u32), BatchError> {
        let (mut out, mut found) = (Vec::new(), 0);
        while let Some(layout) = self.next(range.end)? {
            if layout.place >= range.start {
                push(&mut out, self.raw, &layout, u64::from(layout.place - range.start));
                found += 1;
            }
        }
        self.upto = range.end;
        Ok((out, found))
    }
}

/// Appends the record of `layout` at another place. From its key length on, its bytes do not depend on it.
fn push(out: &mut Vec<u8>, raw: &[u8], layout: &Layout, place: u64) {
    let key_len = layout.key.as_ref().map_or(0, |key| key.len());
    let rest = &raw[layout.headers.start - key_len - varint::len(key_len as u64)..layout.whole.end];
    let ts = varint::zigzag(layout.ts_delta);
    let len = 2 * varint::len(place) + varint::len(ts) + 1 + rest.len();
    varint::put(out, len as u64);
    varint::put(out, place);
    varint::put(out, place);
    varint::put(out, ts);
    out.push(if layout.key.is_some() { ATTR_KEY } else { 0 });
    out.extend_from_slice(rest);
}
