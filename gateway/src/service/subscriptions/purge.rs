//! Settling all that waits, without delivering it.

use weir_protocol::rpc::{Method, PurgeAnswer, PurgeRequest};

use super::Subscriptions;
use super::described::{Subscription, SubscriptionPath};
use super::seek::PerPart;
use crate::service::ServiceError;

/// What goes.
#[derive(Debug, Clone, Copy)]
pub struct Purge {
    /// Dead letters alone, of all that is not settled.
    pub is_dead_only: bool,
    /// Only say what it would do.
    pub is_dry_run: bool,
    /// What stands before is kept under this name; 0: it is not.
    pub keep_as: u64,
}

/// What a purge did, or would do, to each part; with its topic, if there are several.
pub type Purged = PerPart<PurgeAnswer>;

impl Subscriptions {
    /// Purges every part. Leases end, unless only dead letters go.
    ///
    /// # Errors
    /// `not_supported` for dead letters of a stream; `incarnation_gone` if the topic was deleted; with an
    /// unknown outcome some parts may have been purged: purging again is safe.
    pub async fn purge(&self, path: &SubscriptionPath, purge: Purge) -> Result<Purged, ServiceError> {
        let deadline = self.storage.deadline();
        // Of several topics none that is there is to be passed over, and none that is gone asked.
        self.forget_unless(path, Subscription::is_of_one);
        self.with_known(path, deadline, |known| async move {
            let Purge { is_dead_only, is_dry_run, keep_as } = purge;
            let request = |part| PurgeRequest { part, is_dead_only, is_dry_run, keep_as };
            let method = (Method::Purge, is_dry_run);
            self.move_parts(&known.subscription, method, request, deadline).await
        })
        .await
    }
}
