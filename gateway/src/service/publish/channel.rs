//! Publishing of a socket: pipelined, answered through one queue per socket.

use std::sync::Arc;

use tokio::sync::mpsc;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Epoch, PartitionId, ProducerKey, Seq, TopicPath};
use weir_protocol::limits::PRODUCER_WINDOW;
use weir_protocol::rpc::{Level, PublishItem};

use super::archiving::{Archiving, Before};
use super::plan::{Placing, ProducerAt, plan};
use super::publisher::{Publisher, level_of, now};
use super::request::Content;
use crate::service::ServiceError;
use crate::storage::{Confirm, LaneItem, Safety, Ticket, Topic};

/// What a socket opens.
#[derive(Debug, Clone)]
pub struct OpenChannel {
    /// Where to.
    pub topic: TopicPath,
    /// Producer id and epoch; `None`: numbers are the channel's own and nothing is deduplicated.
    pub producer: Option<(String, Epoch)>,
    /// Levels to be told; empty: the topic's default.
    pub confirm: Vec<Level>,
}

/// A producer's way into one topic.
#[derive(Debug, Clone)]
pub struct PublishChannel {
    publisher: Publisher,
    /// The topic it was opened for.
    pub topic: Arc<Topic>,
    producer: Option<ProducerAt>,
    keyless: Option<PartitionId>,
    levels: u32,
    /// Last number of the contiguous prefix that is known to be accepted.
    pub last_seq: Option<Seq>,
    /// Highest number that any partition knew of the producer.
    pub highest: Option<Seq>,
    before: Arc<Before>,
}

/// Records of a channel.
#[derive(Debug)]
pub struct ChannelPublish {
    /// What.
    pub content: Content,
    /// Number of the first record.
    pub seq: Seq,
    /// Number that its confirms carry; the same for all of its batches.
    pub(crate) ticket: u64,
}

impl Publisher {
    /// Opens a channel: finds (or creates) the topic and what it knows of the producer.
    ///
    /// # Errors
    /// As [`Publisher::publish`]; `stale_epoch` if the producer was fenced.
    pub async fn open(&self, open: OpenChannel) -> Result<PublishChannel, ServiceError> {
        let deadline = self.storage.deadline();
        // A new life of the topic has new producers: this must not come from memory.
        let topic = match self.topics.get(&open.topic).await {
            Err(failure) if failure.code() == ErrorCode::TopicNotFound => {
                let check = |topic: &Topic| self.levels(topic, &open.confirm).map(drop);
                self.topics.known_or_created(&open.topic, deadline, check).await?
            }
            topic => topic?,
        };
        let levels = self.levels(&topic, &open.confirm)?;
        let (mut last_seq, mut highest) = (None, None);
        if let Some((id, epoch)) = &open.producer {
            let known = self.last_seqs(&topic, id, *epoch, deadline).await?;
            highest = known.iter().max().copied();
            last_seq = contiguous(&known, topic.partitions());
        }
        let keyless = open.producer.as_ref().map(|(id, _)| self.keyless(topic.partitions(), Some(id)));
        let producer = open.producer.map(|(id, epoch)| ProducerAt {
            key: ProducerKey::of(topic.producers_of, &id),
            named: ProducerKey::of(topic.incarnation, &id),
            epoch,
            seq: Seq(0),
        });
        let before = Arc::new(Before::new(last_seq.is_some()));
        let publisher = self.clone();
        Ok(PublishChannel { publisher, topic, producer, keyless, levels, last_seq, highest, before })
    }

    /// The set of level bits that are to be told; none asked for: the topic's default.
    fn levels(&self, topic: &Topic, asked: &[Level]) -> Result<u32, ServiceError> {
        let asked = if asked.is_empty() { &[Level::Unset] } else { asked };
        let mut levels = 0;
        for level in asked {
            levels |= level_of(topic, Some(*level), self.storage.level_max())?.bit();
        }
        // Below memory nothing is confirmed, so there is nothing to be told.
        Ok(levels & !Level::None.bit())
    }

    /// The highest number on each partition that knows the producer in this epoch.
    async fn last_seqs(
        &self,
        topic: &Topic,
        id: &str,
        epoch: Epoch,
        deadline: tokio::time::Instant,
    ) -> Result<Vec<Seq>, ServiceError> {
        let found = self.producer_on(topic, id, deadline).await?;
        if let Some(newer) = found.iter().find(|at| at.epoch > epoch) {
            let detail = format!("the producer is at epoch {}", newer.epoch);
            let refusal = weir_protocol::rpc::Refusal {
                epoch: Some(newer.epoch.0),
                ..weir_protocol::rpc::Refusal::new(ErrorCode::StaleEpoch, detail)
            };
            return Err(refusal.into());
        }
        Ok(found.iter().filter(|at| at.epoch == epoch).map(|at| at.last_seq).collect())
    }
}

/// The last number of the prefix that is accepted for certain, given the highest number on each partition that knows
/// the producer. With several partitions that is a lower bound, at most a window below the highest number. Sending
/// again from there is harmless.
///
/// A producer never has more than a window of unconfirmed numbers, so all but the last window of what the
/// highest number promises is there; and on every partition everything up to its highest is.
fn contiguous(last_seqs: &[Seq], partitions: u32) -> Option<Seq> {
    let highest = last_seqs.iter().max()?;
    if partitions == 1 {
        return Some(*highest);
    }
    let by_window = highest.0.checked_sub(PRODUCER_WINDOW).map(Seq);
    let all_known = last_seqs.len() == partitions as usize;
    let by_partitions = last_seqs.iter().min().filter(|_| all_known).copied();
    by_window.max(by_partitions)
}

impl PublishChannel {
    /// The set of level bits that are told.
    #[must_use]
    pub fn levels(&self) -> u32 {
        self.levels
    }

    /// Queues records. Never waits; confirms go to `answers`, for each batch and each level. Returns the number of
    /// batches and where they went.
    ///
    /// # Errors
    /// The records were refused as a whole, without effect.
    pub(crate) fn publish(
        &self,
        publish: &ChannelPublish,
        answers: &mpsc::UnboundedSender<Confirm>,
    ) -> Result<Vec<ChannelPart>, ServiceError> {
        let storage = &self.publisher.storage;
        // Others may have learnt of a newer configuration of the same life.
        let topic = storage
            .cached(&self.topic.path)
            .filter(|topic| topic.incarnation == self.topic.incarnation)
            .unwrap_or_else(|| Arc::clone(&self.topic));
        let partitions = topic.partitions();
        let placing = Placing {
            partitions,
            keyless: self.keyless.unwrap_or_else(|| self.publisher.keyless(partitions, None)),
            is_fixed: false,
            producer: self.producer.map(|producer| ProducerAt { seq: publish.seq, ..producer }),
            atomic: false,
            now: now(),
        };
        let content_type = topic.config.content_type.as_deref();
        let parts = plan(&publish.content, content_type, placing, &self.publisher.config)?;
        let permits: Result<Vec<_>, _> =
            parts.iter().map(|part| storage.publish_permit(part.batch.bytes().len())).collect();
        let mut sent = Vec::with_capacity(parts.len());
        let deadline = storage.deadline();
        for ((part, permit), number) in parts.into_iter().zip(permits?).zip(0..) {
            let header = part.batch.header();
            let (levels, confirms) = self.confirms_of(&topic, part.partition, answers);
            let item = LaneItem {
                item: PublishItem {
                    incarnation: topic.incarnation.0,
                    config_version: topic.version.0,
                    partition: part.partition.0,
                    batch_bytes: u32::try_from(part.batch.bytes().len()).expect("a batch is below 4 GiB"),
                    expected_end: None,
                    idempotency: None,
                },
                topic: Some(Arc::clone(&topic)),
                batch: part.batch.bytes().clone(),
                levels,
                safety: if header.producer.is_none() { Safety::Once } else { Safety::Repeatable },
                producer: header.producer,
                deadline,
                ticket: Ticket::new(confirms, publish.ticket + number, permit),
            };
            let shard = topic.shard(part.partition).expect("planned for the topic's partitions");
            storage.lane(shard).push([item]);
            sent.push(ChannelPart { partition: part.partition, records: part.records });
        }
        Ok(sent)
    }
}

impl PublishChannel {
    /// The levels that a batch is sent with, and where its confirms go. Archived is none of them: it is asked
    /// for once the batch is committed, so that nothing waits behind it.
    fn confirms_of(
        &self,
        topic: &Arc<Topic>,
        partition: PartitionId,
        answers: &mpsc::UnboundedSender<Confirm>,
    ) -> (u32, mpsc::UnboundedSender<Confirm>) {
        if self.levels & Level::Archived.bit() == 0 {
            return (self.levels, answers.clone());
        }
        // One batch has at most as many confirms as there are levels.
        let (sender, confirms) = mpsc::unbounded_channel();
        let archiving = Archiving {
            archivist: self.publisher.archivist.clone(),
            topic: Arc::clone(topic),
            partition,
            before: Arc::clone(&self.before),
            answers: answers.clone(),
        };
        tokio::spawn(archiving.run(confirms));
        ((self.levels & !Level::Archived.bit()) | Level::Quorum.bit(), sender)
    }
}

/// One batch of a channel's publish. The n-th has the publish's ticket plus n.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct ChannelPart {
    pub(crate) partition: PartitionId,
    /// Places of its records in the publish.
    pub(crate) records: Vec<std::ops::Range<u32>>,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_accepted_prefix_is_never_overstated() {
        let seqs = |numbers: &[u64]| numbers.iter().copied().map(Seq).collect::<Vec<_>>();
        assert_eq!(contiguous(&[], 1), None);
        assert_eq!(contiguous(&seqs(&[117]), 1), Some(Seq(117)));
        assert_eq!(
            contiguous(&seqs(&[10, 40, 12]), 3),
            Some(Seq(10)),
            "the partition that is furthest behind"
        );
        assert_eq!(contiguous(&seqs(&[10, 40]), 3), None, "the third may be missing number 0");
        assert_eq!(contiguous(&seqs(&[10, 5_000]), 2), Some(Seq(5_000 - PRODUCER_WINDOW)));
    }
}
