//! The sidecar of a journal file: where the payloads of its entries lie, in pages that are read one at a time.

use super::{crc32c, u32_at, u64_at};
use crate::entry::{FileSeq, StreamId};

/// Bytes of a page, and of the header before them.
pub const PAGE_BYTES: usize = 4096;
/// Rows that fit a page.
pub const PAGE_ROWS: usize = (PAGE_BYTES - PAGE_HEADER_BYTES) / ROW_BYTES;
/// Newest version of the sidecar that this build writes and reads.
pub const SIDECAR_VERSION: u32 = 1;

const PAGE_HEADER_BYTES: usize = 32;
const ROW_BYTES: usize = 8;
const MAGIC: u64 = u64::from_le_bytes(*b"WEIRIDX\0");

// No bytes lie between a page's last row and its end: the checksum covers nothing that is not drawn.
const _: () = assert!(PAGE_HEADER_BYTES + PAGE_ROWS * ROW_BYTES == PAGE_BYTES);

/// Header of a sidecar. `pages` pages follow it, those of a stream one after another in the order of their indexes.
///
/// | offset | size | meaning |
/// |---|---|---|
/// | 0 | 8 | magic `WEIRIDX\0` |
/// | 8 | 4 | version, 1 |
/// | 12 | 4 | CRC-32C of bytes 0..12 and 16..4096 |
/// | 16 | 8 | number of the journal file |
/// | 24 | 4 | pages |
/// | 28 | 4 | zero |
/// | 32 | 16 | journal id |
/// | 48 | .. | zero |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SidecarHeader {
    /// The journal file whose entries it finds.
    pub file: FileSeq,
    /// The journal of that file.
    pub journal_id: u128,
    /// Pages after the header.
    pub pages: u32,
}

/// Where the payload of one entry lies in the journal file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Place {
    /// Byte position of the payload's first byte.
    pub pos: u32,
    /// Payload bytes.
    pub len: u32,
}

/// A page: entries of one stream whose indexes follow each other.
///
/// | offset | size | meaning |
/// |---|---|---|
/// | 0 | 4 | CRC-32C of bytes 4..4096 |
/// | 4 | 4 | stream |
/// | 8 | 8 | number of the journal file |
/// | 16 | 8 | index of the first row |
/// | 24 | 4 | rows, 1 to 508 |
/// | 28 | 4 | zero |
/// | 32 | 8 each | rows: position of the payload (4), payload bytes (4); then zeros |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Page<'a> {
    /// The stream.
    pub stream: StreamId,
    /// The journal file.
    pub file: FileSeq,
    /// Index of the first row.
    pub first: u64,
    rows: &'a [u8],
}

impl SidecarHeader {
    /// Appends the header's bytes to `out`.
    pub fn put(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.resize(at + PAGE_BYTES, 0);
        let bytes = &mut out[at..];
        bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&SIDECAR_VERSION.to_le_bytes());
        bytes[16..24].copy_from_slice(&self.file.0.to_le_bytes());
        bytes[24..28].copy_from_slice(&self.pages.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.journal_id.to_le_bytes());
        let crc = super::crc32c_pair(&bytes[..12], &bytes[16..]);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    }
}

impl<'a> Page<'a> {
    /// Appends a page of `places`, which belong to the indexes from `first` on, to `out`.
    ///
    /// # Panics
    /// If there are none, or more than fit.
    pub fn put(stream: StreamId, file: FileSeq, first: u64, places: &[Place], out: &mut Vec<u8>) {
        assert!((1..=PAGE_ROWS).contains(&places.len()), "a page of {} rows", places.len());
        let at = out.len();
        out.resize(at + PAGE_BYTES, 0);
        let bytes = &mut out[at..];
        let count = u32::try_from(places.len()).expect("a page has few rows");
        bytes[4..8].copy_from_slice(&stream.0.to_le_bytes());
        bytes[8..16].copy_from_slice(&file.0.to_le_bytes());
        bytes[16..24].copy_from_slice(&first.to_le_bytes());
        bytes[24..28].copy_from_slice(&count.to_le_bytes());
        for (row, place) in bytes[PAGE_HEADER_BYTES..].chunks_exact_mut(ROW_BYTES).zip(places) {
            row[..4].copy_from_slice(&place.pos.to_le_bytes());
            row[4..].copy_from_slice(&place.len.to_le_bytes());
        }
        let crc = crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_le_bytes());
    }

    /// Reads a page; `None` if it is cut short or damaged.
    #[must_use]
    pub fn parse(bytes: &'a [u8]) -> Option<Self> {
        if bytes.len() != PAGE_BYTES || u32_at(bytes, 0) != crc32c(&bytes[4..]) {
            return None;
        }
        let count =
            usize::try_from(u32_at(bytes, 24)).ok().filter(|count| (1..=PAGE_ROWS).contains(count))?;
        Some(Self {
            stream: StreamId(u32_at(bytes, 4)),
            file: FileSeq(u64_at(bytes, 8)),
            first: u64_at(bytes, 16),
            rows: &bytes[PAGE_HEADER_BYTES..PAGE_HEADER_BYTES + count * ROW_BYTES],
        })
    }

    /// Where the entry `index` lies, if it is in this page.
    #[must_use]
    pub fn place(&self, index: u64) -> Option<Place> {
        let at = usize::try_from(index.checked_sub(self.first)?).ok()?.checked_mul(ROW_BYTES)?;
        let row = self.rows.get(at..)?.get(..ROW_BYTES)?;
        Some(Place { pos: u32_at(row, 0), len: u32_at(row, 4) })
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// Written with `WEIR_JOURNAL_GOLDEN_DIR=storage-node/journal/src/format/golden cargo test --workspace
    /// --lib golden` when the layout has a new version, never for the old one.
    const GOLDEN: &[u8] = include_bytes!("golden/sidecar-v1.bin");

    fn places(count: u32) -> Vec<Place> {
        (0..count).map(|i| Place { pos: 4_200 + i * 300, len: 260 + i }).collect()
    }

    #[test]
    #[expect(clippy::disallowed_methods, reason = "writes the golden file when asked to")]
    fn the_layout_is_the_golden_file() {
        let mut bytes = Vec::new();
        SidecarHeader { file: FileSeq(0x0102_0304), journal_id: 0x0a0b_0c0d << 64 | 7, pages: 1 }
            .put(&mut bytes);
        Page::put(StreamId(9), FileSeq(0x0102_0304), 1 << 40, &places(3), &mut bytes);
        if let Some(dir) = std::env::var_os("WEIR_JOURNAL_GOLDEN_DIR") {
            std::fs::write(std::path::Path::new(&dir).join("sidecar-v1.bin"), &bytes).unwrap();
        }
        assert!(bytes == GOLDEN, "the layout of a sidecar changed: that is a new version");
    }

    #[test]
    fn a_page_that_changed_anywhere_is_refused() {
        let mut bytes = Vec::new();
        Page::put(StreamId(9), FileSeq(2), 70, &places(PAGE_ROWS as u32), &mut bytes);
        assert_eq!(Page::parse(&bytes).unwrap().place(70 + 507), Some(places(508)[507]));
        for at in 0..PAGE_BYTES {
            bytes[at] ^= 0x10;
            assert_eq!(Page::parse(&bytes), None, "byte {at}");
            bytes[at] ^= 0x10;
            assert_eq!(Page::parse(&bytes[..at]), None, "cut to {at} bytes");
        }
    }

    proptest! {
        #[test]
        fn a_page_gives_back_its_rows_and_no_others(
            first in any::<u64>().prop_map(|first| first >> 1), count in 1u32..=508, near in 0u64..1_100,
        ) {
            let mut bytes = Vec::new();
            Page::put(StreamId(1), FileSeq(1), first, &places(count), &mut bytes);
            let page = Page::parse(&bytes).unwrap();
            let index = (first + near).saturating_sub(300);
            let row = index.checked_sub(first).and_then(|at| places(count).get(at as usize).copied());
            prop_assert_eq!(page.place(index), row);
        }

        #[test]
        fn arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), PAGE_BYTES)) {
            prop_assert_eq!(Page::parse(&bytes), None);
        }
    }
}
