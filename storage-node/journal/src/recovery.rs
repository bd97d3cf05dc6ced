//! Reads the journal back after any kind of end.
//!
//! Every file is scanned from its first block; frames are played into the streams. A block that does not hold is
//! either the end (nothing later proves that it was acknowledged: cut there) or damage (a later block, or the next
//! file's head, says it was durable, or it is a head that others came behind: refuse, never cut). A whole block of a
//! version that is not known is neither: its number is said, and nothing is changed.
//!
//! When a file turns out to be finished, its sidecar is compared with what was found in it, and written again
//! if it says anything else; then rows of old files may leave memory, and the index stays within its bound
//! while files are scanned. A truncation or purge in a later file is played upon what left memory like upon
//! what is there.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use bytes::Bytes;

use crate::config::{Backend, JournalConfig, SyncMode};
use crate::core::{is_own_name, parse_file_name};
use crate::disk::{Disk, DiskFile, OpenMode};
use crate::entry::{FileSeq, Location, Lsn, StreamId};
use crate::error::{Damage, OpenError};
use crate::format::{
    BLOCK_ALIGN, BLOCK_HEADER_BYTES, BLOCK_VERSION, BlockError, BlockHeader, FILE_HEADER_BYTES, FILE_VERSION,
    FLAG_FILE_HEAD, FileHeader, FileHeaderError, FrameKind, Frames, Place, align_up, look_like_blocks,
};
use crate::index::{ROW_BYTES, Row};
use crate::recovered::TornTail;
use crate::sidecar::{FileRows, Found, Sidecar};
use crate::streams::{FileSpans, LiveFile, Stream, evict};
use crate::synced;
use crate::window::{Reader, Source, Window};

/// What the files hold.
#[derive(Debug, Default)]
pub(crate) struct Scan {
    pub(crate) streams: BTreeMap<StreamId, Stream>,
    pub(crate) files: Vec<LiveFile>,
    pub(crate) torn_tail: Option<TornTail>,
    /// Number of the last block that counts: the next session is above it.
    pub(crate) last_block: u64,
    pub(crate) scanned_bytes: u64,
    /// Pages behind the end of the last file that begin like blocks of it or of a later one: a torn block
    /// held them, messages in it perhaps.
    pub(crate) behind: Vec<u32>,
    /// Files behind the last that holds blocks, the newest first: prepared, and begun where nothing counts because the
    /// first block was torn. Whether nothing was ever written into them.
    pub(crate) headless: Vec<(PathBuf, bool)>,
    /// A file that is no longer needed, from before a crash.
    pub(crate) leftovers: Vec<PathBuf>,
    pub(crate) sidecars_written: u64,
    pub(crate) evicted_rows: u64,
}

/// Scans the journal files in `dir`, unless it is `given_up` meanwhile.
pub(crate) fn scan(
    config: &JournalConfig,
    dir: &Path,
    disk: &dyn Disk,
    journal_id: u128,
    given_up: &AtomicBool,
) -> Result<Scan, OpenError> {
    let io_error = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Io { path, source }
    };
    let mut scan = Scan::default();
    let (mut found, mut sidecars) = (BTreeMap::new(), Vec::new());
    for file in disk.list(dir).map_err(io_error(dir))? {
        let path = dir.join(&file.name);
        match parse_file_name(&file.name) {
            Some(seq) => drop(found.insert(seq, path)),
            None if file.name == synced::NAME => {}
            None if !is_own_name(&file.name) => {
                tracing::warn!(path = %path.display(), "a file that is not the journal's is left where it is");
            }
            None if file.name.ends_with(".idx") => sidecars.push(path),
            None => scan.leftovers.push(path),
        }
    }
    let mut scanner = Scanner {
        disk,
        given_up,
        journal_id,
        resident_rows_max: config.resident_index_bytes() / ROW_BYTES,
        is_past_cache: is_past_cache(config),
        scan,
        expected: None,
        stopped: BlockError::NoMagic,
        headless: Vec::new(),
        gone: BTreeMap::new(),
    };
    let mut reader = Reader::default();
    for (seq, path) in &found {
        let handle = disk.open(path, OpenMode::Write).map_err(io_error(path))?;
        let header = file_header(config, path, &*handle, *seq, journal_id)?;
        let file = LiveFile {
            seq: *seq,
            handle,
            path: path.clone(),
            file_bytes: header.file_bytes,
            end: FILE_HEADER_BYTES,
            spans: FileSpans::default(),
            holds_blocks: false,
            sidecar: None,
        };
        scanner.file(file, &mut reader).map_err(|error| match error {
            Stop::Open(error) => error,
            Stop::Io(source) => OpenError::Io { path: path.clone(), source },
        })?;
    }
    scanner.end(&mut reader).map_err(|error| match error {
        Stop::Open(error) => error,
        Stop::Io(source) => OpenError::Io { path: dir.to_owned(), source },
    })?;
    let mut scan = scanner.scan;
    // Those of files that are gone, and one whose file was finished when it was written and no longer is: the head of
    // the next file was lost, nothing in that had been acknowledged.
    let finished = |sidecar: &PathBuf| {
        scan.files.iter().any(|file| file.sidecar.is_some() && Sidecar::path(&file.path) == *sidecar)
    };
    sidecars.retain(|sidecar| !finished(sidecar));
    scan.leftovers.append(&mut sidecars);
    Ok(scan)
}

fn file_header(
    config: &JournalConfig,
    path: &Path,
    handle: &dyn DiskFile,
    seq: FileSeq,
    journal_id: u128,
) -> Result<FileHeader, OpenError> {
    let mut bytes = vec![0; FILE_HEADER_BYTES as usize];
    let read =
        handle.read_at(&mut bytes, 0).map_err(|source| OpenError::Io { path: path.to_owned(), source })?;
    let corrupt = |what: &str| OpenError::Corrupt { path: path.to_owned(), what: what.to_owned() };
    let header = FileHeader::parse(&bytes[..read]).map_err(|error| match error {
        FileHeaderError::Damaged => corrupt("its file header is damaged"),
        FileHeaderError::Newer(found) => {
            OpenError::NewerFormat { path: path.to_owned(), what: "journal file", found, known: FILE_VERSION }
        }
    })?;
    let identity = config.identity;
    if (header.journal_id, header.cluster_id, header.node_id)
        != (journal_id, identity.cluster_id, identity.node_id)
    {
        return Err(corrupt("it belongs to another journal"));
    }
    if header.file != seq {
        return Err(corrupt("its header names another file number"));
    }
    Ok(header)
}

/// Files are read past the page cache if this journal writes past it, and has most likely done so before:
/// then it is not in the cache, and getting memory for it there takes longer than reading. What was written
/// through the cache is still there when the process alone has ended, and comes from there ten times as fast
/// as from a disk.
///
/// What was asked for counts, not what it comes to: where direct writes are refused reads are too, one way or another,
/// and go through the cache.
fn is_past_cache(config: &JournalConfig) -> bool {
    match config.backend {
        Backend::Direct => true,
        Backend::Auto => config.sync == SyncMode::Always,
        Backend::Pwrite => false,
    }
}

enum Stop {
    Open(OpenError),
    Io(std::io::Error),
}

impl From<std::io::Error> for Stop {
    fn from(error: std::io::Error) -> Self {
        Self::Io(error)
    }
}

/// What lies behind the end of a file.
#[derive(Default)]
struct Behind {
    /// Blocks that hold.
    blocks: u64,
    /// See [`Scan::behind`].
    pages: Vec<u32>,
}

struct Scanner<'a> {
    disk: &'a dyn Disk,
    /// Nobody wants the result any more.
    given_up: &'a AtomicBool,
    journal_id: u128,
    resident_rows_max: u64,
    /// See [`is_past_cache`].
    is_past_cache: bool,
    scan: Scan,
    /// The file that must come next.
    expected: Option<FileSeq>,
    /// Why the last file that holds blocks holds no more.
    stopped: BlockError,
    /// Files in which no block holds behind those that hold some, and whether nothing was ever written into them.
    headless: Vec<(LiveFile, bool)>,
    /// Streams whose entries lay in files that are gone: first missing entry and first that is there.
    gone: BTreeMap<StreamId, (u64, u64)>,
}

impl Scanner<'_> {
    fn file(&mut self, mut file: LiveFile, reader: &mut Reader) -> Result<(), Stop> {
        let seq = file.seq;
        if let Some(expected) = self.expected.filter(|expected| *expected != seq) {
            let dir = file.path.parent().map(Path::to_owned).unwrap_or_default();
            let what = format!("the journal goes on with file {seq}");
            return Err(Stop::Open(OpenError::Missing { dir, file: expected, what }));
        }
        let first_of_all = self.expected.is_none();
        self.expected = Some(seq.next());
        let stopped = self.blocks(&mut file, reader, first_of_all)?;
        if file.end == FILE_HEADER_BYTES && seq > FileSeq::FIRST {
            // Its head block is written and synced before the first commit that needs it, and before any file
            // in front of it goes: without the head nothing in it was acknowledged, unless one of these has
            // happened. It need not be the last: the next one is prepared as soon as this one is taken.
            let behind = self.check_acknowledged(&file, reader, stopped)?;
            if behind.blocks > 0 || self.scan.files.is_empty() {
                return Err(Stop::Open(damage(&file, file.end, stopped.to_string())));
            }
            // What is left of a head that was cut off in the middle must not lie where the next head is written.
            self.headless.push((file, behind.pages.is_empty()));
            return Ok(());
        }
        self.stopped = stopped;
        self.scan.files.push(file);
        Ok(())
    }

    /// Ends the journal after the last block of the last file that holds blocks: behind it may lie one whose
    /// head was lost, and a next one, prepared.
    fn end(&mut self, reader: &mut Reader) -> Result<(), Stop> {
        for (stream, (first, there)) in &self.gone {
            let purged = self.scan.streams.get(stream).and_then(|stream| stream.purged);
            if purged.is_none_or(|purged| purged.index + 1 < *there) {
                let oldest = self.scan.files.first().map_or(FileSeq::FIRST, |file| file.seq);
                let dir = self.scan.files.first().and_then(|file| file.path.parent()).map(Path::to_owned);
                let what = format!("stream {stream} needs its entries from {first} to {there}");
                let file = FileSeq(oldest.0.saturating_sub(1));
                return Err(Stop::Open(OpenError::Missing { dir: dir.unwrap_or_default(), file, what }));
            }
        }
        let headless = self.headless.drain(..).rev();
        self.scan.headless = headless.map(|(file, is_clean)| (file.path, is_clean)).collect();
        let Some(file) = self.scan.files.pop() else { return Ok(()) };
        self.cut(&file, reader, self.stopped)?;
        self.scan.files.push(file);
        Ok(())
    }

    /// Asked before each block: a journal may take minutes to read.
    fn go_on(&self) -> Result<(), Stop> {
        if self.given_up.load(Ordering::Relaxed) { Err(Stop::Open(OpenError::GivenUp)) } else { Ok(()) }
    }

    fn source(&self, file: &LiveFile) -> Source {
        let handle = Arc::clone(&file.handle);
        if self.is_past_cache {
            Source::past_cache(self.disk, &file.path, handle)
        } else {
            Source::new(handle)
        }
    }

    /// Plays the file's blocks until one does not hold.
    fn blocks(
        &mut self,
        file: &mut LiveFile,
        reader: &mut Reader,
        first_of_all: bool,
    ) -> Result<BlockError, Stop> {
        let mut window = Window::new(reader, self.source(file), file.file_bytes);
        loop {
            self.go_on()?;
            let pos = file.end;
            let (header, block) = match window.block(pos, file.seq)? {
                Ok(found) => found,
                Err(BlockError::Version(found)) => return Err(Stop::Open(newer(file, found))),
                Err(error) => return Ok(error),
            };
            let head = header.flags & FLAG_FILE_HEAD != 0;
            let begins = self.scan.last_block == 0 && first_of_all;
            if head && pos == FILE_HEADER_BYTES && header.block_seq > self.scan.last_block {
                // Also where blocks are missing in between: the file before was durable when this head was written.
                self.check_previous_end(&header)?;
            }
            if !(begins || header.follows(self.scan.last_block)) || head != (pos == FILE_HEADER_BYTES) {
                return Ok(BlockError::NoMagic);
            }
            if head {
                self.finish_previous();
            }
            for frame in Frames::new(&block[BLOCK_HEADER_BYTES..]) {
                let frame = frame.map_err(|error| Stop::Open(damage(file, pos, error.to_string())))?;
                let at = pos + (BLOCK_HEADER_BYTES as u32) + frame.payload_at;
                self.play(file, &frame, at, begins || first_of_all)?;
            }
            let behind_first = block.get(BLOCK_ALIGN as usize..).unwrap_or_default();
            file.holds_blocks |= look_like_blocks(behind_first, file.seq);
            self.scan.last_block = header.block_seq;
            self.scan.scanned_bytes += header.len() as u64;
            file.end = pos + align_up(u32::try_from(header.len()).expect("checked against the file's size"));
        }
    }

    /// The blocks of the file before must reach where this file's head says they ended.
    fn check_previous_end(&self, header: &BlockHeader) -> Result<(), Stop> {
        match self.headless.first().map(|(file, _)| file).or(self.scan.files.last()) {
            Some(previous) if previous.end != header.prev_end => {
                let what = format!("blocks end here, but the next file says they reach {}", header.prev_end);
                Err(Stop::Open(damage(previous, previous.end, what)))
            }
            _ => Ok(()),
        }
    }

    /// The last file is finished and whole: the next one has begun. Its entries are as its own blocks left them.
    fn finish_previous(&mut self) {
        let Some(mut file) = self.scan.files.pop() else { return };
        file.sidecar = self.sidecar(&file);
        self.scan.files.push(file);
        let Scan { files, streams, .. } = &mut self.scan;
        let resident: u64 = streams.values().map(|stream| stream.index.rows()).sum();
        let has_sidecar = |seq| files.iter().any(|file| file.seq == seq && file.sidecar.is_some());
        let freed = evict(streams, has_sidecar, resident.saturating_sub(self.resident_rows_max));
        self.scan.evicted_rows += freed.rows;
    }

    /// The sidecar of a finished file, written unless the one that is there says what the file says. One that cannot be
    /// written costs memory and nothing else: the file keeper tries again.
    fn sidecar(&mut self, file: &LiveFile) -> Option<Sidecar> {
        let mut rows = FileRows::default();
        for (stream, span) in &file.spans.0 {
            for (index, at) in self.scan.streams[stream].index.resident_in(file.seq, span.start) {
                rows.put(*stream, index, Place { pos: at.pos, len: at.len });
            }
        }
        let (path, seq) = (&file.path, file.seq);
        match Sidecar::verify(self.disk, path, self.journal_id, seq, &rows) {
            Ok(Found::Valid(sidecar)) => return Some(sidecar),
            Ok(Found::Missing) => {}
            Ok(Found::Stale) => {
                tracing::warn!(file = %seq, "a sidecar does not say what its journal file says; it is written again");
            }
            Err(error) => tracing::warn!(%error, file = %seq, "cannot read a sidecar; it is written again"),
        }
        let written = Sidecar::write(self.disk, path, self.journal_id, seq, &rows);
        self.scan.sidecars_written += u64::from(written.is_ok());
        let failed =
            |error: &_| tracing::warn!(%error, file = %seq, "cannot write the sidecar of a journal file");
        written.inspect_err(failed).ok()
    }

    fn play(
        &mut self,
        file: &mut LiveFile,
        frame: &crate::format::Frame<'_>,
        pos: u32,
        first_file: bool,
    ) -> Result<(), Stop> {
        let header = frame.header;
        let stream = self.scan.streams.entry(header.stream).or_default();
        match header.kind {
            // It waited for the writer when it was purged, and the purge overtook it.
            FrameKind::Entry(_) if header.at.index < stream.index.first() => {}
            FrameKind::Entry(kind) => {
                if header.at.index != stream.index.end() {
                    let what = format!(
                        "stream {} jumps from {} to {}",
                        header.stream,
                        stream.index.end(),
                        header.at.index
                    );
                    return Err(Stop::Open(damage(file, pos, what)));
                }
                let location = Location { file: file.seq, pos, len: header.len };
                stream.index.push(Row::on_disk(kind, header.at, location));
                file.spans.add(header.stream, header.at.index..header.at.index + 1);
            }
            FrameKind::Vote => stream.vote = Some(Bytes::copy_from_slice(frame.payload)),
            FrameKind::Truncate => {
                stream.truncate(header.at.index);
                // The head said where the stream ended before: this block may be what made it begin a new file.
                if let Some((first, there)) = self.gone.get_mut(&header.stream)
                    && stream.index.first() == *there
                {
                    *there = header.at.index.clamp(*first, *there);
                    stream.index.begin_at(*there);
                }
            }
            // A later one overtook it.
            FrameKind::Purge if stream.purged.is_some_and(|purged| purged.index >= header.at.index) => {}
            FrameKind::Purge => {
                stream.purge(header.at);
                stream.durable_purged = Some(header.at.index);
                // What is missing of the stream begins behind it, and so does what a truncation leaves.
                if let Some((first, there)) = self.gone.get_mut(&header.stream) {
                    *first = (*first).max(header.at.index.saturating_add(1)).min(*there);
                }
            }
            FrameKind::Committed => stream.committed = Some(header.at),
            FrameKind::Meta => stream.meta = Some(Bytes::copy_from_slice(frame.payload)),
            FrameKind::End if first_file => {
                // Entries before the oldest file must all have been purged, here or in a later block.
                if stream.index.first() < header.at.index {
                    self.gone.insert(header.stream, (stream.index.first(), header.at.index));
                    stream.index.purge(header.at.index);
                }
            }
            FrameKind::End => {
                // A purge that the head restates may be ahead of the entries that earlier blocks hold.
                if stream.index.end() != header.at.index.max(stream.index.first()) {
                    let what = format!(
                        "stream {} ends at {}, not {}",
                        header.stream,
                        stream.index.end(),
                        header.at.index
                    );
                    return Err(Stop::Open(damage(file, pos, what)));
                }
            }
        }
        Ok(())
    }

    /// Ends the journal after the last block that holds, unless what follows was acknowledged.
    fn cut(&mut self, file: &LiveFile, reader: &mut Reader, stopped: BlockError) -> Result<(), Stop> {
        let Behind { blocks: lost_blocks, pages } = self.check_acknowledged(file, reader, stopped)?;
        self.scan.behind = pages;
        let mut next = [0; 4];
        let more = file.end < file.file_bytes && file.handle.read_at(&mut next, u64::from(file.end))? == 4;
        if lost_blocks > 0 || (more && stopped == BlockError::Checksum) {
            self.scan.torn_tail =
                Some(TornTail { path: file.path.clone(), file: file.seq, pos: file.end, lost_blocks });
        }
        Ok(())
    }

    /// Looks for later blocks of this file; one that says the bytes at its end were durable makes it damage.
    /// What lies in a block that was torn is none, whatever it says.
    fn check_acknowledged(
        &mut self,
        file: &LiveFile,
        reader: &mut Reader,
        stopped: BlockError,
    ) -> Result<Behind, Stop> {
        let mut window = Window::new(reader, self.source(file), file.file_bytes);
        let (cut, mut behind, mut pos) = (Lsn::new(file.seq, file.end), Behind::default(), file.end);
        let torn_end = window.guarded_end(pos, file.seq, self.scan.last_block)?;
        while pos + BLOCK_ALIGN <= file.file_bytes {
            self.go_on()?;
            let found = window.block(pos, file.seq)?;
            match found {
                Err(BlockError::NoMagic) => {}
                Err(BlockError::OtherFile(other)) if other < file.seq => {}
                _ => behind.pages.push(pos),
            }
            match found {
                _ if pos < torn_end => {}
                Ok((header, _)) if header.block_seq > self.scan.last_block => {
                    behind.blocks += 1;
                    if header.durable > cut {
                        return Err(Stop::Open(damage(file, file.end, stopped.to_string())));
                    }
                }
                Err(BlockError::Version(found)) => return Err(Stop::Open(newer(file, found))),
                _ => {}
            }
            pos += BLOCK_ALIGN;
        }
        Ok(behind)
    }
}

fn newer(file: &LiveFile, found: u8) -> OpenError {
    let (found, known) = (u32::from(found), u32::from(BLOCK_VERSION));
    OpenError::NewerFormat { path: file.path.clone(), what: "journal block", found, known }
}

fn damage(file: &LiveFile, pos: u32, what: String) -> OpenError {
    Damage { path: file.path.clone(), file: file.seq, pos, what }.into()
}
