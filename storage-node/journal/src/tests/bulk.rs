//! What is read once, past the page cache if the journal writes past it.

use super::*;

const OTHER: StreamId = StreamId(9);

/// Entries of two streams, some longer than is read at once, in several files.
fn filled(disk: &SimDisk, backend: Backend) -> Journal {
    let config = JournalConfig {
        backend,
        file_bytes: 16 << 20,
        max_bytes: 64 << 20,
        max_block_bytes: 4 << 20,
        recent_bytes_max: 0,
        pending_bytes_max: 8 << 20,
        ..config()
    };
    let (journal, _) = Journal::open(config, Arc::new(disk.clone())).unwrap();
    for (index, bytes) in (0..).zip([10, 90_000, 5_000, 3_000_000, 70, 200_000, 1_500_000, 1, 4_000, 4_096]) {
        append(&journal, STREAM, vec![entry(index, bytes)]).unwrap();
        append(&journal, OTHER, vec![entry(2 * index, bytes / 3), entry(2 * index + 1, 700)]).unwrap();
    }
    journal
}

#[test]
fn parts_are_what_lies_there_whatever_order_they_come_in() {
    for backend in [Backend::Pwrite, Backend::Direct] {
        let disk = SimDisk::new();
        let journal = filled(&disk, backend);
        let is_past = |reads| (disk.direct_reads() > reads) == (backend == Backend::Direct);
        for stream in [STREAM, OTHER] {
            let entries = journal.read_entries(stream, journal.entries(stream), usize::MAX).unwrap();
            let mut parts = Vec::new();
            let mut expected = Vec::new();
            for (number, entry) in entries.iter().enumerate() {
                let at = journal.locate(stream, entry.index).unwrap();
                let middle = at.len / 3 * (number as u32 % 4).min(2);
                for part in [0..middle, middle..at.len, at.len..at.len] {
                    expected.push(entry.payload.slice(part.start as usize..part.end as usize));
                    parts.push((at, part));
                }
            }
            let reads = disk.direct_reads();
            assert_eq!(journal.read_parts(&parts).unwrap(), expected);
            assert!(is_past(reads), "{backend:?}");
            parts.reverse();
            expected.reverse();
            assert_eq!(journal.read_parts(&parts).unwrap(), expected);
            assert_eq!(
                journal.read_entries_once(stream, journal.entries(stream), usize::MAX).unwrap(),
                entries
            );
        }
        assert_eq!(journal.read_parts(&[]).unwrap(), Vec::<Bytes>::new());
        disk.refuse_direct();
        assert_eq!(read_all(&journal, STREAM).len(), 10);
    }
}

#[test]
fn who_reads_once_is_told_the_same_of_what_is_damaged_or_gone() {
    for backend in [Backend::Pwrite, Backend::Direct] {
        let disk = SimDisk::new();
        let journal = filled(&disk, backend);
        let at = journal.locate(STREAM, 5).unwrap();
        let path = PathBuf::from(format!("/journal/wal/{:016x}.wal", at.file.0));
        disk.flip_bit(&path, at.pos as usize + 100, 3);
        let told = |range: std::ops::Range<u64>| {
            let [usual, once] = [
                journal.read_entries(STREAM, range.clone(), usize::MAX),
                journal.read_entries_once(STREAM, range, usize::MAX),
            ];
            assert_eq!(format!("{usual:?}"), format!("{once:?}"));
            once
        };
        assert!(matches!(told(0..10), Err(ReadError::Corrupt { pos, .. }) if pos == at.pos));
        assert_eq!(told(6..10).unwrap().len(), 4);
        assert!(matches!(told(10..11), Err(ReadError::BeyondEnd { .. })));
        assert!(told(3..3).unwrap().is_empty());
    }
}

#[test]
fn what_memory_knows_of_places_is_what_one_is_told_by_one() {
    let disk = SimDisk::new();
    let journal = filled(&disk, Backend::Direct);
    let places = |stream, range: std::ops::Range<u64>| journal.locate_in_memory(stream, range);
    for stream in [STREAM, OTHER] {
        let entries = journal.entries(stream);
        let one_by_one: Vec<_> =
            entries.clone().map(|index| Some(journal.locate(stream, index).unwrap())).collect();
        assert_eq!(places(stream, entries.clone()), one_by_one);
        assert_eq!(places(stream, entries.end..entries.end + 2), [None, None], "there are none");
    }
    assert_eq!(places(StreamId(77), 0..1), [None], "no such stream");
}

#[test]
fn a_file_is_opened_once_however_often_parts_of_it_come() {
    let disk = SimDisk::new();
    let journal = filled(&disk, Backend::Direct);
    for index in 10..16 {
        append(&journal, STREAM, vec![entry(index, 3_000_000)]).unwrap();
    }
    let at = |index| journal.locate(STREAM, index).unwrap();
    let [old, new] = [at(0), at(15)];
    assert_ne!(old.file, new.file);
    let parts: Vec<_> = [old, new].into_iter().cycle().take(40).map(|at| (at, 0..at.len.min(100))).collect();
    let before = disk.direct_opens();
    assert_eq!(journal.read_parts(&parts).unwrap().len(), 40);
    assert_eq!(disk.direct_opens() - before, 2);
}

#[test]
fn parts_of_a_file_that_is_gone_are_not_given() {
    for backend in [Backend::Pwrite, Backend::Direct] {
        let disk = SimDisk::new();
        let journal = filled(&disk, backend);
        let first = journal.locate(STREAM, 0).unwrap();
        let (begun, last) = (first.file, journal.locate(STREAM, 9).unwrap());
        assert_eq!(begun, last.file, "all of it lies in one file");
        assert_eq!(journal.read_parts(&[(first, 0..first.len)]).unwrap().len(), 1);
        for (stream, end) in [(STREAM, 9), (OTHER, 19)] {
            journal.note_purged(stream, LogPosition { term: 1, leader: 1, index: end });
        }
        // Until the file that all of it lies in is behind, and free.
        for index in 10.. {
            append(&journal, STREAM, vec![entry(index, 3_000_000)]).unwrap();
            journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index });
            match journal.read_parts(&[(first, 0..first.len)]) {
                Ok(_) => assert!(index < 100, "the file is never free"),
                Err(ReadError::Recycled { file }) => {
                    assert_eq!(file, begun);
                    break;
                }
                Err(other) => panic!("{other}"),
            }
        }
    }
}
