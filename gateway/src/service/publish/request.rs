//! What is to be published.

use std::time::Duration;

use bytes::Bytes;
use tokio::time::Instant;
use weir_protocol::batch::{Batch, Headers};
use weir_protocol::ids::{Epoch, Incarnation, Offset, PartitionId, Seq, TopicPath};
use weir_protocol::rpc::Level;

/// One request to publish.
#[derive(Debug, Clone)]
pub struct Publish {
    /// Where to.
    pub topic: TopicPath,
    /// What.
    pub content: Content,
    /// Level to wait for; `None`: the topic's default.
    pub confirm: Option<Level>,
    /// After this long, answer with the level reached so far.
    pub confirm_deadline: Option<Duration>,
    /// Accept each number once.
    pub producer: Option<Producer>,
    /// Accept once per key; for one record only.
    pub idempotency_key: Option<String>,
    /// Accept only at this tail.
    pub expected: Option<Expected>,
    /// All records of one partition in one batch.
    pub atomic: bool,
    /// When the request arrived: the start of [`super::Timing::total`].
    pub received: Instant,
}

impl Publish {
    /// A request without any of the options.
    #[must_use]
    pub fn new(topic: TopicPath, content: Content) -> Self {
        Self {
            topic,
            content,
            confirm: None,
            confirm_deadline: None,
            producer: None,
            idempotency_key: None,
            expected: None,
            atomic: false,
            received: Instant::now(),
        }
    }
}

/// Records, as they came.
#[derive(Debug, Clone)]
pub enum Content {
    /// Records to be put into batches, at least one.
    Records(Vec<NewRecord>),
    /// Batches that a client built, passed on as they are wherever that is possible. At least one; headers and
    /// checksums have been checked by [`Batch::parse`], records have not.
    Batches(Vec<Batch>),
}

/// A record.
#[derive(Debug, Clone, Default)]
pub struct NewRecord {
    /// Key: chooses the partition, and orders.
    pub key: Option<Bytes>,
    /// Headers, reserved ones included.
    pub headers: Headers,
    /// Payload.
    pub value: Bytes,
    /// The sender named no content type: the topic's, if it has one, takes the place of what `headers` say. `None`:
    /// it did, or built the record itself.
    pub unnamed: Option<Unnamed>,
}

/// A payload whose sender did not say of what type it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Unnamed {
    /// Bytes.
    Bytes,
    /// The text of a JSON value; a string may stand for its text.
    Json,
}

/// The producer triple.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Producer {
    /// Its id.
    pub id: String,
    /// Its epoch.
    pub epoch: Epoch,
    /// Its number for the first record.
    pub seq: Seq,
}

/// The tail that a publish expects.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Expected {
    /// `If-Match`: the end of this partition of this life.
    Tail {
        /// The topic's life.
        incarnation: Incarnation,
        /// The partition.
        partition: PartitionId,
        /// Its end.
        end: Offset,
    },
    /// `If-Match: *`: whatever it is, of a topic that is there.
    Any,
    /// `If-None-Match: *`: nothing was ever written to the partition.
    Empty,
}
