//! Which store a data directory uses, in a durable file beside the checkpoints.

use prost::Message as _;
use weir_journal::{Blobs, SealedError};

const BLOB: &str = "store";

/// What is in the file.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Known {
    /// The store that has passed last.
    #[prost(string, tag = "1")]
    place: String,
}

/// The store at `place` has passed its self-test for this directory, and no other has since.
///
/// # Errors
/// [`SealedError`]: the file is damaged, or cannot be read. Without it no store is known.
pub(super) fn is_known(blobs: &Blobs, place: &str) -> Result<bool, SealedError> {
    let Some(bytes) = blobs.get(BLOB)? else { return Ok(false) };
    match Known::decode(bytes) {
        Ok(known) => Ok(known.place == place),
        Err(_) => Err(SealedError::Corrupt { path: blobs.path(BLOB)?, what: "it names no store" }),
    }
}

/// Warns of a start without a store where there was one: what is there alone cannot be read. It is no error,
/// since such a start is how a directory is looked at whose cluster goes on elsewhere.
pub(super) fn warn_if_left_out(blobs: &Blobs) {
    let known = blobs.get(BLOB).map(|bytes| bytes.map(Known::decode));
    match known {
        Ok(None) => {}
        Ok(Some(Ok(Known { place }))) => tracing::warn!(
            store = place,
            "messages that left for this object store cannot be read: --object-store does not name it, and this data directory has \
             used it"
        ),
        Ok(Some(Err(_))) | Err(_) => tracing::warn!(
            "whether this data directory has used an object store cannot be read: if it has, messages that left for it cannot be \
             read without --object-store"
        ),
    }
}

/// The store that the directory has used last, if it is not the one at `place`.
pub(super) fn another(blobs: &Blobs, place: &str) -> Option<String> {
    let known = Known::decode(blobs.get(BLOB).ok()??).ok()?;
    (known.place != place).then_some(known.place)
}

/// The store at `place` has passed. Durable on return.
///
/// # Errors
/// [`SealedError`]: what was known before is.
pub(super) fn remember(blobs: &Blobs, place: &str) -> Result<(), SealedError> {
    blobs.put(BLOB, [Known { place: place.to_owned() }.encode_to_vec().into()])
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use bytes::Bytes;
    use weir_journal::disk::sim::SimDisk;

    use super::*;

    #[test]
    fn the_store_that_passed_last_is_known_and_a_damaged_file_is_not_none() {
        let blobs = Blobs::open("/blobs", Arc::new(SimDisk::new())).unwrap();
        assert!(!is_known(&blobs, "s3://a").unwrap());
        assert_eq!(another(&blobs, "s3://a"), None, "there was none");
        for place in ["s3://a", "s3://b at http://x"] {
            remember(&blobs, place).unwrap();
            assert!(is_known(&blobs, place).unwrap());
            assert_eq!(another(&blobs, place), None);
            assert_eq!(another(&blobs, "s3://c").as_deref(), Some(place));
        }
        assert!(!is_known(&blobs, "s3://a").unwrap());
        assert!(!is_known(&blobs, "s3://b at http://y").unwrap(), "asked elsewhere");
        blobs.put(BLOB, [Bytes::from_static(&[0xff])]).unwrap();
        assert!(matches!(is_known(&blobs, "s3://a"), Err(SealedError::Corrupt { .. })));
    }
}
