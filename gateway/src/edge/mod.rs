//! HTTP: from a request to its handler and back.
//!
//! ```text
//!   hyper ─▶ dispatch: Host, Origin, route, parameters, authorize ─▶ topics | publish | read | events
//! ```
//!
//! The operation table ([`crate::api::operations`]) is the router: what it does not hold is not served, and nothing
//! is served before it was authorised.

mod dispatch;
mod events;
mod origin;
mod publish;
mod read;
mod route;
mod topics;

pub(crate) use dispatch::{Edge, handle};
