//! Outputs and arrivals of a checkpoint.

use std::sync::Arc;

use prost::Message;
use weir_protocol::ids::{Incarnation, LogIndex, Offset, PartitionId, ShardId, TimestampMs};

use super::apply::ShardState;
use super::outputs::{Arrivals, Output, OutputLane, Outputs};
use super::rows::BatchRow;
use super::snapshot::SnapshotError;

/// Outputs for one target: numbers end before `next`.
#[derive(Clone, PartialEq, Message)]
pub(super) struct StoredOutputLane {
    #[prost(uint32, tag = "1")]
    pub(super) target: u32,
    #[prost(uint64, tag = "2")]
    pub(super) next: u64,
    #[prost(message, repeated, tag = "3")]
    pub(super) rows: Vec<StoredOutput>,
}

#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct StoredOutput {
    #[prost(uint64, tag = "1")]
    pub(super) incarnation: u64,
    #[prost(uint32, tag = "2")]
    partition: u32,
    #[prost(uint64, tag = "3")]
    name: u64,
    #[prost(uint32, tag = "4")]
    count: u32,
    #[prost(uint32, tag = "5")]
    len: u32,
    #[prost(uint64, tag = "6")]
    ts: u64,
    #[prost(uint64, tag = "7")]
    index: u64,
    #[prost(uint32, tag = "8")]
    pos: u32,
}

/// Number of the next output from a source.
#[derive(Clone, Copy, PartialEq, Message)]
pub(super) struct StoredArrivals {
    #[prost(uint32, tag = "1")]
    pub(super) source: u32,
    #[prost(uint64, tag = "2")]
    pub(super) next: u64,
}

impl ShardState {
    pub(super) fn restore_outputs(
        &mut self,
        lanes: Vec<StoredOutputLane>,
        arrivals: &[StoredArrivals],
    ) -> Result<(), SnapshotError> {
        let lanes = lanes.into_iter().map(|stored| {
            let rows = stored.rows.iter().map(restored).collect();
            (ShardId(stored.target), OutputLane { next: stored.next, rows })
        });
        let outputs = Outputs::restored(lanes)
            .ok_or_else(|| SnapshotError::Contradiction("more outputs than were numbered".to_owned()))?;
        self.outputs = Arc::new(outputs);
        let next = arrivals.iter().map(|stored| (ShardId(stored.source), stored.next)).collect();
        self.arrivals = Arc::new(Arrivals { next });
        Ok(())
    }
}

pub(super) fn stored(output: &Output) -> StoredOutput {
    let Output { to: (incarnation, partition), batch, name, .. } = output;
    StoredOutput {
        incarnation: incarnation.0,
        partition: partition.0,
        name: *name,
        count: batch.count,
        len: batch.len,
        ts: batch.ts.0,
        index: batch.index.0,
        pos: batch.pos,
    }
}

fn restored(stored: &StoredOutput) -> Output {
    Output {
        number: 0, // given when it is added
        to: (Incarnation(stored.incarnation), PartitionId(stored.partition)),
        batch: BatchRow {
            base_offset: Offset(0),
            count: stored.count,
            len: stored.len,
            ts: TimestampMs(stored.ts),
            index: LogIndex(stored.index),
            pos: stored.pos,
        },
        name: stored.name,
    }
}
