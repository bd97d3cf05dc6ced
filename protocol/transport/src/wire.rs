//! What carries frames: a byte stream, or in one process the other side's queue.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;
use tokio::sync::oneshot;

use crate::metrics::{self, Metrics};
use crate::outbox::{FrameWriter, Taker};
use crate::splitter::{Frame, SplitError, Splitter};

/// Bytes of a handshake in memory that are under way in one direction at most.
const HANDSHAKE_BYTES_MAX: usize = 16 << 10;

/// Two halves of a byte stream, which are used by two tasks.
pub struct Wire {
    pub(crate) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
    pub(crate) crossing: Option<Crossing>,
}

/// How the two sides of a process get at each other's frames once they have shaken hands.
pub(crate) struct Crossing {
    ours: oneshot::Sender<Taker>,
    theirs: oneshot::Receiver<Taker>,
}

/// What follows a handshake over `reader` and `writer`.
pub(crate) fn after_handshake(
    crossing: Option<Crossing>,
    reader: &mut FrameReader,
    writer: Box<dyn AsyncWrite + Send + Unpin>,
) -> FrameWriter {
    let Some(Crossing { ours, theirs }) = crossing else { return FrameWriter::Bytes(writer) };
    reader.source = Source::Awaited(theirs);
    FrameWriter::Shared(ours)
}

impl fmt::Debug for Wire {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Wire")
    }
}

impl Wire {
    /// Any stream: TLS, in memory. Its halves share a lock.
    pub fn new(stream: impl AsyncRead + AsyncWrite + Send + 'static) -> Self {
        let (reader, writer) = tokio::io::split(stream);
        Self { reader: Box::new(reader), writer: Box::new(writer), crossing: None }
    }

    /// The two ends of a wire within this process: bytes for the handshake, and after it frames as they are.
    pub(crate) fn in_process() -> (Self, Self) {
        let (here, there) = tokio::io::duplex(HANDSHAKE_BYTES_MAX);
        let (ours, to_there) = oneshot::channel();
        let (theirs, to_here) = oneshot::channel();
        let end =
            |stream, ours, theirs| Self { crossing: Some(Crossing { ours, theirs }), ..Self::new(stream) };
        (end(here, ours, to_here), end(there, theirs, to_there))
    }

    /// A TCP stream, whose halves share nothing.
    #[must_use]
    pub fn tcp(stream: TcpStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self { reader: Box::new(reader), writer: Box::new(writer), crossing: None }
    }
}

/// Why no further frame comes.
#[derive(Debug, thiserror::Error)]
pub enum ReadError {
    /// The stream failed.
    #[error("reading failed")]
    Io(#[from] io::Error),
    /// The peer sent something that is not a frame.
    #[error(transparent)]
    Split(#[from] SplitError),
    /// The peer closed the stream inside a frame.
    #[error("closed within a frame")]
    Truncated,
    /// The peer closed the stream after a whole frame.
    #[error("closed by the peer")]
    Closed,
}

/// Reads frames from one half of a stream, or takes those of the other side of a process.
pub(crate) struct FrameReader {
    source: Source,
    metrics: Arc<Metrics>,
    received_bytes: u64,
}

enum Source {
    Bytes {
        stream: Box<dyn AsyncRead + Send + Unpin>,
        splitter: Splitter,
    },
    /// The other side has not finished its handshake.
    Awaited(oneshot::Receiver<Taker>),
    Frames(Taker),
}

impl FrameReader {
    /// A reader that accepts bodies up to `body_bytes_max` until [`FrameReader::lift_limit`].
    pub(crate) fn new(
        stream: Box<dyn AsyncRead + Send + Unpin>,
        body_bytes_max: usize,
        metrics: Arc<Metrics>,
    ) -> Self {
        let source = Source::Bytes { stream, splitter: Splitter::new(body_bytes_max) };
        Self { source, metrics, received_bytes: 0 }
    }

    /// See [`Splitter::lift_limit`].
    pub(crate) fn lift_limit(&mut self) {
        if let Source::Bytes { splitter, .. } = &mut self.source {
            splitter.lift_limit();
        }
    }

    /// Bytes received so far.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// The next frame among those that were read.
    ///
    /// # Errors
    /// [`SplitError`]: close the connection.
    pub(crate) fn take(&mut self) -> Result<Option<Frame>, SplitError> {
        let frame = match &mut self.source {
            Source::Bytes { splitter, .. } => splitter.take()?,
            Source::Awaited(_) => None,
            Source::Frames(taker) => taker.take().map(|(frame, bytes)| {
                self.received_bytes += bytes as u64;
                metrics::add(&self.metrics.bytes_in, bytes);
                frame
            }),
        };
        if frame.is_some() {
            metrics::add(&self.metrics.frames_in, 1);
        }
        Ok(frame)
    }

    /// Reads once; frames may be there to [`FrameReader::take`] afterwards.
    ///
    /// # Errors
    /// [`ReadError`] at the end of the stream, whatever its reason.
    ///
    /// # Cancel safety
    /// Nothing is lost: bytes are either in the stream or in the buffer.
    pub(crate) async fn fill(&mut self) -> Result<(), ReadError> {
        match &mut self.source {
            Source::Bytes { stream, splitter } => {
                let (buffer, room) = splitter.room();
                let read = stream.read_buf(&mut buffer.limit(room)).await?;
                if read == 0 {
                    let whole = splitter.is_at_boundary();
                    return Err(if whole { ReadError::Closed } else { ReadError::Truncated });
                }
                self.received_bytes += read as u64;
                metrics::add(&self.metrics.bytes_in, read);
                Ok(())
            }
            Source::Awaited(theirs) => {
                self.source = Source::Frames(theirs.await.map_err(|_| ReadError::Closed)?);
                Ok(())
            }
            Source::Frames(taker) => {
                // A queue that is never empty must not keep the thread.
                tokio::task::coop::consume_budget().await;
                if taker.fill().await { Ok(()) } else { Err(ReadError::Closed) }
            }
        }
    }

    /// Waits for the next frame.
    ///
    /// # Errors
    /// [`ReadError`].
    ///
    /// # Cancel safety
    /// As [`FrameReader::fill`].
    pub(crate) async fn next(&mut self) -> Result<Frame, ReadError> {
        loop {
            if let Some(frame) = self.take()? {
                return Ok(frame);
            }
            self.fill().await?;
        }
    }
}
