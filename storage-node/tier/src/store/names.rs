//! How objects are called.

use std::fmt;
use std::str::FromStr;

use ulid::Ulid;
use weir_protocol::checksum::crc32c;
use weir_protocol::ids::{ClusterId, LogIndex, ShardId, Term};

/// Name of a pack: `<cluster>/data/<hash>/<shard>/<first>-<last>-<term>-<ulid>.pack`.
///
/// The term and the ULID make it the name of one attempt of one leader: two leaders, or two attempts of one,
/// never write the same object, and which of them counts is decided by the shard's log. Two digits of a hash
/// come first, because stores spread load by the beginning of names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct PackName {
    /// Cluster.
    pub cluster: ClusterId,
    /// Shard.
    pub shard: ShardId,
    /// First entry of the log that it has batches of.
    pub first: LogIndex,
    /// Last one.
    pub last: LogIndex,
    /// Term of the leader that made it.
    pub term: Term,
    /// Of this attempt.
    pub attempt: Ulid,
}

/// A text is not the name of a pack.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("{0:?} is not the name of a pack")]
pub struct NameError(pub String);

impl PackName {
    /// All packs of a cluster are called like this and something behind it.
    #[must_use]
    pub fn folder(cluster: ClusterId) -> String {
        format!("{cluster}/data")
    }

    /// The same for each of the folders that the hash makes: together they have all packs.
    pub fn folders(cluster: ClusterId) -> impl Iterator<Item = String> {
        (0..=u8::MAX).map(move |hash| format!("{}/{hash:02x}", Self::folder(cluster)))
    }

    /// The 128 bits by which caches know the pack.
    #[must_use]
    pub fn id(&self) -> u128 {
        self.attempt.0
    }
}

impl fmt::Display for PackName {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self { cluster, shard, first, last, term, attempt } = self;
        let hash = crc32c(&attempt.0.to_le_bytes()) & 0xff;
        let folder = Self::folder(*cluster);
        write!(f, "{folder}/{hash:02x}/{shard}/{:020}-{:020}-{:020}-{attempt}.pack", first.0, last.0, term.0)
    }
}

impl FromStr for PackName {
    type Err = NameError;

    fn from_str(text: &str) -> Result<Self, NameError> {
        let parse = || {
            let mut parts = text.split('/');
            let cluster = ClusterId(u128::from_str_radix(parts.next()?, 16).ok()?);
            let (_, _, shard) = (parts.next()?, parts.next()?, parts.next()?);
            let mut words = parts.next()?.strip_suffix(".pack")?.split('-');
            let mut number = || words.next()?.parse().ok();
            let (first, last, term) = (LogIndex(number()?), LogIndex(number()?), Term(number()?));
            let attempt = Ulid::from_string(words.next()?).ok()?;
            Some(Self { cluster, shard: ShardId(shard.parse().ok()?), first, last, term, attempt })
        };
        // Read and written again it must be the same: nothing else is ever taken for a pack.
        parse().filter(|name| name.to_string() == text).ok_or_else(|| NameError(text.to_owned()))
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn names_read_back_and_nothing_else_does(cluster: u128, shard: u32, first: u64, last: u64, term: u64, attempt: u128, cut in 0usize..150) {
            let name = PackName {
                cluster: ClusterId(cluster),
                shard: ShardId(shard),
                first: LogIndex(first),
                last: LogIndex(last),
                term: Term(term),
                attempt: Ulid(attempt),
            };
            let text = name.to_string();
            prop_assert_eq!(text.parse(), Ok(name));
            let within = |folder: &String| text.starts_with(&format!("{folder}/"));
            prop_assert_eq!(PackName::folders(name.cluster).filter(within).count(), 1);
            if cut < text.len() {
                prop_assert!(text[..cut].parse::<PackName>().is_err());
                prop_assert!(text.replacen('-', "/", 1).parse::<PackName>().is_err());
            }
        }

        #[test]
        fn no_text_makes_it_panic(text in ".{0,200}") {
            prop_assert!(text.parse::<PackName>().is_err());
        }
    }
}
