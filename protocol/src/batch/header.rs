//! The header of a record batch, and the batch as validated bytes.

use std::ops::Range;

use bytes::{Bytes, BytesMut};

use super::headers::Reserved;
use super::record::Records;
use crate::checksum::crc32c;
use crate::ids::{Epoch, Offset, PartitionId, ProducerKey, Seq, TimestampMs};
use crate::limits::{BATCH_BYTES_MAX, BATCH_RECORDS_MAX, SUB_BATCH_BYTES_TARGET};

/// Bytes of a batch header.
pub const HEADER_BYTES: usize = 72;
/// Where the part covered by the checksum starts.
const CHECKED_FROM: usize = 32;
const VERSION: u8 = 1;
/// Flag: some of its offsets have no record.
const HAS_HOLES: u8 = 1;
/// Most bytes that the records of one batch decompress to: what a decoder may have to hold.
pub(crate) const RAW_BYTES_MAX: usize = BATCH_BYTES_MAX - HEADER_BYTES;

const _: () = assert!(BATCH_RECORDS_MAX <= u16::MAX as u32, "the number of records left fits its field");
const _: () =
    assert!(SUB_BATCH_BYTES_TARGET < RAW_BYTES_MAX, "a gateway's sub-batch is never too large to decode");

/// How the records of a batch are compressed, all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum Codec {
    /// Not at all.
    None = 0,
    /// LZ4 block.
    Lz4 = 1,
    /// Zstandard frame.
    Zstd = 2,
}

/// The header's fields.
///
/// | offset | size | field       | meaning (little-endian) |
/// |-------:|-----:|-------------|-------------------------|
/// | 0      | 4    | len         | bytes after this field |
/// | 4      | 1    | version     | 1 |
/// | 5      | 3    |             | zero |
/// | 8      | 8    | base_offset | stamped when serving, zero in the journal |
/// | 16     | 8    | base_ts     | likewise: milliseconds since the epoch |
/// | 24     | 4    | partition   | likewise |
/// | 28     | 4    | crc32c      | of bytes 32 to the end |
/// | 32     | 1    | codec       | [`Codec`] |
/// | 33     | 1    | flags       | bit 0: it has holes; others zero |
/// | 34     | 2    | left        | with holes: records that are left, fewer than count; otherwise zero |
/// | 36     | 4    | count       | offsets, and records unless it has holes, 1 to [`BATCH_RECORDS_MAX`] |
/// | 40     | 16   | producer    | [`ProducerKey`], zero for none |
/// | 56     | 4    | epoch       | the producer's |
/// | 60     | 4    | raw_len     | bytes of the records, uncompressed |
/// | 64     | 8    | base_seq    | the producer's number for the first record |
/// | 72     |      | records     | see [`super::Record`], compressed by codec |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct BatchHeader {
    /// Offset of the first record; zero until stamped.
    pub base_offset: Offset,
    /// Timestamp that the records' deltas count from; zero until stamped.
    pub base_ts: TimestampMs,
    /// Partition; zero until stamped.
    pub partition: PartitionId,
    /// Compression of the records.
    pub codec: Codec,
    /// Number of offsets, and of records unless it has holes.
    pub count: u32,
    /// With holes: records that are left, fewer than `count` and perhaps none. Only packs of compacted
    /// partitions have such batches: nobody publishes them, and readers get their parts without holes.
    pub left: Option<u16>,
    /// Producer, or [`ProducerKey::NONE`].
    pub producer: ProducerKey,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its number for the first record.
    pub base_seq: Seq,
    /// Bytes of the records, uncompressed: their sizes summed, which is what credit counts.
    pub raw_bytes: u32,
}

impl BatchHeader {
    /// Number of records that are there.
    #[must_use]
    pub fn records(&self) -> u32 {
        self.left.map_or(self.count, u32::from)
    }

    /// Places at which the next record may be, behind all below `from`: one, unless there are holes.
    pub(super) fn places(&self, from: u32) -> Range<u32> {
        from..if self.left.is_some() { self.count } else { self.count.min(from + 1) }
    }
}

/// Why bytes are not a record batch. Nothing was taken from them.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// Fewer bytes than the header or its length field says.
    #[error("record batch is cut short: {have} of {want} bytes")]
    Truncated {
        /// Bytes there are.
        have: usize,
        /// Bytes there should be.
        want: usize,
    },
    /// Bytes after the batch's own end.
    #[error("{0} bytes follow the record batch")]
    Trailing(usize),
    /// Larger than [`BATCH_BYTES_MAX`], as stored or decompressed.
    #[error("record batch of {0} bytes exceeds {max}", max = BATCH_BYTES_MAX)]
    TooLarge(usize),
    /// A version, codec or reserved byte that this build does not know.
    #[error("record batch has an unknown {0}")]
    Unknown(&'static str),
    /// Number of records out of range.
    #[error("record batch of {0} records; 1 to {max} are allowed", max = BATCH_RECORDS_MAX)]
    Count(u32),
    /// The checksum does not match.
    #[error("record batch checksum is {computed:#010x}, its header says {stored:#010x}")]
    Checksum {
        /// What the header says.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// The records do not decompress to what the header says.
    #[error("record batch does not decompress to the {0} bytes its header promises")]
    Decompress(u32),
    /// A record is not what the layout says.
    #[error("record {index} of the batch: {why}")]
    Record {
        /// Its place in the batch, from 0.
        index: u32,
        /// What is wrong with it.
        why: &'static str,
    },
}

/// A record batch whose header, length and checksum have been checked. Cheap to clone; shares its bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    bytes: Bytes,
    header: BatchHeader,
}

impl Batch {
    /// Takes bytes that are exactly one batch. The records themselves are checked by
    /// [`Batch::validate_records`].
    ///
    /// # Errors
    /// [`BatchError`]: refuse the input.
    pub fn parse(bytes: Bytes) -> Result<Self, BatchError> {
        let mut rest = bytes;
        let batch = Self::take_from(&mut rest)?;
        if rest.is_empty() { Ok(batch) } else { Err(BatchError::Trailing(rest.len())) }
    }

    /// Takes one batch off the front of a concatenation, which is left alone on error.
    ///
    /// # Errors
    /// As [`Batch::parse`].
    pub fn take_from(bytes: &mut Bytes) -> Result<Self, BatchError> {
        let have = bytes.len();
        if have < HEADER_BYTES {
            return Err(BatchError::Truncated { have, want: HEADER_BYTES });
        }
        let want = u32_at(bytes, 0) as usize + 4;
        if want > BATCH_BYTES_MAX {
            return Err(BatchError::TooLarge(want));
        }
        if have < want || want < HEADER_BYTES {
            return Err(BatchError::Truncated { have, want: want.max(HEADER_BYTES) });
        }
        let header = read_header(&bytes[..HEADER_BYTES])?;
        let (stored, computed) = (u32_at(bytes, 28), crc32c(&bytes[CHECKED_FROM..want]));
        if stored != computed {
            return Err(BatchError::Checksum { stored, computed });
        }
        if header.codec == Codec::None && header.raw_bytes as usize != want - HEADER_BYTES {
            return Err(BatchError::Decompress(header.raw_bytes));
        }
        Ok(Self { bytes: bytes.split_to(want), header })
    }

    /// Takes exactly one batch whose checksum was verified before by this process: reads the header alone.
    ///
    /// # Errors
    /// As [`Batch::parse`], but for the checksum.
    pub fn from_checked(bytes: Bytes) -> Result<Self, BatchError> {
        let have = bytes.len();
        if have < HEADER_BYTES || have != u32_at(&bytes, 0) as usize + 4 {
            return Err(BatchError::Truncated { have, want: HEADER_BYTES });
        }
        let header = read_header(&bytes[..HEADER_BYTES])?;
        Ok(Self { bytes, header })
    }

    /// Puts records behind a header. `records` is already compressed by `header.codec`.
    pub(crate) fn assemble(header: BatchHeader, records: &[u8]) -> Self {
        let mut bytes = Vec::with_capacity(HEADER_BYTES + records.len());
        bytes.resize(HEADER_BYTES, 0);
        bytes.extend_from_slice(records);
        Self::assemble_in_place(header, bytes)
    }

    /// Fills in the header in front of records that already stand behind [`HEADER_BYTES`] of space.
    pub(crate) fn assemble_in_place(header: BatchHeader, mut bytes: Vec<u8>) -> Self {
        let total = bytes.len();
        assert!(
            (HEADER_BYTES..=BATCH_BYTES_MAX).contains(&total),
            "a batch of {total} bytes is outside {HEADER_BYTES}..={BATCH_BYTES_MAX}"
        );
        bytes[0..4]
            .copy_from_slice(&u32::try_from(total - 4).expect("asserted to be a batch's size").to_le_bytes());
        bytes[4] = VERSION;
        bytes[8..16].copy_from_slice(&header.base_offset.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&header.base_ts.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&header.partition.0.to_le_bytes());
        bytes[32] = header.codec as u8;
        bytes[33] = if header.left.is_some() { HAS_HOLES } else { 0 };
        bytes[34..36].copy_from_slice(&header.left.unwrap_or(0).to_le_bytes());
        bytes[36..40].copy_from_slice(&header.count.to_le_bytes());
        bytes[40..56].copy_from_slice(&header.producer.0.to_le_bytes());
        bytes[56..60].copy_from_slice(&header.epoch.0.to_le_bytes());
        bytes[60..64].copy_from_slice(&header.raw_bytes.to_le_bytes());
        bytes[64..72].copy_from_slice(&header.base_seq.0.to_le_bytes());
        let crc = crc32c(&bytes[CHECKED_FROM..]);
        bytes[28..32].copy_from_slice(&crc.to_le_bytes());
        Self { bytes: bytes.into(), header }
    }

    /// The header.
    #[must_use]
    pub fn header(&self) -> BatchHeader {
        self.header
    }

    /// The whole batch.
    #[must_use]
    pub fn bytes(&self) -> &Bytes {
        &self.bytes
    }

    /// The batch as a reader gets it: a header stamped with where the records are, and the shared rest.
    #[must_use]
    pub fn placed(&self, base_offset: Offset, base_ts: TimestampMs, partition: PartitionId) -> [Bytes; 2] {
        let mut header = BytesMut::from(&self.bytes[..HEADER_BYTES]);
        header[8..16].copy_from_slice(&base_offset.0.to_le_bytes());
        header[16..24].copy_from_slice(&base_ts.0.to_le_bytes());
        header[24..28].copy_from_slice(&partition.0.to_le_bytes());
        [header.freeze(), self.bytes.slice(HEADER_BYTES..)]
    }

    /// The batch with nothing stamped: the only form that is written to a log.
    #[must_use]
    pub fn unplaced(&self) -> Self {
        if (self.header.base_offset, self.header.base_ts, self.header.partition) == Default::default() {
            return self.clone();
        }
        let [header, body] = self.placed(Offset(0), TimestampMs(0), PartitionId(0));
        let mut bytes = BytesMut::from(&header[..]);
        bytes.extend_from_slice(&body);
        let header = BatchHeader {
            base_offset: Offset(0),
            base_ts: TimestampMs(0),
            partition: PartitionId(0),
            ..self.header
        };
        Self { bytes: bytes.freeze(), header }
    }

    /// The same records under another producer's name, with nothing stamped: one copy, and the checksum anew. For
    /// clients that leave it to the gateway to name them.
    #[must_use]
    pub fn with_producer(&self, producer: ProducerKey, epoch: Epoch, base_seq: Seq) -> Self {
        let header = BatchHeader {
            producer,
            epoch,
            base_seq,
            base_offset: Offset(0),
            base_ts: TimestampMs(0),
            partition: PartitionId(0),
            ..self.header
        };
        Self::assemble(header, &self.bytes[HEADER_BYTES..])
    }

    /// The records, decompressed if need be: at most `raw_bytes` are held.
    ///
    /// # Errors
    /// [`BatchError::Decompress`].
    pub fn records(&self) -> Result<Records, BatchError> {
        Ok(Records::new(self.header, self.raw()?))
    }

    /// Walks every record, all its bounds, and what a publisher may not set: done once, where a batch enters.
    /// Times come from the shard's leader, so a published record has none of its own.
    ///
    /// # Errors
    /// [`BatchError::Decompress`], [`BatchError::Record`], and [`BatchError::Trailing`] for bytes after the
    /// last record.
    pub fn validate_records(&self) -> Result<(), BatchError> {
        self.validate_records_if(|_, _| Ok(()))
    }

    /// The same, and `admit` is asked for each reserved header, which has its encoding.
    ///
    /// # Errors
    /// As [`Batch::validate_records`]; [`BatchError::Record`] with the reason that `admit` gave.
    pub fn validate_records_if(
        &self,
        admit: impl FnMut(Reserved, &[u8]) -> Result<(), &'static str>,
    ) -> Result<(), BatchError> {
        super::record::validate(&self.header, &self.raw()?, admit)
    }

    pub(crate) fn raw(&self) -> Result<Bytes, BatchError> {
        let stored = self.bytes.slice(HEADER_BYTES..);
        let raw_bytes = self.header.raw_bytes;
        let refused = BatchError::Decompress(raw_bytes);
        let raw = match self.header.codec {
            Codec::None => return Ok(stored),
            Codec::Lz4 => {
                lz4_flex::block::decompress(&stored, raw_bytes as usize).map_err(|_| refused.clone())?
            }
            Codec::Zstd => {
                zstd::bulk::decompress(&stored, raw_bytes as usize).map_err(|_| refused.clone())?
            }
        };
        if raw.len() == raw_bytes as usize { Ok(raw.into()) } else { Err(refused) }
    }
}

fn read_header(bytes: &[u8]) -> Result<BatchHeader, BatchError> {
    if bytes[4] != VERSION {
        return Err(BatchError::Unknown("version"));
    }
    let left = u16::from_le_bytes([bytes[34], bytes[35]]);
    if bytes[5..8] != [0; 3] || bytes[33] & !HAS_HOLES != 0 || (bytes[33] == 0 && left != 0) {
        return Err(BatchError::Unknown("flag"));
    }
    let left = (bytes[33] == HAS_HOLES).then_some(left);
    let codec = match bytes[32] {
        0 => Codec::None,
        1 => Codec::Lz4,
        2 => Codec::Zstd,
        _ => return Err(BatchError::Unknown("codec")),
    };
    let (count, raw_bytes) = (u32_at(bytes, 36), u32_at(bytes, 60));
    if count == 0 || count > BATCH_RECORDS_MAX {
        return Err(BatchError::Count(count));
    }
    if let Some(left) = left.map(u32::from)
        && (left >= count || (left == 0) != (raw_bytes == 0))
    {
        return Err(BatchError::Count(left));
    }
    if raw_bytes as usize > RAW_BYTES_MAX {
        return Err(BatchError::TooLarge(raw_bytes as usize));
    }
    let mut producer = [0; 16];
    producer.copy_from_slice(&bytes[40..56]);
    Ok(BatchHeader {
        base_offset: Offset(u64_at(bytes, 8)),
        base_ts: TimestampMs(u64_at(bytes, 16)),
        partition: PartitionId(u32_at(bytes, 24)),
        codec,
        count,
        left,
        producer: ProducerKey(u128::from_le_bytes(producer)),
        epoch: Epoch(u32_at(bytes, 56)),
        base_seq: Seq(u64_at(bytes, 64)),
        raw_bytes,
    })
}

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
