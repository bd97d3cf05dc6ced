//! A carried file: batches that outlived the journal files that they came in, and where they lie in it.

use super::{crc32c, crc32c_pair, u32_at, u64_at, u128_at};
use crate::entry::StreamId;

/// Bytes of the header, and of a page of the index.
pub const CARRIED_PAGE_BYTES: usize = 4096;
/// Rows that fit a page.
pub const CARRIED_PAGE_ROWS: usize = (CARRIED_PAGE_BYTES - PAGE_HEADER_BYTES) / ROW_BYTES;
/// Files that one may take the place of.
pub const CARRIED_REPLACES_MAX: usize = (CARRIED_PAGE_BYTES - REPLACES_AT) / 8;
/// Newest version of the carried file that this build writes and reads.
pub const CARRIED_VERSION: u32 = 1;

const PAGE_HEADER_BYTES: usize = 32;
const ROW_BYTES: usize = 32;
const REPLACES_AT: usize = 64;
const MAGIC: u64 = u64::from_le_bytes(*b"WEIRCAR\0");

// No bytes lie between a page's last row and its end: the checksum covers nothing that is not drawn.
const _: () = assert!(PAGE_HEADER_BYTES + CARRIED_PAGE_ROWS * ROW_BYTES == CARRIED_PAGE_BYTES);

/// Header of a carried file. The parts follow it, one behind the other; behind them, at the next multiple of 4 KiB, the
/// pages of the index: those of a stream one after another, in the order of their entries.
///
/// | offset | size | meaning |
/// |---|---|---|
/// | 0 | 8 | magic `WEIRCAR\0` |
/// | 8 | 4 | version, 1 |
/// | 12 | 4 | CRC-32C of bytes 0..12 and 16..4096 |
/// | 16 | 8 | number of the file |
/// | 24 | 8 | its place among the others: entries of a stream are in ascending order from file to file |
/// | 32 | 16 | journal id |
/// | 48 | 8 | bytes of the parts |
/// | 56 | 4 | pages |
/// | 60 | 4 | files that it takes the place of, at most 504 |
/// | 64 | 8 each | their numbers; then zeros |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedHeader {
    /// Number of the file, higher than those of all before it.
    pub id: u64,
    /// Its place among the others.
    pub place: u64,
    /// The journal.
    pub journal_id: u128,
    /// Bytes of the parts.
    pub data_bytes: u64,
    /// Pages of the index.
    pub pages: u32,
    /// Files that are no longer needed once this one is there.
    pub replaces: Vec<u64>,
}

/// Why a carried file is not read.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum CarriedError {
    /// Not a carried file, or damaged.
    Damaged,
    /// Written by a newer version.
    Newer(u32),
}

/// A part of an entry.
///
/// | offset in the row | size | meaning |
/// |---|---|---|
/// | 0 | 8 | index of the entry |
/// | 8 | 8 | its term |
/// | 16 | 4 | where the part begins in the entry's payload |
/// | 20 | 4 | its bytes |
/// | 24 | 4 | where it lies in this file |
/// | 28 | 4 | CRC-32C of the part |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CarriedRow {
    /// Index of the entry.
    pub index: u64,
    /// Its term.
    pub term: u64,
    /// Where the part begins in the entry's payload.
    pub pos: u32,
    /// Its bytes.
    pub len: u32,
    /// Where it lies in this file.
    pub at: u32,
    /// Checksum of the part.
    pub crc: u32,
}

/// A page of the index: rows of one stream by entry and position.
///
/// | offset | size | meaning |
/// |---|---|---|
/// | 0 | 4 | CRC-32C of bytes 4..4096 |
/// | 4 | 4 | stream |
/// | 8 | 8 | number of the file |
/// | 16 | 4 | rows, 1 to 127 |
/// | 20 | 12 | zero |
/// | 32 | 32 each | rows; then zeros |
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedPage {
    /// The stream.
    pub stream: StreamId,
    /// The file that it is in.
    pub file: u64,
    /// Its rows.
    pub rows: Vec<CarriedRow>,
}

impl CarriedHeader {
    /// The header's bytes, padded.
    ///
    /// # Panics
    /// If it takes the place of more files than fit.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!(self.replaces.len() <= CARRIED_REPLACES_MAX, "{} files replaced", self.replaces.len());
        let mut bytes = vec![0; CARRIED_PAGE_BYTES];
        bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&CARRIED_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.id.to_le_bytes());
        bytes[24..32].copy_from_slice(&self.place.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.journal_id.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.data_bytes.to_le_bytes());
        bytes[56..60].copy_from_slice(&self.pages.to_le_bytes());
        let count = u32::try_from(self.replaces.len()).expect("they were counted");
        bytes[60..64].copy_from_slice(&count.to_le_bytes());
        for (place, id) in bytes[REPLACES_AT..].chunks_exact_mut(8).zip(&self.replaces) {
            place.copy_from_slice(&id.to_le_bytes());
        }
        let crc = crc32c_pair(&bytes[..12], &bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header.
    ///
    /// # Errors
    /// If it is cut short, damaged, or of a newer version.
    pub fn parse(bytes: &[u8]) -> Result<Self, CarriedError> {
        if bytes.len() != CARRIED_PAGE_BYTES || u64_at(bytes, 0) != MAGIC {
            return Err(CarriedError::Damaged);
        }
        // Magic, version and checksum stay where they are in every version.
        if u32_at(bytes, 12) != crc32c_pair(&bytes[..12], &bytes[16..]) {
            return Err(CarriedError::Damaged);
        }
        let version = u32_at(bytes, 8);
        if version > CARRIED_VERSION {
            return Err(CarriedError::Newer(version));
        }
        let count = usize::try_from(u32_at(bytes, 60)).unwrap_or(usize::MAX);
        if count > CARRIED_REPLACES_MAX {
            return Err(CarriedError::Damaged);
        }
        Ok(Self {
            id: u64_at(bytes, 16),
            place: u64_at(bytes, 24),
            journal_id: u128_at(bytes, 32),
            data_bytes: u64_at(bytes, 48),
            pages: u32_at(bytes, 56),
            replaces: (0..count).map(|n| u64_at(bytes, REPLACES_AT + 8 * n)).collect(),
        })
    }
}

impl CarriedPage {
    /// The page's bytes.
    ///
    /// # Panics
    /// If it has no row, or more than fit.
    #[must_use]
    pub fn encode(&self) -> Vec<u8> {
        assert!((1..=CARRIED_PAGE_ROWS).contains(&self.rows.len()), "a page of {} rows", self.rows.len());
        let mut bytes = vec![0; CARRIED_PAGE_BYTES];
        bytes[4..8].copy_from_slice(&self.stream.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&self.file.to_le_bytes());
        let count = u32::try_from(self.rows.len()).expect("a page has few rows");
        bytes[16..20].copy_from_slice(&count.to_le_bytes());
        for (place, row) in bytes[PAGE_HEADER_BYTES..].chunks_exact_mut(ROW_BYTES).zip(&self.rows) {
            place[..8].copy_from_slice(&row.index.to_le_bytes());
            place[8..16].copy_from_slice(&row.term.to_le_bytes());
            place[16..20].copy_from_slice(&row.pos.to_le_bytes());
            place[20..24].copy_from_slice(&row.len.to_le_bytes());
            place[24..28].copy_from_slice(&row.at.to_le_bytes());
            place[28..32].copy_from_slice(&row.crc.to_le_bytes());
        }
        let crc = crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a page; `None` if it is cut short or damaged.
    #[must_use]
    pub fn parse(bytes: &[u8]) -> Option<Self> {
        if bytes.len() != CARRIED_PAGE_BYTES || u32_at(bytes, 0) != crc32c(&bytes[4..]) {
            return None;
        }
        let count = usize::try_from(u32_at(bytes, 16)).ok();
        let count = count.filter(|count| (1..=CARRIED_PAGE_ROWS).contains(count))?;
        let rows = bytes[PAGE_HEADER_BYTES..].chunks_exact(ROW_BYTES).take(count).map(|row| CarriedRow {
            index: u64_at(row, 0),
            term: u64_at(row, 8),
            pos: u32_at(row, 16),
            len: u32_at(row, 20),
            at: u32_at(row, 24),
            crc: u32_at(row, 28),
        });
        Some(Self { stream: StreamId(u32_at(bytes, 4)), file: u64_at(bytes, 8), rows: rows.collect() })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Written with `WEIR_JOURNAL_GOLDEN_DIR=storage-node/journal/src/format/golden cargo test --workspace
    /// --lib golden` when the layout has a new version, never for the old one.
    const GOLDEN: &[u8] = include_bytes!("golden/carried-v1.bin");

    fn header() -> CarriedHeader {
        let replaces = vec![3, 5, 6];
        CarriedHeader { id: 9, place: 6, journal_id: 0x0a0b << 64 | 7, data_bytes: 700, pages: 1, replaces }
    }

    fn page(rows: u32) -> CarriedPage {
        let row = |n: u32| CarriedRow {
            index: 40 + u64::from(n / 3),
            term: 2,
            pos: 16 + n % 3 * 100,
            len: 90 + n,
            at: 4096 + n * 200,
            crc: n * 77,
        };
        CarriedPage { stream: StreamId(4), file: 9, rows: (0..rows).map(row).collect() }
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "writes the golden file when asked to")]
    fn the_layout_is_the_golden_file() {
        let bytes = [header().encode(), page(5).encode()].concat();
        if let Some(dir) = std::env::var_os("WEIR_JOURNAL_GOLDEN_DIR") {
            std::fs::write(std::path::Path::new(&dir).join("carried-v1.bin"), &bytes).unwrap();
        }
        assert!(bytes == GOLDEN, "the layout of a carried file changed: that is a new version");
        assert_eq!(CarriedHeader::parse(&GOLDEN[..4096]), Ok(header()));
        assert_eq!(CarriedPage::parse(&GOLDEN[4096..]), Some(page(5)));
    }

    #[test]
    fn what_changed_anywhere_is_refused() {
        let (mut head, mut body) = (header().encode(), page(127).encode());
        assert_eq!(CarriedPage::parse(&body), Some(page(127)));
        for at in 0..CARRIED_PAGE_BYTES {
            head[at] ^= 0x10;
            body[at] ^= 0x10;
            assert_eq!(CarriedHeader::parse(&head), Err(CarriedError::Damaged), "byte {at}");
            assert_eq!(CarriedPage::parse(&body), None, "byte {at}");
            head[at] ^= 0x10;
            body[at] ^= 0x10;
            assert_eq!(CarriedHeader::parse(&head[..at]), Err(CarriedError::Damaged), "cut to {at} bytes");
            assert_eq!(CarriedPage::parse(&body[..at]), None, "cut to {at} bytes");
        }
        head[8..12].copy_from_slice(&2u32.to_le_bytes());
        let crc = crc32c_pair(&head[..12], &head[16..]);
        head[12..16].copy_from_slice(&crc.to_le_bytes());
        assert_eq!(CarriedHeader::parse(&head), Err(CarriedError::Newer(2)));
    }

    proptest! {
        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), CARRIED_PAGE_BYTES)) {
            prop_assert_eq!(CarriedPage::parse(&bytes), None);
            prop_assert_eq!(CarriedHeader::parse(&bytes), Err(CarriedError::Damaged));
        }
    }
}
