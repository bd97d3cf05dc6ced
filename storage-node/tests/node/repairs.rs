//! Damage that is cut off, and repairs that are interrupted.

use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use weir_journal::Disk;
use weir_journal::disk::OpenMode;
use weir_journal::disk::sim::SimDisk;
use weir_storage_node::{Node, NodeRepair, Surroundings};
use weir_transport::Link;

use crate::client::{batch, config, connect, create, publish, settings};

const DIR: &str = "/data";
const FILE: &str = "/data/wal/0000000000000001.wal";
const MESSAGES: u64 = 30;

fn look(disk: &SimDisk) -> Option<NodeRepair> {
    let disk: Arc<dyn Disk> = Arc::new(disk.clone());
    NodeRepair::look(Path::new(DIR), &disk).unwrap()
}

fn around(disk: &SimDisk) -> Surroundings {
    Surroundings { disk: Arc::new(disk.clone()), ..Surroundings::default() }
}

fn value(n: u64) -> String {
    format!("message {n:03} {}", "x".repeat(3_000))
}

/// A node that was stopped, with a checkpoint of each shard behind a message that does not hold; its topic's life.
async fn damaged() -> (SimDisk, u64) {
    let disk = SimDisk::new();
    let node = Node::start_in(settings(Path::new(DIR)), around(&disk)).await.unwrap();
    let link: Link = connect(&node);
    let life = create(&link, "orders", config()).await;
    for n in 0..MESSAGES {
        publish(&link, life, &batch(0, 0, &[&value(n)])).await.unwrap();
    }
    node.shutdown(Duration::from_secs(20)).await;
    let file = disk.open(Path::new(FILE), OpenMode::Read).unwrap();
    let mut bytes = vec![0; usize::try_from(file.len().unwrap()).unwrap()];
    file.read_at(&mut bytes, 0).unwrap();
    let needle = value(MESSAGES / 2).into_bytes();
    let at = bytes.windows(needle.len()).position(|window| window == needle).unwrap();
    disk.flip_bit(Path::new(FILE), at, 1);
    (disk.after_crash(0), life)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_repair_that_is_interrupted_anywhere_can_be_run_again_and_the_node_starts() {
    let (disk, life) = damaged().await;
    let whole = disk.after_crash(0);
    let before = whole.operations();
    look(&whole).unwrap().truncate().unwrap();
    let operations = whole.operations() - before;
    let mut unfinished = 0;
    for cut in (0..operations).step_by(2) {
        let failing = disk.after_crash(cut);
        failing.fail_after(cut);
        // That it failed is told; where it was done by then the rest was not needed.
        drop(look(&failing).unwrap().truncate());
        let again = failing.after_crash(cut);
        if let Some(repair) = look(&again) {
            unfinished += usize::from(repair.cut().is_none());
            repair.truncate().unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        }
        assert!(look(&again).is_none(), "cut {cut}");
        let node = Node::start_in(settings(Path::new(DIR)), around(&again)).await;
        let node = node.unwrap_or_else(|error| panic!("cut {cut}: {error}"));
        let placed = publish(&connect(&node), life, &batch(0, 0, &["new"])).await.unwrap();
        assert_eq!(placed.base_offset, MESSAGES, "cut {cut}: offsets that were given are not given again");
        node.shutdown(Duration::from_secs(20)).await;
    }
    assert!(unfinished > 0, "of {operations}, some lie between the cut and what is filled");
}
