//! Links of the document: from what creates something, or hands out something, to what uses it. Tools follow them
//! to make sequences of requests that mean something. A link cannot have a body that every generator reads, so
//! its text says what goes there.

use utoipa::openapi::link::{Link, LinkBuilder};

/// What an answer leads to.
pub(super) struct Lead {
    /// `operationId` of the request …
    pub(super) from: &'static str,
    /// … and the statuses of its answers that lead on.
    statuses: &'static [u16],
    /// `operationId` of what uses it.
    pub(super) to: &'static str,
    /// What of the request and its answer goes where.
    pub(super) parameters: &'static [(&'static str, &'static str)],
    about: &'static str,
}

const NS: (&str, &str) = ("ns", "$request.path.ns");
const OF_NAMESPACE: &[(&str, &str)] = &[NS];
const OF_TOPIC: &[(&str, &str)] = &[NS, ("topic", "$request.path.topic")];
const OF_SUBSCRIPTION: &[(&str, &str)] = &[NS, ("subscription", "$request.path.subscription")];
const OF_FORK: &[(&str, &str)] = &[NS, ("subscription", "$response.body#/name")];
const OF_MESSAGE: &[(&str, &str)] = &[
    NS,
    ("topic", "$request.path.topic"),
    ("partition", "$response.body#/partition"),
    ("offset", "$response.body#/offset"),
];
const OF_RECEIPT: &[(&str, &str)] =
    &[NS, ("topic", "$request.path.topic"), ("receipt", "$response.header.Confirm-Receipt")];

const UNDO: &str = "Undo it, with `\"to\": \"undo\"` and the answer's `undo`.";

const CREATED: &[u16] = &[200, 201];
const STORED: &[u16] = &[200, 201, 202];
const DONE: &[u16] = &[200];

const fn lead(
    from: &'static str,
    statuses: &'static [u16],
    to: &'static str,
    parameters: &'static [(&'static str, &'static str)],
    about: &'static str,
) -> Lead {
    Lead { from, statuses, to, parameters, about }
}

pub(super) const LEADS: &[Lead] = &[
    lead("createNamespace", CREATED, "readNamespace", OF_NAMESPACE, "The namespace."),
    lead("createNamespace", CREATED, "updateNamespace", OF_NAMESPACE, "Change it."),
    lead("createNamespace", CREATED, "deleteNamespace", OF_NAMESPACE, "Delete it."),
    lead("createNamespace", CREATED, "createTopic", OF_NAMESPACE, "Create a topic in it."),
    lead("createNamespace", CREATED, "listTopics", OF_NAMESPACE, "Its topics."),
    lead("createTopic", CREATED, "readTopic", OF_TOPIC, "The topic."),
    lead("createTopic", CREATED, "updateTopic", OF_TOPIC, "Change it."),
    lead("createTopic", CREATED, "deleteTopic", OF_TOPIC, "Delete it."),
    lead("createTopic", CREATED, "trimTopic", OF_TOPIC, "Remove its oldest messages."),
    lead("createTopic", CREATED, "publishMessage", OF_TOPIC, "Publish to it."),
    lead("createTopic", CREATED, "publishBatch", OF_TOPIC, "Publish many messages to it."),
    lead("createTopic", CREATED, "readMessages", OF_TOPIC, "Its messages."),
    lead("publishMessage", STORED, "readMessage", OF_MESSAGE, "The message, if its place is known."),
    lead("publishMessage", STORED, "readReceipt", OF_RECEIPT, "How safe it is by now."),
    lead("publishMessage", STORED, "readMessages", OF_TOPIC, "The topic's messages."),
    lead("publishBatch", STORED, "readMessages", OF_TOPIC, "The topic's messages."),
    lead("createSubscription", CREATED, "readSubscription", OF_SUBSCRIPTION, "The subscription."),
    lead("createSubscription", CREATED, "updateSubscription", OF_SUBSCRIPTION, "Change it."),
    lead("createSubscription", CREATED, "deleteSubscription", OF_SUBSCRIPTION, "Delete it."),
    lead("createSubscription", CREATED, "forkSubscription", OF_SUBSCRIPTION, "Fork it."),
    lead("createSubscription", CREATED, "pauseSubscription", OF_SUBSCRIPTION, "Pause it."),
    lead("createSubscription", CREATED, "resumeSubscription", OF_SUBSCRIPTION, "Resume it."),
    lead("createSubscription", CREATED, "pullMessages", OF_SUBSCRIPTION, "Lease messages."),
    lead("createSubscription", CREATED, "seekSubscription", OF_SUBSCRIPTION, "Move it."),
    lead("createSubscription", CREATED, "purgeSubscription", OF_SUBSCRIPTION, "Settle what waits."),
    lead("createSubscription", CREATED, "listLeases", OF_SUBSCRIPTION, "What is leased."),
    lead("createSubscription", CREATED, "listMessagesOfState", OF_SUBSCRIPTION, "What is ready."),
    lead("createSubscription", CREATED, "listDeadLetters", OF_SUBSCRIPTION, "Its dead letters."),
    lead("createSubscription", CREATED, "redriveDeadLetters", OF_SUBSCRIPTION, "Deliver them once more."),
    lead("forkSubscription", CREATED, "readSubscription", OF_FORK, "The fork."),
    lead("forkSubscription", CREATED, "pullMessages", OF_FORK, "Lease messages of the fork."),
    lead("pullMessages", DONE, "explainMessage", OF_SUBSCRIPTION, "Where one of them stands, by its `id`."),
    lead(
        "pullMessages",
        DONE,
        "settleMessages",
        OF_SUBSCRIPTION,
        "Settle them, each by its `lease`: `ack`, `nack`, `extend` or `dead`.",
    ),
    lead("seekSubscription", DONE, "seekSubscription", OF_SUBSCRIPTION, UNDO),
    lead("purgeSubscription", DONE, "seekSubscription", OF_SUBSCRIPTION, UNDO),
];

/// What the answers of an operation with this status lead to, by the name of the operation.
pub(super) fn of(operation: &str, status: u16) -> impl Iterator<Item = (&'static str, Link)> {
    let leads = LEADS.iter().filter(move |lead| lead.from == operation && lead.statuses.contains(&status));
    leads.map(|lead| {
        let link = LinkBuilder::new().operation_id(lead.to).description(lead.about);
        let link = lead.parameters.iter().fold(link, |link, (name, from)| link.parameter(*name, *from));
        (lead.to, link.build())
    })
}
