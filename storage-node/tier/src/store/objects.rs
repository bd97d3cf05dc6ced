//! Single objects: created, read, deleted, listed.

use std::fmt;
use std::ops::Range;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use bytes::Bytes;
use futures_util::{StreamExt as _, TryStreamExt as _};
use object_store::path::Path;
use object_store::{GetOptions, GetRange, ObjectStore, ObjectStoreExt as _, PutMode, PutOptions};
use parking_lot::Mutex;
use tokio::sync::Semaphore;
use weir_protocol::checksum::Crc32c;

use super::chunks::{Pieces, Sink, Whole};
use super::error::StoreError;
use super::pacer::{Hurried, Pacer};
use crate::pack::PackError;
use crate::recent::Fading;

/// Reads are tried this often before they fail.
const TRIES: u32 = 3;
/// Pause before the second try; it doubles.
const PAUSE: Duration = Duration::from_millis(50);
/// Most bytes that are read into memory at once.
const BYTES_MAX: u64 = 64 << 20;
/// Bytes of an object that are compared at a time: a slow way to the store has the patience for each.
pub(crate) const VERIFY_BYTES: u64 = 8 << 20;
/// Objects that stores name in one answer, which they charge like a PUT.
const LISTED_AT_ONCE: usize = 1_000;

/// Settings of a store.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct StoreConfig {
    /// Where it is, see [`Store::open`].
    pub url: String,
    /// Settings by the names of the store's environment variables, which they win over.
    pub options: Vec<(String, String)>,
    /// How long one request may take. Default 30 s.
    pub patience: Duration,
    /// Bytes of parts that are being uploaded, all uploads together; at least one part goes. Default 32 MiB.
    pub upload_bytes_max: usize,
    /// Bytes per second at which large objects go to the store, all uploads together, unless they are
    /// [hurried](Store::hurry). More if all parts that are under way would take more than a quarter of
    /// [`StoreConfig::patience`]. Default 60 MiB/s.
    pub upload_bytes_per_second: u64,
    /// A folder is made if it is missing; otherwise it is refused. Default true.
    pub makes_folder: bool,
}

impl StoreConfig {
    /// Defaults for the store at `url`.
    #[must_use]
    pub fn new(url: impl Into<String>) -> Self {
        Self {
            url: url.into(),
            options: Vec::new(),
            patience: Duration::from_secs(30),
            upload_bytes_max: 32 << 20,
            upload_bytes_per_second: 60 << 20,
            makes_folder: true,
        }
    }

    /// The pace that leaves requests time to be answered.
    pub(super) fn upload_pace(&self) -> u64 {
        let at_once = self.upload_bytes_max.max(super::upload::PART_BYTES) as u128;
        let least = at_once * 4_000 / self.patience.as_millis().max(1);
        self.upload_bytes_per_second.max(u64::try_from(least).unwrap_or(u64::MAX))
    }
}

/// Counters of a store, since start.
#[derive(Debug, Default)]
pub struct StoreMetrics {
    /// Reads asked for, tries counted singly.
    pub gets: AtomicU64,
    /// Bytes that came.
    pub get_bytes: AtomicU64,
    /// Objects and parts sent.
    pub puts: AtomicU64,
    /// Bytes of them.
    pub put_bytes: AtomicU64,
    /// Objects deleted.
    pub deletes: AtomicU64,
    /// Requests that failed; a missing object and a lost race are answers, not failures.
    pub failures: AtomicU64,
    /// Requests that are charged like a PUT, and like a GET.
    charged: Mutex<Fading<2>>,
}

impl StoreMetrics {
    /// About how many requests were made within the last day that stores charge like a PUT (parts, the
    /// beginning and the end of an object in parts, and lists count too), and like a GET. Deleting is free.
    #[must_use]
    pub fn charged_within_a_day(&self) -> (f64, f64) {
        let [puts, gets] = self.charged.lock().of(Instant::now());
        (puts, gets)
    }

    fn charge(&self, puts: f64, gets: f64) {
        self.charged.lock().count([puts, gets], Instant::now());
    }
}

/// What is read of an object.
enum Part {
    Range(Range<u64>),
    /// What there is of a range.
    Within(Range<u64>),
    Whole {
        bytes_max: u64,
    },
}

/// A store of objects. Cheap to clone.
#[derive(Clone)]
pub struct Store {
    pub(super) inner: Arc<dyn ObjectStore>,
    /// As it stands in the names of objects.
    prefix: Path,
    pub(super) place: Arc<str>,
    /// Where it lies, if it is a folder.
    pub(super) root: Option<Arc<std::path::Path>>,
    config: Arc<StoreConfig>,
    /// Upload budget, in KiB.
    pub(super) budget: Arc<Semaphore>,
    /// How fast large bodies go out.
    pub(super) pacer: Arc<Pacer>,
    metrics: Arc<StoreMetrics>,
}

/// What became of [`Store::create`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Created {
    /// The object is there, written now or by an earlier try whose answer was lost.
    Ours,
    /// Another was first.
    Theirs,
}

/// An object in a listing.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Listed {
    /// Its name.
    pub name: String,
    /// Its bytes.
    pub bytes: u64,
    /// When it was written, by the store's clock: milliseconds since the epoch.
    pub written_ms: u64,
}

impl Store {
    /// A store over any implementation; names begin with `prefix`, in which characters that stores advise
    /// against are escaped.
    #[must_use]
    pub fn over(inner: Arc<dyn ObjectStore>, prefix: Path, config: StoreConfig) -> Self {
        let permits = (config.upload_bytes_max / 1024).clamp(super::upload::PART_KIB, Semaphore::MAX_PERMITS);
        Self {
            inner,
            prefix: Path::from(prefix.as_ref()),
            place: config.url.as_str().into(),
            root: None,
            pacer: Arc::new(Pacer::new(config.upload_pace())),
            config: Arc::new(config),
            budget: Arc::new(Semaphore::new(permits)),
            metrics: Arc::default(),
        }
    }

    /// Where it is.
    #[must_use]
    pub fn url(&self) -> &str {
        &self.config.url
    }

    /// Which store it is, for who has to know it again: where it is, and where it is asked if the URL alone
    /// does not say so. No credentials.
    #[must_use]
    pub fn place(&self) -> &str {
        &self.place
    }

    /// How long one request may take.
    #[must_use]
    pub fn patience(&self) -> Duration {
        self.config.patience
    }

    /// Uploads go as fast as they can, also those under way, until what this gives is dropped: somebody waits for them.
    #[must_use]
    pub fn hurry(&self) -> Hurried {
        self.pacer.hurry()
    }

    /// Whether they do so now.
    #[must_use]
    pub fn is_hurried(&self) -> bool {
        self.pacer.is_hurried()
    }

    /// Its counters.
    #[must_use]
    pub fn metrics(&self) -> Arc<StoreMetrics> {
        Arc::clone(&self.metrics)
    }

    /// Writes an object that must not exist yet. On return it is durable, or nothing was written.
    ///
    /// If the store says that it exists, its bytes are compared: an answer may have been lost on the way, and the
    /// library's own retry then meets what it wrote.
    ///
    /// # Errors
    /// [`StoreError`]; whether it was written is unknown then.
    pub async fn create(&self, name: &str, bytes: Bytes) -> Result<Created, StoreError> {
        let options = PutOptions::from(PutMode::Create);
        let length = bytes.len() as u64;
        let path = self.path(name);
        let put = self.inner.put_opts(&path, bytes.clone().into(), options);
        match self.in_time(name, put).await {
            Ok(_) => {
                self.sent(length);
                Ok(Created::Ours)
            }
            Err(StoreError::Exists { .. }) => {
                let there = self.get_all(name, length).await;
                match there {
                    Ok(there) if there == bytes => Ok(Created::Ours),
                    Ok(_) | Err(StoreError::Length { .. }) => Ok(Created::Theirs),
                    Err(error) => Err(error),
                }
            }
            Err(error) => Err(error),
        }
    }

    /// Reads exactly `range` of an object.
    ///
    /// # Errors
    /// [`StoreError`], after a few tries if it may pass.
    pub async fn get(&self, name: &str, range: Range<u64>) -> Result<Bytes, StoreError> {
        Ok(self.read(name, &Part::Range(range), Whole::default()).await?.0.bytes())
    }

    /// The same of an object that was written with `bytes` bytes: one that is shorter now is damaged, while a
    /// body that was cut short on its way is not.
    ///
    /// # Errors
    /// As [`Store::get`]; also [`StoreError::Damaged`].
    pub async fn get_of(&self, name: &str, bytes: u64, range: Range<u64>) -> Result<Bytes, StoreError> {
        let error = match self.get(name, range).await {
            // A range behind the end is refused, like much else.
            Err(error @ (StoreError::Length { .. } | StoreError::Failed { .. })) => error,
            read => return read,
        };
        match self.size(name).await {
            Ok(have) if have < bytes => {
                let source = PackError::Truncated { have, want: bytes };
                Err(StoreError::Damaged { object: name.to_owned(), source })
            }
            Err(gone @ StoreError::Missing { .. }) => Err(gone),
            _ => Err(error),
        }
    }

    /// Reads from the start of the first of `ranges` to the end of the last in one request, and gives the
    /// bytes of each. They come in order and do not overlap; what lies between them is read along and
    /// dropped.
    ///
    /// # Errors
    /// As [`Store::get`].
    pub async fn get_ranges(&self, name: &str, ranges: &[Range<u64>]) -> Result<Vec<Bytes>, StoreError> {
        let (Some(first), Some(last)) = (ranges.first(), ranges.last()) else { return Ok(Vec::new()) };
        let (pieces, _) = self.read(name, &Part::Range(first.start..last.end), Pieces::of(ranges)).await?;
        Ok(pieces.pieces())
    }

    /// Reads a whole object of at most `bytes_max` bytes.
    ///
    /// # Errors
    /// [`StoreError::Length`] if it is larger; as [`Store::get`].
    pub async fn get_all(&self, name: &str, bytes_max: u64) -> Result<Bytes, StoreError> {
        Ok(self.read(name, &Part::Whole { bytes_max }, Whole::default()).await?.0.bytes())
    }

    /// Gives `into` all that came, and says how many bytes that were.
    async fn read<S: Sink>(&self, name: &str, part: &Part, into: S) -> Result<(S, u64), StoreError> {
        let mut pause = PAUSE;
        for _ in 1..TRIES {
            match self.read_once(name, part, into.clone()).await {
                Err(error) if error.is_passing() => tracing::debug!(%error, "reading is tried again"),
                done => return done,
            }
            tokio::time::sleep(pause).await;
            pause *= 2;
        }
        self.read_once(name, part, into).await
    }

    async fn read_once<S: Sink>(&self, name: &str, part: &Part, into: S) -> Result<(S, u64), StoreError> {
        self.metrics.gets.fetch_add(1, Ordering::Relaxed);
        self.metrics.charge(0.0, 1.0);
        let (range, bytes_max) = match part {
            Part::Range(range) | Part::Within(range) => {
                (Some(GetRange::Bounded(range.clone())), range.end - range.start)
            }
            // Not a range: of an empty object no range can be had.
            Part::Whole { bytes_max } => (None, *bytes_max),
        };
        assert!(bytes_max <= BYTES_MAX, "{bytes_max} bytes of {name} are too much at once");
        let path = self.path(name);
        let read = self.in_time(name, async {
            let options = GetOptions { range, ..GetOptions::default() };
            let found = self.inner.get_opts(&path, options).await?;
            let (mut into, mut have) = (into, 0);
            into.expect(found.range.end.saturating_sub(found.range.start).min(bytes_max));
            let mut coming = found.into_stream();
            while have <= bytes_max
                && let Some(chunk) = coming.try_next().await?
            {
                have += chunk.len() as u64;
                into.push(chunk);
            }
            Ok((into, have))
        });
        let (into, have) = read.await?;
        self.metrics.get_bytes.fetch_add(have, Ordering::Relaxed);
        let is_right = if matches!(part, Part::Range(_)) { have == bytes_max } else { have <= bytes_max };
        if is_right {
            Ok((into, have))
        } else {
            Err(StoreError::Length { object: name.to_owned(), have, want: bytes_max })
        }
    }

    /// Reads an object and compares: on success it has these bytes, as far as a CRC-32C and their number can say.
    /// What is read is not kept.
    ///
    /// # Errors
    /// [`StoreError::Length`], [`StoreError::Damaged`] if it is another; others if it could not be read.
    pub async fn verify(&self, name: &str, bytes: u64, crc: u32) -> Result<(), StoreError> {
        let (mut have, mut computed) = (0, Crc32c::new());
        while bytes - have > VERIFY_BYTES {
            (computed, _) = self.read(name, &Part::Range(have..have + VERIFY_BYTES), computed).await?;
            have += VERIFY_BYTES;
        }
        // The last step asks for more than there should be, so that a longer object is seen. Of an empty one
        // no range can be had.
        let rest = if bytes == 0 { Part::Whole { bytes_max: 0 } } else { Part::Within(have..bytes + 1) };
        let (computed, came) = self.read(name, &rest, computed).await?;
        have += came;
        if have != bytes {
            return Err(StoreError::Length { object: name.to_owned(), have, want: bytes });
        }
        let computed = computed.finish();
        if computed != crc {
            let source = PackError::Checksum { what: "object", stored: crc, computed };
            return Err(StoreError::Damaged { object: name.to_owned(), source });
        }
        Ok(())
    }

    /// How long an object is.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn size(&self, name: &str) -> Result<u64, StoreError> {
        let path = self.path(name);
        self.metrics.charge(0.0, 1.0);
        Ok(self.in_time(name, self.inner.head(&path)).await?.size)
    }

    /// Deletes an object; one that is gone already is fine.
    ///
    /// # Errors
    /// [`StoreError`]; it may or may not be gone.
    pub async fn delete(&self, name: &str) -> Result<(), StoreError> {
        let path = self.path(name);
        match self.in_time(name, self.inner.delete(&path)).await {
            Ok(()) | Err(StoreError::Missing { .. }) => {
                self.metrics.deletes.fetch_add(1, Ordering::Relaxed);
                Ok(())
            }
            Err(error) => Err(error),
        }
    }

    /// Objects whose names begin with `folder/`, at most `most`, in no order that can be relied upon.
    ///
    /// # Errors
    /// [`StoreError`], naming the folder.
    pub async fn list(&self, folder: &str, most: usize) -> Result<Vec<Listed>, StoreError> {
        let path = self.path(folder);
        let mut objects = self.inner.list(Some(&path)).take(most);
        let skip = if self.prefix.as_ref().is_empty() { 0 } else { self.prefix.as_ref().len() + 1 };
        let mut listed = Vec::new();
        // The store answers page by page: each has the patience, however many there are.
        while let Some(meta) = self.in_time(folder, objects.try_next()).await? {
            listed.push(Listed {
                name: meta.location.as_ref()[skip..].to_owned(),
                bytes: meta.size,
                written_ms: u64::try_from(meta.last_modified.timestamp_millis()).unwrap_or(0),
            });
        }
        let answers = u32::try_from(listed.len().div_ceil(LISTED_AT_ONCE).max(1)).unwrap_or(u32::MAX);
        self.metrics.charge(f64::from(answers), 0.0);
        Ok(listed)
    }

    /// The same for who needs all of them.
    ///
    /// # Errors
    /// [`StoreError::TooMany`] if there are more than `most`; as [`Store::list`].
    pub async fn list_all(&self, folder: &str, most: usize) -> Result<Vec<Listed>, StoreError> {
        let listed = self.list(folder, most.saturating_add(1)).await?;
        if listed.len() > most {
            return Err(StoreError::TooMany { object: folder.to_owned(), most });
        }
        Ok(listed)
    }

    /// First parts of the names that there are.
    ///
    /// # Errors
    /// [`StoreError`].
    pub async fn folders(&self) -> Result<Vec<String>, StoreError> {
        let prefix = Some(&self.prefix).filter(|prefix| !prefix.as_ref().is_empty());
        self.arranged();
        let listed = self.in_time("(the store)", self.inner.list_with_delimiter(prefix)).await?;
        let last = |path: Path| path.parts().next_back().map(|part| part.as_ref().to_owned());
        Ok(listed.common_prefixes.into_iter().filter_map(last).collect())
    }

    /// Waits for an answer no longer than the store's patience, and says which object an error is about.
    pub(super) async fn in_time<T>(
        &self,
        name: &str,
        answer: impl Future<Output = object_store::Result<T>>,
    ) -> Result<T, StoreError> {
        let after = self.config.patience;
        let result = match tokio::time::timeout(after, answer).await {
            Ok(Ok(done)) => return Ok(done),
            Ok(Err(error)) => StoreError::of(name, error),
            Err(_) => StoreError::TimedOut { object: name.to_owned(), after },
        };
        if !matches!(result, StoreError::Missing { .. } | StoreError::Exists { .. }) {
            self.metrics.failures.fetch_add(1, Ordering::Relaxed);
        }
        Err(result)
    }

    pub(super) fn path(&self, name: &str) -> Path {
        // Part by part: a whole text would have what is escaped in the prefix escaped once more.
        self.prefix.parts().chain(Path::from(name).parts()).collect()
    }

    /// A request that is charged like a PUT and sends nothing of an object.
    pub(super) fn arranged(&self) {
        self.metrics.charge(1.0, 0.0);
    }

    pub(super) fn sent(&self, bytes: u64) {
        self.metrics.charge(1.0, 0.0);
        self.metrics.puts.fetch_add(1, Ordering::Relaxed);
        self.metrics.put_bytes.fetch_add(bytes, Ordering::Relaxed);
    }
}

impl fmt::Debug for Store {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.debug_tuple("Store").field(&self.config.url).finish()
    }
}
