//! Namespaces over HTTP.

use axum::response::Response;
use http::header::ETAG;
use http::{HeaderValue, StatusCode};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::Name;
use weir_protocol::rpc;

use super::dispatch::{Call, empty, json};
use super::topics::{if_match, page_limit, tag};
use crate::api::{Namespace, NamespaceConfig, NamespacePage, NamespacePatch, Problem};

fn shown(status: StatusCode, namespace: &rpc::Namespace) -> Result<Response, Problem> {
    let mut response = json(status, &Namespace::from(namespace))?;
    if let Ok(tag) = HeaderValue::from_str(&tag(0, namespace.version)) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

fn named(call: &Call) -> Result<(Name, Name), Problem> {
    Ok((call.principal.tenant.clone(), call.route.name("ns")?))
}

pub(super) async fn list(call: Call) -> Result<Response, Problem> {
    let (tenant, cursor) = (&call.principal.tenant, call.route.query("cursor"));
    let page = call.edge.services.namespaces.list(tenant, page_limit(&call), cursor).await?;
    let wanted = call.route.query("q").unwrap_or_default();
    let items = page.items.iter().filter(|namespace| namespace.name.contains(wanted)).map(Namespace::from);
    json(StatusCode::OK, &NamespacePage { items: items.collect(), next: page.next })
}

pub(super) async fn read(call: Call) -> Result<Response, Problem> {
    let (tenant, name) = named(&call)?;
    shown(StatusCode::OK, &call.edge.services.namespaces.get(&tenant, &name).await?)
}

pub(super) async fn put(mut call: Call) -> Result<Response, Problem> {
    let (tenant, name) = named(&call)?;
    let config: NamespaceConfig = call.json().await?;
    let expected = if_match(&call)?.map(|(_, version)| version);
    let current = match call.edge.services.namespaces.get(&tenant, &name).await {
        Ok(current) => Some(current),
        Err(failure) if failure.code() == ErrorCode::NamespaceNotFound => None,
        Err(failure) => return Err(failure.into()),
    };
    if let (None, Some(current)) = (expected, current) {
        let same = current.auto_create == config.auto_create && current.cors_origins == config.cors_origins;
        if !same {
            let detail = format!("namespace {name} has other settings");
            return Err(Problem::new(ErrorCode::ConfigMismatch, detail));
        }
        return shown(StatusCode::OK, &current);
    }
    store(&call, config, expected).await
}

pub(super) async fn patch(mut call: Call) -> Result<Response, Problem> {
    let (tenant, name) = named(&call)?;
    let patch: NamespacePatch = call.json().await?;
    let current = call.edge.services.namespaces.get(&tenant, &name).await?;
    let config = NamespaceConfig { auto_create: current.auto_create, cors_origins: current.cors_origins };
    let expected = if_match(&call)?.map_or(current.version, |(_, version)| version);
    store(&call, patch.apply(config), Some(expected)).await
}

async fn store(
    call: &Call,
    config: NamespaceConfig,
    expected_version: Option<u32>,
) -> Result<Response, Problem> {
    let (tenant, name) = named(call)?;
    let NamespaceConfig { auto_create, cors_origins } = config;
    let (tenant, name) = (tenant.to_string(), name.to_string());
    let namespace = rpc::Namespace { tenant, name, auto_create, cors_origins, version: 0 };
    let put = call.edge.services.namespaces.put(namespace, expected_version).await?;
    let status = if put.created { StatusCode::CREATED } else { StatusCode::OK };
    shown(status, &put.namespace.unwrap_or_default())
}

pub(super) async fn delete(call: Call) -> Result<Response, Problem> {
    let (tenant, name) = named(&call)?;
    call.edge.services.namespaces.delete(&tenant, &name).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}
