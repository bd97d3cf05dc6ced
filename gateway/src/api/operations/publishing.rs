//! Publishing, and what became of it.

use weir_protocol::limits::{DELAY_MS_MAX, INTEGER_MAX, WAIT_MS_MAX};

use super::{Answer, Body, Carries, Content, Kind, Operation, Param, Target, Verb};
use crate::api::forms;
use crate::api::limits::CONFIRM_DEADLINE_MS_MAX;
use crate::auth::Op;

const LEVELS: &[&str] = &["none", "memory", "durable", "quorum", "archived"];

const CONFIRM: Param = Param::optional(
    "Confirm",
    Kind::OneOf(LEVELS),
    "Level to wait for; the topic's `default_confirm` by default.",
);
const CONFIRM_DEADLINE: Param = Param::optional(
    "Confirm-Deadline-Ms",
    Kind::Integer { min: 1, max: CONFIRM_DEADLINE_MS_MAX },
    "If the level is not reached within this time, answer 202 with the level reached so far and the \
     receipt.",
);
const PRODUCER_ID: Param = Param::optional(
    "Producer-Id",
    Kind::Form(&forms::PRODUCER),
    "With `Producer-Epoch` and `Producer-Seq`, which then must be there too: accept each number once.",
);
const PRODUCER_EPOCH: Param = Param::optional(
    "Producer-Epoch",
    Kind::Integer { min: 0, max: u32::MAX as u64 },
    "A higher epoch fences all lower ones.",
);
const PRODUCER_SEQ: Param = Param::optional(
    "Producer-Seq",
    Kind::Integer { min: 0, max: INTEGER_MAX },
    "The producer's number of this message (of a batch, of its first message), counted from 0 in each epoch \
     without gaps.",
);
const IDEMPOTENCY_KEY: Param = Param::optional(
    "Idempotency-Key",
    Kind::Form(&forms::IDEMPOTENCY_KEY),
    "Structured-field string, or a UUID without quotes. The same key with the same message gets the same answer; with another message \
     it is 422. Not together with a producer.",
);
const MESSAGE_KEY: Param = Param::optional(
    "Message-Key",
    Kind::Form(&forms::KEY),
    "The message's key: it chooses the partition and orders messages. `ce-partitionkey` means the same.",
);
const PREFER: Param =
    Param::optional("Prefer", Kind::Text, "`return=minimal`: headers only, with 204 instead of 200 and 201.");
const CONTENT_DIGEST: Param = Param::optional(
    "Content-Digest",
    Kind::Form(&forms::DIGEST),
    "RFC 9530, `sha-256` or `sha-512`: verified against the body; `digest_mismatch` if it is another.",
);
const TRACEPARENT: Param = Param::optional(
    "traceparent",
    Kind::Text,
    "W3C trace context; stored with the message and shown with it. What is none, or all zero, is not.",
);

const LEVEL: (&str, &str) = ("Confirm-Level", "The level reached.");
const TIMING: (&str, &str) = (
    "Server-Timing",
    "Milliseconds per stage: gw, net, queue, write, fsync, quorum, total; and the shared batch.",
);
const BUDGET: (&str, &str) = ("RateLimit-Policy", "The publish budget in bytes.");
const LEFT: (&str, &str) =
    ("RateLimit", "What is left of it (`r`), and after how many seconds to look again (`t`).");
const RECEIPT: (&str, &str) = ("Confirm-Receipt", "Resolve or upgrade the confirm with it.");
const TAIL: (&str, &str) = ("ETag", "Tag of the partition's tail, for `If-Match`.");
const EPOCH: (&str, &str) = ("Producer-Epoch", "With a producer: its epoch.");
const SETTLED: (&str, &str) = (
    "Producer-Seq",
    "With a producer: the highest of its numbers that was accepted, also of a duplicate (of several partitions, by the \
     one that it went to).",
);
const PREFERRED: (&str, &str) = ("Preference-Applied", "`return=minimal` if that was asked for.");

const PUBLISHED_HEADERS: &[(&str, &str)] = &[
    LEVEL,
    TIMING,
    BUDGET,
    LEFT,
    ("Location", "Path of the stored message, if its place is known."),
    ("Next-Offset", "Offset after the message, likewise."),
    TAIL,
    RECEIPT,
    EPOCH,
    SETTLED,
    ("Idempotency-Replayed", "`true` if an Idempotency-Key was recognised."),
    PREFERRED,
];

const BATCH_HEADERS: &[(&str, &str)] = &[
    LEVEL,
    TIMING,
    BUDGET,
    LEFT,
    ("Location", "Path of the first message, if all were stored as one batch."),
    ("Next-Offset", "Offset after the last, likewise."),
    TAIL,
    RECEIPT,
    EPOCH,
    SETTLED,
    PREFERRED,
];

const fn json(schema: &'static str) -> Content {
    Content { media: "application/json", carries: Carries::One(schema) }
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
    about: "The body is the payload, of any type; its schema says an object where it is JSON, but any JSON value is \
            taken. Of a length of 0 it is an empty message. It is stored \
            unchanged, with its `Content-Type` and `Content-Encoding`. `Message-Header-X: y` stores the user \
            header `x: y`.\n\nCloudEvents: \
            `ce-*` headers are stored as attributes; a body of `application/cloudevents+json` is one event \
            in structured mode.",
    query: &[],
    headers: &[
        MESSAGE_KEY,
        CONFIRM,
        CONFIRM_DEADLINE,
        PRODUCER_ID,
        PRODUCER_EPOCH,
        PRODUCER_SEQ,
        IDEMPOTENCY_KEY,
        Param::optional(
            "If-Match",
            Kind::Form(&forms::TAILS),
            "Append only if the tail has this tag, or one of these, which must be of one partition; \
             otherwise 412. `*`: only if the topic exists. A weak tag is refused, and so is a list \
             without a tag of this gateway.",
        ),
        Param::optional(
            "If-None-Match",
            Kind::Form(&forms::ANYTHING),
            "`*`: only if this becomes the partition's first message; otherwise 412. Not together with \
             `If-Match`.",
        ),
        Param::optional(
            "Message-TTL-Ms",
            Kind::Integer { min: 1, max: INTEGER_MAX },
            "Time to live, counted from when the message is accepted; the topic's by default. Queue \
             subscriptions do not deliver older messages; readers still see them. Shown with the message.",
        ),
        Param::optional(
            "Deliver-At",
            Kind::Form(&forms::TIME),
            "RFC 3339, at most 366 days from now. Queue subscriptions do not deliver the message before this time; readers see it at \
             once. Shown with the message.",
        ),
        Param::optional(
            "Deliver-Delay-Ms",
            Kind::Integer { min: 0, max: DELAY_MS_MAX },
            "The same, in milliseconds from now. Not together with `Deliver-At`.",
        ),
        CONTENT_DIGEST,
        TRACEPARENT,
        Param::optional("tracestate", Kind::Text, "W3C trace context; stored."),
        Param::optional(
            "baggage",
            Kind::Text,
            "W3C baggage; stored as the header `baggage`, up to 8,192 bytes.",
        ),
        PREFER,
    ],
    body: Body::Required(&[
        // The first is what many generated clients send unless they are told otherwise. One whose schema allows
        // anything makes a client of openapi-python-client that cannot publish.
        Content { media: "application/json", carries: Carries::Object },
        Content { media: "application/octet-stream", carries: Carries::Bytes },
        Content { media: "text/plain", carries: Carries::Text },
        Content { media: "application/cloudevents+json", carries: Carries::One("CloudEvent") },
        Content { media: "*/*", carries: Carries::Bytes },
    ]),
    answers: &[
        Answer { status: 201, about: "Stored.", content: &[json("Published")], headers: PUBLISHED_HEADERS },
        Answer {
            status: 200,
            about: "It was stored before; nothing was added.",
            content: &[json("Published")],
            headers: PUBLISHED_HEADERS,
        },
        Answer {
            status: 202,
            about: "Accepted at a level below `durable`, or below the one asked for when the deadline came.",
            content: &[json("Published")],
            headers: PUBLISHED_HEADERS,
        },
        Answer {
            status: 204,
            about: "Stored now or before; `Prefer: return=minimal`.",
            content: &[],
            headers: PUBLISHED_HEADERS,
        },
    ],
};

/// Publishes many messages.
pub const PUBLISH_BATCH: Operation = Operation {
    id: "publishBatch",
    path: "/v1/ns/{ns}/topics/{topic}/messages:batch",
    summary: "Publish many messages",
    about: "Each line of NDJSON is one `BatchLine`: the schema is that of a line. Results are in the order of the input. A \
            batch without a message is refused. Headers that \
            describe a single message (`Message-Key`, `Message-Header-*`, `Message-TTL-Ms`, `Deliver-*`) \
            are refused by name, because each message carries its own.\n\nErrors: `unsupported_media_type` \
            for any other form, and for a `Content-Encoding`; `not_supported` for `Idempotency-Key`, \
            `If-Match` and `If-None-Match`, which are about one message.",
    query: &[Param::optional(
        "atomic",
        Kind::Boolean,
        "All messages of one partition are accepted or refused together; at most 3 MiB.",
    )],
    headers: &[
        CONFIRM,
        CONFIRM_DEADLINE,
        PRODUCER_ID,
        PRODUCER_EPOCH,
        PRODUCER_SEQ,
        CONTENT_DIGEST,
        Param::optional(
            "traceparent",
            Kind::Text,
            "W3C trace context; stored with each line and event that has none. Record batches are stored unchanged.",
        ),
        Param::optional("tracestate", Kind::Text, "W3C trace context; stored with it."),
        PREFER,
    ],
    body: Body::Required(&[
        Content { media: "application/x-ndjson", carries: Carries::One("BatchLine") },
        Content { media: "application/cloudevents-batch+json", carries: Carries::Many("CloudEvent") },
        Content { media: "application/cloudevents+json", carries: Carries::One("CloudEvent") },
        Content { media: "application/vnd.weir.batch", carries: Carries::Bytes },
    ]),
    answers: &[
        Answer {
            status: 200,
            about: "All were accepted.",
            content: &[json("BatchPublished")],
            headers: BATCH_HEADERS,
        },
        Answer {
            status: 202,
            about: "All were accepted, at a level below `durable`, or below the one asked for when the deadline came.",
            content: &[json("BatchPublished")],
            headers: BATCH_HEADERS,
        },
        Answer {
            status: 204,
            about: "All were accepted; `Prefer: return=minimal`.",
            content: &[],
            headers: BATCH_HEADERS,
        },
        Answer {
            status: 207,
            about: "Some were refused; each has its problem.",
            content: &[json("BatchPublished")],
            headers: BATCH_HEADERS,
        },
    ],
    ..PUBLISH
};

/// Resolves a receipt.
pub const READ_RECEIPT: Operation = Operation {
    id: "readReceipt",
    verb: Verb::Get,
    path: "/v1/ns/{ns}/topics/{topic}/receipts/{receipt}",
    summary: "Resolve or upgrade a confirm",
    about: "",
    query: &[
        Param::optional(
            "level",
            Kind::OneOf(&["memory", "durable", "quorum", "archived"]),
            "Wait for this level …",
        ),
        Param::optional(
            "wait",
            Kind::Integer { min: 0, max: WAIT_MS_MAX / 1000 },
            "… for at most this many seconds; 0 by default.",
        ),
    ],
    headers: &[],
    body: Body::None,
    answers: &[Answer {
        status: 200,
        about: "What it has reached.",
        content: &[json("Receipt")],
        headers: &[],
    }],
    ..PUBLISH
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
