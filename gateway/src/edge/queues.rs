//! Subscriptions over HTTP, as they are consumed.

use std::time::Duration;
use std::vec;

use axum::body::Body;
use axum::response::Response;
use http::header::CONTENT_TYPE;
use http::{HeaderValue, StatusCode};
use tokio::time::Instant;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Name, Offset};
use weir_protocol::limits::{
    CLIENT_ID_BYTES_MAX, DELAY_MS_MAX, LEASE_MS_MAX, LEASE_MS_MIN, PULL_RECORDS_MAX, SETTLE_ITEMS_MAX,
    SETTLE_REASON_BYTES_MAX, WAIT_MS_MAX,
};
use weir_protocol::rpc::{At, LeaseInfo, SettleAction, Standing, snapshot_name, snapshot_named};
use weir_protocol::start::{Start, parse_from};

use super::answer::json;
use super::body::too_large;
use super::call::Call;
use super::confirm::{confirm_deadline, idempotency_key};
use super::forks::moment;
use super::from_json::from_json;
use super::outputs;
use super::pieces::{Around, Items, PART_BYTES, PIECE_BYTES, Pieces, Put};
use super::position;
use super::read::partition;
use super::record::{self, Rest};
use super::subscriptions::{check_if_match, path};
use super::topics::page_limit;
use crate::answers::Held;
use crate::api::{
    self, LeasePage, LeasedRecord, Problem, PullScope, READ_BYTES_MAX, SETTLE_BYTES_MAX,
    SETTLE_PUBLISH_BYTES_MAX, SeekedPart, SettleOutcome, SettledLease, Takeover,
};
use crate::service::subscriptions::{
    Delivery, Lease, LeaseListing, ListLeases, MessageId, Moment, Pull, Pulled, Seek, SettleLease, Settled,
};

const MAX_DEFAULT: u64 = 32;
const BYTES_DEFAULT: u64 = 1 << 20;

pub(super) async fn pull(mut call: Call) -> Result<Response, Problem> {
    let path = path(&call)?;
    let asked: api::Pull = call.json().await?;
    let pull = checked(asked, idempotency_key(&call)?)?;
    let Pulled { deliveries, room } =
        call.edge.services.subscriptions.pull(&path, &pull, &call.client).await?;
    let counts = &call.edge.queue_counts;
    counts.pulls.inc();
    counts.leased.inc_by(deliveries.len() as u64);
    pulled(deliveries, room)
}

/// The answer that is held in `room`.
fn pulled(deliveries: Vec<Delivery>, room: Held) -> Result<Response, Problem> {
    let size: usize = deliveries.iter().map(|delivery| delivery.record.size).sum();
    let around = Around { begin: "{\"messages\":[", between: ",", behind: "", end: "]}".to_owned() };
    let held = room.bytes();
    let items = Deliveries { left: deliveries.into_iter(), rest: None, held, now: Instant::now() };
    let pieces = Pieces::new(items, around);
    let body = if size <= PIECE_BYTES { Body::from(pieces.whole()?) } else { pieces.body_anyway(room) };
    let mut response = Response::new(body);
    response.headers_mut().insert(CONTENT_TYPE, HeaderValue::from_static("application/json"));
    Ok(response)
}

/// Leased messages that are left to be written.
struct Deliveries {
    left: vec::IntoIter<Delivery>,
    rest: Option<Rest>,
    /// Bytes of their batches. One of them may keep all others.
    held: u64,
    now: Instant,
}

impl Items for Deliveries {
    fn put(&mut self, out: &mut Vec<u8>) -> Result<Put, Problem> {
        if let Some(rest) = &mut self.rest {
            if rest.put(out) {
                return Ok(Put::Part);
            }
            self.rest = None;
            return Ok(Put::Item);
        }
        let Some(delivery) = self.left.next() else { return Ok(Put::End) };
        if delivery.record.value.len() > PART_BYTES {
            let record = record::without_payload(&delivery.record, delivery.lease.partition);
            let shown = shown(&delivery, record, self.now);
            self.rest = Some(record::put_before_payload(out, &shown, &delivery.record));
            return Ok(Put::Part);
        }
        let record = record::shown(&delivery.record, delivery.lease.partition);
        let shown = shown(&delivery, record, self.now);
        serde_json::to_writer(out, &shown)
            .map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
        Ok(Put::Item)
    }

    fn held_bytes(&self) -> u64 {
        self.held
    }
}

fn checked(asked: api::Pull, key: Option<String>) -> Result<Pull, Problem> {
    let max = within("max", asked.max.unwrap_or(MAX_DEFAULT), 1, PULL_RECORDS_MAX.into())?;
    let lease_ms = asked.lease_ms.map(lease_time("lease_ms")).transpose()?;
    let holder = asked.holder.unwrap_or_default();
    if holder.len() > CLIENT_ID_BYTES_MAX {
        return Err(Problem::invalid_parameter("holder", format!("more than {CLIENT_ID_BYTES_MAX} bytes")));
    }
    Ok(Pull {
        max: u32::try_from(max).expect("within a u32"),
        max_bytes: within("max_bytes", asked.max_bytes.unwrap_or(BYTES_DEFAULT), 1, READ_BYTES_MAX)?,
        wait: Duration::from_millis(within("wait_ms", asked.wait_ms.unwrap_or(0), 0, WAIT_MS_MAX)?),
        lease_ms: lease_ms.map(|ms| u32::try_from(ms).expect("within a u32")),
        key,
        holder,
        is_of_one_partition: asked.scope == Some(PullScope::Partition),
    })
}

fn within(field: &str, value: u64, min: u64, max: u64) -> Result<u64, Problem> {
    if (min..=max).contains(&value) {
        return Ok(value);
    }
    Err(Problem::invalid_parameter(field, format!("{value} is not from {min} to {max}")))
}

fn lease_time(field: &str) -> impl Fn(u64) -> Result<u64, Problem> {
    move |ms| within(field, ms, LEASE_MS_MIN.into(), LEASE_MS_MAX.into())
}

fn shown(delivery: &Delivery, record: api::Record, now: Instant) -> api::Delivery {
    let lease = &delivery.lease;
    let left = delivery.expires.saturating_duration_since(now).as_millis();
    let id = MessageId { topic: delivery.topic.clone(), partition: lease.partition, offset: lease.offset };
    let topic = delivery.topic.as_ref().map(ToString::to_string);
    api::Delivery {
        id: id.to_string(),
        lease: lease.encode(),
        fence: lease.fence,
        attempt: delivery.attempt,
        lease_expires_in_ms: u64::try_from(left).unwrap_or(u64::MAX),
        record: api::Record { topic, ..record },
    }
}

pub(super) async fn settle(mut call: Call) -> Result<Response, Problem> {
    let path = path(&call)?;
    let deadline = confirm_deadline(&call)?;
    let body = call.body(SETTLE_PUBLISH_BYTES_MAX).await?;
    let mut asked: api::Settle = from_json(&body)?;
    let publish = std::mem::take(&mut asked.publish);
    let published: usize = publish.iter().map(|message| message.get().len()).sum();
    if body.len() - published > SETTLE_BYTES_MAX {
        return Err(too_large(SETTLE_BYTES_MAX));
    }
    let (tokens, leases) = leases_of(asked)?;
    if !publish.is_empty() {
        return outputs::settle_and_publish(&call, &path, (tokens, leases), &publish, deadline).await;
    }
    let settled = call.edge.services.subscriptions.settle(&path, &leases).await?;
    let results: Vec<_> =
        tokens.into_iter().zip(settled).map(|(lease, settled)| result(lease, settled)).collect();
    for result in &results {
        call.edge.queue_counts.settles.with_label_values(&[result.result.as_str()]).inc();
    }
    let is_whole = results.iter().all(|result| result.result == SettleOutcome::Ok);
    let status = if is_whole { StatusCode::OK } else { StatusCode::MULTI_STATUS };
    json(status, &api::Settled { results, published: Vec::new(), level: None })
}

/// Every lease as it was written and what shall become of it, in the order of the answer.
fn leases_of(asked: api::Settle) -> Result<(Vec<String>, Vec<SettleLease>), Problem> {
    let count = asked.ack.len() + asked.nack.len() + asked.extend.len() + asked.dead.len();
    if count > SETTLE_ITEMS_MAX {
        let detail = format!("{count} leases; {SETTLE_ITEMS_MAX} are allowed");
        return Err(Problem::new(ErrorCode::TooLarge, detail).with_limit(SETTLE_ITEMS_MAX as u64));
    }
    let (mut tokens, mut leases) = (Vec::with_capacity(count), Vec::with_capacity(count));
    let mut add = |field: String, token: String, action, ms, reason: String| {
        let lease = Lease::decode(&token).map_err(|failure| Problem::from(failure).with_field(&field))?;
        if reason.len() > SETTLE_REASON_BYTES_MAX {
            let why = format!("more than {SETTLE_REASON_BYTES_MAX} bytes");
            return Err(Problem::invalid_parameter(&format!("{field}.reason"), why));
        }
        tokens.push(token);
        leases.push(SettleLease { lease, action, ms, reason });
        Ok(())
    };
    for (place, token) in asked.ack.into_iter().enumerate() {
        add(format!("ack[{place}]"), token, SettleAction::Ack, None, String::new())?;
    }
    for (place, item) in asked.nack.into_iter().enumerate() {
        let field = format!("nack[{place}]");
        let delay = item.delay_ms.map(|ms| within(&format!("{field}.delay_ms"), ms, 0, DELAY_MS_MAX));
        add(field, item.lease, SettleAction::Nack, delay.transpose()?, item.reason)?;
    }
    for (place, item) in asked.extend.into_iter().enumerate() {
        let field = format!("extend[{place}]");
        let ms = item.ms.map(lease_time(&format!("{field}.ms"))).transpose()?;
        add(field, item.lease, SettleAction::Extend, ms, String::new())?;
    }
    for (place, item) in asked.dead.into_iter().enumerate() {
        add(format!("dead[{place}]"), item.lease, SettleAction::Dead, None, item.reason)?;
    }
    Ok((tokens, leases))
}

fn result(lease: String, settled: Settled) -> SettledLease {
    let (result, current, problem) = match settled {
        Settled::Done => (SettleOutcome::Ok, None, None),
        Settled::LeaseLost(current) => (SettleOutcome::LeaseLost, current, None),
        Settled::Already => (SettleOutcome::AlreadySettled, None, None),
        Settled::Unknown => (SettleOutcome::Unknown, None, None),
        Settled::Failed(failure) => (SettleOutcome::Failed, None, Some(Box::new(failure.into()))),
    };
    let current = current.map(|grant| Takeover { attempt: grant.attempt, fence: grant.fence });
    SettledLease { lease, result, current, problem }
}

pub(super) async fn seek(mut call: Call) -> Result<Response, Problem> {
    let path = path(&call)?;
    let asked: api::Seek = call.json().await?;
    let is_dry_run = call.route.query("dry_run") == Some("true");
    let (to, back_to) = match &asked.undo {
        Some(token) if asked.to == "undo" => (At::Earliest(true), undo_name("undo", token)?),
        Some(_) => return Err(Problem::invalid_parameter("undo", "goes with \"to\": \"undo\"")),
        None if asked.to == "undo" => {
            return Err(Problem::invalid_parameter("undo", "say which seek or purge: its answer's undo"));
        }
        None => (target(&asked.to)?, 0),
    };
    let keep_as = if is_dry_run { 0 } else { rand::random::<u64>().max(1) };
    let seek = Seek { to, is_dry_run, keep_as, back_to };
    check_if_match(&call, &path).await?;
    let moved = call.edge.services.subscriptions.seek(&path, seek).await;
    let moved = moved.map_err(|failure| Problem::from(failure).with_undo(keep_as))?;
    let parts: Vec<_> = moved
        .into_iter()
        .map(|(topic, partition, answer)| SeekedPart {
            topic: topic.map(|topic| topic.to_string()),
            partition: partition.0,
            floor: answer.floor,
            redelivered: answer.redelivered,
            skipped: answer.skipped,
        })
        .collect();
    let body = api::Seeked {
        dry_run: is_dry_run,
        redelivered: parts.iter().map(|part| part.redelivered).sum(),
        skipped: parts.iter().map(|part| part.skipped).sum(),
        undo: (!is_dry_run).then(|| snapshot_name(keep_as)),
        parts,
    };
    json(StatusCode::OK, &body)
}

/// The number of what stood before a seek.
fn undo_name(field: &str, token: &str) -> Result<u64, Problem> {
    snapshot_named(token).ok_or_else(|| {
        Problem::invalid_parameter(field, "not what a seek or purge answered: snap_ and 16 digits")
    })
}

fn target(to: &serde_json::Value) -> Result<At, Problem> {
    match position::text(to).and_then(|text| parse_from(&text).ok()) {
        Some(Start::At(at)) if !matches!(at, At::Tail(_)) => Ok(at),
        _ => {
            let why = "earliest, latest, undo (and its name in undo), an offset, or ts: and RFC 3339 or milliseconds";
            Err(Problem::invalid_parameter("to", why))
        }
    }
}

pub(super) async fn leases(call: Call) -> Result<Response, Problem> {
    list(call, Standing::Unset).await
}

/// A page of messages that stand so.
pub(super) async fn list(call: Call, standing: Standing) -> Result<Response, Problem> {
    let (number, from) = (call.route.integer("partition"), call.route.integer("from"));
    let cursor = call.route.query("cursor").map(str::to_owned);
    if cursor.is_some() && (number.is_some() || from.is_some() || call.route.query("topic").is_some()) {
        return Err(Problem::invalid_parameter("cursor", "says itself which partition and where from"));
    }
    if from.is_some() && number.is_none() {
        return Err(Problem::invalid_parameter(
            "from",
            "an offset belongs to one partition: name it with partition=",
        ));
    }
    let as_of = call.route.query("as_of").map_or(Ok(Moment::Now), |text| moment("as_of", text))?;
    let topic = call.route.query("topic").map(Name::new).transpose();
    let topic = topic.map_err(|error| {
        Problem::new(ErrorCode::InvalidName, format!("topic: {error}")).with_field("topic")
    })?;
    let list = ListLeases {
        as_of,
        partition: partition(number),
        topic,
        from: Offset(from.unwrap_or(0)),
        limit: page_limit(&call),
        standing,
        cursor,
    };
    let (page, as_of_ms) = call.edge.services.subscriptions.leases(&path(&call)?, &list).await?;
    let items = page.items.into_iter().map(|LeaseListing { topic, partition, lease }| {
        listed(MessageId { topic, partition, offset: Offset(lease.offset) }, lease)
    });
    let items = items.collect();
    json(StatusCode::OK, &LeasePage { items, next: page.next, as_of_ms })
}

pub(super) fn listed(id: MessageId, lease: LeaseInfo) -> LeasedRecord {
    let blocked_by = |offset| MessageId { offset: Offset(offset), ..id.clone() }.to_string();
    LeasedRecord {
        id: id.to_string(),
        topic: id.topic.as_ref().map(ToString::to_string),
        partition: id.partition.0,
        offset: lease.offset,
        attempts: lease.attempts,
        holder: Some(lease.holder.clone()).filter(|holder| !holder.is_empty()),
        fence: lease.grant.map(|grant| grant.fence),
        lease_expires_in_ms: lease.grant.map(|grant| grant.expires_in_ms),
        age_ms: lease.grant.map(|_| lease.age_ms),
        delayed_ms: lease.delayed_ms,
        state: api::MessageState::of(lease.standing()),
        blocked_by: lease.blocked_by.map(blocked_by),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_pull_has_defaults_and_bounds() {
        let pull = checked(api::Pull::default(), None).unwrap();
        assert_eq!((pull.max, pull.max_bytes, pull.wait, pull.lease_ms), (32, 1 << 20, Duration::ZERO, None));
        for (text, field) in [
            (r#"{"max":0}"#, "max"),
            (r#"{"max":10001}"#, "max"),
            (r#"{"max_bytes":0}"#, "max_bytes"),
            (r#"{"wait_ms":60001}"#, "wait_ms"),
            (r#"{"lease_ms":999}"#, "lease_ms"),
            (&format!(r#"{{"holder":"{}"}}"#, "h".repeat(256)), "holder"),
        ] {
            let refused = checked(serde_json::from_str(text).unwrap(), None).unwrap_err();
            assert!(refused.is(ErrorCode::InvalidParameter), "{text}");
            assert_eq!(refused.field.as_deref(), Some(field), "{text}");
        }
    }

    #[test]
    fn a_settle_names_what_it_refuses() {
        let lease = Lease {
            subscription: 1,
            incarnation: weir_protocol::ids::Incarnation(2),
            partition: weir_protocol::ids::PartitionId(3),
            offset: Offset(4),
            fence: 5,
        };
        let token = lease.encode();
        for (text, code, field) in [
            (format!(r#"{{"ack":["{token}","x"]}}"#), "invalid_cursor", "ack[1]"),
            (
                format!(r#"{{"nack":[{{"lease":"{token}","delay_ms":31622400001}}]}}"#),
                "invalid_parameter",
                "nack[0].delay_ms",
            ),
            (format!(r#"{{"extend":[{{"lease":"{token}","ms":1}}]}}"#), "invalid_parameter", "extend[0].ms"),
            (
                format!(r#"{{"dead":[{{"lease":"{token}","reason":"{}"}}]}}"#, "r".repeat(1025)),
                "invalid_parameter",
                "dead[0].reason",
            ),
        ] {
            let refused = leases_of(serde_json::from_str(&text).unwrap()).unwrap_err();
            assert_eq!((refused.code.as_ref(), refused.field.as_deref()), (code, Some(field)), "{text}");
        }
        let many = api::Settle { ack: vec![token; SETTLE_ITEMS_MAX + 1], ..api::Settle::default() };
        assert!(leases_of(many).unwrap_err().is(ErrorCode::TooLarge));
    }

    #[test]
    fn what_undoes_a_seek_comes_back_and_nothing_else_does() {
        assert_eq!(undo_name("undo", &snapshot_name(0x1234)).unwrap(), 0x1234);
        for bad in ["", "snap_", "snap_0000000000000000", "snap_123", "snap_zzzzzzzzzzzzzzzz", "1234"] {
            assert_eq!(undo_name("undo", bad).unwrap_err().field.as_deref(), Some("undo"), "{bad}");
        }
    }

    #[test]
    fn a_seek_goes_to_what_every_partition_has() {
        use serde_json::json;
        for (to, at) in [
            (json!("earliest"), At::Earliest(true)),
            (json!("latest"), At::Latest(true)),
            (json!("17"), At::Offset(17)),
            (json!(17), At::Offset(17)),
            (json!("ts:5"), At::TimestampMs(5)),
        ] {
            assert_eq!(target(&to).unwrap(), at);
        }
        for bad in [json!(null), json!(-1), json!(1.5), json!("tail:3"), json!("cursor:x"), json!([])] {
            assert_eq!(target(&bad).unwrap_err().field.as_deref(), Some("to"), "{bad}");
        }
    }
}
