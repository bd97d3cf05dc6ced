//! Reads much that is read once, as for packs: past the page cache, into memory that is used again.
//!
//! What was written past the page cache is not in it. Through it such a read costs memory twice, for the cache and for
//! who reads, and reads ahead what nobody wants while commits wait for the disk.

use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use bytes::Bytes;

use crate::config::Backend;
use crate::core::Core;
use crate::disk::{ALIGN, Aligned};
use crate::entry::{FileSeq, Location};
use crate::error::ReadError;
use crate::pool::{PIECE_BYTES, Pool};
use crate::window::Source;

/// Most bytes that are read at once, unless a single part is longer.
const SPAN_BYTES: u32 = (PIECE_BYTES - 2 * ALIGN) as u32;
/// Parts that lie no further apart are read together with what is between them. Further apart they are if no
/// more than half of what is read is nobody's: batches of one partition lie among those of others, whose turn
/// comes later.
const GAP_BYTES: u32 = 8 << 10;

/// Bytes of a file that are read at once.
#[derive(Debug, PartialEq, Eq)]
struct Span {
    file: FileSeq,
    bytes: Range<u32>,
    /// Bytes of its parts.
    wanted: u32,
    /// The parts in it.
    parts: Range<usize>,
}

/// Memory that is being filled, span by span.
#[derive(Debug)]
struct Filling {
    memory: Aligned,
    used: usize,
    /// Where the parts are that are in it.
    parts: Vec<Range<usize>>,
}

impl Filling {
    fn finish(self, pool: &Arc<Pool>) -> impl Iterator<Item = Bytes> {
        let Self { memory, parts, .. } = self;
        let bytes = pool.lend(memory);
        parts.into_iter().map(move |part| bytes.slice(part))
    }
}

impl Span {
    /// Where its first page begins.
    fn pages_start(&self) -> u32 {
        self.bytes.start / ALIGN as u32 * ALIGN as u32
    }

    /// Bytes of its pages.
    fn pages(&self) -> usize {
        ((self.bytes.end - self.pages_start()) as usize).next_multiple_of(ALIGN)
    }
}

/// A file that is read.
struct Reading {
    file: FileSeq,
    path: PathBuf,
    source: Source,
}

impl Core {
    /// See [`crate::Journal::read_parts`].
    ///
    /// The lock is taken a few times for each file, not for each read: who reads for packs gives way to all
    /// others, also while it has the lock, and then whoever commits waits for it.
    pub(crate) fn read_parts(&self, parts: &[(Location, Range<u32>)]) -> Result<Vec<Bytes>, ReadError> {
        let mut found = Vec::with_capacity(parts.len());
        let mut files: Vec<Reading> = Vec::new();
        let mut filling: Option<Filling> = None;
        for span in spans(parts) {
            let reading = self.reading(&mut files, span.file)?;
            if filling.as_ref().is_none_or(|filling| filling.memory.len() - filling.used < span.pages()) {
                found.extend(filling.take().into_iter().flat_map(|filling| filling.finish(&self.pool)));
            }
            let filling = filling.get_or_insert_with(|| Filling {
                memory: self.pool.take(span.pages()),
                used: 0,
                parts: Vec::new(),
            });
            reading.read(&span, filling)?;
            let start = span.pages_start();
            let at = |pos: u32| filling.used + (pos - start) as usize;
            let places = parts[span.parts.clone()].iter().map(place).map(|part| at(part.start)..at(part.end));
            filling.parts.extend(places);
            filling.used += span.pages();
        }
        found.extend(filling.into_iter().flat_map(|filling| filling.finish(&self.pool)));
        // Behind the reads: what was read of a file that is gone by now may be of its next life.
        files.into_iter().try_for_each(|reading| self.file(reading.file).map(drop))?;
        Ok(found)
    }

    /// The file, which is opened once: there are no more than the journal has.
    fn reading<'a>(&self, files: &'a mut Vec<Reading>, file: FileSeq) -> Result<&'a Reading, ReadError> {
        if let Some(at) = files.iter().position(|reading| reading.file == file) {
            return Ok(&files[at]);
        }
        let (handle, path) = self.file(file)?;
        let source = match self.config.backend {
            Backend::Direct => Source::past_cache(&*self.disk, &path, handle),
            // What it wrote is in the cache.
            Backend::Auto | Backend::Pwrite => Source::new(handle),
        };
        files.push(Reading { file, path, source });
        Ok(files.last().expect("it was just pushed"))
    }
}

impl Reading {
    fn read(&self, span: &Span, filling: &mut Filling) -> Result<(), ReadError> {
        let memory = &mut filling.memory[filling.used..filling.used + span.pages()];
        let path = || self.path.clone();
        let read = self.source.read(memory, span.pages_start());
        let read = read.map_err(|source| ReadError::Io { path: path(), source })?;
        if read < (span.bytes.end - span.pages_start()) as usize {
            let what = "the file is shorter than it was";
            return Err(ReadError::Corrupt { path: path(), pos: span.bytes.start, what });
        }
        Ok(())
    }
}

/// Where a part lies in its file.
fn place((at, part): &(Location, Range<u32>)) -> Range<u32> {
    assert!(part.start <= part.end && part.end <= at.len, "{part:?} of a payload of {} bytes", at.len);
    at.pos + part.start..at.pos + part.end
}

/// The parts in spans, each of neighbours in one file that come in its order.
fn spans(parts: &[(Location, Range<u32>)]) -> Vec<Span> {
    let mut spans: Vec<Span> = Vec::new();
    for (number, part) in parts.iter().enumerate() {
        let (file, place) = (part.0.file, place(part));
        let part_bytes = place.end - place.start;
        let joins = |span: &&mut Span| {
            let (gap, all) =
                (place.start.checked_sub(span.bytes.end), place.end.saturating_sub(span.bytes.start));
            let is_near = gap.is_some_and(|gap| gap <= GAP_BYTES || all / 2 <= span.wanted + part_bytes);
            span.file == file && is_near && all <= SPAN_BYTES
        };
        match spans.last_mut().filter(joins) {
            Some(span) => {
                (span.bytes.end, span.parts.end) = (place.end, number + 1);
                span.wanted += part_bytes;
            }
            None => {
                spans.push(Span { file, bytes: place, wanted: part_bytes, parts: number..number + 1 });
            }
        }
    }
    spans
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn neighbours_are_read_together_and_no_more_than_a_span() {
        let at = |file, pos, len| (Location { file: FileSeq(file), pos, len }, 0..len);
        let parts = [
            at(1, 5_000, 100),
            at(1, 5_200, 60_000),
            // As much is wanted as is not.
            at(1, 120_000, 1),
            // Too far behind.
            at(1, 140_000, 1),
            // In front of it, and some near it.
            at(1, 90_000, 1),
            at(1, 90_001 + GAP_BYTES, 0),
            at(1, 90_002 + 2 * GAP_BYTES, 0),
            // Another file.
            at(2, 90_001, SPAN_BYTES),
            // With it the span would be too long, and the last is longer than one.
            at(2, 90_001 + SPAN_BYTES, 2 * SPAN_BYTES),
        ];
        let found: Vec<_> =
            spans(&parts).into_iter().map(|span| (span.file.0, span.bytes, span.parts)).collect();
        let second = 90_001 + SPAN_BYTES;
        let expected = [
            (1, 5_000..120_001, 0..3),
            (1, 140_000..140_001, 3..4),
            (1, 90_000..90_001 + GAP_BYTES, 4..6),
            (1, 90_002 + 2 * GAP_BYTES..90_002 + 2 * GAP_BYTES, 6..7),
            (2, 90_001..second, 7..8),
            (2, second..second + 2 * SPAN_BYTES, 8..9),
        ];
        assert_eq!(found, expected);
    }
}
