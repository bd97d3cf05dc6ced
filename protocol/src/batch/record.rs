//! One record, and the decoder that walks a batch's records.

use bytes::Bytes;

use super::header::{BatchError, BatchHeader};
use super::headers::Headers;
use super::varint;
use crate::ids::{Offset, Seq, TimestampMs};
use crate::limits::{KEY_BYTES_MAX, RECORD_BYTES_MAX};

/// The record has a key (attr bit 0).
pub(crate) const ATTR_KEY: u8 = 1;

/// A record as it is read. Key and value share the batch's memory.
///
/// Encoded: `varint len` of what follows, then `varint offset delta | varint seq delta | svarint ts delta |
/// u8 attr | varint key length, key | headers | varint value length, value`. Attr bit 0: it has a key. All
/// deltas count from the batch's base; offset and seq deltas are the record's place in the batch.
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
    rest: Bytes,
    index: u32,
    failed: bool,
}

impl Records {
    pub(crate) fn new(header: BatchHeader, raw: Bytes) -> Self {
        Self { header, rest: raw, index: 0, failed: false }
    }

    /// Checks that nothing follows the last record.
    pub(crate) fn finished(&self) -> Result<(), BatchError> {
        if self.rest.is_empty() { Ok(()) } else { Err(BatchError::Trailing(self.rest.len())) }
    }

    fn decode(&mut self) -> Result<Record, &'static str> {
        let mut rest = &self.rest[..];
        let len = varint::take(&mut rest).ok_or("length is cut short")?;
        let prefix = self.rest.len() - rest.len();
        let len =
            usize::try_from(len).ok().filter(|len| *len <= rest.len()).ok_or("length exceeds the batch")?;
        let size = prefix + len;
        if size > RECORD_BYTES_MAX {
            return Err("larger than the limit");
        }
        let body = self.rest.slice(prefix..size);
        let record = self.decode_body(&body, size)?;
        self.rest = self.rest.slice(size..);
        Ok(record)
    }

    fn decode_body(&self, body: &Bytes, size: usize) -> Result<Record, &'static str> {
        let place = u64::from(self.index);
        let mut rest = &body[..];
        let offset_delta = varint::take(&mut rest).ok_or("offset is cut short")?;
        let seq_delta = varint::take(&mut rest).ok_or("sequence number is cut short")?;
        if offset_delta != place || seq_delta != place {
            return Err("not at its place in the batch");
        }
        let ts_delta = varint::unzigzag(varint::take(&mut rest).ok_or("timestamp is cut short")?);
        let (&attr, after) = rest.split_first().ok_or("attributes are cut short")?;
        if attr & !ATTR_KEY != 0 {
            return Err("unknown attribute");
        }
        rest = after;
        let key_len = varint::take(&mut rest).ok_or("key is cut short")?;
        let key_len = usize::try_from(key_len).ok().filter(|len| *len <= KEY_BYTES_MAX.min(rest.len()));
        let key_len = key_len.ok_or("key is too long")?;
        if attr & ATTR_KEY == 0 && key_len != 0 {
            return Err("a key without its attribute");
        }
        let at = body.len() - rest.len();
        let key = (attr & ATTR_KEY != 0).then(|| body.slice(at..at + key_len));
        let (headers, taken) = Headers::split(&body.slice(at + key_len..))?;
        let mut rest = &body[at + key_len + taken..];
        let value_len = varint::take(&mut rest).ok_or("value is cut short")?;
        if value_len != rest.len() as u64 {
            return Err("value length does not match the record's");
        }
        let value = body.slice(body.len() - rest.len()..);
        Ok(Record {
            offset: self.header.base_offset.plus(place),
            seq: Seq(self.header.base_seq.0.wrapping_add(place)),
            ts: TimestampMs(self.header.base_ts.0.saturating_add_signed(ts_delta)),
            key,
            headers,
            value,
            size,
        })
    }
}

impl Iterator for Records {
    type Item = Result<Record, BatchError>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.failed || self.index == self.header.count {
            return None;
        }
        let index = self.index;
        let decoded = self.decode();
        self.failed = decoded.is_err();
        self.index += 1;
        Some(decoded.map_err(|why| BatchError::Record { index, why }))
    }
}
