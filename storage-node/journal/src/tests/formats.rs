//! What a newer Weir wrote is refused by name, before anything is changed.

use crate::disk::OpenMode;
use crate::format::{
    BLOCK_HEADER_BYTES, BLOCK_VERSION, FILE_HEADER_BYTES, FRAME_HEADER_BYTES, crc32c, u32_at,
};

use super::*;

const NEWER: u32 = 1_000;

pub(super) fn read_file(disk: &SimDisk, path: &str) -> Vec<u8> {
    let file = disk.open(Path::new(path), OpenMode::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    assert_eq!(file.read_at(&mut bytes, 0).unwrap(), bytes.len());
    bytes
}

/// Says a newer format in the bytes 8..12 of a header whose checksum at 12 covers those before it and 16..`end`.
fn make_newer(disk: &SimDisk, path: &str, end: usize) {
    let mut bytes = read_file(disk, path);
    assert_eq!(u32_at(&bytes, 12), crc32c(&[&bytes[..12], &bytes[16..end]].concat()), "the layout of {path}");
    bytes[8..12].copy_from_slice(&NEWER.to_le_bytes());
    let checksum = crc32c(&[&bytes[..12], &bytes[16..end]].concat());
    bytes[12..16].copy_from_slice(&checksum.to_le_bytes());
    disk.open(Path::new(path), OpenMode::Write).unwrap().write_at(&bytes[..end], 0).unwrap();
}

fn refused(disk: &SimDisk) -> OpenError {
    let before = disk.operations();
    let refused = Journal::open(config(), Arc::new(disk.clone())).expect_err("it is of a newer format");
    assert_eq!(disk.operations(), before, "nothing was changed: {refused}");
    refused
}

/// A journal with one entry, closed.
fn written() -> SimDisk {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk);
    append(&journal, STREAM, vec![entry(0, 100)]).unwrap();
    journal.close();
    disk
}

#[test]
fn a_directory_of_a_newer_format_is_refused_by_name_and_left_alone() {
    let disk = written();
    make_newer(&disk, "/journal/IDENTITY", 56);
    let refused = refused(&disk);
    assert!(
        matches!(&refused, OpenError::NewerFormat { what: "directory", found: NEWER, known: 3, .. }),
        "{refused:?}"
    );
    for part in ["/journal/IDENTITY", "directory format 1000", "reads up to 3", "use a newer Weir"] {
        assert!(refused.to_string().contains(part), "{part} in {refused}");
    }
}

#[test]
fn a_journal_file_of_a_newer_format_is_refused_by_name_and_left_alone() {
    let disk = written();
    make_newer(&disk, "/journal/wal/0000000000000001.wal", 72);
    let refused = refused(&disk);
    assert!(
        matches!(&refused, OpenError::NewerFormat { what: "journal file", found: NEWER, known: 1, .. }),
        "{refused:?}"
    );
    for part in ["0000000000000001.wal", "journal file format 1000", "reads up to 1", "use a newer Weir"] {
        assert!(refused.to_string().contains(part), "{part} in {refused}");
    }
}

#[test]
fn a_whole_block_of_a_newer_version_is_refused_by_name_and_never_cut_as_a_torn_tail() {
    const BLOCK_AT: usize = FILE_HEADER_BYTES as usize;
    /// Of a block with one frame.
    const FIRST_PAYLOAD_AT: usize = BLOCK_HEADER_BYTES + FRAME_HEADER_BYTES;
    let disk = written();
    let path = "/journal/wal/0000000000000001.wal";
    let mut block = read_file(&disk, path).split_off(BLOCK_AT);
    let len = BLOCK_HEADER_BYTES + u32_at(&block, 8) as usize;
    block.truncate(len);
    block[4] = BLOCK_VERSION + 1;
    let write = |bytes: &[u8]| {
        let file = disk.open(Path::new(path), OpenMode::Write).unwrap();
        file.write_at(bytes, BLOCK_AT as u64).unwrap();
    };
    // Whole by what is over the headers of its frames, and by what is over all bytes of them.
    for end in [FIRST_PAYLOAD_AT, len] {
        let checksum = crc32c(&[&block[..12], &block[16..end]].concat());
        block[12..16].copy_from_slice(&checksum.to_le_bytes());
        write(&block);
        let refused = refused(&disk);
        assert!(
            matches!(&refused, OpenError::NewerFormat { what: "journal block", found: 3, known: 2, .. }),
            "{refused:?}"
        );
        for part in [path, "journal block format 3", "reads up to 2", "use a newer Weir"] {
            assert!(refused.to_string().contains(part), "{part} in {refused}");
        }
    }
    // One that is not whole was never acknowledged, whatever it says of its version.
    block[12] ^= 1;
    write(&block);
    let (_, recovered) = Journal::open(config(), Arc::new(disk)).unwrap();
    assert!(recovered.torn_tail.is_some());
}

#[test]
fn a_blob_of_a_newer_format_is_refused_by_name_and_is_neither_absent_nor_damaged() {
    let disk = SimDisk::new();
    let blobs = Blobs::open("/journal/blobs", Arc::new(disk.clone())).unwrap();
    blobs.put("shard-1", [Bytes::from("state")]).unwrap();
    let file = disk.open(Path::new("/journal/blobs/shard-1.blob"), OpenMode::Write).unwrap();
    file.write_at(&NEWER.to_le_bytes(), 4).unwrap();
    let refused = blobs.get("shard-1").unwrap_err();
    assert!(matches!(&refused, SealedError::NewerFormat { found: NEWER, known: 1, .. }), "{refused:?}");
    assert!(refused.to_string().contains("/journal/blobs/shard-1.blob has format 1000"), "{refused}");
}
