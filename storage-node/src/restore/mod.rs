//! Rebuilding a node's data directory from the object store alone.
//!
//! ```text
//!   look    newest manifest ─▶ a state of each shard, cut to what packs hold ─▶ are the packs there?
//!   write   checkpoints and an empty journal behind them, in a folder beside
//!           then the next manifest, of the next epoch: who ran before is deposed
//!           then the folder takes its name
//! ```
//!
//! What no pack held is gone. Everything gets a new life, so that nothing that was handed out for what is
//! gone is ever taken for what comes in its place (docs/adr/0014).

mod directory;

use std::collections::{BTreeMap, HashMap};
use std::io::ErrorKind;
use std::path::Path;

use ulid::Ulid;
use weir_protocol::ids::{ClusterId, LogIndex, ShardId, Term};
use weir_tier::snapshot::{ExportError, Exports, Manifest, ManifestName, Published, SnapshotName};
use weir_tier::store::{OpenError, PackName, Store, StoreConfig, StoreError};

use crate::clock;
use crate::layout::Layout;
use crate::shard::state::{Restorable, ShardState, SnapshotError};

/// How much the terms of one restore differ from those before it: a shard has a new one with every start.
/// Fences stay below 2^20 terms.
const TERMS_PER_EPOCH: u64 = 1 << 10;
/// Packs that one restore looks for.
const PACKS_MAX: usize = 10_000_000;

/// Why nothing was restored. What is wrong with an object names it.
#[derive(Debug, thiserror::Error)]
pub enum RestoreError {
    /// The store's address or settings.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The store did not answer, or refused.
    #[error("{0}. {advice}", advice = advice(.0))]
    Store(StoreError),
    /// A manifest or snapshot is missing, damaged or another cluster's, or the store did not give it.
    #[error("{0}. {advice}", advice = advice_on(.0))]
    Export(ExportError),
    /// No cluster's manifests are there.
    #[error(
        "there is nothing to restore in {url}: no such bucket, or no manifest of {what} in it. It must be the URL that \
         --object-store was given, prefix included"
    )]
    Nothing {
        /// Where.
        url: String,
        /// Which cluster was looked for.
        what: String,
    },
    /// Several clusters use the store.
    #[error("{url} holds several clusters: {clusters}; say which with --cluster")]
    Several {
        /// Where.
        url: String,
        /// Which.
        clusters: String,
    },
    /// A snapshot cannot be used.
    #[error("object {object}: {why}. {DAMAGED}")]
    State {
        /// The snapshot.
        object: String,
        /// Why.
        why: String,
    },
    /// A newer build wrote a snapshot.
    #[error("object {object}: {why}. {NEWER}")]
    Newer {
        /// The snapshot.
        object: String,
        /// What this build cannot read.
        why: String,
    },
    /// A pack that the states name is not there as they know it.
    #[error(
        "object {object}, which holds messages of shard {shard}, {what}. Bring it back from the bucket's versions or a replica: \
         without it there would be a hole"
    )]
    Pack {
        /// The pack.
        object: String,
        /// Whose.
        shard: ShardId,
        /// What is wrong.
        what: String,
    },
    /// The directory holds something.
    #[error("{0} is not empty: nothing was written. A restore never replaces data; name a new directory")]
    NotEmpty(String),
    /// Somebody wrote for the cluster meanwhile.
    #[error(
        "manifest {0} was written while this looked: the cluster still runs, or another restore does. Stop it and try again"
    )]
    Taken(u64),
    /// Whether the next manifest was written is not known.
    #[error(
        "{why}. Whether manifest {number} was written is not known; if it was, a node that ran before writes nothing to the store \
         any more. No directory was made. Try again when the store answers: what is there is found"
    )]
    Claim {
        /// Its number.
        number: u64,
        /// What the store said.
        why: ExportError,
    },
    /// Everything is there, but for the name of the directory.
    #[error(
        "cannot name {dir}: {why}. Manifest {number} is written: a node that ran before writes nothing to the store any more. \
         {beside} holds what was restored: give it another name by hand, or restore again"
    )]
    Name {
        /// The directory.
        dir: String,
        /// What it was to be made of.
        beside: String,
        /// The manifest.
        number: u64,
        /// Why.
        why: String,
    },
    /// The directory cannot be written. Nobody was deposed.
    #[error("cannot write {path}: {why}")]
    Write {
        /// Where.
        path: String,
        /// Why.
        why: String,
    },
}

/// What helps when an object is not what it should be.
const DAMAGED: &str = "Bring it back from the bucket's versions or a replica. Or let --skip-damaged take the newest older manifest that is \
                       whole; it says what is lost by that";

/// What helps when an object is what a newer build wrote.
const NEWER: &str = "Nothing was written, and what is older is not taken instead";

// No sources: the messages of these hold those of theirs already.
impl From<StoreError> for RestoreError {
    fn from(error: StoreError) -> Self {
        Self::Store(error)
    }
}

impl From<ExportError> for RestoreError {
    fn from(error: ExportError) -> Self {
        Self::Export(error)
    }
}

fn advice(error: &StoreError) -> &'static str {
    match error {
        StoreError::Refused { .. } => {
            "Check the bucket's name, the credentials in the environment and what they permit: to list, read and write"
        }
        StoreError::Failed { .. } | StoreError::TimedOut { .. } | StoreError::Crowded { .. } => {
            "Nothing was written. Check the bucket's name and the store's address, and try again when it answers"
        }
        StoreError::TooMany { .. } => "Nothing was written. More of them than this can look for",
        StoreError::Missing { .. }
        | StoreError::Exists { .. }
        | StoreError::Length { .. }
        | StoreError::Damaged { .. } => DAMAGED,
    }
}

fn advice_on(error: &ExportError) -> &'static str {
    match error {
        ExportError::Store(error) => advice(error),
        newer if newer.is_newer() => NEWER,
        ExportError::Wrong { .. } => DAMAGED,
    }
}

/// What is to be restored.
#[derive(Debug, Clone)]
pub struct RestoreFrom {
    /// The store, as a node is given it.
    pub url: String,
    /// Its settings, by the names of its environment variables.
    pub options: Vec<(String, String)>,
    /// Which cluster; `None`: the only one.
    pub cluster: Option<ClusterId>,
    /// Take the newest manifest whose states can be read, instead of the newest.
    pub skip_damaged: bool,
}

/// A step that may take long.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// An object is passed over because it is damaged.
    Skipped(String),
    /// The state of a shard was read.
    Read(ShardId, u64),
    /// So many packs are needed, and are looked for.
    Looking(usize),
}

/// A shard as it would be.
#[derive(Debug, Clone)]
pub struct RestorableShard {
    /// The shard.
    pub shard: ShardId,
    /// What it holds, and what is gone.
    pub holds: Restorable,
    /// Topics at home in it.
    pub topics: usize,
    /// Subscriptions at home in it.
    pub subscriptions: usize,
    /// Packs it refers to.
    pub packs: usize,
    at: (Term, LogIndex),
    state: ShardState,
}

/// A cluster that can be restored.
#[derive(Debug)]
pub struct NodeRestore {
    exports: Exports,
    /// Which store that is.
    place: String,
    cluster: ClusterId,
    manifest: Manifest,
    next_number: u64,
    /// Of the restored cluster.
    epoch: u64,
    shards: Vec<RestorableShard>,
}

impl NodeRestore {
    /// Whether a directory may be restored into: it is empty, or there is none.
    ///
    /// # Errors
    /// [`RestoreError::NotEmpty`], [`RestoreError::Write`].
    pub fn check_directory(dir: &Path) -> Result<(), RestoreError> {
        directory::check_empty(dir)
    }

    /// Looks what is there. Changes nothing.
    ///
    /// # Errors
    /// [`RestoreError`].
    pub async fn look(from: &RestoreFrom, mut tell: impl FnMut(Step)) -> Result<Self, RestoreError> {
        let options = from.options.clone();
        let config = StoreConfig { options, makes_folder: false, ..StoreConfig::new(&from.url) };
        let store = match Store::open(config) {
            Err(OpenError::Folder { source, .. }) if source.kind() == ErrorKind::NotFound => {
                return Err(nothing(from));
            }
            opened => opened?,
        };
        Self::look_in(&store, from, &mut tell).await
    }

    async fn look_in(
        store: &Store,
        from: &RestoreFrom,
        tell: &mut impl FnMut(Step),
    ) -> Result<Self, RestoreError> {
        let cluster = which(store, from).await?;
        let exports = Exports::new(store.clone(), cluster);
        let mut numbers = match exports.numbers().await {
            Err(StoreError::Missing { .. }) => Vec::new(),
            Err(error) => return Err(refused(store).await.unwrap_or(error).into()),
            Ok(numbers) => numbers,
        };
        let Some(newest) = numbers.last().copied() else {
            return Err(nothing(&RestoreFrom { cluster: Some(cluster), ..from.clone() }));
        };
        // Epochs rise with the numbers: the restored cluster's is beyond those that are passed over, too.
        let mut epochs = Epochs::default();
        let (manifest, shards) = loop {
            let Some(number) = numbers.pop() else {
                let what = format!("cluster {cluster} that can be read");
                return Err(RestoreError::Nothing { url: from.url.clone(), what });
            };
            let found = match exports.manifest(number).await {
                Ok(manifest) => {
                    epochs.highest = epochs.highest.max(manifest.epoch);
                    states(&exports, cluster, manifest, epochs.next(), tell).await
                }
                Err(error) => {
                    epochs.unreadable += 1;
                    Err(error.into())
                }
            };
            match found {
                Ok(found) => break found,
                Err(error) if from.skip_damaged && is_damage(&error) => {
                    tell(Step::Skipped(error.to_string()));
                }
                Err(error) => return Err(error),
            }
        };
        let (next_number, epoch) = (newest + 1, epochs.next());
        let place = store.place().to_owned();
        let restore = Self { exports, place, cluster, manifest, next_number, epoch, shards };
        restore.check_packs(store, tell).await?;
        Ok(restore)
    }

    /// The cluster.
    #[must_use]
    pub fn cluster(&self) -> ClusterId {
        self.cluster
    }

    /// The manifest that it starts from.
    #[must_use]
    pub fn manifest(&self) -> &Manifest {
        &self.manifest
    }

    /// The epoch that the cluster will have.
    #[must_use]
    pub fn epoch(&self) -> u64 {
        self.epoch
    }

    /// What there would be.
    #[must_use]
    pub fn shards(&self) -> &[RestorableShard] {
        &self.shards
    }

    /// Restores into `dir`, which must be empty or missing. From then on nodes that ran before write nothing
    /// to the store. On return the directory can be started; if it fails, nothing of that name was made, and
    /// it can be tried again.
    ///
    /// # Errors
    /// [`RestoreError`]; nobody is deposed, but for [`RestoreError::Name`] and perhaps [`RestoreError::Claim`].
    pub async fn write(self, dir: &Path) -> Result<(), RestoreError> {
        let Self { exports, place, cluster, manifest, next_number: number, epoch, shards } = self;
        let layout = Layout { data_shards: manifest.data_shards, dedupe_rows: manifest.dedupe_rows, epoch };
        let shards = shards.into_iter().map(|shard| (shard.shard, shard.at, shard.state)).collect();
        let to = dir.to_owned();
        // Before the claim: where it cannot be written as a whole nobody is deposed.
        let beside = apart(move || {
            let beside = directory::Beside::make(&to)?;
            beside.fill((cluster, &place), layout, shards)?;
            Ok(beside)
        });
        let beside = beside.await?;
        let claim =
            Manifest { number, epoch, written_ms: clock::now().0, writer: Ulid::new().0.into(), ..manifest };
        let claimed = exports.publish(&claim, Some(number - 1)).await;
        let claimed = claimed.map_err(|why| RestoreError::Claim { number, why })?;
        if let Published::Theirs(theirs) = claimed {
            return Err(RestoreError::Taken(theirs.number));
        }
        apart(move || beside.name(number)).await
    }

    /// All packs that the states name are there, as long as they should be. What is in them is checked when it is read.
    async fn check_packs(&self, store: &Store, tell: &mut impl FnMut(Step)) -> Result<(), RestoreError> {
        tell(Step::Looking(self.shards.iter().map(|shard| shard.packs).sum()));
        let listed = store.list_all(&PackName::folder(self.cluster), PACKS_MAX).await?;
        let listed: HashMap<String, u64> =
            listed.into_iter().map(|object| (object.name, object.bytes)).collect();
        for RestorableShard { shard, state, .. } in &self.shards {
            for (_, pack) in state.packs().live() {
                let object = pack.name(self.cluster, *shard).to_string();
                let what = match listed.get(&object) {
                    Some(bytes) if *bytes == pack.bytes => continue,
                    Some(bytes) => format!("has {bytes} bytes where {} were sealed", pack.bytes),
                    None => "is missing".to_owned(),
                };
                return Err(RestoreError::Pack { object, shard: *shard, what });
            }
        }
        Ok(())
    }
}

/// Runs what waits for a disk.
async fn apart<T: Send + 'static>(
    work: impl FnOnce() -> Result<T, RestoreError> + Send + 'static,
) -> Result<T, RestoreError> {
    tokio::task::spawn_blocking(work).await.unwrap_or_else(|error| {
        Err(RestoreError::Write { path: "the directory".to_owned(), why: error.to_string() })
    })
}

/// What the manifests say that are looked at, from the newest on.
#[derive(Debug, Default)]
struct Epochs {
    highest: u64,
    /// Each of these may be of an epoch more.
    unreadable: u64,
}

impl Epochs {
    fn next(&self) -> u64 {
        self.highest + self.unreadable + 1
    }
}

async fn which(store: &Store, from: &RestoreFrom) -> Result<ClusterId, RestoreError> {
    if let Some(cluster) = from.cluster {
        return Ok(cluster);
    }
    let clusters = match Exports::clusters(store).await {
        Err(StoreError::Missing { .. }) => Vec::new(),
        Err(error) => return Err(refused(store).await.unwrap_or(error).into()),
        Ok(clusters) => clusters,
    };
    match clusters.as_slice() {
        [] => Err(nothing(from)),
        [one] => Ok(*one),
        several => {
            let clusters: Vec<String> = several.iter().map(ToString::to_string).collect();
            Err(RestoreError::Several { url: from.url.clone(), clusters: clusters.join(", ") })
        }
    }
}

/// There is no manifest of what is wanted.
fn nothing(from: &RestoreFrom) -> RestoreError {
    let what = from.cluster.map_or_else(|| "any cluster".to_owned(), |cluster| format!("cluster {cluster}"));
    RestoreError::Nothing { url: from.url.clone(), what }
}

/// Whether the store refuses us: a listing that fails does not tell that from other failures, a read does.
async fn refused(store: &Store) -> Option<StoreError> {
    let name = ManifestName { cluster: ClusterId(0), number: 0 }.to_string();
    store.get_all(&name, 1).await.err().filter(|error| matches!(error, StoreError::Refused { .. }))
}

/// An older manifest may be whole.
fn is_damage(error: &RestoreError) -> bool {
    match error {
        RestoreError::Export(ExportError::Store(error)) => error.is_damage(),
        RestoreError::Export(error) => !error.is_newer(),
        RestoreError::State { .. } => true,
        _ => false,
    }
}

/// The states that a manifest names, as they will be in `epoch`: cut, and with new lives.
async fn states(
    exports: &Exports,
    cluster: ClusterId,
    manifest: Manifest,
    epoch: u64,
    tell: &mut impl FnMut(Step),
) -> Result<(Manifest, Vec<RestorableShard>), RestoreError> {
    tracing::debug!(manifest = %ManifestName { cluster, number: manifest.number }, "looked at");
    let mut states = Vec::with_capacity(manifest.shards.len());
    for named in &manifest.shards {
        let bytes = exports.snapshot(named).await?;
        let shard = named.shard();
        tell(Step::Read(shard, named.bytes));
        let decoded = tokio::task::spawn_blocking(move || ShardState::decode(shard, &bytes)).await;
        let object = SnapshotName::of(cluster, named).to_string();
        let wrong = |why: &dyn std::fmt::Display| RestoreError::State {
            object: object.clone(),
            why: why.to_string(),
        };
        let state = decoded.map_err(|error| wrong(&error))?.map_err(|error| match error {
            SnapshotError::Format(_) => {
                RestoreError::Newer { object: object.clone(), why: error.to_string() }
            }
            error => wrong(&error),
        });
        states.push(state?);
    }
    // One moment for all: what one shard has taken of another's outputs is what the other has to go on from.
    let arrived: BTreeMap<ShardId, _> = manifest
        .shards
        .iter()
        .zip(&states)
        .map(|(named, state)| (named.shard(), state.arrivals().clone()))
        .collect();
    let mut shards = Vec::with_capacity(states.len());
    for (named, mut state) in manifest.shards.iter().zip(states) {
        let shard = named.shard();
        let holds =
            state.cut_to_packs(|target| arrived.get(&target).map_or(0, |arrivals| arrivals.next(shard)));
        // A restore that nothing followed left the states of the epoch before it.
        let epochs = epoch - named.epoch.min(manifest.epoch);
        let object = SnapshotName::of(cluster, named).to_string();
        let state = state.with_new_lives(shard, epochs);
        let state = state.map_err(|error| RestoreError::State { object, why: error.to_string() })?;
        shards.push(RestorableShard {
            shard,
            holds,
            topics: state.topics().len(),
            subscriptions: state.subscriptions().len(),
            packs: state.packs().live().count(),
            at: (Term(named.term + epochs * TERMS_PER_EPOCH), LogIndex(named.index)),
            state,
        });
    }
    Ok((manifest, shards))
}

#[cfg(test)]
mod tests;
