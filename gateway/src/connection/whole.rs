//! Bodies that were sent to their end.

use std::pin::Pin;
use std::task::{Context, Poll, ready};

use hyper::body::{Body, Frame, Incoming, SizeHint};

/// The body of a request in HTTP/2. The library takes a stream that is reset without an error for one that ended:
/// a proxy resets it so when its own client has gone, in the middle of what it sent.
pub(super) struct Whole(pub(super) Incoming);

impl Body for Whole {
    type Data = <Incoming as Body>::Data;
    type Error = axum::BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        let frame = ready!(Pin::new(&mut self.0).poll_frame(cx));
        if frame.is_none() && !self.0.is_end_stream() {
            return Poll::Ready(Some(Err("the stream was reset".into())));
        }
        Poll::Ready(frame.map(|frame| frame.map_err(Into::into)))
    }

    fn is_end_stream(&self) -> bool {
        self.0.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.0.size_hint()
    }
}
