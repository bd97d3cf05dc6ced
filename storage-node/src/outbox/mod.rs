//! Carries what one shard owes to others: rows of its state become entries of theirs.
//!
//! * `carrier`: the loop of all three. `forwarder`: news of topics and subscriptions. `outputs`: what settles publish.
//!   `dead_letters`: records that were given up, to their topics.

mod carrier;
mod dead_letters;
mod forwarder;
mod lanes;
mod outputs;

pub use dead_letters::DeadLetterSender;
pub use forwarder::Forwarder;
pub use outputs::OutputSender;
