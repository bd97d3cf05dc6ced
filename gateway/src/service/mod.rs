//! What a request means, in the words of the protocol: no HTTP, no sockets, no JSON, no authorisation.
//!
//! ```text
//!   Services ─┬─ topics      create, describe, change, trim, delete, list; auto-create
//!             ├─ namespaces  the same for namespaces, and the browser origins they list
//!             ├─ publisher   records in, offsets out; receipts; producers; channels of sockets
//!             ├─ reader      one read, or a subscription over partitions and topics
//!             └─ subscriptions  work queues: configuration, pull, settle, seek, purge, leases
//! ```
//!
//! All of them are cheap clones. Whoever calls them has authorised the caller.

mod media_type;
mod namespaces;
mod origins;
mod page;
mod problem;
pub mod publish;
pub mod read;
mod services;
pub mod subscriptions;
mod token;
mod topics;
mod trim;

pub use namespaces::Namespaces;
pub use origins::ListedOrigins;
pub use page::{Page, cursor_of_a_list};
pub use publish::Publisher;
pub use read::Reader;
pub use services::{ServiceConfig, Services};
pub use subscriptions::Subscriptions;
pub use topics::{ListTopics, TopicView, Topics, default_topic_config};
pub use trim::Trim;

/// Why a request was not done. Converts one to one into a problem body.
pub use crate::storage::Failure as ServiceError;
