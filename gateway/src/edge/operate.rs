//! What operators ask of a queue: lists by state, why a message is where it is, and dead letters once more.

use axum::response::Response;
use http::StatusCode;
use weir_protocol::error::ErrorCode;
use weir_protocol::filter::Filter;
use weir_protocol::limits::REDRIVE_RECORDS_MAX;
use weir_protocol::rpc::Standing;

use super::answer::json;
use super::call::Call;
use super::from_json::from_json;
use super::queues::{list, listed};
use super::subscriptions::{check_if_match, path};
use crate::api::{self, Explained, Problem, Redriven, SETTLE_BYTES_MAX};
use crate::service::ServiceError;
use crate::service::subscriptions::{MessageId, Redrive, RedriveFrom};

const REDRIVE_DEFAULT: u32 = 100;
const STOP_AFTER_DEFAULT: u32 = 10;
/// Most messages a second that may be asked for.
const RATE_MAX: u32 = 10_000;

/// The messages in one state.
pub(super) async fn state(call: Call) -> Result<Response, Problem> {
    let standing = match call.route.query("of").unwrap_or("ready") {
        "ready" => Standing::Ready,
        "leased" => Standing::Leased,
        "delayed" => Standing::Delayed,
        "blocked" => Standing::Blocked,
        "settling" => Standing::Settling,
        "filtered" => Standing::Skipped,
        "dead" => Standing::Dead,
        _ => {
            let why = "ready, leased, delayed, blocked, settling, filtered or dead";
            return Err(Problem::invalid_parameter("of", why));
        }
    };
    list(call, standing).await
}

pub(super) async fn dead(call: Call) -> Result<Response, Problem> {
    list(call, Standing::Dead).await
}

pub(super) async fn explain(call: Call) -> Result<Response, Problem> {
    let id = message_id("id", call.route.query("id").unwrap_or_default())?;
    let found = call.edge.services.subscriptions.explain(&path(&call)?, &id).await;
    let found = found.map_err(|failure| naming_id(failure, "id"))?;
    let body = Explained {
        message: listed(id, found.record),
        reasons: found.hindrances.into_iter().filter_map(api::Hindrance::of).collect(),
        ahead: found.ahead,
        pulled_ms_ago: found.pulled_ms_ago,
        start: found.start,
        end: found.end,
    };
    json(StatusCode::OK, &body)
}

pub(super) async fn redrive(mut call: Call) -> Result<Response, Problem> {
    let path = path(&call)?;
    let asked: api::Redrive = from_json(&call.body(SETTLE_BYTES_MAX).await?)?;
    let is_dry_run = call.route.query("dry_run") == Some("true");
    let redrive = Redrive { is_dry_run, ..checked(asked)? };
    check_if_match(&call, &path).await?;
    let done = call.edge.services.subscriptions.redrive(&path, &redrive).await;
    let done = done.map_err(|failure| naming_id(failure, "ids"))?;
    let body = Redriven {
        dry_run: is_dry_run,
        redriven: done.redriven.iter().map(ToString::to_string).collect(),
        dead_again: done.dead_again,
        stopped: done.is_stopped,
        next: done.next,
    };
    json(StatusCode::OK, &body)
}

fn checked(asked: api::Redrive) -> Result<Redrive, Problem> {
    let limit = asked.max.unwrap_or(REDRIVE_DEFAULT);
    if limit == 0 || limit as usize > REDRIVE_RECORDS_MAX || asked.ids.len() > REDRIVE_RECORDS_MAX {
        let why = format!("1 to {REDRIVE_RECORDS_MAX} messages are redriven at once");
        return Err(Problem::invalid_parameter(if asked.ids.is_empty() { "max" } else { "ids" }, why));
    }
    if asked.rate.is_some_and(|rate| rate == 0 || rate > RATE_MAX) {
        return Err(Problem::invalid_parameter("rate", format!("1 to {RATE_MAX} a second are allowed")));
    }
    if let Some(Err(error)) = asked.filter.as_deref().map(Filter::parse) {
        return Err(Problem::invalid_parameter("filter", error.to_string()));
    }
    let ids = asked.ids.iter().map(|text| message_id("ids", text)).collect::<Result<Vec<_>, _>>()?;
    let from = match asked.cursor {
        cursor if !ids.is_empty() => RedriveFrom::Ids(ids, cursor),
        Some(cursor) => RedriveFrom::Cursor(cursor),
        None => RedriveFrom::Oldest,
    };
    let stop_after = asked.stop_after.unwrap_or(STOP_AFTER_DEFAULT);
    Ok(Redrive { from, limit, filter: asked.filter, rate: asked.rate, stop_after, is_dry_run: false })
}

/// A message's `id`.
fn message_id(field: &str, text: &str) -> Result<MessageId, Problem> {
    MessageId::parse(text).ok_or_else(|| {
        let why = format!(
            "{text:?} is no id: a topic and a colon if there are several, a partition, a colon, an offset"
        );
        Problem::invalid_parameter(field, why)
    })
}

/// An id without its topic is wrong only where there are several: the subscription says so.
fn naming_id(failure: ServiceError, field: &'static str) -> ServiceError {
    if failure.code() == ErrorCode::InvalidParameter { failure.with_field(field) } else { failure }
}

#[cfg(test)]
mod tests {
    use serde_json::json;
    use weir_protocol::ids::{Name, Offset, PartitionId};

    use super::*;

    #[test]
    fn a_redrive_has_defaults_and_bounds() {
        let read = |value| checked(serde_json::from_value(value).unwrap());
        let plain = read(json!({})).unwrap();
        assert_eq!((plain.limit, plain.stop_after, plain.rate), (100, 10, None));
        assert!(matches!(read(json!({"ids": ["1:7"]})).unwrap().from, RedriveFrom::Ids(ids, None)
            if ids == [MessageId { topic: None, partition: PartitionId(1), offset: Offset(7) }]));
        assert!(matches!(read(json!({"ids": ["orders:1:7"]})).unwrap().from, RedriveFrom::Ids(ids, None)
            if ids[0].topic.as_ref().map(Name::as_str) == Some("orders")));
        for (value, field) in [
            (json!({"max": 0}), "max"),
            (json!({"max": 10_001}), "max"),
            (json!({"rate": 0}), "rate"),
            (json!({"ids": ["7"]}), "ids"),
            (json!({"filter": "key"}), "filter"),
        ] {
            assert_eq!(read(value).unwrap_err().field.as_deref(), Some(field));
        }
    }
}
