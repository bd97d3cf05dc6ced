//! Every operation of the HTTP API, once, as data.
//!
//! ```text
//!   this table ─┬─▶ the router: method and path, what is authorised, which query parameters exist
//!               └─▶ the OpenAPI document
//! ```
//! So what is documented is what is served, an operation cannot be reached without being authorised, and an
//! unknown query parameter is refused by name.

mod operation;
mod publishing;
mod queues;
mod reading;
mod status;
mod subscriptions;
mod topics;

pub use operation::{Answer, Body, Carries, Content, Kind, Operation, Param, Target, Verb};
pub use publishing::{PUBLISH, PUBLISH_BATCH, READ_PRODUCER, READ_RECEIPT};
pub use queues::{
    EXPLAIN_MESSAGE, LIST_DEAD_LETTERS, LIST_LEASES, LIST_MESSAGES_OF_STATE, PULL_MESSAGES,
    PURGE_SUBSCRIPTION, REDRIVE_DEAD_LETTERS, SEEK_SUBSCRIPTION, SETTLE_MESSAGES,
};
pub use reading::{FOLLOW_EVENTS, OPEN_WEBSOCKET, READ_MESSAGE, READ_MESSAGES};
pub use status::{DESCRIBE_SERVICE, READ_HEALTH, READ_METRICS, READ_OPENAPI, READ_READINESS};
pub use subscriptions::{
    CREATE_SUBSCRIPTION, DELETE_SUBSCRIPTION, FORK_SUBSCRIPTION, LIST_SUBSCRIPTIONS, PAUSE_SUBSCRIPTION,
    READ_SUBSCRIPTION, RESUME_SUBSCRIPTION, UPDATE_SUBSCRIPTION,
};
pub use topics::{
    CREATE_NAMESPACE, CREATE_TOPIC, DELETE_NAMESPACE, DELETE_TOPIC, LIST_NAMESPACES, LIST_TOPICS,
    READ_NAMESPACE, READ_TOPIC, TRIM_TOPIC, UPDATE_NAMESPACE, UPDATE_TOPIC,
};

/// What anybody may ask without being known: whether the gateway lives and works. Load balancers do.
pub const PUBLIC: &[&Operation] = &[&READ_HEALTH, &READ_READINESS];

/// All operations, in the order of the document.
pub const OPERATIONS: &[&Operation] = &[
    &READ_HEALTH,
    &READ_READINESS,
    &READ_METRICS,
    &READ_OPENAPI,
    &DESCRIBE_SERVICE,
    &LIST_NAMESPACES,
    &CREATE_NAMESPACE,
    &READ_NAMESPACE,
    &UPDATE_NAMESPACE,
    &DELETE_NAMESPACE,
    &LIST_TOPICS,
    &CREATE_TOPIC,
    &READ_TOPIC,
    &UPDATE_TOPIC,
    &DELETE_TOPIC,
    &TRIM_TOPIC,
    &PUBLISH,
    &PUBLISH_BATCH,
    &READ_MESSAGES,
    &READ_MESSAGE,
    &READ_RECEIPT,
    &READ_PRODUCER,
    &LIST_SUBSCRIPTIONS,
    &CREATE_SUBSCRIPTION,
    &READ_SUBSCRIPTION,
    &UPDATE_SUBSCRIPTION,
    &DELETE_SUBSCRIPTION,
    &PULL_MESSAGES,
    &SETTLE_MESSAGES,
    &SEEK_SUBSCRIPTION,
    &PURGE_SUBSCRIPTION,
    &FORK_SUBSCRIPTION,
    &PAUSE_SUBSCRIPTION,
    &RESUME_SUBSCRIPTION,
    &LIST_LEASES,
    &LIST_MESSAGES_OF_STATE,
    &LIST_DEAD_LETTERS,
    &EXPLAIN_MESSAGE,
    &REDRIVE_DEAD_LETTERS,
    &FOLLOW_EVENTS,
    &OPEN_WEBSOCKET,
];
