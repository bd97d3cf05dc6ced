//! Disks that fail, machines that lose power, nodes that stop.
#![expect(clippy::disallowed_methods, reason = "copies a data directory as an operator would")]

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use weir_journal::disk::sim::SimDisk;
use weir_journal::{Blobs, Disk as _, RealDisk};
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::rpc::{At, ClusterMap, Level, Method, PublishAnswer};
use weir_storage_node::{Node, NodeConfig, RunningNode, Surroundings, SyncMode};
use weir_transport::{CallError, Link};

use crate::client::{
    SHARD, WAIT, batch, config, create, publish, publish_at, publish_body, publish_refused, read, settings,
    start, start_in, until,
};

const DIR: &str = "/data";

pub(crate) async fn start_on(disk: &SimDisk) -> (RunningNode, Link) {
    let config = NodeConfig { checkpoint_bytes: 4 << 10, ..settings(Path::new(DIR)) };
    start_in(config, Surroundings { disk: Arc::new(disk.clone()), ..Surroundings::default() }).await
}

/// What new topics and subscriptions gave their node to do is committed: after that it commits nothing of its
/// own that could meet a failure first, or be counted.
pub(crate) async fn news_is_taken(node: &RunningNode) {
    let is_empty = || {
        let text = prometheus::TextEncoder::new().encode_to_string(&node.registry().gather()).unwrap();
        let mut rows = text.lines().filter(|line| line.starts_with("weir_node_outbox_rows{"));
        rows.clone().count() > 0 && rows.all(|row| row.ends_with(" 0"))
    };
    until("the news of a topic is taken", is_empty).await;
}

fn has_checkpoint(disk: &SimDisk) -> bool {
    let blobs = disk.list(&Path::new(DIR).join("blobs")).unwrap();
    blobs.iter().any(|file| file.name == "shard-1.blob")
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_failed_sync_ends_confirming_with_its_reason_and_keeps_reads() {
    let disk = SimDisk::new();
    let (node, link) = start_on(&disk).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["kept"])).await.unwrap();
    news_is_taken(&node).await;
    disk.fail_syncs();
    let unlucky = publish_refused(&link, life, &batch(0, 0, &["lost"])).await.unwrap_err();
    assert_eq!((unlucky.error_code(), unlucky.effect()), (ErrorCode::StorageFailed, Outcome::Unknown));
    let later = publish_refused(&link, life, &batch(0, 0, &["refused"])).await.unwrap_err();
    assert_eq!((later.error_code(), later.effect()), (ErrorCode::StorageFailed, Outcome::None));
    assert_eq!(Some(&later.detail), node.failure().as_ref(), "the first reason is kept and told");
    assert_eq!(read(&link, life, At::Earliest(true), 0).await.unwrap().1, ["kept"]);
    tokio::time::timeout(Duration::from_secs(20), node.shutdown(Duration::from_secs(2))).await.unwrap();
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_confirmed_survives_a_power_cut_at_any_moment() {
    for seed in 0..12 {
        let disk = SimDisk::new();
        let (node, link) = start_on(&disk).await;
        let life = create(&link, "orders", config()).await;
        let writers: Vec<_> = (0..4)
            .map(|writer| {
                let link = link.clone();
                tokio::spawn(async move {
                    let mut confirmed = Vec::new();
                    for n in 0.. {
                        let value = format!("{writer}/{n}");
                        match publish_refused(&link, life, &batch(0, 0, &[&value])).await {
                            Ok(placed) => confirmed.push((placed.base_offset, value)),
                            Err(_) => return confirmed,
                        }
                    }
                    confirmed
                })
            })
            .collect();
        let some = async { while read(&link, life, At::Tail(1), 0).await.unwrap().1.is_empty() {} };
        tokio::time::timeout(WAIT, some).await.expect("something is confirmed before the power fails");
        // The cut: from here on nothing reaches the disk.
        tokio::time::sleep(Duration::from_millis(20 + 7 * seed)).await;
        disk.fail_after(seed);
        let mut confirmed = Vec::new();
        for writer in writers {
            confirmed.extend(writer.await.unwrap());
        }
        let after = disk.after_crash(seed);
        node.shutdown(Duration::from_millis(200)).await;
        let (node, link) = start_on(&after).await;
        let mut found = Vec::new();
        loop {
            let (answer, values) = read(&link, life, At::Offset(found.len() as u64), 0).await.unwrap();
            found.extend(values);
            if answer.up_to_date {
                break;
            }
        }
        assert!(!confirmed.is_empty(), "seed {seed} cut too early to tell anything");
        for (offset, value) in &confirmed {
            let at = usize::try_from(*offset).unwrap();
            assert_eq!(found.get(at), Some(value), "seed {seed}: offset {offset}");
        }
        node.shutdown(Duration::from_secs(2)).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_that_meets_a_full_disk_stops_nothing_and_is_written_once_there_is_room() {
    let disk = SimDisk::new();
    let (node, link) = start_on(&disk).await;
    let life = create(&link, "orders", config()).await;
    disk.fill();
    // Larger than `checkpoint_bytes`: one is due.
    publish(&link, life, &batch(0, 0, &[&"x".repeat(8 << 10)])).await.unwrap();
    let failed = || {
        let families = node.registry().gather();
        let family = families.iter().find(|family| family.name() == "weir_node_checkpoints_failed_total");
        family.map_or(0.0, |family| family.get_metric()[0].get_counter().get_value())
    };
    until("a checkpoint fails", || failed() > 0.0).await;
    publish(&link, life, &batch(0, 0, &["after"])).await.expect("the shard goes on");
    assert!(!has_checkpoint(&disk), "the disk has no room for it");
    disk.make_room();
    until("the checkpoint is written", || has_checkpoint(&disk)).await;

    // Also at the end: a checkpoint only makes the next start fast.
    publish(&link, life, &batch(0, 0, &["last"])).await.unwrap();
    disk.fill();
    tokio::time::timeout(WAIT, node.shutdown(2 * WAIT))
        .await
        .expect("nobody waits for a checkpoint that failed");
    disk.make_room();
    let (node, link) = start_on(&disk).await;
    assert_eq!(read(&link, life, At::Offset(1), 0).await.unwrap().1, ["after", "last"]);
    node.shutdown(Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_drain_answers_everything_and_leaves_the_directory_free() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    let mut calls = Vec::new();
    for n in 0..200 {
        let body = publish_body(life, Level::Quorum.bit(), &batch(0, 0, &[&n.to_string()]));
        calls.push(link.open(Method::Publish, SHARD, body).await.unwrap());
        if n == 99 {
            // Handled after those before it: the node has taken them.
            read(&link, life, At::Earliest(true), 0).await.unwrap();
        }
    }
    node.shutdown(Duration::from_secs(10)).await;
    let (mut confirmed, mut unknown) = (BTreeMap::new(), 0);
    for (n, mut call) in calls.into_iter().enumerate() {
        match call.next().await.unwrap() {
            Ok(answer) => {
                let result = PublishAnswer::decode(answer).unwrap().results.remove(0);
                confirmed.insert(result.placed.unwrap().base_offset, n.to_string());
            }
            // The later ones may come too late, and are told so.
            Err(CallError::Refused(refusal)) => {
                assert_eq!((refusal.error_code(), refusal.effect()), (ErrorCode::Draining, Outcome::None));
                assert!(n > 99, "{n} was taken");
            }
            Err(CallError::NotSent(_)) => assert!(n > 99, "{n} was taken"),
            // On its way when the connection was closed.
            Err(CallError::Unknown) if n > 99 => unknown += 1,
            Err(other) => panic!("{n}: {other}"),
        }
    }
    assert!(confirmed.len() >= 100);
    let (node, link) = start(dir.path()).await;
    let (_, found) = read(&link, life, At::Earliest(true), 0).await.unwrap();
    let effects = confirmed.len()..=confirmed.len() + unknown;
    assert!(effects.contains(&found.len()), "a refusal means no effect: {} of {effects:?}", found.len());
    for (offset, value) in confirmed {
        assert_eq!(found[usize::try_from(offset).unwrap()], value, "offset {offset}");
    }
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_disk_refuses_publishes_keeps_reads_and_recovers_without_a_restart() {
    let disk = SimDisk::new();
    let (node, link) = start_on(&disk).await;
    let life = create(&link, "orders", config()).await;
    disk.fill();
    // What is prepared already is still written.
    let large = "x".repeat(900_000);
    let mut confirmed = 0;
    let refused = loop {
        match publish_refused(&link, life, &batch(0, 0, &[&large])).await {
            Ok(_) => confirmed += 1,
            // It is still tried to prepare the next file: that ends by itself.
            Err(refusal) if refusal.error_code() == ErrorCode::Busy => tokio::task::yield_now().await,
            Err(refusal) => break refusal,
        }
        assert!(confirmed < 60, "the prepared files must fill up");
    };
    assert_eq!((refused.error_code(), refused.effect()), (ErrorCode::JournalFull, Outcome::None));
    assert!(refused.detail.contains("the disk is full"), "{}", refused.detail);
    assert_eq!(read(&link, life, At::Tail(1), 0).await.unwrap().0.committed_end, confirmed);
    disk.make_room();
    let recovered = async {
        while publish(&link, life, &batch(0, 0, &["after"])).await.is_err() {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, recovered).await.expect("it recovers by itself");
    assert_eq!(read(&link, life, At::Tail(1), 0).await.unwrap().1, ["after"]);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_is_never_ahead_of_its_log_though_nothing_else_is_synced() {
    let disk = SimDisk::new();
    let os = || NodeConfig { sync: SyncMode::Os, checkpoint_bytes: 4 << 10, ..settings(Path::new(DIR)) };
    let around = |disk: &SimDisk| Surroundings { disk: Arc::new(disk.clone()), ..Surroundings::default() };
    let (node, link) = start_in(os(), around(&disk)).await;
    let life = create(&link, "orders", config()).await;
    let value = "x".repeat(8 << 10);
    publish_at(&link, life, Level::Memory.bit(), &batch(0, 0, &[&value])).await;
    until("a checkpoint is written", || has_checkpoint(&disk)).await;
    for seed in 0..6 {
        let (node, link) = start_in(os(), around(&disk.after_crash(seed))).await;
        let (answer, _) = read(&link, life, At::Earliest(true), 0).await.unwrap();
        assert_eq!(answer.committed_end, 1, "seed {seed}: the record lies below the checkpoint");
        node.shutdown(Duration::from_secs(2)).await;
    }
    node.shutdown(Duration::from_secs(2)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_first_start_that_was_interrupted_anywhere_is_finished_by_the_next() {
    let around = |disk: &SimDisk| Surroundings { disk: Arc::new(disk.clone()), ..Surroundings::default() };
    let whole = SimDisk::new();
    let (node, _) = start_in(settings(Path::new(DIR)), around(&whole)).await;
    let operations = whole.operations();
    node.shutdown(Duration::from_secs(2)).await;
    let mut partial = 0;
    for cut in (0..operations).step_by(2) {
        let disk = SimDisk::new();
        disk.fail_after(cut);
        if let Ok(node) = Node::start_in(settings(Path::new(DIR)), around(&disk)).await {
            node.shutdown(Duration::from_millis(200)).await;
        } else {
            partial += 1;
        }
        let (node, link) = start_in(settings(Path::new(DIR)), around(&disk.after_crash(cut))).await;
        let map = link.call(Method::ClusterMap, SHARD, Vec::new(), WAIT).await.unwrap();
        let map = ClusterMap::decode(map).unwrap();
        assert_eq!(map.nodes[0].address, node.local_addr().to_string(), "gateways are told where it is");
        let shards = map.shards.len();
        assert_eq!(shards, 3, "cut {cut}: fewer are fixed for ever");
        node.shutdown(Duration::from_secs(2)).await;
    }
    assert!(partial > 3, "{partial} of {operations} operations interrupt a start");
}

/// Puts what lies in one directory in the place of another.
fn replace_dir(from: &Path, to: &Path) {
    if to.exists() {
        std::fs::remove_dir_all(to).unwrap();
    }
    std::fs::create_dir(to).unwrap();
    for file in std::fs::read_dir(from).unwrap().map(Result::unwrap) {
        std::fs::copy(file.path(), to.join(file.file_name())).unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_log_and_a_checkpoint_of_different_moments_are_refused() {
    let dir = tempfile::tempdir().unwrap();
    let (wal, blobs) = (dir.path().join("wal"), dir.path().join("blobs"));
    let (old_wal, old_blobs) = (dir.path().join("old-wal"), dir.path().join("old-blobs"));
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["early"])).await.unwrap();
    node.shutdown(Duration::from_secs(5)).await;
    replace_dir(&wal, &old_wal);
    replace_dir(&blobs, &old_blobs);
    let (node, link) = start(dir.path()).await;
    publish(&link, life, &batch(0, 0, &["late"])).await.unwrap();
    node.shutdown(Duration::from_secs(5)).await;

    // An old copy of the log beside the newest checkpoint: what the checkpoint tells of is not there.
    replace_dir(&wal, &dir.path().join("new-wal"));
    replace_dir(&old_wal, &wal);
    let refused = Node::start(settings(dir.path())).await.err().expect("its records are gone").to_string();
    for part in ["shard 0", "blobs/shard-0.blob", "ends", "restore"] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    // An old checkpoint beside the newest log: the log between is there, and is replayed.
    replace_dir(&dir.path().join("new-wal"), &wal);
    replace_dir(&old_blobs, &blobs);
    let (node, link) = start(dir.path()).await;
    assert_eq!(read(&link, life, At::Earliest(true), 0).await.unwrap().1, ["early", "late"]);
    node.shutdown(Duration::from_secs(5)).await;
}

/// The log must be replayed with the bounds that it was applied with, or verdicts change.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn how_many_producers_a_shard_remembers_is_decided_with_its_directory() {
    let disk = SimDisk::new();
    let start = async |disk: &SimDisk, dedupe_rows| {
        let config = NodeConfig { dedupe_rows, ..settings(Path::new(DIR)) };
        start_in(config, Surroundings { disk: Arc::new(disk.clone()), ..Surroundings::default() }).await
    };
    let (node, link) = start(&disk, 1_000).await;
    let life = create(&link, "orders", config()).await;
    for producer in 1..=1_000 {
        publish(&link, life, &batch(producer, 0, &["v"])).await.unwrap();
    }
    assert_eq!(publish(&link, life, &batch(1_001, 0, &["v"])).await, Err(ErrorCode::DedupeFull));
    // Without a checkpoint: the whole log is applied again, by a node that is told of more.
    let crashed = disk.after_crash(1);
    node.shutdown(Duration::from_secs(1)).await;
    let (node, link) = start(&crashed, 5_000).await;
    assert_eq!(node.limits().dedupe_rows, 1_000);
    assert_eq!(publish(&link, life, &batch(1_001, 0, &["v"])).await, Err(ErrorCode::DedupeFull));
    publish(&link, life, &batch(7, 1, &["known"])).await.unwrap();
    node.shutdown(Duration::from_secs(1)).await;
}

/// What a later build would have written over `field` of a message: of a field that comes twice, the last counts, and
/// of a message that comes twice, all.
fn with_field(message: &[u8], field: u8, content: &[u8]) -> Vec<u8> {
    let mut length = Vec::new();
    prost::encoding::encode_varint(content.len() as u64, &mut length);
    [message, &[field << 3 | 2], &length, content].concat()
}

#[derive(Clone, PartialEq, prost::Message)]
struct StoredCheckpoint {
    #[prost(bytes = "vec", tag = "6")]
    state: Vec<u8>,
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_checkpoint_of_a_newer_format_is_refused_by_name_and_kept() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start(dir.path()).await;
    let life = create(&link, "orders", config()).await;
    publish(&link, life, &batch(0, 0, &["kept"])).await.unwrap();
    node.shutdown(Duration::from_secs(5)).await;
    let blobs = Blobs::open(dir.path().join("blobs"), Arc::new(RealDisk)).unwrap();
    let written = blobs.get("shard-1").unwrap().unwrap();
    let why = async || {
        Node::start(settings(dir.path())).await.err().expect("it is newer than this build").to_string()
    };

    // The state's own format: the first field of its head, which is its first field.
    let state = StoredCheckpoint::decode(&*written).unwrap().state;
    let newer = with_field(&written, 6, &with_field(&state, 1, &[8, 99]));
    blobs.put("shard-1", [newer.into()]).unwrap();
    let refused = why().await;
    for part in ["shard 1", "blobs/shard-1.blob", "format 99", "this build reads up to 7: use a newer Weir"] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    // The file's.
    blobs.put("shard-1", [written.clone()]).unwrap();
    let path = blobs.path("shard-1").unwrap();
    let mut bytes = std::fs::read(&path).unwrap();
    bytes[4] = 99;
    std::fs::write(&path, &bytes).unwrap();
    let refused = why().await;
    for part in ["shard 1", "blobs/shard-1.blob", "format 99", "this build reads up to 1"] {
        assert!(refused.contains(part), "{part} in {refused}");
    }
    assert_eq!(std::fs::read(&path).unwrap(), bytes, "it is left for the build that can read it");

    blobs.put("shard-1", [written]).unwrap();
    let (node, link) = start(dir.path()).await;
    assert_eq!(read(&link, life, At::Earliest(true), 0).await.unwrap().1, ["kept"]);
    node.shutdown(Duration::from_secs(5)).await;
}
