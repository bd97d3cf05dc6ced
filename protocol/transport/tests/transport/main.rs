//! The transport as its two users see it: over memory, TCP and TLS, with good and bad peers.

#![expect(clippy::unwrap_used, reason = "a test that cannot go on fails")]

mod calls;
mod harness;
mod hostile;
mod links;
mod streams;
