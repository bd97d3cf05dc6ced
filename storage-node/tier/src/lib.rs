//! Cold data: committed batches in objects that anybody can keep, and how they are read back.
//!
//! ```text
//!   pack    the object's bytes: blocks of batches, an index, checksums. No I/O
//!   snapshot  what a cluster is rebuilt from if nothing else is left: shards' states and lists of them
//!   store   objects in S3, GCS, Azure or a folder: conditional creates, verified uploads, ranged reads
//!   cold    packs read back through a cache of bounded memory and disk, or past it where they are read once
//!   cache   where their blocks are kept, in memory and on disk
//!   again   which of them are worth a place on disk
//!   spans   blocks of a pack in its order, for whoever copies it
//!   faults  a store that fails as stores do, for tests
//! ```
//!
//! The only crate that knows `object_store` and `foyer`. It knows nothing of shards' logs: the storage node says what
//! becomes a pack and remembers which packs there are (docs/adr/0012).

#[cfg(feature = "store")]
mod again;
#[cfg(feature = "store")]
mod cache;
#[cfg(feature = "store")]
pub mod cold;
#[cfg(feature = "store")]
pub mod faults;
pub mod pack;
#[cfg(feature = "store")]
mod recent;
pub mod snapshot;
#[cfg(feature = "store")]
pub mod spans;
#[cfg(feature = "store")]
pub mod store;
#[cfg(feature = "store")]
mod under_way;

fn u32_at(bytes: &[u8], at: usize) -> u32 {
    u32::from_le_bytes([bytes[at], bytes[at + 1], bytes[at + 2], bytes[at + 3]])
}

fn u64_at(bytes: &[u8], at: usize) -> u64 {
    u64::from(u32_at(bytes, at)) | u64::from(u32_at(bytes, at + 4)) << 32
}
