//! Subscriptions as they are consumed.

use weir_protocol::limits::PARTITIONS_MAX;

use super::subscriptions::SUBSCRIPTION;
use super::topics::json;
use super::{Answer, Body, Kind, Operation, Param, Verb};
use crate::auth::Op;

const JSON_MAX: u64 = (1 << 53) - 1;

/// Leases messages.
pub const PULL_MESSAGES: Operation = Operation {
    id: "pullMessages",
    verb: Verb::Post,
    path: "/v1/ns/{ns}/subscriptions/{subscription}:pull",
    op: Op::Consume,
    tag: "queues",
    summary: "Lease messages",
    about: "Each message is leased to one caller, and comes again when its lease runs out before it was settled. \
            `wait_ms` waits for the first message; the answer is 200 with none if none came. Errors: \
            `subscription_not_found`, `incarnation_gone` once the topic was deleted, `invalid_parameter`, \
            `unknown_field`, `unavailable`.",
    headers: &[Param::optional(
        "Idempotency-Key",
        Kind::Text,
        "Structured-field string. Repeated with the same key, a pull gets the same leases while any of them is held.",
    )],
    body: Body::Optional(&[json("Pull")]),
    answers: &[Answer {
        status: 200,
        about: "What was leased, if anything.",
        content: &[json("Pulled")],
        headers: &[],
    }],
    ..SUBSCRIPTION
};

/// Settles leases.
pub const SETTLE_MESSAGES: Operation = Operation {
    id: "settleMessages",
    path: "/v1/ns/{ns}/subscriptions/{subscription}:settle",
    summary: "Settle leases: ack, nack, extend, dead",
    about: "Answered once it cannot be lost; asked twice it is done once. At most 10,000 leases. A lease that ran out \
            and was not given to somebody else still settles. Errors: `subscription_not_found`, `incarnation_gone` \
            once the topic was deleted, `invalid_cursor` for what is no lease, `invalid_parameter`, `unknown_field`, \
            `too_large`, `unavailable`, `not_supported` for `publish`.",
    headers: &[],
    body: Body::Required(&[json("Settle")]),
    answers: &[
        Answer { status: 200, about: "All are settled.", content: &[json("Settled")], headers: &[] },
        Answer {
            status: 207,
            about: "Some are not; each has its result.",
            content: &[json("Settled")],
            headers: &[],
        },
    ],
    ..PULL_MESSAGES
};

/// Moves a subscription.
pub const SEEK_SUBSCRIPTION: Operation = Operation {
    id: "seekSubscription",
    path: "/v1/ns/{ns}/subscriptions/{subscription}:seek",
    op: Op::Manage,
    summary: "Move a subscription: deliver again, or skip",
    about: "Everything from there on is delivered, also what was settled or dead; everything before it is settled. \
            Leases end and attempts begin anew. Errors: `subscription_not_found`, `incarnation_gone` once the topic \
            was deleted, `invalid_parameter`, `unavailable`; with the outcome `unknown` some partitions may have \
            been moved: seek again.",
    query: &[Param::optional("dry_run", Kind::Boolean, "Only say what it would do.")],
    headers: &[],
    body: Body::Required(&[json("Seek")]),
    answers: &[Answer {
        status: 200,
        about: "What it did, or would do.",
        content: &[json("Seeked")],
        headers: &[],
    }],
    ..PULL_MESSAGES
};

/// Lists leases.
pub const LIST_LEASES: Operation = Operation {
    id: "listLeases",
    verb: Verb::Get,
    path: "/v1/ns/{ns}/subscriptions/{subscription}/leases",
    op: Op::Describe,
    summary: "List what is leased and what waits for its time",
    about: "By partition and offset; takes nothing. Errors: `subscription_not_found`, `partition_not_found`, \
            `incarnation_gone` once the topic was deleted, `invalid_cursor`, `unavailable`.",
    query: &[
        Param::optional(
            "partition",
            Kind::Integer { min: 0, max: PARTITIONS_MAX as u64 - 1 },
            "Only this partition; all by default.",
        ),
        Param::optional(
            "from",
            Kind::Integer { min: 0, max: JSON_MAX },
            "Only offsets from here on, with `partition`.",
        ),
        Param::optional(
            "limit",
            Kind::Integer { min: 1, max: 1000 },
            "Most items of the page; 100 by default.",
        ),
        Param::optional(
            "cursor",
            Kind::Text,
            "`next` of the page before, instead of `partition` and `from`.",
        ),
    ],
    headers: &[],
    body: Body::None,
    answers: &[Answer { status: 200, about: "A page.", content: &[json("LeasePage")], headers: &[] }],
    ..PULL_MESSAGES
};
