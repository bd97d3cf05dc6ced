//! What requests say of confirms, and what answers say of them.

use std::fmt::Write as _;
use std::time::Duration;

use axum::response::Response;
use http::header::{ETAG, LOCATION};
use http::{HeaderMap, HeaderName, HeaderValue, StatusCode};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Epoch, Offset, Seq};
use weir_protocol::limits::CLIENT_ID_BYTES_MAX;
use weir_protocol::rpc::{Level, Stages};
use weir_protocol::ws::StageMicros;

use super::answer::empty;
use super::call::{Call, Edge};
use super::conditions::{Condition, Tails, if_match_tail, if_none_match};
use super::repeated;
use crate::api::{CONFIRM_DEADLINE_MS_MAX, Problem};
use crate::service::ServiceError;
use crate::service::publish::{
    Expected, Producer, Publish, Published, PublishedPart, Timing, is_old_duplicate,
};

/// Reads what a single message and a batch have in common into `publish`.
pub(super) fn options(call: &Call, publish: &mut Publish) -> Result<(), Problem> {
    if let Some(text) = call.header("confirm")? {
        let level = Level::from_text(text).ok_or_else(|| {
            Problem::invalid_header("Confirm", "one of none, memory, durable, quorum, archived")
        })?;
        publish.confirm = Some(level);
    }
    publish.confirm_deadline = confirm_deadline(call)?;
    publish.producer = producer(call)?;
    publish.received = call.received.into();
    Ok(())
}

/// `Confirm-Deadline-Ms`.
pub(super) fn confirm_deadline(call: &Call) -> Result<Option<Duration>, Problem> {
    let Some(ms) = call.header_number("confirm-deadline-ms")? else { return Ok(None) };
    if ms == 0 || ms > CONFIRM_DEADLINE_MS_MAX {
        let why = format!("from 1 to {CONFIRM_DEADLINE_MS_MAX}");
        return Err(Problem::invalid_header("Confirm-Deadline-Ms", why));
    }
    Ok(Some(Duration::from_millis(ms)))
}

fn producer(call: &Call) -> Result<Option<Producer>, Problem> {
    let (epoch, seq) = (call.header_number("producer-epoch")?, call.header_number("producer-seq")?);
    match (call.header("producer-id")?, epoch, seq) {
        (None, None, None) => Ok(None),
        (Some(id), Some(epoch), Some(seq)) => {
            if id.is_empty() || id.len() > CLIENT_ID_BYTES_MAX {
                let why = format!("has 1 to {CLIENT_ID_BYTES_MAX} bytes");
                return Err(Problem::invalid_header("Producer-Id", why));
            }
            let epoch =
                u32::try_from(epoch).map_err(|_| Problem::invalid_header("Producer-Epoch", "too large"))?;
            Ok(Some(Producer { id: id.to_owned(), epoch: Epoch(epoch), seq: Seq(seq) }))
        }
        _ => Err(Problem::invalid_header(
            "Producer-Id",
            "Producer-Id, Producer-Epoch and Producer-Seq belong together",
        )),
    }
}

/// `Idempotency-Key`: a structured-field string (RFC 8941), so in double quotes, with `\"` and `\\` escaped; or a UUID
/// without them, which is what most clients send and can be mistaken for nothing else.
pub(super) fn idempotency_key(call: &Call) -> Result<Option<String>, Problem> {
    let Some(text) = call.header("idempotency-key")? else { return Ok(None) };
    let key = if is_uuid(text) { Some(text.to_owned()) } else { unquoted(text) };
    let key = key.filter(|key| !key.is_empty() && key.len() <= CLIENT_ID_BYTES_MAX);
    key.map(Some).ok_or_else(|| {
        let why = format!("a string in double quotes of 1 to {CLIENT_ID_BYTES_MAX} bytes, or a UUID");
        Problem::invalid_header("Idempotency-Key", why)
    })
}

fn is_uuid(text: &str) -> bool {
    let is_dash = |place| matches!(place, 8 | 13 | 18 | 23);
    let mut bytes = text.bytes().enumerate();
    text.len() == 36
        && bytes.all(|(place, byte)| if is_dash(place) { byte == b'-' } else { byte.is_ascii_hexdigit() })
}

fn unquoted(text: &str) -> Option<String> {
    let inner = text.trim().strip_prefix('"')?.strip_suffix('"')?;
    let mut key = String::with_capacity(inner.len());
    let mut chars = inner.chars();
    while let Some(c) = chars.next() {
        match c {
            '\\' => key.push(chars.next().filter(|c| matches!(c, '"' | '\\'))?),
            '"' => return None,
            ' '..='~' => key.push(c),
            _ => return None,
        }
    }
    Some(key)
}

/// The tail that the message must find: `If-Match: "incarnation:partition:end"` or several ends of one
/// partition, any tail with `*`, or `If-None-Match: *`. With several the first is given; the rest are asked
/// for if it is refused.
pub(super) fn expected(call: &Call) -> Result<(Option<Expected>, Option<Tails>), Problem> {
    if call.headers.contains_key("if-none-match") {
        if call.headers.contains_key("if-match") {
            return Err(Problem::invalid_header("If-None-Match", "given together with If-Match"));
        }
        // Storage compares the end with one, not with all but some.
        let only_star = || Problem::invalid_header("If-None-Match", "only * is understood of a publish");
        let named = if_none_match(call)?;
        return if named == Some(Condition::Any) {
            Ok((Some(Expected::Empty), None))
        } else {
            Err(only_star())
        };
    }
    Ok(match if_match_tail(call)? {
        None => (None, None),
        Some(Condition::Any) => (Some(Expected::Any), None),
        Some(Condition::Of(tails)) => (Some(tail(&tails, tails.first())), Some(tails)),
    })
}

/// A tail that is named, as storage is asked for it.
pub(super) fn tail(tails: &Tails, end: Offset) -> Expected {
    Expected::Tail { incarnation: tails.incarnation, partition: tails.partition, end }
}

/// True if the client wants headers only (RFC 7240). What is not understood is ignored, and so is what is
/// preferred twice.
pub(super) fn is_minimal(headers: &HeaderMap) -> bool {
    let prefer = repeated::list(headers, "prefer").unwrap_or_default();
    let wanted = String::from_utf8_lossy(&prefer);
    let preferences = wanted.split(',').map(|preference| preference.split(';').next().unwrap_or_default());
    let mut returned = preferences.filter_map(|preference| {
        let (name, value) = preference.split_once('=')?;
        name.trim().eq_ignore_ascii_case("return").then(|| value.trim().trim_matches('"'))
    });
    returned.next().is_some_and(|wanted| wanted.eq_ignore_ascii_case("minimal"))
}

/// An answer without a body. That a level was not reached is not lost on those who want no body.
pub(super) fn minimal(status: StatusCode) -> Response {
    let is_done = matches!(status, StatusCode::OK | StatusCode::CREATED);
    let mut response = empty(if is_done { StatusCode::NO_CONTENT } else { status });
    response.headers_mut().insert("preference-applied", HeaderValue::from_static("return=minimal"));
    response
}

/// Adds the producer's epoch and the highest of its numbers that was accepted, once there is something to tell. Of a
/// repeat that is not its own last: whoever goes on behind it may not use numbers twice.
pub(super) fn add_producer(published: &Published, producer: &Producer, headers: &mut HeaderMap) {
    if published.level == Level::None {
        return;
    }
    let own = producer.seq.0 + u64::from(published.records).saturating_sub(1);
    let known = published.parts.iter().filter_map(|part| match &part.outcome {
        Ok(confirmed) => confirmed.placed?.last_seq,
        Err(failure) => failure.refusal().last_seq.filter(|_| is_old_duplicate(failure)),
    });
    headers.insert("producer-epoch", producer.epoch.0.into());
    headers.insert("producer-seq", known.fold(own, u64::max).into());
}

/// Status of a publish of which nothing was refused.
pub(super) fn status(published: &Published, is_duplicate: bool) -> StatusCode {
    if !published.is_complete() || published.level < Level::Durable {
        StatusCode::ACCEPTED
    } else if is_duplicate {
        StatusCode::OK
    } else {
        StatusCode::CREATED
    }
}

/// Adds what every publish says: the level, where the time went, what is left of the budget.
pub(super) fn add_headers(edge: &Edge, published: &Published, headers: &mut HeaderMap) {
    headers.insert("confirm-level", HeaderValue::from_static(published.level.as_str()));
    if let Ok(value) = HeaderValue::from_str(&server_timing(&published.timing)) {
        headers.insert("server-timing", value);
    }
    // Confirmed publishes only: where no node has answered yet, there is nothing to measure.
    if let Some(stages) = published.timing.stages {
        edge.stages.observe(&micros(&published.timing, stages));
    }
    add_budget(edge, headers);
}

/// Why a message was refused; whose tail has moved is told the tag to try again with.
pub(super) fn refused(published: &Published, part: &PublishedPart, failure: &ServiceError) -> Problem {
    let mut problem = Problem::from(failure);
    if let (Some(tail), Some(current)) = (failure.refusal().tail, &mut problem.current)
        && failure.code() == ErrorCode::TailMismatch
    {
        current.etag = Some(tail_tag(published, part, tail));
    }
    problem
}

fn tail_tag(published: &Published, part: &PublishedPart, tail: u64) -> String {
    format!("\"{}:{}:{tail}\"", published.topic.incarnation, part.partition)
}

/// Adds where one batch went.
pub(super) fn add_place(base: &str, published: &Published, part: &PublishedPart, headers: &mut HeaderMap) {
    let Some(placed) = part.outcome.as_ref().ok().and_then(|confirmed| confirmed.placed) else { return };
    let (path, partition) = (&published.topic.path, part.partition);
    let next = placed.base_offset + u64::from(placed.count);
    let location = format!(
        "{base}/v1/ns/{}/topics/{}/messages/{partition}/{}",
        path.namespace, path.topic, placed.base_offset
    );
    let tag = tail_tag(published, part, next);
    let receipt = published.receipt(part).map(|receipt| receipt.encode());
    headers.insert("next-offset", HeaderValue::from(next));
    let named = [
        (LOCATION, Some(location)),
        (ETAG, Some(tag)),
        (HeaderName::from_static("confirm-receipt"), receipt),
    ];
    for (name, value) in named {
        if let Some(Ok(value)) = value.map(|value| HeaderValue::from_str(&value)) {
            headers.insert(name, value);
        }
    }
}

/// The publish budget: bytes that may be on their way to storage at once.
pub(super) fn add_budget(edge: &Edge, headers: &mut HeaderMap) {
    let (max, free) = edge.services.storage.publish_budget();
    let policy = format!("\"pub\";q={max};qu=\"content-bytes\"");
    // Room comes back as soon as something is confirmed: looking again after a second is soon enough.
    let left = format!("\"pub\";r={free};t=1");
    for (name, value) in [("ratelimit-policy", policy), ("ratelimit", left)] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
}

/// Stages in milliseconds, as browsers and k6 read them.
fn server_timing(timing: &Timing) -> String {
    let us = |duration: Duration| u64::try_from(duration.as_micros()).unwrap_or(u64::MAX);
    let stages = timing.stages.unwrap_or_default();
    let mut text = String::with_capacity(192);
    for (name, us) in [
        ("gw", us(timing.gw)),
        ("net", us(timing.net)),
        ("queue", stages.queue_us.into()),
        ("write", stages.write_us.into()),
        ("fsync", stages.fsync_us.into()),
        ("quorum", stages.quorum_us.into()),
        ("total", us(timing.total)),
    ] {
        // Whole numbers: exact fractions of floating point would cost more than the rest of the answer.
        let _ = write!(text, "{name};dur={}.{:03}, ", us / 1_000, us % 1_000);
    }
    let _ = write!(text, "batch;desc=\"n={} b={}\"", stages.batch_records, stages.batch_bytes);
    text
}

fn micros(timing: &Timing, node: Stages) -> StageMicros {
    let us = |duration: Duration| u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
    let Stages { queue_us, write_us, fsync_us, quorum_us, .. } = node;
    StageMicros {
        gw: us(timing.gw),
        net: us(timing.net),
        queue: queue_us,
        write: write_us,
        fsync: fsync_us,
        quorum: quorum_us,
        total: us(timing.total),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn stages_are_told_in_milliseconds_to_the_microsecond() {
        let stages = Stages { fsync_us: 12_034, batch_records: 7, ..Stages::default() };
        let timing = Timing { gw: Duration::from_micros(70), stages: Some(stages), ..Timing::default() };
        let text = server_timing(&timing);
        assert!(text.starts_with("gw;dur=0.070, net;dur=0.000, "), "{text}");
        assert!(text.contains("fsync;dur=12.034, ") && text.ends_with("batch;desc=\"n=7 b=0\""), "{text}");
    }

    #[test]
    fn an_idempotency_key_is_a_structured_field_string() {
        assert_eq!(unquoted("\"a b\"").as_deref(), Some("a b"));
        assert_eq!(unquoted("\"a\\\"b\\\\\"").as_deref(), Some("a\"b\\"));
        assert!(is_uuid("6ba7b810-9dad-11d1-80B4-00c04fd430c8"));
        for bad in ["6ba7b8109dad11d180b400c04fd430c8", "6ba7b810-9dad-11d1-80b4-00c04fd430cg", "é"] {
            assert!(!is_uuid(bad), "{bad}");
        }
        for bad in ["a", "\"a", "\"a\"b\"", "\"\\x\"", "\"ä\"", "\"a\\\""] {
            assert_eq!(unquoted(bad), None, "{bad}");
        }
    }
}
