//! What must hold for any journal that recovery finds: it is opened or refused, nothing panics, what is given
//! was written there, and who opens it once more finds the same.

use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use crc_fast::CrcAlgorithm::Crc32Iscsi;
use weir_journal::disk::OpenMode;
use weir_journal::disk::sim::SimDisk;
use weir_journal::format::{
    BlockHeader, FILE_HEADER_BYTES, FLAG_FILE_HEAD, FLAG_SESSION_START, FRAME_HEADER_BYTES, FrameHeader,
    FrameKind, Frames,
};
use weir_journal::{
    Disk as _, Entry, EntryKind, FileSeq, Identity, Journal, JournalConfig, LogPosition, Lsn, StreamId,
};

const STREAMS: [StreamId; 2] = [StreamId(1), StreamId(2)];
const ENTRIES: u64 = 30;
const CHANGES_MAX: usize = 16;

/// The first byte says how the rest is understood.
pub fn recovery(data: &[u8]) {
    let Some((how, rest)) = data.split_first() else { return };
    match how % 3 {
        0 => changed(rest),
        1 => block(rest, Frames::new(rest).count()),
        _ => frames(rest),
    }
}

fn config() -> JournalConfig {
    let identity = Identity { cluster_id: 7, node_id: 1 };
    JournalConfig {
        file_bytes: 64 << 10,
        max_block_bytes: 16 << 10,
        ..JournalConfig::small("/journal", identity)
    }
}

fn entry(stream: StreamId, index: u64) -> Entry {
    let payload = format!("entry {index} of {} ", stream.0).repeat(60).into();
    Entry { kind: EntryKind::Normal, term: 1, leader: 1, index, payload }
}

/// A journal of several files, closed as it should be.
fn written() -> SimDisk {
    let disk = SimDisk::new();
    let (journal, _) = Journal::open(config(), Arc::new(disk.clone())).expect("an empty directory");
    for index in 0..ENTRIES {
        for stream in STREAMS {
            let (done, answer) = mpsc::channel();
            let done = Box::new(move |outcome| drop(done.send(outcome)));
            journal.append(stream, vec![entry(stream, index)], done).expect("there is room");
            answer.recv().expect("every waiter is answered").expect("the disk is well");
        }
    }
    journal.close();
    drop(journal);
    disk
}

/// Some bytes are not what they were: six bytes say in which file, where, and how.
fn changed(data: &[u8]) {
    let disk = written();
    let mut paths = vec![PathBuf::from("/journal/IDENTITY")];
    let wal = Path::new("/journal/wal");
    paths.extend(disk.list(wal).expect("the disk is well").into_iter().map(|file| wal.join(file.name)));
    paths.sort();
    for change in data.chunks_exact(6).take(CHANGES_MAX) {
        let file =
            disk.open(&paths[usize::from(change[0]) % paths.len()], OpenMode::Write).expect("it is there");
        let at = u64::from(u16::from_le_bytes([change[1], change[2]]));
        let mut bytes = [0; 3];
        let len = file.read_at(&mut bytes, at).expect("the disk is well");
        bytes.iter_mut().zip(&change[3..]).for_each(|(byte, change)| *byte ^= change);
        file.write_at(&bytes[..len], at).expect("the disk is well");
    }
    for entry in opened(&disk).into_iter().flatten() {
        assert_eq!(entry.1, self::entry(entry.0, entry.1.index), "what is given was written");
    }
}

/// A block whose checksums are right, whatever is in it.
fn block(body: &[u8], frames: usize) {
    let disk = SimDisk::new();
    let (journal, _) = Journal::open(config(), Arc::new(disk.clone())).expect("an empty directory");
    journal.close();
    drop(journal);
    let path = Path::new("/journal/wal/0000000000000001.wal");
    let file = disk.open(path, OpenMode::Write).expect("the first file");
    let (Ok(body_len), Ok(frames)) = (u32::try_from(body.len()), u16::try_from(frames)) else { return };
    let header = BlockHeader {
        flags: FLAG_SESSION_START | FLAG_FILE_HEAD,
        frames,
        body_len,
        block_seq: 1 << 32,
        file: FileSeq(1),
        durable: Lsn(0),
        ts_ms: 0,
        prev_end: 0,
        is_guarded: false,
    };
    let (heads, body) = checked(body);
    let block = [&header.encode(&heads)[..], &body].concat();
    file.write_at(&block, FILE_HEADER_BYTES.into()).expect("the disk is well");
    opened(&disk);
}

/// The headers of the frames in `body` with the checksums of their payloads, and the body with these; what is
/// behind the last whole frame is as it was.
fn checked(body: &[u8]) -> (Vec<u8>, Vec<u8>) {
    let (mut heads, mut body, mut at) = (Vec::new(), body.to_vec(), 0);
    while let Some((header, behind)) = body[at..].split_at_mut_checked(FRAME_HEADER_BYTES) {
        let len = u32::from_le_bytes([header[0], header[1], header[2], header[3]]) as usize;
        let Some(payload) = behind.get(..len) else { break };
        let crc = u32::try_from(crc_fast::checksum(Crc32Iscsi, payload)).expect("32 bits");
        header[36..].copy_from_slice(&crc.to_le_bytes());
        heads.extend_from_slice(header);
        at += FRAME_HEADER_BYTES + len;
    }
    (heads, body)
}

/// Frames whose checksums are right: four bytes say of each what it is, and of what.
fn frames(data: &[u8]) {
    let mut body = Vec::new();
    let kinds = [
        FrameKind::Entry(EntryKind::Normal),
        FrameKind::Entry(EntryKind::Blank),
        FrameKind::Vote,
        FrameKind::Truncate,
        FrameKind::Purge,
        FrameKind::Committed,
        FrameKind::Meta,
        FrameKind::End,
    ];
    let said = data.chunks_exact(4).take(64);
    let count = said.len();
    for said in said {
        let stream = STREAMS[usize::from(said[0] >> 7)];
        let kind = kinds[usize::from(said[0]) % kinds.len()];
        // The highest are where adding one is too much.
        let number = |byte: u8| if byte > 250 { u64::MAX - u64::from(255 - byte) } else { u64::from(byte) };
        let at = LogPosition { term: number(said[2]), leader: 1, index: number(said[1]) };
        let payload = vec![said[3]; usize::from(said[3])];
        FrameHeader::new(stream, kind, at, &payload).put(&mut body);
        body.extend(payload);
    }
    block(&body, count);
}

/// All entries of a journal that can be opened, twice the same; `None` if it is refused.
fn opened(disk: &SimDisk) -> Option<Vec<(StreamId, Entry)>> {
    let first = entries(disk)?;
    let again = entries(disk).expect("what was opened can be opened again");
    assert_eq!(again, first);
    Some(first)
}

fn entries(disk: &SimDisk) -> Option<Vec<(StreamId, Entry)>> {
    let (journal, _) = Journal::open(config(), Arc::new(disk.clone())).ok()?;
    let mut all = Vec::new();
    for stream in STREAMS {
        let range = journal.entries(stream);
        let mut next = range.start;
        while next < range.end {
            // Damage behind the index is told when it is read.
            let Ok(part) = journal.read_entries(stream, next..range.end, 10_000) else { break };
            assert!(part.iter().map(|entry| entry.index).eq(next..next + part.len() as u64));
            assert!(!part.is_empty(), "there are entries up to {}", range.end);
            next += part.len() as u64;
            all.extend(part.into_iter().map(|entry| (stream, entry)));
        }
    }
    journal.close();
    Some(all)
}
