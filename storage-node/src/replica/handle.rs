//! How others reach a shard: its state for reading, its proposer for changing.

use std::collections::HashMap;
use std::sync::{Arc, Weak};

use parking_lot::{Mutex, RwLock};
use tokio::sync::{Notify, mpsc};
use weir_journal::{Journal, Permit, StreamId};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{LogIndex, ShardId};
use weir_protocol::rpc::Refusal;

use super::proposer::Proposal;
use crate::raft::{AppliedLog, ShardRaft};
use crate::shard::entry::SubBatch;
use crate::shard::state::{PartitionKey, ShardState, Verdict};

/// Wakes whoever follows a partition.
#[derive(Debug, Default)]
pub struct ShardShared {
    watchers: Mutex<HashMap<PartitionKey, Weak<Notify>>>,
}

impl ShardShared {
    /// Notified each time the partition gains records or changes. Enable the notification before looking at the
    /// state, and nothing is missed.
    #[must_use]
    pub fn watch(&self, key: PartitionKey) -> Arc<Notify> {
        let mut watchers = self.watchers.lock();
        if let Some(notify) = watchers.get(&key).and_then(Weak::upgrade) {
            return notify;
        }
        // Entries of partitions that nobody follows any more are swept when the map has doubled.
        if watchers.len() == watchers.capacity() {
            watchers.retain(|_, notify| notify.strong_count() > 0);
        }
        let notify = Arc::new(Notify::new());
        watchers.insert(key, Arc::downgrade(&notify));
        notify
    }
}

impl AppliedLog for ShardShared {
    fn applied(&self, _index: LogIndex, touched: &[PartitionKey]) {
        let watchers = self.watchers.lock();
        if watchers.is_empty() {
            return;
        }
        for key in touched {
            if let Some(notify) = watchers.get(key).and_then(Weak::upgrade) {
                notify.notify_waiters();
            }
        }
    }
}

/// A running shard. Cheap to clone.
#[derive(Clone)]
pub struct ShardHandle {
    /// Its number.
    pub shard: ShardId,
    /// What its log means.
    pub state: Arc<RwLock<ShardState>>,
    /// Wakes readers.
    pub shared: Arc<ShardShared>,
    /// Its consensus.
    pub raft: ShardRaft,
    /// Where its entries lie.
    pub journal: Journal,
    pub(crate) proposals: mpsc::UnboundedSender<Proposal>,
}

impl ShardHandle {
    /// The shard's stream in the journal.
    #[must_use]
    pub fn stream(&self) -> StreamId {
        StreamId(self.shard.0)
    }

    /// Queues a proposal. The queue needs no bound of its own: what waits holds a permit of the journal, and their
    /// bytes are bounded there.
    pub(crate) fn propose(&self, proposal: Proposal) {
        if let Err(mpsc::error::SendError(proposal)) = self.proposals.send(proposal) {
            proposal.refuse(&Refusal::new(ErrorCode::Draining, "the node is shutting down"));
        }
    }

    /// Proposes changes of the shard's own and waits for their verdicts.
    ///
    /// # Errors
    /// If the shard cannot commit, with an outcome that says whether it may have.
    ///
    /// # Cancel safety
    /// If it is dropped, the changes may still happen.
    pub async fn change(&self, subs: Vec<SubBatch>, permit: Permit) -> Result<Vec<Verdict>, Refusal> {
        let (proposal, answer) = Proposal::waiting(subs, permit);
        self.propose(proposal);
        answer.await.unwrap_or_else(|_| Err(Refusal::new(ErrorCode::Draining, "the node is shutting down")))
    }
}
