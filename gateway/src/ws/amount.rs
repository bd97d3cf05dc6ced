//! What credit counts.

use weir_protocol::ws::Limit;

/// Records and their encoded bytes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(super) struct Amount {
    pub(super) msgs: u64,
    pub(super) bytes: u64,
}

impl Amount {
    pub(super) fn plus(self, other: Self) -> Self {
        Self { msgs: self.msgs.saturating_add(other.msgs), bytes: self.bytes.saturating_add(other.bytes) }
    }

    /// What is left without `other`; of each at least nothing.
    pub(super) fn less(self, other: Self) -> Self {
        Self { msgs: self.msgs.saturating_sub(other.msgs), bytes: self.bytes.saturating_sub(other.bytes) }
    }

    /// Whether this, as a limit, lets so much be sent: the last record begins within it, and may end beyond it.
    /// `last_bytes` is that record's size; asked for only if it matters.
    pub(super) fn allows(self, sent: Self, last_bytes: impl FnOnce() -> u64) -> bool {
        sent.msgs <= self.msgs
            && (sent.bytes <= self.bytes || sent.bytes.saturating_sub(last_bytes()) < self.bytes)
    }

    /// The larger of both, of each.
    pub(super) fn max(self, other: Self) -> Self {
        Self { msgs: self.msgs.max(other.msgs), bytes: self.bytes.max(other.bytes) }
    }
}

impl From<Amount> for Limit {
    fn from(amount: Amount) -> Self {
        Self { msgs: amount.msgs, bytes: amount.bytes }
    }
}
