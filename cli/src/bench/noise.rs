//! What messages are made of.

use bytes::Bytes;
use rand::RngCore as _;

/// Bytes that do not compress.
pub(super) fn noise(bytes: usize) -> Bytes {
    let mut noise = vec![0; bytes];
    rand::rng().fill_bytes(&mut noise);
    noise.into()
}
