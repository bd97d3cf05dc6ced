//! Subscriptions as they are configured.

use super::topics::{ETAG, IF_MATCH, IF_NONE_MATCH, IF_NONE_MATCH_STAR, PAGE, json};
use super::{Answer, Body, Content, Kind, Operation, Param, Target, Verb};
use crate::auth::Op;

const SHOWN: &[Answer] =
    &[Answer { status: 200, about: "As it is now.", content: &[json("Subscription")], headers: &[ETAG] }];

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
    about: "Idempotent. Without `If-Match` an existing subscription with another configuration is 409 \
            `config_mismatch`; with it the configuration is replaced, but not `mode`, `topics`, `start` and `order`. Needs the grant \
            `subscribe` on the topics, or on all that a pattern matches, and `publish` on the dead letter topic as well. A dead letter topic that does \
            not exist is created if the namespace has `auto_create`. Errors: `topic_not_found`, `invalid_config`, \
            `invalid_name`, `unknown_field`, `not_supported`, `config_mismatch`, `version_mismatch`.",
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
            about: "It stands like that.",
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
    about: "The fork consumes the same topics in the same mode, and begins with what was settled, dead and tried here at that \
            instant; nothing is copied, and both go on independently. What is leased here is ready there. Idempotent as creating is: \
            an existing subscription that began otherwise or is configured otherwise is 409 `config_mismatch`. If not every \
            partition keeps what stood then, it is 410 `snapshot_gone`, and nothing of the fork is left; a partition that a \
            pattern took in after that seek keeps nothing of before it. What retention has removed since is not brought back. \
            Needs the grant `manage` on both, and otherwise what creating needs. Errors: `subscription_not_found`, \
            `incarnation_gone` once the topic was deleted, `snapshot_gone`, `config_mismatch`, `not_supported` for another mode, \
            topics, start or order, `invalid_parameter`, `invalid_config`, `invalid_name`, `unknown_field`, `topic_not_found`, \
            `unavailable`; with the outcome `unknown` it may be there or not: ask again.",
    headers: &[],
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
            about: "Its configuration has the tag that you have; numbers may differ.",
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
    about: "Fields that are left out stay as they are. Leases that are held keep their time. Errors: \
            `subscription_not_found`, `invalid_config`, `invalid_name`, `unknown_field`, `version_mismatch`, \
            `incarnation_gone`, `not_supported` for another mode, start or order, or other topics.",
    headers: &[IF_MATCH],
    body: Body::Optional(&[
        json("SubscriptionPatch"),
        Content { media: "application/merge-patch+json", schema: Some("SubscriptionPatch") },
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
    about: "Leases that are held stay and can be settled. The same as `\"paused\": true` in the configuration. \
            Errors: `subscription_not_found`, `version_mismatch`, `incarnation_gone`.",
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
