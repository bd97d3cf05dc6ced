//! Bodies in HTTP/1 that come back to their connection where nobody has read them to their end.
//!
//! What is left of one stands before the next request. The library then closes the connection behind the answer,
//! and says nothing of it there: whoever sends another request on it finds it closed, and if that was no
//! repeatable one, may not send it again. So what is left is taken where it is little, and else the answer says
//! that the connection ends.

use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::task::{Context, Poll, ready};
use std::time::Duration;

use hyper::body::{Body, Frame, Incoming, SizeHint};
use parking_lot::Mutex;

/// Most bytes that are taken of a body that nobody wants.
const TAKEN_BYTES_MAX: u64 = 64 << 10;
/// Whoever has sent all of it waits no longer for it than this.
const TAKEN_TIME_MAX: Duration = Duration::from_millis(250);

/// Where unread bodies of one connection come back to. The library serves it in one task, so nothing is contended.
#[derive(Default)]
pub(super) struct Home {
    has_some: AtomicBool,
    left: Mutex<Option<Unread>>,
}

/// What nobody has read.
pub(super) struct Unread {
    body: Incoming,
    /// True if nobody has begun: a client that asked whether to send it was not told to.
    is_whole: bool,
}

impl Home {
    /// What came back of the last request's body.
    pub(super) fn unread(&self) -> Option<Unread> {
        self.has_some.swap(false, Ordering::Relaxed).then(|| self.left.lock().take())?
    }
}

impl Unread {
    /// Takes what is left, if that is little and there: true if it did. `asked`: the client waits to be told to
    /// send it.
    pub(super) async fn take(mut self, asked: bool) -> bool {
        let is_little = self.body.size_hint().upper().is_none_or(|left| left <= TAKEN_BYTES_MAX);
        if !is_little || (asked && self.is_whole) {
            return false;
        }
        let take = async {
            let mut taken = 0;
            while let Some(frame) = std::future::poll_fn(|cx| Pin::new(&mut self.body).poll_frame(cx)).await {
                let Ok(frame) = frame else { return false };
                taken += frame.data_ref().map_or(0, |data| data.len() as u64);
                if taken > TAKEN_BYTES_MAX {
                    return false;
                }
            }
            true
        };
        tokio::time::timeout(TAKEN_TIME_MAX, take).await.unwrap_or(false)
    }
}

/// A body that a handler reads, or not.
pub(super) struct Lent {
    unread: Option<Unread>,
    home: Arc<Home>,
}

impl Lent {
    pub(super) fn new(body: Incoming, home: &Arc<Home>) -> Self {
        Self { unread: Some(Unread { body, is_whole: true }), home: Arc::clone(home) }
    }
}

impl Body for Lent {
    type Data = <Incoming as Body>::Data;
    type Error = <Incoming as Body>::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let Some(unread) = &mut self.unread else { return Poll::Ready(None) };
        unread.is_whole = false;
        let frame = ready!(Pin::new(&mut unread.body).poll_frame(cx));
        // Its end, or that of its connection.
        if !matches!(frame, Some(Ok(_))) {
            self.unread = None;
        }
        Poll::Ready(frame)
    }

    fn is_end_stream(&self) -> bool {
        self.unread.as_ref().is_none_or(|unread| unread.body.is_end_stream())
    }

    fn size_hint(&self) -> SizeHint {
        self.unread.as_ref().map_or(SizeHint::with_exact(0), |unread| unread.body.size_hint())
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        if let Some(unread) = self.unread.take().filter(|unread| !unread.body.is_end_stream()) {
            *self.home.left.lock() = Some(unread);
            self.home.has_some.store(true, Ordering::Relaxed);
        }
    }
}
