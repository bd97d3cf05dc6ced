//! Subscriptions as they are consumed.

use weir_protocol::limits::{INTEGER_MAX, PARTITIONS_MAX};

use super::subscriptions::SUBSCRIPTION;
use super::topics::json;
use super::{Answer, Body, Kind, Operation, Param, Verb};
use crate::api::forms;
use crate::api::limits::CONFIRM_DEADLINE_MS_MAX;
use crate::auth::Op;

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
            `unknown_field`, `unavailable`. With `scope` `partition` all messages are of one partition, as a settle that \
            publishes needs them. Of a stream a `holder` is needed; it is given what follows its last acknowledged \
            message, in order, of the partitions that nobody else reads.",
    headers: &[Param::optional(
        "Idempotency-Key",
        Kind::Form(&forms::IDEMPOTENCY_KEY),
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

const SETTLED_HEADERS: &[(&str, &str)] =
    &[("Confirm-Level", "With `publish`: the level that all of it has reached.")];

/// Settles leases.
pub const SETTLE_MESSAGES: Operation = Operation {
    id: "settleMessages",
    path: "/v1/ns/{ns}/subscriptions/{subscription}:settle",
    summary: "Settle leases: ack, nack, extend, dead; publish what came of them",
    about: "Answered once it cannot be lost; asked twice it is done once. At most 10,000 leases. A lease that ran out \
            and was not given to somebody else still settles. Errors: `subscription_not_found`, `incarnation_gone` \
            once the topic was deleted, `invalid_cursor` for what is no lease, `invalid_parameter`, `unknown_field`, \
            `too_large`, `unavailable`; of a stream an ack is one of everything up to the message, and anything else is \
            `not_supported`.\n\nWith `publish` the leases are settled and the messages published in one atomic \
            step, exactly once: either both, or a problem with the outcome `none` and neither. All leases are of one \
            partition and still held (`lease_lost` otherwise), none is extended; the messages go to topics of the \
            subscription's namespace, for which the grant `publish` is needed. The answer waits for the messages' \
            confirm, at most `Confirm-Deadline-Ms`; with 202 some are on their way, and their receipts tell when they \
            have arrived. At most 1,000 messages of 3 MiB. Further errors: `topic_not_found`, `topic_closed`, \
            `not_supported` for leases of several partitions, `busy` while too much is on its way, `journal_full`. \
            After `outcome_unknown`, ask again: `lease_lost` then says that the messages are settled, with what was \
            published by whoever settled them.",
    headers: &[Param::optional(
        "Confirm-Deadline-Ms",
        Kind::Integer { min: 1, max: CONFIRM_DEADLINE_MS_MAX },
        "With `publish`: answer 202 if the messages are not confirmed after this time; 5000 by default.",
    )],
    body: Body::Optional(&[json("Settle")]),
    answers: &[
        Answer {
            status: 200,
            about: "All are settled, and what was to be published is.",
            content: &[json("Settled")],
            headers: SETTLED_HEADERS,
        },
        Answer {
            status: 202,
            about: "All are settled; some of what is published has not arrived yet.",
            content: &[json("Settled")],
            headers: SETTLED_HEADERS,
        },
        Answer {
            status: 207,
            about: "Some are not, or the topic of something published was deleted meanwhile; each has its result.",
            content: &[json("Settled")],
            headers: SETTLED_HEADERS,
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
            Leases end and attempts begin anew. The answer's `undo` brings back what stood before, with what was settled \
            since the last seek or purge (not since any before; after an undo, only of what was published later), as `to` `undo` \
            and that `undo`. To repeat an undo delivers again what was settled before the first. Of each partition the latest four seeks and purges are \
            kept; a purge of dead letters alone can be undone until the next seek or other purge. Errors: \
            `subscription_not_found`, `incarnation_gone` once the topic was deleted, `invalid_parameter`, `snapshot_gone` for \
            an undo of what is not kept, `busy` beside another seek or purge, `unavailable`; with the outcome `unknown` some \
            partitions may have been moved, and the problem's `undo` undoes those.",
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

const LISTED: &[Param] = &[
    Param::optional(
        "partition",
        Kind::Integer { min: 0, max: PARTITIONS_MAX as u64 - 1 },
        "Only this partition; all by default.",
    ),
    Param::optional(
        "from",
        Kind::Integer { min: 0, max: INTEGER_MAX },
        "Only offsets from here on, with `partition`.",
    ),
    Param::optional("limit", Kind::Integer { min: 1, max: 1000 }, "Most items of the page; 100 by default."),
    Param::optional("cursor", Kind::Text, "`next` of the page before, instead of `partition` and `from`."),
    Param::optional(
        "topic",
        Kind::Form(&forms::NAME),
        "Only this topic, of a subscription to several; with `partition`, whose partition is meant.",
    ),
];

/// Lists leases.
pub const LIST_LEASES: Operation = Operation {
    id: "listLeases",
    verb: Verb::Get,
    path: "/v1/ns/{ns}/subscriptions/{subscription}/leases",
    op: Op::Describe,
    summary: "List what is leased and what waits for its time",
    about: "By partition and offset; takes nothing. Errors: `subscription_not_found`, `partition_not_found`, \
            `incarnation_gone` once the topic was deleted, `invalid_cursor`, `unavailable`.",
    query: LISTED,
    headers: &[],
    body: Body::None,
    answers: &[Answer { status: 200, about: "A page.", content: &[json("LeasePage")], headers: &[] }],
    ..PULL_MESSAGES
};

/// Lists messages by state.
pub const LIST_MESSAGES_OF_STATE: Operation = Operation {
    id: "listMessagesOfState",
    path: "/v1/ns/{ns}/subscriptions/{subscription}/state",
    summary: "List the messages that are ready, leased, delayed, blocked or dead",
    about: "By partition and offset; takes nothing and changes nothing. A page looks at no more than 65,536 messages of a \
            partition, so it may have fewer items than asked for, or none, and a `next`. Errors: \
            `subscription_not_found`, `partition_not_found`, `incarnation_gone` once the topic was deleted, \
            `invalid_cursor`, `invalid_parameter`, `unavailable`.",
    query: &[
        Param::optional(
            "of",
            Kind::OneOf(&["ready", "leased", "delayed", "blocked", "settling", "filtered", "dead"]),
            "In which state; `ready` by default.",
        ),
        Param::optional(
            "as_of",
            Kind::Form(&forms::MOMENT),
            "The messages that were `ready`, `delayed` or `dead` then: `ts:` and RFC 3339 or milliseconds, or the `undo` of a \
             seek or purge for right before it, where what was published since counts as ready. Of each partition the latest \
             four of them are kept, and about an hour: the first change of each minute keeps what stood before it. `as_of_ms` of the answer \
             is the instant that is shown. 410 `snapshot_gone` if nothing of then or before is kept.",
        ),
        LISTED[0],
        LISTED[1],
        LISTED[2],
        LISTED[3],
        LISTED[4],
    ],
    ..LIST_LEASES
};

/// Lists dead letters.
pub const LIST_DEAD_LETTERS: Operation = Operation {
    id: "listDeadLetters",
    path: "/v1/ns/{ns}/subscriptions/{subscription}/dlq",
    summary: "List the dead letters that were not redriven",
    about: "Where they are in the subscription's topic, by partition and offset, with or without a dead letter topic. Errors: \
            `subscription_not_found`, `partition_not_found`, `incarnation_gone` once the topic was deleted, \
            `invalid_cursor`, `unavailable`.",
    ..LIST_LEASES
};

/// Explains one message.
pub const EXPLAIN_MESSAGE: Operation = Operation {
    id: "explainMessage",
    path: "/v1/ns/{ns}/subscriptions/{subscription}/explain",
    summary: "Say where one message stands, and why",
    about: "Changes nothing. Errors: `subscription_not_found`, `partition_not_found`, `incarnation_gone` once the topic \
            was deleted, `invalid_parameter`, `unavailable`.",
    query: &[Param {
        required: true,
        ..Param::optional(
            "id",
            Kind::Form(&forms::MESSAGE_ID),
            "Partition and offset: `0:76531`; of several topics `orders:0:76531`.",
        )
    }],
    answers: &[Answer {
        status: 200,
        about: "Where it stands.",
        content: &[json("Explained")],
        headers: &[],
    }],
    ..LIST_LEASES
};

/// Purges a subscription.
pub const PURGE_SUBSCRIPTION: Operation = Operation {
    id: "purgeSubscription",
    path: "/v1/ns/{ns}/subscriptions/{subscription}:purge",
    op: Op::Manage,
    summary: "Settle everything that waits, without delivering it",
    about: "Everything published so far that is not settled is: ready, leased, delayed, blocked; and what is dead is forgotten. \
            Leases end. With `what` `dead` only dead letters are forgotten, and nobody's leases end. The messages stay in \
            their topic and with other subscriptions; dead letters on their way to the dead letter topic arrive. The answer's \
            `undo` undoes it, as `to` `undo` of a seek, which ends leases also where only dead letters come back; it brings back \
            no message that `until_settled` has removed since. \
            Errors: `subscription_not_found`, `incarnation_gone` once the topic was deleted, `not_supported` for dead \
            letters of a stream, `invalid_parameter`, `unknown_field`, `busy` beside another seek or purge, but not for \
            dead letters alone, `unavailable`; with the outcome `unknown` some partitions may have been purged: purge again, or \
            undo those with the problem's `undo`.",
    body: Body::Optional(&[json("Purge")]),
    answers: &[Answer {
        status: 200,
        about: "What it did, or would do.",
        content: &[json("Purged")],
        headers: &[],
    }],
    ..SEEK_SUBSCRIPTION
};

/// Redrives dead letters.
pub const REDRIVE_DEAD_LETTERS: Operation = Operation {
    id: "redriveDeadLetters",
    path: "/v1/ns/{ns}/subscriptions/{subscription}:redrive",
    op: Op::Manage,
    summary: "Deliver dead letters once more",
    about: "They are unsettled again where they are, in the subscription's topic and for this subscription alone; attempts \
            begin anew. What went to the dead letter topic stays there. Redriven twice is redriven once; with the \
            outcome `unknown` some may have been. Errors: `subscription_not_found`, `partition_not_found`, \
            `incarnation_gone` once the topic was deleted, \
            `invalid_cursor`, `invalid_parameter`, `unknown_field`, `unavailable`.",
    query: &[Param::optional("dry_run", Kind::Boolean, "Only say what would be redriven, at once.")],
    headers: &[],
    body: Body::Optional(&[json("Redrive")]),
    answers: &[Answer {
        status: 200,
        about: "What was redriven, or would be.",
        content: &[json("Redriven")],
        headers: &[],
    }],
    ..PULL_MESSAGES
};
