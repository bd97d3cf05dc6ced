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
use weir_journal::{
    Blobs, Cut, Disk, Entry, EntryKind, Identity, Journal, JournalConfig, OpenError, Repair, StreamId,
};
use weir_protocol::ids::ShardId;

use crate::raft::{Checkpoints, term_of};

/// Empty entries appended at once.
const BLANKS_AT_ONCE: u64 = 10_000;

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

/// A damaged node, held so that nobody starts it meanwhile.
#[derive(Debug)]
pub struct NodeRepair {
    journal: Repair,
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

impl NodeRepair {
    /// Looks for damage in the data directory `dir`; `None` if there is none. Changes nothing. Blocking.
    ///
    /// # Errors
    /// [`RepairError`].
    pub fn look(dir: &Path, disk: &Arc<dyn Disk>) -> Result<Option<Self>, RepairError> {
        if Identity::of_dir(dir, &**disk)?.is_none() {
            return Err(RepairError::NoData(dir.to_owned()));
        }
        let Some(journal) = Repair::look(dir, disk)? else {
            return Ok(None);
        };
        let checkpoints = checkpoints(dir, disk, &journal)?;
        let losses = journal.cut().entries.iter().map(|(stream, entries)| {
            let shard = ShardId(stream.0);
            let next = checkpoints.iter().find(|at| at.shard == shard).map_or(0, |at| at.next);
            let covered = next.clamp(entries.start, entries.end) - entries.start;
            ShardLoss { shard, entries: entries.clone(), covered }
        });
        let losses = losses.collect();
        Ok(Some(Self { journal, dir: dir.to_owned(), disk: Arc::clone(disk), losses, checkpoints }))
    }

    /// Where the damage is and what lies behind it.
    #[must_use]
    pub fn cut(&self) -> &Cut {
        self.journal.cut()
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
        let copies = journal.truncate()?;
        let identity = Identity::of_dir(&dir, &*disk)?.expect("it was there when this began");
        let config = JournalConfig { max_bytes: u64::MAX / 2, ..JournalConfig::new(&dir, identity) };
        let (journal, _) = Journal::open(config, disk)?;
        for at in checkpoints {
            fill(&journal, at).map_err(|why| RepairError::Unfinished { shard: at.shard, why })?;
        }
        journal.close();
        Ok(copies)
    }
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

fn checkpoints(dir: &Path, disk: &Arc<dyn Disk>, journal: &Repair) -> Result<Vec<At>, RepairError> {
    let failed = |shard, why: &dyn std::fmt::Display| RepairError::Checkpoint { shard, why: why.to_string() };
    let blobs =
        Blobs::open(dir.join("blobs"), Arc::clone(disk)).map_err(|error| failed(ShardId::META, &error))?;
    let mut found = Vec::new();
    for shard in journal.streams().map(|stream| ShardId(stream.0)) {
        let newest =
            Checkpoints::new(blobs.clone(), shard).newest().map_err(|error| failed(shard, &error))?;
        let Some(checkpoint) = newest else { continue };
        found.push(At {
            shard,
            term: term_of(&checkpoint.last),
            next: checkpoint.last.index + 1,
            log_end: journal.end(StreamId(shard.0)),
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
    use super::*;

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
