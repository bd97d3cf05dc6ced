//! Blocks: what is fetched, verified and decompressed at once.

use bytes::Bytes;
use weir_protocol::batch::Batch;
use weir_protocol::checksum::Crc32c;
use weir_protocol::ids::Offset;
use weir_protocol::limits::BATCH_BYTES_MAX;

use super::error::PackError;
use super::footer::BlockRow;
use super::pieces::Written;
use super::{PackedPartition, u32_at, u64_at};

/// Bytes of a block's header.
pub const BLOCK_HEADER_BYTES: usize = 32;
/// A block is closed once its batches take this many bytes: a random read fetches about as much, compressed.
pub const BLOCK_RAW_BYTES_TARGET: usize = 512 << 10;
/// Most bytes of a block's batches: one byte short of the target, and the largest batch.
pub const BLOCK_RAW_BYTES_MAX: usize = BLOCK_RAW_BYTES_TARGET + BATCH_BYTES_MAX;
const MAGIC: [u8; 4] = *b"WBLK";

const _: () = assert!(BLOCK_HEADER_BYTES + BLOCK_RAW_BYTES_MAX < u32::MAX as usize, "lengths fit 32 bits");

/// How a block's batches are compressed, all together.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[repr(u8)]
pub enum BlockCodec {
    /// Not at all.
    Raw = 0,
    /// LZ4 block.
    Lz4 = 1,
    /// Zstandard frame. The default.
    #[default]
    Zstd = 2,
}

/// Appends a block to `out`, of batches that take `raw_bytes` and `stored` as `codec` stores them. Returns
/// the bytes that it takes.
///
/// | offset | size | meaning (little-endian) |
/// |-------:|-----:|-------------------------|
/// | 0      | 4    | `WBLK` |
/// | 4      | 1    | [`BlockCodec`] |
/// | 5      | 3    | zero |
/// | 8      | 4    | bytes stored after the header |
/// | 12     | 4    | bytes of the batches, uncompressed |
/// | 16     | 8    | offset of the first record |
/// | 24     | 4    | partition |
/// | 28     | 4    | CRC-32C of bytes 0 to 28 and of the stored bytes |
/// | 32     |      | the batches, each with base offset, base time and partition stamped, compressed by codec |
pub(super) fn put_block(
    out: &mut Written,
    codec: BlockCodec,
    first: Offset,
    partition: PackedPartition,
    stored: &[u8],
    raw_bytes: usize,
) -> u32 {
    let narrow = |bytes: usize| u32::try_from(bytes).expect("blocks are limited to a few MiB");
    let mut header = [0; BLOCK_HEADER_BYTES];
    header[0..4].copy_from_slice(&MAGIC);
    header[4] = codec as u8;
    header[8..12].copy_from_slice(&narrow(stored.len()).to_le_bytes());
    header[12..16].copy_from_slice(&narrow(raw_bytes).to_le_bytes());
    header[16..24].copy_from_slice(&first.0.to_le_bytes());
    header[24..28].copy_from_slice(&partition.1.0.to_le_bytes());
    let crc = checksum(&header, stored);
    header[28..32].copy_from_slice(&crc.to_le_bytes());
    out.write(&header);
    out.write(stored);
    narrow(BLOCK_HEADER_BYTES + stored.len())
}

/// The batches of the block that `row` describes, concatenated: verified against header and checksum. `bytes` is what
/// [`BlockRow::range`] fetches.
///
/// # Errors
/// [`PackError`]: the block is damaged, or another.
pub fn read_block(bytes: &Bytes, row: &BlockRow, partition: PackedPartition) -> Result<Bytes, PackError> {
    let want = row.stored_bytes as usize;
    if bytes.len() != want || want < BLOCK_HEADER_BYTES {
        return Err(PackError::Truncated { have: bytes.len() as u64, want: want as u64 });
    }
    if bytes[..4] != MAGIC {
        return Err(PackError::Foreign("block"));
    }
    let (stored, computed) = (u32_at(bytes, 28), checksum(bytes, &bytes[BLOCK_HEADER_BYTES..]));
    if stored != computed {
        return Err(PackError::Checksum { what: "block", stored, computed });
    }
    if bytes[5..8] != [0; 3] {
        return Err(PackError::Unknown("flag"));
    }
    let raw_bytes = u32_at(bytes, 12);
    let is_it = u32_at(bytes, 8) as usize == want - BLOCK_HEADER_BYTES
        && raw_bytes == row.raw_bytes
        && u64_at(bytes, 16) == row.first.0
        && u32_at(bytes, 24) == partition.1.0;
    if !is_it || raw_bytes as usize > BLOCK_RAW_BYTES_MAX {
        return Err(PackError::Contradiction("a block is not the one that the footer names"));
    }
    decompress(bytes.slice(BLOCK_HEADER_BYTES..), bytes[4], raw_bytes)
}

fn decompress(stored: Bytes, codec: u8, raw_bytes: u32) -> Result<Bytes, PackError> {
    let refused = PackError::Decompress(raw_bytes);
    let size = raw_bytes as usize;
    let raw = match codec {
        0 => stored,
        1 => lz4_flex::block::decompress(&stored, size).map_err(|_| refused.clone())?.into(),
        2 => zstd::bulk::decompress(&stored, size).map_err(|_| refused.clone())?.into(),
        _ => return Err(PackError::Unknown("codec")),
    };
    if raw.len() == size { Ok(raw) } else { Err(refused) }
}

/// The batches of a block's bytes, in offset order from the row's first offset on. They follow each other without
/// holes, and each says where it belongs.
///
/// # Errors
/// [`PackError`], once: nothing follows it.
pub fn batches(
    raw: Bytes,
    row: &BlockRow,
    partition: PackedPartition,
) -> impl Iterator<Item = Result<Batch, PackError>> {
    let (mut rest, mut next) = (raw, row.first);
    std::iter::from_fn(move || {
        if rest.is_empty() {
            return None;
        }
        let batch = Batch::take_from(&mut rest).map_err(PackError::from).and_then(|batch| {
            let header = batch.header();
            let is_next = header.base_offset == next && header.partition == partition.1;
            // The end is beyond 64 bits only if the batch lies.
            let end = next.0.checked_add(u64::from(header.count));
            let end = end
                .filter(|_| is_next)
                .ok_or(PackError::Contradiction("batches do not follow each other"))?;
            next = Offset(end);
            Ok(batch)
        });
        if batch.is_err() {
            rest = Bytes::new();
        }
        Some(batch)
    })
}

/// Of a block's header, but for the field that holds it, and of what is stored behind it.
fn checksum(header: &[u8], stored: &[u8]) -> u32 {
    let mut crc = Crc32c::new();
    crc.update(&header[..28]);
    crc.update(stored);
    crc.finish()
}

/// The codecs that a pack can be written with, by the names that settings use.
impl std::str::FromStr for BlockCodec {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, String> {
        match text {
            "none" => Ok(Self::Raw),
            "lz4" => Ok(Self::Lz4),
            "zstd" => Ok(Self::Zstd),
            other => Err(format!("{other:?} is no compression; none, lz4 and zstd are")),
        }
    }
}
