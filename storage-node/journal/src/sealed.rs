//! Files that are replaced as a whole; small ones in a seal:
//! `magic u32 | format u32 | crc32c u32 | zero u32 | content`.

use std::io;
use std::path::Path;
use std::sync::Arc;

use bytes::Bytes;
use crc_fast::{CrcAlgorithm, Digest};

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::error::SealedError;
use crate::format::{crc32c, u32_at};

const MAGIC: u32 = u32::from_le_bytes(*b"WSL1");
const FORMAT: u32 = 1;
const HEADER_BYTES: usize = 16;

/// Writes `path` in a seal, replacing what was there. Durable on return. `fill` writes the content; each of its writes
/// is one to the file.
pub(crate) fn write(
    disk: &dyn Disk,
    path: &Path,
    fill: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> io::Result<()> {
    replace(disk, path, |file| write_sealed(file, fill)).map(drop)
}

/// Fills a new file and gives it the name `path`, replacing what was there. Durable on return.
///
/// The content goes to a file of another name, is synced, and only then takes the name; the directory is synced
/// last. A crash leaves the old file or the new one, never a part, and a `.tmp` that the next write replaces; a
/// failure takes the `.tmp` away, so that a full disk gets its room back.
pub(crate) fn replace(
    disk: &dyn Disk,
    path: &Path,
    fill: impl FnOnce(&dyn DiskFile) -> io::Result<()>,
) -> io::Result<Arc<dyn DiskFile>> {
    let tmp = path.with_extension("tmp");
    let written = fill_and_name(disk, path, &tmp, fill);
    if written.is_err() {
        // If this fails too, the next write replaces it.
        let _ = disk.remove(&tmp);
    }
    let file = written?;
    disk.sync_dir(path.parent().expect("the file lies in a directory"))?;
    Ok(file)
}

fn fill_and_name(
    disk: &dyn Disk,
    path: &Path,
    tmp: &Path,
    fill: impl FnOnce(&dyn DiskFile) -> io::Result<()>,
) -> io::Result<Arc<dyn DiskFile>> {
    let file = disk.open(tmp, OpenMode::Create)?;
    fill(&*file)?;
    file.sync()?;
    disk.rename(tmp, path)?;
    Ok(file)
}

/// The content of a file behind the header, as it comes.
struct Content<'a> {
    file: &'a dyn DiskFile,
    digest: Digest,
    /// Where the next byte goes.
    pos: u64,
}

impl io::Write for Content<'_> {
    fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
        self.file.write_at(bytes, self.pos)?;
        self.digest.update(bytes);
        self.pos += bytes.len() as u64;
        Ok(bytes.len())
    }

    fn flush(&mut self) -> io::Result<()> {
        Ok(())
    }
}

fn write_sealed(
    file: &dyn DiskFile,
    fill: impl FnOnce(&mut dyn io::Write) -> io::Result<()>,
) -> io::Result<()> {
    let digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    let mut content = Content { file, digest, pos: HEADER_BYTES as u64 };
    fill(&mut content)?;
    let mut header = [0; HEADER_BYTES];
    header[0..4].copy_from_slice(&MAGIC.to_le_bytes());
    header[4..8].copy_from_slice(&FORMAT.to_le_bytes());
    #[expect(clippy::cast_possible_truncation, reason = "a CRC-32 fits 32 bits; the library widens it")]
    header[8..12].copy_from_slice(&(content.digest.finalize() as u32).to_le_bytes());
    file.write_at(&header, 0)
}

/// Reads `path`; `None` if there is no such file.
pub(crate) fn read(disk: &dyn Disk, path: &Path) -> Result<Option<Bytes>, SealedError> {
    let io_error = |source| SealedError::Io { path: path.to_owned(), source };
    let file = match disk.open(path, OpenMode::Read) {
        Ok(file) => file,
        Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(None),
        Err(source) => return Err(io_error(source)),
    };
    let len = usize::try_from(file.len().map_err(io_error)?).unwrap_or(usize::MAX);
    let mut bytes = vec![0; len];
    let read = file.read_at(&mut bytes, 0).map_err(io_error)?;
    let corrupt = |what| SealedError::Corrupt { path: path.to_owned(), what };
    if read != len || len < HEADER_BYTES || u32_at(&bytes, 0) != MAGIC {
        return Err(corrupt("it is cut short or not such a file"));
    }
    let found = u32_at(&bytes, 4);
    if found > FORMAT {
        return Err(SealedError::NewerFormat { path: path.to_owned(), found, known: FORMAT });
    }
    if u32_at(&bytes, 8) != crc32c(&bytes[HEADER_BYTES..]) {
        return Err(corrupt("its checksum does not match"));
    }
    Ok(Some(Bytes::from(bytes).slice(HEADER_BYTES..)))
}
