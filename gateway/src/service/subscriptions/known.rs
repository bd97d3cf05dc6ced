//! What is remembered of subscriptions, and what is done when it turns out to be old.

use std::sync::Arc;

use tokio::time::Instant;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::PartitionId;
use weir_protocol::rpc::{DescribeSubscriptionRequest, Method, Refusal, SubscriptionDescription};

use super::Subscriptions;
use super::cache::Known;
use super::described::{Subscription, SubscriptionPath};
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
        let remembered = self.cache.lock().get(path);
        let known = match remembered {
            Some(known) => known,
            None => self.describe(path, deadline).await?,
        };
        let failure = match op(Arc::clone(&known)).await {
            Err(failure) if is_stale(&failure) => failure,
            answer => return answer,
        };
        self.cache.lock().forget(path, Some(&known.subscription));
        let now = self.describe(path, deadline).await?;
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
            Ok(description) => self.remember(description),
            Err(failure) => {
                self.cache.lock().forget(path, None);
                Err(self.explain_missing(path, failure, deadline).await)
            }
        }
    }

    pub(super) fn remember(&self, description: SubscriptionDescription) -> Result<Arc<Known>, ServiceError> {
        let subscription = Subscription::try_from(description)?;
        Ok(self.cache.lock().put(subscription))
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
        let now = match self.topics.get(&topic).await {
            Ok(topic) if topic.incarnation == subscription.topic_incarnation => return failure,
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
        &self,
        subscription: &Subscription,
        partition: PartitionId,
        (method, safety): (Method, Safety),
        deadline: Instant,
    ) -> Result<CallFor, ServiceError> {
        let shard = subscription.shard(partition).ok_or_else(|| {
            let detail = format!("the topic has partitions 0 to {}", subscription.partitions() - 1);
            ServiceError::new(ErrorCode::PartitionNotFound, detail).with_partition(partition)
        })?;
        Ok(CallFor { shard, method, safety, deadline })
    }
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
