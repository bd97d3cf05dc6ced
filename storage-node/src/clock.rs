//! The wall clock. Apply never asks it: an entry carries its time.
#![expect(clippy::disallowed_methods, reason = "the one clock")]

use std::time::{SystemTime, UNIX_EPOCH};

use weir_protocol::ids::TimestampMs;

/// The time now; zero if the machine's clock stands before 1970.
#[must_use]
pub fn now() -> TimestampMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}
