//! CRC-32C (Castagnoli, iSCSI), the only checksum in Weir's own formats.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of `bytes`, hardware accelerated where the machine allows it.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a CRC-32 fits 32 bits; the library widens it")]
    let crc = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    crc
}

/// CRC-32C of bytes that come in parts.
#[derive(Clone)]
pub struct Crc32c(Digest);

impl Crc32c {
    /// Of no bytes yet.
    #[must_use]
    pub fn new() -> Self {
        Self(Digest::new(CrcAlgorithm::Crc32Iscsi))
    }

    /// Continues with `part`.
    pub fn update(&mut self, part: &[u8]) {
        self.0.update(part);
    }

    /// The checksum of all parts so far.
    #[must_use]
    pub fn finish(&self) -> u32 {
        #[expect(clippy::cast_possible_truncation, reason = "a CRC-32 fits 32 bits; the library widens it")]
        let crc = self.0.finalize() as u32;
        crc
    }
}

impl Default for Crc32c {
    fn default() -> Self {
        Self::new()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        let mut parts = Crc32c::new();
        [&b"1234"[..], b"", b"56789"].iter().for_each(|part| parts.update(part));
        assert_eq!(parts.finish(), 0xe306_9283);
    }
}
