//! Tests of what is told of where messages are, and of what they cost.

use weir_journal::LogPosition;
use weir_protocol::ids::{Offset, ShardId};
use weir_protocol::rpc::PartitionStorage;
use weir_tier::faults::Faults;

use super::Play;
use crate::server::whereabouts::Whereabouts;
use crate::shard::state::PartitionKey;

fn storage(play: &Play, key: PartitionKey) -> PartitionStorage {
    let shard = &play.shards[&ShardId(1)];
    let state = shard.state.read();
    Whereabouts::new(shard, state.shared_packs()).unwrap().of(key, state.partition(key).unwrap())
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn each_message_is_told_to_be_where_it_is() {
    let mut play = Play::start(&Faults::default()).await;
    let key = play.create(1, "t").await;
    for bytes in [100, 200] {
        play.publish_value(1, key, &vec![b'x'; bytes]).await;
    }
    play.sealer.round().await.unwrap();
    for bytes in [400, 800] {
        play.publish_value(1, key, &vec![b'x'; bytes]).await;
    }
    let shard = &play.shards[&ShardId(1)];
    let rows: Vec<_> = shard.state.read().partition(key).unwrap().batches_from(Offset(0)).collect();
    shard.journal.note_purged(shard.stream(), LogPosition { term: 1, leader: 0, index: rows[0].index.0 });
    let under_way = play.tier.uploads.begin(&[(key, rows[2])]);
    let told = storage(&play, key);
    assert_eq!((told.cold_to, told.archived_to, told.uploading_to), (1, 2, 3));
    let bytes = [told.cold_bytes, told.archived_bytes, told.uploading_bytes, told.local_bytes];
    assert_eq!(bytes, [0, 1, 2, 3].map(|at: usize| u64::from(rows[at].len)));
    drop(under_way);
    let told = storage(&play, key);
    assert_eq!((told.uploading_to, told.uploading_bytes), (2, 0));
    assert_eq!(told.local_bytes, u64::from(rows[2].len + rows[3].len));
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn requests_of_the_last_day_count_though_what_they_wrote_is_gone() {
    let mut play = Play::start(&Faults::default()).await;
    let key = play.create(1, "t").await;
    for _ in 0..3 {
        play.publish(1, key).await;
    }
    play.sealer.round().await.unwrap();
    let before = storage(&play, key);
    play.trim(1, key, 3).await;
    let after = storage(&play, key);
    assert!(before.object_bytes > 0 && after.object_bytes == 0, "{before:?} {after:?}");
    for told in [before, after] {
        // A pack each, which is one request that writes it and one that compares it.
        let (puts, gets) = (told.puts_per_day, told.gets_per_day);
        assert!((2.99..3.01).contains(&puts) && (2.99..3.01).contains(&gets), "{puts} writes, {gets} reads");
    }
    play.stop().await;
}
