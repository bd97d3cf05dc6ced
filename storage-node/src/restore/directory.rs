//! A data directory made of states: checkpoints, and a journal that goes on behind them.

use std::collections::BTreeSet;
use std::io;
use std::os::unix::fs::{MetadataExt as _, chown};
use std::path::{Path, PathBuf};
use std::sync::{Arc, mpsc};

use ulid::Ulid;
use weir_journal::{Blobs, Disk, Identity, Journal, JournalConfig, LogPosition, RealDisk, StreamId};
use weir_protocol::ids::{ClusterId, LogIndex, ShardId, Term};

use super::RestoreError;
use crate::layout::{self, Layout};
use crate::node::NODE_ID;
use crate::raft::Checkpoints;
use crate::raft::checkpoint::Checkpoint;
use crate::raft::types::{Membership, StoredMembership, encode_vote, log_id, vote_for};
use crate::shard::state::ShardState;
use crate::tier::known;

/// The journal's first file holds votes and purge points alone; later ones have the size that the node is started with.
const FILE_BYTES: u32 = 16 << 20;

/// Nothing is in the directory, or it does not exist.
#[expect(clippy::disallowed_methods, reason = "folders count too, and nothing of a journal is read")]
pub(super) fn check_empty(dir: &Path) -> Result<(), RestoreError> {
    match std::fs::read_dir(dir).map(|mut entries| entries.next().is_some()) {
        Ok(false) => Ok(()),
        Ok(true) => Err(RestoreError::NotEmpty(dir.display().to_string())),
        Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
        Err(error) => Err(cannot(dir, &error)),
    }
}

fn cannot(path: &Path, why: &dyn std::fmt::Display) -> RestoreError {
    RestoreError::Write { path: path.display().to_string(), why: why.to_string() }
}

/// A folder that takes the name of a directory once it is whole. Without that it is removed, unless it is to be
/// kept.
pub(super) struct Beside {
    dir: PathBuf,
    beside: PathBuf,
    disk: Arc<dyn Disk>,
    is_kept: bool,
}

impl Beside {
    /// Makes the folder beside `dir`, which must be empty or missing. If it is there, on return it is known
    /// that a folder can take its name: none can take that of a mount point.
    pub(super) fn make(dir: &Path) -> Result<Self, RestoreError> {
        check_empty(dir)?;
        let is_there = dir.symlink_metadata().is_ok();
        // Behind a link, whose own name no folder takes.
        let resolved = if is_there { dir.canonicalize() } else { std::path::absolute(dir) };
        let dir = resolved.map_err(|error| cannot(dir, &error))?;
        let (Some(parent), Some(name)) = (dir.parent(), dir.file_name()) else {
            return Err(cannot(&dir, &"it has no name"));
        };
        let beside = parent.join(format!(".{}.restoring-{}", name.to_string_lossy(), Ulid::new()));
        let made = Self { dir, beside, disk: Arc::new(RealDisk), is_kept: false };
        let make = || made.disk.make_dir(&made.beside).map_err(|why| cannot(&made.beside, &why));
        make()?;
        if is_there {
            let advice = "name a new directory, within it if it is a mount point";
            let refused = |why| cannot(&made.dir, &format!("it cannot be replaced ({why}): {advice}"));
            made.take_name().map_err(refused)?;
            make()?;
        }
        Ok(made)
    }

    /// The directory is this folder from now on. One that is there is replaced, and whose it is and who may
    /// look into it was somebody's choice.
    fn take_name(&self) -> io::Result<()> {
        if let Ok(there) = self.dir.metadata() {
            // As far as the system lets us: only root gives something away.
            let _ = chown(&self.beside, Some(there.uid()), Some(there.gid()));
            std::fs::set_permissions(&self.beside, there.permissions())?;
        }
        self.disk.rename(&self.beside, &self.dir)
    }

    /// Writes everything: a directory of this cluster, whose store is at `place`. Durable on return, but for
    /// the name.
    pub(super) fn fill(
        &self,
        (cluster, place): (ClusterId, &str),
        layout: Layout,
        shards: Vec<(ShardId, (Term, LogIndex), ShardState)>,
    ) -> Result<(), RestoreError> {
        let filled = fill(&self.beside, &self.disk, (cluster, place), layout, shards);
        filled.map_err(|why| cannot(&self.beside, &why))?;
        check_empty(&self.dir)
    }

    /// Gives it its name, which is durable on return. From here on it stays, whatever its name is: the cluster's
    /// `manifest` counts on it.
    pub(super) fn name(mut self, manifest: u64) -> Result<(), RestoreError> {
        self.is_kept = true;
        let parent = self.dir.parent().unwrap_or(&self.dir);
        let named = self.take_name().and_then(|()| self.disk.sync_dir(parent));
        named.map_err(|why| RestoreError::Name {
            dir: self.dir.display().to_string(),
            beside: self.beside.display().to_string(),
            number: manifest,
            why: why.to_string(),
        })
    }
}

impl Drop for Beside {
    #[expect(
        clippy::disallowed_methods,
        reason = "a folder of this restore's own, with nothing that anybody wants"
    )]
    fn drop(&mut self) {
        if !self.is_kept {
            // It is in nobody's way if it stays.
            let _ = std::fs::remove_dir_all(&self.beside);
        }
    }
}

fn fill(
    dir: &Path,
    disk: &Arc<dyn Disk>,
    (cluster, place): (ClusterId, &str),
    layout: Layout,
    shards: Vec<(ShardId, (Term, LogIndex), ShardState)>,
) -> Result<(), String> {
    let text = |error: &dyn std::fmt::Display| error.to_string();
    let identity = Identity { cluster_id: cluster.0, node_id: NODE_ID };
    let config = JournalConfig { file_bytes: FILE_BYTES, ..JournalConfig::new(dir, identity) };
    let (journal, _) = Journal::open(config, Arc::clone(disk)).map_err(|error| text(&error))?;
    let blobs = Blobs::open(dir.join("blobs"), Arc::clone(disk)).map_err(|error| text(&error))?;
    for (shard, (term, index), state) in shards {
        let stream = StreamId(shard.0);
        journal.note_purged(stream, LogPosition { term: term.0, leader: 0, index: index.0 });
        durably(|done| journal.save_vote(stream, encode_vote(&vote_for(NODE_ID, term.0)), done))?;
        // One voter: a restored cluster begins as one node and grows from there.
        let last = log_id(term.0, index.0);
        let members = Membership::new_with_defaults(vec![BTreeSet::from([NODE_ID])], []);
        let members = StoredMembership::new(Some(last), members);
        let checkpoint = Checkpoint { last, members, state };
        Checkpoints::new(blobs.clone(), shard).put(&checkpoint).map_err(|error| text(&error))?;
    }
    layout::write(&blobs, layout).map_err(|error| text(&error))?;
    // What it goes on from is there.
    known::remember(&blobs, place, true).map_err(|error| text(&error))?;
    journal.close();
    Ok(())
}

fn durably(
    queue: impl FnOnce(weir_journal::Completion) -> Result<(), weir_journal::AppendError>,
) -> Result<(), String> {
    let (tell, told) = mpsc::channel();
    let done = Box::new(move |outcome: Result<_, Arc<weir_journal::Failure>>| {
        drop(tell.send(outcome.map(drop).map_err(|failure| failure.to_string())));
    });
    queue(done).map_err(|error| error.to_string())?;
    told.recv().map_err(|_| "the journal ended".to_owned())?
}
