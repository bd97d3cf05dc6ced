//! What leaves the journal: old batches become packs, packs are committed, objects that nothing needs are deleted.
//!
//! ```text
//!   sealer    the task that does it, for all shards of the node
//!   exporter  takes the states of all shards to the store, for a restore from there alone
//!   plan      which mostly dead packs are worth a new one, and what of them it takes. Pure
//!   rewriter  the task that makes it
//!   compaction  which partitions are due to be compacted, and which of their records go. Pure
//!   newest    where the newest record of each key is, in bounded memory
//!   compactor  compacts partitions, a pack at a time, within the rewriter's task
//!   source    a pack that is read to be copied
//!   making    what both share: packs made, sent, verified and committed
//!   unreadable  what the log cannot give any more: packs are made without it
//!   deleting  objects that nothing needs go; those that the store does not let go are left for a while
//!   sweep     which objects of a listing nobody will ever need
//! ```

mod compaction;
mod compactor;
mod deleting;
mod exporter;
mod making;
mod newest;
mod plan;
mod rewriter;
mod sealer;
mod source;
mod sweep;
#[cfg(test)]
pub(crate) mod tests;
mod unreadable;

pub use rewriter::Rewriter;
pub use sealer::Sealer;
