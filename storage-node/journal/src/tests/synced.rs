//! What the notes of the last sync know of a directory that was copied while it was in use.

use std::collections::BTreeMap;

use super::formats::read_file;
use super::*;
use crate::disk::OpenMode;

fn noting() -> JournalConfig {
    JournalConfig { note_synced_every: Duration::from_nanos(1), ..config() }
}

fn open_noting(disk: &SimDisk) -> Result<Journal, OpenError> {
    Journal::open(noting(), Arc::new(disk.clone())).map(|(journal, _)| journal)
}

/// The files of a journal as they are now.
fn copied(disk: &SimDisk) -> BTreeMap<PathBuf, Vec<u8>> {
    let files = |dir: &str| {
        let dir = PathBuf::from(dir);
        disk.list(&dir).unwrap().into_iter().map(move |file| dir.join(file.name))
    };
    let all = files("/journal").chain(files("/journal/wal"));
    all.map(|path| (path.clone(), read_file(disk, path.to_str().unwrap()))).collect()
}

fn written(files: &BTreeMap<PathBuf, Vec<u8>>) -> SimDisk {
    let disk = SimDisk::new();
    for (path, bytes) in files {
        let file = disk.open(path, OpenMode::Create).unwrap();
        file.write_at(bytes, 0).unwrap();
    }
    disk
}

#[test]
fn a_copy_that_lacks_what_was_synced_is_refused_by_name_and_says_what() {
    let disk = SimDisk::new();
    let journal = open_noting(&disk).unwrap();
    (0..10).for_each(|index| _ = append(&journal, STREAM, vec![entry(index, 3_000)]).unwrap());
    let before = copied(&disk);
    assert!(open_noting(&written(&before)).is_ok(), "of one moment");
    (10..20).for_each(|index| _ = append(&journal, STREAM, vec![entry(index, 3_000)]).unwrap());
    // The journal's files first, then one of the notes or the other.
    for late in ["/journal/SYNCED", "/journal/wal/SYNCED"] {
        let mut copy = before.clone();
        copy.insert(late.into(), read_file(&disk, late));
        let copy = written(&copy);
        let refused = open_noting(&copy).unwrap_err();
        assert!(matches!(refused, OpenError::Behind { .. }), "{refused}");
        for part in
            ["/journal lacks the end", "byte 45056 of file 0000000000000001", "byte 86016", "remove SYNCED"]
        {
            assert!(refused.to_string().contains(part), "{part} in {refused}");
        }
        for name in ["/journal/SYNCED", "/journal/wal/SYNCED"] {
            copy.remove(Path::new(name)).unwrap();
        }
        assert_eq!(open_noting(&copy).unwrap().entries(STREAM), 0..10, "as was asked for");
    }
    // A note that is torn, or of another journal, says nothing.
    let mut copy = before;
    let mut torn = read_file(&disk, "/journal/SYNCED");
    torn[36] ^= 1;
    copy.insert("/journal/SYNCED".into(), torn);
    assert_eq!(open_noting(&written(&copy)).unwrap().entries(STREAM), 0..10);
}

#[test]
fn a_crash_never_leaves_a_note_that_is_ahead_of_the_journal() {
    for backend in [Backend::Pwrite, Backend::Direct] {
        let config = || JournalConfig { backend, note_synced_every: Duration::from_nanos(1), ..tiny() };
        let run = |disk: &SimDisk| {
            let Ok((journal, _)) = Journal::open(config(), Arc::new(disk.clone())) else { return };
            for index in 0..25 {
                let (done, answer) = waiter();
                if journal.append(STREAM, vec![entry(index, 2_500)], done).is_err()
                    || answer.recv().unwrap().is_err()
                {
                    return;
                }
            }
        };
        let whole = SimDisk::new();
        run(&whole);
        for cut in 0..whole.operations() {
            let disk = SimDisk::new();
            disk.fail_after(cut);
            run(&disk);
            for seed in 0..3 {
                let opened = Journal::open(config(), Arc::new(disk.after_crash(cut * 31 + seed)));
                assert!(opened.is_ok(), "cut {cut} seed {seed}: {:?}", opened.err());
            }
        }
    }
}
