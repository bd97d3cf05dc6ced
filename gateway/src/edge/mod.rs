//! HTTP: from a request to its handler and back.
//!
//! ```text
//!   hyper ─▶ dispatch: Host, Origin, route, parameters, authorize ─▶ handlers ─▶ services
//!   call       what handlers are given                        answer    what they give back       from_json  bodies
//!   handlers   topics, namespaces, publish, receipts, read, events
//!              subscriptions (what is set), forks, queues (pull, settle, seek, leases), operate (state, explain,
//!              redrive), outputs (what a settle publishes), removal (purge, trim)
//!   input      bodies and headers as records       record    records as JSON and answers
//!   confirm    what requests and answers say of confirms      encoding  compressed payloads
//!   repeated   headers that come twice                        accept    the form that a client wants
//!   attribute  attributes of CloudEvents in headers           position  offsets and times in bodies
//!   proxy      what proxies say, and below which path clients are
//!   page       messages in the forms of a page               pieces    answers made as they are taken
//!   kept       answers that are counted until they are taken
//!   compress   answers in the encoding that a client names
//!   mismatch   in what something that exists differs from what was asked for
//! ```
//!
//! Below the console's prefix, `console` answers before the table is asked.
//!
//! The operation table ([`crate::api::operations`]) is the router: what it does not hold is not served, and nothing
//! is served before it was authorised.

mod accept;
mod answer;
mod attribute;
mod body;
mod call;
mod compress;
mod conditions;
mod confirm;
mod console;
mod counts;
mod dispatch;
mod encoding;
mod events;
mod forks;
mod from_json;
#[cfg(test)]
mod given;
mod input;
mod kept;
pub(crate) mod measured;
mod mismatch;
mod namespaces;
mod operate;
mod origin;
mod outputs;
mod page;
mod pieces;
mod position;
mod proxy;
mod publish;
mod queues;
mod read;
mod receipts;
mod record;
mod removal;
mod repeated;
mod route;
mod subscriptions;
mod topics;

pub(crate) use body::BodyBudget;
pub(crate) use call::Edge;
pub(crate) use compress::Document;
pub(crate) use console::Console;
pub(crate) use counts::QueueCounts;
pub(crate) use dispatch::handle;
pub(crate) use proxy::check_base;
