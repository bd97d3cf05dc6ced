//! Reads entries: from memory, from where their rows say, or from where the sidecar of their file says.
//!
//! The lock is held to look at the rows only, never while the disk is read. What is found out under it stays true for
//! this read: an entry that is truncated meanwhile is given as it was before, and a file that is recycled meanwhile is
//! noticed after each read of it.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::core::{Core, Inner};
use crate::disk::DiskFile;
use crate::entry::{Entry, FileSeq, Location, StreamId};
use crate::error::ReadError;
use crate::format::{FRAME_HEADER_BYTES, FrameHeader, FrameKind};
use crate::metrics::add;
use crate::sidecar::{FileRows, Lookup};
use crate::streams::{Plan, Planned, Stream};

impl Core {
    /// See [`crate::Journal::read_entries`].
    pub(crate) fn read_entries(
        &self,
        stream: StreamId,
        range: Range<u64>,
        max_bytes: usize,
    ) -> Result<Vec<Entry>, ReadError> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        let lookup = {
            let inner = self.lock();
            match known(&inner, stream, range.start)?.plan(stream, range, max_bytes)? {
                Planned::Evicted { file, range } => lookup(&inner, file, stream, range),
                Planned::Rows(plans) => {
                    drop(inner);
                    return plans.into_iter().map(|plan| self.load(stream, plan)).collect();
                }
            }
        };
        self.read_evicted(lookup, max_bytes)
    }

    /// See [`crate::Journal::locate`].
    pub(crate) fn locate(&self, stream: StreamId, index: u64) -> Result<Location, ReadError> {
        let lookup = {
            let inner = self.lock();
            let state = known(&inner, stream, index)?;
            state.live(stream, index)?;
            match state.index.evicted(index) {
                Some((file, _)) => lookup(&inner, file, stream, index..index + 1),
                None => {
                    let at = state.index.row(index).and_then(|row| row.at);
                    return at.ok_or(ReadError::NotWritten { stream, index });
                }
            }
        };
        let found = self.locations(&lookup).map_err(|error| self.purged(stream, error))?;
        Ok(*found.first().expect("a lookup gives at least one"))
    }

    /// See [`crate::Journal::read_entries_once`].
    pub(crate) fn read_entries_once(
        &self,
        stream: StreamId,
        range: Range<u64>,
        max_bytes: usize,
    ) -> Result<Vec<Entry>, ReadError> {
        let planned = match range.is_empty() {
            true => return Ok(Vec::new()),
            false => known(&self.lock(), stream, range.start)?.plan(stream, range.clone(), max_bytes)?,
        };
        let Planned::Rows(plans) = planned else { return self.read_entries(stream, range, max_bytes) };
        let frames = plans.iter().filter_map(Plan::place).map(frame);
        let parts: Vec<_> = frames.map(|frame| (frame, 0..frame.len)).collect();
        // What cannot be read or does not hold is read again by itself, which says what is wrong with which.
        let mut read = self.read_parts(&parts).unwrap_or_default().into_iter();
        let load = |plan: Plan| match plan.place().and_then(|_| copied(stream, &plan, &read.next()?)) {
            Some(entry) => Ok(entry),
            None => self.load(stream, plan),
        };
        plans.into_iter().map(load).collect()
    }

    fn load(&self, stream: StreamId, plan: Plan) -> Result<Entry, ReadError> {
        match plan {
            Plan::InMemory(entry) => Ok(entry),
            Plan::OnDisk(index, location) => self.entry_at(stream, index, location),
        }
    }

    /// Entries from the lookup's first on, until `max_bytes` are collected; at least one.
    fn read_evicted(&self, mut lookup: Lookup, max_bytes: usize) -> Result<Vec<Entry>, ReadError> {
        let (stream, mut entries, mut total) = (lookup.stream, Vec::new(), 0);
        while !lookup.range.is_empty() {
            for location in self.locations(&lookup).map_err(|error| self.purged(stream, error))? {
                if !entries.is_empty() && total + location.len as usize > max_bytes {
                    return Ok(entries);
                }
                total += location.len as usize;
                entries.push(self.entry_at(stream, lookup.range.start, location)?);
                lookup.range.start += 1;
            }
        }
        Ok(entries)
    }

    /// Where the first entry of a lookup lies, and some that follow it.
    ///
    /// A sidecar that cannot be read or does not hold is no reason to fail: the journal file has all that it had. The
    /// file keeper is told to write it again.
    fn locations(&self, lookup: &Lookup) -> Result<Vec<Location>, ReadError> {
        add(&self.counters.sidecar_reads, 1);
        let error = match lookup.read() {
            Ok(found) => return Ok(found),
            Err(error) => error,
        };
        add(&self.counters.sidecar_misses, 1);
        let Lookup { file, stream, .. } = *lookup;
        if let Some(sidecar) = self.lock().file_mut(file).and_then(|file| file.sidecar.as_mut())
            && sidecar.gave(lookup)
            && !std::mem::replace(&mut sidecar.is_damaged, true)
        {
            tracing::warn!(%error, %file, "the sidecar of a journal file does not hold; it is written again");
            self.files_changed.notify_all();
        }
        let found = self.scan(file)?.locations(file, stream, lookup.range.clone());
        if found.is_empty() {
            let (_, path) = self.file(file)?;
            let what = "an entry that the index has is not in the file";
            return Err(ReadError::Corrupt { path, pos: 0, what });
        }
        Ok(found)
    }

    /// The rows of a finished file, as it says itself.
    pub(crate) fn scan(&self, file: FileSeq) -> Result<FileRows, ReadError> {
        let (handle, path) = self.file(file)?;
        let end = self.lock().file(file).ok_or(ReadError::Recycled { file })?.end;
        let scanned = FileRows::scan(handle, file, end);
        // A file that was recycled meanwhile does not hold, or holds another life's blocks.
        self.file(file)?;
        scanned.map_err(|source| ReadError::Io { path, source })
    }

    /// The whole entry `index` of `stream`, which must lie at `location`.
    fn entry_at(&self, stream: StreamId, index: u64, location: Location) -> Result<Entry, ReadError> {
        let (header, payload) = self.frame_at(location).map_err(|error| self.purged(stream, error))?;
        match header.kind {
            FrameKind::Entry(kind) if (header.stream, header.at.index) == (stream, index) => {
                Ok(Entry { kind, term: header.at.term, leader: header.at.leader, index, payload })
            }
            _ => {
                let (_, path) = self.file(location.file)?;
                Err(ReadError::Corrupt { path, pos: location.pos, what: "it is another entry" })
            }
        }
    }

    /// The frame whose payload lies at `location`, checked.
    fn frame_at(&self, location: Location) -> Result<(FrameHeader, Bytes), ReadError> {
        // The frame header before the payload says what the bytes must be.
        let (Location { file, pos, .. }, bytes) = (location, self.bytes_at(frame(location))?);
        let corrupt = |what| move |path| ReadError::Corrupt { path, pos, what };
        let checked = FrameHeader::parse(&bytes).map_err(|_| "frame header").and_then(|header| {
            header.verify(&bytes[FRAME_HEADER_BYTES..]).map_err(|_| "checksum").map(|()| header)
        });
        match checked {
            Ok(header) => Ok((header, bytes.slice(FRAME_HEADER_BYTES..))),
            Err(what) => Err(self.file(file).map(|(_, path)| corrupt(what)(path))?),
        }
    }

    /// See [`crate::Journal::read_at`].
    pub(crate) fn read_at(&self, location: Location, part: Range<u32>) -> Result<Bytes, ReadError> {
        assert!(
            part.end <= location.len && part.start <= part.end,
            "{part:?} of a payload of {} bytes",
            location.len
        );
        if part == (0..location.len) {
            return self.frame_at(location).map(|(_, payload)| payload);
        }
        let (file, pos) = (location.file, location.pos + part.start);
        self.bytes_at(Location { file, pos, len: part.end - part.start })
    }

    /// Bytes of a payload, whatever they are.
    pub(crate) fn part_as_it_is(&self, location: Location, part: Range<u32>) -> Result<Bytes, ReadError> {
        let pos = location.pos + part.start;
        self.bytes_at(Location { file: location.file, pos, len: part.end - part.start })
    }

    /// Bytes of a file as they are.
    fn bytes_at(&self, Location { file, pos, len }: Location) -> Result<Bytes, ReadError> {
        let (handle, path) = self.file(file)?;
        let mut bytes = vec![0; len as usize];
        let read = handle
            .read_at(&mut bytes, u64::from(pos))
            .map_err(|source| ReadError::Io { path: path.clone(), source })?;
        // The file may have been recycled while it was read: then the bytes are another life's.
        self.file(file)?;
        if read != bytes.len() {
            return Err(ReadError::Corrupt { path, pos, what: "the file is shorter than it was" });
        }
        Ok(Bytes::from(bytes))
    }

    /// A handle for reading, and the path.
    pub(crate) fn file(&self, seq: FileSeq) -> Result<(Arc<dyn DiskFile>, PathBuf), ReadError> {
        let found = self.lock().file(seq).map(|file| (Arc::clone(&file.handle), file.path.clone()));
        found.ok_or(ReadError::Recycled { file: seq })
    }

    /// What a recycled file means to somebody who asked for an entry.
    fn purged(&self, stream: StreamId, error: ReadError) -> ReadError {
        match error {
            ReadError::Recycled { .. } => {
                let first = self.lock().streams.get(&stream).map_or(0, |state| state.index.first());
                ReadError::Purged { stream, first }
            }
            other => other,
        }
    }
}

/// The whole frame of the payload at `location`.
fn frame(Location { file, pos, len }: Location) -> Location {
    let lead = u32::try_from(FRAME_HEADER_BYTES).expect("a small constant");
    Location { file, pos: pos - lead, len: len + lead }
}

/// The entry of a plan from its frame, if that holds; in memory of its own.
fn copied(stream: StreamId, plan: &Plan, frame: &[u8]) -> Option<Entry> {
    let Plan::OnDisk(index, _) = *plan else { return None };
    let (header, payload) = (FrameHeader::parse(frame).ok()?, &frame[FRAME_HEADER_BYTES..]);
    header.verify(payload).ok()?;
    let FrameKind::Entry(kind) = header.kind else { return None };
    let payload = Bytes::copy_from_slice(payload);
    let entry = Entry { kind, term: header.at.term, leader: header.at.leader, index, payload };
    ((header.stream, header.at.index) == (stream, index)).then_some(entry)
}

fn known(inner: &Inner, stream: StreamId, index: u64) -> Result<&Stream, ReadError> {
    inner.streams.get(&stream).ok_or(ReadError::BeyondEnd { stream, index, end: 0 })
}

/// # Panics
/// If the sidecar lacks an entry whose row left memory.
fn lookup(inner: &Inner, file: FileSeq, stream: StreamId, range: Range<u64>) -> Lookup {
    let sidecar = inner.file(file).and_then(|file| file.sidecar.as_ref());
    let lookup = sidecar.and_then(|sidecar| sidecar.lookup(file, stream, range.clone()));
    lookup.unwrap_or_else(|| {
        panic!("stream {stream}: {range:?} left memory, and file {file} has no sidecar of it")
    })
}
