//! Subscriptions as they are consumed.

use weir_protocol::limits::{INTEGER_MAX, PARTITIONS_MAX};

use super::subscriptions::SUBSCRIPTION;
use super::topics::{IF_MATCH, json};
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
    about: "Leases messages to the caller. A message that is not settled before its lease ends is \
            delivered again.\n\n`wait_ms` waits for the first message. If none comes the answer is 200 \
            with an empty list. With `scope` set to `partition` all messages come from one partition, \
            which a settle that publishes requires.\n\nOn a stream, `holder` is required. The holder \
            receives, in order, what follows its last acknowledged message, from the partitions that no \
            other holder reads.\n\nErrors: `subscription_not_found`, `incarnation_gone` if the topic was \
            deleted, `invalid_parameter`, `unknown_field`, `unavailable`.",
    headers: &[Param::optional(
        "Idempotency-Key",
        Kind::Form(&forms::IDEMPOTENCY_KEY),
        "Structured-field string. A pull that is repeated with the same key gets the same leases for as \
         long as any of them is held.",
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
    &[("Confirm-Level", "With `publish`: the level that all messages have reached.")];

/// Settles leases.
pub const SETTLE_MESSAGES: Operation = Operation {
    id: "settleMessages",
    path: "/v1/ns/{ns}/subscriptions/{subscription}:settle",
    summary: "Settle leases: ack, nack, extend, dead; publish what came of them",
    about: "Settles up to 10,000 leases. The answer comes once the result is durable; sending the same \
            request again has no further effect. A lease that has ended can still be settled until its \
            message is delivered to somebody else.\n\nOn a stream, an ack acknowledges everything up to \
            its message; any other action is `not_supported`.\n\nWith `publish`, the leases are settled \
            and the messages are published in one atomic step, exactly once: either both happen, or \
            neither does and the problem has the outcome `none`. All leases must be of one partition and \
            still be held (otherwise `lease_lost`), and none may be extended. The messages go to topics of \
            the same namespace, and each topic needs the grant `publish`. At most 1,000 messages and 3 \
            MiB.\n\nThe answer waits until the messages are confirmed, at most for `Confirm-Deadline-Ms`. \
            With 202 some have not arrived yet, and their receipts tell when they have. After \
            `outcome_unknown`, send the request again: `lease_lost` then means that the messages were \
            settled, and it shows what was published by whoever settled them.\n\nErrors: \
            `subscription_not_found`, `incarnation_gone` if the topic was deleted, `invalid_cursor` for \
            something that is no lease, `invalid_parameter`, `unknown_field`, `too_large`, `unavailable`; \
            with `publish` also `topic_not_found`, `topic_closed`, `not_supported` for leases of several \
            partitions, `busy` while too much is on its way, `journal_full`.",
    headers: &[Param::optional(
        "Confirm-Deadline-Ms",
        Kind::Integer { min: 1, max: CONFIRM_DEADLINE_MS_MAX },
        "With `publish`: answer 202 if the messages are not confirmed within this time; 5000 by default.",
    )],
    body: Body::Optional(&[json("Settle")]),
    answers: &[
        Answer {
            status: 200,
            about: "All leases are settled, and all messages published.",
            content: &[json("Settled")],
            headers: SETTLED_HEADERS,
        },
        Answer {
            status: 202,
            about: "All leases are settled; some of the published messages have not arrived yet.",
            content: &[json("Settled")],
            headers: SETTLED_HEADERS,
        },
        Answer {
            status: 207,
            about: "Some leases could not be settled, or the topic of a published message was deleted \
            meanwhile; each has its own result.",
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
    about: "Moves the subscription to a position. Everything from there on is delivered again, including \
            what was settled or dead; everything before it is settled. Leases end, and attempts are \
            counted from zero.\n\nThe answer contains `undo`. A seek with `to` set to `undo` and that \
            value restores what stood before, together with what was settled since the latest seek or \
            purge, but not what was settled between earlier ones; after an undo, only what was settled of \
            messages published later. Repeating an undo delivers again what was settled before the first. \
            Each partition keeps its latest four seeks and purges; a purge of dead letters alone can be \
            undone until the next seek or other purge.\n\nErrors: `subscription_not_found`, \
            `incarnation_gone` if the topic was deleted, `version_mismatch`, `invalid_parameter`, \
            `snapshot_gone` if what is to be undone is no longer kept, `busy` during another seek or \
            purge, `unavailable`. With the outcome `unknown` some partitions may have moved; the problem contains an `undo` for those.",
    query: &[Param::optional("dry_run", Kind::Boolean, "Only say what would happen.")],
    headers: &[IF_MATCH],
    body: Body::Required(&[json("Seek")]),
    answers: &[Answer {
        status: 200,
        about: "What happened, or would happen.",
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
    Param::optional("limit", Kind::Integer { min: 1, max: 1000 }, "Most items of a page; 100 by default."),
    Param::optional(
        "cursor",
        Kind::Form(&forms::CURSOR),
        "The `next` of the previous page, instead of `partition`, `from` and `topic`; any other text is \
         `invalid_cursor`.",
    ),
    Param::optional(
        "topic",
        Kind::Form(&forms::NAME),
        "Only this topic, if the subscription consumes several. With `partition`, the topic whose partition \
         is meant.",
    ),
];

/// Lists leases.
pub const LIST_LEASES: Operation = Operation {
    id: "listLeases",
    verb: Verb::Get,
    path: "/v1/ns/{ns}/subscriptions/{subscription}/leases",
    op: Op::Describe,
    summary: "List what is leased and what waits for its time",
    about: "In the order of partition and offset. Listing leases nothing.\n\nErrors: \
            `subscription_not_found`, `partition_not_found`, `incarnation_gone` if the topic was deleted, \
            `invalid_cursor`, `unavailable`.",
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
    about: "In the order of partition and offset. Listing leases and changes nothing. One page looks at no \
            more than 65,536 messages of a partition, so it may contain fewer items than the limit, or \
            none, and still have a `next`.\n\nErrors: `subscription_not_found`, `partition_not_found`, \
            `incarnation_gone` if the topic was deleted, `invalid_cursor`, `invalid_parameter`, \
            `unavailable`.",
    query: &[
        Param::optional(
            "of",
            Kind::OneOf(&["ready", "leased", "delayed", "blocked", "settling", "filtered", "dead"]),
            "In which state; `ready` by default.",
        ),
        Param::optional(
            "as_of",
            Kind::Form(&forms::MOMENT),
            "The messages that were `ready`, `delayed` or `dead` at that time: `ts:` and RFC 3339 or \
             milliseconds; or the `undo` of a seek or purge for the instant before it, where messages \
             published since count as ready. Each partition keeps its latest four seeks and purges, and \
             about an hour of history: the first change in each minute keeps what stood before it. \
             `as_of_ms` in the answer is the instant that is shown. 410 `snapshot_gone` if nothing from \
             then or before is kept.",
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
    about: "In the order of partition and offset in the topic that the subscription consumes, whether or \
            not there is a dead letter topic.\n\nErrors: `subscription_not_found`, `partition_not_found`, \
            `incarnation_gone` if the topic was deleted, `invalid_cursor`, `unavailable`.",
    ..LIST_LEASES
};

/// Explains one message.
pub const EXPLAIN_MESSAGE: Operation = Operation {
    id: "explainMessage",
    path: "/v1/ns/{ns}/subscriptions/{subscription}/explain",
    summary: "Say where one message stands, and why",
    about: "Changes nothing.\n\nErrors: `subscription_not_found`, `partition_not_found`, \
            `incarnation_gone` if the topic was deleted, `invalid_parameter`, `unavailable`.",
    query: &[Param {
        required: true,
        ..Param::optional(
            "id",
            Kind::Form(&forms::MESSAGE_ID),
            "Partition and offset, as in `0:76531`; if the subscription consumes several topics, \
             `orders:0:76531`.",
        )
    }],
    answers: &[Answer {
        status: 200,
        about: "Where the message stands.",
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
    about: "Settles everything published so far that is ready, leased, delayed or blocked, forgets the \
            dead letters, and ends all leases. With `what` set to `dead` only the dead letters are \
            forgotten, and no lease ends.\n\nThe messages stay in their topic and in other subscriptions. \
            Dead letters that are on their way to the dead letter topic still arrive there.\n\nThe answer \
            contains `undo`, to be sent in a seek with `to` set to `undo`. That ends leases even if only \
            dead letters come back, and it does not restore messages that retention by `until_settled` has \
            removed since.\n\nErrors: `subscription_not_found`, `incarnation_gone` if the topic was \
            deleted, `version_mismatch`, `not_supported` for dead letters of a stream, \
            `invalid_parameter`, `unknown_field`, `busy` during another seek or purge (never for dead letters alone), `unavailable`. With the \
            outcome `unknown` some partitions may have been purged: purge again, or undo those with the \
            problem's `undo`.",
    body: Body::Optional(&[json("Purge")]),
    answers: &[Answer {
        status: 200,
        about: "What happened, or would happen.",
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
    about: "Makes dead letters ready again where they are, in the topic that this subscription consumes \
            and for this subscription alone; attempts are counted from zero. Copies in the dead letter \
            topic stay there. Redriving a letter twice has no further effect.\n\nErrors: \
            `subscription_not_found`, `partition_not_found`, `incarnation_gone` if the topic was deleted, \
            `version_mismatch`, `invalid_cursor`, `invalid_parameter`, `unknown_field`, `unavailable`. \
            With the outcome `unknown` some may have been redriven.",
    query: &[Param::optional("dry_run", Kind::Boolean, "Only say what would be redriven.")],
    headers: &[IF_MATCH],
    body: Body::Optional(&[json("Redrive")]),
    answers: &[Answer {
        status: 200,
        about: "What was redriven, or would be.",
        content: &[json("Redriven")],
        headers: &[],
    }],
    ..PULL_MESSAGES
};
