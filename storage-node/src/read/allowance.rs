//! How much may be read.

/// What may be read: no more than `records`, and no further record once `bytes` are used up. So one record may
/// overshoot, and a record larger than any limit still gets through.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Allowance {
    /// Records.
    pub records: u64,
    /// Encoded record bytes, uncompressed.
    pub bytes: u64,
}

impl Allowance {
    /// Whatever there is.
    pub const ALL: Self = Self { records: u64::MAX, bytes: u64::MAX };
}
