//! Removing the oldest messages of a topic by hand.

use futures_util::future::join_all;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::{ConfigVersion, Incarnation, PartitionId, TopicPath};
use weir_protocol::rpc::{At, Method, PartitionRef, Refusal, TrimAnswer, TrimRequest};

use super::{ServiceError, Topics};
use crate::storage::{CallFor, Safety, Topic};

/// Which messages go.
#[derive(Debug, Clone, Copy)]
pub struct Trim {
    /// Only those of this partition.
    pub partition: Option<PartitionId>,
    /// The first that stays; an offset only of one partition.
    pub before: At,
    /// Only say what it would do.
    pub is_dry_run: bool,
}

impl Topics {
    /// Trims a topic: any, or only this life and version of it. What a trim did, or would do, to each
    /// partition. On return it is committed.
    ///
    /// # Errors
    /// `topic_not_found`, `partition_not_found`, `invalid_parameter` for an offset without its partition,
    /// `beyond_tail`, `topic_closed`, `version_mismatch`, `incarnation_gone`; with an unknown outcome some
    /// partitions may have been trimmed: trimming again is safe.
    pub async fn trim(
        &self,
        path: &TopicPath,
        expected: Option<(Incarnation, ConfigVersion)>,
        trim: Trim,
    ) -> Result<Vec<(PartitionId, TrimAnswer)>, ServiceError> {
        let topic = self.get(path).await?;
        check_expected(&topic, expected)?;
        let partitions = chosen(&topic, &trim)?;
        // Not twice: messages that come between two times would go with the second.
        let safety = if trim.is_dry_run { Safety::Repeatable } else { Safety::Once };
        let deadline = self.storage.deadline();
        let asked = partitions.map(|partition| {
            let shard = topic.shards[partition as usize];
            let call = CallFor { shard, method: Method::Trim, safety, deadline };
            let request = TrimRequest {
                partition: PartitionRef { incarnation: topic.incarnation.0, partition },
                before: trim.before.into(),
                is_dry_run: trim.is_dry_run,
            };
            async move {
                let answer = self.storage.ask::<_, TrimAnswer>(call, &request).await;
                let partition = PartitionId(partition);
                answer.map(|answer| (partition, answer)).map_err(|failure| failure.with_partition(partition))
            }
        });
        let (mut trimmed, mut failure) = (Vec::new(), None);
        for answer in join_all(asked).await {
            match answer {
                Ok(answer) => trimmed.push(answer),
                Err(error) => failure = failure.or(Some(error)),
            }
        }
        match failure {
            None => Ok(trimmed),
            // The whole is neither done nor undone.
            Some(failure) if !trimmed.is_empty() && !trim.is_dry_run => {
                Err(failure.with_outcome(Outcome::Unknown))
            }
            Some(failure) => Err(failure),
        }
    }
}

fn check_expected(topic: &Topic, expected: Option<(Incarnation, ConfigVersion)>) -> Result<(), ServiceError> {
    let Some((incarnation, version)) = expected else { return Ok(()) };
    if incarnation != topic.incarnation {
        let detail = "the topic was deleted and recreated";
        let refusal = Refusal::new(ErrorCode::IncarnationGone, detail);
        return Err(Refusal { incarnation: Some(topic.incarnation.0), ..refusal }.into());
    }
    if version != topic.version {
        let detail = format!("the configuration is at version {}", topic.version);
        let refusal = Refusal::new(ErrorCode::VersionMismatch, detail);
        return Err(Refusal { config_version: Some(topic.version.0), ..refusal }.into());
    }
    Ok(())
}

fn chosen(topic: &Topic, trim: &Trim) -> Result<std::ops::Range<u32>, ServiceError> {
    let count = topic.partitions();
    match trim.partition {
        Some(PartitionId(partition)) if partition < count => Ok(partition..partition + 1),
        Some(partition) => {
            let detail = format!("there is no partition {partition}; the topic has {count}");
            Err(ServiceError::new(ErrorCode::PartitionNotFound, detail).with_field("partition"))
        }
        None if matches!(trim.before, At::Offset(_)) && count > 1 => {
            let detail = format!(
                "before: an offset belongs to one partition, and the topic has {count}: name it in partition"
            );
            Err(ServiceError::new(ErrorCode::InvalidParameter, detail).with_field("before"))
        }
        None => Ok(0..count),
    }
}
