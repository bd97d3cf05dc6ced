//! Carries what one shard has to tell others: rows of its state become entries of theirs.

mod forwarder;

pub use forwarder::Forwarder;
