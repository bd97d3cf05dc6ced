//! Bytes that are in the field: what is written today is what was written then, and what was written then is read.
//!
//! Golden files are written with `WEIR_JOURNAL_GOLDEN_DIR=storage-node/journal/src/format/golden cargo test
//! --workspace --lib golden` when a layout has a new version, under a new name; never for the old one.

use crate::disk::OpenMode;
use crate::entry::{FileSeq, LogPosition, Lsn};
use crate::format::{
    BLOCK_ALIGN, BLOCK_HEADER_BYTES, BlockHeader, FILE_HEADER_BYTES, FLAG_FILE_HEAD, FLAG_SESSION_START,
    FileHeader, FrameHeader, FrameKind, Frames, align_up,
};
use crate::identity::IdentityFile;

use super::formats::read_file;
use super::*;

const JOURNAL_FILE: &[u8] = include_bytes!("../format/golden/journal-file-v2.bin");
const IDENTITY_FILE: &[u8] = include_bytes!("../format/golden/identity-v2.bin");
/// Of an earlier build: read, and no longer written.
const OLDER_JOURNAL_FILE: &[u8] = include_bytes!("../format/golden/journal-file-v1.bin");
const OLDER_IDENTITY_FILE: &[u8] = include_bytes!("../format/golden/identity-v1.bin");
const SEALED: &[u8] = include_bytes!("../format/golden/sealed-v1.bin");

const JOURNAL_ID: u128 = 0x0102_0304_0506_0708 << 64 | 0x090a_0b0c;
const FILE: FileSeq = FileSeq(0x1122_3344);
const KINDS: [FrameKind; 9] = [
    FrameKind::Entry(EntryKind::Normal),
    FrameKind::Entry(EntryKind::Blank),
    FrameKind::Entry(EntryKind::Membership),
    FrameKind::Vote,
    FrameKind::Truncate,
    FrameKind::Purge,
    FrameKind::Committed,
    FrameKind::Meta,
    FrameKind::End,
];

/// Compares, after writing the golden file if that is asked for.
#[expect(clippy::disallowed_methods, reason = "writes golden files when asked to")]
fn is_golden(name: &str, bytes: &[u8], golden: &[u8]) {
    if let Some(dir) = std::env::var_os("WEIR_JOURNAL_GOLDEN_DIR") {
        std::fs::write(Path::new(&dir).join(name), bytes).unwrap();
    }
    assert!(bytes == golden, "the layout of {name} changed: that is a new version");
}

fn header() -> FileHeader {
    FileHeader {
        file: FILE,
        file_bytes: 64 << 20,
        journal_id: JOURNAL_ID,
        cluster_id: 0xc1 << 120 | 5,
        node_id: 77,
    }
}

fn frames() -> Vec<(FrameHeader, String)> {
    let frame = |(index, kind): (u64, FrameKind)| {
        let payload = "payload ".repeat(usize::try_from(index).unwrap());
        let at = LogPosition { term: 1 << 40 | index, leader: 2 << 40, index: 3 << 40 | index };
        (FrameHeader::new(StreamId(0x0a0b), kind, at, payload.as_bytes()), payload)
    };
    (0..).zip(KINDS).map(frame).collect()
}

fn block(body_len: usize) -> BlockHeader {
    BlockHeader {
        flags: FLAG_SESSION_START | FLAG_FILE_HEAD,
        frames: 9,
        body_len: u32::try_from(body_len).unwrap(),
        block_seq: 6 << 32 | 1,
        file: FILE,
        durable: Lsn(0x0102_0304_0506),
        ts_ms: 1_790_000_000_123,
        prev_end: 0x0030_0000,
        is_guarded: false,
    }
}

#[test]
fn a_journal_file_is_the_golden_file_and_is_read_from_it() {
    let (mut heads, mut body) = (Vec::new(), Vec::new());
    for (frame, payload) in frames() {
        frame.put(&mut heads);
        frame.put(&mut body);
        body.extend_from_slice(payload.as_bytes());
    }
    let mut bytes = header().encode();
    bytes.extend_from_slice(&block(body.len()).encode(&heads));
    bytes.extend_from_slice(&body);
    bytes.resize(align_up(u32::try_from(bytes.len()).unwrap()) as usize, 0);
    is_golden("journal-file-v2.bin", &bytes, JOURNAL_FILE);
    is_read_from(JOURNAL_FILE);
}

/// It is of the same version: builds that know nothing of guards read it.
#[test]
fn a_guarded_header_is_what_it_was_and_is_believed_only_as_it_was() {
    let guarded = BlockHeader { is_guarded: true, ..block(100) };
    let bytes = guarded.encode(&[]);
    assert_eq!(bytes[52..56], 0xb9f6_d9dc_u32.to_le_bytes());
    assert_eq!(BlockHeader::parse(&bytes, FILE, 1_000), Ok(guarded));
    // The block's own checksum and what is zero say nothing of its length.
    for at in (0..12).chain(16..56) {
        let mut changed = bytes;
        changed[at] ^= 1;
        let is_believed = BlockHeader::parse(&changed, FILE, 1_000).is_ok_and(|header| header.is_guarded);
        assert!(!is_believed, "byte {at}");
    }
    assert!(!BlockHeader::parse(&block(100).encode(&[]), FILE, 1_000).unwrap().is_guarded);
}

#[test]
fn an_older_journal_file_is_read() {
    is_read_from(OLDER_JOURNAL_FILE);
}

fn is_read_from(file: &[u8]) {
    assert_eq!(FileHeader::parse(file), Ok(header()));
    let rest = &file[FILE_HEADER_BYTES as usize..];
    let read = BlockHeader::parse(rest, FILE, BLOCK_ALIGN as usize).unwrap();
    let body_len = frames().iter().map(|(frame, _)| frame.frame_len()).sum();
    assert_eq!(read, block(body_len));
    BlockHeader::verify(&rest[..read.len()]).unwrap();
    let whole = &rest[..read.len()];
    // Whatever is changed in it.
    for at in 0..whole.len() {
        let mut changed = whole.to_vec();
        changed[at] ^= 1;
        assert!(BlockHeader::verify(&changed).is_err(), "byte {at}");
    }
    let read: Vec<_> = Frames::new(&rest[BLOCK_HEADER_BYTES..read.len()]).map(Result::unwrap).collect();
    assert_eq!(read.len(), KINDS.len());
    for (read, (header, payload)) in read.into_iter().zip(frames()) {
        assert_eq!((read.header, read.payload), (header, payload.as_bytes()));
        header.verify(read.payload).unwrap();
    }
}

#[test]
fn an_identity_is_the_golden_file_and_is_read_from_it() {
    let identity = Identity { cluster_id: 0xc1 << 120 | 5, node_id: 77 };
    let file = IdentityFile { journal_id: JOURNAL_ID, identity, format: 2 };
    let disk = SimDisk::new();
    file.write(Path::new("/journal"), &disk).unwrap();
    is_golden("identity-v2.bin", &read_file(&disk, "/journal/IDENTITY"), IDENTITY_FILE);
    for (golden, format) in [(IDENTITY_FILE, 2), (OLDER_IDENTITY_FILE, 1)] {
        let kept = disk.open(Path::new("/kept/IDENTITY"), OpenMode::Create).unwrap();
        kept.write_at(golden, 0).unwrap();
        let found = IdentityFile::find(Path::new("/kept"), &disk).unwrap();
        assert_eq!(found, Some(IdentityFile { format, ..file }));
    }
}

#[test]
fn what_is_sealed_is_the_golden_file_and_is_read_from_it() {
    let disk = SimDisk::new();
    let content = [Bytes::from_static(b"the state "), Bytes::from_static(b"of a shard")];
    let fill = |to: &mut dyn std::io::Write| content.iter().try_for_each(|chunk| to.write_all(chunk));
    crate::sealed::write(&disk, Path::new("/journal/a.blob"), fill).unwrap();
    is_golden("sealed-v1.bin", &read_file(&disk, "/journal/a.blob"), SEALED);
    let kept = disk.open(Path::new("/kept/a.blob"), OpenMode::Create).unwrap();
    kept.write_at(SEALED, 0).unwrap();
    let read = crate::sealed::read(&disk, Path::new("/kept/a.blob")).unwrap();
    assert_eq!(read.as_deref(), Some(&b"the state of a shard"[..]));
}
