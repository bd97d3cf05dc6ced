//! A consumer of a stream among others: which parts it is to read, as long as it is there.

use std::collections::BTreeMap;
use std::time::Duration;

use futures_util::future::BoxFuture;
use tokio::time::sleep;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, PartitionId};
use weir_protocol::rpc::{GivenPart, PartsOf, ShareAnswer, ShareRequest};

use super::super::Subscriptions;
use super::super::described::{Subscription, SubscriptionPath};
use super::super::share::by_topic;
use super::consumer::Consume;
use crate::service::ServiceError;

/// How long a call waits for another share; then the next one says that the consumer is there still.
const WAIT: Duration = Duration::from_secs(10);
/// After a failure it is asked again after so long. Meanwhile the last share holds.
const PAUSE: Duration = Duration::from_secs(1);

/// The lots of the parts that a consumer is to read.
pub(super) type Lots = BTreeMap<(Incarnation, PartitionId), u64>;

type Asking = BoxFuture<'static, Result<ShareAnswer, ServiceError>>;

/// One consumer's place in the roster. Dropping it ends it; its share stays its for the grace.
pub(super) struct Attendance {
    subscriptions: Subscriptions,
    path: SubscriptionPath,
    /// What is asked next.
    request: ShareRequest,
    asking: Option<Asking>,
}

impl Attendance {
    /// Of a stream whose parts are shared; nothing was asked yet.
    pub(super) fn of(
        subscriptions: &Subscriptions,
        subscription: &Subscription,
        consume: &Consume,
    ) -> Option<Self> {
        subscription.is_shared().then(|| Self {
            subscriptions: subscriptions.clone(),
            path: subscription.path.clone(),
            request: ShareRequest {
                subscription: subscription.id,
                holder: consume.holder.clone(),
                takes_over: consume.takes_over.clone(),
                topics: by_topic(&subscription.parts),
                version: 0,
                wait_ms: u64::try_from(WAIT.as_millis()).expect("seconds"),
                patience_ms: consume.grace_ms(subscription.config.lease_ms).into(),
                leaves: false,
            },
            asking: None,
        })
    }

    /// There are other parts than before.
    pub(super) fn knows(&mut self, topics: Vec<PartsOf>) {
        if self.request.topics != topics {
            self.request.topics = topics;
            // What is under way says what there was.
            self.asking = None;
        }
    }

    /// The next share that is another than the last.
    ///
    /// # Errors
    /// The subscription is gone, or too many share it.
    ///
    /// # Cancel safety
    /// Nothing is lost.
    pub(super) async fn next(&mut self) -> Result<Lots, ServiceError> {
        loop {
            let answer = match &mut self.asking {
                Some(asking) => asking.await,
                None => {
                    self.asking = Some(self.ask(Duration::ZERO));
                    continue;
                }
            };
            self.asking = None;
            match answer {
                Ok(answer) if answer.version == self.request.version => {}
                Ok(answer) => {
                    // What others had is its by now.
                    (self.request.version, self.request.takes_over) = (answer.version, None);
                    let lot = |part: &GivenPart| {
                        ((Incarnation(part.incarnation), PartitionId(part.partition)), part.lot)
                    };
                    return Ok(answer.parts.iter().map(lot).collect());
                }
                Err(failure)
                    if failure.code().retryable() && failure.code() != ErrorCode::TooManyRequests =>
                {
                    tracing::debug!(%failure, holder = self.request.holder, "the last share holds");
                    self.asking = Some(self.ask(PAUSE));
                }
                Err(failure) => return Err(failure),
            }
        }
    }

    fn ask(&self, pause: Duration) -> Asking {
        let (subscriptions, path, request) =
            (self.subscriptions.clone(), self.path.clone(), self.request.clone());
        Box::pin(async move {
            if !pause.is_zero() {
                sleep(pause).await;
            }
            subscriptions.share(&path, &request).await
        })
    }
}
