//! Calls of handlers that speak to nodes in the protocol's own words.

use std::time::Duration;

use bytes::Bytes;
use prost::Message;
use tokio::sync::mpsc;
use weir_protocol::error::Outcome;
use weir_protocol::ids::{ProducerKey, ShardId, TopicPath};
use weir_protocol::rpc::{Method, PublishItem, PublishResult, Refusal, Stages};
use weir_transport::Answers;

use super::handle::Storage;
use super::lane::LaneItem;
use super::retry::{Safety, Verdict, judge};
use super::router::{CallFor, decode};
use super::ticket::Ticket;

/// What became of one publish.
pub(crate) type PublishOutcome = Result<(PublishResult, Stages), Refusal>;

impl Storage {
    /// The shard a topic is at home in.
    pub(crate) async fn home_of(&self, path: &TopicPath) -> Result<ShardId, Refusal> {
        self.home(path, self.deadline()).await.map_err(|failure| failure.refusal().clone())
    }

    /// Calls a method with one answer; `wait` is added to the deadline.
    pub(crate) async fn call<A: Message + Default>(
        &self,
        method: Method,
        shard: ShardId,
        message: &impl Message,
        wait: Duration,
    ) -> Result<A, Refusal> {
        let answer = self.call_raw(method, shard, message, wait).await?;
        decode(answer).map_err(|failure| failure.refusal().clone())
    }

    /// The same for answers that carry batches.
    pub(crate) async fn call_raw(
        &self,
        method: Method,
        shard: ShardId,
        message: &impl Message,
        wait: Duration,
    ) -> Result<Bytes, Refusal> {
        let call = CallFor { shard, method, safety: safety_of(method), deadline: self.deadline() + wait };
        let body = vec![Bytes::from(message.encode_to_vec())];
        self.send(call, body).await.map_err(|failure| failure.refusal().clone())
    }

    /// Opens a stream of answers.
    pub(crate) async fn open(
        &self,
        method: Method,
        shard: ShardId,
        message: &impl Message,
    ) -> Result<Answers, Refusal> {
        let body = vec![Bytes::from(message.encode_to_vec())];
        match self.stream(shard, method, body).await {
            Ok(answers) => Ok(answers),
            Err(error) => match judge(error, Safety::Once) {
                Verdict::Again(_, failure) | Verdict::Final(failure) => Err(failure.refusal().clone()),
            },
        }
    }

    /// Publishes one batch in its shard's lane and waits for the highest of `levels`.
    pub(crate) async fn publish(
        &self,
        shard: ShardId,
        item: PublishItem,
        batch: Bytes,
        levels: u32,
    ) -> PublishOutcome {
        let permit = self.publish_permit(batch.len()).map_err(|failure| failure.refusal().clone())?;
        let (sender, mut answers) = mpsc::unbounded_channel();
        let safety = if item.idempotency.is_some() { Safety::Repeatable } else { Safety::Once };
        self.lane(shard).push([LaneItem {
            topic: None,
            item,
            batch,
            levels,
            safety,
            producer: ProducerKey::NONE,
            deadline: self.deadline(),
            ticket: Ticket::new(sender, 0),
            permit,
        }]);
        loop {
            let Some(confirm) = answers.recv().await else {
                let lost = "the gateway is stopping";
                return Err(Refusal::new(weir_protocol::error::ErrorCode::OutcomeUnknown, lost)
                    .with_outcome(Outcome::Unknown));
            };
            if confirm.is_last {
                let placed = confirm.result.map_err(|failure| failure.refusal().clone())?;
                let result = PublishResult { placed: Some(placed), refused: None };
                return Ok((result, confirm.stages.unwrap_or_default()));
            }
        }
    }
}

/// Reads may be made twice; changes are made once.
fn safety_of(method: Method) -> Safety {
    match method {
        Method::ClusterMap
        | Method::ListNamespaces
        | Method::CreateTopic
        | Method::DescribeTopic
        | Method::ListTopics
        | Method::Read
        | Method::Subscribe
        | Method::PartitionStats
        | Method::ProducerState
        | Method::ConfirmState => Safety::Repeatable,
        Method::PutNamespace
        | Method::DeleteNamespace
        | Method::UpdateTopic
        | Method::DeleteTopic
        | Method::Publish => Safety::Once,
    }
}
