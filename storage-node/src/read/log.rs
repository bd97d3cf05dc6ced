//! Batches from the shard's log: from memory, or from the journal.

use std::ops::Range;

use bytes::Bytes;
use weir_journal::{Journal, Location, ReadError, StreamId};
use weir_protocol::batch::Batch;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::LogIndex;
use weir_protocol::rpc::Refusal;

use crate::replica::ShardHandle;
use crate::shard::state::BatchRow;

/// A batch that is a smaller part of its entry than this is read alone.
const PART_OF_ENTRY: u32 = 4;

/// The rows' batches, with nothing stamped: from memory, or all that are not there in one visit to the disk.
///
/// # Errors
/// `corrupt`; `offset_trimmed` if an entry has left the log.
pub async fn from_log(shard: &ShardHandle, rows: &[BatchRow]) -> Result<Vec<Batch>, Refusal> {
    let hot: Vec<Option<Bytes>> = shard.shared.recent(rows);
    let missing: Vec<BatchRow> =
        rows.iter().zip(&hot).filter(|(_, body)| body.is_none()).map(|(row, _)| *row).collect();
    let mut loaded = if missing.is_empty() {
        Vec::new()
    } else {
        let (journal, stream) = (shard.journal.clone(), shard.stream());
        let load = tokio::task::spawn_blocking(move || load(&journal, stream, &missing)).await;
        let (batches, entries) =
            load.map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))??;
        shard.shared.reread(entries);
        batches
    }
    .into_iter();
    let body = |hot: Option<Bytes>| match hot {
        Some(body) => Batch::from_checked(body).map_err(|error| corrupt(&error)),
        None => Ok(loaded.next().expect("one was loaded for each that is not in memory")),
    };
    hot.into_iter().map(body).collect()
}

/// Batches of the log that are read to be put into a pack, once: what is not in memory is read by [`FromLog::load`], on
/// whatever thread may block. Readers find as much in memory after it as before.
pub(crate) struct FromLog {
    journal: Journal,
    stream: StreamId,
    rows: Vec<BatchRow>,
    hot: Vec<Option<Bytes>>,
    /// Where the rows' entries lie, as far as memory knows.
    places: Vec<Option<Location>>,
}

impl FromLog {
    /// What is in memory of the rows' batches, and where the others lie. Found out here, so that a thread
    /// that gives way to all others does not have the journal's lock for each of them: whoever commits would
    /// wait for it.
    pub(crate) fn begin(shard: &ShardHandle, rows: Vec<BatchRow>) -> Self {
        let (journal, stream) = (shard.journal.clone(), shard.stream());
        let hot = shard.shared.recent(&rows);
        let places = journal.locate_in_memory(stream, rows.iter().map(|row| row.index.0));
        Self { journal, stream, rows, hot, places }
    }

    /// The rows' batches, with nothing stamped. They are in memory that others wait for, and should soon be dropped.
    /// Blocking.
    ///
    /// # Errors
    /// As [`from_log`].
    pub(crate) fn load(self) -> Result<Vec<Batch>, Refusal> {
        let Self { journal, stream, rows, hot, places } = self;
        let is_missing = |(_, body): &(_, &Option<Bytes>)| body.is_none();
        let (missing, places): (Vec<BatchRow>, Vec<Option<Location>>) =
            rows.iter().copied().zip(places).zip(&hot).filter(is_missing).map(|(row, _)| row).unzip();
        // Whatever is wrong with it, the usual way tells; and entries that are not written yet are in memory there.
        let loaded = match load_parts(&journal, stream, &missing, &places) {
            Some(batches) => batches,
            None => load(&journal, stream, &missing)?.0,
        };
        let mut loaded = loaded.into_iter();
        let body = |hot: Option<Bytes>| match hot {
            Some(body) => Batch::from_checked(body).map_err(|error| corrupt(&error)),
            None => Ok(loaded.next().expect("one was loaded for each that is not in memory")),
        };
        hot.into_iter().map(body).collect()
    }
}

/// The rows' batches, each verified by its checksum, if all can be read; `places` are those of their entries.
fn load_parts(
    journal: &Journal,
    stream: StreamId,
    rows: &[BatchRow],
    places: &[Option<Location>],
) -> Option<Vec<Batch>> {
    let mut parts: Vec<(Location, Range<u32>)> = Vec::with_capacity(rows.len());
    let mut entry: Option<(LogIndex, Location)> = None;
    for (row, place) in rows.iter().zip(places) {
        let at = match (place, entry) {
            (Some(at), _) => *at,
            (None, Some((index, at))) if index == row.index => at,
            (None, _) => journal.locate(stream, row.index.0).ok()?,
        };
        entry = Some((row.index, at));
        let part = row.pos..row.pos + row.len;
        // Beyond its end if a repair put an empty entry there.
        parts.push((part.end <= at.len).then_some((at, part))?);
    }
    let bodies = journal.read_parts(&parts).ok()?;
    bodies.into_iter().map(|body| Batch::parse(body).ok()).collect()
}

/// One batch of the log, with nothing stamped.
///
/// # Errors
/// As [`from_log`].
pub async fn batch_of(shard: &ShardHandle, row: &BatchRow) -> Result<Batch, Refusal> {
    let batch = from_log(shard, std::slice::from_ref(row)).await?.pop();
    batch.ok_or_else(|| Refusal::new(ErrorCode::Internal, "the batch is not there"))
}

pub(super) fn corrupt(error: &dyn std::fmt::Display) -> Refusal {
    Refusal::new(ErrorCode::Corrupt, error.to_string())
}

/// Batches, and the entries that were read whole for them.
type Loaded = (Vec<Batch>, Vec<(LogIndex, Bytes)>);

/// Reads batches from the journal, each verified by its checksum. Blocking.
fn load(journal: &Journal, stream: StreamId, rows: &[BatchRow]) -> Result<Loaded, Refusal> {
    let mut entries: Vec<(LogIndex, Bytes)> = Vec::new();
    let mut batches = Vec::with_capacity(rows.len());
    for (i, row) in rows.iter().enumerate() {
        let within = row.pos as usize..(row.pos + row.len) as usize;
        let shared = rows.get(i + 1).is_some_and(|next| next.index == row.index);
        let body = match entries.last() {
            Some((index, payload)) if *index == row.index => slice(payload, within)?,
            _ => match read_alone(journal, stream, row, shared) {
                Ok(Some(body)) => body,
                Ok(None) => match read_entry(journal, stream, row.index) {
                    Ok(payload) => {
                        let body = slice(&payload, within)?;
                        entries.push((row.index, payload));
                        body
                    }
                    Err(error) => carried(journal, stream, row, &error)?,
                },
                Err(error) => carried(journal, stream, row, &error)?,
            },
        };
        batches.push(Batch::parse(body).map_err(|error| corrupt(&error))?);
    }
    Ok((batches, entries))
}

/// A part of an entry, unless a repair put an empty one in its place.
fn slice(payload: &Bytes, within: std::ops::Range<usize>) -> Result<Bytes, Refusal> {
    if within.end <= payload.len() {
        return Ok(payload.slice(within));
    }
    Err(corrupt(&"the entry was lost; a repair put an empty one in its place"))
}

/// The batch without the rest of its entry, if that is worth it.
fn read_alone(
    journal: &Journal,
    stream: StreamId,
    row: &BatchRow,
    shared: bool,
) -> Result<Option<Bytes>, ReadError> {
    match journal.locate(stream, row.index.0) {
        Ok(at) if !shared && row.len < at.len / PART_OF_ENTRY => {
            journal.read_at(at, row.pos..row.pos + row.len).map(Some)
        }
        Ok(_) | Err(ReadError::NotWritten { .. }) => Ok(None),
        Err(error) => Err(error),
    }
}

fn read_entry(journal: &Journal, stream: StreamId, index: LogIndex) -> Result<Bytes, ReadError> {
    let entry = journal.read_entries(stream, index.0..index.0 + 1, 0)?.into_iter().next();
    Ok(entry.expect("a read gives at least one entry").payload)
}

/// A batch whose entry has left the log: it was carried, or it is gone. It is carried before the log is purged, so that
/// who finds it in neither comes too late.
fn carried(journal: &Journal, stream: StreamId, row: &BatchRow, error: &ReadError) -> Result<Bytes, Refusal> {
    if !matches!(error, ReadError::Purged { .. } | ReadError::Recycled { .. }) {
        return Err(unreadable(error));
    }
    match journal.read_carried(stream, row.index.0, row.pos..row.pos + row.len) {
        Ok(found) => found.ok_or_else(|| unreadable(error)),
        Err(error) => Err(unreadable(&error)),
    }
}

fn unreadable(error: &ReadError) -> Refusal {
    match error {
        ReadError::Purged { .. } | ReadError::Recycled { .. } => {
            Refusal::new(ErrorCode::OffsetTrimmed, "removed by retention while it was read")
        }
        other => corrupt(other),
    }
}
