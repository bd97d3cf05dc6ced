//! Waiting until what is committed is archived: one call at a time for each partition, however many wait for it.

use std::collections::HashMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use parking_lot::Mutex;
use tokio::sync::{Notify, Semaphore, watch};
use tokio::time::{Instant, sleep, timeout_at};
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Incarnation, Offset, PartitionId, ShardId};
use weir_protocol::rpc::{
    ConfirmState, ConfirmStateRequest, Level, Method, PartitionRef, PartitionStatsList,
    PartitionStatsRequest, Placed,
};

use crate::service::ServiceError;
use crate::storage::{ARCHIVING_MAX, CallFor, Safety, Storage, Topic};

/// How long storage is asked to wait, before it is asked again.
const PATIENCE: Duration = Duration::from_secs(5);
/// How much longer its answer is waited for.
const GRACE: Duration = Duration::from_secs(2);
/// When storage could not say, it is asked again after this.
const PAUSE: Duration = Duration::from_secs(1);

/// What becomes of a committed record.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Ended {
    /// It is archived.
    Archived,
    /// It was trimmed, or its topic deleted: there is nothing to be archived any more.
    Gone,
}

/// The last record of a batch.
pub(super) fn last_of(placed: &Placed) -> Offset {
    Offset(placed.base_offset + u64::from(placed.count.saturating_sub(1)))
}

/// What is known of a partition by those who wait.
#[derive(Debug, Clone, Default)]
struct Known {
    /// All below are trimmed.
    start: Offset,
    /// All others below are archived.
    archived_end: Offset,
    /// Nothing more will be known.
    failed: Option<ServiceError>,
}

impl Known {
    fn ended(&self, offset: Offset) -> Option<Result<Ended, ServiceError>> {
        match &self.failed {
            _ if offset < self.start => Some(Ok(Ended::Gone)),
            _ if offset < self.archived_end => Some(Ok(Ended::Archived)),
            Some(failure) if failure.code() == ErrorCode::IncarnationGone => Some(Ok(Ended::Gone)),
            Some(failure) => Some(Err(failure.clone())),
            None => None,
        }
    }
}

/// A partition that somebody waits for.
#[derive(Debug)]
struct Awaited {
    shard: ShardId,
    key: Key,
    /// Records below this are waited for, or were.
    wanted_end: AtomicU64,
    more: Notify,
    known: watch::Sender<Known>,
}

type Key = (Incarnation, PartitionId);

/// Knows what is archived, as far as somebody wants to. Clones share it.
#[derive(Debug, Clone)]
pub(super) struct Archivist {
    storage: Storage,
    calls: Arc<Semaphore>,
    /// Those with somebody who waits: each has a task, which ends when the last of them leaves.
    awaited: Arc<Mutex<HashMap<Key, Arc<Awaited>>>>,
    /// True once nobody who said how long is to wait any more.
    ends_waits: Arc<watch::Sender<bool>>,
}

impl Archivist {
    pub(super) fn new(storage: Storage) -> Self {
        let (calls, ends_waits) = (Semaphore::new(ARCHIVING_MAX).into(), watch::Sender::new(false).into());
        Self { storage, calls, awaited: Arc::default(), ends_waits }
    }

    /// Lets nobody wait any more who said for how long.
    pub(super) fn end_waits(&self) {
        self.ends_waits.send_replace(true);
    }

    /// Waits until a record that is committed is archived, or gone; `None` if it is neither by then, or when
    /// waits end.
    ///
    /// # Errors
    /// Nobody will ever know.
    pub(super) async fn wait(
        &self,
        topic: &Topic,
        partition: PartitionId,
        offset: Offset,
        until: Option<Instant>,
    ) -> Result<Option<Ended>, ServiceError> {
        let (mut known, mut ends) = (self.join(topic, partition, offset), self.ends_waits.subscribe());
        loop {
            if let Some(ended) = known.borrow_and_update().ended(offset) {
                return ended.map(Some);
            }
            let changed = match until {
                Some(until) => tokio::select! {
                    changed = timeout_at(until, known.changed()) => changed,
                    _ = ends.wait_for(|ends| *ends) => return Ok(None),
                },
                None => Ok(known.changed().await),
            };
            match changed {
                Ok(Ok(())) => {}
                Ok(Err(_)) => {
                    let detail = "the gateway does not look any more whether it is archived";
                    return Err(ServiceError::new(ErrorCode::Draining, detail));
                }
                Err(_) => return Ok(None),
            }
        }
    }

    fn join(&self, topic: &Topic, partition: PartitionId, offset: Offset) -> watch::Receiver<Known> {
        let key = (topic.incarnation, partition);
        let mut all = self.awaited.lock();
        let awaited = all.entry(key).or_insert_with(|| {
            let awaited = Arc::new(Awaited {
                shard: topic.shard(partition).expect("a batch was placed in it"),
                key,
                wanted_end: AtomicU64::new(0),
                more: Notify::new(),
                known: watch::Sender::default(),
            });
            tokio::spawn(self.clone().watch(Arc::clone(&awaited)));
            awaited
        });
        awaited.wanted_end.fetch_max(offset.0 + 1, Ordering::AcqRel);
        awaited.more.notify_one();
        awaited.known.subscribe()
    }

    /// Finds out what is wanted of a partition until nobody wants anything.
    async fn watch(self, awaited: Arc<Awaited>) {
        let mut known_end = 0;
        let mut asked_end = None;
        loop {
            // What was asked for first: with a newer one each time, a store that lags behind would answer nobody.
            let wanted_end = asked_end.unwrap_or_else(|| awaited.wanted_end.load(Ordering::Acquire));
            let found_out = async {
                if known_end == wanted_end {
                    awaited.more.notified().await;
                    return true;
                }
                self.find_out(&awaited, Offset(wanted_end - 1)).await
            };
            tokio::select! {
                biased;
                () = awaited.known.closed() => {}
                is_known = found_out => match is_known {
                    true => (known_end, asked_end) = (wanted_end, None),
                    false => asked_end = Some(wanted_end),
                },
            }
            // Under the lock: who joins finds it in the list while it goes on, or makes a new one.
            let mut all = self.awaited.lock();
            if awaited.known.receiver_count() == 0 || awaited.known.borrow().failed.is_some() {
                all.remove(&awaited.key);
                return;
            }
        }
    }

    /// Asks once, and tells all who wait. False: it has to be asked again.
    async fn find_out(&self, awaited: &Awaited, offset: Offset) -> bool {
        let asked = Instant::now();
        match self.ask(awaited, offset).await {
            Ok(state) if state.level() == Level::Archived => {
                awaited.known.send_modify(|known| {
                    known.start = Offset(state.start);
                    known.archived_end = offset.plus(1);
                });
                true
            }
            Ok(_) if asked.elapsed() >= PAUSE => false,
            Err(failure) if failure.code() == ErrorCode::OffsetTrimmed => {
                awaited.known.send_modify(|known| known.start = offset.plus(1));
                true
            }
            Err(failure) if !failure.code().retryable() => {
                awaited.known.send_modify(|known| known.failed = Some(failure));
                true
            }
            Ok(_) | Err(_) => {
                sleep(PAUSE).await;
                false
            }
        }
    }

    async fn ask(&self, awaited: &Awaited, offset: Offset) -> Result<ConfirmState, ServiceError> {
        let _call = self.calls.acquire().await.expect("it is never closed");
        let (incarnation, partition) = awaited.key;
        let request = ConfirmStateRequest {
            incarnation: incarnation.0,
            partition: partition.0,
            offset: offset.0,
            // It is committed: whatever leader there is has it, and what took another's place is not waited for.
            term: u64::MAX,
            level: Level::Archived as i32,
            wait_ms: u64::try_from(PATIENCE.as_millis()).expect("seconds"),
            output: None,
        };
        let (shard, deadline) = (awaited.shard, Instant::now() + PATIENCE + GRACE);
        let call = CallFor { shard, method: Method::ConfirmState, safety: Safety::Repeatable, deadline };
        self.storage.ask_waiting((call, true), &request).await
    }

    /// Waits until all that a partition holds now is archived, or gone.
    ///
    /// # Errors
    /// Nobody knows, or will ever.
    pub(super) async fn wait_for_all(
        &self,
        topic: &Topic,
        partition: PartitionId,
    ) -> Result<(), ServiceError> {
        let reference = PartitionRef { incarnation: topic.incarnation.0, partition: partition.0 };
        let request = PartitionStatsRequest { partitions: vec![reference], with_storage: false };
        let call = CallFor {
            shard: topic.shard(partition).expect("one of the topic's"),
            method: Method::PartitionStats,
            safety: Safety::Repeatable,
            deadline: self.storage.deadline(),
        };
        let answer: PartitionStatsList = self.storage.ask(call, &request).await?;
        let stats = answer.partitions.into_iter().next();
        let stats =
            stats.ok_or_else(|| ServiceError::bad_answer("statistics of no partition", Outcome::None))?;
        match (stats.refused, stats.committed_end.checked_sub(1)) {
            (Some(refusal), _) => Err(refusal.into()),
            (None, Some(last)) => self.wait(topic, partition, Offset(last), None).await.map(|_| ()),
            (None, None) => Ok(()),
        }
    }
}
