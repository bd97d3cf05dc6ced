//! The task of a leader that carries its shard's outbox to other shards.
//!
//! A row is sent until its target has committed it, and deleted after that; the target recognises what it has seen.
//! So a crash anywhere repeats at most what is recognised, and loses nothing.

use std::collections::{BTreeMap, BTreeSet};
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use futures_util::future::join_all;
use prost::Message as _;
use tokio::sync::watch;
use weir_journal::Class;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::Refusal;

use crate::replica::ShardHandle;
use crate::shard::command::{Change, Command, Taken};
use crate::shard::entry::{ENTRY_OVERHEAD_BYTES, SubBatch};
use crate::shard::state::{OutboxRow, Verdict};

/// Rows sent to one target at once.
const ROWS_PER_ENTRY: usize = 64;
/// After a failure the next attempt waits this long.
const PAUSE: Duration = Duration::from_millis(200);

/// The forwarder of one shard.
pub struct Forwarder {
    shard: ShardHandle,
    targets: Arc<BTreeMap<ShardId, ShardHandle>>,
}

impl Forwarder {
    /// From `shard` to `targets`: the shards that are led here.
    #[must_use]
    pub fn new(shard: ShardHandle, targets: Arc<BTreeMap<ShardId, ShardHandle>>) -> Self {
        Self { shard, targets }
    }

    /// Runs until the node stops.
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let shared = Arc::clone(&self.shard.shared);
        let mut failing = BTreeSet::new();
        loop {
            if self.shard.journal.failure().is_some() {
                // Nothing can be committed here any more; the node says why.
                let _ = stop.wait_for(|stopping| *stopping).await;
                return;
            }
            // Registered before the state is read: a row that comes meanwhile wakes it.
            let changed = shared.watch_outbox();
            let waiting = self.shard.state.read().outbox().waiting();
            let has_failed = tokio::select! {
                _ = stop.wait_for(|stopping| *stopping) => return,
                sent = join_all(waiting.iter().map(|target| self.send(*target))) => {
                    let failed = waiting.iter().zip(sent).filter_map(|(target, sent)| Some((*target, sent.err()?)));
                    self.tell_operators(&mut failing, failed.collect())
                }
            };
            tokio::select! {
                _ = stop.wait_for(|stopping| *stopping) => return,
                () = tokio::time::sleep(PAUSE), if has_failed => {}
                () = changed, if !has_failed => {}
            }
        }
    }

    /// Logs what has begun to fail, and what works again; true if anything must be tried again.
    fn tell_operators(&self, failing: &mut BTreeSet<ShardId>, failed: BTreeMap<ShardId, Refusal>) -> bool {
        let shard = self.shard.shard;
        for (target, refusal) in failed.iter().filter(|(target, _)| !failing.contains(target)) {
            let why = &refusal.detail;
            tracing::warn!(%shard, %target, why, "another shard cannot be told; it is tried again");
        }
        for target in failing.iter().filter(|target| !failed.contains_key(target)) {
            tracing::info!(%shard, %target, "the other shard is told again");
        }
        *failing = failed.into_keys().collect();
        !failing.is_empty()
    }

    /// Sends what waits for a target.
    async fn send(&self, target: ShardId) -> Result<(), Refusal> {
        // Other nodes are reached over the transport once there are any.
        let Some(handle) = self.targets.get(&target) else {
            return Err(Refusal::new(ErrorCode::NotLeader, "the shard is not on this node"));
        };
        let rows = self.shard.state.read().outbox().rows(target, ROWS_PER_ENTRY);
        let Some(last) = rows.last().map(|row| row.seq) else { return Ok(()) };
        let tell = |row: &OutboxRow| row.command(self.shard.shard);
        commit(handle, rows.iter().map(tell).collect()).await?;
        commit(&self.shard, vec![Change::Taken(Taken { target: target.0, upto: last + 1 })]).await
    }
}

/// Commits changes in a shard.
async fn commit(shard: &ShardHandle, changes: Vec<Change>) -> Result<(), Refusal> {
    let command = |change| Bytes::from(Command { change: Some(change) }.encode_to_vec());
    let subs: Vec<_> = changes.into_iter().map(|change| SubBatch::command(command(change))).collect();
    let bytes = (subs.iter().map(SubBatch::encoded_bytes).sum::<usize>() + ENTRY_OVERHEAD_BYTES) as u64;
    let permit = shard.journal.try_admit(bytes, Class::Control);
    let permit = permit.map_err(|full| Refusal::new(ErrorCode::Busy, full.to_string()))?;
    for verdict in shard.change(subs, permit).await? {
        if let Verdict::Refused(refusal) = verdict {
            return Err(refusal);
        }
    }
    Ok(())
}
