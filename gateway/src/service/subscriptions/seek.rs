//! Moving a subscription.

use futures_util::future::join_all;
use prost::Message;
use tokio::time::Instant;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Name, PartitionId};
use weir_protocol::rpc::{At, Method, PartRef, SeekAnswer, SeekRequest};

use super::Subscriptions;
use super::described::{Subscription, SubscriptionPath};
use crate::service::ServiceError;
use crate::storage::Safety;

/// Where to.
#[derive(Debug, Clone, Copy)]
pub struct Seek {
    /// An offset only if there is one partition.
    pub to: At,
    /// Only say what it would do.
    pub is_dry_run: bool,
    /// What stands before is kept under this name; 0: it is not.
    pub keep_as: u64,
    /// Not `to`, but back to what is kept under this name; 0: `to`.
    pub back_to: u64,
}

/// What a seek did, or would do, to each part; with its topic, if there are several.
pub type Seeked = PerPart<SeekAnswer>;

/// What each part answered; with its topic, if there are several.
pub(super) type PerPart<A> = Vec<(Option<Name>, PartitionId, A)>;

impl Subscriptions {
    /// Moves every part. Leases end, and attempts begin anew.
    ///
    /// # Errors
    /// `invalid_parameter` for an offset without its partition; `incarnation_gone` if the topic was deleted; with an
    /// unknown outcome some parts may have been moved: seeking again is safe.
    pub async fn seek(&self, path: &SubscriptionPath, seek: Seek) -> Result<Seeked, ServiceError> {
        let deadline = self.storage.deadline();
        // Of several topics none that is there is to be passed over, and none that is gone asked.
        self.forget_unless(path, Subscription::is_of_one);
        self.with_known(path, deadline, |known| async move {
            self.seek_parts(&known.subscription, seek, deadline).await
        })
        .await
    }

    async fn seek_parts(
        &self,
        subscription: &Subscription,
        seek: Seek,
        deadline: Instant,
    ) -> Result<Seeked, ServiceError> {
        if matches!(seek.to, At::Offset(_)) && subscription.partitions() > 1 {
            let detail = format!(
                "to: an offset belongs to one partition, and the subscription has {}",
                subscription.partitions()
            );
            return Err(ServiceError::new(ErrorCode::InvalidParameter, detail).with_field("to"));
        }
        let Seek { to, is_dry_run, keep_as, back_to } = seek;
        let request = |part| SeekRequest { part, to: to.into(), is_dry_run, keep_as, back_to };
        self.move_parts(subscription, (Method::Seek, is_dry_run), request, deadline).await
    }

    /// Asks every part; what is no dry run is never asked twice. Where some were moved and others were not,
    /// the outcome is unknown: the whole is neither done nor undone.
    pub(super) async fn move_parts<R: Message, A: Message + Default>(
        &self,
        subscription: &Subscription,
        (method, is_dry_run): (Method, bool),
        request: impl Fn(PartRef) -> R + Send + Sync,
        deadline: Instant,
    ) -> Result<PerPart<A>, ServiceError> {
        let safety = if is_dry_run { Safety::Repeatable } else { Safety::Once };
        let request = &request;
        let asked = (0..subscription.parts.len()).map(|place| async move {
            let call = Self::call(subscription, place, (method, safety), deadline);
            let answer = self.storage.ask::<_, A>(call, &request(subscription.part(place))).await;
            answer.map_err(|failure| failure.with_partition(subscription.parts[place].partition))
        });
        let (mut moved, mut failure) = (Vec::new(), None);
        for (place, answer) in join_all(asked).await.into_iter().enumerate() {
            match answer {
                Ok(answer) => {
                    let partition = subscription.parts[place].partition;
                    moved.push((subscription.topic_of(place), partition, answer));
                }
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            None => Ok(moved),
            Some(failure) if !moved.is_empty() && !is_dry_run => Err(failure.with_outcome(Outcome::Unknown)),
            Some(failure) => Err(failure),
        }
    }
}
