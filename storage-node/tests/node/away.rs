//! A store that does not answer when a node starts: what is served, what waits, and what stops the start after all.

use std::path::Path;
use std::time::{Duration, Instant};

use prometheus::Registry;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::ClusterId;
use weir_protocol::rpc::{At, Method, PartitionRef, PartitionStatsList, PartitionStatsRequest};
use weir_storage_node::{Node, NodeConfig, RunningNode, StartError, Surroundings};
use weir_tier::faults::{Fault, Faults, Objects, Op, of_a_newer_build, store_of};
use weir_tier::snapshot::{Exports, Manifest, ManifestName, Published};
use weir_tier::store::Store;
use weir_transport::Link;

use crate::client::{batch, config, connect, create, publish, publish_refused, read, settings};
use crate::cold::{PATIENCE, cold_settings, publish_all, value};

/// A directory and a store that fails as it is told.
struct Play {
    dir: tempfile::TempDir,
    objects: Objects,
    faults: Faults,
    store: Store,
}

impl Play {
    /// The store is given up after `patience`.
    fn new(patience: Duration) -> Self {
        let (objects, faults) = (Objects::default(), Faults::default());
        let store = store_of(&objects, faults.clone(), patience);
        Self { dir: tempfile::tempdir().unwrap(), objects, faults, store }
    }

    fn around(&self) -> Surroundings {
        let object_store = Some(self.store.clone());
        Surroundings { object_store, registry: Registry::new(), ..Surroundings::default() }
    }

    async fn try_start(&self) -> Result<(RunningNode, Link), StartError> {
        let node = Node::start_in(cold_settings(self.dir.path()), self.around()).await?;
        let link = connect(&node);
        Ok((node, link))
    }

    async fn start(&self) -> (RunningNode, Link) {
        self.try_start().await.unwrap()
    }

    async fn refused(&self) -> String {
        self.try_start().await.map(drop).unwrap_err().to_string()
    }

    fn written(&self) -> usize {
        [Op::Put, Op::Part, Op::Delete, Op::List].map(|op| self.faults.requests(op)).iter().sum()
    }
}

/// Stops it, which may take as long as the store does, and does not.
async fn stop(node: RunningNode) {
    let stopped = tokio::time::timeout(PATIENCE / 2, node.shutdown(PATIENCE)).await;
    stopped.expect("a stop waits for no store");
}

fn number(node: &RunningNode, metric: &str) -> f64 {
    let text = prometheus::TextEncoder::new().encode_to_string(&node.registry().gather()).unwrap();
    let told = text.lines().find_map(|line| line.strip_prefix(metric)?.strip_prefix(' '));
    told.unwrap().parse().unwrap()
}

fn is_awaited(node: &RunningNode) -> bool {
    number(node, "weir_tier_store_awaited") > 0.0
}

/// Up to where the topic's only partition is in packs.
async fn archived_to(link: &Link, incarnation: u64) -> u64 {
    let partitions = vec![PartitionRef { incarnation, partition: 0 }];
    let request = PartitionStatsRequest { partitions, with_storage: true };
    let told: PartitionStatsList = crate::client::call(link, Method::PartitionStats, &request).await.unwrap();
    told.partitions[0].storage.unwrap().archived_to
}

async fn until_archived(link: &Link, life: u64, end: u64) {
    let archived = async {
        while archived_to(link, life).await < end {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, archived).await.expect("what there is to seal is sealed");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_starts_without_its_store_and_fills_it_once_it_is_back() {
    let play = Play::new(Duration::from_millis(500));
    let (node, link) = play.start().await;
    assert!(!is_awaited(&node));
    let life = create(&link, "t", config()).await;
    publish_all(&link, life).await;
    let hot = create(&link, "hot", config()).await;
    publish(&link, hot, &batch(0, 0, &["before"])).await.unwrap();
    stop(node).await;

    for fault in [Fault::Error, Fault::Hang] {
        play.faults.all(Some(fault));
        let (node, link) = play.start().await;
        assert!(is_awaited(&node), "{fault:?}");
        let end = publish(&link, hot, &batch(0, 0, &["meanwhile"])).await.unwrap().base_offset + 1;
        let (_, found) = read(&link, hot, At::Offset(0), 0).await.unwrap();
        assert_eq!((found.len() as u64, found[0].as_str()), (end, "before"), "{fault:?}");
        let cold = read(&link, life, At::Offset(0), 0).await.unwrap_err();
        assert_eq!(cold, ErrorCode::Unavailable, "{fault:?}");
        assert!(is_awaited(&node) && archived_to(&link, hot).await < end, "{fault:?}");

        play.faults.all(None);
        until_archived(&link, hot, end).await;
        assert!(!is_awaited(&node), "{fault:?}");
        assert_eq!(read(&link, life, At::Offset(0), 0).await.unwrap().1[0], value(0));
        stop(node).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_but_the_trial_is_written_before_it_is_passed_and_the_stop_waits_for_nobody() {
    let play = Play::new(PATIENCE);
    let (node, link) = play.start().await;
    let life = create(&link, "t", config()).await;
    stop(node).await;
    drop(link);

    // Asked, and not answered: the start does not wait for as long as the store may take.
    play.faults.all(Some(Fault::Hang));
    let (before, began) = (play.written(), Instant::now());
    let (node, link) = play.start().await;
    assert!(began.elapsed() < PATIENCE / 4, "{:?}", began.elapsed());
    publish(&link, life, &batch(0, 0, &["meanwhile"])).await.unwrap();
    // Old enough for a pack by far, and for a manifest.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(play.written() - before, 4, "the creates that race, still under way");
    assert!(is_awaited(&node));
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_refuses_or_was_never_used_stops_the_start_with_the_reason() {
    let play = Play::new(Duration::from_millis(200));
    for (fault, reason) in [(Fault::Error, "planned to fail"), (Fault::Hang, "no answer")] {
        play.faults.all(Some(fault));
        let why = play.refused().await;
        assert!(why.contains("does not answer") && why.contains(reason), "{why}");
    }
    play.faults.all(None);
    stop(play.start().await.0).await;

    play.faults.all(Some(Fault::Refused));
    let why = play.refused().await;
    assert!(why.contains("cannot be used") && why.contains("refuses"), "{why}");
    play.faults.all(None);
    play.faults.next(Op::Put, Fault::LostRace);
    let why = play.refused().await;
    assert!(why.contains("of 4 creates"), "{why}");
    // Neither forgets what has passed before.
    play.faults.all(Some(Fault::Error));
    stop(play.start().await.0).await;

    // Another one, or the same asked elsewhere.
    for url in ["s3://bucket/one", "s3://bucket/two"] {
        let options = [
            ("AWS_ENDPOINT", "http://127.0.0.1:1"),
            ("AWS_ALLOW_HTTP", "true"),
            ("AWS_ACCESS_KEY_ID", "user"),
            ("AWS_SECRET_ACCESS_KEY", "secret"),
        ];
        let options = options.map(|(name, value)| (name.to_owned(), value.to_owned())).to_vec();
        let config = NodeConfig {
            object_store: Some(url.to_owned()),
            object_store_options: options,
            ..settings(play.dir.path())
        };
        let refused = Node::start_in(config, Surroundings::default()).await;
        let why = refused.map(drop).unwrap_err().to_string();
        assert!(why.contains(url) && why.contains("does not answer"), "{why}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_refuses_once_it_answers_is_asked_again_and_says_why_there_is_no_room() {
    let play = Play::new(PATIENCE);
    let (node, link) = play.start().await;
    let life = create(&link, "t", config()).await;
    stop(node).await;
    drop(link);
    play.faults.all(Some(Fault::Error));
    let (node, link) = play.start().await;
    play.faults.all(Some(Fault::Refused));
    let (began, mut n) = (Instant::now(), 0);
    let mut refusal = String::new();
    while !refusal.contains("planned to be refused") {
        assert!(began.elapsed() < PATIENCE, "{n} messages fit: {refusal}");
        match publish_refused(&link, life, &batch(0, 0, &[&value(n)])).await {
            Ok(_) => n += 1,
            // It has not been asked again yet.
            Err(refused) => {
                let code = refused.error_code();
                assert!(matches!(code, ErrorCode::JournalFull | ErrorCode::Busy), "{refused:?}");
                refusal = refused.detail;
                tokio::time::sleep(Duration::from_millis(50)).await;
            }
        }
    }
    assert!(refusal.contains("for the object store") && is_awaited(&node), "{refusal}");
    play.faults.all(None);
    until_archived(&link, life, n).await;
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_whose_cluster_was_restored_while_its_store_was_away_writes_nothing_there() {
    let play = Play::new(Duration::from_millis(500));
    let (node, link) = play.start().await;
    let life = create(&link, "t", config()).await;
    publish(&link, life, &batch(0, 0, &["before"])).await.unwrap();
    until_archived(&link, life, 1).await;
    stop(node).await;
    drop(link);
    play.faults.all(Some(Fault::Error));
    let (node, link) = play.start().await;

    // Its restore, which reaches the store before the node does again, takes the next number, of the next epoch.
    let elsewhere = store_of(&play.objects, Faults::default(), PATIENCE);
    let exports = Exports::new(elsewhere, cluster(play.dir.path()));
    let number = exports.numbers().await.unwrap().pop().unwrap();
    let newest = exports.manifest(number).await.unwrap();
    let claim = Manifest { number: number + 1, epoch: newest.epoch + 1, writer: 1_u128.into(), ..newest };
    assert_eq!(exports.publish(&claim, None).await.unwrap(), Published::Ours);
    play.faults.all(None);
    let known = async {
        while is_awaited(&node) {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, known).await.unwrap();
    let end = publish(&link, life, &batch(0, 0, &["behind"])).await.unwrap().base_offset + 1;
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!((archived_to(&link, life).await, end), (1, 2), "it serves, and nothing leaves");
    assert_eq!(exports.numbers().await.unwrap().pop(), Some(number + 1));
    stop(node).await;
    assert!(play.refused().await.contains("was restored"), "as ever");
}

/// The newest states of the node are in the store, and a manifest names them.
async fn until_exported(node: &RunningNode) {
    let exported = async {
        while number(node, "weir_tier_manifest_seconds") <= 0.0 {
            tokio::time::sleep(Duration::from_millis(20)).await;
        }
    };
    tokio::time::timeout(PATIENCE, exported).await.expect("a start writes a manifest");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
#[expect(clippy::disallowed_methods, reason = "what somebody does by hand")]
async fn a_store_that_is_empty_and_was_not_takes_nothing_until_it_is_back() {
    let mut play = Play::new(Duration::from_millis(500));
    let (node, link) = play.start().await;
    let life = create(&link, "t", config()).await;
    publish_all(&link, life).await;
    let hot = create(&link, "hot", config()).await;
    until_exported(&node).await;
    stop(node).await;
    drop(link);

    // Its folder is not mounted: where it was, another one is.
    let before = std::mem::take(&mut play.objects);
    play.store = store_of(&play.objects, play.faults.clone(), PATIENCE);
    let folder = cluster(play.dir.path()).to_string();
    let (node, link) = play.start().await;
    assert!(is_awaited(&node));
    let end = publish(&link, hot, &batch(0, 0, &["meanwhile"])).await.unwrap().base_offset + 1;
    let missing = read(&link, life, At::Offset(0), 0).await.unwrap_err();
    assert_eq!(missing, ErrorCode::Unavailable, "it may come back");
    // Old enough for a pack by far, and for a manifest.
    tokio::time::sleep(Duration::from_secs(2)).await;
    assert_eq!(play.store.list(&folder, 10).await.unwrap(), [], "it would be hidden once the other is back");
    assert!(is_awaited(&node) && archived_to(&link, hot).await < end);

    // Mounted.
    let before = store_of(&before, Faults::default(), PATIENCE);
    for object in before.list(&folder, 1_000).await.unwrap() {
        let bytes = before.get_all(&object.name, 64 << 20).await.unwrap();
        play.store.create(&object.name, bytes).await.unwrap();
    }
    until_archived(&link, hot, end).await;
    assert!(!is_awaited(&node));
    assert_eq!(read(&link, life, At::Offset(0), 0).await.unwrap().1[0], value(0));
    stop(node).await;
    drop(link);

    // Gone for good: who says so goes on without it.
    play.objects = Objects::default();
    play.store = store_of(&play.objects, play.faults.clone(), PATIENCE);
    let (node, link) = play.start().await;
    assert!(is_awaited(&node));
    stop(node).await;
    drop(link);
    std::fs::remove_file(play.dir.path().join("blobs/store.blob")).unwrap();
    let (node, link) = play.start().await;
    assert!(!is_awaited(&node));
    assert_eq!(read(&link, life, At::Offset(0), 0).await.unwrap_err(), ErrorCode::Corrupt);
    stop(node).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_node_does_not_start_beside_a_newer_build_that_writes_for_its_cluster() {
    let play = Play::new(PATIENCE);
    let (node, _link) = play.start().await;
    until_exported(&node).await;
    stop(node).await;
    let exports = Exports::new(play.store.clone(), cluster(play.dir.path()));
    let newest = exports.numbers().await.unwrap().pop().unwrap();
    let name = |number| ManifestName { cluster: cluster(play.dir.path()), number }.to_string();
    let manifest = play.store.get_all(&name(newest), 1 << 20).await.unwrap();
    play.store.create(&name(newest + 1), of_a_newer_build(&manifest)).await.unwrap();
    let why = play.refused().await;
    assert!(why.contains("use the build that wrote it, or a newer one"), "{why}");
}

/// The directory's cluster.
fn cluster(dir: &Path) -> ClusterId {
    let identity = weir_journal::Identity::of_dir(dir, &weir_journal::RealDisk).unwrap().unwrap();
    ClusterId(identity.cluster_id)
}
