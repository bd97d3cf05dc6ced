//! Publishing one message, and many at once.

use axum::response::Response;
use http::StatusCode;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::Offset;
use weir_protocol::limits::HTTP_BATCH_BYTES_MAX;
use weir_protocol::rpc::Level;

use super::answer::json;
use super::call::Call;
use super::conditions::Tails;
use super::confirm;
use super::input::{self, Form};
use super::topics::level;
use crate::api::{self, BatchPublished, BatchResult, Problem};
use crate::service::ServiceError;
use crate::service::publish::{Content, Publish, Published, RecordResult, is_old_duplicate};

/// The body is the payload; a structured CloudEvent is unpacked.
pub(super) async fn one(mut call: Call) -> Result<Response, Problem> {
    let topic = call.topic()?;
    let body = call.body(call.edge.config.record_bytes_max).await?;
    input::check_digest(&call.headers, &body)?;
    let is_event = is_event(call.header("content-type")?.unwrap_or_default())?;
    let record = if is_event {
        input::check_not_encoded(&call.headers)?;
        input::structured_event(&call.headers, &body, now_ms())?
    } else {
        input::message(&call.headers, body, now_ms())?
    };
    let mut publish = Publish::new(topic, Content::Records(vec![record]));
    confirm::options(&call, &mut publish)?;
    publish.idempotency_key = confirm::idempotency_key(&call)?;
    if publish.producer.is_some() && publish.idempotency_key.is_some() {
        // Under a key that is known nothing is appended, and the number would be a gap in its producer's.
        let why = "given together with Producer-Id: one of them is enough to send a message again";
        return Err(Problem::invalid_header("Idempotency-Key", why));
    }
    let tails;
    (publish.expected, tails) = confirm::expected(&call)?;
    let producer = publish.producer.clone();
    let is_keyed = publish.idempotency_key.is_some();
    let published = publish_at_any(&call, publish, tails.as_ref()).await?;
    let part = published.parts.first();
    let part = part.ok_or_else(|| Problem::new(ErrorCode::Internal, "a publish without a part"))?;
    let ((status, level_reached), placed, is_duplicate) = match &part.outcome {
        Ok(confirmed) => {
            let is_duplicate = confirmed.placed.is_some_and(|placed| placed.duplicate);
            let status = confirm::status(&published, is_duplicate);
            ((status, confirmed.level), confirmed.placed, is_duplicate)
        }
        Err(failure) if is_old_duplicate(failure) => (of_long_ago(&published), None, true),
        Err(failure) => return Err(confirm::refused(&published, part, failure)),
    };
    let mut response = if confirm::is_minimal(&call.headers) {
        confirm::minimal(status)
    } else {
        let is_final = placed.map_or(part.outcome.is_err(), |placed| placed.is_final);
        let body = api::Published {
            partition: part.partition.0,
            offset: placed.map(|placed| placed.base_offset),
            ts: placed.map(|placed| placed.ts_ms),
            level: level(level_reached),
            is_final,
            term: placed.filter(|placed| !placed.is_final).map(|placed| placed.term),
            duplicate: is_duplicate,
        };
        json(status, &body)?
    };
    let headers = response.headers_mut();
    confirm::add_headers(&call.edge, &published, headers);
    confirm::add_place(&call.base, &published, part, headers);
    if is_keyed && is_duplicate {
        headers.insert("idempotency-replayed", http::HeaderValue::from_static("true"));
    }
    if let Some(producer) = producer {
        confirm::add_producer(&published, &producer, headers);
    }
    Ok(response)
}

/// Whether the body is one structured event. Stored as an opaque message, another kind would be found by its readers.
fn is_event(content_type: &str) -> Result<bool, Problem> {
    match Form::of(content_type) {
        Some(Form::Event) => Ok(true),
        Some(Form::Events) => {
            let detail =
                "a batch of events goes to …/messages:batch; one event is application/cloudevents+json";
            Err(Problem::new(ErrorCode::UnsupportedMediaType, detail).with_field("content-type"))
        }
        None if input::essence(content_type).starts_with("application/cloudevents") => {
            let detail = format!(
                "{content_type:?} is not understood: one event is application/cloudevents+json, or its data with ce-* \
                 headers; a batch, application/cloudevents-batch+json, goes to …/messages:batch"
            );
            Err(Problem::new(ErrorCode::UnsupportedMediaType, detail).with_field("content-type"))
        }
        _ => Ok(false),
    }
}

/// Status and level of a message that was accepted before, nobody knows where: it is committed. Whether it is
/// archived nobody knows either.
fn of_long_ago(published: &Published) -> (StatusCode, Level) {
    let status = if published.is_complete() { StatusCode::OK } else { StatusCode::ACCEPTED };
    (status, published.level)
}

/// Publishes at one of the tails, if any are named: whoever is told that the end is another of them asks for that.
async fn publish_at_any(
    call: &Call,
    mut publish: Publish,
    tails: Option<&Tails>,
) -> Result<Published, ServiceError> {
    let publisher = &call.edge.services.publisher;
    let Some(tails) = tails.filter(|tails| tails.are_several()) else {
        return publisher.publish(publish).await;
    };
    let mut asked = tails.first();
    loop {
        publish.expected = Some(confirm::tail(tails, asked));
        let published = publisher.publish(publish.clone()).await?;
        let refusal = published.parts.first().and_then(|part| part.outcome.as_ref().err());
        let refusal = refusal.filter(|failure| failure.code() == ErrorCode::TailMismatch);
        let there = refusal.and_then(|failure| failure.refusal().tail).map(Offset);
        match there.filter(|there| tails.has_after(asked, *there)) {
            Some(there) => asked = there,
            None => return Ok(published),
        }
    }
}

/// Many messages; each has its result.
pub(super) async fn batch(mut call: Call) -> Result<Response, Problem> {
    let topic = call.topic()?;
    for name in ["idempotency-key", "if-match", "if-none-match"] {
        if call.headers.contains_key(name) {
            let detail = format!("{name} covers one message; publish it on its own");
            return Err(Problem::new(ErrorCode::NotSupported, detail).with_field(name));
        }
    }
    let content_type = call.header("content-type")?.unwrap_or_default();
    let form = Form::of(content_type).ok_or_else(|| {
        let detail = format!(
            "{content_type:?} is no batch: application/x-ndjson, application/vnd.weir.batch, \
             application/cloudevents-batch+json or application/cloudevents+json"
        );
        Problem::new(ErrorCode::UnsupportedMediaType, detail).with_field("content-type")
    })?;
    input::check_batch_headers(form, &call.headers)?;
    input::check_not_encoded(&call.headers)?;
    let trace = input::Trace::of(&call.headers)?;
    let body = call.body(HTTP_BATCH_BYTES_MAX).await?;
    input::check_digest(&call.headers, &body)?;
    let mut publish = Publish::new(topic, form.read(&body, now_ms(), &trace)?);
    confirm::options(&call, &mut publish)?;
    publish.atomic = call.route.query("atomic") == Some("true");
    let producer = publish.producer.clone();
    let published = call.edge.services.publisher.publish(publish).await?;
    let mut response = answer(&call, &published)?;
    if let Some(producer) = producer.filter(|_| response.status() != StatusCode::MULTI_STATUS) {
        confirm::add_producer(&published, &producer, response.headers_mut());
    }
    Ok(response)
}

fn answer(call: &Call, published: &Published) -> Result<Response, Problem> {
    let results: Vec<_> = published.results().into_iter().map(result).collect();
    let refused = results.iter().filter(|result| matches!(result, BatchResult::Refused { .. })).count();
    let status = match confirm::status(published, false) {
        _ if refused > 0 => StatusCode::MULTI_STATUS,
        StatusCode::CREATED => StatusCode::OK,
        below => below,
    };
    let mut response = if refused == 0 && confirm::is_minimal(&call.headers) {
        confirm::minimal(status)
    } else {
        json(status, &BatchPublished { results, level: level(published.level) })?
    };
    confirm::add_headers(&call.edge, published, response.headers_mut());
    if let [only] = &published.parts[..] {
        confirm::add_place(&call.base, published, only, response.headers_mut());
    }
    Ok(response)
}

fn result(result: RecordResult<'_>) -> BatchResult {
    match result {
        RecordResult::Accepted { partition, offset, duplicate, .. } => {
            BatchResult::Accepted { partition: partition.0, offset: offset.map(|offset| offset.0), duplicate }
        }
        RecordResult::Refused(failure) => BatchResult::Refused { problem: Box::new(failure.into()) },
    }
}

pub(super) fn now_ms() -> u64 {
    crate::service::publish::now().0
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_protocol::ids::{Name, TopicPath};
    use weir_protocol::rpc::TopicConfig;

    use super::*;
    use crate::service::publish::Timing;
    use crate::storage::Topic;

    #[test]
    fn what_was_accepted_long_ago_is_not_said_to_be_archived() {
        let name = Name::default_name;
        let path = TopicPath { tenant: name(), namespace: name(), topic: name() };
        let topic = Arc::new(Topic::unmade(path, TopicConfig::default()));
        let told = |asked, level| {
            let (topic, timing) = (Arc::clone(&topic), Timing::default());
            of_long_ago(&Published { topic, parts: Vec::new(), records: 1, asked, level, timing })
        };
        assert_eq!(told(Level::Archived, Level::Quorum), (StatusCode::ACCEPTED, Level::Quorum));
        assert_eq!(told(Level::Quorum, Level::Quorum), (StatusCode::OK, Level::Quorum));
        assert_eq!(told(Level::Memory, Level::Memory), (StatusCode::OK, Level::Memory), "it is committed");
    }
}
