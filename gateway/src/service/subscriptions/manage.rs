//! Subscriptions as they are configured.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::{join_all, try_join_all};
use parking_lot::Mutex;
use prost::Message;
use tokio::sync::{Semaphore, watch};
use tokio::time::Instant;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Name, ShardId, TopicPath};
use weir_protocol::limits::SUBSCRIPTION_PARTS_MAX;
use weir_protocol::rpc::{
    ConsumedTopic, CreateSubscriptionRequest, DeleteSubscriptionRequest, ListSubscriptionsRequest, Method,
    PartStats, PartStatsList, PartStatsRequest, SubscriptionConfig, SubscriptionCreated,
    SubscriptionDescription, SubscriptionList, UpdateSubscriptionRequest,
};

use super::cache::Cache;
use super::described::{Subscription, SubscriptionPath};
use super::known::is_stale;
use crate::service::ServiceError;
use crate::service::namespaces::Namespaces;
use crate::service::page::{Page, merged, name_of};
use crate::service::read::Budget;
use crate::service::topics::Topics;
use crate::storage::{ARCHIVING_MAX, CallFor, Safety, Storage, WORKING_MAX};

/// Subscriptions whose description is remembered.
const KNOWN_MAX: usize = 10_000;
/// Waits of pulls at storage nodes, one per partition, over all subscriptions. Who finds none left asks again from time
/// to time instead.
const WAITS_MAX: usize = 2_048;

/// Streams of leases at storage nodes, one per consumer and partition; who finds no place is refused.
pub(super) const STREAMS_MAX: usize = 2_048;

const _: () = assert!(
    WAITS_MAX + STREAMS_MAX + ARCHIVING_MAX < WORKING_MAX,
    "as long as nobody reads, who works finds a place"
);

/// A subscription and how it stands.
#[derive(Debug, Clone, PartialEq)]
pub struct SubscriptionView {
    /// The subscription.
    pub subscription: Subscription,
    /// How each part stands, as the subscription has them; `None` where the shard cannot be reached or the
    /// part is gone.
    pub parts: Vec<Option<PartStats>>,
    /// Everything that it consumed was deleted: the life of its topic has ended, as one of its partitions' shards says,
    /// or those of all that it names.
    pub is_topic_deleted: bool,
}

/// Which page of subscriptions.
#[derive(Debug, Clone)]
pub struct ListSubscriptions {
    /// Owner.
    pub tenant: Name,
    /// Namespace.
    pub namespace: Name,
    /// Only names that contain this.
    pub contains: Option<String>,
    /// Only those that consume the topic with this name.
    pub topic: Option<String>,
    /// At most this many.
    pub limit: u32,
    /// Cursor of the page before.
    pub cursor: Option<String>,
}

/// What is held now.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct SubscriptionsMetrics {
    /// Subscriptions remembered.
    pub known: u64,
    /// Most subscriptions remembered.
    pub known_max: u64,
    /// Partitions that pulls wait on.
    pub waits: u64,
    /// Most partitions that pulls wait on.
    pub waits_max: u64,
    /// Streams of leases, one per consumer and partition.
    pub streams: u64,
    /// Most streams of leases.
    pub streams_max: u64,
}

/// Manages and consumes subscriptions. Clones share everything.
#[derive(Debug, Clone)]
pub struct Subscriptions {
    pub(super) storage: Storage,
    pub(super) namespaces: Namespaces,
    pub(super) topics: Topics,
    /// Held for a look or a change only.
    pub(super) cache: Arc<Mutex<Cache>>,
    pub(super) waits: Arc<Semaphore>,
    /// Places of streams of leases, one per partition.
    pub(super) streams: Arc<Semaphore>,
    /// What streams may be owed, together with those that follow topics.
    pub(super) budget: Arc<Budget>,
    /// True once nobody is to wait for messages any more.
    pub(super) ends_waits: Arc<watch::Sender<bool>>,
}

impl Subscriptions {
    pub(in crate::service) fn new(
        storage: Storage,
        namespaces: Namespaces,
        topics: Topics,
        budget: Arc<Budget>,
    ) -> Self {
        let cache = Arc::new(Mutex::new(Cache::new(KNOWN_MAX)));
        let (waits, streams) = (Semaphore::new(WAITS_MAX), Semaphore::new(STREAMS_MAX));
        let (waits, streams, ends_waits) = (waits.into(), streams.into(), watch::Sender::new(false).into());
        Self { storage, namespaces, topics, cache, waits, streams, budget, ends_waits }
    }

    /// Answers pulls that wait with what they have, which is nothing, and lets no other wait: the gateway stops.
    pub fn end_waits(&self) {
        self.ends_waits.send_replace(true);
    }

    /// What is counted.
    #[must_use]
    pub fn metrics(&self) -> SubscriptionsMetrics {
        SubscriptionsMetrics {
            known: self.cache.lock().len() as u64,
            known_max: KNOWN_MAX as u64,
            waits: WAITS_MAX.saturating_sub(self.waits.available_permits()) as u64,
            waits_max: WAITS_MAX as u64,
            streams: STREAMS_MAX.saturating_sub(self.streams.available_permits()) as u64,
            streams_max: STREAMS_MAX as u64,
        }
    }

    /// Creates a subscription. True: it did not exist before; false: it exists with this very configuration. On
    /// return every partition can be pulled from.
    ///
    /// # Errors
    /// `config_mismatch`, `topic_not_found` of the topic or the dead letter topic, `namespace_not_found`.
    pub async fn create(
        &self,
        path: &SubscriptionPath,
        config: SubscriptionConfig,
    ) -> Result<(Subscription, bool), ServiceError> {
        let deadline = self.storage.deadline();
        let place = path.place();
        // Asked for anew: what is remembered may be of topics that were deleted since.
        let mut topics = self.find_topics(&place, &config).await?.into_iter();
        self.find_dead_letter_topic(path, &config, deadline).await?;
        let first = topics.next().unwrap_or_default(); // of a pattern
        let request = CreateSubscriptionRequest {
            name: path.into(),
            config,
            topic_incarnation: first.incarnation,
            shards: first.shards,
            more: topics.collect(),
            fork: None,
        };
        let call = CallFor {
            shard: self.storage.home(&place, deadline).await?,
            method: Method::CreateSubscription,
            // Created twice is created once; only who was first cannot be told after a lost answer.
            safety: Safety::Repeatable,
            deadline,
        };
        let created: SubscriptionCreated = self.storage.ask(call, &request).await?;
        let known = self.remember(created.subscription, deadline).await?;
        Ok((known.subscription.clone(), created.created))
    }

    /// The topics that a configuration names, as they are now; of a pattern none.
    async fn find_topics(
        &self,
        place: &TopicPath,
        config: &SubscriptionConfig,
    ) -> Result<Vec<ConsumedTopic>, ServiceError> {
        if config.prefix().is_some() {
            return Ok(Vec::new());
        }
        let find = |name: String| async move {
            let topic = Name::new(&name)
                .map_err(|error| ServiceError::new(ErrorCode::InvalidName, error.to_string()))?;
            let topic = self.topics.get(&TopicPath { topic, ..place.clone() }).await?;
            let shards = topic.shards.iter().map(|shard| shard.0).collect();
            Ok::<_, ServiceError>(ConsumedTopic { incarnation: topic.incarnation.0, shards })
        };
        let found = try_join_all(config.topics().cloned().map(find)).await;
        let found = found.map_err(|failure| failure.with_field("topics"))?;
        let partitions = found.iter().map(|topic| topic.shards.len()).sum::<usize>();
        if partitions > SUBSCRIPTION_PARTS_MAX {
            let detail = format!(
                "topics: {partitions} partitions together; {SUBSCRIPTION_PARTS_MAX} are allowed, use several subscriptions"
            );
            let refused = ServiceError::new(ErrorCode::InvalidConfig, detail).with_field("topics");
            return Err(refused.with_limit(SUBSCRIPTION_PARTS_MAX as u64));
        }
        Ok(found)
    }

    /// Where dead letters go must exist, or be made because the namespace says so: nobody would notice later.
    pub(super) async fn find_dead_letter_topic(
        &self,
        path: &SubscriptionPath,
        config: &SubscriptionConfig,
        deadline: Instant,
    ) -> Result<(), ServiceError> {
        let Some(name) = &config.dead_letter_topic else { return Ok(()) };
        let invalid = |error: weir_protocol::ids::NameError| {
            ServiceError::new(ErrorCode::InvalidName, error.to_string()).with_field("dlq")
        };
        let topic =
            weir_protocol::ids::TopicPath { topic: Name::new(name).map_err(invalid)?, ..path.place() };
        let found = self.topics.known_or_created(&topic, deadline, |_| Ok(())).await;
        found.map(|_| ()).map_err(|failure| failure.with_field("dlq"))
    }

    /// A subscription as its home shard knows it now.
    ///
    /// # Errors
    /// `subscription_not_found`, `namespace_not_found`.
    pub async fn get(&self, path: &SubscriptionPath) -> Result<Subscription, ServiceError> {
        let known = self.describe(path, self.storage.deadline()).await?;
        Ok(known.subscription.clone())
    }

    /// A subscription with the statistics of its parts.
    ///
    /// # Errors
    /// As [`Subscriptions::get`].
    pub async fn view(&self, path: &SubscriptionPath) -> Result<SubscriptionView, ServiceError> {
        let subscription = self.get(path).await?;
        let mut views = self.views(vec![subscription]).await;
        Ok(views.pop().expect("one view per subscription"))
    }

    /// Replaces the configuration of `from`, and only of that life and version.
    ///
    /// # Errors
    /// `version_mismatch`, `incarnation_gone` of another life, `subscription_not_found`, `topic_not_found` of the
    /// dead letter topic, `not_supported` for another mode, topic, start or order.
    pub async fn update(
        &self,
        from: &Subscription,
        config: SubscriptionConfig,
    ) -> Result<Subscription, ServiceError> {
        for (field, is_same) in [
            ("mode", config.is_stream == from.config.is_stream),
            ("topics", config.topics().eq(from.config.topics())),
            ("start", config.start == from.config.start),
            ("order", config.is_by_key == from.config.is_by_key),
        ] {
            if !is_same {
                let detail = format!("{field} cannot be changed: create another subscription");
                return Err(ServiceError::new(ErrorCode::NotSupported, detail).with_field(field));
            }
        }
        let (path, deadline) = (&from.path, self.storage.deadline());
        if config.dead_letter_topic != from.config.dead_letter_topic {
            self.find_dead_letter_topic(path, &config, deadline).await?;
        }
        let request = UpdateSubscriptionRequest {
            name: path.into(),
            config,
            id: from.id,
            expected_version: from.version,
        };
        let call = CallFor {
            shard: self.storage.home(&path.place(), deadline).await?,
            method: Method::UpdateSubscription,
            safety: Safety::Once,
            deadline,
        };
        match self.storage.ask::<_, SubscriptionDescription>(call, &request).await {
            Ok(description) => Ok(self.remember(description, deadline).await?.subscription.clone()),
            Err(failure) => {
                self.cache.lock().forget(path, None);
                let failure =
                    if is_stale(&failure) { self.explain_refused(from, failure).await } else { failure };
                Err(self.explain_missing(path, failure, deadline).await)
            }
        }
    }

    /// Deletes a subscription with its leases: any, or only this life and version of it.
    ///
    /// # Errors
    /// `subscription_not_found`, `version_mismatch`, `incarnation_gone` if that life is over.
    pub async fn delete(
        &self,
        path: &SubscriptionPath,
        expected: Option<(u64, u32)>,
    ) -> Result<(), ServiceError> {
        let deadline = self.storage.deadline();
        let (id, expected_version) = expected.unzip();
        let request = DeleteSubscriptionRequest { name: path.into(), expected_version, id };
        let call = CallFor {
            shard: self.storage.home(&path.place(), deadline).await?,
            method: Method::DeleteSubscription,
            safety: Safety::Once,
            deadline,
        };
        let deleted = self.storage.send(call, vec![request.encode_to_vec().into()]).await;
        self.cache.lock().forget(path, None);
        match deleted {
            Err(failure) => Err(self.explain_missing(path, failure, deadline).await),
            Ok(_) => Ok(()),
        }
    }

    /// A page of subscriptions in name order, over all shards; statistics are fetched for the page only.
    ///
    /// # Errors
    /// `namespace_not_found`, `invalid_cursor`, or what a shard's leader says: a list with holes is no list.
    pub async fn list(&self, list: &ListSubscriptions) -> Result<Page<SubscriptionView>, ServiceError> {
        let deadline = self.storage.deadline();
        let after = list.cursor.as_deref().map(name_of).transpose()?;
        self.namespaces.find(&list.tenant, &list.namespace, deadline).await?;
        let request = ListSubscriptionsRequest {
            tenant: list.tenant.to_string(),
            namespace: list.namespace.to_string(),
            contains: list.contains.clone(),
            topic: list.topic.clone(),
            after,
            limit: list.limit,
        };
        let shards = self.storage.data_shards(deadline).await?;
        let asked = shards.into_iter().map(|shard| {
            let method = Method::ListSubscriptions;
            let call = CallFor { shard, method, safety: Safety::Repeatable, deadline };
            self.storage.ask::<_, SubscriptionList>(call, &request)
        });
        let listed = |answer: SubscriptionList| {
            let named = |found: SubscriptionDescription| (found.name.subscription.clone(), found);
            (answer.subscriptions.into_iter().map(named).collect(), answer.looked_to)
        };
        let Page { items, next } = merged(try_join_all(asked).await?.into_iter().map(listed), list.limit);
        let items = items.into_iter().map(|description| self.look_up_parts(description, deadline));
        Ok(Page { items: self.views(try_join_all(items).await?).await, next })
    }

    /// Statistics of all parts of these subscriptions, one call per shard.
    async fn views(&self, subscriptions: Vec<Subscription>) -> Vec<SubscriptionView> {
        let mut wanted: BTreeMap<ShardId, Vec<(usize, usize)>> = BTreeMap::new();
        for (place, subscription) in subscriptions.iter().enumerate() {
            for (part, at) in subscription.parts.iter().enumerate() {
                wanted.entry(at.shard).or_default().push((place, part));
            }
        }
        let deadline = self.storage.deadline();
        let asked = wanted.into_iter().map(|(shard, places)| {
            let parts = places.iter().map(|(place, part)| subscriptions[*place].part(*part));
            let request = PartStatsRequest { parts: parts.collect() };
            let call = CallFor { shard, method: Method::PartStats, safety: Safety::Repeatable, deadline };
            async move { (places, self.storage.ask::<_, PartStatsList>(call, &request).await) }
        });
        let mut stats: Vec<Vec<Option<PartStats>>> =
            subscriptions.iter().map(|subscription| vec![None; subscription.parts.len()]).collect();
        let is_over =
            |subscription: &Subscription| subscription.parts.is_empty() && !subscription.is_pattern();
        let mut are_deleted: Vec<bool> = subscriptions.iter().map(is_over).collect();
        for (places, answer) in join_all(asked).await {
            let Ok(answer) = answer else { continue };
            for ((place, part), found) in places.into_iter().zip(answer.parts) {
                match &found.refused {
                    None => stats[place][part] = Some(found),
                    Some(refusal) => {
                        let is_gone = refusal.error_code() == ErrorCode::IncarnationGone;
                        are_deleted[place] |= is_gone && subscriptions[place].is_of_one();
                    }
                }
            }
        }
        let view = |((subscription, parts), is_topic_deleted)| SubscriptionView {
            subscription,
            parts,
            is_topic_deleted,
        };
        subscriptions.into_iter().zip(stats).zip(are_deleted).map(view).collect()
    }
}
