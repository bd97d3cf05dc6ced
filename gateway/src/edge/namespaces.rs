//! Namespaces over HTTP.

use axum::response::Response;
use http::StatusCode;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::Name;
use weir_protocol::rpc;

use super::answer::{empty, json};
use super::call::Call;
use super::conditions::{Condition, for_any, if_match_namespace};
use super::mismatch::with_differences;
use super::topics::{add_place, add_tag, must_be_new, page_limit, tag, tagged};
use crate::api::{Cache, Namespace, NamespaceConfig, NamespacePage, NamespacePatch, Problem, check_origins};

/// Attempts of a change that somebody else's change overtakes.
const ATTEMPTS: u32 = 3;

fn shown(status: StatusCode, namespace: &rpc::Namespace) -> Result<Response, Problem> {
    let mut response = json(status, &Namespace::from(namespace))?;
    add_tag(&mut response, &tag(0, namespace.version));
    Ok(response)
}

fn named(call: &Call) -> Result<(Name, Name), Problem> {
    Ok((call.principal.tenant.clone(), call.route.name("ns")?))
}

pub(super) async fn list(call: Call) -> Result<Response, Problem> {
    let (tenant, cursor) = (&call.principal.tenant, call.route.query("cursor"));
    let (contains, limit) = (call.route.query("q"), page_limit(&call));
    let page = call.edge.services.namespaces.list(tenant, contains, limit, cursor).await?;
    json(
        StatusCode::OK,
        &NamespacePage { items: page.items.iter().map(Namespace::from).collect(), next: page.next },
    )
}

pub(super) async fn read(call: Call) -> Result<Response, Problem> {
    let (tenant, name) = named(&call)?;
    let namespace = call.edge.services.namespaces.get(&tenant, &name).await?;
    Ok(tagged(&call, &tag(0, namespace.version), shown(StatusCode::OK, &namespace)?))
}

pub(super) async fn put(mut call: Call) -> Result<Response, Problem> {
    let (tenant, name) = named(&call)?;
    // As a change of what nobody has said anything about: what is `null` is as if it were left out.
    let config = call.json::<NamespacePatch>().await?.apply(NamespaceConfig::default());
    check_origins(&config.cors_origins)?;
    match if_match_namespace(&call)? {
        Some(Condition::Any) => return change(&call, None, |_| config.clone()).await,
        named @ Some(_) => {
            let (call, config) = (&call, &config);
            let version = |version: Option<(u64, u32)>| version.map_or(0, |(_, version)| version);
            return for_any(named, |named| store(call, config.clone(), version(named))).await;
        }
        None => {}
    }
    let namespaces = &call.edge.services.namespaces;
    let current = async { Ok(tag(0, namespaces.get(&tenant, &name).await?.version)) };
    let must_be_new = must_be_new(&call, current).await?;
    for _ in 1..ATTEMPTS {
        match create(&call, &tenant, &name, config.clone(), must_be_new).await {
            // Somebody else was faster: what they made is looked at.
            Err(problem) if problem.is(ErrorCode::VersionMismatch) && !must_be_new => {}
            answer => return answer,
        }
    }
    create(&call, &tenant, &name, config, must_be_new).await
}

async fn create(
    call: &Call,
    tenant: &Name,
    name: &Name,
    config: NamespaceConfig,
    must_be_new: bool,
) -> Result<Response, Problem> {
    let current = match call.edge.services.namespaces.get(tenant, name).await {
        Ok(current) => current,
        Err(failure) if failure.code() == ErrorCode::NamespaceNotFound => {
            return store(call, config, 0).await;
        }
        Err(failure) => return Err(failure.into()),
    };
    if must_be_new {
        return Err(Problem::new(ErrorCode::VersionMismatch, format!("namespace {name} exists")));
    }
    let there = settings(&current);
    if there != config {
        let detail = format!("namespace {name} has other settings");
        return Err(with_differences(Problem::new(ErrorCode::ConfigMismatch, detail), &there, &config));
    }
    shown(StatusCode::OK, &current)
}

fn settings(namespace: &rpc::Namespace) -> NamespaceConfig {
    NamespaceConfig {
        auto_create: namespace.auto_create,
        cors_origins: namespace.cors_origins.clone(),
        cache: Cache::of(namespace.cache_public),
    }
}

pub(super) async fn patch(mut call: Call) -> Result<Response, Problem> {
    let patch: NamespacePatch = call.json().await?;
    check_origins(patch.cors_origins.as_deref().unwrap_or_default())?;
    let (named, call, patch) = (if_match_namespace(&call)?, &call, &patch);
    let to = |config| patch.clone().apply(config);
    for_any(named, |named| change(call, named.map(|(_, version)| version), to)).await
}

/// Applies `to` to the settings as they are: to the version that is named, or to whatever stands there, again
/// if somebody else was faster.
async fn change(
    call: &Call,
    named_version: Option<u32>,
    to: impl Fn(NamespaceConfig) -> NamespaceConfig + Send + Sync,
) -> Result<Response, Problem> {
    let (tenant, name) = named(call)?;
    let mut attempts = ATTEMPTS;
    loop {
        attempts -= 1;
        let current = call.edge.services.namespaces.get(&tenant, &name).await?;
        let expected = named_version.unwrap_or(current.version);
        match store(call, to(settings(&current)), expected).await {
            // Somebody else changed it meanwhile: the change is for what it is now.
            Err(problem)
                if problem.is(ErrorCode::VersionMismatch) && named_version.is_none() && attempts > 0 => {}
            answer => return answer,
        }
    }
}

/// Version 0: it does not exist yet.
async fn store(call: &Call, config: NamespaceConfig, expected_version: u32) -> Result<Response, Problem> {
    let (tenant, name) = named(call)?;
    let NamespaceConfig { auto_create, cors_origins, cache } = config;
    let cache_public = cache.is_public();
    let (tenant, name) = (tenant.to_string(), name.to_string());
    let namespace = rpc::Namespace { tenant, name, auto_create, cors_origins, cache_public, version: 0 };
    let put = call.edge.services.namespaces.put(namespace, Some(expected_version)).await?;
    let status = if put.created { StatusCode::CREATED } else { StatusCode::OK };
    let mut response = shown(status, &put.namespace.unwrap_or_default())?;
    add_place(&mut response, &call.path);
    Ok(response)
}

pub(super) async fn delete(call: Call) -> Result<Response, Problem> {
    let (tenant, name) = named(&call)?;
    let (tenant, name, namespaces) = (&tenant, &name, &call.edge.services.namespaces);
    let ask = |named: Option<(u64, u32)>| async move {
        Ok(namespaces.delete(tenant, name, named.map(|(_, version)| version)).await?)
    };
    for_any(if_match_namespace(&call)?, ask).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
