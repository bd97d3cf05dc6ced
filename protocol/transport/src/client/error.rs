//! What can go wrong with a call.

use std::sync::Arc;
use std::time::Duration;

use weir_protocol::rpc::Refusal;

use crate::handshake::HandshakeError;

/// Why a call has no answer.
#[derive(Debug, Clone, thiserror::Error)]
pub enum CallError {
    /// The peer refused it; the refusal says whether it had an effect.
    #[error("refused: {}", .0.detail)]
    Refused(Refusal),
    /// Not a byte of it was sent: provably no effect, retry it anywhere.
    #[error("not sent")]
    NotSent(#[from] NotSent),
    /// It was sent, at least in part, and the connection ended before its last answer: the outcome is unknown.
    #[error("the connection ended before the answer")]
    Unknown,
    /// It was sent and not answered within its deadline; the peer was told to stop. The outcome is unknown.
    #[error("not answered within its deadline")]
    Deadline,
}

impl CallError {
    /// It was sent and nobody said what became of it: it may have taken effect, even after this.
    #[must_use]
    pub fn is_unanswered(&self) -> bool {
        matches!(self, Self::Unknown | Self::Deadline)
    }
}

/// Why a call was not sent.
#[derive(Debug, Clone, thiserror::Error)]
pub enum NotSent {
    /// No connection, for this reason.
    #[error("not connected: {0}")]
    Down(Arc<ConnectError>),
    /// No connection came to be within the call's deadline.
    #[error("not connected yet")]
    Connecting,
    /// The connection ended while the call was queued.
    #[error("the connection ended before it was sent")]
    Ended,
    /// As many calls or bytes as allowed are in flight to this peer.
    #[error("too much is in flight to this peer")]
    Full,
    /// Larger than a frame.
    #[error("{0} bytes do not fit a frame")]
    TooLarge(usize),
}

/// Why there is no connection.
#[derive(Debug, thiserror::Error)]
pub enum ConnectError {
    /// The stream could not be opened.
    #[error("connecting failed: {0}")]
    Io(#[source] std::io::Error),
    /// The stream was not open in time.
    #[error("not connected within {0:?}")]
    Timeout(Duration),
    /// The peer did not welcome this side.
    #[error("handshake failed: {0}")]
    Handshake(#[source] HandshakeError),
    /// There was a connection, which ended.
    #[error("the connection ended: {0}")]
    Ended(String),
}
