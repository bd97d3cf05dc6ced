//! The gateway speaks HTTP and WebSocket to the world and frames to storage nodes. It holds no truth.
//!
//! ```text
//!   gateway    starts, drains
//!   listener   sockets, and who is let in
//!   connection from its first byte of HTTP to its last
//!   tls        which certificate is shown
//!   host       names of hosts
//!   edge       a request: host, origin, route, authorize, handler
//!   ws         WebSocket: sessions, channels, credit
//!   service    what a request means: publish, read, follow, topics, namespaces
//!   storage    the way to the storage nodes: router, retry policy, publish lanes
//!   auth       who may do what: one `authorize`
//!   stages     where the time of confirmed publishes goes
//!   answers    what is held for clients that have not taken it
//!   under_way  futures that one task drives
//!   at_once    a future that is polled again if it woke itself
//!   metrics    what the bounded parts hold, at scrape time
//!   api        what clients see: JSON types, problems, the operation table, the OpenAPI document
//! ```

mod answers;
pub mod api;
mod at_once;
pub mod auth;
mod config;
mod connection;
mod edge;
mod gateway;
mod host;
mod listener;
mod metrics;
pub mod service;
mod stages;
pub mod storage;
mod tls;
mod under_way;
mod ws;

/// Doors to private parts that are measured by themselves, for the benches and nobody else.
#[doc(hidden)]
pub mod measured {
    pub use crate::edge::measured::{page_as_json, page_as_lines, read_lines};
    pub use crate::service::read::measured::ReadCredit;
    pub use crate::ws::measured::{FollowCredit, PublishCredit, deliveries};
}

/// Doors to private parts that read what strangers send, for the fuzz targets and nobody else.
#[doc(hidden)]
pub mod fuzzed {
    pub use crate::service::cursor_of_a_list;
    pub use crate::ws::fuzzed::{inflated, messages};
}

pub use config::{ClientLimits, GatewayConfig, WsDeflate};
pub use gateway::{Gateway, Reservation, RunningGateway, StartError, Surroundings};
pub use tls::{TlsError, TlsSource};
