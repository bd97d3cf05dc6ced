//! What every store must do.

use std::sync::atomic::Ordering;

use bytes::Bytes;
use weir_protocol::checksum::crc32c;
use weir_tier::store::{Created, OpenError, PART_BYTES, Store, StoreConfig, StoreError};

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
    for (n, len) in [0, 1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES + 12_345].into_iter().enumerate() {
        let (name, bytes) = (format!("u/{n}"), noise(len));
        let mut upload = store.upload(&name);
        for at in (0..len).step_by(777_777) {
            upload.write(bytes.slice(at..len.min(at + 777_777))).await.unwrap();
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
    assert!(listed.iter().all(|object| object.written_ms > 1_700_000_000_000));
    assert_eq!(store.list("u", 2).await.unwrap().len(), 2, "at most as many as were asked for");
    for object in listed {
        store.delete(&object.name).await.unwrap();
        store.delete(&object.name).await.unwrap();
    }
    assert_eq!(store.list("u", 100).await.unwrap(), []);
    assert_eq!(store.metrics().failures.load(Ordering::Relaxed), 0);
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
    let config = StoreConfig { options: minio.options(), ..StoreConfig::new(Minio::url("some/prefix")) };
    behaves(Store::open(config).unwrap()).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_wrong_bucket_or_wrong_credentials_are_told_at_once() {
    let minio = Minio::start();
    let with = |url: &str, change: fn(&mut Vec<(String, String)>)| {
        let mut options = minio.options();
        change(&mut options);
        Store::open(StoreConfig { options, ..StoreConfig::new(url) }).unwrap()
    };
    let why = async |store: Store| match store.self_test().await {
        Err(OpenError::SelfTest { url, why }) => format!("{url}: {why}"),
        other => panic!("{other:?}"),
    };
    let nowhere = why(with("s3://no-such-bucket/x", |_| {})).await;
    assert!(nowhere.contains("no-such-bucket") && nowhere.contains("no such bucket"), "{nowhere}");
    let refused = why(with(&Minio::url(""), |options| {
        let secret = options.iter_mut().find(|(name, _)| name == "AWS_SECRET_ACCESS_KEY").unwrap();
        secret.1 = "another".to_owned();
    }))
    .await;
    assert!(refused.contains("refuses"), "{refused}");
}

#[test]
fn addresses_that_name_no_store_are_refused() {
    for url in ["", "bucket", "ftp://x/y", "file://host/x", "s3://user:pass@bucket/", "s3://bucket/?x=y"] {
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
