//! How far the journal was synced, in files beside it: what a copy of the directory of a running node lacks.
//!
//! Such a copy has each file from another moment. What is missing at the end of the journal looks like a commit that a
//! crash has cut off. So the position up to which everything is synced is noted about once a second, in two
//! places, of which a copy has one later than the journal's files, as a rule. It is written behind the sync
//! that it speaks of and never synced itself: whatever a crash keeps of it is not ahead of the journal. If it
//! is ahead, something acknowledged is missing. A note that does not hold, or that is missing, says nothing.

use std::io;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::time::{Duration, Instant};

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::entry::{FileSeq, Lsn};
use crate::error::OpenError;
use crate::files::remove_if_there;
use crate::format::{crc32c, u32_at, u64_at, u128_at};

/// Name of the notes, beside the journal and among its files.
pub(crate) const NAME: &str = "SYNCED";
const MAGIC: u64 = u64::from_le_bytes(*b"WEIRSYN\0");
const BYTES: usize = 40;

/// Writes the notes.
///
/// | offset | size | meaning (little-endian) |
/// |---|---|---|
/// | 0 | 8 | magic `WEIRSYN\0` |
/// | 8 | 4 | zero |
/// | 12 | 4 | CRC-32C of bytes 0..12 and 16..40 |
/// | 16 | 16 | journal id |
/// | 32 | 8 | position: file number and byte |
#[derive(Debug)]
pub(crate) struct Notes {
    files: Vec<Arc<dyn DiskFile>>,
    journal_id: u128,
    every: Duration,
    next: Instant,
}

fn paths(dir: &Path) -> [PathBuf; 2] {
    [dir.join(NAME), dir.join("wal").join(NAME)]
}

impl Notes {
    /// For the journal in `dir`. Without files if none can be opened: notes are no reason not to start.
    pub(crate) fn open(dir: &Path, disk: &dyn Disk, journal_id: u128, every: Duration) -> Self {
        let open = |path: PathBuf| {
            let opened = disk.open(&path, OpenMode::Write).or_else(|_| disk.open(&path, OpenMode::Create));
            opened
                .inspect_err(
                    |error| tracing::warn!(%error, path = %path.display(), "no note of what is synced"),
                )
                .ok()
        };
        let files =
            if every.is_zero() { Vec::new() } else { paths(dir).into_iter().filter_map(open).collect() };
        Self { files, journal_id, every, next: Instant::now() + every }
    }

    /// Everything up to here was synced at this moment.
    pub(crate) fn synced(&mut self, upto: Lsn, at: Instant) {
        if self.files.is_empty() || at < self.next {
            return;
        }
        self.next = at + self.every;
        let bytes = encode(self.journal_id, upto);
        // Nobody was promised a note. One that is torn does not hold.
        self.files.retain(|file| file.write_at(&bytes, 0).is_ok());
    }
}

fn encode(journal_id: u128, upto: Lsn) -> [u8; BYTES] {
    let mut bytes = [0; BYTES];
    bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
    bytes[16..32].copy_from_slice(&journal_id.to_le_bytes());
    bytes[32..40].copy_from_slice(&upto.0.to_le_bytes());
    let crc = crc32c(&[&bytes[..12], &bytes[16..]].concat());
    bytes[12..16].copy_from_slice(&crc.to_le_bytes());
    bytes
}

/// What the notes of the journal in `dir` say; `None` if they say nothing.
fn noted(dir: &Path, disk: &dyn Disk, journal_id: u128) -> Option<Lsn> {
    let read = |path: PathBuf| {
        let mut bytes = [0; BYTES];
        let read = disk.open(&path, OpenMode::Read).ok()?.read_at(&mut bytes, 0).ok()?;
        let holds = read == BYTES
            && u64_at(&bytes, 0) == MAGIC
            && u128_at(&bytes, 16) == journal_id
            && u32_at(&bytes, 12) == crc32c(&[&bytes[..12], &bytes[16..]].concat());
        holds.then(|| Lsn(u64_at(&bytes, 32)))
    };
    paths(dir).into_iter().filter_map(read).max()
}

/// Compares what was recovered, up to `found`, with what is known to have been synced.
///
/// # Errors
/// [`OpenError::Behind`].
pub(crate) fn check(dir: &Path, disk: &dyn Disk, journal_id: u128, found: Lsn) -> Result<(), OpenError> {
    match noted(dir, disk, journal_id) {
        Some(synced) if synced > found => {
            let place = |at: Lsn| -> (FileSeq, u32) { (at.file(), at.pos()) };
            Err(OpenError::Behind { dir: dir.to_owned(), synced: place(synced), found: place(found) })
        }
        _ => Ok(()),
    }
}

/// Forgets what was noted, durably: a repair has cut the journal off in front of it.
///
/// # Errors
/// What the disk says.
pub(crate) fn forget(dir: &Path, disk: &dyn Disk) -> io::Result<()> {
    for path in paths(dir) {
        remove_if_there(disk, &path)?;
        disk.sync_dir(path.parent().expect("it lies in a directory"))?;
    }
    Ok(())
}
