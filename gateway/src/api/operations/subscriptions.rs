//! Subscriptions as they are configured.

use super::topics::{ETAG, IF_MATCH, IF_NONE_MATCH, IF_NONE_MATCH_STAR, PAGE, json};
use super::{Answer, Body, Carries, Content, Kind, Operation, Param, Target, Verb};
use crate::auth::Op;

const SHOWN: &[Answer] = &[Answer {
    status: 200,
    about: "The subscription as it is now.",
    content: &[json("Subscription")],
    headers: &[ETAG],
}];

/// What operations on one subscription have in common.
pub(super) const SUBSCRIPTION: Operation = Operation {
    id: "",
    verb: Verb::Get,
    path: "/v1/ns/{ns}/subscriptions/{subscription}",
    op: Op::Describe,
    target: Target::Subscription,
    tag: "subscriptions",
    summary: "",
    about: "",
    query: &[],
    headers: &[],
    body: Body::None,
    answers: &[],
};

const OF_TOPIC: Param =
    Param::optional("topic", Kind::Text, "Only those that consume the topic with this name.");

/// Lists subscriptions.
pub const LIST_SUBSCRIPTIONS: Operation = Operation {
    id: "listSubscriptions",
    path: "/v1/ns/{ns}/subscriptions",
    op: Op::List,
    target: Target::Namespace,
    summary: "List subscriptions",
    about: "Errors: `namespace_not_found`, `invalid_cursor`.",
    query: &[PAGE[0], OF_TOPIC, PAGE[1], PAGE[2], PAGE[3]],
    answers: &[Answer { status: 200, about: "A page.", content: &[json("SubscriptionPage")], headers: &[] }],
    ..SUBSCRIPTION
};

/// Creates a subscription, or replaces its configuration.
pub const CREATE_SUBSCRIPTION: Operation = Operation {
    id: "createSubscription",
    verb: Verb::Put,
    op: Op::Manage,
    summary: "Create a subscription: topics as a work queue",
    about: "Idempotent. If the subscription exists with another configuration the answer is 409 \
            `config_mismatch`; with `If-Match` its configuration is replaced instead, except `mode`, \
            `topics`, `start` and `order`, which cannot change.\n\nAlso needs the grant `subscribe` on the \
            topics (on every topic that a pattern can match) and `publish` on the dead letter topic. A \
            dead letter topic that does not exist is created if the namespace has \
            `auto_create`.\n\nErrors: `topic_not_found`, `invalid_config`, `invalid_name`, \
            `unknown_field`, `not_supported`, `config_mismatch`, `version_mismatch`.",
    headers: &[IF_MATCH, IF_NONE_MATCH_STAR],
    body: Body::Required(&[json("SubscriptionSettings")]),
    answers: &[
        Answer {
            status: 201,
            about: "Created.",
            content: &[json("Subscription")],
            headers: &[ETAG, ("Location", "Its path.")],
        },
        Answer {
            status: 200,
            about: "It already exists with this configuration.",
            content: &[json("Subscription")],
            headers: &[ETAG],
        },
    ],
    ..SUBSCRIPTION
};

/// Forks a subscription.
pub const FORK_SUBSCRIPTION: Operation = Operation {
    id: "forkSubscription",
    verb: Verb::Post,
    path: "/v1/ns/{ns}/subscriptions/{subscription}:fork",
    summary: "Fork a subscription: another that begins as this one stands, or stood",
    about: "The fork consumes the same topics in the same mode. It begins with what was settled, dead and \
            attempted in the original at that instant; messages leased in the original are ready in the \
            fork. Nothing is copied, and from then on the two are independent. Messages that retention has \
            removed since do not come back.\n\nIdempotent: an existing subscription that began \
            differently, or has another configuration, is 409 `config_mismatch`. If a partition no longer \
            keeps the state of that instant the answer is 410 `snapshot_gone`, and no fork is left behind; \
            a partition that a topic pattern added later never had such a state.\n\nNeeds the grant \
            `manage` on both subscriptions, and otherwise the same grants as creating one.\n\nErrors: \
            `subscription_not_found`, `incarnation_gone` if the topic was deleted, `version_mismatch`, \
            `snapshot_gone`, `config_mismatch`, `not_supported` for another mode, other topics, another start or order, \
            `invalid_parameter`, `invalid_config`, `invalid_name`, `unknown_field`, `topic_not_found`, \
            `unavailable`. With the outcome `unknown` the fork may or may not exist: send the request \
            again.",
    headers: &[IF_MATCH],
    body: Body::Required(&[json("ForkSubscription")]),
    ..CREATE_SUBSCRIPTION
};

/// Reads a subscription.
pub const READ_SUBSCRIPTION: Operation = Operation {
    id: "readSubscription",
    summary: "Read a subscription: configuration, and what is ready, leased, delayed and dead",
    about: "Errors: `subscription_not_found`.",
    headers: &[IF_NONE_MATCH],
    answers: &[
        Answer {
            status: 200,
            about: "The subscription.",
            content: &[json("Subscription")],
            headers: &[ETAG],
        },
        Answer {
            status: 304,
            about: "The configuration still has the tag that you sent; counts may differ.",
            content: &[],
            headers: &[ETAG],
        },
    ],
    ..SUBSCRIPTION
};

/// Changes a subscription.
pub const UPDATE_SUBSCRIPTION: Operation = Operation {
    id: "updateSubscription",
    verb: Verb::Patch,
    op: Op::Manage,
    summary: "Change a subscription's configuration",
    about: "Fields that are left out keep their values. Leases that are held keep their \
            deadlines.\n\nErrors: `subscription_not_found`, `invalid_config`, `invalid_name`, \
            `unknown_field`, `version_mismatch`, `incarnation_gone`, `not_supported` for another mode, \
            start or order, or other topics.",
    headers: &[IF_MATCH],
    body: Body::Optional(&[
        json("SubscriptionPatch"),
        Content { media: "application/merge-patch+json", carries: Carries::One("SubscriptionPatch") },
    ]),
    answers: SHOWN,
    ..SUBSCRIPTION
};

/// Deletes a subscription.
pub const DELETE_SUBSCRIPTION: Operation = Operation {
    id: "deleteSubscription",
    verb: Verb::Delete,
    op: Op::Manage,
    summary: "Delete a subscription with its leases; the topic's messages stay",
    about: "Errors: `subscription_not_found`, `version_mismatch`, `incarnation_gone`.",
    headers: &[IF_MATCH],
    answers: &[Answer::empty(204, "Deleted.")],
    ..SUBSCRIPTION
};

/// Pauses a subscription.
pub const PAUSE_SUBSCRIPTION: Operation = Operation {
    id: "pauseSubscription",
    verb: Verb::Post,
    path: "/v1/ns/{ns}/subscriptions/{subscription}:pause",
    op: Op::Manage,
    summary: "Lease no more messages",
    about: "Messages that are leased can still be settled. The same as setting `\"paused\": true` in the \
            configuration.\n\nErrors: `subscription_not_found`, `version_mismatch`, `incarnation_gone`.",
    headers: &[IF_MATCH],
    answers: SHOWN,
    ..SUBSCRIPTION
};

/// Resumes a subscription.
pub const RESUME_SUBSCRIPTION: Operation = Operation {
    id: "resumeSubscription",
    path: "/v1/ns/{ns}/subscriptions/{subscription}:resume",
    summary: "Lease messages again",
    about: "Errors: `subscription_not_found`, `version_mismatch`, `incarnation_gone`.",
    ..PAUSE_SUBSCRIPTION
};
