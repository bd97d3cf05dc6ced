//! The records of leases.

use bytes::Bytes;
use weir_protocol::batch::{Batch, Headers};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Offset, TimestampMs};
use weir_protocol::rpc::{Refusal, Slice};

use crate::read::{Allowance, Reader};
use crate::shard::state::BatchRow;

/// Records that were read.
#[derive(Default)]
pub(super) struct Found {
    /// Where they are: each slice with its two payload segments.
    pub(super) slices: Vec<(Slice, [Bytes; 2])>,
    /// In the order of their offsets.
    pub(super) records: Vec<FoundRecord>,
}

/// What a record says about its delivery.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundRecord {
    pub(super) offset: Offset,
    pub(super) deliver_at: Option<TimestampMs>,
    pub(super) expires_at: Option<TimestampMs>,
}

/// Reads the records at `offsets`, which ascend, until `max_bytes` are collected; one is always read.
pub(super) async fn find(
    reader: &Reader,
    offsets: impl IntoIterator<Item = Offset>,
    max_bytes: u64,
    topic_ttl_ms: Option<u64>,
) -> Result<Found, Refusal> {
    let (mut found, mut bytes) = (Found::default(), 0);
    for run in runs(offsets) {
        let mut from = run.start;
        while from < run.end {
            if bytes >= max_bytes {
                return Ok(found);
            }
            let allowance = Allowance { records: run.end.0 - from.0, bytes: max_bytes - bytes };
            let read = reader.read(from, run.end, allowance).await?;
            if read.records == 0 {
                return Ok(found);
            }
            let payload = read.payload.chunks_exact(2);
            for ((slice, (row, batch)), payload) in read.slices.iter().zip(&read.batches).zip(payload) {
                found.look_into(*slice, row, batch, topic_ttl_ms)?;
                found.slices.push((*slice, [payload[0].clone(), payload[1].clone()]));
            }
            bytes += read.bytes;
            from = read.next;
        }
    }
    Ok(found)
}

/// Consecutive offsets as ranges.
fn runs(offsets: impl IntoIterator<Item = Offset>) -> Vec<std::ops::Range<Offset>> {
    let mut runs: Vec<std::ops::Range<Offset>> = Vec::new();
    for offset in offsets {
        match runs.last_mut().filter(|run| run.end == offset) {
            Some(run) => run.end = offset.plus(1),
            None => runs.push(offset..offset.plus(1)),
        }
    }
    runs
}

impl Found {
    fn look_into(
        &mut self,
        slice: Slice,
        row: &BatchRow,
        batch: &Batch,
        topic_ttl_ms: Option<u64>,
    ) -> Result<(), Refusal> {
        let corrupt = |error: &dyn std::fmt::Display| Refusal::new(ErrorCode::Corrupt, error.to_string());
        let skip = usize::try_from(slice.first - row.base_offset.0).expect("a slice lies in its batch");
        let records = batch.records().map_err(|error| corrupt(&error))?.skip(skip).take(slice.take as usize);
        for (offset, record) in (slice.first..).zip(records) {
            let headers = record.map_err(|error| corrupt(&error))?.headers;
            self.records.push(FoundRecord {
                offset: Offset(offset),
                deliver_at: headers.deliver_at(),
                expires_at: expires_at(&headers, row.ts, topic_ttl_ms),
            });
        }
        Ok(())
    }
}

/// When the time to live of a record is over that was accepted at `ts`.
pub(super) fn expires_at(
    headers: &Headers,
    ts: TimestampMs,
    topic_ttl_ms: Option<u64>,
) -> Option<TimestampMs> {
    let ttl_ms = headers.ttl_ms().or(topic_ttl_ms)?;
    Some(TimestampMs(ts.0.saturating_add(ttl_ms)))
}
