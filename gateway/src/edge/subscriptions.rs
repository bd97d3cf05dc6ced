//! Subscriptions over HTTP, as they are configured.

use axum::response::Response;
use http::StatusCode;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::Name;
use weir_protocol::rpc::{ForkOrigin, PartStats, Refusal, SubscriptionConfig, snapshot_name};

use super::answer::{empty, json};
use super::call::{Call, permitted};
use super::conditions::{for_any, if_match};
use super::mismatch::with_differences;
use super::topics::{add_place, add_tag, must_be_new, page_limit, tag, tagged};
use crate::api::{
    self, Problem, SubscriptionPage, SubscriptionPart, SubscriptionPatch, SubscriptionTotals,
    default_subscription_config,
};
use crate::auth::{Op, Resource};
use crate::service::ServiceError;
use crate::service::subscriptions::{
    ListSubscriptions, PartPlace, Subscription, SubscriptionPath, SubscriptionView,
};

/// Attempts of a change that names no version, when others change the subscription at the same time.
const ATTEMPTS: u32 = 5;

/// The subscription that the path names.
pub(super) fn path(call: &Call) -> Result<SubscriptionPath, Problem> {
    Ok(SubscriptionPath {
        tenant: call.principal.tenant.clone(),
        namespace: call.route.name("ns")?,
        subscription: call.route.name("subscription")?,
    })
}

pub(super) async fn create(mut call: Call) -> Result<Response, Problem> {
    let path = path(&call)?;
    let patch: SubscriptionPatch = call.json().await?;
    let config = patch.apply(default_subscription_config())?;
    may_connect(&call, &config, None)?;
    if if_match(&call)?.is_some() {
        return change(&call, |_| Ok(config.clone())).await;
    }
    let subscriptions = &call.edge.services.subscriptions;
    let current = async {
        let current = subscriptions.get(&path).await?;
        Ok(tag(current.id, current.version))
    };
    let must_be_new = must_be_new(&call, current).await?;
    let exists = || Problem::new(ErrorCode::VersionMismatch, "the subscription exists");
    let is_new = match call.edge.services.subscriptions.create(&path, config.clone()).await {
        Ok((_, false)) if must_be_new => return Err(exists()),
        Ok((_, is_new)) => is_new,
        Err(failure) if must_be_new && failure.code() == ErrorCode::ConfigMismatch => return Err(exists()),
        Err(failure) if failure.code() == ErrorCode::ConfigMismatch => {
            // It may be gone by now.
            let Ok(there) = subscriptions.get(&path).await else { return Err(failure.into()) };
            let there = api::SubscriptionConfig::from(&there.config);
            return Err(with_differences(failure.into(), &there, &api::SubscriptionConfig::from(&config)));
        }
        Err(failure) => return Err(failure.into()),
    };
    shown(&call, if is_new { StatusCode::CREATED } else { StatusCode::OK }).await
}

pub(super) async fn read(call: Call) -> Result<Response, Problem> {
    let view = call.edge.services.subscriptions.view(&path(&call)?).await?;
    let tag = tag(view.subscription.id, view.subscription.version);
    Ok(tagged(&call, &tag, json(StatusCode::OK, &full(&view))?))
}

pub(super) async fn update(mut call: Call) -> Result<Response, Problem> {
    let patch: SubscriptionPatch = call.json().await?;
    change(&call, |config| patch.clone().apply(config)).await
}

pub(super) async fn pause(call: Call, paused: bool) -> Result<Response, Problem> {
    change(&call, |config| Ok(SubscriptionConfig { paused, ..config })).await
}

pub(super) async fn delete(call: Call) -> Result<Response, Problem> {
    let path = path(&call)?;
    let (path, subscriptions) = (&path, &call.edge.services.subscriptions);
    let ask = |version| async move { Ok(subscriptions.delete(path, version).await?) };
    for_any(if_match(&call)?, ask).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(super) async fn list(call: Call) -> Result<Response, Problem> {
    let list = ListSubscriptions {
        tenant: call.principal.tenant.clone(),
        namespace: call.route.name("ns")?,
        contains: call.route.query("q").map(str::to_owned),
        topic: call.route.query("topic").map(str::to_owned),
        limit: page_limit(&call),
        cursor: call.route.query("cursor").map(str::to_owned),
    };
    let page = call.edge.services.subscriptions.list(&list).await?;
    let items = page.items.iter().map(full).collect();
    json(StatusCode::OK, &SubscriptionPage { items, next: page.next })
}

/// Applies `to` to the configuration as it is: to a version that `If-Match` names, or to whatever stands
/// there, again if somebody else was faster.
async fn change(
    call: &Call,
    to: impl Fn(SubscriptionConfig) -> Result<SubscriptionConfig, Problem> + Send + Sync,
) -> Result<Response, Problem> {
    let (path, to) = (&path(call)?, &to);
    for_any(if_match(call)?, |version| change_version(call, path, version, to)).await
}

async fn change_version(
    call: &Call,
    path: &SubscriptionPath,
    expected: Option<(u64, u32)>,
    to: &(impl Fn(SubscriptionConfig) -> Result<SubscriptionConfig, Problem> + Send + Sync),
) -> Result<Response, Problem> {
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        let current = call.edge.services.subscriptions.get(path).await?;
        expect(&current, expected)?;
        let config = to(current.config.clone())?;
        if config == current.config {
            return shown(call, StatusCode::OK).await;
        }
        may_connect(call, &config, Some(&current.config))?;
        match call.edge.services.subscriptions.update(&current, config).await {
            Ok(_) => return shown(call, StatusCode::OK).await,
            Err(failure)
                if expected.is_none() && failure.code() == ErrorCode::VersionMismatch && attempts > 0 => {}
            Err(failure) => return Err(failure.into()),
        }
    }
}

/// Refuses what `If-Match` does not name, before something is done that changes no configuration: a change at that
/// very moment may come too late.
pub(super) async fn check_if_match(call: &Call, path: &SubscriptionPath) -> Result<(), Problem> {
    if if_match(call)?.is_some() {
        get_if_match(call, path).await?;
    }
    Ok(())
}

/// The subscription that the path names, if `If-Match` does not exclude it.
pub(super) async fn get_if_match(call: &Call, path: &SubscriptionPath) -> Result<Subscription, Problem> {
    let named = if_match(call)?;
    let current = call.edge.services.subscriptions.get(path).await?;
    let found = &current;
    for_any(named, |expected| async move { expect(found, expected) }).await?;
    Ok(current)
}

/// Refuses what is another life or version than the one that is meant.
fn expect(current: &Subscription, expected: Option<(u64, u32)>) -> Result<(), Problem> {
    let Some((id, version)) = expected else { return Ok(()) };
    let refuse = |refusal: Refusal| Err(ServiceError::from(refusal).into());
    if id != current.id {
        let detail = "If-Match names a subscription of this name that was deleted";
        return refuse(Refusal::new(ErrorCode::IncarnationGone, detail));
    }
    if version != current.version {
        let detail = format!("the configuration has version {}", current.version);
        let refusal = Refusal::new(ErrorCode::VersionMismatch, detail);
        return refuse(Refusal { config_version: Some(current.version), ..refusal });
    }
    Ok(())
}

/// A subscription reads its topics and writes its dead letters: whoever sets that up may do so themselves. Otherwise
/// a subscription would be a way around the grants on topics.
pub(super) fn may_connect(
    call: &Call,
    config: &SubscriptionConfig,
    before: Option<&SubscriptionConfig>,
) -> Result<(), Problem> {
    let namespace = call.route.name("ns")?;
    let ask = |op: Op, topic: &str| {
        let name = |text: &str| {
            Name::new(text).map_err(|error| Problem::new(ErrorCode::InvalidName, error.to_string()))
        };
        if let Some(prefix) = topic.strip_suffix('*') {
            let all = Resource::Topics { namespace: &namespace, prefix };
            return permitted(&call.principal, op, &all);
        }
        let topic = name(topic)?;
        permitted(&call.principal, op, &Resource::Topic { namespace: &namespace, topic: &topic })
    };
    let is_new = |topic: &&String| before.is_none_or(|before| !before.topics().any(|old| old == *topic));
    config.topics().filter(is_new).try_for_each(|topic| ask(Op::Subscribe, topic))?;
    match &config.dead_letter_topic {
        Some(dlq) if before.is_none_or(|before| before.dead_letter_topic.as_ref() != Some(dlq)) => {
            ask(Op::Publish, dlq)
        }
        _ => Ok(()),
    }
}

async fn shown(call: &Call, status: StatusCode) -> Result<Response, Problem> {
    shown_as(call, &path(call)?, status, &call.path).await
}

/// A subscription as it is now; a new one with its place.
pub(super) async fn shown_as(
    call: &Call,
    path: &SubscriptionPath,
    status: StatusCode,
    place: &str,
) -> Result<Response, Problem> {
    let view = call.edge.services.subscriptions.view(path).await?;
    let mut response = json(status, &full(&view))?;
    add_tag(&mut response, &tag(view.subscription.id, view.subscription.version));
    add_place(&mut response, place);
    Ok(response)
}

/// A subscription with what it holds of each partition.
fn full(view: &SubscriptionView) -> api::Subscription {
    let subscription = &view.subscription;
    let parts = subscription.parts.iter().zip(&view.parts);
    let deleted = if subscription.is_of_one() { Vec::new() } else { subscription.deleted_topics() };
    api::Subscription {
        ns: subscription.path.namespace.to_string(),
        name: subscription.path.subscription.to_string(),
        id: subscription.id,
        version: subscription.version,
        created_ms: subscription.created.0,
        topic_incarnation: subscription.lives.first().filter(|_| subscription.is_of_one()).map(|life| life.0),
        topic_deleted: view.is_topic_deleted,
        topics_deleted: deleted.into_iter().cloned().collect(),
        partitions_left_out: subscription.left_out,
        forked_from: subscription.fork.as_ref().map(forked_from),
        config: (&subscription.config).into(),
        parts: parts.map(|(place, stats)| part(place, stats.as_ref())).collect(),
        totals: totals(view),
    }
}

fn forked_from(origin: &ForkOrigin) -> api::ForkedFrom {
    let at = match (origin.snapshot, origin.at_ms) {
        (0, None) => "now".to_owned(),
        (0, Some(ms)) => format!("ts:{ms}"),
        (name, _) => snapshot_name(name),
    };
    api::ForkedFrom { name: origin.subscription.clone(), id: origin.id, at }
}

fn part(place: &PartPlace, stats: Option<&PartStats>) -> SubscriptionPart {
    let number = |get: fn(&PartStats) -> u64| stats.map(get);
    SubscriptionPart {
        topic: place.topic.to_string(),
        partition: place.partition.0,
        floor: number(|stats| stats.floor),
        end: number(|stats| stats.end),
        ready: number(|stats| stats.ready),
        leased: number(|stats| stats.leased),
        delayed: number(|stats| stats.delayed),
        blocked: number(|stats| stats.blocked),
        in_memory: number(|stats| stats.in_memory),
        settled_above_floor: number(|stats| stats.settled_above_floor),
        dead: number(|stats| stats.dead),
        dead_pending: number(|stats| stats.dead_pending),
        oldest_ms: stats.and_then(|stats| stats.oldest_ms),
        reader: stats.and_then(|stats| stats.reader.clone()),
        shard: place.shard.0,
        forked_at_ms: stats.and_then(|stats| stats.forked_at_ms),
    }
}

fn totals(view: &SubscriptionView) -> SubscriptionTotals {
    let known = || view.parts.iter().flatten();
    let sum = |get: fn(&PartStats) -> u64| known().map(get).sum();
    SubscriptionTotals {
        unsettled: sum(|stats| {
            stats.end.saturating_sub(stats.floor).saturating_sub(stats.settled_above_floor)
        }),
        ready: sum(|stats| stats.ready),
        leased: sum(|stats| stats.leased),
        delayed: sum(|stats| stats.delayed),
        blocked: sum(|stats| stats.blocked),
        dead: sum(|stats| stats.dead),
        dead_pending: sum(|stats| stats.dead_pending),
        oldest_ms: known().filter_map(|stats| stats.oldest_ms).min(),
    }
}
