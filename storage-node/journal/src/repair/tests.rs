use std::sync::mpsc;

use super::*;
use crate::disk::sim::SimDisk;
use crate::tests::older::{format_of, has_newer_blocks, make_older};
use crate::{Entry, EntryKind, Identity, Journal, JournalConfig};

const IDENTITY: Identity = Identity { cluster_id: 7, node_id: 1 };
const DIR: &str = "/journal";
const BUSY: StreamId = StreamId(3);
const QUIET: StreamId = StreamId(4);

fn entry(index: u64, bytes: usize) -> Entry {
    let payload = Bytes::from(format!("entry {index} ").repeat(bytes / 8 + 1));
    Entry { kind: EntryKind::Normal, term: 1, leader: 1, index, payload }
}

fn open(disk: &SimDisk) -> Result<Journal, OpenError> {
    Journal::open(JournalConfig::small(DIR, IDENTITY), shared(disk)).map(|(journal, _)| journal)
}

fn shared(disk: &SimDisk) -> Arc<dyn Disk> {
    Arc::new(disk.clone())
}

fn look(disk: &SimDisk) -> Option<Repair> {
    Repair::look(Path::new(DIR), &shared(disk)).unwrap()
}

fn waited(queue: impl FnOnce(crate::Completion)) {
    let (tell, told) = mpsc::channel();
    queue(Box::new(move |outcome| tell.send(outcome.is_ok()).unwrap()));
    assert!(told.recv().unwrap());
}

/// Three files and more: entries of two streams, a vote that the newest file states first, and a purge whose
/// entries' file is gone already when it is stated again.
fn history() -> SimDisk {
    let disk = SimDisk::new();
    let journal = open(&disk).unwrap();
    let append = |stream, index, bytes| {
        waited(|done| journal.append(stream, vec![entry(index, bytes)], done).unwrap());
    };
    append(QUIET, 0, 10);
    waited(|done| journal.save_vote(BUSY, Bytes::from_static(b"first"), done).unwrap());
    let mut index = 0;
    while journal.metrics().rotations < 3 {
        append(BUSY, index, 3_000);
        index += 1;
        if index == 100 {
            append(QUIET, 1, 10);
            journal.note_purged(BUSY, LogPosition { term: 1, leader: 1, index: 10 });
        }
    }
    // Said twice: in a block of its own and at the head of the last file.
    waited(|done| journal.save_vote(BUSY, Bytes::from_static(b"second"), done).unwrap());
    append(QUIET, 2, 10);
    while journal.metrics().rotations < 4 {
        append(BUSY, index, 3_000);
        index += 1;
    }
    append(BUSY, index, 100);
    journal.close();
    drop(journal);
    disk.after_crash(0)
}

fn wal(disk: &SimDisk) -> Vec<PathBuf> {
    let mut names: Vec<_> =
        disk.list(Path::new("/journal/wal")).unwrap().into_iter().map(|f| f.name).collect();
    names.retain(|name| name.ends_with(".wal"));
    names.sort();
    names.iter().map(|name| Path::new("/journal/wal").join(name)).collect()
}

fn ends(disk: &SimDisk) -> (u64, u64) {
    let journal = open(disk).unwrap();
    (journal.entries(BUSY).end, journal.entries(QUIET).end)
}

/// What is kept is what was there, the newest facts are known, and the journal goes on.
fn is_whole_and_goes_on(disk: &SimDisk, expected_busy_end: u64, about: &str) {
    let (journal, found) = Journal::open(JournalConfig::small(DIR, IDENTITY), shared(disk))
        .unwrap_or_else(|error| panic!("{about}: {error}"));
    let busy = &found.streams[&BUSY];
    assert_eq!(busy.vote.as_deref(), Some(&b"second"[..]), "{about}: a vote must not be given twice");
    assert_eq!(busy.purged.map(|at| at.index), Some(10), "{about}");
    assert_eq!(busy.entries, 11..expected_busy_end, "{about}");
    for index in busy.entries.clone() {
        let read = journal.read_entries(BUSY, index..index + 1, 1).unwrap();
        assert_eq!(read, [entry(index, if read[0].payload.len() > 1_000 { 3_000 } else { 100 })], "{about}");
    }
    let next = journal.entries(BUSY).end;
    for index in next..next + 40 {
        waited(|done| journal.append(BUSY, vec![entry(index, 3_000)], done).unwrap());
    }
    drop(journal);
    assert_eq!(ends(disk).0, next + 40, "{about}: what was added is there");
}

#[test]
fn a_whole_journal_needs_no_repair_and_is_left_alone() {
    let disk = history();
    let before = disk.operations();
    assert!(look(&disk).is_none());
    assert_eq!(disk.operations(), before);
    let journal = open(&disk).unwrap();
    let held = Repair::look(Path::new(DIR), &shared(&disk));
    assert!(matches!(held, Err(OpenError::Locked { .. })), "it must not be cut under a node that runs");
    drop(journal);
}

#[test]
fn what_is_said_to_be_lost_is_lost_and_kept_beside_and_nothing_else() {
    let disk = history();
    let (busy_end, quiet_end) = ends(&disk);
    let files = wal(&disk);
    assert!(files.len() >= 4, "{files:?}");
    disk.flip_bit(&files[1], 4096 * 20 + 70, 3);
    let Err(OpenError::Damaged(refused)) = open(&disk) else { panic!("damage was not noticed") };
    let repair = look(&disk).unwrap();
    let cut = repair.cut().clone();
    assert_eq!((&cut.path, cut.pos), (&refused.path, refused.pos), "both name the same place");
    assert_eq!(cut.path, files[1]);
    assert!((4096 * 18..=4096 * 20).contains(&cut.pos) && cut.bytes > 256 << 10, "{cut:?}");
    assert_eq!(cut.later, files[2..]);
    let kept_end = cut.entries[&BUSY].start;
    assert_eq!(cut.entries[&BUSY].end, busy_end);
    assert_eq!(cut.entries[&QUIET], 1..quiet_end);
    let copies = repair.truncate().unwrap();
    let names: Vec<_> = copies.iter().map(|copy| copy.to_string_lossy().into_owned()).collect();
    assert_eq!(copies.len(), 1 + cut.later.len(), "{names:?}");
    assert!(names.iter().all(|name| name.starts_with("/journal/00") && name.ends_with(".wal.damaged")));
    assert!(look(&disk).is_none());
    is_whole_and_goes_on(&disk, kept_end, "a cut in the second file");
    let left: Vec<_> = disk.list(Path::new(DIR)).unwrap().into_iter().map(|file| file.name).collect();
    let stays = |copy: &PathBuf| left.contains(&copy.file_name().unwrap().to_string_lossy().into_owned());
    assert!(copies.iter().all(stays), "opening leaves the copies alone: {left:?}");
}

#[test]
fn damage_anywhere_is_found_where_opening_refuses_and_can_be_cut() {
    let whole = history();
    let (mut refused, mut torn) = (0, 0);
    for path in wal(&whole) {
        let len = u32::try_from(whole.open(&path, OpenMode::Read).unwrap().len().unwrap()).unwrap();
        for page in 1..len / BLOCK_ALIGN {
            let disk = whole.after_crash(0);
            disk.flip_bit(&path, (page * BLOCK_ALIGN) as usize + 70, 1);
            let about = format!("{} page {page}", path.display());
            match open(&disk) {
                Ok(journal) => {
                    drop(journal);
                    let torn_away = ends(&disk) != ends(&whole.after_crash(0));
                    torn += u32::from(torn_away);
                    assert!(look(&disk).is_none(), "{about}: what opens needs no repair");
                }
                Err(OpenError::Damaged(damage)) => {
                    refused += 1;
                    let repair = look(&disk).unwrap_or_else(|| panic!("{about}: {damage}"));
                    let cut = repair.cut().clone();
                    assert_eq!((&cut.path, cut.pos), (&damage.path, damage.pos), "{about}: {damage}");
                    let end = repair.end(BUSY);
                    if repair.base.is_some() {
                        repair.truncate().unwrap();
                        is_whole_and_goes_on(&disk, end, &about);
                    }
                }
                Err(other) => panic!("{about}: {other}"),
            }
        }
    }
    assert!(refused > 100 && torn > 0, "{refused} refused, {torn} torn");
}

#[test]
fn a_damaged_file_header_is_cut_with_all_behind_it() {
    let disk = history();
    let files = wal(&disk);
    disk.flip_bit(&files[2], 20, 1);
    assert!(matches!(open(&disk), Err(OpenError::Corrupt { .. })));
    let repair = look(&disk).unwrap();
    assert_eq!((&repair.cut().path, repair.cut().pos), (&files[2], 0));
    let end = repair.end(BUSY);
    repair.truncate().unwrap();
    is_whole_and_goes_on(&disk, end, "a header");

    let disk = history();
    let files = wal(&disk);
    disk.flip_bit(&files[0], 20, 1);
    let refused = look(&disk).unwrap().truncate();
    assert!(matches!(refused, Err(OpenError::Corrupt { .. })), "nothing would be left");
    assert_eq!(wal(&disk), files, "so nothing is changed");
}

#[test]
fn a_missing_file_is_a_place_to_cut_too() {
    let disk = history();
    let files = wal(&disk);
    disk.remove(&files[2]).unwrap();
    assert!(matches!(open(&disk), Err(OpenError::Missing { .. })));
    let repair = look(&disk).unwrap();
    assert_eq!((&repair.cut().path, &repair.cut().later[..]), (&files[1], &files[3..]));
    let end = repair.end(BUSY);
    repair.truncate().unwrap();
    is_whole_and_goes_on(&disk, end, "a missing file");
}

#[test]
fn a_repair_that_is_interrupted_anywhere_is_refused_or_done_and_can_be_run_again() {
    let whole = history();
    let file = whole.open(&wal(&whole)[1], OpenMode::Read).unwrap();
    let mut header = [0; BLOCK_HEADER_BYTES];
    let is_block = |page: &u32| {
        file.read_at(&mut header, u64::from(page * BLOCK_ALIGN)).unwrap();
        BlockHeader::parse(&header, FileSeq(2), 1 << 20).is_ok()
    };
    let blocks: Vec<u32> = (1..64).filter(is_block).collect();
    // In the middle, and the last block: the facts then take as much room as what is cut, and the file ends as before.
    for page in [blocks[blocks.len() / 2], blocks[blocks.len() - 1]] {
        interrupted_anywhere(&whole, page);
    }
    // The build before would cut off the facts behind the cut.
    make_older(&whole);
    interrupted_anywhere(&whole, blocks[blocks.len() / 2]);
}

fn interrupted_anywhere(whole: &SimDisk, page: u32) {
    let damaged = whole.after_crash(0);
    damaged.flip_bit(&wal(&damaged)[1], (page * BLOCK_ALIGN) as usize + 70, 3);
    let end = look(&damaged).unwrap().end(BUSY);
    let done = damaged.after_crash(0);
    let before = done.operations();
    look(&done).unwrap().truncate().unwrap();
    let operations = done.operations() - before;
    assert!(operations > 10, "{operations}");
    for at in 0..operations {
        for seed in 0..4 {
            let disk = damaged.after_crash(0);
            disk.fail_after(at);
            look(&disk).unwrap().truncate().unwrap_err();
            let disk = disk.after_crash(at * 31 + seed);
            let about = format!("page {page}, interrupted at {at}, seed {seed}");
            assert!(format_of(&disk) == 2 || !has_newer_blocks(&disk), "{about}");
            let refused = open(&disk.after_crash(0)).err();
            if let Some(again) = look(&disk) {
                let is_refused = matches!(refused, Some(OpenError::Damaged(_) | OpenError::Missing { .. }));
                assert!(is_refused, "{about}: {refused:?}");
                again.truncate().unwrap_or_else(|error| panic!("{about}: {error}"));
            }
            is_whole_and_goes_on(&disk, end, &about);
        }
    }
}
