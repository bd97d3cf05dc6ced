//! Cutting a journal off where acknowledged bytes are damaged, for somebody who has no copy of it and asks for that.
//!
//! Opening refuses such a journal and changes nothing. [`Repair::look`] says where the damage begins and what
//! lies behind it, [`Repair::truncate`] cuts there. What is cut stays beside the journal, in files that end
//! in `.damaged`; votes and purges that only the cut part told are restated behind what is kept, so that no
//! vote is given twice and no purged entry is missed.
//!
//! ```text
//!   before:  | file 1 | file 2: kept … damage … | file 3 |
//!   after:   | file 1 | file 2: kept, facts     |           2.wal.damaged  3.wal.damaged
//! ```
//!
//! Why it may be interrupted: the shortened file replaces the damaged one in one step, facts included. Then
//! files behind it go, oldest first: until the last has gone, something is missing before it, so that opening
//! refuses, and the newest facts are still there when the repair is run again.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::core::{file_name, parse_file_name};
use crate::disk::{DirLock, Disk, DiskFile, OpenMode};
use crate::entry::{FileSeq, LogPosition, Lsn, StreamId};
use crate::error::OpenError;
use crate::format::{
    BLOCK_ALIGN, BLOCK_HEADER_BYTES, BLOCK_VERSION, BlockError, BlockHeader, FILE_HEADER_BYTES,
    FLAG_FILE_HEAD, FileHeader, Frame, FrameHeader, FrameKind, Frames, align_up,
};
use crate::identity::{IdentityFile, lock_dir};
use crate::synced;
use crate::window::{Reader, Source, Window};

/// Bytes copied at once.
const COPY_BYTES: usize = 1 << 20;

/// What a cut takes away.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Cut {
    /// The file in which the damage begins.
    pub path: PathBuf,
    /// Byte position of the first block that does not hold; 0 if the file's header does not.
    pub pos: u32,
    /// What does not hold.
    pub what: String,
    /// Bytes of blocks from there on, in this file and all behind it, as far as they can be recognised.
    pub bytes: u64,
    /// Files behind it, which go as a whole.
    pub later: Vec<PathBuf>,
    /// Live entries that go, by stream. Those of a damaged block are counted where a later one shows that
    /// there were any.
    pub entries: BTreeMap<StreamId, Range<u64>>,
}

/// A damaged journal, held so that nobody opens it meanwhile.
#[derive(Debug)]
pub struct Repair {
    dir: PathBuf,
    disk: Arc<dyn Disk>,
    files: Vec<Walked>,
    /// The last file that keeps something, and where it is cut; `None` if nothing would be left.
    base: Option<(usize, u32)>,
    identity: IdentityFile,
    last_block: u64,
    kept: Facts,
    newest: Facts,
    cut: Cut,
    _lock: Box<dyn DirLock>,
}

/// What blocks say of each stream, played in order.
type Facts = BTreeMap<StreamId, StreamFacts>;

#[derive(Debug, Clone, Default, PartialEq, Eq)]
struct StreamFacts {
    first: u64,
    end: u64,
    vote: Option<Bytes>,
    purged: Option<LogPosition>,
    committed: Option<LogPosition>,
    meta: Option<Bytes>,
}

/// A file and how far its blocks hold.
#[derive(Debug)]
struct Walked {
    seq: FileSeq,
    path: PathBuf,
    handle: Arc<dyn DiskFile>,
    header: Option<FileHeader>,
    file_bytes: u32,
    end: u32,
}

/// Where the damage begins.
struct Found {
    at: usize,
    pos: u32,
    what: String,
}

impl Repair {
    /// Looks for damage in the journal in `dir`; `None` if it opens as it is. Changes nothing.
    ///
    /// # Errors
    /// [`OpenError::Locked`] while it is open; [`OpenError::Corrupt`] if there is no journal or its identity
    /// is damaged; [`OpenError::Io`].
    pub fn look(dir: &Path, disk: &Arc<dyn Disk>) -> Result<Option<Self>, OpenError> {
        let wal = dir.join("wal");
        let (lock, identity, walk, found) = walk(dir, disk)?;
        let Some(found) = found else { return Ok(None) };
        let behind = walk.behind(&found).map_err(|source| OpenError::Io { path: wal, source })?;
        let Walk { files, kept, last_block } = walk;
        let base = if found.pos > FILE_HEADER_BYTES {
            Some((found.at, found.pos))
        } else {
            found.at.checked_sub(1).map(|before| (before, files[before].end))
        };
        let cut = Cut {
            path: files[found.at].path.clone(),
            pos: found.pos,
            what: found.what,
            bytes: behind.bytes,
            later: files[found.at + 1..].iter().map(|file| file.path.clone()).collect(),
            entries: lost(&kept, &behind.newest),
        };
        Ok(Some(Self {
            dir: dir.to_owned(),
            disk: Arc::clone(disk),
            files,
            base,
            identity,
            last_block,
            kept,
            newest: behind.newest,
            cut,
            _lock: lock,
        }))
    }

    /// Where the streams end in the journal in `dir`; `None` if it is damaged. Changes nothing.
    ///
    /// # Errors
    /// As [`Repair::look`].
    pub fn ends(dir: &Path, disk: &Arc<dyn Disk>) -> Result<Option<BTreeMap<StreamId, u64>>, OpenError> {
        let (_lock, _, walk, found) = walk(dir, disk)?;
        let ends = || walk.kept.iter().map(|(stream, facts)| (*stream, facts.end)).collect();
        Ok(found.is_none().then(ends))
    }

    /// What would go.
    #[must_use]
    pub fn cut(&self) -> &Cut {
        &self.cut
    }

    /// Every stream that is known of.
    pub fn streams(&self) -> impl Iterator<Item = StreamId> {
        self.newest.keys().copied()
    }

    /// Where a stream would end.
    #[must_use]
    pub fn end(&self, stream: StreamId) -> u64 {
        let kept = self.kept.get(&stream).map_or(0, |facts| facts.end);
        let purged = self.newest.get(&stream).and_then(|facts| facts.purged);
        kept.max(purged.map_or(0, |purged| purged.index + 1))
    }

    /// Cuts. On return the journal opens, and the files that are returned hold what was cut, durably.
    ///
    /// # Errors
    /// [`OpenError::Corrupt`] if nothing would be left; [`OpenError::Io`]: run it again.
    pub fn truncate(self) -> Result<Vec<PathBuf>, OpenError> {
        let Some((base, end)) = self.base else {
            let what = "nothing holds before the damage, so there is nothing to keep".to_owned();
            return Err(OpenError::Corrupt { path: self.cut.path, what });
        };
        self.cut_at(base, end).map_err(|source| OpenError::Io { path: self.files[base].path.clone(), source })
    }

    fn cut_at(&self, base: usize, end: u32) -> io::Result<Vec<PathBuf>> {
        let (disk, wal) = (&*self.disk, self.dir.join("wal"));
        // They know of what is about to be cut off.
        synced::forget(&self.dir, disk)?;
        let file = &self.files[base];
        let mut copies = Vec::new();
        if self.cut.path == file.path {
            let copy = self.free_name(file.seq)?;
            let to = disk.open(&copy, OpenMode::Create)?;
            copy_bytes(&*file.handle, &*to, 0..file.handle.len()?)?;
            to.sync()?;
            disk.sync_dir(&self.dir)?;
            copies.push(copy);
        }
        // Before the first block that an older build would take for a torn one.
        self.identity.renew(&self.dir, disk)?;
        let tmp = file.path.with_extension("tmp");
        self.write_shortened(file, end, &tmp)?;
        disk.rename(&tmp, &file.path)?;
        disk.sync_dir(&wal)?;
        for later in &self.files[base + 1..] {
            let copy = self.free_name(later.seq)?;
            disk.rename(&later.path, &copy)?;
            disk.sync_dir(&self.dir)?;
            disk.sync_dir(&wal)?;
            copies.push(copy);
        }
        Ok(copies)
    }

    /// The file up to `end` and behind it the newest facts; longer than it was if there is no room for them.
    fn write_shortened(&self, file: &Walked, end: u32, path: &Path) -> io::Result<()> {
        let header = file.header.expect("a file that keeps blocks has a header");
        let block = self.facts_block(file.seq, end);
        let len = u32::try_from(block.len()).expect("facts are at most a few KiB a stream");
        let file_bytes = file.file_bytes.max(end + len);
        let to = self.disk.open(path, OpenMode::Create)?;
        to.fill_zero(u64::from(file_bytes))?;
        to.write_at(&FileHeader { file_bytes, ..header }.encode(), 0)?;
        copy_bytes(&*file.handle, &*to, u64::from(FILE_HEADER_BYTES)..u64::from(end))?;
        if !block.is_empty() {
            to.write_at(&block, u64::from(end))?;
        }
        to.sync()
    }

    /// A padded block with what the kept part does not say, or nothing if it says all.
    fn facts_block(&self, file: FileSeq, pos: u32) -> Vec<u8> {
        let (mut block, mut heads, mut frames) = (vec![0; BLOCK_HEADER_BYTES], Vec::new(), 0);
        let mut put = |stream, kind, at, payload: &[u8]| {
            let header = FrameHeader::new(stream, kind, at, payload);
            header.put(&mut heads);
            header.put(&mut block);
            block.extend_from_slice(payload);
            frames += 1;
        };
        let nowhere = LogPosition { term: 0, leader: 0, index: 0 };
        let none = StreamFacts::default();
        for (stream, newest) in &self.newest {
            let kept = self.kept.get(stream).unwrap_or(&none);
            if let Some(purged) = newest.purged.filter(|purged| Some(*purged) != kept.purged) {
                put(*stream, FrameKind::Purge, purged, &[]);
            }
            if let Some(vote) = newest.vote.as_ref().filter(|vote| Some(*vote) != kept.vote.as_ref()) {
                put(*stream, FrameKind::Vote, nowhere, vote);
            }
            if let Some(meta) = newest.meta.as_ref().filter(|meta| Some(*meta) != kept.meta.as_ref()) {
                put(*stream, FrameKind::Meta, nowhere, meta);
            }
            // What was committed behind the cut is gone; what the kept part says of it holds.
        }
        if frames == 0 {
            return Vec::new();
        }
        let header = BlockHeader {
            flags: 0,
            frames,
            body_len: u32::try_from(block.len() - BLOCK_HEADER_BYTES).expect("a few KiB a stream"),
            block_seq: self.last_block + 1,
            file,
            durable: Lsn::new(file, pos),
            ts_ms: 0,
            prev_end: 0,
            is_guarded: false,
        };
        block[..BLOCK_HEADER_BYTES].copy_from_slice(&header.encode(&heads));
        block.resize(block.len().next_multiple_of(BLOCK_ALIGN as usize), 0);
        block
    }

    /// A name for what is cut of a file that no earlier repair took.
    fn free_name(&self, seq: FileSeq) -> io::Result<PathBuf> {
        let taken: Vec<String> = self.disk.list(&self.dir)?.into_iter().map(|file| file.name).collect();
        let first = format!("{}.damaged", file_name(seq));
        let others = (2..).map(|n| format!("{}.{n}.damaged", file_name(seq)));
        let name = std::iter::once(first).chain(others).find(|name| !taken.contains(name));
        Ok(self.dir.join(name.expect("there is no end of names")))
    }
}

fn copy_bytes(from: &dyn DiskFile, to: &dyn DiskFile, mut range: Range<u64>) -> io::Result<()> {
    let mut buffer = vec![0; COPY_BYTES];
    while !range.is_empty() {
        let want = usize::try_from(range.end - range.start).unwrap_or(usize::MAX).min(COPY_BYTES);
        let read = from.read_at(&mut buffer[..want], range.start)?;
        if read == 0 {
            return Err(io::ErrorKind::UnexpectedEof.into());
        }
        to.write_at(&buffer[..read], range.start)?;
        range.start += read as u64;
    }
    Ok(())
}

/// A journal's lock, whose it is, what holds of it, and where damage begins.
type Held = (Box<dyn DirLock>, IdentityFile, Walk, Option<Found>);

/// Goes through the journal in `dir`, which nobody opens as long as the lock is held.
fn walk(dir: &Path, disk: &Arc<dyn Disk>) -> Result<Held, OpenError> {
    let wal = dir.join("wal");
    let lock = lock_dir(dir, disk)?;
    let Some(identity) = IdentityFile::find(dir, &**disk)? else {
        let what = "there is no journal here".to_owned();
        return Err(OpenError::Corrupt { path: dir.to_owned(), what });
    };
    let files = list(&wal, &**disk, identity.journal_id)?;
    let mut walk = Walk { files, kept: Facts::default(), last_block: 0 };
    let found = walk.damage().map_err(|source| OpenError::Io { path: wal, source })?;
    Ok((lock, identity, walk, found))
}

/// The journal's files in order.
fn list(wal: &Path, disk: &dyn Disk, journal_id: u128) -> Result<Vec<Walked>, OpenError> {
    let io_error = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Io { path, source }
    };
    let names = disk.list(wal).map_err(io_error(wal))?;
    let mut found: Vec<FileSeq> = names.iter().filter_map(|file| parse_file_name(&file.name)).collect();
    found.sort();
    let open = |seq: FileSeq| {
        let path = wal.join(file_name(seq));
        let handle = disk.open(&path, OpenMode::Read).map_err(io_error(&path))?;
        let mut bytes = vec![0; FILE_HEADER_BYTES as usize];
        let read = handle.read_at(&mut bytes, 0).map_err(io_error(&path))?;
        let header = FileHeader::parse(&bytes[..read]).ok();
        let header = header.filter(|header| header.file == seq && header.journal_id == journal_id);
        let len = handle.len().map_err(io_error(&path))?;
        let file_bytes = header.map_or(u32::try_from(len).unwrap_or(u32::MAX), |header| header.file_bytes);
        Ok(Walked { seq, path, handle, header, file_bytes, end: FILE_HEADER_BYTES })
    };
    found.into_iter().map(open).collect()
}

/// Live entries that `newest` knows of and `kept` does not.
fn lost(kept: &Facts, newest: &Facts) -> BTreeMap<StreamId, Range<u64>> {
    let range = |(stream, newest): (&StreamId, &StreamFacts)| {
        let kept = kept.get(stream).map_or(0, |kept| kept.end);
        let range = kept.max(newest.first)..newest.end;
        (!range.is_empty()).then_some((*stream, range))
    };
    newest.iter().filter_map(range).collect()
}

/// Goes through the files by the rules of recovery (`recovery.rs`), and looks behind the place where that stops.
struct Walk {
    files: Vec<Walked>,
    kept: Facts,
    last_block: u64,
}

struct Behind {
    newest: Facts,
    bytes: u64,
}

impl Walk {
    /// Where acknowledged bytes are damaged first.
    fn damage(&mut self) -> io::Result<Option<Found>> {
        for at in 0..self.files.len() {
            if let Some(before) = at.checked_sub(1).map(|before| &self.files[before])
                && before.seq.next() != self.files[at].seq
            {
                let what = format!(
                    "the file behind it is missing, and the journal goes on with {}",
                    self.files[at].seq
                );
                return Ok(Some(Found { at: at - 1, pos: before.end, what }));
            }
            if self.files[at].header.is_none() {
                return Ok(Some(Found { at, pos: 0, what: "its file header does not hold".to_owned() }));
            }
            if let Some(found) = self.file(at)? {
                return Ok(Some(found));
            }
        }
        Ok(None)
    }

    /// Plays a file's blocks. Damage where they stop, if a later block proves that more was acknowledged.
    fn file(&mut self, at: usize) -> io::Result<Option<Found>> {
        let (seq, file_bytes) = (self.files[at].seq, self.files[at].file_bytes);
        let (mut reader, source) = (Reader::default(), Source::new(Arc::clone(&self.files[at].handle)));
        let mut window = Window::new(&mut reader, source, file_bytes);
        let stopped = loop {
            let pos = self.files[at].end;
            let (header, block) = match window.block(pos, seq)? {
                Ok(block) => block,
                Err(BlockError::Version(found)) => return Err(newer(found)),
                Err(error) => break error.to_string(),
            };
            let is_head = header.flags & FLAG_FILE_HEAD != 0 && pos == FILE_HEADER_BYTES;
            // Whatever comes before it: the file before was durable when this head was written.
            if let Some(before) = at.checked_sub(1).filter(|_| is_head && header.block_seq > self.last_block)
                && self.files[before].end != header.prev_end
            {
                let what = format!("blocks end here, but the next file says they reach {}", header.prev_end);
                return Ok(Some(Found { at: before, pos: self.files[before].end, what }));
            }
            let begins = self.last_block == 0 && at == 0;
            if !(begins || header.follows(self.last_block)) || is_head != (pos == FILE_HEADER_BYTES) {
                break "it does not follow the block before it".to_owned();
            }
            let mut facts = self.kept.clone();
            for frame in Frames::new(&block[BLOCK_HEADER_BYTES..]) {
                let played = frame.map_err(|error| error.to_string());
                if let Err(what) = played.and_then(|frame| facts_of(&mut facts, &frame, at == 0)) {
                    return Ok(Some(Found { at, pos, what }));
                }
            }
            self.kept = facts;
            self.last_block = header.block_seq;
            self.files[at].end = pos + align_up(u32::try_from(header.len()).expect("it fits its file"));
        };
        let pos = self.files[at].end;
        let cut = Lsn::new(seq, pos);
        // A head was synced before any commit behind it, and before the files in front of it went.
        let lacks_head = pos == FILE_HEADER_BYTES && seq > FileSeq::FIRST;
        let mut is_acknowledged = lacks_head && at == 0;
        self.each_behind(at..at + 1, pos, |header, _| is_acknowledged |= lacks_head || header.durable > cut)?;
        Ok(is_acknowledged.then_some(Found { at, pos, what: stopped }))
    }

    /// What lies behind the damage.
    fn behind(&self, found: &Found) -> io::Result<Behind> {
        let mut behind = Behind { newest: self.kept.clone(), bytes: 0 };
        self.each_behind(found.at..self.files.len(), found.pos.max(FILE_HEADER_BYTES), |header, block| {
            behind.bytes += u64::from(align_up(u32::try_from(header.len()).expect("it fits its file")));
            for frame in Frames::new(&block[BLOCK_HEADER_BYTES..]).flatten() {
                note(&mut behind.newest, &frame);
            }
        })?;
        Ok(behind)
    }

    /// Every block that holds in some files, from `pos` of the first on, in order: of what may be a torn
    /// block there only what is behind it.
    fn each_behind(
        &self,
        files: Range<usize>,
        mut pos: u32,
        mut each: impl FnMut(&BlockHeader, &[u8]),
    ) -> io::Result<()> {
        let mut reader = Reader::default();
        for file in &self.files[files] {
            let source = Source::new(Arc::clone(&file.handle));
            let mut window = Window::new(&mut reader, source, file.file_bytes);
            pos = window.guarded_end(pos, file.seq, self.last_block)?;
            while pos < file.file_bytes {
                let mut step = BLOCK_ALIGN;
                match window.block(pos, file.seq)? {
                    Ok((header, block)) if header.block_seq > self.last_block => {
                        each(&header, block);
                        step = align_up(u32::try_from(header.len()).expect("it fits its file"));
                    }
                    Err(BlockError::Version(found)) => return Err(newer(found)),
                    _ => {}
                }
                pos += step;
            }
            pos = FILE_HEADER_BYTES;
        }
        Ok(())
    }
}

/// A block that only a newer Weir reads is no damage: nothing is repaired around it.
fn newer(found: u8) -> io::Error {
    let told = format!(
        "a journal block has version {found}; this build reads up to {BLOCK_VERSION}: use a newer Weir"
    );
    io::Error::new(io::ErrorKind::Unsupported, told)
}

/// Plays a frame as recovery does.
fn facts_of(facts: &mut Facts, frame: &Frame<'_>, is_first_file: bool) -> Result<(), String> {
    let (stream, at) = (frame.header.stream, frame.header.at);
    let known = facts.entry(stream).or_default();
    match frame.header.kind {
        FrameKind::Entry(_) if at.index >= known.first && at.index != known.end => {
            Err(format!("stream {stream} jumps from {} to {}", known.end, at.index))
        }
        FrameKind::Truncate => {
            known.end = known.end.min(at.index).max(known.first);
            Ok(())
        }
        FrameKind::End if is_first_file => {
            known.first = known.first.max(at.index);
            known.end = known.end.max(at.index);
            Ok(())
        }
        FrameKind::End if known.end != at.index.max(known.first) => {
            Err(format!("stream {stream} ends at {}, not {}", known.end, at.index))
        }
        _ => {
            note(facts, frame);
            Ok(())
        }
    }
}

/// Takes from a frame what it says, whatever was before it.
fn note(facts: &mut Facts, frame: &Frame<'_>) {
    let at = frame.header.at;
    let known = facts.entry(frame.header.stream).or_default();
    match frame.header.kind {
        FrameKind::Entry(_) => known.end = known.end.max(at.index + 1),
        FrameKind::Vote => known.vote = Some(Bytes::copy_from_slice(frame.payload)),
        FrameKind::Meta => known.meta = Some(Bytes::copy_from_slice(frame.payload)),
        FrameKind::Committed => known.committed = Some(at),
        FrameKind::Purge if known.purged.is_none_or(|before| before.index < at.index) => {
            known.purged = Some(at);
            known.first = known.first.max(at.index + 1);
            known.end = known.end.max(known.first);
        }
        FrameKind::End => known.end = known.end.max(at.index),
        FrameKind::Purge | FrameKind::Truncate => {}
    }
}

#[cfg(test)]
mod tests;
