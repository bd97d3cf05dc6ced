//! CloudEvents 1.0 in structured and batch mode. Attributes are stored as they are in binary mode: `ce-*` headers.

use std::collections::BTreeMap;

use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use serde::Deserialize;
use serde_json::value::RawValue;
use weir_protocol::batch::HeadersBuilder;
use weir_protocol::error::ErrorCode;
use weir_protocol::limits::HTTP_BATCH_RECORDS_MAX;
use weir_protocol::objects;
use weir_protocol::ws::PayloadKind;

use crate::api::{Problem, unique};
use crate::edge::attribute;
use crate::edge::from_json::wrong;
use crate::service::publish::{NewRecord, Unnamed, check_content_type};

const NO_EVENT: &str = "not a CloudEvent: ";
const REQUIRED: [&str; 4] = ["specversion", "id", "source", "type"];

/// What an event says of itself, and its data.
#[derive(Deserialize)]
#[serde(transparent)]
struct Attributes<'a>(#[serde(borrow, deserialize_with = "unique")] BTreeMap<String, &'a RawValue>);

/// One event; what the request said of the message is stored with it, and its key goes before `partitionkey`.
pub(super) fn event(
    body: &Bytes,
    (headers, key): (HeadersBuilder, Option<Bytes>),
) -> Result<NewRecord, Problem> {
    let event = objects::from_slice::<Attributes<'_>>(body);
    let event = event.map_err(|error| wrong::<Attributes<'_>>(NO_EVENT, body, &error.to_string()))?;
    let stored = record(body, event.0, headers).map_err(|bad| bad.problem(""))?;
    Ok(NewRecord { key: key.or(stored.key), ..stored })
}

/// An array of events; `headers` are stored with each.
pub(super) fn batch(body: &Bytes, headers: impl Fn() -> HeadersBuilder) -> Result<Vec<NewRecord>, Problem> {
    let events = objects::from_slice::<Vec<Attributes<'_>>>(body);
    let events = events.map_err(|error| wrong::<Vec<Attributes<'_>>>(NO_EVENT, body, &error.to_string()))?;
    if events.len() > HTTP_BATCH_RECORDS_MAX as usize {
        let limit = u64::from(HTTP_BATCH_RECORDS_MAX);
        return Err(Problem::new(ErrorCode::TooLarge, format!("more than {limit} events")).with_limit(limit));
    }
    let numbered = events.into_iter().enumerate();
    numbered
        .map(|(place, event)| {
            record(body, event.0, headers()).map_err(|bad| bad.problem(&format!("event {place}: ")))
        })
        .collect()
}

/// The attribute or data that is wrong, and why.
struct Bad {
    field: String,
    why: String,
}

impl Bad {
    fn new(field: &str, why: impl Into<String>) -> Self {
        Self { field: field.to_owned(), why: why.into() }
    }

    fn problem(self, before: &str) -> Problem {
        let Self { field, why } = self;
        Problem::new(ErrorCode::Malformed, format!("{before}{field}: {why}")).with_field(field)
    }
}

fn record(
    body: &Bytes,
    mut event: BTreeMap<String, &RawValue>,
    mut headers: HeadersBuilder,
) -> Result<NewRecord, Bad> {
    let (data, encoded) = (event.remove("data"), event.remove("data_base64"));
    // An attribute that is null is one that is not there (JSON format, section 2.1), and null is no Base64 either.
    event.retain(|_, value| value.get() != "null");
    let encoded = encoded.filter(|encoded| encoded.get() != "null");
    let content_type =
        event.remove("datacontenttype").map(|value| text("datacontenttype", value)).transpose()?;
    if let Some(text) = &content_type {
        check_content_type(text.as_bytes()).map_err(|why| Bad::new("datacontenttype", why))?;
    }
    if let Some(missing) = REQUIRED.into_iter().find(|name| !event.contains_key(*name)) {
        return Err(Bad::new(missing, "the attribute is missing"));
    }
    if let Some(empty) = REQUIRED.into_iter().find(|name| event[*name].get() == r#""""#) {
        return Err(Bad::new(empty, "the attribute is empty"));
    }
    // Data of an event that does not say so is JSON; of what encoded bytes are, nothing is known.
    let unnamed = (content_type.is_none() && data.is_none()).then_some(Unnamed::Bytes);
    let value = match (data, encoded) {
        (Some(data), None) => {
            let content_type = content_type.unwrap_or_else(|| "application/json".to_owned());
            headers.content_type(&content_type);
            payload(body, &content_type, data).map_err(|why| Bad::new("data", why))?
        }
        (None, Some(encoded)) => {
            if let Some(content_type) = content_type {
                headers.content_type(&content_type);
            }
            let bad = |why: String| Bad::new("data_base64", why);
            let text: String =
                serde_json::from_str(encoded.get()).map_err(|_| bad("not a text".to_owned()))?;
            Bytes::from(BASE64_STANDARD.decode(text).map_err(|error| bad(error.to_string()))?)
        }
        (None, None) => {
            if let Some(content_type) = content_type {
                headers.content_type(&content_type);
            }
            Bytes::new()
        }
        (Some(_), Some(_)) => return Err(Bad::new("data", "an event has either data or data_base64")),
    };
    let mut key = None;
    for (name, value) in &event {
        if !attribute::is_name(name) {
            return Err(Bad::new(name, "no attribute name: a-z and 0-9 are allowed"));
        }
        let value = text(name, value)?;
        if name == "specversion" && value != "1.0" {
            return Err(Bad::new(name, format!("{value:?}; 1.0 is understood")));
        }
        if name == "partitionkey" {
            key = Some(Bytes::from(value.clone()));
        }
        attribute::check(name, &value).map_err(|why| Bad::new(name, why))?;
        headers.user(&format!("ce-{name}"), value.as_bytes()).map_err(|why| Bad::new(name, why))?;
    }
    Ok(NewRecord { key, headers: headers.finish(), value, unnamed })
}

/// JSON payloads are stored as their own text; with another content type a JSON string means its text.
fn payload(body: &Bytes, content_type: &str, data: &RawValue) -> Result<Bytes, String> {
    if PayloadKind::of(content_type) == PayloadKind::Json || !data.get().starts_with('"') {
        return Ok(body.slice_ref(data.get().as_bytes()));
    }
    serde_json::from_str::<String>(data.get()).map(Bytes::from).map_err(|error| error.to_string())
}

/// An attribute's value: text as it is, numbers and booleans as they are written.
fn text(name: &str, value: &RawValue) -> Result<String, Bad> {
    let raw = value.get();
    match raw.as_bytes().first() {
        Some(b'"') => serde_json::from_str(raw).map_err(|error| Bad::new(name, error.to_string())),
        Some(b'{' | b'[') => Err(Bad::new(name, "not a text, number or boolean")),
        _ => Ok(raw.to_owned()),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const EVENT: &str = r#"{"specversion":"1.0","id":"7","source":"/s","type":"t","partitionkey":"k","n":3,
        "datacontenttype":"application/json","data":{"big":9007199254740993.10}}"#;

    #[test]
    fn attributes_become_headers_and_json_keeps_its_digits() {
        let record = event(&Bytes::from_static(EVENT.as_bytes()), Default::default()).unwrap();
        assert_eq!(&record.value[..], br#"{"big":9007199254740993.10}"#);
        assert_eq!(record.key.as_deref(), Some(b"k" as &[u8]));
        assert_eq!(record.headers.content_type(), Some("application/json"));
        let headers: Vec<_> = record.headers.user().collect();
        assert!(
            headers.contains(&("ce-id", b"7" as &[u8])) && headers.contains(&("ce-n", b"3")),
            "{headers:?}"
        );
        assert_eq!(batch(&format!("[{EVENT},{EVENT}]").into(), Default::default).unwrap().len(), 2);
    }

    #[test]
    fn an_attribute_that_is_null_is_not_there() {
        let text = r#"{"specversion":"1.0","id":"7","source":"/s","type":"t","subject":null,"data":null}"#;
        let record = event(&Bytes::from_static(text.as_bytes()), Default::default()).unwrap();
        assert!(record.headers.user().all(|(name, _)| name != "ce-subject"));
        assert_eq!(&record.value[..], b"null", "data may be null");
        let text = text.replace("\"data\"", "\"data_base64\"");
        let record = event(&Bytes::from(text), Default::default()).unwrap();
        assert_eq!(&record.value[..], b"", "null is no bytes");
    }

    #[test]
    fn the_requests_own_key_and_headers_are_stored_too() {
        let mut around = HeadersBuilder::default();
        around.user("trace", b"1").unwrap();
        let body = Bytes::from_static(EVENT.as_bytes());
        let record = event(&body, (around, Some(Bytes::from_static(b"mine")))).unwrap();
        assert_eq!(record.key.as_deref(), Some(b"mine" as &[u8]));
        let headers: Vec<_> = record.headers.user().collect();
        assert!(headers.contains(&("trace", b"1" as &[u8])) && headers.contains(&("ce-id", b"7")));
    }

    #[test]
    fn what_is_no_event_is_refused_with_its_place() {
        let of = |rest: &str| format!(r#"[{{"specversion":"1.0","id":"1","source":"s",{rest}}}]"#);
        for (text, why, field) in [
            (of(r#""n":1"#), "event 0: type: the attribute is missing", Some("type")),
            (of(r#""type":null"#), "the attribute is missing", Some("type")),
            (of(r#""type":"""#), "type: the attribute is empty", Some("type")),
            (of(r#""type":"t","subject":{}"#), "subject: not a text, number", Some("subject")),
            (of(r#""type":"t","subject":"""#), "subject: the attribute is empty", Some("subject")),
            (of(r#""type":"t","time":"soon""#), "time: not an RFC 3339", Some("time")),
            (of(r#""type":"t","time":7"#), "time: not an RFC 3339", Some("time")),
            (of(r#""type":"t","dataschema":"order""#), "dataschema: not a URI", Some("dataschema")),
            (of(r#""type":"t","Bad":1"#), "Bad: no attribute name", Some("Bad")),
            (of(r#""type":"t","data":1,"data_base64":"""#), "either", Some("data")),
            // Base64 they would be, each of them.
            (of(r#""type":"t","data_base64":true"#), "data_base64: not a text", Some("data_base64")),
            (of(r#""type":"t","data_base64":1234"#), "data_base64", Some("data_base64")),
            (of(r#""type":"t","datacontenttype":7,"data_base64":"?""#), "data_base64", Some("data_base64")),
            (of(r#""type":"t","id":"2""#), "duplicate field `id`", Some("id")),
            (
                r#"[{"specversion":"0.3","id":"1","source":"s","type":"t"}]"#.into(),
                "1.0 is",
                Some("specversion"),
            ),
            ("[{},7]".into(), "not a CloudEvent: [1]: invalid type", Some("[1]")),
            ("{}".into(), "not a CloudEvent", None),
        ] {
            let problem = batch(&Bytes::from(text.clone()), Default::default).unwrap_err();
            assert_eq!(problem.field.as_deref(), field, "{text}: {}", problem.detail);
            assert!(problem.detail.contains(why), "{text}: {}", problem.detail);
        }
    }
}
