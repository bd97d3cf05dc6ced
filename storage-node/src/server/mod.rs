//! Answers gateways: frames in, shard calls and cursors out.
//!
//! * `dispatch`: which call goes where. `publish`: batches to a shard's proposer. `topics`: commands and
//!   lists. `trim`: the oldest records, by hand.
//! * `cursor`: reads and streams, within credit. `queue`: leases and settles of subscriptions. `receipt`:
//!   what became of a record that was told early.
//! * `sent`: what a reader that does not wait for the commit was sent, and what it must be told.
//! * `room`: why a publish is refused for want of room, and who keeps it. `whereabouts`: which of a
//!   partition's messages are in the object store.

mod cursor;
mod decode;
mod dispatch;
mod publish;
mod queue;
mod receipt;
mod room;
mod sent;
mod topics;
mod trim;
pub(crate) mod whereabouts;

pub use dispatch::NodeService;
pub(crate) use queue::Lapses;
pub use room::Room;
