//! A frame: one entry or one fact about a stream.

use super::{crc32c, u32_at, u64_at};
use crate::entry::{EntryKind, LogPosition, StreamId};

/// Bytes of a frame header.
pub const FRAME_HEADER_BYTES: usize = 40;

/// What a frame says about its stream.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub enum FrameKind {
    /// An entry with the flags 0 normal, 1 blank, 2 membership.
    Entry(EntryKind),
    /// The newest vote; the payload is the caller's.
    Vote,
    /// All entries from `index` on are gone.
    Truncate,
    /// All entries up to and including `index` are gone.
    Purge,
    /// The newest commit position.
    Committed,
    /// The newest stream metadata; the payload is the caller's.
    Meta,
    /// File heads only: the stream ends at `index` (exclusive), so that lost files are noticed.
    End,
}

/// Header of a frame.
///
/// | offset | size | meaning |
/// |---|---|---|
/// | 0 | 4 | payload bytes |
/// | 4 | 4 | stream |
/// | 8 | 1 | kind: 1 entry, 2 vote, 3 truncate, 4 purge, 5 committed, 6 meta, 7 end |
/// | 9 | 1 | entry: 0 normal, 1 blank, 2 membership; else 0 |
/// | 10 | 2 | zero |
/// | 12 | 8 | term |
/// | 20 | 8 | leader |
/// | 28 | 8 | index |
/// | 36 | 4 | CRC-32C of the payload |
/// | 40 | .. | payload |
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHeader {
    /// Payload bytes.
    pub len: u32,
    /// The stream.
    pub stream: StreamId,
    /// What it says.
    pub kind: FrameKind,
    /// Term, leader and index; zero where the kind has none.
    pub at: LogPosition,
    /// CRC-32C of the payload.
    pub payload_crc: u32,
}

/// A frame inside a block.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Frame<'a> {
    /// Its header.
    pub header: FrameHeader,
    /// Its payload; the checksum is the reader's to verify unless the block was verified.
    pub payload: &'a [u8],
    /// Offset of the payload from the start of the frames.
    pub payload_at: u32,
}

/// Why bytes are not a frame.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The frame ends after the block.
    #[error("frame ends after its block")]
    Truncated,
    /// A kind or flag that this build does not know.
    #[error("unknown frame kind {0} with flags {1}")]
    Kind(u8, u8),
    /// The payload changed.
    #[error("frame checksum does not match")]
    Checksum,
    /// Nothing can come behind its index, and something always may.
    #[error("frame has the last index that there is")]
    LastIndex,
}

impl FrameHeader {
    /// The header of a frame with `payload`.
    ///
    /// # Panics
    /// If the payload has 4 GiB or more.
    #[must_use]
    pub fn new(stream: StreamId, kind: FrameKind, at: LogPosition, payload: &[u8]) -> Self {
        let len = u32::try_from(payload.len()).expect("a payload is limited to a block");
        Self { len, stream, kind, at, payload_crc: crc32c(payload) }
    }

    /// Appends the header's bytes to `out`.
    pub fn put(&self, out: &mut Vec<u8>) {
        let at = out.len();
        out.resize(at + FRAME_HEADER_BYTES, 0);
        self.write(&mut out[at..]);
    }

    /// Writes the header's bytes into `bytes`, field by field. Put together elsewhere and copied, the copy
    /// reads what was only just written in smaller parts, and waits until everything written before, the last
    /// payload too, has left the processor.
    ///
    /// # Panics
    /// If there are not [`FRAME_HEADER_BYTES`].
    pub fn write(&self, bytes: &mut [u8]) {
        let (kind, flags) = codes(self.kind);
        bytes[0..4].copy_from_slice(&self.len.to_le_bytes());
        bytes[4..8].copy_from_slice(&self.stream.0.to_le_bytes());
        bytes[8..12].copy_from_slice(&[kind, flags, 0, 0]);
        bytes[12..20].copy_from_slice(&self.at.term.to_le_bytes());
        bytes[20..28].copy_from_slice(&self.at.leader.to_le_bytes());
        bytes[28..36].copy_from_slice(&self.at.index.to_le_bytes());
        bytes[36..FRAME_HEADER_BYTES].copy_from_slice(&self.payload_crc.to_le_bytes());
    }

    /// Reads a header from the first bytes of `bytes`.
    ///
    /// # Errors
    /// If it is cut short, of an unknown kind, or of an entry or a purge behind which no index is left: a
    /// stream goes on there.
    pub fn parse(bytes: &[u8]) -> Result<Self, FrameError> {
        if bytes.len() < FRAME_HEADER_BYTES {
            return Err(FrameError::Truncated);
        }
        let header = Self {
            len: u32_at(bytes, 0),
            stream: StreamId(u32_at(bytes, 4)),
            kind: kind_of(bytes[8], bytes[9])?,
            at: LogPosition { term: u64_at(bytes, 12), leader: u64_at(bytes, 20), index: u64_at(bytes, 28) },
            payload_crc: u32_at(bytes, 36),
        };
        match header.kind {
            FrameKind::Entry(_) | FrameKind::Purge if header.at.index == u64::MAX => {
                Err(FrameError::LastIndex)
            }
            _ => Ok(header),
        }
    }

    /// Header and payload.
    #[must_use]
    pub fn frame_len(&self) -> usize {
        FRAME_HEADER_BYTES + self.len as usize
    }

    /// Checks the payload.
    ///
    /// # Errors
    /// [`FrameError::Checksum`].
    pub fn verify(&self, payload: &[u8]) -> Result<(), FrameError> {
        if payload.len() == self.len as usize && crc32c(payload) == self.payload_crc {
            Ok(())
        } else {
            Err(FrameError::Checksum)
        }
    }
}

/// Bytes and checksum of a frame's payload, whatever kind it is of.
///
/// # Panics
/// If `header` is shorter than [`FRAME_HEADER_BYTES`].
pub(super) fn len_and_checksum(header: &[u8]) -> (usize, u32) {
    (u32_at(header, 0) as usize, u32_at(header, 36))
}

fn codes(kind: FrameKind) -> (u8, u8) {
    match kind {
        FrameKind::Entry(EntryKind::Normal) => (1, 0),
        FrameKind::Entry(EntryKind::Blank) => (1, 1),
        FrameKind::Entry(EntryKind::Membership) => (1, 2),
        FrameKind::Vote => (2, 0),
        FrameKind::Truncate => (3, 0),
        FrameKind::Purge => (4, 0),
        FrameKind::Committed => (5, 0),
        FrameKind::Meta => (6, 0),
        FrameKind::End => (7, 0),
    }
}

fn kind_of(kind: u8, flags: u8) -> Result<FrameKind, FrameError> {
    Ok(match (kind, flags) {
        (1, 0) => FrameKind::Entry(EntryKind::Normal),
        (1, 1) => FrameKind::Entry(EntryKind::Blank),
        (1, 2) => FrameKind::Entry(EntryKind::Membership),
        (2, 0) => FrameKind::Vote,
        (3, 0) => FrameKind::Truncate,
        (4, 0) => FrameKind::Purge,
        (5, 0) => FrameKind::Committed,
        (6, 0) => FrameKind::Meta,
        (7, 0) => FrameKind::End,
        (kind, flags) => return Err(FrameError::Kind(kind, flags)),
    })
}

/// The frames of a block, in order. Ends after the first error.
#[derive(Debug, Clone)]
pub struct Frames<'a> {
    body: &'a [u8],
    at: usize,
}

impl<'a> Frames<'a> {
    /// The frames in `body`: the bytes between a block's header and its padding.
    #[must_use]
    pub fn new(body: &'a [u8]) -> Self {
        Self { body, at: 0 }
    }
}

impl<'a> Iterator for Frames<'a> {
    type Item = Result<Frame<'a>, FrameError>;

    fn next(&mut self) -> Option<Self::Item> {
        let rest = self.body.get(self.at..).filter(|rest| !rest.is_empty())?;
        let parsed = FrameHeader::parse(rest).and_then(|header| {
            let payload = rest.get(FRAME_HEADER_BYTES..header.frame_len()).ok_or(FrameError::Truncated)?;
            let at = u32::try_from(self.at + FRAME_HEADER_BYTES).map_err(|_| FrameError::Truncated)?;
            Ok(Frame { header, payload, payload_at: at })
        });
        self.at = match &parsed {
            Ok(frame) => self.at + frame.header.frame_len(),
            Err(_) => self.body.len(),
        };
        Some(parsed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_entry_or_a_purge_of_the_last_index_is_no_frame() {
        let parsed = |kind, index| {
            let mut bytes = Vec::new();
            FrameHeader::new(StreamId(1), kind, LogPosition { term: 1, leader: 1, index }, b"")
                .put(&mut bytes);
            FrameHeader::parse(&bytes).map(|header| header.at.index)
        };
        for kind in [FrameKind::Entry(EntryKind::Normal), FrameKind::Purge] {
            assert_eq!(parsed(kind, u64::MAX), Err(FrameError::LastIndex));
            assert_eq!(parsed(kind, u64::MAX - 1), Ok(u64::MAX - 1));
        }
        assert_eq!(parsed(FrameKind::Truncate, u64::MAX), Ok(u64::MAX));
    }
}
