//! A consumer from outside of what drives it.

use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
use tokio::sync::watch;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Name, PartitionId};
use weir_protocol::rpc::{
    Credit, LeaveRequest, Left, Method, NotDone, PartRef, SettleOutcome, SettleRun, SettleRunsAnswer,
    SettleRunsRequest, ShareRequest,
};

use super::super::Subscriptions;
use super::super::cache::Known;
use super::super::described::{PartPlace, Subscription};
use super::super::known::is_stale;
use super::consumer::Wish;
use crate::service::ServiceError;
use crate::storage::{CallFor, Safety};

/// The parts that a consumer has had, by number. One whose topic was deleted keeps its number.
pub(super) type Places = Arc<Mutex<Vec<PartPlace>>>;

/// A consumer from outside. Clones are the same consumer.
#[derive(Debug, Clone)]
pub struct ConsumerHandle {
    pub(super) subscriptions: Subscriptions,
    pub(super) known: Arc<Known>,
    pub(super) places: Places,
    pub(super) holder: Arc<str>,
    pub(super) wish: watch::Sender<Wish>,
}

/// A part as clients name it: the topic, if there are several, and the partition.
pub type PartName = (Option<Name>, PartitionId);

impl ConsumerHandle {
    /// Raises the limit to these absolute totals.
    pub fn raise(&self, limit: Credit) {
        self.wish.send_modify(|wish| wish.limit = limit);
    }

    /// Asks for nothing more, or goes on. What is on its way still comes.
    pub fn hold(&self, on: bool) {
        self.wish.send_modify(|wish| wish.is_held = on);
    }

    /// The life of its topic, if there is one.
    #[must_use]
    pub fn incarnation(&self) -> Option<Incarnation> {
        self.subscription().lives.first().copied().filter(|_| self.subscription().is_of_one())
    }

    /// Whether it consumes a stream: then messages are only acknowledged.
    #[must_use]
    pub fn is_of_stream(&self) -> bool {
        self.subscription().config.is_stream
    }

    /// The parts it has by now: of each the topic, if there are several, and the partition.
    #[must_use]
    pub fn parts(&self) -> Vec<PartName> {
        let is_told = !self.subscription().is_of_one();
        let name = |part: &PartPlace| (is_told.then(|| part.topic.clone()), part.partition);
        self.places.lock().iter().map(name).collect()
    }

    fn subscription(&self) -> &Subscription {
        &self.known.subscription
    }

    /// Settles leases of one part; what was not done. On return it cannot be lost.
    ///
    /// # Errors
    /// What the partition says. Settling again is safe, whatever the outcome.
    pub async fn settle(&self, part: u32, runs: Vec<SettleRun>) -> Result<Vec<NotDone>, ServiceError> {
        let (subscription, storage) = (self.subscription(), &self.subscriptions.storage);
        let place = self.places.lock().get(part as usize).cloned();
        let place = place.ok_or_else(|| ServiceError::new(ErrorCode::Internal, "a settle of no part"))?;
        // Twice is safe: what was settled before stays so.
        let call = self.call(&place, Method::SettleRuns);
        let request = SettleRunsRequest { part: self.part(&place), runs };
        let answer: Result<SettleRunsAnswer, ServiceError> = storage.ask(call, &request).await;
        match answer {
            Ok(answer) => Ok(answer.not_done),
            Err(failure) if is_stale(&failure) && !subscription.is_of_one() => {
                // If more than its topic is gone, the consumer says so.
                Ok(none_of(&request.runs))
            }
            Err(failure) if is_stale(&failure) => {
                Err(self.subscriptions.explain_refused(subscription, failure).await)
            }
            Err(failure) => Err(failure.with_partition(place.partition)),
        }
    }

    fn part(&self, place: &PartPlace) -> PartRef {
        let PartPlace { incarnation, partition, .. } = place;
        PartRef { subscription: self.subscription().id, incarnation: incarnation.0, partition: partition.0 }
    }

    fn call(&self, place: &PartPlace, method: Method) -> CallFor {
        let deadline = self.subscriptions.storage.deadline();
        CallFor { shard: place.shard, method, safety: Safety::Repeatable, deadline }
    }

    /// Its share is others' from now on.
    async fn leave_share(&self) -> Result<(), ServiceError> {
        let subscription = self.subscription();
        if !subscription.is_shared() {
            return Ok(());
        }
        let (subscription, path) = (subscription.id, &subscription.path);
        let holder = self.holder.to_string();
        let request = ShareRequest { subscription, holder, leaves: true, ..ShareRequest::default() };
        self.subscriptions.share(path, &request).await.map(drop)
    }

    /// Waits until the consumer is dropped, then ends what it held, so that others get it at once. A partition that
    /// cannot be reached keeps it for the grace.
    pub async fn leave(&self) {
        // A stream that is still there could lease more behind its back.
        self.wish.closed().await;
        let places = self.places.lock().clone();
        let left = places.iter().map(|place| async move {
            let call = self.call(place, Method::Leave);
            let request = LeaveRequest { part: self.part(place), holder: self.holder.to_string() };
            self.subscriptions.storage.ask::<_, Left>(call, &request).await
        });
        let (left, unshared) = tokio::join!(join_all(left), self.leave_share());
        let failures = left.into_iter().filter_map(Result::err).count() + usize::from(unshared.is_err());
        if failures > 0 {
            tracing::debug!(failures, holder = %self.holder, "leases end with their grace");
        }
    }
}

/// Nothing was done of leases whose part is gone.
fn none_of(runs: &[SettleRun]) -> Vec<NotDone> {
    let of_run = |(run, leases): (u32, &SettleRun)| {
        let outcome = SettleOutcome::Unknown as i32;
        (0..leases.count).map(move |place| NotDone { run, place, outcome, current: None })
    };
    (0..).zip(runs).flat_map(of_run).collect()
}
