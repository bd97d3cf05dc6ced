//! permessage-deflate (RFC 7692), which the WebSocket library does not have: beside it, in both directions.
//!
//! ```text
//!   offer     what a client offers, and what is agreed: never a context that outlives a message
//!   frames    where the client's frames begin, and which of them are deflated
//!   inflate   a deflated message on its way in, made into plain frames
//!   wire      the connection under the library: what it reads has no deflated frames
//!   compress  messages on their way out
//!   shared    what all sockets of a gateway share: settings, spare codecs, counters
//! ```

mod compress;
mod frames;
pub(crate) mod fuzzed;
mod inflate;
mod offer;
mod shared;
mod wire;

pub(crate) use shared::{Deflate, DeflateCounts};
pub(super) use wire::{Broken, Wire};

#[cfg(test)]
mod tests;
