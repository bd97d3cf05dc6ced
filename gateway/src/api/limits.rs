//! What `GET /v1` publishes.

use serde::{Deserialize, Serialize};
use utoipa::ToSchema;
use weir_protocol::filter::{FILTER_BYTES_MAX, FILTER_DEPTH_MAX};
use weir_protocol::limits;

/// That requests are served, and what operators should know all the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Readiness {
    /// True.
    pub ready: bool,
    /// What will be refused, or is not as it should be, in words: empty if all is well.
    pub warnings: Vec<String>,
}

/// What this gateway is and what it accepts.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Service {
    /// `weir`.
    pub service: String,
    /// Version of the gateway.
    pub version: String,
    /// Sizes and times it accepts.
    pub limits: Limits,
    /// Confirm levels that a publish may ask for.
    pub levels: Vec<super::Level>,
    /// WebSocket subprotocols.
    pub subprotocols: Vec<String>,
}

/// Sizes in bytes, times in milliseconds.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, ToSchema)]
pub struct Limits {
    /// Largest payload of one message.
    pub record_bytes: u64,
    /// Largest body of a batch.
    pub batch_bytes: u64,
    /// Most messages of a batch.
    pub batch_records: u32,
    /// What the record batches of one request come to when they are decoded.
    pub batch_decoded_bytes: u64,
    /// Largest atomic batch.
    pub atomic_batch_bytes: u64,
    /// Longest key.
    pub key_bytes: u64,
    /// Most user headers of a message.
    pub headers: u32,
    /// User headers of a message, names and values together.
    pub headers_bytes: u64,
    /// Longest producer id or idempotency key.
    pub client_id_bytes: u64,
    /// Most messages of one read.
    pub read_records: u32,
    /// Most bytes of one read.
    pub read_bytes: u64,
    /// Longest wait of a read.
    pub wait_ms: u64,
    /// Longest delivery delay.
    pub delay_ms: u64,
    /// Most topics of one event stream.
    pub sse_topics: u32,
    /// Most channels of one WebSocket.
    pub ws_channels: u32,
    /// Largest WebSocket message a client may send.
    pub ws_message_bytes: u64,
    /// Most partitions of a topic.
    pub partitions: u32,
    /// How long idempotency keys are remembered unless the topic says otherwise.
    pub dedupe_window_ms: u64,
    /// How long an idle producer is remembered.
    pub producer_idle_ms: u64,
    /// Longest `Confirm-Deadline-Ms`.
    pub confirm_deadline_ms: u64,
    /// Most header fields of one request.
    pub request_headers: u32,
    /// Header fields of one request, names and values together.
    pub request_headers_bytes: u64,
    /// Most connections to this gateway at once.
    pub connections: u64,
    /// Largest JSON body of a topic's, namespace's or subscription's configuration.
    pub config_bytes: u64,
    /// Shortest lease.
    pub lease_ms_min: u64,
    /// Longest lease.
    pub lease_ms: u64,
    /// Most messages of one pull.
    pub pull_records: u32,
    /// Most bytes of one pull.
    pub pull_bytes: u64,
    /// Most leases of one settle.
    pub settle_leases: u32,
    /// Largest body of a settle, and of a redrive.
    pub settle_bytes: u64,
    /// Most messages that one settle publishes.
    pub settle_outputs: u32,
    /// Most bytes of the messages that one settle publishes, as record batches, with the reasons of its leases.
    pub settle_output_bytes: u64,
    /// Largest body of a settle that publishes.
    pub settle_publish_bytes: u64,
    /// Longest reason of a nack or a dead letter.
    pub settle_reason_bytes: u64,
    /// Longest `holder` of a pull.
    pub holder_bytes: u64,
    /// Most messages that a subscription may have leased at once.
    pub unacked: u32,
    /// Most delays of a subscription's `backoff_ms`.
    pub backoff_steps: u32,
    /// Most topics that a subscription names.
    pub subscription_topics: u32,
    /// Most partitions of the topics that a subscription names; of one with a pattern, in each shard.
    pub subscription_partitions: u32,
    /// Most subscriptions with a pattern in one namespace, of those at home in one shard.
    pub subscription_patterns: u32,
    /// Longest filter.
    pub filter_bytes: u64,
    /// Most levels of parentheses and `not` in a filter.
    pub filter_depth: u32,
    /// Most messages that one redrive takes.
    pub redrive_records: u32,
}

/// Most encoded bytes that one read collects.
pub const READ_BYTES_MAX: u64 = 4 * 1024 * 1024;
/// Longest `Confirm-Deadline-Ms`.
pub const CONFIRM_DEADLINE_MS_MAX: u64 = 60_000;
/// Most header fields of one request.
pub const REQUEST_HEADERS_MAX: usize = 64;
/// Most bytes of their names and values.
pub const REQUEST_HEADERS_BYTES_MAX: usize = 16 << 10;
/// Largest JSON body of a configuration.
pub const CONFIG_BYTES_MAX: usize = 64 << 10;
/// Largest body of a settle or a redrive: the most leases or ids, and reasons for some of them. What it says
/// fits a frame to a node.
pub const SETTLE_BYTES_MAX: usize = 2 << 20;
/// Largest body of a settle that publishes: what it publishes may be in Base64.
pub const SETTLE_PUBLISH_BYTES_MAX: usize = 6 << 20;

impl Limits {
    /// The limits of a gateway that takes records of up to `record_bytes` and up to `connections` at once.
    #[must_use]
    pub fn new(record_bytes: usize, connections: usize) -> Self {
        Self {
            record_bytes: record_bytes as u64,
            batch_bytes: limits::HTTP_BATCH_BYTES_MAX as u64,
            batch_records: limits::HTTP_BATCH_RECORDS_MAX,
            batch_decoded_bytes: limits::BATCHES_DECODED_BYTES_MAX as u64,
            atomic_batch_bytes: limits::ATOMIC_BATCH_BYTES_MAX as u64,
            key_bytes: limits::KEY_BYTES_MAX as u64,
            headers: count(limits::RECORD_HEADERS_MAX),
            headers_bytes: limits::RECORD_HEADERS_BYTES_MAX as u64,
            client_id_bytes: limits::CLIENT_ID_BYTES_MAX as u64,
            read_records: limits::READ_RECORDS_MAX,
            read_bytes: READ_BYTES_MAX,
            wait_ms: limits::WAIT_MS_MAX,
            delay_ms: limits::DELAY_MS_MAX,
            sse_topics: count(limits::SSE_TOPICS_MAX),
            ws_channels: count(limits::WS_CHANNELS_MAX),
            ws_message_bytes: limits::WS_MESSAGE_BYTES_MAX as u64,
            partitions: limits::PARTITIONS_MAX,
            dedupe_window_ms: limits::DEDUPE_WINDOW_MS_DEFAULT,
            producer_idle_ms: limits::PRODUCER_IDLE_MS,
            confirm_deadline_ms: CONFIRM_DEADLINE_MS_MAX,
            request_headers: count(REQUEST_HEADERS_MAX),
            request_headers_bytes: REQUEST_HEADERS_BYTES_MAX as u64,
            connections: connections as u64,
            config_bytes: CONFIG_BYTES_MAX as u64,
            lease_ms_min: limits::LEASE_MS_MIN.into(),
            lease_ms: limits::LEASE_MS_MAX.into(),
            pull_records: limits::PULL_RECORDS_MAX,
            pull_bytes: READ_BYTES_MAX,
            settle_leases: count(limits::SETTLE_ITEMS_MAX),
            settle_bytes: SETTLE_BYTES_MAX as u64,
            settle_outputs: count(limits::SETTLE_OUTPUTS_MAX),
            settle_output_bytes: limits::SETTLE_OUTPUT_BYTES_MAX as u64,
            settle_publish_bytes: SETTLE_PUBLISH_BYTES_MAX as u64,
            settle_reason_bytes: limits::SETTLE_REASON_BYTES_MAX as u64,
            holder_bytes: limits::CLIENT_ID_BYTES_MAX as u64,
            unacked: limits::UNACKED_MAX,
            backoff_steps: count(limits::BACKOFF_STEPS_MAX),
            subscription_topics: count(limits::SUBSCRIPTION_TOPICS_MAX),
            subscription_partitions: count(limits::SUBSCRIPTION_PARTS_MAX),
            subscription_patterns: count(limits::SUBSCRIPTION_PATTERNS_MAX),
            filter_bytes: FILTER_BYTES_MAX as u64,
            filter_depth: count(FILTER_DEPTH_MAX),
            redrive_records: count(limits::REDRIVE_RECORDS_MAX),
        }
    }
}

fn count(limit: usize) -> u32 {
    u32::try_from(limit).expect("published counts are small")
}
