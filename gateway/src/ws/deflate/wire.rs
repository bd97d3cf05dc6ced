//! The connection under the WebSocket library.

use std::io;
use std::pin::Pin;
use std::sync::Arc;
use std::task::{Context, Poll, ready};

use tokio::io::{AsyncRead, AsyncWrite, ReadBuf};
use tokio::task::coop;

use super::frames::Frames;
use super::inflate::{CAME_BYTES, Inflating};
use super::shared::Deflate;

/// Bytes of the client that are one of the 128 steps of a task's turn: it ends with 4 KiB, which inflate in
/// 0.4 ms at worst.
const TAKEN_BYTES: usize = 32;
/// Inflated bytes that are one, besides: with 128 KiB of them it ends, too.
const MADE_BYTES: usize = 1 << 10;

/// Which rule a client broke with a deflated message; travels through the library as the source of an I/O error.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub(crate) enum Broken {
    /// A frame is not masked.
    #[error("a frame of a deflated message is not masked")]
    Frames,
    /// It is not deflated, or goes on after its end.
    #[error("a message is not deflated as RFC 7692 says")]
    Deflate,
    /// A message is larger than allowed, as it came or inflated.
    #[error("a deflated message is too large")]
    Size,
}

impl Broken {
    /// What is behind an error of [`Wire`], if it is the client's doing.
    pub(crate) fn of(error: &io::Error) -> Option<Self> {
        error.get_ref()?.downcast_ref().copied()
    }
}

/// A connection whose deflated messages are read as plain ones, if that was agreed; else it is as it was.
/// What is written goes out as it is.
pub(crate) struct Wire<S> {
    stream: S,
    /// Boxed: sockets without it have no room for it.
    receiving: Option<Box<Receiving>>,
}

/// Where a connection is in what its client sends. Between messages it holds no more than this.
struct Receiving {
    shared: Arc<Deflate>,
    frames: Frames,
    /// While a deflated message is in the middle.
    inflating: Option<Box<Inflating>>,
    /// What the client did behind what was read last.
    broken: Option<Broken>,
}

const _: () = assert!(size_of::<Receiving>() <= 64, "each idle socket that agreed has one");

impl<S> Wire<S> {
    /// Over a connection that has just become a WebSocket; `deflate` if it was agreed.
    pub(crate) fn new(stream: S, deflate: Option<Arc<Deflate>>) -> Self {
        let receiving = deflate.map(|shared| {
            Box::new(Receiving { shared, frames: Frames::default(), inflating: None, broken: None })
        });
        Self { stream, receiving }
    }

    /// What messages may be deflated with; `None` if that was not agreed, or the client broke a rule.
    pub(crate) fn deflate(&self) -> Option<Arc<Deflate>> {
        self.receiving.as_ref().map(|receiving| Arc::clone(&receiving.shared))
    }

    /// The connection itself, for what are no frames any more.
    pub(crate) fn stream_mut(&mut self) -> &mut S {
        &mut self.stream
    }
}

impl Receiving {
    fn poll_read(
        &mut self,
        stream: &mut (impl AsyncRead + Unpin),
        cx: &mut Context<'_>,
        to: &mut ReadBuf<'_>,
    ) -> Poll<io::Result<()>> {
        if let Some(broken) = self.broken {
            return Poll::Ready(Err(io::Error::other(broken)));
        }
        let before = to.filled().len();
        loop {
            let Some(inflating) = &mut self.inflating else {
                ready!(Pin::new(&mut *stream).poll_read(cx, to))?;
                let came = &mut to.filled_mut()[before..];
                let passed = self.frames.passed(came);
                if passed == came.len() {
                    return Poll::Ready(Ok(()));
                }
                let mut inflating = self.shared.inflating();
                inflating.came().extend_from_slice(&came[passed..]);
                self.inflating = Some(inflating);
                to.set_filled(before + passed);
                if passed > 0 {
                    return Poll::Ready(Ok(()));
                }
                continue;
            };
            let turn = ready!(coop::poll_proceed(cx));
            let came = inflating.left();
            let given = inflating.give(&mut self.frames, to, self.shared.counts());
            turn.made_progress();
            let given_bytes = to.filled().len() - before;
            spend(came - inflating.left(), given_bytes, cx);
            let wants_more = given_bytes == 0;
            if let Err(broken) = given {
                // The library drops what is read with an error, and it was whole messages perhaps.
                self.broken = Some(broken);
                return Poll::Ready(if wants_more { Err(io::Error::other(broken)) } else { Ok(()) });
            }
            if inflating.is_idle() {
                self.rest();
            } else if wants_more && ready!(poll_fill(inflating.came(), stream, cx))? == 0 {
                return Poll::Ready(Ok(()));
            }
            if !wants_more {
                return Poll::Ready(Ok(()));
            }
        }
    }

    /// No deflated message is in the middle any more.
    fn rest(&mut self) {
        if let Some(inflating) = self.inflating.take() {
            self.shared.inflated(inflating);
        }
    }
}

impl Drop for Receiving {
    fn drop(&mut self) {
        self.rest();
    }
}

/// Takes from what the task may do in its turn. A few bytes may become many, or nothing at great cost, and
/// either way the client may have more of them.
fn spend(taken: usize, made: usize, cx: &mut Context<'_>) {
    for _ in 0..taken.div_ceil(TAKEN_BYTES) + made / MADE_BYTES {
        // There is nothing to give way in the middle of: the next read does.
        if !coop::has_budget_remaining() {
            return;
        }
        let Poll::Ready(turn) = coop::poll_proceed(cx) else { return };
        turn.made_progress();
    }
}

/// Reads into an empty buffer: how many bytes, none at the end.
fn poll_fill(
    came: &mut Vec<u8>,
    stream: &mut (impl AsyncRead + Unpin),
    cx: &mut Context<'_>,
) -> Poll<io::Result<usize>> {
    came.resize(CAME_BYTES, 0);
    let mut buffer = ReadBuf::new(came);
    let read = Pin::new(stream).poll_read(cx, &mut buffer);
    let filled = buffer.filled().len();
    came.truncate(filled);
    read.map_ok(|()| filled)
}

impl<S: AsyncRead + Unpin> AsyncRead for Wire<S> {
    fn poll_read(self: Pin<&mut Self>, cx: &mut Context<'_>, to: &mut ReadBuf<'_>) -> Poll<io::Result<()>> {
        let Self { stream, receiving } = self.get_mut();
        let Some(now) = receiving else { return Pin::new(stream).poll_read(cx, to) };
        let read = now.poll_read(stream, cx, to);
        if let Poll::Ready(Err(_)) = read {
            // What follows cannot be told apart any more.
            *receiving = None;
        }
        read
    }
}

impl<S: AsyncWrite + Unpin> AsyncWrite for Wire<S> {
    fn poll_write(self: Pin<&mut Self>, cx: &mut Context<'_>, bytes: &[u8]) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write(cx, bytes)
    }

    fn poll_write_vectored(
        self: Pin<&mut Self>,
        cx: &mut Context<'_>,
        slices: &[io::IoSlice<'_>],
    ) -> Poll<io::Result<usize>> {
        Pin::new(&mut self.get_mut().stream).poll_write_vectored(cx, slices)
    }

    fn is_write_vectored(&self) -> bool {
        self.stream.is_write_vectored()
    }

    fn poll_flush(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_flush(cx)
    }

    fn poll_shutdown(self: Pin<&mut Self>, cx: &mut Context<'_>) -> Poll<io::Result<()>> {
        Pin::new(&mut self.get_mut().stream).poll_shutdown(cx)
    }
}
