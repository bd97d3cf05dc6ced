//! What leaves the journal: old batches become packs, packs are committed, objects that nothing needs are deleted.
//!
//! ```text
//!   sealer   the task that does it, for all shards of the node
//!   sweep    which objects of a listing nobody will ever need
//! ```

mod sealer;
mod sweep;
#[cfg(test)]
mod tests;

pub use sealer::Sealer;
