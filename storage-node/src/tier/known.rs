//! Which store a data directory uses, in a durable file beside the checkpoints.

use std::sync::atomic::{AtomicBool, Ordering};

use prost::Message as _;
use weir_journal::{Blobs, SealedError};

const BLOB: &str = "store";

/// What is in the file.
#[derive(Clone, PartialEq, Eq, prost::Message)]
struct Known {
    /// The store that has passed last.
    #[prost(string, tag = "1")]
    place: String,
    /// A manifest of the cluster was written there; builds before this field wrote some without saying so.
    #[prost(bool, tag = "2")]
    has_manifest: bool,
}

/// A store that has passed its self-test for this directory, and no other has since.
#[derive(Debug)]
pub(crate) struct KnownStore {
    blobs: Blobs,
    place: String,
    has_manifest: AtomicBool,
}

impl KnownStore {
    /// The store at `place`, of which so much is known already.
    pub(super) fn new(blobs: &Blobs, place: &str, has_manifest: bool) -> Self {
        Self { blobs: blobs.clone(), place: place.to_owned(), has_manifest: has_manifest.into() }
    }

    /// A manifest of the cluster is in the store: if there is none at a later start, it is not that store, or it
    /// has lost everything. Durable on return; if it cannot be noted, the log says so.
    pub(crate) async fn note_manifest(&self) {
        if self.has_manifest.load(Ordering::Relaxed) {
            return;
        }
        let (blobs, place) = (self.blobs.clone(), self.place.clone());
        let noted = tokio::task::spawn_blocking(move || remember(&blobs, &place, true)).await;
        let why = match noted {
            Ok(Ok(())) => return self.has_manifest.store(true, Ordering::Relaxed),
            Ok(Err(error)) => error.to_string(),
            Err(ended) => ended.to_string(),
        };
        tracing::warn!(
            why,
            "that a manifest is in the object store is not noted; the next one is noted instead"
        );
    }
}

/// Whether a manifest of the cluster was written to the store at `place`; `None` if that has not passed last.
///
/// # Errors
/// [`SealedError`]: the file is damaged, or cannot be read. Without it no store is known.
pub(crate) fn found(blobs: &Blobs, place: &str) -> Result<Option<bool>, SealedError> {
    let Some(bytes) = blobs.get(BLOB)? else { return Ok(None) };
    match Known::decode(bytes) {
        Ok(known) => Ok((known.place == place).then_some(known.has_manifest)),
        Err(_) => Err(SealedError::Corrupt { path: blobs.path(BLOB)?, what: "it names no store" }),
    }
}

/// Warns of a start without a store where there was one: what is there alone cannot be read. It is no error,
/// since such a start is how a directory is looked at whose cluster goes on elsewhere.
pub(super) fn warn_if_left_out(blobs: &Blobs) {
    let known = blobs.get(BLOB).map(|bytes| bytes.map(Known::decode));
    match known {
        Ok(None) => {}
        Ok(Some(Ok(Known { place, .. }))) => tracing::warn!(
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

/// The store at `place` has passed, and perhaps has a manifest of the cluster. Durable on return.
///
/// # Errors
/// [`SealedError`]: what was known before is.
pub(crate) fn remember(blobs: &Blobs, place: &str, has_manifest: bool) -> Result<(), SealedError> {
    blobs.put(BLOB, [Known { place: place.to_owned(), has_manifest }.encode_to_vec().into()])
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
        assert_eq!(found(&blobs, "s3://a").unwrap(), None);
        assert_eq!(another(&blobs, "s3://a"), None, "there was none");
        for place in ["s3://a", "s3://b at http://x"] {
            remember(&blobs, place, false).unwrap();
            assert_eq!(found(&blobs, place).unwrap(), Some(false));
            assert_eq!(another(&blobs, place), None);
            assert_eq!(another(&blobs, "s3://c").as_deref(), Some(place));
        }
        assert_eq!(found(&blobs, "s3://a").unwrap(), None);
        assert_eq!(found(&blobs, "s3://b at http://y").unwrap(), None, "asked elsewhere");
        blobs.put(BLOB, [Bytes::from_static(&[0xff])]).unwrap();
        assert!(matches!(found(&blobs, "s3://a"), Err(SealedError::Corrupt { .. })));
    }

    #[tokio::test]
    async fn that_a_store_has_a_manifest_is_known_until_another_passes() {
        let blobs = Blobs::open("/blobs", Arc::new(SimDisk::new())).unwrap();
        KnownStore::new(&blobs, "s3://a", false).note_manifest().await;
        assert_eq!(found(&blobs, "s3://a").unwrap(), Some(true));
        remember(&blobs, "s3://b", false).unwrap();
        assert_eq!(found(&blobs, "s3://a").unwrap(), None);
        assert_eq!(found(&blobs, "s3://b").unwrap(), Some(false));
    }
}
