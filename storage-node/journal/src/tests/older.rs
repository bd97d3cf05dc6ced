//! A directory of an earlier build is read and gone on with, and is never left as something that build would cut.

use crate::disk::{Disk, OpenMode};
use crate::format::{BLOCK_ALIGN, FILE_HEADER_BYTES, crc32c, u32_at};
use crate::identity::IdentityFile;

use super::formats::read_file;
use super::*;

const DIR: &str = "/journal";
const MAGIC: &[u8] = b"WJB1";

/// Where blocks begin in each journal file, found as a start finds them.
fn blocks(disk: &SimDisk) -> Vec<(String, usize)> {
    let mut found = Vec::new();
    for file in disk.list(Path::new("/journal/wal")).unwrap() {
        let path = format!("/journal/wal/{}", file.name);
        let bytes = read_file(disk, &path);
        let starts = (FILE_HEADER_BYTES as usize..bytes.len()).step_by(BLOCK_ALIGN as usize);
        found.extend(starts.filter(|at| bytes[*at..].starts_with(MAGIC)).map(|at| (path.clone(), at)));
    }
    found
}

/// What the journal wrote, as the build before this format wrote it: checksums over whole blocks, and a
/// directory of format 1.
pub(crate) fn make_older(disk: &SimDisk) {
    for (path, at) in blocks(disk) {
        let mut block = read_file(disk, &path).split_off(at);
        block.truncate(crate::format::BLOCK_HEADER_BYTES + u32_at(&block, 8) as usize);
        block[4] = 1;
        let checksum = crc32c(&[&block[..12], &block[16..]].concat());
        block[12..16].copy_from_slice(&checksum.to_le_bytes());
        write(disk, &path, &block, at as u64);
    }
    let mut identity = read_file(disk, "/journal/IDENTITY");
    identity[8..12].copy_from_slice(&1u32.to_le_bytes());
    let checksum = crc32c(&[&identity[..12], &identity[16..]].concat());
    identity[12..16].copy_from_slice(&checksum.to_le_bytes());
    write(disk, "/journal/IDENTITY", &identity, 0);
}

fn write(disk: &SimDisk, path: &str, bytes: &[u8], at: u64) {
    let file = disk.open(Path::new(path), OpenMode::Write).unwrap();
    file.write_at(bytes, at).unwrap();
    file.sync().unwrap();
}

pub(crate) fn format_of(disk: &SimDisk) -> u32 {
    IdentityFile::find(Path::new(DIR), disk).unwrap().expect("there is a journal").format
}

/// Whether there are blocks that the build before would take for torn ones.
pub(crate) fn has_newer_blocks(disk: &SimDisk) -> bool {
    blocks(disk).iter().any(|(path, at)| read_file(disk, path)[at + 4] > 1)
}

/// A journal of the build before with `count` entries, and a vote.
fn older(count: u64) -> SimDisk {
    let disk = SimDisk::new();
    let (journal, _) = Journal::open(tiny(), Arc::new(disk.clone())).unwrap();
    for index in 0..count {
        append(&journal, STREAM, vec![entry(index, 2_500)]).unwrap();
    }
    let (done, answer) = waiter();
    journal.save_vote(STREAM, Bytes::from_static(b"a vote"), done).unwrap();
    answer.recv().unwrap().unwrap();
    journal.close();
    make_older(&disk);
    assert!(!has_newer_blocks(&disk) && format_of(&disk) == 1);
    disk
}

#[test]
fn an_older_journal_is_read_and_gone_on_with() {
    let disk = older(40);
    for (from, format) in [(40, 1), (41, 2), (42, 2)] {
        assert_eq!(format_of(&disk), format);
        let (journal, found) = Journal::open(tiny(), Arc::new(disk.clone())).unwrap();
        assert_eq!(found.torn_tail, None);
        assert_eq!(found.streams[&STREAM].vote.as_deref(), Some(&b"a vote"[..]));
        let read = read_all(&journal, STREAM);
        assert_eq!(read, (0..from).map(|index| entry(index, 2_500)).collect::<Vec<_>>());
        append(&journal, STREAM, vec![entry(from, 2_500)]).unwrap();
        journal.close();
    }
    assert!(has_newer_blocks(&disk));
}

#[test]
fn an_older_journal_that_is_refused_stays_of_its_format() {
    let disk = older(40);
    disk.flip_bit(Path::new("/journal/wal/0000000000000001.wal"), FILE_HEADER_BYTES as usize + 100, 3);
    Journal::open(tiny(), Arc::new(disk.clone())).expect_err("acknowledged bytes changed");
    assert_eq!(format_of(&disk), 1);
}

#[test]
fn a_cut_at_any_operation_of_the_first_start_leaves_what_the_build_before_opens_or_refuses() {
    let run = |disk: &SimDisk| {
        let Ok((journal, _)) = Journal::open(tiny(), Arc::new(disk.clone())) else { return 40 };
        let is_refused = |index: &u64| {
            let (done, answer) = waiter();
            let queued = journal.append(STREAM, vec![entry(*index, 2_500)], done);
            queued.is_err() || answer.recv().unwrap().is_err()
        };
        (40..50).find(is_refused).unwrap_or(50)
    };
    let whole = older(40);
    let begun = whole.operations();
    assert_eq!(run(&whole), 50);
    let (mut stayed, mut renewed) = (0, 0);
    for cut in 0..whole.operations() - begun {
        let disk = older(40);
        disk.fail_after(cut);
        let acknowledged = run(&disk);
        for seed in 0..3 {
            let crashed = disk.after_crash(cut * 31 + seed);
            let format = format_of(&crashed);
            assert!(format == 2 || !has_newer_blocks(&crashed), "cut {cut} seed {seed}");
            *(if format == 1 { &mut stayed } else { &mut renewed }) += 1;
            let (journal, _) = Journal::open(tiny(), Arc::new(crashed)).unwrap();
            let read = read_all(&journal, STREAM);
            assert!(read.len() as u64 >= acknowledged, "cut {cut} seed {seed}");
            assert!((0..).zip(read).all(|(index, read)| read == entry(index, 2_500)));
        }
    }
    assert!(stayed > 0 && renewed > 0, "{stayed} of format 1, {renewed} of format 2");
}

/// Earlier builds kept files to be used again whatever messages are in them.
#[test]
fn no_file_is_used_again_that_an_older_build_kept_for_that() {
    let spares = |disk: &SimDisk| -> Vec<String> {
        let names = disk.list(Path::new("/journal/wal")).unwrap().into_iter().map(|file| file.name);
        names.filter(|name| name.ends_with(".spare")).collect()
    };
    let config = || JournalConfig { spare_files: 2, ..tiny() };
    for is_older in [false, true] {
        let disk = SimDisk::new();
        let (journal, _) = Journal::open(config(), Arc::new(disk.clone())).unwrap();
        for index in 0..80 {
            append(&journal, STREAM, vec![entry(index, 2_500)]).unwrap();
        }
        // Or it would be made of one of them.
        until("the next file is there", || journal.knows_of_next_file());
        journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: 70 });
        let (done, answer) = waiter();
        journal.flush(STREAM, done).unwrap();
        answer.recv().unwrap().unwrap();
        until("two files are kept", || spares(&disk).len() == 2);
        journal.close();
        let kept = spares(&disk);
        assert_eq!(kept.len(), 2);
        if is_older {
            make_older(&disk);
        }
        let (journal, _) = Journal::open(config(), Arc::new(disk.clone())).unwrap();
        assert_eq!(journal.entries(STREAM), 71..80);
        let is_there = |name: &String| spares(&disk).contains(name);
        assert_eq!(kept.iter().any(is_there), !is_older);
        journal.close();
    }
}
