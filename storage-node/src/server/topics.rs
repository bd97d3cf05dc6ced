//! Topics, subscriptions, namespaces and what is known of partitions.

use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use weir_journal::Class;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Incarnation, PartitionId, ProducerKey, TimestampMs};
use weir_protocol::limits::{PARTITIONS_MAX, SUBSCRIPTION_PARTS_MAX, SUBSCRIPTION_TOPICS_MAX};
use weir_protocol::rpc::{
    CreateSubscriptionRequest, CreateTopicRequest, DeleteNamespaceRequest, DeleteSubscriptionRequest,
    DeleteTopicRequest, DescribeTopicRequest, ListNamespacesRequest, ListTopicsRequest, Method,
    NamespaceList, PartitionRef, PartitionStats, PartitionStatsList, PartitionStatsRequest, ProducerState,
    ProducerStateRequest, PutNamespaceRequest, Refusal, TopicConfig, TopicDescription, TopicList,
    UpdateSubscriptionRequest, UpdateTopicRequest,
};

use super::decode::decode;
use super::publish::fits_entry;
use super::room::Room;
use super::whereabouts::Whereabouts;
use crate::clock;
use crate::replica::ShardHandle;
use crate::shard::command::{
    Change, Command, CreateSubscription, CreateTopic, DeleteNamespace, DeleteSubscription, DeleteTopic,
    PutNamespace, UpdateSubscription, UpdateTopic,
};
use crate::shard::entry::{ENTRY_OVERHEAD_BYTES, SubBatch};
use crate::shard::state::{Partition, ShardState, Verdict};

/// How long the answer to a change waits for the other shards of its topic.
const TOLD_TIME_MAX: Duration = Duration::from_secs(5);

/// Proposes a change of topics, subscriptions or namespaces and answers with what it became, once every shard
/// that holds partitions of the topic knows.
pub(super) async fn change(shard: ShardHandle, room: Room, change: Change) -> Result<Bytes, Refusal> {
    if let Change::CreateSubscription(create) = &change {
        shard.state.read().may_create(create)?;
    }
    let is_fork = matches!(&change, Change::CreateSubscription(create) if create.fork.is_some());
    let is_update = matches!(change, Change::UpdateTopic(_) | Change::UpdateSubscription(_));
    let is_unsubscribed = matches!(change, Change::DeleteSubscription(_));
    let makes_room = match &change {
        Change::DeleteSubscription(_) | Change::DeleteTopic(_) | Change::DeleteNamespace(_) => true,
        Change::UpdateTopic(update) => keeps_less(&shard, update),
        _ => false,
    };
    let class = if makes_room { Class::Relief } else { Class::Control };
    let command = Bytes::from(Command { change: Some(change) }.encode_to_vec());
    let sub = SubBatch::command(command);
    fits_entry(std::iter::once(&sub))?;
    let bytes = (sub.encoded_bytes() + ENTRY_OVERHEAD_BYTES) as u64;
    let permit = shard.journal.try_admit(bytes, class).map_err(|full| room.refusal(full))?;
    let verdicts = shard.change(vec![sub], permit).await?;
    let verdict = verdicts.into_iter().next();
    let life = match &verdict {
        Some(Verdict::TopicCreated(made)) => made.topic.as_ref().map(|topic| topic.incarnation),
        Some(Verdict::Topic(topic)) => Some(topic.incarnation),
        Some(Verdict::SubscriptionCreated(made)) => Some(made.subscription.id),
        Some(Verdict::Subscription(subscription)) => Some(subscription.id),
        _ => None,
    };
    if let Some(life) = life {
        if is_unsubscribed {
            shard.shared.rosters().forget(Incarnation(life));
        }
        let told = shard.told_everywhere(Incarnation(life), TOLD_TIME_MAX).await;
        // A shard that has not heard of a fork may still refuse it.
        told.map_err(|refusal| if is_fork { refusal.with_outcome(Outcome::Unknown) } else { refusal })?;
        if is_fork && shard.state.read().subscriptions().life(Incarnation(life)).is_none() {
            let detail =
                "at: not every partition keeps what the subscription was then; nothing of the fork is left";
            return Err(Refusal::new(ErrorCode::SnapshotGone, detail));
        }
    }
    match verdict {
        Some(Verdict::Refused(refusal)) => Err(refusal),
        Some(Verdict::TopicCreated(made)) => Ok(made.encode_to_vec().into()),
        Some(Verdict::Topic(topic)) if is_update => Ok(topic.encode_to_vec().into()),
        Some(Verdict::Namespace(put)) => Ok(put.encode_to_vec().into()),
        Some(Verdict::SubscriptionCreated(made)) => Ok(made.encode_to_vec().into()),
        Some(Verdict::Subscription(subscription)) if is_update => Ok(subscription.encode_to_vec().into()),
        Some(Verdict::Done | Verdict::Topic(_) | Verdict::Subscription(_)) => Ok(Bytes::new()),
        Some(Verdict::Placed(_) | Verdict::Sent(_) | Verdict::Unforked(_)) | None => {
            Err(Refusal::new(ErrorCode::Internal, "the change has no verdict"))
        }
    }
}

/// Whether a topic is to keep less of its messages than before, and none for longer: there is as much room for that as
/// for trimming it.
fn keeps_less(shard: &ShardHandle, update: &UpdateTopic) -> bool {
    let Ok(topic) = shard.state.read().topics().describe(&update.name) else { return false };
    let (before, after) = (topic.config.unwrap_or_default(), &update.config);
    let limits = |config: &TopicConfig| {
        let limits = [config.retention_age_ms, config.retention_bytes, config.retention_records];
        let settled = u64::from(!config.retention_until_settled);
        limits.map(|limit| limit.map_or(u128::MAX, u128::from)).into_iter().chain([u128::from(settled)])
    };
    limits(after).ne(limits(&before))
        && limits(after).zip(limits(&before)).all(|(after, before)| after <= before)
}

/// The command that a request asks for; `shards` are those that topics are placed over.
pub(super) fn command(
    method: Method,
    body: Bytes,
    shards: impl FnOnce() -> Vec<u32>,
) -> Result<Change, Refusal> {
    let missing = || Refusal::new(ErrorCode::Malformed, "a required field is missing");
    Ok(match method {
        Method::CreateTopic => {
            let request: CreateTopicRequest = decode(body)?;
            let config = checked(request.config.ok_or_else(missing)?)?;
            let name = request.name.ok_or_else(missing)?;
            let accept_existing = request.accept_existing;
            Change::CreateTopic(CreateTopic { name, config, accept_existing, shards: shards() })
        }
        Method::UpdateTopic => {
            let request: UpdateTopicRequest = decode(body)?;
            Change::UpdateTopic(UpdateTopic {
                name: request.name.ok_or_else(missing)?,
                config: checked(request.config.ok_or_else(missing)?)?,
                incarnation: request.incarnation,
                expected_version: request.expected_version,
            })
        }
        Method::DeleteTopic => {
            let request: DeleteTopicRequest = decode(body)?;
            let name = request.name.ok_or_else(missing)?;
            let (incarnation, expected_version) = (request.incarnation, request.expected_version);
            Change::DeleteTopic(DeleteTopic { name, incarnation, expected_version })
        }
        Method::PutNamespace => {
            let request: PutNamespaceRequest = decode(body)?;
            let namespace = request.namespace.ok_or_else(missing)?;
            Change::PutNamespace(PutNamespace { namespace, expected_version: request.expected_version })
        }
        Method::DeleteNamespace => {
            let request: DeleteNamespaceRequest = decode(body)?;
            let DeleteNamespaceRequest { tenant, name, expected_version } = request;
            Change::DeleteNamespace(DeleteNamespace { tenant, name, expected_version })
        }
        Method::CreateSubscription => {
            let request: CreateSubscriptionRequest = decode(body)?;
            Change::CreateSubscription(subscription(request, shards)?)
        }
        Method::UpdateSubscription => {
            let request: UpdateSubscriptionRequest = decode(body)?;
            let UpdateSubscriptionRequest { name, config, id, expected_version } = request;
            Change::UpdateSubscription(UpdateSubscription { name, config, id, expected_version })
        }
        Method::DeleteSubscription => {
            let request: DeleteSubscriptionRequest = decode(body)?;
            let DeleteSubscriptionRequest { name, expected_version, id } = request;
            Change::DeleteSubscription(DeleteSubscription { name, expected_version, id })
        }
        other => return Err(Refusal::new(ErrorCode::Internal, format!("{other:?} changes nothing"))),
    })
}

/// What makes a subscription; one with a pattern is told to every shard that may have a topic.
fn subscription(
    request: CreateSubscriptionRequest,
    shards: impl FnOnce() -> Vec<u32>,
) -> Result<CreateSubscription, Refusal> {
    let CreateSubscriptionRequest { name, config, topic_incarnation, shards: of_topic, more, fork } = request;
    let invalid = |detail: String| Err(Refusal::new(ErrorCode::InvalidConfig, detail));
    if config.prefix().is_some() {
        if !(config.more_topics.is_empty() && more.is_empty()) {
            return invalid("a pattern stands alone".to_owned());
        }
        // Where its source has parts: a shard that came later knows nothing of that one.
        let shards = if fork.is_some() { of_topic } else { shards() };
        return Ok(CreateSubscription { name, config, topic_incarnation: 0, shards, more, fork });
    }
    if config.more_topics.len() != more.len() || more.len() >= SUBSCRIPTION_TOPICS_MAX {
        return invalid(format!("{} topics; 1 to {SUBSCRIPTION_TOPICS_MAX} are allowed", more.len() + 1));
    }
    let partitions = of_topic.len() + more.iter().map(|topic| topic.shards.len()).sum::<usize>();
    if of_topic.is_empty() || partitions > SUBSCRIPTION_PARTS_MAX {
        return invalid(format!("{partitions} partitions; 1 to {SUBSCRIPTION_PARTS_MAX} are allowed"));
    }
    Ok(CreateSubscription { name, config, topic_incarnation, shards: of_topic, more, fork })
}

fn checked(config: TopicConfig) -> Result<TopicConfig, Refusal> {
    if (1..=PARTITIONS_MAX).contains(&config.partitions) {
        return Ok(config);
    }
    let detail = format!("{} partitions; 1 to {PARTITIONS_MAX} are allowed", config.partitions);
    Err(Refusal::new(ErrorCode::InvalidConfig, detail))
}

pub(super) fn describe(shard: &ShardHandle, body: Bytes) -> Result<TopicDescription, Refusal> {
    let request: DescribeTopicRequest = decode(body)?;
    let name = request.name.ok_or_else(|| Refusal::new(ErrorCode::Malformed, "no name"))?;
    shard.state.read().topics().describe(&name)
}

pub(super) fn list(shard: &ShardHandle, body: Bytes) -> Result<TopicList, Refusal> {
    let request: ListTopicsRequest = decode(body)?;
    Ok(shard.state.read().topics().list(&request))
}

pub(super) fn list_namespaces(shard: &ShardHandle, body: Bytes) -> Result<NamespaceList, Refusal> {
    let request: ListNamespacesRequest = decode(body)?;
    Ok(shard.state.read().topics().list_namespaces(&request))
}

pub(super) fn partition_stats(shard: &ShardHandle, body: Bytes) -> Result<PartitionStatsList, Refusal> {
    let request: PartitionStatsRequest = decode(body)?;
    let key = |at: &PartitionRef| (Incarnation(at.incarnation), PartitionId(at.partition));
    // Shared and let go of: counting bytes keeps apply waiting no longer than it takes to find the partitions.
    let (found, packs) = {
        let state = shard.state.read();
        let found: Vec<_> = request.partitions.iter().map(|at| state.shared_partition(key(at))).collect();
        (found, state.shared_packs())
    };
    let storage = request.with_storage.then(|| Whereabouts::new(shard, packs)).flatten();
    let stats = |(at, found): (&PartitionRef, Result<Arc<Partition>, Refusal>)| match found {
        Err(refusal) => PartitionStats { refused: Some(refusal), ..PartitionStats::default() },
        Ok(partition) => {
            let rate = shard.shared.rate(key(at));
            PartitionStats {
                refused: None,
                start: partition.start.0,
                committed_end: partition.end.0,
                bytes: partition.bytes,
                publish_records_per_second: rate.published_records,
                publish_bytes_per_second: rate.published_bytes,
                deliver_records_per_second: rate.delivered_records,
                storage: storage.as_ref().map(|storage| storage.of(key(at), &partition)),
                damaged: storage
                    .as_ref()
                    .map_or_else(Vec::new, |storage| storage.damaged(key(at), &partition)),
            }
        }
    };
    Ok(PartitionStatsList { partitions: request.partitions.iter().zip(found).map(stats).collect() })
}

pub(super) fn producer_state(shard: &ShardHandle, body: Bytes) -> Result<ProducerState, Refusal> {
    let request: ProducerStateRequest = decode(body)?;
    let state = shard.state.read();
    // The time that its next batch would have.
    producer_at(&state, &request, clock::now().max(state.last_ts()))
}

fn producer_at(
    state: &ShardState,
    request: &ProducerStateRequest,
    now: TimestampMs,
) -> Result<ProducerState, Refusal> {
    let at = (Incarnation(request.incarnation), PartitionId(request.partition));
    state.partition(at)?;
    let producer = state.dedupe().producer(at, ProducerKey(request.producer.into()), now);
    let producer =
        producer.ok_or_else(|| Refusal::new(ErrorCode::ProducerNotFound, "the producer is not known"))?;
    Ok(ProducerState {
        epoch: producer.epoch.0,
        last_seq: producer.last_seq.0,
        last_offset: producer.last_offset.0,
    })
}

#[cfg(test)]
mod tests {
    use weir_protocol::batch::{BatchBuilder, Compression, Headers, RecordParts};
    use weir_protocol::ids::{Epoch, LogIndex, Seq, ShardId};
    use weir_protocol::limits::PRODUCER_IDLE_MS;
    use weir_protocol::rpc::TopicName;

    use super::*;
    use crate::shard::entry::{EntryBuilder, Kind};

    #[test]
    fn a_producer_that_was_idle_too_long_is_not_known() {
        let mut state = ShardState::new(ShardId(1));
        let mut apply = |index, sub| {
            let mut entry = EntryBuilder::new(TimestampMs(1_000), 0);
            entry.push(&sub);
            state.apply(LogIndex(index), 1, &entry.build()).unwrap().verdicts.remove(0)
        };
        let name = TopicName { tenant: "t".into(), namespace: "n".into(), topic: "a".into() };
        let config = TopicConfig { partitions: 1, ..TopicConfig::default() };
        let create =
            Change::CreateTopic(CreateTopic { name, config, accept_existing: false, shards: Vec::new() });
        let create = Command { change: Some(create) }.encode_to_vec();
        let Verdict::TopicCreated(made) = apply(0, SubBatch::command(create.into())) else { panic!() };
        let mut batch = BatchBuilder::new(ProducerKey(7), Epoch(2), Seq(0));
        batch.push(RecordParts { key: None, headers: &Headers::default(), value: b"v" }).unwrap();
        let incarnation = made.topic.unwrap().incarnation;
        let publish = SubBatch {
            incarnation: Incarnation(incarnation),
            kind: Kind::Publish,
            ..SubBatch::command(batch.build(Compression::None).unwrap().bytes().clone())
        };
        assert!(matches!(apply(1, publish), Verdict::Placed(_)));
        let request = ProducerStateRequest { incarnation, partition: 0, producer: 7u128.into() };
        let epoch = |now| producer_at(&state, &request, TimestampMs(now)).map(|producer| producer.epoch);
        assert_eq!(epoch(1_000 + PRODUCER_IDLE_MS - 1), Ok(2));
        let code = epoch(1_000 + PRODUCER_IDLE_MS).map_err(|refusal| refusal.error_code());
        assert_eq!(code, Err(ErrorCode::ProducerNotFound), "its next batch starts anew");
    }
}
