//! What is proposed to a shard, and who waits for it.

use std::time::Instant;

use tokio::sync::oneshot;
use weir_journal::Permit;
use weir_protocol::batch::{Batch, BatchHeader};
use weir_protocol::rpc::{Refusal, Stages};

use super::backlog::{Sender, Weighted};
use crate::shard::entry::{Kind, SubBatch};
use crate::shard::state::Verdict;

/// What became of a proposal: verdicts of its sub-batches, and where the time went.
pub type Outcomes = Result<(Vec<Verdict>, Stages), Refusal>;

/// Waits for a proposal. Called from tasks that others wait for: it must be short.
pub trait Waiter: Send {
    /// Wants to hear of [`Waiter::staged`].
    fn wants_staged(&self) -> bool {
        false
    }

    /// The entry is on its way; these verdicts hold unless the term is lost. Called at most once, before
    /// [`Waiter::done`], and only if it can be told for every sub-batch.
    fn staged(&mut self, _verdicts: &[Verdict]) {}

    /// The final word. Called once.
    fn done(self: Box<Self>, outcomes: Outcomes);
}

/// A sub-batch and, of a publish, its batch's header.
#[derive(Debug)]
pub struct Change {
    /// What goes into the log.
    pub sub: SubBatch,
    /// Header of the batch in it.
    pub header: Option<BatchHeader>,
}

impl Change {
    /// A change of the shard's own. A publish has its header like any other: without it the proposer would not know
    /// that the partition's end moves, and would tell others offsets that are not theirs.
    fn own(sub: SubBatch) -> Self {
        let is_publish = sub.kind == Kind::Publish;
        let header = is_publish.then(|| Batch::parse(sub.body.clone()).ok()).flatten();
        Self { sub, header: header.map(|batch| batch.header()) }
    }
}

/// Changes that belong together, and who waits for them.
pub struct Proposal {
    sender: Option<Sender>,
    pub(super) changes: Vec<Change>,
    pub(super) bytes: usize,
    pub(super) received: Instant,
    pub(super) waiter: Box<dyn Waiter>,
    /// Verdicts that are final without being logged, by place; empty until staged.
    pub(super) settled: Vec<Option<Verdict>>,
    _permit: Permit,
}

impl Proposal {
    /// A proposal of `sender`, or the shard's own; `permit` is held until it is answered.
    #[must_use]
    pub fn new(
        sender: Option<Sender>,
        changes: Vec<Change>,
        permit: Permit,
        received: Instant,
        waiter: Box<dyn Waiter>,
    ) -> Self {
        let bytes = changes.iter().map(|change| change.sub.encoded_bytes()).sum();
        Self { sender, changes, bytes, received, waiter, settled: Vec::new(), _permit: permit }
    }

    /// A proposal of the shard's own changes whose verdicts can be awaited.
    #[must_use]
    pub fn waiting(
        subs: Vec<SubBatch>,
        permit: Permit,
    ) -> (Self, oneshot::Receiver<Result<Vec<Verdict>, Refusal>>) {
        let (tx, rx) = oneshot::channel();
        let changes = subs.into_iter().map(Change::own).collect();
        (Self::new(None, changes, permit, Instant::now(), Box::new(Told(tx))), rx)
    }

    pub(super) fn refuse(self, refusal: &Refusal) {
        self.waiter.done(Err(refusal.clone()));
    }

    /// Sub-batches that go into the log.
    pub(super) fn logged(&self) -> impl Iterator<Item = &Change> {
        let is_logged = |at: usize| self.settled.get(at).is_none_or(Option::is_none);
        self.changes.iter().enumerate().filter(move |(at, _)| is_logged(*at)).map(|(_, change)| change)
    }

    /// All verdicts in order: those settled early, and `applied` for the rest.
    pub(super) fn verdicts(&mut self, applied: &mut impl Iterator<Item = Verdict>) -> Vec<Verdict> {
        let mut settled = std::mem::take(&mut self.settled);
        settled.resize_with(self.changes.len(), || None);
        settled
            .into_iter()
            .map(|early| early.or_else(|| applied.next()))
            .map(|verdict| verdict.expect("apply gives a verdict per sub-batch"))
            .collect()
    }
}

impl Weighted for Proposal {
    fn turn(&self) -> Option<Sender> {
        self.sender
    }

    fn bytes(&self) -> usize {
        self.bytes
    }

    fn subs(&self) -> usize {
        self.changes.len()
    }
}

struct Told(oneshot::Sender<Result<Vec<Verdict>, Refusal>>);

impl Waiter for Told {
    fn done(self: Box<Self>, outcomes: Outcomes) {
        drop(self.0.send(outcomes.map(|(verdicts, _)| verdicts)));
    }
}

#[cfg(test)]
mod tests {
    use std::sync::Arc;

    use weir_journal::disk::sim::SimDisk;
    use weir_journal::{Class, Identity, Journal, JournalConfig};
    use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};

    use super::*;

    #[test]
    fn a_publish_of_the_shards_own_is_staged_like_any_other() {
        let identity = Identity { cluster_id: 1, node_id: 1 };
        let config = JournalConfig::small("/journal", identity);
        let (journal, _) = Journal::open(config, Arc::new(SimDisk::new())).unwrap();
        let mut batch = BatchBuilder::anonymous();
        batch.push(RecordParts { key: None, headers: &Headers::default(), value: b"a" }).unwrap();
        let body = batch.build(Compression::None).unwrap().bytes().clone();
        let letter = SubBatch { kind: Kind::Publish, ..SubBatch::command(body) };
        let subs = vec![letter, SubBatch::command(bytes::Bytes::new())];
        let (proposal, _answer) = Proposal::waiting(subs, journal.try_admit(1, Class::Control).unwrap());
        let counts: Vec<_> =
            proposal.changes.iter().map(|change| change.header.map(|header| header.count)).collect();
        assert_eq!(counts, [Some(1), None], "the partition's end moves by as many");
    }
}
