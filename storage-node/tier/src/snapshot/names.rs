//! How snapshots and manifests are called.

use std::fmt;
use std::str::FromStr;

use ulid::Ulid;
use weir_protocol::ids::{ClusterId, LogIndex, ShardId, Term};

use super::manifest::ShardSnapshot;
use crate::store::NameError;

/// Name of a manifest: `<cluster>/manifests/<number>.manifest`. The order of names is that of numbers.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ManifestName {
    /// Cluster.
    pub cluster: ClusterId,
    /// From 1.
    pub number: u64,
}

impl ManifestName {
    /// All manifests of a cluster are called like this and something behind it.
    #[must_use]
    pub fn folder(cluster: ClusterId) -> String {
        format!("{cluster}/manifests")
    }
}

impl fmt::Display for ManifestName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{:020}.manifest", Self::folder(self.cluster), self.number)
    }
}

impl FromStr for ManifestName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let parse = || {
            let mut parts = text.split('/');
            let cluster = ClusterId(u128::from_str_radix(parts.next()?, 16).ok()?);
            let number = parts.nth(1)?.strip_suffix(".manifest")?.parse().ok()?;
            Some(Self { cluster, number })
        };
        parse().filter(|name| name.to_string() == text).ok_or_else(|| NameError(text.to_owned()))
    }
}

/// Name of a snapshot: `<cluster>/snapshots/<shard>/<term>-<index>-<ulid>.snapshot`. The ULID makes it the name of one
/// attempt: nobody ever writes another's.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotName {
    /// Cluster.
    pub cluster: ClusterId,
    /// Shard.
    pub shard: ShardId,
    /// Term of the leader that made it.
    pub term: Term,
    /// The last entry that is part of it.
    pub index: LogIndex,
    /// Of this attempt.
    pub attempt: Ulid,
}

impl SnapshotName {
    /// All snapshots of a cluster are called like this and something behind it.
    #[must_use]
    pub fn folder(cluster: ClusterId) -> String {
        format!("{cluster}/snapshots")
    }

    /// The one that a manifest of `cluster` names.
    #[must_use]
    pub fn of(cluster: ClusterId, named: &ShardSnapshot) -> Self {
        let (term, index) = named.at();
        Self { cluster, shard: named.shard(), term, index, attempt: Ulid(named.attempt.into()) }
    }
}

impl fmt::Display for SnapshotName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, shard, term, index, attempt } = self;
        write!(f, "{}/{shard}/{:020}-{:020}-{attempt}.snapshot", Self::folder(*cluster), term.0, index.0)
    }
}

impl FromStr for SnapshotName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let parse = || {
            let mut parts = text.split('/');
            let cluster = ClusterId(u128::from_str_radix(parts.next()?, 16).ok()?);
            let shard = ShardId(parts.nth(1)?.parse().ok()?);
            let mut words = parts.next()?.strip_suffix(".snapshot")?.split('-');
            let (term, index) = (words.next()?.parse().ok()?, words.next()?.parse().ok()?);
            let attempt = Ulid::from_string(words.next()?).ok()?;
            Some(Self { cluster, shard, term: Term(term), index: LogIndex(index), attempt })
        };
        // Read and written again it must be the same: nothing else is ever taken for one.
        parse().filter(|name| name.to_string() == text).ok_or_else(|| NameError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_read_back_in_the_order_of_what_they_name(cluster: u128, shard: u32, a: u64, b: u64, attempt: u128) {
            let cluster = ClusterId(cluster);
            let [one, two] = [a, b].map(|number| ManifestName { cluster, number });
            prop_assert_eq!(one.to_string().parse(), Ok(one));
            prop_assert_eq!(one.to_string().cmp(&two.to_string()), a.cmp(&b));
            let name = SnapshotName {
                cluster, shard: ShardId(shard), term: Term(a), index: LogIndex(b), attempt: Ulid(attempt),
            };
            prop_assert_eq!(name.to_string().parse(), Ok(name));
        }

        /// One character of a name is another, is missing, or is one too many.
        #[test]
        fn what_differs_from_a_name_is_no_name_or_another(
            number in 0u64..200, at: proptest::sample::Index, with in "[0-9a-zA-Z/.+-]?", is_more: bool,
        ) {
            let (cluster, shard, attempt) = (ClusterId(u128::MAX / 3), ShardId(7), Ulid(u128::from(number)));
            let (term, index) = (Term(number), LogIndex(number));
            let manifest = ManifestName { cluster, number }.to_string();
            let snapshot = SnapshotName { cluster, shard, term, index, attempt }.to_string();
            for name in [manifest, snapshot] {
                let from = at.index(name.len());
                let mut text = name.clone();
                text.replace_range(from..from + usize::from(!is_more), &with);
                let read = text.parse::<ManifestName>().map(|name| name.to_string());
                let read = read.or_else(|_| text.parse::<SnapshotName>().map(|name| name.to_string()));
                prop_assert!(read.is_err() || read.as_ref() == Ok(&text), "{} is taken for {:?}", text, read);
            }
        }
    }

    #[test]
    fn what_only_looks_like_a_name_is_none() {
        let cluster = ClusterId(0xab);
        let manifest = ManifestName { cluster, number: 5 }.to_string();
        let snapshot =
            SnapshotName { cluster, shard: ShardId(1), term: Term(2), index: LogIndex(3), attempt: Ulid(4) };
        let snapshot = snapshot.to_string();
        let near = |text: String| {
            assert!(text.parse::<ManifestName>().is_err() && text.parse::<SnapshotName>().is_err(), "{text}");
        };
        for name in [manifest, snapshot] {
            near(name.replace("000ab/", "000AB/"));
            near(name.replace("ab/", "b/"));
            near(name.replace("/0000", "/+000"));
            near(name.replace("/0000", "/00000"));
            near(name.replace("/0000", "/x/0000"));
            near(format!("{name}/"));
            near(format!("/{name}"));
            near(name.replace("manifests", "snapshots").replace("/1/", "/01/"));
        }
    }
}
