//! Cold data: committed batches in objects that anybody can keep, and how they are read back.
//!
//! ```text
//!   pack    the object's bytes: blocks of batches, an index, checksums. No I/O
//!   store   objects in S3, GCS, Azure or a folder: conditional creates, verified uploads, ranged reads
//!   cold    packs read back through a cache of bounded memory and disk, or past it where they are read once
//!   spans   blocks of a pack in its order, for whoever copies it
//!   faults  a store that fails as stores do, for tests
//! ```
//!
//! The only crate that knows `object_store` and `foyer`. It knows nothing of shards' logs: the storage node says what
//! becomes a pack and remembers which packs there are (docs/adr/0012).

#[cfg(feature = "store")]
pub mod cold;
#[cfg(feature = "store")]
pub mod faults;
pub mod pack;
#[cfg(feature = "store")]
mod recent;
#[cfg(feature = "store")]
pub mod spans;
#[cfg(feature = "store")]
pub mod store;
