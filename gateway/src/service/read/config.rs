//! What reading is told.

use std::time::Duration;

/// Settings of reading.
#[derive(Debug, Clone, Copy)]
pub struct ReadConfig {
    /// Encoded bytes that storage nodes may send to all subscriptions of this gateway together before they are
    /// handed on; default 256 MiB. Grants beyond it are honoured later.
    pub credit_bytes_max: u64,
    /// Most of it that one stream gets; default 1 MiB. With many streams less, down
    /// to [`ReadConfig::window_bytes_min`].
    pub window_bytes_max: u64,
    /// What every stream gets if there is any left, and a feed in any case; default 1 KiB: one record may
    /// always overshoot.
    pub window_bytes_min: u64,
    /// Bytes that feeds hold for readers who are slower than the fastest, all of them together; default 64
    /// MiB. Beyond it they hold what nobody has taken yet, which counts as credit, and slower readers read
    /// from the node.
    pub feed_bytes_max: u64,
    /// Most of it that one feed holds; default 4 MiB. With more than eight feeds less.
    pub ring_bytes_max: u64,
    /// How long a subscription looks for a new leader before it ends with an error; default 30 s.
    pub resubscribe_deadline: Duration,
}

impl Default for ReadConfig {
    fn default() -> Self {
        Self {
            credit_bytes_max: 256 << 20,
            window_bytes_max: 1 << 20,
            window_bytes_min: 1 << 10,
            feed_bytes_max: 64 << 20,
            ring_bytes_max: 4 << 20,
            resubscribe_deadline: Duration::from_secs(30),
        }
    }
}
