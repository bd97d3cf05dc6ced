//! Cutting a node's journal off where acknowledged bytes are damaged, in step with its checkpoints.
//!
//! A checkpoint may cover entries that the cut takes away: the node's state then knows of records whose bytes
//! are gone. Empty entries take their places, so that the log reaches its checkpoint again; reading such a
//! record is refused as `corrupt`, everything else goes on. That is only done if every shard keeps its whole
//! state by its checkpoint. Where some shard would go back while another does not, what they told each other
//! would not fit any more, and only a copy helps.

use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::mpsc;

use bytes::Bytes;
use prost::Message as _;
use weir_journal::{
    Blobs, Cut, Disk, Entry, EntryKind, Identity, Journal, JournalConfig, OpenError, Repair, SealedError,
    StreamId,
};
use weir_protocol::ids::ShardId;

use crate::config::NodeConfig;
use crate::raft::{Checkpoints, term_of};

/// Empty entries appended at once.
const BLANKS_AT_ONCE: u64 = 10_000;
/// The blob that says what is to be filled, from before the cut until it is.
const PLAN: &str = "repair";

/// Why a journal was not repaired.
#[derive(Debug, thiserror::Error)]
pub enum RepairError {
    /// Not a data directory: nothing is damaged there.
    #[error("{} is no data directory of Weir: there is no IDENTITY in it; --data-dir names the one that the node was given", .0.display())]
    NoData(PathBuf),
    /// The journal cannot be opened, or holds nothing before the damage.
    #[error(transparent)]
    Journal(#[from] OpenError),
    /// A checkpoint cannot be read.
    #[error("shard {shard}: {why}")]
    Checkpoint {
        /// Of which shard.
        shard: ShardId,
        /// Why.
        why: String,
    },
    /// What is to be filled cannot be read or noted.
    #[error(transparent)]
    Plan(#[from] SealedError),
    /// Shards would not fit together any more.
    #[error("{0}")]
    Torn(String),
    /// The empty entries could not be written; what was cut is kept, and the repair can be run again.
    #[error(
        "the journal was cut, and shard {shard} could not be brought to its checkpoint: {why}; run this again"
    )]
    Unfinished {
        /// Which shard.
        shard: ShardId,
        /// Why.
        why: String,
    },
}

/// What a shard loses.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct ShardLoss {
    /// The shard.
    pub shard: ShardId,
    /// Entries whose bytes go.
    pub entries: Range<u64>,
    /// Those of them that its checkpoint covers: their records read as `corrupt`; the others never were.
    pub covered: u64,
}

/// A damaged node, held so that nobody starts it meanwhile; or one whose repair was interrupted behind the cut.
#[derive(Debug)]
pub struct NodeRepair {
    /// `None`: it is cut.
    journal: Option<Repair>,
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    losses: Vec<ShardLoss>,
    checkpoints: Vec<At>,
}

/// Where a shard's checkpoint lies, and where its log would end.
#[derive(Debug, Clone, Copy)]
struct At {
    shard: ShardId,
    term: u64,
    next: u64,
    log_end: u64,
}

/// What is to be filled: logs that end before their checkpoints because of a cut.
#[derive(Clone, PartialEq, prost::Message)]
struct Plan {
    #[prost(message, repeated, tag = "1")]
    shards: Vec<Planned>,
}

/// A shard whose log is to reach its checkpoint.
#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Planned {
    #[prost(uint32, tag = "1")]
    shard: u32,
    #[prost(uint64, tag = "2")]
    term: u64,
    #[prost(uint64, tag = "3")]
    next: u64,
}

impl NodeRepair {
    /// Looks for damage in the data directory `dir`; `None` if there is none. Changes nothing. Blocking.
    ///
    /// # Errors
    /// [`RepairError`].
    pub fn look(dir: &Path, disk: &Arc<dyn Disk>) -> Result<Option<Self>, RepairError> {
        if Identity::of_dir(dir, &**disk)?.is_none() {
            return Err(RepairError::NoData(dir.to_owned()));
        }
        let blobs = Blobs::at(dir.join("blobs"), Arc::clone(disk));
        let Some(journal) = Repair::look(dir, disk)? else {
            let checkpoints = unfinished(dir, disk, &blobs)?;
            if checkpoints.is_empty() {
                return Ok(None);
            }
            let (journal, dir, disk, losses) = (None, dir.to_owned(), Arc::clone(disk), Vec::new());
            return Ok(Some(Self { journal, dir, disk, losses, checkpoints }));
        };
        let ends = |shard: ShardId| journal.end(StreamId(shard.0));
        let checkpoints = checkpoints(&blobs, journal.streams().map(|stream| ShardId(stream.0)), ends)?;
        let losses = journal.cut().entries.iter().map(|(stream, entries)| {
            let shard = ShardId(stream.0);
            let next = checkpoints.iter().find(|at| at.shard == shard).map_or(0, |at| at.next);
            let covered = next.clamp(entries.start, entries.end) - entries.start;
            ShardLoss { shard, entries: entries.clone(), covered }
        });
        let losses = losses.collect();
        Ok(Some(Self {
            journal: Some(journal),
            dir: dir.to_owned(),
            disk: Arc::clone(disk),
            losses,
            checkpoints,
        }))
    }

    /// Where the damage is and what lies behind it. `None`: it was cut by a repair that was interrupted then, and
    /// nothing more is lost by finishing that.
    #[must_use]
    pub fn cut(&self) -> Option<&Cut> {
        self.journal.as_ref().map(Repair::cut)
    }

    /// What each shard loses.
    #[must_use]
    pub fn losses(&self) -> &[ShardLoss] {
        &self.losses
    }

    /// Whether cutting leaves a node that starts.
    ///
    /// # Errors
    /// [`RepairError::Torn`].
    pub fn check(&self) -> Result<(), RepairError> {
        fit(&self.checkpoints, &self.losses)
    }

    /// Cuts, and brings the log of each shard to its checkpoint. On return the node starts, and the files
    /// that are returned hold what was cut. Blocking.
    ///
    /// # Errors
    /// [`RepairError`].
    pub fn truncate(self) -> Result<Vec<PathBuf>, RepairError> {
        self.check()?;
        let Self { journal, dir, disk, checkpoints, .. } = self;
        let blobs = Blobs::open(dir.join("blobs"), Arc::clone(&disk))?;
        let behind: Vec<At> = checkpoints.into_iter().filter(|at| at.log_end < at.next).collect();
        let mut copies = Vec::new();
        if let Some(journal) = journal {
            let planned = |at: &At| Planned { shard: at.shard.0, term: at.term, next: at.next };
            let plan = Plan { shards: behind.iter().map(planned).collect() };
            blobs.put(PLAN, [plan.encode_to_vec().into()])?;
            copies = journal.truncate()?;
        }
        let identity = Identity::of_dir(&dir, &*disk)?.expect("it was there when this began");
        // As small as may be: little is written, and the disk may be nearly full.
        let file_bytes = *NodeConfig::JOURNAL_FILE_BYTES.start();
        let config =
            JournalConfig { file_bytes, max_bytes: u64::MAX / 2, ..JournalConfig::new(&dir, identity) };
        let (journal, _) = Journal::open(config, disk)?;
        for at in behind {
            fill(&journal, at).map_err(|why| RepairError::Unfinished { shard: at.shard, why })?;
        }
        journal.close();
        blobs.remove(PLAN)?;
        Ok(copies)
    }
}

/// What an interrupted repair has left to be filled: nothing else is, whatever the log lacks.
fn unfinished(dir: &Path, disk: &Arc<dyn Disk>, blobs: &Blobs) -> Result<Vec<At>, RepairError> {
    let Some(bytes) = blobs.get(PLAN)? else { return Ok(Vec::new()) };
    let plan = Plan::decode(bytes);
    let plan =
        plan.map_err(|_| SealedError::Corrupt { path: dir.join("blobs"), what: "no plan of a repair" })?;
    let Some(ends) = Repair::ends(dir, disk)? else { return Ok(Vec::new()) };
    let shards = plan.shards.iter().map(|planned| ShardId(planned.shard));
    let end = |shard: ShardId| ends.get(&StreamId(shard.0)).copied().unwrap_or(0);
    let mut found = checkpoints(blobs, shards, end)?;
    // Somebody may have put a copy in the place of the damaged file instead, and the node gone on since.
    found.retain(|at| {
        let planned = Planned { shard: at.shard.0, term: at.term, next: at.next };
        at.log_end < at.next && plan.shards.contains(&planned)
    });
    Ok(found)
}

/// Whether all shards go back to the cut, or all stay where they are; what one told another would not fit otherwise.
fn fit(checkpoints: &[At], losses: &[ShardLoss]) -> Result<(), RepairError> {
    let ahead = checkpoints.iter().find(|at| at.next > at.log_end);
    let back = losses.iter().find(|loss| loss.covered < loss.entries.end - loss.entries.start);
    let (Some(ahead), Some(back)) = (ahead, back) else { return Ok(()) };
    Err(RepairError::Torn(format!(
        "cutting here does not help: the checkpoint of shard {} covers entries up to {}, behind the cut at {}, while \
         shard {} would go back; what they told each other would not fit. Restore the directory from a copy",
        ahead.shard, ahead.next, ahead.log_end, back.shard
    )))
}

fn checkpoints(
    blobs: &Blobs,
    shards: impl Iterator<Item = ShardId>,
    log_end: impl Fn(ShardId) -> u64,
) -> Result<Vec<At>, RepairError> {
    let mut found = Vec::new();
    for shard in shards {
        let newest = Checkpoints::new(blobs.clone(), shard).newest();
        let newest = newest.map_err(|why| RepairError::Checkpoint { shard, why: why.to_string() })?;
        let Some(checkpoint) = newest else { continue };
        found.push(At {
            shard,
            term: term_of(&checkpoint.last),
            next: checkpoint.last.index + 1,
            log_end: log_end(shard),
        });
    }
    Ok(found)
}

/// Appends empty entries up to the checkpoint, of its term: what they were is applied, and nobody applies them again.
fn fill(journal: &Journal, at: At) -> Result<(), String> {
    let stream = StreamId(at.shard.0);
    let mut end = journal.entries(stream).end;
    while end < at.next {
        let upto = at.next.min(end + BLANKS_AT_ONCE);
        let blank =
            |index| Entry { kind: EntryKind::Blank, term: at.term, leader: 0, index, payload: Bytes::new() };
        let (tell, told) = mpsc::channel();
        let done = Box::new(move |outcome: Result<_, Arc<weir_journal::Failure>>| {
            drop(tell.send(outcome.map(drop).map_err(|failure| failure.to_string())));
        });
        journal.append(stream, (end..upto).map(blank).collect(), done).map_err(|error| error.to_string())?;
        told.recv().map_err(|_| "the journal ended".to_owned())??;
        end = upto;
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weir_journal::RealDisk;

    use super::*;

    #[test]
    fn a_look_at_what_is_whole_makes_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let disk: Arc<dyn Disk> = Arc::new(RealDisk);
        let identity = Identity { cluster_id: 1, node_id: 1 };
        let journal = JournalConfig::small(dir.path(), identity);
        Journal::open(journal, Arc::clone(&disk)).unwrap().0.close();
        assert!(NodeRepair::look(dir.path(), &disk).unwrap().is_none());
        assert!(!dir.path().join("blobs").exists());
    }

    #[test]
    fn either_every_shard_goes_back_to_the_cut_or_none_does() {
        let at = |shard, next, log_end| At { shard: ShardId(shard), term: 1, next, log_end };
        let loss = |shard, entries, covered| ShardLoss { shard: ShardId(shard), entries, covered };
        let before = [at(1, 5, 9), at(2, 5, 9)];
        assert!(fit(&before, &[loss(1, 9..12, 0), loss(2, 9..10, 0)]).is_ok(), "all go back");
        let behind = [at(1, 12, 9), at(2, 5, 9)];
        assert!(fit(&behind, &[loss(1, 9..12, 3)]).is_ok(), "none goes back");
        for losses in [&[loss(1, 9..12, 3), loss(2, 9..10, 0)][..], &[loss(1, 9..13, 3)]] {
            assert!(matches!(fit(&behind, losses), Err(RepairError::Torn(_))), "{losses:?}");
        }
    }
}
