//! What makes room is let in, whatever was left of files that have ended.

use super::*;

fn of(index: u64, bytes: usize) -> Entry {
    Entry { payload: vec![b'x'; bytes].into(), ..entry(index, 0) }
}

/// Appends `count` entries of `bytes` each together, as long as they are let in; how often that was.
fn fill(journal: &Journal, class: Class, (count, bytes): (u64, usize)) -> u64 {
    for times in 0..2_000 {
        until("the file keeper has tried", || journal.knows_of_next_file());
        // A block is padded to 4 KiB.
        let admitted = (count * bytes as u64 + 200).next_multiple_of(4_096);
        let Ok(_permit) = journal.try_admit(admitted, class) else { return times };
        let end = journal.entries(STREAM).end;
        append(journal, STREAM, (end..end + count).map(|index| of(index, bytes)).collect()).unwrap();
    }
    panic!("the journal must fill up");
}

fn there_is_room_to_make_room(config: JournalConfig, fills: &[(Class, (u64, usize))]) {
    let reserve = config.control_reserve_bytes;
    let (journal, _) = Journal::open(config, Arc::new(SimDisk::new())).unwrap();
    for (class, entries) in fills {
        assert!(fill(&journal, *class, *entries) > 0, "{class:?}");
    }
    assert!(journal.try_admit(4_096, Class::Control).is_err());
    for _ in 0..reserve / 4 / 4_096 {
        let permit = journal.try_admit(4_096, Class::Relief);
        let _permit = permit.expect("or there is never room again");
        append(&journal, STREAM, vec![of(journal.entries(STREAM).end, 1_000)]).unwrap();
    }
    let index = journal.entries(STREAM).end - 1;
    journal.note_purged(STREAM, LogPosition { term: 1, leader: 1, index });
    let (done, answer) = waiter();
    journal.flush(STREAM, done).unwrap();
    answer.recv().unwrap().unwrap();
    until("what was purged is free", || journal.try_admit(8_192, Class::Data).is_ok());
}

#[test]
fn what_a_large_block_leaves_of_a_file_takes_nothing_from_what_makes_room() {
    // What is for settles begins in the second file and ends in the third.
    let config =
        JournalConfig { max_bytes: (2 * 256 + 24) << 10, control_reserve_bytes: 64 << 10, ..config() };
    let fills = [(Class::Data, (1, 3_000)), (Class::Control, (1, 30_000)), (Class::Control, (1, 14_000))];
    there_is_room_to_make_room(config, &fills);
}

#[test]
fn what_the_index_has_no_memory_for_takes_nothing_from_what_makes_room() {
    // A file has place for 15 blocks, and ends after three of 40 entries.
    let config = JournalConfig {
        max_bytes: 4 * (64 << 10),
        control_reserve_bytes: 32 << 10,
        index_bytes_max: 200 * crate::index::ROW_BYTES,
        ..tiny()
    };
    there_is_room_to_make_room(config, &[(Class::Few, (40, 20))]);
}
