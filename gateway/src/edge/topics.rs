//! Topics and namespaces over HTTP.

use std::time::Duration;

use axum::response::Response;
use http::header::ETAG;
use http::{HeaderValue, StatusCode};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{ShardId, TopicPath};
use weir_protocol::rpc::{
    self, CreateTopicRequest, DeleteNamespaceRequest, DeleteTopicRequest, DescribeTopicRequest,
    ListNamespacesRequest, ListTopicsRequest, Method, NamespaceList, NamespacePut, PartitionRef,
    PartitionStatsList, PartitionStatsRequest, PutNamespaceRequest, TopicCreated, TopicDescription,
    TopicList, TopicName, UpdateTopicRequest,
};

use super::dispatch::{Call, Edge, empty, json, refused};
use crate::api::{
    Level, Namespace, NamespaceConfig, NamespacePage, NamespacePatch, Partition, Problem, Rates, Topic,
    TopicConfig, TopicPage, TopicPatch,
};

const PAGE_DEFAULT: u64 = 100;

/// A level as clients name it.
pub(super) fn level(level: rpc::Level) -> Level {
    match level {
        rpc::Level::Unset | rpc::Level::None => Level::None,
        rpc::Level::Memory => Level::Memory,
        rpc::Level::Durable => Level::Durable,
        rpc::Level::Quorum => Level::Quorum,
        rpc::Level::Archived => Level::Archived,
    }
}

/// A topic as its home shard knows it; created if its namespace says so.
pub(super) async fn find(
    edge: &Edge,
    path: &TopicPath,
    may_create: bool,
) -> Result<TopicDescription, Problem> {
    let shard = edge.storage.home_of(path).await.map_err(|refusal| refused(&refusal))?;
    let request = DescribeTopicRequest { name: Some(TopicName::from(path)) };
    match edge.storage.call(Method::DescribeTopic, shard, &request, Duration::ZERO).await {
        Err(missing) if missing.error_code() == ErrorCode::TopicNotFound => {
            let namespace = namespace(edge, path.tenant.as_str(), path.namespace.as_str()).await?;
            if !(may_create && namespace.auto_create) {
                return Err(refused(&missing));
            }
            let config = Some(rpc::TopicConfig::from(&TopicConfig::default()));
            let create =
                CreateTopicRequest { name: Some(TopicName::from(path)), config, accept_existing: true };
            let made: TopicCreated = call(edge, Method::CreateTopic, shard, &create).await?;
            made.topic
                .ok_or_else(|| Problem::new(ErrorCode::Internal, "a topic was created without a description"))
        }
        found => found.map_err(|refusal| refused(&refusal)),
    }
}

async fn call<A: prost::Message + Default>(
    edge: &Edge,
    method: Method,
    shard: ShardId,
    message: &impl prost::Message,
) -> Result<A, Problem> {
    edge.storage.call(method, shard, message, Duration::ZERO).await.map_err(|refusal| refused(&refusal))
}

/// Tag of a configuration: life and version.
fn tag(incarnation: u64, version: u32) -> String {
    format!("\"{incarnation}:{version}\"")
}

/// The version that `If-Match` names, if there is one.
fn if_match(call: &Call) -> Result<Option<(u64, u32)>, Problem> {
    let Some(text) = call.header("if-match")? else { return Ok(None) };
    let parts = text.trim_matches('"').split_once(':');
    let parsed = parts.and_then(|(life, version)| Some((life.parse().ok()?, version.parse().ok()?)));
    parsed.map(Some).ok_or_else(|| Problem::invalid_header("If-Match", "not a tag of this gateway"))
}

async fn shown(edge: &Edge, status: StatusCode, topic: &TopicDescription) -> Result<Response, Problem> {
    let mut response = json(status, &full(edge, topic).await?)?;
    if let Ok(tag) = HeaderValue::from_str(&tag(topic.incarnation, topic.version)) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

/// A topic with its partitions' positions.
async fn full(edge: &Edge, topic: &TopicDescription) -> Result<Topic, Problem> {
    let name = topic.name.clone().unwrap_or_default();
    let config = topic.config.clone().unwrap_or_default();
    let mut partitions = Vec::with_capacity(topic.shards.len());
    let mut shards = topic.shards.clone();
    shards.dedup();
    for shard in shards {
        let here =
            (0u32..).zip(&topic.shards).filter(|(_, at)| **at == shard).map(|(partition, _)| partition);
        let refs: Vec<_> =
            here.map(|partition| PartitionRef { incarnation: topic.incarnation, partition }).collect();
        let request = PartitionStatsRequest { partitions: refs.clone() };
        let stats: PartitionStatsList = call(edge, Method::PartitionStats, ShardId(shard), &request).await?;
        for (at, stats) in refs.iter().zip(stats.partitions) {
            let known = stats.refused.is_none();
            partitions.push(Partition {
                partition: at.partition,
                start: known.then_some(stats.start),
                end: known.then_some(stats.committed_end),
                bytes: known.then_some(stats.bytes),
                shard,
            });
        }
    }
    Ok(Topic {
        ns: name.namespace,
        name: name.topic,
        incarnation: topic.incarnation,
        version: topic.version,
        created_ms: topic.created_ms,
        config: TopicConfig::from(&config),
        partitions,
        rates: Rates::default(),
    })
}

pub(super) async fn create(mut call: Call) -> Result<Response, Problem> {
    let path = call.topic()?;
    let config: TopicConfig = call.json().await?;
    namespace(&call.edge, path.tenant.as_str(), path.namespace.as_str()).await?;
    let edge = std::sync::Arc::clone(&call.edge);
    if let Some((incarnation, version)) = if_match(&call)? {
        return replace(&edge, &path, rpc::TopicConfig::from(&config), (incarnation, version)).await;
    }
    let shard = edge.storage.home_of(&path).await.map_err(|refusal| refused(&refusal))?;
    let config = Some(rpc::TopicConfig::from(&config));
    let request = CreateTopicRequest { name: Some(TopicName::from(&path)), config, accept_existing: false };
    let made: TopicCreated = self::call(&edge, Method::CreateTopic, shard, &request).await?;
    let status = if made.created { StatusCode::CREATED } else { StatusCode::OK };
    if !made.created && call.header("if-none-match")? == Some("*") {
        return Err(Problem::new(ErrorCode::VersionMismatch, "the topic exists"));
    }
    let topic = made.topic.unwrap_or_default();
    shown(&edge, status, &topic).await
}

async fn replace(
    edge: &Edge,
    path: &TopicPath,
    config: rpc::TopicConfig,
    (incarnation, expected_version): (u64, u32),
) -> Result<Response, Problem> {
    let shard = edge.storage.home_of(path).await.map_err(|refusal| refused(&refusal))?;
    let name = Some(TopicName::from(path));
    let request = UpdateTopicRequest { name, config: Some(config), incarnation, expected_version };
    let topic: TopicDescription = call(edge, Method::UpdateTopic, shard, &request).await?;
    shown(edge, StatusCode::OK, &topic).await
}

pub(super) async fn read(call: Call) -> Result<Response, Problem> {
    let topic = find(&call.edge, &call.topic()?, false).await?;
    shown(&call.edge, StatusCode::OK, &topic).await
}

pub(super) async fn update(mut call: Call) -> Result<Response, Problem> {
    let path = call.topic()?;
    let patch: TopicPatch = call.json().await?;
    let topic = find(&call.edge, &path, false).await?;
    let expected = if_match(&call)?.unwrap_or((topic.incarnation, topic.version));
    let config = patch.apply(TopicConfig::from(&topic.config.unwrap_or_default()));
    replace(&call.edge, &path, rpc::TopicConfig::from(&config), expected).await
}

pub(super) async fn delete(call: Call) -> Result<Response, Problem> {
    let path = call.topic()?;
    let expected = if_match(&call)?;
    let shard = call.edge.storage.home_of(&path).await.map_err(|refusal| refused(&refusal))?;
    let request = DeleteTopicRequest {
        name: Some(TopicName::from(&path)),
        incarnation: expected.map(|(life, _)| life),
        expected_version: expected.map(|(_, version)| version),
    };
    let deleted = call.edge.storage.call_raw(Method::DeleteTopic, shard, &request, Duration::ZERO).await;
    deleted.map_err(|refusal| refused(&refusal))?;
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(super) async fn list(call: Call) -> Result<Response, Problem> {
    let namespace_name = call.route.name("ns")?;
    let tenant = call.principal.tenant.to_string();
    namespace(&call.edge, &tenant, namespace_name.as_str()).await?;
    let limit = u32::try_from(call.route.integer("limit").unwrap_or(PAGE_DEFAULT)).unwrap_or(1000);
    let request = ListTopicsRequest {
        tenant,
        namespace: namespace_name.to_string(),
        contains: call.route.query("q").map(str::to_owned),
        after: call.route.query("cursor").map(str::to_owned),
        limit,
    };
    let shards = data_shards(&call.edge).await?;
    let (mut found, mut more) = (Vec::new(), false);
    for shard in shards {
        let part: TopicList = self::call(&call.edge, Method::ListTopics, shard, &request).await?;
        more |= part.more;
        found.extend(part.topics);
    }
    found.sort_by(|a, b| a.name.as_ref().map(|n| &n.topic).cmp(&b.name.as_ref().map(|n| &n.topic)));
    more |= found.len() > limit as usize;
    found.truncate(limit as usize);
    let mut items = Vec::with_capacity(found.len());
    for topic in &found {
        items.push(full(&call.edge, topic).await?);
    }
    let next = items.last().filter(|_| more).map(|topic: &Topic| topic.name.clone());
    json(StatusCode::OK, &TopicPage { items, next })
}

async fn data_shards(edge: &Edge) -> Result<Vec<ShardId>, Problem> {
    let shards = edge.storage.data_shards(edge.storage.deadline()).await;
    shards.map_err(|failure| refused(failure.refusal()))
}

/// A namespace.
async fn namespace(edge: &Edge, tenant: &str, name: &str) -> Result<rpc::Namespace, Problem> {
    let request = ListNamespacesRequest {
        tenant: tenant.to_owned(),
        name: Some(name.to_owned()),
        after: None,
        limit: 1,
    };
    let list: NamespaceList = call(edge, Method::ListNamespaces, ShardId::META, &request).await?;
    list.namespaces
        .into_iter()
        .next()
        .ok_or_else(|| Problem::new(ErrorCode::NamespaceNotFound, format!("there is no namespace {name}")))
}

fn namespace_shown(status: StatusCode, namespace: &rpc::Namespace) -> Result<Response, Problem> {
    let mut response = json(status, &Namespace::from(namespace))?;
    if let Ok(tag) = HeaderValue::from_str(&tag(0, namespace.version)) {
        response.headers_mut().insert(ETAG, tag);
    }
    Ok(response)
}

pub(super) async fn list_namespaces(call: Call) -> Result<Response, Problem> {
    let limit = u32::try_from(call.route.integer("limit").unwrap_or(PAGE_DEFAULT)).unwrap_or(1000);
    let request = ListNamespacesRequest {
        tenant: call.principal.tenant.to_string(),
        name: None,
        after: call.route.query("cursor").map(str::to_owned),
        limit,
    };
    let list: NamespaceList = self::call(&call.edge, Method::ListNamespaces, ShardId::META, &request).await?;
    let wanted = call.route.query("q").unwrap_or_default();
    let next = list.namespaces.last().filter(|_| list.more).map(|namespace| namespace.name.clone());
    let items =
        list.namespaces.iter().filter(|namespace| namespace.name.contains(wanted)).map(Namespace::from);
    json(StatusCode::OK, &NamespacePage { items: items.collect(), next })
}

pub(super) async fn read_namespace(call: Call) -> Result<Response, Problem> {
    let found =
        namespace(&call.edge, call.principal.tenant.as_str(), call.route.name("ns")?.as_str()).await?;
    namespace_shown(StatusCode::OK, &found)
}

pub(super) async fn put_namespace(mut call: Call) -> Result<Response, Problem> {
    let (tenant, name) = (call.principal.tenant.to_string(), call.route.name("ns")?.to_string());
    let config: NamespaceConfig = call.json().await?;
    let expected = if_match(&call)?.map(|(_, version)| version);
    if let (None, Ok(current)) = (expected, namespace(&call.edge, &tenant, &name).await) {
        let same = current.auto_create == config.auto_create && current.cors_origins == config.cors_origins;
        if !same {
            return Err(Problem::new(
                ErrorCode::ConfigMismatch,
                format!("namespace {name} has other settings"),
            ));
        }
        return namespace_shown(StatusCode::OK, &current);
    }
    store_namespace(&call, (tenant, name), config, expected).await
}

pub(super) async fn patch_namespace(mut call: Call) -> Result<Response, Problem> {
    let (tenant, name) = (call.principal.tenant.to_string(), call.route.name("ns")?.to_string());
    let patch: NamespacePatch = call.json().await?;
    let current = namespace(&call.edge, &tenant, &name).await?;
    let config = NamespaceConfig { auto_create: current.auto_create, cors_origins: current.cors_origins };
    let expected = if_match(&call)?.map_or(current.version, |(_, version)| version);
    store_namespace(&call, (tenant, name), patch.apply(config), Some(expected)).await
}

async fn store_namespace(
    call: &Call,
    (tenant, name): (String, String),
    config: NamespaceConfig,
    expected_version: Option<u32>,
) -> Result<Response, Problem> {
    let NamespaceConfig { auto_create, cors_origins } = config;
    let namespace = rpc::Namespace { tenant, name, auto_create, cors_origins, version: 0 };
    let request = PutNamespaceRequest { namespace: Some(namespace), expected_version };
    let put: NamespacePut = self::call(&call.edge, Method::PutNamespace, ShardId::META, &request).await?;
    let status = if put.created { StatusCode::CREATED } else { StatusCode::OK };
    namespace_shown(status, &put.namespace.unwrap_or_default())
}

pub(super) async fn delete_namespace(call: Call) -> Result<Response, Problem> {
    let (tenant, name) = (call.principal.tenant.to_string(), call.route.name("ns")?.to_string());
    let shards = data_shards(&call.edge).await?;
    for shard in shards {
        let request = ListTopicsRequest {
            tenant: tenant.clone(),
            namespace: name.clone(),
            limit: 1,
            ..ListTopicsRequest::default()
        };
        let found: TopicList = self::call(&call.edge, Method::ListTopics, shard, &request).await?;
        if !found.topics.is_empty() {
            return Err(Problem::new(ErrorCode::NamespaceNotEmpty, format!("namespace {name} has topics")));
        }
    }
    let request = DeleteNamespaceRequest { tenant, name };
    let deleted =
        call.edge.storage.call_raw(Method::DeleteNamespace, ShardId::META, &request, Duration::ZERO).await;
    deleted.map_err(|refusal| refused(&refusal))?;
    Ok(empty(StatusCode::NO_CONTENT))
}
