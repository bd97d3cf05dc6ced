//! Which partition, which batches. Pure.

use std::borrow::Cow;
use std::collections::BTreeMap;
use std::ops::Range;

use weir_protocol::batch::{Batch, BatchBuilder, BatchError, BatchHeader, Compression, Headers, RecordParts};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Epoch, PartitionId, ProducerKey, Seq, TimestampMs};
use weir_protocol::limits::{
    ATOMIC_BATCH_BYTES_MAX, BATCH_RECORDS_MAX, BATCHES_DECODED_BYTES_MAX, HTTP_BATCH_RECORDS_MAX,
    INTEGER_MAX, KEY_BYTES_MAX, RECORD_HEADERS_BYTES_MAX, RECORD_HEADERS_MAX, SUB_BATCH_BYTES_TARGET,
};
use weir_protocol::slots::partition_of;
use weir_protocol::ws::{ContentError, payload_of};

use super::config::PublishConfig;
use super::delivery;
use super::request::{Content, NewRecord, Unnamed};
use crate::service::ServiceError;

/// Bytes of a record beside key, headers and value, at most: lengths, deltas and attributes.
const RECORD_OVERHEAD_BYTES: usize = 32;

/// One batch and the places of its records in the request.
#[derive(Debug, Clone, PartialEq)]
pub(super) struct Part {
    pub(super) partition: PartitionId,
    pub(super) batch: Batch,
    pub(super) records: Vec<Range<u32>>,
}

/// The producer as the node knows it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct ProducerAt {
    pub(super) key: ProducerKey,
    /// What a client makes of its id and the topic's life: another after a restore.
    pub(super) named: ProducerKey,
    pub(super) epoch: Epoch,
    pub(super) seq: Seq,
}

/// Where records go, and when that is.
#[derive(Debug, Clone, Copy)]
pub(super) struct Placing {
    /// Partitions of the topic.
    pub(super) partitions: u32,
    /// Where records without a key go.
    pub(super) keyless: PartitionId,
    /// Every record must go to `keyless`: the client named the partition.
    pub(super) is_fixed: bool,
    pub(super) producer: Option<ProducerAt>,
    pub(super) atomic: bool,
    /// What times of delivery are measured from.
    pub(super) now: TimestampMs,
}

impl Placing {
    fn partition(&self, key: Option<&[u8]>) -> Result<PartitionId, ServiceError> {
        let Some(key) = key else { return Ok(self.keyless) };
        let partition =
            if self.partitions == 1 { PartitionId(0) } else { partition_of(key, self.partitions) };
        if self.is_fixed && partition != self.keyless {
            let detail = format!("the key belongs to partition {partition}, the tag names {}", self.keyless);
            return Err(ServiceError::new(ErrorCode::InvalidHeader, detail).with_field("message-key"));
        }
        Ok(partition)
    }
}

/// Puts a request into batches. Batches of one partition keep the order of its records.
///
/// `content_type` is the topic's, for records whose senders named none.
///
/// # Errors
/// The whole request is refused for one record that is too large or malformed, or that asks for a number or a
/// delivery beyond the limits; nothing was sent.
pub(super) fn plan(
    content: &Content,
    content_type: Option<&str>,
    placing: Placing,
    config: &PublishConfig,
) -> Result<Vec<Part>, ServiceError> {
    if let Some(producer) = placing.producer {
        check_seq(producer.seq, 1)?;
    }
    let parts = match content {
        Content::Records(records) => {
            let mut planner = Planner::new(placing, *config);
            for record in records {
                match content_type.zip(record.unnamed) {
                    None => planner.push(record)?,
                    Some((content_type, unnamed)) => {
                        let named = named(record, unnamed, content_type, planner.count)?;
                        planner.push(&named)?;
                    }
                }
            }
            planner.finish()?
        }
        Content::Batches(batches) => plan_batches(batches, placing, config)?,
    };
    for header in parts.iter().map(|part| part.batch.header()).filter(|header| !header.producer.is_none()) {
        check_seq(header.base_seq, header.count)?;
    }
    Ok(parts)
}

/// Refuses sequence numbers that could not be told as JSON numbers. What is added to others cannot overflow.
fn check_seq(first: Seq, count: u32) -> Result<(), ServiceError> {
    let last = first.0.saturating_add(u64::from(count) - 1);
    if last <= INTEGER_MAX {
        return Ok(());
    }
    let detail = format!("sequence number {last} exceeds {INTEGER_MAX}");
    Err(ServiceError::new(ErrorCode::Malformed, detail).with_field("seq").with_limit(INTEGER_MAX))
}

/// The record with its topic's content type. A JSON value keeps its own where that type is neither JSON nor text.
fn named(
    record: &NewRecord,
    unnamed: Unnamed,
    content_type: &str,
    index: u32,
) -> Result<NewRecord, ServiceError> {
    let value = match unnamed {
        Unnamed::Bytes => record.value.clone(),
        Unnamed::Json => {
            // Whoever made it of JSON made it of text.
            let json = std::str::from_utf8(&record.value).unwrap_or_default();
            match payload_of(json, content_type) {
                Ok(Cow::Borrowed(_)) => record.value.clone(),
                Ok(Cow::Owned(text)) => text.into(),
                Err(ContentError::ContentType) => return Ok(record.clone()),
                Err(error) => {
                    let detail =
                        format!("message {index}: the topic's content type is {content_type}: {error}");
                    return Err(ServiceError::new(ErrorCode::Malformed, detail).with_field("data"));
                }
            }
        }
    };
    let headers = record.headers.with_content_type(content_type);
    Ok(NewRecord { key: record.key.clone(), headers, value, unnamed: None })
}

struct OpenBatch {
    builder: BatchBuilder,
    records: Vec<Range<u32>>,
    next_seq: u64,
}

struct Planner {
    placing: Placing,
    config: PublishConfig,
    open: BTreeMap<PartitionId, OpenBatch>,
    parts: Vec<Part>,
    /// Records so far.
    count: u32,
}

impl Planner {
    fn new(placing: Placing, config: PublishConfig) -> Self {
        Self { placing, config, open: BTreeMap::new(), parts: Vec::new(), count: 0 }
    }

    fn push(&mut self, record: &NewRecord) -> Result<(), ServiceError> {
        let index = self.count;
        if index == HTTP_BATCH_RECORDS_MAX {
            return Err(too_large("records", format!("more than {index} records"), u64::from(index)));
        }
        check_sizes(record.key.as_deref(), &record.value, &self.config)?;
        delivery::check(&record.headers, self.placing.now).map_err(|(field, why)| {
            let detail = format!("message {index}: {field}: {why}");
            ServiceError::new(ErrorCode::Malformed, detail).with_field(field)
        })?;
        let partition = self.placing.partition(record.key.as_deref())?;
        let seq = self.placing.producer.map_or(0, |producer| producer.seq.0) + u64::from(index);
        let room =
            record.key.as_ref().map_or(0, bytes::Bytes::len) + record.value.len() + RECORD_OVERHEAD_BYTES;
        if let Some(open) = self.open.get(&partition)
            && self.must_close(open, seq, room)?
            && let Some(open) = self.open.remove(&partition)
        {
            self.close(partition, open)?;
        }
        let producer = self.placing.producer;
        let open = self.open.entry(partition).or_insert_with(|| {
            let none =
                ProducerAt { key: ProducerKey::NONE, named: ProducerKey::NONE, epoch: Epoch(0), seq: Seq(0) };
            let base = producer.map_or(none, |producer| ProducerAt { seq: Seq(seq), ..producer });
            let builder = BatchBuilder::new(base.key, base.epoch, base.seq);
            OpenBatch { builder, records: Vec::new(), next_seq: seq }
        });
        let parts =
            RecordParts { key: record.key.as_deref(), headers: &record.headers, value: &record.value };
        open.builder.push(parts).map_err(|error| bad_record(index, &record.headers, &error))?;
        open.next_seq = seq + 1;
        match open.records.last_mut() {
            Some(last) if last.end == index => last.end += 1,
            _ => open.records.push(index..index + 1),
        }
        self.count += 1;
        Ok(())
    }

    /// Whether the next record needs a batch of its own.
    fn must_close(&self, open: &OpenBatch, seq: u64, room: usize) -> Result<bool, ServiceError> {
        let skips = self.placing.producer.is_some() && open.next_seq != seq;
        let bytes = open.builder.size() + room;
        let is_full = open.builder.count() == BATCH_RECORDS_MAX;
        if !self.placing.atomic {
            return Ok(skips || is_full || bytes > SUB_BATCH_BYTES_TARGET);
        }
        if skips {
            let detail = "an atomic batch of a producer cannot be divided over partitions";
            return Err(ServiceError::new(ErrorCode::NotSupported, detail));
        }
        if is_full || bytes > ATOMIC_BATCH_BYTES_MAX {
            let limit = ATOMIC_BATCH_BYTES_MAX as u64;
            return Err(too_large("atomic", format!("an atomic batch exceeds {limit} bytes"), limit));
        }
        Ok(false)
    }

    fn close(&mut self, partition: PartitionId, open: OpenBatch) -> Result<(), ServiceError> {
        let batch = open.builder.build(self.config.compression).map_err(|error| bad_batch(&error))?;
        self.parts.push(Part { partition, batch, records: open.records });
        Ok(())
    }

    fn finish(mut self) -> Result<Vec<Part>, ServiceError> {
        if self.count == 0 {
            return Err(ServiceError::new(ErrorCode::Malformed, "there is no record in the request"));
        }
        for (partition, open) in std::mem::take(&mut self.open) {
            self.close(partition, open)?;
        }
        Ok(self.parts)
    }
}

fn plan_batches(
    batches: &[Batch],
    placing: Placing,
    config: &PublishConfig,
) -> Result<Vec<Part>, ServiceError> {
    if batches.is_empty() {
        return Err(ServiceError::new(ErrorCode::Malformed, "there is no record batch in the request"));
    }
    let decoded: usize = batches.iter().map(|batch| batch.header().raw_bytes as usize).sum();
    if decoded > BATCHES_DECODED_BYTES_MAX {
        let detail = format!("the batches come to {decoded} bytes when they are decoded");
        return Err(too_large("data", detail, BATCHES_DECODED_BYTES_MAX as u64));
    }
    if placing.atomic && (batches.len() > 1 || placing.partitions > 1) {
        // Several batches, or one that may have to be divided: built anew, one per partition.
        return rebuild(batches, placing, config, 0);
    }
    let (mut parts, mut index) = (Vec::with_capacity(batches.len()), 0u32);
    for batch in batches {
        let header = batch.header();
        let placing = Placing {
            keyless: keyless_of(&header, &placing),
            producer: placing
                .producer
                .map(|producer| ProducerAt { seq: Seq(producer.seq.0 + u64::from(index)), ..producer }),
            ..placing
        };
        match one_partition(batch, &placing, config)? {
            Some(partition) => {
                let batch = with_producer(batch, placing.producer)?;
                let records = std::iter::once(index..index + header.count).collect();
                parts.push(Part { partition, batch, records });
            }
            None => parts.extend(rebuild(std::slice::from_ref(batch), placing, config, index)?),
        }
        index = index.saturating_add(header.count);
        if index > HTTP_BATCH_RECORDS_MAX {
            let limit = u64::from(HTTP_BATCH_RECORDS_MAX);
            return Err(too_large("records", format!("more than {limit} records"), limit));
        }
    }
    Ok(parts)
}

/// Where records without a key go. Whoever names a producer in the batch alone may repeat it, and a partition
/// knows only what it had itself.
fn keyless_of(header: &BatchHeader, placing: &Placing) -> PartitionId {
    let is_own = placing.producer.is_none() && !header.producer.is_none();
    if is_own && !placing.is_fixed && placing.partitions > 1 {
        partition_of(&header.producer.0.to_le_bytes(), placing.partitions)
    } else {
        placing.keyless
    }
}

/// Checks every record; the partition of all of them, or `None` if they belong to several.
fn one_partition(
    batch: &Batch,
    placing: &Placing,
    config: &PublishConfig,
) -> Result<Option<PartitionId>, ServiceError> {
    check_records(batch, placing.now)?;
    let all_fit = batch.header().raw_bytes as usize <= config.record_bytes_max;
    if placing.partitions == 1 && all_fit {
        return Ok(Some(PartitionId(0)));
    }
    let (mut found, mut is_mixed) = (None, false);
    for record in batch.records().map_err(|error| bad_batch(&error))? {
        let record = record.map_err(|error| bad_batch(&error))?;
        check_sizes(record.key.as_deref(), &record.value, config)?;
        let partition = placing.partition(record.key.as_deref())?;
        is_mixed |= found.is_some_and(|found| found != partition);
        found = Some(partition);
    }
    Ok(found.filter(|_| !is_mixed))
}

/// Checks what is to be checked of records that are not looked into one by one.
fn check_records(batch: &Batch, now: TimestampMs) -> Result<(), ServiceError> {
    let mut bad_field = None;
    let admitted = batch.validate_records_if(|which, value| {
        delivery::check_header(which, value, now).map_err(|(field, why)| {
            bad_field = Some(field);
            why
        })
    });
    admitted.map_err(|error| match bad_field {
        Some(field) => bad_batch(&error).with_field(field),
        None => bad_batch(&error),
    })
}

/// Takes records out of batches and puts them into others, by partition.
fn rebuild(
    batches: &[Batch],
    placing: Placing,
    config: &PublishConfig,
    first: u32,
) -> Result<Vec<Part>, ServiceError> {
    let mut planner = Planner::new(placing, PublishConfig { compression: Compression::Auto, ..*config });
    for batch in batches {
        if placing.producer.is_none() && !batch.header().producer.is_none() {
            let detail = "a batch with a producer of its own cannot be divided over partitions";
            return Err(ServiceError::new(ErrorCode::NotSupported, detail));
        }
        check_records(batch, placing.now)?;
        for record in batch.records().map_err(|error| bad_batch(&error))? {
            let record = record.map_err(|error| bad_batch(&error))?;
            let (key, headers, value) = (record.key, record.headers, record.value);
            planner.push(&NewRecord { key, headers, value, unnamed: None })?;
        }
    }
    let mut parts = planner.finish()?;
    for range in parts.iter_mut().flat_map(|part| &mut part.records) {
        *range = range.start + first..range.end + first;
    }
    Ok(parts)
}

/// The batch as its producer's: as it is if it says so itself, stamped if it names none.
fn with_producer(batch: &Batch, producer: Option<ProducerAt>) -> Result<Batch, ServiceError> {
    let (header, batch) = (batch.header(), batch.unplaced());
    let Some(producer) = producer else { return Ok(batch) };
    let is_renamed = header.producer == producer.named
        && producer.named != producer.key
        && (header.epoch, header.base_seq) == (producer.epoch, producer.seq);
    if header.producer.is_none() || is_renamed {
        return Ok(batch.with_producer(producer.key, producer.epoch, producer.seq));
    }
    if (header.producer, header.epoch, header.base_seq) == (producer.key, producer.epoch, producer.seq) {
        return Ok(batch);
    }
    let detail = format!(
        "the batch is of another producer, epoch or sequence number: it says epoch {} seq {}, expected {} and {}",
        header.epoch, header.base_seq, producer.epoch, producer.seq
    );
    Err(ServiceError::new(ErrorCode::InvalidBatch, detail))
}

fn check_sizes(key: Option<&[u8]>, value: &[u8], config: &PublishConfig) -> Result<(), ServiceError> {
    if value.len() > config.record_bytes_max {
        let limit = config.record_bytes_max as u64;
        return Err(too_large("data", format!("a payload of {} bytes exceeds {limit}", value.len()), limit));
    }
    match key {
        Some(key) if key.len() > KEY_BYTES_MAX => {
            let limit = KEY_BYTES_MAX as u64;
            Err(too_large("key", format!("a key of {} bytes exceeds {limit}", key.len()), limit))
        }
        _ => Ok(()),
    }
}

fn too_large(field: &'static str, detail: String, limit: u64) -> ServiceError {
    ServiceError::new(ErrorCode::TooLarge, detail).with_field(field).with_limit(limit)
}

/// A record that the batch layout has no room for.
fn bad_record(index: u32, headers: &Headers, error: &BatchError) -> ServiceError {
    let (count, bytes) = (headers.user().count(), headers.size());
    for (is, max, unit) in
        [(count, RECORD_HEADERS_MAX, "headers"), (bytes, RECORD_HEADERS_BYTES_MAX, "bytes of headers")]
    {
        if is > max {
            let detail = format!("message {index}: {is} {unit}; {max} are allowed");
            return too_large("headers", detail, max as u64);
        }
    }
    let code = match error {
        BatchError::TooLarge(_) | BatchError::Count(_) => ErrorCode::TooLarge,
        _ => ErrorCode::Malformed,
    };
    ServiceError::new(code, format!("message {index}: {error}"))
}

/// Not a record batch.
fn bad_batch(error: &BatchError) -> ServiceError {
    let code = match error {
        BatchError::TooLarge(_) | BatchError::Count(_) => ErrorCode::TooLarge,
        _ => ErrorCode::InvalidBatch,
    };
    ServiceError::new(code, error.to_string())
}

#[cfg(test)]
mod tests;
