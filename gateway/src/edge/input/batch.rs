//! What a request's headers say around a batch: what is of one message is refused, and the trace is that of each.

use http::HeaderMap;
use weir_protocol::batch::{HeadersBuilder, Reserved, is_trace_parent};
use weir_protocol::error::ErrorCode;

use super::Form;
use crate::api::{BatchLine, Problem};

/// Headers of one message, as names or beginnings of names.
const OF_ONE_MESSAGE: [&str; 5] =
    ["message-key", "message-header-", "message-ttl-ms", "deliver-at", "deliver-delay-ms"];
const ATTRIBUTE: &str = "ce-";

/// The trace that a request is part of (W3C Trace Context): that of its messages, unless they name their own.
#[derive(Debug, Default)]
pub(in crate::edge) struct Trace {
    parent: Option<String>,
    state: Option<String>,
}

impl Trace {
    /// The trace of a request. A parent that is none is passed on by nobody, and no state without it.
    ///
    /// # Errors
    /// `invalid_header`.
    pub(in crate::edge) fn of(headers: &HeaderMap) -> Result<Self, Problem> {
        let parent = headers.get("traceparent").map(|parent| parent.to_str().unwrap_or_default());
        if parent.is_some_and(|parent| !is_trace_parent(parent)) {
            return Ok(Self::default());
        }
        // A list, which may come in several lines (RFC 9110, section 5.3).
        let states = headers.get_all("tracestate").iter().map(|state| text("tracestate", state));
        let states: Vec<_> = states.collect::<Result<_, _>>()?;
        let state = (!states.is_empty()).then(|| states.join(","));
        Ok(Self { parent: parent.map(str::to_owned), state })
    }

    pub(super) fn add_to(&self, headers: &mut HeadersBuilder) {
        for (which, value) in [(Reserved::TraceParent, &self.parent), (Reserved::TraceState, &self.state)] {
            if let Some(value) = value {
                headers.reserved(which, value.as_bytes());
            }
        }
    }

    /// Gives it to a line that names none; the state of one trace does not go with another.
    pub(super) fn fill(&self, line: &mut BatchLine<'_>) {
        if line.traceparent.is_none() && self.parent.is_some() {
            line.traceparent.clone_from(&self.parent);
            line.tracestate.clone_from(&self.state);
        }
    }
}

fn text(name: &'static str, value: &http::HeaderValue) -> Result<String, Problem> {
    let text = value.to_str().map_err(|_| Problem::invalid_header(name, "not visible ASCII"))?;
    Ok(text.to_owned())
}

/// Refuses headers of one message with a batch of this form. Dropped, they would look as if they had an effect.
///
/// # Errors
/// `invalid_header` by name.
pub(in crate::edge) fn check_batch_headers(form: Form, headers: &HeaderMap) -> Result<(), Problem> {
    // The attributes of an event may be repeated around it (CloudEvents, HTTP binding, section 3.2.3).
    let is_event = matches!(form, Form::Event | Form::Events);
    let is_of_one = |name: &&http::HeaderName| {
        OF_ONE_MESSAGE.iter().any(|known| match known.strip_suffix('-') {
            Some(_) => name.as_str().starts_with(known),
            None => name.as_str() == *known,
        }) || (!is_event && name.as_str().starts_with(ATTRIBUTE))
    };
    match headers.keys().find(is_of_one) {
        None => Ok(()),
        Some(name) => {
            let why = "is of one message; in a batch each says it itself";
            Err(Problem::invalid_header(name.as_str(), why))
        }
    }
}

/// Whether a list of codings names none, or only the one that changes nothing (RFC 9110, section 8.4.1).
pub(super) fn is_plain(codings: &[u8]) -> bool {
    let mut codings = codings.split(|byte| *byte == b',').map(<[u8]>::trim_ascii);
    codings.all(|coding| coding.is_empty() || coding.eq_ignore_ascii_case(b"identity"))
}

/// Refuses a body that is encoded where it has to be understood.
///
/// # Errors
/// `unsupported_media_type`.
pub(in crate::edge) fn check_not_encoded(headers: &HeaderMap) -> Result<(), Problem> {
    if headers.get_all("content-encoding").iter().all(|codings| is_plain(codings.as_bytes())) {
        return Ok(());
    }
    let detail =
        "a body that is read here comes without Content-Encoding; the payload of one message may have one";
    Err(Problem::new(ErrorCode::UnsupportedMediaType, detail).with_field("content-encoding"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::edge::given::headers as with;

    #[test]
    fn what_is_of_one_message_is_refused_by_name() {
        for name in
            ["message-key", "message-header-x", "message-ttl-ms", "deliver-at", "deliver-delay-ms", "ce-id"]
        {
            let headers = with(&[("accept", "*/*"), (name, "1")]);
            let refused = check_batch_headers(Form::Lines, &headers).unwrap_err();
            assert!(refused.is(ErrorCode::InvalidHeader), "{name}");
            assert_eq!(refused.field.as_deref(), Some(name));
        }
        let around = with(&[("confirm", "quorum"), ("producer-id", "p"), ("traceparent", "00-1")]);
        assert!(check_batch_headers(Form::Binary, &around).is_ok());
        assert!(check_batch_headers(Form::Event, &with(&[("ce-id", "1")])).is_ok());
        assert!(check_batch_headers(Form::Binary, &with(&[("ce-id", "1")])).is_err());
    }

    #[test]
    fn a_trace_is_one_parent_and_a_list_of_states() {
        let parent = "00-0af7651916cd43dd8448eb211c80319c-b7ad6b7169203331-01";
        let of = |parent: &str| {
            Trace::of(&with(&[("traceparent", parent), ("tracestate", "a=1"), ("tracestate", "b=2")]))
                .unwrap()
        };
        let trace = of(parent);
        let mut line = BatchLine::default();
        trace.fill(&mut line);
        assert_eq!(
            (line.traceparent.as_deref(), line.tracestate.as_deref()),
            (Some(parent), Some("a=1,b=2"))
        );
        let mut own = BatchLine { traceparent: Some("00-2".into()), ..BatchLine::default() };
        trace.fill(&mut own);
        assert_eq!((own.traceparent.as_deref(), own.tracestate), (Some("00-2"), None));
        for none in
            ["00-1", "", &parent.replace("00-", "ff-"), &parent.to_uppercase(), &format!("{parent}-x")]
        {
            let none = of(none);
            assert_eq!((none.parent, none.state), (None, None), "nobody passes it on");
        }
        assert!(of(&format!("{parent}-x").replacen("00", "01", 1)).parent.is_some(), "a later version");
    }

    #[test]
    fn only_a_body_as_it_is_can_be_read() {
        for (encoding, is_read) in
            [("identity", true), ("", true), ("gzip", false), ("identity, zstd", false)]
        {
            assert_eq!(
                check_not_encoded(&with(&[("content-encoding", encoding)])).is_ok(),
                is_read,
                "{encoding}"
            );
        }
        assert!(check_not_encoded(&HeaderMap::new()).is_ok());
    }
}
