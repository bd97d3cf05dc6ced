//! What becomes of what a request brings, piece by piece as it comes: copied once, so that the connection can
//! reuse its buffer.

use std::ops::Range;

use bytes::{Bytes, BytesMut};
use weir_protocol::checksum::Crc32c;

/// Takes what a request brings. A request that is tried again begins with a clone of what the first try began with.
pub(super) trait Sink: Clone {
    /// So many bytes will come, as the store says; fewer or more may.
    fn expect(&mut self, _bytes: u64) {}

    /// The next bytes.
    fn push(&mut self, chunk: Bytes);
}

impl Sink for Crc32c {
    fn push(&mut self, chunk: Bytes) {
        self.update(&chunk);
    }
}

/// All that comes, in one piece. What comes at once is not copied.
#[derive(Debug, Clone, Default)]
pub(super) struct Whole {
    first: Bytes,
    all: BytesMut,
    expected: usize,
}

impl Sink for Whole {
    fn expect(&mut self, bytes: u64) {
        self.expected = usize::try_from(bytes).unwrap_or(0);
    }

    fn push(&mut self, chunk: Bytes) {
        if self.first.is_empty() && self.all.is_empty() {
            self.first = chunk;
            return;
        }
        if self.all.is_empty() {
            // As large as all of it from the start: what grows by doubling is copied about twice.
            self.all.reserve(self.expected.max(self.first.len() + chunk.len()));
            self.all.extend_from_slice(&std::mem::take(&mut self.first));
        }
        self.all.extend_from_slice(&chunk);
    }
}

impl Whole {
    pub(super) fn bytes(self) -> Bytes {
        if self.all.is_empty() { self.first } else { self.all.freeze() }
    }
}

/// Some ranges of an object, each a piece of its own, so that keeping one keeps no other. What lies between
/// them is dropped.
#[derive(Debug, Clone)]
pub(super) struct Pieces<'a> {
    /// Ranges that are not complete: in order, and not overlapping.
    ranges: &'a [Range<u64>],
    /// Where in the object the next bytes belong.
    at: u64,
    piece: BytesMut,
    done: Vec<Bytes>,
}

impl<'a> Pieces<'a> {
    /// What comes begins where the first of `ranges` does.
    pub(super) fn of(ranges: &'a [Range<u64>]) -> Self {
        let at = ranges.first().map_or(0, |first| first.start);
        let mut pieces = Self { ranges, at, piece: BytesMut::new(), done: Vec::with_capacity(ranges.len()) };
        pieces.close();
        pieces
    }

    /// One for each range, if all came.
    pub(super) fn pieces(self) -> Vec<Bytes> {
        self.done
    }

    /// Takes down what is complete.
    fn close(&mut self) {
        while let Some((range, behind)) = self.ranges.split_first()
            && self.at >= range.end
        {
            self.done.push(self.piece.split().freeze());
            self.ranges = behind;
        }
    }
}

impl Sink for Pieces<'_> {
    fn push(&mut self, mut chunk: Bytes) {
        while let Some(range) = self.ranges.first()
            && !chunk.is_empty()
        {
            let is_within = self.at >= range.start;
            let upto = if is_within { range.end } else { range.start };
            let taken =
                chunk.split_to(chunk.len().min(usize::try_from(upto - self.at).unwrap_or(usize::MAX)));
            if is_within {
                if self.piece.is_empty() {
                    self.piece =
                        BytesMut::with_capacity(usize::try_from(range.end - range.start).unwrap_or(0));
                }
                self.piece.extend_from_slice(&taken);
            }
            self.at += taken.len() as u64;
            self.close();
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn pieces_are_what_lies_there_however_it_came(
            lengths in prop::collection::vec(0_usize..9, 0..12),
            cuts in prop::collection::vec((0_u64..5, 0_u64..9), 0..8),
        ) {
            let all: Vec<u8> = (0..lengths.iter().sum::<usize>()).map(|at| at as u8).collect();
            let (start, mut ranges) = (1_000, Vec::new());
            let mut end = start;
            for (gap, length) in cuts {
                // The first range begins where what comes does.
                let from = if ranges.is_empty() { start } else { end + gap };
                end = from + length;
                if end > start + all.len() as u64 {
                    break;
                }
                ranges.push(from..end);
            }
            let (mut pieces, mut whole) = (Pieces::of(&ranges), Whole::default());
            whole.expect(all.len() as u64);
            let mut at = 0;
            for length in lengths {
                pieces.push(Bytes::copy_from_slice(&all[at..at + length]));
                whole.push(Bytes::copy_from_slice(&all[at..at + length]));
                at += length;
            }
            prop_assert_eq!(whole.bytes(), all.clone());
            let within = |pos: u64| (pos - start) as usize;
            let expected: Vec<Bytes> = ranges
                .iter()
                .map(|range| Bytes::copy_from_slice(&all[within(range.start)..within(range.end)]))
                .collect();
            prop_assert_eq!(pieces.pieces(), expected);
        }
    }
}
