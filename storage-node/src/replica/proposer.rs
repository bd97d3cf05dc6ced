//! The task that proposes: one entry for all that waits, up to four in flight.
//!
//! It clocks itself: while entries are in flight, the next one collects what comes. No timer forms a batch.

use std::collections::VecDeque;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use futures_util::StreamExt as _;
use futures_util::stream::FuturesOrdered;
use openraft::impls::ProgressResponder;
use tokio::sync::{mpsc, oneshot};
use weir_journal::Permit;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::TimestampMs;
use weir_protocol::rpc::{Refusal, Stages};

use crate::raft::{EntryData, LogStore, ShardRaft, TypeConfig};
use crate::shard::entry::{EntryBuilder, SubBatch};
use crate::shard::state::Verdict;

/// An entry takes proposals until it has this many bytes …
const ENTRY_BYTES_TARGET: usize = 256 << 10;
/// … or this many sub-batches. One proposal is never divided.
const ENTRY_SUBS_TARGET: usize = 512;
/// Entries in flight: enough to keep the journal busy while the next is built.
const ENTRIES_IN_FLIGHT: usize = 4;

/// What became of a proposal: verdicts of its sub-batches, and where the time went.
pub type Outcomes = Result<(Vec<Verdict>, Stages), Refusal>;

/// Changes that belong together, and who waits for them.
pub struct Proposal {
    subs: Vec<SubBatch>,
    bytes: usize,
    received: Instant,
    answer: Box<dyn FnOnce(Outcomes) + Send>,
    _permit: Permit,
}

impl Proposal {
    /// A proposal that answers by calling `answer`, once, from the proposer's task: it must be short.
    #[must_use]
    pub fn new(
        subs: Vec<SubBatch>,
        permit: Permit,
        received: Instant,
        answer: Box<dyn FnOnce(Outcomes) + Send>,
    ) -> Self {
        let bytes = subs.iter().map(SubBatch::encoded_bytes).sum();
        Self { subs, bytes, received, answer, _permit: permit }
    }

    /// A proposal whose verdicts can be awaited.
    #[must_use]
    pub fn waiting(
        subs: Vec<SubBatch>,
        permit: Permit,
    ) -> (Self, oneshot::Receiver<Result<Vec<Verdict>, Refusal>>) {
        let (tx, rx) = oneshot::channel();
        let answer = move |outcomes: Outcomes| drop(tx.send(outcomes.map(|(verdicts, _)| verdicts)));
        (Self::new(subs, permit, Instant::now(), Box::new(answer)), rx)
    }

    pub(crate) fn refuse(self, refusal: &Refusal) {
        (self.answer)(Err(refusal.clone()));
    }
}

type Written = Result<openraft::raft::ClientWriteResult<TypeConfig>, tokio::sync::oneshot::error::RecvError>;

/// An entry in flight: the proposals in it, in order.
struct InFlight {
    proposals: Vec<Proposal>,
    bytes: usize,
    subs: usize,
}

/// Runs until the shard's handles are gone or the shard can no longer commit.
pub async fn run(raft: ShardRaft, log: LogStore, mut queue: mpsc::UnboundedReceiver<Proposal>) {
    let mut waiting: VecDeque<Proposal> = VecDeque::new();
    let mut flying: VecDeque<InFlight> = VecDeque::new();
    let mut results = FuturesOrdered::new();
    let mut last_ts = TimestampMs(0);
    let mut is_open = true;
    while is_open || !flying.is_empty() || !waiting.is_empty() {
        while flying.len() < ENTRIES_IN_FLIGHT && !waiting.is_empty() {
            last_ts = now().max(last_ts);
            let (entry, in_flight) = build(&mut waiting, last_ts);
            let (responder, result) = ProgressResponder::complete_only();
            match raft.client_write_ff(EntryData(entry), Some(responder)).await {
                Ok(()) => {
                    results.push_back(result);
                    flying.push_back(in_flight);
                }
                Err(fatal) => refuse_all(in_flight.proposals, &stopped(&fatal.to_string(), Outcome::None)),
            }
        }
        // Results first: they free places and answer clients; then what came meanwhile, all of it.
        tokio::select! {
            biased;
            Some(result) = results.next(), if !flying.is_empty() => {
                let in_flight = flying.pop_front().expect("one result per entry");
                answer(in_flight, result, &log);
            }
            received = queue.recv(), if is_open => match received {
                Some(proposal) => {
                    waiting.push_back(proposal);
                    while let Ok(more) = queue.try_recv() {
                        waiting.push_back(more);
                    }
                }
                None => is_open = false,
            },
        }
    }
}

fn now() -> TimestampMs {
    let since = SystemTime::now().duration_since(UNIX_EPOCH).unwrap_or_default();
    TimestampMs(u64::try_from(since.as_millis()).unwrap_or(u64::MAX))
}

fn build(waiting: &mut VecDeque<Proposal>, ts: TimestampMs) -> (bytes::Bytes, InFlight) {
    let (mut taken, mut bytes, mut subs) = (Vec::new(), 0, 0);
    while let Some(next) = waiting.front() {
        let fits = bytes + next.bytes <= ENTRY_BYTES_TARGET && subs + next.subs.len() <= ENTRY_SUBS_TARGET;
        if !fits && !taken.is_empty() {
            break;
        }
        let Some(next) = waiting.pop_front() else { break };
        bytes += next.bytes;
        subs += next.subs.len();
        taken.push(next);
    }
    let mut entry = EntryBuilder::new(ts, bytes);
    taken.iter().flat_map(|proposal| &proposal.subs).for_each(|sub| entry.push(sub));
    (entry.build(), InFlight { proposals: taken, bytes, subs })
}

fn answer(in_flight: InFlight, result: Written, log: &LogStore) {
    let applied = Instant::now();
    match result {
        Ok(Ok(written)) => {
            let mut verdicts = written.data.verdicts.into_iter();
            let (bytes, subs) = (in_flight.bytes, in_flight.subs);
            for proposal in in_flight.proposals {
                let own: Vec<_> = verdicts.by_ref().take(proposal.subs.len()).collect();
                assert_eq!(
                    own.len(),
                    proposal.subs.len(),
                    "entry {} has a verdict per sub-batch",
                    written.log_id.index
                );
                let stages = stages(proposal.received, applied, log, (bytes, subs));
                (proposal.answer)(Ok((own, stages)));
            }
        }
        // Not appended: no effect.
        Ok(Err(error @ openraft::errors::ClientWriteError::ForwardToLeader(_))) => {
            let refusal = Refusal::new(ErrorCode::NotLeader, error.to_string());
            refuse_all(in_flight.proposals, &refusal);
        }
        Ok(Err(error)) => refuse_all(in_flight.proposals, &stopped(&error.to_string(), Outcome::Unknown)),
        Err(_) => refuse_all(in_flight.proposals, &stopped("the shard stopped", Outcome::Unknown)),
    }
}

fn stages(received: Instant, applied: Instant, log: &LogStore, (bytes, subs): (usize, usize)) -> Stages {
    let us = |duration: Duration| u32::try_from(duration.as_micros()).unwrap_or(u32::MAX);
    let mut stages = Stages {
        node_us: us(applied - received),
        batch_bytes: u32::try_from(bytes).unwrap_or(u32::MAX),
        batch_records: u32::try_from(subs).unwrap_or(u32::MAX),
        ..Stages::default()
    };
    // The newest commit is this entry's or a later one's: commits are few, so the marks are close.
    if let Some(marks) = log.marks() {
        let synced = marks.synced;
        stages.queue_us = us(synced.taken.saturating_duration_since(received));
        stages.write_us = us(synced.written.saturating_duration_since(synced.taken));
        stages.fsync_us = us(synced.synced.saturating_duration_since(synced.written));
        stages.quorum_us = us(applied.saturating_duration_since(synced.synced));
    }
    stages
}

fn stopped(why: &str, outcome: Outcome) -> Refusal {
    Refusal::new(ErrorCode::StorageFailed, why).with_outcome(outcome)
}

fn refuse_all(proposals: Vec<Proposal>, refusal: &Refusal) {
    for proposal in proposals {
        proposal.refuse(refusal);
    }
}

/// Keeps a proposer's queue and its task together.
pub(crate) fn spawn(
    raft: ShardRaft,
    log: LogStore,
) -> (mpsc::UnboundedSender<Proposal>, tokio::task::JoinHandle<()>) {
    let (tx, rx) = mpsc::unbounded_channel();
    (tx, tokio::spawn(run(raft, log, rx)))
}
