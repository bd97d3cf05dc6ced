//! Carries what one shard has to tell others: rows of its state become entries of theirs.
//!
//! * `forwarder`: topics and subscriptions. `dead_letters`: records that were given up, to their topics.

mod dead_letters;
mod forwarder;

pub use dead_letters::DeadLetterSender;
pub use forwarder::Forwarder;
