//! A node over real TCP, on a real or a simulated disk, spoken to as a gateway would.
#![expect(clippy::unwrap_used, reason = "a test fails by panicking")]

mod away;
mod basics;
mod both_tiers;
mod client;
mod cold;
mod cold_reads;
mod compaction;
mod confirms;
mod consume;
mod early;
mod failures;
mod filtered;
mod following;
mod lives;
mod outputs;
mod placement;
mod queue;
mod queue_again;
mod queue_filter;
mod queue_lapse;
mod queue_leaders;
mod queue_letters;
mod queue_operate;
mod queue_order;
mod queue_topics;
mod repairs;
mod room;
mod shares;
mod stopping;
