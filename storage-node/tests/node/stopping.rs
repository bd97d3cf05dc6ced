//! How long a node may take to stop.

use std::io;
use std::path::Path;
use std::sync::{Arc, Condvar, Mutex};
use std::time::{Duration, Instant};

use tokio::sync::watch;
use weir_journal::Disk;
use weir_journal::disk::sim::SimDisk;
use weir_journal::disk::{DirLock, DiskFile, FileName, LockError, OpenMode};
use weir_storage_node::{Node, NodeConfig, StartError, Surroundings};

use crate::client::{WAIT, batch, config, create, publish, read, settings, start_in};

/// A disk on which no checkpoint can be begun while it is held, and that has a start stopped which gets to
/// what is `awaited`.
#[derive(Debug, Clone, Default)]
struct SlowBlobs {
    disk: SimDisk,
    held: Arc<(Mutex<bool>, Condvar)>,
    awaited: &'static str,
    stop: watch::Sender<bool>,
}

impl SlowBlobs {
    fn hold(&self, is_held: bool) {
        *self.held.0.lock().unwrap() = is_held;
        self.held.1.notify_all();
    }
}

impl Disk for SlowBlobs {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        if mode == OpenMode::Create && path.parent().is_some_and(|dir| dir.ends_with("blobs")) {
            let held = self.held.0.lock().unwrap();
            drop(self.held.1.wait_while(held, |is_held| *is_held).unwrap());
        }
        if !self.awaited.is_empty() && path.to_string_lossy().contains(self.awaited) {
            self.stop.send_replace(true);
        }
        self.disk.open(path, mode)
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        self.disk.rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        self.disk.remove(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FileName>> {
        self.disk.list(dir)
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.make_dir(dir)
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        self.disk.sync_dir(dir)
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn DirLock>, LockError> {
        self.disk.lock(path, holder)
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_deadline_is_one_for_the_node_however_many_shards_it_has() {
    let disk = SlowBlobs::default();
    let around = || Surroundings { disk: Arc::new(disk.clone()), ..Surroundings::default() };
    let node_config = NodeConfig { data_shards: 24, ..settings(Path::new("/data")) };
    let (node, link) = start_in(node_config.clone(), around()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["kept"])).await.unwrap();
    drop(link);
    disk.hold(true);
    let begun = Instant::now();
    let deadline = Duration::from_secs(1);
    let stopped = tokio::time::timeout(WAIT, node.shutdown(deadline)).await;
    let took = begun.elapsed();
    disk.hold(false);
    stopped.expect("no checkpoint is waited for that long");
    // One deadline after the other would take 25 s.
    assert!(took < 12 * deadline, "25 shards had {deadline:?} together and took {took:?}");

    let (node, link) = start_in(node_config, around()).await;
    let (_, found) = read(&link, life, weir_protocol::rpc::At::Earliest(true), 0).await.unwrap();
    assert_eq!(found, ["kept"], "the log is replayed");
    node.shutdown(WAIT).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_start_ends_wherever_it_is_told_to_and_the_next_finds_everything() {
    let disk = SimDisk::new();
    let on = |awaited| SlowBlobs { disk: disk.clone(), awaited, ..SlowBlobs::default() };
    let around = |disk: &SlowBlobs| Surroundings {
        disk: Arc::new(disk.clone()),
        stop: disk.stop.subscribe(),
        ..Surroundings::default()
    };
    let settings = settings(Path::new("/data"));
    let (node, link) = start_in(settings.clone(), around(&on(""))).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["kept"])).await.unwrap();
    drop(link);
    node.shutdown(WAIT).await;
    for awaited in ["IDENTITY", ".wal", "node.blob"] {
        let start = Node::start_in(settings.clone(), around(&on(awaited)));
        let stopped = tokio::time::timeout(WAIT, start).await.expect(awaited).err();
        assert!(matches!(stopped, Some(StartError::Stopped)), "{awaited}: {stopped:?}");
    }
    let (node, link) = start_in(settings, around(&on(""))).await;
    let (_, found) = read(&link, life, weir_protocol::rpc::At::Earliest(true), 0).await.unwrap();
    assert_eq!(found, ["kept"]);
    node.shutdown(WAIT).await;
}
