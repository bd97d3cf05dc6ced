//! Packs in a store are read back, once each, whatever the store does meanwhile.
#![expect(clippy::unwrap_used, reason = "a test stops at what it did not expect")]

use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use bytes::Bytes;
use object_store::memory::InMemory;
use object_store::path::Path;
use ulid::Ulid;
use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
use weir_protocol::ids::{ClusterId, Incarnation, LogIndex, Offset, PartitionId, ShardId, Term, TimestampMs};
use weir_tier::cold::{Ahead, CacheConfig, Cold, PackRef, ReadWithinADay};
use weir_tier::faults::{Fault, Faults, FaultyStore, Op};
use weir_tier::pack::{BlockCodec, PackIdentity, PackWriter, PackedPartition, PieceMemory, batches};
use weir_tier::store::{PackName, Store, StoreConfig, Upload};

const PARTITION: PackedPartition = (Incarnation(9), PartitionId(1));
const BATCHES: u64 = 24;
/// Of a block that is read whole.
const ALL: Range<Offset> = Offset(0)..Offset(u64::MAX);

fn name(shard: u32) -> PackName {
    PackName {
        cluster: ClusterId(77),
        shard: ShardId(shard),
        first: LogIndex(1),
        last: LogIndex(50),
        term: Term(2),
        attempt: Ulid::new(),
    }
}

fn value(n: u64) -> Vec<u8> {
    (0..100_000u64).map(|i| (i * (n + 3)).to_le_bytes()[1]).collect()
}

/// A pack of several blocks, made for `shard` and put under a name of `named`.
async fn put(store: &Store, shard: u32, named: u32) -> PackRef {
    put_values(store, shard, named, (0..BATCHES).map(value)).await
}

async fn send(upload: &mut Upload, pieces: Vec<Bytes>) {
    for piece in pieces {
        upload.write(piece).await.unwrap();
    }
}

/// The same of any values.
async fn put_values(store: &Store, shard: u32, named: u32, values: impl Iterator<Item = Vec<u8>>) -> PackRef {
    let name = name(named);
    let identity = PackIdentity { cluster: name.cluster, shard: ShardId(shard), term: name.term };
    let mut writer = PackWriter::new(identity, BlockCodec::Zstd, &PieceMemory::default());
    let mut upload = store.upload(name.to_string());
    for (n, value) in (0..).zip(values) {
        let mut batch = BatchBuilder::anonymous();
        batch.push(RecordParts { key: None, headers: &Headers::default(), value: &value }).unwrap();
        let batch = batch.build(Compression::None).unwrap();
        writer.push(PARTITION, Offset(n), TimestampMs(n), &batch).unwrap();
        send(&mut upload, writer.take_ready()).await;
    }
    let (rest, summary) = writer.finish();
    send(&mut upload, rest).await;
    upload.finish().await.unwrap();
    PackRef { name, bytes: summary.pack_bytes, tail_bytes: summary.tail_bytes, life_shift: 0 }
}

async fn cold(disk_bytes: u64, memory_bytes: usize, folder: &std::path::Path) -> (Cold, Faults) {
    cold_within(StoreConfig::new("memory:").patience, (disk_bytes, memory_bytes), folder).await
}

/// For a store that hangs: it is given up soon.
async fn impatient(folder: &std::path::Path) -> (Cold, Faults) {
    cold_within(Duration::from_millis(300), (0, 64 << 20), folder).await
}

async fn cold_within(
    patience: Duration,
    (disk_bytes, memory_bytes): (u64, usize),
    folder: &std::path::Path,
) -> (Cold, Faults) {
    let faults = Faults::default();
    let inner = FaultyStore::new(Arc::new(InMemory::new()), faults.clone());
    let config = StoreConfig { patience, ..StoreConfig::new("memory:") };
    let store = Store::over(Arc::new(inner), Path::default(), config);
    (Cold::open(store, cache(disk_bytes, memory_bytes, folder)).await.unwrap(), faults)
}

fn cache(disk_bytes: u64, memory_bytes: usize, folder: &std::path::Path) -> CacheConfig {
    CacheConfig { memory_bytes, disk_bytes, folder: folder.to_owned() }
}

/// All values of the pack, block by block.
async fn read(cold: &Cold, pack: &PackRef) -> Result<Vec<Bytes>, weir_tier::cold::ColdError> {
    let footer = cold.footer(pack).await?;
    let row = footer.partition(PARTITION).unwrap();
    let mut values = Vec::new();
    for place in 0..row.blocks as usize {
        let raw = cold.block(pack, &footer, PARTITION, place, &ALL).await?;
        for batch in batches(raw, &footer.blocks(row)[place], PARTITION) {
            values.extend(batch.unwrap().records().unwrap().map(|record| record.unwrap().value));
        }
    }
    Ok(values)
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn many_readers_cost_one_fetch_of_each_block() {
    let folder = tempfile::tempdir().unwrap();
    let (cold, faults) = cold(0, 64 << 20, folder.path()).await;
    let pack = put(cold.store(), 3, 3).await;
    faults.always(Some((Op::Get, Fault::Slow(Duration::from_millis(10)))));
    let before = faults.requests(Op::Get);
    let readers = (0..50).map(|_| {
        let cold = cold.clone();
        tokio::spawn(async move { read(&cold, &pack).await.unwrap() })
    });
    for values in futures_util::future::join_all(readers).await {
        let expected = (0..BATCHES).map(value);
        assert!(values.unwrap().into_iter().eq(expected.map(Bytes::from)));
    }
    let blocks = cold.footer(&pack).await.unwrap().partition(PARTITION).unwrap().blocks as usize;
    assert!(blocks > 3, "{blocks} blocks");
    assert_eq!(faults.requests(Op::Get) - before, 1 + blocks, "a footer and the blocks");
    assert_eq!(cold.metrics().fetched.load(Ordering::Relaxed), blocks as u64);
    assert_eq!(cold.metrics().asked.load(Ordering::Relaxed), 50 * blocks as u64);
    let (read, expected) = (cold.metrics().read_within_a_day(PARTITION), blocks as f64);
    for (told, expected) in [(read.asked, 50.0 * expected), (read.missed, expected), (read.gets, expected)] {
        assert!((told - expected).abs() < 0.1, "{read:?} of {blocks} blocks");
    }
    assert!(read.get_bytes > 0.0 && read.get_bytes < pack.bytes as f64, "{read:?} of {pack:?}");
    assert_eq!(cold.metrics().read_within_a_day((Incarnation(99), PARTITION.1)), ReadWithinADay::default());
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_memory_has_no_room_for_comes_from_the_disk() {
    let folder = tempfile::tempdir().unwrap();
    let (cold, faults) = cold(64 << 20, 1, folder.path()).await;
    let pack = put(cold.store(), 3, 3).await;
    let first = read(&cold, &pack).await.unwrap();
    // Blocks are written to disk in the background, and a full queue may drop some: read until all are there.
    let mut quiet = false;
    for _ in 0..200 {
        let before = faults.requests(Op::Get);
        assert_eq!(read(&cold, &pack).await.unwrap(), first);
        quiet = faults.requests(Op::Get) == before;
        if quiet {
            break;
        }
        tokio::time::sleep(Duration::from_millis(10)).await;
    }
    assert!(quiet, "nothing is kept on disk");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn damage_and_absence_name_the_object_and_do_not_stay() {
    let folder = tempfile::tempdir().unwrap();
    let (cold, faults) = impatient(folder.path()).await;
    let pack = put(cold.store(), 3, 3).await;
    let footer = cold.footer(&pack).await.unwrap();
    for (fault, is_damage) in [(Fault::BitFlip, true), (Fault::Truncated(9), false), (Fault::Hang, false)] {
        faults.always(Some((Op::Get, fault)));
        let refused = cold.block(&pack, &footer, PARTITION, 1, &ALL).await.unwrap_err();
        assert_eq!((refused.object, refused.is_damage), (pack.name.to_string(), is_damage), "{fault:?}");
    }
    faults.always(None);
    assert_eq!(read(&cold, &pack).await.unwrap().len() as u64, BATCHES, "a fault is not remembered");
    let foreign = put(cold.store(), 4, 3).await;
    let refused = cold.footer(&foreign).await.unwrap_err();
    assert!(refused.is_damage && refused.why.contains("shard 4"), "{refused}");
    let other = put(cold.store(), 3, 3).await;
    cold.store().delete(&other.name.to_string()).await.unwrap();
    let gone = cold.footer(&other).await.unwrap_err();
    assert!(gone.is_damage && gone.why.contains("missing") && gone.why.contains(&gone.object), "{gone}");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn an_object_that_is_cut_short_is_damaged_wherever_it_ends() {
    let folder = tempfile::tempdir().unwrap();
    let (cold, _) = cold(0, 64 << 20, folder.path()).await;
    let pack = put(cold.store(), 3, 3).await;
    let (name, footer) = (pack.name.to_string(), cold.footer(&pack).await.unwrap());
    let whole = cold.store().get_all(&name, pack.bytes).await.unwrap();
    let last = footer.partition(PARTITION).unwrap().blocks as usize - 1;
    for bytes in [0, 1, whole.len() / 2, whole.len() - 1] {
        cold.store().delete(&name).await.unwrap();
        cold.store().create(&name, whole.slice(..bytes)).await.unwrap();
        let fresh = Cold::open(cold.store().clone(), cache(0, 64 << 20, folder.path())).await.unwrap();
        let refused = fresh.footer(&pack).await.unwrap_err();
        assert!(refused.is_damage && refused.object == name, "{bytes} bytes: {refused}");
        assert!(refused.why.contains(&format!("{bytes} of {} bytes", pack.bytes)), "{refused}");
        if bytes <= whole.len() / 2 {
            // The footer was read before.
            let refused = fresh.block(&pack, &footer, PARTITION, last, &ALL).await.unwrap_err();
            assert!(refused.is_damage && refused.why.contains("cut short"), "{bytes} bytes: {refused}");
        }
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn neighbours_come_with_one_request_and_are_there_when_they_are_read() {
    let folder = tempfile::tempdir().unwrap();
    let (cold, faults) = cold(0, 64 << 20, folder.path()).await;
    let pack = put(cold.store(), 3, 3).await;
    let footer = cold.footer(&pack).await.unwrap();
    let (before, metrics) = (faults.requests(Op::Get), cold.metrics());
    let fetched = || metrics.fetched.load(Ordering::Relaxed);
    cold.read_ahead(&pack, &footer, PARTITION, 1..3, Ahead::NONE);
    while fetched() < 2 {
        tokio::task::yield_now().await;
    }
    for place in [1, 2] {
        cold.block(&pack, &footer, PARTITION, place, &ALL).await.unwrap();
    }
    assert_eq!((faults.requests(Op::Get) - before, fetched()), (1, 2), "one request for both");
    cold.read_ahead(&pack, &footer, PARTITION, 1..3, Ahead::NONE);
    cold.read_ahead(&pack, &footer, PARTITION, 1_000..1_002, Ahead::blocks(2));
    assert_eq!(fetched(), 2, "what is there is not fetched again");

    // Around what is there, and behind what is needed: a request of their own each.
    cold.read_ahead(&pack, &footer, PARTITION, 0..1, Ahead::NONE);
    cold.read_ahead(&pack, &footer, PARTITION, 2..3, Ahead::blocks(1));
    assert_eq!(read(&cold, &pack).await.unwrap().len() as u64, BATCHES);
    let blocks = footer.partition(PARTITION).unwrap().blocks as u64;
    assert_eq!(fetched(), blocks, "each block once");
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn readers_of_one_stretch_fetch_each_of_its_blocks_once() {
    let folder = tempfile::tempdir().unwrap();
    let (cold, faults) = cold(0, 64 << 20, folder.path()).await;
    let pack = put(cold.store(), 3, 3).await;
    let footer = cold.footer(&pack).await.unwrap();
    faults.always(Some((Op::Get, Fault::Slow(Duration::from_millis(10)))));
    let got = || cold.store().metrics().get_bytes.load(Ordering::Relaxed);
    let (before, blocks) = (got(), footer.partition(PARTITION).unwrap().blocks as usize);
    let readers = (0..20).map(|from| {
        let (cold, footer) = (cold.clone(), Arc::clone(&footer));
        tokio::spawn(async move {
            let places = from % blocks..blocks;
            cold.read_ahead(&pack, &footer, PARTITION, places.clone(), Ahead::blocks(2));
            for place in places {
                cold.block(&pack, &footer, PARTITION, place, &ALL).await.unwrap();
            }
        })
    });
    for reader in futures_util::future::join_all(readers).await {
        reader.unwrap();
    }
    assert_eq!(cold.metrics().fetched.load(Ordering::Relaxed), blocks as u64);
    let bytes = got() - before;
    assert!(bytes <= pack.bytes, "{bytes} bytes of an object of {}", pack.bytes);
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_block_whose_neighbour_is_cut_off_can_still_be_read() {
    let folder = tempfile::tempdir().unwrap();
    let (cold, faults) = cold(0, 64 << 20, folder.path()).await;
    let pack = put(cold.store(), 3, 3).await;
    let footer = cold.footer(&pack).await.unwrap();
    // Of anything longer than a block, the end is missing; a single block comes whole.
    let row = *footer.partition(PARTITION).unwrap();
    let longest = footer.blocks(&row).iter().map(|block| block.stored_bytes).max().unwrap();
    faults.always(Some((Op::Get, Fault::Truncated(longest.into()))));
    let blocks = row.blocks as usize;
    cold.read_ahead(&pack, &footer, PARTITION, 0..blocks, Ahead::NONE);
    for place in 0..blocks {
        cold.block(&pack, &footer, PARTITION, place, &ALL).await.unwrap();
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn what_compresses_well_is_not_fetched_by_the_hundred() {
    let folder = tempfile::tempdir().unwrap();
    let (cold, faults) = cold(0, 64 << 20, folder.path()).await;
    let pack = put_values(cold.store(), 3, 3, (0..200).map(|n| vec![n; 100_000])).await;
    let footer = cold.footer(&pack).await.unwrap();
    let blocks = footer.partition(PARTITION).unwrap().blocks as usize;
    assert!(blocks > 24 && pack.bytes < 1 << 20, "{blocks} blocks in {} bytes", pack.bytes);
    let (before, metrics) = (faults.requests(Op::Get), cold.metrics());
    // The one that is needed, and behind it to the end of the eight that the last wanted one is of.
    cold.read_ahead(&pack, &footer, PARTITION, 0..1, Ahead::blocks(9));
    for place in 0..16 {
        cold.block(&pack, &footer, PARTITION, place, &ALL).await.unwrap();
    }
    assert_eq!((faults.requests(Op::Get) - before, metrics.fetched.load(Ordering::Relaxed)), (3, 16));
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn no_block_is_read_ahead_that_nothing_may_be_given_of() {
    let folder = tempfile::tempdir().unwrap();
    let (cold, _) = cold(0, 64 << 20, folder.path()).await;
    let wide = Ahead::blocks(16);
    let pack = put(cold.store(), 3, 3).await;
    let footer = cold.footer(&pack).await.unwrap();
    let rows = footer.blocks(footer.partition(PARTITION).unwrap()).to_vec();
    let fetched = |ahead, expected| {
        let cold = cold.clone();
        async move {
            let pack = put(cold.store(), 3, 3).await;
            let footer = cold.footer(&pack).await.unwrap();
            let before = cold.metrics().fetched.load(Ordering::Relaxed);
            let fetched = || cold.metrics().fetched.load(Ordering::Relaxed) - before;
            cold.read_ahead(&pack, &footer, PARTITION, 0..1, ahead);
            cold.block(&pack, &footer, PARTITION, 0, &ALL).await.unwrap();
            let all = async {
                while fetched() < expected {
                    tokio::time::sleep(Duration::from_millis(5)).await;
                }
            };
            let _ = tokio::time::timeout(Duration::from_secs(20), all).await;
            // And a moment for more.
            tokio::time::sleep(Duration::from_millis(200)).await;
            let count = fetched();
            // What is there holds nobody up any more.
            for place in 0..usize::try_from(expected).unwrap() {
                cold.block(&pack, &footer, PARTITION, place, &ALL).await.unwrap();
            }
            count
        }
    };
    let blocks = rows.len() as u64;
    assert!(blocks > 3, "{blocks} blocks");
    let (second, third) = (u64::from(rows[1].raw_bytes), u64::from(rows[2].raw_bytes));
    for (ahead, expected) in [
        (wide, blocks),
        (Ahead { until: rows[1].first, ..wide }, 1),
        (Ahead { until: rows[1].first.plus(1), ..wide }, 2),
        (Ahead { bytes: 0, ..wide }, 1),
        (Ahead { bytes: second, ..wide }, 2),
        (Ahead { bytes: second + third + 1, ..wide }, 4),
        (Ahead { blocks: 0, ..wide }, 1),
    ] {
        assert_eq!(fetched(ahead, expected).await, expected, "{ahead:?}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn a_store_that_hangs_is_not_asked_for_one_block_alone_after_it_hung_for_several() {
    let folder = tempfile::tempdir().unwrap();
    let (cold, faults) = impatient(folder.path()).await;
    let pack = put(cold.store(), 3, 3).await;
    let footer = cold.footer(&pack).await.unwrap();
    for (fault, tries, places) in [(Fault::Hang, 3, 0..2), (Fault::Error, 6, 2..4)] {
        faults.always(Some((Op::Get, fault)));
        let (before, fetched) = (faults.requests(Op::Get), cold.metrics().fetched.load(Ordering::Relaxed));
        cold.read_ahead(&pack, &footer, PARTITION, places.clone(), Ahead::NONE);
        // The reader comes once they are asked for, together.
        while cold.metrics().fetched.load(Ordering::Relaxed) == fetched {
            tokio::task::yield_now().await;
        }
        let told = cold.block(&pack, &footer, PARTITION, places.start, &ALL).await.unwrap_err();
        assert!(!told.is_damage, "{told}");
        // Of what failed the size is asked too, in case that it was cut short.
        let asked = faults.requests(Op::Get) - before;
        assert_eq!(asked - usize::from(tries == 6), tries, "{fault:?}: {told}");
    }
}

#[tokio::test(flavor = "multi_thread", worker_threads = 2)]
async fn whose_turn_does_not_come_because_a_store_hangs_is_told_so_and_asks_for_nothing() {
    /// Requests that may be under way at once.
    const AT_ONCE: usize = 64;
    let folder = tempfile::tempdir().unwrap();
    let (cold, faults) = impatient(folder.path()).await;
    let pack = put(cold.store(), 3, 3).await;
    faults.always(Some((Op::Get, Fault::Hang)));
    let read = || {
        let (cold, other) = (cold.clone(), PackRef { name: name(3), ..pack });
        tokio::spawn(async move { cold.footer(&other).await.unwrap_err() })
    };
    let before = faults.requests(Op::Get);
    let first: Vec<_> = (0..AT_ONCE).map(|_| read()).collect();
    while faults.requests(Op::Get) - before < AT_ONCE {
        tokio::task::yield_now().await;
    }
    // These give up before the first ones do, which try three times.
    let late: Vec<_> = (0..8).map(|_| read()).collect();
    for told in futures_util::future::join_all(late).await {
        let told = told.unwrap();
        assert!(!told.is_damage && told.why.contains("not its turn"), "{told}");
    }
    for told in futures_util::future::join_all(first).await {
        assert!(told.unwrap().why.contains("no answer"), "the others hung");
    }
    assert_eq!(faults.requests(Op::Get) - before, 3 * AT_ONCE);
    faults.always(None);
    cold.footer(&pack).await.unwrap();
}
