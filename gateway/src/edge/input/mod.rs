//! Request bodies and headers as records. Pure.
//!
//! ```text
//!   headers      one message: key, content type, user headers, delay, digest
//!   ndjson       a line per message          cloudevents   structured events, one or many
//!   batch        what stands around many
//! ```

mod batch;
mod cloudevents;
mod headers;
mod ndjson;

use bytes::Bytes;
use http::HeaderMap;
use weir_protocol::batch::{Batch, HeadersBuilder};
use weir_protocol::error::ErrorCode;

use crate::api::Problem;
use crate::service::publish::{Content, NewRecord};

pub(super) use batch::{Trace, check_batch_headers, check_not_encoded};
pub(super) use headers::{BAGGAGE, check_digest, message};
pub(super) use ndjson::record;

/// The forms of a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Form {
    /// A JSON object per line.
    Lines,
    /// Record batches, one behind the other.
    Binary,
    /// A JSON array of CloudEvents.
    Events,
    /// One CloudEvent.
    Event,
}

impl Form {
    /// The form that a content type names.
    pub(super) fn of(content_type: &str) -> Option<Self> {
        Some(match essence(content_type).as_str() {
            "application/x-ndjson" | "application/ndjson" | "application/jsonl" => Self::Lines,
            "application/vnd.weir.batch" => Self::Binary,
            "application/cloudevents-batch+json" => Self::Events,
            "application/cloudevents+json" => Self::Event,
            _ => return None,
        })
    }

    /// What a body of this form holds. `now_ms` is what delays count from, `trace` that of messages that name
    /// none; record batches are what they are.
    ///
    /// # Errors
    /// One message that cannot be understood refuses the body, naming its line or place.
    pub(super) fn read(self, body: &Bytes, now_ms: u64, trace: &Trace) -> Result<Content, Problem> {
        let traced = || {
            let mut headers = HeadersBuilder::default();
            trace.add_to(&mut headers);
            headers
        };
        let records = match self {
            Self::Lines => ndjson::records(body, now_ms, trace)?,
            Self::Events => cloudevents::batch(body, traced)?,
            Self::Event => vec![cloudevents::event(body, (traced(), None))?],
            Self::Binary => return batches(body.clone()),
        };
        if records.is_empty() {
            return Err(Problem::new(ErrorCode::Malformed, "the body holds no message"));
        }
        Ok(Content::Records(records))
    }
}

/// A single event in structured mode, with what the request's headers say of the message.
pub(super) fn structured_event(headers: &HeaderMap, body: &Bytes, now_ms: u64) -> Result<NewRecord, Problem> {
    cloudevents::event(body, headers::around(headers, now_ms)?)
}

fn batches(mut body: Bytes) -> Result<Content, Problem> {
    let mut batches = Vec::new();
    while !body.is_empty() {
        let batch = Batch::take_from(&mut body).map_err(|error| {
            Problem::new(ErrorCode::InvalidBatch, format!("record batch {}: {error}", batches.len()))
        })?;
        batches.push(batch);
    }
    if batches.is_empty() {
        return Err(Problem::new(ErrorCode::Malformed, "the body holds no record batch"));
    }
    Ok(Content::Batches(batches))
}

/// A media type without its parameters, in lower case.
pub(super) fn essence(content_type: &str) -> String {
    content_type.split(';').next().unwrap_or_default().trim().to_ascii_lowercase()
}

/// What is said of a text that [`time_ms`] does not take.
pub(super) const NOT_A_TIME: &str = "not an RFC 3339 time from 1970 on, as 2026-01-31T12:00:00Z";

/// Milliseconds since the epoch of an RFC 3339 time; `None` before it.
pub(super) fn time_ms(text: &str) -> Option<u64> {
    let parsed = time::OffsetDateTime::parse(text, &time::format_description::well_known::Rfc3339).ok()?;
    u64::try_from(parsed.unix_timestamp_nanos().div_euclid(1_000_000)).ok()
}

/// An RFC 3339 time of milliseconds since the epoch; `None` beyond the year 9999.
pub(super) fn rfc3339(ms: u64) -> Option<String> {
    let time = time::OffsetDateTime::from_unix_timestamp_nanos(i128::from(ms) * 1_000_000).ok()?;
    time.format(&time::format_description::well_known::Rfc3339).ok()
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn times_come_back_to_the_millisecond(ms in 0u64..253_402_300_800_000) {
            prop_assert_eq!(time_ms(&rfc3339(ms).unwrap()), Some(ms));
        }
    }
}
