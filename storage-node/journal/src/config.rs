//! Settings of a journal; read once at open.

use std::path::PathBuf;
use std::time::Duration;

use crate::entry::Identity;
use crate::format::BLOCK_ALIGN;

const KIB: u64 = 1024;
const MIB: u64 = 1024 * KIB;

/// What an answered append promises.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum SyncMode {
    /// Each commit is synced before it is answered: survives power loss. The default.
    Always,
    /// Answered when the operating system has the bytes; nothing is synced but a finished file and what is flushed
    /// ([`crate::Journal::flush`]). Survives the end
    /// of the process, **not** a power cut or a kernel crash, which may lose any part of the last file's
    /// unsynced commits.
    Os,
}

/// How bytes reach the disk.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Backend {
    /// [`Backend::Direct`] where that works and commits are synced, else [`Backend::Pwrite`]. The default.
    Auto,
    /// `pwrite` through the page cache, then `fdatasync`. Works on every file system.
    Pwrite,
    /// `O_DIRECT | O_DSYNC` writes: no page cache, no separate sync call. Refused at open where the file system
    /// has no direct I/O.
    Direct,
}

/// Settings of a journal. Sizes are in bytes.
#[derive(Debug, Clone)]
pub struct JournalConfig {
    /// Directory of the journal; made if missing. Holds `LOCK`, `IDENTITY`, `wal/` and `blobs/`.
    pub dir: PathBuf,
    /// Whose journal it is; compared with the `IDENTITY` file, which is written if the directory is new.
    pub identity: Identity,
    /// Bytes of one journal file. Default 128 MiB, range 64 KiB ..= 2 GiB, a multiple of 4 KiB and at least four
    /// times `max_block_bytes`. May change between starts: files keep the size they were made with.
    pub file_bytes: u32,
    /// Journal bytes in use at which admission ends: files that hold live data, whole, and the written part of the
    /// current one. Default 8 GiB, at least two files. On disk there may be the next file and `spare_files` more, and
    /// another where [`crate::Class::Relief`] goes beyond.
    pub max_bytes: u64,
    /// Part of `max_bytes` that [`crate::Class::Data`] may not use, and of which half is closed to
    /// [`crate::Class::Few`] and a quarter left to [`crate::Class::Relief`]. Default 64 MiB; less than `max_bytes`.
    pub control_reserve_bytes: u64,
    /// Largest commit block. Default 4 MiB, range 16 KiB ..= 16 MiB, a multiple of 4 KiB.
    pub max_block_bytes: u32,
    /// Bytes of a block that are given to the disk while the rest of it is formed, where a sync follows.
    /// Default 96 KiB, range 4 KiB ..= 16 MiB; from `max_block_bytes` on a block is written as a whole.
    pub write_piece_bytes: u32,
    /// What an answered append promises. Default [`SyncMode::Always`].
    pub sync: SyncMode,
    /// Shortest time between the starts of two commits, counted from the end of the previous sync. Default 0: a
    /// lone append never waits.
    pub min_fsync_interval: Duration,
    /// A lone append is written and synced by who appends it, before [`crate::Journal::append`] returns, if
    /// commits have not taken longer than this lately. Default 1 ms; 0: never, each is the writer thread's.
    pub inline_commit_max: Duration,
    /// How bytes reach the disk. Default [`Backend::Auto`].
    pub backend: Backend,
    /// Bytes that may wait in the writer's queue, and that permits may hold. Default 64 MiB. Beyond it admission
    /// answers [`crate::Full::Busy`] and appends [`crate::AppendError::QueueFull`].
    pub pending_bytes_max: u64,
    /// Bytes of synced entries kept in memory for readers that follow closely, all streams together. Default
    /// 16 MiB, at most 1 TiB. Beyond it the oldest are read from disk.
    pub recent_bytes_max: u64,
    /// Memory of the index: about 80 bytes an entry. Default 128 MiB. Beyond half of it the rows of the oldest entries
    /// leave memory for the sidecars of their files (about 8 bytes an entry on disk, not counted in `max_bytes`), and
    /// reading them takes one more small read. At the limit itself, where rows cannot leave, admission answers
    /// [`crate::Full::Index`].
    pub index_bytes_max: u64,
    /// How often it is noted beside the journal how far that is synced, while commits come; see
    /// [`crate::OpenError::Behind`]. Default 1 s; 0: never.
    pub note_synced_every: Duration,
    /// Files with nothing live in them that are kept to be written again, which spares filling new ones with zeros.
    /// Default 1, and no less.
    pub spare_files: u32,
}

impl JournalConfig {
    /// Default of [`JournalConfig::max_block_bytes`]. What a storage node may send in one entry follows from it.
    pub const MAX_BLOCK_BYTES: u32 = 4 << 20;

    /// The defaults, for `identity` in `dir`.
    #[must_use]
    pub fn new(dir: impl Into<PathBuf>, identity: Identity) -> Self {
        Self {
            dir: dir.into(),
            identity,
            file_bytes: 128 << 20,
            max_bytes: 8192 * MIB,
            control_reserve_bytes: 64 * MIB,
            max_block_bytes: Self::MAX_BLOCK_BYTES,
            write_piece_bytes: 96 << 10,
            sync: SyncMode::Always,
            min_fsync_interval: Duration::ZERO,
            inline_commit_max: Duration::from_millis(1),
            backend: Backend::Auto,
            pending_bytes_max: 64 * MIB,
            recent_bytes_max: 16 * MIB,
            index_bytes_max: 128 * MIB,
            note_synced_every: Duration::from_secs(1),
            spare_files: 1,
        }
    }

    /// Small files and limits (256 KiB files, 32 KiB blocks, 4 MiB in all), through the page cache, every
    /// commit the writer thread's, and no notes, for tests.
    #[must_use]
    pub fn small(dir: impl Into<PathBuf>, identity: Identity) -> Self {
        Self {
            file_bytes: 256 << 10,
            max_bytes: 4 * MIB,
            backend: Backend::Pwrite,
            inline_commit_max: Duration::ZERO,
            control_reserve_bytes: 256 * KIB,
            max_block_bytes: 32 << 10,
            write_piece_bytes: 4 << 10,
            pending_bytes_max: MIB,
            recent_bytes_max: 64 * KIB,
            index_bytes_max: 512 * KIB,
            note_synced_every: Duration::ZERO,
            ..Self::new(dir, identity)
        }
    }

    /// Bytes of the index beyond which rows leave memory. Half: rows of the current file cannot leave, nor those of
    /// one that is finished until its sidecar is written; they have the other half.
    pub(crate) fn resident_index_bytes(&self) -> u64 {
        self.index_bytes_max / 2
    }

    /// Largest payload of one entry: what fits a block with the block's and the frame's headers.
    #[must_use]
    pub fn entry_bytes_max(&self) -> usize {
        self.max_block_bytes as usize - crate::format::BLOCK_HEADER_BYTES - crate::format::FRAME_HEADER_BYTES
    }

    /// Most bytes in the writer's queue: twice what permits hold, so that what was admitted fits with its headers.
    #[must_use]
    pub fn queue_bytes_max(&self) -> u64 {
        self.pending_bytes_max.saturating_mul(2)
    }

    /// Most bytes of entries in memory: the recent ones, those that wait for the writer, and the block being written.
    #[must_use]
    pub fn memory_bytes_max(&self) -> u64 {
        self.recent_bytes_max.saturating_add(self.queue_bytes_max()) + u64::from(self.max_block_bytes)
    }

    /// Says which setting is out of its range.
    ///
    /// # Errors
    /// The name of the setting and its range.
    pub fn check(&self) -> Result<(), ConfigError> {
        let range = |ok: bool, setting, range| if ok { Ok(()) } else { Err(ConfigError { setting, range }) };
        range(
            (64 << 10..=2 << 30).contains(&self.file_bytes) && self.file_bytes.is_multiple_of(BLOCK_ALIGN),
            "file_bytes",
            "64 KiB ..= 2 GiB, a multiple of 4 KiB",
        )?;
        range(
            (16 << 10..=16 << 20).contains(&self.max_block_bytes)
                && self.max_block_bytes.is_multiple_of(BLOCK_ALIGN),
            "max_block_bytes",
            "16 KiB ..= 16 MiB, a multiple of 4 KiB",
        )?;
        range(
            self.max_block_bytes <= self.file_bytes / 4,
            "max_block_bytes",
            "at most a quarter of file_bytes",
        )?;
        range(
            (BLOCK_ALIGN..=16 << 20).contains(&self.write_piece_bytes),
            "write_piece_bytes",
            "4 KiB ..= 16 MiB",
        )?;
        range(self.max_bytes >= 2 * u64::from(self.file_bytes), "max_bytes", "at least two files")?;
        range(self.control_reserve_bytes < self.max_bytes, "control_reserve_bytes", "less than max_bytes")?;
        range(
            self.pending_bytes_max >= u64::from(self.max_block_bytes),
            "pending_bytes_max",
            "at least max_block_bytes",
        )?;
        range(self.recent_bytes_max <= 1 << 40, "recent_bytes_max", "at most 1 TiB")?;
        range(self.spare_files >= 1, "spare_files", "at least 1")
    }
}

/// A setting out of its range.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("journal setting {setting} is out of its range: {range}")]
pub struct ConfigError {
    /// The setting's name.
    pub setting: &'static str,
    /// What it may be.
    pub range: &'static str,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bounds_without_which_nothing_goes_on_are_refused_by_name() {
        let with = |change: fn(&mut JournalConfig)| {
            let mut config = JournalConfig::new("/j", Identity { cluster_id: 1, node_id: 1 });
            assert_eq!(config.check(), Ok(()));
            change(&mut config);
            config.check().unwrap_err().setting
        };
        assert_eq!(with(|c| c.spare_files = 0), "spare_files");
        assert_eq!(with(|c| c.recent_bytes_max = u64::MAX), "recent_bytes_max");
        assert_eq!(with(|c| c.pending_bytes_max = 0), "pending_bytes_max");
    }
}
