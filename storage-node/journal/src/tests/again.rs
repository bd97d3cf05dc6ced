//! Several lives of one journal, each ended by a disk that fails and a machine that loses power: at any operation, also
//! of an opening. What one life found, or was told is durable, all later ones find.

use std::collections::BTreeMap;

use super::recycled::forging_that_says;
use super::*;

/// What is asked of a journal in one life.
#[derive(Debug, Clone)]
struct Life {
    backend: Backend,
    sync: SyncMode,
    /// Lone appends are written by who appends them, whenever that may be.
    is_eager: bool,
    /// Rows of entries leave memory for sidecars.
    is_small: bool,
    /// Operations of the disk before it fails; most openings take fewer.
    cut: u64,
    seed: u64,
    steps: Vec<Step>,
}

#[derive(Debug, Clone)]
enum Step {
    Append,
    /// A block that is written in pieces.
    AppendLarge,
    /// Its pages look like blocks of the current file, or one of the next, that say that all before them was synced.
    AppendForging(u64),
    /// All but the newest entries go with the next commit.
    Purge,
    /// The newest entries go.
    Truncate(u64),
    Flush,
}

fn lives() -> impl Strategy<Value = Vec<Life>> {
    let step = prop_oneof![
        12 => Just(Step::Append),
        4 => Just(Step::AppendLarge),
        6 => (0u64..3).prop_map(Step::AppendForging),
        2 => Just(Step::Purge),
        2 => (1u64..4).prop_map(Step::Truncate),
        2 => Just(Step::Flush),
    ];
    let backend = prop_oneof![Just(Backend::Pwrite), Just(Backend::Direct)];
    let sync = prop_oneof![3 => Just(SyncMode::Always), 1 => Just(SyncMode::Os)];
    let steps = proptest::collection::vec(step, 0..30);
    let life = (backend, sync, any::<(bool, bool)>(), 0u64..90, any::<u64>(), steps);
    let life = life.prop_map(|(backend, sync, (is_eager, is_small), cut, seed, steps)| Life {
        backend,
        sync,
        is_eager,
        is_small,
        cut,
        seed,
        steps,
    });
    proptest::collection::vec(life, 2..6)
}

/// What later lives must find, and what they may.
#[derive(Debug, Default)]
struct Known {
    /// The log as it was asked for.
    entries: BTreeMap<u64, Entry>,
    /// Entries below it are durable, ...
    durable_end: u64,
    /// ... but for those that may be purged.
    purged_to: u64,
    /// Entries that were cut off, or that nobody was told of: they may be there.
    doubtful: Vec<Entry>,
}

impl Known {
    /// Compares a journal that was opened with what is known, and knows from then on what it holds.
    fn check(&mut self, journal: &Journal, at: &str) {
        let range = journal.entries(STREAM);
        assert!(range.start <= self.purged_to, "{at}: {range:?}, purged to {}", self.purged_to);
        assert!(range.end >= self.durable_end, "{at}: {range:?}, durable to {}", self.durable_end);
        let found = read_all(journal, STREAM);
        for entry in &found {
            let is_known = self.entries.get(&entry.index) == Some(entry);
            let may_be = entry.index >= self.durable_end && self.doubtful.contains(entry);
            assert!(is_known || may_be, "{at}: entry {} of {range:?} is of term {}", entry.index, entry.term);
        }
        self.entries = found.into_iter().map(|entry| (entry.index, entry)).collect();
        self.is_durable(range.end);
    }

    fn is_durable(&mut self, end: u64) {
        self.durable_end = end;
        self.doubtful.clear();
    }

    fn truncate(&mut self, end: u64) {
        self.doubtful.extend(self.entries.split_off(&end).into_values());
        self.durable_end = self.durable_end.min(end);
    }
}

/// Asks for one step; false if it was refused or failed.
fn step(journal: &Journal, term: u64, step: &Step, known: &mut Known) -> bool {
    let range = journal.entries(STREAM);
    let (index, file) = (range.end, journal.usage().files.last().unwrap().file);
    let (done, answer) = waiter();
    let entry = match step {
        Step::Append => entry(index, 100),
        Step::AppendLarge => entry(index, 25_000),
        Step::AppendForging(ahead) => {
            let file = FileSeq(file.0 + ahead);
            forging_that_says(index, file, Lsn::new(file, u32::MAX))
        }
        Step::Purge if index < range.start + 4 => return true,
        Step::Purge => {
            known.purged_to = known.purged_to.max(index - 2);
            journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: index - 3 });
            return true;
        }
        Step::Truncate(back) => {
            let end = index.saturating_sub(*back).max(range.start);
            known.truncate(end);
            return journal.truncate_after(STREAM, end.checked_sub(1), done).is_ok()
                && answer.recv().unwrap().is_ok();
        }
        Step::Flush => {
            return journal.flush(STREAM, done).is_ok() && answer.recv().unwrap().is_ok();
        }
    };
    let entry = Entry { term, ..entry };
    known.doubtful.push(entry.clone());
    let is_told = journal.append(STREAM, vec![entry.clone()], done).is_ok() && answer.recv().unwrap().is_ok();
    if is_told {
        known.entries.insert(index, entry);
    }
    is_told
}

/// Opens the journal and goes on until the disk fails.
fn live(disk: &SimDisk, term: u64, life: &Life, known: &mut Known) {
    let at = format!("life {term}");
    disk.fail_after(life.cut);
    let inline_commit_max = if life.is_eager { Duration::from_secs(3_600) } else { Duration::ZERO };
    let index_bytes_max = if life.is_small { 16 * crate::index::ROW_BYTES } else { config().index_bytes_max };
    let (backend, sync) = (life.backend, life.sync);
    let config = JournalConfig { backend, sync, inline_commit_max, index_bytes_max, ..config() };
    let journal = match Journal::open(config, Arc::new(disk.clone())) {
        Ok((journal, _)) => journal,
        Err(OpenError::Io { .. }) => return,
        Err(error) => panic!("{at}: {error}"),
    };
    known.check(&journal, &at);
    for asked in &life.steps {
        if !step(&journal, term, asked, known) {
            return;
        }
        let is_synced = match life.sync {
            SyncMode::Always => !matches!(asked, Step::Purge),
            SyncMode::Os => matches!(asked, Step::Flush),
        };
        if is_synced {
            known.is_durable(journal.entries(STREAM).end);
        }
    }
}

proptest! {
    #[test]
    fn what_one_life_found_or_was_told_all_later_ones_find(lives in lives()) {
        let (mut disk, mut known) = (SimDisk::new(), Known::default());
        for (term, life) in (1..).zip(&lives) {
            live(&disk, term, life, &mut known);
            disk = disk.after_crash(life.seed);
        }
        let opened = Journal::open(config(), Arc::new(disk.clone()));
        let (journal, _) = opened.unwrap_or_else(|error| panic!("the last life: {error}"));
        known.check(&journal, "the last life");
    }
}
