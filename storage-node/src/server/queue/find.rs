//! The records of leases.

use std::ops::Range;

use bytes::Bytes;
use weir_protocol::batch::{Batch, Headers};
use weir_protocol::error::ErrorCode;
use weir_protocol::frame::BODY_BYTES_MAX;
use weir_protocol::ids::{Offset, TimestampMs};
use weir_protocol::limits::BATCH_BYTES_MAX;
use weir_protocol::rpc::{Refusal, Slice};

use crate::read::{Allowance, ReadBatches, Reader};
use crate::shard::state::BatchRow;

/// Bytes of batches that one answer carries at most, but for a single larger one: with room to spare in a frame.
const PAYLOAD_BYTES_MAX: usize = 3_500 << 10;

const _: () = assert!(PAYLOAD_BYTES_MAX + (256 << 10) < BODY_BYTES_MAX, "a frame holds an answer");
const _: () = assert!(BATCH_BYTES_MAX + (256 << 10) < BODY_BYTES_MAX, "a frame holds the largest batch");

/// Records that were read.
#[derive(Default)]
pub(super) struct Found {
    /// Encoded bytes of the records.
    pub(super) bytes: u64,
    payload_bytes: usize,
    /// Where the last slice's batch begins, and its records: a part of one that came apart may begin where it does.
    last_batch: Option<(Offset, u32)>,
    /// Where they are: each slice with its two payload segments.
    pub(super) slices: Vec<(Slice, [Bytes; 2])>,
    /// In the order of their offsets.
    pub(super) records: Vec<FoundRecord>,
    /// Offsets that were asked for and have no record any more, because compaction dropped it; in order.
    pub(super) holes: Vec<Range<Offset>>,
}

/// What a record says about its delivery.
#[derive(Debug, Clone, Copy)]
pub(super) struct FoundRecord {
    pub(super) offset: Offset,
    pub(super) deliver_at: Option<TimestampMs>,
    pub(super) expires_at: Option<TimestampMs>,
}

/// Reads the records at `offsets`, which ascend, until `max_bytes` are collected; one is always read if there is one.
pub(super) async fn find(
    reader: &Reader,
    offsets: impl IntoIterator<Item = Offset>,
    max_bytes: u64,
    topic_ttl_ms: Option<u64>,
) -> Result<Found, Refusal> {
    let mut found = Found::default();
    for run in runs(offsets) {
        let mut from = run.start;
        while from < run.end {
            if found.bytes >= max_bytes {
                return Ok(found);
            }
            let allowance = Allowance { records: run.end.0 - from.0, bytes: max_bytes - found.bytes };
            let read = match reader.read_returning(from, run.end, allowance) {
                Some(read) => read,
                None => reader.read(from, run.end, allowance).await?,
            };
            if read.next == from || !found.add(&read, topic_ttl_ms)? {
                return Ok(found);
            }
            found.holes.extend(read.holes(from));
            found.bytes += read.bytes;
            from = read.next;
        }
    }
    Ok(found)
}

/// Consecutive offsets as ranges.
fn runs(offsets: impl IntoIterator<Item = Offset>) -> Vec<Range<Offset>> {
    let mut runs: Vec<Range<Offset>> = Vec::new();
    for offset in offsets {
        match runs.last_mut().filter(|run| run.end == offset) {
            Some(run) => run.end = offset.plus(1),
            None => runs.push(offset..offset.plus(1)),
        }
    }
    runs
}

impl Found {
    /// Whether the record at an offset that was asked for was dropped.
    pub(super) fn is_hole(&self, offset: Offset) -> bool {
        let at = self.holes.partition_point(|hole| hole.end <= offset);
        self.holes.get(at).is_some_and(|hole| hole.contains(&offset))
    }

    /// Adds what was read; false if an answer cannot hold all of it. A batch of which records apart from each other are
    /// meant is there once.
    fn add(&mut self, read: &ReadBatches, topic_ttl_ms: Option<u64>) -> Result<bool, Refusal> {
        let payload = read.payload.chunks_exact(2);
        for ((slice, (row, batch)), payload) in read.slices.iter().zip(&read.batches).zip(payload) {
            match self.slices.last_mut() {
                Some((last, _)) if self.last_batch == Some((row.base_offset, row.count)) => {
                    last.take = u32::try_from(slice.first + u64::from(slice.take) - last.first)
                        .expect("a batch's records are counted in 32 bits");
                }
                _ => {
                    let payload_bytes = payload[0].len() + payload[1].len();
                    if !self.slices.is_empty() && self.payload_bytes + payload_bytes > PAYLOAD_BYTES_MAX {
                        return Ok(false);
                    }
                    self.payload_bytes += payload_bytes;
                    self.last_batch = Some((row.base_offset, row.count));
                    self.slices.push((*slice, [payload[0].clone(), payload[1].clone()]));
                }
            }
            self.look_into(*slice, row, batch, topic_ttl_ms)?;
        }
        Ok(true)
    }

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
