//! What a server is told.

use std::net::SocketAddr;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;

use crate::handshake::Identity;
use crate::metrics::Metrics;

/// Settings of a [`crate::Listener`]. Start from [`ServerConfig::new`].
#[derive(Debug, Clone)]
pub struct ServerConfig {
    /// Where to listen; port 0 takes a free one.
    pub addr: SocketAddr,
    /// TLS; `None`: plain TCP.
    pub tls: Option<Arc<rustls::ServerConfig>>,
    /// Who this node is.
    pub identity: Identity,
    /// Secret that peers must present; `None`: not asked for. Compared in constant time, never logged.
    pub credential: Option<Bytes>,
    /// TLS and hello must be done within this; default 5 s. Then the connection is closed.
    pub handshake_deadline: Duration,
    /// Most connections at once, those in their handshake included; default 1,024. Further ones are refused with
    /// `too_many_requests`.
    pub connections_max: usize,
    /// Most calls of one connection in flight, until their last answer is written; default 8,192. Further ones
    /// are refused with `too_many_requests`.
    pub calls_max: usize,
    /// Bytes of stream answers queued on one connection; default 8 MiB, at most 4 GiB. Then
    /// [`crate::Reply::send_when_ready`] waits.
    pub stream_bytes_max: usize,
    /// Bytes of all answers queued on one connection above which calls are refused with `too_many_requests`;
    /// default 64 MiB.
    pub queued_bytes_max: usize,
    /// How often a silent peer is asked for a sign of life; default 5 s.
    pub ping_interval: Duration,
    /// A peer silent for this long after the first unanswered ping is given up; default 15 s.
    pub ping_timeout: Duration,
    /// Counters; share one to add several endpoints up.
    pub metrics: Arc<Metrics>,
}

impl ServerConfig {
    /// The defaults.
    #[must_use]
    pub fn new(addr: SocketAddr, identity: Identity) -> Self {
        Self {
            addr,
            tls: None,
            identity,
            credential: None,
            handshake_deadline: Duration::from_secs(5),
            connections_max: 1_024,
            calls_max: 8_192,
            stream_bytes_max: 8 << 20,
            queued_bytes_max: 64 << 20,
            ping_interval: Duration::from_secs(5),
            ping_timeout: Duration::from_secs(15),
            metrics: Arc::default(),
        }
    }
}
