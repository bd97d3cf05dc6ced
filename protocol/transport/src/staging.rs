//! Frames to the slices of one vectored write, without I/O.

use std::io::IoSlice;

use bytes::Bytes;
use weir_protocol::frame::HEADER_BYTES;

/// Segments up to this many bytes are copied next to their header: below it the copy costs less than another
/// slice does in the kernel.
const COPY_BYTES_MAX: usize = 512;
/// Slices of one write.
pub(crate) const SLICES_MAX: usize = 64;

enum Piece {
    /// A range of the copied bytes.
    Copied { start: usize, end: usize },
    /// Written from where it lies.
    Shared(Bytes),
}

/// The bytes of a batch of frames in write order: headers and small segments copied together, large segments
/// shared. Buffers are reused from batch to batch.
#[derive(Default)]
pub(crate) struct Staging {
    copied: Vec<u8>,
    pieces: Vec<Piece>,
    /// First piece that is not completely written, and how much of it is.
    next: usize,
    next_written: usize,
}

impl Staging {
    /// Forgets the previous batch.
    pub(crate) fn clear(&mut self) {
        self.copied.clear();
        self.pieces.clear();
        self.next = 0;
        self.next_written = 0;
    }

    /// Appends a frame.
    pub(crate) fn push(&mut self, header: &[u8; HEADER_BYTES], body: &[Bytes]) {
        self.copy(header);
        for segment in body.iter().filter(|segment| !segment.is_empty()) {
            if segment.len() <= COPY_BYTES_MAX {
                self.copy(segment);
            } else {
                self.pieces.push(Piece::Shared(segment.clone()));
            }
        }
    }

    fn copy(&mut self, bytes: &[u8]) {
        let start = self.copied.len();
        self.copied.extend_from_slice(bytes);
        let copied_end = self.copied.len();
        match self.pieces.last_mut() {
            // Copied bytes are contiguous, so a copied piece that comes last ends at `start`.
            Some(Piece::Copied { end, .. }) => *end = copied_end,
            _ => self.pieces.push(Piece::Copied { start, end: copied_end }),
        }
    }

    /// True once everything is written.
    pub(crate) fn is_done(&self) -> bool {
        self.next == self.pieces.len()
    }

    /// Fills `slices` with what comes next and returns how many are used.
    pub(crate) fn fill<'a>(&'a self, slices: &mut [IoSlice<'a>; SLICES_MAX]) -> usize {
        let mut used = 0;
        for (piece, slot) in self.pieces[self.next..].iter().zip(slices.iter_mut()) {
            let bytes = match piece {
                Piece::Copied { start, end } => &self.copied[*start..*end],
                Piece::Shared(bytes) => &bytes[..],
            };
            *slot = IoSlice::new(if used == 0 { &bytes[self.next_written..] } else { bytes });
            used += 1;
        }
        used
    }

    /// Takes note that the first `written` bytes of what comes next are written.
    pub(crate) fn advance(&mut self, mut written: usize) {
        while written > 0 {
            let piece_bytes = match &self.pieces[self.next] {
                Piece::Copied { start, end } => end - start,
                Piece::Shared(bytes) => bytes.len(),
            };
            let left = piece_bytes - self.next_written;
            if written < left {
                self.next_written += written;
                return;
            }
            written -= left;
            self.next += 1;
            self.next_written = 0;
        }
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn partial_writes_of_any_size_give_the_frames_in_order(
            frames in proptest::collection::vec(proptest::collection::vec(0usize..1200, 0..4), 1..40),
            writes in proptest::collection::vec(1usize..3000, 1..20),
        ) {
            let (mut staging, mut expected, mut fill) = (Staging::default(), Vec::new(), 0u8);
            for sizes in &frames {
                let header = [fill; HEADER_BYTES];
                let body: Vec<_> = sizes.iter().map(|&size| { fill = fill.wrapping_add(1); Bytes::from(vec![fill; size]) }).collect();
                staging.push(&header, &body);
                expected.extend_from_slice(&header);
                body.iter().for_each(|segment| expected.extend_from_slice(segment));
            }
            let (mut written, mut sizes) = (Vec::new(), writes.iter().cycle());
            while !staging.is_done() {
                let mut slices = [IoSlice::new(&[]); SLICES_MAX];
                let used = staging.fill(&mut slices);
                let offered: Vec<u8> = slices[..used].iter().flat_map(|slice| slice.to_vec()).collect();
                let accepted = (*sizes.next().unwrap()).min(offered.len());
                written.extend_from_slice(&offered[..accepted]);
                staging.advance(accepted);
            }
            prop_assert_eq!(written, expected);
        }
    }

    #[test]
    fn large_segments_are_shared_and_small_ones_share_a_slice() {
        let large = Bytes::from(vec![1; COPY_BYTES_MAX + 1]);
        let mut staging = Staging::default();
        staging.push(&[0; HEADER_BYTES], &[Bytes::from_static(b"small")]);
        staging.push(&[0; HEADER_BYTES], std::slice::from_ref(&large));
        let mut slices = [IoSlice::new(&[]); SLICES_MAX];
        assert_eq!(staging.fill(&mut slices), 2);
        assert_eq!(slices[0].len(), HEADER_BYTES + 5 + HEADER_BYTES);
        assert_eq!(slices[1].as_ptr(), large.as_ptr());
    }
}
