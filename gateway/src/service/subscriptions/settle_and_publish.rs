//! Settling leases and publishing what came of them, in one step: the leases and the outputs, or nothing.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use bytes::Bytes;
use prost::Message as _;
use tokio::time::Instant;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{Offset, PartitionId, Term, TimestampMs, TopicPath};
use weir_protocol::limits::{SETTLE_OUTPUT_BYTES_MAX, SETTLE_OUTPUTS_MAX};
use weir_protocol::rpc::{
    Level, Method, Output, OutputResult, SettleAndPublishAnswer, SettleAndPublishRequest, encode_packet,
};

use super::Subscriptions;
use super::cache::Known;
use super::described::{Subscription, SubscriptionPath};
use super::settle::{SettleLease, is_known, part_of, wire};
use crate::service::ServiceError;
use crate::service::publish::{NewRecord, OutputPart, OutputReceipt, Publisher, Receipt};
use crate::storage::{Safety, Topic};

/// Attempts where topics of outputs are recreated meanwhile.
const ATTEMPTS: u32 = 3;

/// Leases to settle and messages to publish.
#[derive(Debug, Clone)]
pub struct SettleAndPublish {
    /// What becomes of the leases, all of one partition; at least one, none extended.
    pub leases: Vec<SettleLease>,
    /// What is published, and where; at least one.
    pub outputs: Vec<(TopicPath, NewRecord)>,
    /// How long the answer waits for outputs that have not arrived.
    pub wait: Duration,
}

/// What has become of a published message.
#[derive(Debug, Clone)]
pub struct PublishedOutput {
    /// The topic it goes to.
    pub topic: Arc<Topic>,
    /// Its partition.
    pub partition: PartitionId,
    /// Where it is, once it has arrived.
    pub placed: Option<(Offset, TimestampMs)>,
    /// What tells of it later.
    pub receipt: String,
    /// Why it is nowhere: its topic was deleted while it was on its way.
    pub failure: Option<ServiceError>,
}

/// Messages of one topic.
struct Planned {
    topic: Arc<Topic>,
    parts: Vec<OutputPart>,
    /// Places of the messages in the request.
    places: Vec<usize>,
}

impl Subscriptions {
    /// Settles leases and publishes, all or nothing; one result per message, in their order. On return the leases are
    /// settled and the messages cannot be lost; those that have arrived say where.
    ///
    /// # Errors
    /// Without effect: `lease_lost` unless every lease can be settled, `not_supported` for leases of several
    /// partitions, `topic_not_found`, `topic_closed`, `too_large`, `busy`, `journal_full`. `outcome_unknown`:
    /// asked again, `lease_lost` says that the messages are settled, by this request or by somebody else's.
    pub async fn settle_and_publish(
        &self,
        path: &SubscriptionPath,
        publisher: &Publisher,
        request: &SettleAndPublish,
    ) -> Result<Vec<PublishedOutput>, ServiceError> {
        if request.outputs.len() > SETTLE_OUTPUTS_MAX {
            let detail = format!("{} messages; {SETTLE_OUTPUTS_MAX} are allowed", request.outputs.len());
            return Err(too_large(detail, SETTLE_OUTPUTS_MAX));
        }
        let deadline = self.storage.deadline() + request.wait;
        let first = request.leases.first().map(|item| item.lease);
        let first = first.ok_or_else(|| ServiceError::new(ErrorCode::Malformed, "nothing is settled"))?;
        let is_one = |item: &SettleLease| {
            (item.lease.subscription, item.lease.incarnation, item.lease.partition)
                == (first.subscription, first.incarnation, first.partition)
        };
        if !request.leases.iter().all(is_one) {
            let detail = "leases of several partitions are settled apart: pull with the scope partition";
            return Err(ServiceError::new(ErrorCode::NotSupported, detail).with_field("ack"));
        }
        self.forget_unless(path, |known| is_known(&first, known));
        let mut attempts = ATTEMPTS;
        loop {
            attempts -= 1;
            let planned = plan_all(publisher, &request.outputs, deadline).await?;
            let settle = |known: Arc<Known>| {
                let planned = &planned;
                async move { self.settle_with(&known.subscription, request, planned, deadline).await }
            };
            match self.with_known(path, deadline, settle).await {
                Err(failure) if is_old_topic(&failure) && attempts > 0 => {
                    planned.iter().for_each(|planned| publisher.forget_topic(&planned.topic));
                }
                Ok(answer) => return published(&planned, &answer, request.outputs.len()),
                Err(failure) => return Err(failure.with_partition(first.partition)),
            }
        }
    }

    async fn settle_with(
        &self,
        subscription: &Subscription,
        request: &SettleAndPublish,
        planned: &[Planned],
        deadline: Instant,
    ) -> Result<SettleAndPublishAnswer, ServiceError> {
        let first = request.leases[0].lease;
        let place = part_of(&first, subscription).ok_or_else(|| {
            let detail = "the leases are of another subscription, or of an earlier life of it or its topic";
            ServiceError::new(ErrorCode::LeaseLost, detail)
        })?;
        let parts = || planned.iter().flat_map(|of| of.parts.iter().map(move |part| (&of.topic, part)));
        let output = |(topic, part): (&Arc<Topic>, &OutputPart)| Output {
            shard: part.shard.0,
            incarnation: topic.incarnation.0,
            partition: part.partition.0,
            batch_bytes: u32::try_from(part.batch.bytes().len()).expect("a batch is below 4 GiB"),
        };
        let message = SettleAndPublishRequest {
            part: subscription.part(place),
            items: request.leases.iter().map(|item| wire(item, subscription)).collect(),
            outputs: parts().map(output).collect(),
            wait_ms: u64::try_from(request.wait.as_millis()).unwrap_or(u64::MAX),
        };
        let batches: Vec<Bytes> = parts().map(|(_, part)| part.batch.bytes().clone()).collect();
        let bytes: usize = batches.iter().map(Bytes::len).sum();
        let said: usize = message.items.iter().map(|item| item.reason.len()).sum();
        if bytes + said > SETTLE_OUTPUT_BYTES_MAX {
            let detail =
                format!("{bytes} bytes of record batches and {said} of reasons are too much at once");
            return Err(too_large(detail, SETTLE_OUTPUT_BYTES_MAX));
        }
        // Refused means no effect.
        let _permit = self.storage.publish_permit(bytes)?;
        let call = Self::call(subscription, place, (Method::SettleAndPublish, Safety::Once), deadline);
        let answer = self.storage.send(call, encode_packet(&message, batches)).await?;
        let bad = |what: &str| ServiceError::bad_answer(what, Outcome::Unknown);
        let answer = SettleAndPublishAnswer::decode(answer).map_err(|error| bad(&error.to_string()))?;
        if answer.outputs.len() != message.outputs.len() {
            return Err(bad("not one result per output"));
        }
        Ok(answer)
    }
}

/// Refused because a topic of an output is not what this gateway takes it for.
fn is_old_topic(failure: &ServiceError) -> bool {
    failure.effect() == Outcome::None && failure.refusal().error_code() == ErrorCode::ConfigStale
}

fn too_large(detail: String, limit: usize) -> ServiceError {
    ServiceError::new(ErrorCode::TooLarge, detail).with_field("publish").with_limit(limit as u64)
}

/// The messages as batches, topic by topic.
async fn plan_all(
    publisher: &Publisher,
    outputs: &[(TopicPath, NewRecord)],
    deadline: Instant,
) -> Result<Vec<Planned>, ServiceError> {
    let mut by_topic: BTreeMap<&TopicPath, Vec<usize>> = BTreeMap::new();
    for (place, (topic, _)) in outputs.iter().enumerate() {
        by_topic.entry(topic).or_default().push(place);
    }
    let mut all = Vec::with_capacity(by_topic.len());
    for (path, places) in by_topic {
        let records = places.iter().map(|place| outputs[*place].1.clone()).collect();
        let planned = publisher.plan_outputs(path, records, deadline).await;
        let (topic, parts) = planned.map_err(|failure| failure.with_field("publish"))?;
        all.push(Planned { topic, parts, places });
    }
    Ok(all)
}

/// One result per message.
fn published(
    planned: &[Planned],
    answer: &SettleAndPublishAnswer,
    count: usize,
) -> Result<Vec<PublishedOutput>, ServiceError> {
    let mut results = vec![None; count];
    let parts = planned.iter().flat_map(|of| of.parts.iter().map(move |part| (of, part)));
    for ((of, part), result) in parts.zip(&answer.outputs) {
        for (behind, record) in (0u64..).zip(part.records.iter().cloned().flatten()) {
            results[of.places[record as usize]] = Some(output(&of.topic, part, result, behind));
        }
    }
    let all: Option<Vec<_>> = results.into_iter().collect();
    all.ok_or_else(|| ServiceError::bad_answer("a message without a batch", Outcome::Applied))
}

/// The record that comes `behind` others in its batch.
fn output(topic: &Arc<Topic>, part: &OutputPart, result: &OutputResult, behind: u64) -> PublishedOutput {
    let partition = part.partition;
    let receipt = match result.placed {
        Some(placed) => Receipt {
            incarnation: topic.incarnation,
            partition,
            offset: Offset(placed.base_offset + behind),
            term: Term(placed.term),
            level: Level::Quorum,
        }
        .encode(),
        None => OutputReceipt { incarnation: topic.incarnation, partition, name: result.name }.encode(),
    };
    PublishedOutput {
        topic: Arc::clone(topic),
        partition,
        placed: result.placed.map(|placed| (Offset(placed.base_offset + behind), TimestampMs(placed.ts_ms))),
        receipt,
        failure: result.refused.clone().map(|refusal| ServiceError::from(refusal).with_partition(partition)),
    }
}
