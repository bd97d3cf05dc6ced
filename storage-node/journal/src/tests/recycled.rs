//! What is left of messages in a file that is used again.

use super::*;
use crate::disk::OpenMode;
use crate::format::{
    BLOCK_HEADER_BYTES, BlockHeader, FLAG_SESSION_START, FRAME_HEADER_BYTES, FrameHeader, FrameKind,
};

const PAGE: usize = 4096;
const OTHER: StreamId = StreamId(9);

/// A message each page of which begins like a block of `file`, if it is alone in its own.
fn forging(index: u64, file: FileSeq) -> Entry {
    forging_that_says(index, file, Lsn::new(file, 0))
}

/// The same; the blocks say that everything below `durable` was synced.
pub(super) fn forging_that_says(index: u64, file: FileSeq, durable: Lsn) -> Entry {
    let (vote, at) = (b"forged", LogPosition { term: 0, leader: 0, index: 0 });
    let mut heads = Vec::new();
    FrameHeader::new(OTHER, FrameKind::Vote, at, vote).put(&mut heads);
    let header = BlockHeader {
        flags: FLAG_SESSION_START,
        frames: 1,
        body_len: u32::try_from(heads.len() + vote.len()).unwrap(),
        block_seq: u64::from(u32::MAX) << 32,
        file,
        durable,
        ts_ms: 0,
        prev_end: 0,
        is_guarded: false,
    };
    let block = [&header.encode(&heads), &*heads, vote].concat();
    let mut payload = vec![7; 28_000];
    for page in 1..7 {
        let at = page * PAGE - BLOCK_HEADER_BYTES - FRAME_HEADER_BYTES;
        payload[at..at + block.len()].copy_from_slice(&block);
    }
    Entry { payload: payload.into(), ..entry(index, 0) }
}

#[test]
fn a_message_is_never_taken_for_a_block_when_its_file_is_used_again() {
    for (number, is_opened_again) in (3..8).flat_map(|number| [(number, false), (number, true)]) {
        let (file, about) = (FileSeq(number), format!("file {number}, opened again: {is_opened_again}"));
        let disk = SimDisk::new();
        let mut journal = open(&disk).0;
        let mut end = 0;
        while journal.usage().files.last().unwrap().file < file {
            append(&journal, STREAM, vec![forging(end, file)]).unwrap();
            end += 1;
            if is_opened_again && end == 5 {
                journal.close();
                journal = open(&disk).0;
            }
            journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: end - 1 });
            let (done, answer) = waiter();
            journal.flush(STREAM, done).unwrap();
            answer.recv().unwrap().unwrap();
            until("what may go is gone", || journal.usage().files.len() == 1);
        }
        append(&journal, STREAM, vec![entry(end, 100)]).unwrap();
        journal.close();
        let opened = Journal::open(config(), Arc::new(disk.clone())).map(|(_, found)| found);
        let found = opened.unwrap_or_else(|error| panic!("{about}: {error}"));
        assert_eq!(found.streams.keys().copied().collect::<Vec<_>>(), [STREAM], "{about}: {found:?}");
        assert_eq!(found.streams[&STREAM].entries.end, end + 1, "{about}");
    }
}

#[test]
fn a_message_in_a_torn_block_is_never_taken_for_a_block() {
    let path = Path::new("/journal/wal/0000000000000001.wal");
    for file in [FileSeq(1), FileSeq(5)] {
        let disk = SimDisk::new();
        let (journal, _) = open(&disk);
        append(&journal, STREAM, vec![entry(0, 100)]).unwrap();
        append(&journal, STREAM, vec![forging(1, file)]).unwrap();
        journal.close();
        // As if its first page had not got to the disk.
        disk.flip_bit(path, 2 * PAGE + 40, 1);
        for end in 1..4 {
            let (journal, found) = open(&disk);
            let known = (found.streams.keys().copied().collect::<Vec<_>>(), journal.entries(STREAM));
            assert_eq!(known, (vec![STREAM], 0..end), "{file}: {found:?}");
            append(&journal, STREAM, vec![entry(end, 100)]).unwrap();
            journal.close();
        }
        let bytes = disk.open(path, OpenMode::Read).unwrap();
        let begins_like_one = |page: u64| {
            let mut magic = [0; 4];
            bytes.read_at(&mut magic, page * PAGE as u64).unwrap();
            magic == *b"WJB1"
        };
        assert_eq!(
            (1..64).filter(|page| begins_like_one(*page)).count(),
            4,
            "{file}: only what was written since"
        );
    }
}

/// Whatever a crash leaves of a message that looks like blocks, and says that all before them was acknowledged.
#[test]
fn a_message_in_a_torn_block_proves_nothing() {
    let file = FileSeq(1);
    for (backend, sync) in [
        (Backend::Pwrite, SyncMode::Always),
        (Backend::Direct, SyncMode::Always),
        (Backend::Pwrite, SyncMode::Os),
    ] {
        let config = || JournalConfig { backend, sync, write_piece_bytes: 8 << 10, ..config() };
        let mut torn = 0;
        for (operation, seed) in (0..4).flat_map(|operation| (0..40).map(move |seed| (operation, seed))) {
            let about = format!("{backend:?}, {sync:?}, operation {operation}, seed {seed}");
            let disk = SimDisk::new();
            let (journal, _) = Journal::open(config(), Arc::new(disk.clone())).unwrap();
            append(&journal, STREAM, vec![entry(0, 100)]).unwrap();
            let (done, answer) = waiter();
            journal.flush(STREAM, done).unwrap();
            answer.recv().unwrap().unwrap();
            // From here on nobody but the writer uses the disk.
            until("the next file is there", || journal.knows_of_next_file());
            disk.fail_after(operation);
            let entries = vec![forging_that_says(1, file, Lsn::new(file, u32::MAX)), entry(2, 2_000)];
            drop(append(&journal, STREAM, entries));
            drop(journal);
            let disk = disk.after_crash(seed);
            let opened = Journal::open(config(), Arc::new(disk.clone())).map(|(_, found)| found);
            let found = opened.unwrap_or_else(|error| panic!("{about}: {error}"));
            assert_eq!(found.streams.keys().copied().collect::<Vec<_>>(), [STREAM], "{about}");
            let end = found.streams[&STREAM].entries.end;
            assert!(end == 1 || end == 3, "{about}: {end}");
            torn += u32::from(found.torn_tail.is_some());
        }
        assert!(torn > 10, "{backend:?}, {sync:?}: {torn} torn");
    }
}

/// Its header says how far a torn block goes, and that nothing in it counts. Whoever clears that block loses power.
#[test]
fn a_message_in_a_torn_block_proves_nothing_while_that_is_cleared() {
    let file = FileSeq(1);
    // The header is written by the first operation, and in one of them synced by the next.
    for (backend, operation) in [(Backend::Pwrite, 2), (Backend::Direct, 1)] {
        let config = || JournalConfig { backend, ..config() };
        let open = |disk: &SimDisk| Journal::open(config(), Arc::new(disk.clone()));
        let mut torn = 0;
        for (seed, cut) in (0..8).flat_map(|seed| (0..12).map(move |cut| (seed, cut))) {
            let disk = SimDisk::new();
            let (journal, _) = open(&disk).unwrap();
            append(&journal, STREAM, vec![entry(0, 100)]).unwrap();
            until("the next file is there", || journal.knows_of_next_file());
            disk.fail_after(operation);
            let entries = vec![forging_that_says(1, file, Lsn::new(file, u32::MAX))];
            drop(append(&journal, STREAM, entries));
            drop(journal);
            let clearing = disk.after_crash(seed);
            clearing.fail_after(cut);
            drop(open(&clearing));
            for again in 0..6 {
                let about = format!("{backend:?}, seed {seed}, cut {cut}, {again}");
                let (_, found) =
                    open(&clearing.after_crash(again)).unwrap_or_else(|error| panic!("{about}: {error}"));
                assert!((1..3).contains(&found.streams[&STREAM].entries.end), "{about}: {found:?}");
                torn += u32::from(found.torn_tail.is_some());
            }
        }
        assert!(torn > 100, "{backend:?}: {torn} torn");
    }
}

#[test]
fn a_repair_believes_no_message_in_a_damaged_block() {
    let (file, path) = (FileSeq(1), Path::new("/journal/wal/0000000000000001.wal"));
    let disk = SimDisk::new();
    let (journal, _) = open(&disk);
    append(&journal, STREAM, vec![entry(0, 100)]).unwrap();
    append(&journal, STREAM, vec![forging(1, file)]).unwrap();
    append(&journal, STREAM, vec![entry(2, 100)]).unwrap();
    journal.close();
    // In the middle of the message, behind what looks like a block.
    disk.flip_bit(path, 4 * PAGE + 2_000, 1);
    let opened = Journal::open(config(), Arc::new(disk.clone()));
    assert!(matches!(opened, Err(OpenError::Damaged(_))), "what follows says that it was acknowledged");
    let shared: Arc<dyn Disk> = Arc::new(disk.clone());
    let repair = Repair::look(Path::new("/journal"), &shared).unwrap().expect("it is damaged");
    assert_eq!(repair.streams().collect::<Vec<_>>(), [STREAM]);
    assert_eq!(repair.cut().entries[&STREAM], 1..3);
    repair.truncate().unwrap();
    assert_eq!(open(&disk).1.streams.keys().copied().collect::<Vec<_>>(), [STREAM]);
}
