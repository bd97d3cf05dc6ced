//! A close with a long queue behind it.

use super::*;

type Answer = mpsc::Receiver<Result<Synced, Arc<Failure>>>;

/// A journal of which the writer lets an hour pass before it takes what was queued: `count` appends.
fn queued(disk: &SimDisk, count: u64) -> (Journal, Vec<Answer>) {
    let config = JournalConfig { min_fsync_interval: Duration::from_secs(3600), ..config() };
    let (journal, _) = Journal::open(config, Arc::new(disk.clone())).unwrap();
    append(&journal, STREAM, vec![entry(0, 10)]).unwrap();
    let answers = (1..=count).map(|index| {
        let (done, answer) = waiter();
        journal.append(STREAM, vec![entry(index, 20_000)], done).unwrap();
        answer
    });
    let answers = answers.collect();
    (journal, answers)
}

#[test]
fn closing_writes_all_that_is_queued_over_as_many_files_as_it_takes() {
    let disk = SimDisk::new();
    let (journal, answers) = queued(&disk, 60);
    assert_eq!(journal.metrics().rotations, 0);
    journal.close();
    assert!(answers.iter().all(|answer| answer.recv().unwrap().is_ok()));
    assert!(journal.metrics().rotations > 2, "more than the one that is prepared: {:?}", journal.metrics());
    assert_eq!(open(&disk).0.entries(STREAM), 0..61);
}

#[test]
fn closing_on_a_full_disk_writes_what_fits_and_answers_everybody() {
    let disk = SimDisk::new();
    let (journal, answers) = queued(&disk, 60);
    disk.fill();
    journal.close();
    let written = answers.iter().take_while(|answer| answer.recv().unwrap().is_ok()).count();
    assert!((5..40).contains(&written), "{written} fit the file and the one that is prepared");
    for answer in &answers[written + 1..] {
        assert!(matches!(*answer.recv().unwrap().unwrap_err(), Failure::Closed));
    }
    disk.make_room();
    assert_eq!(open(&disk).0.entries(STREAM), 0..written as u64 + 1);
}
