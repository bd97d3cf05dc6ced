//! Reads, and opens subscriptions.

use std::sync::Arc;
use std::time::Duration;

use futures_util::{StreamExt, TryStreamExt, stream};
use prost::Message;
use tokio::time::Instant;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Incarnation, Offset, PartitionId, Term, TopicPath};
use weir_protocol::rpc::{At, Credit, Level, Method, Packet, Position, ReadAnswer, ReadRequest};

use super::awaited::AwaitedTopics;
use super::budget::Budget;
use super::config::ReadConfig;
use super::cursor::{At as CursorAt, Cursor, gone};
use super::feed::{FeedMetrics, Feeds};
use super::page::{PartitionEdge, ReadPage};
use super::records::{Origin, RecordSlice, held_bytes, unpack};
use super::start::{StartAt, Until};
use crate::answers::Held;
use crate::service::ServiceError;
use crate::service::topics::Topics;
use crate::storage::{CallFor, Safety, Storage, Topic};
use crate::under_way::UnderWay;

/// Attempts of a read whose topic is changed while it is under way.
const ATTEMPTS: u32 = 3;
/// Partitions that one read asks at once: a topic of many must not crowd out what others ask of its nodes, nor hold all
/// of their answers' frames in the air. Waiting for any of them is asked of all; it moves nothing.
const ASKED_AT_ONCE: usize = 16;

/// Bytes of batches above which the answers of several partitions are cut to what fits the page.
const TOGETHER_BYTES: u64 = 8 << 20;

/// One read.
#[derive(Debug, Clone)]
pub struct Read {
    /// What is read.
    pub topic: TopicPath,
    /// The life of it that is meant; `None`: whichever there is.
    pub incarnation: Option<Incarnation>,
    /// Only this partition; `None`: all.
    pub partition: Option<PartitionId>,
    /// Where to start.
    pub from: StartAt,
    /// Where to stop.
    pub until: Option<Until>,
    /// Most records, at least 1.
    pub limit: u32,
    /// Stop once this many encoded bytes are collected; one record is always returned.
    pub max_bytes: u64,
    /// If there is nothing, wait this long for something.
    pub wait: Duration,
    /// A level that committed records have, or it is refused: only who follows is shown what is not committed.
    pub min_level: Level,
    /// A position outside what exists is moved to the nearest that does.
    pub clamp: bool,
    /// Only records that match; a page then says in its positions how far was looked.
    pub filter: Option<String>,
}

/// Reads. Clones share the credit budget of subscriptions.
#[derive(Debug, Clone)]
pub struct Reader {
    pub(super) storage: Storage,
    pub(super) topics: Topics,
    pub(super) config: ReadConfig,
    pub(in crate::service) budget: Arc<Budget>,
    pub(super) feeds: Feeds,
    pub(super) awaited: AwaitedTopics,
}

impl Reader {
    pub(in crate::service) fn new(storage: Storage, topics: Topics, config: ReadConfig) -> Self {
        let budget = Arc::new(Budget::new(config));
        let feeds = Feeds::new(Arc::clone(&budget), &config);
        Self { storage, topics, config, budget, feeds, awaited: AwaitedTopics::default() }
    }

    /// The credit budget of this gateway's subscriptions.
    #[must_use]
    pub fn budget(&self) -> &Budget {
        &self.budget
    }

    /// How the streams stand that readers share.
    #[must_use]
    pub fn feed_metrics(&self) -> FeedMetrics {
        self.feeds.metrics()
    }

    /// Reads once. What was found is held in `room`, whatever was before.
    ///
    /// # Errors
    /// `answers_full` if there is no room for it, `level_unavailable`, `offset_trimmed`, `beyond_tail`,
    /// `incarnation_gone` (of a cursor, or the life that is meant), `topic_not_found`, `partition_not_found`,
    /// `invalid_parameter` for an offset without a partition on a topic of several.
    pub(crate) async fn read(&self, read: &Read, room: &mut Held) -> Result<ReadPage, ServiceError> {
        let deadline = self.storage.deadline() + read.wait;
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            let topic = self.topics.known(&read.topic, deadline).await?;
            self.check_level(read.min_level)?;
            match self.read_from(Arc::clone(&topic), read, room, deadline).await {
                Err(failure) if attempts > 0 && is_stale(&failure) => {
                    self.storage.forget(&read.topic, (topic.incarnation, topic.version));
                }
                page => return page,
            }
        }
    }

    /// Refuses what a page cannot be: whoever holds one is never told what became of it. Storage was reached before;
    /// where it reaches no more than `memory`, that is what committed records have.
    fn check_level(&self, min_level: Level) -> Result<(), ServiceError> {
        if min_level == Level::Memory && self.storage.level_max() > Level::Memory {
            let detail = "a read answers with committed messages; follow the topic to be shown them earlier";
            return Err(ServiceError::new(ErrorCode::LevelUnavailable, detail).with_field("min_level"));
        }
        Ok(())
    }

    async fn read_from(
        &self,
        topic: Arc<Topic>,
        read: &Read,
        room: &mut Held,
        deadline: Instant,
    ) -> Result<ReadPage, ServiceError> {
        if let Some(meant) = read.incarnation.filter(|meant| *meant != topic.incarnation) {
            return Err(gone(&topic, &format!("incarnation {meant} of topic {} is gone", topic.path.topic)));
        }
        let partitions = partitions_of(&topic, read.partition)?;
        let mut starts = Vec::with_capacity(partitions.len());
        for partition in &partitions {
            starts.push(position(&topic, *partition, &read.from, partitions.len())?);
        }
        let is_single = partitions.len() == 1;
        let count = u32::try_from(partitions.len()).expect("below the limit of partitions");
        let share = Share {
            records: read.limit.div_ceil(count).max(1),
            bytes: (read.max_bytes / u64::from(count)).max(1),
            parts: count,
            // Several partitions are asked without waiting first, so that none waits for an empty one.
            wait: if is_single { read.wait } else { Duration::ZERO },
        };
        let asked: Vec<_> = partitions
            .iter()
            .zip(&starts)
            .map(|(partition, start)| self.read_partition(&topic, *partition, *start, read, share, deadline))
            .collect();
        let limit = Credit { records: u64::from(read.limit), bytes: read.max_bytes.max(1) };
        let mut asked = stream::iter(asked).buffered(ASKED_AT_ONCE);
        let (mut answers, mut held) = (Vec::with_capacity(partitions.len()), 0);
        while let Some(answer) = asked.try_next().await? {
            held += held_bytes(&answer.slices);
            answers.push(answer);
            // What does not come into the page is not held until all have answered.
            if held > TOGETHER_BYTES.max(2 * limit.bytes) {
                held = cut(&mut answers, limit)?;
            }
        }
        drop(asked);
        // Who found nothing so far has more to look at if it came on, by a filter or through what was
        // dropped, and not to the end.
        let is_waited_for = |answer: &PartitionRead| {
            let stands = read.filter.is_none() && answer.edge.next == answer.edge.from;
            answer.slices.is_empty() && (answer.up_to_date || stands)
        };
        if !is_single && !read.wait.is_zero() && answers.iter().all(is_waited_for) {
            self.wait_for_any(&topic, read, share, deadline, &mut answers).await?;
        }
        let page = page_of(topic, answers, limit)?;
        room.resize(held_bytes(&page.slices))?;
        Ok(page)
    }

    /// Nothing is there: replaces the answer of the first partition that gets something.
    async fn wait_for_any(
        &self,
        topic: &Topic,
        read: &Read,
        share: Share,
        deadline: Instant,
        answers: &mut [PartitionRead],
    ) -> Result<(), ServiceError> {
        let share = Share { wait: read.wait, ..share };
        let mut waiting = UnderWay::default();
        for (place, answer) in answers.iter().enumerate() {
            // Where a time is may be known only when a message has come that is not older.
            let start = match read.from {
                StartAt::Timestamp(ts) if answer.edge.next == answer.edge.from => At::TimestampMs(ts.0),
                _ => At::Offset(answer.edge.next.0),
            };
            let partition = answer.edge.partition;
            waiting.push(async move {
                let answer = self.read_partition(topic, partition, start, read, share, deadline).await;
                answer.map(|answer| (place, answer))
            });
        }
        let mut found = None;
        while let Some(answer) = waiting.next().await {
            let (place, answer) = answer?;
            if !answer.slices.is_empty() {
                found = Some((place, answer));
                break;
            }
        }
        drop(waiting);
        if let Some((place, answer)) = found {
            answers[place] = answer;
        }
        Ok(())
    }

    #[expect(clippy::too_many_arguments, reason = "one call, one place; a struct would only rename them")]
    async fn read_partition(
        &self,
        topic: &Topic,
        partition: PartitionId,
        start: At,
        read: &Read,
        share: Share,
        deadline: Instant,
    ) -> Result<PartitionRead, ServiceError> {
        let request = ReadRequest {
            incarnation: topic.incarnation.0,
            config_version: topic.version.0,
            partition: partition.0,
            from: start.into(),
            until: read.until.map(|until| match until {
                Until::Offset(offset) => Position::from(At::Offset(offset.0)),
                Until::Timestamp(ts) => Position::from(At::TimestampMs(ts.0)),
            }),
            max_records: share.records,
            max_bytes: share.bytes,
            wait_ms: u64::try_from(share.wait.as_millis()).unwrap_or(u64::MAX),
            min_level: read.min_level as i32,
            clamp: read.clamp,
            filter: read.filter.clone(),
            filter_share: share.parts,
        };
        let shard = topic.shard(partition).expect("one of the topic's partitions");
        let call = CallFor { shard, method: Method::Read, safety: Safety::Repeatable, deadline };
        let call = (call, !share.wait.is_zero());
        let answer = self.storage.send_waiting(call, vec![request.encode_to_vec().into()]).await;
        let body = answer.map_err(|failure| failure.with_partition(partition))?;
        let packet = Packet::<ReadAnswer>::decode(body)
            .map_err(|error| ServiceError::bad_answer(&error.to_string(), Outcome::None))?;
        let answer = packet.message;
        let origin =
            Origin { partition, committed_end: Offset(answer.committed_end), term: Term(answer.term) };
        Ok(PartitionRead {
            slices: unpack(&answer.slices, packet.payload.into_bytes(), origin)?,
            edge: PartitionEdge {
                partition,
                from: Offset(answer.from),
                next: Offset(answer.next),
                start: Offset(answer.start),
                committed_end: origin.committed_end,
                compacted_to: Offset(answer.compacted_to),
            },
            up_to_date: answer.up_to_date,
            closed: answer.closed,
        })
    }
}

#[derive(Debug, Clone, Copy)]
struct Share {
    records: u32,
    bytes: u64,
    /// Of so many.
    parts: u32,
    wait: Duration,
}

struct PartitionRead {
    slices: Vec<RecordSlice>,
    edge: PartitionEdge,
    up_to_date: bool,
    closed: bool,
}

/// One page of all answers within `limit`: what is left of a partition is read again next time.
fn page_of(
    topic: Arc<Topic>,
    mut answers: Vec<PartitionRead>,
    limit: Credit,
) -> Result<ReadPage, ServiceError> {
    let slices = merged(&mut answers, limit)?.into_iter().map(|(_, slice)| slice).collect();
    let mut cursor = Cursor::default();
    for answer in &answers {
        cursor.set(&topic, answer.edge.partition, CursorAt::new(answer.edge.next));
    }
    let up_to_date = answers.iter().all(|answer| answer.up_to_date);
    let closed = answers.iter().all(|answer| answer.closed);
    let partitions = answers.iter().map(|answer| answer.edge).collect();
    Ok(ReadPage { topic, slices, partitions, cursor, up_to_date, closed })
}

/// Cuts what is beyond `limit` from answers, others of which may follow: the page would not hold it. What is left takes
/// so much memory.
fn cut(answers: &mut [PartitionRead], limit: Credit) -> Result<u64, ServiceError> {
    for (place, slice) in merged(answers, limit)? {
        answers[place].slices.push(slice);
    }
    Ok(answers.iter().map(|answer| held_bytes(&answer.slices)).sum())
}

/// The records of all answers about in the order of time within `limit`, whose bytes the last one may overshoot; the
/// answers end where they are cut.
fn merged(answers: &mut [PartitionRead], limit: Credit) -> Result<Vec<(usize, RecordSlice)>, ServiceError> {
    let mut slices: Vec<_> = answers
        .iter_mut()
        .enumerate()
        .flat_map(|(place, answer)| {
            std::mem::take(&mut answer.slices).into_iter().map(move |slice| (place, slice))
        })
        .collect();
    // Stable, and times never fall within a partition: offsets stay in order.
    slices.sort_by_key(|(_, slice)| slice.batch.header().base_ts);
    let (mut kept, mut left) = (Vec::with_capacity(slices.len()), limit);
    for (place, slice) in slices {
        let fits = slice.prefix(left.records, left.bytes)?;
        let taken = fits.as_ref().map_or(0, |(prefix, _)| prefix.take);
        if taken < slice.take {
            let answer = &mut answers[place];
            answer.edge.next = answer.edge.next.min(slice.first.plus(u64::from(taken)));
            answer.up_to_date = false;
        }
        if let Some((prefix, size)) = fits {
            left.records -= u64::from(prefix.take);
            left.bytes = left.bytes.saturating_sub(size);
            kept.push((place, prefix));
        }
    }
    Ok(kept)
}

/// The partitions meant.
pub(super) fn partitions_of(
    topic: &Topic,
    partition: Option<PartitionId>,
) -> Result<Vec<PartitionId>, ServiceError> {
    match partition {
        None => Ok(topic.partition_ids().collect()),
        Some(partition) if topic.shard(partition).is_some() => Ok(vec![partition]),
        Some(partition) => {
            let detail = format!("the topic has partitions 0 to {}", topic.partitions() - 1);
            Err(ServiceError::new(ErrorCode::PartitionNotFound, detail).with_partition(partition))
        }
    }
}

/// Where one of `count` partitions starts.
pub(super) fn position(
    topic: &Topic,
    partition: PartitionId,
    from: &StartAt,
    count: usize,
) -> Result<At, ServiceError> {
    Ok(match from {
        StartAt::Earliest => At::Earliest(true),
        StartAt::Latest => At::Latest(true),
        StartAt::Offset(offset) if count == 1 => At::Offset(offset.0),
        StartAt::Offset(_) => {
            let detail =
                "an offset belongs to one partition: name it with partition=, or start from a cursor";
            return Err(ServiceError::new(ErrorCode::InvalidParameter, detail).with_field("from"));
        }
        StartAt::Timestamp(ts) => At::TimestampMs(ts.0),
        StartAt::Tail(records) => At::Tail(*records),
        StartAt::Cursor(cursor) => match cursor.at(topic, partition)? {
            // A page takes nothing back: it starts below what may be lost.
            Some(at) => At::Offset(at.firm_end().0),
            None => {
                let detail = format!("the cursor knows no position on partition {partition} of this topic");
                return Err(ServiceError::new(ErrorCode::InvalidCursor, detail).with_field("from"));
            }
        },
    })
}

/// Refused because the gateway's picture of the topic was old.
pub(super) fn is_stale(failure: &ServiceError) -> bool {
    matches!(failure.refusal().error_code(), ErrorCode::ConfigStale | ErrorCode::IncarnationGone)
        // A cursor's own incarnation is checked here, before any node is asked.
        && failure.partition.is_some()
}

#[cfg(test)]
mod tests;
