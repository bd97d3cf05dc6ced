//! Identities and positions. Every one is a newtype: two bare integers never stand side by side in a signature.

use std::fmt;
use std::sync::Arc;

/// Why a name was refused.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum NameError {
    /// Empty or longer than [`Name::MAX_BYTES`].
    #[error("a name has 1 to {max} bytes, this one has {0}", max = Name::MAX_BYTES)]
    Length(usize),
    /// A byte outside `[A-Za-z0-9._~-]`.
    #[error("a name consists of A-Z a-z 0-9 . _ ~ - only, found {0:?}")]
    Character(char),
    /// `.` or `..`, which URL libraries rewrite.
    #[error("`.` and `..` are not names")]
    Dots,
}

/// A tenant, namespace, topic or subscription name: `[A-Za-z0-9._~-]{1,255}`, not `.` or `..`.
/// Cheap to clone. Ordered by bytes.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Name(Arc<str>);

impl Name {
    /// Longest name, in bytes.
    pub const MAX_BYTES: usize = 255;

    /// Checks and takes a name.
    ///
    /// # Errors
    /// [`NameError`] says which rule the text breaks; the caller must be told, nothing is altered.
    pub fn new(text: &str) -> Result<Self, NameError> {
        if text.is_empty() || text.len() > Self::MAX_BYTES {
            return Err(NameError::Length(text.len()));
        }
        if let Some(bad) = text.chars().find(|c| !(c.is_ascii_alphanumeric() || "._~-".contains(*c))) {
            return Err(NameError::Character(bad));
        }
        if text == "." || text == ".." {
            return Err(NameError::Dots);
        }
        Ok(Self(text.into()))
    }

    /// The name `default`: the tenant of unauthenticated clients and the namespace that always exists.
    #[must_use]
    pub fn default_name() -> Self {
        Self("default".into())
    }

    /// Holds the text of `known` instead of its own, if both are the same.
    pub fn share(&mut self, known: &Self) {
        if self == known {
            self.0 = Arc::clone(&known.0);
        }
    }

    /// The text is there once for both.
    #[must_use]
    pub fn shares(&self, other: &Self) -> bool {
        Arc::ptr_eq(&self.0, &other.0)
    }

    /// The text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Display for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

impl fmt::Debug for Name {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Debug::fmt(&*self.0, f)
    }
}

impl std::str::FromStr for Name {
    type Err = NameError;
    fn from_str(text: &str) -> Result<Self, NameError> {
        Self::new(text)
    }
}

/// Full name of a topic. Ordered by tenant, namespace, topic.
#[derive(Debug, Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct TopicPath {
    /// Owner; `default` until tokens exist.
    pub tenant: Name,
    /// Namespace.
    pub namespace: Name,
    /// Topic.
    pub topic: Name,
}

impl fmt::Display for TopicPath {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}/{}/{}", self.tenant, self.namespace, self.topic)
    }
}

macro_rules! number {
    ($(#[$doc:meta])* $name:ident($inner:ty)) => {
        $(#[$doc])*
        #[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
        pub struct $name(pub $inner);
        impl fmt::Display for $name {
            fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
                fmt::Display::fmt(&self.0, f)
            }
        }
    };
}

number!(
    /// One life of a topic: `home_shard << 40 | counter`, below 2^53; a recreated topic has another.
    /// Zero is no topic: in a log it names the shard itself.
    Incarnation(u64)
);
number!(
    /// Version of a topic's configuration, from 1, raised by every change.
    ConfigVersion(u32)
);
number!(
    /// A partition of a topic, from 0.
    PartitionId(u32)
);
number!(
    /// A shard: one Raft group. 0 is the meta group; data shards are 1 and up, below [`ShardId::LIMIT`].
    ShardId(u32)
);
number!(
    /// A storage node, from 1. Never reused: a node whose disk was wiped gets another.
    NodeId(u64)
);
number!(
    /// A Raft term of one shard.
    Term(u64)
);
number!(
    /// Index of an entry in a shard's Raft log, from 0.
    LogIndex(u64)
);
number!(
    /// Position of a record in its partition, contiguous from 0. As an end it is exclusive.
    Offset(u64)
);
number!(
    /// A producer's number for one record, from 0, contiguous per (producer, epoch).
    Seq(u64)
);
number!(
    /// A producer's epoch; a higher one fences all lower ones.
    Epoch(u32)
);
number!(
    /// Milliseconds since the Unix epoch, stamped by a shard's leader, never decreasing within a shard.
    TimestampMs(u64)
);
number!(
    /// One of the [`crate::slots::SLOTS`] hash slots that map topics to home shards.
    Slot(u16)
);

impl ShardId {
    /// The meta group.
    pub const META: Self = Self(0);
    /// Shards are numbered below this, so that an incarnation fits 53 bits.
    pub const LIMIT: u32 = 8192;
}

impl Incarnation {
    /// Bits of the per-shard counter below the shard number.
    pub const COUNTER_BITS: u32 = 40;
    /// The shard itself rather than a topic.
    pub const SHARD: Self = Self(0);

    /// The incarnation that `home` hands out as its `counter`th.
    ///
    /// # Panics
    /// If `home` or `counter` exceeds its range: handing out a duplicate would mix two topics' records.
    #[must_use]
    pub fn compose(home: ShardId, counter: u64) -> Self {
        assert!(home.0 < ShardId::LIMIT, "shard {home} is not below {}", ShardId::LIMIT);
        assert!(
            counter < 1 << Self::COUNTER_BITS,
            "incarnation counter {counter} of shard {home} is exhausted"
        );
        Self(u64::from(home.0) << Self::COUNTER_BITS | counter)
    }

    /// The shard that handed it out: the topic's home shard at creation.
    #[must_use]
    pub fn home(self) -> ShardId {
        ShardId((self.0 >> Self::COUNTER_BITS) as u32)
    }
}

const _: () = assert!(
    (ShardId::LIMIT as u64 - 1) << Incarnation::COUNTER_BITS < 1 << 53,
    "incarnations are JSON numbers, so they stay below 2^53"
);

impl Offset {
    /// The offset `n` records later.
    ///
    /// # Panics
    /// On overflow of 64 bits, which no partition reaches.
    #[must_use]
    pub fn plus(self, n: u64) -> Self {
        Self(self.0.checked_add(n).expect("a partition never holds 2^64 records"))
    }
}

/// 128-bit identity of a producer on one topic: BLAKE3 of (incarnation, producer id text). Zero means none.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct ProducerKey(pub u128);

impl ProducerKey {
    /// No producer: the batch takes no part in producer deduplication.
    pub const NONE: Self = Self(0);

    /// Key of producer `id` on the topic `incarnation`. Never [`ProducerKey::NONE`].
    #[must_use]
    pub fn of(incarnation: Incarnation, id: &str) -> Self {
        Self(hash128(&[&incarnation.0.to_le_bytes(), id.as_bytes()]).max(1))
    }

    /// True for [`ProducerKey::NONE`].
    #[must_use]
    pub fn is_none(self) -> bool {
        self == Self::NONE
    }
}

/// Identity of a cluster: 128 random bits, written once when its first node is initialised.
#[derive(Clone, Copy, PartialEq, Eq, Hash)]
pub struct ClusterId(pub u128);

impl fmt::Display for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{:032x}", self.0)
    }
}

impl fmt::Debug for ClusterId {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        fmt::Display::fmt(self, f)
    }
}

/// First 128 bits, little-endian, of BLAKE3 over the parts, each preceded by its length as u64 LE.
/// Length prefixes keep ("ab","c") and ("a","bc") apart.
#[must_use]
pub fn hash128(parts: &[&[u8]]) -> u128 {
    let mut hasher = blake3::Hasher::new();
    for part in parts {
        hasher.update(&(part.len() as u64).to_le_bytes());
        hasher.update(part);
    }
    let mut first = [0; 16];
    first.copy_from_slice(&hasher.finalize().as_bytes()[..16]);
    u128::from_le_bytes(first)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_follow_the_published_grammar() {
        for good in ["a", "orders.v2~x_-9", &"n".repeat(255)] {
            assert_eq!(Name::new(good).unwrap().as_str(), good);
        }
        assert_eq!(Name::new(""), Err(NameError::Length(0)));
        assert_eq!(Name::new(&"n".repeat(256)), Err(NameError::Length(256)));
        assert_eq!(Name::new("a/b"), Err(NameError::Character('/')));
        assert_eq!(Name::new("é"), Err(NameError::Character('é')));
        assert_eq!(Name::new(".."), Err(NameError::Dots));
    }

    #[test]
    fn incarnations_carry_their_home_shard() {
        let inc = Incarnation::compose(ShardId(8191), (1 << 40) - 1);
        assert_eq!(inc.home(), ShardId(8191));
        assert!(inc.0 < 1 << 53);
    }

    #[test]
    fn producer_keys_differ_between_lives_of_a_topic() {
        assert_ne!(ProducerKey::of(Incarnation(1), "p"), ProducerKey::of(Incarnation(2), "p"));
        assert!(!ProducerKey::of(Incarnation(1), "").is_none());
    }
}
