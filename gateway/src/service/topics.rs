//! Topics: kept by their home shards.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};
use prost::Message;
use tokio::time::Instant;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{ConfigVersion, Incarnation, Name, ShardId, TopicPath};
use weir_protocol::limits::{DEDUPE_WINDOW_MS_DEFAULT, DEDUPE_WINDOW_MS_MIN, INTEGER_MAX, PARTITIONS_MAX};
use weir_protocol::rpc::{
    CreateTopicRequest, DeleteTopicRequest, Level, ListTopicsRequest, Method, PartitionRef, PartitionStats,
    PartitionStatsList, PartitionStatsRequest, TopicConfig, TopicCreated, TopicDescription, TopicList,
    UpdateTopicRequest,
};

use super::ServiceError;
use super::media_type::{MEDIA_TYPE_BYTES_MAX, is_media_type};
use super::namespaces::Namespaces;
use super::page::{Page, merged, name_of};
use super::publish::NOT_ARCHIVED;
use crate::storage::{CallFor, Safety, Storage, Topic};

/// Attempts of a change that names no version, when others change the topic at the same time.
const UPDATE_ATTEMPTS: u32 = 5;

/// A topic and how it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct TopicView {
    /// The topic.
    pub topic: Arc<Topic>,
    /// Statistics of each partition, by number; `None` where the shard cannot be reached.
    pub partitions: Vec<Option<PartitionStats>>,
}

/// Which page of topics.
#[derive(Debug, Clone)]
pub struct ListTopics {
    /// Owner.
    pub tenant: Name,
    /// Namespace.
    pub namespace: Name,
    /// Only names that contain this.
    pub contains: Option<String>,
    /// At most this many.
    pub limit: u32,
    /// Cursor of the page before.
    pub cursor: Option<String>,
}

/// What a topic gets where nothing is said, on storage that confirms up to `level_max`.
#[must_use]
pub fn default_topic_config(level_max: Level) -> TopicConfig {
    TopicConfig {
        partitions: 1,
        default_confirm: level_max.min(Level::Quorum) as i32,
        deliver_from: Level::Quorum as i32,
        min_confirm: Level::None as i32,
        dedupe_window_ms: DEDUPE_WINDOW_MS_DEFAULT,
        ..TopicConfig::default()
    }
}

/// Manages topics.
#[derive(Debug, Clone)]
pub struct Topics {
    pub(super) storage: Storage,
    namespaces: Namespaces,
}

impl Topics {
    pub(super) fn new(storage: Storage, namespaces: Namespaces) -> Self {
        Self { storage, namespaces }
    }

    /// Creates a topic. True: it did not exist before; false: it exists with this very configuration. On return
    /// every partition can be published to.
    ///
    /// # Errors
    /// `config_mismatch`, `namespace_not_found`, `invalid_config`; `not_supported` and `level_unavailable` for what
    /// would have no effect.
    pub async fn create(
        &self,
        path: &TopicPath,
        config: TopicConfig,
    ) -> Result<(Arc<Topic>, bool), ServiceError> {
        let deadline = self.storage.deadline();
        self.storage.ready(deadline).await?;
        check_config(&config, self.storage.level_max())?;
        check_content_type(&config)?;
        check_numbers(&config, None)?;
        self.namespaces.find(&path.tenant, &path.namespace, deadline).await?;
        self.create_in_namespace(path, config, false, deadline).await
    }

    async fn create_in_namespace(
        &self,
        path: &TopicPath,
        config: TopicConfig,
        accept_existing: bool,
        deadline: Instant,
    ) -> Result<(Arc<Topic>, bool), ServiceError> {
        let request = CreateTopicRequest { name: Some(path.into()), config: Some(config), accept_existing };
        let call = CallFor {
            shard: self.storage.home(path, deadline).await?,
            method: Method::CreateTopic,
            // Created twice is created once; only who was first cannot be told after a lost answer.
            safety: Safety::Repeatable,
            deadline,
        };
        let created: TopicCreated = self.storage.ask(call, &request).await?;
        let topic = created.topic.ok_or_else(|| {
            ServiceError::new(ErrorCode::Internal, "a storage node created a topic and did not describe it")
        })?;
        Ok((self.storage.remember(topic)?, created.created))
    }

    /// A topic as its home shard knows it now.
    ///
    /// # Errors
    /// `topic_not_found`, `namespace_not_found`.
    pub async fn get(&self, path: &TopicPath) -> Result<Arc<Topic>, ServiceError> {
        let deadline = self.storage.deadline();
        match self.storage.describe(path, deadline).await {
            Err(failure) => Err(self.explain(path, failure, deadline).await),
            topic => topic,
        }
    }

    /// A topic with the statistics of its partitions.
    ///
    /// # Errors
    /// As [`Topics::get`].
    pub async fn view(&self, path: &TopicPath) -> Result<TopicView, ServiceError> {
        let topic = self.get(path).await?;
        let mut views = self.views(vec![topic], true).await;
        Ok(views.pop().expect("one view per topic"))
    }

    /// The topic as last seen, for requests that a storage node will check anyway.
    pub(super) async fn known(
        &self,
        path: &TopicPath,
        deadline: Instant,
    ) -> Result<Arc<Topic>, ServiceError> {
        match self.storage.topic(path, deadline).await {
            Err(failure) => Err(self.explain(path, failure, deadline).await),
            topic => topic,
        }
    }

    /// The topic as last seen; created if there is none and its namespace says so, unless `check` refuses the
    /// topic that it would be: what is refused has no effect.
    pub(super) async fn known_or_created(
        &self,
        path: &TopicPath,
        deadline: Instant,
        check: impl FnOnce(&Topic) -> Result<(), ServiceError>,
    ) -> Result<Arc<Topic>, ServiceError> {
        let missing = match self.storage.topic(path, deadline).await {
            Err(failure) if failure.code() == ErrorCode::TopicNotFound => failure,
            topic => return topic,
        };
        let namespace = self.namespaces.find(&path.tenant, &path.namespace, deadline).await?;
        if !namespace.auto_create {
            let detail = format!(
                "{}, and its namespace makes none on first use: create the topic, or set auto_create there",
                missing.refusal().detail
            );
            return Err(ServiceError::new(ErrorCode::TopicNotFound, detail));
        }
        let cache_public = namespace.cache_public;
        let config = TopicConfig { cache_public, ..default_topic_config(self.storage.level_max()) };
        check(&Topic::unmade(path.clone(), config.clone()))?;
        let (topic, _) = self.create_in_namespace(path, config, true, deadline).await?;
        Ok(topic)
    }

    /// Whether the first publish makes the topic, if there is none.
    pub(super) async fn makes_on_first_use(&self, path: &TopicPath) -> Result<bool, ServiceError> {
        let deadline = self.storage.deadline();
        Ok(self.namespaces.find(&path.tenant, &path.namespace, deadline).await?.auto_create)
    }

    /// A missing topic in a missing namespace is a missing namespace.
    async fn explain(&self, path: &TopicPath, failure: ServiceError, deadline: Instant) -> ServiceError {
        if failure.code() != ErrorCode::TopicNotFound {
            return failure;
        }
        match self.namespaces.find(&path.tenant, &path.namespace, deadline).await {
            Err(other) if other.code() == ErrorCode::NamespaceNotFound => other,
            _ => failure,
        }
    }

    /// Changes a topic's configuration. With `expected` only that life and version is changed; without, `change`
    /// is applied to whatever stands there, again if somebody else was faster.
    ///
    /// # Errors
    /// `topic_not_found`, `version_mismatch`, `incarnation_gone`, `invalid_config`, `not_supported` for another
    /// number of partitions; `not_supported` and `level_unavailable` also for what would have no effect.
    pub async fn update(
        &self,
        path: &TopicPath,
        expected: Option<(Incarnation, ConfigVersion)>,
        change: impl Fn(TopicConfig) -> TopicConfig + Send,
    ) -> Result<Arc<Topic>, ServiceError> {
        let mut attempts = UPDATE_ATTEMPTS;
        loop {
            attempts -= 1;
            let topic = self.get(path).await?;
            let config = change((*topic.config).clone());
            check_config(&config, self.storage.level_max())?;
            check_numbers(&config, Some(&topic.config))?;
            // What it has, from before this was checked, does not keep anybody from changing the rest.
            if config.content_type != topic.config.content_type {
                check_content_type(&config)?;
            }
            let (incarnation, version) = expected.unwrap_or((topic.incarnation, topic.version));
            let request = UpdateTopicRequest {
                name: Some(path.into()),
                config: Some(config),
                incarnation: incarnation.0,
                expected_version: version.0,
            };
            let deadline = self.storage.deadline();
            let call = CallFor {
                shard: self.storage.home(path, deadline).await?,
                method: Method::UpdateTopic,
                safety: Safety::Once,
                deadline,
            };
            match self.storage.ask::<_, TopicDescription>(call, &request).await {
                Ok(description) => return self.storage.remember(description),
                Err(failure)
                    if expected.is_none() && failure.code() == ErrorCode::VersionMismatch && attempts > 0 => {
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    /// Deletes a topic with all its records: any, or only this life and version of it.
    ///
    /// # Errors
    /// `topic_not_found`, `version_mismatch`, `incarnation_gone`.
    pub async fn delete(
        &self,
        path: &TopicPath,
        expected: Option<(Incarnation, ConfigVersion)>,
    ) -> Result<(), ServiceError> {
        let deadline = self.storage.deadline();
        let request = DeleteTopicRequest {
            name: Some(path.into()),
            incarnation: expected.map(|(incarnation, _)| incarnation.0),
            expected_version: expected.map(|(_, version)| version.0),
        };
        let call = CallFor {
            shard: self.storage.home(path, deadline).await?,
            method: Method::DeleteTopic,
            safety: Safety::Once,
            deadline,
        };
        let deleted = self.storage.send(call, vec![request.encode_to_vec().into()]).await;
        if let Some(topic) = self.storage.cached(path) {
            self.storage.forget(path, (topic.incarnation, topic.version));
        }
        match deleted {
            Err(failure) => Err(self.explain(path, failure, deadline).await),
            Ok(_) => Ok(()),
        }
    }

    /// A page of topics in name order, over all shards; statistics are fetched for the page only.
    ///
    /// # Errors
    /// `namespace_not_found`, `invalid_cursor`, or what a shard's leader says: a list with holes is no list.
    pub async fn list(&self, list: &ListTopics) -> Result<Page<TopicView>, ServiceError> {
        let deadline = self.storage.deadline();
        let after = list.cursor.as_deref().map(name_of).transpose()?;
        self.namespaces.find(&list.tenant, &list.namespace, deadline).await?;
        let request = ListTopicsRequest {
            tenant: list.tenant.to_string(),
            namespace: list.namespace.to_string(),
            contains: list.contains.clone(),
            after,
            limit: list.limit,
        };
        let shards = self.storage.data_shards(deadline).await?;
        let asked = shards.into_iter().map(|shard| {
            let call = CallFor { shard, method: Method::ListTopics, safety: Safety::Repeatable, deadline };
            self.storage.ask::<_, TopicList>(call, &request)
        });
        let mut found = Vec::new();
        for answer in try_join_all(asked).await? {
            let topics = answer.topics.into_iter().map(|description| {
                let topic = Topic::try_from(description)?;
                Ok((topic.path.topic.to_string(), Arc::new(topic)))
            });
            found.push((topics.collect::<Result<_, ServiceError>>()?, answer.looked_to));
        }
        let Page { items, next } = merged(found, list.limit);
        Ok(Page { items: self.views(items, false).await, next })
    }

    /// Statistics of all partitions of these topics, one call per shard; where their messages are only if it
    /// is asked for.
    async fn views(&self, topics: Vec<Arc<Topic>>, with_storage: bool) -> Vec<TopicView> {
        let mut wanted: BTreeMap<ShardId, Vec<(usize, usize)>> = BTreeMap::new();
        for (place, topic) in topics.iter().enumerate() {
            for (partition, shard) in topic.shards.iter().enumerate() {
                wanted.entry(*shard).or_default().push((place, partition));
            }
        }
        let deadline = self.storage.deadline();
        let asked = wanted.into_iter().map(|(shard, places)| {
            let reference = |&(place, partition): &(usize, usize)| PartitionRef {
                incarnation: topics[place].incarnation.0,
                partition: u32::try_from(partition).expect("partitions are numbered by u32"),
            };
            let partitions = places.iter().map(reference).collect();
            let request = PartitionStatsRequest { partitions, with_storage };
            let call =
                CallFor { shard, method: Method::PartitionStats, safety: Safety::Repeatable, deadline };
            async move { (places, self.storage.ask::<_, PartitionStatsList>(call, &request).await) }
        });
        let mut stats: Vec<Vec<Option<PartitionStats>>> =
            topics.iter().map(|topic| vec![None; topic.shards.len()]).collect();
        for (places, answer) in join_all(asked).await {
            let Ok(answer) = answer else { continue };
            for ((place, partition), found) in places.into_iter().zip(answer.partitions) {
                stats[place][partition] = Some(found).filter(|found| found.refused.is_none());
            }
        }
        topics.into_iter().zip(stats).map(|(topic, partitions)| TopicView { topic, partitions }).collect()
    }
}

/// Refuses what no storage node would take or heed, with the field's name.
fn check_config(config: &TopicConfig, level_max: Level) -> Result<(), ServiceError> {
    let refuse =
        |code, field: &'static str, detail: String| Err(ServiceError::new(code, detail).with_field(field));
    let invalid = |field, detail| refuse(ErrorCode::InvalidConfig, field, detail);
    if config.compact_by_key && level_max < Level::Archived {
        let detail = "compaction: key drops messages from packs in an object store, and there is none: start storage \
                      nodes with --object-store";
        return refuse(ErrorCode::NotSupported, "compaction", detail.into());
    }
    if config.compact_by_key && config.retention_until_settled {
        let detail = "until_settled removes what everybody has settled, compaction: key keeps the newest of each key: one of them";
        return invalid("compaction", detail.into());
    }
    if config.partitions == 0 || config.partitions > PARTITIONS_MAX {
        let detail = format!("partitions is {}; 1 to {PARTITIONS_MAX} are allowed", config.partitions);
        return invalid("partitions", detail);
    }
    let deliver_from = config.deliver_from();
    if !matches!(deliver_from, Level::Unset | Level::Memory | Level::Quorum) {
        return invalid("deliver_from", "deliver_from is memory or quorum".into());
    }
    for (field, level) in
        [("default_confirm", config.default_confirm()), ("min_confirm", config.min_confirm())]
    {
        if level == Level::Archived && level_max < level {
            let detail = format!("{field}: {NOT_ARCHIVED}");
            return refuse(ErrorCode::LevelUnavailable, field, detail);
        }
    }
    if config.default_confirm() != Level::Unset && config.default_confirm() < config.min_confirm() {
        return invalid("default_confirm", "default_confirm is below min_confirm".into());
    }
    Ok(())
}

/// Refuses a number that is too low, or beyond what JSON tells everybody alike, unless the topic has it already:
/// `before`.
fn check_numbers(config: &TopicConfig, before: Option<&TopicConfig>) -> Result<(), ServiceError> {
    let numbers = |config: &TopicConfig| {
        [
            ("retention.age_ms", 1, config.retention_age_ms),
            ("retention.bytes", 1, config.retention_bytes),
            ("retention.records", 1, config.retention_records),
            ("dedupe.window_ms", DEDUPE_WINDOW_MS_MIN, Some(config.dedupe_window_ms)),
            ("ttl_ms", 1, config.ttl_ms),
        ]
    };
    let before = before.map(numbers);
    for (at, (field, least, number)) in numbers(config).into_iter().enumerate() {
        if before.is_some_and(|before| before[at].2 == number) {
            continue;
        }
        if let Some(number) = number.filter(|number| !(least..=INTEGER_MAX).contains(number)) {
            let detail = format!("{field} is {number}; {least} to {INTEGER_MAX} are allowed");
            return Err(ServiceError::new(ErrorCode::InvalidConfig, detail).with_field(field));
        }
    }
    Ok(())
}

/// A message that names no content type is told to have the topic's: what is none could not be told in a header.
fn check_content_type(config: &TopicConfig) -> Result<(), ServiceError> {
    match config.content_type.as_deref() {
        Some(text) if !is_media_type(text) => {
            let detail = format!(
                "content_type: {text:?} is no media type of at most {MEDIA_TYPE_BYTES_MAX} bytes, as application/json or \
                 \"text/plain; charset=utf-8\""
            );
            Err(ServiceError::new(ErrorCode::InvalidConfig, detail).with_field("content_type"))
        }
        _ => Ok(()),
    }
}
