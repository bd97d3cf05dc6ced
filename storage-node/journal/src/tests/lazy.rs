//! What never causes a write by itself, and what is refused before anything is queued.

use super::*;

const OTHER: StreamId = StreamId(9);
const NOTED: LogPosition = LogPosition { term: 1, leader: 1, index: 3 };

/// Eight entries, and then every fact that is noted lazily.
fn with_notes(disk: &SimDisk) -> (Journal, Metrics) {
    let (journal, _) = open(disk);
    append(&journal, STREAM, (0..8).map(|index| entry(index, 100)).collect()).unwrap();
    let before = journal.metrics();
    journal.note_committed(STREAM, NOTED);
    journal.note_purged(STREAM, NOTED);
    journal.note_meta(STREAM, Bytes::from_static(b"meta"));
    assert_eq!(journal.entries(STREAM), 4..8, "readers see a purge at once");
    (journal, before)
}

/// Blocks, syncs and frames.
fn written(metrics: &Metrics) -> (u64, u64, u64) {
    (metrics.blocks, metrics.syncs, metrics.frames)
}

#[test]
fn lazy_facts_alone_are_neither_written_nor_synced() {
    let disk = SimDisk::new();
    let (journal, before) = with_notes(&disk);
    // Closing writes all that is queued: had one of them been, it would show.
    journal.close();
    assert_eq!(written(&journal.metrics()), written(&before));
    let (journal, found) = open(&disk);
    let stream = &found.streams[&STREAM];
    assert_eq!((stream.committed, stream.purged, &stream.meta), (None, None, &None), "{found:?}");
    assert_eq!(journal.entries(STREAM), 0..8);
}

#[test]
fn the_next_append_of_any_stream_carries_the_lazy_facts_in_its_own_commit() {
    let disk = SimDisk::new();
    let (journal, before) = with_notes(&disk);
    append(&journal, OTHER, vec![entry(0, 10)]).unwrap();
    let after = journal.metrics();
    let (blocks, syncs, frames) = written(&before);
    assert_eq!(written(&after), (blocks + 1, syncs + 1, frames + 4), "one entry and three facts");
    // Carried once: they did not change since.
    append(&journal, OTHER, vec![entry(1, 10)]).unwrap();
    assert_eq!(written(&journal.metrics()), (blocks + 2, syncs + 2, frames + 5));
    for seed in 0..4 {
        let (journal, found) = open(&disk.after_crash(seed));
        let stream = &found.streams[&STREAM];
        assert_eq!((stream.committed, stream.purged), (Some(NOTED), Some(NOTED)), "seed {seed}");
        assert_eq!((stream.meta.as_deref(), journal.entries(STREAM)), (Some(&b"meta"[..]), 4..8));
    }
}

#[test]
fn permits_hold_no_more_than_their_limit_and_give_it_back() {
    // Less than the first file has room for: it does not matter whether the next is prepared.
    let max = 100_000;
    let config = JournalConfig { pending_bytes_max: max, ..config() };
    let (journal, _) = Journal::open(config, Arc::new(SimDisk::new())).unwrap();
    let first = journal.try_admit(max - 1_000, Class::Data).unwrap();
    let second = journal.try_admit(1_000, Class::Data).unwrap();
    for class in [Class::Data, Class::Control] {
        let busy = journal.try_admit(1, class).unwrap_err();
        assert_eq!(busy, Full::Busy { pending: max, max }, "{class:?}");
    }
    assert_eq!(journal.usage().admitted_bytes, max);
    drop(second);
    assert!(journal.try_admit(1_000, Class::Data).is_ok());
    drop(first);
    assert_eq!(journal.usage().admitted_bytes, 0);
}

#[test]
fn what_the_queue_cannot_hold_is_refused_without_effect_and_the_rest_is_written() {
    let disk = SimDisk::new();
    let config = JournalConfig { min_fsync_interval: Duration::from_secs(3600), ..config() };
    let max = 2 * config.pending_bytes_max;
    let (journal, _) = Journal::open(config, Arc::new(disk.clone())).unwrap();
    append(&journal, STREAM, vec![entry(0, 10)]).unwrap();
    // The writer lets an hour pass before it takes more.
    let mut answers = Vec::new();
    let refused = loop {
        let (done, answer) = waiter();
        match journal.append(STREAM, vec![entry(1 + answers.len() as u64, 20_000)], done) {
            Ok(()) => answers.push(answer),
            Err(refused) => break (refused, answer),
        }
        assert!(answers.len() < 1_000, "the queue must fill up");
    };
    let (AppendError::QueueFull { queued, max: told }, answer) = refused else { panic!("{refused:?}") };
    assert!(told == max && queued <= max && queued + 20_000 > max, "{queued} of {max}");
    assert_eq!(journal.metrics().queue_bytes, queued);
    assert!(matches!(*answer.recv().unwrap().unwrap_err(), Failure::Closed), "whoever waits is answered");
    let end = 1 + answers.len() as u64;
    assert_eq!(journal.entries(STREAM), 0..end, "a refusal has no effect");
    journal.close();
    assert!(answers.iter().all(|answer| answer.recv().unwrap().is_ok()));
    assert_eq!(open(&disk).0.entries(STREAM), 0..end);
}

#[test]
fn what_fits_no_block_and_facts_beyond_four_kibibytes_are_refused() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk);
    let max = journal.config().entry_bytes_max();
    let of_bytes = |len: usize| Entry { payload: Bytes::from(vec![7; len]), ..entry(0, 0) };
    let refused = journal.append(STREAM, vec![of_bytes(max + 1)], waiter().0);
    assert!(
        matches!(refused, Err(AppendError::TooLarge { len, max: told, .. }) if (len, told) == (max + 1, max))
    );
    append(&journal, STREAM, vec![of_bytes(max)]).unwrap();
    let refused = journal.save_vote(STREAM, Bytes::from(vec![7; 4097]), waiter().0);
    assert!(matches!(refused, Err(AppendError::TooLarge { len: 4097, max: 4096, .. })), "{refused:?}");
    let (done, answer) = waiter();
    journal.save_vote(STREAM, Bytes::from(vec![7; 4096]), done).unwrap();
    answer.recv().unwrap().unwrap();
    let meta = || journal.note_meta(STREAM, Bytes::from(vec![7; 4097]));
    assert!(std::panic::catch_unwind(std::panic::AssertUnwindSafe(meta)).is_err());
    journal.close();
    let (journal, found) = open(&disk);
    let stream = &found.streams[&STREAM];
    assert_eq!((stream.vote.as_ref().map(Bytes::len), &stream.meta), (Some(4096), &None));
    assert_eq!(read_all(&journal, STREAM), [of_bytes(max)]);
}

#[test]
fn more_entries_than_a_block_can_count_are_several_blocks() {
    let disk = SimDisk::new();
    let config = || JournalConfig {
        file_bytes: 16 << 20,
        max_block_bytes: 4 << 20,
        backend: Backend::Pwrite,
        ..JournalConfig::new("/journal", IDENTITY)
    };
    let (journal, _) = Journal::open(config(), Arc::new(disk.clone())).unwrap();
    let count = u64::from(u16::MAX) + 10;
    let blank = |index| Entry { payload: Bytes::new(), ..entry(index, 0) };
    let synced = append(&journal, STREAM, (0..count).map(blank).collect());
    assert_eq!(synced.unwrap().durable_index_end, Some(count));
    assert_eq!(journal.metrics().blocks, 2);
    journal.close();
    let (journal, _) = Journal::open(config(), Arc::new(disk)).unwrap();
    assert_eq!(journal.entries(STREAM), 0..count);
}
