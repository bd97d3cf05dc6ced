//! A shard's Raft log and vote in the node's journal.
//!
//! Entries that are appended but not applied yet stay in memory here: apply takes them without touching the disk
//! or the journal's lock. There are few, the proposer keeps at most four in flight.

use std::collections::VecDeque;
use std::fmt::Debug;
use std::io;
use std::ops::{Bound, Range, RangeBounds};
use std::sync::Arc;

use futures_util::{Stream, stream};
use openraft::entry::RaftEntry as _;
use openraft::storage::{IOFlushed, LogState, RaftLogStorage};
use openraft::{EntryPayload, OptionalSend, RaftLogReader};
use parking_lot::Mutex;
use weir_journal::{
    Entry, EntryKind, Failure, Journal, LogPosition, RecoveredStream, StreamId, SyncMode, Synced,
};
use weir_protocol::ids::ShardId;

use super::tripwire::Tripwire;
use super::types::{
    EntryData, LogEntry, LogId, TypeConfig, Vote, decode_membership, decode_vote, encode_membership,
    encode_vote, log_id, term_of,
};

/// Most payload bytes that one step of replication or apply reads.
const READ_BYTES_MAX: usize = 4 << 20;

/// Handle of one shard's log; clones share it.
#[derive(Debug, Clone)]
pub struct LogStore {
    shared: Arc<Shared>,
}

#[derive(Debug)]
struct Shared {
    journal: Journal,
    stream: StreamId,
    node: u64,
    tripwire: Arc<Tripwire>,
    inner: Mutex<Inner>,
}

#[derive(Debug, Default)]
struct Inner {
    vote: Option<Vote>,
    committed: Option<LogId>,
    purged: Option<LogId>,
    last: Option<LogId>,
    /// Entries that are not applied yet, contiguous, up to `last`; what is missing before them is in the journal.
    unapplied: VecDeque<LogEntry>,
    /// Commits of the journal and the end each made durable, until their entries are applied.
    commits: VecDeque<(u64, Synced)>,
}

impl LogStore {
    /// The log of `shard` as recovery found it.
    ///
    /// # Errors
    /// If its vote cannot be read: the node could vote twice.
    pub fn open(
        journal: Journal,
        shard: ShardId,
        node: u64,
        recovered: Option<&RecoveredStream>,
        tripwire: Arc<Tripwire>,
    ) -> io::Result<Self> {
        let position = |at: LogPosition| log_id(at.term, at.index);
        let mut inner = Inner::default();
        if let Some(recovered) = recovered {
            inner.vote = recovered.vote.clone().map(decode_vote).transpose().map_err(io::Error::other)?;
            inner.committed = recovered.committed.map(position);
            inner.purged = recovered.purged.map(position);
            inner.last = recovered.last.map(position).or(inner.purged);
        }
        let shared = Shared { journal, stream: StreamId(shard.0), node, tripwire, inner: Mutex::new(inner) };
        Ok(Self { shared: Arc::new(shared) })
    }

    /// Indexes of the entries that it holds.
    #[must_use]
    pub fn range(&self) -> Range<u64> {
        self.shared.journal.entries(self.shared.stream)
    }

    /// Syncs the entries up to and including `upto`, in every mode. Writes nothing if they are synced.
    ///
    /// # Errors
    /// If the journal has failed.
    pub async fn sync(&self, upto: u64) -> io::Result<()> {
        let (journal, stream) = (&self.shared.journal, self.shared.stream);
        if journal.config().sync == SyncMode::Always && journal.is_written(stream, upto) {
            return Ok(());
        }
        Self::durably(|done| journal.flush(stream, done)).await
    }

    /// Where the time of the entry `index` went, once it is applied; forgets it and all before it.
    pub fn applied(&self, index: u64) -> Option<Synced> {
        let mut inner = self.shared.inner.lock();
        while inner.unapplied.front().is_some_and(|entry| entry.index() <= index) {
            inner.unapplied.pop_front();
        }
        while inner.commits.front().is_some_and(|(end, _)| *end <= index) {
            inner.commits.pop_front();
        }
        inner.commits.front().map(|(_, synced)| *synced)
    }

    /// Entries of `range` from memory or disk, at least one unless the range is empty, at most `bytes_max`.
    async fn read(&self, range: Range<u64>, bytes_max: usize) -> io::Result<Vec<LogEntry>> {
        if range.is_empty() {
            return Ok(Vec::new());
        }
        if let Some(entries) = self.in_memory(&range, bytes_max) {
            return Ok(entries);
        }
        let shared = Arc::clone(&self.shared);
        // What was applied is not read here again.
        let read = move || shared.journal.read_entries_once(shared.stream, range, bytes_max);
        let entries = tokio::task::spawn_blocking(read).await.map_err(io::Error::other)?;
        entries.map_err(io::Error::other)?.into_iter().map(from_journal).collect()
    }

    fn in_memory(&self, range: &Range<u64>, bytes_max: usize) -> Option<Vec<LogEntry>> {
        let inner = self.shared.inner.lock();
        let first = inner.unapplied.front()?.index();
        let skip = usize::try_from(range.start.checked_sub(first)?).ok()?;
        let mut entries = Vec::new();
        let mut bytes = 0;
        for entry in inner.unapplied.iter().skip(skip).take_while(|entry| entry.index() < range.end) {
            bytes += payload_bytes(entry);
            if !entries.is_empty() && bytes > bytes_max {
                break;
            }
            entries.push(entry.clone());
        }
        (!entries.is_empty()).then_some(entries)
    }

    /// Waits until the journal says that an operation is durable.
    async fn durably(
        queue: impl FnOnce(weir_journal::Completion) -> Result<(), weir_journal::AppendError>,
    ) -> io::Result<()> {
        let (tell, told) = tokio::sync::oneshot::channel();
        queue(Box::new(move |outcome| drop(tell.send(outcome)))).map_err(io::Error::other)?;
        match told.await {
            Ok(Ok(_)) => Ok(()),
            Ok(Err(failure)) => Err(io::Error::other(failure)),
            Err(_) => Err(io::Error::other(Failure::Closed)),
        }
    }

    fn position(&self, at: &LogId) -> LogPosition {
        LogPosition { term: term_of(at), leader: 0, index: at.index }
    }
}

impl Shared {
    /// The proposing leader, where this node knows it: the journal keeps it for people who read logs.
    fn leader_of(&self, inner: &Inner, term: u64) -> u64 {
        inner.vote.filter(|vote| vote.leader_id.term == term).map_or(0, |vote| vote.leader_id.voted_for)
    }
}

fn payload_bytes(entry: &LogEntry) -> usize {
    match &entry.payload {
        EntryPayload::Normal(payload) => payload.0.len(),
        EntryPayload::Blank | EntryPayload::Membership(_) => 0,
    }
}

fn to_journal(entry: &LogEntry, leader: u64) -> Entry {
    let (kind, payload) = match &entry.payload {
        EntryPayload::Blank => (EntryKind::Blank, bytes::Bytes::new()),
        EntryPayload::Normal(payload) => (EntryKind::Normal, payload.0.clone()),
        EntryPayload::Membership(members) => (EntryKind::Membership, encode_membership(members)),
    };
    Entry { kind, term: term_of(&entry.log_id), leader, index: entry.log_id.index, payload }
}

fn from_journal(entry: Entry) -> io::Result<LogEntry> {
    let payload = match entry.kind {
        EntryKind::Blank => EntryPayload::Blank,
        EntryKind::Normal => EntryPayload::Normal(EntryData(entry.payload)),
        EntryKind::Membership => {
            EntryPayload::Membership(decode_membership(&entry.payload).map_err(io::Error::other)?)
        }
    };
    Ok(LogEntry { log_id: log_id(entry.term, entry.index), payload })
}

fn half_open(range: &impl RangeBounds<u64>, end: u64) -> Range<u64> {
    let first = match range.start_bound() {
        Bound::Included(first) => *first,
        Bound::Excluded(before) => before + 1,
        Bound::Unbounded => 0,
    };
    let last = match range.end_bound() {
        Bound::Included(last) => last + 1,
        Bound::Excluded(end) => *end,
        Bound::Unbounded => end,
    };
    first..last.min(end)
}

impl RaftLogReader<TypeConfig> for LogStore {
    async fn entries_stream<RB>(
        &mut self,
        range: RB,
    ) -> impl Stream<Item = Result<LogEntry, io::Error>> + OptionalSend
    where
        RB: RangeBounds<u64> + Clone + Debug + OptionalSend,
    {
        // A restarted leader applies everything since its checkpoint in one call: read it in steps.
        let range = half_open(&range, u64::MAX);
        let state = (self.clone(), range, VecDeque::new());
        Box::pin(stream::unfold(state, |(log, mut range, mut ready)| async move {
            if ready.is_empty() && !range.is_empty() {
                match log.read(range.clone(), READ_BYTES_MAX).await {
                    Ok(entries) => {
                        range.start += entries.len() as u64;
                        ready.extend(entries);
                    }
                    Err(error) => return Some((Err(error), (log, 0..0, ready))),
                }
            }
            let entry: LogEntry = ready.pop_front()?;
            Some((Ok(entry), (log, range, ready)))
        }))
    }

    async fn try_get_log_entries<RB: RangeBounds<u64> + Clone + Debug + OptionalSend>(
        &mut self,
        range: RB,
    ) -> Result<Vec<LogEntry>, io::Error> {
        let held = self.shared.journal.entries(self.shared.stream);
        let mut range = half_open(&range, held.end);
        range.start = range.start.max(held.start);
        let mut entries = Vec::new();
        while !range.is_empty() {
            let more = self.read(range.clone(), READ_BYTES_MAX).await?;
            range.start += more.len() as u64;
            entries.extend(more);
        }
        Ok(entries)
    }

    async fn read_vote(&mut self) -> Result<Option<Vote>, io::Error> {
        Ok(self.shared.inner.lock().vote)
    }

    async fn limited_get_log_entries(&mut self, start: u64, end: u64) -> Result<Vec<LogEntry>, io::Error> {
        self.read(start..end, READ_BYTES_MAX).await
    }
}

impl RaftLogStorage<TypeConfig> for LogStore {
    type LogReader = Self;

    async fn get_log_state(&mut self) -> Result<LogState<TypeConfig>, io::Error> {
        let inner = self.shared.inner.lock();
        Ok(LogState { last_purged_log_id: inner.purged, last_log_id: inner.last })
    }

    async fn get_log_reader(&mut self) -> Self {
        self.clone()
    }

    async fn save_vote(&mut self, vote: &Vote) -> Result<(), io::Error> {
        let shared = &self.shared;
        // A vote is committed when its election was won.
        shared.tripwire.leading(vote.committed && vote.leader_id.voted_for == shared.node);
        // The journal keeps its operations in order, so a vote is never behind entries queued after it.
        Self::durably(|done| shared.journal.save_vote(shared.stream, encode_vote(vote), done)).await?;
        shared.inner.lock().vote = Some(*vote);
        Ok(())
    }

    async fn save_committed(&mut self, committed: Option<LogId>) -> Result<(), io::Error> {
        if let Some(committed) = committed {
            self.shared.journal.note_committed(self.shared.stream, self.position(&committed));
            self.shared.inner.lock().committed = Some(committed);
        }
        Ok(())
    }

    async fn read_committed(&mut self) -> Result<Option<LogId>, io::Error> {
        Ok(self.shared.inner.lock().committed)
    }

    async fn append<I>(&mut self, entries: I, callback: IOFlushed<TypeConfig>) -> Result<(), io::Error>
    where
        I: IntoIterator<Item = LogEntry> + OptionalSend,
        I::IntoIter: OptionalSend,
    {
        let shared = Arc::clone(&self.shared);
        let mut queued = Vec::new();
        {
            let mut inner = shared.inner.lock();
            for entry in entries {
                let leader = shared.leader_of(&inner, term_of(&entry.log_id));
                queued.push(to_journal(&entry, leader));
                inner.last = Some(entry.log_id);
                inner.unapplied.push_back(entry);
            }
        }
        let Some(last) = queued.last().map(|entry| entry.index) else {
            callback.io_completed(Ok(()));
            return Ok(());
        };
        let told = Arc::clone(&shared);
        let done = move |outcome: Result<Synced, Arc<Failure>>| match outcome {
            Ok(synced) => {
                told.inner.lock().commits.push_back((last + 1, synced));
                told.tripwire.flushed_here(last + 1);
                callback.io_completed(Ok(()));
            }
            Err(failure) => callback.io_completed(Err(io::Error::other(failure))),
        };
        // May write and sync right here, for as long as the journal has found that to be quick.
        shared.journal.append(shared.stream, queued, Box::new(done)).map_err(io::Error::other)
    }

    async fn truncate_after(&mut self, last_log_id: Option<LogId>) -> Result<(), io::Error> {
        let shared = &self.shared;
        let end = last_log_id.map_or(0, |last| last.index + 1);
        {
            let mut inner = shared.inner.lock();
            inner.unapplied.retain(|entry| entry.index() < end);
            inner.last = last_log_id.or(inner.purged);
            shared.tripwire.truncated_here(end);
        }
        let after = last_log_id.map(|last| last.index);
        Self::durably(|done| shared.journal.truncate_after(shared.stream, after, done)).await
    }

    async fn purge(&mut self, upto: LogId) -> Result<(), io::Error> {
        self.shared.journal.note_purged(self.shared.stream, self.position(&upto));
        let mut inner = self.shared.inner.lock();
        inner.unapplied.retain(|entry| entry.index() > upto.index);
        inner.purged = Some(upto);
        inner.last = inner.last.max(Some(upto));
        Ok(())
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use weir_journal::disk::sim::SimDisk;
    use weir_journal::{Identity, JournalConfig};

    use super::super::types::Membership;
    use super::*;

    #[tokio::test]
    async fn the_tripwire_judges_a_node_while_it_leads() {
        let identity = Identity { cluster_id: 1, node_id: 1 };
        let config = JournalConfig::small("/journal", identity);
        let (journal, _) = Journal::open(config, Arc::new(SimDisk::new())).unwrap();
        let tripwire = Arc::new(Tripwire::new(ShardId(1), 1, 0));
        tripwire.members(&Membership::new_with_defaults(vec![BTreeSet::from([1, 2, 3])], []));
        let mut log = LogStore::open(journal, ShardId(1), 1, None, Arc::clone(&tripwire)).unwrap();
        let trips = || catch_unwind(AssertUnwindSafe(|| tripwire.check(0))).is_err();
        for (voted_for, committed, leads) in
            [(1u64, false, false), (1, true, true), (1, false, false), (1, true, true), (2, false, false)]
        {
            let bytes =
                [&[1, u8::from(committed)][..], &1u64.to_le_bytes(), &voted_for.to_le_bytes()].concat();
            log.save_vote(&decode_vote(bytes.into()).unwrap()).await.unwrap();
            assert_eq!(trips(), leads, "voted for {voted_for}, committed: {committed}");
        }
    }
}
