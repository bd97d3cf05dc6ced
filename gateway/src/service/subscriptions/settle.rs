//! Settling leases: each goes back to its partition, and the results come in the order the leases were given.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::rpc::{
    Grant, Method, SettleAction, SettleAnswer, SettleItem, SettleOutcome, SettleRequest, SettleResult,
};

use super::Subscriptions;
use super::described::{Subscription, SubscriptionPath};
use super::known::is_stale;
use super::lease::Lease;
use crate::service::ServiceError;
use crate::storage::Safety;

/// What shall become of a lease.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SettleLease {
    /// The lease.
    pub lease: Lease,
    /// What becomes of it.
    pub action: SettleAction,
    /// Nack: the delay, extend: the new time, milliseconds from now; `None`: as the subscription says.
    pub ms: Option<u64>,
    /// Nack and dead: why; may be empty.
    pub reason: String,
}

/// What became of a lease.
#[derive(Debug, Clone, PartialEq)]
pub enum Settled {
    /// It is settled as was asked.
    Done,
    /// The message was delivered again since; how, if it is known.
    LeaseLost(Option<Grant>),
    /// The message was settled before.
    Already,
    /// No lease of this subscription.
    Unknown,
    /// Its partition did not answer.
    Failed(ServiceError),
}

impl Subscriptions {
    /// Settles leases, of any partitions; one result per lease, in their order. On return it cannot be lost.
    ///
    /// # Errors
    /// `subscription_not_found`, `incarnation_gone` if the topic was deleted; `not_supported` for anything
    /// but an ack of a stream; what the partitions say if no lease came to a result. Settling again is safe,
    /// whatever the outcome.
    pub async fn settle(
        &self,
        path: &SubscriptionPath,
        leases: &[SettleLease],
    ) -> Result<Vec<Settled>, ServiceError> {
        let deadline = self.storage.deadline();
        // A lease of another life than the one remembered may be of a newer one.
        self.forget_unless(path, |known| leases.iter().all(|item| is_known(&item.lease, known)));
        let settle = |known: Arc<super::cache::Known>| async move {
            self.settle_parts(&known.subscription, leases, deadline).await
        };
        self.with_known(path, deadline, settle).await
    }

    async fn settle_parts(
        &self,
        subscription: &Subscription,
        leases: &[SettleLease],
        deadline: tokio::time::Instant,
    ) -> Result<Vec<Settled>, ServiceError> {
        if subscription.config.is_stream && leases.iter().any(|item| item.action != SettleAction::Ack) {
            // Before any of them is settled.
            let detail = "nack, extend and dead are for queues: messages of a stream are only acknowledged";
            return Err(ServiceError::new(ErrorCode::NotSupported, detail));
        }
        let mut results = vec![Settled::Unknown; leases.len()];
        let mut parts: BTreeMap<usize, Vec<usize>> = BTreeMap::new();
        for (place, item) in leases.iter().enumerate() {
            if let Some(part) = part_of(&item.lease, subscription) {
                parts.entry(part).or_default().push(place);
            }
        }
        let asked = parts.into_iter().map(|(part, places)| async move {
            let items = places.iter().map(|place| wire(&leases[*place], subscription)).collect();
            let answer = self.settle_part(subscription, part, items, deadline).await;
            (places, answer)
        });
        for (places, answer) in join_all(asked).await {
            match answer {
                Ok(answer) => {
                    for (place, result) in places.into_iter().zip(answer.results) {
                        results[place] = settled(&result);
                    }
                }
                Err(failure) => {
                    places.into_iter().for_each(|place| results[place] = Settled::Failed(failure.clone()));
                }
            }
        }
        if let Some(failure) = only_failures(&results) {
            return Err(failure);
        }
        if !subscription.is_of_one() {
            // Of several topics one is gone, and its leases with it.
            let is_gone = |result: &Settled| matches!(result, Settled::Failed(failure) if is_stale(failure));
            results.iter_mut().filter(|result| is_gone(result)).for_each(|result| *result = Settled::Unknown);
        }
        Ok(results)
    }

    async fn settle_part(
        &self,
        subscription: &Subscription,
        part: usize,
        items: Vec<SettleItem>,
        deadline: tokio::time::Instant,
    ) -> Result<SettleAnswer, ServiceError> {
        // Twice is safe: what was settled before stays so.
        let method = (Method::Settle, Safety::Repeatable);
        let call = Self::call(subscription, part, method, deadline);
        let partition = subscription.parts[part].partition;
        let request = SettleRequest { part: subscription.part(part), items };
        let answer: SettleAnswer = self
            .storage
            .ask(call, &request)
            .await
            .map_err(|failure: ServiceError| failure.with_partition(partition))?;
        if answer.results.len() != request.items.len() {
            return Err(ServiceError::bad_answer("not one result per lease", Outcome::Unknown));
        }
        Ok(answer)
    }
}

/// The failure to answer with if nothing came to a result; one that says that what is known is old goes before.
fn only_failures(results: &[Settled]) -> Option<ServiceError> {
    let mut failures = Vec::new();
    for result in results {
        let Settled::Failed(failure) = result else { return None };
        failures.push(failure);
    }
    failures.iter().find(|failure| is_stale(failure)).or(failures.first()).copied().cloned()
}

/// Place of the part that gave a lease; `None` if it is not of this subscription, or its topic is gone.
pub(super) fn part_of(lease: &Lease, subscription: &Subscription) -> Option<usize> {
    let is_ours = lease.subscription == subscription.id;
    subscription.place_of(lease.incarnation, lease.partition).filter(|_| is_ours)
}

/// Whether what is remembered of a subscription says where a lease is from. Of one topic it is settled with its life.
pub(super) fn is_known(lease: &Lease, subscription: &Subscription) -> bool {
    lease.subscription == subscription.id
        && (subscription.is_of_one() || part_of(lease, subscription).is_some())
}

pub(super) fn wire(item: &SettleLease, subscription: &Subscription) -> SettleItem {
    let otherwise = (item.action == SettleAction::Extend).then(|| subscription.config.lease_ms.into());
    SettleItem {
        offset: item.lease.offset.0,
        fence: item.lease.fence,
        action: item.action as i32,
        ms: item.ms.or(otherwise),
        reason: item.reason.clone(),
    }
}

fn settled(result: &SettleResult) -> Settled {
    match result.outcome() {
        SettleOutcome::Done => Settled::Done,
        SettleOutcome::LeaseLost => Settled::LeaseLost(result.current),
        SettleOutcome::AlreadySettled => Settled::Already,
        SettleOutcome::Unknown => Settled::Unknown,
    }
}
