//! Reading messages, once.

use std::collections::BTreeMap;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::{CACHE_CONTROL, CONTENT_ENCODING, CONTENT_TYPE, ETAG};
use http::{HeaderName, HeaderValue, StatusCode};
use weir_protocol::batch::{Batch, Record as Stored, Reserved};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{PartitionId, ShardId};
use weir_protocol::rpc::{At, Method, Packet, Position, ReadAnswer, ReadRequest, Slice, TopicDescription};

use super::dispatch::{Call, json, refused};
use super::topics;
use crate::api::{Next, Problem, ReadPage, Record};

const LIMIT_DEFAULT: u64 = 100;
const BYTES_DEFAULT: u64 = 1 << 20;

/// A position as clients write it.
pub(super) fn position(text: &str) -> Result<Position, Problem> {
    let invalid = || {
        let grammar = "earliest, latest, an offset, ts:<RFC 3339 or milliseconds> or tail:<messages>";
        Problem::invalid_parameter("from", format!("{text:?} is not {grammar}"))
    };
    let number = |text: &str| text.parse::<u64>().map_err(|_| invalid());
    let at = match text.split_once(':') {
        Some(("tail", count)) => At::Tail(number(count)?),
        Some(("ts", ms)) if ms.bytes().all(|b| b.is_ascii_digit()) && !ms.is_empty() => {
            At::TimestampMs(number(ms)?)
        }
        Some(("ts", time)) => At::TimestampMs(milliseconds(time).ok_or_else(invalid)?),
        Some(_) => return Err(invalid()),
        None if text == "earliest" => At::Earliest(true),
        None if text == "latest" => At::Latest(true),
        None => At::Offset(number(text)?),
    };
    Ok(at.into())
}

fn milliseconds(time: &str) -> Option<u64> {
    let parsed = time::OffsetDateTime::parse(time, &time::format_description::well_known::Rfc3339).ok()?;
    u64::try_from(parsed.unix_timestamp_nanos() / 1_000_000).ok()
}

/// The partition asked for. Without one a topic must have only one.
pub(super) fn partition(call: &Call, topic: &TopicDescription) -> Result<PartitionId, Problem> {
    let count = topic.shards.len() as u64;
    match call.route.integer("partition") {
        Some(partition) if partition < count => Ok(PartitionId(u32::try_from(partition).unwrap_or(0))),
        Some(partition) => {
            let detail = format!("the topic has {count} partitions, from 0; {partition} is not one");
            Err(Problem::new(ErrorCode::PartitionNotFound, detail))
        }
        None if count == 1 => Ok(PartitionId(0)),
        None => {
            let why = format!("name one of the topic's {count} partitions: they are not interleaved yet");
            Err(Problem::invalid_parameter("partition", why))
        }
    }
}

pub(super) async fn page(call: Call) -> Result<Response, Problem> {
    let topic = topics::find(&call.edge, &call.topic()?, false).await?;
    let partition = partition(&call, &topic)?;
    let wait = Duration::from_secs(call.route.integer("wait").unwrap_or(0));
    let until = call.route.query("until").map(position).transpose()?;
    let request = ReadRequest {
        incarnation: topic.incarnation,
        config_version: topic.version,
        partition: partition.0,
        from: position(call.route.query("from").unwrap_or("earliest"))?,
        until,
        max_records: u32::try_from(call.route.integer("limit").unwrap_or(LIMIT_DEFAULT)).unwrap_or(u32::MAX),
        max_bytes: call.route.integer("max_bytes").unwrap_or(BYTES_DEFAULT),
        wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
        min_level: 0,
        clamp: call.route.query("clamp") == Some("true"),
    };
    let packet = fetch(&call, &topic, partition, &request, wait).await?;
    let messages = records(&packet.message.slices, packet.payload, partition)?;
    let answer = packet.message;
    let page = ReadPage { messages, next: Next::Offset(answer.next), up_to_date: answer.up_to_date };
    let mut response = json(StatusCode::OK, &page)?;
    let headers = response.headers_mut();
    headers.insert("next-offset", HeaderValue::from(answer.next));
    headers.insert("up-to-date", HeaderValue::from_static(if answer.up_to_date { "true" } else { "false" }));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    if answer.closed {
        headers.insert("closed", HeaderValue::from_static("true"));
    }
    let tag = format!("\"{}:{partition}:{}:{}\"", topic.incarnation, answer.from, answer.next);
    if let Ok(tag) = HeaderValue::from_str(&tag) {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}

async fn fetch(
    call: &Call,
    topic: &TopicDescription,
    partition: PartitionId,
    request: &ReadRequest,
    wait: Duration,
) -> Result<Packet<ReadAnswer>, Problem> {
    let shard = ShardId(topic.shards.get(partition.0 as usize).copied().unwrap_or_default());
    let answer = call.edge.storage.call_raw(Method::Read, shard, request, wait).await;
    let answer = answer.map_err(|refusal| refused(&refusal))?;
    Packet::decode(answer).map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))
}

/// The records that the slices mean, in order.
pub(super) fn stored(slices: &[Slice], mut payload: Bytes) -> Result<Vec<Stored>, Problem> {
    let corrupt = |error: &dyn std::fmt::Display| Problem::new(ErrorCode::Corrupt, error.to_string());
    let mut found = Vec::new();
    for slice in slices {
        let batch = Batch::take_from(&mut payload).map_err(|error| corrupt(&error))?;
        let wanted = slice.first..slice.first + u64::from(slice.take);
        for record in batch.records().map_err(|error| corrupt(&error))? {
            let record = record.map_err(|error| corrupt(&error))?;
            if wanted.contains(&record.offset.0) {
                found.push(record);
            }
        }
    }
    Ok(found)
}

fn records(slices: &[Slice], payload: Bytes, partition: PartitionId) -> Result<Vec<Record>, Problem> {
    Ok(stored(slices, payload)?.iter().map(|record| shown(record, partition)).collect())
}

/// A record as JSON. Payload digits stay what they are: JSON payloads are embedded untouched.
pub(super) fn shown(record: &Stored, partition: PartitionId) -> Record {
    let key_text = record.key.as_ref().and_then(|key| std::str::from_utf8(key).ok());
    let content_type = record.headers.content_type().map(str::to_owned);
    let (data, data_base64) = data(record, content_type.as_deref().unwrap_or_default());
    let encoding = record.headers.reserved(Reserved::ContentEncoding);
    Record {
        partition: partition.0,
        offset: record.offset.0,
        ts: record.ts.0,
        key: key_text.map(str::to_owned),
        key_base64: record.key.as_ref().filter(|_| key_text.is_none()).map(|key| BASE64_STANDARD.encode(key)),
        headers: user_headers(record),
        content_type,
        content_encoding: encoding.map(|value| String::from_utf8_lossy(value).into_owned()),
        data,
        data_base64,
    }
}

fn user_headers(record: &Stored) -> BTreeMap<String, String> {
    let text = |value: &[u8]| String::from_utf8_lossy(value).into_owned();
    record.headers.user().map(|(name, value)| (name.to_owned(), text(value))).collect()
}

fn data(record: &Stored, content_type: &str) -> (Option<Box<serde_json::value::RawValue>>, Option<String>) {
    let is_encoded = record.headers.reserved(Reserved::ContentEncoding).is_some();
    let media = content_type.split(';').next().unwrap_or_default().trim();
    let raw = |text: String| serde_json::value::RawValue::from_string(text).ok();
    if !is_encoded && let Ok(text) = std::str::from_utf8(&record.value) {
        if (media == "application/json" || media.ends_with("+json"))
            && let Some(value) = raw(text.trim().to_owned())
        {
            return (Some(value), None);
        }
        if media.starts_with("text/")
            && let Some(value) = serde_json::to_string(text).ok().and_then(raw)
        {
            return (Some(value), None);
        }
    }
    (None, Some(BASE64_STANDARD.encode(&record.value)))
}

pub(super) async fn one(call: Call) -> Result<Response, Problem> {
    let topic = topics::find(&call.edge, &call.topic()?, false).await?;
    let partition = call.route.path("partition").parse().ok().map(PartitionId);
    let partition = partition
        .filter(|partition| (partition.0 as usize) < topic.shards.len())
        .ok_or_else(|| Problem::new(ErrorCode::PartitionNotFound, "the topic has no such partition"))?;
    let offset = call.route.path("offset").parse().map_err(|_| {
        Problem::new(ErrorCode::Malformed, "an offset is a decimal number").with_field("offset")
    })?;
    let request = ReadRequest {
        incarnation: topic.incarnation,
        config_version: topic.version,
        partition: partition.0,
        from: At::Offset(offset).into(),
        max_records: 1,
        max_bytes: 1,
        ..ReadRequest::default()
    };
    let packet = fetch(&call, &topic, partition, &request, Duration::ZERO).await?;
    let mut found = stored(&packet.message.slices, packet.payload)?;
    let Some(record) = found.pop() else {
        return Err(Problem::new(ErrorCode::BeyondTail, format!("the partition ends at {offset}")));
    };
    let mut response = Response::new(Body::from(record.value.clone()));
    let headers = response.headers_mut();
    for (name, which) in
        [(CONTENT_TYPE, Reserved::ContentType), (CONTENT_ENCODING, Reserved::ContentEncoding)]
    {
        if let Some(value) =
            record.headers.reserved(which).and_then(|value| HeaderValue::from_bytes(value).ok())
        {
            headers.insert(name, value);
        }
    }
    if let Some(value) = record.key.as_ref().and_then(|key| HeaderValue::from_bytes(key).ok()) {
        headers.insert("message-key", value);
    }
    for (name, value) in record.headers.user() {
        let name = if name.starts_with("ce-") { name.to_owned() } else { format!("message-header-{name}") };
        if let (Ok(name), Ok(value)) = (HeaderName::try_from(name), HeaderValue::from_bytes(value)) {
            headers.append(name, value);
        }
    }
    headers.insert("message-timestamp", HeaderValue::from(record.ts.0));
    headers.insert(CACHE_CONTROL, HeaderValue::from_static("private, max-age=31536000, immutable"));
    // A payload is somebody's input: shown by a browser it must not run as a page of this origin.
    headers.insert("content-security-policy", HeaderValue::from_static("default-src 'none'; sandbox"));
    if let Ok(tag) = HeaderValue::from_str(&format!("\"{}:{partition}:{offset}\"", topic.incarnation)) {
        headers.insert(ETAG, tag);
    }
    Ok(response)
}
