//! A frame's body in the pieces that it came in.

use std::collections::VecDeque;

use bytes::{Buf, Bytes, BytesMut};

/// The body of a frame: one piece from a wire; within a process the pieces that it was made of, so that none has to be
/// copied. The pieces live as long as any slice of them.
#[derive(Debug, Clone, Default)]
pub struct Body {
    /// Empty only if all of it is.
    first: Bytes,
    /// None of them is empty.
    rest: VecDeque<Bytes>,
    rest_len: usize,
}

impl Body {
    /// Bytes that are left.
    #[must_use]
    pub fn len(&self) -> usize {
        self.first.len() + self.rest_len
    }

    /// Whether nothing is left.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.first.is_empty()
    }

    /// Takes the next bytes. They are copied only if they lie in several pieces.
    ///
    /// # Panics
    /// If fewer are left.
    #[must_use]
    pub fn split_to(&mut self, len: usize) -> Bytes {
        if len < self.first.len() || (len == self.first.len() && self.rest.is_empty()) {
            return self.first.split_to(len);
        }
        if len == self.first.len() {
            return self.next_piece();
        }
        assert!(len <= self.len(), "{len} bytes of a body that has {}", self.len());
        let mut joined = BytesMut::with_capacity(len);
        while joined.len() < len {
            let wanted = (len - joined.len()).min(self.first.len());
            joined.extend_from_slice(&self.first[..wanted]);
            self.advance(wanted);
        }
        joined.freeze()
    }

    /// What is left of the first piece; the next one takes its place.
    fn next_piece(&mut self) -> Bytes {
        let next = self.rest.pop_front().unwrap_or_default();
        self.rest_len -= next.len();
        std::mem::replace(&mut self.first, next)
    }

    /// All that is left as one slice, which is copied only if it lies in several pieces.
    #[must_use]
    pub fn into_bytes(mut self) -> Bytes {
        let len = self.len();
        self.split_to(len)
    }
}

impl Buf for Body {
    fn remaining(&self) -> usize {
        self.len()
    }

    fn chunk(&self) -> &[u8] {
        &self.first
    }

    fn advance(&mut self, mut count: usize) {
        while count >= self.first.len() && !self.rest.is_empty() {
            count -= self.next_piece().len();
        }
        self.first.advance(count);
    }
}

impl From<Bytes> for Body {
    fn from(bytes: Bytes) -> Self {
        Self { first: bytes, ..Self::default() }
    }
}

impl From<Vec<Bytes>> for Body {
    fn from(mut pieces: Vec<Bytes>) -> Self {
        pieces.retain(|piece| !piece.is_empty());
        let mut rest = VecDeque::from(pieces);
        let first = rest.pop_front().unwrap_or_default();
        let rest_len = rest.iter().map(Bytes::len).sum();
        Self { first, rest, rest_len }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    #[test]
    fn what_lies_in_one_piece_is_not_copied() {
        let pieces = [Bytes::from_static(b"head"), Bytes::new(), Bytes::from_static(b"first second")];
        let mut body = Body::from(pieces.to_vec());
        let (head, first) = (body.split_to(4), body.split_to(5));
        assert_eq!((head.as_ptr(), first.as_ptr()), (pieces[0].as_ptr(), pieces[2].as_ptr()));
        assert_eq!(body.clone().into_bytes().as_ptr(), pieces[2][5..].as_ptr());
        assert_eq!((body.len(), body.is_empty()), (7, false));
        body.advance(7);
        assert_eq!((body.len(), body.is_empty(), body.into_bytes()), (0, true, Bytes::new()));
    }

    proptest! {
        #[test]
        fn it_is_read_as_if_it_were_one(
            pieces in prop::collection::vec(prop::collection::vec(any::<u8>(), 0..9), 0..6),
            steps in prop::collection::vec((any::<bool>(), 0..12_usize), 0..12),
        ) {
            let mut whole = Bytes::from(pieces.concat());
            let mut body = Body::from(pieces.into_iter().map(Bytes::from).collect::<Vec<_>>());
            for (is_taken, len) in steps {
                let len = len.min(whole.len());
                if is_taken {
                    prop_assert_eq!(body.split_to(len), whole.split_to(len));
                } else {
                    whole.advance(len);
                    body.advance(len);
                }
                prop_assert_eq!((body.len(), body.is_empty()), (whole.len(), whole.is_empty()));
                prop_assert_eq!(body.chunk().is_empty(), whole.is_empty());
            }
            prop_assert_eq!(body.into_bytes(), whole);
        }
    }
}
