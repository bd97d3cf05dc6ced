//! A JSON object per line. Payloads keep their digits: a JSON value is stored as its own text.

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use memchr::memchr_iter;
use weir_protocol::batch::{HeadersBuilder, Reserved, is_header_name, is_trace_parent};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::TimestampMs;
use weir_protocol::limits::HTTP_BATCH_RECORDS_MAX;
use weir_protocol::objects;
use weir_protocol::ws::PayloadKind;

use super::{NOT_A_TIME, Trace, time_ms};
use crate::api::{BatchLine, Problem};
use crate::edge::from_json::wrong;
use crate::service::publish::{NewRecord, Unnamed, check_content_type, check_deliver_at, check_ttl_ms};

/// The records of all lines; empty lines are skipped. `trace` is that of lines that name none.
pub(super) fn records(body: &Bytes, now_ms: u64, trace: &Trace) -> Result<Vec<NewRecord>, Problem> {
    let mut records = Vec::new();
    for (number, line) in (1..).zip(lines(body)) {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        if records.len() == HTTP_BATCH_RECORDS_MAX as usize {
            let detail = format!("more than {HTTP_BATCH_RECORDS_MAX} messages");
            let limit = u64::from(HTTP_BATCH_RECORDS_MAX);
            return Err(Problem::new(ErrorCode::TooLarge, detail).with_limit(limit));
        }
        let read = objects::from_slice::<BatchLine<'_>>(line);
        let mut line = read.map_err(|error| malformed(number, line, &error))?;
        trace.fill(&mut line);
        let record = record(body, line, now_ms);
        records.push(record.map_err(|(field, why)| refused(number, field, &why))?);
    }
    Ok(records)
}

/// What lies between the ends of lines, as `split` would give it.
fn lines(body: &[u8]) -> impl Iterator<Item = &[u8]> {
    let mut start = 0;
    memchr_iter(b'\n', body).chain([body.len()]).map(move |end| {
        let line = &body[start..end];
        start = end + 1;
        line
    })
}

fn malformed(number: usize, line: &[u8], error: &serde_json::Error) -> Problem {
    // Its reader saw this line alone, and calls it the first.
    let why = error.to_string();
    let place = format!(" at line 1 column {}", error.column());
    let why =
        why.strip_suffix(&place).map_or(why.clone(), |why| format!("{why} at column {}", error.column()));
    wrong::<BatchLine<'_>>(&format!("line {number}: "), line, &why)
}

fn refused(number: usize, field: &'static str, why: &str) -> Problem {
    Problem::new(ErrorCode::Malformed, format!("line {number}: {field}: {why}")).with_field(field)
}

/// The record of one line, whose payload is a part of `body`.
///
/// # Errors
/// The field that is wrong, and why.
pub(in crate::edge) fn record(
    body: &Bytes,
    line: BatchLine<'_>,
    now_ms: u64,
) -> Result<NewRecord, (&'static str, String)> {
    let is_named = line.content_type.is_some();
    if let Some(text) = &line.content_type {
        check_content_type(text.as_bytes()).map_err(|why| ("content_type", why.to_owned()))?;
    }
    let (content_type, value, unnamed) = match (line.data, line.data_base64) {
        (Some(data), None) => {
            let content_type = line.content_type.unwrap_or_else(|| "application/json".to_owned());
            let value = text_or_json(body, &content_type, data)?;
            (content_type, value, Unnamed::Json)
        }
        (None, Some(text)) => {
            let bytes = BASE64_STANDARD.decode(text).map_err(|error| ("data_base64", error.to_string()))?;
            let octets = || "application/octet-stream".to_owned();
            (line.content_type.unwrap_or_else(octets), Bytes::from(bytes), Unnamed::Bytes)
        }
        _ => return Err(("data", "a message has either data or data_base64".to_owned())),
    };
    let mut headers = HeadersBuilder::default();
    headers.content_type(&content_type);
    if let Some(text) = line.deliver_at {
        let at = time_ms(&text).ok_or_else(|| ("deliver_at", NOT_A_TIME.to_owned()))?;
        check_deliver_at(TimestampMs(at), TimestampMs(now_ms))
            .map_err(|why| ("deliver_at", why.to_owned()))?;
        headers.deliver_at(TimestampMs(at));
    }
    if let Some(ttl_ms) = line.ttl_ms {
        check_ttl_ms(ttl_ms).map_err(|why| ("ttl_ms", why.to_owned()))?;
        headers.ttl_ms(ttl_ms);
    }
    for (name, value) in &line.headers {
        if !is_header_name(name) {
            let why = format!("{name:?} is not a header name: use letters, digits and !#$%&'*+-.^_`|~");
            return Err(("headers", why));
        }
        headers.user(name, value.as_bytes()).map_err(|why| ("headers", format!("{name}: {why}")))?;
    }
    let is_traced = line.traceparent.as_deref().is_none_or(is_trace_parent);
    for (field, which, text) in [
        ("traceparent", Reserved::TraceParent, &line.traceparent),
        ("tracestate", Reserved::TraceState, &line.tracestate),
    ] {
        let Some(text) = text else { continue };
        // It is told in a header of that name.
        if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
            return Err((field, "not visible ASCII".to_owned()));
        }
        // Nobody passes on what is none, nor a state without it.
        if is_traced {
            headers.reserved(which, text.as_bytes());
        }
    }
    let unnamed = (!is_named).then_some(unnamed);
    Ok(NewRecord { key: line.key.map(Bytes::from), headers: headers.finish(), value, unnamed })
}

/// With the content type of a text a JSON string means its text: what a page shows can be sent back as it is.
fn text_or_json(
    body: &Bytes,
    content_type: &str,
    data: &serde_json::value::RawValue,
) -> Result<Bytes, (&'static str, String)> {
    if PayloadKind::of(content_type) == PayloadKind::Text {
        let text: String = serde_json::from_str(data.get())
            .map_err(|_| ("data", format!("a payload of {content_type} is a string")))?;
        return Ok(text.into());
    }
    // A view of the body: the payload is copied once, into its batch.
    Ok(body.slice_ref(data.get().as_bytes()))
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn values(text: &str) -> Result<Vec<Vec<u8>>, Problem> {
        Ok(records(&Bytes::copy_from_slice(text.as_bytes()), 0, &Trace::default())?
            .into_iter()
            .map(|record| record.value.to_vec())
            .collect())
    }

    #[test]
    fn payloads_keep_their_digits_and_texts_lose_their_quotes() {
        let text = "{\"data\":{\"n\":9007199254740993.10}}\n\n{\"data\":\"a\\nb\",\"content_type\":\"text/plain\"}\n\
                    {\"data\":null}\r\n{\"data_base64\":\"AAE=\"}";
        let expected: [&[u8]; 4] = [b"{\"n\":9007199254740993.10}", b"a\nb", b"null", &[0, 1]];
        assert_eq!(values(text).unwrap(), expected);
    }

    #[test]
    fn what_is_wrong_is_named_with_its_line() {
        for (text, code, detail) in [
            ("{\"data\":1}\n{\"dta\":1}", "unknown_field", "line 2: unknown field `dta`"),
            ("{\"data\":1}\n{\"data\":1", "malformed", "line 2: EOF while parsing an object at column 9"),
            ("{\"data\":1,\"key\":7}", "malformed", "line 1: key: invalid type: integer `7`, expected"),
            ("{\"data\":1,\"headers\":{\"x\":1}}", "malformed", "line 1: headers"),
            ("{}", "malformed", "line 1: data"),
            ("{\"data\":1,\"traceparent\":\"a\\nb\"}", "malformed", "traceparent: not visible ASCII"),
            ("{\"data\":1,\"data_base64\":\"\"}", "malformed", "either"),
            ("{\"data_base64\":\"?\"}", "malformed", "data_base64"),
            ("{\"data\":1,\"content_type\":\"text/plain\"}", "malformed", "is a string"),
            ("{\"data\":1,\"deliver_at\":\"soon\"}", "malformed", "deliver_at"),
            ("{\"data\":1,\"deliver_at\":\"1969-12-31T23:59:59.9999Z\"}", "malformed", "from 1970 on"),
            ("{\"data\":1,\"content_type\":\"\"}", "malformed", "content_type: "),
            ("{\"data\":1,\"deliver_at\":\"2999-01-01T00:00:00Z\"}", "malformed", "from now"),
            ("{\"data\":1,\"headers\":{\"\":\"x\"}}", "malformed", "headers"),
            ("{\"data\":1,\"headers\":{\"x\":\"1\",\"x\":\"2\"}}", "malformed", "duplicate field `x`"),
            ("{\"data\":1,\"data\":2}", "malformed", "duplicate field `data`"),
            ("{\"data\":1,\"headers\":{\"a b\":\"\"}}", "malformed", "headers: \"a b\" is not a header name"),
            ("{\"data\":1,\"headers\":{\"a\\n\":\"\"}}", "malformed", "is not a header name"),
            ("{\"data\":1,\"headers\":{\"\":\"\"}}", "malformed", "is not a header name"),
            ("{\"data\":1,\"ttl_ms\":0}", "malformed", "ttl_ms: at least 1"),
            ("{\"data\":1,\"ttl_ms\":9007199254740992}", "malformed", "ttl_ms: at most"),
        ] {
            let problem = values(text).unwrap_err();
            assert_eq!(problem.code, code, "{text}");
            assert!(problem.detail.contains(detail), "{text}: {}", problem.detail);
        }
    }

    proptest! {
        #[test]
        fn no_body_makes_the_reader_panic(body in proptest::collection::vec(any::<u8>(), 0..200)) {
            let _ = records(&body.into(), 0, &Trace::default());
        }

        #[test]
        fn lines_are_what_splitting_gives(body in "[a\n\r]{0,60}") {
            let split: Vec<&[u8]> = body.as_bytes().split(|byte| *byte == b'\n').collect();
            prop_assert_eq!(lines(body.as_bytes()).collect::<Vec<_>>(), split);
        }

        #[test]
        fn every_json_value_comes_back_as_it_was_written(number in "-?[1-9][0-9]{0,30}(\\.[0-9]{1,20})?") {
            let line = format!("{{\"data\": {number} ,\"key\":\"k\"}}");
            prop_assert_eq!(values(&line).unwrap(), [number.into_bytes()]);
        }
    }
}
