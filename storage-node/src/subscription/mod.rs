//! A partition as a work queue: what a subscription has settled of it, and who holds the rest. Pure: no clock, no I/O.
//!
//! A first delivery writes nothing; a [`Part`] is a function of the log.

mod event;
mod offset_set;
mod part;
mod retries;
mod stored;

pub use event::{Dead, Delivered, EventError, Fence, Nacked, PartEvent, Seek};
pub use part::{Applied, Part, SeekPreview};
pub use retries::Retry;
pub use stored::{PartError, StoredPart};
