//! Restores over a store that fails: what is claimed, and in which epoch.

use std::time::Duration;

use bytes::Bytes;
use weir_tier::faults::{Fault, Faults, Op, of_a_newer_build, store_in_memory};
use weir_tier::snapshot::ShardSnapshot;

use super::*;

const CLUSTER: ClusterId = ClusterId(7);

struct World {
    store: Store,
    faults: Faults,
    exports: Exports,
}

impl World {
    fn new() -> Self {
        let faults = Faults::default();
        let store = store_in_memory(faults.clone(), Duration::from_secs(5));
        Self { exports: Exports::new(store.clone(), CLUSTER), store, faults }
    }

    /// With a manifest of number 1, of two shards.
    async fn with_a_manifest() -> Self {
        let world = Self::new();
        let shards = [world.put(0).await, world.put(1).await];
        world.publish(1, 0, &shards).await;
        world
    }

    async fn put(&self, shard: u32) -> ShardSnapshot {
        self.put_state(shard, ShardState::new(ShardId(shard)).encode()).await
    }

    async fn put_state(&self, shard: u32, state: Bytes) -> ShardSnapshot {
        let (term, index, attempt) = (Term(1), LogIndex(9), Ulid::new());
        let name = SnapshotName { cluster: CLUSTER, shard: ShardId(shard), term, index, attempt };
        let put = self.exports.put_snapshot(name, state).await.unwrap();
        let attempt = attempt.0.into();
        ShardSnapshot { shard, term: 1, index: 9, attempt, bytes: put.bytes, crc32c: put.crc32c, epoch: 0 }
    }

    async fn publish(&self, number: u64, epoch: u64, shards: &[ShardSnapshot]) {
        let writer = Ulid::new().0.into();
        let (data_shards, shards) = (1, shards.to_vec());
        let manifest =
            Manifest { number, epoch, data_shards, dedupe_rows: 1_000, writer, shards, written_ms: 1 };
        assert_eq!(self.exports.publish(&manifest, None).await.unwrap(), Published::Ours);
    }

    async fn try_look(&self) -> Result<NodeRestore, RestoreError> {
        let from = RestoreFrom {
            url: "memory:".to_owned(),
            options: Vec::new(),
            cluster: Some(CLUSTER),
            skip_damaged: true,
        };
        NodeRestore::look_in(&self.store, &from, &mut |_| {}).await
    }

    async fn look(&self) -> NodeRestore {
        self.try_look().await.unwrap()
    }
}

#[tokio::test]
async fn no_epoch_is_given_twice_whatever_is_passed_over() {
    let world = World::new();
    let meta = world.put(0).await;
    let older = [meta, world.put(1).await];
    let newer = [meta, world.put(1).await];
    for (number, shards) in [(1, older), (2, older), (3, newer)] {
        world.publish(number, 0, &shards).await;
    }
    let first = world.look().await;
    assert_eq!((first.manifest().number, first.epoch()), (3, 1));
    let dir = tempfile::tempdir().unwrap();
    first.write(&dir.path().join("data")).await.unwrap();
    assert_eq!(world.exports.manifest(4).await.unwrap().epoch, 1);
    // What both of the newest name is gone, so the one before is taken, but not its epoch.
    world.exports.delete_snapshot(&SnapshotName::of(CLUSTER, &newer[1])).await.unwrap();
    let second = world.look().await;
    assert_eq!((second.manifest().number, second.epoch()), (2, 2));
    assert_eq!(
        second.shards()[1].at.0,
        Term(1 + 2 * TERMS_PER_EPOCH),
        "lives and terms are of that epoch too"
    );
    // And whatever cannot be read may have been of one more.
    let name = ManifestName { cluster: CLUSTER, number: 5 }.to_string();
    world.store.create(&name, Bytes::from_static(b"no manifest")).await.unwrap();
    assert_eq!(world.look().await.epoch(), 3);
}

#[tokio::test]
async fn what_a_newer_build_wrote_is_not_passed_over_as_damaged() {
    let world = World::with_a_manifest().await;
    let name = |number| ManifestName { cluster: CLUSTER, number }.to_string();
    let manifest = world.store.get_all(&name(1), 1 << 20).await.unwrap();
    world.store.create(&name(2), of_a_newer_build(&manifest)).await.unwrap();
    let refused = world.try_look().await.unwrap_err().to_string();
    assert!(refused.contains("newer one") && !refused.contains("--skip-damaged"), "{refused}");
    world.exports.delete_manifest(2).await.unwrap();

    // Nor a state of a later format: the first field of its first field.
    let mut newer = ShardState::new(ShardId(1)).encode().to_vec();
    assert_eq!((newer[0], newer[2]), (0x0a, 0x08), "its head, and that one's format");
    newer[3] = 99;
    let shards = [world.put(0).await, world.put_state(1, newer.into()).await];
    world.publish(2, 0, &shards).await;
    let refused = world.try_look().await.unwrap_err().to_string();
    assert!(refused.contains("format 99") && !refused.contains("--skip-damaged"), "{refused}");
}

#[tokio::test]
async fn a_folder_that_is_not_there_has_nothing_and_is_not_made() {
    let dir = tempfile::tempdir().unwrap();
    let folder = dir.path().join("mistyped/bucket");
    for cluster in [None, Some(CLUSTER)] {
        let url = format!("file://{}", folder.display());
        let from = RestoreFrom { url, options: Vec::new(), cluster, skip_damaged: false };
        let refused = NodeRestore::look(&from, drop).await.unwrap_err();
        assert!(matches!(refused, RestoreError::Nothing { .. }), "{refused}");
    }
    assert!(!dir.path().join("mistyped").exists(), "looking writes nothing");
}

#[tokio::test]
async fn a_claim_without_an_answer_says_so_and_is_found_by_the_next_restore() {
    let world = World::with_a_manifest().await;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    world.faults.next(Op::Put, Fault::AnswerLost);
    let unknown = world.look().await.write(&data).await.unwrap_err();
    let said = unknown.to_string();
    assert!(matches!(unknown, RestoreError::Claim { number: 2, .. }), "{said}");
    assert!(said.contains("is not known") && !said.contains("Nothing was written"), "{said}");
    // Only empty folders can be removed.
    std::fs::remove_dir(dir.path()).expect("nothing is left of it");
    let again = world.look().await;
    assert_eq!((again.manifest().number, again.epoch()), (2, 2));
    again.write(&data).await.unwrap();
    assert_eq!(world.exports.numbers().await.unwrap(), [1, 2, 3]);
    let blobs = weir_journal::Blobs::at(data.join("blobs"), std::sync::Arc::new(weir_journal::RealDisk));
    let found = crate::tier::known::found(&blobs, "memory:").unwrap();
    assert_eq!(found, Some(true), "its first start takes no empty store for this one");
}

#[tokio::test]
async fn where_nothing_can_be_written_nobody_is_deposed() {
    let world = World::with_a_manifest().await;
    // A file system where not even root makes folders.
    let refused = world.look().await.write(Path::new("/proc/weir/data")).await.unwrap_err();
    assert!(matches!(refused, RestoreError::Write { .. }), "{refused}");
    assert_eq!(world.exports.numbers().await.unwrap(), [1]);
}

#[tokio::test]
async fn a_directory_that_can_be_made_and_not_be_filled_deposes_nobody_and_leaves_nothing() {
    let world = World::with_a_manifest().await;
    let dir = tempfile::tempdir().unwrap();
    // The folder beside it has as long a path as there may be, so that nothing fits into it: like a full disk.
    let beside = "/..restoring-".len() + Ulid::new().to_string().len();
    let mut parent = dir.path().to_owned();
    while parent.as_os_str().len() + beside + 1 < 4_092 {
        let left = 4_092 - beside - 1 - parent.as_os_str().len();
        parent.push("d".repeat(left.saturating_sub(1).clamp(1, 200)));
    }
    std::fs::DirBuilder::new().recursive(true).create(&parent).unwrap();
    let refused = world.look().await.write(&parent.join("n")).await.unwrap_err();
    let said = refused.to_string();
    assert!(matches!(refused, RestoreError::Write { .. }) && said.contains(".restoring-"), "{said}");
    assert_eq!(world.exports.numbers().await.unwrap(), [1], "{said}");
    // Only empty folders can be removed.
    std::fs::remove_dir(&parent).expect("nothing is left in it");
}

#[tokio::test]
async fn a_directory_whose_name_is_taken_meanwhile_is_found_beside_it() {
    let world = World::with_a_manifest().await;
    let dir = tempfile::tempdir().unwrap();
    let data = dir.path().join("data");
    let layout = Layout { data_shards: 1, dedupe_rows: 1_000, epoch: 1 };
    let beside = directory::Beside::make(&data).unwrap();
    beside.fill((CLUSTER, "memory:"), layout, Vec::new()).unwrap();
    std::fs::DirBuilder::new().recursive(true).create(data.join("somebody's")).unwrap();
    let refused = beside.name(7).unwrap_err();
    let said = refused.to_string();
    assert!(said.contains("Manifest 7 is written") && !said.contains("Nothing was written"), "{said}");
    let RestoreError::Name { beside, .. } = refused else { panic!("{said}") };
    assert!(Path::new(&beside).join("IDENTITY").is_file(), "{said}");
    // One that is there before is never claimed for.
    let refused = world.look().await.write(&data).await.unwrap_err();
    assert!(matches!(refused, RestoreError::NotEmpty(_)), "{refused}");
    assert_eq!(world.exports.numbers().await.unwrap(), [1]);
}

#[tokio::test]
async fn a_directory_behind_a_link_is_restored_into_and_one_missing_there_is_refused_before_the_claim() {
    let world = World::with_a_manifest().await;
    let dir = tempfile::tempdir().unwrap();
    let (there, link) = (dir.path().join("there"), dir.path().join("link"));
    std::os::unix::fs::symlink(&there, &link).unwrap();
    let refused = world.look().await.write(&link).await.unwrap_err();
    assert!(matches!(refused, RestoreError::Write { .. }), "{refused}");
    assert_eq!(world.exports.numbers().await.unwrap(), [1], "nobody is deposed");
    std::fs::DirBuilder::new().create(&there).unwrap();
    world.look().await.write(&link).await.unwrap();
    assert!(there.join("IDENTITY").is_file() && link.is_symlink());
    let refused = world.look().await.write(&link).await.unwrap_err();
    assert!(matches!(refused, RestoreError::NotEmpty(_)), "{refused}");
}

#[test]
fn what_is_restored_is_its_owners_alone_unless_the_directory_was_there() {
    use std::os::unix::fs::{MetadataExt as _, PermissionsExt as _, chown};
    let dir = tempfile::tempdir().unwrap();
    let there = tempfile::tempdir_in(&dir).unwrap().keep();
    let made = dir.path().join("made");
    std::fs::set_permissions(&there, std::fs::Permissions::from_mode(0o750)).unwrap();
    // Who is root may make it somebody else's.
    let _ = chown(&there, Some(1_234), Some(5_678));
    let owner = |dir: &Path| dir.metadata().map(|of| (of.uid(), of.gid())).ok();
    for (data, expected) in [(made, 0o700), (there, 0o750)] {
        let layout = Layout { data_shards: 1, dedupe_rows: 1_000, epoch: 1 };
        let before = owner(&data);
        drop(directory::Beside::make(&data).unwrap());
        assert_eq!(owner(&data), before, "a restore that ends here leaves it as it was");
        let beside = directory::Beside::make(&data).unwrap();
        beside.fill((CLUSTER, "memory:"), layout, Vec::new()).unwrap();
        beside.name(1).unwrap();
        assert_eq!(data.metadata().unwrap().permissions().mode() & 0o777, expected);
        assert!(before.is_none() || owner(&data) == before);
    }
}
