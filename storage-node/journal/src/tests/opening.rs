//! An opening that does not come to its end.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::Builder;

use super::*;
use crate::disk::OpenMode;
use crate::format::FileHeader;

const WAIT: Duration = Duration::from_secs(20);

#[test]
fn an_opening_that_is_given_up_costs_nothing() {
    let disk = SimDisk::new();
    let journal = open(&disk).0;
    append(&journal, STREAM, (0..50).map(|index| entry(index, 20_000)).collect()).unwrap();
    drop(journal);
    let given_up = Journal::open_unless(config(), Arc::new(disk.clone()), &AtomicBool::new(true));
    assert!(matches!(given_up, Err(OpenError::GivenUp)), "{given_up:?}");
    assert_eq!(open(&disk).0.entries(STREAM), 0..50);
}

#[test]
fn a_thread_that_cannot_be_had_ends_the_opening_and_those_that_run() {
    let disk = SimDisk::new();
    for had in 0..2 {
        let (left, (tell, told)) = (AtomicU32::new(had), mpsc::channel());
        let spawn = |name: &str, run: Box<dyn FnOnce() + Send>| {
            if left.fetch_sub(1, Ordering::Relaxed) == 0 {
                return Err(std::io::ErrorKind::WouldBlock.into());
            }
            let tell = tell.clone();
            Builder::new().name(name.to_owned()).spawn(move || {
                run();
                tell.send(()).unwrap();
            })
        };
        let opened = Journal::open_with(config(), Arc::new(disk.clone()), &AtomicBool::new(false), &spawn);
        assert!(matches!(opened, Err(OpenError::Io { .. })), "{opened:?}");
        for _ in 0..had {
            told.recv_timeout(WAIT).expect("it waits for ever");
        }
        drop(open(&disk));
    }
}

/// The one that was taken and not begun, and the one that was prepared behind it.
#[test]
fn an_opening_that_is_cut_while_it_puts_prepared_files_away_leaves_no_hole() {
    let disk = SimDisk::new();
    let journal = open(&disk).0;
    append(&journal, STREAM, (0..8).map(|index| entry(index, 20_000)).collect()).unwrap();
    until("the next file is there", || journal.knows_of_next_file());
    journal.close();
    let [second, third] =
        [2, 3].map(|number| PathBuf::from(format!("/journal/wal/000000000000000{number}.wal")));
    let mut bytes = vec![0; 256 << 10];
    disk.open(&second, OpenMode::Read).unwrap().read_at(&mut bytes, 0).unwrap();
    let header = FileHeader { file: FileSeq(3), ..FileHeader::parse(&bytes).unwrap() };
    bytes[..4096].copy_from_slice(&header.encode());
    let prepared = disk.open(&third, OpenMode::Create).unwrap();
    prepared.write_at(&bytes, 0).unwrap();
    prepared.sync().unwrap();
    disk.sync_dir(Path::new("/journal/wal")).unwrap();
    for (cut, seed) in (0..12).flat_map(|cut| (0..6).map(move |seed| (cut, seed))) {
        let opening = disk.after_crash(0);
        opening.fail_after(cut);
        drop(Journal::open(config(), Arc::new(opening.clone())));
        let opened = Journal::open(config(), Arc::new(opening.after_crash(seed)));
        let (journal, _) = opened.unwrap_or_else(|error| panic!("cut {cut}, seed {seed}: {error}"));
        assert_eq!(journal.entries(STREAM), 0..8, "cut {cut}, seed {seed}");
    }
}
