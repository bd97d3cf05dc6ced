//! The task that proposes: one entry for all that waits, up to four in flight.
//!
//! It clocks itself: while entries are in flight, the next one collects what comes. No timer forms a batch.
//! Answers are given where entries are applied (`in_flight`), not here.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, AtomicU32, Ordering};
use std::time::Instant;

use parking_lot::RwLock;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, mpsc};
use weir_journal::Journal;
use weir_protocol::batch::BatchHeader;
use weir_protocol::error::Outcome;
use weir_protocol::ids::Offset;
use weir_protocol::rpc::{Placed, Refusal};

use super::backlog::{Backlog, EntryTarget};
use super::early::StagedBatch;
use super::handle::ShardShared;
use super::in_flight::{EntryInFlight, Flight, hold_back, stages};
use super::log_clock::LogClock;
use super::proposal::Proposal;
use crate::clock;
use crate::raft::types::Callback;
use crate::raft::{EntryData, ShardRaft};
use crate::shard::entry::{EntryBuilder, Kind, SubBatch};
use crate::shard::staged::{Outlook, Publish};
use crate::shard::state::{PartitionKey, ShardState, Verdict};

/// An entry takes proposals until it has this much. One proposal is never divided.
const ENTRY_TARGET: EntryTarget = EntryTarget { bytes: 256 << 10, subs: 512 };
/// Entries in flight: enough to keep the journal busy while the next is built.
const ENTRIES_IN_FLIGHT: u32 = 4;

/// The proposer's state; [`Proposer::run`] is its task.
pub struct Proposer {
    raft: ShardRaft,
    state: Arc<RwLock<ShardState>>,
    shared: Arc<ShardShared>,
    flight: Arc<Flight>,
    places: Arc<Semaphore>,
    backlog: Backlog<Proposal>,
    used_permille: Arc<AtomicU32>,
    clock: LogClock,
}

impl Proposer {
    /// A proposer for a shard that leads. `used_permille` says how full the journal is.
    #[must_use]
    pub fn new(
        raft: ShardRaft,
        state: Arc<RwLock<ShardState>>,
        shared: Arc<ShardShared>,
        journal: Journal,
        used_permille: Arc<AtomicU32>,
    ) -> Self {
        let clock = LogClock::new(state.read().last_ts(), Instant::now());
        let flight = Flight { shared: Arc::clone(&shared), is_rejected: AtomicBool::new(false), journal };
        Self {
            raft,
            state,
            shared,
            flight: Arc::new(flight),
            places: Arc::new(Semaphore::new(ENTRIES_IN_FLIGHT as usize)),
            backlog: Backlog::default(),
            used_permille,
            clock,
        }
    }

    /// Proposes what comes, until the shard's handles are gone; then finishes what is in flight.
    pub async fn run(mut self, mut queue: mpsc::UnboundedReceiver<Proposal>) {
        let mut is_open = true;
        while is_open || !self.backlog.is_empty() {
            // A place first: it lets the oldest go. What came meanwhile is taken before the entry is built.
            tokio::select! {
                biased;
                place = Arc::clone(&self.places).acquire_owned(), if !self.backlog.is_empty() => {
                    while let Ok(proposal) = queue.try_recv() {
                        self.backlog.push(proposal);
                    }
                    let place = place.expect("the semaphore is never closed");
                    let pause = hold_back(self.used_permille.load(Ordering::Relaxed));
                    if !pause.is_zero() {
                        tokio::time::sleep(pause).await;
                    }
                    self.propose(place).await;
                }
                received = queue.recv(), if is_open => match received {
                    Some(proposal) => self.backlog.push(proposal),
                    None => is_open = false,
                },
            }
        }
        self.land().await;
    }

    /// Waits until nothing is in flight.
    async fn land(&mut self) {
        let all = self.places.acquire_many(ENTRIES_IN_FLIGHT).await;
        drop(all.expect("the semaphore is never closed"));
    }

    async fn propose(&mut self, place: OwnedSemaphorePermit) {
        if self.flight.is_rejected.load(Ordering::Acquire) {
            drop(place);
            return self.recover().await;
        }
        let taken = self.backlog.take(ENTRY_TARGET);
        let ts = self.clock.next(clock::now(), Instant::now());
        let mut entry = EntryBuilder::new(ts, taken.iter().map(|proposal| proposal.bytes).sum());
        let mut proposals = Vec::with_capacity(taken.len());
        let mut staged = Vec::new();
        let mut early = self.shared.early().is_watched().then(Vec::new);
        for mut proposal in taken {
            let outlooks = self.stage(&mut proposal, early.as_mut());
            if proposal.logged().next().is_none() {
                let settled = proposal.verdicts(&mut std::iter::empty());
                let spent = stages(proposal.received, None, Instant::now());
                proposal.waiter.done(Ok((settled, spent)));
                continue;
            }
            proposal.logged().for_each(|change| entry.push(&change.sub));
            if let Some(verdicts) = outlooks.filter(|_| proposal.waiter.wants_staged()) {
                staged.push((proposals.len(), verdicts));
            }
            proposals.push(proposal);
        }
        if proposals.is_empty() {
            return;
        }
        for (at, verdicts) in staged {
            proposals[at].waiter.staged(&verdicts);
        }
        // Kept before the entry can land, and told after it is on its way: nobody waits for readers.
        let woken = early.map(|early| self.shared.early().stage(early));
        let in_flight = EntryInFlight::new(proposals, Arc::clone(&self.flight), place);
        let answer = Callback::new(move |result| in_flight.landed(result));
        // If openraft has stopped, the callback is dropped, and that answers.
        if let Err(fatal) = self.raft.client_write_ff(EntryData(entry.build()), Some(answer)).await {
            tracing::debug!(%fatal, "a proposal met a shard that has stopped");
            let refusal = self.flight.stopped(Outcome::None);
            self.backlog.drain().into_iter().for_each(|proposal| proposal.refuse(&refusal));
        }
        woken.into_iter().flatten().for_each(|notify| notify.notify_waiters());
    }

    /// Judges a proposal's changes on top of what is in flight, notes which need no log, and returns the verdicts to
    /// expect if all can be told. Batches whose place is told are added to `early`, if somebody may want them.
    fn stage(
        &self,
        proposal: &mut Proposal,
        mut early: Option<&mut Vec<(PartitionKey, StagedBatch)>>,
    ) -> Option<Vec<Verdict>> {
        let mut staged = self.shared.staged();
        let state = self.state.read();
        let mut expected = Some(Vec::with_capacity(proposal.changes.len()));
        let mut settled = Vec::with_capacity(proposal.changes.len());
        for change in &proposal.changes {
            let (verdict, early) = match (&change.header, change.sub.kind) {
                (Some(header), _) => match staged.publish(&state, &self.publish(&change.sub, header)) {
                    Outlook::Accepted(base) => {
                        if let Some(early) = &mut early {
                            early.push(self.staged_batch(&change.sub, base, header.count));
                        }
                        (Some(self.placed(base.0, header.count)), None)
                    }
                    Outlook::Settled(verdict) => {
                        let verdict = self.in_this_term(*verdict);
                        (Some(verdict.clone()), Some(verdict))
                    }
                    Outlook::Unclear => (None, None),
                },
                (None, Kind::Command) => {
                    staged.change();
                    (None, None)
                }
                (None, _) => (None, None),
            };
            settled.push(early);
            expected = expected.zip(verdict).map(|(mut all, verdict)| {
                all.push(verdict);
                all
            });
        }
        proposal.settled = settled;
        expected
    }

    fn publish<'a>(&self, sub: &'a SubBatch, header: &'a BatchHeader) -> Publish<'a> {
        Publish { key: (sub.incarnation, sub.partition), sub, header, ts: self.clock.last() }
    }

    fn staged_batch(&self, sub: &SubBatch, base: Offset, count: u32) -> (PartitionKey, StagedBatch) {
        let batch = StagedBatch { base, count, ts: self.clock.last(), body: sub.body.clone() };
        ((sub.incarnation, sub.partition), batch)
    }

    fn in_this_term(&self, verdict: Verdict) -> Verdict {
        match verdict {
            Verdict::Placed(seen) => Verdict::Placed(Placed { term: self.shared.term(), ..seen }),
            other => other,
        }
    }

    fn placed(&self, base_offset: u64, count: u32) -> Verdict {
        Verdict::Placed(Placed {
            base_offset,
            count,
            ts_ms: self.clock.last().0,
            term: self.shared.term(),
            is_final: false,
            duplicate: false,
            last_seq: None,
        })
    }

    /// After a rejected proposal: what is in flight lands, what waits is refused, and only a new term's proposals go
    /// on. A staged offset therefore differs from the final one only after a lost term.
    async fn recover(&mut self) {
        self.land().await;
        let refusal = Refusal::new(weir_protocol::error::ErrorCode::NotLeader, "the shard lost its term");
        self.backlog.drain().into_iter().for_each(|proposal| proposal.refuse(&refusal));
        match crate::raft::lead_again(&self.raft).await {
            Ok(()) => self.shared.early().regained(),
            Err(why) => tracing::warn!(%why, "the shard does not lead; publishes are refused"),
        }
        self.clock.saw(self.state.read().last_ts(), Instant::now());
        self.flight.is_rejected.store(false, Ordering::Release);
    }
}
