//! Publishing, and what became of it.

use super::{Answer, Body, Content, Kind, Operation, Param, Target, Verb};
use crate::auth::Op;

const JSON_MAX: u64 = (1 << 53) - 1;
const LEVELS: &[&str] = &["none", "memory", "durable", "quorum", "archived"];

const CONFIRM: Param = Param::optional(
    "Confirm",
    Kind::OneOf(LEVELS),
    "Level to wait for; the topic's `default_confirm` by default.",
);
const PRODUCER_ID: Param = Param::optional(
    "Producer-Id",
    Kind::Text,
    "With `Producer-Epoch` and `Producer-Seq`: accept each number once.",
);
const PRODUCER_EPOCH: Param = Param::optional(
    "Producer-Epoch",
    Kind::Integer { min: 0, max: u32::MAX as u64 },
    "A higher epoch fences all lower ones.",
);
const PRODUCER_SEQ: Param = Param::optional(
    "Producer-Seq",
    Kind::Integer { min: 0, max: JSON_MAX },
    "The producer's number of this message (of a batch: of its first), from 0 in each epoch, without gaps.",
);
const IDEMPOTENCY_KEY: Param = Param::optional(
    "Idempotency-Key",
    Kind::Text,
    "Structured-field string. The same key with the same message is answered as before; with another one it is 422.",
);
const MESSAGE_KEY: Param = Param::optional(
    "Message-Key",
    Kind::Text,
    "Key: chooses the partition, and orders. `ce-partitionkey` is the same.",
);
const PREFER: Param =
    Param::optional("Prefer", Kind::Text, "`return=minimal`: answer 204 with headers only (201 otherwise).");
const CONTENT_DIGEST: Param =
    Param::optional("Content-Digest", Kind::Text, "RFC 9530, `sha-256`: verified against the body.");
const TRACEPARENT: Param =
    Param::optional("traceparent", Kind::Text, "W3C trace context; stored, continued on delivery.");

const PUBLISHED_HEADERS: &[(&str, &str)] = &[
    ("Location", "Path of the stored message."),
    ("Confirm-Level", "The level reached."),
    ("Next-Offset", "Offset after the message."),
    ("ETag", "Tag of the partition's tail, for `If-Match`."),
    (
        "Server-Timing",
        "Milliseconds per stage: gw, net, queue, write, fsync, quorum, total; and the shared batch.",
    ),
];

const DUPLICATE_HEADERS: &[(&str, &str)] = &[
    ("Location", "Path of the stored message."),
    ("Confirm-Level", "The level reached."),
    ("Idempotency-Replayed", "`true` if an Idempotency-Key was recognised."),
];

const fn json(schema: &'static str) -> Content {
    Content { media: "application/json", schema: Some(schema) }
}

/// Publishes one message.
pub const PUBLISH: Operation = Operation {
    id: "publishMessage",
    verb: Verb::Post,
    path: "/v1/ns/{ns}/topics/{topic}/messages",
    op: Op::Publish,
    target: Target::Topic,
    tag: "messages",
    summary: "Publish one message",
    about: "The body is the payload, stored as it is with its `Content-Type` and `Content-Encoding`. \
            `Message-Header-X: y` stores the user header `x: y`. CloudEvents in binary mode: `ce-*` headers are \
            stored.",
    query: &[],
    headers: &[
        MESSAGE_KEY,
        CONFIRM,
        PRODUCER_ID,
        PRODUCER_EPOCH,
        PRODUCER_SEQ,
        IDEMPOTENCY_KEY,
        Param::optional("If-Match", Kind::Text, "Append only if the tail still has this tag; 412 otherwise."),
        Param::optional(
            "If-None-Match",
            Kind::Text,
            "`*`: only as the partition's first message; 412 otherwise.",
        ),
        Param::optional(
            "Message-TTL-Ms",
            Kind::Integer { min: 1, max: JSON_MAX },
            "The message expires after this many milliseconds.",
        ),
        CONTENT_DIGEST,
        TRACEPARENT,
        Param::optional("tracestate", Kind::Text, "W3C trace context; stored."),
        PREFER,
    ],
    body: Body::Optional(&[Content { media: "*/*", schema: None }]),
    answers: &[
        Answer { status: 201, about: "Stored.", content: &[json("Published")], headers: PUBLISHED_HEADERS },
        Answer {
            status: 200,
            about: "It had been stored before; nothing was added.",
            content: &[json("Published")],
            headers: DUPLICATE_HEADERS,
        },
        Answer {
            status: 202,
            about: "Accepted at a level below `durable`, because that was asked for.",
            content: &[json("Published")],
            headers: PUBLISHED_HEADERS,
        },
        Answer {
            status: 204,
            about: "Stored; `Prefer: return=minimal`.",
            content: &[],
            headers: PUBLISHED_HEADERS,
        },
    ],
};

/// Reads a producer's state.
pub const READ_PRODUCER: Operation = Operation {
    id: "readProducer",
    verb: Verb::Get,
    path: "/v1/ns/{ns}/topics/{topic}/producers/{producer}",
    summary: "What the topic knows of a producer",
    about: "`{producer}` is the id, percent-encoded.",
    query: &[],
    headers: &[],
    body: Body::None,
    answers: &[Answer { status: 200, about: "Its state.", content: &[json("Producer")], headers: &[] }],
    ..PUBLISH
};
