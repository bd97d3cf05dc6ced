//! Reading and following.

use weir_protocol::limits::{PARTITIONS_MAX, READ_RECORDS_MAX, WAIT_MS_MAX};

use super::{Answer, Body, Content, Kind, Operation, Param, Target, Verb};
use crate::api::forms;
use crate::api::limits::READ_BYTES_MAX;
use crate::auth::Op;

const MIN_LEVEL: Param = Param::optional(
    "min_level",
    Kind::OneOf(&["memory", "quorum"]),
    "Lowest level you are willing to see. Pages are of committed messages: `memory` is refused as `level_unavailable`, \
     except by storage that confirms at `memory` at most. With `text/event-stream`, `memory` shows messages before \
     they are committed; the topic's `deliver_from` by default.",
);
const INCARNATION: Param = Param::optional(
    "incarnation",
    Kind::Integer { min: 1, max: (1 << 53) - 1 },
    "The life of the topic that is meant, its `incarnation`: if it was deleted and made anew, 410 `incarnation_gone`. What \
     does not change may then be kept for ever.",
);
const FOLLOW_LEVEL: Param = Param::optional(
    "min_level",
    Kind::OneOf(&["memory", "quorum"]),
    "Lowest level you are willing to see; each topic's `deliver_from` by default. `memory` shows messages before they \
     are committed: what becomes of them is told by `firm` and `retract`.",
);
const FILTER: Param = Param::optional(
    "filter",
    Kind::Form(&forms::FILTER),
    "Only messages that match, an expression over `header.<name>`, `key` and `content_type` as \
     `header.region == 'eu*' and not key == 'test'`. What does not match stays at the storage node. A page looks at no more \
     than 32,768 messages or 16 MiB, divided over the partitions read: it may be empty and yet not the end, and its \
     positions are behind what was looked at.",
);
const LAST_EVENT_ID: Param =
    Param::optional("Last-Event-ID", Kind::Text, "`id` of the last event received: continue after it.");

const READ_HEADERS: &[(&str, &str)] = &[
    ("Next-Offset", "Where to read on (one partition)."),
    ("Cursor", "Where to read on, opaque; valid for all partitions read."),
    ("Up-To-Date", "`true` if that is the end."),
    ("Closed", "`true` if the topic is closed: nothing follows the end unless it is opened again."),
    ("ETag", "Tag of the range and of the topic's life."),
    ("Link", "`rel=next`."),
    (
        "Cache-Control",
        "For full ranges of committed messages `immutable` where a cursor or `incarnation` says which life of the topic is \
         meant, else `no-cache`: compare the tag. At the tail `no-store`.",
    ),
];

const MESSAGE_TAG: (&str, &str) = ("ETag", "Tag of the message.");
const MESSAGE_CACHING: (&str, &str) = (
    "Cache-Control",
    "Once it is committed `immutable` with `incarnation`, else `no-cache`: compare the tag.",
);

const EVENTS: Content = Content { media: "text/event-stream", schema: None };
const JSON: Content = Content { media: "application/json", schema: Some("ReadPage") };
const NDJSON: Content = Content { media: "application/x-ndjson", schema: Some("Record") };
const CLOUD_EVENTS: Content = Content { media: "application/cloudevents-batch+json", schema: None };
const BATCH: Content = Content { media: "application/vnd.weir.batch", schema: None };

/// Reads messages.
pub const READ_MESSAGES: Operation = Operation {
    id: "readMessages",
    verb: Verb::Get,
    path: "/v1/ns/{ns}/topics/{topic}/messages",
    op: Op::Subscribe,
    target: Target::Topic,
    tag: "messages",
    summary: "Read messages, or follow them as server-sent events",
    about: "The form is chosen by `Accept`. Reading at the end answers an empty page; beyond it 416; below the \
            oldest message 410. With `text/event-stream` the answer does not end: events `message`, \
            `caught-up`, `looked`, `gap`, `firm`, `retract`, `goaway`, `end`; `limit`, `max_bytes`, `wait`, `until` and \
            `incarnation` do not apply.",
    query: &[
        Param::optional(
            "from",
            Kind::Form(&forms::FROM),
            "`earliest` (default), `latest`, an offset, `ts:` and RFC 3339 or milliseconds, `tail:` and a number \
             of messages, `cursor:` and an opaque cursor.",
        ),
        Param::optional(
            "limit",
            Kind::Integer { min: 1, max: READ_RECORDS_MAX as u64 },
            "Most messages; 100 by default.",
        ),
        Param::optional(
            "max_bytes",
            Kind::Integer { min: 1, max: READ_BYTES_MAX },
            "Stop at this many encoded bytes; 1 MiB by default. One message is always returned.",
        ),
        Param::optional(
            "wait",
            Kind::Integer { min: 0, max: WAIT_MS_MAX / 1000 },
            "If there is nothing to read, wait up to this many seconds.",
        ),
        Param::optional(
            "partition",
            Kind::Integer { min: 0, max: PARTITIONS_MAX as u64 - 1 },
            "Only this partition; all by default.",
        ),
        Param::optional(
            "until",
            Kind::Form(&forms::UNTIL),
            "Stop before this: an offset, or `ts:` and a time.",
        ),
        Param::optional(
            "clamp",
            Kind::Boolean,
            "Move a position outside what exists to the nearest that does.",
        ),
        FILTER,
        INCARNATION,
        MIN_LEVEL,
        Param::optional("last_event_id", Kind::Text, "The same as the header `Last-Event-ID`."),
    ],
    headers: &[
        Param::optional("If-None-Match", Kind::Text, "Answer 304 if the range has this tag."),
        LAST_EVENT_ID,
    ],
    body: Body::None,
    answers: &[
        Answer {
            status: 200,
            about: "Messages.",
            content: &[JSON, NDJSON, BATCH, CLOUD_EVENTS, EVENTS],
            headers: READ_HEADERS,
        },
        Answer { status: 204, about: "Nothing came while waiting.", content: &[], headers: READ_HEADERS },
        Answer {
            status: 304,
            about: "The range has the tag that you have.",
            content: &[],
            headers: READ_HEADERS,
        },
    ],
};

/// Reads one message.
pub const READ_MESSAGE: Operation = Operation {
    id: "readMessage",
    path: "/v1/ns/{ns}/topics/{topic}/messages/{partition}/{offset}",
    summary: "Read one message",
    about: "The body is the payload as it was published, with its `Content-Type` and `Content-Encoding`; gzip and zstd \
            are decoded for who does not accept them, up to 16 MiB. The key and user headers are in `Message-Key` and \
            `Message-Header-*`.",
    query: &[INCARNATION, MIN_LEVEL],
    headers: &[
        Param::optional("If-None-Match", Kind::Text, "Answer 304 if it has this tag."),
        Param::optional("Accept-Encoding", Kind::Text, "Encodings that you take; any if it is not sent."),
    ],
    answers: &[
        Answer {
            status: 200,
            about: "The payload.",
            content: &[Content { media: "*/*", schema: None }],
            headers: &[
                MESSAGE_TAG,
                MESSAGE_CACHING,
                ("Message-Timestamp", "When it was accepted, milliseconds since the epoch."),
                ("Message-Key", "As published."),
                ("Content-Encoding", "As published; not if the payload was decoded."),
                ("Content-Digest", "As published; not if the payload was decoded."),
                ("Deliver-At", "As published, RFC 3339."),
                ("Message-TTL-Ms", "As published, milliseconds."),
                ("traceparent", "As published."),
                ("tracestate", "As published."),
            ],
        },
        Answer {
            status: 304,
            about: "It has the tag that you have.",
            content: &[],
            headers: &[MESSAGE_TAG, MESSAGE_CACHING],
        },
    ],
    ..READ_MESSAGES
};

/// Follows several topics.
pub const FOLLOW_EVENTS: Operation = Operation {
    id: "followEvents",
    path: "/v1/ns/{ns}/events",
    target: Target::TopicsOfQuery,
    summary: "Follow several topics as server-sent events",
    about: "`id` is an opaque cursor over all topics. Events: `message` (a record with its `topic`), `caught-up`, \
            `looked` (with a filter: all below was looked at), `gap`, `firm`, `retract`, `goaway`, `end`. A message that is not committed has `final: false` and a `term`. \
            A comment is sent every 15 s.",
    query: &[
        Param {
            name: "topic",
            required: true,
            kind: Kind::Forms(&forms::NAME),
            about: "A topic; repeat it for more, at most 100.",
        },
        Param::optional(
            "from",
            Kind::Form(&forms::FROM_OF_MANY),
            "As for reading, without offsets; `latest` by default.",
        ),
        Param::optional("last_event_id", Kind::Text, "The same as the header `Last-Event-ID`."),
        FILTER,
        FOLLOW_LEVEL,
    ],
    headers: &[LAST_EVENT_ID],
    answers: &[Answer { status: 200, about: "Events, without end.", content: &[EVENTS], headers: &[] }],
    ..READ_MESSAGES
};

/// Opens a WebSocket.
pub const OPEN_WEBSOCKET: Operation = Operation {
    id: "openWebSocket",
    path: "/v1/ws",
    op: Op::Connect,
    target: Target::Gateway,
    tag: "websocket",
    summary: "Publish, follow and consume over one WebSocket",
    about: "Subprotocols `weir.v1.json` and `weir.v1.bin`. Every `open` and `sub` on it is authorised on its own.",
    query: &[],
    headers: &[Param {
        name: "Sec-WebSocket-Protocol",
        required: true,
        kind: Kind::Text,
        about: "`weir.v1.json` or `weir.v1.bin`.",
    }],
    answers: &[Answer::empty(101, "The connection is a WebSocket now.")],
    ..READ_MESSAGES
};
