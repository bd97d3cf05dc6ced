//! Reads files from front to back in pieces: one is looked at while another thread reads the next ones.
//!
//! What the journal wrote past the page cache is not in it. Reading that through it would cost memory for all
//! of it, and where memory is dear (a virtual machine gets it from its host) more than reading itself: so
//! pieces go past it too, into memory that is used again for the whole scan, and is small enough to be in the
//! processor's cache when it is checked.

use std::collections::VecDeque;
use std::io;
use std::path::Path;
use std::sync::Arc;
use std::sync::mpsc::{Receiver, SyncSender, sync_channel};
use std::thread::JoinHandle;

use crate::disk::{ALIGN, Aligned, Disk, DiskFile, OpenMode};
use crate::entry::FileSeq;
use crate::format::{BLOCK_HEADER_BYTES, BlockError, BlockHeader, align_up};

/// Bytes read at once.
const PIECE: usize = 1 << 20;
/// Pieces that are read before they are needed.
const AHEAD: usize = 2;

/// How a file is read.
#[derive(Debug, Clone)]
pub(crate) struct Source {
    handle: Arc<dyn DiskFile>,
    direct: Option<Arc<dyn DiskFile>>,
}

impl Source {
    /// As its handle reads it.
    pub(crate) fn new(handle: Arc<dyn DiskFile>) -> Self {
        Self { handle, direct: None }
    }

    /// Past the page cache, if that works here.
    pub(crate) fn past_cache(disk: &dyn Disk, path: &Path, handle: Arc<dyn DiskFile>) -> Self {
        Self { handle, direct: disk.open(path, OpenMode::ReadDirect).ok() }
    }

    /// Reads as [`DiskFile::read_at`] does. Past the page cache only what is aligned, as memory, position and length.
    pub(crate) fn read(&self, memory: &mut [u8], pos: u32) -> io::Result<usize> {
        // If it is more than that direct reads do not work here, the usual way tells; and where the file ends
        // is told by it alone, because some file systems give less of the middle too.
        let direct = self.direct.as_ref().and_then(|direct| direct.read_at(memory, u64::from(pos)).ok());
        match direct {
            Some(read) if read == memory.len() => Ok(read),
            _ => self.handle.read_at(memory, u64::from(pos)),
        }
    }
}

/// The thread that reads ahead, and the memory that is read into: one for all files of a scan.
#[derive(Debug, Default)]
pub(crate) struct Reader {
    thread: Option<Thread>,
    /// The system gives no thread: pieces are read here, when they are asked for.
    is_alone: bool,
    /// Pieces that were read here and not taken yet, oldest first.
    read_here: VecDeque<(Aligned, io::Result<usize>)>,
    /// Pieces that were asked for and not taken yet.
    under_way: usize,
    idle: Vec<Aligned>,
    /// See [`Window`].
    joined: Vec<u8>,
}

#[derive(Debug)]
struct Thread {
    orders: Option<SyncSender<Order>>,
    pieces: Receiver<(Aligned, io::Result<usize>)>,
    handle: Option<JoinHandle<()>>,
}

#[derive(Debug)]
struct Order {
    source: Source,
    pos: u32,
    len: usize,
    memory: Aligned,
}

impl Thread {
    fn start() -> io::Result<Self> {
        let (orders, ordered) = sync_channel::<Order>(AHEAD);
        let (give, pieces) = sync_channel(AHEAD);
        let read = move || {
            for Order { source, pos, len, mut memory } in ordered {
                let read = source.read(&mut memory[..len], pos);
                if give.send((memory, read)).is_err() {
                    return;
                }
            }
        };
        let handle = std::thread::Builder::new().name("weir-recovery".to_owned()).spawn(read)?;
        Ok(Self { orders: Some(orders), pieces, handle: Some(handle) })
    }
}

impl Drop for Thread {
    fn drop(&mut self) {
        self.orders = None;
        // Nobody is left to tell of a panic: whoever waited for a piece was told.
        let _ = self.handle.take().map(JoinHandle::join);
    }
}

impl Reader {
    /// Has `len` bytes at `pos` read. At most [`AHEAD`] pieces are under way, so this does not wait for the thread.
    fn order(&mut self, source: &Source, pos: u32, len: usize) -> io::Result<()> {
        if self.thread.is_none() && !self.is_alone {
            match Thread::start() {
                Ok(thread) => self.thread = Some(thread),
                Err(error) => {
                    tracing::warn!(%error, "no thread to read ahead with: it takes longer without");
                    self.is_alone = true;
                }
            }
        }
        let mut memory = self.idle.pop().unwrap_or_default();
        memory.reserve(len);
        if self.is_alone {
            let read = source.read(&mut memory[..len], pos);
            self.read_here.push_back((memory, read));
        } else {
            let order = Order { source: source.clone(), pos, len, memory };
            let orders = self.thread.as_ref().and_then(|thread| thread.orders.as_ref());
            orders.and_then(|orders| orders.send(order).ok()).ok_or_else(ended)?;
        }
        self.under_way += 1;
        Ok(())
    }

    /// The oldest piece that was asked for, and how much of it the file had.
    fn take(&mut self) -> io::Result<(Aligned, usize)> {
        self.under_way -= 1;
        let here = self.read_here.pop_front();
        let piece = here.or_else(|| self.thread.as_ref().and_then(|thread| thread.pieces.recv().ok()));
        let (memory, read) = piece.ok_or_else(ended)?;
        read.map(|read| (memory, read))
    }

    /// Nothing is under way any more.
    fn settle(&mut self) {
        while self.under_way > 0 {
            // What became of a piece that nobody needs is nobody's concern.
            if let Ok((memory, _)) = self.take() {
                self.idle.push(memory);
            }
        }
    }
}

fn ended() -> io::Error {
    io::Error::other("reading ahead ended by a panic")
}

/// A part of a file in memory: a piece, and what reaches into it from the pieces before, if somebody asked for that.
///
/// ```text
///   file:     ... piece | piece | piece, held | being read | being read | ...
///                               ^ start       ^ end                     ^ next
///   joined:          |----------------|
///                    ^ joined_at
/// ```
pub(crate) struct Window<'a> {
    reader: &'a mut Reader,
    source: Source,
    file_bytes: u32,
    /// Bytes read at once, a multiple of [`ALIGN`].
    piece_bytes: u32,
    piece: Aligned,
    start: u32,
    end: u32,
    next: u32,
    joined_at: u32,
    /// Bytes in front of it in the joined memory that nobody needs any more.
    joined_from: usize,
}

impl<'a> Window<'a> {
    /// Over a file of `file_bytes`.
    pub(crate) fn new(reader: &'a mut Reader, source: Source, file_bytes: u32) -> Self {
        Self::with_pieces(reader, source, file_bytes, PIECE)
    }

    fn with_pieces(reader: &'a mut Reader, source: Source, file_bytes: u32, piece_bytes: usize) -> Self {
        reader.joined.clear();
        Self {
            reader,
            source,
            file_bytes,
            piece_bytes: u32::try_from(piece_bytes).expect("a piece is below 4 GiB"),
            piece: Aligned::default(),
            start: 0,
            end: 0,
            next: 0,
            joined_at: 0,
            joined_from: 0,
        }
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

    /// Where a block at `pos`, behind the one with the number `previous_seq`, ends by the word of its header
    /// alone; `pos` where none is guarded. The outer error is the disk's.
    pub(crate) fn guarded_end(&mut self, pos: u32, file: FileSeq, previous_seq: u64) -> io::Result<u32> {
        let left = self.file_bytes.saturating_sub(pos) as usize;
        let Some(header) = self.bytes(pos, BLOCK_HEADER_BYTES)? else { return Ok(pos) };
        let header = BlockHeader::parse(header, file, left).ok();
        let header = header.filter(|header| header.is_guarded && header.follows(previous_seq));
        let len = header.map_or(0, |header| header.len());
        Ok(pos + align_up(u32::try_from(len).expect("it fits its file")))
    }

    /// `len` bytes from `pos` on; `None` if the file ends before.
    fn bytes(&mut self, pos: u32, len: usize) -> io::Result<Option<&[u8]>> {
        if pos > self.file_bytes || len > (self.file_bytes - pos) as usize {
            return Ok(None);
        }
        if !self.piece_holds(pos, len) && !self.joined_holds(pos, len) {
            self.fetch(pos, len)?;
        }
        if self.piece_holds(pos, len) {
            return Ok(Some(&self.piece[(pos - self.start) as usize..][..len]));
        }
        if self.joined_holds(pos, len) {
            return Ok(Some(&self.joined()[(pos - self.joined_at) as usize..][..len]));
        }
        Ok(None)
    }

    fn joined(&self) -> &[u8] {
        &self.reader.joined[self.joined_from..]
    }

    fn joined_end(&self) -> u32 {
        self.joined_at + u32::try_from(self.joined().len()).expect("a part of a file")
    }

    fn piece_holds(&self, pos: u32, len: usize) -> bool {
        pos >= self.start && pos as usize + len <= self.end as usize
    }

    fn joined_holds(&self, pos: u32, len: usize) -> bool {
        pos >= self.joined_at && pos as usize + len <= self.joined_end() as usize
    }

    /// Holds `len` bytes from `pos` on, as far as the file goes, in the piece or joined from several.
    fn fetch(&mut self, pos: u32, len: usize) -> io::Result<()> {
        let goes_on = (self.start..=self.end).contains(&self.joined_end());
        if goes_on && self.joined_holds(pos, 1) {
            self.forget_joined_before(pos);
        } else {
            self.reader.joined.clear();
            (self.joined_at, self.joined_from) = (pos, 0);
            if !(self.start..=self.end).contains(&pos) || self.piece.is_empty() {
                self.seek(pos)?;
            }
            if pos > self.end {
                return Ok(());
            }
        }
        loop {
            if self.joined().is_empty() && self.piece_holds(pos, len) {
                return Ok(());
            }
            let (from, to) =
                (self.joined_end(), self.end.min(pos + u32::try_from(len).expect("in the file")));
            let more = &self.piece[(from - self.start) as usize..(to - self.start) as usize];
            self.reader.joined.extend_from_slice(more);
            if self.joined_holds(pos, len) || !self.advance()? {
                return Ok(());
            }
        }
    }

    /// Joined bytes before `pos` are not needed. They are moved when they are the greater part: a search looks at each
    /// page, and may be told of a long block by any of them.
    fn forget_joined_before(&mut self, pos: u32) {
        self.joined_from += (pos - self.joined_at) as usize;
        self.joined_at = pos;
        if self.joined_from > self.reader.joined.len() / 2 {
            self.reader.joined.drain(..self.joined_from);
            self.joined_from = 0;
        }
    }

    /// Begins again at `pos`. The first piece is read here, the next ones meanwhile by the thread.
    fn seek(&mut self, pos: u32) -> io::Result<()> {
        self.reader.settle();
        self.start = pos / ALIGN as u32 * ALIGN as u32;
        (self.end, self.next) = (self.start, self.start + self.piece_bytes);
        self.order_ahead()?;
        let len = self.len_at(self.start);
        if self.piece.len() < len {
            self.piece = self.reader.idle.pop().unwrap_or_default();
            self.piece.reserve(len);
        }
        let read = self.source.read(&mut self.piece[..len], self.start)?;
        self.holds_now(read);
        Ok(())
    }

    /// Goes on to the next piece; false at the end of the file.
    fn advance(&mut self) -> io::Result<bool> {
        // One that is shorter than it might be was the last, whatever was asked for behind it.
        if self.reader.under_way == 0 || self.end < self.start + self.piece_bytes {
            return Ok(false);
        }
        let (memory, read) = self.reader.take()?;
        self.reader.idle.push(std::mem::replace(&mut self.piece, memory));
        self.start += self.piece_bytes;
        self.holds_now(read);
        self.order_ahead()?;
        Ok(true)
    }

    fn holds_now(&mut self, read: usize) {
        let end = self.start + u32::try_from(read).expect("a part of a file");
        self.end = end.min(self.file_bytes);
    }

    fn order_ahead(&mut self) -> io::Result<()> {
        while self.reader.under_way < AHEAD && self.next < self.file_bytes {
            self.reader.order(&self.source, self.next, self.len_at(self.next))?;
            self.next += self.piece_bytes;
        }
        Ok(())
    }

    /// Bytes to be read at `pos`: a whole piece, or the rest of the file in steps of [`ALIGN`].
    fn len_at(&self, pos: u32) -> usize {
        let rest = (self.file_bytes - pos) as usize;
        rest.next_multiple_of(ALIGN).min(self.piece_bytes as usize)
    }
}

impl Drop for Window<'_> {
    fn drop(&mut self) {
        // Or the next one would be given pieces of this file.
        self.reader.settle();
        self.reader.idle.push(std::mem::take(&mut self.piece));
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;
    use crate::disk::sim::SimDisk;

    /// How the file can be read.
    #[derive(Debug, Clone, Copy)]
    enum Way {
        Buffered,
        Direct,
        /// It could be opened, but is refused from this read on.
        DirectUntil(usize),
        /// Past the page cache it gives less than is asked for, anywhere.
        Short,
    }

    fn ways() -> impl Strategy<Value = Way> {
        prop_oneof![
            Just(Way::Buffered),
            Just(Way::Direct),
            (0usize..30).prop_map(Way::DirectUntil),
            Just(Way::Short)
        ]
    }

    fn content(seed: u32, len: usize) -> Vec<u8> {
        (seed..).take(len).map(|i| (i.wrapping_mul(2_654_435_761) >> 23) as u8).collect()
    }

    proptest! {
        #[test]
        fn whatever_is_asked_for_is_what_the_file_holds(
            files in proptest::collection::vec(
                (
                    ways(),
                    1usize..150_000,
                    proptest::collection::vec((0u32..9_000, 1usize..12_000), 1..60),
                    0usize..60,
                ),
                1..4,
            ),
            pages in 1usize..4,
            is_alone in any::<bool>(),
        ) {
            // One reader for all files, which end anywhere, with pieces shorter and longer than what is asked for.
            let mut reader = Reader { is_alone, ..Reader::default() };
            for (seed, (way, len, steps, back)) in (0..).zip(files) {
                let disk = SimDisk::new();
                let file = disk.open(Path::new("/f"), OpenMode::Create).unwrap();
                let content = content(seed * 77, len);
                file.write_at(&content, 0).unwrap();
                if matches!(way, Way::Short) {
                    disk.shorten_direct_reads();
                }
                let direct = disk.open(Path::new("/f"), OpenMode::ReadDirect).ok();
                let direct = direct.filter(|_| !matches!(way, Way::Buffered));
                // It says to be longer than it is.
                let said = u32::try_from(len).unwrap() + 5_000;
                let source = Source { handle: file, direct };
                let mut window = Window::with_pieces(&mut reader, source, said, pages * ALIGN);
                let (mut pos, mut found) = (0, 0);
                for (number, (skip, len)) in steps.into_iter().enumerate() {
                    if matches!(way, Way::DirectUntil(n) if n == number) {
                        disk.refuse_direct();
                    }
                    pos = if number == back { 0 } else { (pos + skip).min(said - 1) };
                    let at = pos as usize;
                    let expected = content.get(at..at + len);
                    prop_assert_eq!(window.bytes(pos, len).unwrap(), expected, "{} bytes at {}", len, pos);
                    found += usize::from(expected.is_some());
                }
                match way {
                    Way::Buffered | Way::DirectUntil(0) => prop_assert_eq!(disk.direct_reads(), 0),
                    Way::Direct => prop_assert!(found == 0 || disk.direct_reads() > 0),
                    Way::DirectUntil(_) | Way::Short => {}
                }
            }
        }
    }

    #[test]
    fn memory_is_used_again_for_all_that_is_read() {
        let disk = SimDisk::new();
        let file = disk.open(Path::new("/f"), OpenMode::Create).unwrap();
        file.write_at(&content(1, 40 * ALIGN), 0).unwrap();
        let mut reader = Reader::default();
        for _ in 0..3 {
            let file_bytes = u32::try_from(40 * ALIGN).unwrap();
            let source = Source::new(Arc::clone(&file));
            let mut window = Window::with_pieces(&mut reader, source, file_bytes, 2 * ALIGN);
            for page in 0..40 {
                window.bytes(page * ALIGN as u32, ALIGN).unwrap().unwrap();
            }
            drop(window);
            assert!(reader.idle.len() <= AHEAD + 1, "{} pieces of memory", reader.idle.len());
        }
    }
}
