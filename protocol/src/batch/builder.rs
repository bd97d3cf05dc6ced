//! Builds record batches.

use super::header::{Batch, BatchError, BatchHeader, Codec, HEADER_BYTES};
use super::headers::Headers;
use super::record::ATTR_KEY;
use super::varint;
use crate::ids::{Epoch, Offset, PartitionId, ProducerKey, Seq, TimestampMs};
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX, KEY_BYTES_MAX, RECORD_BYTES_MAX};

/// Below this, compressing costs more than it saves.
const COMPRESS_FROM_BYTES: usize = 512;

/// How the records shall be compressed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
pub enum Compression {
    /// Not at all.
    None,
    /// LZ4, if there are at least 512 bytes and it saves a tenth.
    #[default]
    Auto,
    /// LZ4.
    Lz4,
    /// Zstandard, level 1.
    Zstd,
}

/// A record to be added.
#[derive(Debug, Clone, Copy)]
pub struct RecordParts<'a> {
    /// Key, at most [`KEY_BYTES_MAX`] bytes.
    pub key: Option<&'a [u8]>,
    /// Headers.
    pub headers: &'a Headers,
    /// Payload.
    pub value: &'a [u8],
}

impl RecordParts<'_> {
    /// Encoded bytes of the record as the first of a batch: what credit counts where a client sends records one by
    /// one. Behind others it takes up to two bytes more.
    #[must_use]
    pub fn size(&self) -> usize {
        let key = self.key.map_or(0, <[u8]>::len);
        // The first place is one byte, as offset delta and as sequence delta; then time delta and attributes.
        let fixed = 2 + 2 + varint::len(key as u64) + varint::len(self.value.len() as u64);
        let len = fixed + key + self.headers.encoded().len() + self.value.len();
        varint::len(len as u64) + len
    }
}

/// Collects records into one buffer; nothing is allocated per record.
#[derive(Debug)]
pub struct BatchBuilder {
    producer: ProducerKey,
    epoch: Epoch,
    base_seq: Seq,
    /// Space for the header, then the records; empty before the first record.
    bytes: Vec<u8>,
    count: u32,
}

impl BatchBuilder {
    /// An empty batch of `producer`, whose first record has its number `base_seq`.
    #[must_use]
    pub fn new(producer: ProducerKey, epoch: Epoch, base_seq: Seq) -> Self {
        Self { producer, epoch, base_seq, bytes: Vec::new(), count: 0 }
    }

    /// An empty batch without a producer.
    #[must_use]
    pub fn anonymous() -> Self {
        Self::new(ProducerKey::NONE, Epoch(0), Seq(0))
    }

    /// Adds a record and returns its size.
    ///
    /// # Errors
    /// [`BatchError::Record`]: it can never be added. [`BatchError::Count`], [`BatchError::TooLarge`]: this
    /// batch is full, the next may take it. The batch is as before.
    pub fn push(&mut self, record: RecordParts<'_>) -> Result<usize, BatchError> {
        let index = self.count;
        let refuse = |why| BatchError::Record { index, why };
        if index == BATCH_RECORDS_MAX {
            return Err(BatchError::Count(index + 1));
        }
        let key = record.key.unwrap_or_default();
        if key.len() > KEY_BYTES_MAX {
            return Err(refuse("key is too long"));
        }
        let headers = record.headers.encoded();
        Headers::check(headers).map_err(refuse)?;
        let place = u64::from(index);
        let fixed = 2 * varint::len(place)
            + 2
            + varint::len(key.len() as u64)
            + varint::len(record.value.len() as u64);
        let len = fixed + key.len() + headers.len() + record.value.len();
        let size = varint::len(len as u64) + len;
        if size > RECORD_BYTES_MAX {
            return Err(refuse("larger than the limit"));
        }
        let total = HEADER_BYTES + self.size() + size;
        if total > BATCH_BYTES_MAX {
            return Err(BatchError::TooLarge(total));
        }
        if self.bytes.is_empty() {
            self.bytes.reserve(total);
            self.bytes.resize(HEADER_BYTES, 0);
        }
        varint::put(&mut self.bytes, len as u64);
        varint::put(&mut self.bytes, place);
        varint::put(&mut self.bytes, place);
        self.bytes.push(0); // timestamp delta: the batch's own time
        self.bytes.push(if record.key.is_some() { ATTR_KEY } else { 0 });
        varint::put(&mut self.bytes, key.len() as u64);
        self.bytes.extend_from_slice(key);
        self.bytes.extend_from_slice(headers);
        varint::put(&mut self.bytes, record.value.len() as u64);
        self.bytes.extend_from_slice(record.value);
        self.count += 1;
        Ok(size)
    }

    /// Number of records so far.
    #[must_use]
    pub fn count(&self) -> u32 {
        self.count
    }

    /// Encoded bytes of the records so far, uncompressed.
    #[must_use]
    pub fn size(&self) -> usize {
        self.bytes.len().saturating_sub(HEADER_BYTES)
    }

    /// The batch.
    ///
    /// # Errors
    /// [`BatchError::Count`] if it is empty.
    pub fn build(self, compression: Compression) -> Result<Batch, BatchError> {
        if self.count == 0 {
            return Err(BatchError::Count(0));
        }
        let raw_bytes = u32::try_from(self.size()).expect("push keeps it below the largest batch, a u32");
        let compressed = compress(&self.bytes[HEADER_BYTES..], compression);
        let codec = compressed.as_ref().map_or(Codec::None, |(codec, _)| *codec);
        let header = BatchHeader {
            base_offset: Offset(0),
            base_ts: TimestampMs(0),
            partition: PartitionId(0),
            codec,
            count: self.count,
            left: None,
            producer: self.producer,
            epoch: self.epoch,
            base_seq: self.base_seq,
            raw_bytes,
        };
        Ok(match compressed {
            Some((_, records)) => Batch::assemble(header, &records),
            None => Batch::assemble_in_place(header, self.bytes),
        })
    }
}

/// The compressed form, unless it does not pay or does not get smaller.
pub(crate) fn compress(records: &[u8], compression: Compression) -> Option<(Codec, Vec<u8>)> {
    let (codec, bytes) = match compression {
        Compression::None => return None,
        Compression::Auto if records.len() < COMPRESS_FROM_BYTES => return None,
        Compression::Auto | Compression::Lz4 => (Codec::Lz4, lz4_flex::block::compress(records)),
        Compression::Zstd => (Codec::Zstd, zstd::bulk::compress(records, 1).ok()?),
    };
    let enough =
        if compression == Compression::Auto { records.len() - records.len() / 10 } else { records.len() };
    (bytes.len() < enough).then_some((codec, bytes))
}
