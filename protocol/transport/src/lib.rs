//! Pipelined, multiplexed calls over any byte stream: gateway → storage node and node → node.
//!
//! ```text
//!   caller ── Link ── calls (correlation) ── Outbox ─▶ writer ══ bytes ══▶ FrameReader ── Service::call ── Reply
//!             │ reconnects, fails fast           one vectored write           │ zero-copy slices      │ answers on Drop
//!             └── Answers ◀── FrameReader ◀══════ bytes ══════ writer ◀─ Outbox ◀─────────────────────┘
//! ```
//!
//! * [`client`]: [`Link`], a handle to one reconnecting peer; [`Answers`] of calls with many answers.
//! * [`server`]: [`Listener`], the [`Service`] it calls, and the [`Reply`] that answers.
//! * `splitter`, `staging`, `liveness`: pure cores, bytes and times in, decisions out.
//! * `outbox`: the bounded queue of a connection and the task that writes it.
//! * `in_process`: no bytes; after the handshake each side takes the other's frames from its outbox.
//! * [`task_group`]: tasks that take their turns in one: connections within a process are part of a shard's.
//! * `handshake`: who is there, before anything else is read.
//!
//! What frames and messages look like is described in [`weir_protocol::frame`] and [`weir_protocol::rpc`].

mod handshake;
mod liveness;
mod metrics;
mod outbox;
mod splitter;
mod staging;
mod wire;

pub mod client;
mod collector;
mod in_process;
mod reserved;
pub mod server;
pub mod task_group;

pub use client::{
    Answers, CallError, ClientTls, Connect, ConnectError, Link, LinkConfig, NotSent, Priority, TcpConnect,
};
pub use collector::{MetricsCollector, Side};
pub use handshake::HandshakeError;
pub use in_process::InProcess;
pub use metrics::{Metrics, MetricsSnapshot};
pub use reserved::Reserved;
pub use server::{
    CallState, ConnectionClosed, CreditHandle, Identity, Listener, Peer, Reply, Request, Server,
    ServerConfig, Service,
};
pub use splitter::{Frame, SplitError, Splitter};
pub use task_group::TaskGroup;
pub use wire::{ReadError, Wire};
