//! Reads a file from front to back through large buffers: most of the next one is read on another thread while this one
//! is looked at. Copying from the page cache is what a scan costs most (measured: docs/performance/experiments.md), so
//! the thread that looks copies a part too.

use std::io;
use std::sync::Arc;
use std::thread::JoinHandle;

use crate::disk::DiskFile;
use crate::entry::FileSeq;
use crate::format::{BLOCK_HEADER_BYTES, BlockError, BlockHeader};

/// Bytes read at once on the other thread.
const AHEAD: usize = 6 << 20;
/// Bytes read behind them on this one.
const OWN: usize = 2 << 20;
/// Room in front of what is read for a block that began in the buffer before: no block is longer.
const LEAD: usize = 16 << 20;

/// A part of a file in memory.
///
/// ```text
///   bytes:   | lead, unused | rest of the buffer before | read from the file |
///                           ^ from                                           ^ end
///                           start: position in the file
/// ```
pub(crate) struct Window {
    handle: Arc<dyn DiskFile>,
    file_bytes: u32,
    sizes: Sizes,
    start: u32,
    held: Buffer,
    ahead: Option<JoinHandle<io::Result<Buffer>>>,
}

#[derive(Debug, Clone, Copy)]
struct Sizes {
    ahead: usize,
    own: usize,
    lead: usize,
}

#[derive(Debug, Default)]
struct Buffer {
    bytes: Vec<u8>,
    from: usize,
    end: usize,
}

impl Buffer {
    fn len(&self) -> usize {
        self.end - self.from
    }

    /// An empty one with room for `room` bytes behind the lead.
    fn emptied(mut self, room: usize, lead: usize) -> Self {
        if self.bytes.len() < lead + room {
            // Fresh, not grown: what is never touched costs no memory.
            self.bytes = vec![0; lead + room];
        }
        (self.from, self.end) = (lead, lead);
        self
    }

    /// Adds up to `want` bytes at `pos` of the file, for which there must be room.
    fn add(&mut self, handle: &dyn DiskFile, pos: u32, want: usize) -> io::Result<()> {
        self.end += handle.read_at(&mut self.bytes[self.end..self.end + want], u64::from(pos))?;
        Ok(())
    }
}

impl Window {
    /// Over a file of `file_bytes`.
    pub(crate) fn new(handle: Arc<dyn DiskFile>, file_bytes: u32) -> Self {
        Self::with_sizes(handle, file_bytes, Sizes { ahead: AHEAD, own: OWN, lead: LEAD })
    }

    fn with_sizes(handle: Arc<dyn DiskFile>, file_bytes: u32, sizes: Sizes) -> Self {
        Self { handle, file_bytes, sizes, start: 0, held: Buffer::default(), ahead: None }
    }

    /// The whole block at `pos`, checked; the outer error is the disk's.
    pub(crate) fn block(
        &mut self,
        pos: u32,
        file: FileSeq,
    ) -> io::Result<Result<(BlockHeader, &[u8]), BlockError>> {
        let left = self.file_bytes.saturating_sub(pos) as usize;
        if left < BLOCK_HEADER_BYTES {
            return Ok(Err(BlockError::NoMagic));
        }
        let Some(header) = self.bytes(pos, BLOCK_HEADER_BYTES)? else { return Ok(Err(BlockError::Length)) };
        let header = match BlockHeader::parse(header, file, left) {
            Ok(header) => header,
            Err(error) => return Ok(Err(error)),
        };
        let Some(block) = self.bytes(pos, header.len())? else { return Ok(Err(BlockError::Length)) };
        Ok(BlockHeader::verify(block).map(|()| (header, block)))
    }

    /// `len` bytes from `pos` on; `None` if the file ends before.
    fn bytes(&mut self, pos: u32, len: usize) -> io::Result<Option<&[u8]>> {
        if !self.holds(pos, len) {
            self.fill(pos, len)?;
        }
        if !self.holds(pos, len) {
            return Ok(None);
        }
        let from = self.held.from + (pos - self.start) as usize;
        Ok(Some(&self.held.bytes[from..from + len]))
    }

    fn holds(&self, pos: u32, len: usize) -> bool {
        pos >= self.start && (pos - self.start) as usize + len <= self.held.len()
    }

    /// Holds `len` bytes from `pos` on, as far as the file goes.
    fn fill(&mut self, pos: u32, len: usize) -> io::Result<()> {
        // What is ahead begins where this ends; it is of use if it joins what is wanted.
        let rest = self.holds(pos, 0).then(|| self.held.len() - (pos - self.start) as usize);
        let rest = rest.filter(|rest| *rest <= self.sizes.lead);
        match (self.ahead.take(), rest) {
            (Some(ahead), Some(rest)) => {
                let mut next =
                    ahead.join().map_err(|_| io::Error::other("reading ahead ended by a panic"))??;
                let old = std::mem::take(&mut self.held);
                next.from -= rest;
                next.bytes[next.from..next.from + rest].copy_from_slice(&old.bytes[old.end - rest..old.end]);
                (self.start, self.held) = (pos, next);
                self.read_on(old)?;
                // A block longer than a window.
                if self.holds(pos, len) { Ok(()) } else { self.read_here(pos, len) }
            }
            _ => self.read_here(pos, len),
        }
    }

    fn read_here(&mut self, pos: u32, len: usize) -> io::Result<()> {
        let want = len.max(self.sizes.ahead).min((self.file_bytes - pos) as usize);
        self.ahead = None;
        self.held = std::mem::take(&mut self.held).emptied(want + self.sizes.own, self.sizes.lead);
        self.start = pos;
        self.held.add(&*self.handle, pos, want)?;
        self.read_on(Buffer::default())
    }

    /// Reads a little more here and what comes behind that on another thread, as far as the file goes. Without a
    /// thread it is read when it is needed.
    fn read_on(&mut self, buffer: Buffer) -> io::Result<()> {
        let Sizes { ahead, own, lead } = self.sizes;
        let end = self.start + u32::try_from(self.held.len()).expect("a file is below 4 GiB");
        let left = self.file_bytes.saturating_sub(end) as usize;
        let own_max = own;
        let own = own.min(left);
        let want = ahead.min(left - own);
        let pos = end + u32::try_from(own).expect("a part of a file");
        if want > 0 {
            let handle = Arc::clone(&self.handle);
            let read = move || {
                let mut buffer = buffer.emptied(ahead + own_max, lead);
                buffer.add(&*handle, pos, want).map(|()| buffer)
            };
            self.ahead = std::thread::Builder::new().name("weir-recovery".to_owned()).spawn(read).ok();
        }
        self.held.add(&*self.handle, end, own)
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;

    use proptest::prelude::*;

    use super::*;
    use crate::disk::sim::SimDisk;
    use crate::disk::{Disk, OpenMode};

    proptest! {
        #[test]
        fn whatever_is_asked_for_is_what_the_file_holds(
            steps in proptest::collection::vec((0u32..90, 1usize..120), 1..60), back in 0usize..60,
        ) {
            let disk = SimDisk::new();
            let file = disk.open(Path::new("/f"), OpenMode::Create).unwrap();
            let content: Vec<u8> = (0..2_000u32).map(|i| (i * 7 % 251) as u8).collect();
            file.write_at(&content, 0).unwrap();
            // Windows shorter and longer than what is asked for, and a file that says to be longer than it is.
            let mut window = Window::with_sizes(file, 2_200, Sizes { ahead: 48, own: 16, lead: 100 });
            let mut pos = 0;
            for (number, (skip, len)) in steps.into_iter().enumerate() {
                pos = if number == back { 0 } else { (pos + skip).min(2_199) };
                let at = pos as usize;
                let expected = content.get(at..at + len);
                prop_assert_eq!(window.bytes(pos, len).unwrap(), expected, "{} bytes at {}", len, pos);
            }
        }
    }
}
