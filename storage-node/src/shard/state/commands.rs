//! Commands: what changes topics, namespaces and slots, and what one shard tells another.

use std::sync::Arc;

use bytes::Bytes;
use prost::Message as _;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{ConfigVersion, Incarnation, PartitionId, ShardId};
use weir_protocol::rpc::{Refusal, TopicConfig, TopicDescription, TopicName};

use super::super::command::{Change, Command, CreateTopic, DeleteTopic, TellTopic, UpdateTopic};
use super::apply::{Applied, At, ShardState, StateError, Verdict};
use super::dedupe::PartitionKey;
use super::outbox::{Heard, News, OUTBOX_ROWS_MAX};
use super::partition::{Marks, Partition};
use super::subscribing::part_key;
use crate::subscription::PartEvent;

/// When to ask again while the outbox is full.
const RETRY_AFTER_MS: u64 = 1_000;

impl ShardState {
    pub(super) fn command(
        &mut self,
        at: At,
        body: &Bytes,
        applied: &mut Applied,
    ) -> Result<Verdict, StateError> {
        let unknown = StateError::Command { index: at.index };
        let Ok(Command { change: Some(change) }) = Command::decode(body.clone()) else { return Err(unknown) };
        let verdict = match change {
            Change::CreateTopic(create) => self.create_topic(&create, at, applied),
            Change::UpdateTopic(update) => self.update_topic(&update, applied),
            Change::DeleteTopic(delete) => self.delete_topic(&delete, applied),
            Change::PutNamespace(put) => self.topics.put_namespace(&put).map(Verdict::Namespace),
            Change::DeleteNamespace(delete) => self.topics.delete_namespace(&delete).map(|()| Verdict::Done),
            Change::TellTopic(told) => self.told(told, applied),
            Change::Taken(taken) => {
                Arc::make_mut(&mut self.outbox).taken(ShardId(taken.target), taken.upto);
                applied.is_outbox_changed = true;
                self.take_back(&taken.unforked, applied);
                Ok(Verdict::Done)
            }
            Change::PutSlots(put) => Arc::make_mut(&mut self.slots).put(&put).map(|()| Verdict::Done),
            Change::CreateSubscription(create) => self.create_subscription(&create, at, applied),
            Change::UpdateSubscription(update) => self.update_subscription(&update, applied),
            Change::DeleteSubscription(delete) => self.delete_subscription(&delete, applied),
            Change::TellSubscription(told) => self.told_of_subscription(told, applied),
            Change::ChangePart(change) => {
                let event = PartEvent::decode(&change.event).map_err(|_| unknown)?;
                let key = part_key(&change.part);
                let admitted = self.admits_outputs(key, &change, &event);
                let changed =
                    admitted.and_then(|()| self.change_part(key, &event, change.keeps_past, applied));
                applied.follow(change.outputs, changed.as_ref().err());
                changed
            }
            Change::OutputsTaken(taken) => {
                self.outputs_taken(ShardId(taken.target), taken.upto);
                applied.is_outbox_changed = true;
                Ok(Verdict::Done)
            }
            Change::Buried(buried) => {
                self.buried(&buried, applied);
                Ok(Verdict::Done)
            }
            Change::Seal(seal) => self.seal(&seal, applied),
            Change::Rewrite(rewrite) => self.rewrite(&rewrite),
            Change::Forget(forget) => {
                Arc::make_mut(&mut self.packs).forget(&forget.packs);
                Ok(Verdict::Done)
            }
        };
        Ok(verdict.unwrap_or_else(Verdict::Refused))
    }

    fn create_topic(
        &mut self,
        create: &CreateTopic,
        at: At,
        applied: &mut Applied,
    ) -> Result<Verdict, Refusal> {
        if create.config.partitions > 1 && create.shards.len() > 1 {
            self.has_outbox_room()?;
        }
        let made = self.topics.create(create, at.ts)?;
        if let Some(topic) = made.topic.as_ref().filter(|_| made.created) {
            self.open_partitions(topic);
            self.tell_others(topic, false, applied);
        }
        Ok(Verdict::TopicCreated(made))
    }

    fn update_topic(&mut self, update: &UpdateTopic, applied: &mut Applied) -> Result<Verdict, Refusal> {
        self.has_room_to_tell_of(&update.name)?;
        let topic = self.topics.update(update)?;
        if topic.version != update.expected_version {
            applied.touched.extend(self.configure_partitions(&topic, applied.version));
            self.tell_others(&topic, false, applied);
        }
        Ok(Verdict::Topic(topic))
    }

    fn delete_topic(&mut self, delete: &DeleteTopic, applied: &mut Applied) -> Result<Verdict, Refusal> {
        self.has_room_to_tell_of(&delete.name)?;
        let topic = self.topics.delete(delete)?;
        applied.touched.extend(self.close_partitions(&topic));
        self.tell_others(&topic, true, applied);
        Ok(Verdict::Topic(topic))
    }

    fn tell_others(&mut self, topic: &TopicDescription, is_deleted: bool, applied: &mut Applied) {
        if self.is_spread(topic) {
            let news = News::Topic(Arc::new(topic.clone()));
            Arc::make_mut(&mut self.outbox).tell(self.topics.shard(), &news, is_deleted);
            applied.is_outbox_changed = true;
        }
    }

    /// Other shards hold partitions of it.
    fn is_spread(&self, topic: &TopicDescription) -> bool {
        topic.shards.iter().any(|shard| *shard != self.topics.shard().0)
    }

    /// A topic that lies in this shard alone is changed however full the outbox is.
    fn has_room_to_tell_of(&self, name: &TopicName) -> Result<(), Refusal> {
        let is_spread = self.topics.describe(name).is_ok_and(|topic| self.is_spread(&topic));
        if is_spread { self.has_outbox_room() } else { Ok(()) }
    }

    pub(super) fn has_outbox_room(&self) -> Result<(), Refusal> {
        if self.outbox.count() < OUTBOX_ROWS_MAX {
            return Ok(());
        }
        let detail = format!("{OUTBOX_ROWS_MAX} changes wait for other shards");
        let refusal = Refusal::new(ErrorCode::Busy, detail);
        Err(Refusal { retry_after_ms: Some(RETRY_AFTER_MS), ..refusal })
    }

    /// The home of a topic says what it is; this shard holds partitions of it.
    fn told(&mut self, told: TellTopic, applied: &mut Applied) -> Result<Verdict, Refusal> {
        let life = Incarnation(told.topic.incarnation);
        if !self.is_news(told.source, told.seq, Some(life))? {
            return Ok(Verdict::Done);
        }
        let topic = Arc::new(told.topic);
        if told.is_deleted {
            if self.guests.remove(&life).is_some() {
                applied.touched.extend(self.close_partitions(&topic));
            }
        } else if self.guests.insert(life, Arc::clone(&topic)).is_none() {
            self.open_partitions(&topic);
            // Whoever was sent on too early looks again.
            applied.touched.extend(self.keys_of(&topic));
        } else {
            applied.touched.extend(self.configure_partitions(&topic, applied.version));
        }
        Ok(Verdict::Done)
    }

    /// Takes the number of what another shard tells; false if it was heard before.
    pub(super) fn is_news(
        &mut self,
        source: u32,
        seq: u64,
        topic: Option<Incarnation>,
    ) -> Result<bool, Refusal> {
        match Arc::make_mut(&mut self.inbox).hear(ShardId(source), seq, topic) {
            Heard::Now => Ok(true),
            Heard::Before => Ok(false),
            Heard::TooEarly(next) => {
                let detail = format!("number {seq} came before {next}");
                Err(Refusal::new(ErrorCode::ProducerGap, detail))
            }
        }
    }

    fn open_partitions(&mut self, topic: &TopicDescription) {
        let config = self.topics.held_config(topic.config.as_ref().unwrap_or(&TopicConfig::default()));
        for key in self.keys_of(topic) {
            let partition = Partition::new(Arc::clone(&config), ConfigVersion(topic.version));
            self.partitions.insert(key, Arc::new(partition));
        }
        self.match_topic(topic);
    }

    fn configure_partitions(&mut self, topic: &TopicDescription, version: u16) -> Vec<PartitionKey> {
        let config = self.topics.held_config(topic.config.as_ref().unwrap_or(&TopicConfig::default()));
        let keys = self.keys_of(topic);
        for key in &keys {
            self.change(*key, |partition| {
                partition.config = Arc::clone(&config);
                partition.version = ConfigVersion(topic.version);
                Vec::new()
            });
            self.trim_settled(*key, version, &mut Vec::new()); // all are touched
        }
        keys
    }

    fn close_partitions(&mut self, topic: &TopicDescription) -> Vec<PartitionKey> {
        let keys = self.keys_of(topic);
        self.unmatch_topic(topic);
        for key in &keys {
            let removed = self.partitions.remove(key).expect("a topic has its partitions");
            self.floors.moved(*key, removed.marks(), Marks::default());
            self.release_packs(&removed.all_released());
            self.parts.close_partition(*key);
        }
        self.dedupe.topic_deleted();
        keys
    }

    /// The topic's partitions that lie in this shard.
    pub(super) fn keys_of(&self, topic: &TopicDescription) -> Vec<PartitionKey> {
        let here = self.topics.shard().0;
        let partitions = topic.config.as_ref().map_or(0, |config| config.partitions);
        (0..partitions)
            .zip(&topic.shards)
            .filter(|(_, shard)| **shard == here)
            .map(|(partition, _)| (Incarnation(topic.incarnation), PartitionId(partition)))
            .collect()
    }

    /// Why a partition is not here: its topic was deleted, or this shard was not told of it yet.
    pub(super) fn missing(&self, (life, partition): PartitionKey) -> Refusal {
        if life.home() != self.topics.shard() && self.inbox.may_come(life) {
            let detail = format!("the shard has not heard of incarnation {life} yet");
            return Refusal::new(ErrorCode::ConfigBehind, detail);
        }
        let detail = format!("partition {partition} of incarnation {life} is not here");
        Refusal::new(ErrorCode::IncarnationGone, detail)
    }
}
