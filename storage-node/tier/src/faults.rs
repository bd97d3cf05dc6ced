//! A store that fails as stores do: for tests, here and in the crates that use this one.

use std::collections::{BTreeSet, VecDeque};
use std::fmt;
use std::sync::Arc;
use std::time::Duration;

use async_trait::async_trait;
use bytes::Bytes;
use futures_util::stream::{self, BoxStream, StreamExt as _};
use object_store::memory::InMemory;
use object_store::path::Path;
use object_store::{
    CopyOptions, Error, GetOptions, GetResult, GetResultPayload, ListResult, MultipartUpload, ObjectMeta,
    ObjectStore, PutMultipartOptions, PutOptions, PutPayload, PutResult, Result, UploadPart,
};
use parking_lot::Mutex;
use tokio::sync::watch;

use crate::store::{Store, StoreConfig};

/// A kind of request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Op {
    /// An object in one request.
    Put,
    /// A part of an object.
    Part,
    /// Putting an object together from its parts.
    Complete,
    /// A read.
    Get,
    /// A deletion.
    Delete,
    /// A listing; it can be slow with each object.
    List,
}

/// What happens to a request.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Fault {
    /// It fails without effect.
    Error,
    /// The store does not let us, and it has no effect.
    Refused,
    /// It is never answered, and has no effect.
    Hang,
    /// It has its effect, and the answer says that it failed.
    AnswerLost,
    /// Somebody else was first: a put finds another object of that name.
    LostRace,
    /// The body stops after so many bytes, without an error.
    Truncated(u64),
    /// One bit of the body is another.
    BitFlip,
    /// The body comes after a pause.
    Slow(Duration),
    /// Nothing happens until [`Faults::go_on`], and nothing unusual from then on.
    Stalled,
}

/// What will go wrong. Cheap to clone: all clones are one plan.
#[derive(Debug, Clone, Default)]
pub struct Faults {
    plan: Arc<Mutex<Plan>>,
    stall: Arc<watch::Sender<Stall>>,
}

/// Requests that are stalled.
#[derive(Debug, Default)]
struct Stall {
    is_over: bool,
    waiting: usize,
}

/// One of them, until it goes on or nobody waits for it any more.
struct Stalled<'a>(&'a watch::Sender<Stall>);

impl Drop for Stalled<'_> {
    fn drop(&mut self) {
        self.0.send_modify(|stall| stall.waiting -= 1);
    }
}

#[derive(Debug, Default)]
struct Plan {
    next: VecDeque<(Op, Fault)>,
    named: Option<(Op, &'static str, Fault)>,
    always: Option<(Op, Fault)>,
    all: Option<Fault>,
    held: BTreeSet<String>,
    /// Each with the name of its object, where it has one.
    requests: Vec<(Op, String)>,
}

impl Faults {
    /// The next request of this kind that has no fault planned yet gets this one.
    pub fn next(&self, op: Op, fault: Fault) {
        self.plan.lock().next.push_back((op, fault));
    }

    /// Every request of this kind gets this fault until told otherwise.
    pub fn always(&self, fault: Option<(Op, Fault)>) {
        self.plan.lock().always = fault;
    }

    /// Every request gets this fault until told otherwise, whatever else is planned: a store that is away, say.
    pub fn all(&self, fault: Option<Fault>) {
        self.plan.lock().all = fault;
    }

    /// Objects of these names cannot be deleted until told otherwise, whatever else is planned: a legal hold.
    pub fn hold(&self, names: impl IntoIterator<Item = String>) {
        self.plan.lock().held = names.into_iter().collect();
    }

    /// Every such request for an object whose name ends like this gets this fault until told otherwise.
    pub fn named(&self, fault: Option<(Op, &'static str, Fault)>) {
        self.plan.lock().named = fault;
    }

    /// Planned faults that nothing has met yet.
    #[must_use]
    pub fn left(&self) -> usize {
        self.plan.lock().next.len()
    }

    /// Requests of this kind so far.
    #[must_use]
    pub fn requests(&self, op: Op) -> usize {
        self.requests_for(op, "")
    }

    /// The same for objects whose name ends like this: nobody's but those of who asks for such.
    #[must_use]
    pub fn requests_for(&self, op: Op, end: &str) -> usize {
        let plan = self.plan.lock();
        plan.requests.iter().filter(|(asked, name)| *asked == op && name.ends_with(end)).count()
    }

    /// What is stalled goes on, and nothing is stalled any more.
    pub fn go_on(&self) {
        self.stall.send_modify(|stall| stall.is_over = true);
    }

    /// Waits until so many requests are stalled at once.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub async fn stalled(&self, count: usize) {
        let mut stall = self.stall.subscribe();
        let _ = stall.wait_for(|stall| stall.waiting >= count).await;
    }

    async fn stall(&self) {
        let mut stall = self.stall.subscribe();
        self.stall.send_modify(|stall| stall.waiting += 1);
        let _waiting = Stalled(&self.stall);
        let _ = stall.wait_for(|stall| stall.is_over).await;
    }

    fn of_name(&self, op: Op, name: &Path) -> Option<Fault> {
        let named = {
            let plan = self.plan.lock();
            let is_it = |(of, end, _): &(Op, &str, Fault)| *of == op && name.as_ref().ends_with(end);
            plan.named.filter(is_it).filter(|_| plan.all.is_none())
        };
        let planned = self.of(op, name.as_ref());
        named.map_or(planned, |(_, _, fault)| Some(fault))
    }

    fn of(&self, op: Op, name: &str) -> Option<Fault> {
        let mut plan = self.plan.lock();
        plan.requests.push((op, name.to_owned()));
        if plan.all.is_some() {
            return plan.all;
        }
        let planned = plan.next.iter().position(|(of, _)| *of == op);
        let planned = planned.and_then(|at| Some(plan.next.remove(at)?.1));
        planned.or_else(|| plan.always.filter(|(of, _)| *of == op).map(|(_, fault)| fault))
    }
}

/// A store in memory that fails as planned.
#[must_use]
pub fn in_memory(faults: Faults) -> Store {
    let patience = StoreConfig::new("memory:").patience;
    store_in_memory(faults, patience)
}

/// The same, whose requests take at most `patience`.
#[must_use]
pub fn store_in_memory(faults: Faults, patience: Duration) -> Store {
    store_of(&Objects::default(), faults, patience)
}

/// A manifest or snapshot as a build would have written it whose version this one does not know.
///
/// # Panics
/// If the object is too short for either.
#[must_use]
pub fn of_a_newer_build(object: &[u8]) -> Bytes {
    let mut bytes = object.to_vec();
    bytes[8..10].copy_from_slice(&u16::MAX.to_le_bytes());
    let crc = weir_protocol::checksum::crc32c(&bytes[..44]);
    bytes[44..48].copy_from_slice(&crc.to_le_bytes());
    bytes.into()
}

/// What is stored, whoever asks for it.
#[derive(Debug, Clone, Default)]
pub struct Objects(Arc<InMemory>);

/// A store of these objects that fails as planned, and others of them do not; its requests take at most `patience`.
#[must_use]
pub fn store_of(objects: &Objects, faults: Faults, patience: Duration) -> Store {
    let inner = FaultyStore::new(objects.0.clone(), faults);
    let config = StoreConfig { patience, ..StoreConfig::new("memory:") };
    Store::over(Arc::new(inner), Path::default(), config)
}

/// A store with faults.
#[derive(Debug)]
pub struct FaultyStore {
    inner: Arc<dyn ObjectStore>,
    faults: Faults,
}

impl FaultyStore {
    /// Puts `faults` in front of a store.
    #[must_use]
    pub fn new(inner: Arc<dyn ObjectStore>, faults: Faults) -> Self {
        Self { inner, faults }
    }
}

impl fmt::Display for FaultyStore {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "FaultyStore({})", self.inner)
    }
}

fn failed() -> Error {
    Error::Generic { store: "faulty", source: "planned to fail".into() }
}

fn refused() -> Error {
    Error::PermissionDenied { path: String::new(), source: "planned to be refused".into() }
}

/// Runs `request` as `fault` lets it.
async fn meet<T>(
    faults: &Faults,
    fault: Option<Fault>,
    request: impl Future<Output = Result<T>>,
) -> Result<T> {
    match fault {
        Some(Fault::Stalled) => {
            faults.stall().await;
            request.await
        }
        Some(Fault::Error) => Err(failed()),
        Some(Fault::Refused) => Err(refused()),
        Some(Fault::Hang) => std::future::pending().await,
        Some(Fault::AnswerLost) => request.await.and_then(|_| Err(failed())),
        Some(Fault::Slow(pause)) => {
            tokio::time::sleep(pause).await;
            request.await
        }
        _ => request.await,
    }
}

#[async_trait]
impl ObjectStore for FaultyStore {
    async fn put_opts(&self, location: &Path, payload: PutPayload, opts: PutOptions) -> Result<PutResult> {
        let fault = self.faults.of_name(Op::Put, location);
        if fault == Some(Fault::LostRace) {
            let rival = PutPayload::from_static(b"somebody else's");
            self.inner.put_opts(location, rival, PutOptions::default()).await?;
        }
        meet(&self.faults, fault, self.inner.put_opts(location, payload, opts)).await
    }

    async fn put_multipart_opts(
        &self,
        location: &Path,
        opts: PutMultipartOptions,
    ) -> Result<Box<dyn MultipartUpload>> {
        let inner = self.inner.put_multipart_opts(location, opts).await?;
        Ok(Box::new(FaultyUpload { inner, faults: self.faults.clone() }))
    }

    async fn get_opts(&self, location: &Path, options: GetOptions) -> Result<GetResult> {
        let fault = self.faults.of(Op::Get, location.as_ref());
        let got = meet(&self.faults, fault, self.inner.get_opts(location, options)).await?;
        let (meta, range, attributes, extensions) =
            (got.meta.clone(), got.range.clone(), got.attributes.clone(), got.extensions.clone());
        let body = got.bytes().await?;
        let body = match fault {
            Some(Fault::Truncated(upto)) => {
                body.slice(..body.len().min(usize::try_from(upto).unwrap_or(usize::MAX)))
            }
            Some(Fault::BitFlip) => {
                let mut flipped = body.to_vec();
                let middle = flipped.len() / 2;
                if let Some(byte) = flipped.get_mut(middle) {
                    *byte ^= 1;
                }
                Bytes::from(flipped)
            }
            _ => body,
        };
        let payload = GetResultPayload::Stream(stream::once(async { Ok(body) }).boxed());
        Ok(GetResult { payload, meta, range, attributes, extensions })
    }

    fn delete_stream(&self, locations: BoxStream<'static, Result<Path>>) -> BoxStream<'static, Result<Path>> {
        match self.faults.of(Op::Delete, "") {
            Some(Fault::Hang) => stream::pending().boxed(),
            Some(Fault::Error) => stream::once(async { Err(failed()) }).boxed(),
            Some(Fault::Refused) => stream::once(async { Err(refused()) }).boxed(),
            _ => {
                let faults = self.faults.clone();
                let held = move |path: &Path| faults.plan.lock().held.contains(path.as_ref());
                let free = locations.map(move |path| {
                    path.and_then(|path| if held(&path) { Err(failed()) } else { Ok(path) })
                });
                self.inner.delete_stream(free.boxed())
            }
        }
    }

    fn list(&self, prefix: Option<&Path>) -> BoxStream<'static, Result<ObjectMeta>> {
        let listed = self.inner.list(prefix);
        match self.faults.of(Op::List, "") {
            Some(Fault::Slow(pause)) => listed
                .then(move |object| async move {
                    tokio::time::sleep(pause).await;
                    object
                })
                .boxed(),
            Some(Fault::Hang) => stream::pending().boxed(),
            Some(Fault::Error) => stream::once(async { Err(failed()) }).boxed(),
            Some(Fault::Refused) => stream::once(async { Err(refused()) }).boxed(),
            _ => listed,
        }
    }

    async fn list_with_delimiter(&self, prefix: Option<&Path>) -> Result<ListResult> {
        self.inner.list_with_delimiter(prefix).await
    }

    async fn copy_opts(&self, from: &Path, to: &Path, options: CopyOptions) -> Result<()> {
        self.inner.copy_opts(from, to, options).await
    }
}

#[derive(Debug)]
struct FaultyUpload {
    inner: Box<dyn MultipartUpload>,
    faults: Faults,
}

#[async_trait]
impl MultipartUpload for FaultyUpload {
    fn put_part(&mut self, data: PutPayload) -> UploadPart {
        let (faults, fault) = (self.faults.clone(), self.faults.of(Op::Part, ""));
        let part = self.inner.put_part(data);
        Box::pin(async move { meet(&faults, fault, part).await })
    }

    async fn complete(&mut self) -> Result<PutResult> {
        let fault = self.faults.of(Op::Complete, "");
        meet(&self.faults, fault, self.inner.complete()).await
    }

    async fn abort(&mut self) -> Result<()> {
        self.inner.abort().await
    }
}
