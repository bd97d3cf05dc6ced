//! A feed and those who take from it.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use parking_lot::Mutex;
use tokio::sync::Notify;
use tokio::task::AbortHandle;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::Offset;
use weir_protocol::rpc::Credit;

use super::ring::{End, Found, Place, Ring};
use super::spots::Pool;
use crate::service::ServiceError;
use crate::service::read::parcel::{Parcel, SharedParcel};

/// What the task of a feed and its readers share.
///
/// Nobody misses what happens to the ring: who waits makes its `Notified` first and looks then, under the
/// lock; who changes the ring does so under the lock and notifies then. A change that the look did not see
/// came after it, so its notification comes after the `Notified` was made, and `notify_waiters` wakes every
/// one that was made before, polled or not. The task waits by `notify_one`, whose permit is kept for the one
/// who waits.
pub(super) struct Inner {
    pub(super) state: Mutex<State>,
    /// The ring was added to, or the feed is over.
    pub(super) changed: Notify,
    /// The feed is over: what a reader without credit waits for, so that it is not woken for each batch.
    pub(super) ended: Notify,
    /// Readers have come further, of whom the task wanted to know.
    pub(super) taken: Notify,
    /// The task waits for the gateway's budget, and its readers with it.
    pub(super) is_throttled: Arc<AtomicBool>,
    pub(super) pool: Arc<Pool>,
}

pub(super) struct State {
    pub(super) ring: Ring<Arc<SharedParcel>>,
    /// The task has asked for nothing more because nobody takes: it is to be told when somebody does.
    pub(super) is_full: bool,
    /// Why it is over.
    pub(super) ended: Option<ServiceError>,
}

impl Inner {
    /// Counts among the feeds until it is ended.
    pub(super) fn new(at: Offset, pool: Arc<Pool>) -> Self {
        pool.opened();
        Self {
            state: Mutex::new(State { ring: Ring::new(at), is_full: false, ended: None }),
            changed: Notify::new(),
            ended: Notify::new(),
            taken: Notify::new(),
            is_throttled: Arc::default(),
            pool,
        }
    }

    /// It is over: everybody is told, and nobody joins any more. What it held is let go at once, whenever the
    /// readers come to see that it is over.
    pub(super) fn end(&self, why: ServiceError) {
        let _gone = {
            let mut state = self.state.lock();
            if state.ended.is_some() {
                return;
            }
            state.ended = Some(why);
            let end = state.ring.end();
            let ring = std::mem::replace(&mut state.ring, Ring::new(end));
            self.pool.held(ring.held_bytes(), 0);
            self.pool.closed();
            ring
        };
        self.changed.notify_waiters();
        self.ended.notify_waiters();
    }
}

/// A running feed, held by those who take from it: it ends with the last of them, at once. A linger would
/// hold a stream for nobody, and who comes anew begins with a stream of its own in any case.
pub(super) struct Feed {
    pub(super) inner: Arc<Inner>,
    task: AbortHandle,
}

impl Feed {
    pub(super) fn new(inner: Arc<Inner>, task: AbortHandle) -> Self {
        Self { inner, task }
    }

    /// It is over; its readers are about to hear of it.
    pub(super) fn has_ended(&self) -> bool {
        self.inner.state.lock().ended.is_some()
    }
}

impl std::fmt::Debug for Feed {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Feed").finish_non_exhaustive()
    }
}

impl Drop for Feed {
    fn drop(&mut self) {
        self.task.abort();
        self.inner.end(ServiceError::new(ErrorCode::Internal, "nobody takes from the feed"));
    }
}

/// A reader's place in a feed.
pub(in crate::service::read) struct Tap {
    feed: Arc<Feed>,
    place: Place,
}

/// What a reader gets of a feed.
pub(in crate::service::read) enum Tapped {
    /// Records within its credit, up to an offset.
    Records { parcel: Parcel, used: Credit, end: Offset },
    /// All that there is, of a topic that may be closed.
    CaughtUp { end: Offset, closed: bool },
    /// The feed has moved on: the reader has to go on by a stream of its own.
    Behind,
    /// The feed is over, for this reason.
    Ended(ServiceError),
}

/// What a look at the ring came to.
enum Look {
    Parcel(Arc<SharedParcel>),
    Told(Tapped),
    /// There is something, and no credit for it.
    NoCredit,
    Nothing,
}

impl Tap {
    /// A place for a reader that has everything before `next`, and knows so much of the end there; `None` if
    /// the feed is over or has moved on.
    pub(super) fn new(feed: Arc<Feed>, next: Offset, told: End) -> Option<Self> {
        let place = {
            let mut state = feed.inner.state.lock();
            if state.ended.is_some() {
                return None;
            }
            let place = state.ring.join(next, told)?;
            state.wake(&feed.inner);
            place
        };
        feed.inner.pool.joined();
        Some(Self { feed, place })
    }

    /// Whether the feed waits for the gateway's budget, now and later.
    pub(in crate::service::read) fn throttle(&self) -> &Arc<AtomicBool> {
        &self.feed.inner.is_throttled
    }

    /// The next records, marks or the end, as far as `left` goes.
    ///
    /// # Errors
    /// `corrupt` if records have to be divided and cannot be read.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(in crate::service::read) async fn next(&mut self, left: Credit) -> Result<Tapped, ServiceError> {
        loop {
            // Made before the look: see [`Inner`].
            let changed = self.feed.inner.changed.notified();
            let ended = self.feed.inner.ended.notified();
            let look = look(&self.feed.inner, &mut self.place, left);
            match look {
                Look::Parcel(parcel) => {
                    let split = parcel.part(self.place.next, left)?;
                    let last = split.now.slices().last().expect("there is credit, and something to take");
                    let end = last.end();
                    self.place.took(end);
                    return Ok(Tapped::Records { parcel: split.now, used: split.used, end });
                }
                Look::Told(tapped) => return Ok(tapped),
                Look::NoCredit => ended.await,
                Look::Nothing => changed.await,
            }
        }
    }
}

fn look(inner: &Inner, place: &mut Place, left: Credit) -> Look {
    let mut state = inner.state.lock();
    if let Some(why) = &state.ended {
        return Look::Told(Tapped::Ended(why.clone()));
    }
    let look = match state.ring.find(place) {
        // Who wants nothing falls behind quietly, and reads on its own once it does.
        Found::Item(_) | Found::Behind if left.records == 0 || left.bytes == 0 => Look::NoCredit,
        Found::Item(parcel) => Look::Parcel(parcel),
        Found::Behind => {
            inner.pool.fell_behind();
            Look::Told(Tapped::Behind)
        }
        Found::End => match state.ring.tell_end(place) {
            End::Unknown => Look::Nothing,
            told => Look::Told(Tapped::CaughtUp { end: place.next, closed: told == End::Closed }),
        },
    };
    state.wake(inner);
    look
}

impl State {
    /// Lets history go beyond `bytes_max`, which is to be dropped when the lock is free.
    pub(super) fn trim(&mut self, pool: &Pool, bytes_max: u64) -> Vec<Arc<SharedParcel>> {
        let before = self.ring.held_bytes();
        let gone = self.ring.trim(bytes_max);
        pool.held(before, self.ring.held_bytes());
        gone
    }

    /// Tells the task that somebody has taken what it waits for.
    fn wake(&mut self, inner: &Inner) {
        if self.is_full && self.ring.ahead_bytes() == 0 {
            self.is_full = false;
            inner.taken.notify_one();
        }
    }
}

impl Drop for Tap {
    fn drop(&mut self) {
        self.feed.inner.pool.left();
    }
}
