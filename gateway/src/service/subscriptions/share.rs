//! Asking which parts of a stream a consumer is to read.

use std::time::Duration;

use weir_protocol::rpc::{Method, PartsOf, ShareAnswer, ShareRequest};

use super::Subscriptions;
use super::described::{PartPlace, Subscription, SubscriptionPath};
use crate::service::ServiceError;
use crate::storage::{CallFor, Safety};

impl Subscriptions {
    /// What a consumer is to read, as the home shard says once it is another share than the consumer knows,
    /// or the wait is over.
    ///
    /// # Errors
    /// `subscription_not_found`; `too_many_requests` if too many consumers share the stream.
    ///
    /// # Cancel safety
    /// If it is dropped, the consumer counts as one for as long as it said.
    pub(super) async fn share(
        &self,
        path: &SubscriptionPath,
        request: &ShareRequest,
    ) -> Result<ShareAnswer, ServiceError> {
        let deadline = self.storage.deadline() + Duration::from_millis(request.wait_ms);
        let shard = self.storage.home(&path.place(), deadline).await?;
        let call = CallFor { shard, method: Method::Share, safety: Safety::Repeatable, deadline };
        self.storage.ask(call, request).await
    }
}

impl Subscription {
    /// Its parts are given to its consumers. One part, and never another, is whoever's comes first.
    pub(super) fn is_shared(&self) -> bool {
        self.config.is_stream && !(self.is_of_one() && self.partitions() == 1)
    }
}

/// Parts, as the home shard is told of them.
pub(super) fn by_topic(parts: &[PartPlace]) -> Vec<PartsOf> {
    let of_one_topic = parts.chunk_by(|part, next| part.incarnation == next.incarnation);
    let named = of_one_topic.map(|parts| PartsOf {
        incarnation: parts[0].incarnation.0,
        partitions: parts.iter().map(|part| part.partition.0).collect(),
    });
    named.collect()
}
