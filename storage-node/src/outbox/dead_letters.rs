//! The task of a leader that carries its shard's dead letters to their topics.
//!
//! Each letter is published with its number as the epoch of a producer that only this shard is: sent again after a crash
//! it is a duplicate, or, if later ones have arrived already, it is fenced. Either way it is there once.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use prost::Message as _;
use tokio::sync::watch;
use weir_journal::Class;
use weir_protocol::batch::{Batch, BatchBuilder, Compression, Headers, HeadersBuilder, Record, RecordParts};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Epoch, Incarnation, PartitionId, ProducerKey, Seq, ShardId, TopicPath};
use weir_protocol::rpc::{Refusal, TopicDescription};
use weir_protocol::slots::{partition_of, slot_of};

use crate::read;
use crate::replica::ShardHandle;
use crate::shard::command::{Buried, Change, Command};
use crate::shard::entry::{ENTRY_OVERHEAD_BYTES, Kind, SubBatch};
use crate::shard::state::{DeadLetter, Verdict};

/// Letters sent before the shard notes that they have arrived.
const LETTERS_AT_ONCE: usize = 64;
/// After a failure the next attempt waits this long.
const PAUSE: Duration = Duration::from_millis(500);

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
    pub async fn run(self, mut stop: watch::Receiver<bool>) {
        let shared = Arc::clone(&self.shard.shared);
        let mut is_failing = false;
        loop {
            if self.shard.journal.failure().is_some() {
                // Nothing can be committed here any more; the node says why.
                let _ = stop.wait_for(|stopping| *stopping).await;
                return;
            }
            // Registered before the state is read: a letter that comes meanwhile wakes it.
            let changed = shared.watch_outbox();
            let letters = self.shard.state.read().dead_letters().oldest(LETTERS_AT_ONCE);
            let sent = tokio::select! {
                _ = stop.wait_for(|stopping| *stopping) => return,
                sent = self.send(&letters) => sent,
            };
            let was_failing = std::mem::replace(&mut is_failing, sent.is_err());
            if let (Err(refusal), false) = (&sent, was_failing) {
                let (shard, why) = (self.shard.shard, &refusal.detail);
                tracing::warn!(%shard, why, "a dead letter does not reach its topic; it is tried again");
            }
            tokio::select! {
                _ = stop.wait_for(|stopping| *stopping) => return,
                () = tokio::time::sleep(PAUSE), if is_failing => {}
                () = changed, if !is_failing && letters.len() < LETTERS_AT_ONCE => {}
                () = std::future::ready(()), if !is_failing && letters.len() == LETTERS_AT_ONCE => {}
            }
        }
    }

    /// Sends letters in order and notes those that arrived, also if one does not.
    async fn send(&self, letters: &[DeadLetter]) -> Result<(), Refusal> {
        let mut arrived = None;
        let mut outcome = Ok(());
        for letter in letters {
            outcome = self.publish(letter).await;
            if outcome.is_err() {
                break;
            }
            arrived = Some(letter.seq + 1);
        }
        if let Some(upto) = arrived {
            let command = Command { change: Some(Change::Buried(Buried { upto })) };
            commit(&self.shard, SubBatch::command(command.encode_to_vec().into())).await?;
        }
        outcome
    }

    async fn publish(&self, letter: &DeadLetter) -> Result<(), Refusal> {
        let topic = self.topic(letter)?;
        let body = read::batch_of(&self.shard, &letter.batch).await?;
        let record = record_of(&body, letter)?;
        let from = format!("weir-dead-{}", self.shard.shard);
        let producer = ProducerKey::of(Incarnation(topic.incarnation), &from);
        let batch = letter_batch(&record, letter, producer)?;
        let partitions = topic.config.as_ref().map_or(1, |config| config.partitions.max(1));
        let partition = record.key.as_ref().map_or(PartitionId(0), |key| partition_of(key, partitions));
        let shard = topic.shards.get(partition.0 as usize).copied().map(ShardId);
        let target = shard.and_then(|shard| self.shards.get(&shard)).ok_or_else(not_here)?;
        let publish = SubBatch {
            incarnation: Incarnation(topic.incarnation),
            partition,
            kind: Kind::Publish,
            ..SubBatch::command(batch.bytes().clone())
        };
        match commit(target, publish).await? {
            Verdict::Refused(refusal) if refusal.error_code() == ErrorCode::StaleEpoch => Ok(()),
            Verdict::Refused(refusal) => Err(refusal),
            _ => Ok(()),
        }
    }

    /// The topic that it goes to, as its home shard knows it.
    fn topic(&self, letter: &DeadLetter) -> Result<TopicDescription, Refusal> {
        let path = TopicPath::try_from(&letter.topic)
            .map_err(|error| Refusal::new(ErrorCode::InvalidName, error.to_string()))?;
        let slot = u32::from(slot_of(&path).0);
        let meta = self.shards.get(&ShardId::META).ok_or_else(not_here)?;
        let slots = meta.state.read().slots().clone();
        let home = slots.runs.iter().find(|run| (run.start..run.end).contains(&slot));
        let home = home.and_then(|run| self.shards.get(&ShardId(run.shard))).ok_or_else(not_here)?;
        home.state.read().topics().describe(&letter.topic).cloned()
    }
}

// Other nodes are reached over the transport once there are any.
fn not_here() -> Refusal {
    Refusal::new(ErrorCode::NotLeader, "the shard of the dead-letter topic is not on this node")
}

fn record_of(batch: &Batch, letter: &DeadLetter) -> Result<Record, Refusal> {
    let corrupt = |error: &dyn std::fmt::Display| Refusal::new(ErrorCode::Corrupt, error.to_string());
    let place = usize::try_from(letter.offset.0 - letter.batch.base_offset.0).unwrap_or(usize::MAX);
    let record = batch.records().map_err(|error| corrupt(&error))?.nth(place);
    record.ok_or_else(|| corrupt(&"the record is not in its batch"))?.map_err(|error| corrupt(&error))
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

/// Commits one sub-batch in a shard and gives its verdict.
async fn commit(shard: &ShardHandle, sub: SubBatch) -> Result<Verdict, Refusal> {
    let bytes = (sub.encoded_bytes() + ENTRY_OVERHEAD_BYTES) as u64;
    let permit = shard.journal.try_admit(bytes, Class::Control);
    let permit = permit.map_err(|full| Refusal::new(ErrorCode::Busy, full.to_string()))?;
    let verdict = shard.change(vec![sub], permit).await?.pop();
    verdict.ok_or_else(|| Refusal::new(ErrorCode::Internal, "the change has no verdict"))
}
