//! WebSocket: publish, follow and consume over one connection, as JSON (`weir.v1.json`) or binary (`weir.v1.bin`).
//!
//! ```text
//!   upgrade ─▶ socket: one task; reads, runs effects, writes with one flush per wake-up
//!                │ frames, confirms, events, time          ▲ frames in either form (output)
//!                ▼                                         │
//!              session (pure) ── publishing, following, consuming (pure, one per channel) ─▶ effects
//!                                    └ granting ── pool: what all that publish may have under way
//! ```
//!
//! The services stand behind a `gate`, which is asked for the namespace of each channel of a page that only
//! namespaces let in. Below the socket, `deflate` reads and makes deflated messages where that was agreed.
//! The frames and their bytes are [`weir_protocol::ws`]. A slow client stops the reading of the log, nothing
//! else: what one socket may hold is bounded by its credit and its output buffer.

mod amount;
mod consuming;
mod deflate;
mod effect;
mod following;
mod gate;
mod granting;
pub(crate) mod measured;
mod output;
mod parts;
mod pool;
mod prefix;
mod publishing;
mod session;
mod socket;
mod upgrade;
mod window;

pub(crate) use deflate::{Deflate, fuzzed};
pub(crate) use pool::Pool;
pub(crate) use upgrade::{SocketLimits, WebSockets, upgrade};
