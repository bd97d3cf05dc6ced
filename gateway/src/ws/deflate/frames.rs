//! Where the frames of a client begin and end, and which of them belong to deflated messages. Pure.

use super::Broken;

/// A frame's header at its longest: two bytes, eight of length, four of mask (RFC 6455, section 5.2).
const HEADER_BYTES_MAX: usize = 14;
const FINAL: u8 = 0x80;
/// The bits that extensions use; that of permessage-deflate is the first.
const RESERVED: u8 = 0x70;
const DEFLATED: u8 = 0x40;
const OPCODE: u8 = 0x0f;
const IS_CONTROL: u8 = 0x08;
const MASKED: u8 = 0x80;

/// Opcode of a frame that is not the first of its message.
pub(super) const CONTINUATION: u8 = 0;
/// Opcodes of first frames: text and binary.
const MESSAGES: std::ops::RangeInclusive<u8> = 1..=2;

/// What is known of the frame that comes next, or is in the middle, and of the message that it belongs to.
#[derive(Debug, Default)]
pub(super) struct Frames {
    /// The header, as far as it has come; all of it while the payload comes.
    header: [u8; HEADER_BYTES_MAX],
    header_len: u8,
    /// The header is whole.
    is_open: bool,
    /// The frame is one of a deflated message: not for the library. Known from its first byte on.
    is_withheld: bool,
    /// Turned so that it begins with the next byte's.
    mask: [u8; 4],
    /// The payload's bytes that have not come.
    left: u64,
    message: Message,
}

/// The message in the middle.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Message {
    #[default]
    None,
    Plain,
    Deflated,
}

/// What the first bytes are.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Piece {
    /// How many they are, at least one.
    pub(super) len: usize,
    pub(super) what: What,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum What {
    /// Of a frame that is none of a deflated message's: to be passed on as it is.
    Passed,
    /// Of a header of a deflated message's frame: to be withheld.
    Header {
        /// The message that begins with it.
        begins: Option<Opcode>,
        /// The message ends with it: the payload is empty.
        ends: bool,
    },
    /// Of a deflated message, unmasked now.
    Deflated {
        /// The message ends with it.
        ends: bool,
    },
}

/// Text or binary.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Opcode(pub(super) u8);

impl Frames {
    /// How many of the first bytes are to be passed on as they are. What follows them was not looked at but
    /// for its first byte.
    pub(super) fn passed(&mut self, bytes: &mut [u8]) -> usize {
        let mut at = 0;
        while at < bytes.len() && !self.withholds(bytes[at]) {
            match self.take(&mut bytes[at..]) {
                Ok(piece) => at += piece.len,
                Err(_) => unreachable!("frames that are passed on are the library's to judge"),
            }
        }
        at
    }

    /// Takes bytes from the front, of one frame.
    ///
    /// # Errors
    /// A frame of a deflated message that is not masked.
    ///
    /// # Panics
    /// If there are none.
    pub(super) fn take(&mut self, bytes: &mut [u8]) -> Result<Piece, Broken> {
        if self.is_open { Ok(self.take_payload(bytes)) } else { self.take_header(bytes) }
    }

    /// Whether the frame in the middle is withheld, or the one that begins with `next`.
    fn withholds(&self, next: u8) -> bool {
        if self.header_len > 0 {
            return self.is_withheld;
        }
        match (next & OPCODE, self.message) {
            (CONTINUATION, Message::Deflated) => next & RESERVED == 0,
            (opcode, Message::None) if MESSAGES.contains(&opcode) => next & RESERVED == DEFLATED,
            _ => false,
        }
    }

    fn take_header(&mut self, bytes: &[u8]) -> Result<Piece, Broken> {
        self.is_withheld = self.withholds(bytes[0]);
        let mut len = 0;
        while !self.is_whole() && len < bytes.len() {
            self.header[usize::from(self.header_len)] = bytes[len];
            self.header_len += 1;
            len += 1;
        }
        let (mut begins, mut ends) = (None, false);
        if self.is_whole() {
            if self.is_withheld && self.header[1] & MASKED == 0 {
                return Err(Broken::Frames);
            }
            (begins, ends) = self.open();
        }
        let what = if self.is_withheld { What::Header { begins, ends } } else { What::Passed };
        Ok(Piece { len, what })
    }

    /// Whether the header has all bytes that its first two announce.
    fn is_whole(&self) -> bool {
        self.header_len >= 2 && usize::from(self.header_len) == self.length_end() + self.mask_bytes()
    }

    fn length_end(&self) -> usize {
        match self.header[1] & !MASKED {
            126 => 4,
            127 => 10,
            _ => 2,
        }
    }

    fn mask_bytes(&self) -> usize {
        if self.header[1] & MASKED == 0 { 0 } else { 4 }
    }

    /// The header is whole: the deflated message that begins with it, and whether a message ends with it.
    fn open(&mut self) -> (Option<Opcode>, bool) {
        self.is_open = true;
        let end = self.length_end();
        self.left = match &self.header[2..end] {
            [] => u64::from(self.header[1] & !MASKED),
            length => length.iter().fold(0, |left, byte| left << 8 | u64::from(*byte)),
        };
        if self.mask_bytes() > 0 {
            self.mask.copy_from_slice(&self.header[end..end + 4]);
        }
        let opcode = self.header[0] & OPCODE;
        let mut begins = None;
        // A message inside another, the library refuses: nothing matters after it.
        if MESSAGES.contains(&opcode) && self.message == Message::None {
            self.message = if self.is_withheld { Message::Deflated } else { Message::Plain };
            begins = self.is_withheld.then_some(Opcode(opcode));
        }
        let ends = self.left == 0 && self.close();
        (begins, ends)
    }

    fn take_payload(&mut self, bytes: &mut [u8]) -> Piece {
        let len = usize::try_from(self.left).map_or(bytes.len(), |left| left.min(bytes.len()));
        if self.is_withheld {
            unmask(&mut bytes[..len], self.mask);
            self.mask.rotate_left(len % 4);
        }
        self.left -= len as u64;
        let is_withheld = self.is_withheld;
        let ends = self.left == 0 && self.close();
        Piece { len, what: if is_withheld { What::Deflated { ends } } else { What::Passed } }
    }

    /// The frame has ended; whether a message has with it.
    fn close(&mut self) -> bool {
        let is_message = self.header[0] & IS_CONTROL == 0;
        let ends = is_message && self.header[0] & FINAL != 0;
        if ends {
            self.message = Message::None;
        }
        (self.is_open, self.header_len) = (false, 0);
        ends
    }
}

fn unmask(bytes: &mut [u8], mask: [u8; 4]) {
    let mut words = bytes.chunks_exact_mut(4);
    for word in &mut words {
        for (byte, mask) in word.iter_mut().zip(mask) {
            *byte ^= mask;
        }
    }
    for (byte, mask) in words.into_remainder().iter_mut().zip(mask) {
        *byte ^= mask;
    }
}
