//! CRC-32C (Castagnoli, iSCSI), the only checksum in Weir's own formats.

use crc_fast::{CrcAlgorithm, Digest};

/// CRC-32C of `bytes`, hardware accelerated where the machine allows it.
#[must_use]
pub fn crc32c(bytes: &[u8]) -> u32 {
    #[expect(clippy::cast_possible_truncation, reason = "a CRC-32 fits 32 bits; the library widens it")]
    let crc = crc_fast::checksum(CrcAlgorithm::Crc32Iscsi, bytes) as u32;
    crc
}

/// CRC-32C of several slices as if they were one.
#[must_use]
pub fn crc32c_parts(parts: &[&[u8]]) -> u32 {
    let mut digest = Digest::new(CrcAlgorithm::Crc32Iscsi);
    for part in parts {
        digest.update(part);
    }
    #[expect(clippy::cast_possible_truncation, reason = "a CRC-32 fits 32 bits; the library widens it")]
    let crc = digest.finalize() as u32;
    crc
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn matches_the_published_check_value() {
        assert_eq!(crc32c(b"123456789"), 0xe306_9283);
        assert_eq!(crc32c_parts(&[b"1234", b"", b"56789"]), 0xe306_9283);
    }
}
