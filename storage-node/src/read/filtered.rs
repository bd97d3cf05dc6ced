//! Reading only what a filter lets through. What it does not is looked at here and goes nowhere.

use std::ops::Range;
use std::time::Instant;

use weir_protocol::batch::Batch;
use weir_protocol::error::ErrorCode;
use weir_protocol::filter::Filter;
use weir_protocol::ids::{Offset, PartitionId};
use weir_protocol::rpc::{Refusal, Slice};

use super::allowance::Allowance;
use super::log::corrupt;
use super::reader::{ReadBatches, Reader};
use crate::shard::state::BatchRow;

/// What one step looks at: then others have their turn.
pub(super) const STEP: Allowance = Allowance { records: 1_024, bytes: 1 << 20 };

/// What was looked at, and what is meant of it.
#[derive(Debug, Default)]
pub struct Filtered {
    /// What matches; `next` is where to look on.
    pub read: ReadBatches,
    /// Looked at: records …
    pub records: u64,
    /// … and their encoded bytes.
    pub bytes: u64,
}

/// Reads a reader's filter.
///
/// # Errors
/// `invalid_parameter`.
pub fn parse(filter: Option<&str>) -> Result<Option<Filter>, Refusal> {
    let parsed = filter.map(Filter::parse).transpose();
    parsed.map_err(|error| Refusal::new(ErrorCode::InvalidParameter, format!("filter: {error}")))
}

impl Reader {
    /// One step of looking from `from` on: what matches, within the allowance, which must not be used up. At least one
    /// record is looked at if there is one.
    ///
    /// # Errors
    /// As for [`Reader::read`].
    ///
    /// # Cancel safety
    /// Nothing is changed.
    pub async fn read_filtered(
        &self,
        filter: &Filter,
        (from, until): (Offset, Offset),
        allowance: Allowance,
    ) -> Result<Filtered, Refusal> {
        let looked = self.look(from, until, STEP).await?;
        let found = self.sift(filter, looked, allowance)?;
        let given = Allowance { records: found.read.records, bytes: found.read.bytes };
        self.sequence.lock().gave(given);
        // Nothing here waits where the log is in memory, and a reader may look at much of it.
        tokio::task::yield_now().await;
        Ok(found)
    }

    /// What matches of what was read, within the allowance.
    pub(super) fn sift(
        &self,
        filter: &Filter,
        looked: ReadBatches,
        allowance: Allowance,
    ) -> Result<Filtered, Refusal> {
        let found = sift(self.key.1, filter, looked, allowance)?;
        let metrics = self.shard.shared.metrics();
        metrics.filtered_out(found.records - found.read.records);
        self.shard.shared.delivered(self.key, found.read.records, found.read.bytes, Instant::now());
        Ok(found)
    }
}

/// Of each batch the runs of records that match, as batches of their own; a batch that matches as a whole
/// stays as it is.
fn sift(
    partition: PartitionId,
    filter: &Filter,
    looked: ReadBatches,
    allowance: Allowance,
) -> Result<Filtered, Refusal> {
    let mut found = Filtered::default();
    found.read.next = looked.next;
    for (slice, (row, batch)) in looked.slices.iter().zip(&looked.batches) {
        let left = Allowance {
            records: allowance.records.saturating_sub(found.read.records),
            bytes: allowance.bytes.saturating_sub(found.read.bytes),
        };
        let (runs, cut) = found.runs(filter, *slice, (row, batch), left)?;
        if !runs.is_empty() {
            let parts = batch.parts_of(&runs).map_err(|error| corrupt(&error))?;
            for (run, part) in runs.iter().zip(parts) {
                found.add(partition, row, run.start, &part);
            }
        }
        if let Some(next) = cut {
            found.read.next = next;
            break;
        }
    }
    Ok(found)
}

impl Filtered {
    /// Places in the batch of what matches in `slice`. Once what is left is used up, also where to look on.
    fn runs(
        &mut self,
        filter: &Filter,
        slice: Slice,
        (row, batch): (&BatchRow, &Batch),
        left: Allowance,
    ) -> Result<(Vec<Range<u32>>, Option<Offset>), Refusal> {
        let (mut runs, mut found, mut bytes): (Vec<Range<u32>>, _, _) = (Vec::new(), 0, 0);
        let skip = u32::try_from(slice.first - row.base_offset.0).expect("a slice lies in its batch");
        let records = batch.records().map_err(|error| corrupt(&error))?;
        for (place, record) in (0..skip + slice.take).zip(records).skip(skip as usize) {
            let record = record.map_err(|error| corrupt(&error))?;
            self.records += 1;
            self.bytes += record.size as u64;
            if !filter.matches(record.key.as_deref(), &record.headers) {
                continue;
            }
            match runs.last_mut().filter(|run| run.end == place) {
                Some(run) => run.end += 1,
                None => runs.push(place..place + 1),
            }
            (found, bytes) = (found + 1, bytes + record.size as u64);
            if found >= left.records || bytes >= left.bytes {
                return Ok((runs, Some(row.base_offset.plus(u64::from(place) + 1))));
            }
        }
        Ok((runs, None))
    }

    /// Adds a part of a batch that begins at a place in it. What it costs is its own size, which whoever gets
    /// it counts: in a batch of their own, records may be some bytes shorter.
    fn add(&mut self, partition: PartitionId, row: &BatchRow, place: u32, part: &Batch) {
        let (first, header) = (row.base_offset.plus(place.into()), part.header());
        self.read.slices.push(Slice {
            first: first.0,
            take: header.count,
            batch_bytes: u32::try_from(part.bytes().len()).expect("no longer than its batch"),
        });
        self.read.payload.extend(part.placed(first, row.ts, partition));
        self.read.records += u64::from(header.count);
        self.read.bytes += u64::from(header.raw_bytes);
    }
}
