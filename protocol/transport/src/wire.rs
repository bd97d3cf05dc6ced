//! The byte stream under a connection, and reading frames from it.

use std::fmt;
use std::io;
use std::sync::Arc;

use bytes::BufMut;
use tokio::io::{AsyncRead, AsyncReadExt, AsyncWrite};
use tokio::net::TcpStream;

use crate::metrics::{self, Metrics};
use crate::splitter::{Frame, SplitError, Splitter};

/// Two halves of a byte stream, which are used by two tasks.
pub struct Wire {
    pub(crate) reader: Box<dyn AsyncRead + Send + Unpin>,
    pub(crate) writer: Box<dyn AsyncWrite + Send + Unpin>,
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
        Self { reader: Box::new(reader), writer: Box::new(writer) }
    }

    /// A TCP stream, whose halves share nothing.
    #[must_use]
    pub fn tcp(stream: TcpStream) -> Self {
        let (reader, writer) = stream.into_split();
        Self { reader: Box::new(reader), writer: Box::new(writer) }
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

/// Reads frames from one half of a stream.
pub(crate) struct FrameReader {
    stream: Box<dyn AsyncRead + Send + Unpin>,
    splitter: Splitter,
    metrics: Arc<Metrics>,
    received_bytes: u64,
}

impl FrameReader {
    /// A reader that accepts bodies up to `body_bytes_max` until [`FrameReader::lift_limit`].
    pub(crate) fn new(
        stream: Box<dyn AsyncRead + Send + Unpin>,
        body_bytes_max: usize,
        metrics: Arc<Metrics>,
    ) -> Self {
        Self { stream, splitter: Splitter::new(body_bytes_max), metrics, received_bytes: 0 }
    }

    /// See [`Splitter::lift_limit`].
    pub(crate) fn lift_limit(&mut self) {
        self.splitter.lift_limit();
    }

    /// Bytes received so far.
    pub(crate) fn received_bytes(&self) -> u64 {
        self.received_bytes
    }

    /// The next frame among the bytes that were read.
    ///
    /// # Errors
    /// [`SplitError`]: close the connection.
    pub(crate) fn take(&mut self) -> Result<Option<Frame>, SplitError> {
        let frame = self.splitter.take()?;
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
        let (buffer, room) = self.splitter.room();
        let read = self.stream.read_buf(&mut buffer.limit(room)).await?;
        if read == 0 {
            let whole = self.splitter.is_at_boundary();
            return Err(if whole { ReadError::Closed } else { ReadError::Truncated });
        }
        self.received_bytes += read as u64;
        metrics::add(&self.metrics.bytes_in, read);
        Ok(())
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
