//! Topics at home in a shard, and namespaces (which live in shard 0).

use std::collections::BTreeMap;
use std::ops::Bound;
use std::sync::Arc;

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Name, ShardId, TimestampMs, TopicPath};
use weir_protocol::limits::{LIST_NAMES_MAX, PARTITIONS_MAX};
use weir_protocol::rpc::{
    ListNamespacesRequest, ListTopicsRequest, Namespace, NamespaceList, NamespacePut, Refusal, TopicConfig,
    TopicCreated, TopicDescription, TopicList, TopicName,
};

use super::super::command::{CreateTopic, DeleteNamespace, DeleteTopic, PutNamespace, UpdateTopic};
use super::cow_map::CowMap;
use super::held_topic::{HeldTopic, NameKey, key};
use super::listing::page;

/// Topics by name, and namespaces by name.
///
/// Every topic is in `lives`; `by_name` follows from it, so checkpoints do not hold it.
#[derive(Debug, Clone)]
pub struct Topics {
    shard: ShardId,
    pub(super) next_counter: u64,
    pub(super) lives: CowMap<Incarnation, Arc<HeldTopic>>,
    by_name: BTreeMap<NameKey, Incarnation>,
    pub(super) namespaces: Arc<BTreeMap<(String, String), Namespace>>,
    /// The configuration that was asked for last: topics are often made alike, and share it then.
    newest_config: Arc<TopicConfig>,
}

fn label(name: &TopicName) -> String {
    format!("{}/{}", name.namespace, name.topic)
}

impl Topics {
    pub(super) fn new(shard: ShardId) -> Self {
        Self {
            shard,
            next_counter: 1,
            lives: CowMap::default(),
            by_name: BTreeMap::new(),
            namespaces: Arc::default(),
            newest_config: Arc::default(),
        }
    }

    /// The topics of a checkpoint; `None` if two have one name.
    pub(super) fn restored(
        shard: ShardId,
        next_counter: u64,
        topics: Vec<TopicDescription>,
        namespaces: Vec<Namespace>,
    ) -> Option<Self> {
        let namespaces = namespaces.into_iter().map(|n| ((n.tenant.clone(), n.name.clone()), n)).collect();
        let mut restored = Self { next_counter, namespaces: Arc::new(namespaces), ..Self::new(shard) };
        for topic in topics {
            if !restored.hold(&topic)? {
                return None;
            }
        }
        Some(restored)
    }

    /// A topic by name.
    ///
    /// # Errors
    /// `topic_not_found`.
    pub fn describe(&self, name: &TopicName) -> Result<TopicDescription, Refusal> {
        let life = self.by_name.get(&key(name)).ok_or_else(|| {
            Refusal::new(ErrorCode::TopicNotFound, format!("there is no topic {}", label(name)))
        })?;
        Ok(self.living(*life))
    }

    /// The topic whose current life this is.
    #[must_use]
    pub fn life(&self, incarnation: Incarnation) -> Option<TopicDescription> {
        self.lives.get(&incarnation).map(|topic| topic.describe(incarnation))
    }

    /// What a topic that lives is called in its namespace.
    pub(super) fn name(&self, life: Incarnation) -> Option<&str> {
        self.lives.get(&life).map(|topic| topic.name())
    }

    fn living(&self, life: Incarnation) -> TopicDescription {
        self.life(life).expect("names and lives change together")
    }

    /// A configuration as it is held: once, if it is that of the topic before.
    pub(super) fn held_config(&mut self, config: &TopicConfig) -> Arc<TopicConfig> {
        if *self.newest_config != *config {
            self.newest_config = Arc::new(config.clone());
        }
        Arc::clone(&self.newest_config)
    }

    /// Holds a topic, new or changed; `None` if it has no name, false if the name or the life was there.
    fn hold(&mut self, topic: &TopicDescription) -> Option<bool> {
        let config = self.held_config(topic.config.as_ref().unwrap_or(&TopicConfig::default()));
        let mut held = HeldTopic::of(topic, config)?;
        if let Some((known, _)) = self.by_name.get_key_value(&held.key) {
            held.key = Arc::clone(known);
        }
        let life = Incarnation(topic.incarnation);
        let is_new_name = self.by_name.insert(Arc::clone(&held.key), life).is_none();
        let is_new_life = self.lives.insert(life, Arc::new(held)).is_none();
        Some(is_new_name && is_new_life)
    }

    pub(super) fn shard(&self) -> ShardId {
        self.shard
    }

    /// Number of topics.
    #[must_use]
    pub fn len(&self) -> usize {
        self.by_name.len()
    }

    /// True if there is no topic.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.by_name.is_empty()
    }

    pub(super) fn create(&mut self, create: &CreateTopic, ts: TimestampMs) -> Result<TopicCreated, Refusal> {
        if let Ok(existing) = self.describe(&create.name) {
            if !create.accept_existing && existing.config.as_ref() != Some(&create.config) {
                let detail = format!("topic {} exists with another configuration", label(&create.name));
                return Err(Refusal::new(ErrorCode::ConfigMismatch, detail));
            }
            return Ok(TopicCreated { topic: Some(existing), created: false });
        }
        TopicPath::try_from(&create.name)
            .map_err(|error| Refusal::new(ErrorCode::InvalidName, error.to_string()))?;
        check_partitions(&create.config)?;
        let incarnation = self.next_life();
        let partitions = create.config.partitions as usize;
        let topic = TopicDescription {
            name: Some(create.name.clone()),
            incarnation: incarnation.0,
            version: 1,
            config: Some(create.config.clone()),
            shards: self.place(partitions, &create.shards),
            created_ms: ts.0,
            first_incarnation: 0,
        };
        self.hold(&topic).expect("it has a name");
        Ok(TopicCreated { topic: Some(topic), created: true })
    }

    /// A life that was never given: of a topic, or of a subscription.
    pub(super) fn next_life(&mut self) -> Incarnation {
        self.next_counter += 1;
        Incarnation::compose(self.shard, self.next_counter - 1)
    }

    /// Shard of each partition: the first is at home, the others follow around the shards, so that a topic's load is
    /// spread evenly and topics start at different places.
    fn place(&self, partitions: usize, shards: &[u32]) -> Vec<u32> {
        let Some(home) = shards.iter().position(|shard| *shard == self.shard.0) else {
            return vec![self.shard.0; partitions];
        };
        (0..partitions).map(|partition| shards[(home + partition) % shards.len()]).collect()
    }

    pub(super) fn update(&mut self, update: &UpdateTopic) -> Result<TopicDescription, Refusal> {
        let mut topic = self.describe(&update.name)?;
        expect_life(&topic, Some(update.incarnation), Some(update.expected_version))?;
        if topic.config.as_ref().is_some_and(|config| config.partitions != update.config.partitions) {
            let detail = "the number of partitions cannot be changed yet";
            return Err(Refusal::new(ErrorCode::NotSupported, detail));
        }
        if topic.config.as_ref() != Some(&update.config) {
            topic.config = Some(update.config.clone());
            topic.version += 1;
            self.hold(&topic).expect("it has a name");
        }
        Ok(topic)
    }

    pub(super) fn delete(&mut self, delete: &DeleteTopic) -> Result<TopicDescription, Refusal> {
        let topic = self.describe(&delete.name)?;
        expect_life(&topic, delete.incarnation, delete.expected_version)?;
        let life = self.by_name.remove(&key(&delete.name)).expect("described above");
        self.lives.remove(&life).expect("names and lives change together");
        Ok(topic)
    }

    /// Topics in name order.
    #[must_use]
    pub fn list(&self, request: &ListTopicsRequest) -> TopicList {
        let prefix = format!("{}\0{}\0", request.tenant, request.namespace);
        let from: NameKey = format!("{prefix}{}", request.after.as_deref().unwrap_or_default()).into();
        // No topic has the empty name, so without `after` nothing is left out.
        let names = self
            .by_name
            .range((Bound::Excluded(from), Bound::Unbounded))
            .map_while(|(key, life)| Some((key.strip_prefix(&prefix)?, *life)));
        let (lives, looked_to) = page(names, request.limit, LIST_NAMES_MAX, |name, _| {
            request.contains.as_ref().is_none_or(|text| name.contains(text.as_str()))
        });
        TopicList { topics: lives.into_iter().map(|life| self.living(life)).collect(), looked_to }
    }

    /// Topics of a namespace whose names begin so.
    pub(super) fn beginning_with(
        &self,
        tenant: &str,
        namespace: &str,
        prefix: &str,
    ) -> impl Iterator<Item = TopicDescription> {
        let from: NameKey = format!("{tenant}\0{namespace}\0{prefix}").into();
        self.by_name
            .range(from.clone()..)
            .take_while(move |(key, _)| key.starts_with(&*from))
            .map(|(_, life)| self.living(*life))
    }

    pub(super) fn put_namespace(&mut self, put: &PutNamespace) -> Result<NamespacePut, Refusal> {
        let key = (put.namespace.tenant.clone(), put.namespace.name.clone());
        let current = self.namespaces.get(&key);
        let version = current.map_or(0, |namespace| namespace.version);
        if put.expected_version.is_some_and(|expected| expected != version) {
            return Err(other_version(&put.namespace.name, version));
        }
        let created = current.is_none();
        for name in [&put.namespace.tenant, &put.namespace.name] {
            Name::new(name).map_err(|error| Refusal::new(ErrorCode::InvalidName, error.to_string()))?;
        }
        let wanted = Namespace { version, ..put.namespace.clone() };
        if current == Some(&wanted) {
            return Ok(NamespacePut { namespace: Some(wanted), created: false, changed: false });
        }
        let namespace = Namespace { version: version + 1, ..wanted };
        Arc::make_mut(&mut self.namespaces).insert(key, namespace.clone());
        Ok(NamespacePut { namespace: Some(namespace), created, changed: true })
    }

    pub(super) fn delete_namespace(&mut self, delete: &DeleteNamespace) -> Result<(), Refusal> {
        let DeleteNamespace { tenant, name, expected_version } = delete;
        if name == "default" {
            let detail = "the namespace default always exists";
            return Err(Refusal::new(ErrorCode::NotSupported, detail));
        }
        let key = (tenant.clone(), name.clone());
        let Some(version) = self.namespaces.get(&key).map(|namespace| namespace.version) else {
            let detail = format!("there is no namespace {name}");
            return Err(Refusal::new(ErrorCode::NamespaceNotFound, detail));
        };
        if expected_version.is_some_and(|expected| expected != version) {
            return Err(other_version(name, version));
        }
        Arc::make_mut(&mut self.namespaces).remove(&key);
        Ok(())
    }

    /// Checks that names and lives agree.
    ///
    /// # Panics
    /// If they do not.
    pub(super) fn check(&self) {
        assert_eq!(self.by_name.len(), self.lives.len(), "every topic has one name");
        for (name, life) in &self.by_name {
            let held = self.lives.get(life).map(|topic| &topic.key);
            assert_eq!(held, Some(name), "name of incarnation {life}");
            assert!(life.0 < Incarnation::compose(self.shard, self.next_counter).0, "counter behind {life}");
        }
    }

    /// Namespaces in name order.
    #[must_use]
    pub fn list_namespaces(&self, request: &ListNamespacesRequest) -> NamespaceList {
        let tenant = &request.tenant;
        if let Some(name) = &request.name {
            let found = self.namespaces.get(&(tenant.clone(), name.clone()));
            return NamespaceList { namespaces: found.cloned().into_iter().collect(), looked_to: None };
        }
        // No namespace has the empty name, so without `after` nothing is left out.
        let from = (tenant.clone(), request.after.clone().unwrap_or_default());
        let names = self
            .namespaces
            .range((Bound::Excluded(from), Bound::Unbounded))
            .take_while(|((owner, _), _)| owner == tenant)
            .map(|((_, name), namespace)| (name.as_str(), namespace));
        let (found, looked_to) = page(names, request.limit, LIST_NAMES_MAX, |name, _| {
            request.contains.as_ref().is_none_or(|text| name.contains(text.as_str()))
        });
        NamespaceList { namespaces: found.into_iter().cloned().collect(), looked_to }
    }
}

/// Apply opens a partition for each, so it does not take the server's word for their number.
fn check_partitions(config: &TopicConfig) -> Result<(), Refusal> {
    if (1..=PARTITIONS_MAX).contains(&config.partitions) {
        return Ok(());
    }
    let detail = format!("{} partitions; 1 to {PARTITIONS_MAX} are allowed", config.partitions);
    Err(Refusal::new(ErrorCode::InvalidConfig, detail))
}

/// Refuses unless the topic is the life and version that is meant.
fn expect_life(topic: &TopicDescription, life: Option<u64>, version: Option<u32>) -> Result<(), Refusal> {
    if life.is_some_and(|life| life != topic.incarnation) {
        let refusal = Refusal::new(ErrorCode::IncarnationGone, "the topic was deleted and recreated");
        return Err(Refusal { incarnation: Some(topic.incarnation), ..refusal });
    }
    if version.is_some_and(|version| version != topic.version) {
        let detail = format!("the configuration is at version {}", topic.version);
        let refusal = Refusal::new(ErrorCode::VersionMismatch, detail);
        return Err(Refusal { config_version: Some(topic.version), ..refusal });
    }
    Ok(())
}

/// A namespace has another version than the one that is meant.
fn other_version(name: &str, version: u32) -> Refusal {
    let detail = format!("namespace {name} is at version {version}");
    Refusal { config_version: Some(version), ..Refusal::new(ErrorCode::VersionMismatch, detail) }
}
