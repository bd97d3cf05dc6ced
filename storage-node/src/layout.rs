//! What is decided when a data directory is made, in a durable file beside the checkpoints.

use prost::Message as _;
use weir_journal::{Blobs, SealedError};

const BLOB: &str = "node";

#[derive(Clone, Copy, PartialEq, prost::Message)]
struct Layout {
    #[prost(uint32, tag = "1")]
    data_shards: u32,
}

/// How many data shards the directory has. Decided before the first is made, so that a start that was interrupted is
/// finished by the next one: `wanted` in a new directory, `found` in one that was made before this file was written.
///
/// # Errors
/// [`SealedError`]: the file is damaged, or cannot be read or written.
pub fn data_shards(blobs: &Blobs, found: Option<u32>, wanted: u32) -> Result<u32, SealedError> {
    if let Some(bytes) = blobs.get(BLOB)? {
        return match Layout::decode(bytes) {
            Ok(layout) if layout.data_shards > 0 => Ok(layout.data_shards),
            _ => Err(SealedError::Corrupt { path: blobs.path(BLOB)?, what: "it names no number of shards" }),
        };
    }
    let layout = Layout { data_shards: found.unwrap_or(wanted) };
    blobs.put(BLOB, [layout.encode_to_vec().into()])?;
    Ok(layout.data_shards)
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use weir_journal::disk::sim::SimDisk;

    use super::*;

    #[test]
    fn the_first_decision_counts_and_a_damaged_one_is_refused() {
        let blobs = Blobs::open("/blobs", Arc::new(SimDisk::new())).unwrap();
        assert_eq!(data_shards(&blobs, None, 4).unwrap(), 4);
        assert_eq!(data_shards(&blobs, Some(2), 8).unwrap(), 4);
        blobs.remove(BLOB).unwrap();
        assert_eq!(data_shards(&blobs, Some(2), 8).unwrap(), 2);
        for damaged in [&b""[..], &[0xff]] {
            blobs.put(BLOB, [Bytes::from_static(damaged)]).unwrap();
            assert!(matches!(data_shards(&blobs, None, 4), Err(SealedError::Corrupt { .. })));
        }
    }
}
