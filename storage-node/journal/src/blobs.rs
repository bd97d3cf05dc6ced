//! Small durable files beside the journal: checkpoints.

use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::Disk;
use crate::error::SealedError;

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
        let dir = dir.into();
        disk.make_dir(&dir).map_err(|source| SealedError::Io { path: dir.clone(), source })?;
        Ok(Self { dir, disk })
    }

    /// Writes a blob from chunks, replacing the one of that name. Durable on return; the old one stays until then.
    ///
    /// # Errors
    /// See [`SealedError`]; the old blob is still there.
    pub fn put(&self, name: &str, _chunks: impl IntoIterator<Item = Bytes>) -> Result<(), SealedError> {
        Err(SealedError::Name { name: name.to_owned() })
    }

    /// Reads a blob; `None` if there is none.
    ///
    /// # Errors
    /// See [`SealedError`]; a damaged one is never `None`.
    pub fn get(&self, name: &str) -> Result<Option<Bytes>, SealedError> {
        Err(SealedError::Name { name: name.to_owned() })
    }

    /// The names of all blobs, sorted.
    ///
    /// # Errors
    /// [`SealedError::Io`].
    pub fn list(&self) -> Result<Vec<String>, SealedError> {
        let files =
            self.disk.list(&self.dir).map_err(|source| SealedError::Io { path: self.dir.clone(), source })?;
        Ok(files.into_iter().map(|file| file.name).collect())
    }

    /// Removes a blob, durably; nothing happens if there is none.
    ///
    /// # Errors
    /// [`SealedError::Io`].
    pub fn remove(&self, name: &str) -> Result<(), SealedError> {
        Err(SealedError::Name { name: name.to_owned() })
    }
}
