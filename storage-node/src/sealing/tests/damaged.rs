//! Tests of what is told of objects that are gone or not what was written.

use weir_journal::LogPosition;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Offset, ShardId};
use weir_protocol::rpc::{DamagedObject, Refusal};
use weir_tier::cold::Ahead;
use weir_tier::faults::{Fault, Faults, Op};

use super::Play;
use crate::read::{self, Allowance, Reader};
use crate::server::whereabouts::Whereabouts;
use crate::shard::state::PartitionKey;

fn damaged(play: &Play, key: PartitionKey) -> Vec<DamagedObject> {
    let shard = &play.shards[&ShardId(1)];
    let state = shard.state.read();
    Whereabouts::new(shard, state.shared_packs()).unwrap().damaged(key, state.partition(key).unwrap())
}

/// Which object, which records, and how often.
fn told(play: &Play, key: PartitionKey) -> Vec<(String, u64, u64, u64)> {
    damaged(play, key).into_iter().map(|it| (it.object, it.from, it.to, it.times)).collect()
}

/// Reads a message from its pack.
async fn read(play: &Play, key: PartitionKey, offset: u64) -> Result<(), Refusal> {
    let shard = &play.shards[&ShardId(1)];
    let row = shard.state.read().partition(key).unwrap().batches_from(Offset(offset)).next().unwrap();
    read::from_packs(shard, &play.tier, key, &[row], Ahead::NONE).await.map(drop)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_cannot_be_read_is_told_until_it_can_or_nothing_needs_it() {
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    let (key, other) = (play.create(1, "t").await, play.create(1, "other").await);
    for of in [key, key, other] {
        play.publish(1, of).await;
    }
    play.sealer.round().await.unwrap();
    let objects = play.objects(1);
    read(&play, key, 0).await.unwrap();
    assert_eq!(damaged(&play, key), [], "nothing failed");

    // It comes damaged, and once more; then as it was written.
    faults.always(Some((Op::Get, Fault::BitFlip)));
    for times in 1..=2 {
        assert_eq!(read(&play, key, 1).await.unwrap_err().error_code(), ErrorCode::Corrupt);
        assert_eq!(told(&play, key), [(objects[1].clone(), 1, 2, times)]);
    }
    assert!(damaged(&play, key)[0].why.contains(&objects[1]));
    faults.always(None);
    read(&play, key, 0).await.unwrap();
    assert_eq!(told(&play, key).len(), 1, "another was read");
    read(&play, key, 1).await.unwrap();
    assert_eq!(told(&play, key), []);

    // It is gone.
    play.tier.cold.store().delete(&objects[2]).await.unwrap();
    assert_eq!(read(&play, other, 0).await.unwrap_err().error_code(), ErrorCode::Corrupt);
    assert_eq!((told(&play, key), told(&play, other)), (vec![], vec![(objects[2].clone(), 0, 1, 1)]));
    assert_eq!((play.tier.damaged.objects(), play.tier.damaged.failed_reads()), (1, 3));
    play.trim(1, other, 1).await;
    assert_eq!(damaged(&play, other), [], "nothing that is left is in it");
    play.sealer.round().await.unwrap();
    assert_eq!(play.tier.damaged.objects(), 0);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_does_not_answer_damages_nothing() {
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    let key = play.create(1, "t").await;
    play.publish(1, key).await;
    play.sealer.round().await.unwrap();
    faults.always(Some((Op::Get, Fault::Error)));
    assert_eq!(read(&play, key, 0).await.unwrap_err().error_code(), ErrorCode::Unavailable);
    assert_eq!((damaged(&play, key), play.tier.damaged.failed_reads()), (vec![], 0));
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn messages_in_front_of_a_damaged_object_are_read_and_those_in_the_log_do_not_close_the_gap() {
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    let key = play.create(1, "t").await;
    for _ in 0..3 {
        play.publish(1, key).await;
    }
    play.sealer.round().await.unwrap();
    play.publish(1, key).await;
    let shard = play.shards[&ShardId(1)].clone();
    let rows: Vec<_> = shard.state.read().partition(key).unwrap().batches_from(Offset(0)).collect();
    let gone = LogPosition { term: 1, leader: 0, index: rows[2].index.0 };
    shard.journal.note_purged(shard.stream(), gone);
    play.tier.cold.store().delete(&play.objects(1)[2]).await.unwrap();
    let reader = Reader::new(shard, key);
    let all = Allowance { records: 10, bytes: 1 << 20 };
    let found = reader.read(Offset(0), Offset(4), all).await.unwrap();
    assert_eq!((found.records, found.next), (2, Offset(2)));
    assert_eq!(damaged(&play, key), [], "nobody wants it yet");
    let refusal = reader.read(Offset(2), Offset(4), all).await.unwrap_err();
    assert_eq!(refusal.error_code(), ErrorCode::Corrupt);
    assert_eq!(told(&play, key), [(play.objects(1)[2].clone(), 2, 3, 1)]);
    let found = reader.read(Offset(3), Offset(4), all).await.unwrap();
    assert_eq!((found.records, found.next), (1, Offset(4)), "what comes behind it");
    drop(reader);
    play.stop().await;
}
