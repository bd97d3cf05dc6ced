//! Tests of objects that are gone or not what was written.

use weir_journal::LogPosition;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Offset, ShardId};
use weir_tier::faults::Faults;

use super::Play;
use crate::read::{Allowance, Reader};

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
    let refusal = reader.read(Offset(2), Offset(4), all).await.unwrap_err();
    assert_eq!(refusal.error_code(), ErrorCode::Corrupt);
    let found = reader.read(Offset(3), Offset(4), all).await.unwrap();
    assert_eq!((found.records, found.next), (1, Offset(4)), "what comes behind it");
    drop(reader);
    play.stop().await;
}
