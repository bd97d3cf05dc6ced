//! Namespaces and topics.

use weir_protocol::limits::LIST_NAMES_MAX;

use super::{Answer, Body, Carries, Content, Kind, Operation, Param, Target, Verb};
use crate::api::forms;
use crate::auth::Op;

pub(super) const ETAG: (&str, &str) =
    ("ETag", "Tag of the configuration, for `If-Match` and `If-None-Match`.");

const _: () = assert!(LIST_NAMES_MAX == 10_000, "the text of `limit` says so");

pub(super) const PAGE: &[Param; 4] = &[
    Param::optional("q", Kind::Text, "Only names that contain this text."),
    Param::optional("sort", Kind::OneOf(&["name"]), "Order of the items; `name` is the only one."),
    Param::optional(
        "limit",
        Kind::Integer { min: 1, max: 1000 },
        "Most items of a page; 100 by default. A page that has a `next` may contain fewer, or none: a shard \
         looks at no more than 10,000 names for one page.",
    ),
    Param::optional(
        "cursor",
        Kind::Form(&forms::CURSOR),
        "The `next` of the previous page; any other text is `invalid_cursor`.",
    ),
];

pub(super) const IF_MATCH: Param = Param::optional(
    "If-Match",
    Kind::Form(&forms::VERSIONS),
    "Only if the configuration has this tag, or one of these; otherwise 412. `*`: only if it exists, with \
     any tag. A weak tag is refused, and so is a list without a tag of this gateway.",
);
pub(super) const IF_NONE_MATCH_STAR: Param = Param::optional(
    "If-None-Match",
    Kind::Form(&forms::TAGS),
    "`*`: only if it does not exist; otherwise 412. Tags: only if it has none of them. Not together with \
     `If-Match`.",
);
pub(super) const IF_NONE_MATCH: Param = Param::optional(
    "If-None-Match",
    Kind::Text,
    "Answer 304 if the configuration still has this tag, or \
            one of these.",
);

const NAMESPACE: Operation = Operation {
    id: "",
    verb: Verb::Get,
    path: "/v1/ns/{ns}",
    op: Op::Describe,
    target: Target::Namespace,
    tag: "namespaces",
    summary: "",
    about: "",
    query: &[],
    headers: &[],
    body: Body::None,
    answers: &[],
};

pub(super) const fn json(schema: &'static str) -> Content {
    Content { media: "application/json", carries: Carries::One(schema) }
}

/// Lists namespaces.
pub const LIST_NAMESPACES: Operation = Operation {
    id: "listNamespaces",
    path: "/v1/ns",
    op: Op::List,
    target: Target::Gateway,
    summary: "List namespaces",
    query: PAGE,
    answers: &[Answer { status: 200, about: "A page.", content: &[json("NamespacePage")], headers: &[] }],
    ..NAMESPACE
};

/// Creates or replaces a namespace's settings.
pub const CREATE_NAMESPACE: Operation = Operation {
    id: "createNamespace",
    verb: Verb::Put,
    op: Op::Manage,
    summary: "Create a namespace",
    about: "Idempotent. If the namespace exists with other settings the answer is 409 `config_mismatch`; \
            with `If-Match` its settings are replaced instead.",
    headers: &[IF_MATCH, IF_NONE_MATCH_STAR],
    body: Body::Optional(&[json("NamespaceSettings")]),
    answers: &[
        Answer {
            status: 201,
            about: "Created.",
            content: &[json("Namespace")],
            headers: &[ETAG, ("Location", "Its path.")],
        },
        Answer {
            status: 200,
            about: "It already exists with this configuration.",
            content: &[json("Namespace")],
            headers: &[ETAG],
        },
    ],
    ..NAMESPACE
};

/// Reads a namespace.
pub const READ_NAMESPACE: Operation = Operation {
    id: "readNamespace",
    summary: "Read a namespace",
    headers: &[IF_NONE_MATCH],
    answers: &[
        Answer { status: 200, about: "The namespace.", content: &[json("Namespace")], headers: &[ETAG] },
        Answer {
            status: 304,
            about: "The settings still have the tag that you sent.",
            content: &[],
            headers: &[ETAG],
        },
    ],
    ..NAMESPACE
};

/// Changes a namespace.
pub const UPDATE_NAMESPACE: Operation = Operation {
    id: "updateNamespace",
    verb: Verb::Patch,
    op: Op::Manage,
    summary: "Change a namespace",
    headers: &[IF_MATCH],
    body: Body::Optional(&[
        json("NamespacePatch"),
        Content { media: "application/merge-patch+json", carries: Carries::One("NamespacePatch") },
    ]),
    answers: &[Answer { status: 200, about: "Changed.", content: &[json("Namespace")], headers: &[ETAG] }],
    ..NAMESPACE
};

/// Deletes a namespace.
pub const DELETE_NAMESPACE: Operation = Operation {
    id: "deleteNamespace",
    verb: Verb::Delete,
    op: Op::Manage,
    summary: "Delete a namespace that has no topics and no subscriptions",
    headers: &[IF_MATCH],
    answers: &[Answer::empty(204, "Deleted.")],
    ..NAMESPACE
};

const TOPIC: Operation =
    Operation { path: "/v1/ns/{ns}/topics/{topic}", target: Target::Topic, tag: "topics", ..NAMESPACE };

/// Lists topics.
pub const LIST_TOPICS: Operation = Operation {
    id: "listTopics",
    path: "/v1/ns/{ns}/topics",
    op: Op::List,
    target: Target::Namespace,
    summary: "List topics",
    query: PAGE,
    answers: &[Answer { status: 200, about: "A page.", content: &[json("TopicPage")], headers: &[] }],
    ..TOPIC
};

/// Creates a topic, or replaces its configuration.
pub const CREATE_TOPIC: Operation = Operation {
    id: "createTopic",
    verb: Verb::Put,
    op: Op::Manage,
    summary: "Create a topic",
    about: "Idempotent. If the topic exists with another configuration the answer is 409 \
            `config_mismatch`; with `If-Match` its configuration is replaced instead.",
    headers: &[IF_MATCH, IF_NONE_MATCH_STAR],
    body: Body::Optional(&[json("TopicSettings")]),
    answers: &[
        Answer {
            status: 201,
            about: "Created.",
            content: &[json("Topic")],
            headers: &[ETAG, ("Location", "Its path.")],
        },
        Answer {
            status: 200,
            about: "It already exists with this configuration.",
            content: &[json("Topic")],
            headers: &[ETAG],
        },
    ],
    ..TOPIC
};

/// Reads a topic.
pub const READ_TOPIC: Operation = Operation {
    id: "readTopic",
    summary: "Read a topic: configuration, partitions, rates",
    headers: &[IF_NONE_MATCH],
    answers: &[
        Answer { status: 200, about: "The topic.", content: &[json("Topic")], headers: &[ETAG] },
        Answer {
            status: 304,
            about: "The configuration still has the tag that you sent; offsets and rates may differ.",
            content: &[],
            headers: &[ETAG],
        },
    ],
    ..TOPIC
};

/// Changes a topic.
pub const UPDATE_TOPIC: Operation = Operation {
    id: "updateTopic",
    verb: Verb::Patch,
    op: Op::Manage,
    summary: "Change a topic's configuration",
    about: "Fields that are left out keep their values; `null` removes a limit.",
    headers: &[IF_MATCH],
    body: Body::Optional(&[
        json("TopicPatch"),
        Content { media: "application/merge-patch+json", carries: Carries::One("TopicPatch") },
    ]),
    answers: &[Answer { status: 200, about: "Changed.", content: &[json("Topic")], headers: &[ETAG] }],
    ..TOPIC
};

/// Deletes a topic.
pub const DELETE_TOPIC: Operation = Operation {
    id: "deleteTopic",
    verb: Verb::Delete,
    op: Op::Manage,
    summary: "Delete a topic with all its messages",
    headers: &[IF_MATCH],
    answers: &[Answer::empty(204, "Deleted.")],
    ..TOPIC
};

/// Trims a topic.
pub const TRIM_TOPIC: Operation = Operation {
    id: "trimTopic",
    verb: Verb::Post,
    path: "/v1/ns/{ns}/topics/{topic}:trim",
    op: Op::Manage,
    summary: "Remove a topic's oldest messages for good",
    about: "Removes them for all readers and subscriptions, on disk and in the object store. Offsets do \
            not change. This cannot be undone. Trimming what is already gone is not an \
            error.\n\n`If-Match`, and whether the topic is closed, are checked before the trim begins: a \
            change made at that very moment may be missed.\n\nErrors: `topic_not_found`, \
            `partition_not_found`, `beyond_tail` for an offset beyond the end, `topic_closed`, \
            `invalid_parameter`, `unknown_field`, `unavailable`; with `If-Match` also `version_mismatch` \
            and `incarnation_gone`. With the outcome `unknown` some partitions may have been trimmed: trim \
            again.",
    query: &[Param::optional("dry_run", Kind::Boolean, "Only say what would happen.")],
    headers: &[IF_MATCH],
    body: Body::Required(&[json("Trim")]),
    answers: &[Answer {
        status: 200,
        about: "What happened, or would happen.",
        content: &[json("Trimmed")],
        headers: &[],
    }],
    ..TOPIC
};
