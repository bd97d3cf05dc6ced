//! The task of a feed: takes from the node as long as readers take from it.

use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Duration;

use tokio::time::{Instant, sleep_until};
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::rpc::Credit;

use super::ring::Size;
use super::shared::Inner;
use crate::service::ServiceError;
use crate::service::read::budget::Share;
use crate::service::read::parcel::{Parcel, SharedParcel};
use crate::service::read::stream::{NodeStream, PartitionEvent};

/// After so long without records a feed lets go what somebody has taken: who is that far behind reads from
/// the node, and the room is for feeds where something happens.
const QUIET: Duration = Duration::from_secs(1);

/// A feed's stream, and what it may be owed.
pub(super) struct Source {
    inner: Arc<Inner>,
    stream: NodeStream,
    share: Share,
    /// Bytes of credit that came, and that were taken by somebody.
    came: u64,
    handed_on: u64,
    /// When what was taken is let go; `None` while nothing is held.
    quiet_at: Option<Instant>,
}

/// Ends the feed if its task ends without a reason, by a panic: nobody waits for ever.
struct Ending(Arc<Inner>);

impl Drop for Ending {
    fn drop(&mut self) {
        self.0.end(ServiceError::new(ErrorCode::Internal, "the feed ended without a reason"));
    }
}

impl Source {
    pub(super) fn new(inner: Arc<Inner>, stream: NodeStream, share: Share) -> Self {
        Self { inner, stream, share, came: 0, handed_on: 0, quiet_at: None }
    }

    /// Runs until the partition can be followed no more. Aborted when nobody takes from it any more: it holds
    /// nothing that somebody misses.
    pub(super) async fn run(mut self) {
        let ending = Ending(Arc::clone(&self.inner));
        loop {
            let freed = self.share.freed();
            self.grant();
            let is_throttled = self.share.is_throttled();
            self.inner.is_throttled.store(is_throttled, Ordering::Relaxed);
            let quiet_at = self.quiet_at;
            tokio::select! {
                // Grants first: they let the node send while what came is handled.
                biased;
                () = self.inner.taken.notified() => {}
                () = freed, if is_throttled => {}
                event = self.stream.next() => {
                    if let Err(why) = event.and_then(|event| self.take(event)) {
                        ending.0.end(why);
                        return;
                    }
                }
                () = async { if let Some(at) = quiet_at { sleep_until(at).await } }, if quiet_at.is_some() => {
                    self.quiet();
                }
            }
        }
    }

    /// Hands on what somebody has taken, and asks the node for as much again: while nobody takes, no more
    /// than a window is ahead of the fastest reader. Who takes wakes the task only if the node may send less
    /// than what waits already.
    fn grant(&mut self) {
        loop {
            let ahead = self.inner.state.lock().ring.ahead_bytes();
            let taken = self.came.saturating_sub(ahead);
            if taken > self.handed_on {
                self.share.hand_on(taken - self.handed_on);
                self.handed_on = taken;
            }
            let bytes = self.share.raise(u64::MAX);
            self.stream.raise(Credit { records: u64::MAX, bytes });
            let left = bytes.saturating_sub(self.came);
            let mut state = self.inner.state.lock();
            let now = state.ring.ahead_bytes();
            // What was taken since the first look woke nobody: it is handed on now.
            let is_old = now < ahead && left <= ahead;
            state.is_full = !is_old && now > 0 && left <= now;
            if !is_old {
                return;
            }
        }
    }

    fn take(&mut self, event: PartitionEvent) -> Result<(), ServiceError> {
        match event {
            PartitionEvent::Started { .. } => {}
            PartitionEvent::Records { parcel, bytes } => self.add(parcel, bytes)?,
            PartitionEvent::CaughtUp { end, closed } => {
                {
                    let mut state = self.inner.state.lock();
                    if end != state.ring.end() {
                        return Err(unshared(&format!("a hole behind {}", state.ring.end())));
                    }
                    state.ring.caught_up(closed);
                }
                self.inner.changed.notify_waiters();
            }
            // Retention was faster than the feed, or something that does not concern all readers alike: each
            // hears of it by a stream of its own.
            other => return Err(unshared(&format!("{other:?}"))),
        }
        Ok(())
    }

    fn add(&mut self, parcel: Parcel, bytes: u64) -> Result<(), ServiceError> {
        let Some(parcel) = SharedParcel::new(parcel.into_slices())? else {
            return Err(unshared("records below quorum"));
        };
        let parcel = parcel.with_texts_within(self.inner.pool.texts());
        let range = parcel.range();
        // A hole behind them: whoever is told of the end is told of the end behind it.
        if self.stream.at().is_some_and(|at| at.next != range.end) {
            return Err(unshared(&format!("a hole behind {range:?}")));
        }
        let size = Size { held_bytes: parcel.held_bytes(), credit_bytes: bytes };
        let is_end = self.stream.take_caught_up();
        self.came += bytes;
        let pool = &self.inner.pool;
        // Dropped when the ring is free again: these may be the last who hold it.
        let _gone = {
            let mut state = self.inner.state.lock();
            if state.ended.is_some() {
                return Ok(());
            }
            if range.start != state.ring.end() {
                return Err(unshared(&format!("{range:?} behind {}", state.ring.end())));
            }
            let before = state.ring.held_bytes();
            state.ring.push(Arc::new(parcel), range, size, is_end);
            pool.held(before, state.ring.held_bytes());
            let mut gone = state.trim(pool, pool.window());
            if pool.is_full() {
                gone.extend(state.trim(pool, 0));
            }
            gone
        };
        pool.came();
        self.quiet_at = Some(Instant::now() + QUIET);
        self.inner.changed.notify_waiters();
        Ok(())
    }

    fn quiet(&mut self) {
        let (_gone, is_held) = {
            let mut state = self.inner.state.lock();
            (state.trim(&self.inner.pool, 0), state.ring.held_bytes() > 0)
        };
        // What nobody has taken yet is let go when somebody has, if nothing comes with which it goes.
        self.quiet_at = is_held.then(|| Instant::now() + QUIET);
    }
}

fn unshared(what: &str) -> ServiceError {
    ServiceError::bad_answer(&format!("a feed does not hand on: {what}"), Outcome::None)
}
