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
pub const FROM: Form = matching("^(earliest|latest|[0-9]+|ts:.+|tail:[0-9]+|cursor:.+)$");
/// Where following several topics starts.
pub const FROM_OF_MANY: Form = matching("^(earliest|latest|ts:.+|tail:[0-9]+|cursor:.+)$");
/// Where a read ends.
pub const UNTIL: Form = matching("^([0-9]+|ts:.+)$");
/// Where a subscription starts.
pub const START: Form = matching("^(earliest|latest|[0-9]+|ts:.+|tail:[0-9]+)$");
/// Where a subscription is moved, unless by a number.
pub const SEEK_TO: Form = matching("^(earliest|latest|[0-9]+|ts:.+|undo)$");
/// What is trimmed, unless by a number.
pub const TRIM_BEFORE: Form = matching("^([0-9]+|ts:.+|end)$");
/// What a seek or purge answers, to be undone.
pub const UNDO: Form = matching(concat!("^", snapshot!(), "$"));
/// An instant that a fork begins with, or of which a list tells.
pub const MOMENT: Form = matching(concat!("^(now|ts:.+|", snapshot!(), ")$"));
/// A message of a subscription.
pub const MESSAGE_ID: Form = matching(concat!("^(", name!(), ":)?[0-9]+:[0-9]+$"));
/// `queue` or `stream`.
pub const MODE: Form = matching("^(queue|stream)$");
/// `none` or `key`.
pub const ORDER: Form = matching("^(none|key)$");
/// What a browser may send as its origin; which hosts and ports are none is more than a pattern can say.
pub const ORIGIN: Form = matching("^[a-z][a-z0-9+.-]*://[^/?#@A-Z]+$");
/// A structured-field string, or a UUID without quotes.
pub const IDEMPOTENCY_KEY: Form =
    matching(r#"^("([ !#-\[\]-~]|\\["\\]){1,255}"|[0-9A-Fa-f]{8}(-[0-9A-Fa-f]{4}){3}-[0-9A-Fa-f]{12})$"#);
/// A producer.
pub const PRODUCER: Form = of_bytes(1, CLIENT_ID_BYTES_MAX);
/// A filter, or what messages take turns by.
pub const FILTER: Form = of_bytes(1, FILTER_BYTES_MAX);
/// A message's key.
pub const KEY: Form = Form { pattern: None, min: None, max: Some(KEY_BYTES_MAX) };
/// A message's content type, which a header can tell.
pub const CONTENT_TYPE: Form = matching("^[\\t -~]+$");
/// Why a message was not processed.
pub const REASON: Form = Form { pattern: None, min: None, max: Some(SETTLE_REASON_BYTES_MAX) };

const _: () = assert!(CLIENT_ID_BYTES_MAX == 255, "the pattern of idempotency keys says so");

/// Fields of bodies: the schema, the field (of a list: its items), and what the text looks like.
pub(super) const FIELDS: &[(&str, &str, &Form)] = &[
    ("NamespaceConfig", "cors_origins", &ORIGIN),
    ("NamespacePatch", "cors_origins", &ORIGIN),
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
    ("OutputMessage", "topic", &NAME),
    ("OutputMessage", "key", &KEY),
    ("OutputMessage", "content_type", &CONTENT_TYPE),
    ("Rejection", "reason", &REASON),
    ("Dismissal", "reason", &REASON),
    ("Seek", "undo", &UNDO),
    ("Redrive", "ids", &MESSAGE_ID),
    ("Redrive", "filter", &FILTER),
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
