//! What the way to the storage nodes is told.

use std::time::Duration;

use bytes::Bytes;

/// Settings of a [`super::Storage`]. Start from [`StorageConfig::new`].
#[derive(Debug, Clone)]
pub struct StorageConfig {
    /// `host:port` of storage nodes to ask for the cluster map; at least one must answer. The others follow from
    /// the map.
    pub nodes: Vec<String>,
    /// Shared secret of the cluster; empty: none. Never logged.
    pub credential: Bytes,
    /// How long a request is tried before it is answered `unavailable` or `outcome_unknown`; default 10 s.
    pub request_deadline: Duration,
    /// Encoded bytes of publishes waiting for their confirm, over all shards; default 64 MiB. Above it publishes
    /// are refused with `busy` before they are queued.
    pub publish_bytes_max: usize,
    /// Publish frames of one shard in flight; default 4. What comes meanwhile waits together and shares the next.
    pub publish_frames_max: usize,
    /// Topics whose description is remembered; default 100,000. The one unused for longest is forgotten.
    pub topics_max: usize,
    /// First pause between two attempts; default 5 ms. Doubled each time.
    pub pause_min: Duration,
    /// Longest pause between two attempts; default 250 ms.
    pub pause_max: Duration,
    /// How long one node may take to answer with the cluster map; default 2 s.
    pub map_deadline: Duration,
}

impl StorageConfig {
    /// The defaults.
    #[must_use]
    pub fn new(nodes: Vec<String>) -> Self {
        Self {
            nodes,
            credential: Bytes::new(),
            request_deadline: Duration::from_secs(10),
            publish_bytes_max: 64 << 20,
            publish_frames_max: 4,
            topics_max: 100_000,
            pause_min: Duration::from_millis(5),
            pause_max: Duration::from_millis(250),
            map_deadline: Duration::from_secs(2),
        }
    }
}
