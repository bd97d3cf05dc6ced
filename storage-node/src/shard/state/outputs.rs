//! Record batches that settles publish, on their way to their partitions, and those that have come from other shards.
//!
//! ```text
//!   settling shard                                      shard of the partition
//!   one entry: part's change, outputs ─▶ lane ────────▶ publish with its number ─▶ partition
//!                 rows are deleted once the target has committed them
//! ```
//!
//! Numbers are dense per (source, target) and given in apply, so a batch that is sent twice is recognised and one that
//! is missing is noticed, however long that takes: nothing is forgotten as producers are.

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::ops::Range;
use std::sync::Arc;

use bytes::Bytes;
use weir_protocol::batch::{Batch, BatchHeader};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{LogIndex, Offset, ShardId};
use weir_protocol::rpc::Refusal;

use super::super::command::ChangePart;
use super::super::entry::{Across, SubBatch};
use super::apply::{Applied, At, ShardState, StateError, Verdict, placed};
use super::dedupe::{PartitionKey, Placement};
use super::parts::{HeldPart, PartKey};
use super::rows::BatchRow;
use crate::subscription::{Fence, PartEvent};

/// Outputs of one shard that may be on their way; settles that publish more are refused.
pub const OUTPUT_ROWS_MAX: usize = 10_000;
/// Bytes of their batches. Their log is pinned, and they go into the journal a second time from what is kept for
/// control, so that a full journal does not keep them where they are.
pub const OUTPUT_BYTES_MAX: u64 = 8 << 20;
/// When to ask again while too much is on its way.
const RETRY_AFTER_MS: u64 = 100;

/// A record batch on its way. Its bytes stay in the log until it has arrived.
#[derive(Debug, Clone, PartialEq)]
pub struct Output {
    /// Dense per target, from 0.
    pub number: u64,
    /// Where it goes.
    pub to: PartitionKey,
    /// Where its bytes are; its offset is not known yet.
    pub batch: BatchRow,
    /// What the leader that settled knows it by.
    pub name: u64,
}

/// Outputs for one target.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct OutputLane {
    /// Number of the next.
    pub(super) next: u64,
    /// Those that have not arrived, the oldest first, without holes.
    pub(super) rows: VecDeque<Output>,
}

/// Outputs on their way, in the order in which they were published.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Outputs {
    pub(super) lanes: BTreeMap<ShardId, OutputLane>,
    /// What of the log they hold, and how much that is; follows from the rows.
    pins: BTreeSet<(LogIndex, ShardId, u64)>,
    bytes: u64,
}

impl Outputs {
    /// Those of a checkpoint; `None` if one is not where its number says.
    pub(super) fn restored(lanes: impl IntoIterator<Item = (ShardId, OutputLane)>) -> Option<Self> {
        let mut restored = Self::default();
        for (target, lane) in lanes {
            let first = lane.next.checked_sub(lane.rows.len() as u64)?;
            restored.lanes.insert(target, OutputLane { next: first, rows: VecDeque::new() });
            for output in lane.rows {
                restored.push(target, output);
            }
        }
        Some(restored)
    }

    /// Adds one; its number is given here.
    fn push(&mut self, target: ShardId, output: Output) -> u64 {
        let lane = self.lanes.entry(target).or_default();
        let number = lane.next;
        self.pins.insert((output.batch.index, target, number));
        self.bytes += u64::from(output.batch.len);
        lane.rows.push_back(Output { number, ..output });
        lane.next += 1;
        number
    }

    /// The target has committed everything below `upto`.
    pub(super) fn taken(&mut self, target: ShardId, upto: u64) {
        let Some(lane) = self.lanes.get_mut(&target) else { return };
        while let Some(output) = lane.rows.pop_front_if(|output| output.number < upto) {
            self.pins.remove(&(output.batch.index, target, output.number));
            self.bytes -= u64::from(output.batch.len);
        }
    }

    /// Forgets what has not arrived, for the log that held it is gone: how many those were. The next one has the number
    /// that its target expects.
    pub(super) fn cut(&mut self, arrived: impl Fn(ShardId) -> u64) -> u64 {
        let lost = self.len() as u64;
        for (target, lane) in &mut self.lanes {
            *lane = OutputLane { next: arrived(*target), rows: VecDeque::new() };
        }
        (self.pins, self.bytes) = (BTreeSet::new(), 0);
        lost
    }

    /// The oldest entry that holds one.
    pub(super) fn needed_from(&self) -> Option<LogIndex> {
        self.pins.first().map(|(index, ..)| *index)
    }

    /// Their batches in entries of `range`.
    pub(super) fn in_log(&self, range: Range<LogIndex>) -> impl Iterator<Item = BatchRow> {
        let first = |index| (index, ShardId::META, 0);
        let batch = |(_, target, number): &(LogIndex, ShardId, u64)| {
            let lane = self.lanes.get(target)?;
            let nth = number.checked_sub(lane.rows.front()?.number)?;
            lane.rows.get(usize::try_from(nth).ok()?).map(|output| output.batch)
        };
        self.pins.range(first(range.start)..first(range.end)).filter_map(batch)
    }

    /// How many are on their way.
    #[must_use]
    pub fn len(&self) -> usize {
        self.pins.len()
    }

    /// True if none is.
    #[must_use]
    pub fn is_empty(&self) -> bool {
        self.pins.is_empty()
    }

    /// Bytes of their batches.
    #[must_use]
    pub fn bytes(&self) -> u64 {
        self.bytes
    }

    /// Targets that something is on its way to.
    #[must_use]
    pub fn waiting(&self) -> Vec<ShardId> {
        let waiting = self.lanes.iter().filter(|(_, lane)| !lane.rows.is_empty());
        waiting.map(|(target, _)| *target).collect()
    }

    /// The oldest for a target: at most `most`, and no further once they have `bytes`.
    #[must_use]
    pub fn oldest(&self, target: ShardId, most: usize, bytes: u64) -> Vec<Output> {
        let Some(lane) = self.lanes.get(&target) else { return Vec::new() };
        let mut sum = 0;
        let fits = |output: &&Output| {
            let is_first = sum == 0;
            sum += u64::from(output.batch.len);
            is_first || sum <= bytes
        };
        lane.rows.iter().take(most).take_while(fits).cloned().collect()
    }

    /// Checks that what follows from the rows does.
    ///
    /// # Panics
    /// If it does not.
    pub(super) fn check(&self) {
        let rows: usize = self.lanes.values().map(|lane| lane.rows.len()).sum();
        let bytes: u64 =
            self.lanes.values().flat_map(|lane| &lane.rows).map(|row| u64::from(row.batch.len)).sum();
        assert_eq!((self.pins.len(), self.bytes), (rows, bytes), "pins and bytes follow from the outputs");
        for lane in self.lanes.values() {
            let first = lane.next - lane.rows.len() as u64;
            assert!(lane.rows.iter().zip(first..).all(|(row, number)| row.number == number), "dense");
        }
    }
}

/// Numbers of what has come from other shards.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Arrivals {
    /// Number of the next, by source.
    pub(super) next: BTreeMap<ShardId, u64>,
}

impl Arrivals {
    /// Number of the next from a source: what is below has arrived.
    #[must_use]
    pub fn next(&self, source: ShardId) -> u64 {
        self.next.get(&source).copied().unwrap_or(0)
    }
}

/// Outputs that follow a part's change in its entry.
#[derive(Debug, Default)]
pub(super) struct Following {
    /// How many are still to come.
    left: u32,
    /// Why none of them is sent.
    refused: Option<Refusal>,
}

impl Applied {
    /// Notes that a part's change, accepted unless `refused`, is followed by so many outputs.
    pub(super) fn follow(&mut self, outputs: u32, refused: Option<&Refusal>) {
        self.following = Following { left: outputs, refused: refused.cloned() };
    }

    /// True unless an output is missing.
    pub(super) fn is_whole(&self) -> bool {
        self.following.left == 0
    }
}

impl ShardState {
    /// Refuses a part's change that publishes unless it takes effect whole and there is room for its outputs.
    pub(super) fn admits_outputs(
        &self,
        key: PartKey,
        change: &ChangePart,
        event: &PartEvent,
    ) -> Result<(), Refusal> {
        if change.outputs == 0 {
            return self.was_not_moved(key, Fence(change.fence_min));
        }
        self.has_output_room(change.outputs as usize, change.output_bytes)?;
        let partition = self.partitions.get(&key.1).ok_or_else(|| self.missing(key.1))?;
        let Some(held) = self.parts.get(&key) else { return Ok(()) }; // refused with the change
        let is_held = Fence(change.fence_min) >= held.part.fence_min()
            && partition.start <= held.part.floor()
            && held.part.takes_whole(event, partition.end);
        if is_held {
            return Ok(());
        }
        let detail = "the subscription was moved, or a message was settled or removed, meanwhile";
        Err(Refusal::new(ErrorCode::LeaseLost, detail))
    }

    /// Refuses what was decided before the part was moved: it would settle, or give up, what the seek made unsettled. A
    /// decision has the leader's next fence of its time, and a seek a higher one; 0: it does not say.
    fn was_not_moved(&self, key: PartKey, decided: Fence) -> Result<(), Refusal> {
        let moved = |held: &Arc<HeldPart>| decided != Fence(0) && decided < held.part.fence_min();
        if self.parts.get(&key).is_none_or(|held| !moved(held)) {
            return Ok(());
        }
        Err(Refusal::new(ErrorCode::LeaseLost, "the subscription was moved meanwhile"))
    }

    /// Whether so much more may be on its way.
    ///
    /// # Errors
    /// `busy`.
    pub fn has_output_room(&self, rows: usize, bytes: u64) -> Result<(), Refusal> {
        let (on_their_way, held) = (self.outputs.len(), self.outputs.bytes());
        if on_their_way + rows <= OUTPUT_ROWS_MAX && held + bytes <= OUTPUT_BYTES_MAX {
            return Ok(());
        }
        let detail = format!(
            "{on_their_way} outputs of {held} bytes are on their way; {OUTPUT_ROWS_MAX} of {OUTPUT_BYTES_MAX} may be"
        );
        Err(Refusal { retry_after_ms: Some(RETRY_AFTER_MS), ..Refusal::new(ErrorCode::Busy, detail) })
    }

    /// A record batch of the part's change before it.
    pub(super) fn output(
        &mut self,
        at: At,
        sub: &SubBatch,
        applied: &mut Applied,
    ) -> Result<Verdict, StateError> {
        let index = at.index;
        let (Some(left), Some(to)) = (applied.following.left.checked_sub(1), sub.across) else {
            return Err(StateError::Command { index });
        };
        applied.following.left = left;
        if let Some(refusal) = &applied.following.refused {
            return Ok(Verdict::Refused(refusal.clone()));
        }
        let header = header(at, &sub.body)?;
        let batch = row(at, Offset(0), &header, &sub.body);
        let output = Output { number: 0, to: (sub.incarnation, sub.partition), batch, name: to.number };
        let number = Arc::make_mut(&mut self.outputs).push(to.shard, output);
        applied.is_outbox_changed = true;
        Ok(Verdict::Sent(number))
    }

    /// The outputs for a target below `upto` have arrived.
    pub(super) fn outputs_taken(&mut self, target: ShardId, upto: u64) {
        Arc::make_mut(&mut self.outputs).taken(target, upto);
    }

    /// A record batch that another shard sends: once, in its turn, and whatever became of the topic's
    /// configuration since it was accepted there. What is sent to a topic that was deleted is gone with it.
    pub(super) fn arrive(
        &mut self,
        at: At,
        sub: &SubBatch,
        from: Across,
        applied: &mut Applied,
    ) -> Result<Verdict, StateError> {
        let header = header(at, &sub.body)?;
        let next = self.arrivals.next(from.shard);
        if from.number != next {
            return Ok(if from.number < next { Verdict::Done } else { too_early(from.number, next) });
        }
        let key = (sub.incarnation, sub.partition);
        let Some(partition) = self.partitions.get(&key) else {
            let refusal = self.missing(key);
            if refusal.error_code() == ErrorCode::IncarnationGone {
                Arc::make_mut(&mut self.arrivals).next.insert(from.shard, next + 1);
            }
            return Ok(Verdict::Refused(refusal));
        };
        let row = row(at, partition.end, &header, &sub.body);
        self.change(key, |partition| {
            partition.push(&row);
            Vec::new()
        });
        Arc::make_mut(&mut self.arrivals).next.insert(from.shard, next + 1);
        applied.touched.push(key);
        let placement = Placement { base_offset: row.base_offset, count: row.count, ts: at.ts };
        Ok(Verdict::Placed(placed(placement, at.term)))
    }

    /// Outputs on their way.
    #[must_use]
    pub fn outputs(&self) -> &Outputs {
        &self.outputs
    }

    /// What has come from other shards.
    #[must_use]
    pub fn arrivals(&self) -> &Arrivals {
        &self.arrivals
    }
}

fn header(at: At, body: &Bytes) -> Result<BatchHeader, StateError> {
    let batch = Batch::parse(body.clone());
    batch.map(|batch| batch.header()).map_err(|source| StateError::Batch { index: at.index, source })
}

/// Where a batch lies in the log.
fn row(at: At, base_offset: Offset, header: &BatchHeader, body: &Bytes) -> BatchRow {
    BatchRow {
        base_offset,
        count: header.count,
        len: u32::try_from(body.len()).expect("an entry is below 4 GiB"),
        ts: at.ts,
        index: at.index,
        pos: at.pos,
    }
}

fn too_early(number: u64, next: u64) -> Verdict {
    Verdict::Refused(Refusal::new(ErrorCode::ProducerGap, format!("number {number} came before {next}")))
}
