//! Memory for large reads that is used again.

use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use bytes::Bytes;

use crate::disk::{ALIGN, Aligned};

/// Bytes of a piece of memory: a MiB, wherever in its pages it begins and ends.
pub(crate) const PIECE_BYTES: usize = (1 << 20) + 2 * ALIGN;
/// Pieces that are kept when nobody uses them.
const IDLE_MAX: usize = 4;

/// Pieces of memory that nobody uses.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    idle: Mutex<Vec<Aligned>>,
}

impl Pool {
    /// A piece, or more if `bytes` are. What is in it is left from whoever had it before.
    pub(crate) fn take(&self, bytes: usize) -> Aligned {
        let mut memory = self.idle().pop().unwrap_or_default();
        memory.reserve(bytes.max(PIECE_BYTES));
        memory
    }

    /// Gives memory to readers; it comes back when the last of them drops its part of it.
    pub(crate) fn lend(self: &Arc<Self>, memory: Aligned) -> Bytes {
        Bytes::from_owner(Lent { memory, pool: Arc::clone(self) })
    }

    fn idle(&self) -> MutexGuard<'_, Vec<Aligned>> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[derive(Debug)]
struct Lent {
    memory: Aligned,
    pool: Arc<Pool>,
}

impl AsRef<[u8]> for Lent {
    fn as_ref(&self) -> &[u8] {
        &self.memory
    }
}

impl Drop for Lent {
    fn drop(&mut self) {
        let mut idle = self.pool.idle();
        if idle.len() < IDLE_MAX && self.memory.len() == PIECE_BYTES {
            idle.push(std::mem::take(&mut self.memory));
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn memory_comes_back_when_nobody_reads_it_any_more() {
        let pool = Arc::new(Pool::default());
        let idle = || pool.idle().len();
        let whole = pool.lend(pool.take(1));
        let part = whole.slice(10..20);
        drop(whole);
        assert_eq!(idle(), 0);
        drop(part);
        assert_eq!(idle(), 1);
        let again = pool.take(PIECE_BYTES);
        assert_eq!((idle(), again.len()), (0, PIECE_BYTES));
        drop((pool.lend(again), pool.lend(pool.take(2 * PIECE_BYTES))));
        assert_eq!(idle(), 1, "longer ones are not kept");
        let many: Vec<_> = (0..2 * IDLE_MAX).map(|_| pool.lend(pool.take(1))).collect();
        drop(many);
        assert_eq!(idle(), IDLE_MAX);
    }
}
