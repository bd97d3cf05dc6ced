//! One message: its payload is the body, everything else is in headers.

use std::borrow::Cow;

use aws_lc_rs::digest::{SHA256, SHA512, digest};
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::{HeaderMap, HeaderName, HeaderValue};
use weir_protocol::batch::{HeadersBuilder, Reserved, is_header_text};
use weir_protocol::decimal::decimal;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::TimestampMs;
use weir_protocol::limits::KEY_BYTES_MAX;

use super::super::repeated;
use super::batch::{Trace, is_plain};
use super::{NOT_A_TIME, time_ms};
use crate::api::Problem;
use crate::edge::attribute;
use crate::service::publish::{NewRecord, Unnamed, check_content_type, check_deliver_at, check_ttl_ms};

const OF_THE_BODY: [(&str, Reserved); 3] = [
    ("content-type", Reserved::ContentType),
    ("content-encoding", Reserved::ContentEncoding),
    ("content-digest", Reserved::Digest),
];
/// What goes with a trace (W3C Baggage). It is stored as a header of the message.
pub(in crate::edge) const BAGGAGE: &str = "baggage";
/// What everybody has to pass on of it; more is dropped.
const BAGGAGE_BYTES_MAX: usize = 8_192;

/// The message that headers and body make. `now_ms` is what delays count from.
///
/// # Errors
/// `invalid_header` by name, `too_large` for a key.
pub(in crate::edge) fn message(headers: &HeaderMap, body: Bytes, now_ms: u64) -> Result<NewRecord, Problem> {
    let (mut stored, key) = around(headers, now_ms)?;
    if let Some(text) = headers.get("content-type") {
        check_content_type(text.as_bytes()).map_err(|why| Problem::invalid_header("Content-Type", why))?;
    }
    add_reserved(&mut stored, &OF_THE_BODY, headers);
    // CloudEvents in binary mode: attributes are stored under the names they came with.
    let mut partition_key = None;
    for (name, value) in headers.iter().filter(|(name, _)| name.as_str().starts_with(attribute::PREFIX)) {
        let value = attribute_of(name, value)?;
        add_user(&mut stored, name, name.as_str(), value.as_bytes())?;
        if name == "ce-partitionkey" {
            partition_key = Some(key_of(name.as_str(), value.as_bytes())?);
        }
    }
    let key = key.or(partition_key);
    let unnamed = (!headers.contains_key("content-type")).then_some(Unnamed::Bytes);
    Ok(NewRecord { key, headers: stored.finish(), value: body, unnamed })
}

/// What is said of a message whatever the form of its body: its headers and key.
///
/// # Errors
/// `invalid_header` by name, `too_large` for a key.
pub(super) fn around(headers: &HeaderMap, now_ms: u64) -> Result<(HeadersBuilder, Option<Bytes>), Problem> {
    let mut stored = HeadersBuilder::default();
    Trace::of(headers)?.add_to(&mut stored);
    if let Some(at) = deliver_at(headers, now_ms)? {
        stored.deliver_at(at);
    }
    if let Some(ttl_ms) = number(headers, "message-ttl-ms")? {
        check_ttl_ms(ttl_ms).map_err(|why| Problem::invalid_header("Message-TTL-Ms", why))?;
        stored.ttl_ms(ttl_ms);
    }
    for (name, value) in headers {
        if let Some(user) = name.as_str().strip_prefix("message-header-") {
            add_user(&mut stored, name, user, value.as_bytes())?;
        }
    }
    let baggage =
        repeated::list(headers, BAGGAGE).filter(|_| !headers.contains_key("message-header-baggage"));
    if let Some(baggage) =
        baggage.filter(|baggage| is_header_text(baggage) && baggage.len() <= BAGGAGE_BYTES_MAX)
    {
        let added = stored.user(BAGGAGE, &baggage);
        added.map_err(|why| Problem::invalid_header(BAGGAGE, why))?;
    }
    let key = headers.get("message-key").map(|key| key_of("message-key", key.as_bytes())).transpose()?;
    Ok((stored, key))
}

/// Of a list all its lines; of all else there is one. An encoding that changes nothing is none: who reads would take
/// the payload for something that has to be decoded.
fn add_reserved(stored: &mut HeadersBuilder, names: &[(&str, Reserved)], headers: &HeaderMap) {
    for (name, which) in names {
        let value = repeated::list(headers, name);
        if let Some(value) = value.filter(|value| *which != Reserved::ContentEncoding || !is_plain(value)) {
            stored.reserved(*which, &value);
        }
    }
}

fn add_user(stored: &mut HeadersBuilder, name: &HeaderName, user: &str, value: &[u8]) -> Result<(), Problem> {
    let added = stored.user(user, value);
    added.map(drop).map_err(|why| Problem::invalid_header(name.as_str(), why))
}

/// An attribute of an event.
fn attribute_of<'a>(name: &HeaderName, value: &'a HeaderValue) -> Result<Cow<'a, str>, Problem> {
    let refuse = |why: &str| Problem::invalid_header(name.as_str(), why);
    let value = attribute::decoded(value.as_bytes()).map_err(refuse)?;
    let attribute = name.as_str().strip_prefix(attribute::PREFIX).unwrap_or_default();
    attribute::check(attribute, &value).map(|()| value).map_err(refuse)
}

/// The key that a header says. One that is too large is refused here, where it is known what said it.
fn key_of(name: &str, key: &[u8]) -> Result<Bytes, Problem> {
    if key.len() > KEY_BYTES_MAX {
        let detail = format!("{name}: a key of {} bytes exceeds {KEY_BYTES_MAX}", key.len());
        let refused = Problem::new(ErrorCode::TooLarge, detail).with_field(name);
        return Err(refused.with_limit(KEY_BYTES_MAX as u64));
    }
    Ok(Bytes::copy_from_slice(key))
}

fn deliver_at(headers: &HeaderMap, now_ms: u64) -> Result<Option<TimestampMs>, Problem> {
    let delay = number(headers, "deliver-delay-ms")?;
    let at = match (headers.get("deliver-at"), delay) {
        (None, None) => return Ok(None),
        (Some(_), Some(_)) => {
            return Err(Problem::invalid_header("Deliver-At", "given together with Deliver-Delay-Ms"));
        }
        (Some(text), None) => text
            .to_str()
            .ok()
            .and_then(time_ms)
            .ok_or_else(|| Problem::invalid_header("Deliver-At", NOT_A_TIME))?,
        (None, Some(delay)) => now_ms.saturating_add(delay),
    };
    let name = if delay.is_some() { "Deliver-Delay-Ms" } else { "Deliver-At" };
    let at = TimestampMs(at);
    check_deliver_at(at, TimestampMs(now_ms)).map_err(|why| Problem::invalid_header(name, why))?;
    Ok(Some(at))
}

fn number(headers: &HeaderMap, name: &'static str) -> Result<Option<u64>, Problem> {
    let Some(value) = headers.get(name) else { return Ok(None) };
    let parsed = value.to_str().ok().and_then(decimal);
    parsed.map(Some).ok_or_else(|| Problem::invalid_header(name, "not a number"))
}

/// Compares a body with the digest that came with it.
///
/// # Errors
/// `digest_mismatch`, or `invalid_header` for an algorithm that is not understood.
pub(in crate::edge) fn check_digest(headers: &HeaderMap, body: &[u8]) -> Result<(), Problem> {
    let Some(text) = repeated::list(headers, "content-digest") else { return Ok(()) };
    let digests: Vec<_> = std::str::from_utf8(&text).unwrap_or_default().split(',').map(str::trim).collect();
    let mut is_verified = false;
    for (name, algorithm) in [("sha-256", &SHA256), ("sha-512", &SHA512)] {
        let of = |digest: &'_ str| {
            Some(digest.strip_prefix(name)?.strip_prefix("=:")?.strip_suffix(':')?.to_owned())
        };
        // A dictionary (RFC 8941): of what is in it twice the last counts.
        let Some(stated) = digests.iter().rev().find_map(|digest| of(digest)) else { continue };
        let computed = digest(algorithm, body);
        if !BASE64_STANDARD.decode(stated).is_ok_and(|stated| stated == computed.as_ref()) {
            return Err(Problem::new(ErrorCode::DigestMismatch, format!("the body's {name} is another")));
        }
        is_verified = true;
    }
    let why = "sha-256=:base64: and sha-512=:base64: are understood";
    if is_verified { Ok(()) } else { Err(Problem::invalid_header("Content-Digest", why)) }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::given::headers as with;

    #[test]
    fn headers_become_what_is_stored() {
        let headers = with(&[
            ("content-type", "text/plain"),
            ("ce-partitionkey", "k"),
            ("message-header-x", "y"),
            ("deliver-delay-ms", "500"),
            ("message-ttl-ms", "9"),
            ("accept", "*/*"),
        ]);
        let record = message(&headers, Bytes::from_static(b"v"), 1_000).unwrap();
        assert_eq!(record.key.as_deref(), Some(b"k" as &[u8]));
        assert_eq!(record.headers.content_type(), Some("text/plain"));
        assert_eq!(record.headers.deliver_at(), Some(TimestampMs(1_500)));
        assert_eq!(record.headers.ttl_ms(), Some(9));
        let user: Vec<_> = record.headers.user().map(|(name, _)| name).collect();
        assert_eq!(user.len(), 2, "{user:?}");
        for (encoding, stored) in [
            ("gzip", Some("gzip")),
            ("Identity", None),
            ("", None),
            ("identity, zstd", Some("identity, zstd")),
        ] {
            let record = message(&with(&[("content-encoding", encoding)]), Bytes::new(), 0).unwrap();
            assert_eq!(record.headers.content_encoding(), stored, "{encoding}");
        }
        let both = with(&[("message-key", "first"), ("ce-partitionkey", "second")]);
        assert_eq!(message(&both, Bytes::new(), 0).unwrap().key.as_deref(), Some(b"first" as &[u8]));
    }

    #[test]
    fn attributes_of_an_event_are_stored_as_they_are_and_not_as_they_are_sent() {
        let headers =
            with(&[("ce-subject", "Euro%20%E2%82%AC"), ("ce-partitionkey", "a%20b"), ("ce-id", "7")]);
        let record = message(&headers, Bytes::new(), 0).unwrap();
        assert!(record.headers.user().any(|it| it == ("ce-subject", "Euro €".as_bytes())));
        assert_eq!(record.key.as_deref(), Some(b"a b" as &[u8]));
        for (name, value) in [
            ("ce-subject", "%C0%A0"),
            ("ce-subject", ""),
            ("ce-time", "yesterday"),
            ("ce-dataschema", "order"),
            ("ce-id", ""),
            ("ce-source", ""),
            ("ce-type", "\"\""),
        ] {
            let refused = message(&with(&[(name, value)]), Bytes::new(), 0).unwrap_err();
            assert!(refused.is(ErrorCode::InvalidHeader), "{name}: {value}");
            assert_eq!(refused.field.as_deref(), Some(name));
        }
        let as_it_is = message(&with(&[("ce-subject", "100%")]), Bytes::new(), 0).unwrap();
        assert!(as_it_is.headers.user().any(|it| it == ("ce-subject", b"100%")));
    }

    #[test]
    fn times_and_numbers_outside_their_grammar_are_refused_by_name() {
        for (name, value) in [
            ("deliver-at", "soon"),
            ("deliver-at", "1969-12-31T23:59:59.9999Z"),
            ("content-type", ""),
            ("deliver-delay-ms", "-1"),
            ("deliver-delay-ms", "99999999999999"),
            ("message-ttl-ms", "x"),
            ("message-ttl-ms", "0"),
            ("message-ttl-ms", "9007199254740992"),
        ] {
            let problem = message(&with(&[(name, value)]), Bytes::new(), 0).unwrap_err();
            assert_eq!(problem.code, "invalid_header", "{name}: {value}");
            assert_eq!(problem.field.as_deref(), Some(name), "{value}");
        }
    }

    #[test]
    fn a_digest_is_verified_among_others() {
        let right = "md5=:AAAA:, sha-256=:LPJNul+wow4m6DsqxbninhsWHlwfp0JecwQzYpOLmCQ=:";
        assert!(check_digest(&with(&[("content-digest", right)]), b"hello").is_ok());
        let lines = right
            .split(", ")
            .map(|line| (http::HeaderName::from_static("content-digest"), line.parse().unwrap()));
        let lines: HeaderMap = lines.collect();
        assert_eq!((lines.len(), lines.keys_len()), (2, 1));
        assert!(check_digest(&lines, b"hello").is_ok(), "over two lines");
        let stored = message(&lines, Bytes::new(), 0).unwrap();
        assert_eq!(stored.headers.digest(), Some(right), "and stored whole");
        let mismatch = check_digest(&with(&[("content-digest", right)]), b"hallo").unwrap_err();
        assert_eq!(mismatch.code, "digest_mismatch");
        assert_eq!(
            check_digest(&with(&[("content-digest", "md5=:x:")]), b"").unwrap_err().code,
            "invalid_header"
        );
        let long = "sha-512=:m3HSJL1i83hdltRq0+o9czGb+8KJDKra4t/3JRlnPKcjI8PZm6XBHXx6zG4UuMXaDEZjR1wuXDre9G9zvN7AQw==:";
        for (digest, is_right) in [
            (long.to_owned(), true),
            (format!("{right}, {long}"), true),
            (long.replace("m3HS", "m4HS"), false),
            (format!("{right}, sha-512=:AAAA:"), false),
        ] {
            let checked = check_digest(&with(&[("content-digest", &digest)]), b"hello");
            assert_eq!(checked.is_ok(), is_right, "{digest}");
        }
    }
}
