//! A shard's log as a stream of the journal.
//!
//! openraft asks that entries are readable when `append` returns and that its callback comes after the sync: that
//! is the journal's contract. Vote and entries keep their order because both go through the journal's one queue.

use std::fmt::Debug;
use std::io;
use std::ops::{Bound, RangeBounds};
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};

use bytes::Bytes;
use openraft::alias::{EntryOf, LogIdOf, VoteOf};
use openraft::storage::{IOFlushed, RaftLogStorage};
use openraft::{EntryPayload, LogState, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use prost::Message as _;
use tokio::sync::oneshot;
use weir_journal::{
    AppendError, Entry, EntryKind, Failure, Journal, LogPosition, RecoveredStream, StreamId, Synced,
};

use super::types::{Members, StoredMembers, TypeConfig, decode_vote, encode_vote, log_id, position};
use crate::raft::EntryData;

/// Most payload bytes that one read of the log returns.
const READ_BYTES_MAX: usize = 4 << 20;

/// What the newest commits took, for the stages that publishers are told.
#[derive(Debug, Clone, Copy)]
pub struct CommitMarks {
    /// Entries below this index were durable then.
    pub durable_end: u64,
    /// The commit.
    pub synced: Synced,
}

/// One shard's log.
#[derive(Debug, Clone)]
pub struct LogStore {
    journal: Journal,
    stream: StreamId,
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    vote: Mutex<Option<VoteOf<TypeConfig>>>,
    committed: Mutex<Option<LogIdOf<TypeConfig>>>,
    purged: Mutex<Option<LogIdOf<TypeConfig>>>,
    last: Mutex<Option<LogIdOf<TypeConfig>>>,
    /// One past the newest entry that is durable here: the leader's own part of a quorum.
    durable_end: AtomicU64,
    marks: Mutex<Option<CommitMarks>>,
}

impl LogStore {
    /// The log of `stream` as recovery found it.
    ///
    /// # Errors
    /// If the stored vote is damaged.
    pub fn new(journal: Journal, stream: StreamId, found: Option<&RecoveredStream>) -> io::Result<Self> {
        let vote = found
            .and_then(|found| found.vote.as_ref())
            .map(decode_vote)
            .transpose()
            .map_err(io::Error::other)?;
        let purged = found.and_then(|found| found.purged).map(log_id);
        let last = found.and_then(|found| found.last).map(log_id).or(purged);
        let shared = Shared {
            vote: Mutex::new(vote),
            committed: Mutex::new(found.and_then(|found| found.committed).map(log_id)),
            purged: Mutex::new(purged),
            durable_end: AtomicU64::new(last.as_ref().map_or(0, |last| last.index + 1)),
            last: Mutex::new(last),
            marks: Mutex::new(None),
        };
        Ok(Self { journal, stream, shared: Arc::new(shared) })
    }

    /// One past the newest entry that is durable on this node.
    #[must_use]
    pub fn durable_end(&self) -> u64 {
        self.shared.durable_end.load(Ordering::Acquire)
    }

    /// The newest commit's marks.
    #[must_use]
    pub fn marks(&self) -> Option<CommitMarks> {
        *self.shared.marks.lock()
    }

    fn entry(&self, entry: EntryOf<TypeConfig>) -> Entry {
        let LogPosition { term, leader, index } = position(&entry.log_id);
        let (kind, payload) = match entry.payload {
            EntryPayload::Blank => (EntryKind::Blank, Bytes::new()),
            EntryPayload::Normal(EntryData(bytes)) => (EntryKind::Normal, bytes),
            EntryPayload::Membership(members) => {
                (EntryKind::Membership, StoredMembers::from(&members).encode_to_vec().into())
            }
        };
        Entry { kind, term, leader, index, payload }
    }

    async fn wait(
        &self,
        queue: impl FnOnce(weir_journal::Completion) -> Result<(), AppendError>,
    ) -> io::Result<()> {
        let (tx, rx) = oneshot::channel();
        queue(Box::new(move |outcome| drop(tx.send(outcome)))).map_err(io::Error::other)?;
        match rx.await {
            Ok(outcome) => outcome.map(drop).map_err(|failure| io::Error::other(failure.to_string())),
            Err(_) => Err(io::Error::other("the journal was closed")),
        }
    }
}

/// An entry as openraft knows it.
fn raft_entry(entry: Entry) -> io::Result<EntryOf<TypeConfig>> {
    let id = log_id(LogPosition { term: entry.term, leader: entry.leader, index: entry.index });
    let payload = match entry.kind {
        EntryKind::Blank => EntryPayload::Blank,
        EntryKind::Normal => EntryPayload::Normal(EntryData(entry.payload)),
        EntryKind::Membership => {
            let stored = StoredMembers::decode(entry.payload).map_err(io::Error::other)?;
            EntryPayload::Membership(Members::try_from(stored).map_err(io::Error::other)?)
        }
    };
    Ok(EntryOf::<TypeConfig> { log_id: id, payload })
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<EntryOf<TypeConfig>>, io::Error> {
        let live = self.journal.entries(self.stream);
        let start = match range.start_bound() {
            Bound::Included(start) => *start,
            Bound::Excluded(before) => before + 1,
            Bound::Unbounded => live.start,
        };
        let end = match range.end_bound() {
            Bound::Included(last) => last + 1,
            Bound::Excluded(end) => *end,
            Bound::Unbounded => live.end,
        };
        let (mut next, end, mut entries) = (start, end.min(live.end), Vec::new());
        while next < end {
            let read = self
                .journal
                .read_entries(self.stream, next..end, READ_BYTES_MAX)
                .map_err(io::Error::other)?;
            next += read.len() as u64;
            for entry in read {
                entries.push(raft_entry(entry)?);
            }
        }
        Ok(entries)
    }

    async fn limited_get_log_entries(
        &mut self,
        start: u64,
        end: u64,
    ) -> Result<Vec<EntryOf<TypeConfig>>, io::Error> {
        // Bounded in bytes, not only in entries: an entry may be megabytes.
        let read =
            self.journal.read_entries(self.stream, start..end, READ_BYTES_MAX).map_err(io::Error::other)?;
        read.into_iter().map(raft_entry).collect()
    }

    async fn read_vote(&mut self) -> Result<Option<VoteOf<TypeConfig>>, io::Error> {
        Ok(*self.shared.vote.lock())
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let (purged, last) = (*self.shared.purged.lock(), *self.shared.last.lock());
        Ok(LogState { last_purged_log_id: purged, last_log_id: last })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &VoteOf<TypeConfig>) -> Result<(), io::Error> {
        let bytes = encode_vote(vote);
        self.wait(|done| self.journal.save_vote(self.stream, bytes, done)).await?;
        *self.shared.vote.lock() = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogIdOf<TypeConfig>>) -> Result<(), io::Error> {
        if let Some(committed) = &committed {
            self.journal.note_committed(self.stream, position(committed));
        }
        *self.shared.committed.lock() = committed;
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogIdOf<TypeConfig>>, io::Error> {
        Ok(*self.shared.committed.lock())
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = EntryOf<TypeConfig>> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let mut last = None;
        let entries: Vec<Entry> = entries
            .into_iter()
            .map(|entry| {
                last = Some(entry.log_id);
                self.entry(entry)
            })
            .collect();
        if entries.is_empty() {
            callback.io_completed(Ok(()));
            return Ok(());
        }
        let shared = Arc::clone(&self.shared);
        let done = move |outcome: Result<Synced, Arc<Failure>>| match outcome {
            Ok(synced) => {
                let durable_end = synced.durable_index_end.unwrap_or(0);
                shared.durable_end.fetch_max(durable_end, Ordering::AcqRel);
                *shared.marks.lock() = Some(CommitMarks { durable_end, synced });
                callback.io_completed(Ok(()));
            }
            Err(failure) => callback.io_completed(Err(io::Error::other(failure.to_string()))),
        };
        self.journal.append(self.stream, entries, Box::new(done)).map_err(io::Error::other)?;
        *self.shared.last.lock() = last;
        Ok(())
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogIdOf<TypeConfig>>) -> Result<(), io::Error> {
        let after = last_log_id.as_ref().map(|id| id.index);
        self.shared.durable_end.fetch_min(after.map_or(0, |after| after + 1), Ordering::AcqRel);
        self.wait(|done| self.journal.truncate_after(self.stream, after, done)).await?;
        *self.shared.last.lock() = last_log_id.or(*self.shared.purged.lock());
        Ok(())
    }

    async fn purge(&mut self, id: LogIdOf<TypeConfig>) -> Result<(), io::Error> {
        self.journal.note_purged(self.stream, position(&id));
        let mut last = self.shared.last.lock();
        if last.as_ref().is_none_or(|last| last.index < id.index) {
            *last = Some(id);
        }
        *self.shared.purged.lock() = Some(id);
        Ok(())
    }
}
