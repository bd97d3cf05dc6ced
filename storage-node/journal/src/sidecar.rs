//! The index of a finished journal file, kept in a file beside it, so that the rows of its entries may leave memory.
//!
//! A sidecar is never the truth: the journal file is. One that is missing, damaged or of another state is written again
//! from what the journal file says; until then reads look into the journal file itself. So a crash at any moment of
//! writing one costs nothing, and neither does its loss.

use std::collections::BTreeMap;
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::entry::{FileSeq, Location, StreamId};
use crate::format::{
    BLOCK_HEADER_BYTES, FILE_HEADER_BYTES, FrameKind, Frames, PAGE_BYTES, PAGE_ROWS, Page, Place,
    SidecarHeader, align_up,
};
use crate::sealed;
use crate::window::{Reader, Source, Window};

/// Where the payloads of the entries in one journal file lie.
#[derive(Debug, Default, PartialEq, Eq)]
pub(crate) struct FileRows(BTreeMap<StreamId, Run>);

/// Entries whose indexes follow each other.
#[derive(Debug, Default, PartialEq, Eq)]
struct Run {
    first: u64,
    places: Vec<Place>,
}

impl Run {
    fn end(&self) -> u64 {
        self.first + self.places.len() as u64
    }
}

impl FileRows {
    /// Adds the entry that was appended to the file after those added before. One with an index that is there replaces
    /// it and all after it: they had been truncated. One beyond the end replaces all: they had been purged.
    pub(crate) fn put(&mut self, stream: StreamId, index: u64, place: Place) {
        let run = self.0.entry(stream).or_default();
        match index.checked_sub(run.first).and_then(|keep| usize::try_from(keep).ok()) {
            Some(keep) if keep <= run.places.len() => run.places.truncate(keep),
            _ => *run = Run { first: index, places: Vec::new() },
        }
        run.places.push(place);
    }

    /// Entries of `range` in `file`, from its start on; none if the file does not have that one.
    pub(crate) fn locations(&self, file: FileSeq, stream: StreamId, range: Range<u64>) -> Vec<Location> {
        let Some(run) = self.0.get(&stream) else { return Vec::new() };
        let place = |index: u64| run.places.get(usize::try_from(index.checked_sub(run.first)?).ok()?);
        range.map_while(place).map(|place| Location { file, pos: place.pos, len: place.len }).collect()
    }

    /// The rows of the entries in the blocks of a journal file up to `end`.
    ///
    /// # Errors
    /// What the disk says; `InvalidData` with the position of a block that does not hold.
    pub(crate) fn scan(handle: Arc<dyn DiskFile>, file: FileSeq, end: u32) -> io::Result<Self> {
        let (mut rows, mut pos) = (Self::default(), FILE_HEADER_BYTES);
        let mut reader = Reader::default();
        let mut window = Window::new(&mut reader, Source::new(handle), end);
        while pos < end {
            let damaged =
                |what: String| io::Error::new(io::ErrorKind::InvalidData, format!("block at {pos}: {what}"));
            let (header, block) = window.block(pos, file)?.map_err(|error| damaged(error.to_string()))?;
            for frame in Frames::new(&block[BLOCK_HEADER_BYTES..]) {
                let frame = frame.map_err(|error| damaged(error.to_string()))?;
                if matches!(frame.header.kind, FrameKind::Entry(_)) {
                    let pos = pos + (BLOCK_HEADER_BYTES as u32) + frame.payload_at;
                    let place = Place { pos, len: frame.header.len };
                    rows.put(frame.header.stream, frame.header.at.index, place);
                }
            }
            pos += align_up(u32::try_from(header.len()).expect("checked against the file's size"));
        }
        Ok(rows)
    }
}

/// A sidecar that is durable beside its journal file.
#[derive(Debug)]
pub(crate) struct Sidecar {
    /// Kept open: a reader goes on with it when the name is gone or has been given to a newer one.
    handle: Arc<dyn DiskFile>,
    runs: BTreeMap<StreamId, Pages>,
    /// A page of it did not hold: it is to be written again.
    pub(crate) is_damaged: bool,
}

/// The pages of a stream.
#[derive(Debug, Clone, Copy)]
struct Pages {
    first: u64,
    end: u64,
    /// The first page's number; the header is not counted.
    page: u32,
}

/// What recovery found beside a journal file.
#[derive(Debug)]
pub(crate) enum Found {
    /// It says what the journal file says.
    Valid(Sidecar),
    Missing,
    /// It says something else: written before a truncation was, or before a purge that a crash undid, or damaged.
    Stale,
}

impl Sidecar {
    /// The sidecar's file beside the journal file `path`.
    pub(crate) fn path(path: &Path) -> PathBuf {
        path.with_extension("idx")
    }

    /// Writes the sidecar of the journal file `file` at `path`, replacing one that is there. Durable on return.
    ///
    /// # Errors
    /// What the disk says. Then the old one or none is there; rows that are in memory must stay there.
    pub(crate) fn write(
        disk: &dyn Disk,
        path: &Path,
        journal_id: u128,
        file: FileSeq,
        rows: &FileRows,
    ) -> io::Result<Self> {
        let (bytes, runs) = encode(journal_id, file, rows);
        let handle = sealed::replace(disk, &Self::path(path), |file| file.write_at(&bytes, 0))?;
        Ok(Self { handle, runs, is_damaged: false })
    }

    /// Compares the sidecar beside the journal file at `path` with `rows`, which a scan of that file found.
    ///
    /// # Errors
    /// What the disk says.
    pub(crate) fn verify(
        disk: &dyn Disk,
        path: &Path,
        journal_id: u128,
        file: FileSeq,
        rows: &FileRows,
    ) -> io::Result<Found> {
        let handle = match disk.open(&Self::path(path), OpenMode::Read) {
            Ok(handle) => handle,
            Err(error) if error.kind() == io::ErrorKind::NotFound => return Ok(Found::Missing),
            Err(error) => return Err(error),
        };
        // Byte for byte: nothing that a checksum or a file number could miss is taken for an index.
        let (bytes, runs) = encode(journal_id, file, rows);
        let mut found = vec![0; bytes.len()];
        let is_equal = handle.len()? == bytes.len() as u64
            && handle.read_at(&mut found, 0)? == bytes.len()
            && found == bytes;
        Ok(if is_equal { Found::Valid(Self { handle, runs, is_damaged: false }) } else { Found::Stale })
    }

    /// How to look up entries of `range` of `stream` in it; `None` if it does not have them all.
    pub(crate) fn lookup(&self, file: FileSeq, stream: StreamId, range: Range<u64>) -> Option<Lookup> {
        let pages = self.runs.get(&stream).copied()?;
        let holds = pages.first <= range.start && range.end <= pages.end;
        holds.then(|| Lookup { handle: Arc::clone(&self.handle), pages, file, stream, range })
    }

    /// `lookup` came from this one, not from one that it replaced.
    pub(crate) fn gave(&self, lookup: &Lookup) -> bool {
        Arc::ptr_eq(&self.handle, &lookup.handle)
    }
}

/// Entries to be looked up in a sidecar, without the journal's lock.
#[derive(Debug)]
pub(crate) struct Lookup {
    handle: Arc<dyn DiskFile>,
    pages: Pages,
    pub(crate) file: FileSeq,
    pub(crate) stream: StreamId,
    /// Never empty.
    pub(crate) range: Range<u64>,
}

impl Lookup {
    /// Reads one page: where the first entry lies, and those that follow it in that page.
    ///
    /// # Errors
    /// What the disk says; `InvalidData` if the page is not what was written.
    pub(crate) fn read(&self) -> io::Result<Vec<Location>> {
        let page = (self.range.start - self.pages.first) / PAGE_ROWS as u64 + u64::from(self.pages.page);
        let damaged = || io::Error::new(io::ErrorKind::InvalidData, format!("page {page} does not hold"));
        let mut bytes = [0; PAGE_BYTES];
        let read = self.handle.read_at(&mut bytes, (page + 1) * PAGE_BYTES as u64)?;
        let page = Page::parse(&bytes[..read])
            .filter(|page| (page.stream, page.file) == (self.stream, self.file))
            .ok_or_else(damaged)?;
        let location = |place: Place| Location { file: self.file, pos: place.pos, len: place.len };
        let found: Vec<_> = self.range.clone().map_while(|index| page.place(index)).map(location).collect();
        if found.is_empty() { Err(damaged()) } else { Ok(found) }
    }
}

/// The bytes of a sidecar, and where in them each stream has its pages. The same rows give the same bytes.
fn encode(journal_id: u128, file: FileSeq, rows: &FileRows) -> (Vec<u8>, BTreeMap<StreamId, Pages>) {
    let (mut runs, mut page) = (BTreeMap::new(), 0);
    for (stream, run) in &rows.0 {
        runs.insert(*stream, Pages { first: run.first, end: run.end(), page });
        page += u32::try_from(run.places.len().div_ceil(PAGE_ROWS)).expect("a file is below 4 GiB");
    }
    let mut bytes = Vec::with_capacity((page as usize + 1) * PAGE_BYTES);
    SidecarHeader { file, journal_id, pages: page }.put(&mut bytes);
    for (stream, run) in &rows.0 {
        for (first, places) in (run.first..).step_by(PAGE_ROWS).zip(run.places.chunks(PAGE_ROWS)) {
            Page::put(*stream, file, first, places, &mut bytes);
        }
    }
    (bytes, runs)
}
