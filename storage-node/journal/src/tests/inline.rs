//! Lone appends, which are written by who appends them.

use std::thread::{self, ThreadId};

use super::*;

/// Everything that may be is written by who appends it, as soon as the journal rests.
fn eager() -> JournalConfig {
    let (file_bytes, max_bytes) = (1 << 20, 8 << 20);
    JournalConfig { inline_commit_max: Duration::from_secs(3600), file_bytes, max_bytes, ..config() }
}

fn open_eager(disk: &SimDisk) -> (Journal, u64) {
    let (journal, _) = Journal::open(eager(), Arc::new(disk.clone())).unwrap();
    // What commits take is known then, and that they are lone.
    for index in 0..8 {
        append(&journal, STREAM, vec![entry(index, 10)]).unwrap();
    }
    // From now on only commits use the disk, until the file is full.
    until("the next file is there", || journal.knows_of_next_file());
    (journal, 8)
}

type Answer = mpsc::Receiver<(ThreadId, Result<Synced, Arc<Failure>>)>;

/// Who answers, and what.
fn told() -> (Completion, Answer) {
    let (tx, rx) = mpsc::channel();
    (Box::new(move |outcome| drop(tx.send((thread::current().id(), outcome)))), rx)
}

/// Appends until one is written by this thread; the next index.
fn append_inline(journal: &Journal, first: u64) -> u64 {
    for index in first..first + 10_000 {
        let (done, answer) = told();
        journal.append(STREAM, vec![entry(index, 10)], done).unwrap();
        let is_durable = journal.is_written(STREAM, index);
        let (who, outcome) = answer.recv().unwrap();
        assert_eq!(outcome.unwrap().durable_index_end, Some(index + 1));
        if who == thread::current().id() {
            assert!(is_durable, "when append returns");
            return index + 1;
        }
    }
    panic!("no append was written by who appended it: {:?}", journal.metrics());
}

#[test]
fn a_lone_append_is_durable_when_it_returns() {
    let disk = SimDisk::new();
    let (journal, next) = open_eager(&disk);
    let next = append_inline(&journal, next);
    assert!(journal.metrics().inline_commits >= 1 && journal.is_written(STREAM, next - 1));
    let expected: Vec<_> = (0..next).map(|index| entry(index, 10)).collect();
    assert_eq!(read_all(&journal, STREAM), expected);
    let (after, _) = open(&disk.after_crash(7));
    assert_eq!(read_all(&after, STREAM), expected);
}

#[test]
fn what_comes_meanwhile_is_the_writers() {
    let disk = SimDisk::new();
    let (journal, mut next) = open_eager(&disk);
    let lone = |index: u64| {
        let (done, answer) = told();
        journal.append(STREAM, vec![entry(index, 10)], done).unwrap();
        answer
    };
    for _ in 0..100 {
        next = append_inline(&journal, next) + 2;
        let before = journal.metrics().inline_commits;
        disk.stall_syncs();
        let (first, second) = thread::scope(|scope| {
            let first = scope.spawn(|| (thread::current().id(), lone(next - 2)));
            until("it is queued", || journal.entries(STREAM).end == next - 1);
            until("the disk is waited for", || disk.is_waited_for());
            // Ends at once, whoever waits for the disk.
            let second = lone(next - 1);
            disk.go_on();
            (first.join().unwrap(), second)
        });
        let ((who, first), second) = (first, second.recv().unwrap());
        let first = first.recv().unwrap();
        assert!(first.1.is_ok() && second.1.is_ok());
        assert!(second.0 != who && second.0 != thread::current().id(), "the writer answers it");
        if journal.metrics().inline_commits > before {
            assert_eq!(first.0, who);
            return;
        }
    }
    panic!("none was written by who appended it: {:?}", journal.metrics());
}

/// Runs `case` on new journals until it says that its append was written by who appended it.
fn until_inline(case: impl Fn(&SimDisk, &Journal, u64) -> bool) {
    let tries = (0..100).any(|_| {
        let disk = SimDisk::new();
        let (journal, next) = open_eager(&disk);
        let next = append_inline(&journal, next);
        until("the journal rests", || journal.rests());
        case(&disk, &journal, next)
    });
    assert!(tries, "none was written by who appended it");
}

/// The journal takes nothing more, can be closed, and is read.
fn has_failed(journal: &Journal, next: u64) {
    let refused = journal.append(STREAM, vec![entry(next, 10)], Box::new(|_| {}));
    assert!(matches!(refused, Err(AppendError::Failed(_))));
    journal.close();
    assert_eq!(journal.read_entries(STREAM, 0..1, 100).unwrap(), [entry(0, 10)], "reads go on");
}

#[test]
fn a_disk_that_fails_under_it_fails_the_journal() {
    until_inline(|disk, journal, next| {
        disk.fail_syncs();
        let (done, answer) = told();
        journal.append(STREAM, vec![entry(next, 10)], done).unwrap();
        let (who, outcome) = answer.recv().unwrap();
        assert!(Arc::ptr_eq(&outcome.unwrap_err(), &journal.failure().unwrap()));
        has_failed(journal, next + 1);
        who == thread::current().id()
    });
}

#[test]
fn an_answer_that_panics_fails_the_journal_and_not_who_appends() {
    until_inline(|_, journal, next| {
        let (tx, rx) = mpsc::channel();
        let done: Completion = Box::new(move |_| {
            tx.send(thread::current().id()).unwrap();
            panic!("an answer that panics");
        });
        journal.append(STREAM, vec![entry(next, 10)], done).unwrap();
        let who = rx.recv().unwrap();
        until("it has failed", || journal.failure().is_some());
        assert!(matches!(*journal.failure().unwrap(), Failure::WriterLost));
        has_failed(journal, next + 1);
        who == thread::current().id()
    });
}

#[test]
fn an_answer_may_append_and_close() {
    until_inline(|disk, journal, next| {
        let (tx, rx) = mpsc::channel();
        let again = journal.clone();
        let done: Completion = Box::new(move |outcome| {
            outcome.unwrap();
            let (done, answer) = told();
            again.append(STREAM, vec![entry(next + 1, 10)], done).unwrap();
            again.close();
            tx.send((thread::current().id(), answer)).unwrap();
        });
        journal.append(STREAM, vec![entry(next, 10)], done).unwrap();
        let (who, answer) = rx.recv().unwrap();
        // Whoever closes from within an answer does not wait for what is queued.
        assert!(matches!(*answer.recv().unwrap().1.unwrap_err(), Failure::Closed));
        assert_eq!(open(disk).0.entries(STREAM), 0..next + 1);
        who == thread::current().id()
    });
}

#[test]
fn who_closes_waits_for_it() {
    until_inline(|disk, journal, next| {
        disk.stall_syncs();
        thread::scope(|scope| {
            let appends = scope.spawn(|| {
                let (done, answer) = told();
                journal.append(STREAM, vec![entry(next, 10)], done).unwrap();
                (thread::current().id(), answer.recv().unwrap())
            });
            until("it is queued", || journal.entries(STREAM).end == next + 1);
            until("the disk is waited for", || disk.is_waited_for());
            let (tx, closed) = mpsc::channel();
            let closes = journal.clone();
            // Not of the scope, which would wait for one that waits for ever.
            thread::spawn(move || {
                closes.close();
                tx.send(())
            });
            assert!(closed.recv_timeout(Duration::from_millis(5)).is_err(), "it is still being written");
            disk.go_on();
            closed.recv_timeout(Duration::from_secs(20)).expect("closed when it is written");
            let (own, (who, outcome)) = appends.join().unwrap();
            assert!(outcome.is_ok());
            own == who
        })
    });
}

#[test]
fn nothing_acknowledged_is_lost_by_a_cut_at_any_operation() {
    for backend in [Backend::Pwrite, Backend::Direct] {
        let (whole, mut inline) = (SimDisk::new(), 0);
        assert_eq!(appended(&whole, backend, &mut inline), 60);
        for cut in 0..whole.operations() {
            let disk = SimDisk::new();
            disk.fail_after(cut);
            let acknowledged = appended(&disk, backend, &mut inline);
            let (journal, found) = open(&disk.after_crash(cut));
            let range = journal.entries(STREAM);
            assert!(range.end >= acknowledged, "cut {cut}: {range:?}, {acknowledged}, {found:?}");
            let expected: Vec<_> = range.map(|index| entry(index, 100)).collect();
            assert_eq!(read_all(&journal, STREAM), expected, "cut {cut}");
        }
        assert!(inline > 20, "{backend:?}: {inline} were written by who appended them");
    }
}

/// How many of 60 lone appends are acknowledged before the disk fails.
fn appended(disk: &SimDisk, backend: Backend, inline: &mut u64) -> u64 {
    let config = JournalConfig { backend, ..eager() };
    let Ok((journal, _)) = Journal::open(config, Arc::new(disk.clone())) else { return 0 };
    let append = |index: &u64| {
        // Some by who appends them however busy this machine is, some by the writer.
        if index % 4 == 3 {
            until("the journal rests", || journal.rests() || journal.failure().is_some());
        }
        let (done, answer) = waiter();
        let queued = journal.append(STREAM, vec![entry(*index, 100)], done).is_ok();
        queued && answer.recv().unwrap().is_ok()
    };
    let acknowledged = (0..60).take_while(append).count() as u64;
    *inline += journal.metrics().inline_commits;
    acknowledged
}
