//! A deflated message on its way in: what came of it, and the plain frames that are made of that. Pure.

use std::ops::Range;

use flate2::{Decompress, FlushDecompress, Status};
use tokio::io::ReadBuf;
use weir_protocol::limits::WS_MESSAGE_BYTES_MAX;

use super::frames::{CONTINUATION, Frames, Opcode, What};
use super::{Broken, DeflateCounts};

/// Bytes of the client taken in at once.
pub(super) const CAME_BYTES: usize = 4 << 10;
/// A frame that is handed over, header included: what the library reads at once.
const FRAME_BYTES: usize = 4 << 10;
/// Room in front of a payload: first byte, length in one or three bytes, mask.
const HEAD_BYTES: usize = 8;
/// A deflated message's bytes. Deflate without any choice of its own takes nine bits for a byte at most, so
/// nobody needs more for a message of the largest size.
const DEFLATED_BYTES_MAX: usize = WS_MESSAGE_BYTES_MAX + WS_MESSAGE_BYTES_MAX / 8;
/// What a sender leaves out at a message's end (RFC 7692, section 7.2.1).
pub(super) const TAIL: [u8; 4] = [0x00, 0x00, 0xff, 0xff];
/// The tail, and an empty last block, which can only stand behind a whole one: the tail was the end of one.
const END: [u8; 6] = [0x00, 0x00, 0xff, 0xff, 0x03, 0x00];

const _: () = assert!(FRAME_BYTES - HEAD_BYTES <= u16::MAX as usize, "a length takes two bytes");

/// Makes plain frames of deflated ones, with a mask of zeros, a bounded piece at a time: the library puts
/// them together and keeps its own bound. What is not deflated goes through in its place.
///
/// ```text
///   came   | deflated or passed | not looked at |          made   | header | payload, as far as inflated |
/// ```
pub(super) struct Inflating {
    inflate: Decompress,
    /// From the client; before `at` it is done with.
    came: Vec<u8>,
    at: usize,
    /// So many bytes from `at` on are passed on as they are.
    passed: usize,
    /// So many bytes from `at` on are deflated.
    deflated: usize,
    /// The message in the middle, if there is one.
    message: Option<Middle>,
    made: Box<[u8; FRAME_BYTES]>,
    /// Payload in `made`, behind the room for its header.
    filled: usize,
    /// A whole frame in `made` that has not been handed over.
    ready: Range<usize>,
}

/// A message that has begun and was not handed over to its end.
struct Middle {
    /// Of the next frame.
    opcode: u8,
    /// How many of its bytes have come.
    deflated_bytes: usize,
    inflated_bytes: usize,
    /// Its last byte has come.
    ends: bool,
    /// More may come of what was taken: there was no room for it.
    has_more: bool,
    /// Its end was as it should be.
    is_ended: bool,
    /// A block said that it is the last; how many bytes came after it.
    after_last: Option<usize>,
}

impl Inflating {
    pub(super) fn new() -> Self {
        Self {
            inflate: Decompress::new(false),
            came: Vec::with_capacity(CAME_BYTES),
            at: 0,
            passed: 0,
            deflated: 0,
            message: None,
            made: Box::new([0; FRAME_BYTES]),
            filled: 0,
            ready: 0..0,
        }
    }

    /// Forgets everything: another connection's may follow.
    pub(super) fn clear(&mut self) {
        self.came.clear();
        (self.at, self.passed, self.deflated, self.filled) = (0, 0, 0, 0);
        (self.message, self.ready) = (None, 0..0);
    }

    /// Nothing is held: what comes next can be looked at where it is.
    pub(super) fn is_idle(&self) -> bool {
        self.at == self.came.len() && self.ready.is_empty() && self.message.is_none()
    }

    /// How many bytes that came are not done with.
    pub(super) fn left(&self) -> usize {
        self.came.len() - self.at
    }

    /// Where more of the client goes, once nothing more can be made of what came.
    pub(super) fn came(&mut self) -> &mut Vec<u8> {
        debug_assert_eq!(self.at, self.came.len(), "all of it was taken");
        self.at = 0;
        self.came.clear();
        &mut self.came
    }

    /// Hands over what can be made of what came, until `to` is full.
    ///
    /// # Errors
    /// The client broke a rule; nothing more can be made.
    pub(super) fn give(
        &mut self,
        frames: &mut Frames,
        to: &mut ReadBuf<'_>,
        counts: &DeflateCounts,
    ) -> Result<(), Broken> {
        while to.remaining() > 0 {
            if !self.ready.is_empty() {
                let len = self.ready.len().min(to.remaining());
                to.put_slice(&self.made[self.ready.start..self.ready.start + len]);
                self.ready.start += len;
            } else if self.passed > 0 {
                let len = self.passed.min(to.remaining());
                to.put_slice(&self.came[self.at..self.at + len]);
                self.at += len;
                self.passed -= len;
            } else if let Some(middle) = self.message.as_mut().filter(|it| self.deflated > 0 || it.goes_on())
            {
                let room = &mut self.made[HEAD_BYTES + self.filled..];
                let deflated = &self.came[self.at..self.at + self.deflated];
                let (taken, made) = middle.inflate(&mut self.inflate, deflated, room)?;
                let is_over = self.deflated == 0 && made == 0 && middle.is_over();
                self.at += taken;
                self.deflated -= taken;
                self.filled += made;
                if is_over {
                    counts.received(middle.deflated_bytes, middle.inflated_bytes);
                    self.seal(true);
                    self.message = None;
                } else if HEAD_BYTES + self.filled == FRAME_BYTES {
                    self.seal(false);
                }
            } else if self.at < self.came.len() {
                self.take(frames)?;
            } else {
                return Ok(());
            }
        }
        Ok(())
    }

    /// Looks at what comes next.
    fn take(&mut self, frames: &mut Frames) -> Result<(), Broken> {
        let piece = frames.take(&mut self.came[self.at..])?;
        match piece.what {
            What::Passed => {
                self.passed = piece.len;
                // A message's frames stand in their order with what comes between them, and the library knows
                // that it has begun.
                let has_begun = self.message.as_ref().is_none_or(|middle| middle.opcode == CONTINUATION);
                if !has_begun || self.filled > 0 {
                    self.seal(false);
                }
            }
            What::Header { begins, ends } => {
                self.at += piece.len;
                if let Some(Opcode(opcode)) = begins {
                    self.inflate.reset(false);
                    self.message = Some(Middle::new(opcode));
                }
                // Until it is whole there may be no message yet.
                if ends {
                    self.came_to(0, ends)?;
                }
            }
            What::Deflated { ends } => {
                self.deflated = piece.len;
                self.came_to(piece.len, ends)?;
            }
        }
        Ok(())
    }

    fn came_to(&mut self, bytes: usize, ends: bool) -> Result<(), Broken> {
        let middle = self.message.as_mut().expect("a deflated message's frames follow its first");
        middle.deflated_bytes += bytes;
        middle.ends = ends;
        if middle.deflated_bytes > DEFLATED_BYTES_MAX { Err(Broken::Size) } else { Ok(()) }
    }

    /// Makes a frame of what is filled.
    fn seal(&mut self, is_final: bool) {
        let Some(middle) = &mut self.message else { return };
        let first = if is_final { 0x80 } else { 0 } | std::mem::replace(&mut middle.opcode, CONTINUATION);
        let length = u16::try_from(self.filled).expect("a frame is small");
        let [high, low] = length.to_be_bytes();
        let start = match u8::try_from(length) {
            Ok(short @ ..=125) => {
                self.made[2..HEAD_BYTES].copy_from_slice(&[first, 0x80 | short, 0, 0, 0, 0]);
                2
            }
            _ => {
                self.made[..HEAD_BYTES].copy_from_slice(&[first, 0x80 | 126, high, low, 0, 0, 0, 0]);
                0
            }
        };
        self.ready = start..HEAD_BYTES + self.filled;
        self.filled = 0;
    }
}

impl Middle {
    fn new(opcode: u8) -> Self {
        Self {
            opcode,
            deflated_bytes: 0,
            inflated_bytes: 0,
            ends: false,
            has_more: false,
            is_ended: false,
            after_last: None,
        }
    }

    /// Something is to be done for it though nothing has come.
    fn goes_on(&self) -> bool {
        self.ends || self.has_more
    }

    /// Nothing more can come of it.
    fn is_over(&self) -> bool {
        self.ends && (self.is_ended || self.after_last.is_some())
    }

    /// Inflates, at the end of the message with what its sender left out: how many of the bytes were taken and made.
    fn inflate(
        &mut self,
        inflate: &mut Decompress,
        deflated: &[u8],
        room: &mut [u8],
    ) -> Result<(usize, usize), Broken> {
        if let Some(after_last) = &mut self.after_last {
            // Only the first byte of an empty block may follow, the rest of which is the tail (RFC 7692,
            // section 7.2.3.4).
            *after_last += deflated.len();
            let is_empty_block = *after_last <= 1 && deflated.iter().all(|byte| *byte == 0);
            return if is_empty_block { Ok((deflated.len(), 0)) } else { Err(Broken::Deflate) };
        }
        let (taken, made, status) = step(inflate, deflated, room)?;
        // Behind a last block there is nothing, whatever room is left.
        self.has_more = status != Status::StreamEnd && made == room.len();
        self.inflated_bytes += made;
        if self.inflated_bytes > WS_MESSAGE_BYTES_MAX {
            return Err(Broken::Size);
        }
        if status == Status::StreamEnd {
            self.after_last = Some(0);
        } else if taken == 0 && made == 0 {
            if !deflated.is_empty() {
                return Err(Broken::Deflate);
            }
            if !self.ends {
                return Ok((0, 0));
            }
            // Nothing is left of what came: what comes of the end would be made of the tail.
            self.is_ended = self.deflated_bytes == 0 || is_end(inflate, room)?;
            return if self.is_ended { Ok((0, 0)) } else { Err(Broken::Deflate) };
        }
        Ok((taken, made))
    }
}

/// Whether what was inflated ends where a sender leaves out [`TAIL`]: in the header of an empty block without
/// compression, which may be the last one.
fn is_end(inflate: &mut Decompress, room: &mut [u8]) -> Result<bool, Broken> {
    let (taken, made, status) = step(inflate, &END, room)?;
    Ok(status == Status::StreamEnd && made == 0 && (taken == TAIL.len() || taken == END.len()))
}

/// Inflates: how many of the bytes were taken and made.
fn step(inflate: &mut Decompress, input: &[u8], room: &mut [u8]) -> Result<(usize, usize, Status), Broken> {
    let (before_in, before_out) = (inflate.total_in(), inflate.total_out());
    let status = inflate.decompress(input, room, FlushDecompress::None).map_err(|_| Broken::Deflate)?;
    let count = |more: u64| usize::try_from(more).expect("no more than there was");
    Ok((count(inflate.total_in() - before_in), count(inflate.total_out() - before_out), status))
}
