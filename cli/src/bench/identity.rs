//! Which message it is: the first bytes of every payload. What follows is noise.

/// Bytes of the identity.
pub(super) const IDENTITY_BYTES: usize = 24;

/// Writer, number, and when it was due, in nanoseconds since the run's start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) writer: u32,
    pub(super) seq: u64,
    pub(super) due_ns: u64,
}

/// In front of every identity, so that a stranger's message is not mistaken for one.
const MARK: u32 = 0x5745_4952;

impl Identity {
    /// Writes it over the start of `payload`, which has at least [`IDENTITY_BYTES`].
    pub(super) fn stamp(self, payload: &mut [u8]) {
        payload[0..4].copy_from_slice(&MARK.to_le_bytes());
        payload[4..8].copy_from_slice(&self.writer.to_le_bytes());
        payload[8..16].copy_from_slice(&self.seq.to_le_bytes());
        payload[16..24].copy_from_slice(&self.due_ns.to_le_bytes());
    }

    /// Reads it back; `None` if the payload is not of a run.
    pub(super) fn read(payload: &[u8]) -> Option<Self> {
        let word = |at: usize| Some(u32::from_le_bytes(payload.get(at..at + 4)?.try_into().ok()?));
        let long = |at: usize| Some(u64::from_le_bytes(payload.get(at..at + 8)?.try_into().ok()?));
        (word(0)? == MARK).then_some(())?;
        Some(Self { writer: word(4)?, seq: long(8)?, due_ns: long(16)? })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_identity_comes_back_and_nothing_else_is_one() {
        let identity = Identity { writer: 3, seq: 1 << 40, due_ns: 77 };
        let mut payload = vec![9; 100];
        identity.stamp(&mut payload);
        assert_eq!(Identity::read(&payload), Some(identity));
        assert_eq!(Identity::read(&payload[..IDENTITY_BYTES - 1]), None);
        payload[0] ^= 1;
        assert_eq!(Identity::read(&payload), None);
    }
}
