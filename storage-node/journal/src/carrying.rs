//! Carries what lives out of the oldest journal files, so that these can go, and throws away what died of it later.
//!
//! ```text
//!   1. the parts that live are written to a carried file      durable, under its name
//!   2. the log is purged above them                           a fact in the journal, durable with the next commit
//!   3. the journal file goes                                  as every file whose entries are purged
//! ```
//!
//! Step 2 is the caller's, after step 1 has returned. A crash between any two steps leaves what lives in both places or
//! in the one where it was. While an entry is in the log it is read there; below the purge it is read here. The
//! bytes are the same, so it does not matter who reads when.

use std::collections::VecDeque;
use std::io;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::{Arc, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::carried::{self, CarriedFile, Carrying, Moving, Planned, ROWS_MAX};
use crate::core::Core;
use crate::entry::{Entry, FileSeq, StreamId};
use crate::error::{CarryError, ReadError};
use crate::files::remove_if_there;
use crate::format::{CARRIED_REPLACES_MAX, CarriedRow};
use crate::journal::Journal;
use crate::metrics::add;

/// Entries that are read at once, and their bytes.
const READ_ENTRIES: usize = 64;
const READ_BYTES: usize = 1 << 20;

/// A part of an entry that is still needed. Those of a call come in ascending order, none twice.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Part {
    /// The stream.
    pub stream: StreamId,
    /// The entry.
    pub index: u64,
    /// Where the part begins in the entry's payload.
    pub pos: u32,
    /// Its bytes.
    pub len: u32,
}

/// Entries of a stream.
pub type Span = (StreamId, Range<u64>);

/// A carried file.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct CarriedUsage {
    /// Its number.
    pub id: u64,
    /// Bytes on the disk.
    pub bytes: u64,
    /// Bytes of the parts in it, dead ones too.
    pub data_bytes: u64,
    /// Entries of each stream of which it has parts, with holes.
    pub spans: Vec<Span>,
}

impl Journal {
    /// Copies parts of entries out of the log into carried files, where they stay when it is purged above them. Durable
    /// on return; what an earlier call has carried already is passed over, and so is what was purged meanwhile. Gives
    /// the bytes that were copied. `pace` is told of bytes as they are written, and may wait. Blocking.
    ///
    /// The parts are those that live of a range of entries that begins where the last such range of the stream ended:
    /// whatever is left out is lost when the log is purged. They come in ascending order.
    ///
    /// # Errors
    /// See [`CarryError`].
    pub fn carry(&self, parts: &[Part], pace: &mut dyn FnMut(u64)) -> Result<u64, CarryError> {
        debug_assert!(parts.is_sorted(), "parts come in order");
        self.core().carry(parts, pace)
    }

    /// Writes what is in `live` of the carried files `ids`, neighbours that come in their order, into one that takes
    /// their place, and removes them; or just removes them if nothing is. Durable on return; gives the bytes that were
    /// copied. Of these files nothing lives but what is in `live`, which comes in ascending order and may have
    /// more, and all that made the rest die is durable. Blocking.
    ///
    /// # Errors
    /// See [`CarryError`].
    pub fn tidy_carried(
        &self,
        ids: &[u64],
        live: &[Part],
        pace: &mut dyn FnMut(u64),
    ) -> Result<u64, CarryError> {
        debug_assert!(live.is_sorted(), "parts come in order");
        self.core().tidy_carried(ids, live, pace)
    }

    /// Bytes `part` of the payload of an entry below the purge point, if they were carried. Blocking.
    ///
    /// # Errors
    /// [`ReadError::Corrupt`] or [`ReadError::Io`].
    pub fn read_carried(
        &self,
        stream: StreamId,
        index: u64,
        part: Range<u32>,
    ) -> Result<Option<Bytes>, ReadError> {
        self.core().read_carried(stream, index, part)
    }

    /// The term of an entry below the purge point, if anything of it was carried. Blocking.
    ///
    /// # Errors
    /// As [`Journal::read_carried`].
    pub fn term_of_carried(&self, stream: StreamId, index: u64) -> Result<Option<u64>, ReadError> {
        self.core().term_of_carried(stream, index)
    }

    /// The carried files, in their places.
    #[must_use]
    pub fn carried(&self) -> Vec<CarriedUsage> {
        self.core().carried_usage()
    }

    /// The oldest finished file, and the entries in it that are in the log.
    #[must_use]
    pub fn oldest_file(&self) -> Option<(FileSeq, Vec<Span>)> {
        let inner = self.core().lock();
        let oldest = inner.files.front().filter(|_| inner.files.len() > 1)?;
        let live = oldest.spans.0.iter().filter_map(|(stream, span)| {
            let first = inner.streams.get(stream).map_or(0, |state| state.index.first());
            (first < span.end).then_some((*stream, span.start.max(first)..span.end))
        });
        Some((oldest.seq, live.collect()))
    }

    /// Bytes in use and `max_bytes`, as [`Journal::usage`] has them.
    #[must_use]
    pub fn fullness(&self) -> (u64, u64) {
        (self.core().lock().used_bytes(), self.core().config.max_bytes)
    }
}

impl Core {
    /// See [`Journal::carry`].
    pub(crate) fn carry(&self, parts: &[Part], pace: &mut dyn FnMut(u64)) -> Result<u64, CarryError> {
        let mut carrying = self.ready_to_carry()?;
        let mut entries = Entries { core: self, parts, read: VecDeque::new(), ready: VecDeque::new() };
        let mut carried = 0;
        while entries.fill().map_err(CarryError::Read)? {
            carried += self.carry_file(&mut entries, pace)?;
            self.finish_removing(&mut carrying)?;
        }
        Ok(carried)
    }

    /// Writes one file of what comes next, as large as a journal file; the bytes of its parts.
    fn carry_file(&self, entries: &mut Entries<'_>, pace: &mut dyn FnMut(u64)) -> Result<u64, CarryError> {
        let id = self.lock().carried.next_id();
        let (mut bytes, mut rows, mut stopped) = (0, 0, None);
        let limit = u64::from(self.config.file_bytes);
        let mut next = || {
            // A file ends where an entry does: what lives of one entry is in one file.
            if entries.ready.is_empty() && (bytes >= limit || rows >= ROWS_MAX) {
                return Ok(None);
            }
            match entries.next() {
                Ok(part) => {
                    bytes += part.as_ref().map_or(0, |part| part.bytes.len() as u64);
                    rows += u64::from(part.is_some());
                    Ok(part)
                }
                Err(error) => {
                    let told = io::Error::other(error.to_string());
                    stopped = Some(error);
                    Err(told)
                }
            }
        };
        self.write_file(id, id, Vec::new(), &mut next, pace).map_err(|error| match stopped {
            Some(error) => CarryError::Read(error),
            None => error,
        })
    }

    /// See [`Journal::tidy_carried`].
    pub(crate) fn tidy_carried(
        &self,
        ids: &[u64],
        live: &[Part],
        pace: &mut dyn FnMut(u64),
    ) -> Result<u64, CarryError> {
        let mut carrying = self.ready_to_carry()?;
        let files: Vec<_> = {
            let inner = self.lock();
            let named = |file: &&Arc<CarriedFile>| ids.contains(&file.id);
            inner.carried.files().iter().filter(named).take(CARRIED_REPLACES_MAX).map(Arc::clone).collect()
        };
        let Some(last) = files.last() else { return Ok(0) };
        let (id, place) = (self.lock().carried.next_id(), last.place);
        let mut living = Living { files: &files, live, ready: VecDeque::new(), next_page: (0, 0) };
        let replaced: Vec<u64> = files.iter().map(|file| file.id).collect();
        let mut written = 0;
        match living.next().map_err(CarryError::Read)? {
            Some(first) => {
                let (mut first, mut stopped) = (Some(first), None);
                let mut next = || match first.take() {
                    Some(first) => Ok(Some(first)),
                    None => living.next().map_err(|error| {
                        let told = io::Error::other(error.to_string());
                        stopped = Some(error);
                        told
                    }),
                };
                let done = self.write_file(id, place, replaced, &mut next, pace);
                written = done.map_err(|error| stopped.map_or(error, CarryError::Read))?;
            }
            None => {
                self.lock().carried.take(&replaced);
            }
        }
        // Nobody finds them any more, and what lives of them is durable elsewhere.
        carrying.retired.extend(files.iter().map(|file| file.path.clone()));
        self.finish_removing(&mut carrying)?;
        Ok(written)
    }

    fn write_file(
        &self,
        id: u64,
        place: u64,
        replaces: Vec<u64>,
        next: &mut dyn FnMut() -> io::Result<Option<Moving>>,
        pace: &mut dyn FnMut(u64),
    ) -> Result<u64, CarryError> {
        let dir = carried::dir_of(&self.config.dir);
        let planned =
            Planned { dir: &dir, journal_id: self.journal_id, id, place, replaces: replaces.clone() };
        let written = carried::write(&*self.disk, planned, next, pace);
        let file = written.map_err(|source| CarryError::Io { path: dir.clone(), source })?;
        let bytes = file.data_bytes;
        add(&self.counters.carried_files, 1);
        add(&self.counters.carried_bytes, file.bytes);
        self.lock().carried.add(file, &replaces);
        Ok(bytes)
    }

    /// Whoever carries, alone; the directory is there, and says so to builds that would not look into it.
    fn ready_to_carry(&self) -> Result<MutexGuard<'_, Carrying>, CarryError> {
        let mut carrying = self.carrying.lock().unwrap_or_else(PoisonError::into_inner);
        if let Some(failure) = self.failure() {
            return Err(CarryError::Failed(failure));
        }
        let (dir, disk) = (carried::dir_of(&self.config.dir), &*self.disk);
        if !carrying.is_dir_made {
            let refused = |path: &PathBuf| {
                let path = path.clone();
                move |source| CarryError::Io { path, source }
            };
            disk.make_dir(&dir).map_err(refused(&dir))?;
            let renewed = carrying.identity.with_carried(&self.config.dir, disk);
            carrying.identity = renewed.map_err(refused(&self.config.dir))?;
            carrying.is_dir_made = true;
        }
        self.finish_removing(&mut carrying)?;
        Ok(carrying)
    }

    /// Removes what could not be removed before. One that stays is named by the file that took its place, or
    /// has nothing in it that is needed, so the next start may find it; but a third file must not take the
    /// place of the second while the first is there, or nothing would say any more that it is old.
    fn finish_removing(&self, carrying: &mut Carrying) -> Result<(), CarryError> {
        if carrying.retired.is_empty() {
            return Ok(());
        }
        while let Some(path) = carrying.retired.last() {
            let removed = remove_if_there(&*self.disk, path);
            removed.map_err(|source| CarryError::Io { path: path.clone(), source })?;
            carrying.retired.pop();
        }
        let dir = carried::dir_of(&self.config.dir);
        self.disk.sync_dir(&dir).map_err(|source| CarryError::Io { path: dir, source })
    }

    /// See [`Journal::read_carried`].
    pub(crate) fn read_carried(
        &self,
        stream: StreamId,
        index: u64,
        part: Range<u32>,
    ) -> Result<Option<Bytes>, ReadError> {
        let Some(file) = self.lock().carried.find(stream, index) else { return Ok(None) };
        let Some(row) = file.row(stream, index, part.start)? else { return Ok(None) };
        if part.end > row.pos + row.len {
            return Err(file.corrupt(row.at, "the entry was lost; a repair put an empty one in its place"));
        }
        let bytes = file.part(&row)?;
        Ok(Some(bytes.slice((part.start - row.pos) as usize..(part.end - row.pos) as usize)))
    }

    /// See [`Journal::term_of_carried`].
    pub(crate) fn term_of_carried(&self, stream: StreamId, index: u64) -> Result<Option<u64>, ReadError> {
        let Some(file) = self.lock().carried.find(stream, index) else { return Ok(None) };
        Ok(file.row(stream, index, u32::MAX)?.map(|row| row.term))
    }

    /// See [`Journal::carried`].
    pub(crate) fn carried_usage(&self) -> Vec<CarriedUsage> {
        let usage = |file: &Arc<CarriedFile>| CarriedUsage {
            id: file.id,
            bytes: file.bytes,
            data_bytes: file.data_bytes,
            spans: file.spans().collect(),
        };
        self.lock().carried.files().iter().map(usage).collect()
    }
}

/// Parts that are read out of the log.
struct Entries<'a> {
    core: &'a Core,
    /// Those whose entries were not read yet.
    parts: &'a [Part],
    read: VecDeque<Entry>,
    /// Of the entry that was read last.
    ready: VecDeque<Moving>,
}

impl Entries<'_> {
    fn next(&mut self) -> Result<Option<Moving>, ReadError> {
        self.fill()?;
        Ok(self.ready.pop_front())
    }

    /// Reads on until there is a part; false behind the last.
    fn fill(&mut self) -> Result<bool, ReadError> {
        while self.ready.is_empty() {
            let Some(first) = self.parts.first().copied() else { return Ok(false) };
            let of_entry = |part: &Part| (part.stream, part.index) == (first.stream, first.index);
            let (group, rest) = self.parts.split_at(self.parts.partition_point(of_entry));
            // An earlier call was cut short behind it.
            if first.index < self.core.lock().carried.end(first.stream) {
                self.parts = rest;
                continue;
            }
            match self.entry(first, rest) {
                Ok(entry) => self.ready.extend(group.iter().map(|part| moving(&entry, *part))),
                // It was trimmed meanwhile, and the log was purged: nobody needs it.
                Err(ReadError::Purged { .. } | ReadError::Recycled { .. }) => {}
                Err(error @ ReadError::Corrupt { .. }) => {
                    tracing::error!(%error, "a damaged message is carried as it is; readers are told that it is damaged");
                    self.ready.extend(self.damaged(group)?);
                }
                Err(error) => return Err(error),
            }
            self.parts = rest;
        }
        Ok(true)
    }

    /// The entry of `first`, and with it, in one read, some that follow it and are needed too.
    fn entry(&mut self, first: Part, rest: &[Part]) -> Result<Entry, ReadError> {
        while let Some(entry) = self.read.pop_front() {
            if entry.index == first.index {
                return Ok(entry);
            }
        }
        let mut end = first.index + 1;
        for part in rest.iter().take_while(|part| part.stream == first.stream) {
            if part.index > end || end - first.index >= READ_ENTRIES as u64 {
                break;
            }
            end = part.index + 1;
        }
        let read = self.core.read_entries_once(first.stream, first.index..end, READ_BYTES);
        // What is damaged behind the first is told when it is its turn.
        let read = match read {
            Err(ReadError::Corrupt { .. }) if end > first.index + 1 => {
                self.core.read_entries_once(first.stream, first.index..first.index + 1, READ_BYTES)
            }
            read => read,
        };
        self.read = read?.into();
        Ok(self.read.pop_front().expect("a read gives at least one entry"))
    }

    /// Parts of an entry that does not hold: each is a batch with a checksum of its own, which tells readers which.
    fn damaged(&self, group: &[Part]) -> Result<Vec<Moving>, ReadError> {
        let read = |part: &Part| {
            let at = self.core.locate(part.stream, part.index)?;
            let within = part.pos..part.pos + part.len;
            let bytes =
                if within.end <= at.len { self.core.part_as_it_is(at, within)? } else { Bytes::new() };
            let Part { stream, index, pos, .. } = *part;
            Ok(Moving { stream, index, term: 0, pos, bytes })
        };
        group.iter().map(read).collect()
    }
}

/// A part of an entry; empty if a repair put an empty entry in its place.
fn moving(entry: &Entry, part: Part) -> Moving {
    let Part { stream, index, pos, len } = part;
    let within = pos as usize..pos as usize + len as usize;
    let bytes = entry.payload.get(within.clone()).map_or_else(Bytes::new, |_| entry.payload.slice(within));
    Moving { stream, index, term: entry.term, pos, bytes }
}

/// Parts of carried files that still live.
struct Living<'a> {
    files: &'a [Arc<CarriedFile>],
    live: &'a [Part],
    ready: VecDeque<(Arc<CarriedFile>, StreamId, CarriedRow)>,
    /// Place among the files, and page there.
    next_page: (usize, u32),
}

impl Living<'_> {
    fn next(&mut self) -> Result<Option<Moving>, ReadError> {
        while self.ready.is_empty() {
            let (at, nth) = self.next_page;
            let Some(file) = self.files.get(at) else { return Ok(None) };
            let Some(page) = file.nth_page(nth) else {
                self.next_page = (at + 1, 0);
                continue;
            };
            self.next_page.1 += 1;
            let page = page?;
            let lives = |row: &CarriedRow| {
                let key =
                    |part: &Part| (part.stream, part.index, part.pos).cmp(&(page.stream, row.index, row.pos));
                self.live.binary_search_by(key).is_ok()
            };
            let rows = page.rows.iter().filter(|row| lives(row));
            self.ready.extend(rows.map(|row| (Arc::clone(file), page.stream, *row)));
        }
        let Some((file, stream, row)) = self.ready.pop_front() else { return Ok(None) };
        let bytes = match file.part(&row) {
            Err(error @ ReadError::Corrupt { .. }) => {
                tracing::error!(%error, "a damaged message is carried as it is; readers are told that it is damaged");
                file.part_as_it_is(&row)?
            }
            read => read?,
        };
        let CarriedRow { index, term, pos, .. } = row;
        Ok(Some(Moving { stream, index, term, pos, bytes }))
    }
}
