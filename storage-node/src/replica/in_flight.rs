//! An entry on its way through the journal, and the answers it owes.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::{Duration, Instant};

use openraft::raft::ClientWriteResult;
use tokio::sync::OwnedSemaphorePermit;
use weir_journal::{Journal, Synced};
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::Offset;
use weir_protocol::rpc::{Refusal, Stages};

use super::handle::ShardShared;
use super::proposal::Proposal;
use crate::raft::TypeConfig;
use crate::shard::entry::Kind;
use crate::shard::state::Verdict;

/// What the entries in flight share with the proposer.
#[derive(Debug)]
pub struct Flight {
    /// Where the shard keeps what is in flight.
    pub shared: Arc<ShardShared>,
    /// A proposal was rejected: the term is lost, the proposer stops and drains.
    pub is_rejected: AtomicBool,
    /// Tells why the shard stopped, if its journal did.
    pub journal: Journal,
}

impl Flight {
    /// Why nothing can be confirmed, for proposals that may (`Unknown`) or cannot (`None`) have taken effect.
    #[must_use]
    pub fn stopped(&self, outcome: Outcome) -> Refusal {
        match self.journal.failure() {
            Some(failure) => Refusal::new(ErrorCode::StorageFailed, failure.to_string()),
            None => Refusal::new(ErrorCode::Unavailable, "the shard has stopped"),
        }
        .with_outcome(outcome)
    }
}

/// The proposals of one entry, in order. If it is dropped without an outcome, they are answered *unknown*: so every
/// waiter is answered, whatever happens to the consensus library.
pub struct EntryInFlight {
    proposals: Vec<Proposal>,
    flight: Arc<Flight>,
    entry_bytes: u32,
    entry_records: u32,
    _place: OwnedSemaphorePermit,
}

impl EntryInFlight {
    /// Takes the proposals and a place among the entries in flight.
    #[must_use]
    pub fn new(proposals: Vec<Proposal>, flight: Arc<Flight>, place: OwnedSemaphorePermit) -> Self {
        let bytes: usize = proposals.iter().map(|proposal| proposal.bytes).sum();
        let records: u32 = proposals
            .iter()
            .flat_map(Proposal::logged)
            .filter_map(|change| change.header.as_ref())
            .map(|header| header.count)
            .sum();
        let entry_bytes = u32::try_from(bytes).unwrap_or(u32::MAX);
        Self { proposals, flight, entry_bytes, entry_records: records, _place: place }
    }

    /// Answers with what openraft said: called where the entry is applied.
    pub fn landed(mut self, result: ClientWriteResult<TypeConfig>) {
        match result {
            Ok(written) => self.answer(written.data.verdicts, written.data.synced),
            Err(error) => {
                self.flight.is_rejected.store(true, Ordering::Release);
                // openraft rejects before appending, but also what it appended before it lost the term.
                let refusal = Refusal::new(ErrorCode::NotLeader, error.to_string());
                self.fail(&refusal.with_outcome(Outcome::Unknown));
            }
        }
    }

    fn answer(&mut self, verdicts: Vec<Verdict>, synced: Option<Synced>) {
        let applied = Instant::now();
        self.unstage();
        self.unstage_early(&verdicts);
        let mut verdicts = verdicts.into_iter();
        for mut proposal in std::mem::take(&mut self.proposals) {
            let stages = Stages {
                batch_bytes: self.entry_bytes,
                batch_records: self.entry_records,
                ..stages(proposal.received, synced, applied)
            };
            let own = proposal.verdicts(&mut verdicts);
            proposal.waiter.done(Ok((own, stages)));
        }
    }

    fn fail(&mut self, refusal: &Refusal) {
        self.flight.shared.early().lost();
        self.unstage();
        for proposal in std::mem::take(&mut self.proposals) {
            proposal.refuse(refusal);
        }
        // Who waits for a record of it would wait for nothing.
        self.flight.shared.wake_all();
    }

    /// Early readers read what was applied as everybody does. `verdicts` are those of what was logged, in order.
    fn unstage_early(&self, verdicts: &[Verdict]) {
        let early = self.flight.shared.early();
        if !early.is_watched() {
            return;
        }
        let logged = self.proposals.iter().flat_map(Proposal::logged);
        for (change, verdict) in logged.zip(verdicts).filter(|(change, _)| change.header.is_some()) {
            let placed = match verdict {
                Verdict::Placed(placed) if !placed.duplicate => Some(Offset(placed.base_offset)),
                _ => None,
            };
            early.landed((change.sub.incarnation, change.sub.partition), &change.sub.body, placed);
        }
    }

    fn unstage(&self) {
        let mut staged = self.flight.shared.staged();
        for change in self.proposals.iter().flat_map(Proposal::logged) {
            match (&change.header, change.sub.kind) {
                (Some(header), _) => staged.landed(&change.sub, header),
                (None, Kind::Command) => staged.change_landed(),
                (None, _) => {}
            }
        }
    }
}

impl Drop for EntryInFlight {
    fn drop(&mut self) {
        if !self.proposals.is_empty() {
            let refusal = self.flight.stopped(Outcome::Unknown);
            self.fail(&refusal);
        }
    }
}

/// Where the time of a proposal went, as far as its commit is known.
pub(super) fn stages(received: Instant, synced: Option<Synced>, applied: Instant) -> Stages {
    let us = |from: Instant, to: Instant| {
        u32::try_from(to.saturating_duration_since(from).as_micros()).unwrap_or(u32::MAX)
    };
    let total = Stages { node_us: us(received, applied).max(1), ..Stages::default() };
    synced.map_or(total, |synced| Stages {
        queue_us: us(received, synced.taken),
        write_us: us(synced.taken, synced.written),
        fsync_us: us(synced.written, synced.synced),
        quorum_us: us(synced.synced, applied),
        ..total
    })
}

/// How long publishers are held back when the journal is `used_permille` full: nothing below 90 %, then rising.
#[must_use]
pub fn hold_back(used_permille: u32) -> Duration {
    Duration::from_millis(u64::from(used_permille.saturating_sub(900).min(100)) / 2)
}

#[cfg(test)]
mod tests {
    use bytes::Bytes;
    use futures_util::FutureExt as _;
    use tokio::sync::Semaphore;
    use weir_journal::disk::sim::SimDisk;
    use weir_journal::{Class, Identity, JournalConfig};
    use weir_protocol::ids::{Incarnation, PartitionId, ShardId};

    use super::*;
    use crate::metrics::NodeMetrics;
    use crate::replica::TailMemory;
    use crate::shard::entry::SubBatch;

    #[test]
    fn an_entry_that_is_lost_wakes_who_waits_for_its_records() {
        let identity = Identity { cluster_id: 1, node_id: 1 };
        let journal = JournalConfig::small("/journal", identity);
        let (journal, _) = Journal::open(journal, Arc::new(SimDisk::new())).unwrap();
        let metrics = NodeMetrics::register(&prometheus::Registry::new(), 0).unwrap();
        let shared = Arc::new(ShardShared::new(ShardId(1), &TailMemory::new(1 << 20, 1), metrics));
        let permit = journal.try_admit(1, Class::Control).unwrap();
        let (proposal, answer) = Proposal::waiting(vec![SubBatch::command(Bytes::new())], permit);
        shared.staged().change();
        let place = Arc::new(Semaphore::new(1)).try_acquire_owned().unwrap();
        let flight = Flight { shared: Arc::clone(&shared), is_rejected: AtomicBool::new(false), journal };
        let entry = EntryInFlight::new(vec![proposal], Arc::new(flight), place);
        let watch = shared.watch((Incarnation(1), PartitionId(0)));
        let woken = watch.notified();
        drop(entry);
        assert!(woken.now_or_never().is_some(), "it would wait until its time is over");
        assert!(matches!(answer.now_or_never(), Some(Ok(Err(_)))), "and the proposal is answered");
    }

    #[test]
    fn publishers_are_slowed_from_ninety_percent_on() {
        assert_eq!(hold_back(0), Duration::ZERO);
        assert_eq!(hold_back(900), Duration::ZERO);
        assert!(hold_back(950) > Duration::ZERO);
        assert_eq!(hold_back(1000), Duration::from_millis(50));
        assert_eq!(hold_back(5000), Duration::from_millis(50));
    }
}
