//! The journal: makes bytes durable on local disk in groups, gives them back, and recovers them after a crash.
//!
//! One journal serves all the streams (shards) of a node. One writer thread takes what waits, writes it as
//! one block in place into a zero-filled file, syncs once, and answers every waiter of that block. While the
//! writer rests, a lone append is written by who appends it.
//!
//! ```text
//!  append ─┐                  ┌─▶ wal/0000000000000001.wal  (finished, its sidecar .idx beside it)
//!  vote   ─┼─▶ queue ─▶ writer┼─▶ wal/0000000000000002.wal  (current)
//!  purge  ─┘   (memory)       └─▶ wal/0000000000000003.wal  (next, prepared in the background)
//!  carry ── oldest files ──▶ carried/0000000000000001.carried  (batches that outlived the files they came in)
//!     reads: memory while in flight, then the files through an index that is bounded: old rows are in sidecars
//! ```
//!
//! | module | job |
//! |---|---|
//! | [`Journal`] | the handle: append, vote, truncate, purge, read, admit |
//! | [`mod@format`] | bytes of file header, block and frame |
//! | [`disk`] | the disk behind a trait: the real one and a simulated one |
//! | [`Blobs`] | small durable files beside the journal |
//! | [`Repair`] | cuts off what is damaged, when asked to |
//!
//! This is the only crate that syncs, opens files past the page cache, or locks them.

mod bare;
mod blobs;
mod bulk;
mod carried;
mod carrying;
mod completion;
mod config;
mod core;
pub mod disk;
mod draft;
mod entry;
mod error;
mod files;
pub mod format;
mod identity;
mod index;
mod inline;
mod journal;
mod metrics;
mod open;
mod pace;
mod pool;
mod read;
mod recovered;
mod recovery;
mod repair;
mod sealed;
mod sidecar;
mod space;
mod streams;
mod synced;
#[cfg(test)]
mod tests;
mod window;
mod writer;

pub use bare::BareLoop;
pub use blobs::Blobs;
pub use carrying::{CarriedUsage, Part, Span};
pub use completion::{Completion, Synced};
pub use config::{Backend, ConfigError, JournalConfig, SyncMode};
pub use disk::{Disk, RealDisk};
pub use entry::{Entry, EntryKind, FileSeq, Identity, Location, LogPosition, Lsn, StreamId};
pub use error::{AppendError, CarryError, Damage, Failure, Full, OpenError, ReadError, SealedError};
pub use format::BLOCK_ALIGN;
pub use journal::Journal;
pub use metrics::{Metrics, SYNC_BUCKETS_US};
pub use recovered::{Recovered, RecoveredStream, TornTail};
pub use repair::{Cut, Repair};
pub use space::{Class, FileUsage, Permit, Usage};
