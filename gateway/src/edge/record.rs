//! A stored record as clients see it: as JSON, or as an HTTP answer of its own.

use std::collections::BTreeMap;

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE};
use http::{HeaderName, HeaderValue};
use weir_protocol::batch::{Record as Stored, Reserved};
use weir_protocol::ids::PartitionId;
use weir_protocol::ws::PayloadKind;

use super::attribute;
use super::input::{BAGGAGE, rfc3339};
use crate::api::Record;
use crate::storage::Topic;

/// A record as JSON. Payload digits stay what they are: JSON payloads are embedded untouched.
pub(super) fn shown(record: &Stored, partition: PartitionId) -> Record {
    let key_text = record.key.as_ref().and_then(|key| std::str::from_utf8(key).ok());
    let content_type = record.headers.content_type().map(str::to_owned);
    let (data, data_base64) = data(record, content_type.as_deref().unwrap_or_default());
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
        data,
        data_base64,
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

fn data(record: &Stored, content_type: &str) -> (Option<Box<serde_json::value::RawValue>>, Option<String>) {
    let is_encoded = record.headers.reserved(Reserved::ContentEncoding).is_some();
    let raw = |text: String| serde_json::value::RawValue::from_string(text).ok();
    if !is_encoded && let Ok(text) = std::str::from_utf8(&record.value) {
        let value = match PayloadKind::of(content_type) {
            PayloadKind::Json => raw(text.trim().to_owned()),
            PayloadKind::Text => serde_json::to_string(text).ok().and_then(raw),
            PayloadKind::Other => None,
        };
        if value.is_some() {
            return (value, None);
        }
    }
    (None, Some(BASE64_STANDARD.encode(&record.value)))
}

/// A record as a CloudEvent in structured mode; what was not published as one gets the attributes that are missing.
pub(super) fn event(record: &Stored, topic: &Topic, partition: PartitionId) -> String {
    let shown = shown(record, partition);
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
    let mut text = serde_json::to_string(&event).expect("texts have a JSON form");
    // The payload is put in as it is written, digit for digit.
    text.pop();
    match (shown.data, shown.data_base64) {
        (Some(data), _) => text.push_str(&format!(",\"data\":{}}}", data.get())),
        (None, Some(encoded)) => text.push_str(&format!(",\"data_base64\":\"{encoded}\"}}")),
        (None, None) => text.push('}'),
    }
    text
}

/// What one structured event is called.
pub(super) const EVENT: &str = "application/cloudevents+json";

/// An event as the answer to a request for it alone.
pub(super) fn event_response(event: String, ts_ms: u64) -> Response {
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

/// A record as the answer to a request for it alone: its payload, or that `decoded`, with its own headers.
pub(super) fn response(record: &Stored, decoded: Option<Body>) -> Response {
    let is_stored = decoded.is_none();
    let mut response = Response::new(decoded.unwrap_or_else(|| Body::from(record.value.clone())));
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
