//! A hash map whose copy is cheap while the original goes on changing.

use std::hash::{BuildHasher, BuildHasherDefault, Hash, Hasher};
use std::sync::Arc;

use super::bucket::Bucket;

/// Number of buckets. With a million rows, the first change of a bucket after a copy copies 250.
pub(super) const BUCKETS: usize = 4096;

/// Where the bucket number is taken from a hash: bits that the maps inside do not look at.
const BUCKET_SHIFT: u32 = 32;

const _: () = assert!(BUCKETS.is_power_of_two(), "the bucket is a mask of the hash");

type Shared<K, V> = Arc<Bucket<K, V, BuildHasherDefault<Mix>>>;

/// A hash map in [`BUCKETS`] shared buckets. `clone` takes one reference per bucket, about 0.1 ms whatever the
/// size; a bucket is copied when it is changed while a clone still holds it.
///
/// Rows go to buckets by a fixed hash, so that the order of [`CowMap::buckets`] is the same on every machine. The
/// hash is not keyed: keys are numbers that this system hands out or hashes that clients cannot choose.
#[derive(Debug)]
pub(super) struct CowMap<K, V> {
    buckets: Box<[Shared<K, V>]>,
    len: usize,
}

impl<K, V> Clone for CowMap<K, V> {
    fn clone(&self) -> Self {
        Self { buckets: self.buckets.clone(), len: self.len }
    }
}

impl<K, V> Default for CowMap<K, V> {
    fn default() -> Self {
        let empty = Shared::default();
        Self { buckets: (0..BUCKETS).map(|_| Arc::clone(&empty)).collect(), len: 0 }
    }
}

impl<K: Eq + Hash + Clone, V: Clone> CowMap<K, V> {
    pub(super) fn len(&self) -> usize {
        self.len
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        self.buckets[bucket_of(key)].get(key)
    }

    /// For changing a row that is known to exist; a miss may copy a bucket for nothing.
    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        Arc::make_mut(&mut self.buckets[bucket_of(key)]).get_mut(key)
    }

    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        let old = Arc::make_mut(&mut self.buckets[bucket_of(&key)]).insert(key, value);
        self.len += usize::from(old.is_none());
        old
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        let old = Arc::make_mut(&mut self.buckets[bucket_of(key)]).remove(key);
        self.len -= usize::from(old.is_some());
        old
    }

    /// Removes the rows of one bucket that `keep` denies. Looks first, so that a bucket that stays is not copied.
    pub(super) fn sweep(&mut self, bucket: usize, mut keep: impl FnMut(&K, &V) -> bool) {
        if self.buckets[bucket].iter().all(|(key, value)| keep(key, value)) {
            return;
        }
        let rows = Arc::make_mut(&mut self.buckets[bucket]);
        let before = rows.len();
        rows.retain(|key, value| keep(key, value));
        self.len -= before - rows.len();
    }

    pub(super) fn iter(&self) -> impl Iterator<Item = (&K, &V)> {
        self.buckets.iter().flat_map(|bucket| bucket.iter())
    }
}

impl<K: Eq + Hash + Clone + Ord, V: Clone> CowMap<K, V> {
    /// All rows in an order that depends on the keys alone; one bucket at a time is collected and sorted.
    pub(super) fn ordered(&self) -> impl Iterator<Item = (&K, &V)> {
        self.buckets.iter().flat_map(|bucket| {
            let mut rows: Vec<_> = bucket.iter().collect();
            rows.sort_unstable_by_key(|(key, _)| *key);
            rows
        })
    }
}

fn bucket_of<K: Hash>(key: &K) -> usize {
    let hash = BuildHasherDefault::<Mix>::default().hash_one(key);
    (hash >> BUCKET_SHIFT) as usize & (BUCKETS - 1)
}

/// Mixes integers by multiplication and rotation; the same on every machine and in every build.
#[derive(Default)]
struct Mix(u64);

impl Hasher for Mix {
    fn write(&mut self, bytes: &[u8]) {
        for part in bytes.chunks(8) {
            let mut word = [0; 8];
            word[..part.len()].copy_from_slice(part);
            self.write_u64(u64::from_le_bytes(word));
        }
    }

    fn write_u32(&mut self, word: u32) {
        self.write_u64(u64::from(word));
    }

    fn write_u64(&mut self, word: u64) {
        self.0 = (self.0.rotate_left(26) ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
    }

    #[expect(clippy::cast_possible_truncation, reason = "split into halves")]
    fn write_u128(&mut self, word: u128) {
        self.write_u64(word as u64);
        self.write_u64((word >> 64) as u64);
    }

    /// The finalizer of MurmurHash3: every bit of the state reaches every bit of the result.
    fn finish(&self) -> u64 {
        let mut hash = self.0;
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xff51_afd7_ed55_8ccd);
        hash = (hash ^ (hash >> 33)).wrapping_mul(0xc4ce_b9fe_1a85_ec53);
        hash ^ (hash >> 33)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_copy_stays_as_it_was_while_the_original_changes() {
        let mut map = CowMap::default();
        for key in 0u64..5_000 {
            map.insert(key, key);
        }
        let copy = map.clone();
        for key in 0..5_000 {
            *map.get_mut(&key).unwrap() += 1;
        }
        assert_eq!(map.remove(&17), Some(18));
        assert_eq!((copy.len(), map.len()), (5_000, 4_999));
        assert!(copy.iter().all(|(key, value)| key == value));
        assert!(map.iter().all(|(key, value)| key + 1 == *value));
    }

    #[test]
    fn the_order_depends_on_the_keys_alone_and_rows_spread() {
        let (mut one, mut two) = (CowMap::default(), CowMap::default());
        for key in 0u64..10_240 {
            one.insert(key, ());
            two.insert(10_239 - key, ());
        }
        assert!(one.ordered().eq(two.ordered()));
        let fullest = one.buckets.iter().map(|bucket| bucket.len()).max().unwrap();
        assert!(fullest < 16, "2.5 rows per bucket on average, {fullest} in the fullest");
    }

    #[test]
    fn sweeping_every_bucket_visits_every_row_once() {
        let mut map = CowMap::default();
        for key in 0u64..3_000 {
            map.insert(key, ());
        }
        for bucket in 0..BUCKETS {
            map.sweep(bucket, |key, ()| key % 3 == 0);
        }
        assert_eq!(map.len(), 1_000);
        assert_eq!(map.iter().count(), 1_000);
    }
}
