//! Planned faults: what a caller is told, and what is there afterwards.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use weir_tier::faults::{Fault, Faults, FaultyStore, Op};
use weir_tier::store::{Created, OpenError, PART_BYTES, Store, StoreConfig, StoreError, requests_of};

use crate::suite::noise;

fn store() -> (Store, Faults) {
    let faults = Faults::default();
    let inner = FaultyStore::new(Arc::new(InMemory::new()), faults.clone());
    let config = StoreConfig { patience: Duration::from_millis(200), ..StoreConfig::new("memory:") };
    (Store::over(Arc::new(inner), Path::from("p"), config), faults)
}

#[tokio::test(start_paused = true)]
async fn a_create_whose_answer_was_lost_is_known_again() {
    let (store, faults) = store();
    let bytes = Bytes::from_static(b"manifest");
    faults.next(Op::Put, Fault::AnswerLost);
    let unknown = store.create("m/1", bytes.clone()).await.unwrap_err();
    assert!(unknown.is_passing() && unknown.object() == "m/1", "{unknown}");
    assert_eq!(store.create("m/1", bytes.clone()).await.unwrap(), Created::Ours);
    faults.next(Op::Put, Fault::LostRace);
    assert_eq!(store.create("m/2", bytes).await.unwrap(), Created::Theirs);
    assert_eq!(faults.left(), 0);
}

#[tokio::test(start_paused = true)]
async fn reads_try_again_a_few_times_and_then_name_the_object() {
    let (store, faults) = store();
    let bytes = noise(1_000);
    store.create("r", bytes.clone()).await.unwrap();
    for faulty in [Fault::Error, Fault::Hang, Fault::Truncated(999), Fault::Slow(Duration::from_millis(20))] {
        faults.next(Op::Get, faulty);
        assert!(store.get("r", 0..1_000).await.unwrap() == bytes, "after {faulty:?}");
    }
    let before = faults.requests(Op::Get);
    faults.always(Some((Op::Get, Fault::Error)));
    let failed = store.get("r", 0..1_000).await.unwrap_err();
    assert!(matches!(&failed, StoreError::Failed { object, .. } if object == "r"), "{failed}");
    assert_eq!(faults.requests(Op::Get) - before, 3, "it is not asked for ever");
    faults.always(Some((Op::Get, Fault::Hang)));
    let failed = store.get("r", 0..1_000).await.unwrap_err();
    assert!(matches!(&failed, StoreError::TimedOut { object, .. } if object == "r"), "{failed}");
    faults.always(Some((Op::Get, Fault::Truncated(7))));
    let failed = store.get("r", 0..1_000).await.unwrap_err();
    assert!(matches!(failed, StoreError::Length { have: 7, want: 1_000, .. }), "{failed}");
}

#[tokio::test(start_paused = true)]
async fn an_upload_that_fails_anywhere_leaves_nothing_and_gives_its_budget_back() {
    let (store, faults) = store();
    for (op, fault, len) in [
        (Op::Put, Fault::Error, 1_000),
        (Op::Put, Fault::Hang, 1_000),
        (Op::Part, Fault::Error, 3 * PART_BYTES),
        (Op::Part, Fault::Hang, 3 * PART_BYTES),
        (Op::Complete, Fault::Error, 2 * PART_BYTES),
        (Op::Get, Fault::Truncated(500), 1_000),
        (Op::Get, Fault::BitFlip, 2 * PART_BYTES),
    ] {
        // More often than the budget would last if any of it was kept.
        for _ in 0..3 {
            faults.next(op, fault);
            let mut upload = store.upload("u");
            let failed = match upload.write(noise(len)).await {
                Ok(()) => upload.finish().await.unwrap_err(),
                Err(error) => {
                    upload.abort().await;
                    error
                }
            };
            assert_eq!(failed.object(), "u", "{fault:?} of {op:?}");
            assert_eq!(faults.left(), 0);
            assert_eq!(store.list("u", 9).await.unwrap(), [], "{fault:?} of {op:?}");
            assert!(
                matches!(store.get("u", 0..1).await, Err(StoreError::Missing { .. })),
                "{fault:?} of {op:?}"
            );
        }
    }
    let mut upload = store.upload("u");
    upload.write(noise(4 * PART_BYTES)).await.unwrap();
    upload.finish().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_listing_may_take_as_long_as_it_goes_on_and_one_that_is_too_long_is_no_listing() {
    let (store, faults) = store();
    for name in ["l/1", "l/2", "l/3"] {
        store.create(name, Bytes::from_static(b"1")).await.unwrap();
    }
    faults.next(Op::List, Fault::Slow(Duration::from_millis(100)));
    assert_eq!(store.list_all("l", 3).await.unwrap().len(), 3);
    let refused = store.list_all("l", 2).await.unwrap_err();
    assert!(matches!(&refused, StoreError::TooMany { object, most: 2 } if object == "l"), "{refused}");
    faults.next(Op::List, Fault::Hang);
    let failed = store.list("l", 3).await.unwrap_err();
    assert!(matches!(failed, StoreError::TimedOut { .. }), "{failed}");
}

#[tokio::test(start_paused = true)]
async fn what_is_compared_is_read_in_parts_and_is_neither_shorter_nor_longer() {
    let (store, faults) = store();
    let bytes = noise(20 << 20);
    let crc = weir_protocol::checksum::crc32c(&bytes);
    store.create("v", bytes.clone()).await.unwrap();
    let before = faults.requests(Op::Get);
    // Together these are slower than one request may be.
    for _ in 0..3 {
        faults.next(Op::Get, Fault::Slow(Duration::from_millis(90)));
    }
    store.verify("v", bytes.len() as u64, crc).await.unwrap();
    assert_eq!(faults.requests(Op::Get) - before, 3);
    for wrong in [bytes.len() as u64 - 1, bytes.len() as u64 + 1] {
        let refused = store.verify("v", wrong, crc).await.unwrap_err();
        assert!(matches!(refused, StoreError::Length { .. }), "{refused}");
    }
    store.create("empty", Bytes::new()).await.unwrap();
    store.verify("empty", 0, 0).await.unwrap();
    assert!(store.verify("v", 0, 0).await.is_err());
}

#[tokio::test(start_paused = true)]
async fn a_store_without_conditional_creates_fails_the_self_test() {
    let (store, faults) = store();
    faults.next(Op::Put, Fault::LostRace);
    let refused = store.self_test().await.unwrap_err().to_string();
    assert!(refused.contains("of 4 creates"), "{refused}");
    store.self_test().await.unwrap();
}

#[tokio::test(start_paused = true)]
async fn a_self_test_tells_a_store_that_does_not_answer_from_one_that_does_not_let_us() {
    let (store, faults) = store();
    for fault in [Fault::Error, Fault::Hang] {
        faults.all(Some(fault));
        let failed = store.self_test().await.unwrap_err();
        assert!(matches!(failed, OpenError::NoAnswer { .. }) && failed.is_passing(), "{fault:?}: {failed}");
    }
    for op in [Op::Put, Op::Get, Op::Delete] {
        faults.all(None);
        for (fault, is_passing) in [(Fault::Error, true), (Fault::Refused, false)] {
            faults.always(Some((op, fault)));
            let failed = store.self_test().await.unwrap_err();
            assert_eq!(failed.is_passing(), is_passing, "{fault:?} of {op:?}: {failed}");
        }
    }
    faults.always(None);
    store.self_test().await.unwrap();
}

#[cfg(target_os = "linux")]
#[tokio::test]
async fn a_folder_that_cannot_be_written_is_no_store_that_is_away() {
    // Not even root writes there.
    let store = Store::open(StoreConfig::new("file:///sys")).unwrap();
    let failed = store.self_test().await.unwrap_err();
    assert!(!failed.is_passing(), "{failed}");
}

#[tokio::test(start_paused = true)]
async fn parts_under_way_stay_within_the_budget() {
    let faults = Faults::default();
    let inner = FaultyStore::new(Arc::new(InMemory::new()), faults.clone());
    let config = StoreConfig { upload_bytes_max: PART_BYTES, ..StoreConfig::new("memory:") };
    let store = Store::over(Arc::new(inner), Path::default(), config);
    faults.always(Some((Op::Part, Fault::Slow(Duration::from_millis(20)))));
    let sends = (0..4).map(|n| {
        let store = store.clone();
        tokio::spawn(async move {
            let mut upload = store.upload(format!("u/{n}"));
            upload.write(noise(2 * PART_BYTES + 1)).await.unwrap();
            upload.finish().await.unwrap();
        })
    });
    let began = tokio::time::Instant::now();
    futures_util::future::join_all(sends).await.into_iter().for_each(|sent| sent.unwrap());
    // Eight full parts of which only one may be under way at a time.
    assert!(began.elapsed() >= Duration::from_millis(8 * 20));
}

#[tokio::test(start_paused = true)]
async fn an_upload_makes_as_many_requests_as_are_charged() {
    for len in [1, PART_BYTES, PART_BYTES + 1, 3 * PART_BYTES] {
        let (store, faults) = store();
        let mut upload = store.upload("u");
        upload.write(noise(len)).await.unwrap();
        upload.finish().await.unwrap();
        let (puts, gets) = requests_of(len as u64);
        assert_eq!(faults.requests(Op::Get), gets as usize, "{len} bytes are compared");
        // Of several parts the request that begins them is not one of these.
        let sent = [Op::Put, Op::Part, Op::Complete].map(|op| faults.requests(op)).iter().sum::<usize>();
        assert_eq!(sent + usize::from(len > PART_BYTES), puts as usize, "{len} bytes are written");
    }
}
