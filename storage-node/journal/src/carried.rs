//! Carried files: batches that outlived the journal files that they came in.
//!
//! A file is written once, as a whole, and takes its name when it is durable. So a crash leaves it or leaves nothing;
//! what it was made of stays until then. It is removed as a whole too: when nothing in it is needed, or when another
//! file, which names it, has taken its place. If a crash keeps its name nevertheless, the next start finds the one that
//! names it, and removes it again.

use std::collections::{BTreeMap, BTreeSet};
use std::io;
use std::ops::Range;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use bytes::Bytes;

use crate::disk::{Disk, DiskFile, OpenMode};
use crate::entry::StreamId;
use crate::error::{OpenError, ReadError};
use crate::format::{
    CARRIED_PAGE_BYTES, CARRIED_PAGE_ROWS, CARRIED_VERSION, CarriedError, CarriedHeader, CarriedPage,
    CarriedRow, crc32c,
};
use crate::identity::IdentityFile;
use crate::sealed;

/// Bytes that are given to the disk at once.
const CHUNK_BYTES: usize = 1 << 20;
/// Rows of one file: their memory while it is written is bounded, 40 bytes each.
pub(crate) const ROWS_MAX: u64 = 1 << 20;

/// A carried file that is there.
#[derive(Debug)]
pub(crate) struct CarriedFile {
    pub(crate) id: u64,
    pub(crate) place: u64,
    pub(crate) path: PathBuf,
    /// Bytes on the disk, and of its parts.
    pub(crate) bytes: u64,
    pub(crate) data_bytes: u64,
    /// Kept open: a reader goes on with it when the name is gone.
    handle: Arc<dyn DiskFile>,
    runs: BTreeMap<StreamId, Run>,
    pages_at: u64,
}

/// The rows of one stream in a file.
#[derive(Debug, Clone)]
struct Run {
    /// Entries, from the first to one past the last: there may be holes.
    entries: Range<u64>,
    /// Its first page.
    page: u32,
    /// Entry and position of each page's first row: 16 bytes for 127 rows.
    firsts: Vec<(u64, u32)>,
}

/// All carried files, in their places.
#[derive(Debug, Default)]
pub(crate) struct Carried {
    files: Vec<Arc<CarriedFile>>,
    next_id: u64,
}

impl Carried {
    /// Bytes on the disk.
    pub(crate) fn bytes(&self) -> u64 {
        self.files.iter().map(|file| file.bytes).sum()
    }

    pub(crate) fn files(&self) -> &[Arc<CarriedFile>] {
        &self.files
    }

    /// What the next file is called, higher than what any was.
    pub(crate) fn next_id(&self) -> u64 {
        self.next_id
    }

    /// One past the last entry of a stream of which parts are here. What lives of those before is here already.
    pub(crate) fn end(&self, stream: StreamId) -> u64 {
        self.files
            .iter()
            .filter_map(|file| file.runs.get(&stream))
            .map(|run| run.entries.end)
            .max()
            .unwrap_or(0)
    }

    /// The file that has what is here of an entry.
    pub(crate) fn find(&self, stream: StreamId, index: u64) -> Option<Arc<CarriedFile>> {
        let has =
            |file: &&Arc<CarriedFile>| file.runs.get(&stream).is_some_and(|run| run.entries.contains(&index));
        self.files.iter().find(has).map(Arc::clone)
    }

    /// Adds a file, in its place, and takes out those that it names.
    pub(crate) fn add(&mut self, file: CarriedFile, replaced: &[u64]) -> Vec<Arc<CarriedFile>> {
        let gone = self.take(replaced);
        self.next_id = self.next_id.max(file.id + 1);
        let at = self.files.partition_point(|other| other.place <= file.place);
        self.files.insert(at, Arc::new(file));
        gone
    }

    /// Takes files out.
    pub(crate) fn take(&mut self, ids: &[u64]) -> Vec<Arc<CarriedFile>> {
        self.files.extract_if(.., |file| ids.contains(&file.id)).collect()
    }
}

/// What only one may do at a time.
#[derive(Debug)]
pub(crate) struct Carrying {
    pub(crate) identity: IdentityFile,
    pub(crate) is_dir_made: bool,
    /// Files that could not be removed yet.
    pub(crate) retired: Vec<PathBuf>,
}

impl Carrying {
    pub(crate) fn new(identity: IdentityFile) -> Self {
        Self { identity, is_dir_made: false, retired: Vec::new() }
    }
}

/// A part on its way into a carried file.
pub(crate) struct Moving {
    pub(crate) stream: StreamId,
    pub(crate) index: u64,
    pub(crate) term: u64,
    pub(crate) pos: u32,
    pub(crate) bytes: Bytes,
}

/// What is to become a carried file.
pub(crate) struct Planned<'a> {
    pub(crate) dir: &'a Path,
    pub(crate) journal_id: u128,
    pub(crate) id: u64,
    pub(crate) place: u64,
    pub(crate) replaces: Vec<u64>,
}

/// Writes a file of the parts that `next` gives, those of each stream in the order of its entries. Durable on return,
/// name included. `pace` is told of the bytes that were written, and may wait.
///
/// # Errors
/// What the disk or `next` says: then there is no such file, or (if only its name could not be synced) one that
/// the next start finds whole or not at all; nothing that it was made of may go.
pub(crate) fn write(
    disk: &dyn Disk,
    planned: Planned<'_>,
    next: &mut dyn FnMut() -> io::Result<Option<Moving>>,
    pace: &mut dyn FnMut(u64),
) -> io::Result<CarriedFile> {
    let path = path_of(planned.dir, planned.id);
    let mut filled = None;
    let handle = sealed::replace(disk, &path, |file| {
        let mut filling = Filling { file, at: CARRIED_PAGE_BYTES as u64, waiting: Vec::new(), pace };
        let mut rows: BTreeMap<StreamId, Vec<CarriedRow>> = BTreeMap::new();
        while let Some(part) = next()? {
            let too_long = || io::Error::other("a carried file of 4 GiB");
            let at = u32::try_from(filling.at + filling.waiting.len() as u64).map_err(|_| too_long())?;
            let len = u32::try_from(part.bytes.len()).map_err(|_| too_long())?;
            let Moving { stream, index, term, pos, bytes } = part;
            rows.entry(stream).or_default().push(CarriedRow {
                index,
                term,
                pos,
                len,
                at,
                crc: crc32c(&bytes),
            });
            filling.put(&bytes)?;
        }
        filling.flush()?;
        filled = Some(finish(file, &planned, filling.at, &rows)?);
        Ok(())
    })?;
    let (header, runs, pages_at) = filled.expect("it was filled");
    let bytes = pages_at + u64::from(header.pages) * CARRIED_PAGE_BYTES as u64;
    let CarriedHeader { id, place, data_bytes, .. } = header;
    Ok(CarriedFile { id, place, path, bytes, data_bytes, handle, runs, pages_at })
}

/// The parts of a file that is being written.
struct Filling<'a> {
    file: &'a dyn DiskFile,
    /// Where the next chunk goes.
    at: u64,
    waiting: Vec<u8>,
    pace: &'a mut dyn FnMut(u64),
}

impl Filling<'_> {
    fn put(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.waiting.extend_from_slice(bytes);
        if self.waiting.len() >= CHUNK_BYTES { self.flush() } else { Ok(()) }
    }

    /// The disk is told to begin with each chunk: the sync at the end then has little left, and commits do not wait
    /// behind all of it.
    fn flush(&mut self) -> io::Result<()> {
        let len = self.waiting.len() as u64;
        if len > 0 {
            self.file.write_at(&self.waiting, self.at)?;
            self.file.start_writeback(self.at, len);
            self.at += len;
            self.waiting.clear();
            (self.pace)(len);
        }
        Ok(())
    }
}

type Finished = (CarriedHeader, BTreeMap<StreamId, Run>, u64);

/// Writes index and header behind the parts, which end at `end`. Whoever calls syncs, and gives the name then.
fn finish(
    file: &dyn DiskFile,
    planned: &Planned<'_>,
    end: u64,
    rows: &BTreeMap<StreamId, Vec<CarriedRow>>,
) -> io::Result<Finished> {
    let pages_at = end.next_multiple_of(CARRIED_PAGE_BYTES as u64);
    let (mut runs, mut page, mut bytes) = (BTreeMap::new(), 0, Vec::new());
    for (stream, rows) in rows {
        let pages = rows.chunks(CARRIED_PAGE_ROWS);
        let firsts: Vec<_> = pages.clone().map(|rows| (rows[0].index, rows[0].pos)).collect();
        let entries = rows[0].index..rows[rows.len() - 1].index + 1;
        let count = u32::try_from(firsts.len()).map_err(io::Error::other)?;
        runs.insert(*stream, Run { entries, page, firsts });
        page += count;
        for rows in pages {
            bytes.extend(CarriedPage { stream: *stream, file: planned.id, rows: rows.to_vec() }.encode());
        }
    }
    // Zeros up to the pages: nothing of the file is what the disk had there before.
    let gap = usize::try_from(pages_at - end).map_err(io::Error::other)?;
    if gap > 0 {
        file.write_at(&vec![0; gap], end)?;
    }
    file.write_at(&bytes, pages_at)?;
    let header = CarriedHeader {
        id: planned.id,
        place: planned.place,
        journal_id: planned.journal_id,
        data_bytes: end - CARRIED_PAGE_BYTES as u64,
        pages: page,
        replaces: planned.replaces.clone(),
    };
    file.write_at(&header.encode(), 0)?;
    Ok((header, runs, pages_at))
}

impl CarriedFile {
    /// Entries of each stream of which there are parts, with holes.
    pub(crate) fn spans(&self) -> impl Iterator<Item = (StreamId, Range<u64>)> {
        self.runs.iter().map(|(stream, run)| (*stream, run.entries.clone()))
    }

    /// One of its pages; `None` behind the last.
    pub(crate) fn nth_page(&self, nth: u32) -> Option<Result<CarriedPage, ReadError>> {
        let mut runs = self.runs.iter();
        let (stream, _) =
            runs.find(|(_, run)| nth < run.page + u32::try_from(run.firsts.len()).unwrap_or(u32::MAX))?;
        Some(self.page(*stream, nth))
    }

    fn page(&self, stream: StreamId, page: u32) -> Result<CarriedPage, ReadError> {
        let at = self.pages_at + u64::from(page) * CARRIED_PAGE_BYTES as u64;
        let mut bytes = vec![0; CARRIED_PAGE_BYTES];
        let read = self.handle.read_at(&mut bytes, at).map_err(|source| self.io(source))?;
        let found = CarriedPage::parse(&bytes[..read]);
        let found = found.filter(|page| (page.stream, page.file) == (stream, self.id));
        found.ok_or_else(|| self.corrupt(u32::try_from(at).unwrap_or(u32::MAX), "a page of its index"))
    }

    /// The row of the part of the entry `index` that begins at `pos` or, if none does, is the last one before.
    pub(crate) fn row(
        &self,
        stream: StreamId,
        index: u64,
        pos: u32,
    ) -> Result<Option<CarriedRow>, ReadError> {
        let Some(run) = self.runs.get(&stream) else { return Ok(None) };
        let Some(nth) = run.firsts.partition_point(|first| *first <= (index, pos)).checked_sub(1) else {
            return Ok(None);
        };
        let page = self.page(stream, run.page + u32::try_from(nth).unwrap_or(u32::MAX))?;
        let behind = page.rows.partition_point(|row| (row.index, row.pos) <= (index, pos));
        let row = behind.checked_sub(1).map(|at| page.rows[at]);
        Ok(row.filter(|row| row.index == index))
    }

    /// The bytes of a part, checked.
    pub(crate) fn part(&self, row: &CarriedRow) -> Result<Bytes, ReadError> {
        let bytes = self.part_as_it_is(row)?;
        if crc32c(&bytes) == row.crc { Ok(bytes) } else { Err(self.corrupt(row.at, "checksum")) }
    }

    /// The bytes of a part, whatever they are.
    pub(crate) fn part_as_it_is(&self, row: &CarriedRow) -> Result<Bytes, ReadError> {
        let mut bytes = vec![0; row.len as usize];
        let read = self.handle.read_at(&mut bytes, u64::from(row.at)).map_err(|source| self.io(source))?;
        if read != bytes.len() {
            return Err(self.corrupt(row.at, "the file is shorter than it was"));
        }
        Ok(Bytes::from(bytes))
    }

    pub(crate) fn corrupt(&self, pos: u32, what: &'static str) -> ReadError {
        ReadError::Corrupt { path: self.path.clone(), pos, what }
    }

    fn io(&self, source: io::Error) -> ReadError {
        ReadError::Io { path: self.path.clone(), source }
    }
}

/// Where the carried files of a journal lie.
pub(crate) fn dir_of(journal: &Path) -> PathBuf {
    journal.join("carried")
}

fn path_of(dir: &Path, id: u64) -> PathBuf {
    dir.join(format!("{id:016x}.carried"))
}

fn id_of(name: &str) -> Option<u64> {
    let digits = name.strip_suffix(".carried").filter(|digits| digits.len() == 16)?;
    u64::from_str_radix(digits, 16).ok()
}

/// The carried files in `dir`, and what is to be removed there: what a crash left of one that was being written, and
/// files whose place another has taken.
///
/// Header and index are read and checked; of the parts each has a checksum, which is compared when it is read.
///
/// # Errors
/// [`OpenError`]: one is damaged, of a newer version, of another journal, or cannot be read. None of that is
/// passed over: what is in them was acknowledged and is nowhere else.
pub(crate) fn load(
    disk: &dyn Disk,
    dir: &Path,
    journal_id: u128,
) -> Result<(Carried, Vec<PathBuf>), OpenError> {
    let io_error = |path: &Path| {
        let path = path.to_owned();
        move |source| OpenError::Io { path, source }
    };
    let (mut found, mut leftovers) = (Vec::new(), Vec::new());
    let mut replaced = BTreeSet::new();
    for name in disk.list(dir).map_err(io_error(dir))? {
        let path = dir.join(&name.name);
        let Some(id) = id_of(&name.name) else {
            let is_own = name
                .name
                .strip_suffix(".tmp")
                .is_some_and(|stem| id_of(&format!("{stem}.carried")).is_some());
            if is_own {
                leftovers.push(path);
            } else {
                tracing::warn!(path = %path.display(), "a file that is not the journal's is left where it is");
            }
            continue;
        };
        let handle = disk.open(&path, OpenMode::Read).map_err(io_error(&path))?;
        let (header, file) = open(handle, &path, journal_id, id)?;
        replaced.extend(header.replaces);
        found.push(file);
    }
    let next_id = found.iter().map(|file| file.id + 1).max().unwrap_or(1);
    found.sort_by_key(|file| (file.place, file.id));
    let gone = found.extract_if(.., |file| replaced.contains(&file.id));
    leftovers.extend(gone.map(|file| file.path));
    Ok((Carried { files: found.into_iter().map(Arc::new).collect(), next_id }, leftovers))
}

fn open(
    handle: Arc<dyn DiskFile>,
    path: &Path,
    journal_id: u128,
    id: u64,
) -> Result<(CarriedHeader, CarriedFile), OpenError> {
    let refused = |source| OpenError::Io { path: path.to_owned(), source };
    let corrupt = |what: &str| OpenError::Corrupt { path: path.to_owned(), what: what.to_owned() };
    let mut bytes = vec![0; CARRIED_PAGE_BYTES];
    let read = handle.read_at(&mut bytes, 0).map_err(refused)?;
    let header = CarriedHeader::parse(&bytes[..read]).map_err(|error| match error {
        CarriedError::Damaged => corrupt("its header; it holds messages that are nowhere else"),
        CarriedError::Newer(found) => OpenError::NewerFormat {
            path: path.to_owned(),
            what: "carried file",
            found,
            known: CARRIED_VERSION,
        },
    })?;
    if (header.journal_id, header.id) != (journal_id, id) {
        return Err(corrupt("it belongs to another journal, or has another's name"));
    }
    let data_end = CARRIED_PAGE_BYTES as u64 + header.data_bytes;
    let pages_at = data_end.next_multiple_of(CARRIED_PAGE_BYTES as u64);
    let mut runs: BTreeMap<StreamId, Run> = BTreeMap::new();
    for page in 0..header.pages {
        let at = pages_at + u64::from(page) * CARRIED_PAGE_BYTES as u64;
        let read = handle.read_at(&mut bytes, at).map_err(refused)?;
        let found = CarriedPage::parse(&bytes[..read]).filter(|page| page.file == id);
        let found = found.ok_or_else(|| corrupt("its index; it holds messages that are nowhere else"))?;
        let (first, last) = (found.rows[0], found.rows[found.rows.len() - 1]);
        let run = runs.entry(found.stream).or_insert_with(|| Run {
            entries: first.index..first.index,
            page,
            firsts: Vec::new(),
        });
        run.entries.end = last.index + 1;
        run.firsts.push((first.index, first.pos));
    }
    let bytes = pages_at + u64::from(header.pages) * CARRIED_PAGE_BYTES as u64;
    let (place, data_bytes) = (header.place, header.data_bytes);
    let path = path.to_owned();
    Ok((header, CarriedFile { id, place, path, bytes, data_bytes, handle, runs, pages_at }))
}
