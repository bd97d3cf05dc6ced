//! Subscriptions that begin as another one stands, or stood.

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::TimestampMs;
use weir_protocol::rpc::{
    CreateSubscriptionRequest, DescribeSubscriptionRequest, ForkOrigin, Method, Refusal, SubscriptionConfig,
    SubscriptionCreated, SubscriptionDescription,
};

use super::Subscriptions;
use super::described::{Subscription, SubscriptionPath};
use crate::service::ServiceError;
use crate::storage::{CallFor, Safety};

/// Which moment of a subscription is meant.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Moment {
    /// As it stands.
    Now,
    /// Before the seek that kept it under this name.
    Before(u64),
    /// At a time, as far as that is kept.
    At(TimestampMs),
}

impl Moment {
    /// The name that it has, or 0, and the time, as nodes are asked.
    pub(super) fn asked(self) -> (u64, Option<u64>) {
        match self {
            Self::Now => (0, None),
            Self::Before(name) => (name, None),
            Self::At(time) => (0, Some(time.0)),
        }
    }
}

impl Subscriptions {
    /// Creates a subscription whose parts begin as those of `source` stood at a moment. True: it did not
    /// exist before; false: it exists with this origin and configuration. On return every part is there;
    /// after an error whose outcome is `none`, nothing of it.
    ///
    /// # Errors
    /// `snapshot_gone` if not all partitions keep what stood then; `config_mismatch`; `incarnation_gone` if
    /// the topic was deleted, or the source meanwhile; `topic_not_found` of the dead letter topic.
    pub async fn fork(
        &self,
        source: &Subscription,
        path: &SubscriptionPath,
        config: SubscriptionConfig,
        moment: Moment,
    ) -> Result<(Subscription, bool), ServiceError> {
        let deadline = self.storage.deadline();
        self.check_topic(source).await?;
        self.find_dead_letter_topic(path, &config, deadline).await?;
        // The lives and shards that it consumes are the source's, also where topics were made again since.
        let call = CallFor {
            shard: self.storage.home(&source.path.place(), deadline).await?,
            method: Method::DescribeSubscription,
            safety: Safety::Repeatable,
            deadline,
        };
        let request = DescribeSubscriptionRequest { name: (&source.path).into() };
        let found: SubscriptionDescription = self.storage.ask(call, &request).await?;
        if found.id != source.id {
            let detail = "the subscription that is forked was deleted, and created again";
            return Err(ServiceError::new(ErrorCode::IncarnationGone, detail));
        }
        let (snapshot, at_ms) = moment.asked();
        let fork = ForkOrigin { subscription: found.name.subscription, id: found.id, snapshot, at_ms };
        let request = CreateSubscriptionRequest {
            name: path.into(),
            config,
            topic_incarnation: found.topic_incarnation,
            shards: found.shards,
            more: found.more,
            fork: Some(fork),
        };
        let call = CallFor {
            shard: self.storage.home(&path.place(), deadline).await?,
            method: Method::CreateSubscription,
            // Created twice is created once; only who was first cannot be told after a lost answer.
            safety: Safety::Repeatable,
            deadline,
        };
        let created = self.storage.ask::<_, SubscriptionCreated>(call, &request).await;
        let created = created.map_err(|failure: ServiceError| match failure.code() {
            ErrorCode::SnapshotGone => failure.with_field("at"),
            _ => failure,
        })?;
        let known = self.remember(created.subscription, deadline).await?;
        Ok((known.subscription.clone(), created.created))
    }

    /// Nothing is left to consume of a subscription whose topics were deleted.
    async fn check_topic(&self, source: &Subscription) -> Result<(), ServiceError> {
        let gone = |detail: String| Err(Refusal::new(ErrorCode::IncarnationGone, detail).into());
        if source.is_of_one() {
            let now = self.topics.get(&source.topic()?).await;
            return match now {
                Ok(topic) if source.lives.contains(&topic.incarnation) => Ok(()),
                Err(failure) if failure.code() != ErrorCode::TopicNotFound => Err(failure),
                _ => gone(format!("the topic {} that it consumes was deleted", source.config.topic)),
            };
        }
        match source.parts.is_empty() && !source.is_pattern() {
            true => gone("every topic that it consumes was deleted".to_owned()),
            false => Ok(()),
        }
    }
}
