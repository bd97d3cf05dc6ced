//! What reading is told.

use std::time::Duration;

/// Settings of reading.
#[derive(Debug, Clone, Copy)]
pub struct ReadConfig {
    /// Encoded bytes that storage nodes may send to all subscriptions of this gateway together before they are
    /// handed on; default 256 MiB. Grants beyond it are honoured later.
    pub credit_bytes_max: u64,
    /// Most of it that one partition of one subscription gets; default 1 MiB. With many subscriptions less, down
    /// to [`ReadConfig::window_bytes_min`].
    pub window_bytes_max: u64,
    /// What every subscription gets if there is any left; default 1 KiB: one record may always overshoot.
    pub window_bytes_min: u64,
    /// How long a subscription looks for a new leader before it ends with an error; default 30 s.
    pub resubscribe_deadline: Duration,
}

impl Default for ReadConfig {
    fn default() -> Self {
        Self {
            credit_bytes_max: 256 << 20,
            window_bytes_max: 1 << 20,
            window_bytes_min: 1 << 10,
            resubscribe_deadline: Duration::from_secs(30),
        }
    }
}
