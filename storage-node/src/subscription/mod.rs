//! A partition as a work queue: what a subscription has settled of it, and who holds the rest. Pure: no clock, no I/O.
//!
//! ```text
//!             Part: a function of the log, in every replica          Leases: in the leader's memory only
//!   records   ─────────────────┬───────────────────────────┬──────────────────────┬────────────▶
//!             settled          │ settled, unsettled mixed  │ leased, waiting, free│ never leased
//!                            floor                                               next         end
//!
//!   pull ─▶ Leases::take ─▶ log PartEvent::delivered (attempt ≥ 2) ─▶ send ─▶ Leases::started
//!   settle ─▶ Leases::settle ─▶ log PartEvent ─▶ Part::apply ─▶ Leases::committed ─▶ answer
//! ```
//!
//! Of a stream there are no leases: one reads at a time, [`Cursor`] says who and how far, and what is acknowledged is
//! settled from the floor on. Which consumer is to read which part, [`Roster`] says, for all parts of the subscription.
//!
//! A first delivery writes nothing. Leader changes and restarts lose leases, never what was settled: [`Leases::new`]
//! starts from the [`Part`] that the log gives.

mod ahead;
#[cfg(test)]
mod ahead_tests;
mod choosing;
#[cfg(test)]
mod codec;
mod cursor;
#[cfg(test)]
mod cursor_model;
mod cursor_view;
mod earlier;
mod event;
mod forgetting;
mod holders;
mod later;
mod leases;
mod lines;
#[cfg(test)]
mod model;
mod offset_set;
mod offsets;
mod orders;
mod part;
#[cfg(test)]
mod part_model;
mod past;
#[cfg(test)]
mod past_tests;
mod postpone;
mod pulls;
mod ready;
mod retries;
mod roster;
#[cfg(test)]
mod roster_model;
mod sending;
mod settle;
mod standing;
mod stored;
#[cfg(test)]
mod tests;
mod view;

pub use ahead::{COME_AGAIN_MAX, Fate, Key, LANES_MAX, LOOK_AHEAD_MAX, NEAR_MAX, SKIPPED_MAX, Seen};
pub use cursor::{Acked, Connection, Cursor, Occupied, Reading, Wants, YIELD_MS_MAX};
pub use event::{Dead, Delivered, EventError, Fence, Forgotten, Nacked, PartEvent, Redelivered, Seek};
pub use forgetting::PurgePreview;
pub use leases::{Ask, EXPIRED_MAX, Grant, Leases, Rules, Taken};
pub use part::{Applied, KEPT_MAX, Part, SeekPreview};
pub use past::{Moment, PAST_WEIGHT_MAX, SNAPSHOT_EVERY_MS, SNAPSHOT_WEIGHT_MAX, SNAPSHOTS_MAX, Stood};
pub use pulls::PullKey;
pub use ready::Lane;
pub use retries::Retry;
pub use roster::{Attend, Lot, Portion, Roster, SharedPart, Shifted};
pub use settle::{Action, Effect, Settle, Verdict};
pub use stored::{PartError, StoredPart};
pub use view::{Counts, LeasePage};
