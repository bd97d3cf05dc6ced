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
