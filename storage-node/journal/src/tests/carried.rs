//! Batches that outlive the journal files that they came in.

use std::ops::Range;

use super::older::format_of;
use super::*;

const OTHER: StreamId = StreamId(9);

/// A part of an entry, and its bytes, which the entry's number tells.
fn part(stream: StreamId, index: u64, pos: u32, len: u32) -> Part {
    Part { stream, index, pos, len }
}

fn bytes_of(part: Part) -> Bytes {
    entry(part.index, 2_500).payload.slice(part.pos as usize..(part.pos + part.len) as usize)
}

/// Where the log or, below the purge, a carried file has it; `None` if neither does.
fn read(journal: &Journal, part: Part) -> Option<Bytes> {
    let within = part.pos..part.pos + part.len;
    match journal.locate(part.stream, part.index) {
        Ok(at) => {
            Some(journal.read_at(at, 0..at.len).unwrap().slice(within.start as usize..within.end as usize))
        }
        Err(ReadError::Purged { .. } | ReadError::Recycled { .. }) => {
            journal.read_carried(part.stream, part.index, within).unwrap()
        }
        Err(error) => panic!("{part:?}: {error}"),
    }
}

fn purge(journal: &Journal, stream: StreamId, upto: u64) {
    journal.note_purged(stream, LogPosition { term: 1, leader: 1, index: upto });
    flushed(journal, stream);
}

/// False if the journal has failed.
fn flushed(journal: &Journal, stream: StreamId) -> bool {
    let (done, answer) = waiter();
    journal.flush(stream, done).is_ok() && answer.recv().unwrap().is_ok()
}

fn tiny_open(disk: &SimDisk) -> Journal {
    Journal::open(tiny(), Arc::new(disk.clone())).unwrap().0
}

fn ids(journal: &Journal) -> Vec<u64> {
    journal.carried().iter().map(|file| file.id).collect()
}

#[test]
fn what_was_carried_is_read_below_the_purge_when_its_files_are_gone() {
    let disk = SimDisk::new();
    let journal = tiny_open(&disk);
    for index in 0..60 {
        append(&journal, STREAM, vec![entry(index, 2_500)]).unwrap();
        append(&journal, OTHER, vec![entry(index, 2_500)]).unwrap();
    }
    let (used, files) = (journal.fullness().0, journal.usage().files.len());
    assert_eq!(format_of(&disk), 2, "the build before goes on with it");
    let live = [
        part(STREAM, 0, 16, 40),
        part(STREAM, 0, 500, 1_000),
        part(STREAM, 31, 0, 2_400),
        part(STREAM, 50, 7, 1),
        part(OTHER, 3, 2_000, 300),
    ];
    let mut paced = 0;
    let carried = journal.carry(&live, &mut |bytes| paced += bytes).unwrap();
    assert_eq!((carried, paced), (3_741, 3_741));
    assert_eq!(format_of(&disk), 3, "a build that would not look there must not start");
    for part in live {
        assert_eq!(read(&journal, part), Some(bytes_of(part)), "{part:?}: it is still in the log");
    }
    purge(&journal, STREAM, 55);
    purge(&journal, OTHER, 55);
    until("the files go", || journal.usage().files.len() < files / 2);
    let check = |journal: &Journal| {
        for part in live {
            assert_eq!(read(journal, part), Some(bytes_of(part)), "{part:?}");
        }
        // A part of a part, what was not carried, and what never was.
        assert_eq!(read(journal, part(STREAM, 0, 600, 5)), Some(bytes_of(part(STREAM, 0, 600, 5))));
        for missing in [part(STREAM, 0, 0, 10), part(STREAM, 30, 0, 10), part(OTHER, 4, 0, 1)] {
            assert_eq!(read(journal, missing), None, "{missing:?}");
        }
        assert_eq!(journal.term_of_carried(STREAM, 31).unwrap(), Some(1));
        assert_eq!(journal.term_of_carried(STREAM, 32).unwrap(), None);
        let usage = journal.usage();
        assert_eq!(usage.carried_bytes, 4096 * 4, "header, parts, and a page for each stream");
        assert!(usage.used_bytes < used / 2, "{usage:?}");
    };
    check(&journal);
    drop(journal);
    check(&tiny_open(&disk));
}

#[test]
fn what_has_died_goes_with_its_file_and_what_lives_moves_into_another() {
    let disk = SimDisk::new();
    let journal = tiny_open(&disk);
    let mut live = Vec::new();
    for round in 0..4 {
        for index in round * 20..round * 20 + 20 {
            append(&journal, STREAM, vec![entry(index, 2_500)]).unwrap();
        }
        live.extend((0..4).map(|n| part(STREAM, round * 20 + n, 0, 2_000)));
        // All that lives: what was carried before is passed over.
        let carried = journal.carry(&live, &mut |_| {}).unwrap();
        assert_eq!(carried, 8_000);
        purge(&journal, STREAM, round * 20 + 19);
    }
    assert_eq!(ids(&journal), [1, 2, 3, 4]);
    live.retain(|part| part.index % 20 == 1 && part.index != 41);
    assert_eq!(journal.tidy_carried(&[2, 3], &live, &mut |_| {}).unwrap(), 2_000);
    assert_eq!(ids(&journal), [1, 5, 4], "it stands where those were");
    assert_eq!(journal.tidy_carried(&[4, 77], &[], &mut |_| {}).unwrap(), 0);
    assert_eq!(ids(&journal), [1, 5]);
    live.retain(|part| part.index < 60);
    drop(journal);
    let journal = tiny_open(&disk);
    assert_eq!(ids(&journal), [1, 5]);
    for part in live {
        assert_eq!(read(&journal, part), Some(bytes_of(part)), "{part:?}");
    }
    assert_eq!(read(&journal, part(STREAM, 41, 0, 10)), None);
    // Numbers are not used again: a name that a crash brings back must not be taken for another file's.
    append(&journal, STREAM, vec![entry(80, 2_500)]).unwrap();
    journal.carry(&[part(STREAM, 80, 0, 10)], &mut |_| {}).unwrap();
    assert_eq!(ids(&journal), [1, 5, 6]);
}

#[test]
fn a_damaged_carried_file_is_refused_and_a_damaged_part_is_told() {
    let disk = SimDisk::new();
    let journal = tiny_open(&disk);
    append(&journal, STREAM, vec![entry(0, 2_500)]).unwrap();
    let (one, two) = (part(STREAM, 0, 0, 1_000), part(STREAM, 0, 1_000, 1_000));
    journal.carry(&[one, two], &mut |_| {}).unwrap();
    purge(&journal, STREAM, 0);
    drop(journal);
    let path = Path::new("/journal/carried/0000000000000001.carried");
    disk.flip_bit(path, 4096 + 1_500, 3);
    let journal = tiny_open(&disk);
    assert_eq!(read(&journal, one), Some(bytes_of(one)));
    let told = journal.read_carried(STREAM, 0, 1_000..1_001).unwrap_err();
    assert!(matches!(told, ReadError::Corrupt { .. }) && told.to_string().contains("1.carried"), "{told}");
    // It moves as it is: the batch's own checksum tells its readers, and the other one can be read.
    journal.tidy_carried(&[1], &[one, two], &mut |_| {}).unwrap();
    assert_eq!(read(&journal, one), Some(bytes_of(one)));
    drop(journal);
    for byte in [20, 8192 + 40] {
        let damaged = disk.after_crash(1);
        damaged.flip_bit(Path::new("/journal/carried/0000000000000002.carried"), byte, 0);
        let refused = Journal::open(tiny(), Arc::new(damaged)).map(drop).unwrap_err().to_string();
        assert!(refused.contains("2.carried is damaged") && refused.contains("nowhere else"), "{refused}");
    }
}

/// What lives and was acknowledged when the disk failed.
fn history(disk: &SimDisk, cut: u64) -> Vec<Part> {
    disk.fail_after(cut);
    let mut live = Vec::new();
    let Ok((journal, _)) = Journal::open(tiny(), Arc::new(disk.clone())) else { return live };
    let append_all = |indexes: Range<u64>, live: &mut Vec<Part>| {
        for index in indexes {
            let (done, answer) = waiter();
            journal.append(STREAM, vec![entry(index, 2_500)], done).ok()?;
            answer.recv().unwrap().ok()?;
            if index % 3 == 0 {
                live.extend([part(STREAM, index, 10, 900), part(STREAM, index, 1_000, 20)]);
            }
        }
        Some(())
    };
    let step = |upto: u64, live: &[Part]| {
        let parts: Vec<_> = live.iter().filter(|part| part.index <= upto).copied().collect();
        journal.carry(&parts, &mut |_| {}).ok()?;
        journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: upto });
        flushed(&journal, STREAM).then_some(())
    };
    let mut run = || {
        append_all(0..30, &mut live)?;
        step(12, &live)?;
        step(22, &live)?;
        append_all(30..50, &mut live)?;
        // What dies is dead from now on, whatever becomes of the files.
        live.retain(|part| part.index % 2 == 0 || part.index > 22);
        journal.tidy_carried(&[1], &live, &mut |_| {}).ok()?;
        step(40, &live)?;
        live.retain(|part| part.index > 22 || part.index < 4);
        journal.tidy_carried(&[3, 2], &live, &mut |_| {}).ok()?;
        live.retain(|part| part.index > 41);
        journal.tidy_carried(&ids(&journal), &live, &mut |_| {}).ok()?;
        append_all(50..60, &mut live)
    };
    if run().is_none() {
        // Reads go on, and give all that lives.
        for part in &live {
            assert_eq!(read(&journal, *part), Some(bytes_of(*part)), "cut {cut}: {part:?}");
        }
    }
    live
}

#[test]
fn no_part_that_lives_is_lost_by_a_cut_at_any_operation() {
    let whole = SimDisk::new();
    assert_eq!(history(&whole, u64::MAX / 2).len(), 2 * 6);
    let operations = whole.operations();
    let (mut in_carried, mut left_over) = (0, 0);
    for cut in 0..operations {
        let disk = SimDisk::new();
        let live = history(&disk, cut);
        for seed in 0..3 {
            let crashed = disk.after_crash(cut * 31 + seed);
            let named = crashed.list(Path::new("/journal/carried")).unwrap().len();
            for life in 0..2 {
                let (journal, _) = Journal::open(tiny(), Arc::new(crashed.clone()))
                    .unwrap_or_else(|error| panic!("cut {cut} seed {seed}: {error}"));
                let first = journal.entries(STREAM).start;
                for part in &live {
                    let found = read(&journal, *part);
                    assert_eq!(found, Some(bytes_of(*part)), "cut {cut} seed {seed} life {life}: {part:?}");
                    in_carried += u64::from(part.index < first);
                }
                let now = crashed.list(Path::new("/journal/carried")).unwrap().len();
                assert_eq!(now, journal.carried().len(), "cut {cut} seed {seed}: nothing else is left there");
                left_over += u64::from(now < named);
                assert!(now == 0 || format_of(&crashed) == 3, "cut {cut} seed {seed}");
                // It goes on from there.
                let end = journal.entries(STREAM).end;
                if life == 0 {
                    append(&journal, STREAM, vec![entry(end, 2_500)]).unwrap();
                    let more = part(STREAM, end, 5, 6);
                    journal.carry(&[&live[..], &[more]].concat(), &mut |_| {}).unwrap();
                    purge(&journal, STREAM, end);
                    assert_eq!(read(&journal, more), Some(bytes_of(more)), "cut {cut} seed {seed}");
                }
            }
        }
    }
    assert!(
        in_carried > 1_000 && left_over > 10,
        "{in_carried} in carried files, {left_over} files left over"
    );
}

#[test]
fn a_disk_that_is_full_costs_nothing_and_it_goes_on_when_there_is_room() {
    let disk = SimDisk::new();
    let journal = tiny_open(&disk);
    for index in 0..10 {
        append(&journal, STREAM, vec![entry(index, 2_500)]).unwrap();
    }
    until("the next file is ready", || journal.knows_of_next_file());
    let live = [part(STREAM, 2, 0, 2_000)];
    disk.fill();
    let refused = journal.carry(&live, &mut |_| {}).unwrap_err();
    assert!(matches!(refused, CarryError::Io { .. }), "{refused}");
    assert!(journal.failure().is_none(), "it takes publishes as before");
    disk.make_room();
    assert_eq!(journal.carry(&live, &mut |_| {}).unwrap(), 2_000);
}
