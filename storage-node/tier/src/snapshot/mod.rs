//! What a cluster can be rebuilt from when nothing but the store is left: the state of every shard, and lists of them.
//!
//! ```text
//!   <cluster>/manifests/<number>.manifest                  one moment of the cluster: which snapshot of each shard
//!   <cluster>/snapshots/<shard>/<term>-<index>-<ulid>.snapshot     a shard's state, without the messages' bytes
//!   <cluster>/data/…                                       packs, which the snapshots name
//!
//!   envelope   header and checksums of both kinds
//!   names      how they are called
//!   manifest   what a manifest says
//!   exports    writing, finding and reading them
//! ```
//!
//! Only the manifest of the highest number counts, and each number is created once: whoever meets another's manifest
//! under the number that it wanted is not the one who writes for this cluster any more (docs/adr/0014).

mod envelope;
#[cfg(feature = "store")]
mod exports;
mod manifest;
#[cfg(feature = "store")]
mod names;

pub use envelope::{ENVELOPE_BYTES, EnvelopeError, Kind, open, wrap};
#[cfg(feature = "store")]
pub use exports::{ExportError, Exports, Published};
pub use manifest::{Manifest, ShardSnapshot, StoredId};
#[cfg(feature = "store")]
pub use names::{ManifestName, SnapshotName};
