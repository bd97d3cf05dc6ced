//! The task of a leader that carries its shard's dead letters to their topics.
//!
//! Each letter is published with its number as the epoch of a producer that only this shard is: sent again
//! after a crash it is a duplicate, or, if later ones have arrived already, it is fenced. Either way it is
//! there once.
//!
//! ```text
//!   letters of a topic, by number    7 9 12 15 17      each topic has a lane: up to 16 are sent to at the same time
//!   9 cannot be read                 7 12 15 17 23     it gets a new number, in the log, before 12 is sent, which would fence it
//! ```
//!
//! Letters that cannot be read are looked at again, up to 64 in each attempt, and nothing is logged as long
//! as none behind them can be.

use std::collections::BTreeMap;
use std::sync::Arc;

use futures_util::future::join_all;
use parking_lot::Mutex;
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
    /// Of topics whose oldest letters cannot be read: the number below which none can, as far as was looked.
    unreadable_to: Mutex<BTreeMap<TopicName, u64>>,
}

impl DeadLetterSender {
    /// From `shard`, to topics in `shards`: those that are led here.
    #[must_use]
    pub fn new(shard: ShardHandle, shards: Arc<BTreeMap<ShardId, ShardHandle>>) -> Self {
        Self { shard, shards, unreadable_to: Mutex::default() }
    }

    /// Runs until the node stops.
    pub async fn run(self, stop: watch::Receiver<bool>) {
        run(self, stop).await;
    }

    /// The oldest letters of a topic behind those that cannot be read; from the first of all again where
    /// nothing is behind them.
    fn next(&self, name: &TopicName) -> Vec<Arc<DeadLetter>> {
        let from = self.unreadable_to.lock().get(name).copied().unwrap_or(0);
        let state = self.shard.state.read();
        let has_some = state.dead_letters().oldest(name, from..).next().is_some();
        let from = if has_some { from } else { 0 };
        state.dead_letters().oldest(name, from..).take(LETTERS_AT_ONCE).cloned().collect()
    }

    /// Of the letters of a topic that were looked at none can be sent: the next attempt looks behind those
    /// that cannot be read.
    fn look_on(&self, name: &TopicName, step: Step) -> Result<(), Refusal> {
        if let Some((last, _)) = step.unreadable.last() {
            self.unreadable_to.lock().insert(name.clone(), last + 1);
        }
        step.unreadable.into_iter().next().map(|(_, why)| why).or(step.stopped).map_or(Ok(()), Err)
    }

    /// Puts the letters of a topic that cannot be read behind all others, before those of a step are sent:
    /// under their old numbers they would be fenced once they can be read, and be lost.
    async fn let_pass(&self, name: &TopicName, step: &Step) -> Result<(), Refusal> {
        let is_sent = |seq: &u64| step.letters.binary_search_by_key(seq, |(seq, _)| *seq).is_ok();
        let unreadable: Vec<u64> = {
            let (state, last) = (self.shard.state.read(), step.letters.last().map_or(0, |(seq, _)| *seq));
            let before = state.dead_letters().oldest(name, ..last).map(|letter| letter.seq);
            before.filter(|seq| !is_sent(seq)).collect()
        };
        if !unreadable.is_empty() {
            let (count, why) =
                (unreadable.len(), step.unreadable.first().map(|(_, why)| why.detail.as_str()));
            tracing::warn!(shard = %self.shard.shard, to = %name, count, why, "dead letters cannot be read; others go first");
        }
        self.note(Vec::new(), unreadable).await?;
        self.unreadable_to.lock().remove(name);
        Ok(())
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

    /// Publishes what goes together: what goes to one shard in one entry. How many have arrived before the
    /// first that has not, and why that has not.
    ///
    /// Of a partition none arrives behind one that does not, or that one would be fenced when it is sent
    /// again, and lost: within an entry, which is applied as a whole at one time, whatever refuses a letter
    /// (a topic that is closed or gone, no room for its producer) refuses those that follow it to the same
    /// partition.
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
        let (producer, epoch) = producer_of(self.shard.shard, letter.seq);
        let producer = ProducerKey::of(topic.producers_of(), &producer);
        let batch = letter_batch(&record, letter, (producer, epoch))?;
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
        self.home(name)?.state.read().topics().describe(name)
    }

    /// The home shard of a topic.
    fn home(&self, name: &TopicName) -> Result<&ShardHandle, Refusal> {
        let path = TopicPath::try_from(name)
            .map_err(|error| Refusal::new(ErrorCode::InvalidName, error.to_string()))?;
        let slot = u32::from(slot_of(&path).0);
        let meta = self.shards.get(&ShardId::META).ok_or_else(not_here)?;
        let slots = meta.state.read().slots().clone();
        let home = slots.runs.iter().find(|run| (run.start..run.end).contains(&slot));
        home.and_then(|run| self.shards.get(&ShardId(run.shard))).ok_or_else(not_here)
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

    /// As many as go together, to the topic as it is now: one that is made anew meanwhile gets none of them,
    /// or a letter of the next step would arrive there before one of this that is sent again, and fence it.
    async fn send_to(&self, name: &TopicName) -> Result<(), Refusal> {
        let topic = self.topic(name)?;
        let step = self.prepare(&topic, &self.next(name)).await;
        if step.letters.is_empty() {
            return self.look_on(name, step);
        }
        self.let_pass(name, &step).await?;
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

/// The first of what was sent to a shard that has not arrived there, by its place. One that is fenced has:
/// later ones have.
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

/// Who sends a letter: a producer, and its epoch, which grows from letter to letter. After 2^32 letters it is
/// another producer: none of its own that comes later can fence a letter of the one before.
///
/// The name is longer than any that a client may give its producer: one of the same name could fence the
/// letters, which would be taken for arrived.
fn producer_of(shard: ShardId, seq: u64) -> (String, Epoch) {
    let number = seq + 1;
    let name = match number >> 32 {
        0 => format!("weir-dead-{shard}"),
        more => format!("weir-dead-{shard}-{more}"),
    };
    let epoch = u32::try_from(number & u64::from(u32::MAX)).expect("the lower half of a number");
    (format!("{name:-<width$}", width = CLIENT_ID_BYTES_MAX + 1), Epoch(epoch))
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
fn letter_batch(
    record: &Record,
    letter: &DeadLetter,
    (producer, epoch): (ProducerKey, Epoch),
) -> Result<Batch, Refusal> {
    let build = |headers: &Headers| {
        let mut batch = BatchBuilder::new(producer, epoch, Seq(0));
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
    use std::time::Duration;

    use weir_protocol::ids::Offset;
    use weir_protocol::rpc::{At, PartRef, SubscriptionConfig, SubscriptionName, TopicConfig};

    use super::*;
    use crate::node::tests::{published, start};
    use crate::sealing::tests::overwrite;
    use crate::shard::command::{ChangePart, CreateSubscription, CreateTopic};
    use crate::shard::state::PartitionKey;
    use crate::subscription::{Dead, PartEvent};

    const TENANT: &str = "default";

    fn name() -> TopicName {
        TopicName { tenant: TENANT.into(), namespace: TENANT.into(), topic: "dead".into() }
    }

    async fn change(shard: &ShardHandle, change: Change) -> Verdict {
        let command = Command { change: Some(change) }.encode_to_vec();
        commit(shard, vec![SubBatch::command(command.into())], Class::Control).await.unwrap().remove(0)
    }

    /// A queue whose dead letters go to a topic that is not there yet.
    async fn subscribed(shard: &ShardHandle, (topic, partition): PartitionKey) -> PartRef {
        let config = SubscriptionConfig {
            topic: "t".into(),
            dead_letter_topic: Some(name().topic),
            start: At::Earliest(true).into(),
            ..SubscriptionConfig::default()
        };
        let name =
            SubscriptionName { tenant: TENANT.into(), namespace: TENANT.into(), subscription: "work".into() };
        let (topic_incarnation, shards) = (topic.0, vec![shard.shard.0]);
        let create =
            CreateSubscription { name, config, topic_incarnation, shards, ..CreateSubscription::default() };
        let Verdict::SubscriptionCreated(made) = change(shard, Change::CreateSubscription(create)).await
        else {
            panic!("it is new")
        };
        PartRef { subscription: made.subscription.id, incarnation: topic.0, partition: partition.0 }
    }

    async fn give_up(shard: &ShardHandle, part: PartRef, offsets: std::ops::Range<u64>) {
        let dead = offsets.map(|at| Dead { offset: Offset(at), attempts: 1, reason: "bad".into() });
        let event = PartEvent { dead: dead.collect(), ..PartEvent::default() }.encode().into();
        let done = change(shard, Change::ChangePart(ChangePart { part, event, ..ChangePart::default() }));
        assert_eq!(done.await, Verdict::Done);
    }

    fn waiting(shard: &ShardHandle) -> Vec<u64> {
        shard.state.read().dead_letters().oldest(&name(), ..).map(|letter| letter.seq).collect()
    }

    #[tokio::test(flavor = "multi_thread", worker_threads = 2)]
    async fn letters_that_cannot_be_read_are_logged_as_such_only_where_others_go_before_them() {
        let dir = tempfile::tempdir().unwrap();
        let node = start(dir.path()).await;
        let (shard, other) = (node.shard(ShardId(1)), node.shard(ShardId(2)));
        let shards = [ShardId::META, ShardId(1), ShardId(2)].map(|id| (id, node.shard(id)));
        let sender = DeadLetterSender::new(shard.clone(), Arc::new(BTreeMap::from(shards)));
        let count = 2 * LETTERS_AT_ONCE as u64;
        let mut values: Vec<Vec<u8>> = (0..count).map(|n| format!("damaged {n}").into_bytes()).collect();
        values.push(b"well".to_vec());
        let key = published(&shard, &values).await;
        let part = subscribed(&shard, key).await;
        give_up(&shard, part, 0..count).await;
        // From here on they are read from the disk.
        published(&other, &vec![vec![0; 60 << 10]; 40]).await;
        assert_eq!(overwrite(dir.path(), b"damaged ", b"?"), values.len() - 1);
        let create = CreateTopic {
            name: name(),
            config: TopicConfig { partitions: 1, ..TopicConfig::default() },
            accept_existing: false,
            shards: Vec::new(),
        };
        let home = sender.home(&name()).unwrap();
        let Verdict::TopicCreated(made) = change(home, Change::CreateTopic(create)).await else {
            panic!("it is new")
        };
        let dead = (Incarnation(made.topic.unwrap().incarnation), PartitionId(0));
        let arrived = || home.state.read().partition(dead).unwrap().end;

        // All of them are looked at, and from the first again; the node's own sender does the same.
        for _ in 0..5 {
            let refused = sender.send_to(&name()).await.unwrap_err();
            assert_eq!(refused.error_code(), ErrorCode::Corrupt);
        }
        assert_eq!(waiting(&shard), (0..count).collect::<Vec<_>>(), "an entry for each attempt, for ever");

        give_up(&shard, part, count..count + 1).await;
        let sent = async {
            while waiting(&shard).len() as u64 > count {
                let _ = sender.send_to(&name()).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), sent).await.expect("what can be read arrives");
        assert_eq!((arrived(), waiting(&shard).len() as u64), (Offset(1), count));
        assert!(waiting(&shard)[0] > count, "that one does not fence them");

        assert_eq!(overwrite(dir.path(), b"?amaged ", b"d"), values.len() - 1);
        let all = async {
            while !waiting(&shard).is_empty() {
                let _ = sender.send_to(&name()).await;
            }
        };
        tokio::time::timeout(Duration::from_secs(20), all).await.expect("they can be read again");
        assert_eq!(arrived(), Offset(count + 1), "each once");
        drop((sender, shard, other));
        node.shutdown(Duration::from_secs(1)).await;
    }

    #[test]
    fn no_letter_fences_one_that_comes_later_however_many_there_are() {
        let of = |number: u64| producer_of(ShardId(1), number - 1);
        let (first, last, next) = (of(1), of(u64::from(u32::MAX)), of(1 << 32));
        assert_eq!((first.1, last.1, next.1), (Epoch(1), Epoch(u32::MAX), Epoch(0)));
        assert_eq!(first.0, last.0);
        assert_ne!(last.0, next.0, "an epoch of its own would be fenced, and the letter taken for arrived");
        assert_eq!(of((1 << 32) + 1), (next.0, Epoch(1)));
    }

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
