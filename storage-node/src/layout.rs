//! What is decided when a data directory is made, in a durable file beside the checkpoints.

use prost::Message as _;
use weir_journal::{Blobs, SealedError};

const BLOB: &str = "node";

/// The most rows of the deduplication tables in directories that name none.
const DEDUPE_ROWS_BEFORE: u32 = 1_000_000;

/// What is decided once.
#[derive(Clone, Copy, PartialEq, Eq, prost::Message)]
pub struct Layout {
    /// Number of data shards.
    #[prost(uint32, tag = "1")]
    pub data_shards: u32,
    /// Producers, and as many idempotency keys, that a shard remembers: part of its state, so that a replay
    /// comes to the same verdicts.
    #[prost(uint32, tag = "2")]
    pub dedupe_rows: u32,
    /// How often the cluster was restored from its object store: who ran before that writes nothing there any more.
    #[prost(uint64, tag = "3")]
    pub epoch: u64,
}

/// How the directory is laid out. Decided before the first shard is made, so that a start that was interrupted is
/// finished by the next one: `wanted` in a new directory, with `found` data shards in one that was made before this
/// file was written.
///
/// # Errors
/// [`SealedError`]: the file is damaged, or cannot be read or written.
pub fn decide(blobs: &Blobs, found: Option<u32>, wanted: Layout) -> Result<Layout, SealedError> {
    let before = |data_shards| Layout { data_shards, dedupe_rows: DEDUPE_ROWS_BEFORE, epoch: 0 };
    if let Some(bytes) = blobs.get(BLOB)? {
        return match Layout::decode(bytes) {
            Ok(Layout { data_shards, dedupe_rows: 0, .. }) if data_shards > 0 => Ok(before(data_shards)),
            Ok(layout) if layout.data_shards > 0 => Ok(layout),
            _ => Err(SealedError::Corrupt { path: blobs.path(BLOB)?, what: "it names no number of shards" }),
        };
    }
    let layout = found.map_or(wanted, before);
    write(blobs, layout)?;
    Ok(layout)
}

/// Decides.
///
/// # Errors
/// [`SealedError`].
pub fn write(blobs: &Blobs, layout: Layout) -> Result<(), SealedError> {
    blobs.put(BLOB, [layout.encode_to_vec().into()])
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
        let wanted = |data_shards, dedupe_rows| Layout { data_shards, dedupe_rows, epoch: 0 };
        assert_eq!(decide(&blobs, None, wanted(4, 7_000)).unwrap(), wanted(4, 7_000));
        assert_eq!(decide(&blobs, Some(2), wanted(8, 9_000)).unwrap(), wanted(4, 7_000));
        blobs.remove(BLOB).unwrap();
        let before = "its shards applied their logs with a million rows";
        assert_eq!(decide(&blobs, Some(2), wanted(8, 9_000)).unwrap(), wanted(2, 1_000_000), "{before}");
        // As an earlier build wrote it: without the second field.
        blobs.put(BLOB, [Bytes::from_static(&[8, 3])]).unwrap();
        assert_eq!(decide(&blobs, None, wanted(8, 9_000)).unwrap(), wanted(3, 1_000_000), "{before}");
        for damaged in [&b""[..], &[0xff]] {
            blobs.put(BLOB, [Bytes::from_static(damaged)]).unwrap();
            assert!(matches!(decide(&blobs, None, wanted(4, 7_000)), Err(SealedError::Corrupt { .. })));
        }
    }
}
