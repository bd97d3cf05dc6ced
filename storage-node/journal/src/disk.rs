//! The disk behind a trait: what the journal needs of a file system, no more.

mod aligned;
mod pages;
mod real;
pub mod sim;

use std::fmt::Debug;
use std::io;
use std::path::Path;
use std::sync::Arc;

pub(crate) use aligned::{ALIGN, Aligned};
pub(crate) use pages::Pages;
pub use real::RealDisk;

/// How a file is opened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum OpenMode {
    /// For reading; must exist.
    Read,
    /// For reading past the page cache; must exist. Refused where the file system cannot. Memory, positions and lengths
    /// of reads are multiples of 4 KiB, or they are refused as [`io::ErrorKind::InvalidInput`].
    ReadDirect,
    /// For reading and writing; must exist.
    Write,
    /// For reading, and for writing past the page cache, each write durable when it returns; must exist.
    WriteDirect,
    /// For reading and writing; made, or emptied if it exists.
    Create,
}

/// A directory entry: a plain file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FileName {
    /// Name inside the directory.
    pub name: String,
    /// Bytes of the file.
    pub len: u64,
}

/// Held while one process owns a directory; freed when dropped, or by the end of the process.
pub trait DirLock: Send + Sync + Debug {}

/// A file system. Nothing is durable before the matching sync has returned.
pub trait Disk: Send + Sync + Debug {
    /// Opens a file.
    ///
    /// # Errors
    /// What the operating system says; `NotFound` if the file must exist and does not.
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>>;

    /// Gives a file another name, replacing what had it. Durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// What the operating system says.
    fn rename(&self, from: &Path, to: &Path) -> io::Result<()>;

    /// Removes a file. Durable after [`Disk::sync_dir`].
    ///
    /// # Errors
    /// What the operating system says.
    fn remove(&self, path: &Path) -> io::Result<()>;

    /// The plain files of a directory, in no order. Empty if the directory does not exist.
    ///
    /// # Errors
    /// What the operating system says.
    fn list(&self, dir: &Path) -> io::Result<Vec<FileName>>;

    /// Makes a directory and its parents, durably, for their owner alone. One that is there stays as it is.
    ///
    /// # Errors
    /// What the operating system says.
    fn make_dir(&self, dir: &Path) -> io::Result<()>;

    /// Makes the names in a directory durable.
    ///
    /// # Errors
    /// What the operating system says.
    fn sync_dir(&self, dir: &Path) -> io::Result<()>;

    /// Takes the lock file `path` for this process and writes `holder` into it.
    ///
    /// # Errors
    /// [`LockError::Held`] with the holder's words, or what the operating system says.
    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn DirLock>, LockError>;
}

/// Why a lock was not taken.
#[derive(Debug, thiserror::Error)]
pub enum LockError {
    /// Another process holds it.
    #[error("held by {holder}")]
    Held {
        /// What the holder wrote about itself.
        holder: String,
    },
    /// The operating system refused.
    #[error(transparent)]
    Io(#[from] io::Error),
}

/// An open file. All methods may be called from several threads.
#[expect(clippy::len_without_is_empty, reason = "nobody asks whether a file is empty")]
pub trait DiskFile: Send + Sync + Debug {
    /// Reads up to `buf.len()` bytes at `pos`; fewer only at the end of the file.
    ///
    /// # Errors
    /// What the operating system says.
    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize>;

    /// Writes all of `buf` at `pos`.
    ///
    /// # Errors
    /// What the operating system says; then any part of it may have been written.
    fn write_at(&self, buf: &[u8], pos: u64) -> io::Result<()>;

    /// Lets the disk begin with what was written into `len` bytes at `pos`, and does not wait. Only a hint,
    /// which may do nothing: what goes wrong meanwhile is [`DiskFile::sync`]'s to tell.
    fn start_writeback(&self, _pos: u64, _len: u64) {}

    /// Makes all that was written durable, with what is needed to find it again (`fdatasync`).
    ///
    /// # Errors
    /// What the operating system says; then the unsynced bytes are unknown, and another call proves nothing.
    fn sync(&self) -> io::Result<()>;

    /// Bytes of the file.
    ///
    /// # Errors
    /// What the operating system says.
    fn len(&self) -> io::Result<u64>;

    /// Fills the file with zeros from its start to `len` bytes, so that later writes in place allocate nothing.
    /// Durable after [`DiskFile::sync`].
    ///
    /// # Errors
    /// What the operating system says: `StorageFull` or `QuotaExceeded` if there is no room.
    fn fill_zero(&self, len: u64) -> io::Result<()>;
}
