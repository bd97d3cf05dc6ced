//! Tests of what the rewriter does with packs of several topics and shards, by a store that fails.

use weir_protocol::ids::{Offset, ShardId};
use weir_tier::cold::Ahead;
use weir_tier::faults::Faults;

use super::super::Rewriter;
use super::Play;
use super::rewriting::value;
use crate::read;
use crate::shard::state::PartitionKey;

const BATCH_BYTES: u64 = 100_000;

impl Play {
    fn rewriter(&self) -> Rewriter {
        Rewriter::new(self.tier.clone(), self.shards.clone(), 250)
    }

    /// Batches that do not compress, numbered from 0 by topic.
    pub(super) async fn fill(&self, shard: u32, key: PartitionKey, batches: u64) {
        let from = self.end(shard, key);
        for n in from..from + batches {
            self.publish_value(shard, key, &value(n)).await;
        }
    }

    fn end(&self, shard: u32, key: PartitionKey) -> u64 {
        self.shards[&ShardId(shard)].state.read().partition(key).unwrap().end.0
    }

    /// All that is there of a topic is read from its packs.
    async fn check(&self, shard: u32, key: PartitionKey) {
        let shard = &self.shards[&ShardId(shard)];
        let rows: Vec<_> = shard.state.read().partition(key).unwrap().batches_from(Offset(0)).collect();
        let found = read::from_packs(shard, &self.tier, key, &rows, Ahead::NONE).await.unwrap();
        assert_eq!(found.len(), rows.len());
        for (batch, row) in found.iter().zip(&rows) {
            let record = batch.records().unwrap().next().unwrap().unwrap();
            assert!(*record.value == *value(row.base_offset.0), "message {} is another", row.base_offset);
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pack_that_took_the_place_of_two_is_rewritten_like_any_other() {
    let mut play = Play::with_packs_of(64 << 20, &Faults::default()).await;
    let brief = play.create(1, "brief").await;
    let middle = play.create(1, "middle").await;
    let lasting = play.create(1, "lasting").await;
    for _ in 0..2 {
        play.fill(1, brief, 26).await;
        play.fill(1, middle, 6).await;
        play.fill(1, lasting, 1).await;
        play.sealer.round().await.unwrap();
    }
    assert_eq!(play.packs(1), (2, 0));
    play.trim(1, brief, play.end(1, brief)).await;
    play.rewriter().round().await.unwrap();
    assert_eq!(play.packs(1), (1, 2));
    play.check(1, middle).await;
    play.check(1, lasting).await;
    play.trim(1, middle, play.end(1, middle)).await;
    play.rewriter().round().await.unwrap();
    assert_eq!(play.packs(1), (1, 3));
    play.check(1, lasting).await;
    let left: u64 = play.shards[&ShardId(1)].state.read().packs().live().map(|(_, pack)| pack.bytes).sum();
    assert!(left < 3 * BATCH_BYTES, "{left} bytes");
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pack_that_cannot_be_read_keeps_neither_other_packs_nor_other_shards_waiting() {
    let mut play = Play::with_packs_of(64 << 20, &Faults::default()).await;
    let mut lasting = Vec::new();
    for (shard, batches) in [(1, 20), (1, 16), (2, 16)] {
        let topics = ["brief", "lasting"].map(|topic| format!("{topic}{}", lasting.len()));
        let brief = play.create(shard, &topics[0]).await;
        let key = play.create(shard, &topics[1]).await;
        play.fill(shard, brief, batches).await;
        play.fill(shard, key, 1).await;
        play.sealer.round().await.unwrap();
        play.trim(shard, brief, play.end(shard, brief)).await;
        lasting.push(key);
    }
    assert_eq!((play.packs(1), play.packs(2)), ((2, 0), (1, 0)));
    let gone = play.objects(1).remove(0);
    play.tier.cold.store().delete(&gone).await.unwrap();
    let mut rewriter = play.rewriter();
    let why = rewriter.round().await.unwrap_err().to_string();
    assert!(why.contains(&gone), "{why}");
    let told = play.tier.damaged.of(lasting[0]);
    assert!(told.iter().map(|damage| damage.lost.object.to_string()).eq([gone]), "{told:?}");
    assert_eq!(play.tier.damaged.objects(), 1);
    assert_eq!((play.packs(1), play.packs(2)), ((2, 0), (1, 1)), "the second shard's is replaced");
    rewriter.round().await.unwrap();
    drop(rewriter);
    assert_eq!((play.packs(1), play.packs(2)), ((2, 1), (1, 1)), "and of the first shard the other");
    play.check(1, lasting[1]).await;
    play.check(2, lasting[2]).await;
    play.stop().await;
}
