//! Starting a shard's Raft group, and its settings. Why they are so: docs/adr/0001-openraft-and-shards.md.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::{Duration, Instant};

use openraft::async_runtime::WatchReceiver as _;
use openraft::{BasicNode, Config, RaftMetrics, ServerState, SnapshotPolicy};
use tokio::sync::watch;
use weir_protocol::ids::ShardId;

use super::log::LogStore;
use super::machine::Machine;
use super::network::Peers;
use super::types::{ShardRaft, TypeConfig};

/// A group of one voter leads at once; longer means that its disk hangs.
const LEADER_DEADLINE: Duration = Duration::from_secs(30);

/// Why a group does not lead.
#[derive(Debug, thiserror::Error)]
pub enum GroupError {
    /// It stopped: its storage failed, or it cannot apply its log.
    #[error("the group stopped: {0}")]
    Stopped(String),
    /// It did not lead within the deadline.
    #[error("the group does not lead: {0}")]
    NoLeader(#[from] openraft::metrics::WaitError),
}

/// Starts a group, with `node` as its only voter if it is new, and waits until it leads and has applied everything
/// that its log held: reads are then as new as before a restart.
///
/// # Errors
/// [`GroupError`].
pub async fn start(
    shard: ShardId,
    node: u64,
    log: LogStore,
    machine: Machine,
) -> Result<ShardRaft, GroupError> {
    let stopped = |error: &dyn std::fmt::Display| GroupError::Stopped(error.to_string());
    let config = settings(&format!("shard-{shard}"));
    let raft =
        ShardRaft::new(node, config, Peers::new(shard), log, machine).await.map_err(|e| stopped(&e))?;
    if raft.is_initialized().await.map_err(|e| stopped(&e))? {
        // One voter need not wait for anybody's heartbeat.
        raft.trigger().elect(false).await.map_err(|e| stopped(&e))?;
    } else {
        let members = BTreeMap::from([(node, BasicNode::default())]);
        raft.initialize(members).await.map_err(|e| stopped(&e))?;
    }
    leads(&raft).await?;
    // A lone voter has nobody to hear from and nobody to tell: without ticks an idle shard costs nothing.
    raft.runtime_config().tick(false);
    Ok(raft)
}

/// Asks for a new term after one was lost, and waits for it as [`start`] does.
///
/// # Errors
/// [`GroupError`].
pub async fn lead_again(raft: &ShardRaft) -> Result<(), GroupError> {
    raft.trigger().elect(true).await.map_err(|error| GroupError::Stopped(error.to_string()))?;
    leads(raft).await
}

async fn leads(raft: &ShardRaft) -> Result<(), GroupError> {
    let caught_up = |metrics: &RaftMetrics<TypeConfig>| {
        metrics.state == ServerState::Leader
            && metrics.last_applied.as_ref().map(|id| id.index) == metrics.last_log_index
    };
    raft.wait(Some(LEADER_DEADLINE)).metrics(caught_up, "leads").await?;
    Ok(())
}

/// Writes a checkpoint of everything applied and waits until it is written or, as `given_up` counts, cannot be; at
/// most `deadline`. Nothing to do if nothing is new.
///
/// # Errors
/// [`GroupError`].
pub async fn checkpoint(
    raft: &ShardRaft,
    mut given_up: watch::Receiver<u64>,
    deadline: Duration,
) -> Result<(), GroupError> {
    let (applied, ends) = (applied_index(raft), Instant::now() + deadline);
    given_up.mark_unchanged();
    loop {
        let newest = snapshot_index(raft);
        if applied <= newest {
            return Ok(());
        }
        // While one is being written, which covers less, openraft takes no order for another.
        raft.trigger().snapshot().await.map_err(|error| GroupError::Stopped(error.to_string()))?;
        let is_written = |metrics: &RaftMetrics<TypeConfig>| {
            metrics.snapshot.as_ref().map(|id| id.index) > newest || metrics.running_state.is_err()
        };
        let waiting = raft.wait(Some(ends.saturating_duration_since(Instant::now())));
        tokio::select! {
            written = waiting.metrics(is_written, "has a checkpoint") => drop(written?),
            // Told and logged where it happened.
            _ = given_up.changed() => return Ok(()),
        }
    }
}

/// Why the group stopped, if it did.
#[must_use]
pub fn stopped(raft: &ShardRaft) -> Option<String> {
    raft.metrics().borrow_watched().running_state.as_ref().err().map(ToString::to_string)
}

/// Index of the newest snapshot that openraft knows, which bounds what it purges.
#[must_use]
pub fn snapshot_index(raft: &ShardRaft) -> Option<u64> {
    raft.metrics().borrow_watched().snapshot.as_ref().map(|id| id.index)
}

/// Index of the last entry that is known to be applied.
#[must_use]
pub fn applied_index(raft: &ShardRaft) -> Option<u64> {
    raft.metrics().borrow_watched().last_applied.as_ref().map(|id| id.index)
}

/// Settings of a group. With one voter nothing here ends in a write: there is nobody to send heartbeats to.
///
/// # Panics
/// Never: the values are constants that openraft accepts (tested).
#[must_use]
pub fn settings(cluster: &str) -> Arc<Config> {
    let config = Config {
        cluster_name: cluster.to_owned(),
        heartbeat_interval: 1_000,
        election_timeout_min: 3_000,
        election_timeout_max: 6_000,
        // Snapshots and purges follow checkpoints and retention, never a count of entries.
        snapshot_policy: SnapshotPolicy::Never,
        max_in_snapshot_log_to_keep: u64::MAX,
        replication_lag_threshold: 1_000_000,
        // Counts entries; the log's own cap bounds their bytes.
        max_payload_entries: 1_024,
        enable_pre_vote: Some(true),
        // A restarted leader must win an election: leases and staged state of its former life are gone.
        enable_leader_restore: Some(false),
        allow_log_reversion: Some(false),
        ..Config::default()
    };
    Arc::new(config.validate().expect("constants within openraft's ranges"))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_settings_are_accepted_and_never_snapshot_by_count() {
        let config = settings("test");
        assert_eq!(config.snapshot_policy, SnapshotPolicy::Never);
        assert_eq!(config.enable_leader_restore, Some(false));
        assert_eq!(config.enable_pre_vote, Some(true));
    }
}
