//! Answers gateways: frames in, shard calls and cursors out.
//!
//! * `dispatch`: which call goes where. `publish`: batches to a shard's proposer. `topics`: commands and lists.
//! * `cursor`: reads and subscriptions, within credit.

mod cursor;
mod dispatch;
mod publish;
mod topics;

pub use dispatch::NodeService;
