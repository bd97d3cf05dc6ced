//! A folder as a store, in which large objects are written at a pace.
//!
//! Written at once and synced at the end, a pack is tens of MiB that a disk takes in one go; whoever commits to the
//! same disk waits behind them (docs/adr/0012). So it is written in pieces, and the system begins with each of them
//! as soon as it is there, which leaves little for the sync that makes the object durable.

use std::fmt;
use std::ops::Range;
use std::path::PathBuf;
use std::sync::Arc;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::FutureExt as _;
use futures_util::stream::BoxStream;
use object_store::local::LocalFileSystem;
use object_store::path::Path;
use object_store::{
    CopyOptions, GetOptions, GetResult, ListResult, MultipartUpload, ObjectMeta, ObjectStore,
    PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use tokio::time::Instant;

use super::pacer::Pacer;
use super::staged::staged;

/// Bytes that are written at a time: at a pace of 60 MiB/s one in four milliseconds.
const PIECE_BYTES: usize = 256 << 10;

/// The library's folder, whose parts are written at a pace. What is put whole is not.
#[derive(Debug)]
pub(super) struct PacedFolder {
    folder: LocalFileSystem,
    pacer: Arc<Pacer>,
}

impl PacedFolder {
    pub(super) fn new(folder: LocalFileSystem, pacer: Arc<Pacer>) -> Self {
        Self { folder, pacer }
    }
}

impl fmt::Display for PacedFolder {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        self.folder.fmt(f)
    }
}

#[async_trait]
impl ObjectStore for PacedFolder {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        self.folder.put_opts(location, payload, opts).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let staged = staged(self.folder.path_to_filesystem(location)?);
        let upload = self.folder.put_multipart_opts(location, opts).await?;
        Ok(Box::new(PacedUpload { upload, staged, begun: 0, pacer: Arc::clone(&self.pacer) }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        self.folder.get_opts(location, options).await
    }

    async fn get_ranges(&self, location: &Path, ranges: &[Range<u64>]) -> Result<Vec<Bytes>> {
        self.folder.get_ranges(location, ranges).await
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        self.folder.delete_stream(locations)
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        self.folder.list(prefix)
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.folder.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.folder.copy_opts(from, to, options).await
    }
}

/// The library's upload, of which each part is written piece by piece.
#[derive(Debug)]
struct PacedUpload {
    upload: Box<dyn MultipartUpload>,
    /// The file that it is written to: the names of packs and snapshots are used once.
    staged: PathBuf,
    /// Bytes of all parts so far, written or not.
    begun: u64,
    pacer: Arc<Pacer>,
}

#[async_trait]
impl MultipartUpload for PacedUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let mut pieces = Vec::new();
        for mut rest in data {
            while !rest.is_empty() {
                let piece = rest.split_to(PIECE_BYTES.min(rest.len()));
                let place = self.begun..self.begun + piece.len() as u64;
                self.begun = place.end;
                // Where it goes is decided here; nothing is written before it is polled.
                pieces.push((place, piece.len(), self.upload.put_part(piece.into())));
            }
        }
        let (staged, pacer) = (self.staged.clone(), Arc::clone(&self.pacer));
        async move {
            for (place, bytes, write) in pieces {
                tokio::time::sleep_until(pacer.take(bytes, Instant::now())).await;
                write.await?;
                let staged = staged.clone();
                // Whatever becomes of it, the sync at the end has the last word: the library's handle was open before,
                // so what the system could not write meanwhile is reported to it, and to no handle that is gone.
                let _ = tokio::task::spawn_blocking(move || begin_to_write(&staged, place)).await;
            }
            Ok(())
        }
        .boxed()
    }

    async fn complete(&mut self) -> Result<PutResult> {
        self.upload.complete().await
    }

    async fn abort(&mut self) -> Result<()> {
        self.upload.abort().await
    }
}

/// Has the system begin to take a part of a file to its disk, and waits for none of it. A part that is still to be
/// written stays in memory: what is compared afterwards is read from there.
fn begin_to_write(path: &std::path::Path, place: Range<u64>) {
    #[cfg(target_os = "linux")]
    {
        let Ok(file) = std::fs::File::open(path) else { return };
        let length = std::num::NonZeroU64::new(place.end - place.start);
        if let Err(error) = rustix::fs::fadvise(&file, place.start, length, rustix::fs::Advice::DontNeed) {
            tracing::debug!(%error, path = %path.display(), "it is written at the end");
        }
    }
    #[cfg(not(target_os = "linux"))]
    let _ = (path, place);
}

#[cfg(test)]
#[expect(clippy::disallowed_methods, reason = "tests look at files")]
mod tests {
    use std::time::Duration;

    use object_store::ObjectStoreExt as _;

    use super::*;
    use crate::store::pacer::LARGE_BYTES;
    use crate::store::{Store, StoreConfig};

    fn store(dir: &tempfile::TempDir, bytes_per_second: u64) -> PacedFolder {
        let folder = LocalFileSystem::new_with_prefix(dir.path()).unwrap().with_fsync(true);
        PacedFolder::new(folder, Arc::new(Pacer::new(bytes_per_second)))
    }

    #[tokio::test(start_paused = true)]
    async fn parts_are_written_whole_at_the_rate_and_to_the_file_that_is_begun_with() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir, 1 << 20);
        let parts = [vec![vec![1_u8; 700_000], Vec::new(), vec![2; PIECE_BYTES]], vec![vec![3; 1]]];
        let whole = parts.concat().concat();
        let began = Instant::now();
        let mut upload = store.put_multipart(&Path::from("a/object")).await.unwrap();
        let under_way: Vec<_> = parts
            .into_iter()
            .map(|part| upload.put_part(part.into_iter().map(Bytes::from).collect()))
            .collect();
        // In whatever order parts are written, each has its place.
        for part in under_way.into_iter().rev() {
            part.await.unwrap();
        }
        let written = std::fs::metadata(staged(dir.path().join("a/object"))).unwrap().len();
        assert_eq!(written, whole.len() as u64, "the library calls its file otherwise");
        upload.complete().await.unwrap();
        let took = began.elapsed();
        let read = store.get(&Path::from("a/object")).await.unwrap().bytes().await.unwrap();
        assert!(read == whole, "something else was written");
        // The last piece goes when those before it have had their time.
        assert!(took > Duration::from_millis(650) && took < Duration::from_millis(950), "{took:?}");
    }

    #[tokio::test(start_paused = true)]
    async fn a_large_object_of_a_folder_goes_at_the_rate_unless_somebody_waits() {
        let dir = tempfile::tempdir().unwrap();
        let (upload_bytes_per_second, patience) = (1 << 20, Duration::from_secs(1_000));
        let url = format!("file://{}", dir.path().display());
        let config = StoreConfig { upload_bytes_per_second, patience, ..StoreConfig::new(url) };
        let store = Store::open(config).unwrap();
        let send = async |name: &str, bytes: usize| {
            let (began, mut upload) = (Instant::now(), store.upload(name));
            upload.write(vec![1; bytes].into()).await.unwrap();
            assert_eq!(upload.finish().await.unwrap().bytes, bytes as u64);
            began.elapsed()
        };
        let took = send("large", 3 * LARGE_BYTES).await;
        assert!(took > Duration::from_millis(2_600) && took < Duration::from_secs(4), "{took:?}");
        let small = send("small", LARGE_BYTES - 1).await;
        let hurried = store.hurry();
        let fast = send("hurried", 3 * LARGE_BYTES).await;
        drop(hurried);
        assert!(small.max(fast) < Duration::from_millis(500), "{small:?}, {fast:?}");
    }

    #[tokio::test]
    async fn what_is_given_up_leaves_nothing() {
        let dir = tempfile::tempdir().unwrap();
        let store = store(&dir, 1 << 30);
        let mut upload = store.put_multipart(&Path::from("object")).await.unwrap();
        upload.put_part(vec![1; PIECE_BYTES].into()).await.unwrap();
        upload.abort().await.unwrap();
        assert_eq!(std::fs::read_dir(dir.path()).unwrap().count(), 0);
    }
}
