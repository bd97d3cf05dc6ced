//! Purges and trims over HTTP.

use axum::response::Response;
use http::StatusCode;
use weir_protocol::ids::PartitionId;
use weir_protocol::rpc::{At, snapshot_name};
use weir_protocol::start::parse_until;

use super::answer::json;
use super::call::Call;
use super::conditions::{for_any, if_match};
use super::position;
use super::subscriptions::{check_if_match, path};
use super::topics::expected;
use crate::api::{self, Problem, PurgeWhat, Purged, PurgedPart, Trimmed, TrimmedPartition};
use crate::service::Trim;
use crate::service::subscriptions::Purge;

pub(super) async fn purge(mut call: Call) -> Result<Response, Problem> {
    let path = path(&call)?;
    let asked: api::Purge = call.json().await?;
    let is_dry_run = call.route.query("dry_run") == Some("true");
    let keep_as = if is_dry_run { 0 } else { rand::random::<u64>().max(1) };
    let is_dead_only = asked.what == Some(PurgeWhat::Dead);
    let purge = Purge { is_dead_only, is_dry_run, keep_as };
    check_if_match(&call, &path).await?;
    let purged = call.edge.services.subscriptions.purge(&path, purge).await;
    let purged = purged.map_err(|failure| Problem::from(failure).with_undo(keep_as))?;
    let parts: Vec<_> = purged
        .into_iter()
        .map(|(topic, partition, answer)| PurgedPart {
            topic: topic.map(|topic| topic.to_string()),
            partition: partition.0,
            floor: answer.floor,
            purged: answer.settled + answer.dead,
            dead: answer.dead,
        })
        .collect();
    let body = Purged {
        dry_run: is_dry_run,
        purged: parts.iter().map(|part| part.purged).sum(),
        dead: parts.iter().map(|part| part.dead).sum(),
        undo: (!is_dry_run).then(|| snapshot_name(keep_as)),
        parts,
    };
    json(StatusCode::OK, &body)
}

pub(super) async fn trim(mut call: Call) -> Result<Response, Problem> {
    let (path, named) = (call.topic()?, if_match(&call)?);
    let asked: api::Trim = call.json().await?;
    let is_dry_run = call.route.query("dry_run") == Some("true");
    let trim =
        Trim { partition: asked.partition.map(PartitionId), before: before(&asked.before)?, is_dry_run };
    let (path, topics) = (&path, &call.edge.services.topics);
    let ask = |version: Option<_>| async move { Ok(topics.trim(path, version.map(expected), trim).await?) };
    let trimmed = for_any(named, ask).await?;
    let partitions: Vec<_> = trimmed
        .into_iter()
        .map(|(partition, answer)| TrimmedPartition {
            partition: partition.0,
            start: answer.start,
            messages: answer.records,
            bytes: answer.bytes,
        })
        .collect();
    let body = Trimmed {
        dry_run: is_dry_run,
        messages: partitions.iter().map(|partition| partition.messages).sum(),
        bytes: partitions.iter().map(|partition| partition.bytes).sum(),
        partitions,
    };
    json(StatusCode::OK, &body)
}

fn before(value: &serde_json::Value) -> Result<At, Problem> {
    if value == "end" {
        return Ok(At::Latest(true));
    }
    position::text(value).and_then(|text| parse_until(&text).ok()).ok_or_else(|| {
        Problem::invalid_parameter("before", "an offset, ts: and RFC 3339 or milliseconds, or end")
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn what_stays_begins_at_an_offset_a_time_or_the_end() {
        for (value, meant) in [
            (json!("7"), At::Offset(7)),
            (json!(7), At::Offset(7)),
            (json!("ts:1970-01-01T00:00:01Z"), At::TimestampMs(1_000)),
            (json!("end"), At::Latest(true)),
        ] {
            assert_eq!(before(&value).unwrap(), meant);
        }
        for bad in [
            json!(null),
            json!(""),
            json!("latest"),
            json!("earliest"),
            json!(-1),
            json!(1.5),
            json!("tail:3"),
        ] {
            assert_eq!(before(&bad).unwrap_err().field.as_deref(), Some("before"), "{bad}");
        }
    }
}
