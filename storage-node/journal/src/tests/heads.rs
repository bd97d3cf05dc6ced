//! What the head of a file says of entries that lie in files before it.

use super::*;

#[test]
fn a_truncation_that_begins_a_file_is_understood_when_the_files_before_it_are_gone() {
    let disk = SimDisk::new();
    let (journal, _) = open(&disk);
    let mut end = 0;
    // Blocks of 4 KiB, until the file has no room for another.
    while journal.usage().files[0].used_bytes < u64::from(config().file_bytes) {
        append(&journal, STREAM, vec![entry(end, 3_000)]).unwrap();
        end += 1;
    }
    let (done, answer) = waiter();
    journal.truncate_after(STREAM, Some(end - 3), done).unwrap();
    answer.recv().unwrap().unwrap();
    assert_eq!(journal.metrics().rotations, 1, "the truncation is the first block of the next file");
    let replaced: Vec<_> = (end - 2..end + 4).map(|index| Entry { term: 2, ..entry(index, 100) }).collect();
    append(&journal, STREAM, replaced.clone()).unwrap();
    journal.note_purged(STREAM, LogPosition { term: 2, leader: 1, index: end });
    let (done, answer) = waiter();
    journal.flush(STREAM, done).unwrap();
    answer.recv().unwrap().unwrap();
    until("the first file is freed", || journal.metrics().recycled == 1);
    journal.close();
    let (journal, _) = open(&disk);
    assert_eq!(journal.entries(STREAM), end + 1..end + 4);
    assert_eq!(read_all(&journal, STREAM), replaced[3..]);
}
