//! Cold data: the store of packs that a node has, and batches read back from it. What becomes a pack is decided in
//! [`crate::sealing`].
//!
//! The only room here, with that one, that knows object stores, through `weir_tier`.

mod damaged;
pub(crate) mod known;
mod reading;
mod trial;
mod uploads;

use std::os::unix::ffi::OsStrExt as _;
use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use weir_journal::{Blobs, SealedError};
use weir_protocol::ids::{ClusterId, ShardId};
use weir_tier::cold::{CacheConfig, Cold, PackRef};
use weir_tier::pack::{BlockCodec, PieceMemory};
use weir_tier::snapshot::{ExportError, Exports};
use weir_tier::store::{OpenError, PackName, Store, StoreConfig};

use crate::background::Background;
use crate::config::{NodeConfig, PackCodec};
use crate::layout::Layout;
use crate::metrics::TierMetrics;
use crate::shard::state::Pack;

pub use damaged::{Damage, Damaged, Lost};
pub(crate) use known::KnownStore;
pub(crate) use reading::NotRead;
pub use trial::Trial;
use trial::Tried;
pub use uploads::Uploads;

/// What the setting says for a store inside the data directory.
pub const LOCAL: &str = "local";
/// Where that is.
const LOCAL_FOLDER: &str = "objects";
/// Where the cache keeps blocks inside the data directory.
const CACHE_FOLDER: &str = "cache";

/// Looks at what the setting says alone: whether that can be a store, not whether there is one.
///
/// # Errors
/// [`OpenError`]: what is wrong with it.
pub fn check_url(url: &str) -> Result<(), OpenError> {
    if url == LOCAL { Ok(()) } else { weir_tier::store::check_url(url) }
}

/// Why cold data cannot be kept where the settings say.
#[derive(Debug, thiserror::Error)]
pub enum TierError {
    /// The store cannot be used: its address, credentials, or what it does.
    #[error(transparent)]
    Store(#[from] OpenError),
    /// The cache's folder cannot be used.
    #[error("the cache of cold data: {0}")]
    Cache(#[source] std::io::Error),
    /// Packs have no thread to be made on.
    #[error("no thread for the making of packs: {0}")]
    Thread(#[source] std::io::Error),
    /// The newest manifest cannot be looked for.
    #[error("what the store says of the cluster: {0}")]
    Manifest(#[from] ExportError),
    /// The file that says which store the directory uses. It may be deleted: then no store is known.
    #[error(transparent)]
    Known(#[from] SealedError),
    /// The cluster goes on elsewhere.
    #[error(
        "cluster {cluster} was restored from the object store after this data directory was last used: the store is at \
        epoch {epoch}, this directory at {own}. Both would serve the same topics with different messages. Use the \
        restored directory; to look at this one, start it without --object-store"
    )]
    Restored {
        /// The cluster.
        cluster: ClusterId,
        /// Of the newest manifest.
        epoch: u64,
        /// Of this directory.
        own: u64,
    },
    /// The store answers as if it had never been used.
    #[error(
        "object store {url} holds nothing of cluster {cluster}, and this data directory has written there: its folder is \
        not mounted, or the bucket was emptied or made anew. What left for it cannot be read before it is back. If it will \
        not come back, stop the node, delete blobs/store.blob in the data directory, and start it again"
    )]
    Emptied {
        /// Where.
        url: String,
        /// Whose objects.
        cluster: ClusterId,
    },
}

impl TierError {
    /// The store did not answer: trying again may help, without anybody changing anything.
    #[must_use]
    pub fn is_passing(&self) -> bool {
        match self {
            Self::Store(error) => error.is_passing(),
            Self::Manifest(ExportError::Store(error)) => error.is_passing(),
            _ => false,
        }
    }

    /// What the node has is served all the same, and the store is asked again.
    pub(crate) fn is_waited_for(&self) -> bool {
        self.is_passing() || matches!(self, Self::Emptied { .. })
    }
}

/// The node's store of packs.
pub struct Tier {
    /// Reads packs.
    pub(crate) cold: Cold,
    /// Whose packs they are.
    pub(crate) cluster: ClusterId,
    /// How blocks are compressed.
    pub(crate) codec: BlockCodec,
    /// Bytes of batches in one pack, about.
    pub(crate) seal_bytes: u64,
    /// Batches of this age are sealed.
    pub(crate) seal_after: Duration,
    /// What is on its way to the store.
    pub(crate) uploads: Uploads,
    /// What could not be read from there.
    pub(crate) damaged: Damaged,
    /// Another writes for the cluster: from here nothing more is written or deleted.
    pub(crate) is_deposed: AtomicBool,
    /// The store has nothing of the cluster, and had: what is missing may come back.
    pub(crate) is_emptied: AtomicBool,
    /// States of all shards go to the store this often.
    pub(crate) snapshot_every: Duration,
    /// Where they go.
    pub(crate) exports: Exports,
    /// How often the cluster was restored before this node had its data.
    pub(crate) epoch: u64,
    /// Data shards of the cluster.
    pub(crate) data_shards: u32,
    /// Rows of a shard's deduplication tables.
    pub(crate) dedupe_rows: u32,
    /// What the directory remembers of the store.
    pub(crate) known: Option<KnownStore>,
    /// Counters.
    pub(crate) metrics: TierMetrics,
    /// The thread on which packs are made.
    pub(crate) background: Background,
    /// What they are made in.
    pub(crate) pack_memory: PieceMemory,
}

/// While somebody waits for it, each shard makes a pack, and the node a manifest, no more often than this.
pub(crate) const ARCHIVE_EVERY: Duration = Duration::from_secs(1);

impl Tier {
    /// Whether the settings name a store. Asks nothing of it.
    ///
    /// # Errors
    /// [`TierError`]: somebody has to change them.
    pub fn check(config: &NodeConfig) -> Result<(), TierError> {
        // Where it is in the data directory there is nothing to be wrong, and nothing may be made yet.
        if let Some(url) = config.object_store.as_deref().filter(|url| *url != LOCAL) {
            opened(config, url)?;
        }
        Ok(())
    }

    /// Opens the store that `config` names, if it does, or takes the `given` one, and tries what is relied
    /// upon. With a [`Trial`]: it has passed in this directory before, and does not answer now.
    ///
    /// # Errors
    /// [`TierError`]: the node must not start.
    pub async fn open(
        config: &NodeConfig,
        given: Option<Store>,
        blobs: &Blobs,
        cluster: ClusterId,
        layout: Layout,
        metrics: TierMetrics,
    ) -> Result<Option<(Arc<Self>, Option<Trial>)>, TierError> {
        let store = match (given, &config.object_store) {
            (Some(store), _) => store,
            (None, Some(url)) => opened(config, url)?,
            (None, None) => {
                known::warn_if_left_out(blobs);
                return Ok(None);
            }
        };
        let exports = Exports::new(store.clone(), cluster);
        let found = known::found(blobs, store.place())?;
        let (is_known, has_manifest) = (found.is_some(), found.unwrap_or(false));
        let (of_store, epoch) = (exports.clone(), layout.epoch);
        let tried = Tried { store: store.clone(), exports: of_store, cluster, epoch, has_manifest };
        let trial = tried.at_start(is_known).await?;
        if let Some(before) = known::another(blobs, store.place()) {
            let now = store.place();
            tracing::warn!(
                before,
                now,
                "this data directory has used another object store before: messages that left for it can be read only if its \
                 objects are in this one too"
            );
        }
        if !is_known && let Err(error) = known::remember(blobs, store.place(), false) {
            // It has passed, which is what counts now.
            tracing::warn!(%error, "that the object store has passed is not noted: the next start needs its answer");
        }
        let known = Some(KnownStore::new(blobs, store.place(), has_manifest));
        let cache = CacheConfig {
            memory_bytes: config.cache_memory_bytes,
            disk_bytes: config.cache_disk_bytes,
            folder: config.data_dir.join(CACHE_FOLDER),
        };
        let cold = Cold::open(store, cache).await.map_err(TierError::Cache)?;
        let pack_memory = PieceMemory::default();
        metrics.watch(cold.clone(), config.cache_memory_bytes, pack_memory.clone());
        let codec = match config.pack_codec {
            PackCodec::None => BlockCodec::Raw,
            PackCodec::Lz4 => BlockCodec::Lz4,
            PackCodec::Zstd => BlockCodec::Zstd,
        };
        let seal_after = Duration::from_millis(config.seal_after_ms);
        let tier = Self {
            cold,
            cluster,
            codec,
            seal_bytes: config.seal_bytes,
            seal_after,
            uploads: Uploads::default(),
            damaged: Damaged::default(),
            is_deposed: AtomicBool::new(false),
            is_emptied: AtomicBool::new(false),
            snapshot_every: Duration::from_millis(config.snapshot_every_ms),
            exports,
            epoch: layout.epoch,
            data_shards: layout.data_shards,
            dedupe_rows: layout.dedupe_rows,
            known,
            metrics,
            background: Background::start("weir-seal").map_err(TierError::Thread)?,
            pack_memory,
        };
        trial.iter().for_each(|trial| trial.tell(&tier));
        Ok(Some((Arc::new(tier), trial)))
    }

    /// Name and size of a pack of `shard`.
    #[must_use]
    pub fn pack_ref(&self, shard: ShardId, pack: &Pack) -> PackRef {
        let name = pack.name(self.cluster, shard);
        PackRef { name, bytes: pack.bytes, tail_bytes: pack.tail_bytes, life_shift: pack.life_shift }
    }
}

impl Pack {
    /// What its object is called.
    #[must_use]
    pub fn name(&self, cluster: ClusterId, shard: ShardId) -> PackName {
        let Self { first, last, term, attempt, .. } = *self;
        PackName { cluster, shard, first, last, term, attempt: ulid::Ulid(attempt) }
    }
}

fn opened(config: &NodeConfig, url: &str) -> Result<Store, OpenError> {
    let options = config.object_store_options.clone();
    Store::open(StoreConfig { options, ..StoreConfig::new(url_of(url, &config.data_dir)) })
}

/// The store's URL; [`LOCAL`] is a folder in the data directory.
fn url_of(setting: &str, data_dir: &Path) -> String {
    if setting != LOCAL {
        return setting.to_owned();
    }
    let folder = std::path::absolute(data_dir).unwrap_or_else(|_| data_dir.to_owned()).join(LOCAL_FOLDER);
    // Whatever a folder may be called: to a URL # and ? and % mean something else.
    let escaped = folder.as_os_str().as_bytes().iter().map(|byte| match byte {
        b'/' | b'-' | b'.' | b'_' | b'0'..=b'9' | b'A'..=b'Z' | b'a'..=b'z' => char::from(*byte).to_string(),
        other => format!("%{other:02X}"),
    });
    format!("file://{}", escaped.collect::<String>())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn a_store_in_the_data_directory_is_there_whatever_the_directory_is_called() {
        let dir = tempfile::tempdir().unwrap();
        for name in ["plain", "C# (100%)", "what?", "a%20b", "sp\u{e4}t [~]"] {
            let data = dir.path().join(name);
            let store = Store::open(StoreConfig::new(url_of(LOCAL, &data))).unwrap();
            store.self_test().await.unwrap();
            assert!(data.join(LOCAL_FOLDER).is_dir(), "{name}");
        }
    }
}
