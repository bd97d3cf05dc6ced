//! A topic as a shard holds it.

use std::sync::Arc;

use weir_protocol::ids::Incarnation;
use weir_protocol::rpc::{TopicConfig, TopicDescription, TopicName};

/// Tenant, namespace and topic with a zero byte after each of the first two. No name contains one, so the order is
/// that of the three names.
pub(super) type NameKey = Arc<str>;

/// The key of a name.
pub(super) fn key(name: &TopicName) -> NameKey {
    format!("{}\0{}\0{}", name.tenant, name.namespace, name.topic).into()
}

/// What a [`TopicDescription`] says, in a third of its memory: there may be a hundred thousand that nobody uses.
#[derive(Debug, Clone)]
pub(super) struct HeldTopic {
    /// Shared with the order of names.
    pub(super) key: NameKey,
    /// Shared with the topic's partitions, and with topics alike.
    pub(super) config: Arc<TopicConfig>,
    /// Shard of each partition.
    pub(super) shards: Box<[u32]>,
    pub(super) version: u32,
    created_ms: u64,
    first_incarnation: u64,
}

const _: () = assert!(size_of::<HeldTopic>() <= 64, "what each topic takes, besides its name");

impl HeldTopic {
    /// What is described, under a configuration that is the described one; `None` without a name.
    pub(super) fn of(described: &TopicDescription, config: Arc<TopicConfig>) -> Option<Self> {
        Some(Self {
            key: key(described.name.as_ref()?),
            config,
            shards: described.shards.as_slice().into(),
            version: described.version,
            created_ms: described.created_ms,
            first_incarnation: described.first_incarnation,
        })
    }

    /// The description of this life.
    pub(super) fn describe(&self, life: Incarnation) -> TopicDescription {
        TopicDescription {
            name: Some(self.full_name()),
            incarnation: life.0,
            version: self.version,
            config: Some((*self.config).clone()),
            shards: self.shards.to_vec(),
            created_ms: self.created_ms,
            first_incarnation: self.first_incarnation,
        }
    }

    /// What it is called in its namespace.
    pub(super) fn name(&self) -> &str {
        self.key.rsplit('\0').next().expect("a key has three names")
    }

    /// Its full name.
    fn full_name(&self) -> TopicName {
        let mut parts = self.key.split('\0').map(str::to_owned);
        let mut next = || parts.next().expect("a key has three names");
        TopicName { tenant: next(), namespace: next(), topic: next() }
    }
}
