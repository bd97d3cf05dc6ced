//! The gateway itself.

use super::{Answer, Body, Carries, Content, Kind, Operation, Param, Target, Verb};
use crate::auth::Op;

const fn status(
    id: &'static str,
    path: &'static str,
    op: Op,
    summary: &'static str,
    answers: &'static [Answer],
) -> Operation {
    Operation {
        id,
        verb: Verb::Get,
        path,
        op,
        target: Target::Gateway,
        tag: "gateway",
        summary,
        about: "",
        query: &[],
        headers: &[],
        body: Body::None,
        answers,
    }
}

const TAG: (&str, &str) = ("ETag", "Tag of the document in this encoding.");
const CODING: (&str, &str) = ("Content-Encoding", "`gzip` or `zstd`, if `Accept-Encoding` names it.");

/// Alive.
pub const READ_HEALTH: Operation = status(
    "readHealth",
    "/healthz",
    Op::Status,
    "Whether the process answers",
    &[Answer::empty(204, "It does.")],
);

/// Ready.
pub const READ_READINESS: Operation = Operation {
    query: &[Param::optional(
        "verbose",
        Kind::Text,
        "Also say what operators should know; it needs no value.",
    )],
    ..status(
        "readReadiness",
        "/readyz",
        Op::Status,
        "Whether requests would be served: storage is reachable and the gateway is not draining",
        &[
            Answer {
                status: 200,
                about: "They would; with `verbose`.",
                content: &[Content { media: "application/json", carries: Carries::One("Readiness") }],
                headers: &[],
            },
            Answer::empty(204, "They would."),
        ],
    )
};

/// Metrics.
pub const READ_METRICS: Operation = status(
    "readMetrics",
    "/metrics",
    Op::Metrics,
    "Metrics in the Prometheus text format",
    &[Answer {
        status: 200,
        about: "The metrics.",
        content: &[Content { media: "text/plain", carries: Carries::Text }],
        headers: &[CODING],
    }],
);

/// This document.
pub const READ_OPENAPI: Operation = Operation {
    headers: &[Param::optional("If-None-Match", Kind::Text, "Answer 304 if the document has this tag.")],
    ..status(
        "readOpenapi",
        "/openapi.json",
        Op::Status,
        "This document",
        &[
            Answer {
                status: 200,
                about: "OpenAPI 3.1.",
                content: &[Content { media: "application/json", carries: Carries::Object }],
                headers: &[TAG, CODING],
            },
            Answer { status: 304, about: "If-None-Match names it.", content: &[], headers: &[TAG] },
        ],
    )
};

/// Limits.
pub const DESCRIBE_SERVICE: Operation = status(
    "describeService",
    "/v1",
    Op::Status,
    "Version, limits, levels",
    &[Answer {
        status: 200,
        about: "What the gateway is and accepts.",
        content: &[Content { media: "application/json", carries: Carries::One("Service") }],
        headers: &[],
    }],
);
