//! Answers in HTTP/2, of which each is taken by itself.
//!
//! In HTTP/1 a client that takes nothing is noticed by what cannot be written. In HTTP/2 nothing is written of an
//! answer for which there is no window, and the connection goes on: so each answer knows since when something of it
//! waits, and one that waits for too long is given up.

use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};
use std::time::Duration;

use bytes::Bytes;
use http::Request;
use hyper::body::{Body, Frame, SizeHint};
use hyper::rt::Executor;
use hyper::service::Service;
use parking_lot::Mutex;
use tokio::time::{Instant, Sleep, sleep_until};

/// Bytes that the library is given at once: a frame of data. What it holds of an answer that is given up is no more
/// than two of them.
const PIECE_BYTES: usize = 16 << 10;

/// Since when something of an answer waits for its client; `None` while there is nothing to be taken.
#[derive(Debug, Default)]
pub(super) struct Taking(Mutex<Option<Instant>>);

/// Runs the streams of one connection.
#[derive(Debug, Clone)]
pub(super) struct Streams {
    /// An answer of which nothing is taken for so long is given up.
    time_max: Duration,
    /// That of the request which the service was given last: the library runs its stream right behind it.
    begun: Arc<Mutex<Option<Arc<Taking>>>>,
}

impl Streams {
    pub(super) fn new(time_max: Duration) -> Self {
        Self { time_max, begun: Arc::default() }
    }

    /// `service`, whose requests say who watches over their answers: an [`Arc<Taking>`] among their extensions.
    pub(super) fn watching<T>(&self, service: T) -> Watching<T> {
        Watching { service, streams: self.clone() }
    }
}

/// See [`Streams::watching`].
pub(super) struct Watching<T> {
    service: T,
    streams: Streams,
}

impl<B, T: Service<Request<B>>> Service<Request<B>> for Watching<T> {
    type Response = T::Response;
    type Error = T::Error;
    type Future = T::Future;

    fn call(&self, mut request: Request<B>) -> T::Future {
        let taking = Arc::<Taking>::default();
        *self.streams.begun.lock() = Some(Arc::clone(&taking));
        request.extensions_mut().insert(taking);
        self.service.call(request)
    }
}

impl<F: Future<Output = ()> + Send + 'static> Executor<F> for Streams {
    fn execute(&self, stream: F) {
        let (taking, time_max) = (self.begun.lock().take(), self.time_max);
        tokio::spawn(async move {
            let mut stream = std::pin::pin!(stream);
            let Some(taking) = taking else { return stream.await };
            // Made when it is needed: most answers are taken at once.
            let mut late: Option<Pin<Box<Sleep>>> = None;
            std::future::poll_fn(|cx| {
                if stream.as_mut().poll(cx).is_ready() {
                    return Poll::Ready(());
                }
                let Some(since) = *taking.0.lock() else {
                    late = None;
                    return Poll::Pending;
                };
                let late = late.get_or_insert_with(|| Box::pin(sleep_until(since + time_max)));
                if late.deadline() != since + time_max {
                    late.as_mut().reset(since + time_max);
                }
                // Dropped with its stream, which resets it.
                ready!(late.as_mut().poll(cx));
                tracing::debug!("an answer of which nothing was taken is given up");
                Poll::Ready(())
            })
            .await;
        });
    }
}

/// The body of an answer, piece by piece.
pub(super) struct Taken<B> {
    body: B,
    /// What of its last piece the library was not given.
    rest: Bytes,
    taking: Arc<Taking>,
}

impl<B> Taken<B> {
    pub(super) fn new(body: B, taking: Arc<Taking>) -> Self {
        Self { body, rest: Bytes::new(), taking }
    }
}

impl<B: Body<Data = Bytes> + Unpin> Body for Taken<B> {
    type Data = Bytes;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, Self::Error>>> {
        // The library asks for more when what it had is taken.
        *self.taking.0.lock() = None;
        if self.rest.is_empty() {
            match ready!(Pin::new(&mut self.body).poll_frame(cx)).map(|frame| frame.map(Frame::into_data)) {
                Some(Ok(Ok(data))) => self.rest = data,
                Some(Ok(Err(other))) => return Poll::Ready(Some(Ok(other))),
                Some(Err(error)) => return Poll::Ready(Some(Err(error))),
                None => return Poll::Ready(None),
            }
        }
        let len = self.rest.len().min(PIECE_BYTES);
        // Copied: a part of a page would keep all of it.
        let piece = Bytes::copy_from_slice(&self.rest.split_to(len));
        *self.taking.0.lock() = Some(Instant::now());
        Poll::Ready(Some(Ok(Frame::data(piece))))
    }

    fn is_end_stream(&self) -> bool {
        self.rest.is_empty() && self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        let (mut hint, rest) = (self.body.size_hint(), self.rest.len() as u64);
        if let Some(upper) = hint.upper() {
            hint.set_upper(upper + rest);
        }
        hint.set_lower(hint.lower() + rest);
        hint
    }
}
