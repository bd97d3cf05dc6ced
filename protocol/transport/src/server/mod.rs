//! Answers calls.
//!
//! ```text
//!   Listener ── accepts, TLS ─▶ Server ── handshake ─▶ connection ── Service::call(peer, Request{.., Reply})
//! ```
//!
//! * [`Server`]: what connections share: limits, who is here, draining. Takes any [`crate::Wire`].
//! * [`Listener`]: a server behind a TCP port.
//! * [`Service`]: what is called; [`Reply`]: how it answers, now or later, once or as a stream.

mod config;
mod connection;
mod listener;
mod reply;
mod service;

pub use crate::handshake::Identity;
pub use crate::outbox::ConnectionClosed;
pub use config::ServerConfig;
pub use listener::{Listener, Server};
pub use reply::{CallState, CreditHandle, Reply};
pub use service::{Peer, Request, Service};
