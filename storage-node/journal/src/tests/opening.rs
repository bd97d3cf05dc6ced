//! An opening that does not come to its end.

use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::thread::Builder;

use super::*;

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
