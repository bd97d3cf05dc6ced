//! What can be wrong with a pack's bytes.

use weir_protocol::batch::BatchError;

/// Why bytes are not (a part of) a pack. They are refused whole; whoever fetched them says which object it was.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum PackError {
    /// Fewer bytes than its layout needs.
    #[error("the pack is cut short: {have} of {want} bytes")]
    Truncated {
        /// Bytes there are.
        have: u64,
        /// Bytes there should be.
        want: u64,
    },
    /// It does not begin or end as packs do: another file, or not all of it.
    #[error("not a pack: its {0} does not say so")]
    Foreign(&'static str),
    /// It belongs to another cluster or shard.
    #[error("the pack belongs to {0}")]
    Misplaced(String),
    /// Written by a newer build.
    #[error("the pack has version {0}")]
    Version(u16),
    /// A codec or reserved field that this build does not know.
    #[error("the pack has an unknown {0}")]
    Unknown(&'static str),
    /// A checksum does not match.
    #[error("checksum of the pack's {what} is {computed:#010x}, it says {stored:#010x}")]
    Checksum {
        /// Which part.
        what: &'static str,
        /// What it says.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
    /// A block does not decompress to what its header says.
    #[error("a block does not decompress to the {0} bytes that its header promises")]
    Decompress(u32),
    /// Parts contradict each other.
    #[error("the pack contradicts itself: {0}")]
    Contradiction(&'static str),
    /// A batch in it is damaged.
    #[error("the pack holds a damaged batch: {0}")]
    Batch(#[from] BatchError),
}
