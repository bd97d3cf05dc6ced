//! What the HTTP library does on a connection, as its service and its bytes tell.
//!
//! The library answers by itself, with a bare status, what it cannot take for a request, and closes without a
//! word over a head that does not come. [`Watched`] keeps the first back, and hands the stream on when the
//! library is done with it, so that somebody can answer as everything else is answered.

use std::io::{self, IoSlice};
use std::pin::Pin;
use std::sync::Arc;
use std::sync::atomic::{AtomicU32, Ordering};
use std::task::{Context, Poll, ready};

use http::{Response, StatusCode};
use hyper::body::{Body, Frame, SizeHint};
use parking_lot::Mutex;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, ReadBuf};

/// What every connection of HTTP/2 begins with and no method of Weir does.
const HTTP2: [u8; 2] = *b"PR";

/// The exchanges of one connection. The library serves it in one task, so nothing here is contended.
pub(super) struct Exchanges<S> {
    /// Requests that the service was given.
    begun: AtomicU32,
    /// Those of whose answers the library has taken everything.
    ended: AtomicU32,
    left: Mutex<Option<Left<S>>>,
}

/// A stream after the library, on which no answer is under way.
pub(super) struct Left<S> {
    pub(super) stream: S,
    /// The status that the library answered and nobody was told.
    pub(super) refused: Option<u16>,
    /// True if a part of a request's head in HTTP/1 has come.
    pub(super) has_part: bool,
}

impl<S> Exchanges<S> {
    pub(super) fn new() -> Arc<Self> {
        Arc::new(Self { begun: AtomicU32::new(0), ended: AtomicU32::new(0), left: Mutex::new(None) })
    }

    /// Notes a request, once its head has come.
    pub(super) fn begin(&self) {
        self.begun.fetch_add(1, Ordering::Relaxed);
    }

    /// True if there was any request.
    pub(super) fn has_begun(&self) -> bool {
        self.begun.load(Ordering::Relaxed) > 0
    }

    /// The answer to a request. One that switches protocols is under way until the stream ends.
    pub(super) fn answer<B>(self: Arc<Self>, response: Response<B>) -> Response<Answer<B, S>> {
        let ends = response.status() != StatusCode::SWITCHING_PROTOCOLS;
        response.map(|body| Answer { body, ends: ends.then_some(self) })
    }

    /// The stream, if the library is done with it, an answer can be read from it, and it was not upgraded.
    pub(super) fn left(&self) -> Option<Left<S>> {
        self.left.lock().take()
    }
}

/// The body of an answer, whose end is the end of its exchange.
pub(super) struct Answer<B, S> {
    body: B,
    /// None where the exchange goes on behind it.
    ends: Option<Arc<Exchanges<S>>>,
}

impl<B: Body + Unpin, S> Body for Answer<B, S> {
    type Data = B::Data;
    type Error = B::Error;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Self::Data>, Self::Error>>> {
        Pin::new(&mut self.body).poll_frame(cx)
    }

    fn is_end_stream(&self) -> bool {
        self.body.is_end_stream()
    }

    fn size_hint(&self) -> SizeHint {
        self.body.size_hint()
    }
}

impl<B, S> Drop for Answer<B, S> {
    fn drop(&mut self) {
        if let Some(exchanges) = &self.ends {
            exchanges.ended.fetch_add(1, Ordering::Relaxed);
        }
    }
}

/// A connection's stream, as the library has it.
pub(super) struct Watched<S> {
    /// Here until this is dropped.
    stream: Option<S>,
    exchanges: Arc<Exchanges<S>>,
    /// Exchanges of whose answers everything is written: those that had ended when last everything was.
    settled: u32,
    first: First,
    /// True if bytes came since the last exchange settled.
    has_heard: bool,
    refused: Option<u16>,
}

/// The first bytes that came.
#[derive(Default)]
struct First {
    bytes: [u8; 2],
    /// How many have.
    len: usize,
    /// How many of them the library was given.
    given: usize,
}

impl<S> Watched<S> {
    pub(super) fn new(stream: S, exchanges: Arc<Exchanges<S>>) -> Self {
        let first = First::default();
        Self { stream: Some(stream), exchanges, settled: 0, first, has_heard: false, refused: None }
    }

    /// Waits for the bytes that tell HTTP/1 from HTTP/2, or the end. The library is given them again.
    ///
    /// # Cancel safety
    /// Nothing that came is lost.
    pub(super) async fn begin(&mut self) -> io::Result<()>
    where
        S: AsyncRead + Unpin,
    {
        while self.first.len < HTTP2.len() && !self.is_http1() {
            let stream = self.stream.as_mut().ok_or(io::ErrorKind::NotConnected)?;
            match stream.read(&mut self.first.bytes[self.first.len..]).await? {
                0 => break,
                came => self.first.len += came,
            }
            self.has_heard = true;
        }
        Ok(())
    }

    fn stream(&mut self) -> io::Result<Pin<&mut S>>
    where
        S: Unpin,
    {
        self.stream.as_mut().map(Pin::new).ok_or_else(|| io::ErrorKind::NotConnected.into())
    }

    /// True if whatever the library writes now belongs to no request that the service was given: of those
    /// before, the last byte is written.
    fn is_settled(&self) -> bool {
        self.exchanges.begun.load(Ordering::Relaxed) == self.settled
    }

    fn hear(&mut self, bytes: &[u8]) {
        self.has_heard |= !bytes.is_empty();
        let First { bytes: first, len, given } = &mut self.first;
        for (place, byte) in first[*len..].iter_mut().zip(bytes) {
            *place = *byte;
            (*len, *given) = (*len + 1, *given + 1);
        }
    }

    /// True if what came first can be the begin of no connection of HTTP/2.
    pub(super) fn is_http1(&self) -> bool {
        !HTTP2.starts_with(&self.first.bytes[..self.first.len])
    }

    /// True if the library refuses what came, with the answer that begins with `bytes`: nobody shall be told.
    /// Only between exchanges of HTTP/1 a write begins where an answer does: elsewhere it may be the rest of
    /// a frame, and begin with anything that a message holds.
    fn keeps_back(&mut self, bytes: &[u8]) -> bool {
        if self.refused.is_none() && self.is_http1() && self.is_settled() {
            self.refused = refusal(bytes);
        }
        self.refused.is_some()
    }
}

/// The status of an answer that refuses, from its first bytes.
fn refusal(bytes: &[u8]) -> Option<u16> {
    let status = bytes.strip_prefix(b"HTTP/1.")?.get(2..5)?;
    status.starts_with(b"4").then_some(())?;
    str::from_utf8(status).ok()?.parse().ok()
}

impl<S: AsyncRead + Unpin> AsyncRead for Watched<S> {
    fn poll_read(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        buf: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        let First { bytes, len, given } = &mut self.first;
        let again = &bytes[*given..*len];
        let again = &again[..again.len().min(buf.remaining())];
        buf.put_slice(again);
        *given += again.len();
        let (has_some, before) = (!again.is_empty(), buf.filled().len());
        // Together with what follows: after a short read the library takes a larger buffer.
        match self.stream()?.poll_read(cx, buf) {
            Poll::Pending if has_some => return Poll::Ready(Ok(())),
            read => ready!(read)?,
        }
        self.hear(&buf.filled()[before..]);
        Poll::Ready(Ok(()))
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Watched<S> {
    fn poll_write(mut self: Pin<&mut Self>, cx: &mut Context<'_>, buf: &[u8]) -> Poll<io::Result<usize>> {
        if self.keeps_back(buf) {
            return Poll::Ready(Ok(buf.len()));
        }
        self.stream()?.poll_write(cx, buf)
    }

    fn poll_write_vectored(
        mut self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        bufs: &[IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        if self.keeps_back(bufs.first().map_or(&[], |buf| buf)) {
            return Poll::Ready(Ok(bufs.iter().map(|buf| buf.len()).sum()));
        }
        self.stream()?.poll_write_vectored(cx, bufs)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.as_ref().is_some_and(AsyncWrite::is_write_vectored)
    }

    fn poll_flush(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        ready!(self.stream()?.poll_flush(cx))?;
        let ended = self.exchanges.ended.load(Ordering::Relaxed);
        if ended != self.settled {
            (self.settled, self.has_heard) = (ended, false);
        }
        Poll::Ready(Ok(()))
    }

    fn poll_shutdown(mut self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        if self.refused.is_some() {
            return Poll::Ready(Ok(()));
        }
        self.stream()?.poll_shutdown(cx)
    }
}

impl<S> Drop for Watched<S> {
    fn drop(&mut self) {
        let is_left = self.is_http1() && self.is_settled();
        if let Some(stream) = self.stream.take().filter(|_| is_left) {
            let left = Left { stream, refused: self.refused, has_part: self.has_heard };
            *self.exchanges.left.lock() = Some(left);
        }
    }
}

#[cfg(test)]
mod tests {
    use http_body_util::Empty;
    use tokio::io::{AsyncWriteExt as _, DuplexStream};

    use super::*;

    const BARE: &[u8] = b"HTTP/1.1 431 Request Header Fields Too Large\r\ncontent-length: 0\r\n\r\n";

    async fn after(said: &[u8]) -> (Watched<DuplexStream>, DuplexStream, Arc<Exchanges<DuplexStream>>) {
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let exchanges = Exchanges::new();
        let mut watched = Watched::new(server, Arc::clone(&exchanges));
        client.write_all(said).await.unwrap();
        watched.read_exact(&mut vec![0; said.len()]).await.unwrap();
        (watched, client, exchanges)
    }

    #[tokio::test]
    async fn what_tells_the_protocols_apart_is_read_again_with_what_follows() {
        for (said, is_http1) in
            [("", false), ("G", true), ("GET /", true), ("P", false), ("POST /", true), ("PRI * ", false)]
        {
            let (mut client, server) = tokio::io::duplex(1 << 10);
            let mut watched = Watched::new(server, Exchanges::new());
            // The second byte may come by itself.
            let (first, rest) = said.as_bytes().split_at(said.len().min(1));
            let sent = async {
                client.write_all(first).await.unwrap();
                tokio::task::yield_now().await;
                client.write_all(rest).await.unwrap();
                client.shutdown().await.unwrap();
            };
            let (begun, ()) = futures_util::join!(watched.begin(), sent);
            begun.unwrap();
            assert_eq!(watched.is_http1(), is_http1, "{said:?}");
            let mut read = [0; 64];
            let len = watched.read(&mut read).await.unwrap();
            assert_eq!(&read[..len], said.as_bytes(), "at once");
            assert_eq!(watched.read(&mut read).await.unwrap(), 0, "{said:?}");
        }
    }

    #[tokio::test]
    async fn what_came_is_given_while_nothing_follows_and_to_who_has_little_room() {
        let (mut client, server) = tokio::io::duplex(1 << 10);
        let mut watched = Watched::new(server, Exchanges::new());
        client.write_all(b"PO").await.unwrap();
        watched.begin().await.unwrap();
        assert_eq!(watched.read_u8().await.unwrap(), b'P');
        assert_eq!(watched.read_u8().await.unwrap(), b'O');
        client.write_all(b"ST").await.unwrap();
        let mut rest = [0; 2];
        watched.read_exact(&mut rest).await.unwrap();
        assert_eq!(&rest, b"ST");
        drop(watched);
    }

    #[tokio::test]
    async fn a_refusal_of_the_library_is_kept_back_with_the_stream() {
        let (mut watched, mut client, exchanges) = after(b"GARBAGE").await;
        watched.write_all(BARE).await.unwrap();
        watched.flush().await.unwrap();
        watched.shutdown().await.unwrap();
        drop(watched);
        let mut left = exchanges.left().unwrap();
        assert_eq!((left.refused, left.has_part), (Some(431), true));
        left.stream.write_all(b"instead").await.unwrap();
        drop(left);
        let mut told = Vec::new();
        client.read_to_end(&mut told).await.unwrap();
        assert_eq!(told, b"instead");
    }

    #[tokio::test]
    async fn what_an_answer_holds_passes_whatever_it_looks_like() {
        let (mut watched, mut client, exchanges) = after(b"GET").await;
        exchanges.begin();
        let answer = Arc::clone(&exchanges).answer(Response::new(Empty::<&[u8]>::new()));
        watched.write_all(b"head").await.unwrap();
        watched.flush().await.unwrap();
        watched.write_all(BARE).await.unwrap();
        // The library drops a body when it has taken the last of it, which it writes some time after.
        drop(answer);
        watched.write_all(BARE).await.unwrap();
        watched.flush().await.unwrap();
        drop(watched);
        assert!(exchanges.left().is_some_and(|left| left.refused.is_none() && !left.has_part));
        let mut told = Vec::new();
        client.read_to_end(&mut told).await.unwrap();
        assert_eq!(told, [b"head", BARE, BARE].concat());
    }

    #[tokio::test]
    async fn a_single_byte_that_begins_no_request_is_refused_as_more_are() {
        let (mut watched, _client, exchanges) = after(b"{").await;
        watched.write_all(BARE).await.unwrap();
        drop(watched);
        assert_eq!(exchanges.left().and_then(|left| left.refused), Some(431));
    }

    #[tokio::test]
    async fn the_middle_of_what_http2_or_an_upgraded_stream_carries_passes_whatever_it_looks_like() {
        for (said, status) in [("PRI * HTTP/2.0", StatusCode::OK), ("GET", StatusCode::SWITCHING_PROTOCOLS)] {
            let (mut watched, mut client, exchanges) = after(said.as_bytes()).await;
            exchanges.begin();
            let answer = Response::builder().status(status).body(Empty::<&[u8]>::new()).unwrap();
            drop(Arc::clone(&exchanges).answer(answer));
            watched.write_all(b"begun").await.unwrap();
            watched.flush().await.unwrap();
            // Of a frame a part was written: the rest begins wherever that ended.
            watched.write_all(BARE).await.unwrap();
            drop(watched);
            assert!(exchanges.left().is_none(), "{said}");
            let mut told = Vec::new();
            client.read_to_end(&mut told).await.unwrap();
            assert_eq!(told, [b"begun", BARE].concat(), "{said}");
        }
    }

    #[tokio::test]
    async fn a_stream_on_which_an_answer_is_under_way_or_that_is_no_http1_is_not_left() {
        let (watched, _client, exchanges) = after(b"GET").await;
        exchanges.begin();
        drop(watched);
        assert!(exchanges.left().is_none(), "half an answer cannot be followed by another");
        for said in [&b""[..], b"P", b"PRI * HTTP/2.0"] {
            let (watched, _client, exchanges) = after(said).await;
            drop(watched);
            assert!(exchanges.left().is_none(), "{said:?}");
        }
    }
}
