//! Commands of subscriptions.

use std::sync::Arc;

use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, Offset, PartitionId, ShardId, TimestampMs};
use weir_protocol::limits::SUBSCRIPTION_PATTERNS_MAX;
use weir_protocol::rpc::{At as From, ForkOrigin, PartRef, Position, Refusal, SubscriptionDescription};

use super::super::command::{CreateSubscription, DeleteSubscription, TellSubscription, UpdateSubscription};
use super::apply::{Applied, At, ShardState, Verdict};
use super::dead_letters::DeadLetter;
use super::dedupe::PartitionKey;
use super::outbox::News;
use super::partition::Partition;
use super::parts::{HeldPart, PartKey};
use super::subscriptions::described;
use crate::subscription::{Dead, PAST_WEIGHT_MAX, Part, PartEvent};

impl ShardState {
    pub(super) fn create_subscription(
        &mut self,
        create: &CreateSubscription,
        at: At,
        applied: &mut Applied,
    ) -> Result<Verdict, Refusal> {
        let home = self.topics.shard().0;
        let more = create.more.iter().flat_map(|topic| &topic.shards);
        if create.shards.iter().chain(more).any(|shard| *shard != home) {
            self.has_outbox_room()?;
        }
        self.check_fork(create)?;
        let (topics, patterns) = (&mut self.topics, &self.patterns);
        let has_room = |subscription: &SubscriptionDescription| {
            if subscription.config.prefix().is_none()
                || patterns.at_home(subscription) < SUBSCRIPTION_PATTERNS_MAX
            {
                return Ok(());
            }
            let detail = format!(
                "{SUBSCRIPTION_PATTERNS_MAX} subscriptions of the namespace have patterns; delete some, or name topics"
            );
            Err(Refusal::new(ErrorCode::NotSupported, detail))
        };
        let made = self.subscriptions.create(create, at.ts, || topics.next_life(), has_room)?;
        if made.created {
            self.open_parts(&made.subscription, applied);
            self.tell_of_subscription(&made.subscription, false, applied);
        }
        Ok(Verdict::SubscriptionCreated(made))
    }

    pub(super) fn update_subscription(
        &mut self,
        update: &UpdateSubscription,
        applied: &mut Applied,
    ) -> Result<Verdict, Refusal> {
        self.has_outbox_room()?;
        let subscription = self.subscriptions.update(update)?;
        if subscription.version != update.expected_version {
            // What a pattern left out has another chance.
            self.open_parts(&subscription, applied);
            self.configure_parts(&subscription, applied);
            self.tell_of_subscription(&subscription, false, applied);
        }
        Ok(Verdict::Subscription(subscription))
    }

    pub(super) fn delete_subscription(
        &mut self,
        delete: &DeleteSubscription,
        applied: &mut Applied,
    ) -> Result<Verdict, Refusal> {
        self.has_outbox_room()?;
        let subscription = self.subscriptions.delete(delete)?;
        self.close_everywhere(&subscription, applied);
        Ok(Verdict::Subscription(subscription))
    }

    /// It was deleted: its parts here are gone at once, and the others when their shards hear of it.
    pub(super) fn close_everywhere(&mut self, subscription: &SubscriptionDescription, applied: &mut Applied) {
        self.close_parts(subscription, applied);
        self.tell_of_subscription(subscription, true, applied);
    }

    fn tell_of_subscription(
        &mut self,
        subscription: &SubscriptionDescription,
        is_deleted: bool,
        applied: &mut Applied,
    ) {
        let home = self.topics.shard();
        let news = News::Subscription(Arc::new(subscription.clone()));
        if news.shards().any(|shard| shard != home.0) {
            Arc::make_mut(&mut self.outbox).tell(home, &news, is_deleted);
            applied.is_outbox_changed = true;
        }
    }

    /// The home of a subscription says what it is; this shard holds partitions of its topics, or may.
    pub(super) fn told_of_subscription(
        &mut self,
        told: TellSubscription,
        applied: &mut Applied,
    ) -> Result<Verdict, Refusal> {
        let subscription = &told.subscription;
        let is_news = self.is_news(told.source, told.seq, None)?;
        if told.is_deleted {
            if is_news {
                self.close_parts(subscription, applied);
            }
            return Ok(Verdict::Done);
        }
        // Said again when it is told again: the answer before may have been lost.
        if !self.can_begin(subscription, is_news) {
            return Ok(Verdict::Unforked(Incarnation(subscription.id)));
        }
        if is_news {
            self.open_parts(subscription, applied);
            self.configure_parts(subscription, applied);
        }
        Ok(Verdict::Done)
    }

    /// Refuses to hear of a subscription from `source` while news of its topics may still be on its way here:
    /// a partition that is not there gets no part, and when it comes nobody opens one. What the source itself
    /// says of topics comes before what it says of their subscriptions, in one lane. What may be heard once
    /// always may be, so it is asked before there is an entry, and entries mean what they meant.
    ///
    /// # Errors
    /// `config_behind`.
    pub fn may_hear(&self, subscription: &SubscriptionDescription, source: ShardId) -> Result<(), Refusal> {
        let partitions = self.partitions_of(subscription).into_iter();
        let mut missing = partitions.filter(|(life, _)| life.home() != source).filter_map(|key| {
            let refusal = self.partition(key).err()?;
            (refusal.error_code() == ErrorCode::ConfigBehind).then_some(refusal)
        });
        missing.next().map_or(Ok(()), Err)
    }

    /// The same of one that is to be made here.
    ///
    /// # Errors
    /// `config_behind`.
    pub fn may_create(&self, create: &CreateSubscription) -> Result<(), Refusal> {
        self.may_hear(&described(create), self.topics.shard())
    }

    /// Opens the parts that are not there yet. A partition whose topic is gone gets none.
    fn open_parts(&mut self, subscription: &SubscriptionDescription, applied: &mut Applied) {
        if subscription.config.prefix().is_some() {
            return self.pattern_told(subscription, applied);
        }
        for key in self.part_keys(subscription) {
            self.open_part(key, subscription, Begin::of(subscription));
        }
    }

    /// Opens a part; false if it is there, or its partition is not.
    pub(super) fn open_part(
        &mut self,
        key: PartKey,
        subscription: &SubscriptionDescription,
        begin: Begin<'_>,
    ) -> bool {
        let Some(partition) = self.partitions.get(&key.1) else { return false };
        let part = match begin {
            Begin::At(position) => Some(Part::new(start(partition, position))),
            Begin::As(origin) => self.forked(key.1, origin),
        };
        let Some(part) = part else { return false };
        let held = HeldPart {
            name: Arc::new(subscription.name.clone()),
            config: Arc::new(subscription.config.clone()),
            version: subscription.version,
            opened: self.newest(),
            part,
        };
        self.parts.open(key, held)
    }

    /// Who waits for records of them looks again: a pause may be over.
    fn configure_parts(&mut self, subscription: &SubscriptionDescription, applied: &mut Applied) {
        let config = Arc::new(subscription.config.clone());
        for key in self.part_keys(subscription) {
            self.parts.change(&key, |held| {
                held.config = Arc::clone(&config);
                held.version = subscription.version;
            });
            applied.touched.push(key.1);
        }
    }

    /// Who waits for records of them looks again, and learns that they are gone.
    fn close_parts(&mut self, subscription: &SubscriptionDescription, applied: &mut Applied) {
        for key in self.part_keys(subscription) {
            self.parts.close(key);
            applied.touched.push(key.1);
            self.trim_settled(key.1, applied.version, &mut applied.touched);
        }
        self.pattern_gone(subscription);
    }

    /// The subscription's parts that lie in this shard.
    fn part_keys(&self, subscription: &SubscriptionDescription) -> Vec<PartKey> {
        let life = Incarnation(subscription.id);
        self.partitions_of(subscription).into_iter().map(|key| (life, key)).collect()
    }

    /// The partitions in this shard that it consumes.
    pub(super) fn partitions_of(&self, subscription: &SubscriptionDescription) -> Vec<PartitionKey> {
        if subscription.config.prefix().is_some() {
            return self.matching(subscription);
        }
        let here = self.topics.shard().0;
        let of_topic = |(topic, shards): (u64, &[u32])| {
            let here = (0..).zip(shards).filter(|(_, shard)| **shard == here);
            let key = |(partition, _)| (Incarnation(topic), PartitionId(partition));
            here.map(key).collect::<Vec<_>>()
        };
        subscription.consumed().flat_map(of_topic).collect()
    }

    /// Records below the partition's start are gone for everybody.
    pub(super) fn trim_parts(&mut self, key: PartitionKey) {
        let Some(start) = self.partitions.get(&key).map(|partition| partition.start) else { return };
        for subscription in self.parts.of(key) {
            // Thousands may have settled all of it: they are not touched.
            let part = (subscription, key);
            if self.parts.get(&part).is_some_and(|held| held.part.has_below(start)) {
                self.parts.change(&part, |held| held.part.start_moved(start));
            }
        }
    }

    pub(super) fn change_part(
        &mut self,
        key: PartKey,
        event: &PartEvent,
        keeps_past: bool,
        applied: &mut Applied,
    ) -> Result<Verdict, Refusal> {
        let partition = self.partitions.get(&key.1).ok_or_else(|| self.missing(key.1))?;
        let partition = Arc::clone(partition);
        if !event.dead.is_empty() {
            self.has_letter_room(applied.version, key, event.dead.len())?;
        }
        let source = self.topic_name(key.1.0).unwrap_or_default().to_owned();
        let (ts, room) = (self.last_ts, PAST_WEIGHT_MAX.saturating_sub(self.parts.past_weight()));
        let letters = self.parts.change(&key, |held| {
            let bounds = partition.start..partition.end;
            let done = match keeps_past {
                true => held.part.apply_at(ts, event, bounds, room),
                false => held.part.apply(event, bounds),
            };
            let given_up = done.dead;
            // In the event's order, so that thousands are told apart in one pass.
            let mut given_up = given_up.into_iter().peekable();
            let dead = event.dead.iter().filter(|dead| given_up.next_if_eq(&dead.offset).is_some());
            let letters = letters(key, held, (&source, &partition), dead);
            held.part.dead_queued(letters.len() as u64);
            letters
        });
        let letters = letters.ok_or_else(|| {
            Refusal::new(ErrorCode::SubscriptionNotFound, "the subscription has no part here")
        })?;
        applied.is_outbox_changed |= !letters.is_empty();
        for letter in letters {
            letter.pack.into_iter().for_each(|no| Arc::make_mut(&mut self.packs).refer(no, 0));
            Arc::make_mut(&mut self.dead_letters).push(letter);
        }
        self.trim_settled(key.1, applied.version, &mut applied.touched);
        Ok(Verdict::Done)
    }
}

/// The letters of records that were given up, if there is somewhere to send them.
fn letters<'a>(
    key: PartKey,
    held: &HeldPart,
    (source, partition): (&str, &Partition),
    given_up: impl Iterator<Item = &'a Dead>,
) -> Vec<DeadLetter> {
    let name = &held.name;
    let Some(topic) = held.letters_to() else { return Vec::new() };
    let letter = |dead: &Dead| {
        Some(DeadLetter {
            seq: 0, // given when it is added
            topic: topic.clone(),
            source_topic: source.to_owned(),
            subscription: key.0,
            name: Arc::clone(name),
            from: key.1,
            offset: dead.offset,
            // One that retention has removed has no bytes to send.
            batch: partition.batch_at(dead.offset)?,
            pack: partition.pack_of(dead.offset),
            attempts: dead.attempts,
            reason: dead.reason.clone(),
        })
    };
    given_up.filter_map(letter).collect()
}

/// What a new part begins as.
#[derive(Clone, Copy)]
pub(super) enum Begin<'a> {
    /// Everything before is settled.
    At(Position),
    /// As that of another subscription.
    As(&'a ForkOrigin),
}

impl<'a> Begin<'a> {
    /// What the parts of a new subscription begin as.
    pub(super) fn of(subscription: &'a SubscriptionDescription) -> Self {
        subscription.fork.as_ref().map_or(Self::At(subscription.config.start), Self::As)
    }
}

/// The part that a call means.
#[must_use]
pub fn part_key(part: &PartRef) -> PartKey {
    (Incarnation(part.subscription), (Incarnation(part.incarnation), PartitionId(part.partition)))
}

/// Where a new part begins.
fn start(partition: &Partition, position: Position) -> Offset {
    let (start, end) = (partition.start, partition.end);
    match position.at.unwrap_or(From::Earliest(true)) {
        From::Earliest(_) => start,
        From::Latest(_) => end,
        From::Offset(offset) => Offset(offset).clamp(start, end),
        From::TimestampMs(ts) => partition.offset_at(TimestampMs(ts)),
        From::Tail(n) => Offset(end.0.saturating_sub(n)).max(start),
    }
}
