//! What a link is told.

use std::sync::Arc;
use std::time::Duration;

use weir_protocol::rpc::{Hello, PROTOCOL_VERSION};

use crate::metrics::Metrics;

/// What a link is for. Each is a connection of its own, so that a heartbeat never waits behind a 4 MiB frame:
/// make one [`crate::Link`] per priority.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum Priority {
    /// Short and urgent: heartbeats, votes, cluster map.
    Control,
    /// Everything else.
    Bulk,
}

/// Settings of a [`crate::Link`]. Start from [`LinkConfig::new`].
#[derive(Debug, Clone)]
pub struct LinkConfig {
    /// Who the peer is, for logs; default empty.
    pub peer: String,
    /// What it is for; appears in logs.
    pub priority: Priority,
    /// How it introduces itself.
    pub hello: Hello,
    /// The stream (TCP and TLS) must be open within this; default 5 s.
    pub connect_timeout: Duration,
    /// The welcome must arrive within this after that; default 5 s.
    pub handshake_deadline: Duration,
    /// Most calls in flight; default 6,144, well below what a server takes: calls that were given up end there a
    /// moment later than here. Further ones are not sent.
    pub calls_max: usize,
    /// Bytes of requests queued above which calls are not sent; default 32 MiB.
    pub queued_bytes_max: usize,
    /// Bytes of answers buffered for one [`crate::Answers`], each counted with 64 bytes more; default 16 MiB.
    /// Credit must keep a stream below it: one that exceeds it is ended with [`crate::CallError::Unknown`].
    pub answers_bytes_max: usize,
    /// How often a silent peer is asked for a sign of life; default 2 s.
    pub ping_interval: Duration,
    /// A peer silent for this long after the first unanswered ping is given up; default 6 s.
    pub ping_timeout: Duration,
    /// Pause after the first failed attempt; default 50 ms. Doubled each time, each drawn from the upper half of
    /// its range, so that many gateways do not return at once.
    pub backoff_min: Duration,
    /// Longest pause; default 2 s.
    pub backoff_max: Duration,
    /// Counters; share one to add several links up.
    pub metrics: Arc<Metrics>,
}

impl LinkConfig {
    /// The defaults.
    #[must_use]
    pub fn new(priority: Priority, hello: Hello) -> Self {
        Self {
            peer: String::new(),
            priority,
            hello,
            connect_timeout: Duration::from_secs(5),
            handshake_deadline: Duration::from_secs(5),
            calls_max: 6_144,
            queued_bytes_max: 32 << 20,
            answers_bytes_max: 16 << 20,
            ping_interval: Duration::from_secs(2),
            ping_timeout: Duration::from_secs(6),
            backoff_min: Duration::from_millis(50),
            backoff_max: Duration::from_secs(2),
            metrics: Arc::default(),
        }
    }

    /// The hello of a gateway that does not know its cluster yet and has no credential.
    #[must_use]
    pub fn gateway_hello() -> Hello {
        Hello { version: PROTOCOL_VERSION, ..Hello::default() }
    }
}
