//! Small durable files beside the journal: checkpoints, and what a node decided once.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::Disk;
use crate::error::SealedError;
use crate::sealed;

/// Small durable files with a CRC, each replaced as a whole: checkpoints.
#[derive(Debug, Clone)]
pub struct Blobs {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
}

impl Blobs {
    /// The blobs in `dir`, which is made if missing.
    ///
    /// # Errors
    /// [`SealedError::Io`].
    pub fn open(dir: impl Into<PathBuf>, disk: Arc<dyn Disk>) -> Result<Self, SealedError> {
        let blobs = Self::at(dir, disk);
        let made = blobs.disk.make_dir(&blobs.dir);
        made.map_err(|source| SealedError::Io { path: blobs.dir.clone(), source })?;
        Ok(blobs)
    }

    /// The blobs in `dir`, to be looked at: if it is missing there are none, and none can be written.
    #[must_use]
    pub fn at(dir: impl Into<PathBuf>, disk: Arc<dyn Disk>) -> Self {
        Self { dir: dir.into(), disk }
    }

    /// Writes a blob from chunks, replacing the one of that name. Durable on return; the old one stays until then.
    ///
    /// # Errors
    /// See [`SealedError`]; the old blob is still there.
    pub fn put(&self, name: &str, chunks: impl IntoIterator<Item = Bytes>) -> Result<(), SealedError> {
        self.put_with(name, |to| chunks.into_iter().try_for_each(|chunk| to.write_all(&chunk)))
    }

    /// As [`Blobs::put`], with what `fill` writes: each of its writes is one to the file, so nothing of the
    /// blob is held here, and they should not be small.
    ///
    /// # Errors
    /// See [`SealedError`]; the old blob is still there.
    pub fn put_with(
        &self,
        name: &str,
        fill: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
    ) -> Result<(), SealedError> {
        let path = self.path(name)?;
        sealed::write(&*self.disk, &path, fill).map_err(|source| SealedError::Io { path, source })
    }

    /// Reads a blob; `None` if there is none.
    ///
    /// # Errors
    /// See [`SealedError`]; a damaged one is never `None`.
    pub fn get(&self, name: &str) -> Result<Option<Bytes>, SealedError> {
        sealed::read(&*self.disk, &self.path(name)?)
    }

    /// The names of all blobs, sorted.
    ///
    /// # Errors
    /// [`SealedError::Io`].
    pub fn list(&self) -> Result<Vec<String>, SealedError> {
        let files = match self.disk.list(&self.dir) {
            Err(error) if error.kind() == io::ErrorKind::NotFound => Vec::new(),
            listed => listed.map_err(|source| SealedError::Io { path: self.dir.clone(), source })?,
        };
        let mut names: Vec<_> =
            files.into_iter().filter_map(|file| file.name.strip_suffix(".blob").map(str::to_owned)).collect();
        names.sort();
        Ok(names)
    }

    /// Removes a blob, durably; nothing happens if there is none.
    ///
    /// # Errors
    /// [`SealedError::Io`].
    pub fn remove(&self, name: &str) -> Result<(), SealedError> {
        let path = self.path(name)?;
        let removed = match self.disk.remove(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(()),
            other => other.and_then(|()| self.disk.sync_dir(&self.dir)),
        };
        removed.map_err(|source| SealedError::Io { path, source })
    }

    /// The file of a blob.
    ///
    /// # Errors
    /// [`SealedError::Name`].
    pub fn path(&self, name: &str) -> Result<PathBuf, SealedError> {
        let allowed = |c: char| c.is_ascii_lowercase() || c.is_ascii_digit() || "._-".contains(c);
        if name.is_empty() || name.len() > 100 || name.starts_with('.') || !name.chars().all(allowed) {
            return Err(SealedError::Name { name: name.to_owned() });
        }
        Ok(self.dir.join(format!("{name}.blob")))
    }
}
