//! The frame between gateway and storage node, and between storage nodes.
//!
//! | offset | size | field  | meaning (little-endian) |
//! |-------:|-----:|--------|-------------------------|
//! | 0      | 4    | len    | bytes of the body, at most [`BODY_BYTES_MAX`] |
//! | 4      | 1    | kind   | [`FrameKind`] |
//! | 5      | 1    | flags  | [`FLAG_END`], [`FLAG_REFUSED`] |
//! | 6      | 2    | method | [`crate::rpc::Method`] of a request; 0 elsewhere |
//! | 8      | 4    | shard  | shard the request is for; 0 in answers |
//! | 12     | 8    | call   | correlation: chosen by the caller, echoed in every answer |
//! | 20     | 4    | crc32c | of bytes 0..20 and the body |
//! | 24     | len  | body   | a [`crate::rpc`] message |
//!
//! A call is one `Request`, any number of `Answer`s of which the last has [`FLAG_END`], and, for streaming
//! methods, `Credit` frames from the caller (body: [`crate::rpc::RaiseCredit`], absolute totals) and at most one
//! `Cancel`. A refused call is answered by one frame with [`FLAG_REFUSED`] and [`FLAG_END`] whose body is an
//! [`crate::rpc::Refusal`]. The first frames of a connection are `Hello` and `Welcome`; `Ping`/`Pong` keep it alive.

use bytes::Bytes;

use crate::checksum::Crc32c;
use crate::limits::NODE_FRAME_BYTES_MAX;

/// Bytes of a frame header.
pub const HEADER_BYTES: usize = 24;
/// Largest body.
pub const BODY_BYTES_MAX: usize = NODE_FRAME_BYTES_MAX - HEADER_BYTES;
/// The last frame of a call in this direction.
pub const FLAG_END: u8 = 1;
/// The body is a [`crate::rpc::Refusal`].
pub const FLAG_REFUSED: u8 = 2;

/// What a frame is for.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
#[repr(u8)]
pub enum FrameKind {
    /// First frame of the side that connected: [`crate::rpc::Hello`].
    Hello = 1,
    /// Its answer: [`crate::rpc::Welcome`], or refused.
    Welcome = 2,
    /// Starts a call.
    Request = 3,
    /// Answers a call.
    Answer = 4,
    /// Raises a streaming call's limit.
    Credit = 5,
    /// Ends a call from the caller's side; answers already on their way are ignored.
    Cancel = 6,
    /// Asks for a sign of life; empty body.
    Ping = 7,
    /// The sign of life; empty body.
    Pong = 8,
}

impl FrameKind {
    const fn from_byte(byte: u8) -> Option<Self> {
        Some(match byte {
            1 => Self::Hello,
            2 => Self::Welcome,
            3 => Self::Request,
            4 => Self::Answer,
            5 => Self::Credit,
            6 => Self::Cancel,
            7 => Self::Ping,
            8 => Self::Pong,
            _ => return None,
        })
    }
}

/// A frame header without the parts that follow from the body.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct FrameHead {
    /// What the frame is for.
    pub kind: FrameKind,
    /// [`FLAG_END`] and [`FLAG_REFUSED`]; other bits are zero.
    pub flags: u8,
    /// Method number of a request.
    pub method: u16,
    /// Shard of a request.
    pub shard: u32,
    /// Correlation.
    pub call: u64,
}

/// A header read from the wire: what it says of itself and of the body still to come.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ReadHead {
    /// The header.
    pub head: FrameHead,
    /// Bytes of the body to read; at most [`BODY_BYTES_MAX`].
    pub body_bytes: usize,
    first: [u8; 20],
    crc: u32,
}

/// Why bytes are not a frame. The connection that sent them is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum FrameError {
    /// The length field exceeds the limit; nothing was buffered.
    #[error("frame body of {0} bytes exceeds {max}", max = BODY_BYTES_MAX)]
    TooLarge(usize),
    /// Unknown kind or flag.
    #[error("unknown frame kind {kind} or flags {flags:#04x}")]
    Unknown {
        /// The kind byte.
        kind: u8,
        /// The flags byte.
        flags: u8,
    },
    /// The checksum does not match.
    #[error("frame checksum is {computed:#010x}, its header says {stored:#010x}")]
    Checksum {
        /// What the header says.
        stored: u32,
        /// What the bytes give.
        computed: u32,
    },
}

impl FrameHead {
    /// The 24 bytes that precede the body on the wire. The body is given in segments, so that record batches
    /// are written from where they lie.
    ///
    /// # Panics
    /// If the body exceeds [`BODY_BYTES_MAX`]: builders check before they build.
    #[must_use]
    pub fn encode(&self, body: &[Bytes]) -> [u8; HEADER_BYTES] {
        let body_bytes: usize = body.iter().map(Bytes::len).sum();
        assert!(body_bytes <= BODY_BYTES_MAX, "frame body of {body_bytes} bytes exceeds {BODY_BYTES_MAX}");
        let mut bytes = [0; HEADER_BYTES];
        #[expect(clippy::cast_possible_truncation, reason = "asserted above")]
        bytes[0..4].copy_from_slice(&(body_bytes as u32).to_le_bytes());
        bytes[4] = self.kind as u8;
        bytes[5] = self.flags;
        bytes[6..8].copy_from_slice(&self.method.to_le_bytes());
        bytes[8..12].copy_from_slice(&self.shard.to_le_bytes());
        bytes[12..20].copy_from_slice(&self.call.to_le_bytes());
        let mut crc = Crc32c::new();
        crc.update(&bytes[..20]);
        body.iter().for_each(|segment| crc.update(segment));
        let crc = crc.finish();
        bytes[20..24].copy_from_slice(&crc.to_le_bytes());
        bytes
    }

    /// Reads a header, checking what can be checked before the body is buffered.
    ///
    /// # Errors
    /// [`FrameError::TooLarge`] and [`FrameError::Unknown`]; close the connection.
    pub fn decode(bytes: &[u8; HEADER_BYTES]) -> Result<ReadHead, FrameError> {
        let body_bytes = u32::from_le_bytes([bytes[0], bytes[1], bytes[2], bytes[3]]) as usize;
        if body_bytes > BODY_BYTES_MAX {
            return Err(FrameError::TooLarge(body_bytes));
        }
        let (kind, flags) = (bytes[4], bytes[5]);
        let known = FrameKind::from_byte(kind).filter(|_| flags & !(FLAG_END | FLAG_REFUSED) == 0);
        let Some(known) = known else { return Err(FrameError::Unknown { kind, flags }) };
        let mut first = [0; 20];
        first.copy_from_slice(&bytes[..20]);
        let mut call = [0; 8];
        call.copy_from_slice(&bytes[12..20]);
        let head = FrameHead {
            kind: known,
            flags,
            method: u16::from_le_bytes([bytes[6], bytes[7]]),
            shard: u32::from_le_bytes([bytes[8], bytes[9], bytes[10], bytes[11]]),
            call: u64::from_le_bytes(call),
        };
        let crc = u32::from_le_bytes([bytes[20], bytes[21], bytes[22], bytes[23]]);
        Ok(ReadHead { head, body_bytes, first, crc })
    }
}

impl ReadHead {
    /// Checks the body that followed.
    ///
    /// # Errors
    /// [`FrameError::Checksum`]; close the connection.
    pub fn verify(&self, body: &[u8]) -> Result<(), FrameError> {
        let mut crc = Crc32c::new();
        crc.update(&self.first);
        crc.update(body);
        let computed = crc.finish();
        if computed == self.crc { Ok(()) } else { Err(FrameError::Checksum { stored: self.crc, computed }) }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn sample() -> FrameHead {
        FrameHead {
            kind: FrameKind::Request,
            flags: FLAG_END,
            method: 7,
            shard: 3,
            call: 0x0102_0304_0506_0708,
        }
    }

    #[test]
    fn layout_is_pinned() {
        let bytes = sample().encode(&[Bytes::from_static(b"bo"), Bytes::from_static(b"dy")]);
        assert_eq!(bytes[..20], [4, 0, 0, 0, 3, 1, 7, 0, 3, 0, 0, 0, 8, 7, 6, 5, 4, 3, 2, 1]);
    }

    #[test]
    fn an_oversize_length_is_refused_before_its_body_is_buffered() {
        let mut bytes = sample().encode(&[]);
        bytes[0..4].copy_from_slice(&u32::MAX.to_le_bytes());
        assert_eq!(FrameHead::decode(&bytes), Err(FrameError::TooLarge(u32::MAX as usize)));
    }

    proptest! {
        #[test]
        fn a_frame_round_trips_and_any_flipped_bit_is_noticed(
            body in proptest::collection::vec(any::<u8>(), 0..64), bit in 0usize..(24 + 64) * 8,
        ) {
            let header = sample().encode(&[Bytes::from(body.clone())]);
            let read = FrameHead::decode(&header).unwrap();
            prop_assert_eq!(read.head, sample());
            prop_assert_eq!(read.verify(&body), Ok(()));

            let (mut header, mut body) = (header, body);
            let at = bit / 8 % (24 + body.len());
            if at < 24 { header[at] ^= 1 << (bit % 8) } else { body[at - 24] ^= 1 << (bit % 8) }
            let noticed = match FrameHead::decode(&header) {
                Err(_) => true,
                Ok(read) => read.body_bytes != body.len() || read.verify(&body).is_err(),
            };
            prop_assert!(noticed);
        }
    }
}
