//! What a settle publishes, as JSON.

use std::collections::BTreeSet;
use std::time::Duration;

use axum::response::Response;
use bytes::Bytes;
use http::{HeaderValue, StatusCode};
use serde_json::value::RawValue;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Name, TopicPath};
use weir_protocol::objects;
use weir_protocol::rpc::{Level, SettleAction};

use super::answer::json;
use super::call::{Call, permitted};
use super::from_json::wrong;
use super::input;
use super::publish::now_ms;
use super::topics::level;
use crate::api::{self, OutputMessage, Problem, PublishedMessage, SettleOutcome, SettledLease};
use crate::auth::{Op, Resource};
use crate::service::publish::NewRecord;
use crate::service::subscriptions::{PublishedOutput, SettleAndPublish, SettleLease, SubscriptionPath};

/// How long a settle waits for what it publishes unless the request says otherwise.
const WAIT_DEFAULT: Duration = Duration::from_secs(5);

/// Settles leases and publishes, all or nothing.
pub(super) async fn settle_and_publish(
    call: &Call,
    path: &SubscriptionPath,
    (tokens, leases): (Vec<String>, Vec<SettleLease>),
    publish: &[Box<RawValue>],
    deadline: Option<Duration>,
) -> Result<Response, Problem> {
    if leases.is_empty() {
        let detail = "nothing is settled; publish to the topic itself";
        return Err(Problem::new(ErrorCode::Malformed, detail).with_field("ack"));
    }
    if leases.iter().any(|item| item.action == SettleAction::Extend) {
        let detail = "a lease is extended apart from a settle that publishes";
        return Err(Problem::new(ErrorCode::NotSupported, detail).with_field("extend"));
    }
    let wait = deadline.unwrap_or(WAIT_DEFAULT);
    let outputs = messages(path, publish, now_ms())?;
    let topics: BTreeSet<&TopicPath> = outputs.iter().map(|(topic, _)| topic).collect();
    for TopicPath { namespace, topic, .. } in topics {
        permitted(&call.principal, Op::Publish, &Resource::Topic { namespace, topic })?;
    }
    let services = &call.edge.services;
    let request = SettleAndPublish { leases, outputs, wait };
    let published = services.subscriptions.settle_and_publish(path, &services.publisher, &request).await;
    let counts = &call.edge.queue_counts;
    let published = published.inspect_err(|failure| {
        if failure.code() == ErrorCode::LeaseLost {
            counts.settles.with_label_values(&[SettleOutcome::LeaseLost.as_str()]).inc();
        }
    })?;
    counts.settles.with_label_values(&[SettleOutcome::Ok.as_str()]).inc_by(tokens.len() as u64);
    counts.outputs.inc_by(published.len() as u64);
    answer(tokens, &published, services.storage.level_max().min(Level::Quorum))
}

fn answer(tokens: Vec<String>, published: &[PublishedOutput], highest: Level) -> Result<Response, Problem> {
    let is_nowhere = published.iter().any(|output| output.failure.is_some());
    let is_there = published.iter().all(|output| output.placed.is_some());
    let (status, reached) = match () {
        () if is_nowhere => (StatusCode::MULTI_STATUS, Level::None),
        () if is_there => (StatusCode::OK, highest),
        () => (StatusCode::ACCEPTED, Level::None),
    };
    let settled = |lease| SettledLease { lease, result: SettleOutcome::Ok, current: None, problem: None };
    let body = api::Settled {
        results: tokens.into_iter().map(settled).collect(),
        published: published.iter().map(shown).collect(),
        level: Some(level(reached)),
    };
    let mut response = json(status, &body)?;
    response.headers_mut().insert("confirm-level", HeaderValue::from_static(reached.as_str()));
    Ok(response)
}

fn shown(output: &PublishedOutput) -> PublishedMessage {
    PublishedMessage {
        topic: output.topic.path.topic.to_string(),
        partition: output.partition.0,
        offset: output.placed.map(|(offset, _)| offset.0),
        ts: output.placed.map(|(_, ts)| ts.0),
        receipt: output.receipt.clone(),
        problem: output.failure.as_ref().map(|failure| Box::new(failure.into())),
    }
}

/// What is published, and where: topics of the subscription's namespace.
fn messages(
    path: &SubscriptionPath,
    publish: &[Box<RawValue>],
    now_ms: u64,
) -> Result<Vec<(TopicPath, NewRecord)>, Problem> {
    let mut outputs = Vec::with_capacity(publish.len());
    for (place, raw) in publish.iter().enumerate() {
        let text = Bytes::copy_from_slice(raw.get().as_bytes());
        let named =
            |field: &str| format!("publish[{place}]{}{field}", if field.is_empty() { "" } else { "." });
        let message: OutputMessage<'_> = objects::from_slice(&text).map_err(|error| {
            let why = error.to_string();
            let problem = wrong::<OutputMessage<'_>>("", &text, &why);
            let field = named(problem.field.as_deref().unwrap_or_default());
            Problem { detail: format!("{field}: {why}"), ..problem.with_field(field) }
        })?;
        let (topic, line) = message.into_line();
        let topic = Name::new(&topic).map_err(|error| {
            let field = named("topic");
            Problem::new(ErrorCode::InvalidName, format!("{field}: {error}")).with_field(field)
        })?;
        let record = input::record(&text, line, now_ms).map_err(|(field, why)| {
            let field = named(field);
            Problem::new(ErrorCode::Malformed, format!("{field}: {why}")).with_field(field)
        })?;
        let (tenant, namespace) = (path.tenant.clone(), path.namespace.clone());
        outputs.push((TopicPath { tenant, namespace, topic }, record));
    }
    Ok(outputs)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(items: &[&str]) -> Result<Vec<(TopicPath, NewRecord)>, Problem> {
        let path = SubscriptionPath {
            tenant: Name::default_name(),
            namespace: Name::default_name(),
            subscription: Name::new("work").unwrap(),
        };
        let raw: Vec<_> =
            items.iter().map(|item| RawValue::from_string((*item).to_owned()).unwrap()).collect();
        messages(&path, &raw, 0)
    }

    #[test]
    fn payloads_keep_their_digits() {
        let items = [
            r#"{"topic":"a","key":"k","headers":{"x":"y"},"data":{"n":9007199254740993.10}}"#,
            r#"{"topic":"b","content_type":"text/plain","data":"hi","ttl_ms":5}"#,
        ];
        let outputs = read(&items).unwrap();
        let plain: Vec<_> =
            outputs.iter().map(|(topic, record)| (topic.topic.as_str(), &record.value[..])).collect();
        assert_eq!(plain, [("a", &b"{\"n\":9007199254740993.10}"[..]), ("b", b"hi")]);
        assert_eq!(outputs[0].1.key.as_deref(), Some(&b"k"[..]));
        assert_eq!(outputs[1].1.headers.ttl_ms(), Some(5));
    }

    #[test]
    fn what_is_wrong_is_named_with_its_place() {
        for (item, code, field) in [
            (r#"{"topic":"a","dta":1}"#, "unknown_field", "publish[1].dta"),
            (r#"{"data":1}"#, "malformed", "publish[1].topic"),
            (r#"[]"#, "malformed", "publish[1]"),
            (r#"{"topic":7,"data":1}"#, "malformed", "publish[1].topic"),
            (r#"{"topic":"a/b","data":1}"#, "invalid_name", "publish[1].topic"),
            (r#"{"topic":"a"}"#, "malformed", "publish[1].data"),
            (r#"{"topic":"a","data":1,"data_base64":""}"#, "malformed", "publish[1].data"),
            (r#"{"topic":"a","data_base64":"?"}"#, "malformed", "publish[1].data_base64"),
            (r#"{"topic":"a","data":1,"ttl_ms":0}"#, "malformed", "publish[1].ttl_ms"),
            (r#"{"topic":"a","data":1,"deliver_at":"soon"}"#, "malformed", "publish[1].deliver_at"),
        ] {
            let refused = read(&[r#"{"topic":"a","data":1}"#, item]).unwrap_err();
            assert_eq!((refused.code.as_ref(), refused.field.as_deref()), (code, Some(field)), "{item}");
        }
    }
}
