//! A part of a batch as a batch of its own.

use super::builder::{Compression, compress};
use super::header::{Batch, BatchError, BatchHeader, Codec};
use super::record::{ATTR_KEY, Layout};
use super::varint;
use crate::ids::{Offset, Seq};

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
        let damaged = |index, why| BatchError::Record { index, why };
        let end = header.base_offset.0.checked_add(u64::from(header.count));
        let batch = header.base_offset.0..end.ok_or(damaged(header.count - 1, "offset exceeds 64 bits"))?;
        let (start, end) = (first.0.max(batch.start), first.0.saturating_add(u64::from(take)).min(batch.end));
        if start >= end {
            return Err(BatchError::Count(0));
        }
        if (start, end) == (batch.start, batch.end) {
            return Ok(self.clone());
        }
        let count = |n: u64| u32::try_from(n).expect("a part of a batch's count");
        let (skip, keep) = (count(start - batch.start), count(end - start));
        let base_seq = header.base_seq.0.checked_add(u64::from(skip));
        let base_seq = Seq(base_seq.ok_or(damaged(skip, "sequence number exceeds 64 bits"))?);
        let records = renumbered(&self.raw()?, skip, keep)?;
        let compressed = match header.codec {
            Codec::None => None,
            Codec::Lz4 => compress(&records, Compression::Lz4),
            Codec::Zstd => compress(&records, Compression::Zstd),
        };
        let header = BatchHeader {
            base_offset: Offset(start),
            base_seq,
            count: keep,
            codec: compressed.as_ref().map_or(Codec::None, |(codec, _)| *codec),
            raw_bytes: u32::try_from(records.len()).expect("shorter than the batch's records"),
            ..header
        };
        Ok(Self::assemble(header, compressed.as_ref().map_or(&records, |(_, bytes)| bytes)))
    }
}

/// Records `[skip, skip + keep)`, counted from 0 again. Smaller numbers never take more bytes, so the result is
/// no longer than what it is taken from.
fn renumbered(raw: &[u8], skip: u32, keep: u32) -> Result<Vec<u8>, BatchError> {
    let mut out = Vec::new();
    let mut at = 0;
    for index in 0..skip + keep {
        let layout = Layout::read(raw, at, index).map_err(|why| BatchError::Record { index, why })?;
        at = layout.whole.end;
        if index >= skip {
            push(&mut out, raw, &layout, u64::from(index - skip));
        }
    }
    Ok(out)
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
