//! What is remembered of subscriptions, and what is done when it turns out to be old.

use std::sync::Arc;

use futures_util::future::try_join_all;
use tokio::time::Instant;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Incarnation, Name, PartitionId};
use weir_protocol::rpc::{
    DescribeSubscriptionRequest, FoundParts, ListPartsRequest, Method, Refusal, SubscriptionDescription,
};

use super::Subscriptions;
use super::cache::Known;
use super::described::{Described, PartPlace, Subscription, SubscriptionPath};
use crate::service::ServiceError;
use crate::storage::{CallFor, Safety};

/// What everything that is done with parts starts from.
impl Subscriptions {
    /// Does `op` with what is remembered of a subscription; if a part refuses that as old, with what its home shard
    /// says now, once.
    ///
    /// # Errors
    /// What `op` answers; `subscription_not_found`; `incarnation_gone` if the topic was deleted.
    pub(super) async fn with_known<T, Fut>(
        &self,
        path: &SubscriptionPath,
        deadline: Instant,
        op: impl Fn(Arc<Known>) -> Fut + Send,
    ) -> Result<T, ServiceError>
    where
        T: Send,
        Fut: Future<Output = Result<T, ServiceError>> + Send,
    {
        let known = self.known(path, deadline).await?;
        let failure = match op(Arc::clone(&known)).await {
            Err(failure) if is_stale(&failure) => failure,
            answer => return answer,
        };
        self.cache.lock().forget(path, Some(&known.subscription));
        let now = self.describe(path, deadline).await.and_then(with_parts)?;
        let failure = if now.subscription == known.subscription {
            failure
        } else {
            match op(Arc::clone(&now)).await {
                Err(failure) if is_stale(&failure) => failure,
                answer => return answer,
            }
        };
        Err(self.explain_refused(&now.subscription, failure).await)
    }

    /// What is remembered, or if that is old what is said now.
    async fn known(&self, path: &SubscriptionPath, deadline: Instant) -> Result<Arc<Known>, ServiceError> {
        let remembered = self.cache.lock().get(path);
        let Some(known) = remembered else { return self.describe(path, deadline).await.and_then(with_parts) };
        if !known.is_old() {
            return with_parts(known);
        }
        match self.describe(path, deadline).await {
            // A shard that cannot be asked for new topics stops nobody.
            Err(failure) if failure.code().retryable() => Ok(known),
            now => now.and_then(with_parts),
        }
    }

    /// What is remembered is of no use: the next use describes it anew.
    pub(super) fn forget_unless(&self, path: &SubscriptionPath, is_good: impl Fn(&Subscription) -> bool) {
        let mut cache = self.cache.lock();
        if cache.get(path).is_some_and(|known| !is_good(&known.subscription)) {
            cache.forget(path, None);
        }
    }

    pub(super) async fn describe(
        &self,
        path: &SubscriptionPath,
        deadline: Instant,
    ) -> Result<Arc<Known>, ServiceError> {
        let call = CallFor {
            shard: self.storage.home(&path.place(), deadline).await?,
            method: Method::DescribeSubscription,
            safety: Safety::Repeatable,
            deadline,
        };
        match self.storage.ask(call, &DescribeSubscriptionRequest { name: path.into() }).await {
            Ok(description) => self.remember(description, deadline).await,
            Err(failure) => {
                self.cache.lock().forget(path, None);
                Err(self.explain_missing(path, failure, deadline).await)
            }
        }
    }

    pub(super) async fn remember(
        &self,
        description: SubscriptionDescription,
        deadline: Instant,
    ) -> Result<Arc<Known>, ServiceError> {
        let subscription = self.look_up_parts(description, deadline).await?;
        Ok(self.cache.lock().put(subscription))
    }

    /// The parts that a subscription has now. To several topics it has those of the topics that are left, and of a
    /// pattern nobody but the shards knows them.
    pub(super) async fn look_up_parts(
        &self,
        description: SubscriptionDescription,
        deadline: Instant,
    ) -> Result<Subscription, ServiceError> {
        let Described { mut subscription, shards } = description.try_into()?;
        if subscription.is_of_one() {
            return Ok(subscription);
        }
        let request = ListPartsRequest {
            subscription: subscription.id,
            incarnations: subscription.lives.iter().map(|life| life.0).collect(),
            is_pattern: subscription.is_pattern(),
        };
        let asked = shards.into_iter().map(|shard| {
            let call = CallFor { shard, method: Method::ListParts, safety: Safety::Repeatable, deadline };
            let asked = self.storage.ask::<_, FoundParts>(call, &request);
            async move { asked.await.map(|found| (shard, found)) }
        });
        let answers = try_join_all(asked).await?;
        subscription.left_out = answers.iter().map(|(_, found)| found.left_out).sum();
        subscription.parts.clear();
        for (shard, found) in answers {
            for part in found.parts {
                let topic = Name::new(&part.topic)
                    .map_err(|_| ServiceError::bad_answer("a part of an invalid topic", Outcome::None))?;
                let (incarnation, partition) = (Incarnation(part.incarnation), PartitionId(part.partition));
                subscription.parts.push(PartPlace { topic, incarnation, partition, shard });
            }
        }
        subscription.parts.sort_unstable_by_key(PartPlace::key);
        Ok(subscription)
    }

    /// A missing subscription in a missing namespace is a missing namespace.
    pub(super) async fn explain_missing(
        &self,
        path: &SubscriptionPath,
        failure: ServiceError,
        deadline: Instant,
    ) -> ServiceError {
        if failure.code() != ErrorCode::SubscriptionNotFound {
            return failure;
        }
        match self.namespaces.find(&path.tenant, &path.namespace, deadline).await {
            Err(other) if other.code() == ErrorCode::NamespaceNotFound => other,
            _ => failure,
        }
    }

    /// A subscription that its home shard knows and its parts do not: its topic was deleted.
    pub(super) async fn explain_refused(
        &self,
        subscription: &Subscription,
        failure: ServiceError,
    ) -> ServiceError {
        let Ok(topic) = subscription.topic() else { return failure };
        if !subscription.is_of_one() {
            return failure;
        }
        let now = match self.topics.get(&topic).await {
            Ok(topic) if subscription.lives.contains(&topic.incarnation) => return failure,
            Ok(topic) => Some(topic.incarnation.0),
            Err(missing) if missing.code() == ErrorCode::TopicNotFound => None,
            Err(_) => return failure,
        };
        let detail = format!(
            "the topic {} that the subscription {} consumes was deleted; delete the subscription as well",
            topic.topic, subscription.path.subscription
        );
        Refusal { incarnation: now, ..Refusal::new(ErrorCode::IncarnationGone, detail) }.into()
    }

    /// Asks a part.
    pub(super) fn call(
        subscription: &Subscription,
        place: usize,
        (method, safety): (Method, Safety),
        deadline: Instant,
    ) -> CallFor {
        CallFor { shard: subscription.parts[place].shard, method, safety, deadline }
    }
}

/// Refuses what nothing is left of.
pub(super) fn with_parts(known: Arc<Known>) -> Result<Arc<Known>, ServiceError> {
    let subscription = &known.subscription;
    if !subscription.parts.is_empty() || subscription.is_pattern() {
        return Ok(known);
    }
    let detail = format!(
        "every topic that the subscription {} consumes was deleted; delete the subscription as well",
        subscription.path.subscription
    );
    Err(ServiceError::new(ErrorCode::IncarnationGone, detail))
}

/// Refused because the gateway's picture of the subscription, or of its topic, is old.
pub(super) fn is_stale(failure: &ServiceError) -> bool {
    failure.effect() == Outcome::None
        && matches!(
            failure.refusal().error_code(),
            ErrorCode::SubscriptionNotFound
                | ErrorCode::IncarnationGone
                | ErrorCode::ConfigStale
                | ErrorCode::TopicNotFound
        )
}
