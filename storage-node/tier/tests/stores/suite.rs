//! What every store must do.

use std::sync::atomic::Ordering;
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::StreamExt as _;
use weir_protocol::checksum::crc32c;
use weir_tier::store::{Created, OpenError, PART_BYTES, Store, StoreConfig, StoreError};

use crate::clouds::Cloud;
use crate::minio::Minio;

/// Bytes that do not repeat.
pub(crate) fn noise(len: usize) -> Bytes {
    let mut words = Vec::with_capacity(len + 8);
    let mut state = 0x9e37_79b9_7f4a_7c15u64;
    while words.len() < len {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        words.extend_from_slice(&state.to_le_bytes());
    }
    words.truncate(len);
    words.into()
}

async fn behaves(store: Store) {
    store.self_test().await.unwrap();
    assert_eq!(store.list("self-test", 10).await.unwrap(), [], "it leaves nothing behind");
    creates_once(&store).await;
    reads_ranges(&store).await;
    uploads_any_size(&store).await;
    lists_and_deletes(&store).await;
}

async fn creates_once(store: &Store) {
    let (first, second) = (Bytes::from_static(b"first"), Bytes::from_static(b"second!"));
    assert_eq!(store.create("m/1", first.clone()).await.unwrap(), Created::Ours);
    assert_eq!(store.create("m/1", first.clone()).await.unwrap(), Created::Ours, "a retry of our own");
    assert_eq!(store.create("m/1", second).await.unwrap(), Created::Theirs);
    assert_eq!(store.create("m/1", Bytes::from_static(b"fIrst")).await.unwrap(), Created::Theirs);
    assert_eq!(store.get_all("m/1", 5).await.unwrap(), first);
    for round in 0..20 {
        let name = format!("race/{round}");
        let racers = (0..8u8).map(|n| {
            let (store, name) = (store.clone(), name.clone());
            tokio::spawn(async move { store.create(&name, vec![n; 9].into()).await.unwrap() })
        });
        let created = futures_util::future::join_all(racers).await;
        let winners = created.iter().filter(|created| matches!(created, Ok(Created::Ours))).count();
        assert_eq!(winners, 1, "round {round}");
    }
}

async fn reads_ranges(store: &Store) {
    let bytes = noise(100_000);
    store.create("r/1", bytes.clone()).await.unwrap();
    for range in [0..1, 0..100_000, 99_999..100_000, 777..54_321] {
        let read = store.get("r/1", range.clone()).await.unwrap();
        assert!(read == bytes.slice(range.start as usize..range.end as usize), "{range:?}");
    }
    let beyond = store.get("r/1", 99_000..100_001).await.unwrap_err();
    assert!(matches!(beyond, StoreError::Length { have: 1_000, want: 1_001, .. }), "{beyond}");
    assert_eq!(beyond.object(), "r/1");
    let large = store.get_all("r/1", 99_999).await.unwrap_err();
    assert!(matches!(large, StoreError::Length { .. }), "{large}");
    let missing = store.get("r/2", 0..1).await.unwrap_err();
    assert!(matches!(&missing, StoreError::Missing { object } if object == "r/2"), "{missing}");
}

async fn uploads_any_size(store: &Store) {
    const STEP: usize = 777_777;
    // The fourth ends a part with one write and goes on with the next.
    let lengths = [
        (0, STEP),
        (1, STEP),
        (PART_BYTES, STEP),
        (PART_BYTES + 1, PART_BYTES),
        (3 * PART_BYTES + 12_345, STEP),
    ];
    for (n, (len, step)) in lengths.into_iter().enumerate() {
        let (name, bytes) = (format!("u/{n}"), noise(len));
        let mut upload = store.upload(&name);
        for at in (0..len).step_by(step) {
            upload.write(bytes.slice(at..len.min(at + step))).await.unwrap();
        }
        let uploaded = upload.finish().await.unwrap();
        assert_eq!((uploaded.bytes, uploaded.crc32c), (len as u64, crc32c(&bytes)));
        assert!(store.get_all(&name, 64 << 20).await.unwrap() == bytes, "{len} bytes");
    }
    let mut given_up = store.upload("u/none");
    given_up.write(noise(2 * PART_BYTES + 1)).await.unwrap();
    given_up.abort().await;
    assert!(matches!(store.get("u/none", 0..1).await, Err(StoreError::Missing { .. })));
}

async fn lists_and_deletes(store: &Store) {
    let listed = store.list("u", 100).await.unwrap();
    let mut names: Vec<_> = listed.iter().map(|object| (&*object.name, object.bytes)).collect();
    names.sort_unstable();
    let part = PART_BYTES as u64;
    assert_eq!(names, [("u/0", 0), ("u/1", 1), ("u/2", part), ("u/3", part + 1), ("u/4", 3 * part + 12_345)]);
    let mut folders = store.folders().await.unwrap();
    folders.retain(|folder| folder != "self-test");
    folders.sort_unstable();
    assert_eq!(folders, ["m", "r", "race", "u"]);
    assert!(listed.iter().all(|object| object.written_ms > 1_700_000_000_000));
    assert_eq!(store.list("u", 2).await.unwrap().len(), 2, "at most as many as were asked for");
    for object in listed {
        store.delete(&object.name).await.unwrap();
        store.delete(&object.name).await.unwrap();
    }
    assert_eq!(store.list("u", 100).await.unwrap(), []);
    assert_eq!(store.metrics().failures.load(Ordering::Relaxed), 0);
}

/// More objects than come in one answer are all listed, or as many as were asked for.
async fn lists_pages(store: &Store, page: usize) {
    let create = async |n: usize| {
        let created = store.create(&format!("p/{n}"), Bytes::from_static(b"1")).await.unwrap();
        assert_eq!(created, Created::Ours);
    };
    futures_util::stream::iter(0..page + 10).for_each_concurrent(32, create).await;
    let mut names: Vec<_> =
        store.list_all("p", page + 10).await.unwrap().into_iter().map(|it| it.name).collect();
    names.sort_unstable();
    names.dedup();
    assert_eq!(names.len(), page + 10);
    assert_eq!(store.list("p", page + 5).await.unwrap().len(), page + 5);
    let refused = store.list_all("p", page + 9).await.unwrap_err();
    assert!(matches!(refused, StoreError::TooMany { .. }), "{refused}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_folder_behaves() {
    let dir = tempfile::tempdir().unwrap();
    let url = format!("file://{}/made/by us", dir.path().display());
    behaves(Store::open(StoreConfig::new(url)).unwrap()).await;
    assert!(dir.path().join("made/by us").is_dir());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn minio_behaves() {
    let minio = Minio::start();
    let config =
        StoreConfig { options: minio.options(), ..StoreConfig::new(Minio::url("some/pré ~fix%23")) };
    let store = Store::open(config).unwrap();
    behaves(store.clone()).await;
    lists_pages(&store, 1_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_upload_goes_at_its_pace_unless_somebody_waits() {
    let minio = Minio::start();
    let url = Minio::url("paced");
    let config =
        StoreConfig { options: minio.options(), upload_bytes_per_second: 8 << 20, ..StoreConfig::new(url) };
    let store = Store::open(config).unwrap();
    let send = async |name: &str, bytes: usize| {
        let began = Instant::now();
        let mut upload = store.upload(name);
        upload.write(noise(bytes)).await.unwrap();
        upload.finish().await.unwrap();
        began.elapsed()
    };
    // In one request, and in parts: neither is faster than that, however fast the way is.
    for bytes in [6 << 20, PART_BYTES + (1 << 20)] {
        let took = send(&format!("paced/{bytes}"), bytes).await;
        assert!(took.as_secs_f64() > 0.95 * bytes as f64 / f64::from(8 << 20), "{took:?}");
    }
    // Paced it would take eight seconds.
    let _hurried = store.hurry();
    let took = send("hurried", 8 * PART_BYTES).await;
    assert!(took < Duration::from_secs(6), "{took:?}");
}

fn open(cloud: &Cloud) -> Store {
    let config = StoreConfig { options: cloud.options(), ..StoreConfig::new(cloud.url("some/pré fix~")) };
    Store::open(config).unwrap()
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn google_behaves() {
    // Its lists have one page, however long.
    let cloud = Cloud::google(Duration::ZERO);
    behaves(open(&cloud)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_takes_one_write_of_a_name_a_second_passes_the_self_test() {
    let cloud = Cloud::google(Duration::from_secs(1));
    let store = open(&cloud);
    let tests = (0..8).map(|_| store.self_test());
    for tested in futures_util::future::join_all(tests).await {
        tested.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn azure_behaves() {
    let cloud = Cloud::azure();
    let store = open(&cloud);
    behaves(store.clone()).await;
    lists_pages(&store, 5_000).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_bucket_or_wrong_credentials_are_told_at_once() {
    let (minio, google, azure) = (Minio::start(), Cloud::google(Duration::ZERO), Cloud::azure());
    for (options, url, wrong) in [
        (minio.options(), Minio::url(""), ("AWS_SECRET_ACCESS_KEY", "another")),
        (google.options(), google.url(""), ("GOOGLE_BEARER_TOKEN", "another")),
        (azure.options(), azure.url(""), ("AZURE_STORAGE_ACCOUNT_KEY", "YW5vdGhlcg==")),
    ] {
        let why = async |url: String, options: Vec<(String, String)>| {
            let store = Store::open(StoreConfig { options, ..StoreConfig::new(url) }).unwrap();
            match store.self_test().await {
                Err(OpenError::SelfTest { url, why }) => format!("{url}: {why}"),
                other => panic!("{other:?}"),
            }
        };
        let elsewhere = url.replace("weir-test", "no-such-bucket");
        let nowhere = why(elsewhere, options.clone()).await;
        assert!(nowhere.contains("no-such-bucket") && nowhere.contains("no such bucket"), "{nowhere}");
        let wrong = (wrong.0.to_owned(), wrong.1.to_owned());
        let refused = why(url, [options, vec![wrong]].concat()).await;
        assert!(refused.contains("refuses"), "{refused}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_is_away_is_told_from_one_that_refuses() {
    let mut minio = Minio::start();
    let config = StoreConfig { options: minio.options(), ..StoreConfig::new(Minio::url("away")) };
    let store = Store::open(config).unwrap();
    let own = minio.options().into_iter().find(|(name, _)| name == "AWS_ENDPOINT").unwrap().1;
    assert_eq!(store.place(), format!("{} at {own}", Minio::url("away")));
    minio.kill();
    let away = store.self_test().await.unwrap_err();
    assert!(matches!(away, OpenError::NoAnswer { .. }), "{away}");
    minio.begin();
    store.self_test().await.unwrap();
}

#[test]
fn addresses_that_name_no_store_are_refused() {
    for url in [
        "",
        "bucket",
        "ftp://x/y",
        "file://host/x",
        "s3://user:pass@bucket/",
        "s3://bucket/?x=y",
        "file:///tmp/a#b/objects",
    ] {
        let refused = Store::open(StoreConfig::new(url));
        assert!(matches!(refused, Err(OpenError::Url { .. })), "{url}: {refused:?}");
    }
    // Nothing says which account or credentials.
    let refused = Store::open(StoreConfig::new("az://container/x"));
    assert!(matches!(refused, Err(OpenError::Settings { .. })), "{refused:?}");
    let file = tempfile::NamedTempFile::new().unwrap();
    let refused = Store::open(StoreConfig::new(format!("file://{}", file.path().display())));
    assert!(matches!(refused, Err(OpenError::Folder { .. })), "{refused:?}");
}
