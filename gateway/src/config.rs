//! What a gateway is told. Every field has a default that suits a laptop.

use std::net::SocketAddr;
use std::time::Duration;

use serde::{Deserialize, Serialize};
use weir_protocol::ws::Secret;

use crate::api::StoragePrices;
use crate::tls::TlsSource;

/// On which WebSockets messages are deflated (RFC 7692), if the client offers it. No codec is kept between messages.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "snake_case")]
pub enum WsDeflate {
    /// Those that speak JSON. The default.
    Json,
    /// All: the binary form too, whose batches may be compressed already.
    All,
    /// None.
    Off,
}

/// Settings of a gateway.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields, default)]
pub struct GatewayConfig {
    /// Where clients connect. Default `127.0.0.1:8080`; port 0 takes a free one. With `127.0.0.1` the same port of
    /// `[::1]` is listened on too, where there is one.
    pub listen: SocketAddr,
    /// A storage node, `host:port`.
    pub storage: String,
    /// Secret of the cluster, which the storage node may ask for; empty: none. Default empty.
    #[serde(skip)]
    pub credential: Secret,
    /// Names that `Host` may have besides localhost, 127.0.0.1, `[::1]` and the listening address; without port.
    pub hosts: Vec<String>,
    /// Browser origins that may use the gateway besides its own, and besides localhost's and
    /// 127.0.0.1's as long as it serves this machine only.
    pub origins: Vec<String>,
    /// Serve a public or wildcard address although nobody is authenticated. Default false: such an address is refused.
    pub insecure_public: bool,
    /// All requests come through a proxy that lets in only those who may do everything, and that says itself, or
    /// removes, what headers say of proxies. Default false: what comes through one is refused.
    pub behind_proxy: bool,
    /// What stands before all paths where clients are. Paths are understood with it and without. Default empty.
    pub base_path: String,
    /// Largest payload of one message in bytes, at most 3 MiB. Default 1 MiB.
    pub record_bytes_max: usize,
    /// Where the operator console is served: a path that starts and ends with a slash. Default `/console/`.
    pub console_prefix: String,
    /// Most connections at once; further ones are answered 503. Default 10,000.
    pub connections_max: usize,
    /// Bytes of request bodies held at once, over all connections; further ones are refused. Default 256 MiB.
    pub request_bytes_max: usize,
    /// Encoded bytes of publishes on their way to storage; further ones are refused with `busy`. Default 64
    /// MiB, at least what a request may hold.
    pub publish_bytes_max: usize,
    /// Encoded bytes that storage may send to all readers before they have taken them; then grants wait.
    /// Default 256 MiB.
    pub read_credit_bytes_max: u64,
    /// Bytes of answers that clients have not taken, over all connections; further ones are refused with
    /// `answers_full`. A connection, and an address, gets a quarter. Default 256 MiB.
    pub answer_bytes_max: u64,
    /// Bytes held by all feeds for readers who are slower than the fastest; beyond it they read from storage.
    /// Default 64 MiB.
    pub feed_bytes_max: u64,
    /// Topics whose description is remembered. Default 100,000.
    pub topics_max: usize,
    /// On which WebSockets `permessage-deflate` is agreed. Default: those that speak JSON.
    pub ws_deflate: WsDeflate,
    /// What the object store charges, for estimates. Default S3 Standard's list prices.
    pub storage_prices: StoragePrices,
    /// Serve HTTPS and WSS with this certificate, and nothing else. Default none: HTTP and WS.
    pub tls: Option<TlsSource>,
    /// How long clients may keep the gateway waiting, and what is held for them meanwhile.
    #[serde(skip)]
    pub limits: ClientLimits,
}

/// How long one client may keep the gateway waiting, and what is held for it meanwhile. Who reaches a limit loses its
/// request or its connection; nobody else notices.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ClientLimits {
    /// A request's header section must have arrived within this, and a connection's first request too; then it is
    /// closed. Default 10 s.
    pub head_time_max: Duration,
    /// A request's body must have arrived within this, from when it is read; then it is answered 408. Default 30 s.
    pub body_time_max: Duration,
    /// A client that takes no byte of what is written for it for this long is closed; of HTTP/2, an answer of which
    /// none is taken is reset. Default 30 s.
    pub write_time_max: Duration,
    /// A WebSocket's client must take what one turn has for it within this, at most about 256 KiB and a message; then
    /// it is closed. Default 40 s, which is what a silent one is given.
    pub socket_write_time_max: Duration,
    /// A TLS handshake must be done within this, waiting for its turn included; then the connection is closed. Default
    /// 10 s.
    pub handshake_time_max: Duration,
    /// Encoded bytes of messages that storage may send ahead for one event stream, all its partitions together; then
    /// the log is not read on. The last message may exceed it. Default 256 KiB.
    pub events_bytes_max: u64,
}

impl Default for ClientLimits {
    fn default() -> Self {
        Self {
            head_time_max: Duration::from_secs(10),
            body_time_max: Duration::from_secs(30),
            write_time_max: Duration::from_secs(30),
            socket_write_time_max: Duration::from_secs(40),
            handshake_time_max: Duration::from_secs(10),
            events_bytes_max: 256 << 10,
        }
    }
}

impl Default for GatewayConfig {
    fn default() -> Self {
        Self {
            listen: SocketAddr::from(([127, 0, 0, 1], 8080)),
            storage: String::new(),
            credential: Secret::default(),
            hosts: Vec::new(),
            origins: Vec::new(),
            insecure_public: false,
            behind_proxy: false,
            base_path: String::new(),
            record_bytes_max: weir_protocol::limits::RECORD_BYTES_DEFAULT,
            console_prefix: "/console/".to_owned(),
            connections_max: 10_000,
            request_bytes_max: 256 << 20,
            publish_bytes_max: 64 << 20,
            read_credit_bytes_max: 256 << 20,
            answer_bytes_max: 256 << 20,
            feed_bytes_max: 64 << 20,
            topics_max: 100_000,
            ws_deflate: WsDeflate::Json,
            storage_prices: StoragePrices::default(),
            tls: None,
            limits: ClientLimits::default(),
        }
    }
}
