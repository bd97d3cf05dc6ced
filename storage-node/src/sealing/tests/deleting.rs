//! Tests of objects that the store does not let go.

use std::sync::Arc;

use bytes::Bytes;
use ulid::Ulid;
use weir_protocol::ids::{ClusterId, LogIndex, ShardId, Term};
use weir_tier::faults::{Faults, Op};
use weir_tier::store::PackName;

use super::Play;

/// Seals a batch of each of so many topics alone, and deletes them: their packs go with the manifests that name them.
async fn unneeded(play: &mut Play, topics: &[(u32, usize)]) {
    let names =
        || topics.iter().flat_map(|(shard, n)| (0..*n).map(move |n| (*shard, format!("s{shard}-{n}"))));
    for (shard, name) in names() {
        let key = play.create(shard, &name).await;
        play.publish(shard, key).await;
    }
    play.sealer.round().await.unwrap();
    for (shard, name) in names() {
        play.delete(shard, &name).await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_the_store_keeps_keeps_no_other() {
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    unneeded(&mut play, &[(1, 3), (2, 1)]).await;
    assert_eq!((play.packs(1), play.packs(2)), ((0, 3), (0, 1)));
    let held = play.objects(1).remove(0);
    faults.hold([held.clone()]);
    for _ in 0..6 {
        drop(play.sealer.round().await);
    }
    assert_eq!((play.objects(1), play.packs(2)), (vec![held], (0, 0)));
    let asked = faults.requests(Op::Delete);
    drop(play.sealer.round().await);
    assert!(faults.requests(Op::Delete) <= asked + 1, "what is deleted is not deleted again");
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_objects_that_the_store_keeps_keep_no_other() {
    /// More than are deleted at once.
    const HELD: usize = 105;
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    unneeded(&mut play, &[(1, HELD + 1)]).await;
    let mut held = play.objects(1);
    held.truncate(HELD);
    faults.hold(held.clone());
    for _ in 0..20 {
        drop(play.sealer.round().await);
    }
    assert_eq!(play.objects(1), held);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_a_crash_left_behind_is_found_among_however_many_objects() {
    /// Objects that are looked at together: fewer than there are.
    const MOST: usize = 8;
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    let key = play.create(1, "t").await;
    for _ in 0..10 {
        play.publish(1, key).await;
    }
    play.sealer.round().await.unwrap();
    let known = play.objects(1);
    assert!(known.len() > MOST);
    let store = play.tier.cold.store().clone();
    let mut left = Vec::new();
    for n in 0..2 * MOST as u128 {
        let name = PackName {
            cluster: ClusterId(7),
            shard: ShardId(1),
            first: LogIndex(1),
            last: LogIndex(1),
            term: Term(1),
            attempt: Ulid::from_parts(1, n),
        };
        store.create(&name.to_string(), Bytes::from_static(b"of a crash long ago")).await.unwrap();
        left.push(name.to_string());
    }
    faults.hold([left[3].clone()]);
    // Another is still being made, by who began it when the clock was wrong.
    let tier = Arc::clone(&play.tier);
    let under_way = tier.uploads.attempt(Ulid::from_parts(1, 5).0);
    play.sealer.sweep(MOST).await.unwrap_err();
    store.size(&left[5]).await.expect("nobody has committed it yet");
    drop(under_way);
    play.sealer.sweep(MOST).await.unwrap_err();
    let mut there: Vec<_> = store.list(&PackName::folder(ClusterId(7)), 1_000).await.unwrap();
    there.sort_by(|a, b| a.name.cmp(&b.name));
    let mut expected = known;
    expected.push(left[3].clone());
    expected.sort_unstable();
    assert!(there.iter().map(|object| &object.name).eq(&expected), "{there:?}");
    play.stop().await;
}
