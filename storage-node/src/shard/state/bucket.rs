//! The rows of one bucket of a [`CowMap`](super::cow_map::CowMap).

use std::collections::HashMap;
use std::collections::hash_map;
use std::hash::{BuildHasher, Hash};
use std::slice;

/// Rows up to which a list is searched. A hash table has room for three from its start, and half of its memory is for
/// what is found in a list of them at a glance.
const FEW_MAX: usize = 4;

/// A hash map that is a list without room to spare as long as it is short: in a map of a few thousand rows most buckets
/// hold one or two.
#[derive(Debug, Clone)]
pub(super) enum Bucket<K, V, S> {
    Few(Vec<(K, V)>),
    Many(HashMap<K, V, S>),
}

impl<K, V, S> Default for Bucket<K, V, S> {
    fn default() -> Self {
        Self::Few(Vec::new())
    }
}

impl<K: Eq + Hash, V, S: BuildHasher + Default> Bucket<K, V, S> {
    pub(super) fn len(&self) -> usize {
        match self {
            Self::Few(rows) => rows.len(),
            Self::Many(rows) => rows.len(),
        }
    }

    pub(super) fn get(&self, key: &K) -> Option<&V> {
        match self {
            Self::Few(rows) => rows.iter().find(|row| row.0 == *key).map(|row| &row.1),
            Self::Many(rows) => rows.get(key),
        }
    }

    pub(super) fn get_mut(&mut self, key: &K) -> Option<&mut V> {
        match self {
            Self::Few(rows) => rows.iter_mut().find(|row| row.0 == *key).map(|row| &mut row.1),
            Self::Many(rows) => rows.get_mut(key),
        }
    }

    pub(super) fn insert(&mut self, key: K, value: V) -> Option<V> {
        match self {
            Self::Many(rows) => return rows.insert(key, value),
            Self::Few(rows) => {
                if let Some(row) = rows.iter_mut().find(|row| row.0 == key) {
                    return Some(std::mem::replace(&mut row.1, value));
                }
                rows.reserve_exact(1);
                rows.push((key, value));
            }
        }
        if let Self::Few(rows) = self
            && rows.len() > FEW_MAX
        {
            *self = Self::Many(std::mem::take(rows).into_iter().collect());
        }
        None
    }

    pub(super) fn remove(&mut self, key: &K) -> Option<V> {
        match self {
            Self::Few(rows) => {
                let at = rows.iter().position(|row| row.0 == *key)?;
                let removed = rows.swap_remove(at).1;
                rows.shrink_to_fit();
                Some(removed)
            }
            Self::Many(rows) => rows.remove(key),
        }
    }

    pub(super) fn retain(&mut self, mut keep: impl FnMut(&K, &V) -> bool) {
        match self {
            Self::Few(rows) => {
                rows.retain(|row| keep(&row.0, &row.1));
                rows.shrink_to_fit();
            }
            Self::Many(rows) => rows.retain(|key, value| keep(key, value)),
        }
    }

    /// The rows, in no order.
    pub(super) fn iter(&self) -> Iter<'_, K, V> {
        match self {
            Self::Few(rows) => Iter::Few(rows.iter()),
            Self::Many(rows) => Iter::Many(rows.iter()),
        }
    }
}

/// See [`Bucket::iter`].
pub(super) enum Iter<'a, K, V> {
    Few(slice::Iter<'a, (K, V)>),
    Many(hash_map::Iter<'a, K, V>),
}

impl<'a, K, V> Iterator for Iter<'a, K, V> {
    type Item = (&'a K, &'a V);

    fn next(&mut self) -> Option<Self::Item> {
        match self {
            Self::Few(rows) => rows.next().map(|row| (&row.0, &row.1)),
            Self::Many(rows) => rows.next(),
        }
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::hash::RandomState;

    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn few_rows_and_many_answer_like_a_plain_map(
            steps in proptest::collection::vec((0u8..4, 0u64..12, any::<u32>()), 0..80),
        ) {
            let mut bucket = Bucket::<u64, u32, RandomState>::default();
            let mut plain = BTreeMap::new();
            for (step, key, value) in steps {
                match step {
                    0 | 1 => prop_assert_eq!(bucket.insert(key, value), plain.insert(key, value)),
                    2 => prop_assert_eq!(bucket.remove(&key), plain.remove(&key)),
                    _ => {
                        bucket.retain(|row, _| row % 3 != key % 3);
                        plain.retain(|row, _| row % 3 != key % 3);
                    }
                }
                if let Some(found) = bucket.get_mut(&key) {
                    *found = found.wrapping_add(1);
                    plain.entry(key).and_modify(|found| *found = found.wrapping_add(1));
                }
                prop_assert_eq!(bucket.get(&key), plain.get(&key));
                prop_assert_eq!(bucket.len(), plain.len());
                let rows: BTreeMap<_, _> = bucket.iter().map(|(key, value)| (*key, *value)).collect();
                prop_assert_eq!(&rows, &plain);
                if let Bucket::Few(rows) = &bucket {
                    prop_assert_eq!(rows.capacity(), rows.len(), "no room to spare");
                }
            }
        }
    }
}
