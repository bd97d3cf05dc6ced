//! The task of a leader that carries its shard's outbox to other shards.
//!
//! A row is sent until its target has committed it, and deleted after that; the target recognises what it has seen.
//! So a crash anywhere repeats at most what is recognised, and loses nothing.

use std::collections::BTreeMap;
use std::sync::Arc;

use prost::Message as _;
use tokio::sync::watch;
use weir_protocol::ids::{Incarnation, ShardId};
use weir_protocol::rpc::Refusal;

use super::carrier::{Carry, commit, not_here, run};
use crate::replica::ShardHandle;
use crate::shard::command::{Change, Command, NewsTaken};
use crate::shard::entry::SubBatch;
use crate::shard::state::{OutboxRow, Verdict};

/// Rows sent to one target at once.
const ROWS_PER_ENTRY: usize = 64;

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
    pub async fn run(self, stop: watch::Receiver<bool>) {
        run(self, stop).await;
    }
}

impl Carry for Forwarder {
    type To = ShardId;
    const WHAT: &'static str = "news of topics and subscriptions";

    fn shard(&self) -> &ShardHandle {
        &self.shard
    }

    fn owed(&self) -> Vec<ShardId> {
        self.shard.state.read().outbox().waiting()
    }

    async fn send_to(&self, target: &ShardId) -> Result<(), Refusal> {
        let handle = self.targets.get(target).ok_or_else(not_here)?;
        let rows = self.shard.state.read().outbox().rows(*target, ROWS_PER_ENTRY);
        let Some(last) = rows.last().map(|row| row.seq) else { return Ok(()) };
        let tell = |row: &OutboxRow| row.command(self.shard.shard);
        let unforked = change(handle, rows.iter().map(tell).collect()).await?;
        let unforked = unforked.into_iter().map(|life| life.0).collect();
        let taken = NewsTaken { target: target.0, upto: last + 1, unforked };
        change(&self.shard, vec![Change::Taken(taken)]).await.map(drop)
    }
}

/// Commits changes in a shard, and gives the forks among them that cannot begin there.
async fn change(shard: &ShardHandle, changes: Vec<Change>) -> Result<Vec<Incarnation>, Refusal> {
    let command = |change| Command { change: Some(change) }.encode_to_vec();
    let subs = changes.into_iter().map(|change| SubBatch::command(command(change).into())).collect();
    let mut unforked = Vec::new();
    for verdict in commit(shard, subs).await? {
        match verdict {
            Verdict::Refused(refusal) => return Err(refusal),
            Verdict::Unforked(life) => unforked.push(life),
            _ => {}
        }
    }
    Ok(unforked)
}
