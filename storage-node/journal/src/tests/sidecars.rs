//! The index in memory and the sidecars of finished files together: whatever has left memory, reads are the same.

use super::*;
use crate::index::ROW_BYTES;

fn open_with(disk: &SimDisk, config: JournalConfig) -> (Journal, Recovered) {
    Journal::open(config, Arc::new(disk.clone())).unwrap()
}

fn wal(name: &str) -> PathBuf {
    Path::new("/journal/wal").join(name)
}

/// Appends one block each.
fn fill(journal: &Journal, stream: StreamId, indexes: std::ops::Range<u64>) {
    for index in indexes {
        append(journal, stream, vec![entry(index, 2_000)]).unwrap();
    }
}

fn truncate(journal: &Journal, stream: StreamId, end: u64) {
    let (done, answer) = waiter();
    journal.truncate_after(stream, end.checked_sub(1), done).unwrap();
    answer.recv().unwrap().unwrap();
}

fn flush(journal: &Journal, stream: StreamId) {
    let (done, answer) = waiter();
    journal.flush(stream, done).unwrap();
    answer.recv().unwrap().unwrap();
}

/// Waits for the sidecars of all finished files, after which the index is as small as it can be.
fn settle(journal: &Journal) {
    until("all finished files have sidecars", || {
        journal.usage().files.iter().all(|file| file.current || file.sidecar)
    });
    until("rows leave memory", || {
        let current = 16 * ROW_BYTES;
        journal.metrics().index_bytes <= (journal.config().index_bytes_max / 2).max(current)
    });
}

#[test]
fn rows_leave_memory_and_nothing_is_refused() {
    let disk = SimDisk::new();
    let (journal, _) = open_with(&disk, tiny());
    // A stream that says nothing any more: all its rows leave.
    fill(&journal, StreamId(1), 0..5);
    for index in 0..400 {
        until("room", || journal.try_admit(2_000, Class::Data).is_ok());
        fill(&journal, STREAM, index..index + 1);
    }
    settle(&journal);
    let metrics = journal.metrics();
    assert!(metrics.evicted_rows >= 405 - 48, "{metrics:?}");
    assert!(metrics.sidecars_written >= 25 && metrics.sidecar_reads == 0, "{metrics:?}");

    let all: Vec<_> = (0..400).map(|index| entry(index, 2_000)).collect();
    assert_eq!(read_all(&journal, STREAM), all);
    assert_eq!(read_all(&journal, StreamId(1)), all[..5]);
    let location = journal.locate(STREAM, 7).unwrap();
    assert_eq!(journal.read_at(location, 3..9).unwrap(), all[7].payload.slice(3..9));
    assert!(
        journal.is_written(STREAM, 7) && journal.is_written(STREAM, 399) && !journal.is_written(STREAM, 400)
    );
    assert_eq!(journal.metrics().sidecar_misses, 0);
    assert!(journal.metrics().sidecar_reads >= 25);
    drop(journal);

    let (journal, found) = open_with(&disk, tiny());
    let last = LogPosition { term: 1, leader: 1, index: 4 };
    assert_eq!(found.streams[&StreamId(1)].last, Some(last), "its row is not in memory");
    let metrics = journal.metrics();
    assert!(
        metrics.index_bytes <= 24 * ROW_BYTES + 16 * ROW_BYTES && metrics.evicted_rows > 300,
        "{metrics:?}"
    );
    assert!(metrics.sidecars_written <= 1, "what the files say is there already: {metrics:?}");
    assert_eq!(
        (read_all(&journal, STREAM), read_all(&journal, StreamId(1))),
        (all.clone(), all[..5].to_vec())
    );
}

#[test]
fn many_entries_of_a_file_take_many_pages() {
    let disk = SimDisk::new();
    let (journal, _) = open_with(&disk, tiny());
    let mut index = 0;
    while journal.metrics().rotations < 3 {
        append(&journal, STREAM, (index..index + 100).map(|index| entry(index, 1)).collect()).unwrap();
        index += 100;
    }
    settle_rows(&journal, index);
    let all: Vec<_> = (0..index).map(|index| entry(index, 1)).collect();
    assert_eq!(read_all(&journal, STREAM), all);
    let metrics = journal.metrics();
    assert!(metrics.sidecar_reads > metrics.sidecars_written, "more than a page each: {metrics:?}");
    for index in (0..index).step_by(37) {
        let location = journal.locate(STREAM, index).unwrap();
        let read = journal.read_at(location, 0..location.len).unwrap();
        assert_eq!(read, all[usize::try_from(index).unwrap()].payload);
    }
}

/// Waits until the rows of all finished files have left memory.
fn settle_rows(journal: &Journal, entries: u64) {
    until("rows leave memory", || journal.metrics().evicted_rows + 2_000 > entries);
}

#[test]
fn truncations_and_purges_reach_what_left_memory() {
    let disk = SimDisk::new();
    let (journal, _) = open_with(&disk, tiny());
    fill(&journal, STREAM, 0..100);
    settle(&journal);
    // In the middle of a file that has left memory; then at the very border of one.
    truncate(&journal, STREAM, 52);
    let again = |index: u64| Entry { term: 2, kind: EntryKind::Membership, ..entry(index, 1_500) };
    for index in 52..90 {
        append(&journal, STREAM, vec![again(index)]).unwrap();
    }
    settle(&journal);
    journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: 20 });
    flush(&journal, STREAM);
    let expected: Vec<_> = (21..52).map(|index| entry(index, 2_000)).chain((52..90).map(again)).collect();
    assert_eq!(read_all(&journal, STREAM), expected);
    assert!(matches!(journal.locate(STREAM, 20), Err(ReadError::Purged { first: 21, .. })));
    drop(journal);
    let (journal, found) = open_with(&disk, tiny());
    assert_eq!(found.streams[&STREAM].entries, 21..90);
    assert_eq!(read_all(&journal, STREAM), expected);
    truncate(&journal, STREAM, 30);
    assert_eq!((journal.entries(STREAM), read_all(&journal, STREAM)), (21..30, expected[..9].to_vec()));
    drop(journal);
    let (journal, found) = open_with(&disk, tiny());
    assert_eq!(found.streams[&STREAM].last, Some(LogPosition { term: 1, leader: 1, index: 29 }));
    assert_eq!(read_all(&journal, STREAM), expected[..9]);
}

#[test]
fn an_index_whose_sidecars_cannot_be_written_refuses_until_they_can() {
    let disk = SimDisk::new();
    let (journal, _) = open_with(&disk, tiny());
    let name = wal("0000000000000001.idx");
    disk.hold(&name);
    let mut index = 0;
    let full = loop {
        match journal.try_admit(2_000, Class::Data) {
            Ok(_permit) => fill(&journal, STREAM, index..index + 1),
            Err(full) => break full,
        }
        index += 1;
        assert!(index < 200, "rows cannot leave memory");
    };
    assert_eq!(full, Full::Index { used: 48 * ROW_BYTES, limit: 48 * ROW_BYTES });
    assert!(journal.failure().is_none() && journal.try_admit(2_000, Class::Control).is_ok());
    assert_eq!(read_all(&journal, STREAM).len() as u64, index);
    drop(journal);
    let (journal, _) = open_with(&disk, tiny());
    assert_eq!(journal.metrics().evicted_rows, 0);
    assert_eq!(journal.try_admit(2_000, Class::Data).unwrap_err(), full);
    disk.let_go(&name);
    until("rows leave memory", || journal.try_admit(2_000, Class::Data).is_ok());
    assert_eq!(read_all(&journal, STREAM).len() as u64, index);
}

#[test]
fn a_file_that_holds_more_entries_than_the_index_ends_early_and_nobody_is_refused_for_good() {
    let disk = SimDisk::new();
    let large = || JournalConfig { file_bytes: 4 << 20, max_bytes: 64 << 20, ..tiny() };
    let (journal, _) = open_with(&disk, large());
    for index in 0..200 {
        until("rows leave memory", || journal.try_admit(2_000, Class::Data).is_ok());
        fill(&journal, STREAM, index..index + 1);
    }
    assert_eq!(read_all(&journal, STREAM).len(), 200);
    drop(journal);
    let (journal, found) = open_with(&disk, large());
    assert_eq!(found.streams[&STREAM].entries, 0..200);
    assert!(journal.metrics().index_bytes <= large().index_bytes_max);
}

/// What may have become of a sidecar; the last is another file's.
fn damages(disk: &SimDisk) -> Vec<Vec<u8>> {
    let read = |name: &str| {
        let file = disk.open(&wal(name), crate::disk::OpenMode::Read).unwrap();
        let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
        file.read_at(&mut bytes, 0).unwrap();
        bytes
    };
    let (whole, other) = (read("0000000000000002.idx"), read("0000000000000003.idx"));
    let flipped = |at: usize| {
        let mut bytes = whole.clone();
        bytes[at] ^= 4;
        bytes
    };
    let (in_header, in_a_row, in_padding) = (flipped(17), flipped(4096 + 40), flipped(8000));
    vec![in_header, in_a_row, in_padding, whole[..5000].to_vec(), whole[..4096].to_vec(), Vec::new(), other]
}

/// Puts `bytes` in the place of those a file has, under the feet of who has it open.
fn overwrite(disk: &SimDisk, path: &Path, bytes: &[u8]) {
    let file = disk.open(path, crate::disk::OpenMode::Create).unwrap();
    file.write_at(bytes, 0).unwrap();
    file.sync().unwrap();
}

#[test]
fn a_damaged_sidecar_is_neither_believed_nor_missed() {
    let disk = SimDisk::new();
    let (journal, _) = open_with(&disk, tiny());
    fill(&journal, STREAM, 0..100);
    settle(&journal);
    drop(journal);
    let all: Vec<_> = (0..100).map(|index| entry(index, 2_000)).collect();
    let second = wal("0000000000000002.idx");
    for (case, bytes) in damages(&disk).into_iter().enumerate() {
        overwrite(&disk, &second, &bytes);
        let (journal, _) = open_with(&disk, tiny());
        let metrics = journal.metrics();
        assert!(metrics.sidecars_written >= 1 && metrics.evicted_rows > 0, "case {case}: {metrics:?}");
        assert_eq!(read_all(&journal, STREAM), all, "case {case}");
        assert_eq!(journal.metrics().sidecar_misses, 0, "case {case}: it was written again at once");

        // And while it is in use.
        let written = journal.metrics().sidecars_written;
        overwrite(&disk, &second, &bytes);
        assert_eq!(read_all(&journal, STREAM), all, "case {case}");
        assert_eq!(journal.locate(STREAM, 20).map(|at| at.file).unwrap(), FileSeq(2));
        let misses = journal.metrics().sidecar_misses;
        // No read needs the header; recovery does.
        assert_eq!(misses > 0, case != 0, "case {case}");
        if misses > 0 {
            until("it is written again", || journal.metrics().sidecars_written > written);
            assert_eq!(read_all(&journal, STREAM), all, "case {case}");
            assert_eq!(journal.metrics().sidecar_misses, misses, "case {case}");
        }
    }
}

#[test]
fn a_sidecar_goes_with_its_file_and_is_never_another_ones() {
    let disk = SimDisk::new();
    let (journal, _) = open_with(&disk, tiny());
    let mut index = 0;
    while journal.metrics().recycled < 8 {
        fill(&journal, STREAM, index..index + 20);
        settle(&journal);
        index += 20;
        journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: index - 50.min(index) });
    }
    let kept = read_all(&journal, STREAM);
    drop(journal);
    let names = || -> Vec<_> { disk.list(&wal("")).unwrap().into_iter().map(|file| file.name).collect() };
    for name in names().iter().filter(|name| name.ends_with(".idx")) {
        assert!(names().contains(&name.replace(".idx", ".wal")), "{name} is alone: {:?}", names());
    }
    // Left behind by a crash: the sidecar of a file that is gone, what a write had begun, and one of a file that was
    // finished before the head of the next was lost.
    let current = names().into_iter().filter(|name| name.ends_with(".wal")).max().unwrap();
    for name in ["0000000000000001.idx", "0000000000000009.tmp", &current.replace(".wal", ".idx")] {
        overwrite(&disk, &wal(name), b"anything");
    }
    let (journal, _) = open_with(&disk, tiny());
    assert!(read_all(&journal, STREAM).ends_with(&kept));
    for name in ["0000000000000001.idx", "0000000000000009.tmp"] {
        assert!(!names().contains(&name.to_owned()), "{name}: {:?}", names());
    }
    fill(&journal, STREAM, index..index + 40);
    settle(&journal);
    assert_eq!(read_all(&journal, STREAM).last(), Some(&entry(index + 39, 2_000)));
}

#[derive(Debug, Clone)]
enum Step {
    /// Entries, and bytes of each.
    Append(u32, u64, usize),
    Truncate(u32, u64),
    Purge(u32, i64),
    Read(u32, u64, u64, usize),
    Settle,
    Reopen,
}

fn steps() -> impl Strategy<Value = Vec<Step>> {
    let stream = || 0u32..2;
    let step = prop_oneof![
        8 => (stream(), 1u64..12, 0usize..3_000).prop_map(|(stream, n, bytes)| Step::Append(stream, n, bytes)),
        2 => (stream(), 0u64..60).prop_map(|(stream, back)| Step::Truncate(stream, back)),
        1 => (stream(), -3i64..40).prop_map(|(stream, ahead)| Step::Purge(stream, ahead)),
        5 => (stream(), 0u64..120, 0u64..40, 0usize..9_000)
            .prop_map(|(stream, back, len, bytes)| Step::Read(stream, back, len, bytes)),
        4 => Just(Step::Settle),
        1 => Just(Step::Reopen),
    ];
    proptest::collection::vec(step, 1..80)
}

/// Two journals that are told the same: one keeps all rows in memory, one as few as it can.
struct Pair {
    disks: [SimDisk; 2],
    journals: Vec<Journal>,
    appended: u64,
}

impl Pair {
    fn configs() -> [JournalConfig; 2] {
        [
            JournalConfig { index_bytes_max: 0, ..tiny() },
            JournalConfig { index_bytes_max: 64 << 20, ..tiny() },
        ]
    }

    fn reopen(&mut self) {
        self.journals.clear();
        let open = |(disk, config)| open_with(disk, config);
        let (journals, found): (Vec<_>, Vec<_>) = self.disks.iter().zip(Self::configs()).map(open).unzip();
        assert_eq!(found[0].streams, found[1].streams);
        self.journals = journals;
    }

    fn step(&mut self, step: Step) {
        match step {
            Step::Append(stream, count, bytes) => {
                let first = self.journals[0].entries(StreamId(stream)).end;
                self.appended += 1;
                let (term, kinds) =
                    (self.appended, [EntryKind::Normal, EntryKind::Blank, EntryKind::Membership]);
                let kind = kinds[usize::try_from(term % 3).unwrap()];
                let entry = |index| Entry { term, leader: term % 5, kind, ..entry(index, bytes) };
                for journal in &self.journals {
                    append(journal, StreamId(stream), (first..first + count).map(entry).collect()).unwrap();
                }
            }
            Step::Truncate(stream, back) => {
                let end = self.journals[0].entries(StreamId(stream)).end.saturating_sub(back);
                self.journals.iter().for_each(|journal| truncate(journal, StreamId(stream), end));
            }
            Step::Purge(stream, ahead) => {
                let entries = self.journals[0].entries(StreamId(stream));
                let at =
                    LogPosition { term: 1, leader: 1, index: entries.start.saturating_add_signed(ahead) };
                for journal in &self.journals {
                    journal.note_purged(StreamId(stream), at);
                    // It causes a commit; what else that takes along shall be the same in both.
                    if at.index >= entries.end {
                        flush(journal, StreamId(stream));
                    }
                }
            }
            Step::Read(stream, back, len, bytes) => {
                let start = self.journals[0].entries(StreamId(stream)).end.saturating_sub(back);
                self.read(StreamId(stream), start..start + len, bytes);
            }
            Step::Settle => self.journals.iter().for_each(|journal| {
                let finished = |file: &FileUsage| file.current || file.sidecar;
                until("sidecars", || journal.usage().files.iter().all(finished));
            }),
            Step::Reopen => self.reopen(),
        }
        for stream in [0, 1].map(StreamId) {
            assert_eq!(self.journals[0].entries(stream), self.journals[1].entries(stream));
        }
    }

    /// The same answer, but for where it stops.
    fn read(&self, stream: StreamId, range: std::ops::Range<u64>, max_bytes: usize) {
        let [few, many] = [0, 1].map(|i| self.journals[i].read_entries(stream, range.clone(), max_bytes));
        match (few, many) {
            (Ok(few), Ok(many)) => {
                assert!(many.starts_with(&few) && few.is_empty() == many.is_empty(), "{few:?}, not {many:?}");
            }
            (few, many) => assert_eq!(format!("{few:?}"), format!("{many:?}")),
        }
        let lens = [0, 1].map(|i| self.journals[i].locate(stream, range.start).map(|at| at.len));
        assert_eq!(format!("{:?}", lens[0]), format!("{:?}", lens[1]));
    }
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(64))]
    #[test]
    fn what_is_in_memory_changes_no_answer(steps in steps()) {
        let mut pair = Pair { disks: [SimDisk::new(), SimDisk::new()], journals: Vec::new(), appended: 0 };
        pair.reopen();
        steps.into_iter().for_each(|step| pair.step(step));
        pair.step(Step::Settle);
        for stream in [0, 1].map(StreamId) {
            assert_eq!(read_all(&pair.journals[0], stream), read_all(&pair.journals[1], stream));
        }
        let [few, many] = [0, 1].map(|i| pair.journals[i].metrics());
        assert_eq!((few.sidecar_misses, many.sidecar_misses, many.evicted_rows), (0, 0, 0));
        pair.reopen();
        for stream in [0, 1].map(StreamId) {
            assert_eq!(read_all(&pair.journals[0], stream), read_all(&pair.journals[1], stream));
        }
    }
}
