//! Client ⇄ gateway over WebSocket: the same frames as JSON (`weir.v1.json`) or binary (`weir.v1.bin`).
//!
//! ```text
//!   frame     the 16-byte header, frame types and channels
//!   client    what clients send          server   what gateways send
//!   value     JSON values kept to the digit, header maps, ranges, confirm levels
//!   view      a record as JSON and back
//!   delivery  the body of a binary `msgs`: stored batches, untouched
//!   compact   the binary bodies of `confirm`, `limit` and `pub_limit`
//!   json      text ⇄ frames              binary   bytes ⇄ frames
//!   close     close codes                error    why input was refused
//! ```
//!
//! A WebSocket message holds one or more frames: in JSON one object per line, in binary one behind the other.
//! Both codecs serve both sides, so gateway, command line and tests cannot disagree. Gateways refuse a field
//! they do not know, by name; clients skip one, so that a gateway may be newer.

pub mod binary;
mod client;
mod close;
mod compact;
mod delivery;
mod error;
mod frame;
pub mod json;
mod server;
#[cfg(test)]
mod tests;
mod value;
mod view;

pub use client::*;
pub use close::CloseCode;
pub use delivery::{Deliveries, DeliveriesBody, Delivery, LeaseRun, run_of};
pub use error::WsError;
pub use frame::{Channel, FrameType, HEADER_BYTES, Scope};
pub use server::*;
pub use value::{HeaderMap, NumberRange, RawJson, Secret};
pub use view::{Content, ContentError, Kind as PayloadKind, payload_of};

/// Version of the subprotocol, in `hello`.
pub const VERSION: u32 = 1;
/// Subprotocol name of the JSON form.
pub const SUBPROTOCOL_JSON: &str = "weir.v1.json";
/// Subprotocol name of the binary form.
pub const SUBPROTOCOL_BINARY: &str = "weir.v1.bin";
