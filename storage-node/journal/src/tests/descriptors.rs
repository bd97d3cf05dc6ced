//! A process that may open no more files: nothing was written, so nothing has failed.

use super::*;

/// Fills the journal until the writer would need a file that cannot be prepared.
fn filled(journal: &Journal, from: u64) -> (u64, Full) {
    for index in from.. {
        until("the file keeper has tried", || journal.knows_of_next_file());
        match journal.try_admit(20_000, Class::Data) {
            Ok(_permit) => append(journal, STREAM, vec![entry(index, 20_000)]).unwrap(),
            Err(full) => return (index, full),
        };
        assert!(index < from + 60, "there is no end to it");
    }
    unreachable!("it ends by refusing")
}

#[test]
fn a_journal_without_descriptors_refuses_and_goes_on_when_there_are_some_again() {
    for backend in [Backend::Pwrite, Backend::Direct] {
        let disk = SimDisk::new();
        let config = JournalConfig { backend, max_bytes: 16 << 20, ..config() };
        let (journal, _) = Journal::open(config.clone(), Arc::new(disk.clone())).unwrap();
        until("the next file is ready", || journal.knows_of_next_file());
        append(&journal, STREAM, vec![entry(0, 100)]).unwrap();
        let mut next = 1;
        for round in 0..3 {
            disk.refuse_opens(true);
            let (index, full) = filled(&journal, next);
            assert!(matches!(full, Full::Descriptors { .. }), "round {round}: {full:?}");
            assert!(index > next + 5, "what was prepared before is used up first: {index} of {next}");
            assert!(journal.failure().is_none() && !journal.usage().disk_full);
            disk.refuse_opens(false);
            until("the next file is prepared", || journal.try_admit(20_000, Class::Data).is_ok());
            next = index;
            if round == 1 {
                // A spare that could not be opened is still one.
                journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index: next - 1 });
                append(&journal, STREAM, vec![entry(next, 100)]).unwrap();
                next += 1;
                until("files are freed", || journal.usage().files.len() <= 2);
            }
        }
        drop(journal);
        let (journal, _) = Journal::open(config, Arc::new(disk)).unwrap();
        assert_eq!(journal.entries(STREAM).end, next);
    }
}
