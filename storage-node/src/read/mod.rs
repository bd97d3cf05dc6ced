//! Reading: from the tail ring while it is hot, from the journal otherwise.
//!
//! * `reader`: where a position is, and the batches that follow it, within an allowance of records and bytes.

mod reader;

pub use reader::{Allowance, Bounds, ReadBatches, Reader, batch_of};
