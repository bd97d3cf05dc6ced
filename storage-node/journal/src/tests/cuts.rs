//! The disk fails at every operation of a history, one after the other, and loses what was not synced.

use super::*;

/// Entries whose first half is in files that have left memory when the rest is cut off and replaced.
const CUT_OFF_FROM: u64 = 25;

fn scripted_entry(index: u64, term: u64) -> Entry {
    Entry { term, ..entry(index, 2_500) }
}

/// What was acknowledged before the disk failed.
struct Before {
    entries: Vec<Entry>,
    /// Of what had been queued behind it.
    term: u64,
    metrics: Metrics,
}

/// Runs the history until the disk fails, which it does after `cut` operations.
fn scripted(disk: &SimDisk, cut: u64, backend: Backend) -> Before {
    disk.fail_after(cut);
    let mut before = Before { entries: Vec::new(), term: 1, metrics: Metrics::default() };
    let Ok((journal, _)) = Journal::open(JournalConfig { backend, ..tiny() }, Arc::new(disk.clone())) else {
        return before;
    };
    history(&journal, &mut before, || disk.operations() > cut);
    // Reads go on, and give what was acknowledged from wherever its rows are.
    let first = usize::try_from(journal.entries(STREAM).start).unwrap();
    assert!(read_all(&journal, STREAM).starts_with(before.entries.get(first..).unwrap_or_default()));
    before.metrics = journal.metrics();
    before
}

/// `None` when something was not acknowledged.
fn history(journal: &Journal, before: &mut Before, is_failing: impl Fn() -> bool) -> Option<()> {
    let sidecars = || {
        let all = || journal.usage().files.iter().all(|file| file.current || file.sidecar);
        until("sidecars are written", || is_failing() || all());
    };
    append_each(journal, before, 0..60)?;
    sidecars();
    let (done, answer) = waiter();
    let cut_off = journal.truncate_after(STREAM, Some(CUT_OFF_FROM - 1), done);
    before.entries.truncate(usize::try_from(CUT_OFF_FROM).unwrap());
    cut_off.ok()?;
    answer.recv().unwrap().ok()?;
    before.term = 2;
    append_each(journal, before, CUT_OFF_FROM..70)?;
    journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: 18 });
    append_each(journal, before, 70..100)?;
    sidecars();
    Some(())
}

/// Appends them one at a time, or so many that their block is written in pieces.
fn append_each(journal: &Journal, before: &mut Before, mut indexes: std::ops::Range<u64>) -> Option<()> {
    while !indexes.is_empty() {
        let many = if indexes.start.is_multiple_of(10) { 6 } else { 1 };
        let part = indexes.start..indexes.end.min(indexes.start + many);
        let entries: Vec<_> = part.clone().map(|index| scripted_entry(index, before.term)).collect();
        let (done, answer) = waiter();
        journal.append(STREAM, entries.clone(), done).ok()?;
        answer.recv().unwrap().ok()?;
        before.entries.extend(entries);
        indexes.start = part.end;
    }
    Some(())
}

#[test]
fn nothing_acknowledged_is_lost_by_a_cut_at_any_operation() {
    nothing_is_lost(Backend::Pwrite);
}

#[test]
fn nothing_acknowledged_past_the_page_cache_is_lost_by_a_cut_at_any_operation() {
    nothing_is_lost(Backend::Direct);
}

fn nothing_is_lost(backend: Backend) {
    let whole = SimDisk::new();
    let before = scripted(&whole, u64::MAX / 2, backend);
    assert_eq!(before.entries.len(), 100);
    assert!(before.metrics.evicted_rows > 60 && before.metrics.sidecar_reads > 0, "{:?}", before.metrics);
    let operations = whole.operations();
    let mut evicted = 0;
    for cut in 0..operations {
        let disk = SimDisk::new();
        let Before { entries, term, .. } = scripted(&disk, cut, backend);
        for seed in 0..3 {
            let crashed = || disk.after_crash(cut * 31 + seed);
            let opened = |disk, config| {
                Journal::open(config, Arc::new(disk))
                    .unwrap_or_else(|error| panic!("cut {cut} seed {seed}: {error}"))
            };
            let crashed_once = crashed();
            let (journal, found) = opened(crashed_once.clone(), tiny());
            let range = journal.entries(STREAM);
            let acknowledged = entries.len() as u64;
            assert!(
                range.end >= acknowledged && range.start <= 19,
                "cut {cut} seed {seed}: {range:?}, {acknowledged} acknowledged, {found:?}"
            );
            let read = read_all(&journal, STREAM);
            for read in &read {
                let expected = usize::try_from(read.index).ok().and_then(|index| entries.get(index)).cloned();
                let expected = expected.unwrap_or_else(|| scripted_entry(read.index, term));
                assert_eq!(*read, expected, "cut {cut} seed {seed}");
            }
            // The same disk with all rows in memory: no sidecar changes what is found.
            let (in_memory, same) = opened(crashed(), config());
            assert_eq!((&same, in_memory.metrics().evicted_rows), (&found, 0), "cut {cut} seed {seed}");
            assert_eq!(read_all(&in_memory, STREAM), read, "cut {cut} seed {seed}");
            let metrics = journal.metrics();
            assert_eq!(metrics.sidecar_misses, 0, "cut {cut} seed {seed}");
            evicted += u64::from(metrics.evicted_rows > 0);
            append(&journal, STREAM, vec![entry(range.end, 100)]).unwrap();
            drop(journal);
            let (again, _) = opened(crashed_once, tiny());
            assert_eq!(again.entries(STREAM), range.start..range.end + 1, "cut {cut} seed {seed}");
        }
    }
    assert!(evicted > operations, "rows left memory after most of {operations} cuts: {evicted} times");
}

/// Without syncs a cut may lose what was acknowledged, but it leaves a prefix that opens.
#[test]
fn a_journal_that_does_not_sync_opens_after_a_cut_at_any_operation() {
    let index_bytes_max = 16 * crate::index::ROW_BYTES;
    let config = || JournalConfig { sync: SyncMode::Os, index_bytes_max, ..config() };
    let run = |disk: &SimDisk| {
        let Ok((journal, _)) = Journal::open(config(), Arc::new(disk.clone())) else { return };
        for index in 0..110u64 {
            let (done, answer) = waiter();
            let queued = journal.append(STREAM, vec![entry(index, 12_000)], done);
            if queued.is_err() || answer.recv().unwrap().is_err() {
                return;
            }
            if index % 10 == 9 {
                journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: index - 5 });
            }
        }
    };
    let whole = SimDisk::new();
    run(&whole);
    let spare = "a freed file is written again: its old name must not show its new bytes";
    let files = whole.list(Path::new("/journal/wal")).unwrap();
    let numbers = files.iter().filter_map(|file| file.name.strip_suffix(".wal"));
    let numbers: Vec<_> = numbers.map(|number| u64::from_str_radix(number, 16).unwrap()).collect();
    assert!(numbers.iter().max().unwrap() / 2 > numbers.len() as u64, "{spare}: {numbers:?}");
    for cut in 0..whole.operations() {
        let disk = SimDisk::new();
        disk.fail_after(cut);
        run(&disk);
        for seed in 0..4 {
            let survived = disk.after_crash(cut * 31 + seed);
            let (journal, _) = Journal::open(config(), Arc::new(survived))
                .unwrap_or_else(|error| panic!("cut {cut} seed {seed}: {error}"));
            for read in read_all(&journal, STREAM) {
                assert_eq!(read, entry(read.index, 12_000), "cut {cut} seed {seed}");
            }
        }
    }
}
