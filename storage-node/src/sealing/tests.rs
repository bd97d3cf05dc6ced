//! Tests of the sealer over a store that fails, and of reading what it has sealed.

mod compacting;
mod damaged;
mod deleting;
mod exporting;
mod rewriter;
mod rewriting;
mod whereabouts;

use std::collections::BTreeMap;
use std::os::unix::fs::FileExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::sync::mpsc;
use std::time::Duration;

use futures_util::poll;
use prometheus::Registry;
use prost::Message as _;
use tokio::time::Instant;
use weir_journal::{Class, Full, LogPosition};
use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{ClusterId, Incarnation, Offset, PartitionId, ShardId, Term};
use weir_protocol::rpc::{TopicConfig, TopicName};
use weir_tier::cold::{CacheConfig, Cold};
use weir_tier::faults::{Fault, Faults, Op, in_memory};
use weir_tier::pack::{BlockCodec, PackIdentity, PackWriter, PieceMemory};
use weir_tier::snapshot::Exports;
use weir_tier::store::PackName;

use super::Sealer;
use super::making::SealError;
use super::sealer::RELEASE_EVERY;
use crate::metrics::TierMetrics;
use crate::node::RunningNode;
use crate::node::tests::start;
use crate::read::{Allowance, Reader};
use crate::replica::ShardHandle;
use crate::shard::command::{Change, Command, CreateTopic, DeleteTopic};
use crate::shard::entry::{Kind, SubBatch};
use crate::shard::state::{Pack, PartitionKey, Verdict};
use crate::tier::{Damaged, Tier, Uploads};

/// A node and the sealer of its shards, which only the test calls.
struct Play {
    node: RunningNode,
    tier: Arc<Tier>,
    sealer: Sealer,
    shards: Arc<BTreeMap<ShardId, ShardHandle>>,
    dir: tempfile::TempDir,
}

impl Play {
    /// Each batch is a pack of its own.
    async fn start(faults: &Faults) -> Self {
        Self::with_packs_of(1, faults).await
    }

    async fn with_packs_of(seal_bytes: u64, faults: &Faults) -> Self {
        Self::with_packs_after(Duration::ZERO, seal_bytes, faults).await
    }

    /// Batches of this age become packs, and younger ones that somebody waits for.
    async fn with_packs_after(seal_after: Duration, seal_bytes: u64, faults: &Faults) -> Self {
        let dir = tempfile::tempdir().unwrap();
        let node = start(dir.path()).await;
        let cache = CacheConfig { memory_bytes: 1 << 20, disk_bytes: 0, folder: dir.path().join("cache") };
        let store = in_memory(faults.clone());
        let tier = Arc::new(Tier {
            snapshot_every: Duration::ZERO,
            exports: Exports::new(store.clone(), ClusterId(7)),
            epoch: 0,
            data_shards: 2,
            dedupe_rows: 1_000,
            known: None,
            cold: Cold::open(store, cache).await.unwrap(),
            cluster: ClusterId(7),
            codec: BlockCodec::Raw,
            seal_bytes,
            seal_after,
            uploads: Uploads::default(),
            damaged: Damaged::default(),
            is_deposed: AtomicBool::new(false),
            is_emptied: AtomicBool::new(false),
            metrics: TierMetrics::register(&Registry::new()).unwrap(),
            background: crate::background::Background::start("weir-test").unwrap(),
            pack_memory: PieceMemory::default(),
        });
        Self::with_node(node, tier, dir)
    }

    fn with_node(node: RunningNode, tier: Arc<Tier>, dir: tempfile::TempDir) -> Self {
        let handle = |id| (id, ShardHandle { tier: Some(Arc::clone(&tier)), ..node.shard(id) });
        let shards = Arc::new(BTreeMap::from([ShardId::META, ShardId(1), ShardId(2)].map(handle)));
        let sealer = Sealer::new(Arc::clone(&tier), Arc::clone(&shards));
        Self { node, tier, sealer, shards, dir }
    }

    /// The node ends, in order, and starts on what is left; the store is the same.
    async fn restart(self) -> Self {
        let Self { node, tier, sealer, shards, dir } = self;
        drop((sealer, shards));
        node.shutdown(Duration::from_secs(1)).await;
        Self::with_node(start(dir.path()).await, tier, dir)
    }

    async fn change(&self, shard: u32, sub: SubBatch) -> Verdict {
        let shard = &self.shards[&ShardId(shard)];
        let permit = shard.journal.try_admit(200 << 10, Class::Control).unwrap();
        shard.change(vec![sub], permit).await.unwrap().remove(0)
    }

    async fn command(&self, shard: u32, change: Change) -> Verdict {
        let command = Command { change: Some(change) }.encode_to_vec();
        self.change(shard, SubBatch::command(command.into())).await
    }

    async fn create(&self, shard: u32, topic: &str) -> PartitionKey {
        let config = TopicConfig { partitions: 1, ..TopicConfig::default() };
        let create = CreateTopic { name: name(topic), config, accept_existing: false, shards: vec![shard] };
        let Verdict::TopicCreated(made) = self.command(shard, Change::CreateTopic(create)).await else {
            panic!("it is new")
        };
        (Incarnation(made.topic.unwrap().incarnation), PartitionId(0))
    }

    async fn delete(&self, shard: u32, topic: &str) {
        let delete = DeleteTopic { name: name(topic), incarnation: None, expected_version: None };
        assert!(matches!(self.command(shard, Change::DeleteTopic(delete)).await, Verdict::Topic(_)));
    }

    async fn publish(&self, shard: u32, key: PartitionKey) {
        self.publish_value(shard, key, b"a").await;
    }

    async fn publish_value(&self, shard: u32, (incarnation, partition): PartitionKey, value: &[u8]) {
        let mut batch = BatchBuilder::anonymous();
        batch.push(RecordParts { key: None, headers: &Headers::default(), value }).unwrap();
        let body = batch.build(Compression::None).unwrap().unplaced().bytes().clone();
        let publish = SubBatch { incarnation, partition, kind: Kind::Publish, ..SubBatch::command(body) };
        assert!(matches!(self.change(shard, publish).await, Verdict::Placed(_)));
    }

    /// Changes a byte of this value in the journal, on its disk.
    fn damage(&self, value: &[u8]) {
        assert!(overwrite(self.dir.path(), value, b"?") > 0, "the value is in no file");
    }

    /// Publishes to the other shard what the journal keeps in memory, so that the rest is read from its disk.
    async fn push_out(&self) {
        let filler = self.create(2, "filler").await;
        self.fill(2, filler, 20).await;
    }

    async fn trim(&self, shard: u32, (incarnation, partition): PartitionKey, upto: u64) {
        let (kind, expected_end) = (Kind::Trim, Some(Offset(upto)));
        let nothing = SubBatch::command(Vec::new().into());
        let trim = SubBatch { incarnation, partition, kind, expected_end, ..nothing };
        assert_eq!(self.change(shard, trim).await, Verdict::Done);
    }

    /// Somebody waits for all that the shard has.
    fn want_all(&self, shard: u32) {
        let shard = &self.shards[&ShardId(shard)];
        shard.shared.archive().want(shard.state.read().newest());
    }

    /// Packs in use and packs whose objects are to be deleted.
    fn packs(&self, shard: u32) -> (usize, usize) {
        let state = self.shards[&ShardId(shard)].state.read();
        (state.packs().live().count(), state.packs().unneeded().count())
    }

    /// Names of the objects of packs, in use or not, by number.
    fn objects(&self, shard: u32) -> Vec<String> {
        let state = self.shards[&ShardId(shard)].state.read();
        let mut packs: Vec<_> = state.packs().live().chain(state.packs().unneeded()).collect();
        packs.sort_by_key(|(no, _)| *no);
        let name = |(_, pack): (_, &Pack)| pack.name(self.tier.cluster, ShardId(shard)).to_string();
        packs.into_iter().map(name).collect()
    }

    async fn stop(self) {
        let Self { node, tier, sealer, shards, dir: _dir } = self;
        drop((tier, sealer, shards));
        node.shutdown(Duration::from_secs(1)).await;
    }
}

/// Overwrites the beginning of these bytes wherever they are in the journal of a node, on its disk. How often that is.
#[expect(clippy::disallowed_methods, clippy::disallowed_types, reason = "what the journal is not asked for")]
pub(crate) fn overwrite(dir: &Path, bytes: &[u8], with: &[u8]) -> usize {
    let files = std::fs::read_dir(dir.join("wal")).unwrap().map(|file| file.unwrap().path());
    files
        .map(|path| {
            // One that is made ready, and holds nothing yet, may have got its name meanwhile.
            let Ok(content) = std::fs::read(&path) else { return 0 };
            let found = content.windows(bytes.len()).enumerate().filter(|(_, window)| *window == bytes);
            let file = std::fs::File::options().write(true).open(path).unwrap();
            found.map(|(at, _)| file.write_all_at(with, at as u64).unwrap()).count()
        })
        .sum()
}

fn name(topic: &str) -> TopicName {
    TopicName { tenant: "default".into(), namespace: "default".into(), topic: topic.into() }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_deletes_nothing_takes_packs_of_all_shards_nevertheless() {
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    let gone = play.create(1, "gone").await;
    play.publish(1, gone).await;
    play.sealer.round().await.unwrap();
    assert_eq!(play.packs(1), (1, 0));
    play.delete(1, "gone").await;
    let stays = play.create(2, "stays").await;
    play.publish(2, stays).await;
    faults.always(Some((Op::Delete, Fault::Error)));
    play.sealer.round().await.unwrap();
    assert_eq!((play.packs(1), play.packs(2)), ((0, 1), (1, 0)));
    // Manifests that stay are no failure. The object is asked to be deleted once no manifest that is kept
    // names it, and then left alone for a while.
    let mut refused = 0;
    for _ in 0..4 {
        refused += usize::from(play.sealer.round().await.is_err());
    }
    assert_eq!((refused, play.packs(1), play.packs(2)), (1, (0, 1), (1, 0)));
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn packs_are_made_without_pauses_up_to_what_somebody_waits_for() {
    let mut play = Play::start(&Faults::default()).await;
    let key = play.create(1, "t").await;
    let mut hurried = Vec::new();
    for is_waited_for in [false, true, false] {
        play.publish(1, key).await;
        let shard = &play.shards[&ShardId(1)];
        if is_waited_for {
            let entry = shard.state.read().oldest_unsealed().unwrap().index;
            shard.shared.archive().want(entry);
        }
        play.sealer.round().await.unwrap();
        hurried.push(play.tier.metrics.hurried_packs());
    }
    assert_eq!((play.packs(1), &hurried[..]), ((3, 0), &[0, 1, 1][..]));
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_somebody_waits_for_is_sent_as_fast_as_it_goes() {
    for (object, is_waited_for) in
        [(".pack", false), (".pack", true), (".manifest", false), (".manifest", true)]
    {
        let faults = Faults::default();
        let mut play = Play::start(&faults).await;
        let key = play.create(1, "t").await;
        play.publish(1, key).await;
        if is_waited_for {
            let shard = &play.shards[&ShardId(1)];
            let entry = shard.state.read().oldest_unsealed().unwrap().index;
            shard.shared.archive().want(entry);
        }
        faults.named(Some((Op::Put, object, Fault::Stalled)));
        let tier = Arc::clone(&play.tier);
        let meanwhile = async {
            faults.stalled(1).await;
            let is_hurried = tier.cold.store().is_hurried();
            faults.go_on();
            is_hurried
        };
        let (round, is_hurried) = tokio::join!(play.sealer.round(), meanwhile);
        round.unwrap();
        assert_eq!(is_hurried, is_waited_for, "{object}");
        assert!(!tier.cold.store().is_hurried(), "nobody waits any more");
        play.stop().await;
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_pack_that_another_shard_has_to_wait_for_is_made_without_pauses() {
    let mut play = Play::start(&Faults::default()).await;
    let (first, second) = (play.create(1, "first").await, play.create(2, "second").await);
    let mut hurried = Vec::new();
    for is_waited_for in [true, false] {
        play.publish(1, first).await;
        play.publish(2, second).await;
        if is_waited_for {
            play.want_all(2);
        }
        play.sealer.round().await.unwrap();
        hurried.push(play.tier.metrics.hurried_packs());
    }
    assert_eq!((play.packs(1), play.packs(2)), ((2, 0), (2, 0)));
    assert_eq!(hurried, [2, 2], "both while somebody waits for the second shard's, and none after that");
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn who_waits_for_a_pack_does_not_wait_until_no_shard_has_more() {
    const BACKLOG: usize = 40;
    let faults = Faults::default();
    // Nothing becomes old: a shard has more to seal as long as it has what somebody waits for.
    let mut play = Play::with_packs_after(Duration::from_secs(3_600), 1, &faults).await;
    let (busy, quiet) = (play.create(1, "busy").await, play.create(2, "quiet").await);
    for _ in 0..BACKLOG {
        play.publish(1, busy).await;
    }
    play.publish(2, quiet).await;
    play.want_all(1);
    faults.always(Some((Op::Put, Fault::Slow(Duration::from_millis(5)))));
    let Play { sealer, shards, .. } = &mut play;
    let (first, second) = (&shards[&ShardId(1)], &shards[&ShardId(2)]);
    let sealed = |shard: &ShardHandle| shard.state.read().packs().live().count();
    let waited = async {
        while sealed(first) == 0 {
            tokio::time::sleep(Duration::from_millis(1)).await;
        }
        // The round is under way.
        let archive = second.shared.archive();
        archive.want(second.state.read().newest());
        let mut archived = archive.watch();
        archived.wait_for(|archived| archived.packs > 0).await.unwrap();
        sealed(first)
    };
    let before = tokio::select! {
        before = waited => before,
        done = sealer.round() => panic!("{done:?}, and who waits for the other shard was not looked at"),
    };
    assert!(before < BACKLOG, "{before} packs of the first shard went before it");
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn nothing_is_sent_to_the_store_that_the_log_has_no_room_to_name() {
    let mut play = Play::start(&Faults::default()).await;
    let key = play.create(1, "t").await;
    play.publish(1, key).await;
    let journal = play.shards[&ShardId(1)].journal.clone();
    // What was published gives its room back behind its answer.
    let room = loop {
        match journal.try_admit(journal.config().pending_bytes_max, Class::Relief) {
            Ok(room) => break room,
            Err(full) => assert!(matches!(full, Full::Busy { .. }), "{full}"),
        }
        tokio::time::sleep(Duration::from_millis(1)).await;
    };
    let store = play.tier.cold.store().clone();
    for _ in 0..3 {
        let failed = play.sealer.round().await.unwrap_err();
        assert!(
            matches!(&failed, SealError::Refused(why) if why.error_code() == ErrorCode::Busy),
            "{failed}"
        );
    }
    let sent = store.list(&PackName::folder(ClusterId(7)), 9).await.unwrap();
    assert_eq!(sent, [], "each would be an object that nothing needs");
    drop(room);
    play.sealer.round().await.unwrap();
    assert_eq!(play.packs(1), (1, 0));
    play.stop().await;
}

#[tokio::test]
async fn what_packs_were_made_in_is_given_back_when_no_more_are_made() {
    let mut play = Play::start(&Faults::default()).await;
    let identity = PackIdentity { cluster: ClusterId(7), shard: ShardId(1), term: Term(1) };
    drop(PackWriter::new(identity, BlockCodec::Raw, &play.tier.pack_memory));
    let registry = Registry::new();
    let metrics = TierMetrics::register(&registry).unwrap();
    metrics.watch(play.tier.cold.clone(), 1 << 20, play.tier.pack_memory.clone());
    let scraped = || {
        let families = registry.gather();
        let told = families.iter().find(|family| family.name() == "weir_tier_pack_memory_bytes");
        told.unwrap().get_metric()[0].get_gauge().get_value()
    };
    let begun = Instant::now();
    let mut held = Vec::new();
    // What was used since the last time stays.
    for rests in [Duration::ZERO, RELEASE_EVERY, RELEASE_EVERY + RELEASE_EVERY / 2, 2 * RELEASE_EVERY] {
        play.sealer.release_memory(begun + rests);
        held.push(scraped());
    }
    let piece = f64::from(1 << 20);
    assert_eq!(held, [piece, piece, piece, 0.0]);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_shard_that_cannot_be_sealed_keeps_no_other_waiting() {
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    let (first, second) = (play.create(1, "first").await, play.create(2, "second").await);
    play.publish(1, first).await;
    play.publish(2, second).await;
    // The first upload of the round is the first shard's.
    faults.next(Op::Put, Fault::Error);
    play.sealer.round().await.unwrap_err();
    assert_eq!((play.packs(1), play.packs(2)), ((0, 0), (1, 0)));
    let why = play.tier.uploads.failure().expect("the second shard's success is not the first one's");
    assert!(why.contains("planned to fail"), "{why}");
    play.sealer.round().await.unwrap();
    assert_eq!((play.packs(1), play.tier.uploads.failure()), ((1, 0), None));
    play.stop().await;
}

/// Of two records one is sealed. It leaves the log after a reader has looked where they are.
#[test]
fn what_leaves_the_log_while_it_is_read_is_read_from_its_pack_and_what_stays_from_the_log() {
    let runtime = tokio::runtime::Builder::new_multi_thread()
        .worker_threads(2)
        .max_blocking_threads(1)
        .enable_all()
        .build()
        .unwrap();
    runtime.block_on(async {
        let mut play = Play::start(&Faults::default()).await;
        let key = play.create(1, "t").await;
        play.publish(1, key).await;
        play.sealer.round().await.unwrap();
        // The newest entry stays in memory.
        for _ in 0..2 {
            play.publish(1, key).await;
        }
        let shard = &play.shards[&ShardId(1)];
        let sealed = shard.state.read().partition(key).unwrap().oldest().unwrap().index.0;
        let reader = Reader::new(shard.clone(), key);
        let all = Allowance { records: 10, bytes: 1 << 20 };
        let mut read = Box::pin(async move { reader.read(Offset(0), Offset(3), all).await });
        // The journal is read on the only thread for that, which is taken.
        let (go_on, wait) = mpsc::channel::<()>();
        let taken = tokio::task::spawn_blocking(move || wait.recv());
        assert!(poll!(read.as_mut()).is_pending());
        shard.journal.note_purged(shard.stream(), LogPosition { term: 1, leader: 0, index: sealed });
        go_on.send(()).unwrap();
        let read = read.await.unwrap();
        assert_eq!((read.records, read.next), (3, Offset(3)));
        taken.await.unwrap().unwrap();
        play.stop().await;
    });
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_record_that_was_trimmed_while_it_was_read_is_trimmed_and_not_damaged() {
    let play = Play::start(&Faults::default()).await;
    let key = play.create(1, "t").await;
    for _ in 0..3 {
        play.publish(1, key).await;
    }
    let shard = &play.shards[&ShardId(1)];
    let reader = Reader::new(shard.clone(), key);
    let failed = |at, code| {
        let refusal = weir_protocol::rpc::Refusal::new(code, "as whoever read it says");
        let means = reader.means(Offset(at), refusal);
        (means.error_code(), means.earliest)
    };
    assert_eq!(failed(1, ErrorCode::Corrupt), (ErrorCode::Corrupt, None));
    assert_eq!(failed(1, ErrorCode::OffsetTrimmed), (ErrorCode::Corrupt, None));
    play.trim(1, key, 2).await;
    for code in [ErrorCode::Corrupt, ErrorCode::OffsetTrimmed, ErrorCode::Unavailable] {
        assert_eq!(failed(1, code), (ErrorCode::OffsetTrimmed, Some(2)), "{code:?}");
    }
    assert_eq!(failed(2, ErrorCode::Corrupt), (ErrorCode::Corrupt, None));
    drop(reader);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_is_damaged_in_the_log_is_read_from_its_pack() {
    let mut play = Play::start(&Faults::default()).await;
    let key = play.create(1, "t").await;
    for value in [b"first value!", b"second value", b"third value!"] {
        play.publish_value(1, key, value).await;
    }
    play.sealer.round().await.unwrap();
    for value in [b"fourth value", b"newest value"] {
        // The newest stays in memory.
        play.publish_value(1, key, value).await;
    }
    play.damage(b"second value");
    play.damage(b"fourth value");
    play.push_out().await;
    let reader = Reader::new(play.shards[&ShardId(1)].clone(), key);
    let all = Allowance { records: 10, bytes: 1 << 20 };
    let read = reader.read(Offset(0), Offset(5), all).await.unwrap();
    assert_eq!((read.records, read.next), (3, Offset(3)), "what a pack holds");
    let refusal = reader.read(Offset(3), Offset(5), all).await.unwrap_err();
    assert_eq!(refusal.error_code(), ErrorCode::Corrupt, "what no pack holds");
    drop(reader);
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_cannot_be_read_keeps_its_own_partition_and_no_other() {
    let mut play = Play::with_packs_of(64 << 20, &Faults::default()).await;
    let (bad, good) = (play.create(1, "bad").await, play.create(1, "good").await);
    for (key, value) in [(bad, b"is not there"), (bad, b"is behind it"), (good, b"is not alike")] {
        play.publish_value(1, key, value).await;
    }
    // The newest stays in memory.
    play.publish(1, good).await;
    play.damage(b"is not there");
    play.push_out().await;
    let why = play.sealer.round().await.unwrap_err().to_string();
    assert_eq!(play.packs(1), (1, 0), "the other is sealed in the same round");
    let told = play.tier.uploads.unreadable().expect("it is told, until it is trimmed");
    for part in ["message 0 of default/bad", "partition 0", "trim the topic to 1 or beyond"] {
        assert!(why.contains(part) && told.contains(part), "{part}: {why}; {told}");
    }
    play.publish(1, good).await;
    play.sealer.round().await.unwrap();
    assert_eq!((play.packs(1), play.tier.uploads.failure()), ((2, 0), None));
    assert!(play.tier.uploads.unreadable().is_some());
    play.trim(1, bad, 1).await;
    play.sealer.round().await.unwrap();
    assert_eq!((play.packs(1), play.tier.uploads.unreadable()), ((3, 0), None));
    play.stop().await;
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_message_that_cannot_be_read_and_somebody_waits_for_leaves_other_packs_their_pauses() {
    let faults = Faults::default();
    let mut play = Play::start(&faults).await;
    let (bad, good) = (play.create(1, "bad").await, play.create(1, "good").await);
    play.publish_value(1, bad, b"is not there").await;
    play.publish(1, good).await;
    play.want_all(1);
    // The newest stays in memory.
    play.publish(1, good).await;
    play.damage(b"is not there");
    play.push_out().await;
    play.sealer.round().await.unwrap_err();
    assert!(play.tier.uploads.unreadable().is_some());
    let (hurried, packs) = (play.tier.metrics.hurried_packs(), play.packs(1).0);
    // The first of these packs is in no manifest when the second is made.
    faults.named(Some((Op::Put, ".manifest", Fault::Error)));
    for _ in 0..2 {
        play.publish(1, good).await;
    }
    play.sealer.round().await.unwrap_err();
    assert_eq!(play.packs(1).0, packs + 2);
    assert_eq!(play.tier.metrics.hurried_packs(), hurried, "nobody waits for what can be had");
    play.stop().await;
}
