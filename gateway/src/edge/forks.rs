//! Forks of subscriptions over HTTP.

use axum::response::Response;
use http::StatusCode;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Name, TimestampMs};
use weir_protocol::rpc::{At, SubscriptionConfig, snapshot_named};
use weir_protocol::start::{Start, parse_from};

use super::call::{Call, permitted};
use super::subscriptions::{get_if_match, may_connect, path, shown_as};
use crate::api::{ForkSubscription, Problem};
use crate::auth::{Op, Resource};
use crate::service::subscriptions::{Moment, SubscriptionPath};

pub(super) async fn fork(mut call: Call) -> Result<Response, Problem> {
    let source = path(&call)?;
    let asked: ForkSubscription = call.json().await?;
    let name = Name::new(&asked.name)
        .map_err(|error| Problem::new(ErrorCode::InvalidName, error.to_string()).with_field("name"))?;
    if name == source.subscription {
        return Err(Problem::invalid_parameter("name", "a fork has a name of its own"));
    }
    let fork = SubscriptionPath { subscription: name, ..source.clone() };
    let resource = Resource::Subscription { namespace: &fork.namespace, subscription: &fork.subscription };
    permitted(&call.principal, Op::Manage, &resource)?;
    let moment = moment("at", asked.at.as_deref().unwrap_or("now"))?;
    let source = get_if_match(&call, &source).await?;
    let config = asked.config.apply(source.config.clone())?;
    check_same(&source.config, &config)?;
    may_connect(&call, &config, None)?;
    let (_, is_new) = call.edge.services.subscriptions.fork(&source, &fork, config, moment).await?;
    let status = if is_new { StatusCode::CREATED } else { StatusCode::OK };
    let collection = call.path.rsplit_once('/').map_or("", |(collection, _)| collection);
    shown_as(&call, &fork, status, &format!("{collection}/{}", fork.subscription)).await
}

/// Now, before a seek, or at a time.
pub(super) fn moment(field: &str, text: &str) -> Result<Moment, Problem> {
    if text == "now" {
        return Ok(Moment::Now);
    }
    match (snapshot_named(text), parse_from(text)) {
        (Some(name), _) => Ok(Moment::Before(name)),
        (None, Ok(Start::At(At::TimestampMs(ms)))) => Ok(Moment::At(TimestampMs(ms))),
        _ => {
            let why = "now, what a seek answered (snap_ and 16 digits), or ts: and RFC 3339 or milliseconds";
            Err(Problem::invalid_parameter(field, why))
        }
    }
}

/// What settles mean depends on it.
fn check_same(source: &SubscriptionConfig, fork: &SubscriptionConfig) -> Result<(), Problem> {
    for (field, is_same) in [
        ("mode", fork.is_stream == source.is_stream),
        ("topics", fork.topics().eq(source.topics())),
        ("start", fork.start == source.start),
        ("order", fork.is_by_key == source.is_by_key),
    ] {
        if !is_same {
            let detail = format!("config.{field}: a fork has that of the subscription that it began as");
            return Err(Problem::new(ErrorCode::NotSupported, detail).with_field(field));
        }
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use weir_protocol::rpc::snapshot_name;

    use super::*;
    use crate::api::default_subscription_config;

    #[test]
    fn a_moment_is_now_before_a_seek_or_a_time() {
        for (text, meant) in [
            ("now", Moment::Now),
            (&snapshot_name(7), Moment::Before(7)),
            ("ts:5", Moment::At(TimestampMs(5))),
            ("ts:1970-01-01T00:00:01Z", Moment::At(TimestampMs(1_000))),
        ] {
            assert_eq!(moment("at", text).unwrap(), meant);
        }
        for bad in ["", "earliest", "snap_1", "5", "NOW", "ts:", "tail:3"] {
            assert_eq!(moment("at", bad).unwrap_err().field.as_deref(), Some("at"), "{bad}");
        }
    }

    #[test]
    fn what_settles_mean_is_the_sources() {
        let source = SubscriptionConfig { topic: "a".into(), ..default_subscription_config() };
        let same = SubscriptionConfig { lease_ms: 5_000, paused: true, ..source.clone() };
        assert!(check_same(&source, &same).is_ok());
        let other = SubscriptionConfig { is_by_key: true, ..source.clone() };
        assert_eq!(check_same(&source, &other).unwrap_err().field.as_deref(), Some("order"));
        let other = SubscriptionConfig { more_topics: vec!["b".into()], ..source.clone() };
        assert_eq!(check_same(&source, &other).unwrap_err().field.as_deref(), Some("topics"));
    }
}
