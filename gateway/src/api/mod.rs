//! What clients see: the words of the HTTP API and its documents. Knows nothing of storage or sockets.
//!
//! ```text
//!   topic, namespace, message, limits   JSON bodies (serde) with their schemas (utoipa)
//!   subscription, queue                 the same: what is set, and what is leased and settled
//!   removal                             the same: what is purged and trimmed
//!   event                               events of CloudEvents
//!   storage                             where messages are, and what keeping them costs
//!   problem                             the one error body, RFC 9457
//!   operations                          every operation as data: path, grant, parameters, answers
//!   forms                               what texts in requests look like
//!   openapi                             the OpenAPI 3.1 document of all that
//! ```

mod event;
mod fork;
pub mod forms;
mod limits;
mod message;
mod namespace;
pub mod openapi;
pub mod operations;
mod problem;
mod queue;
mod removal;
mod storage;
mod subscription;
mod topic;

pub use event::CloudEvent;
pub use fork::{ForkSubscription, ForkedFrom};
pub use limits::{
    CONFIG_BYTES_MAX, CONFIRM_DEADLINE_MS_MAX, Limits, READ_BYTES_MAX, REQUEST_HEADERS_BYTES_MAX,
    REQUEST_HEADERS_MAX, Readiness, SETTLE_BYTES_MAX, SETTLE_PUBLISH_BYTES_MAX, Service,
};
pub(crate) use message::unique;
pub use message::{
    BatchLine, BatchPublished, BatchResult, Next, Producer, ProducerPartition, Published, ReadPage, Receipt,
    Record,
};
pub use namespace::{Namespace, NamespaceConfig, NamespacePage, NamespacePatch};
pub(crate) use namespace::{check_origins, never_sent};
pub use problem::{Current, Problem, ProblemOutcome};
pub use queue::{
    Delivery, Dismissal, Explained, Extension, Hindrance, LeasePage, LeasedRecord, MessageState,
    OutputMessage, PublishedMessage, Pull, PullScope, Pulled, Redrive, Redriven, Rejection, Seek, Seeked,
    SeekedPart, Settle, SettleOutcome, Settled, SettledLease, Takeover,
};
pub use removal::{Purge, PurgeWhat, Purged, PurgedPart, Trim, Trimmed, TrimmedPartition};
pub use storage::{CostPerDay, DamagedObject, PartitionStorage, StoragePrices, TopicStorage};
pub use subscription::{
    Mode, Order, Subscription, SubscriptionConfig, SubscriptionPage, SubscriptionPart, SubscriptionPatch,
    SubscriptionTotals, default_subscription_config,
};
pub use topic::{
    Cache, Compaction, Dedupe, DeliverFrom, Level, Partition, Rates, Retention, RetentionPatch, Topic,
    TopicConfig, TopicPage, TopicPatch,
};
