//! Why a frame was refused.

use super::{CloseCode, FrameType};
use crate::batch::BatchError;
use crate::limits::WS_MESSAGE_BYTES_MAX;

/// Why bytes or text are not a frame. The connection is closed with [`WsError::close_code`]; frames before it in
/// the same message have taken effect.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum WsError {
    /// A message longer than any may be.
    #[error("message of {0} bytes exceeds {max}", max = WS_MESSAGE_BYTES_MAX)]
    TooLarge(usize),
    /// A frame shorter than its header or its length field says.
    #[error("frame is cut short: {have} of {want} bytes")]
    Truncated {
        /// Bytes there are.
        have: usize,
        /// Bytes there should be.
        want: usize,
    },
    /// A type number of no frame.
    #[error("unknown frame type {0}")]
    UnknownType(u8),
    /// A `t` of no frame; at most its first 32 characters.
    #[error("unknown frame {0:?}")]
    UnknownName(String),
    /// A frame that only the other side sends, or that this form of the protocol does not have.
    #[error("a {frame} frame does not belong here", frame = .0.as_str())]
    Misplaced(FrameType),
    /// A flag the frame does not have.
    #[error("unknown flags {flags:#04x} of a {frame} frame", frame = .frame.as_str())]
    Flags {
        /// The frame.
        frame: FrameType,
        /// Its flags.
        flags: u8,
    },
    /// A channel frame without a channel, or a connection frame with one.
    #[error("a {frame} frame does not go with channel {ch}", frame = .frame.as_str())]
    Channel {
        /// The frame.
        frame: FrameType,
        /// The channel given, 0 for none.
        ch: u16,
    },
    /// A line that is no JSON object with a `t`.
    #[error("not a frame: {0}")]
    Object(String),
    /// A frame whose fields are wrong: unknown, missing, twice, of another type.
    #[error("{frame} frame: {detail}", frame = .frame.as_str())]
    Fields {
        /// The frame.
        frame: FrameType,
        /// Where a value is not what is wanted there, as `limit.msgs` or `n[0]`.
        place: Option<String>,
        /// Which field, and what is wrong with it.
        detail: String,
    },
    /// A binary body that is not laid out as its frame's table says.
    #[error("body of a {frame} frame is malformed", frame = .0.as_str())]
    Body(FrameType),
    /// A body that should be a record batch.
    #[error("{frame} frame: {error}", frame = .frame.as_str())]
    Batch {
        /// The frame.
        frame: FrameType,
        /// What is wrong with the batch.
        error: BatchError,
    },
    /// A `hello` of another version.
    #[error("version {0} is not spoken here")]
    Version(u32),
}

impl WsError {
    /// The code to close the connection with.
    #[must_use]
    pub const fn close_code(&self) -> CloseCode {
        match self {
            Self::Version(_) => CloseCode::UnsupportedVersion,
            _ => CloseCode::BadFrame,
        }
    }
}
