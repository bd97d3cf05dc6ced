//! Reading and following.

use weir_protocol::limits::{PARTITIONS_MAX, READ_RECORDS_MAX, WAIT_MS_MAX};

use super::{Answer, Body, Carries, Content, Kind, Operation, Param, Target, Verb};
use crate::api::forms;
use crate::api::limits::READ_BYTES_MAX;
use crate::auth::Op;

const MIN_LEVEL: Param = Param::optional(
    "min_level",
    Kind::OneOf(&["memory", "quorum"]),
    "Lowest level that you accept. Pages contain committed messages only: `memory` is refused as \
     `level_unavailable`, unless storage confirms at `memory` at most. With `text/event-stream`, `memory` \
     shows messages before they are committed; the default is the topic's `deliver_from`.",
);
const INCARNATION: Param = Param::optional(
    "incarnation",
    Kind::Integer { min: 1, max: (1 << 53) - 1 },
    "The `incarnation` of the topic that you mean. If the topic was deleted and created again the answer is \
     410 `incarnation_gone`. Answers that cannot change may then be cached for ever.",
);
const FOLLOW_LEVEL: Param = Param::optional(
    "min_level",
    Kind::OneOf(&["memory", "quorum"]),
    "Lowest level that you accept; each topic's `deliver_from` by default. `memory` shows messages before \
     they are committed: `firm` and `retract` tell what became of them.",
);
const FILTER: Param = Param::optional(
    "filter",
    Kind::Form(&forms::FILTER),
    "Only messages that match this expression over `header.<name>`, `key` and `content_type`, such as \
     `header.region == 'eu*' and not key == 'test'`. The storage node filters. One page looks at no more \
     than 32,768 messages or 16 MiB, divided among the partitions that are read, so a page may be empty \
     without being the end; its positions follow what was looked at.",
);
const LAST_EVENT_ID: Param = Param::optional(
    "Last-Event-ID",
    Kind::Form(&forms::CURSOR),
    "`id` of the last event received: continue after it.",
);

const READ_HEADERS: &[(&str, &str)] = &[
    ("Next-Offset", "Where to continue (one partition)."),
    ("Cursor", "Where to continue: an opaque cursor over all partitions that were read."),
    ("Up-To-Date", "`true` if this is the end."),
    ("Closed", "`true` if the topic is closed: nothing follows the end unless it is opened again."),
    ("ETag", "Tag of the range and of the topic's life."),
    ("Link", "`rel=next`."),
    (
        "Content-Encoding",
        "`gzip` or `zstd`, if `Accept-Encoding` names it; never of record batches. The tag is another one then.",
    ),
    (
        "Cache-Control",
        "`immutable` for a full range of committed messages if a cursor or `incarnation` says which life of \
         the topic is meant, otherwise `no-cache` (compare the tag). At the tail `no-store`.",
    ),
];

const MESSAGE_TAG: (&str, &str) = ("ETag", "Tag of the message.");
const MESSAGE_CACHING: (&str, &str) = (
    "Cache-Control",
    "`immutable` once the message is committed and if `incarnation` is given, otherwise `no-cache` (compare \
     the tag).",
);

const EVENTS: Content = Content { media: "text/event-stream", carries: Carries::Text };
const JSON: Content = Content { media: "application/json", carries: Carries::One("ReadPage") };
const NDJSON: Content = Content { media: "application/x-ndjson", carries: Carries::One("Record") };
const CLOUD_EVENTS: Content =
    Content { media: "application/cloudevents-batch+json", carries: Carries::Many("CloudEvent") };
const BATCH: Content = Content { media: "application/vnd.weir.batch", carries: Carries::Bytes };
const PAYLOAD: &[Content] = &[
    Content { media: "application/cloudevents+json", carries: Carries::One("CloudEvent") },
    Content { media: "application/octet-stream", carries: Carries::Bytes },
    Content { media: "application/json", carries: Carries::Any },
    Content { media: "text/plain", carries: Carries::Text },
    Content { media: "*/*", carries: Carries::Bytes },
];

/// Reads messages.
pub const READ_MESSAGES: Operation = Operation {
    id: "readMessages",
    verb: Verb::Get,
    path: "/v1/ns/{ns}/topics/{topic}/messages",
    op: Op::Subscribe,
    target: Target::Topic,
    tag: "messages",
    summary: "Read messages, or follow them as server-sent events",
    about: "`Accept` chooses the form. Reading at the end of the topic gives an empty page, reading beyond \
            it 416, and reading below the oldest message 410.\n\nWith `Accept: text/event-stream` the \
            answer does not end. Its events are `message`, `caught-up`, `looked`, `gap`, `firm`, \
            `retract`, `goaway` and `end`. The parameters `limit`, `max_bytes`, `wait`, `until`, `clamp` \
            and `incarnation` do not apply; a start below the oldest message is told as a `gap`.",
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
            "Move a position outside the topic to the nearest one inside it.",
        ),
        FILTER,
        INCARNATION,
        MIN_LEVEL,
        Param::optional("last_event_id", Kind::Text, "The same as the header `Last-Event-ID`."),
    ],
    headers: &[
        Param::optional("If-None-Match", Kind::Text, "Answer 304 if the range has this tag."),
        Param::optional(
            "Last-Event-ID",
            Kind::Text,
            "With `Accept: text/event-stream`: the `id` of the last event received; continue after it.",
        ),
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
            about: "The range still has the tag that you sent.",
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
    about: "The body is the payload as it was published, with its `Content-Type` and `Content-Encoding`. \
            Payloads of up to 16 MiB in gzip or zstd are decoded for clients that do not accept that \
            encoding. The key and the user headers are in `Message-Key` and `Message-Header-*`; \
            `Message-Left-Out` names those that no header can tell. With `Accept: \
            application/cloudevents+json` it is one structured CloudEvent.",
    query: &[INCARNATION, MIN_LEVEL],
    headers: &[
        Param::optional("If-None-Match", Kind::Text, "Answer 304 if it has this tag."),
        Param::optional(
            "Accept-Encoding",
            Kind::Text,
            "Encodings that you accept; any if the header is \
            missing.",
        ),
    ],
    answers: &[
        Answer {
            status: 200,
            about: "The payload.",
            content: PAYLOAD,
            headers: &[
                MESSAGE_TAG,
                MESSAGE_CACHING,
                ("Message-Timestamp", "When it was accepted, milliseconds since the epoch."),
                ("Message-Key", "As published."),
                (
                    "Message-Left-Out",
                    "What of the message no header can tell: names of headers as they would be here, percent-encoded \
                     where they are none. In a page they are shown.",
                ),
                ("Content-Encoding", "As published; not if the payload was decoded."),
                ("Content-Digest", "As published; not if the payload was decoded."),
                ("Deliver-At", "As published, RFC 3339."),
                ("Message-TTL-Ms", "As published, milliseconds."),
                ("traceparent", "As published."),
                ("tracestate", "As published."),
                ("baggage", "As published."),
            ],
        },
        Answer {
            status: 304,
            about: "The message still has the tag that you sent.",
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
    about: "The events are `message` (a record with its `topic`), `caught-up`, `looked` (with a filter: \
            everything below was looked at), `gap`, `firm`, `retract`, `goaway` and `end`. The `id` of an \
            event is an opaque cursor over all topics. A message that is not committed yet has `final: \
            false` and a `term`. A comment is sent every 15 s.",
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
        Param::optional(
            "last_event_id",
            Kind::Form(&forms::CURSOR),
            "The same as the header `Last-Event-ID`.",
        ),
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
    about: "The subprotocol is `weir.v1.json` or `weir.v1.bin`. Every `open` and `sub` on the connection \
            is authorised separately.",
    query: &[],
    headers: &[Param {
        name: "Sec-WebSocket-Protocol",
        required: true,
        kind: Kind::Form(&forms::SUBPROTOCOLS),
        about: "`weir.v1.json` or `weir.v1.bin`.",
    }],
    answers: &[Answer::empty(101, "The connection is a WebSocket now.")],
    ..READ_MESSAGES
};
