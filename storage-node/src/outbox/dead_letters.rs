//! The task of a leader that carries its shard's dead letters to their topics.
//!
//! Each letter is published with its number as the epoch of a producer that only this shard is: sent again after a crash
//! it is a duplicate, or, if later ones have arrived already, it is fenced. Either way it is there once.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use prost::Message as _;
use tokio::sync::watch;
use weir_journal::Class;
use weir_protocol::batch::{
    Batch, BatchBuilder, BatchError, Compression, Headers, HeadersBuilder, Record, RecordParts,
};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Epoch, Incarnation, PartitionId, ProducerKey, Seq, ShardId, TopicPath};
use weir_protocol::limits::{BATCH_BYTES_MAX, CLIENT_ID_BYTES_MAX};
use weir_protocol::rpc::{Refusal, TopicDescription, TopicName};
use weir_protocol::slots::{partition_of, slot_of};

use super::carrier::{Carry, commit, not_here, run};
use crate::read;
use crate::replica::ShardHandle;
use crate::shard::command::{Buried, Change, Command};
use crate::shard::entry::{Kind, SUB_BATCHES_BYTES_MAX, SubBatch};
use crate::shard::state::{DeadLetter, Verdict};

/// Letters sent before the shard notes that they have arrived.
const LETTERS_AT_ONCE: usize = 64;
/// With more bytes than this no further letter goes together with others.
const STEP_BYTES: usize = 256 << 10;

const _: () =
    assert!(STEP_BYTES + BATCH_BYTES_MAX + (4 << 10) < SUB_BATCHES_BYTES_MAX, "an entry carries a step");

/// Sends the dead letters of one shard.
pub struct DeadLetterSender {
    shard: ShardHandle,
    shards: Arc<BTreeMap<ShardId, ShardHandle>>,
}

impl DeadLetterSender {
    /// From `shard`, to topics in `shards`: those that are led here.
    #[must_use]
    pub fn new(shard: ShardHandle, shards: Arc<BTreeMap<ShardId, ShardHandle>>) -> Self {
        Self { shard, shards }
    }

    /// Runs until the node stops.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        run(self, stop).await;
    }

    /// The first letters as they are published, as many as go together.
    async fn prepare(&self, topic: &TopicDescription, letters: &[Arc<DeadLetter>]) -> Step {
        let (mut step, mut bytes) = (Step::default(), 0);
        let mut last: Option<(&DeadLetter, Batch)> = None;
        for letter in letters {
            let read = match last.take() {
                // Those of one batch mostly follow each other.
                Some((before, batch)) if (before.from, before.batch) == (letter.from, letter.batch) => {
                    Ok(batch)
                }
                _ => read::batch_of_letter(&self.shard, letter).await,
            };
            let addressed = read.and_then(|batch| {
                let addressed = self.address(letter, &batch, topic)?;
                last = Some((letter, batch));
                Ok(addressed)
            });
            match addressed {
                Ok(addressed) => {
                    bytes += addressed.as_ref().map_or(0, |it| it.publish.encoded_bytes());
                    step.letters.push((letter.seq, addressed));
                }
                Err(why) if is_unreadable(&why) => step.unreadable.push((letter.seq, why)),
                Err(why) => {
                    step.stopped = Some(why);
                    break;
                }
            }
            if bytes >= STEP_BYTES {
                break;
            }
        }
        step
    }

    /// Notes in the shard's own log what has become of letters.
    async fn note(&self, arrived: Vec<u64>, unreadable: Vec<u64>) -> Result<(), Refusal> {
        if arrived.is_empty() && unreadable.is_empty() {
            return Ok(());
        }
        let command = Command { change: Some(Change::Buried(Buried { upto: 0, arrived, unreadable })) };
        commit(&self.shard, vec![SubBatch::command(command.encode_to_vec().into())], Class::Control)
            .await
            .map(drop)
    }

    /// Publishes what goes together: what goes to one shard in one entry. How many have arrived before the first that has not,
    /// and why that has not.
    ///
    /// Of a partition none arrives behind one that does not, or that one would be fenced when it is sent again, and lost:
    /// within an entry, which is applied as a whole at one time, whatever refuses a letter (a topic that is closed or gone, no
    /// room for its producer) refuses those that follow it to the same partition.
    async fn publish(&self, step: &[(u64, Option<Addressed>)]) -> (usize, Result<(), Refusal>) {
        let mut by_shard: BTreeMap<ShardId, (Vec<usize>, Vec<SubBatch>)> = BTreeMap::new();
        for (place, (_, addressed)) in step.iter().enumerate() {
            if let Some(Addressed { to, publish }) = addressed {
                let (places, publishes) = by_shard.entry(*to).or_default();
                places.push(place);
                publishes.push(publish.clone());
            }
        }
        let sent = by_shard.into_iter().map(|(to, (places, publishes))| async move {
            let target = self.shards.get(&to).ok_or_else(not_here);
            let verdicts = match target {
                Ok(target) => commit(target, publishes, Class::Control).await,
                Err(refusal) => Err(refusal),
            };
            first_refused(&places, verdicts)
        });
        let refused = join_all(sent).await.into_iter().flatten().min_by_key(|(place, _)| *place);
        refused.map_or((step.len(), Ok(())), |(place, refusal)| (place, Err(refusal)))
    }

    /// Where a letter goes, and as what; `None` if there is nothing of it any more.
    fn address(
        &self,
        letter: &DeadLetter,
        batch: &Batch,
        topic: &TopicDescription,
    ) -> Result<Option<Addressed>, Refusal> {
        let Some(record) = record_of(batch, letter)? else {
            // Compaction dropped it before it was given up: its key has a newer record, and nobody can say what it was.
            tracing::info!(
                topic = letter.source_topic, partition = %letter.from.1, offset = %letter.offset,
                "a dead letter was compacted away"
            );
            return Ok(None);
        };
        let producer = ProducerKey::of(topic.producers_of(), &producer_id(self.shard.shard));
        let batch = letter_batch(&record, letter, producer)?;
        let partitions = topic.config.as_ref().map_or(1, |config| config.partitions.max(1));
        let partition = record.key.as_ref().map_or(PartitionId(0), |key| partition_of(key, partitions));
        let to = topic.shards.get(partition.0 as usize).copied().map(ShardId).ok_or_else(not_here)?;
        let publish = SubBatch {
            incarnation: Incarnation(topic.incarnation),
            partition,
            kind: Kind::Publish,
            ..SubBatch::command(batch.bytes().clone())
        };
        Ok(Some(Addressed { to, publish }))
    }

    /// A topic that letters go to, as its home shard knows it.
    fn topic(&self, name: &TopicName) -> Result<TopicDescription, Refusal> {
        let path = TopicPath::try_from(name)
            .map_err(|error| Refusal::new(ErrorCode::InvalidName, error.to_string()))?;
        let slot = u32::from(slot_of(&path).0);
        let meta = self.shards.get(&ShardId::META).ok_or_else(not_here)?;
        let slots = meta.state.read().slots().clone();
        let home = slots.runs.iter().find(|run| (run.start..run.end).contains(&slot));
        let home = home.and_then(|run| self.shards.get(&ShardId(run.shard))).ok_or_else(not_here)?;
        home.state.read().topics().describe(name)
    }
}

impl Carry for DeadLetterSender {
    type To = TopicName;
    const WHAT: &'static str = "dead letters";

    fn shard(&self) -> &ShardHandle {
        &self.shard
    }

    fn owed(&self) -> Vec<TopicName> {
        self.shard.state.read().dead_letters().waiting()
    }

    /// As many as go together, to the topic as it is now: one that is made anew meanwhile gets none of them, or a letter of the next
    /// step would arrive there before one of this that is sent again, and fence it.
    async fn send_to(&self, name: &TopicName) -> Result<(), Refusal> {
        let topic = self.topic(name)?;
        let (letters, has_more) = self.shard.state.read().dead_letters().oldest(name, LETTERS_AT_ONCE);
        let step = self.prepare(&topic, &letters).await;
        if let Some((_, why)) = step.unreadable.first() {
            let all: Vec<u64> = step.unreadable.iter().map(|(seq, _)| *seq).collect();
            if has_more || all.len() < letters.len() {
                let (count, why) = (all.len(), &why.detail);
                tracing::warn!(shard = %self.shard.shard, to = %name, count, why, "dead letters cannot be read; others go first");
                // Before those are sent: under their old numbers these would be fenced once they can be read, and be lost.
                self.note(Vec::new(), all).await?;
            }
            if step.letters.is_empty() {
                return Err(why.clone());
            }
        }
        let (arrived, outcome) = self.publish(&step.letters).await;
        let arrived = step.letters[..arrived].iter().map(|(seq, _)| *seq).collect();
        self.note(arrived, Vec::new()).await?;
        outcome.and(step.stopped.map_or(Ok(()), Err))
    }
}

/// Letters that go together, by their numbers.
#[derive(Default)]
struct Step {
    /// As they are published; `None` for one that there is nothing of.
    letters: Vec<(u64, Option<Addressed>)>,
    /// Those among them that cannot be read, and why.
    unreadable: Vec<(u64, Refusal)>,
    /// Why no further one goes now.
    stopped: Option<Refusal>,
}

/// It will not be read next time either. What has left the log meanwhile is in a pack.
fn is_unreadable(why: &Refusal) -> bool {
    let code = why.error_code();
    !code.retryable() && code != ErrorCode::OffsetTrimmed
}

/// A letter as it is published.
struct Addressed {
    /// The shard of its partition.
    to: ShardId,
    publish: SubBatch,
}

/// The first of what was sent to a shard that has not arrived there, by its place. One that is fenced has: later ones have.
fn first_refused(places: &[usize], verdicts: Result<Vec<Verdict>, Refusal>) -> Option<(usize, Refusal)> {
    let verdicts = match verdicts {
        Ok(verdicts) => verdicts,
        Err(refusal) => return Some((*places.first()?, refusal)),
    };
    places.iter().zip(verdicts).find_map(|(place, verdict)| match verdict {
        Verdict::Refused(refusal) if refusal.error_code() != ErrorCode::StaleEpoch => Some((*place, refusal)),
        _ => None,
    })
}

/// A name longer than any that a client may give its producer: one of the same name could fence the letters, which would be
/// taken for arrived.
fn producer_id(shard: ShardId) -> String {
    let name = format!("weir-dead-{shard}");
    format!("{name:-<width$}", width = CLIENT_ID_BYTES_MAX + 1)
}

/// Its record; `None` if it was dropped from a batch with holes.
fn record_of(batch: &Batch, letter: &DeadLetter) -> Result<Option<Record>, Refusal> {
    let corrupt = |error: &dyn std::fmt::Display| Refusal::new(ErrorCode::Corrupt, error.to_string());
    let place = letter.offset.0 - letter.batch.base_offset.0;
    let mut records = batch.records().map_err(|error| corrupt(&error))?;
    let is_it = |record: &Result<Record, BatchError>| {
        record.as_ref().map_or(true, |record| record.offset.0 - batch.header().base_offset.0 == place)
    };
    match records.find(is_it) {
        Some(record) => record.map(Some).map_err(|error| corrupt(&error)),
        None if batch.header().left.is_some() => Ok(None),
        None => Err(corrupt(&"the record is not in its batch")),
    }
}

/// The record with the story of its failure. If it has no room for that, it goes as it was.
fn letter_batch(record: &Record, letter: &DeadLetter, producer: ProducerKey) -> Result<Batch, Refusal> {
    let epoch = u32::try_from(letter.seq + 1).expect("a shard has fewer than 2^32 dead letters");
    let build = |headers: &Headers| {
        let mut batch = BatchBuilder::new(producer, Epoch(epoch), Seq(0));
        batch.push(RecordParts { key: record.key.as_deref(), headers, value: &record.value })?;
        batch.build(Compression::None)
    };
    build(&with_story(record, letter))
        .or_else(|_| build(&record.headers))
        .map_err(|error| Refusal::new(ErrorCode::Internal, error.to_string()))
}

fn with_story(record: &Record, letter: &DeadLetter) -> Headers {
    let story = [
        ("weir-dead-reason", letter.reason.clone()),
        ("weir-dead-topic", letter.source_topic.clone()),
        ("weir-dead-partition", letter.from.1.to_string()),
        ("weir-dead-offset", letter.offset.to_string()),
        ("weir-dead-attempts", letter.attempts.to_string()),
        ("weir-dead-subscription", letter.name.subscription.clone()),
    ];
    let mut headers = HeadersBuilder::default();
    record.headers.all_but_delivery().for_each(|(which, value)| {
        headers.reserved(which, value);
    });
    for (name, value) in record.headers.user().filter(|(name, _)| story.iter().all(|(told, _)| told != name))
    {
        // A name that was taken once is taken again.
        let _ = headers.user(name, value);
    }
    for (name, value) in &story {
        let _ = headers.user(name, value.as_bytes());
    }
    headers.finish()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_first_that_did_not_arrive_is_told_and_one_that_is_fenced_did() {
        let refused = |code| Verdict::Refused(Refusal::new(code, "no"));
        let first = |verdicts| first_refused(&[2, 5, 7], verdicts).map(|(at, why)| (at, why.error_code()));
        assert_eq!(first(Ok(vec![Verdict::Done, refused(ErrorCode::StaleEpoch), Verdict::Done])), None);
        let two = vec![refused(ErrorCode::StaleEpoch), refused(ErrorCode::TopicClosed), Verdict::Done];
        assert_eq!(first(Ok(two)), Some((5, ErrorCode::TopicClosed)));
        let busy = Refusal::new(ErrorCode::Busy, "full");
        assert_eq!(first(Err(busy)), Some((2, ErrorCode::Busy)), "of an entry nothing arrives alone");
    }
}
