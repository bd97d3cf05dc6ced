//! Topics at home in a shard, and namespaces (which live in shard 0).

use std::collections::BTreeMap;
use std::ops::Bound;

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, ShardId, TimestampMs};
use weir_protocol::rpc::{
    ListNamespacesRequest, ListTopicsRequest, Namespace, NamespaceList, NamespacePut, Refusal, TopicCreated,
    TopicDescription, TopicList, TopicName,
};

use super::super::command::{CreateTopic, DeleteTopic, PutNamespace, UpdateTopic};

type NameKey = (String, String, String);

/// Topics by name, and namespaces by name.
#[derive(Debug, Clone, Default)]
pub struct Topics {
    pub(super) shard: ShardId,
    pub(super) next_counter: u64,
    pub(super) by_name: BTreeMap<NameKey, TopicDescription>,
    pub(super) namespaces: BTreeMap<(String, String), Namespace>,
}

fn key(name: &TopicName) -> NameKey {
    (name.tenant.clone(), name.namespace.clone(), name.topic.clone())
}

fn label(name: &TopicName) -> String {
    format!("{}/{}", name.namespace, name.topic)
}

impl Topics {
    pub(super) fn new(shard: ShardId) -> Self {
        Self { shard, next_counter: 1, ..Self::default() }
    }

    /// A topic by name.
    ///
    /// # Errors
    /// `topic_not_found`.
    pub fn describe(&self, name: &TopicName) -> Result<&TopicDescription, Refusal> {
        self.by_name.get(&key(name)).ok_or_else(|| {
            Refusal::new(ErrorCode::TopicNotFound, format!("there is no topic {}", label(name)))
        })
    }

    pub(super) fn create(&mut self, create: &CreateTopic, ts: TimestampMs) -> Result<TopicCreated, Refusal> {
        if let Some(existing) = self.by_name.get(&key(&create.name)) {
            if !create.accept_existing && existing.config.as_ref() != Some(&create.config) {
                let detail = format!("topic {} exists with another configuration", label(&create.name));
                return Err(Refusal::new(ErrorCode::ConfigMismatch, detail));
            }
            return Ok(TopicCreated { topic: Some(existing.clone()), created: false });
        }
        let incarnation = Incarnation::compose(self.shard, self.next_counter);
        self.next_counter += 1;
        let partitions = create.config.partitions as usize;
        let topic = TopicDescription {
            name: Some(create.name.clone()),
            incarnation: incarnation.0,
            version: 1,
            config: Some(create.config.clone()),
            shards: vec![self.shard.0; partitions],
            created_ms: ts.0,
        };
        self.by_name.insert(key(&create.name), topic.clone());
        Ok(TopicCreated { topic: Some(topic), created: true })
    }

    pub(super) fn update(&mut self, update: &UpdateTopic) -> Result<TopicDescription, Refusal> {
        self.describe(&update.name)?;
        let topic = self.by_name.get_mut(&key(&update.name)).expect("described above");
        expect_life(topic, Some(update.incarnation), Some(update.expected_version))?;
        if topic.config.as_ref().is_some_and(|config| config.partitions != update.config.partitions) {
            let detail = "the number of partitions cannot be changed yet";
            return Err(Refusal::new(ErrorCode::NotSupported, detail));
        }
        if topic.config.as_ref() != Some(&update.config) {
            topic.config = Some(update.config.clone());
            topic.version += 1;
        }
        Ok(topic.clone())
    }

    pub(super) fn delete(&mut self, delete: &DeleteTopic) -> Result<TopicDescription, Refusal> {
        expect_life(self.describe(&delete.name)?, delete.incarnation, delete.expected_version)?;
        Ok(self.by_name.remove(&key(&delete.name)).expect("described above"))
    }

    /// Topics in name order.
    #[must_use]
    pub fn list(&self, request: &ListTopicsRequest) -> TopicList {
        let name = |topic: &str| (request.tenant.clone(), request.namespace.clone(), topic.to_owned());
        let from = match &request.after {
            Some(after) => Bound::Excluded(name(after)),
            None => Bound::Included(name("")),
        };
        let here = |key: &NameKey| key.0 == request.tenant && key.1 == request.namespace;
        let mut found = self
            .by_name
            .range((from, Bound::Unbounded))
            .take_while(|(key, _)| here(key))
            .filter(|(key, _)| request.contains.as_ref().is_none_or(|text| key.2.contains(text.as_str())))
            .map(|(_, topic)| topic);
        let topics: Vec<_> = found.by_ref().take(request.limit as usize).cloned().collect();
        TopicList { topics, more: found.next().is_some() }
    }

    pub(super) fn put_namespace(&mut self, put: &PutNamespace) -> Result<NamespacePut, Refusal> {
        let key = (put.namespace.tenant.clone(), put.namespace.name.clone());
        let current = self.namespaces.get(&key);
        let version = current.map_or(0, |namespace| namespace.version);
        if put.expected_version.is_some_and(|expected| expected != version) {
            let detail = format!("namespace {} is at version {version}", put.namespace.name);
            let refusal = Refusal::new(ErrorCode::VersionMismatch, detail);
            return Err(Refusal { config_version: Some(version), ..refusal });
        }
        let created = current.is_none();
        let wanted = Namespace { version, ..put.namespace.clone() };
        if current == Some(&wanted) {
            return Ok(NamespacePut { namespace: Some(wanted), created: false, changed: false });
        }
        let namespace = Namespace { version: version + 1, ..wanted };
        self.namespaces.insert(key, namespace.clone());
        Ok(NamespacePut { namespace: Some(namespace), created, changed: true })
    }

    pub(super) fn delete_namespace(&mut self, tenant: &str, name: &str) -> Result<(), Refusal> {
        if name == "default" {
            let detail = "the namespace default always exists";
            return Err(Refusal::new(ErrorCode::NotSupported, detail));
        }
        let removed = self.namespaces.remove(&(tenant.to_owned(), name.to_owned()));
        removed.map(drop).ok_or_else(|| {
            Refusal::new(ErrorCode::NamespaceNotFound, format!("there is no namespace {name}"))
        })
    }

    /// Namespaces in name order.
    #[must_use]
    pub fn list_namespaces(&self, request: &ListNamespacesRequest) -> NamespaceList {
        let here = self.namespaces.iter().filter(|((tenant, name), _)| {
            *tenant == request.tenant
                && request.name.as_ref().is_none_or(|wanted| wanted == name)
                && request.after.as_ref().is_none_or(|after| name > after)
        });
        let mut here = here.map(|(_, namespace)| namespace);
        let namespaces: Vec<_> = here.by_ref().take(request.limit as usize).cloned().collect();
        NamespaceList { namespaces, more: here.next().is_some() }
    }
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
