//! A record as JSON, and JSON as a record.

use std::borrow::Cow;

use base64::Engine as _;
use base64::engine::general_purpose::STANDARD as BASE64;

use super::{HeaderMap, Msg, Pub, RawJson};
use crate::batch::{HeadersBuilder, Record, Reserved, is_header_name, is_header_text, is_trace_parent};
use crate::ids::{PartitionId, TimestampMs};
use crate::rpc::Level;

/// Key and payload of a [`Pub`].
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Content<'a> {
    /// Key.
    pub key: Option<Cow<'a, [u8]>>,
    /// Content type.
    pub content_type: Option<&'a str>,
    /// Payload.
    pub value: Cow<'a, [u8]>,
}

/// Why a `pub` holds no record. Reject that publish.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum ContentError {
    /// None or both of `data` and `b64`.
    #[error("exactly one of `data` and `b64` is needed")]
    OnePayload,
    /// Both of `key` and `key_b64`.
    #[error("only one of `key` and `key_b64` is allowed")]
    OneKey,
    /// Not base64 with padding.
    #[error("`{0}` is not base64")]
    Base64(&'static str),
    /// A `text/*` payload that is no JSON string.
    #[error("`data` of a text content type is a string")]
    Text,
    /// `data` with a content type that is neither JSON nor text.
    #[error("`data` is for JSON and text content types; use `b64`")]
    ContentType,
    /// A header name that no HTTP header can have.
    #[error("a header name has letters, digits and !#$%&'*+-.^_`|~ only, and at least one")]
    HeaderName,
    /// A content type or trace context that no HTTP header could hold, or an empty content type.
    #[error("`{0}` is empty or not visible ASCII")]
    HeaderText(&'static str),
}

impl ContentError {
    /// The field that is wrong.
    #[must_use]
    pub const fn field(&self) -> &'static str {
        match self {
            Self::OneKey => "key",
            Self::OnePayload | Self::Text | Self::ContentType => "data",
            Self::HeaderName => "h",
            Self::Base64(field) | Self::HeaderText(field) => field,
        }
    }
}

impl Pub {
    /// Key and payload. JSON payloads are the text as it was sent.
    ///
    /// # Errors
    /// [`ContentError`].
    pub fn content(&self) -> Result<Content<'_>, ContentError> {
        let key = match (&self.key, &self.key_b64) {
            (Some(_), Some(_)) => return Err(ContentError::OneKey),
            (Some(key), None) => Some(Cow::Borrowed(key.as_bytes())),
            (None, Some(key)) => Some(Cow::Owned(unbase64("key_b64", key)?)),
            (None, None) => None,
        };
        let content_type = self.ct.as_deref();
        let (content_type, value) = match (&self.data, &self.b64) {
            (Some(data), None) => {
                let content_type = content_type.unwrap_or(JSON);
                (Some(content_type), value_of(data, content_type)?)
            }
            (None, Some(b64)) => (content_type, Cow::Owned(unbase64("b64", b64)?)),
            _ => return Err(ContentError::OnePayload),
        };
        Ok(Content { key, content_type, value })
    }

    /// Adds its headers: the users', content type as [`Pub::content`] found it, delay, time to live and trace context.
    ///
    /// # Errors
    /// [`ContentError::HeaderName`], [`ContentError::HeaderText`]. Other limits are checked when the record
    /// is added to a batch.
    pub fn add_headers(
        &self,
        content_type: Option<&str>,
        headers: &mut HeadersBuilder,
    ) -> Result<(), ContentError> {
        for (name, value) in &self.h.0 {
            let named = headers.user(name, value.as_bytes()).ok().filter(|_| is_header_name(name));
            named.ok_or(ContentError::HeaderName)?;
        }
        if let Some(content_type) = content_type {
            if content_type.is_empty() || !is_header_text(content_type.as_bytes()) {
                return Err(ContentError::HeaderText("ct"));
            }
            headers.content_type(content_type);
        }
        self.deliver_at.map(|at| headers.deliver_at(TimestampMs(at)));
        self.ttl_ms.map(|ttl_ms| headers.ttl_ms(ttl_ms));
        let is_traced = self.traceparent.as_deref().is_none_or(is_trace_parent);
        for (field, which, text) in [
            ("traceparent", Reserved::TraceParent, &self.traceparent),
            ("tracestate", Reserved::TraceState, &self.tracestate),
        ] {
            let Some(text) = text else { continue };
            if !text.bytes().all(|byte| (b' '..=b'~').contains(&byte)) {
                return Err(ContentError::HeaderText(field));
            }
            if is_traced {
                headers.reserved(which, text.as_bytes());
            }
        }
        Ok(())
    }
}

impl Msg {
    /// A record as delivery `n`, at quorum and without a lease.
    #[must_use]
    pub fn of(record: &Record, n: u64, partition: PartitionId) -> Self {
        let (key, key_b64) = text_or_base64(record.key.as_deref());
        let (mut h, mut h_b64) = (HeaderMap::default(), HeaderMap::default());
        for (name, value) in record.headers.user() {
            match std::str::from_utf8(value) {
                Ok(text) => h.0.push((name.to_owned(), text.to_owned())),
                Err(_) => h_b64.0.push((name.to_owned(), BASE64.encode(value))),
            }
        }
        let (ct, ce) = (record.headers.content_type(), record.headers.content_encoding());
        let data = ct.filter(|_| ce.is_none()).and_then(|ct| json_of(ct, &record.value));
        let b64 = data.is_none().then(|| BASE64.encode(&record.value));
        Self {
            topic: None,
            n,
            p: partition.0,
            o: record.offset.0,
            ts: record.ts.0,
            lvl: Level::Quorum,
            term: None,
            size: record.size as u64,
            key,
            key_b64,
            h,
            h_b64,
            ct: ct.map(str::to_owned),
            ce: ce.map(str::to_owned),
            digest: record.headers.digest().map(str::to_owned),
            deliver_at: record.headers.deliver_at().map(|at| at.0),
            ttl_ms: record.headers.ttl_ms(),
            traceparent: record.headers.trace_parent().map(str::to_owned),
            tracestate: record.headers.trace_state().map(str::to_owned),
            data,
            b64,
            lease: None,
        }
    }

    /// The payload's bytes.
    ///
    /// # Errors
    /// [`ContentError`] if the gateway sent neither payload or one that does not fit its content type.
    pub fn value(&self) -> Result<Cow<'_, [u8]>, ContentError> {
        match (&self.data, &self.b64) {
            (Some(data), None) => value_of(data, self.ct.as_deref().unwrap_or(JSON)),
            (None, Some(b64)) => Ok(Cow::Owned(unbase64("b64", b64)?)),
            _ => Err(ContentError::OnePayload),
        }
    }
}

const JSON: &str = "application/json";

fn value_of<'a>(data: &'a RawJson, content_type: &str) -> Result<Cow<'a, [u8]>, ContentError> {
    payload_of(data.get(), content_type)
}

/// The bytes that a JSON value stands for as a payload of this content type: its own text where that is JSON, the
/// text that it quotes where it is text ([`Kind::of`]).
///
/// # Errors
/// [`ContentError::Text`] for text that is no JSON string, [`ContentError::ContentType`] for any other type.
pub fn payload_of<'a>(json: &'a str, content_type: &str) -> Result<Cow<'a, [u8]>, ContentError> {
    match Kind::of(content_type) {
        Kind::Json => Ok(Cow::Borrowed(json.as_bytes())),
        Kind::Text => {
            let text: String = serde_json::from_str(json).map_err(|_| ContentError::Text)?;
            Ok(Cow::Owned(text.into_bytes()))
        }
        Kind::Other => Err(ContentError::ContentType),
    }
}

/// The JSON that shows `value`, if there is one.
fn json_of(content_type: &str, value: &[u8]) -> Option<RawJson> {
    let text = std::str::from_utf8(value).ok()?;
    match Kind::of(content_type) {
        Kind::Json => RawJson::from_text(text),
        Kind::Text => RawJson::of(&text).ok(),
        Kind::Other => None,
    }
}

/// How JSON shows a payload of some content type.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// As it is.
    Json,
    /// As a string of its text.
    Text,
    /// In Base64.
    Other,
}

/// What a subtype, or its suffix, is called where the payload is text.
const TEXTUAL: [&str; 4] = ["xml", "yaml", "javascript", "graphql"];
/// What `curl -d` sends where nobody says otherwise.
const FORM: &str = "application/x-www-form-urlencoded";

impl Kind {
    /// By the media type alone: JSON is `application/json` and `…+json` (RFC 6839); text is `text/…`, forms, and
    /// types whose last part is `xml`, `yaml`, `javascript` or `graphql`. Parameters are skipped, but a `charset` other
    /// than UTF-8 or ASCII makes text bytes.
    #[must_use]
    pub fn of(content_type: &str) -> Self {
        let (media_type, parameters) = content_type.split_once(';').unwrap_or((content_type, ""));
        let media_type = media_type.trim();
        let last = media_type.rsplit(['/', '+', '-', '.']).next().unwrap_or_default();
        if media_type.eq_ignore_ascii_case(JSON) || is_suffix(media_type, "+json") {
            return Self::Json;
        }
        let is_text = media_type.get(..5).is_some_and(|group| group.eq_ignore_ascii_case("text/"))
            || media_type.eq_ignore_ascii_case(FORM)
            || TEXTUAL.iter().any(|textual| last.eq_ignore_ascii_case(textual));
        if is_text && is_utf8(parameters) { Self::Text } else { Self::Other }
    }
}

fn is_suffix(text: &str, suffix: &str) -> bool {
    let start = text.len().checked_sub(suffix.len());
    start.and_then(|start| text.get(start..)).is_some_and(|end| end.eq_ignore_ascii_case(suffix))
}

fn is_utf8(parameters: &str) -> bool {
    parameters.split(';').all(|parameter| match parameter.split_once('=') {
        Some((name, charset)) if name.trim().eq_ignore_ascii_case("charset") => {
            ["utf-8", "us-ascii"].iter().any(|it| charset.trim().trim_matches('"').eq_ignore_ascii_case(it))
        }
        _ => true,
    })
}

fn text_or_base64(bytes: Option<&[u8]>) -> (Option<String>, Option<String>) {
    match bytes.map(|bytes| (std::str::from_utf8(bytes), bytes)) {
        None => (None, None),
        Some((Ok(text), _)) => (Some(text.to_owned()), None),
        Some((Err(_), bytes)) => (None, Some(BASE64.encode(bytes))),
    }
}

fn unbase64(field: &'static str, text: &str) -> Result<Vec<u8>, ContentError> {
    BASE64.decode(text).map_err(|_| ContentError::Base64(field))
}
