//! Objects that nothing needs are deleted. Those that the store does not let go keep no other waiting.

use std::collections::BTreeMap;
use std::time::Duration;

use tokio::time::Instant;
use weir_protocol::ids::ShardId;
use weir_tier::store::StoreError;

use super::exporter::Exporter;
use super::making::{SealError, propose};
use crate::replica::ShardHandle;
use crate::shard::command::{Change, Forget};
use crate::shard::state::PackNo;
use crate::tier::Tier;

/// Objects that are deleted at once, and then forgotten together.
const AT_ONCE: usize = 100;
/// After so many that the store did not let go it is enough for this time.
const FAILURES_MAX: usize = 10;
/// An object that the store did not let go, because of a legal hold or a rule of the bucket, is tried again
/// after this long.
const AGAIN_AFTER: Duration = Duration::from_secs(600);

/// Deletes the objects of packs that nothing needs.
#[derive(Default)]
pub(super) struct Deleter {
    /// Until when those that the store did not let go are left alone.
    kept: BTreeMap<(ShardId, PackNo), Instant>,
}

impl Deleter {
    /// Deletes some objects that the log does not need any more, then lets it forget them: in this order, so
    /// that a crash between the two leaves a number without an object rather than an object without a number.
    ///
    /// # Errors
    /// The first object that the store did not let go; the others are deleted, and forgotten.
    pub(super) async fn round(
        &mut self,
        tier: &Tier,
        shard: &ShardHandle,
        exporter: &Exporter,
    ) -> Result<(), SealError> {
        let now = Instant::now();
        self.kept.retain(|_, until| now < *until);
        let unneeded: Vec<_> = {
            let state = shard.state.read();
            let unneeded = state.packs().unneeded();
            let tried = unneeded.filter(|(no, _)| !self.kept.contains_key(&(shard.shard, *no)));
            let deletable = tried.filter(|(no, _)| exporter.may_delete(shard.shard, *no));
            deletable.take(AT_ONCE).map(|(no, pack)| (no, *pack)).collect()
        };
        let (mut packs, mut failures): (Vec<PackNo>, Vec<StoreError>) = (Vec::new(), Vec::new());
        for (no, pack) in unneeded {
            let name = tier.pack_ref(shard.shard, &pack).name;
            match tier.cold.store().delete(&name.to_string()).await {
                Ok(()) => packs.push(no),
                Err(error) => {
                    self.kept.insert((shard.shard, no), Instant::now() + AGAIN_AFTER);
                    failures.push(error);
                }
            }
            // A store that does not answer is not waited for a hundred times.
            if failures.len() >= FAILURES_MAX
                || (!failures.is_empty() && now.elapsed() > super::sealer::PAUSE)
            {
                break;
            }
        }
        if !packs.is_empty() {
            propose(shard, Change::Forget(Forget { packs })).await?;
        }
        failures.into_iter().next().map_or(Ok(()), |error| Err(error.into()))
    }
}
