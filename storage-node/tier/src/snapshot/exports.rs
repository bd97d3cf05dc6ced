//! Snapshots and manifests in a store: written, found, read.

use bytes::{Bytes, BytesMut};
use prost::Message as _;
use weir_protocol::ids::ClusterId;

use super::envelope::{self, EnvelopeError, Kind};
use super::manifest::{Manifest, ShardSnapshot};
use super::names::{ManifestName, SnapshotName};
use crate::store::{Created, Store, StoreError, Uploaded, VERIFY_BYTES};

/// Most bytes of a manifest: some hundred for each shard.
const MANIFEST_BYTES_MAX: u64 = 16 << 20;
/// Bytes of a snapshot that are asked for at once: as when it was compared, a slow way to the store has the
/// patience for each.
const STEP_BYTES: u64 = VERIFY_BYTES;
/// Manifests, and snapshots, that a listing tells of.
const LISTED_MAX: usize = 10_000_000;

/// Why a snapshot or manifest could not be written or read. Every variant names the object.
#[derive(Debug, thiserror::Error)]
pub enum ExportError {
    /// The store; a missing object is [`StoreError::Missing`].
    #[error(transparent)]
    Store(#[from] StoreError),
    /// The object is damaged, or not what it is called.
    #[error("object {object}: {why}")]
    Wrong {
        /// Its name.
        object: String,
        /// What is wrong.
        why: EnvelopeError,
    },
}

impl ExportError {
    /// Name of the object.
    #[must_use]
    pub fn object(&self) -> &str {
        match self {
            Self::Store(error) => error.object(),
            Self::Wrong { object, .. } => object,
        }
    }

    /// A newer build wrote the object: it is not damaged, and says something that others go by.
    #[must_use]
    pub fn is_newer(&self) -> bool {
        matches!(self, Self::Wrong { why: EnvelopeError::Version(_), .. })
    }
}

/// What became of [`Exports::publish`].
#[derive(Debug, Clone, PartialEq)]
pub enum Published {
    /// It is there, was read back, and is the newest.
    Ours,
    /// Another manifest has the number, or a higher one.
    Theirs(Box<Manifest>),
}

/// Snapshots and manifests of one cluster.
#[derive(Debug, Clone)]
pub struct Exports {
    store: Store,
    cluster: ClusterId,
}

impl Exports {
    /// Those of `cluster` in `store`.
    #[must_use]
    pub fn new(store: Store, cluster: ClusterId) -> Self {
        Self { store, cluster }
    }

    /// The clusters that have something in `store`.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn clusters(store: &Store) -> Result<Vec<ClusterId>, StoreError> {
        let folders = store.folders().await?;
        let cluster = |name: &String| u128::from_str_radix(name, 16).ok().map(ClusterId);
        let own = |name: &String| cluster(name).filter(|cluster| cluster.to_string() == *name);
        Ok(folders.iter().filter_map(own).collect())
    }

    /// Writes the state of a shard; on return it was read back and compared. It counts once a manifest names it.
    ///
    /// # Errors
    /// [`StoreError`]: what was written is nobody's.
    pub async fn put_snapshot(&self, name: SnapshotName, state: Bytes) -> Result<Uploaded, StoreError> {
        let (kind, cluster) = (Kind::Snapshot(name.shard), self.cluster);
        let object = name.to_string();
        let wrapped = tokio::task::spawn_blocking(move || envelope::wrap(kind, cluster, &state));
        let failed = |source: tokio::task::JoinError| StoreError::Failed {
            object: object.clone(),
            source: source.into(),
        };
        let wrapped = wrapped.await.map_err(failed)?;
        let mut upload = self.store.upload(object.clone());
        if let Err(error) = upload.write(wrapped).await {
            upload.abort().await;
            return Err(error);
        }
        upload.finish().await
    }

    /// Writes a manifest, if nobody has taken its number or gone beyond it; reads it back. `known` is one that
    /// the writer knows to have been there.
    ///
    /// A number may be free because whoever wrote for the cluster meanwhile has deleted it again. Manifests are
    /// deleted from the oldest on: while `known` is there, which is older, that has not happened, and otherwise
    /// a listing tells.
    ///
    /// # Errors
    /// [`ExportError`]: whether it is there is unknown. The next attempt tells.
    pub async fn publish(&self, manifest: &Manifest, known: Option<u64>) -> Result<Published, ExportError> {
        let bytes = envelope::wrap(Kind::Manifest, self.cluster, &manifest.encode_to_vec());
        let name = ManifestName { cluster: self.cluster, number: manifest.number };
        let created = self.store.create(&name.to_string(), bytes).await?;
        let there = self.manifest(manifest.number).await?;
        if created == Created::Theirs || there != *manifest {
            return Ok(Published::Theirs(Box::new(there)));
        }
        // After the write: whoever goes beyond it from now on has met it.
        let newer = match self.newer_than(manifest.number, known).await {
            Ok(None) => return Ok(Published::Ours),
            Ok(Some(newer)) => Ok(Published::Theirs(Box::new(newer))),
            Err(error) if error.is_newer() => Err(error),
            Err(error) => return Err(error),
        };
        if let Err(error) = self.delete_manifest(manifest.number).await {
            tracing::warn!(%error, "a manifest stays that is older than another's");
        }
        newer
    }

    /// The newest manifest that is not damaged, if there is one beyond `number`.
    async fn newer_than(&self, number: u64, known: Option<u64>) -> Result<Option<Manifest>, ExportError> {
        if let Some(known) = known {
            let name = ManifestName { cluster: self.cluster, number: known };
            match self.store.size(&name.to_string()).await {
                Ok(_) => return Ok(None),
                Err(StoreError::Missing { .. }) => {}
                Err(error) => return Err(error.into()),
            }
        }
        let mut unreadable = None;
        for newer in self.numbers().await?.into_iter().rev().take_while(|newer| *newer > number) {
            match self.manifest(newer).await {
                Err(error @ ExportError::Wrong { .. }) if !error.is_newer() => unreadable = Some(error),
                read => return read.map(Some),
            }
        }
        unreadable.map_or(Ok(None), Err)
    }

    /// Numbers of all manifests, ascending: the last one counts.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn numbers(&self) -> Result<Vec<u64>, StoreError> {
        let listed = self.store.list_all(&ManifestName::folder(self.cluster), LISTED_MAX).await?;
        let names = listed.iter().filter_map(|object| object.name.parse::<ManifestName>().ok());
        let mut numbers: Vec<u64> = names.map(|name| name.number).collect();
        numbers.sort_unstable();
        Ok(numbers)
    }

    /// A manifest.
    ///
    /// # Errors
    /// [`ExportError`].
    pub async fn manifest(&self, number: u64) -> Result<Manifest, ExportError> {
        let object = ManifestName { cluster: self.cluster, number }.to_string();
        let bytes = self.store.get_all(&object, MANIFEST_BYTES_MAX).await?;
        let wrong = |why| ExportError::Wrong { object: object.clone(), why };
        let content = envelope::open(Kind::Manifest, self.cluster, &bytes).map_err(wrong)?;
        let manifest = Manifest::decode(content)
            .map_err(|error| wrong(EnvelopeError::Content(format!("it cannot be read: {error}"))))?;
        let why = match manifest.number {
            same if same == number => manifest.contradiction(),
            other => Some(format!("it says that it is number {other}")),
        };
        match why {
            None => Ok(manifest),
            Some(why) => Err(wrong(EnvelopeError::Content(why))),
        }
    }

    /// The state of a shard as a manifest names it.
    ///
    /// # Errors
    /// [`ExportError`].
    pub async fn snapshot(&self, named: &ShardSnapshot) -> Result<Bytes, ExportError> {
        let object = SnapshotName::of(self.cluster, named).to_string();
        let mut bytes = BytesMut::new();
        while (bytes.len() as u64) < named.bytes {
            let from = bytes.len() as u64;
            let upto = named.bytes.min(from + STEP_BYTES);
            match self.store.get(&object, from..upto).await {
                Ok(some) => bytes.extend_from_slice(&some),
                Err(error) => return Err(self.cut_short(object, named.bytes).await.unwrap_or(error.into())),
            }
        }
        let (bytes, of, shard) = (bytes.freeze(), *named, named.shard());
        let cluster = self.cluster;
        let opened = tokio::task::spawn_blocking(move || {
            let computed = weir_protocol::checksum::crc32c(&bytes);
            if computed != of.crc32c {
                let what = "bytes, against the manifest,";
                return Err(EnvelopeError::Checksum { what, stored: of.crc32c, computed });
            }
            envelope::open(Kind::Snapshot(shard), cluster, &bytes)
        });
        let opened = opened.await.unwrap_or_else(|error| Err(EnvelopeError::Content(error.to_string())));
        opened.map_err(|why| ExportError::Wrong { object, why })
    }

    /// Why it could not be read, if that is because the object is shorter than it was: stores tell of that in
    /// many ways.
    async fn cut_short(&self, object: String, want: u64) -> Option<ExportError> {
        let have = self.store.size(&object).await.ok().filter(|have| *have < want)?;
        Some(ExportError::Wrong { object, why: EnvelopeError::Truncated { have, want } })
    }

    /// Names of all snapshots, whoever names them.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn snapshots(&self) -> Result<Vec<SnapshotName>, StoreError> {
        let listed = self.store.list_all(&SnapshotName::folder(self.cluster), LISTED_MAX).await?;
        Ok(listed.iter().filter_map(|object| object.name.parse().ok()).collect())
    }

    /// Deletes a manifest; one that is gone already is fine.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delete_manifest(&self, number: u64) -> Result<(), StoreError> {
        self.store.delete(&ManifestName { cluster: self.cluster, number }.to_string()).await
    }

    /// Deletes a snapshot; one that is gone already is fine.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn delete_snapshot(&self, name: &SnapshotName) -> Result<(), StoreError> {
        self.store.delete(&name.to_string()).await
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use object_store::memory::InMemory;
    use object_store::path::Path;
    use ulid::Ulid;
    use weir_protocol::ids::{LogIndex, ShardId, Term};

    use super::*;
    use crate::faults::{Faults, Op, in_memory, of_a_newer_build};
    use crate::store::StoreConfig;

    const CLUSTER: ClusterId = ClusterId(7);

    fn store() -> Store {
        Store::over(Arc::new(InMemory::new()), Path::default(), StoreConfig::new("memory:"))
    }

    fn manifest(number: u64, writer: u128, shards: Vec<ShardSnapshot>) -> Manifest {
        let data_shards = u32::try_from(shards.len()).unwrap() - 1;
        Manifest { number, data_shards, writer: writer.into(), shards, ..Manifest::default() }
    }

    async fn put(exports: &Exports, shard: u32, state: &'static [u8]) -> ShardSnapshot {
        let (term, index, attempt) = (Term(2), LogIndex(9), Ulid::new());
        let name = SnapshotName { cluster: CLUSTER, shard: ShardId(shard), term, index, attempt };
        let put = exports.put_snapshot(name, Bytes::from_static(state)).await.unwrap();
        let attempt = attempt.0.into();
        ShardSnapshot { shard, term: 2, index: 9, attempt, bytes: put.bytes, crc32c: put.crc32c, epoch: 0 }
    }

    #[tokio::test]
    async fn what_was_written_is_found_and_read_and_a_number_is_given_once() {
        let store = store();
        let exports = Exports::new(store.clone(), CLUSTER);
        assert_eq!(exports.numbers().await.unwrap(), [0_u64; 0]);
        let shards = vec![put(&exports, 0, b"meta").await, put(&exports, 1, b"data").await];
        let first = manifest(1, 5, shards.clone());
        assert_eq!(exports.publish(&first, None).await.unwrap(), Published::Ours);
        assert_eq!(
            exports.publish(&first, None).await.unwrap(),
            Published::Ours,
            "an answer may have been lost"
        );
        let late = manifest(1, 6, shards.clone());
        assert_eq!(exports.publish(&late, None).await.unwrap(), Published::Theirs(Box::new(first.clone())));
        exports.publish(&manifest(2, 5, shards.clone()), Some(1)).await.unwrap();
        assert_eq!(exports.numbers().await.unwrap(), [1, 2]);
        assert_eq!(exports.manifest(1).await.unwrap(), first);
        assert_eq!(exports.snapshot(&shards[1]).await.unwrap(), "data");
        assert_eq!(exports.snapshots().await.unwrap().len(), 2);
        assert_eq!(Exports::clusters(&store).await.unwrap(), [CLUSTER]);
        exports.delete_manifest(1).await.unwrap();
        assert_eq!(exports.numbers().await.unwrap(), [2]);
    }

    #[tokio::test]
    async fn a_number_that_is_free_again_is_taken_by_nobody_who_was_overtaken() {
        let exports = Exports::new(store(), CLUSTER);
        let shards = vec![put(&exports, 0, b"meta").await];
        let of = |number, writer| manifest(number, writer, shards.clone());
        exports.publish(&of(1, 5), None).await.unwrap();
        for number in 2..6 {
            assert_eq!(exports.publish(&of(number, 6), Some(number - 1)).await.unwrap(), Published::Ours);
            exports.delete_manifest(number - 1).await.unwrap();
        }
        for known in [Some(1), None] {
            let late = exports.publish(&of(2, 5), known).await.unwrap();
            assert_eq!(late, Published::Theirs(Box::new(of(5, 6))));
            assert_eq!(exports.numbers().await.unwrap(), [5], "nothing of it stays");
        }
        // One that cannot be read says nothing, and is not taken for none.
        let name = ManifestName { cluster: CLUSTER, number: 6 }.to_string();
        exports.store.create(&name, Bytes::from_static(b"no manifest")).await.unwrap();
        assert_eq!(exports.publish(&of(2, 5), Some(1)).await.unwrap(), Published::Theirs(Box::new(of(5, 6))));
        exports.delete_manifest(5).await.unwrap();
        assert!(matches!(exports.publish(&of(2, 5), Some(1)).await, Err(ExportError::Wrong { .. })));
    }

    #[tokio::test]
    async fn who_meets_what_a_newer_build_wrote_leaves_it_and_nothing_of_its_own() {
        let exports = Exports::new(store(), CLUSTER);
        let shards = vec![put(&exports, 0, b"meta").await];
        let of = |number| manifest(number, 5, shards.clone());
        exports.publish(&of(1), None).await.unwrap();
        for number in [2, 5] {
            let name = ManifestName { cluster: CLUSTER, number }.to_string();
            let bytes = envelope::wrap(Kind::Manifest, CLUSTER, &of(number).encode_to_vec());
            exports.store.create(&name, of_a_newer_build(&bytes)).await.unwrap();
        }
        let met = exports.publish(&of(2), Some(1)).await.unwrap_err();
        assert!(met.is_newer() && met.to_string().contains("newer"), "{met}");
        // Overtaken long ago: its number is free, and what it knew is gone.
        exports.delete_manifest(1).await.unwrap();
        let met = exports.publish(&of(3), Some(1)).await.unwrap_err();
        assert!(met.is_newer(), "{met}");
        assert_eq!(exports.numbers().await.unwrap(), [2, 5]);
    }

    #[tokio::test]
    async fn a_state_is_read_in_steps_of_what_was_compared_at_once() {
        let faults = Faults::default();
        let exports = Exports::new(in_memory(faults.clone()), CLUSTER);
        let (mut state, mut random) = (Vec::new(), 1_u64);
        while state.len() < 20 << 20 {
            random = random.wrapping_mul(6_364_136_223_846_793_005).wrapping_add(1);
            state.extend_from_slice(&(random >> 32).to_le_bytes()[..4]);
        }
        let of = put(&exports, 0, state.leak()).await;
        let compared = faults.requests(Op::Get);
        exports.snapshot(&of).await.unwrap();
        assert_eq!((compared, faults.requests(Op::Get)), (3, 6), "a slow way has its patience for each");
    }

    #[tokio::test]
    async fn what_is_missing_foreign_or_another_is_refused_by_name() {
        let exports = Exports::new(store(), CLUSTER);
        let error = exports.manifest(3).await.unwrap_err();
        assert!(matches!(&error, ExportError::Store(StoreError::Missing { .. })), "{error}");
        assert!(error.object().ends_with("/manifests/00000000000000000003.manifest"), "{error}");
        let one = put(&exports, 0, b"state").await;
        let other = ShardSnapshot { crc32c: one.crc32c ^ 1, ..one };
        assert!(matches!(exports.snapshot(&other).await, Err(ExportError::Wrong { .. })));
        let twice = manifest(1, 5, vec![one, one]);
        let error = exports.publish(&twice, None).await.unwrap_err().to_string();
        assert!(error.contains("it names the shards [0, 0] of 0 to 1"), "{error}");
    }
}
