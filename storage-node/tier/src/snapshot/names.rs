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

        #[test]
        fn no_other_text_is_a_name(text in ".{0,200}") {
            prop_assert!(text.parse::<ManifestName>().is_err() && text.parse::<SnapshotName>().is_err());
        }
    }
}
