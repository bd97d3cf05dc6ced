//! The task of a leader that carries what its shard's settles publish to the partitions.
//!
//! Each batch is committed by its target under its number, once, and deleted here after that; the target
//! recognises what it has seen. So a crash anywhere repeats at most what is recognised, and loses nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Instant;

use prost::Message as _;
use tokio::sync::watch;
use weir_journal::Class;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::ShardId;
use weir_protocol::rpc::Refusal;

use super::carrier::{Carry, commit, not_here, run};
use crate::read;
use crate::replica::{Arrived, ShardHandle};
use crate::shard::command::{Change, Command, Taken};
use crate::shard::entry::{Across, Kind, SubBatch};
use crate::shard::state::{Output, Verdict};

/// Outputs sent to one target at once.
const OUTPUTS_PER_ENTRY: usize = 256;
/// Bytes of them, but for a single larger one.
const BYTES_PER_ENTRY: u64 = 1 << 20;

/// Sends the outputs of one shard.
pub struct OutputSender {
    shard: ShardHandle,
    targets: Arc<BTreeMap<ShardId, ShardHandle>>,
}

impl OutputSender {
    /// From `shard` to partitions in `targets`: the shards that are led here.
    #[must_use]
    pub fn new(shard: ShardHandle, targets: Arc<BTreeMap<ShardId, ShardHandle>>) -> Self {
        Self { shard, targets }
    }

    /// Runs until the node stops.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        run(self, stop).await;
    }

    /// The output as the target's entry carries it.
    async fn publish(&self, output: &Output) -> Result<SubBatch, Refusal> {
        let batch = read::batch_of(&self.shard, &output.batch).await?;
        let (incarnation, partition) = output.to;
        let across = Across { shard: self.shard.shard, number: output.number };
        let sub = SubBatch::command(batch.unplaced().bytes().clone());
        Ok(SubBatch { incarnation, partition, kind: Kind::Publish, across: Some(across), ..sub })
    }
}

impl Carry for OutputSender {
    type To = ShardId;
    const WHAT: &'static str = "outputs of settles";

    fn shard(&self) -> &ShardHandle {
        &self.shard
    }

    fn owed(&self) -> Vec<ShardId> {
        self.shard.state.read().outputs().waiting()
    }

    /// In order; notes what has arrived also if not all of it does.
    async fn send_to(&self, target: &ShardId) -> Result<(), Refusal> {
        let handle = self.targets.get(target).ok_or_else(not_here)?;
        let outputs = self.shard.state.read().outputs().oldest(*target, OUTPUTS_PER_ENTRY, BYTES_PER_ENTRY);
        let mut subs = Vec::with_capacity(outputs.len());
        for output in &outputs {
            subs.push(self.publish(output).await?);
        }
        let verdicts = commit(handle, subs, Class::Control).await?;
        let (mut upto, mut outcome) = (None, Ok(()));
        for (output, verdict) in outputs.iter().zip(verdicts) {
            match arrival(verdict) {
                Ok(arrived) => {
                    if let Ok(Some(placed)) = &arrived {
                        let bytes = output.batch.len as usize;
                        handle.shared.published(output.to, placed.count, bytes, Instant::now());
                    }
                    self.shard.shared.awaited_outputs().arrived(output.name, arrived);
                    upto = Some(output.number + 1);
                }
                Err(refusal) => {
                    outcome = Err(refusal);
                    break;
                }
            }
        }
        if let Some(upto) = upto {
            let taken = Change::OutputsTaken(Taken { target: target.0, upto });
            let command = Command { change: Some(taken) }.encode_to_vec();
            commit(&self.shard, vec![SubBatch::command(command.into())], Class::Control).await?;
        }
        outcome
    }
}

/// What has become of an output for good: where it is, `None` if it was there before; or the error with which to try
/// again.
fn arrival(verdict: Verdict) -> Result<Arrived, Refusal> {
    match verdict {
        Verdict::Placed(placed) => Ok(Ok(Some(placed))),
        Verdict::Done => Ok(Ok(None)),
        Verdict::Refused(gone) if gone.error_code() == ErrorCode::IncarnationGone => Ok(Err(gone)),
        Verdict::Refused(refusal) => Err(refusal),
        other => Err(Refusal::new(ErrorCode::Internal, format!("an output was answered with {other:?}"))),
    }
}
