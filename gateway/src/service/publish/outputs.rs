//! Messages that a settle publishes, as record batches.

use std::ops::Range;
use std::sync::Arc;

use tokio::time::Instant;
use weir_protocol::batch::Batch;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Incarnation, PartitionId, ShardId, TopicPath};
use weir_protocol::rpc::{ConfirmState, ConfirmStateRequest, Level, Method, OutputName};

use super::plan::{Placing, plan};
use super::publisher::{Publisher, ReceiptState, gone, now};
use super::request::{Content, NewRecord};
use crate::service::ServiceError;
use crate::service::token::{TokenReader, TokenWriter};
use crate::storage::{CallFor, Safety, Topic};

const VERSION: u8 = 2;
const PREFIX: &str = "rcpt_";

/// One record batch for one partition of a topic.
#[derive(Debug, Clone)]
pub(in crate::service) struct OutputPart {
    pub(in crate::service) shard: ShardId,
    pub(in crate::service) partition: PartitionId,
    pub(in crate::service) batch: Batch,
    /// Places of its records among those of the topic.
    pub(in crate::service) records: Vec<Range<u32>>,
}

/// Names an output that has not arrived yet. Any gateway resolves it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct OutputReceipt {
    /// The topic's life.
    pub incarnation: Incarnation,
    /// Partition that it goes to.
    pub partition: PartitionId,
    /// The shard that sends it, and its number there.
    pub name: OutputName,
}

impl Publisher {
    /// Messages for one topic as batches, in their order; nothing is sent.
    ///
    /// # Errors
    /// `topic_not_found` unless the namespace creates topics; `topic_closed`; what is wrong with a message.
    pub(in crate::service) async fn plan_outputs(
        &self,
        path: &TopicPath,
        records: Vec<NewRecord>,
        deadline: Instant,
    ) -> Result<(Arc<Topic>, Vec<OutputPart>), ServiceError> {
        let content = Content::Records(records);
        let planned = |topic: &Topic| {
            let partitions = topic.partitions();
            let keyless = self.keyless(partitions, None);
            let (is_fixed, producer, atomic) = (false, None, false);
            let placing = Placing { partitions, keyless, is_fixed, producer, atomic, now: now() };
            plan(&content, topic.config.content_type.as_deref(), placing, &self.config)
        };
        let check = |topic: &Topic| planned(topic).map(drop);
        let topic = self.topics.known_or_created(path, deadline, check).await?;
        if topic.config.closed {
            let detail = format!("the topic {} takes no more messages", path.topic);
            return Err(ServiceError::new(ErrorCode::TopicClosed, detail));
        }
        let parts = planned(&topic)?;
        let part = |part: super::plan::Part| OutputPart {
            shard: topic.shard(part.partition).expect("planned for the topic's partitions"),
            partition: part.partition,
            batch: part.batch,
            records: part.records,
        };
        let parts = parts.into_iter().map(part).collect();
        Ok((topic, parts))
    }

    /// What is known of topics turned out to be old.
    pub(in crate::service) fn forget_topic(&self, topic: &Topic) {
        self.storage.forget(&topic.path, (topic.incarnation, topic.version));
    }

    /// Resolves the receipt of an output; waits up to `wait` for it to arrive if `level` asks for more than nothing.
    ///
    /// # Errors
    /// `incarnation_gone` if the topic was recreated, or what the shard's leader says.
    pub async fn output_state(
        &self,
        path: &TopicPath,
        receipt: &OutputReceipt,
        level: Option<Level>,
        wait: std::time::Duration,
    ) -> Result<ReceiptState, ServiceError> {
        let deadline = self.storage.deadline() + wait;
        let known = self.topics.known(path, deadline).await?;
        let is_known = known.incarnation == receipt.incarnation;
        let topic = if is_known { known } else { self.topics.get(path).await? };
        let shard = topic.shard(receipt.partition);
        let Some(shard) = shard.filter(|_| topic.incarnation == receipt.incarnation) else {
            return Err(gone(&topic, receipt.incarnation));
        };
        let request = ConfirmStateRequest {
            incarnation: receipt.incarnation.0,
            partition: receipt.partition.0,
            level: level.unwrap_or(Level::Unset) as i32,
            wait_ms: u64::try_from(wait.as_millis()).unwrap_or(u64::MAX),
            output: Some(receipt.name),
            ..ConfirmStateRequest::default()
        };
        let call = CallFor { shard, method: Method::ConfirmState, safety: Safety::Repeatable, deadline };
        let call = (call, !wait.is_zero());
        let state: ConfirmState = self.storage.ask_waiting(call, &request).await?;
        Ok(ReceiptState { level: state.level(), lost: false, ts: None })
    }
}

impl OutputReceipt {
    /// The token: `rcpt_` and base64url.
    #[must_use]
    pub fn encode(&self) -> String {
        let mut writer = TokenWriter::new(VERSION);
        writer.number(self.incarnation.0).number(u64::from(self.partition.0));
        writer.number(u64::from(self.name.source)).number(self.name.number);
        format!("{PREFIX}{}", writer.finish())
    }

    /// Reads a token; `None` for what is no such receipt.
    #[must_use]
    pub fn decode(token: &str) -> Option<Self> {
        let mut reader = TokenReader::new(VERSION, token.strip_prefix(PREFIX)?)?;
        let receipt = Self {
            incarnation: Incarnation(reader.number()?),
            partition: PartitionId(reader.small()?),
            name: OutputName { source: reader.small()?, number: reader.number()? },
        };
        reader.end()?;
        Some(receipt)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::service::publish::Receipt;

    #[test]
    fn a_receipt_of_an_output_comes_back_and_is_none_of_a_record() {
        let receipt = OutputReceipt {
            incarnation: Incarnation(7 << 40 | 3),
            partition: PartitionId(11),
            name: OutputName { source: 3, number: 1 << 40 },
        };
        let token = receipt.encode();
        assert_eq!(OutputReceipt::decode(&token), Some(receipt));
        assert!(Receipt::decode(&token).is_err());
        for bad in ["", "rcpt_", &token[5..], &token[..token.len() - 1], "rcpt_AAAA"] {
            assert_eq!(OutputReceipt::decode(bad), None, "{bad}");
        }
    }
}
