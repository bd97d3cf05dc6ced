//! The memory that packs are made in, used again: a pack's bytes leave in pieces of one size, which come back
//! when they are sent. Whoever frees them is another thread than asked for them, and new memory is cleared
//! page by page first, which was an eighth and more of what the thread that makes packs took.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;
use weir_protocol::checksum::Crc32c;

/// Bytes of a piece; the last one of a pack is shorter. Parts of an upload are some of them as they are.
const PIECE_BYTES: usize = 1 << 20;
/// Pieces that are kept for the next packs at most: as many as the default budget of uploads lets be under
/// way, and a part that is put together.
const KEPT_MAX: usize = 40;

/// Pieces that are used again. Clones share them.
#[derive(Clone, Debug, Default)]
pub struct PieceMemory(Arc<Mutex<Pieces>>);

#[derive(Debug, Default)]
struct Pieces {
    free: Vec<Vec<u8>>,
    /// The fewest that were free since unused ones were last released.
    fewest_free: usize,
    /// Those that are not free.
    in_use: usize,
}

impl PieceMemory {
    /// Bytes of all pieces, in use or kept.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        let pieces = self.lock();
        ((pieces.in_use + pieces.free.len()) * PIECE_BYTES) as u64
    }

    /// Gives back to the system what nobody needed since this was called before: called now and then, it
    /// leaves what goes round, and nothing when packs are no longer made.
    pub fn release_unused(&self) {
        let mut pieces = self.lock();
        let left = pieces.free.len() - pieces.fewest_free;
        let unused = pieces.free.split_off(left);
        pieces.fewest_free = left;
        drop(pieces);
        drop(unused);
    }

    /// An empty piece.
    fn take(&self) -> Piece {
        let mut pieces = self.lock();
        pieces.in_use += 1;
        let free = pieces.free.pop();
        pieces.fewest_free = pieces.fewest_free.min(pieces.free.len());
        drop(pieces);
        Piece { bytes: free.unwrap_or_else(|| Vec::with_capacity(PIECE_BYTES)), memory: self.clone() }
    }

    fn lock(&self) -> MutexGuard<'_, Pieces> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// What is written of a pack, in pieces.
pub(super) struct Written {
    memory: PieceMemory,
    full: Vec<Bytes>,
    last: Option<Piece>,
    bytes: u64,
    crc: Crc32c,
}

impl Written {
    pub(super) fn new(memory: PieceMemory) -> Self {
        Self { memory, full: Vec::new(), last: None, bytes: 0, crc: Crc32c::new() }
    }

    pub(super) fn write(&mut self, mut bytes: &[u8]) {
        self.crc.update(bytes);
        self.bytes += bytes.len() as u64;
        while !bytes.is_empty() {
            let mut piece = self.last.take().unwrap_or_else(|| self.memory.take());
            bytes = piece.fill(bytes);
            if piece.is_full() {
                self.full.push(Bytes::from_owner(piece));
            } else {
                self.last = Some(piece);
            }
        }
    }

    /// Bytes so far, taken or not.
    pub(super) fn bytes(&self) -> u64 {
        self.bytes
    }

    /// The pieces that are full.
    pub(super) fn take_full(&mut self) -> Vec<Bytes> {
        std::mem::take(&mut self.full)
    }

    /// The rest, and the CRC-32C of everything.
    pub(super) fn finish(mut self) -> (Vec<Bytes>, u32) {
        self.full.extend(self.last.map(Bytes::from_owner));
        (self.full, self.crc.finish())
    }
}

/// A part of a pack. Goes back when it is dropped.
#[derive(Debug)]
struct Piece {
    bytes: Vec<u8>,
    memory: PieceMemory,
}

impl Piece {
    /// Takes as much of `bytes` as there is room for; the rest.
    fn fill<'a>(&mut self, bytes: &'a [u8]) -> &'a [u8] {
        let (fits, rest) = bytes.split_at(bytes.len().min(PIECE_BYTES - self.bytes.len()));
        self.bytes.extend_from_slice(fits);
        rest
    }

    fn is_full(&self) -> bool {
        self.bytes.len() == PIECE_BYTES
    }
}

impl AsRef<[u8]> for Piece {
    fn as_ref(&self) -> &[u8] {
        &self.bytes
    }
}

impl Drop for Piece {
    fn drop(&mut self) {
        let mut bytes = std::mem::take(&mut self.bytes);
        bytes.clear();
        let mut pieces = self.memory.lock();
        pieces.in_use -= 1;
        if pieces.free.len() < KEPT_MAX {
            pieces.free.push(bytes);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PIECE: u64 = PIECE_BYTES as u64;

    fn written(memory: &PieceMemory, parts: &[&[u8]]) -> Written {
        let mut written = Written::new(memory.clone());
        parts.iter().for_each(|part| written.write(part));
        written
    }

    #[test]
    fn what_is_given_back_is_taken_again_and_empty() {
        let memory = PieceMemory::default();
        let (sent, _) = written(&memory, &[b"of a pack"]).finish();
        let place = sent[0].as_ptr();
        assert_eq!((&sent[0][..], memory.bytes()), (&b"of a pack"[..], PIECE));
        // A slice of it holds the whole.
        let part = sent[0].slice(3..5);
        drop(sent);
        let (other, _) = written(&memory, &[b"another"]).finish();
        assert_eq!((&part[..], &other[0][..], memory.bytes()), (&b"a "[..], &b"another"[..], 2 * PIECE));
        drop(part);
        let (again, _) = written(&memory, &[b"more"]).finish();
        assert_eq!((&again[0][..], again[0].as_ptr(), memory.bytes()), (&b"more"[..], place, 2 * PIECE));
    }

    #[test]
    fn pieces_are_full_but_for_the_last_and_hold_what_was_written() {
        let memory = PieceMemory::default();
        for bytes in [0, 1, PIECE_BYTES - 1, PIECE_BYTES, PIECE_BYTES + 1, 3 * PIECE_BYTES + 5] {
            let whole: Vec<u8> = (0..bytes).map(|at| (at % 251) as u8).collect();
            let mut written = written(&memory, &[&whole[..bytes / 3], b"", &whole[bytes / 3..]]);
            assert_eq!(written.bytes(), bytes as u64);
            let mut pieces = written.take_full();
            assert!(written.take_full().is_empty());
            assert_eq!(pieces.len(), bytes / PIECE_BYTES);
            let (rest, crc) = written.finish();
            assert_eq!(rest.len(), usize::from(bytes % PIECE_BYTES > 0), "{bytes}");
            pieces.extend(rest);
            assert!(pieces.concat() == whole && crc == weir_protocol::checksum::crc32c(&whole), "{bytes}");
        }
        assert_eq!(memory.bytes(), 4 * PIECE);
    }

    #[test]
    fn no_more_than_the_most_is_kept() {
        let memory = PieceMemory::default();
        let many: Vec<_> = (0..KEPT_MAX + 5).map(|_| memory.take()).collect();
        assert_eq!(memory.bytes(), (KEPT_MAX as u64 + 5) * PIECE);
        drop(many);
        assert_eq!(memory.bytes(), KEPT_MAX as u64 * PIECE);
    }

    #[test]
    fn what_goes_round_stays_and_what_nobody_needs_is_released() {
        let memory = PieceMemory::default();
        let take = |many: usize| drop((0..many).map(|_| memory.take()).collect::<Vec<_>>());
        take(8);
        memory.release_unused();
        assert_eq!(memory.bytes(), 8 * PIECE, "all were in use since");
        take(3);
        memory.release_unused();
        assert_eq!(memory.bytes(), 3 * PIECE);
        let held = memory.take();
        memory.release_unused();
        memory.release_unused();
        assert_eq!(memory.bytes(), PIECE, "what is in use stays");
        drop(held);
        memory.release_unused();
        memory.release_unused();
        assert_eq!(memory.bytes(), 0);
    }
}
