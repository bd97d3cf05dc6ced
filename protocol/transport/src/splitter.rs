//! Bytes to frames, without I/O.

use bytes::BytesMut;
use weir_protocol::frame::{BODY_BYTES_MAX, FrameError, FrameHead, HEADER_BYTES, ReadHead};
use weir_protocol::rpc::Body;

/// Room made for a read, in bytes: large enough that one read takes what a busy socket has.
const READ_BYTES: usize = 256 * 1024;
/// A read is not worth its syscall with less room than this, in bytes.
const READ_BYTES_MIN: usize = 16 * 1024;

/// A whole frame whose checksum was verified.
#[derive(Debug, Clone)]
pub struct Frame {
    /// Its header.
    pub head: FrameHead,
    /// Its body: a slice of the read buffer, which lives as long as any slice of it.
    pub body: Body,
}

/// Why the bytes are not frames. The connection is closed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum SplitError {
    /// Not a frame.
    #[error(transparent)]
    Frame(#[from] FrameError),
    /// Larger than allowed before the handshake is done; nothing of the body was buffered.
    #[error("frame body of {body_bytes} bytes exceeds {body_bytes_max} before the handshake")]
    EarlyTooLarge {
        /// What the header asks for.
        body_bytes: usize,
        /// What is allowed.
        body_bytes_max: usize,
    },
}

/// Cuts a byte stream into frames. Bytes go in by [`Splitter::room`], frames come out of [`Splitter::take`];
/// how the bytes were divided into reads makes no difference.
///
/// At most one incomplete frame is buffered, and never more of it than its checked header announces plus one
/// read.
#[derive(Debug)]
pub struct Splitter {
    buffer: BytesMut,
    head: Option<ReadHead>,
    body_bytes_max: usize,
    read_bytes: usize,
}

impl Splitter {
    /// A splitter that accepts bodies up to `body_bytes_max`, at most [`BODY_BYTES_MAX`].
    #[must_use]
    pub fn new(body_bytes_max: usize) -> Self {
        let body_bytes_max = body_bytes_max.min(BODY_BYTES_MAX);
        let read_bytes = READ_BYTES.min(body_bytes_max + HEADER_BYTES);
        Self { buffer: BytesMut::new(), head: None, body_bytes_max, read_bytes }
    }

    /// From here on accepts every body up to [`BODY_BYTES_MAX`]; called once the peer is known.
    pub fn lift_limit(&mut self) {
        self.body_bytes_max = BODY_BYTES_MAX;
        self.read_bytes = READ_BYTES;
    }

    /// The buffer to append read bytes to, and how many at most.
    pub fn room(&mut self) -> (&mut BytesMut, usize) {
        let missing = match self.head {
            Some(head) => head.body_bytes.saturating_sub(self.buffer.len()),
            None => HEADER_BYTES.saturating_sub(self.buffer.len()),
        };
        let spare = self.buffer.capacity() - self.buffer.len();
        if spare < missing.max(READ_BYTES_MIN.min(self.read_bytes)) {
            self.buffer.reserve(missing.max(self.read_bytes));
        }
        let spare = self.buffer.capacity() - self.buffer.len();
        (&mut self.buffer, spare.min(missing.max(self.read_bytes)))
    }

    /// The next whole frame; `None` until more bytes are appended.
    ///
    /// # Errors
    /// [`SplitError`] for an oversize or unknown header, before its body is buffered, and for a body that fails
    /// its checksum. The splitter must not be used after it.
    pub fn take(&mut self) -> Result<Option<Frame>, SplitError> {
        let head = match self.head {
            Some(head) => head,
            None => {
                let Some(header) = self.buffer.first_chunk::<HEADER_BYTES>() else { return Ok(None) };
                let head = FrameHead::decode(header)?;
                if head.body_bytes > self.body_bytes_max {
                    let (body_bytes, body_bytes_max) = (head.body_bytes, self.body_bytes_max);
                    return Err(SplitError::EarlyTooLarge { body_bytes, body_bytes_max });
                }
                let _ = self.buffer.split_to(HEADER_BYTES);
                self.head = Some(head);
                head
            }
        };
        if self.buffer.len() < head.body_bytes {
            return Ok(None);
        }
        self.head = None;
        let body = self.buffer.split_to(head.body_bytes).freeze();
        head.verify(&body)?;
        Ok(Some(Frame { head: head.head, body: body.into() }))
    }

    /// True if the stream may end here: nothing of a further frame has arrived.
    #[must_use]
    pub fn is_at_boundary(&self) -> bool {
        self.head.is_none() && self.buffer.is_empty()
    }
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use proptest::prelude::*;
    use weir_protocol::frame::{FLAG_END, FrameKind};

    use super::*;

    fn encoded(call: u64, body: &[u8]) -> Vec<u8> {
        let head = FrameHead { kind: FrameKind::Request, flags: FLAG_END, method: 20, shard: 1, call };
        let mut bytes = head.encode(&[Bytes::copy_from_slice(body)]).to_vec();
        bytes.extend_from_slice(body);
        bytes
    }

    fn append(splitter: &mut Splitter, mut bytes: &[u8]) -> Vec<Frame> {
        let mut frames = Vec::new();
        while !bytes.is_empty() {
            let (buffer, room) = splitter.room();
            assert!(room > 0);
            let taken = room.min(bytes.len());
            buffer.extend_from_slice(&bytes[..taken]);
            bytes = &bytes[taken..];
            while let Some(frame) = splitter.take().unwrap() {
                frames.push(frame);
            }
        }
        frames
    }

    proptest! {
        #[test]
        fn any_division_of_the_bytes_gives_the_same_frames(
            bodies in proptest::collection::vec(proptest::collection::vec(any::<u8>(), 0..300), 1..12),
            reads in proptest::collection::vec(1usize..200, 1..60),
        ) {
            let bytes: Vec<u8> =
                bodies.iter().enumerate().flat_map(|(i, body)| encoded(i as u64, body)).collect();
            let mut splitter = Splitter::new(BODY_BYTES_MAX);
            let (mut frames, mut rest, mut sizes) = (Vec::new(), &bytes[..], reads.iter().cycle());
            while !rest.is_empty() {
                let read = (*sizes.next().unwrap()).min(rest.len());
                frames.extend(append(&mut splitter, &rest[..read]));
                rest = &rest[read..];
            }
            prop_assert!(splitter.is_at_boundary());
            let got: Vec<_> = frames.iter().map(|frame| (frame.head.call, frame.body.clone().into_bytes().to_vec())).collect();
            let sent: Vec<_> = bodies.into_iter().enumerate().map(|(i, body)| (i as u64, body)).collect();
            prop_assert_eq!(got, sent);
        }

        #[test]
        fn garbage_never_yields_a_frame_and_never_panics(
            bytes in proptest::collection::vec(any::<u8>(), 0..4096),
        ) {
            let mut splitter = Splitter::new(4096);
            splitter.room().0.extend_from_slice(&bytes);
            if let Ok(Some(frame)) = splitter.take() {
                prop_assert!(false, "garbage passed its checksum: {frame:?}");
            }
        }
    }

    #[test]
    fn a_stream_cut_anywhere_inside_a_frame_is_not_at_a_boundary() {
        let bytes = encoded(1, b"body");
        for cut in 1..bytes.len() {
            let mut splitter = Splitter::new(BODY_BYTES_MAX);
            assert!(append(&mut splitter, &bytes[..cut]).is_empty());
            assert!(!splitter.is_at_boundary(), "cut at {cut}");
        }
    }

    #[test]
    fn an_early_frame_above_the_limit_is_refused_before_its_body_is_buffered() {
        let mut splitter = Splitter::new(4096);
        assert!(splitter.room().1 <= 4096 + HEADER_BYTES);
        splitter.room().0.extend_from_slice(&encoded(1, &[0; 4097])[..HEADER_BYTES]);
        let refused = SplitError::EarlyTooLarge { body_bytes: 4097, body_bytes_max: 4096 };
        assert_eq!(splitter.take().unwrap_err(), refused);
    }

    #[test]
    fn the_largest_body_passes_and_is_not_copied() {
        let bytes = encoded(9, &vec![7; BODY_BYTES_MAX]);
        let mut splitter = Splitter::new(BODY_BYTES_MAX);
        let frames = append(&mut splitter, &bytes);
        assert_eq!(frames[0].body.len(), BODY_BYTES_MAX);
    }

    #[test]
    fn bodies_are_slices_of_one_read_buffer() {
        let mut splitter = Splitter::new(BODY_BYTES_MAX);
        let bytes = [encoded(1, &[1; 100]), encoded(2, &[2; 100])].concat();
        let frames = append(&mut splitter, &bytes);
        let at = |frame: usize| frames[frame].body.clone().into_bytes().as_ptr() as usize;
        let distance = at(1) - at(0);
        assert_eq!(distance, 100 + HEADER_BYTES);
    }
}
