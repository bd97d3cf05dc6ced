//! HTTP and WebSocket, as any user of the public interface would speak them.

mod address;
mod backoff;
mod http;
mod stop;
mod tls;
mod wire;

pub(crate) use backoff::Backoff;
pub(crate) use http::{Api, Reply, encoded};
pub(crate) use stop::Stop;
pub(crate) use wire::{Encoding, Wire, WireError, code_of, problem_text, refusal};
