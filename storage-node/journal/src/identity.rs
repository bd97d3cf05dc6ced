//! Whose journal a directory is, and who has it open.

use std::path::Path;
use std::sync::Arc;

use crate::disk::{DirLock, Disk, LockError, OpenMode};
use crate::entry::Identity;
use crate::error::OpenError;
use crate::format::{crc32c, u32_at, u64_at, u128_at};

/// Newest directory format that this build reads, and writes where there are carried files.
const FORMAT: u32 = 3;
/// What it writes where there is none: the build before goes on with it.
const FORMAT_WITHOUT_CARRIED: u32 = 2;
const MAGIC: u64 = u64::from_le_bytes(*b"WEIRIDEN");
const BYTES: usize = 56;

/// The `IDENTITY` file.
///
/// | offset | size | meaning (little-endian) |
/// |---|---|---|
/// | 0 | 8 | magic `WEIRIDEN` |
/// | 8 | 4 | format, 2, or 3 where there may be carried files; in 1 no block is of a version above 1 |
/// | 12 | 4 | CRC-32C of bytes 0..12 and 16..56 |
/// | 16 | 16 | journal id |
/// | 32 | 16 | cluster id |
/// | 48 | 8 | node id |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct IdentityFile {
    pub(crate) journal_id: u128,
    pub(crate) identity: Identity,
    /// The directory's format; what is written is 2 at least.
    pub(crate) format: u32,
}

impl Identity {
    /// Who the journal in `dir` belongs to; `None` if there is none yet. Takes no lock and changes nothing.
    ///
    /// # Errors
    /// [`OpenError::Corrupt`], [`OpenError::NewerFormat`] or [`OpenError::Io`].
    pub fn of_dir(dir: &Path, disk: &dyn Disk) -> Result<Option<Self>, OpenError> {
        Ok(IdentityFile::find(dir, disk)?.map(|file| file.identity))
    }
}

impl IdentityFile {
    /// Reads the file, or makes it: durable on return.
    pub(crate) fn load_or_make(dir: &Path, disk: &dyn Disk, identity: Identity) -> Result<Self, OpenError> {
        if let Some(found) = Self::find(dir, disk)? {
            if found.identity != identity {
                return Err(OpenError::WrongIdentity {
                    dir: dir.to_owned(),
                    found_cluster: found.identity.cluster_id,
                    found_node: found.identity.node_id,
                    cluster: identity.cluster_id,
                    node: identity.node_id,
                });
            }
            return Ok(found);
        }
        // Random enough to tell two directories apart: the address space, the clock and the process.
        let seed = format!(
            "{:?}{:?}{}",
            std::time::SystemTime::now(),
            std::thread::current().id(),
            std::process::id()
        );
        let halves = [crc32c(seed.as_bytes()), crc32c(format!("{seed}2").as_bytes())];
        let journal_id =
            u128::from(halves[0]) << 96 | u128::from(halves[1]) << 64 | u128::from(std::process::id());
        let made = Self { journal_id, identity, format: FORMAT_WITHOUT_CARRIED };
        made.write(dir, disk).map_err(|source| OpenError::Io { path: dir.join("IDENTITY"), source })?;
        Ok(made)
    }

    /// The file, if there is one.
    pub(crate) fn find(dir: &Path, disk: &dyn Disk) -> Result<Option<Self>, OpenError> {
        let path = dir.join("IDENTITY");
        let file = match disk.open(&path, OpenMode::Read) {
            Ok(file) => file,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(None),
            Err(source) => return Err(OpenError::Io { path, source }),
        };
        let mut bytes = [0; BYTES];
        let read =
            file.read_at(&mut bytes, 0).map_err(|source| OpenError::Io { path: path.clone(), source })?;
        if read < 16 || u64_at(&bytes, 0) != MAGIC {
            return Err(OpenError::Corrupt { path, what: "not an identity file".to_owned() });
        }
        let format = u32_at(&bytes, 8);
        if format > FORMAT {
            return Err(OpenError::NewerFormat { path, what: "directory", found: format, known: FORMAT });
        }
        if read < BYTES || u32_at(&bytes, 12) != checksum(&bytes) {
            return Err(OpenError::Corrupt { path, what: "its checksum does not match".to_owned() });
        }
        let identity = Identity { cluster_id: u128_at(&bytes, 32), node_id: u64_at(&bytes, 48) };
        Ok(Some(Self { journal_id: u128_at(&bytes, 16), identity, format }))
    }

    /// Has the directory of format 2 at least, durably, so that no older build opens it. Before anything is
    /// written that such a build does not know: it would take a block for a torn one, and cut it off.
    pub(crate) fn renew(&self, dir: &Path, disk: &dyn Disk) -> std::io::Result<()> {
        if self.is_older() { self.write(dir, disk) } else { Ok(()) }
    }

    /// The directory is of a build that wrote format 1.
    pub(crate) fn is_older(&self) -> bool {
        self.format < FORMAT_WITHOUT_CARRIED
    }

    /// Has the directory of the newest format, durably. Before the first carried file has its name: a build that
    /// does not look for those would start without the messages in them.
    pub(crate) fn with_carried(self, dir: &Path, disk: &dyn Disk) -> std::io::Result<Self> {
        let renewed = Self { format: FORMAT, ..self };
        if self.format < FORMAT {
            renewed.write(dir, disk)?;
        }
        Ok(renewed)
    }

    pub(crate) fn write(&self, dir: &Path, disk: &dyn Disk) -> std::io::Result<()> {
        let mut bytes = [0; BYTES];
        bytes[0..8].copy_from_slice(&MAGIC.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.format.max(FORMAT_WITHOUT_CARRIED).to_le_bytes());
        bytes[16..32].copy_from_slice(&self.journal_id.to_le_bytes());
        bytes[32..48].copy_from_slice(&self.identity.cluster_id.to_le_bytes());
        bytes[48..56].copy_from_slice(&self.identity.node_id.to_le_bytes());
        let crc = checksum(&bytes);
        bytes[12..16].copy_from_slice(&crc.to_le_bytes());
        // The name appears only with its whole content behind it: a crash leaves no half an identity.
        let tmp = dir.join("IDENTITY.tmp");
        let file = disk.open(&tmp, OpenMode::Create)?;
        file.write_at(&bytes, 0)?;
        file.sync()?;
        disk.rename(&tmp, &dir.join("IDENTITY"))?;
        disk.sync_dir(dir)
    }
}

fn checksum(bytes: &[u8; BYTES]) -> u32 {
    crc32c(&[&bytes[..12], &bytes[16..]].concat())
}

/// Takes the directory for this process.
pub(crate) fn lock_dir(dir: &Path, disk: &Arc<dyn Disk>) -> Result<Box<dyn DirLock>, OpenError> {
    let path = dir.join("LOCK");
    disk.lock(&path, &format!("process {}", std::process::id())).map_err(|error| match error {
        LockError::Held { holder } => OpenError::Locked { dir: dir.to_owned(), holder },
        LockError::Io(source) => OpenError::Io { path, source },
    })
}
