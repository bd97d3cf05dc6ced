//! Reading: from the tail ring while it is hot, from the journal otherwise.
//!
//! * `early`: what is staged, for readers that do not wait for the commit.
//! * `reader`: where a position is, and the batches that follow it, within an allowance of records and bytes.

mod early;
mod reader;

pub use early::EarlyReader;
pub use reader::{Allowance, Bounds, ReadBatches, Reader, batch_of};
