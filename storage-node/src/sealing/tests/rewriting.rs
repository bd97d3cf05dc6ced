//! Tests of rewriting in a node whose store fails: whatever happens, every record can be read from its pack.

use std::collections::BTreeMap;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use prost::Message as _;
use weir_journal::Class;
use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::{Incarnation, Offset, PartitionId, ShardId};
use weir_protocol::rpc::{TopicConfig, TopicName};
use weir_tier::cold::Ahead;
use weir_tier::faults::{Fault, Faults, Op, store_in_memory};
use weir_tier::store::Store;

use super::super::Rewriter;
use crate::config::NodeConfig;
use crate::node::{Node, RunningNode, Surroundings};
use crate::read;
use crate::replica::ShardHandle;
use crate::shard::command::{Change, Command, CreateTopic};
use crate::shard::entry::{Kind, SubBatch};
use crate::shard::state::{PartitionKey, Verdict};

const WAIT: Duration = Duration::from_secs(60);
const SHARD: ShardId = ShardId(1);
/// Batches of the topic that goes, and of the one that stays.
const BRIEF: u64 = 20;
const LASTING: u64 = 2;

/// A node whose packs are mostly dead: a topic that was trimmed lay beside one that was not.
struct Rig {
    node: RunningNode,
    store: Store,
    faults: Faults,
    lasting: PartitionKey,
    /// Its packs before anything is rewritten.
    packs: Vec<u64>,
}

pub(super) fn value(n: u64) -> Vec<u8> {
    let mut state = n.wrapping_mul(0x9e37_79b9_7f4a_7c15) | 1;
    let step = |_| {
        state ^= state << 13;
        state ^= state >> 7;
        state ^= state << 17;
        state
    };
    (0..12_500).map(step).flat_map(u64::to_le_bytes).collect()
}

async fn until(what: &str, holds: impl Fn() -> bool) {
    let holds = async {
        while !holds() {
            tokio::time::sleep(Duration::from_millis(10)).await;
        }
    };
    tokio::time::timeout(WAIT, holds).await.unwrap_or_else(|_| panic!("{what}: it never did"));
}

async fn change(shard: &ShardHandle, sub: SubBatch) -> Verdict {
    let permit = shard.journal.try_admit(200 << 10, Class::Control).unwrap();
    shard.change(vec![sub], permit).await.unwrap().remove(0)
}

async fn create(shard: &ShardHandle, topic: &str) -> PartitionKey {
    let name = TopicName { tenant: "default".into(), namespace: "default".into(), topic: topic.into() };
    let config = TopicConfig { partitions: 1, ..TopicConfig::default() };
    let create = CreateTopic { name, config, accept_existing: false, shards: Vec::new() };
    let create = Command { change: Some(Change::CreateTopic(create)) }.encode_to_vec();
    let Verdict::TopicCreated(made) = change(shard, SubBatch::command(create.into())).await else { panic!() };
    (Incarnation(made.topic.unwrap().incarnation), PartitionId(0))
}

async fn publish(shard: &ShardHandle, (incarnation, partition): PartitionKey, n: u64) {
    let mut batch = BatchBuilder::anonymous();
    batch.push(RecordParts { key: None, headers: &Headers::default(), value: &value(n) }).unwrap();
    let body = batch.build(Compression::None).unwrap().bytes().clone();
    let sub = SubBatch { incarnation, partition, kind: Kind::Publish, ..SubBatch::command(body) };
    assert!(matches!(change(shard, sub).await, Verdict::Placed(_)));
}

impl Rig {
    async fn new(dir: &Path) -> Self {
        let faults = Faults::default();
        let store = store_in_memory(faults.clone(), Duration::from_secs(2));
        let node = Self::start(dir, &store).await;
        let shard = node.shard(SHARD);
        let (brief, lasting) = (create(&shard, "brief").await, create(&shard, "lasting").await);
        for n in 0..BRIEF {
            publish(&shard, brief, n).await;
            if n % (BRIEF / LASTING) == 0 {
                publish(&shard, lasting, 100 + n / (BRIEF / LASTING)).await;
            }
        }
        until("all is sealed", || shard.state.read().oldest_unsealed().is_none()).await;
        let (incarnation, partition) = brief;
        let trim = SubBatch {
            incarnation,
            partition,
            kind: Kind::Trim,
            expected_end: Some(Offset(BRIEF)),
            ..SubBatch::command(Vec::new().into())
        };
        change(&shard, trim).await;
        let mut rig = Self { node, store, faults, lasting, packs: Vec::new() };
        until("packs without a living record are deleted", || rig.unneeded() == 0).await;
        rig.packs = rig.live();
        assert!(rig.packs.len() > 1, "packs {:?}", rig.packs);
        rig
    }

    async fn start(dir: &Path, store: &Store) -> RunningNode {
        let config = NodeConfig {
            data_dir: dir.to_owned(),
            journal_file_bytes: 16 << 20,
            data_shards: 1,
            tail_ring_bytes: 1,
            seal_after_ms: 1_500,
            seal_bytes: 1 << 20,
            // What is not needed goes with the third manifest that does not need it.
            snapshot_every_ms: 100,
            cache_memory_bytes: 16 << 20,
            cache_disk_bytes: 0,
            // The test does it.
            rewrite_below_percent: 0,
            ..NodeConfig::default()
        };
        let around = Surroundings { object_store: Some(store.clone()), ..Surroundings::default() };
        Node::start_in(config, around).await.unwrap()
    }

    /// The node ends, in order, and starts on what is left: a rewrite that was dropped half done has left
    /// what it would have left in a crash.
    async fn restart(self, dir: &Path) -> Self {
        let Self { node, store, faults, lasting, packs } = self;
        node.shutdown(Duration::from_secs(5)).await;
        faults.always(None);
        let node = Self::start(dir, &store).await;
        Self { node, store, faults, lasting, packs }
    }

    fn rewriter(&self) -> Rewriter {
        let shard = self.node.shard(SHARD);
        let tier = Arc::clone(shard.tier.as_ref().unwrap());
        Rewriter::new(tier, Arc::new(BTreeMap::from([(SHARD, shard)])), 250)
    }

    fn unneeded(&self) -> usize {
        self.node.shard(SHARD).state.read().packs().unneeded().count()
    }

    fn live(&self) -> Vec<u64> {
        self.node.shard(SHARD).state.read().packs().live().map(|(no, _)| no).collect()
    }

    async fn objects(&self) -> usize {
        let shard = self.node.shard(SHARD);
        let folder = weir_tier::store::PackName::folder(shard.tier.as_ref().unwrap().cluster);
        self.store.list(&folder, 1_000).await.unwrap().len()
    }

    /// Reads what stays from its packs, past the journal, which still has it.
    async fn check(&self) {
        read_all(&self.node.shard(SHARD), self.lasting).await;
    }

    /// In the end one object is left, a new one, whatever happened before.
    async fn comes_to_its_end(&self) {
        self.rewriter().round().await.unwrap();
        self.check().await;
        until("what was replaced is deleted", || self.unneeded() == 0).await;
        let live = self.live();
        assert!(live.len() == 1 && !self.packs.contains(&live[0]), "{live:?} of {:?}", self.packs);
        self.check().await;
    }
}

async fn read_all(shard: &ShardHandle, key: PartitionKey) {
    let rows: Vec<_> = shard.state.read().partition(key).unwrap().batches_from(Offset(0)).collect();
    assert_eq!(rows.len() as u64, LASTING);
    let found = read::from_packs(shard, shard.tier.as_ref().unwrap(), key, &rows, Ahead::NONE).await.unwrap();
    for (batch, n) in found.iter().zip(100..) {
        let record = batch.records().unwrap().next().unwrap().unwrap();
        assert!(*record.value == *value(n), "message {n} is another");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_lives_of_mostly_dead_packs_moves_while_it_is_read_and_the_rest_is_freed() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::new(dir.path()).await;
    let before: u64 = rig.node.shard(SHARD).state.read().packs().live().map(|(_, pack)| pack.bytes).sum();
    assert!(before > 1 << 20, "{before} bytes are too few to be worth it");
    let done = Arc::new(AtomicBool::new(false));
    let reader = {
        let (shard, key, done) = (rig.node.shard(SHARD), rig.lasting, Arc::clone(&done));
        tokio::spawn(async move {
            while !done.load(Ordering::Acquire) {
                read_all(&shard, key).await;
            }
        })
    };
    rig.comes_to_its_end().await;
    done.store(true, Ordering::Release);
    reader.await.unwrap();
    let after: u64 = rig.node.shard(SHARD).state.read().packs().live().map(|(_, pack)| pack.bytes).sum();
    assert!(after < LASTING * 101_000, "{after} of {before} bytes");
    assert_eq!(rig.objects().await, 1);
    let live = rig.live();
    rig.rewriter().round().await.unwrap();
    assert_eq!(rig.live(), live, "there is nothing left to gain");
    let rig = rig.restart(dir.path()).await;
    rig.check().await;
    rig.node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_archived_stays_so_in_the_pack_that_it_is_moved_to() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::new(dir.path()).await;
    let shard = rig.node.shard(SHARD);
    let place = || {
        let state = shard.state.read();
        let partition = state.partition(rig.lasting).unwrap();
        (partition.pack_of(Offset(0)).unwrap(), partition.batch_at(Offset(0)).unwrap().index)
    };
    let is_archived = || shard.shared.archive().archived().holds(place().0, place().1);
    until("it is archived", is_archived).await;
    let archived = shard.shared.archive().archived();
    rig.rewriter().round().await.unwrap();
    let (pack, entry) = place();
    assert!(pack > archived.packs, "no manifest of before names it");
    assert!(archived.holds(pack, entry), "but the pack where it was");
    assert!(!archived.holds(pack, shard.state.read().newest()), "what came since is in none");
    drop(shard);
    rig.node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn the_number_of_objects_grows_with_bytes_and_not_with_topics() {
    /// Topics of one entry.
    const AT_ONCE: u64 = 500;
    const BYTES: u64 = 2_000_000;
    let mut objects = Vec::new();
    for topics in [20_u64, 2_000] {
        let dir = tempfile::tempdir().unwrap();
        let store = store_in_memory(Faults::default(), WAIT);
        let node = Rig::start(dir.path(), &store).await;
        let shard = node.shard(SHARD);
        let size = usize::try_from(BYTES / topics).unwrap();
        let mut keys = Vec::new();
        for topic in 0..topics {
            keys.push(create(&shard, &format!("t{topic}")).await);
        }
        for some in keys.chunks(usize::try_from(AT_ONCE).unwrap()) {
            let publish = |(n, (incarnation, partition)): (u64, &PartitionKey)| {
                let mut batch = BatchBuilder::anonymous();
                let value = &value(n)[..size];
                batch.push(RecordParts { key: None, headers: &Headers::default(), value }).unwrap();
                let body = batch.build(Compression::None).unwrap().bytes().clone();
                let to = (*incarnation, *partition);
                SubBatch {
                    incarnation: to.0,
                    partition: to.1,
                    kind: Kind::Publish,
                    ..SubBatch::command(body)
                }
            };
            let subs: Vec<_> = (0..).zip(some).map(publish).collect();
            let permit = shard.journal.try_admit(4 << 20, Class::Control).unwrap();
            shard.change(subs, permit).await.unwrap();
        }
        until("all is sealed", || shard.state.read().oldest_unsealed().is_none()).await;
        let partitions = shard.state.read().shared_partitions();
        assert_eq!(partitions.iter().filter(|(_, of)| of.packed_runs().count() == 1).count() as u64, topics);
        let folder = weir_tier::store::PackName::folder(shard.tier.as_ref().unwrap().cluster);
        objects.push(store.list(&folder, 10_000).await.unwrap().len());
        drop(shard);
        node.shutdown(Duration::from_secs(5)).await;
    }
    assert!(objects.iter().all(|objects| *objects <= 4), "{objects:?} objects for 20 and for 2,000 topics");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_fails_while_packs_are_rewritten_costs_no_record() {
    let dir = tempfile::tempdir().unwrap();
    let rig = Rig::new(dir.path()).await;
    let live = rig.live();
    for (op, fault) in [
        (Op::Put, Fault::Error),
        (Op::Put, Fault::LostRace),
        (Op::Get, Fault::BitFlip),
        (Op::Get, Fault::Truncated(100)),
        (Op::Get, Fault::Error),
        (Op::Put, Fault::Hang),
        (Op::Get, Fault::Hang),
    ] {
        rig.faults.always(Some((op, fault)));
        let failed = rig.rewriter().round().await;
        assert!(failed.is_err(), "{op:?} {fault:?}");
        rig.faults.always(None);
        assert_eq!(rig.live(), live, "{op:?} {fault:?}: what is not verified replaces nothing");
        rig.check().await;
    }
    // An answer that is lost is no failure: the object is there, and what it is was read back.
    rig.faults.next(Op::Put, Fault::AnswerLost);
    drop(rig.rewriter().round().await);
    rig.check().await;
    rig.comes_to_its_end().await;
    rig.node.shutdown(Duration::from_secs(5)).await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_crash_at_any_step_of_rewriting_leaves_the_old_packs_or_the_new_one() {
    for op in [Op::Get, Op::Put, Op::Delete] {
        let dir = tempfile::tempdir().unwrap();
        let rig = Rig::new(dir.path()).await;
        let asked = rig.faults.requests(op);
        rig.faults.always(Some((op, Fault::Hang)));
        let mut rewriter = rig.rewriter();
        let (faults, under_way) = (rig.faults.clone(), tokio::spawn(async move { rewriter.round().await }));
        until("the step is reached", || faults.requests(op) > asked).await;
        if op != Op::Get {
            rig.check().await;
        }
        under_way.abort();
        let rig = rig.restart(dir.path()).await;
        rig.check().await;
        rig.comes_to_its_end().await;
        rig.node.shutdown(Duration::from_secs(5)).await;
    }
}
