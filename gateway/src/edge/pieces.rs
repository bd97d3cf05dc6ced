//! Answers that are made piece by piece, as their client takes them.
//!
//! What is held of such an answer are the messages as they are stored, and one piece of what is made of them.

use std::pin::Pin;
use std::task::{Context, Poll};

use axum::BoxError;
use axum::body::Body;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use hyper::body::{Body as HttpBody, Frame, SizeHint};

use crate::answers::{Full, Held};
use crate::api::Problem;

/// A piece is handed on at this many bytes.
pub(super) const PIECE_BYTES: usize = 32 << 10;
/// What the HTTP library and TLS hold of an answer besides its messages: a piece, and what is being written.
pub(super) const UNDER_WAY_BYTES: u64 = 3 * PIECE_BYTES as u64;
/// Payloads above this are written in parts. Of a length that Base64 needs no padding for.
pub(super) const PART_BYTES: usize = 12 << 10;
const _: () =
    assert!(PART_BYTES.is_multiple_of(3), "parts of Base64 follow each other without padding between");

/// What a page consists of, one after the other.
pub(super) trait Items: Send {
    /// Writes the next one behind what is there.
    ///
    /// # Errors
    /// It cannot be read; nothing follows.
    fn put(&mut self, out: &mut Vec<u8>) -> Result<Put, Problem>;

    /// Bytes of memory that those to come still keep.
    fn held_bytes(&self) -> u64;
}

/// What [`Items::put`] wrote.
pub(super) enum Put {
    /// One item, or the last of it.
    Item,
    /// A part of one: more of it follows.
    Part,
    /// Nothing: there is no further one.
    End,
}

/// The payload of a message that is too large to be written at once.
#[derive(Debug)]
pub(super) enum Payload {
    /// JSON, as it is.
    Json(Bytes),
    /// UTF-8, to be written as a string of JSON.
    Text(Bytes),
    /// To be written in Base64, as a string of JSON.
    Base64(Bytes),
}

impl Payload {
    /// Writes the next part; false once nothing is left.
    pub(super) fn put(&mut self, out: &mut Vec<u8>) -> bool {
        match self {
            Self::Json(left) => {
                let len = char_boundary(left, PART_BYTES);
                out.extend_from_slice(&left.split_to(len));
                !left.is_empty()
            }
            Self::Text(left) => {
                let len = char_boundary(left, PART_BYTES);
                let part = left.split_to(len);
                let text = std::str::from_utf8(&part).unwrap_or_default();
                let quoted = serde_json::to_string(text).unwrap_or_default();
                out.extend_from_slice(
                    quoted.get(1..quoted.len().saturating_sub(1)).unwrap_or_default().as_bytes(),
                );
                !left.is_empty()
            }
            Self::Base64(left) => {
                let part = left.split_to(left.len().min(PART_BYTES));
                let (start, len) = (out.len(), part.len().div_ceil(3) * 4);
                out.resize(start + len, 0);
                let written = BASE64_STANDARD.encode_slice(&part, &mut out[start..]).unwrap_or(0);
                out.truncate(start + written);
                !left.is_empty()
            }
        }
    }
}

/// The longest prefix of up to `max` bytes, at least 4, that divides no character of a text.
fn char_boundary(text: &[u8], max: usize) -> usize {
    if text.len() <= max {
        return text.len();
    }
    let is_inside = |at: &usize| text[*at] & 0b1100_0000 == 0b1000_0000;
    (0..=max).rev().find(|at| !is_inside(at)).filter(|at| *at > 0).unwrap_or(max)
}

/// What stands around the items.
#[derive(Debug, Clone)]
pub(super) struct Around {
    pub(super) begin: &'static str,
    /// Before each but the first.
    pub(super) between: &'static str,
    /// Behind each.
    pub(super) behind: &'static str,
    pub(super) end: String,
}

/// An answer that is being made.
pub(super) struct Pieces<I> {
    items: I,
    around: Around,
    /// Items that were begun.
    begun: u64,
    /// In the middle of an item.
    is_inside: bool,
    is_over: bool,
}

impl<I: Items + Unpin + 'static> Pieces<I> {
    pub(super) fn new(items: I, around: Around) -> Self {
        Self { items, around, begun: 0, is_inside: false, is_over: false }
    }

    /// All of it at once, for what is small.
    ///
    /// # Errors
    /// An item cannot be read.
    pub(super) fn whole(mut self) -> Result<Bytes, Problem> {
        let mut out = Vec::new();
        while !self.is_over {
            self.put(&mut out)?;
        }
        Ok(out.into())
    }

    /// As a body, which keeps `room` as long as there is something to be taken.
    ///
    /// # Errors
    /// There is no room.
    pub(super) fn body(self, mut room: Held) -> Result<Body, Full> {
        room.resize(self.items.held_bytes() + UNDER_WAY_BYTES)?;
        Ok(Body::new(PiecesBody { pieces: self, room }))
    }

    /// The same of what must be told, whether there is room or not.
    pub(super) fn body_anyway(self, mut room: Held) -> Body {
        room.grow_anyway((self.items.held_bytes() + UNDER_WAY_BYTES).saturating_sub(room.bytes()));
        Body::new(PiecesBody { pieces: self, room })
    }

    /// Writes until there is a piece, or nothing is left.
    fn put(&mut self, out: &mut Vec<u8>) -> Result<(), Problem> {
        let full = out.len() + PIECE_BYTES;
        if self.begun == 0 {
            out.extend_from_slice(self.around.begin.as_bytes());
        }
        while out.len() < full && !self.is_over {
            let start = out.len();
            if !self.is_inside && self.begun > 0 {
                out.extend_from_slice(self.around.between.as_bytes());
            }
            self.begun += u64::from(!self.is_inside);
            match self.items.put(out)? {
                Put::Item => {
                    out.extend_from_slice(self.around.behind.as_bytes());
                    self.is_inside = false;
                }
                Put::Part => self.is_inside = true,
                Put::End => {
                    out.truncate(start);
                    out.extend_from_slice(self.around.end.as_bytes());
                    self.is_over = true;
                }
            }
        }
        Ok(())
    }
}

struct PiecesBody<I> {
    pieces: Pieces<I>,
    room: Held,
}

impl<I: Items + Unpin + 'static> HttpBody for PiecesBody<I> {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.pieces.is_over {
            return Poll::Ready(None);
        }
        let mut out = Vec::with_capacity(PIECE_BYTES + 2 * PART_BYTES);
        if let Err(problem) = self.pieces.put(&mut out) {
            self.pieces.is_over = true;
            tracing::error!(code = %problem.code, detail = ?problem.detail, "an answer ends in the middle");
            return Poll::Ready(Some(Err("the answer ends in the middle".into())));
        }
        let left = self.pieces.items.held_bytes() + UNDER_WAY_BYTES;
        self.room.shrink(left);
        Poll::Ready(Some(Ok(Frame::data(out.into()))))
    }

    fn is_end_stream(&self) -> bool {
        self.pieces.is_over
    }
}

/// A body that is there as a whole, taken in pieces: of each the HTTP library has, with TLS, a copy.
pub(super) struct WholeBody {
    left: Bytes,
    _room: Held,
}

impl WholeBody {
    pub(super) const fn new(bytes: Bytes, room: Held) -> Self {
        Self { left: bytes, _room: room }
    }
}

impl HttpBody for WholeBody {
    type Data = Bytes;
    type Error = BoxError;

    fn poll_frame(
        mut self: Pin<&mut Self>,
        _: &mut Context<'_>,
    ) -> Poll<Option<Result<Frame<Bytes>, BoxError>>> {
        if self.left.is_empty() {
            return Poll::Ready(None);
        }
        let len = self.left.len().min(PIECE_BYTES);
        Poll::Ready(Some(Ok(Frame::data(self.left.split_to(len)))))
    }

    fn is_end_stream(&self) -> bool {
        self.left.is_empty()
    }

    fn size_hint(&self) -> SizeHint {
        SizeHint::with_exact(self.left.len() as u64)
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    fn all(mut payload: Payload) -> Vec<u8> {
        let mut out = Vec::new();
        loop {
            let before = out.len();
            let is_left = payload.put(&mut out);
            // A character may become six.
            assert!(out.len() - before <= 6 * PART_BYTES);
            if !is_left {
                return out;
            }
        }
    }

    proptest! {
        #[test]
        fn parts_of_a_payload_are_what_it_is_as_a_whole(
            text in "\\PC{0,40}", times in 0usize..2_000, bytes in proptest::collection::vec(any::<u8>(), 0..50_000),
        ) {
            let text = text.repeat(times);
            let quoted = serde_json::to_string(&text).unwrap();
            prop_assert_eq!(all(Payload::Text(text.clone().into())), &quoted.as_bytes()[1..quoted.len() - 1]);
            prop_assert_eq!(all(Payload::Json(text.clone().into())), text.as_bytes());
            let encoded = BASE64_STANDARD.encode(&bytes);
            prop_assert_eq!(all(Payload::Base64(bytes.into())), encoded.as_bytes());
        }
    }
}
