//! Retention over both tiers: what it removed does not go to the object store, and an object goes with the
//! last of its messages.

use std::ops::Range;
use std::path::Path;
use std::time::Duration;

use weir_protocol::rpc::{At, TopicConfig};
use weir_storage_node::{NodeConfig, RunningNode, Surroundings};
use weir_tier::faults::{Faults, in_memory};
use weir_tier::pack::{Footer, Trailer};
use weir_tier::store::Store;
use weir_transport::Link;

use crate::client::{WAIT, batch, config, create, publish, read, settings, start_in};
use crate::queue::{ack, ask, part, pull, queue_config, subscribe};

/// Retention is looked after once a second: by then what it removes is removed.
const SEAL_AFTER_MS: u64 = 3_000;

async fn start(dir: &Path) -> (RunningNode, Link, Store) {
    let store = in_memory(Faults::default());
    let config = NodeConfig { seal_after_ms: SEAL_AFTER_MS, snapshot_every_ms: 200, ..settings(dir) };
    let around = Surroundings { object_store: Some(store.clone()), ..Surroundings::default() };
    let (node, link) = start_in(config, around).await;
    (node, link, store)
}

/// A life of a topic, and records of it.
type Packed = (u64, Range<u64>);

/// What the objects hold.
async fn packed(store: &Store) -> Vec<Packed> {
    let mut found = Vec::new();
    for object in store.list_all("", 1_000).await.unwrap() {
        if !object.name.ends_with(".pack") {
            continue;
        }
        // It may have been deleted since.
        let Ok(bytes) = store.get_all(&object.name, 1 << 20).await else { continue };
        let trailer = Trailer::decode(&bytes, bytes.len() as u64).unwrap();
        let footer = Footer::decode(&bytes, &trailer).unwrap();
        let rows = footer.partitions().iter();
        found.extend(rows.map(|row| (row.partition.0.0, row.start.0..row.end.0)));
    }
    found.sort_by_key(|(life, records)| (*life, records.start));
    found
}

/// Waits until the objects hold exactly this.
async fn until_packed(store: &Store, expected: &[Packed]) {
    let mut found = Vec::new();
    let waited = async {
        while found != expected {
            tokio::time::sleep(Duration::from_millis(20)).await;
            found = packed(store).await;
        }
    };
    let waited = tokio::time::timeout(WAIT, waited).await;
    assert!(waited.is_ok(), "{found:?} are in objects, not {expected:?}");
}

async fn trimmed_to(link: &Link, life: u64, start: u64) {
    let trimmed = async {
        while read(link, life, At::Earliest(true), 0).await.unwrap().0.start < start {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(WAIT, trimmed).await.unwrap_or_else(|_| panic!("never trimmed to {start}"));
}

async fn publish_each(link: &Link, life: u64, value: &str, count: usize) {
    for _ in 0..count {
        publish(link, life, &batch(0, 0, &[value])).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_was_too_old_goes_to_no_object_and_what_became_so_frees_its_own() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link, store) = start(dir.path()).await;
    let by_age = |age| TopicConfig { retention_age_ms: Some(age), ..config() };
    let brief = create(&link, "brief", by_age(100)).await;
    let lasting = create(&link, "lasting", config()).await;
    publish_each(&link, brief, "gone soon", 3).await;
    publish_each(&link, lasting, "stays", 1).await;
    trimmed_to(&link, brief, 3).await;
    until_packed(&store, &[(lasting, 0..1)]).await;

    // Long enough in an object for somebody to see it there.
    let aging = create(&link, "aging", by_age(3 * SEAL_AFTER_MS)).await;
    publish_each(&link, aging, "gone later", 3).await;
    until_packed(&store, &[(lasting, 0..1), (aging, 0..3)]).await;
    trimmed_to(&link, aging, 3).await;
    until_packed(&store, &[(lasting, 0..1)]).await;
    assert_eq!(read(&link, lasting, At::Offset(0), 0).await.unwrap().1, ["stays"]);
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn bytes_are_counted_over_both_tiers_and_objects_beyond_them_go() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link, store) = start(dir.path()).await;
    let value = "x".repeat(1_000);
    let limit = 3 * batch(0, 0, &[&value]).bytes().len() as u64 + 10;
    let life = create(&link, "t", TopicConfig { retention_bytes: Some(limit), ..config() }).await;
    publish_each(&link, life, &value, 7).await;
    trimmed_to(&link, life, 4).await;
    until_packed(&store, &[(life, 4..7)]).await;

    // Two in the journal, and of those in the object one: it is there as long as that.
    publish_each(&link, life, &value, 2).await;
    trimmed_to(&link, life, 6).await;
    until_packed(&store, &[(life, 4..7), (life, 7..9)]).await;
    let (answer, found) = read(&link, life, At::Offset(6), 0).await.unwrap();
    assert_eq!((answer.start, answer.committed_end, found.len()), (6, 9, 3));
    publish_each(&link, life, &value, 1).await;
    trimmed_to(&link, life, 7).await;
    until_packed(&store, &[(life, 7..9), (life, 9..10)]).await;
    node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_every_subscription_settled_goes_to_no_object_and_frees_the_one_it_is_in() {
    let dir = tempfile::tempdir().unwrap();
    let (node, link, store) = start(dir.path()).await;
    let life = create(&link, "orders", TopicConfig { retention_until_settled: true, ..config() }).await;
    let work = part(&subscribe(&link, life, queue_config("orders"), &[1]).await, 0);
    publish_each(&link, life, "a", 6).await;
    let (grants, _) = pull(&link, &ask(work, 4)).await;
    ack(&link, work, &grants).await;
    trimmed_to(&link, life, 4).await;
    until_packed(&store, &[(life, 4..6)]).await;

    let (grants, _) = pull(&link, &ask(work, 1)).await;
    ack(&link, work, &grants).await;
    trimmed_to(&link, life, 5).await;
    assert_eq!(packed(&store).await, [(life, 4..6)], "it has one that nobody settled");
    let (grants, found) = pull(&link, &ask(work, 1)).await;
    assert_eq!(found, ["a"]);
    ack(&link, work, &grants).await;
    trimmed_to(&link, life, 6).await;
    until_packed(&store, &[]).await;
    node.shutdown(Duration::from_secs(5)).await;
}
