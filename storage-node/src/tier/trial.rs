//! What is relied upon of the store, asked for at the start, and again as long as it does not answer.

use std::sync::atomic::Ordering;
use std::time::Duration;

use futures_util::FutureExt as _;
use futures_util::future::BoxFuture;
use tokio::sync::watch;
use weir_protocol::ids::{ClusterId, ShardId};
use weir_tier::snapshot::{ExportError, Exports};
use weir_tier::store::Store;

use super::{Tier, TierError};

/// A start waits this long for the answers of a store that the directory uses: what the node has is needed,
/// whatever the store does.
const ANSWER_WITHIN: Duration = Duration::from_secs(10);
/// A store that did not answer is asked again after this long; it doubles, …
const AGAIN_AFTER: Duration = Duration::from_secs(1);
/// … up to this.
const AGAIN_AFTER_MAX: Duration = Duration::from_secs(30);

const _: () = assert!(AGAIN_AFTER.as_secs() < AGAIN_AFTER_MAX.as_secs(), "it grows");

type Attempt = BoxFuture<'static, Result<(), TierError>>;

/// Whose store is tried.
#[derive(Clone)]
pub(super) struct Tried {
    pub(super) store: Store,
    pub(super) exports: Exports,
    pub(super) cluster: ClusterId,
    /// How often the cluster was restored before this directory was made.
    pub(super) epoch: u64,
    /// This directory has written a manifest there.
    pub(super) has_manifest: bool,
}

/// The trial of a store that has not answered yet. Until it has passed, nothing is written or deleted there:
/// neither is it known that two leaders could not overwrite each other's manifests, nor that the cluster was
/// not restored elsewhere. It is read from meanwhile, as far as it answers: what is read is checked against
/// what was written.
pub struct Trial {
    tried: Tried,
    /// What was begun and has not ended.
    under_way: Option<Attempt>,
    /// Why it has not passed.
    why: String,
    /// It has answered, and is not what was used.
    is_refused: bool,
}

impl Tried {
    fn attempt(&self) -> Attempt {
        let tried = self.clone();
        async move {
            tried.store.self_test().await?;
            tried.check_epoch().await
        }
        .boxed()
    }

    /// Asks at the start; `None` once it has passed. One that does not answer is left to a [`Trial`] if it `is_known`.
    ///
    /// # Errors
    /// [`TierError`]: the node must not start.
    pub(super) async fn at_start(self, is_known: bool) -> Result<Option<Trial>, TierError> {
        let mut attempt = self.attempt();
        let failed = match (is_known, tokio::time::timeout(ANSWER_WITHIN, &mut attempt).await) {
            (_, Ok(ended)) => ended.err(),
            // Somebody has named it for the first time, and looks whether it was right.
            (false, Err(_)) => attempt.await.err(),
            (true, Err(_)) => {
                let (url, seconds) = (self.store.url(), ANSWER_WITHIN.as_secs());
                let why = format!("object store {url} has not answered within {seconds} s");
                return Ok(Some(Trial { tried: self, under_way: Some(attempt), why, is_refused: false }));
            }
        };
        match failed {
            None => Ok(None),
            Some(error) if is_known && error.is_waited_for() => {
                let (why, is_refused) = (error.to_string(), !error.is_passing());
                Ok(Some(Trial { tried: self, under_way: None, why, is_refused }))
            }
            Some(error) => Err(error),
        }
    }

    /// A directory whose cluster was restored elsewhere is not served. A manifest that cannot be read says
    /// nothing; the one before it does. Where there is nothing at all although there was something, what is
    /// written would not be beside what it goes on from: a folder that is not mounted takes everything, and
    /// hides it once it is.
    async fn check_epoch(&self) -> Result<(), TierError> {
        let Self { exports, cluster, epoch: own, .. } = self;
        let numbers = exports.numbers().await.map_err(ExportError::from)?;
        if numbers.is_empty() && self.has_manifest {
            let left = self.store.list(&cluster.to_string(), 1).await.map_err(ExportError::from)?;
            if left.is_empty() {
                return Err(TierError::Emptied { url: self.store.url().to_owned(), cluster: *cluster });
            }
        }
        for number in numbers.into_iter().rev() {
            match exports.manifest(number).await {
                Ok(manifest) if manifest.epoch > *own => {
                    let (cluster, epoch, own) = (*cluster, manifest.epoch, *own);
                    return Err(TierError::Restored { cluster, epoch, own });
                }
                Ok(_) => return Ok(()),
                // It says what this build cannot read: perhaps that the cluster goes on elsewhere.
                Err(error) if error.is_newer() => return Err(error.into()),
                Err(ExportError::Wrong { object, why }) => {
                    tracing::warn!(object, %why, "a manifest cannot be read");
                }
                Err(error) => return Err(error.into()),
            }
        }
        Ok(())
    }
}

impl Trial {
    /// Says that nothing leaves the journal, and why.
    pub(super) fn tell(&self, tier: &Tier) {
        let why = &self.why;
        tier.is_emptied.store(self.is_refused, Ordering::Release);
        if self.is_refused {
            tracing::error!(
                why,
                "the object store is not as it was left: what is in the journal is served, and nothing leaves it before the store is back"
            );
        } else {
            tracing::warn!(
                why,
                "the object store does not answer: what is in the journal is served, and nothing leaves it before the store has"
            );
        }
        tier.metrics.store_awaited(true);
        tier.uploads.attempted(ShardId::META, Some(why.clone()));
    }

    /// Asks until the store has passed; true then. False if the node stops: at once, or, when the cluster was
    /// restored elsewhere, after it has served what it has, like one that ran meanwhile.
    pub(crate) async fn pass(mut self, tier: &Tier, mut stop: watch::Receiver<bool>) -> bool {
        let has_passed = tokio::select! {
            biased;
            _ = stop.wait_for(|stopping| *stopping) => return false,
            has_passed = self.ask(tier) => has_passed,
        };
        tier.metrics.store_awaited(false);
        tier.is_emptied.store(false, Ordering::Release);
        if has_passed {
            tracing::info!("the object store answers, and does what is relied upon");
            tier.uploads.attempted(ShardId::META, None);
        } else {
            tier.is_deposed.store(true, Ordering::Release);
            let _ = stop.wait_for(|stopping| *stopping).await;
        }
        has_passed
    }

    /// False if another writes for the cluster.
    async fn ask(&mut self, tier: &Tier) -> bool {
        let (mut again_after, mut was_refused) = (AGAIN_AFTER, self.is_refused);
        loop {
            let attempt = match self.under_way.take() {
                Some(attempt) => attempt,
                None => {
                    tokio::time::sleep(again_after).await;
                    again_after = (2 * again_after).min(AGAIN_AFTER_MAX);
                    self.tried.attempt()
                }
            };
            let Err(error) = attempt.await else { return true };
            tier.metrics.failed();
            tier.uploads.attempted(ShardId::META, Some(error.to_string()));
            if !error.is_passing() {
                tier.is_emptied.store(matches!(error, TierError::Emptied { .. }), Ordering::Release);
            }
            if matches!(error, TierError::Restored { .. }) {
                tracing::error!("{error}");
                return false;
            }
            // It would have ended the start. It does not end what is served: somebody may put it right.
            let is_refused = !error.is_passing();
            if is_refused && !was_refused {
                tracing::error!(%error, "the object store answers, and cannot be used; it is asked again");
            }
            was_refused = is_refused;
        }
    }
}
