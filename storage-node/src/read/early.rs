//! Reading what is staged: before it is committed, and with a term that may lose it.

use std::time::Instant;

use weir_protocol::batch::Batch;
use weir_protocol::filter::Filter;
use weir_protocol::ids::{LogIndex, Offset};
use weir_protocol::rpc::Refusal;

use super::allowance::Allowance;
use super::filtered::{Filtered, STEP};
use super::log::corrupt;
use super::reader::{Bounds, ReadBatches, Reader, bounds, collect};
use crate::replica::early::EarlyLook;
use crate::replica::{EarlyWatch, StagedBatch};
use crate::shard::state::BatchRow;

/// A partition whose staged records are wanted; nothing is staged for it beyond its life.
pub struct EarlyReader<'a> {
    reader: &'a Reader,
    /// Its `changed` is notified when something was staged, or lost.
    pub watch: EarlyWatch,
}

impl<'a> EarlyReader<'a> {
    /// From now on what is staged on the reader's partition is kept for it.
    #[must_use]
    pub fn new(reader: &'a Reader) -> Self {
        let watch = reader.shard.shared.early().watch(reader.key);
        Self { reader, watch }
    }

    /// Where the partition stands, and what is staged from the record `next` on, both of one moment. About `bytes_max`
    /// bytes.
    ///
    /// # Errors
    /// `incarnation_gone`.
    pub fn look(&self, next: Offset, bytes_max: u64) -> Result<(Bounds, EarlyLook), Refusal> {
        let Reader { shard, key, .. } = self.reader;
        shard.shared.early().look(*key, (next, bytes_max), || {
            let state = shard.state.read();
            Ok(bounds(state.partition(*key)?, shard.shared.term()))
        })
    }

    /// Takes staged batches from `from` on, within the allowance.
    ///
    /// # Errors
    /// `corrupt`.
    pub fn read(
        &self,
        staged: Vec<StagedBatch>,
        from: Offset,
        allowance: Allowance,
    ) -> Result<ReadBatches, Refusal> {
        let read = self.taken(staged, from, allowance)?;
        let Reader { shard, key, .. } = self.reader;
        shard.shared.delivered(*key, read.records, read.bytes, Instant::now());
        shard.shared.metrics().delivered_early(read.records);
        Ok(read)
    }

    /// The same of what matches.
    ///
    /// # Errors
    /// `corrupt`.
    pub fn read_filtered(
        &self,
        filter: &Filter,
        staged: Vec<StagedBatch>,
        from: Offset,
        allowance: Allowance,
    ) -> Result<Filtered, Refusal> {
        let found = self.reader.sift(filter, self.taken(staged, from, STEP)?, allowance)?;
        self.reader.shard.shared.metrics().delivered_early(found.read.records);
        Ok(found)
    }

    fn taken(
        &self,
        staged: Vec<StagedBatch>,
        from: Offset,
        allowance: Allowance,
    ) -> Result<ReadBatches, Refusal> {
        let until = staged.last().map_or(from, StagedBatch::end);
        let mut batches = Vec::with_capacity(staged.len());
        for staged in staged {
            let batch = Batch::from_checked(staged.body.clone()).map_err(|error| corrupt(&error))?;
            batches.push((row(&staged), batch));
        }
        collect(self.reader.key.1, batches.into_iter(), (from, until), allowance)
    }
}

impl Reader {
    /// Whether records below `next` that a reader was sent in `term`, before they were committed, are still what it
    /// was sent: nothing was lost since, in this process and term. For a reader that waits for the commit they must be
    /// committed now. If so, how often staged records were lost before.
    ///
    /// # Errors
    /// `incarnation_gone`.
    pub fn holds(&self, next: Offset, term: u64, is_early: bool) -> Result<Option<u64>, Refusal> {
        let shared = &self.shard.shared;
        // In this order everywhere: what is in flight, what is kept of it, the state.
        let staged = shared.staged();
        let committed = || Ok(bounds(self.shard.state.read().partition(self.key)?, shared.term()));
        let (bounds, look) = shared.early().look(self.key, (next, 0), committed)?;
        let is_there = next <= bounds.end
            || (is_early
                && next.0.checked_sub(1).is_some_and(|last| staged.may_hold(self.key, Offset(last))));
        Ok((is_there && look.term == term && !look.is_lost).then_some(look.losses))
    }
}

/// What [`collect`] reads of a row. Where the batch lies in the log nobody knows yet.
fn row(staged: &StagedBatch) -> BatchRow {
    BatchRow {
        base_offset: staged.base,
        count: staged.count,
        len: u32::try_from(staged.body.len()).expect("batches are bounded far below"),
        ts: staged.ts,
        index: LogIndex(0),
        pos: 0,
    }
}
