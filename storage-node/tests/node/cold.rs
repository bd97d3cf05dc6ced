//! Messages leave the journal for an object store, and are read back from there.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "the objects lie in a folder, not on the journal's disk"
)]

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant, SystemTime};

use weir_protocol::error::ErrorCode;
use weir_protocol::rpc::{
    At, ConfirmState, ConfirmStateRequest, DeleteTopicRequest, Level, Method, PartitionRef, PartitionStats,
    PartitionStatsList, PartitionStatsRequest, Placed, TopicDescription,
};
use weir_storage_node::{NodeConfig, RunningNode, Surroundings};
use weir_tier::faults::{Fault, Faults, Op, store_in_memory};
use weir_transport::Link;

use crate::client::{
    batch, call, config, create, name, publish, publish_refused, read, settings, start_in, until,
};

/// Published in all: more than the journal of a test holds.
pub(crate) const MESSAGES: u64 = 100;
/// Bytes of one.
pub(crate) const BYTES: usize = 900 << 10;
/// Whatever the store has to do is done within this.
pub(crate) const PATIENCE: Duration = Duration::from_secs(120);

/// A small journal, everything cold soon, and nothing kept of what was read.
pub(crate) fn cold_settings(dir: &Path) -> NodeConfig {
    NodeConfig {
        object_store: Some("local".to_owned()),
        seal_after_ms: 500,
        seal_bytes: 8 << 20,
        snapshot_every_ms: 200,
        tail_ring_bytes: 0,
        cache_memory_bytes: 16 << 20,
        cache_disk_bytes: 0,
        ..settings(dir)
    }
}

async fn start_cold(dir: &Path) -> (RunningNode, Link) {
    start_in(cold_settings(dir), Surroundings::default()).await
}

pub(crate) fn value(n: u64) -> String {
    let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let mut text = format!("{n:08} ");
    while text.len() < BYTES {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        text.push_str(&format!("{state:016x}"));
    }
    text
}

/// Publishes, waiting while the journal has no room.
pub(crate) async fn publish_all(link: &Link, life: u64) -> Vec<Placed> {
    let (began, mut all) = (Instant::now(), Vec::new());
    for n in 0..MESSAGES {
        let value = value(n);
        loop {
            match publish(link, life, &batch(0, 0, &[&value])).await {
                Ok(placed) => {
                    assert_eq!(placed.base_offset, n);
                    all.push(placed);
                    break;
                }
                Err(ErrorCode::JournalFull | ErrorCode::Busy) => {
                    assert!(began.elapsed() < PATIENCE, "no room for message {n}");
                    tokio::time::sleep(Duration::from_millis(50)).await;
                }
                Err(other) => panic!("message {n}: {other:?}"),
            }
        }
    }
    all
}

async fn read_all(link: &Link, life: u64) {
    let mut next = 0;
    while next < MESSAGES {
        let (_, found) = read(link, life, At::Offset(next), 0).await.unwrap();
        assert!(!found.is_empty(), "nothing at {next}");
        for found in found {
            assert!(found == value(next), "message {next} is another");
            next += 1;
        }
    }
}

/// What is told of the topic's only partition.
pub(crate) async fn stats(link: &Link, incarnation: u64) -> PartitionStats {
    let partitions = vec![PartitionRef { incarnation, partition: 0 }];
    let request = PartitionStatsRequest { partitions, with_storage: true };
    let told: PartitionStatsList = call(link, Method::PartitionStats, &request).await.unwrap();
    told.partitions.into_iter().next().unwrap()
}

fn scraped(node: &RunningNode) -> String {
    prometheus::TextEncoder::new().encode_to_string(&node.registry().gather()).unwrap()
}

/// What a day costs, as the node estimates it.
fn cost(node: &RunningNode, of: &str) -> f64 {
    let (text, name) = (scraped(node), format!("weir_storage_cost_per_day{{currency=\"USD\",of=\"{of}\"}} "));
    text.lines().find_map(|line| line.strip_prefix(&name)).unwrap().parse().unwrap()
}

/// The packs in the data directory's store.
pub(crate) fn packs(dir: &Path) -> Vec<PathBuf> {
    let (mut folders, mut found) = (vec![dir.join("objects")], Vec::new());
    while let Some(folder) = folders.pop() {
        for entry in std::fs::read_dir(folder).unwrap() {
            let path = entry.unwrap().path();
            if path.is_dir() {
                folders.push(path);
            } else if path.extension().is_some_and(|end| end == "pack") {
                found.push(path);
            }
        }
    }
    found
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn more_than_the_journal_holds_is_taken_and_read_back_also_after_a_restart() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start_cold(dir.path()).await;
    let life = create(&link, "t", config()).await;
    assert!(MESSAGES * BYTES as u64 > 64 << 20, "more than the journal's limit");
    let term = publish_all(&link, life).await[0].term;
    read_all(&link, life).await;
    assert!(cost(&node, "stored") > 0.0 && cost(&node, "puts") > 0.0 && cost(&node, "gets") > 0.0);
    node.shutdown(Duration::from_secs(5)).await;
    let (node, link) = start_cold(dir.path()).await;
    // What the objects of the last day took is known from their names.
    let puts = packs(dir.path()).len() as f64;
    assert!(puts > 5.0 && cost(&node, "puts") > 0.99 * puts * 0.005 / 1_000.0, "{puts} objects");
    read_all(&link, life).await;
    // The receipt of a message that has left the journal, from the term before.
    let (level, wait_ms) = (Level::Archived as i32, 60_000);
    let asked = ConfirmStateRequest { incarnation: life, term, level, wait_ms, ..Default::default() };
    let told: ConfirmState = call(&link, Method::ConfirmState, &asked).await.unwrap();
    assert_eq!((told.level(), told.lost), (Level::Archived, false));

    // Damage of one object is the matter of who reads it.
    let other = create(&link, "other", config()).await;
    publish(&link, other, &batch(0, 0, &["well"])).await.unwrap();
    node.shutdown(Duration::from_secs(5)).await;
    let oldest =
        packs(dir.path()).into_iter().min_by_key(|path| path.file_name().map(ToOwned::to_owned)).unwrap();
    let bytes = std::fs::read(&oldest).unwrap();
    let (middle, mut damaged) = (bytes.len() / 2, bytes.clone());
    damaged[middle] ^= 1;
    std::fs::write(&oldest, &damaged).unwrap();
    let (node, link) = start_cold(dir.path()).await;
    assert_eq!(stats(&link, life).await.damaged, [], "nobody has read it");
    let mut refused = Vec::new();
    for at in 0..MESSAGES {
        match read(&link, life, At::Offset(at), 0).await {
            Ok(_) => {}
            Err(code) => {
                assert_eq!(code, ErrorCode::Corrupt, "at {at}");
                refused.push(at);
            }
        }
    }
    assert!((1..50).contains(&refused.len()), "{refused:?} of {MESSAGES} are in the damaged block");
    assert_eq!(read(&link, other, At::Offset(0), 0).await.unwrap().1, ["well"]);

    // Those who ask are told which object and which messages, as long as it is so.
    let told = stats(&link, life).await.damaged;
    let (object, path) = (&told[0].object, oldest.display().to_string());
    assert!(told.len() == 1 && path.ends_with(object.as_str()), "{told:?}, {path}");
    assert_eq!((told[0].from, told[0].to), (refused[0], refused[refused.len() - 1] + 1));
    assert_eq!(told[0].times, refused.len() as u64);
    assert!(told[0].why.contains("checksum"), "{told:?}");
    assert_eq!(stats(&link, other).await.damaged, []);
    for line in
        ["weir_storage_damaged_objects 1", &format!("weir_storage_damaged_reads_total {}", refused.len())]
    {
        assert!(scraped(&node).contains(line), "{line}");
    }
    let storage = stats(&link, life).await.storage.unwrap();
    assert!(storage.blocks_asked_per_day >= storage.blocks_missed_per_day, "{storage:?}");
    assert!(storage.blocks_missed_per_day > 1.0 && storage.read_bytes_per_day > 1e6, "{storage:?}");
    std::fs::write(&oldest, &bytes).unwrap();
    read(&link, life, At::Offset(refused[0]), 0).await.unwrap();
    assert_eq!(stats(&link, life).await.damaged, [], "the object was brought back");
    assert!(scraped(&node).contains("weir_storage_damaged_objects 0"));
    std::fs::write(&oldest, &damaged).unwrap();

    // What nothing needs is deleted, damaged or not.
    let delete = DeleteTopicRequest { name: Some(name("t")), ..DeleteTopicRequest::default() };
    let _: TopicDescription = call(&link, Method::DeleteTopic, &delete).await.unwrap();
    until("the objects of a deleted topic", || packs(dir.path()).len() <= 1).await;
    node.shutdown(Duration::from_secs(5)).await;
}

/// A write to a folder goes to a file beside the object, which a crash leaves there.
#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_an_interrupted_write_left_in_a_folder_is_removed_once_it_is_old() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link) = start_cold(dir.path()).await;
    let life = create(&link, "t", config()).await;
    publish(&link, life, &batch(0, 0, &["a"])).await.unwrap();
    until("the first pack", || packs(dir.path()).len() == 1).await;
    node.shutdown(Duration::from_secs(5)).await;
    let pack = packs(dir.path()).remove(0);
    let beside = |suffix: &str| {
        let name = format!("{}{suffix}", pack.file_name().unwrap().to_str().unwrap());
        pack.with_file_name(name)
    };
    let (old, young) = (beside("#1"), beside("#2"));
    for (path, age) in [(&old, 25 * 3_600), (&young, 23 * 3_600), (&pack, 25 * 3_600)] {
        let file = std::fs::File::options().create(true).append(true).open(path).unwrap();
        file.set_modified(SystemTime::now() - Duration::from_secs(age)).unwrap();
    }
    let (node, link) = start_cold(dir.path()).await;
    until("what is left of a write", || !old.exists()).await;
    assert!(young.exists() && pack.exists());
    drop(link);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_cannot_be_used_stops_the_start_with_the_reason() {
    let dir = tempfile::tempdir().unwrap();
    for (url, reason) in [("ftp://x/y", "is no store"), ("file:///proc/nowhere", "nowhere")] {
        let config = NodeConfig { object_store: Some(url.to_owned()), ..settings(dir.path()) };
        let refused = weir_storage_node::Node::start_in(config, Surroundings::default()).await;
        let why = refused.map(drop).unwrap_err().to_string();
        assert!(why.contains(reason), "{url}: {why}");
    }
    let (node, link) = start_cold(dir.path()).await;
    create(&link, "t", config()).await;
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_full_journal_says_that_it_waits_for_the_object_store() {
    let dir = tempfile::tempdir().unwrap();
    let faults = Faults::default();
    let store = store_in_memory(faults.clone(), PATIENCE);
    let around = Surroundings { object_store: Some(store), ..Surroundings::default() };
    // Small enough for one request, which then fails.
    let settings = NodeConfig { seal_bytes: 4 << 20, ..cold_settings(dir.path()) };
    let (node, link) = start_in(settings, around).await;
    let life = create(&link, "t", config()).await;
    faults.always(Some((Op::Put, Fault::Error)));
    let (began, mut n) = (Instant::now(), 0);
    let refusal = loop {
        assert!(began.elapsed() < PATIENCE, "{n} messages fit");
        match publish_refused(&link, life, &batch(0, 0, &[&value(n)])).await {
            Ok(_) => n += 1,
            Err(refusal) if refusal.detail.contains("planned to fail") => break refusal,
            // The first upload has not failed yet.
            Err(refusal) => {
                let code = refusal.error_code();
                assert!(matches!(code, ErrorCode::JournalFull | ErrorCode::Busy), "{refusal:?}");
                tokio::time::sleep(Duration::from_millis(10)).await;
            }
        }
    };
    assert_eq!(refusal.error_code(), ErrorCode::JournalFull, "{refusal:?}");
    for part in ["for the object store", "default/t"] {
        assert!(refusal.detail.contains(part), "{part:?} in {:?}", refusal.detail);
    }
    assert!(!refusal.detail.contains("Shorten retention"), "{:?}", refusal.detail);
    faults.always(None);
    while let Err(code) = publish(&link, life, &batch(0, 0, &["again"])).await {
        assert!(matches!(code, ErrorCode::JournalFull | ErrorCode::Busy), "{code:?}");
        assert!(began.elapsed() < PATIENCE, "there is no room again");
        tokio::time::sleep(Duration::from_millis(50)).await;
    }
    node.shutdown(Duration::from_secs(5)).await;
}
