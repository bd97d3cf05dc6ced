//! Answering a call.

use std::sync::Arc;

use bytes::Bytes;
use tokio::sync::watch;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::frame::BODY_BYTES_MAX;
use weir_protocol::rpc::{Credit, Refusal};

use super::connection::Shared;
use crate::outbox::ConnectionClosed;

/// Owns the answer to a call. Exactly one last answer is sent: by [`Reply::finish`], [`Reply::refuse`], or, if
/// the reply is dropped without either, a refusal `internal` with unknown outcome. So every caller is answered.
///
/// Answers of one call arrive in the order they are sent.
#[derive(Debug)]
pub struct Reply {
    shared: Arc<Shared>,
    call: u64,
    is_answered: bool,
}

impl Reply {
    pub(super) fn new(shared: Arc<Shared>, call: u64) -> Self {
        Self { shared, call, is_answered: false }
    }

    /// Sends one of several answers; more follow. Never waits: for calls with few answers (publish levels). Does
    /// nothing if the peer is gone.
    ///
    /// # Panics
    /// If the body exceeds [`BODY_BYTES_MAX`]: builders check before they build.
    pub fn send(&self, segments: Vec<Bytes>) {
        self.shared.answer(self.call, segments, false);
    }

    /// Sends one answer of a stream as soon as the connection's outbound queue has room for it.
    ///
    /// # Errors
    /// [`ConnectionClosed`]: nobody is listening any more, end the stream.
    ///
    /// # Panics
    /// As [`Reply::send`].
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, nothing was sent.
    pub async fn send_when_ready(&self, segments: Vec<Bytes>) -> Result<(), ConnectionClosed> {
        self.shared.answer_when_ready(self.call, segments, false).await
    }

    /// Sends the last answer. An empty one is the bare end of a call with several answers. Never waits.
    ///
    /// A body above [`BODY_BYTES_MAX`] is a defect of the caller: it is logged and refused as `internal`.
    pub fn finish(mut self, segments: Vec<Bytes>) {
        if self.refuse_oversize(&segments) {
            return;
        }
        self.is_answered = true;
        self.shared.answer(self.call, segments, true);
    }

    /// [`Reply::finish`] as soon as the outbound queue has room: for large answers.
    ///
    /// # Errors
    /// [`ConnectionClosed`]: nobody is listening any more.
    ///
    /// # Cancel safety
    /// If it is dropped before it returns, the call is refused as [`Reply`] says.
    pub async fn finish_when_ready(mut self, segments: Vec<Bytes>) -> Result<(), ConnectionClosed> {
        if self.refuse_oversize(&segments) {
            return Ok(());
        }
        let sent = self.shared.answer_when_ready(self.call, segments, true).await;
        // Without room the connection is closed, and the drop of `self` ends the call's bookkeeping.
        self.is_answered = sent.is_ok();
        sent
    }

    /// Refuses the call.
    pub fn refuse(mut self, refusal: Refusal) {
        self.is_answered = true;
        self.shared.refuse(self.call, &refusal);
    }

    /// The caller's latest credit and whether it still wants answers. Starts at zero: the request's own limit is
    /// not known here.
    #[must_use]
    pub fn credit(&self) -> CreditHandle {
        CreditHandle { state: self.shared.state_of(self.call) }
    }

    fn refuse_oversize(&mut self, segments: &[Bytes]) -> bool {
        let bytes: usize = segments.iter().map(Bytes::len).sum();
        if bytes <= BODY_BYTES_MAX {
            return false;
        }
        tracing::error!(bytes, "an answer exceeds the largest frame");
        let refusal = Refusal::new(ErrorCode::Internal, "the answer exceeds the largest frame");
        self.is_answered = true;
        self.shared.refuse(self.call, &refusal.with_outcome(Outcome::Unknown));
        true
    }
}

impl Drop for Reply {
    fn drop(&mut self) {
        if !self.is_answered {
            let refusal = Refusal::new(ErrorCode::Internal, "the call was dropped without an answer");
            self.shared.refuse(self.call, &refusal.with_outcome(Outcome::Unknown));
        }
    }
}

/// What the caller of a running call last said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct CallState {
    /// Highest credit it granted by a credit frame: absolute totals.
    pub credit: Credit,
    /// Bytes that it said the credit will be raised to, as far as is known; absolute.
    pub reach_bytes: Option<u64>,
    /// The same of records.
    pub reach_records: Option<u64>,
    /// It wants no further answers, or is gone, or the server drains: end the call.
    pub is_cancelled: bool,
}

/// Follows the [`CallState`] of one call.
#[derive(Debug, Clone)]
pub struct CreditHandle {
    state: watch::Receiver<CallState>,
}

impl CreditHandle {
    /// What the caller said so far.
    #[must_use]
    pub fn latest(&self) -> CallState {
        let mut state = *self.state.borrow();
        // The sender goes with the last answer.
        state.is_cancelled |= self.state.has_changed().is_err();
        state
    }

    /// Waits until the state is another than the one this handle returned last from here, then returns it.
    /// Returns a cancelled state at once when the call is over.
    ///
    /// # Cancel safety
    /// No change is lost.
    pub async fn changed(&mut self) -> CallState {
        if self.state.borrow().is_cancelled || self.state.changed().await.is_err() {
            return CallState { is_cancelled: true, ..*self.state.borrow() };
        }
        *self.state.borrow_and_update()
    }
}
