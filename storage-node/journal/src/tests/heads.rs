//! What the head of a file says of entries that lie in files before it.

use super::*;
use crate::disk::OpenMode;

#[test]
fn a_truncation_that_begins_a_file_is_understood_when_the_files_before_it_are_gone() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk);
    let mut end = 0;
    // Blocks of 4 KiB, until the file has no room for another.
    while journal.usage().files[0].used_bytes < u64::from(config().file_bytes) {
        append(&journal, STREAM, vec![entry(end, 3_000)]).unwrap();
        end += 1;
    }
    let (done, answer) = waiter();
    journal.truncate_after(STREAM, Some(end - 3), done).unwrap();
    answer.recv().unwrap().unwrap();
    assert_eq!(journal.metrics().rotations, 1, "the truncation is the first block of the next file");
    let replaced: Vec<_> = (end - 2..end + 4).map(|index| Entry { term: 2, ..entry(index, 100) }).collect();
    append(&journal, STREAM, replaced.clone()).unwrap();
    journal.note_purged(STREAM, LogPosition { term: 2, leader: 1, index: end });
    let (done, answer) = waiter();
    journal.flush(STREAM, done).unwrap();
    answer.recv().unwrap().unwrap();
    until("the first file is freed", || journal.metrics().recycled == 1);
    journal.close();
    let (journal, _) = open(&disk);
    assert_eq!(journal.entries(STREAM), end + 1..end + 4);
    assert_eq!(read_all(&journal, STREAM), replaced[3..]);
}

/// Facts of streams whose entries are all purged are in the newest head alone.
#[test]
fn older_files_stay_until_what_they_say_is_said_again_durably() {
    for (backend, sync) in [
        (Backend::Pwrite, SyncMode::Always),
        (Backend::Direct, SyncMode::Always),
        (Backend::Pwrite, SyncMode::Os),
    ] {
        let disk = SimDisk::new();
        let config = || JournalConfig { backend, sync, ..tiny() };
        let (journal, _) = Journal::open(config(), Arc::new(disk.clone())).unwrap();
        let _goes_on = GoesOn(&disk);
        let (done, answer) = waiter();
        journal.save_vote(STREAM, Bytes::from_static(b"vote"), done).unwrap();
        answer.recv().unwrap().unwrap();
        // Fifteen blocks of 4 KiB, of which three are left.
        append(&journal, STREAM, (0..10).map(|index| entry(index, 3_900)).collect()).unwrap();
        journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: 9 });
        let (done, answer) = waiter();
        journal.flush(STREAM, done).unwrap();
        answer.recv().unwrap().unwrap();
        until("the next file is there", || journal.knows_of_next_file());
        disk.stall_syncs();
        let entries = vec![entry(10, 3_900), entry(11, 3_900), entry(12, 3_900)];
        journal.append(STREAM, entries, Box::new(|_| {})).unwrap();
        until("the next file is begun", || disk.is_waited_for() || journal.metrics().rotations == 1);
        until("what may go is gone", || disk.is_waited_for() || journal.metrics().recycled == 1);
        for seed in 0..200 {
            let crashed = disk.after_crash(seed);
            let (_, found) = Journal::open(config(), Arc::new(crashed)).unwrap();
            let stream = &found.streams[&STREAM];
            assert_eq!(
                (stream.vote.as_deref(), stream.purged.map(|purged| purged.index)),
                (Some(&b"vote"[..]), Some(9)),
                "{backend:?}, {sync:?}, seed {seed}"
            );
        }
        disk.go_on();
        journal.close();
        let (_, found) = Journal::open(config(), Arc::new(disk.clone())).unwrap();
        assert_eq!(found.streams[&STREAM].entries, 10..13, "{backend:?}, {sync:?}");
    }
}

/// A head is synced before the first commit behind it, and before the files go that it speaks for.
#[test]
fn a_head_that_must_have_been_synced_and_does_not_hold_is_damage() {
    for (is_alone, commits) in [(false, 1), (false, 2), (true, 0), (true, 1), (true, 2)] {
        let about = format!("{commits} commits behind it, alone: {is_alone}");
        let disk = SimDisk::new();
        let (journal, _) = Journal::open(tiny(), Arc::new(disk.clone())).unwrap();
        let mut end = 0;
        while journal.usage().files[0].used_bytes + 4096 < u64::from(tiny().file_bytes) {
            append(&journal, STREAM, vec![entry(end, 3_000)]).unwrap();
            end += 1;
        }
        if is_alone {
            journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: end - 1 });
        }
        let flush = || {
            let (done, answer) = waiter();
            journal.flush(STREAM, done).unwrap();
            answer.recv().unwrap().unwrap();
        };
        flush();
        assert_eq!(journal.metrics().rotations, 0, "{about}");
        append(&journal, STREAM, vec![entry(end, 100)]).unwrap();
        (1..commits).for_each(|_| flush());
        until("the first file is freed", || !is_alone || journal.metrics().recycled == 1);
        journal.close();
        let path = Path::new("/journal/wal/0000000000000002.wal");
        if commits == 0 {
            // Of the first commit nothing is left, as after a crash in front of it.
            let file = disk.open(path, OpenMode::Write).unwrap();
            file.write_at(&[0; 4096], 2 * 4096).unwrap();
        }
        let (_, found) = Journal::open(tiny(), Arc::new(disk.clone())).unwrap();
        assert_eq!(found.streams[&STREAM].entries.end, end + u64::from(commits > 0), "{about}");
        disk.flip_bit(path, 4096 + 70, 1);
        let opened = Journal::open(tiny(), Arc::new(disk.clone())).map(|(_, found)| found);
        let Err(OpenError::Damaged(damage)) = opened else { panic!("{about}: {opened:?}") };
        assert_eq!((&*damage.path, damage.pos), (path, 4096), "{about}");
        let shared: Arc<dyn Disk> = Arc::new(disk.clone());
        let repair = Repair::look(Path::new("/journal"), &shared).unwrap();
        let cut = repair.map(|repair| repair.cut().clone()).unwrap_or_else(|| panic!("{about}: no damage"));
        assert_eq!((&*cut.path, cut.pos), (path, 4096), "{about}");
    }
}
