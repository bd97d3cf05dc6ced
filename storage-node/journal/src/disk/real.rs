//! The operating system's file system.
#![expect(
    clippy::disallowed_methods,
    clippy::disallowed_types,
    reason = "where the disk meets the operating system"
)]

use std::fs::{DirBuilder, File, OpenOptions, TryLockError};
use std::io::{self, Read, Seek, Write};
use std::os::fd::AsRawFd;
use std::os::unix::fs::{DirBuilderExt, FileExt, OpenOptionsExt};
use std::path::{Path, PathBuf};
use std::sync::{Arc, Mutex, PoisonError};

use super::{ALIGN, Aligned, DirLock, Disk, DiskFile, FileName, LockError, OpenMode};

const ZEROS: usize = 1 << 20;
/// Who may look into a directory that is made: what is below are messages, and keys.
const OWNERS: u32 = 0o700;

/// The operating system's file system.
#[derive(Debug, Clone, Copy, Default)]
pub struct RealDisk;

impl Disk for RealDisk {
    fn open(&self, path: &Path, mode: OpenMode) -> io::Result<Arc<dyn DiskFile>> {
        let mut options = OpenOptions::new();
        match mode {
            OpenMode::Read => options.read(true),
            OpenMode::ReadDirect => options.read(true).custom_flags(libc::O_DIRECT),
            OpenMode::Write | OpenMode::WriteDirect => options.read(true).write(true),
            OpenMode::Create => options.read(true).write(true).create(true).truncate(true),
        };
        let file = options.open(path)?;
        let direct = (mode == OpenMode::WriteDirect).then(|| Direct::open(path)).transpose()?;
        Ok(Arc::new(RealFile { file, path: path.to_owned(), direct }))
    }

    fn rename(&self, from: &Path, to: &Path) -> io::Result<()> {
        std::fs::rename(from, to)
    }

    fn remove(&self, path: &Path) -> io::Result<()> {
        std::fs::remove_file(path)
    }

    fn list(&self, dir: &Path) -> io::Result<Vec<FileName>> {
        let entries = match std::fs::read_dir(dir) {
            Err(e) if e.kind() == io::ErrorKind::NotFound => return Ok(Vec::new()),
            other => other?,
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry?;
            let metadata = entry.metadata()?;
            if metadata.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(FileName { name, len: metadata.len() });
            }
        }
        Ok(names)
    }

    fn make_dir(&self, dir: &Path) -> io::Result<()> {
        if dir.is_dir() {
            return Ok(());
        }
        DirBuilder::new().recursive(true).mode(OWNERS).create(dir)?;
        // The new names must survive as well: sync each directory up to one that cannot be opened.
        for parent in dir.ancestors().skip(1) {
            let parent = if parent.as_os_str().is_empty() { Path::new(".") } else { parent };
            match File::open(parent) {
                Ok(opened) => opened.sync_all()?,
                Err(_) => break,
            }
        }
        Ok(())
    }

    fn sync_dir(&self, dir: &Path) -> io::Result<()> {
        File::open(dir)?.sync_all()
    }

    fn lock(&self, path: &Path, holder: &str) -> Result<Box<dyn DirLock>, LockError> {
        let mut file = OpenOptions::new().read(true).write(true).create(true).truncate(false).open(path)?;
        match file.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                let mut text = String::new();
                file.read_to_string(&mut text)?;
                return Err(LockError::Held { holder: text.trim().to_owned() });
            }
            Err(TryLockError::Error(e)) => return Err(e.into()),
        }
        file.set_len(0)?;
        file.rewind()?;
        file.write_all(holder.as_bytes())?;
        Ok(Box::new(HeldFile { _file: file }))
    }
}

/// The lock is the open file description: the system frees it when the file is closed.
#[derive(Debug)]
struct HeldFile {
    _file: File,
}

impl DirLock for HeldFile {}

#[derive(Debug)]
struct RealFile {
    /// Reads, and writes unless they go past the page cache.
    file: File,
    path: PathBuf,
    direct: Option<Direct>,
}

/// A second way into the same file, past the page cache. The kernel wants memory, positions and lengths aligned; a
/// journal's blocks are, and memory that is not is copied. Written with `O_DSYNC`: durable when a write returns.
#[derive(Debug)]
struct Direct {
    file: File,
    /// Copies of what is written from elsewhere, kept for the next. One writer uses it at a time.
    aligned: Mutex<Aligned>,
}

impl Direct {
    fn open(path: &Path) -> io::Result<Self> {
        let mut options = OpenOptions::new();
        options.write(true).custom_flags(libc::O_DIRECT | libc::O_DSYNC);
        Ok(Self { file: options.open(path)?, aligned: Mutex::default() })
    }

    fn write_at(&self, bytes: &[u8], pos: u64) -> io::Result<()> {
        if bytes.as_ptr().align_offset(ALIGN) == 0 {
            return self.file.write_all_at(bytes, pos);
        }
        // A panic elsewhere cannot leave it half written: it is overwritten before it is used.
        let mut buffer = self.aligned.lock().unwrap_or_else(PoisonError::into_inner);
        buffer.reserve(bytes.len());
        let aligned = &mut buffer[..bytes.len()];
        aligned.copy_from_slice(bytes);
        self.file.write_all_at(aligned, pos)
    }
}

/// A second way to write a file that is there, past the page cache.
fn without_cache(path: &Path) -> io::Result<File> {
    OpenOptions::new().write(true).custom_flags(libc::O_DIRECT).open(path)
}

impl DiskFile for RealFile {
    fn read_at(&self, buf: &mut [u8], pos: u64) -> io::Result<usize> {
        let mut done = 0;
        while done < buf.len() {
            match self.file.read_at(&mut buf[done..], pos + done as u64) {
                Ok(0) => break,
                Ok(n) => done += n,
                // Past the page cache what follows an unaligned length cannot be asked for: most likely the file ends
                // there. Whoever has to know asks again through the cache.
                Err(e) if e.kind() == io::ErrorKind::InvalidInput && !done.is_multiple_of(ALIGN) => break,
                Err(e) if e.kind() == io::ErrorKind::Interrupted => {}
                Err(e) => return Err(e),
            }
        }
        Ok(done)
    }

    fn write_at(&self, buf: &[u8], pos: u64) -> io::Result<()> {
        match &self.direct {
            Some(direct) => direct.write_at(buf, pos),
            None => self.file.write_all_at(buf, pos),
        }
    }

    #[expect(unsafe_code, reason = "the standard library has no such call")]
    fn start_writeback(&self, pos: u64, len: u64) {
        let (Ok(pos), Ok(len)) = (i64::try_from(pos), i64::try_from(len)) else { return };
        // SAFETY: takes a descriptor, which is open as long as `self.file`, and three numbers; no memory is touched.
        // Its result is of no use: an error of the device is kept with the file and told by the next `fdatasync`.
        let _ =
            unsafe { libc::sync_file_range(self.file.as_raw_fd(), pos, len, libc::SYNC_FILE_RANGE_WRITE) };
    }

    fn sync(&self) -> io::Result<()> {
        if self.direct.is_some() { Ok(()) } else { self.file.sync_data() }
    }

    fn len(&self) -> io::Result<u64> {
        Ok(self.file.metadata()?.len())
    }

    fn fill_zero(&self, len: u64) -> io::Result<()> {
        let mut zeros = Aligned::default();
        zeros.reserve(ZEROS);
        // Nobody reads them: in the page cache they would cost a copy and memory, and drive out what is read.
        let mut direct = len.is_multiple_of(ALIGN as u64).then(|| without_cache(&self.path).ok()).flatten();
        let mut pos = 0;
        while pos < len {
            let n = usize::try_from(len - pos).unwrap_or(ZEROS).min(ZEROS);
            let written = direct.as_ref().unwrap_or(&self.file).write_all_at(&zeros[..n], pos);
            // If it is more than that direct writes do not work here, the usual way tells.
            if written.is_err() && direct.take().is_some() {
                continue;
            }
            written?;
            // Chunk by chunk: written back at once, a whole file keeps the disk from commits for tens of
            // milliseconds. Durable is the file only with the sync of its header.
            self.file.sync_data()?;
            pos += n as u64;
        }
        Ok(())
    }
}
