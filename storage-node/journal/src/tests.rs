#![expect(clippy::disallowed_methods, reason = "looks again until another thread is done, with a limit")]

mod again;
mod backends;
mod bulk;
mod carried;
mod closing;
mod descriptors;
mod formats;
mod golden;
mod heads;
mod inline;
mod lazy;
mod mixed;
pub(crate) mod older;
mod opening;
mod recycled;
mod room;

use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;
use std::time::Duration;

use bytes::Bytes;
use proptest::prelude::*;

use crate::disk::sim::SimDisk;
use crate::*;

mod cuts;
mod sidecars;
mod synced;

const IDENTITY: Identity = Identity { cluster_id: 7, node_id: 1 };
const STREAM: StreamId = StreamId(3);

fn config() -> JournalConfig {
    JournalConfig::small("/journal", IDENTITY)
}

/// Files of 15 blocks of 4 KiB, and memory for 24 rows before the oldest leave.
fn tiny() -> JournalConfig {
    JournalConfig {
        file_bytes: 64 << 10,
        max_block_bytes: 16 << 10,
        recent_bytes_max: 8 << 10,
        index_bytes_max: 48 * crate::index::ROW_BYTES,
        ..config()
    }
}

fn open(disk: &SimDisk) -> (Journal, Recovered) {
    Journal::open(config(), Arc::new(disk.clone())).unwrap()
}

fn entry(index: u64, bytes: usize) -> Entry {
    let payload = Bytes::from(format!("entry {index} ").repeat(bytes / 8 + 1));
    Entry { kind: EntryKind::Normal, term: 1, leader: 1, index, payload }
}

/// Lets the disk go on when a test ends, also when it fails: a journal that is dropped waits for what is written.
struct GoesOn<'a>(&'a SimDisk);

impl Drop for GoesOn<'_> {
    fn drop(&mut self) {
        self.0.go_on();
    }
}

/// A completion and where its answer arrives.
fn waiter() -> (Completion, mpsc::Receiver<Result<Synced, Arc<Failure>>>) {
    let (tx, rx) = mpsc::channel();
    (Box::new(move |outcome| drop(tx.send(outcome))), rx)
}

fn append(journal: &Journal, stream: StreamId, entries: Vec<Entry>) -> Result<Synced, Arc<Failure>> {
    let (done, answer) = waiter();
    journal.append(stream, entries, done).unwrap();
    answer.recv().unwrap()
}

/// All entries of a stream, which both ways of reading must give. Rows that leave memory between two reads
/// may end one of them sooner, at the end of a file: what both have must be the same.
fn read_all(journal: &Journal, stream: StreamId) -> Vec<Entry> {
    let range = journal.entries(stream);
    let (mut entries, mut next) = (Vec::new(), range.start);
    while next < range.end {
        let part = journal.read_entries(stream, next..range.end, 10_000).unwrap();
        let once = journal.read_entries_once(stream, next..range.end, 10_000).unwrap();
        let both = part.len().min(once.len());
        assert!(both > 0, "no entry {next} of {range:?}");
        assert_eq!(once[..both], part[..both]);
        next += part.len() as u64;
        entries.extend(part);
    }
    entries
}

fn behaves(disk: Arc<dyn Disk>, config: JournalConfig) {
    let (journal, found) = Journal::open(config.clone(), Arc::clone(&disk)).unwrap();
    assert_eq!(found, Recovered::default());
    let entries: Vec<_> = (0..50).map(|i| entry(i, 300)).collect();
    let (done, answer) = waiter();
    journal.append(STREAM, entries.clone(), done).unwrap();
    assert_eq!(read_all(&journal, STREAM), entries, "readable as soon as append returns");
    assert_eq!(answer.recv().unwrap().unwrap().durable_index_end, Some(50));

    let (done, answer) = waiter();
    journal.save_vote(STREAM, Bytes::from_static(b"vote"), done).unwrap();
    answer.recv().unwrap().unwrap();
    let (done, answer) = waiter();
    journal.truncate_after(STREAM, Some(39), done).unwrap();
    assert_eq!(journal.entries(STREAM), 0..40);
    answer.recv().unwrap().unwrap();
    let replaced = Entry { term: 2, ..entry(40, 10) };
    append(&journal, STREAM, vec![replaced.clone()]).unwrap();
    let position = LogPosition { term: 1, leader: 1, index: 9 };
    journal.note_committed(STREAM, position);
    journal.note_purged(STREAM, position);
    journal.note_meta(STREAM, Bytes::from_static(b"meta"));
    append(&journal, StreamId(9), vec![entry(0, 0)]).unwrap();
    assert!(matches!(journal.read_entries(STREAM, 9..10, 1), Err(ReadError::Purged { first: 10, .. })));
    assert!(matches!(journal.read_entries(STREAM, 41..42, 1), Err(ReadError::BeyondEnd { end: 41, .. })));
    assert!(matches!(
        journal.append(STREAM, vec![entry(50, 1)], Box::new(|_| {})),
        Err(AppendError::NotContiguous { expected: 41, found: 50, .. })
    ));
    let locked = Journal::open(config.clone(), Arc::clone(&disk));
    assert!(matches!(locked, Err(OpenError::Locked { .. })));
    drop(journal);

    let (journal, found) = Journal::open(config.clone(), Arc::clone(&disk)).unwrap();
    let stream = &found.streams[&STREAM];
    assert_eq!((stream.vote.as_deref(), stream.meta.as_deref()), (Some(&b"vote"[..]), Some(&b"meta"[..])));
    assert_eq!(
        (stream.purged, stream.committed, stream.entries.clone()),
        (Some(position), Some(position), 10..41)
    );
    assert_eq!(stream.last.unwrap().term, 2);
    assert_eq!(found.torn_tail, None);
    let expected: Vec<_> = entries[10..40].iter().cloned().chain([replaced]).collect();
    assert_eq!(read_all(&journal, STREAM), expected);
    let location = journal.locate(STREAM, 12).unwrap();
    assert_eq!(journal.read_at(location, 0..5).unwrap(), entries[12].payload.slice(0..5));
    drop(journal);

    let other = JournalConfig { identity: Identity { cluster_id: 7, node_id: 2 }, ..config };
    assert!(matches!(Journal::open(other, disk), Err(OpenError::WrongIdentity { found_node: 1, .. })));
}

#[test]
fn a_journal_behaves_on_the_simulated_disk() {
    behaves(Arc::new(SimDisk::new()), config());
}

#[test]
fn a_journal_behaves_on_a_real_disk_with_either_back_end() {
    for backend in [Backend::Pwrite, Backend::Direct] {
        let dir = tempfile::tempdir_in(env!("CARGO_MANIFEST_DIR")).unwrap();
        let config = || JournalConfig { backend, ..JournalConfig::small(dir.path(), IDENTITY) };
        behaves(Arc::new(RealDisk), config());
        // Past several files, since only those begun by the writer itself are written past the page cache.
        let (journal, _) = Journal::open(config(), Arc::new(RealDisk)).unwrap();
        let first = journal.entries(STREAM).end;
        let mut index = first;
        while journal.metrics().rotations < 3 {
            append(&journal, STREAM, vec![entry(index, 3000)]).unwrap();
            index += 1;
        }
        let before = read_all(&journal, STREAM);
        drop(journal);
        let (journal, _) = Journal::open(config(), Arc::new(RealDisk)).unwrap();
        assert_eq!(read_all(&journal, STREAM), before, "{backend:?}");
        assert!(before.len() as u64 >= index - first);
    }
}

#[test]
fn files_rotate_and_are_recycled_once_everything_in_them_is_purged() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk);
    let mut index = 0;
    while journal.metrics().recycled < 6 {
        append(&journal, STREAM, vec![entry(index, 3000)]).unwrap();
        if index % 50 == 49 {
            journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: index - 5 });
        }
        index += 1;
        assert!(index < 5_000, "files must be recycled");
    }
    assert!(journal.usage().files.len() <= 3, "{:?}", journal.usage());
    let (made, file_bytes) = (journal.metrics(), u64::from(config().file_bytes));
    assert!(made.prepared_bytes >= 2 * file_bytes, "new files are filled: {made:?}");
    assert!(made.prepared_bytes < made.rotations * file_bytes, "recycled ones are not: {made:?}");
    let kept = read_all(&journal, STREAM);
    drop(journal);
    let (journal, found) = open(&disk);
    // The last purges were lazy: they may be forgotten, what they kept may not.
    let again = read_all(&journal, STREAM);
    assert!(again.ends_with(&kept), "bytes of an earlier life are never taken for new ones");
    assert!(found.files <= 3);
}

#[test]
fn a_file_that_cannot_be_freed_keeps_those_after_it() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk);
    let mut index = 0;
    while journal.metrics().rotations < 3 {
        append(&journal, STREAM, vec![entry(index, 3000)]).unwrap();
        index += 1;
    }
    let oldest = Path::new("/journal/wal/0000000000000001.wal");
    disk.hold(oldest);
    journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: index - 2 });
    let (done, answer) = waiter();
    journal.flush(STREAM, done).unwrap();
    answer.recv().unwrap().unwrap();
    until("three files are dead", || journal.usage().files.len() == 1);
    journal.close();
    // Without the first, a hole between them: the journal would be refused.
    let (journal, found) = open(&disk);
    assert_eq!((found.files, journal.entries(STREAM)), (4, index - 1..index));
    append(&journal, STREAM, vec![entry(index, 10)]).unwrap();
    journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: index - 1 });
    let (done, answer) = waiter();
    journal.flush(STREAM, done).unwrap();
    answer.recv().unwrap().unwrap();
    until("they are dead again", || journal.usage().files.len() == 1);
    assert_eq!(journal.metrics().recycled, 0);
    disk.let_go(oldest);
    until("they are freed", || journal.metrics().recycled == 3);
}

/// Waits for another thread, looking often.
fn until(what: &str, holds: impl Fn() -> bool) {
    let held = (0..10_000).any(|_| {
        std::thread::sleep(Duration::from_millis(1));
        holds()
    });
    assert!(held, "{what}: it never came");
}

#[test]
fn blobs_are_replaced_whole() {
    let disk = SimDisk::new();
    let blobs = Blobs::open("/journal/blobs", Arc::new(disk.clone())).unwrap();
    assert_eq!(blobs.get("shard-1").unwrap(), None);
    for content in ["old", "newer"] {
        blobs.put("shard-1", [Bytes::from(content), Bytes::from("!")]).unwrap();
        assert_eq!(blobs.get("shard-1").unwrap().unwrap(), format!("{content}!"));
    }
    assert_eq!(blobs.list().unwrap(), ["shard-1"]);
    blobs.remove("shard-1").unwrap();
    assert_eq!(blobs.get("shard-1").unwrap(), None);
    assert!(matches!(blobs.put("../x", []), Err(SealedError::Name { .. })));
}

#[test]
fn a_blob_that_does_not_fit_leaves_the_old_one_and_takes_no_room() {
    let disk = SimDisk::new();
    let blobs = Blobs::open("/journal/blobs", Arc::new(disk.clone())).unwrap();
    blobs.put("shard-1", [Bytes::from("old")]).unwrap();
    disk.fill();
    let failed = blobs.put("shard-1", [Bytes::from("newer")]).unwrap_err();
    assert!(
        matches!(&failed, SealedError::Io { source, .. } if source.kind() == std::io::ErrorKind::StorageFull),
        "{failed}"
    );
    assert_eq!(blobs.get("shard-1").unwrap().as_deref(), Some(&b"old"[..]));
    let left: Vec<_> =
        disk.list(Path::new("/journal/blobs")).unwrap().into_iter().map(|file| file.name).collect();
    assert_eq!(left, ["shard-1.blob"]);
}

/// The writer waits until the journal is closed, so that all that is queued goes in one go.
#[test]
fn a_purge_may_reach_beyond_what_is_written() {
    for (purged, first) in [(50, 1), (50, 51)] {
        let disk = SimDisk::new();
        let config = JournalConfig { min_fsync_interval: Duration::from_secs(3600), ..config() };
        let (journal, _) = Journal::open(config, Arc::new(disk.clone())).unwrap();
        append(&journal, STREAM, vec![entry(0, 10)]).unwrap();
        let queue = |indexes: std::ops::Range<u64>| {
            let entries = indexes.map(|index| entry(index, 3_000)).collect();
            journal.append(STREAM, entries, Box::new(|_| {})).unwrap();
        };
        let at = LogPosition { term: 1, leader: 1, index: purged };
        if first == 1 {
            // More than a block of entries that wait.
            queue(1..51);
            journal.note_purged(STREAM, at);
            queue(51..60);
        } else {
            journal.note_purged(STREAM, at);
            queue(51..60);
        }
        journal.close();
        let (journal, found) = open(&disk);
        let stream = &found.streams[&STREAM];
        assert_eq!((stream.purged, stream.entries.clone()), (Some(at), 51..60), "entries from {first} on");
        assert_eq!(read_all(&journal, STREAM), (51..60).map(|index| entry(index, 3_000)).collect::<Vec<_>>());
    }
}

#[test]
fn commits_keep_their_distance_and_closing_does_not_wait_for_it() {
    let disk = SimDisk::new();
    let config = JournalConfig { min_fsync_interval: Duration::from_secs(3600), ..config() };
    let (journal, _) = Journal::open(config, Arc::new(disk.clone())).unwrap();
    append(&journal, STREAM, vec![entry(0, 10)]).unwrap();
    let answers: Vec<_> = (1..4)
        .map(|index| {
            let (done, answer) = waiter();
            journal.append(STREAM, vec![entry(index, 10)], done).unwrap();
            answer
        })
        .collect();
    assert!(answers[0].try_recv().is_err(), "an hour has not passed");
    let syncs = journal.metrics().syncs;
    journal.close();
    assert!(answers.iter().all(|answer| answer.recv().unwrap().is_ok()));
    let (journal, _) = open(&disk);
    assert_eq!((journal.entries(STREAM), syncs), (0..4, 1));
}

/// A flush is the way to be sure of what was appended, and to free files, without a sync per commit.
#[test]
fn a_flush_syncs_also_a_journal_that_does_not() {
    let disk = SimDisk::new();
    let config = || JournalConfig { sync: SyncMode::Os, ..config() };
    let (journal, _) = Journal::open(config(), Arc::new(disk.clone())).unwrap();
    let mut index = 0;
    while journal.metrics().rotations < 2 {
        append(&journal, STREAM, vec![entry(index, 3000)]).unwrap();
        index += 1;
    }
    append(&journal, STREAM, vec![entry(index, 3000)]).unwrap();
    journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: index - 2 });
    let (done, answer) = waiter();
    journal.flush(STREAM, done).unwrap();
    answer.recv().unwrap().unwrap();
    assert_eq!(journal.metrics().rotations, 2);
    until("the purge is durable", || journal.metrics().recycled == 2);
    for seed in 0..8 {
        let (journal, _) = Journal::open(config(), Arc::new(disk.after_crash(seed))).unwrap();
        assert_eq!(journal.entries(STREAM), index - 1..index + 1, "seed {seed}");
    }
}

#[test]
fn damage_in_acknowledged_bytes_is_refused_and_says_where() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk);
    for index in 0..4 {
        append(&journal, STREAM, vec![entry(index, 100)]).unwrap();
    }
    drop(journal);
    disk.flip_bit(&PathBuf::from("/journal/wal/0000000000000001.wal"), 4096 * 2 + 70, 2);
    let Err(error) = Journal::open(config(), Arc::new(disk)) else { panic!("damage was not noticed") };
    let text = error.to_string();
    assert!(matches!(&error, OpenError::Damaged(damage) if damage.pos == 8192), "{text}");
    assert!(
        text.contains("0000000000000001.wal") && text.contains("Restore this file from a copy"),
        "{text}"
    );
}

/// Behind the damage no file goes on from where the blocks stop, and the last ones must not get the blame.
#[test]
fn damage_in_an_old_file_is_named_where_it_is() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk);
    let mut index = 0;
    while journal.metrics().rotations < 3 {
        append(&journal, STREAM, vec![entry(index, 3000)]).unwrap();
        index += 1;
    }
    journal.close();
    drop(journal);
    for file in 1..=3 {
        let disk = disk.after_crash(0);
        let path = PathBuf::from(format!("/journal/wal/000000000000000{file}.wal"));
        disk.flip_bit(&path, 4096 * 9 + 70, 2);
        let Err(OpenError::Damaged(damage)) = Journal::open(config(), Arc::new(disk)) else {
            panic!("damage was not noticed")
        };
        assert_eq!((damage.path, damage.pos), (path, 4096 * 9));
    }
}

#[test]
fn the_last_block_is_cut_if_it_does_not_hold() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk);
    for index in 0..4 {
        append(&journal, STREAM, vec![entry(index, 100)]).unwrap();
    }
    drop(journal);
    disk.flip_bit(&PathBuf::from("/journal/wal/0000000000000001.wal"), 4096 * 4 + 70, 2);
    let (journal, found) = open(&disk);
    assert_eq!(journal.entries(STREAM), 0..3);
    assert_eq!(found.torn_tail.unwrap().pos, 4096 * 4);
}

#[test]
fn the_first_failure_stops_the_journal_and_answers_everybody() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk);
    append(&journal, STREAM, vec![entry(0, 10)]).unwrap();
    disk.fail_syncs();
    let answers: Vec<_> = (1..9)
        .filter_map(|index| {
            let (done, answer) = waiter();
            journal.append(STREAM, vec![entry(index, 10)], done).ok().map(|()| answer)
        })
        .collect();
    assert!(!answers.is_empty());
    let told: Vec<_> = answers.into_iter().map(|answer| answer.recv().unwrap().unwrap_err()).collect();
    let first = journal.failure().unwrap();
    // The commit's sync, or that of the next file being prepared: whichever came first is everybody's reason.
    assert!(matches!(*first, Failure::Sync { .. } | Failure::Write { .. }), "{first}");
    assert!(told.iter().all(|told| Arc::ptr_eq(told, &first)), "{told:?}");
    let refused = journal.append(STREAM, vec![entry(9, 10)], Box::new(|_| {}));
    assert!(matches!(refused, Err(AppendError::Failed(_))));
    assert_eq!(journal.read_entries(STREAM, 0..1, 100).unwrap(), [entry(0, 10)], "reads go on");
}

#[test]
fn a_full_journal_refuses_before_append_and_recovers_by_purging() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk);
    let mut index = 0;
    let full = loop {
        match journal.try_admit(24_000, Class::Data) {
            Ok(permit) => {
                append(&journal, STREAM, vec![entry(index, 20_000)]).unwrap();
                drop(permit);
                index += 1;
            }
            Err(full) => break full,
        }
        assert!(index < 1_000, "the journal must fill up");
    };
    assert!(matches!(full, Full::Journal { .. }), "{full:?}");
    assert!(journal.try_admit(1_000, Class::Control).is_ok(), "the control reserve is still there");
    assert!(journal.failure().is_none());
    journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: index - 2 });
    let (done, answer) = waiter();
    journal.flush(STREAM, done).unwrap();
    answer.recv().unwrap().unwrap();
    until("what was purged is free", || journal.try_admit(24_000, Class::Data).is_ok());
}

#[test]
fn what_settles_may_use_of_a_full_journal_leaves_room_for_what_makes_room() {
    for is_disk_full in [false, true] {
        let disk = SimDisk::new();
        if is_disk_full {
            disk.set_capacity(3 * (256 << 10) + 10_000);
        }
        let (journal, _) = open(&disk);
        let mut index = 0;
        // Settles: small blocks, as long as they are let in.
        let mut let_in = Vec::new();
        for (class, bytes) in [(Class::Data, 20_000), (Class::Few, 100), (Class::Control, 100)] {
            let first = index;
            loop {
                until("the file keeper has tried", || journal.knows_of_next_file());
                let Ok(_permit) = journal.try_admit(4_096, class) else { break };
                append(&journal, STREAM, vec![entry(index, bytes)]).unwrap();
                index += 1;
                assert!(index < 2_000, "the journal must fill up");
            }
            let_in.push(index - first);
        }
        assert!(is_disk_full || let_in[2] >= 10, "what settles few has left room for others: {let_in:?}");
        for _ in 0..2 {
            let _permit = journal.try_admit(4_000, Class::Relief).expect("or there is never room again");
            append(&journal, STREAM, vec![entry(index, 3_000)]).unwrap();
            index += 1;
        }
        assert!(journal.try_admit(4_096, Class::Control).is_err());
        assert!(journal.failure().is_none());
    }
}

#[test]
fn a_full_disk_refuses_before_append_poisons_nothing_and_recovers_by_itself() {
    fills_up(SimDisk::set_capacity);
    fills_up(SimDisk::set_quota);
}

fn fills_up(limit: fn(&SimDisk, u64)) {
    let disk = SimDisk::new();
    limit(&disk, 3 * (256 << 10) + 10_000);
    let (journal, _) = open(&disk);
    let mut index = 0;
    let full = loop {
        // An append that comes while the file keeper finds out waits for room, as it should.
        until("the file keeper has tried", || journal.knows_of_next_file());
        match journal.try_admit(20_000, Class::Data) {
            Ok(_permit) => append(&journal, STREAM, vec![entry(index, 20_000)]).unwrap(),
            Err(full) => break full,
        };
        index += 1;
        assert!(index < 200, "the disk must fill up");
    };
    assert!(matches!(full, Full::Disk { .. }), "{full:?}");
    assert!(journal.failure().is_none());
    assert_eq!(read_all(&journal, STREAM).len() as u64, index);
    assert!(journal.usage().disk_full);
    disk.make_room();
    until("the next file is prepared", || journal.try_admit(20_000, Class::Data).is_ok());
    assert!(!journal.usage().disk_full);
    let rotations = journal.metrics().rotations;
    while journal.metrics().rotations < rotations + 2 {
        append(&journal, STREAM, vec![entry(index, 20_000)]).unwrap();
        index += 1;
    }
    drop(journal);
    assert_eq!(open(&disk).0.entries(STREAM), 0..index);
}

#[test]
fn concurrent_appends_share_commits() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk);
    let threads: Vec<_> = (0..8)
        .map(|stream| {
            let journal = journal.clone();
            std::thread::spawn(move || {
                for index in 0..100 {
                    append(&journal, StreamId(stream), vec![entry(index, 50)]).unwrap();
                }
            })
        })
        .collect();
    for thread in threads {
        thread.join().unwrap();
    }
    let metrics = journal.metrics();
    assert_eq!(metrics.syncs, metrics.blocks - metrics.rotations, "one sync a commit");
    for stream in 0..8 {
        assert_eq!(journal.entries(StreamId(stream)), 0..100);
    }
}

proptest! {
    #[test]
    fn frames_and_blocks_of_arbitrary_bytes_never_panic(bytes in proptest::collection::vec(any::<u8>(), 64..300)) {
        let _ = format::BlockHeader::parse(&bytes, FileSeq(1), bytes.len());
        for frame in format::Frames::new(&bytes) {
            let _ = frame;
        }
        let _ = format::FileHeader::parse(&bytes);
    }
}

#[test]
fn what_is_purged_soon_does_not_stay_in_the_list_of_recent_entries() {
    let (journal, _) = open(&SimDisk::new());
    for index in 0..500 {
        append(&journal, STREAM, vec![entry(index, 10)]).unwrap();
        journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index });
        assert!(journal.recent() <= 3, "{} after {index} entries, of which none is left", journal.recent());
    }
}
