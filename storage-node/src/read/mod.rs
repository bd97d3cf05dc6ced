//! Reading: from the tail ring while it is hot, then from the journal, and from packs once it has left that.
//!
//! * `ahead`: how far it is read ahead; `allowance`: how much may be read.
//! * `bodies`: where a batch's bytes are; `log`: those in memory and in the journal.
//! * `early`: what is staged, for readers that do not wait for the commit.
//! * `filtered`: what a filter lets through of what follows a position.
//! * `reader`: where a position is, and the batches that follow it, within an allowance of records and bytes.
//! * `returning`: what was nacked, kept in memory until it comes again.

mod ahead;
mod allowance;
mod bodies;
mod early;
mod filtered;
mod log;
mod reader;
mod returning;
#[cfg(test)]
mod tests;

pub use allowance::Allowance;
pub use bodies::batch_of_letter;
#[cfg(test)]
pub(crate) use bodies::from_packs;
pub use early::EarlyReader;
pub use filtered::{Filtered, parse as parse_filter};
pub(crate) use log::FromLog;
pub use log::{batch_of, from_log};
pub use reader::{Bounds, ReadBatches, Reader};
pub use returning::keep_returning;
