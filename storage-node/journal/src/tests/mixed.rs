//! A cut at every operation of a history of everything that a journal is asked for: appends, votes, truncations,
//! lazy facts, of two streams, over several files, through both back ends.

use std::collections::BTreeMap;

use super::*;

const STREAMS: [StreamId; 2] = [StreamId(3), StreamId(9)];
const STEPS: u64 = 84;
/// From this step on neither votes nor metadata change: what is known of them is what the heads of files restate.
const SETTLED: u64 = 40;

fn small(backend: Backend) -> JournalConfig {
    JournalConfig { backend, file_bytes: 64 << 10, max_block_bytes: 16 << 10, ..config() }
}

/// What was asked of one stream.
#[derive(Debug, Clone, Default, PartialEq)]
struct Asked {
    /// Terms of its entries by index; what a purge removed is among them.
    terms: Vec<u64>,
    vote: Option<Bytes>,
    /// First entry that a purge left.
    first: u64,
    committed: Option<LogPosition>,
    meta: Option<Bytes>,
}

type History = BTreeMap<StreamId, Asked>;

/// What must be there after a cut, and what may be there instead: one operation was on its way.
#[derive(Debug, Default)]
struct Outcome {
    answered: History,
    asked: History,
    is_whole: bool,
}

fn of_term(term: u64, index: u64) -> Entry {
    Entry { term, ..entry(index, 1_500 + 700 * usize::try_from(index % 5).unwrap()) }
}

/// Changes the stream as step `n` of the script does; false if there was nothing to ask.
fn step(journal: &Journal, n: u64, asked: &mut Asked, done: Completion) -> Result<(), AppendError> {
    let stream = STREAMS[usize::try_from(n % 2).unwrap()];
    let end = asked.terms.len() as u64;
    match n % 12 {
        3 | 8 if n < SETTLED => {
            let vote = Bytes::from(format!("vote {n}"));
            asked.vote = Some(vote.clone());
            journal.save_vote(stream, vote, done)
        }
        // Another leader: the newest entries go, and entries of a later term take their places below.
        6 | 11 if end > asked.first + 2 => {
            asked.terms.truncate(asked.terms.len() - 2);
            journal.truncate_after(stream, (end - 2).checked_sub(1), done)
        }
        _ => {
            let entries: Vec<_> = (end..end + 1 + n % 3).map(|index| of_term(1 + n, index)).collect();
            asked.terms.extend(entries.iter().map(|entry| entry.term));
            journal.append(stream, entries, done)
        }
    }
}

/// Notes what rides in the next commit, whosever it is.
fn note(journal: &Journal, n: u64, stream: StreamId, asked: &mut Asked) {
    let at =
        |index: u64| LogPosition { term: asked.terms[usize::try_from(index).unwrap()], leader: 1, index };
    let end = asked.terms.len() as u64;
    if n % 3 == 1 && n < STEPS - 20 && end > 0 {
        asked.committed = Some(at(end - 1));
        journal.note_committed(stream, at(end - 1));
    }
    if n % 5 == 4 && end > asked.first + 6 {
        let purged = at(end - 4);
        asked.first = purged.index + 1;
        journal.note_purged(stream, purged);
    }
    if n % 9 == 5 && n < SETTLED {
        let meta = Bytes::from(format!("meta {n}"));
        asked.meta = Some(meta.clone());
        journal.note_meta(stream, meta);
    }
}

/// Runs the script until the disk fails; every step is answered before the next one is asked.
fn scripted_mix(disk: &SimDisk, backend: Backend) -> Outcome {
    let mut outcome = Outcome::default();
    let Ok((journal, _)) = Journal::open(small(backend), Arc::new(disk.clone())) else { return outcome };
    for n in 0..STEPS {
        let stream = STREAMS[usize::try_from(n % 2).unwrap()];
        let (done, answer) = waiter();
        let asked = outcome.asked.entry(stream).or_default();
        if step(&journal, n, asked, done).is_err() || answer.recv().unwrap().is_err() {
            return outcome;
        }
        // Answered: so are the facts that were noted before it.
        outcome.answered.clone_from(&outcome.asked);
        note(&journal, n, stream, outcome.asked.get_mut(&stream).unwrap());
    }
    until("files are recycled", || journal.metrics().recycled > 2);
    outcome.is_whole = true;
    outcome
}

fn same_entries(journal: &Journal, stream: StreamId, asked: &Asked) -> bool {
    journal.entries(stream).end == asked.terms.len() as u64
        && read_all(journal, stream)
            .iter()
            .all(|read| *read == of_term(asked.terms[usize::try_from(read.index).unwrap()], read.index))
}

fn check(at: &str, journal: &Journal, found: &Recovered, outcome: &Outcome) {
    for stream in STREAMS {
        let told = outcome.answered.get(&stream).cloned().unwrap_or_default();
        let maybe = outcome.asked.get(&stream).cloned().unwrap_or_default();
        let there = found.streams.get(&stream);
        let entries = journal.entries(stream);
        assert!(
            same_entries(journal, stream, &told) || same_entries(journal, stream, &maybe),
            "{at}: stream {stream} has {entries:?}; {told:?} was answered, {maybe:?} was asked"
        );
        assert!((told.first..=maybe.first).contains(&entries.start), "{at}: {entries:?}, {told:?}");
        let vote = there.and_then(|there| there.vote.clone());
        assert!([&told.vote, &maybe.vote].contains(&&vote), "{at}: {vote:?}, {told:?}");
        let committed = there.and_then(|there| there.committed);
        assert!([told.committed, maybe.committed].contains(&committed), "{at}: {committed:?}, {told:?}");
        let meta = there.and_then(|there| there.meta.clone());
        assert!([&told.meta, &maybe.meta].contains(&&meta), "{at}: {meta:?}, {told:?}");
    }
}

fn holds_at_every_cut(backend: Backend) {
    let whole = SimDisk::new();
    assert!(scripted_mix(&whole, backend).is_whole);
    for cut in 0..whole.operations() {
        let disk = SimDisk::new();
        disk.fail_after(cut);
        let outcome = scripted_mix(&disk, backend);
        for seed in 0..3 {
            let at = format!("{backend:?} cut {cut} seed {seed}");
            let survived = disk.after_crash(cut * 31 + seed);
            let (journal, found) = Journal::open(small(backend), Arc::new(survived))
                .unwrap_or_else(|error| panic!("{at}: {error}"));
            check(&at, &journal, &found, &outcome);
            for stream in STREAMS {
                append(&journal, stream, vec![of_term(1_000, journal.entries(stream).end)]).unwrap();
            }
        }
    }
}

#[test]
fn nothing_answered_of_a_mixed_history_is_lost_by_a_cut_at_any_operation() {
    holds_at_every_cut(Backend::Pwrite);
}

#[test]
fn nothing_answered_of_a_mixed_history_is_lost_through_the_direct_back_end() {
    holds_at_every_cut(Backend::Direct);
}
