//! HTTP: from a request to its handler and back.
//!
//! ```text
//!   hyper ─▶ dispatch: Host, Origin, route, parameters, authorize ─▶ topics | publish | read | events
//! ```
//!
//! Below the console's prefix, `console` answers before the table is asked.
//!
//! The operation table ([`crate::api::operations`]) is the router: what it does not hold is not served, and nothing
//! is served before it was authorised.

mod console;
mod dispatch;
mod events;
mod origin;
mod publish;
mod read;
mod route;
mod topics;

pub(crate) use console::Console;
pub(crate) use dispatch::{Edge, handle};
