//! Which back end a journal writes through.

use std::time::Instant;

use super::*;
use crate::disk::OpenMode;

fn opened(disk: &SimDisk, backend: Backend, sync: SyncMode) -> Result<Backend, OpenError> {
    let config = JournalConfig { backend, sync, ..config() };
    let (journal, _) = Journal::open(config, Arc::new(disk.clone()))?;
    let next = journal.entries(STREAM).end;
    append(&journal, STREAM, vec![entry(next, 100)]).unwrap();
    assert_eq!(read_all(&journal, STREAM).last(), Some(&entry(next, 100)));
    Ok(journal.config().backend)
}

#[test]
fn direct_is_what_auto_comes_to_where_it_works_and_commits_are_synced() {
    let disk = SimDisk::new();
    assert_eq!(opened(&disk, Backend::Auto, SyncMode::Always).unwrap(), Backend::Direct);
    assert_eq!(opened(&disk, Backend::Auto, SyncMode::Os).unwrap(), Backend::Pwrite);
    disk.refuse_direct();
    assert_eq!(opened(&disk, Backend::Auto, SyncMode::Always).unwrap(), Backend::Pwrite);
    let names = disk.list(Path::new("/journal/wal")).unwrap();
    assert!(names.iter().all(|file| file.name != "direct.tmp"), "nothing of the trial stays: {names:?}");
}

#[test]
fn who_asks_for_direct_writes_where_there_are_none_is_told_so_at_the_start() {
    let disk = SimDisk::new();
    disk.refuse_direct();
    let refused = opened(&disk, Backend::Direct, SyncMode::Always).unwrap_err();
    assert!(matches!(refused, OpenError::Io { .. }), "{refused}");
}

#[test]
fn what_was_written_past_the_page_cache_is_read_past_it_at_a_start() {
    for (backend, sync, is_past) in [
        (Backend::Auto, SyncMode::Always, true),
        (Backend::Direct, SyncMode::Os, true),
        (Backend::Auto, SyncMode::Os, false),
        (Backend::Pwrite, SyncMode::Always, false),
    ] {
        let disk = SimDisk::new();
        opened(&disk, backend, sync).unwrap();
        let before = disk.direct_reads();
        opened(&disk, backend, sync).unwrap();
        assert_eq!(disk.direct_reads() > before, is_past, "{backend:?}, {sync:?}");
        disk.refuse_direct();
        let again = opened(&disk, Backend::Auto, sync).unwrap();
        assert_eq!(again, Backend::Pwrite, "and where that is refused all is there nevertheless");
    }
}

#[test]
fn a_start_does_not_fill_the_file_again_that_was_prepared() {
    for backend in [Backend::Pwrite, Backend::Direct] {
        let disk = SimDisk::new();
        let begin = || Journal::open(config_of(backend), Arc::new(disk.clone())).unwrap().0;
        let header = u64::from(crate::format::FILE_HEADER_BYTES);
        let journal = begin();
        until("the next file is prepared", || journal.metrics().prepared_bytes == 2 * ((256 << 10) + header));
        drop(journal);
        let journal = begin();
        until("it is prepared again", || journal.knows_of_next_file());
        assert_eq!(journal.metrics().prepared_bytes, header, "only its header is written");
        // It is the next one, and holds what is written on.
        for index in 0..13 {
            append(&journal, STREAM, vec![entry(index, 20_000)]).unwrap();
        }
        assert!(journal.metrics().rotations > 0, "{:?}", journal.metrics());
        assert_eq!(read_all(&journal, STREAM).len(), 13);
    }
}

#[test]
fn a_file_whose_head_was_cut_off_in_the_middle_is_not_written_into_again() {
    for backend in [Backend::Pwrite, Backend::Direct] {
        let disk = SimDisk::new();
        let begin = || Journal::open(config_of(backend), Arc::new(disk.clone())).unwrap().0;
        let journal = begin();
        let mut next = 0;
        while journal.metrics().rotations == 0 {
            append(&journal, STREAM, vec![entry(next, 20_000)]).unwrap();
            next += 1;
        }
        journal.close();
        drop(journal);
        // A part of the second file's head is all that it has, and no third one is ready: as after a power cut while it
        // was written with the first commit.
        let wal = |file: u64| PathBuf::from(format!("/journal/wal/{file:016x}.wal"));
        crate::files::remove_if_there(&disk, &wal(3)).unwrap();
        let head = crate::format::FILE_HEADER_BYTES as usize;
        disk.flip_bit(&wal(2), head + 40, 3);
        disk.flip_bit(&wal(2), head + crate::format::BLOCK_ALIGN as usize, 3);
        let journal = begin();
        assert_eq!(
            journal.entries(STREAM).end,
            next - 1,
            "what was written with the head is cut off with it"
        );
        until("the second file is made again", || journal.knows_of_next_file());
        assert!(journal.metrics().prepared_bytes > 256 << 10, "with zeros: {:?}", journal.metrics());
        append(&journal, STREAM, vec![entry(next - 1, 20_000), entry(next, 20_000)]).unwrap();
        drop(journal);
        assert_eq!(begin().entries(STREAM).end, next + 1);
    }
}

#[test]
fn each_commit_past_the_page_cache_is_one_operation_of_the_disk() {
    for (backend, operations) in [(Backend::Pwrite, 2), (Backend::Direct, 1)] {
        let disk = SimDisk::new();
        let (journal, _) = Journal::open(config_of(backend), Arc::new(disk.clone())).unwrap();
        // The least of many: the next file is made beside the first of them.
        let commit = |index| {
            let before = disk.operations();
            append(&journal, STREAM, vec![entry(index, 10)]).unwrap();
            disk.operations() - before
        };
        assert_eq!((0..20).map(commit).min(), Some(operations), "{backend:?}");
    }
}

#[test]
fn what_the_disk_takes_is_the_time_of_the_sync_with_either_back_end() {
    for backend in [Backend::Pwrite, Backend::Direct] {
        let disk = SimDisk::new();
        let (journal, _) = Journal::open(config_of(backend), Arc::new(disk.clone())).unwrap();
        append(&journal, STREAM, vec![entry(0, 10)]).unwrap();
        let files = 2 * ((256 << 10) + u64::from(crate::format::FILE_HEADER_BYTES));
        until("the next file is synced", || journal.metrics().prepared_bytes == files);
        disk.stall_syncs();
        let (done, answer) = waiter();
        journal.append(STREAM, vec![entry(1, 10)], done).unwrap();
        until("the disk is waited for", || disk.is_waited_for());
        let before = (Instant::now(), journal.metrics().sync_time);
        std::thread::sleep(Duration::from_millis(5));
        let waited = before.0.elapsed();
        disk.go_on();
        let synced = answer.recv().unwrap().unwrap();
        let (took, counted) = (synced.synced - synced.written, journal.metrics().sync_time - before.1);
        assert!(took >= waited && counted >= waited, "{backend:?}: {waited:?}, {took:?}, {counted:?}");
    }
}

fn config_of(backend: Backend) -> JournalConfig {
    JournalConfig { backend, ..config() }
}

/// Names in the journal's directory that end so.
fn named(disk: &SimDisk, end: &str) -> Vec<String> {
    let names = disk.list(Path::new("/journal/wal")).unwrap();
    names.into_iter().map(|file| file.name).filter(|name| name.ends_with(end)).collect()
}

#[test]
fn a_spare_of_another_journal_is_not_written_into() {
    let disk = SimDisk::new();
    let config = || JournalConfig { spare_files: 2, ..config() };
    let begin = || Journal::open(config(), Arc::new(disk.clone())).unwrap().0;
    drop(begin());
    let foreign = crate::format::FileHeader {
        file: FileSeq(2),
        file_bytes: config().file_bytes,
        journal_id: 99,
        cluster_id: config().identity.cluster_id,
        node_id: config().identity.node_id,
    };
    let path = "/journal/wal/00000000000000ff.spare";
    let file = disk.open(Path::new(path), OpenMode::Create).unwrap();
    file.fill_zero(u64::from(config().file_bytes)).unwrap();
    file.write_at(&foreign.encode(), 0).unwrap();
    drop(file);
    drop(begin());
    assert_eq!(named(&disk, "00000000000000ff.spare"), Vec::<String>::new());
}

#[test]
fn what_somebody_put_beside_the_journals_files_stays_and_what_it_left_itself_goes() {
    let disk = SimDisk::new();
    let begin = || Journal::open(config(), Arc::new(disk.clone())).unwrap().0;
    drop(begin());
    let foreign = ["README", "0000000000000001.wal.bak", "notes.tmp", "1.idx", "direct.tmp.old"];
    let own = ["0000000000000009.tmp", "00000000000000fe.idx", "direct.tmp"];
    for name in foreign.iter().chain(&own) {
        let path = Path::new("/journal/wal").join(name);
        disk.open(&path, OpenMode::Create).unwrap().write_at(b"?", 0).unwrap();
    }
    drop(begin());
    for name in foreign {
        assert_eq!(named(&disk, name), [name], "it is somebody's");
    }
    for name in own {
        assert_eq!(named(&disk, name), Vec::<String>::new());
    }
}

#[test]
fn starts_between_purges_never_give_one_name_to_two_spares() {
    let disk = SimDisk::new();
    for life in 0..8 {
        let config = JournalConfig { spare_files: 1 + life % 3, ..config() };
        let (journal, _) = Journal::open(config, Arc::new(disk.clone())).unwrap();
        let first = journal.entries(STREAM).end;
        // Lives that write several files, and lives that leave the prepared one as it is.
        for index in first..first + if life % 2 == 0 { 40 } else { 1 } {
            append(&journal, STREAM, vec![entry(index, 20_000)]).unwrap();
        }
        let last = journal.entries(STREAM).end - 1;
        journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: last - 1 });
        append(&journal, STREAM, vec![entry(last + 1, 10)]).unwrap();
        assert!(journal.failure().is_none(), "life {life}: {:?}", journal.failure());
    }
}
