//! A bare loop of write and sync over a file as the journal's: what the disk itself takes, to measure against.

use std::io;
use std::path::Path;
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, OpenMode, RealDisk};
use crate::format::BLOCK_ALIGN;

/// A file filled with zeros, written in place again and again from its start.
pub struct BareLoop {
    file: Arc<dyn DiskFile>,
    bytes: u64,
    pos: u64,
    block: Vec<u8>,
}

impl std::fmt::Debug for BareLoop {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("BareLoop").field("bytes", &self.bytes).finish_non_exhaustive()
    }
}

impl BareLoop {
    /// Makes the file, `bytes` long, and syncs it.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn create(path: &Path, bytes: u64) -> io::Result<Self> {
        let file = RealDisk.open(path, OpenMode::Create)?;
        file.fill_zero(bytes)?;
        file.sync()?;
        Ok(Self { file, bytes, pos: 0, block: Vec::new() })
    }

    /// Writes `payload`, padded to whole blocks as the journal pads it, and syncs.
    ///
    /// # Errors
    /// What the operating system says.
    pub fn commit(&mut self, payload: &[u8]) -> io::Result<()> {
        self.block.clear();
        self.block.extend_from_slice(payload);
        self.block.resize(payload.len().next_multiple_of(BLOCK_ALIGN as usize), 0);
        if self.pos + self.block.len() as u64 > self.bytes {
            self.pos = 0;
        }
        self.file.write_at(&self.block, self.pos)?;
        self.pos += self.block.len() as u64;
        self.file.sync()
    }
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "what was written is read back")]
mod tests {
    use super::*;

    #[test]
    fn it_goes_round_in_its_file() {
        let dir = tempfile::tempdir().unwrap();
        let path = dir.path().join("bare");
        let mut bare = BareLoop::create(&path, 3 * u64::from(BLOCK_ALIGN)).unwrap();
        for byte in 1..=5u8 {
            bare.commit(&[byte; 100]).unwrap();
        }
        let file = std::fs::read(&path).unwrap();
        assert_eq!(file.len(), 3 * BLOCK_ALIGN as usize);
        assert_eq!([file[0], file[BLOCK_ALIGN as usize], file[2 * BLOCK_ALIGN as usize]], [4, 5, 3]);
    }
}
