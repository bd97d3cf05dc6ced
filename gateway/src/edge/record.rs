//! A stored record as clients see it: as JSON, or as an HTTP answer of its own.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};
use serde::Serialize;
use serde_json::value::RawValue;
use weir_protocol::batch::{Record as Stored, Reserved};
use weir_protocol::ids::PartitionId;
use weir_protocol::ws::PayloadKind;

use super::attribute;
use super::input::{BAGGAGE, rfc3339};
use super::pieces::{PART_BYTES, Payload};
use crate::api::Record;
use crate::storage::Topic;

/// Writes a record as JSON. If its payload is large, what of it is left to be written.
pub(super) fn put(out: &mut Vec<u8>, record: &Stored, partition: PartitionId) -> Option<Rest> {
    if record.value.len() > PART_BYTES {
        return Some(put_before_payload(out, &without_payload(record, partition), record));
    }
    serde_json::to_writer(&mut *out, &shown(record, partition))
        .expect("a record has a JSON form, and memory takes it");
    None
}

/// Writes what holds a record without its payload, which is to stand in it as the last.
pub(super) fn put_before_payload(out: &mut Vec<u8>, shown: &impl Serialize, record: &Stored) -> Rest {
    serde_json::to_writer(&mut *out, shown).expect("a record has a JSON form, and memory takes it");
    out.pop();
    Rest::begin(out, record)
}

/// The rest of a record that is being written.
pub(super) struct Rest {
    payload: Payload,
    /// What follows it.
    end: &'static [u8],
}

impl Rest {
    fn begin(out: &mut Vec<u8>, record: &Stored) -> Self {
        let (before, payload, end): (&[u8], _, &[u8]) = match Data::of(record) {
            Data::Json(value) => {
                (b",\"data\":", Payload::Json(record.value.slice_ref(value.get().as_bytes())), b"}")
            }
            Data::Text(_) => (b",\"data\":\"", Payload::Text(record.value.clone()), b"\"}"),
            Data::Bytes => (b",\"data_base64\":\"", Payload::Base64(record.value.clone()), b"\"}"),
        };
        out.extend_from_slice(before);
        Self { payload, end }
    }

    /// Writes the next part; false once nothing is left.
    pub(super) fn put(&mut self, out: &mut Vec<u8>) -> bool {
        let is_left = self.payload.put(out);
        if !is_left {
            out.extend_from_slice(self.end);
        }
        is_left
    }
}

/// A record as JSON. Payload digits stay what they are: JSON payloads are embedded untouched.
pub(super) fn shown(record: &Stored, partition: PartitionId) -> Record {
    let raw = |text: &str| serde_json::to_string(text).ok().and_then(|text| RawValue::from_string(text).ok());
    let data = match Data::of(record) {
        Data::Json(value) => Some(value.to_owned()),
        Data::Text(text) => raw(text),
        Data::Bytes => None,
    };
    let data_base64 = data.is_none().then(|| BASE64_STANDARD.encode(&record.value));
    Record { data, data_base64, ..without_payload(record, partition) }
}

/// A record but for its payload.
pub(super) fn without_payload(record: &Stored, partition: PartitionId) -> Record {
    let key_text = record.key.as_ref().and_then(|key| std::str::from_utf8(key).ok());
    let content_type = record.headers.content_type().map(str::to_owned);
    let text = |which| {
        let value: Option<&[u8]> = record.headers.reserved(which);
        value.map(|value| String::from_utf8_lossy(value).into_owned())
    };
    let (headers, headers_base64) = user_headers(record);
    Record {
        topic: None,
        partition: partition.0,
        offset: record.offset.0,
        ts: record.ts.0,
        key: key_text.map(str::to_owned),
        key_base64: record.key.as_ref().filter(|_| key_text.is_none()).map(|key| BASE64_STANDARD.encode(key)),
        headers,
        headers_base64,
        content_type,
        content_encoding: text(Reserved::ContentEncoding),
        content_digest: text(Reserved::Digest),
        deliver_at: record.headers.deliver_at().and_then(|at| rfc3339(at.0)),
        ttl_ms: record.headers.ttl_ms(),
        traceparent: text(Reserved::TraceParent),
        tracestate: text(Reserved::TraceState),
        data: None,
        data_base64: None,
    }
}

/// The users' headers: those that are text, and the others in Base64.
fn user_headers(record: &Stored) -> (BTreeMap<String, String>, BTreeMap<String, String>) {
    let (mut texts, mut others) = (BTreeMap::new(), BTreeMap::new());
    for (name, value) in record.headers.user() {
        match std::str::from_utf8(value) {
            Ok(text) => texts.insert(name.to_owned(), text.to_owned()),
            Err(_) => others.insert(name.to_owned(), BASE64_STANDARD.encode(value)),
        };
    }
    (texts, others)
}

/// What a payload is shown as.
enum Data<'a> {
    Json(&'a RawValue),
    Text(&'a str),
    Bytes,
}

impl<'a> Data<'a> {
    fn of(record: &'a Stored) -> Self {
        let is_encoded = record.headers.reserved(Reserved::ContentEncoding).is_some();
        if is_encoded {
            return Self::Bytes;
        }
        let Ok(text) = std::str::from_utf8(&record.value) else { return Self::Bytes };
        match PayloadKind::of(record.headers.content_type().unwrap_or_default()) {
            PayloadKind::Json => serde_json::from_str(text.trim()).map_or(Self::Bytes, Self::Json),
            PayloadKind::Text => Self::Text(text),
            PayloadKind::Other => Self::Bytes,
        }
    }
}

/// Writes a record as a CloudEvent in structured mode; what was not published as one gets the attributes that are
/// missing. If its payload is large, what of it is left to be written.
pub(super) fn put_event(
    out: &mut Vec<u8>,
    record: &Stored,
    topic: &Topic,
    partition: PartitionId,
) -> Option<Rest> {
    let event = attributes(record, topic, partition);
    serde_json::to_writer(&mut *out, &event).expect("texts have a JSON form, and memory takes it");
    out.pop();
    // The payload is put in as it is written, digit for digit.
    let mut rest = Rest::begin(out, record);
    let is_large = record.value.len() > PART_BYTES;
    if !is_large {
        rest.put(out);
    }
    is_large.then_some(rest)
}

/// A record as a CloudEvent, as a whole.
pub(super) fn event(record: &Stored, topic: &Topic, partition: PartitionId) -> Vec<u8> {
    let mut event = Vec::new();
    let rest = put_event(&mut event, record, topic, partition);
    rest.into_iter().for_each(|mut rest| while rest.put(&mut event) {});
    event
}

fn attributes(record: &Stored, topic: &Topic, partition: PartitionId) -> BTreeMap<String, serde_json::Value> {
    let shown = without_payload(record, partition);
    let mut event: BTreeMap<String, serde_json::Value> = BTreeMap::new();
    for (name, value) in record.headers.user() {
        // What else begins like one would be no event, or stand in it twice.
        if let Some(name) = name.strip_prefix(attribute::PREFIX).filter(|name| is_of_event(name)) {
            // An attribute is text: as much of it as is.
            let value = String::from_utf8_lossy(value);
            // What earlier builds took, and readers refuse, would be all that they see of the page.
            if attribute::check(name, &value).is_ok() {
                event.insert(name.to_owned(), value.into());
            }
        }
    }
    let mut add = |name: &str, value: String| {
        event.entry(name.to_owned()).or_insert_with(|| value.into());
    };
    add("specversion", "1.0".to_owned());
    // Unique per source, as the specification asks for, also across a topic that was deleted and made again.
    add("id", format!("{}:{partition}:{}", topic.incarnation, record.offset.0));
    add("source", format!("/v1/ns/{}/topics/{}", topic.path.namespace, topic.path.topic));
    add("type", "weir.message".to_owned());
    if let Some(time) = rfc3339(record.ts.0) {
        add("time", time);
    }
    if let Some(key) = shown.key {
        add("partitionkey", key);
    }
    if let Some(content_type) = shown.content_type {
        add("datacontenttype", content_type);
    }
    event
}

/// What one structured event is called.
pub(super) const EVENT: &str = "application/cloudevents+json";

/// An event as the answer to a request for it alone.
pub(super) fn event_response(event: Vec<u8>, ts_ms: u64) -> Response {
    let mut response = Response::new(Body::from(event));
    let headers = response.headers_mut();
    headers.insert(CONTENT_TYPE, HeaderValue::from_static("application/cloudevents+json; charset=utf-8"));
    headers.insert("message-timestamp", HeaderValue::from(ts_ms));
    response
}

/// Whether a header says an attribute that nothing else does.
fn is_of_event(name: &str) -> bool {
    attribute::is_name(name) && !matches!(name, "data" | "datacontenttype")
}

/// A record as the answer to a request for it alone: its payload, as it is stored or decoded, with its own headers.
pub(super) fn response(record: &Stored, (payload, is_stored): (Body, bool)) -> Response {
    let mut response = Response::new(payload);
    let headers = response.headers_mut();
    for (name, which, is_told) in [
        (CONTENT_TYPE.as_str(), Reserved::ContentType, true),
        (CONTENT_ENCODING.as_str(), Reserved::ContentEncoding, is_stored),
        // That of the bytes that were sent (RFC 9530, section 2).
        ("content-digest", Reserved::Digest, is_stored),
        ("traceparent", Reserved::TraceParent, true),
        ("tracestate", Reserved::TraceState, true),
    ] {
        let value = record.headers.reserved(which).filter(|_| is_told);
        value.and_then(|value| HeaderValue::from_bytes(value).ok()).map(|value| headers.insert(name, value));
    }
    let deliver_at = record.headers.deliver_at().and_then(|at| rfc3339(at.0));
    if let Some(Ok(at)) = deliver_at.map(HeaderValue::try_from) {
        headers.insert("deliver-at", at);
    }
    if let Some(ttl_ms) = record.headers.ttl_ms() {
        headers.insert("message-ttl-ms", HeaderValue::from(ttl_ms));
    }
    let mut left_out = Vec::new();
    match record.key.as_ref().map(|key| HeaderValue::from_bytes(key)) {
        Some(Ok(value)) => _ = headers.insert("message-key", value),
        Some(Err(_)) => left_out.push("message-key".to_owned()),
        None => {}
    }
    for (name, value) in record.headers.user() {
        let (shown, value) = if name.starts_with(attribute::PREFIX) {
            (name.to_owned(), HeaderValue::try_from(attribute::encoded(value)))
        } else {
            (format!("message-header-{name}"), HeaderValue::from_bytes(value))
        };
        match (HeaderName::try_from(&shown), value) {
            (Ok(shown), Ok(value)) => {
                if name == BAGGAGE {
                    headers.insert(BAGGAGE, value.clone());
                }
                headers.append(shown, value);
            }
            _ => left_out.push(attribute::encoded(shown.as_bytes())),
        }
    }
    // Whoever reads a page is told of them.
    if let Some(Ok(names)) = (!left_out.is_empty()).then(|| HeaderValue::try_from(left_out.join(", "))) {
        headers.insert("message-left-out", names);
    }
    headers.insert("message-timestamp", HeaderValue::from(record.ts.0));
    // A payload is somebody's input: shown by a browser it must not run as a page of this origin.
    headers.insert("content-security-policy", HeaderValue::from_static("default-src 'none'; sandbox"));
    response
}
