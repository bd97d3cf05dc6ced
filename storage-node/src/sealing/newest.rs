//! Where the newest record of each key is, of a window of a partition, in bounded memory.

use std::collections::HashMap;

use weir_protocol::ids::{Offset, hash128};
use weir_protocol::limits::BATCH_RECORDS_MAX;

/// Keys of one window. A table of so many takes 2^20 buckets of 25 bytes, and is never larger: 7 of 8 buckets are used.
pub(super) const KEYS_MAX: usize = (1 << 20) / 8 * 7;

const _: () =
    assert!(KEYS_MAX >= BATCH_RECORDS_MAX as usize, "a window has room for the keys of one batch at least");

/// 128 bits of BLAKE3 stand for a key. Two keys that share them would cost the older one its record, so they
/// must not: of the 2^50 different keys that a partition may see in all its life two do with a probability of
/// 2^-29, less than a disk returns other bytes for a checksum that fits, and nobody can make two that do,
/// short of 2^64 attempts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct KeyHash([u8; 16]);

/// The newest offset of each key from where it began on.
///
/// ```text
///   partition   ─────────────────────┬──────────────────────────┬─────────────▶
///               compacted before     │ in the window            │ for the next one
///                                compacted to                 `upto`
/// ```
#[derive(Debug, Default)]
pub(super) struct Newest {
    offsets: HashMap<KeyHash, Offset>,
    keys_max: usize,
}

/// Another key has no room.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Full;

impl Newest {
    /// Of no key yet, for at most `keys_max`.
    pub(super) fn new(keys_max: usize) -> Self {
        Self { offsets: HashMap::new(), keys_max }
    }

    /// Takes into account a record behind all before.
    ///
    /// # Errors
    /// [`Full`]: nothing is changed.
    pub(super) fn add(&mut self, key: &[u8], offset: Offset) -> Result<(), Full> {
        let key = hash(key);
        if let Some(newest) = self.offsets.get_mut(&key) {
            *newest = offset;
            return Ok(());
        }
        // Asked before: a map makes room for one more before it looks whether it needs it.
        if self.offsets.len() >= self.keys_max {
            return Err(Full);
        }
        self.offsets.insert(key, offset);
        Ok(())
    }

    /// Whether the window has a newer record of the key.
    pub(super) fn has_newer(&self, key: &[u8], offset: Offset) -> bool {
        !self.offsets.is_empty() && self.offsets.get(&hash(key)).is_some_and(|newest| *newest > offset)
    }
}

fn hash(key: &[u8]) -> KeyHash {
    KeyHash(hash128(&[key]).to_le_bytes())
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_full_table_takes_what_it_knows_and_no_other_key() {
        let mut newest = Newest::new(2);
        assert_eq!(newest.add(b"a", Offset(0)), Ok(()));
        assert_eq!(newest.add(b"b", Offset(1)), Ok(()));
        assert_eq!(newest.add(b"a", Offset(2)), Ok(()));
        assert_eq!(newest.add(b"c", Offset(3)), Err(Full));
        assert!(newest.has_newer(b"a", Offset(0)) && newest.has_newer(b"a", Offset(1)));
        assert!(!newest.has_newer(b"a", Offset(2)) && !newest.has_newer(b"b", Offset(1)));
        assert!(!newest.has_newer(b"c", Offset(0)), "what it does not know is the newest");
    }

    #[test]
    fn an_empty_key_is_a_key() {
        let mut newest = Newest::new(1);
        assert_eq!((newest.add(b"", Offset(0)), newest.add(b"", Offset(5))), (Ok(()), Ok(())));
        assert!(newest.has_newer(b"", Offset(0)) && !newest.has_newer(b"", Offset(5)));
        assert_eq!(newest.add(b"a", Offset(6)), Err(Full));
    }

    #[test]
    fn a_table_of_all_keys_takes_the_memory_that_is_told() {
        assert_eq!(size_of::<(KeyHash, Offset)>(), 24);
        let mut newest = Newest::new(KEYS_MAX);
        for key in 0..KEYS_MAX as u64 {
            newest.add(&key.to_le_bytes(), Offset(key)).unwrap();
        }
        assert_eq!(newest.add(b"one more", Offset(u64::MAX - 1)), Err(Full));
        assert_eq!(newest.offsets.capacity(), KEYS_MAX, "2^20 buckets, of which 7 of 8 are used");
    }
}
