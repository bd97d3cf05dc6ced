//! Whose journal a directory is.

/// Whose journal it is. Written into the directory when it is made, compared at every open.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Identity {
    /// The cluster.
    pub cluster_id: u128,
    /// The node; never used again for another disk.
    pub node_id: u64,
}
