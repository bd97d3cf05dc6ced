//! What texts in requests look like, as the document says it. The code that reads each of them says no more
//! and no less; the tests hold them against each other. Patterns are of ECMA-262, and need nothing that other
//! dialects do not have.

use weir_protocol::filter::FILTER_BYTES_MAX;
use weir_protocol::ids::Name;
use weir_protocol::limits::{CLIENT_ID_BYTES_MAX, KEY_BYTES_MAX, SETTLE_REASON_BYTES_MAX};

/// What a text looks like.
#[derive(Debug, PartialEq, Eq)]
pub struct Form {
    /// A regular expression that it matches, if there is one.
    pub pattern: Option<&'static str>,
    /// Fewest bytes.
    pub min: Option<usize>,
    /// Most bytes. The document counts characters, of which there are never more.
    pub max: Option<usize>,
}

macro_rules! name {
    () => {
        // All but `.` and `..`.
        r"(\.?[A-Za-z0-9_~-]|\.\.[A-Za-z0-9._~-])[A-Za-z0-9._~-]*"
    };
}

macro_rules! snapshot {
    () => {
        "snap_[0-9a-fA-F]{16}"
    };
}

macro_rules! offset {
    () => {
        // Up to 2^53 - 1, which has this many digits.
        "[0-9]{1,16}"
    };
}

macro_rules! time {
    () => {
        time!("(19[7-9][0-9]|[2-9][0-9]{3})")
    };
    ($year:expr) => {
        // RFC 3339, else from 1970 on. Which months have 31 days is more than a pattern should say.
        concat!(
            $year,
            "-(0[1-9]|1[0-2])-(0[1-9]|[12][0-9]|3[01])[Tt]",
            r"([01][0-9]|2[0-3]):[0-5][0-9]:[0-5][0-9](\.[0-9]+)?([Zz]|[+-]([01][0-9]|2[0-3]):[0-5][0-9])"
        )
    };
}

macro_rules! at_time {
    () => {
        concat!("ts:(", offset!(), "|", time!(), ")")
    };
}

macro_rules! token {
    () => {
        "[A-Za-z0-9_-]+"
    };
}

macro_rules! token_of_http {
    () => {
        "[!#$%&'*+.^_`|~0-9A-Za-z-]+"
    };
}

/// A list of tags of one kind, or `*`.
macro_rules! tags {
    ($tag:expr) => {
        concat!(r"^(\*|", $tag, r"([ \t]*,[ \t]*", $tag, ")*)$")
    };
}

/// A namespace, topic or subscription.
pub const NAME: Form =
    Form { pattern: Some(concat!("^", name!(), "$")), min: Some(1), max: Some(Name::MAX_BYTES) };
/// A topic, or the beginning of names and `*`.
pub const NAME_OR_PATTERN: Form = Form {
    pattern: Some(concat!("^(", name!(), r"|[A-Za-z0-9._~-]*\*)$")),
    min: Some(1),
    max: Some(Name::MAX_BYTES),
};
/// Where a read starts.
pub const FROM: Form = matching(concat!(
    "^(earliest|latest|",
    offset!(),
    "|",
    at_time!(),
    "|tail:",
    offset!(),
    "|cursor:",
    token!(),
    ")$"
));
/// Where following several topics starts.
pub const FROM_OF_MANY: Form =
    matching(concat!("^(earliest|latest|", at_time!(), "|tail:", offset!(), "|cursor:", token!(), ")$"));
/// Where a read ends.
pub const UNTIL: Form = matching(concat!("^(", offset!(), "|", at_time!(), ")$"));
/// Where a subscription starts.
pub const START: Form =
    matching(concat!("^(earliest|latest|", offset!(), "|", at_time!(), "|tail:", offset!(), ")$"));
/// Where a subscription is moved, unless by a number.
pub const SEEK_TO: Form = matching(concat!("^(earliest|latest|", offset!(), "|", at_time!(), "|undo)$"));
/// What is trimmed, unless by a number.
pub const TRIM_BEFORE: Form = matching(concat!("^(", offset!(), "|", at_time!(), "|end)$"));
/// What a seek or purge answers, to be undone.
pub const UNDO: Form = matching(concat!("^", snapshot!(), "$"));
/// An instant that a fork begins with, or of which a list tells.
pub const MOMENT: Form = matching(concat!("^(now|", at_time!(), "|", snapshot!(), ")$"));
/// A message of a subscription.
pub const MESSAGE_ID: Form = matching(concat!("^(", name!(), ":)?[0-9]{1,9}:", offset!(), "$"));
/// `queue` or `stream`.
pub const MODE: Form = matching("^(queue|stream)$");
/// `none` or `key`.
pub const ORDER: Form = matching("^(none|key)$");
/// What a browser may send as its origin; which hosts and ports are none is more than a pattern can say.
pub const ORIGIN: Form = matching(r"^[a-z][a-z0-9+.-]*://(\[[0-9a-f:.]+\]|[a-z0-9._-]+)(:[1-9][0-9]{0,4})?$");
/// A structured-field string, or a UUID without quotes.
pub const IDEMPOTENCY_KEY: Form =
    matching(r#"^("([ !#-\[\]-~]|\\["\\]){1,255}"|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$"#);
/// Tags of a configuration, or `*`.
pub const VERSIONS: Form = matching(tags!("\"[0-9]{1,19}:[0-9]{1,9}\""));
/// Tags of the tail of one partition, or `*`.
pub const TAILS: Form = matching(tags!("\"[0-9]{1,19}:[0-9]{1,9}:[0-9]{1,19}\""));
/// Any tags, or `*`.
pub const TAGS: Form = matching(tags!("(W/)?\"[!#-~]*\""));
/// `*` alone.
pub const ANYTHING: Form = matching(r"^\*$");
/// A cursor, which is made by the service.
pub const CURSOR: Form = matching(concat!("^", token!(), "$"));
/// A receipt, likewise.
pub const RECEIPT: Form = matching(concat!("^rcpt_", token!(), "$"));
/// A lease, likewise.
pub const LEASE: Form = matching(concat!("^l_", token!(), "$"));
/// A digest of a body.
pub const DIGEST: Form =
    matching(r"^(.*,)?[ \t]*sha-(256=:[A-Za-z0-9+/]{43}=|512=:[A-Za-z0-9+/]{86}==):[ \t]*(,.*)?$");
/// A time (RFC 3339).
pub const TIME: Form = matching(concat!("^", time!(), "$"));
/// When an event happened (RFC 3339), which may be before 1970.
pub const EVENT_TIME: Form = matching(concat!("^", time!("[0-9]{4}"), "$"));
/// A URI.
pub const URI: Form = matching(r"^[A-Za-z][A-Za-z0-9+.-]*:[!#-;=?-\[\]_a-z~]+$");
/// Bytes in Base64, with padding.
pub const BASE64: Form =
    matching("^([A-Za-z0-9+/]{4})*([A-Za-z0-9+/][AQgw]==|[A-Za-z0-9+/]{2}[AEIMQUYcgkosw048]=)?$");
/// Subprotocols of a WebSocket.
pub const SUBPROTOCOLS: Form = matching(r"(^|,)[ \t]*weir\.v1\.(json|bin)[ \t]*(,|$)");
/// A producer.
pub const PRODUCER: Form = of_bytes(1, CLIENT_ID_BYTES_MAX);
/// A filter, or what messages take turns by.
pub const FILTER: Form = of_bytes(1, FILTER_BYTES_MAX);
/// A message's key.
pub const KEY: Form = Form { pattern: None, min: None, max: Some(KEY_BYTES_MAX) };
/// A message's content type, which a header can tell.
pub const CONTENT_TYPE: Form = matching("^[\\t -~]+$");
/// A media type with its parameters.
pub const MEDIA_TYPE: Form = Form {
    pattern: Some(concat!(
        "^",
        token_of_http!(),
        "/",
        token_of_http!(),
        "[ \\t]*(;[ \\t]*(",
        token_of_http!(),
        "=(",
        token_of_http!(),
        r#"|"([\t !#-\[\]-~]|\\[\t -~])*")[ \t]*)?)*$"#
    )),
    min: None,
    max: Some(255),
};
/// What a header can tell, or nothing.
pub const TEXT_OF_HEADER: Form = matching("^[ -~]*$");
/// A name of a header.
pub const HEADER_NAME: Form = matching(concat!("^", token_of_http!(), "$"));
/// Why a message was not processed.
pub const REASON: Form = Form { pattern: None, min: None, max: Some(SETTLE_REASON_BYTES_MAX) };

const _: () = assert!(CLIENT_ID_BYTES_MAX == 255, "the pattern of idempotency keys says so");

/// Fields of bodies: the schema, the field (of a list: its items), and what the text looks like.
pub(super) const FIELDS: &[(&str, &str, &Form)] = &[
    ("NamespaceConfig", "cors_origins", &ORIGIN),
    ("NamespacePatch", "cors_origins", &ORIGIN),
    ("TopicConfig", "content_type", &MEDIA_TYPE),
    ("TopicPatch", "content_type", &MEDIA_TYPE),
    ("SubscriptionConfig", "topics", &NAME_OR_PATTERN),
    ("SubscriptionConfig", "dlq", &NAME),
    ("SubscriptionConfig", "start", &START),
    ("SubscriptionConfig", "filter", &FILTER),
    ("SubscriptionConfig", "fair_by", &FILTER),
    ("SubscriptionPatch", "mode", &MODE),
    ("SubscriptionPatch", "topics", &NAME_OR_PATTERN),
    ("SubscriptionPatch", "dlq", &NAME),
    ("SubscriptionPatch", "order", &ORDER),
    ("SubscriptionPatch", "start", &START),
    ("SubscriptionPatch", "filter", &FILTER),
    ("SubscriptionPatch", "fair_by", &FILTER),
    ("ForkSubscription", "name", &NAME),
    ("ForkSubscription", "at", &MOMENT),
    ("BatchLine", "key", &KEY),
    ("BatchLine", "content_type", &CONTENT_TYPE),
    ("BatchLine", "data_base64", &BASE64),
    ("BatchLine", "deliver_at", &TIME),
    ("BatchLine", "traceparent", &TEXT_OF_HEADER),
    ("BatchLine", "tracestate", &TEXT_OF_HEADER),
    ("CloudEvent", "datacontenttype", &CONTENT_TYPE),
    ("CloudEvent", "time", &EVENT_TIME),
    ("CloudEvent", "dataschema", &URI),
    ("CloudEvent", "data_base64", &BASE64),
    ("CloudEvent", "partitionkey", &KEY),
    ("OutputMessage", "topic", &NAME),
    ("OutputMessage", "data_base64", &BASE64),
    ("OutputMessage", "deliver_at", &TIME),
    ("OutputMessage", "traceparent", &TEXT_OF_HEADER),
    ("OutputMessage", "tracestate", &TEXT_OF_HEADER),
    ("OutputMessage", "key", &KEY),
    ("OutputMessage", "content_type", &CONTENT_TYPE),
    ("Settle", "ack", &LEASE),
    ("Rejection", "lease", &LEASE),
    ("Extension", "lease", &LEASE),
    ("Dismissal", "lease", &LEASE),
    ("Rejection", "reason", &REASON),
    ("Dismissal", "reason", &REASON),
    ("Seek", "undo", &UNDO),
    ("Redrive", "ids", &MESSAGE_ID),
    ("Redrive", "filter", &FILTER),
    ("Redrive", "cursor", &CURSOR),
];

/// Fields that are a text or a number, which is an offset.
pub(super) const POSITIONS: &[(&str, &str, &Form)] =
    &[("Seek", "to", &SEEK_TO), ("Trim", "before", &TRIM_BEFORE)];

const fn matching(pattern: &'static str) -> Form {
    Form { pattern: Some(pattern), min: None, max: None }
}

const fn of_bytes(min: usize, max: usize) -> Form {
    Form { pattern: None, min: Some(min), max: Some(max) }
}
