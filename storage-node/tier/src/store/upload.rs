//! An object of any size, sent while it is made.

use std::sync::Arc;

use bytes::Bytes;
use object_store::{MultipartUpload, ObjectStoreExt as _, PutMode, PutOptions, PutPayload};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::task::JoinSet;
use weir_protocol::checksum::Crc32c;

use super::error::StoreError;
use super::objects::{Store, VERIFY_BYTES};
use super::pacer::LARGE_BYTES;

/// Bytes of a part; the last one of an object is smaller. An object that fits one part is sent in one request.
/// Above the 5 MiB that S3 asks for, and the same for all parts, as some of its compatibles ask for.
pub const PART_BYTES: usize = 8 << 20;
/// The same in KiB, which the budget counts in.
pub(super) const PART_KIB: usize = PART_BYTES >> 10;
/// Parts of one object that are under way at once.
const PARTS_AT_ONCE: usize = 3;

const _: () = assert!(PART_BYTES >= 5 << 20, "S3 refuses smaller parts");

/// Requests that write an object of so many bytes and compare it, as stores charge them: those like a PUT,
/// those like a GET.
#[must_use]
pub fn requests_of(bytes: u64) -> (u32, u32) {
    let parts = u32::try_from(bytes.div_ceil(PART_BYTES as u64)).unwrap_or(u32::MAX - 2);
    // More than one part has a beginning and an end of its own.
    let compared = u32::try_from(bytes.div_ceil(VERIFY_BYTES)).unwrap_or(u32::MAX);
    (if parts <= 1 { 1 } else { parts + 2 }, compared.max(1))
}

/// An object that is in the store, read back and compared.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Uploaded {
    /// Its bytes.
    pub bytes: u64,
    /// CRC-32C of all of them.
    pub crc32c: u32,
}

/// An upload in progress. Holds one part at most, and the parts under way, which have permits of the store's
/// budget. They are the pieces that were written, with the buffers that those are of: those of a pack have no
/// room left but in the last.
///
/// Nobody sees the object before [`Upload::finish`] returns. Dropped, its parts may stay in the store until
/// its own rule for unfinished uploads removes them; [`Upload::abort`] removes them now.
pub struct Upload {
    store: Store,
    name: String,
    /// What the next part is made of so far, as it came: putting it together would copy it into memory that
    /// is not there yet.
    pieces: Vec<Bytes>,
    /// Bytes of them.
    buffered: usize,
    multipart: Option<Box<dyn MultipartUpload>>,
    parts: JoinSet<Result<(), StoreError>>,
    bytes: u64,
    crc: Crc32c,
}

impl Store {
    /// Begins an object of a name that nobody else uses.
    #[must_use]
    pub fn upload(&self, name: impl Into<String>) -> Upload {
        Upload {
            store: self.clone(),
            name: name.into(),
            pieces: Vec::new(),
            buffered: 0,
            multipart: None,
            parts: JoinSet::new(),
            bytes: 0,
            crc: Crc32c::new(),
        }
    }
}

impl Upload {
    /// Adds the next bytes. Waits for room in the budget while a part is begun.
    ///
    /// # Errors
    /// [`StoreError`] of this or an earlier part: [`Upload::abort`] it then.
    ///
    /// # Cancel safety
    /// None: drop the upload.
    pub async fn write(&mut self, mut bytes: Bytes) -> Result<(), StoreError> {
        self.crc.update(&bytes);
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            // A full part waits for a byte after it: only then is it sure that there will be more than one.
            if self.buffered == PART_BYTES {
                self.send_part().await?;
            }
            let piece = bytes.split_to((PART_BYTES - self.buffered).min(bytes.len()));
            self.buffered += piece.len();
            self.pieces.push(piece);
        }
        Ok(())
    }

    /// Sends the rest, lets the store put the object together, then reads it back: on return it is durable and has the
    /// bytes that were written.
    ///
    /// # Errors
    /// [`StoreError`]; what was sent is removed as far as the store lets us.
    pub async fn finish(mut self) -> Result<Uploaded, StoreError> {
        let uploaded = Uploaded { bytes: self.bytes, crc32c: self.crc.finish() };
        self.crc = Crc32c::new();
        if let Err(error) = self.complete().await {
            self.abort().await;
            return Err(error);
        }
        if let Err(error) = self.store.verify(&self.name, uploaded.bytes, uploaded.crc32c).await {
            if let Err(error) = self.store.delete(&self.name).await {
                tracing::warn!(%error, "an object that is not what was written stays until it is swept");
            }
            return Err(error);
        }
        Ok(uploaded)
    }

    /// Gives up: removes the parts that were sent, as far as the store lets us.
    pub async fn abort(mut self) {
        self.parts.shutdown().await;
        if let Some(mut multipart) = self.multipart.take()
            && let Err(error) = self.store.in_time(&self.name, multipart.abort()).await
        {
            tracing::warn!(%error, "parts of an unfinished object stay until the store's own rule removes them");
        }
    }

    async fn complete(&mut self) -> Result<(), StoreError> {
        if self.multipart.is_none() && !self.flows_in_parts() {
            let permit = permit(Arc::clone(&self.store.budget), self.buffered).await;
            let (payload, length) = self.part();
            let path = self.store.path(&self.name);
            let put = self.store.inner.put_opts(&path, payload, PutOptions::from(PutMode::Create));
            let put = self.store.in_time(&self.name, put).await;
            drop(permit);
            return match put {
                // Nobody else uses the name: an earlier try of the library wrote it, which reading it back will tell.
                Ok(_) | Err(StoreError::Exists { .. }) => {
                    self.store.sent(length);
                    Ok(())
                }
                Err(error) => Err(error),
            };
        }
        if self.buffered > 0 {
            self.send_part().await?;
        }
        while let Some(part) = self.parts.join_next().await {
            done(&self.name, part)?;
        }
        let multipart = self.multipart.as_mut().expect("begun above if not before");
        self.store.in_time(&self.name, multipart.complete()).await?;
        self.store.arranged();
        self.multipart = None;
        Ok(())
    }

    /// The store is a folder, which is written at a pace in parts alone.
    fn flows_in_parts(&self) -> bool {
        self.store.root.is_some() && self.buffered >= LARGE_BYTES
    }

    async fn send_part(&mut self) -> Result<(), StoreError> {
        while self.parts.len() >= PARTS_AT_ONCE {
            let part = self.parts.join_next().await.expect("some are under way");
            done(&self.name, part)?;
        }
        let permit = permit(Arc::clone(&self.store.budget), self.buffered).await;
        if self.multipart.is_none() {
            let path = self.store.path(&self.name);
            let begun = self.store.in_time(&self.name, self.store.inner.put_multipart(&path)).await?;
            self.multipart = Some(begun);
            self.store.arranged();
        }
        let (payload, length) = self.part();
        let multipart = self.multipart.as_mut().expect("begun above");
        let part = multipart.put_part(payload);
        let (store, name) = (self.store.clone(), self.name.clone());
        self.parts.spawn(async move {
            let sent = store.in_time(&name, part).await;
            drop(permit);
            sent.map(|()| store.sent(length))
        });
        Ok(())
    }

    /// What has come together for the next part, and its bytes.
    fn part(&mut self) -> (PutPayload, u64) {
        let length = std::mem::take(&mut self.buffered) as u64;
        (self.pieces.drain(..).collect(), length)
    }
}

/// Room for a part. Parts under way release theirs without the uploading task's help, so waiting here never
/// blocks them.
async fn permit(budget: Arc<Semaphore>, bytes: usize) -> OwnedSemaphorePermit {
    let kib = u32::try_from(bytes.div_ceil(1024).max(1)).expect("a part is a few MiB");
    budget.acquire_many_owned(kib).await.expect("the budget is never closed")
}

fn done(name: &str, part: Result<Result<(), StoreError>, tokio::task::JoinError>) -> Result<(), StoreError> {
    part.unwrap_or_else(|source| Err(StoreError::Failed { object: name.to_owned(), source: source.into() }))
}
