//! Topics over HTTP.

use std::time::Duration;

use axum::response::Response;
use http::header::{ETAG, LOCATION};
use http::{HeaderValue, StatusCode};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{ConfigVersion, Incarnation};
use weir_protocol::limits::DAMAGED_OBJECTS_MAX;
use weir_protocol::rpc::{self, PartitionStats};

use super::answer::{empty, json};
use super::call::Call;
use super::conditions::{Condition, Versions, for_any, if_match, if_none_match};
use super::mismatch::with_differences;
use super::read::is_known;
use crate::api::{
    Cache, CostPerDay, DamagedObject, Level, Partition, PartitionStorage, Problem, Rates, StoragePrices,
    Topic, TopicConfig, TopicPage, TopicPatch, TopicStorage,
};
use crate::service::{ListTopics, TopicView};
use crate::storage;

const PAGE_DEFAULT: u64 = 100;
/// Storage is reached within this, or the request is refused.
const READY_TIME_MAX: Duration = Duration::from_secs(10);

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

/// Tag of a configuration: life and version.
pub(super) fn tag(incarnation: u64, version: u32) -> String {
    format!("\"{incarnation}:{version}\"")
}

fn tag_of(topic: &storage::Topic) -> String {
    tag(topic.incarnation.0, topic.version.0)
}

/// How many items a page has at most.
pub(super) fn page_limit(call: &Call) -> u32 {
    u32::try_from(call.route.integer("limit").unwrap_or(PAGE_DEFAULT)).unwrap_or(u32::MAX)
}

/// A life and version as storage knows them.
pub(super) fn expected((life, version): (u64, u32)) -> (Incarnation, ConfigVersion) {
    (Incarnation(life), ConfigVersion(version))
}

async fn shown(call: &Call, status: StatusCode) -> Result<Response, Problem> {
    let view = call.edge.services.topics.view(&call.topic()?).await?;
    let mut response = json(status, &full(&view, &call.edge.config.storage_prices))?;
    add_tag(&mut response, &tag_of(&view.topic));
    add_place(&mut response, &call.path);
    Ok(response)
}

/// Tells a configuration's tag; who asked only for another one and has this one gets no body.
pub(super) fn tagged(call: &Call, tag: &str, mut response: Response) -> Response {
    if is_known(call, tag) {
        response = empty(StatusCode::NOT_MODIFIED);
    }
    add_tag(&mut response, tag);
    response
}

pub(super) fn add_tag(response: &mut Response, tag: &str) {
    if let Ok(tag) = HeaderValue::from_str(tag) {
        response.headers_mut().insert(ETAG, tag);
    }
}

/// Says where something is, if that is what was made.
pub(super) fn add_place(response: &mut Response, path: &str) {
    if response.status() == StatusCode::CREATED
        && let Ok(path) = HeaderValue::from_str(path)
    {
        response.headers_mut().insert(LOCATION, path);
    }
}

/// Whether it shall be new: `If-None-Match: *`. `current` is the tag of what is there, if anything is; a tag
/// that is named refuses it.
///
/// What is there is not changed by whoever names tags of it: nothing is lost if it gets one of them behind this.
pub(super) async fn must_be_new(
    call: &Call,
    current: impl Future<Output = Result<String, Problem>> + Send,
) -> Result<bool, Problem> {
    let named = match if_none_match(call)? {
        None => return Ok(false),
        Some(Condition::Any) => return Ok(true),
        Some(Condition::Of(tags)) => tags,
    };
    match current.await {
        Ok(tag) if named.contains(&tag) => {
            let detail = format!("it has the tag {tag}, which If-None-Match names");
            Err(Problem::new(ErrorCode::VersionMismatch, detail))
        }
        Err(problem) if problem.status != StatusCode::NOT_FOUND => Err(problem),
        _ => Ok(false),
    }
}

/// A topic with its partitions' positions, and what they cost where that was asked for.
fn full(view: &TopicView, prices: &StoragePrices) -> Topic {
    let topic: &storage::Topic = &view.topic;
    let known = |get: fn(&PartitionStats) -> f64| view.partitions.iter().flatten().map(get).sum::<f64>();
    let partitions = topic.shards.iter().zip(&view.partitions).zip(0..).map(|((shard, stats), partition)| {
        let stats = stats.as_ref();
        Partition {
            partition,
            start: stats.map(|stats| stats.start),
            end: stats.map(|stats| stats.committed_end),
            bytes: stats.map(|stats| stats.bytes),
            shard: shard.0,
            storage: stats.and_then(|stats| stats.storage.as_ref()).map(partition_storage),
        }
    });
    Topic {
        ns: topic.path.namespace.to_string(),
        name: topic.path.topic.to_string(),
        incarnation: topic.incarnation.0,
        version: topic.version.0,
        created_ms: topic.created.0,
        config: TopicConfig::from(&*topic.config),
        partitions: partitions.collect(),
        rates: Rates {
            publish_records_per_second: known(|stats| stats.publish_records_per_second),
            publish_bytes_per_second: known(|stats| stats.publish_bytes_per_second),
            deliver_records_per_second: known(|stats| stats.deliver_records_per_second),
        },
        storage: topic_storage(&view.partitions, prices),
    }
}

fn partition_storage(storage: &rpc::PartitionStorage) -> PartitionStorage {
    PartitionStorage {
        cold_to: storage.cold_to,
        archived_to: storage.archived_to,
        uploading_to: storage.uploading_to,
        cold_bytes: storage.cold_bytes,
        archived_bytes: storage.archived_bytes,
        uploading_bytes: storage.uploading_bytes,
        local_bytes: storage.local_bytes,
        upload_lag_ms: storage.upload_lag_ms,
    }
}

/// The sums over all partitions, if all are known: a part of them would look like a cheaper topic.
fn topic_storage(partitions: &[Option<PartitionStats>], prices: &StoragePrices) -> Option<TopicStorage> {
    let of = |stats: &Option<PartitionStats>| stats.as_ref().and_then(|stats| stats.storage);
    let all = partitions.iter().map(of).collect::<Option<Vec<_>>>()?;
    let sum = |get: fn(&rpc::PartitionStorage) -> f64| all.iter().map(get).sum::<f64>();
    let object_bytes = all.iter().map(|storage| storage.object_bytes).sum();
    let (puts_per_day, gets_per_day) =
        (sum(|storage| storage.puts_per_day), sum(|storage| storage.gets_per_day));
    let blocks_asked_per_day = sum(|storage| storage.blocks_asked_per_day);
    Some(TopicStorage {
        object_bytes,
        puts_per_day,
        gets_per_day,
        read_bytes_per_day: sum(|storage| storage.read_bytes_per_day),
        blocks_asked_per_day,
        // What is fetched before it is asked for may count first.
        blocks_cached_per_day: (blocks_asked_per_day - sum(|storage| storage.blocks_missed_per_day)).max(0.0),
        cost_per_day: CostPerDay::at(prices, object_bytes, puts_per_day, gets_per_day),
        damaged: damaged(partitions),
    })
}

/// The newest of what could not be read of any partition.
fn damaged(partitions: &[Option<PartitionStats>]) -> Vec<DamagedObject> {
    let known =
        partitions.iter().zip(0..).filter_map(|(stats, partition)| Some((stats.as_ref()?, partition)));
    let mut all: Vec<(u32, &rpc::DamagedObject)> = known
        .flat_map(|(stats, partition)| stats.damaged.iter().map(move |damaged| (partition, damaged)))
        .collect();
    all.sort_by_key(|(_, damaged)| std::cmp::Reverse(damaged.last_ms));
    let told = all.into_iter().take(DAMAGED_OBJECTS_MAX).map(|(partition, damaged)| {
        let rpc::DamagedObject { object, why, from, to, times, first_ms, last_ms } = damaged.clone();
        DamagedObject { object, why, partition, from, to, times, first_ms, last_ms }
    });
    told.collect()
}

pub(super) async fn create(mut call: Call) -> Result<Response, Problem> {
    let path = call.topic()?;
    // What is left out gets its default: that of the confirm level is what storage reaches, and the namespace says
    // which caches may keep what.
    let given: TopicPatch = call.json().await?;
    call.edge.services.storage.ready((call.received + READY_TIME_MAX).into()).await?;
    let default_confirm = level(call.edge.services.storage.level_max().min(rpc::Level::Quorum));
    let namespace = call.edge.services.namespaces.get(&path.tenant, &path.namespace).await?;
    let cache = Cache::of(namespace.cache_public);
    let asked = given.apply(TopicConfig { default_confirm, cache, ..TopicConfig::default() });
    let config = rpc::TopicConfig::from(&asked);
    if let Some(named) = if_match(&call)? {
        change(&call, Some(named), |_| config.clone()).await?;
        return shown(&call, StatusCode::OK).await;
    }
    let topics = &call.edge.services.topics;
    let current = async { topics.get(&path).await.map(|topic| tag_of(&topic)).map_err(Problem::from) };
    let must_be_new = must_be_new(&call, current).await?;
    let exists = || Problem::new(ErrorCode::VersionMismatch, "the topic exists");
    let is_new = match call.edge.services.topics.create(&path, config).await {
        Ok((_, false)) if must_be_new => return Err(exists()),
        Ok((_, is_new)) => is_new,
        Err(failure) if must_be_new && failure.code() == ErrorCode::ConfigMismatch => return Err(exists()),
        Err(failure) if failure.code() == ErrorCode::ConfigMismatch => {
            // It may be gone by now.
            let Ok(there) = topics.get(&path).await else { return Err(failure.into()) };
            return Err(with_differences(failure.into(), &TopicConfig::from(&*there.config), &asked));
        }
        Err(failure) => return Err(failure.into()),
    };
    shown(&call, if is_new { StatusCode::CREATED } else { StatusCode::OK }).await
}

pub(super) async fn read(call: Call) -> Result<Response, Problem> {
    let view = call.edge.services.topics.view(&call.topic()?).await?;
    let tag = tag_of(&view.topic);
    Ok(tagged(&call, &tag, json(StatusCode::OK, &full(&view, &call.edge.config.storage_prices))?))
}

pub(super) async fn update(mut call: Call) -> Result<Response, Problem> {
    let patch: TopicPatch = call.json().await?;
    let named = if_match(&call)?;
    let to =
        |config: rpc::TopicConfig| rpc::TopicConfig::from(&patch.clone().apply(TopicConfig::from(&config)));
    change(&call, named, to).await?;
    shown(&call, StatusCode::OK).await
}

/// Applies `to` to the configuration as it is: to a version that is named, or to whatever stands there.
async fn change(
    call: &Call,
    named: Option<Condition<Versions>>,
    to: impl Fn(rpc::TopicConfig) -> rpc::TopicConfig + Send + Sync,
) -> Result<(), Problem> {
    let (path, to) = (&call.topic()?, &to);
    let topics = &call.edge.services.topics;
    for_any(named, |version| async move { Ok(topics.update(path, version.map(expected), to).await?) })
        .await?;
    Ok(())
}

pub(super) async fn delete(call: Call) -> Result<Response, Problem> {
    let (named, path, topics) = (if_match(&call)?, &call.topic()?, &call.edge.services.topics);
    for_any(named, |version| async move { Ok(topics.delete(path, version.map(expected)).await?) }).await?;
    Ok(empty(StatusCode::NO_CONTENT))
}

pub(super) async fn list(call: Call) -> Result<Response, Problem> {
    let list = ListTopics {
        tenant: call.principal.tenant.clone(),
        namespace: call.route.name("ns")?,
        contains: call.route.query("q").map(str::to_owned),
        limit: page_limit(&call),
        cursor: call.route.query("cursor").map(str::to_owned),
    };
    let page = call.edge.services.topics.list(&list).await?;
    json(
        StatusCode::OK,
        &TopicPage {
            items: page.items.iter().map(|view| full(view, &call.edge.config.storage_prices)).collect(),
            next: page.next,
        },
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn stats(asked: f64, missed: f64, damaged: &[u64]) -> Option<PartitionStats> {
        let storage = rpc::PartitionStorage {
            object_bytes: 1 << 30,
            puts_per_day: 500.0,
            gets_per_day: 1_000.0,
            blocks_asked_per_day: asked,
            blocks_missed_per_day: missed,
            read_bytes_per_day: 7.0,
            ..rpc::PartitionStorage::default()
        };
        let damaged = damaged.iter().map(|last_ms| rpc::DamagedObject {
            object: format!("object {last_ms}"),
            last_ms: *last_ms,
            to: 3,
            ..rpc::DamagedObject::default()
        });
        let damaged = damaged.collect();
        Some(PartitionStats { storage: Some(storage), damaged, ..PartitionStats::default() })
    }

    #[test]
    fn what_a_topic_takes_is_the_sum_of_its_partitions_and_nothing_if_one_is_not_known() {
        let prices = StoragePrices::default();
        let partitions = [stats(10.0, 2.0, &[]), stats(5.0, 1.0, &[])];
        let told = topic_storage(&partitions, &prices).unwrap();
        assert_eq!(told.object_bytes, 2 << 30);
        for (told, expected) in [
            (told.blocks_asked_per_day, 15.0),
            (told.blocks_cached_per_day, 12.0),
            (told.read_bytes_per_day, 14.0),
            (told.cost_per_day.stored, 2.0 * 0.023 / 30.0),
            (told.cost_per_day.total, 2.0 * 0.023 / 30.0 + 0.005 + 2.0 * 0.0004),
        ] {
            assert!((told - expected).abs() < 1e-9, "{told} is not {expected}");
        }
        assert_eq!(told.damaged, []);
        assert_eq!(topic_storage(&[stats(1.0, 0.0, &[]), None], &prices), None);
        let ahead = topic_storage(&[stats(1.0, 2.0, &[])], &prices).unwrap();
        assert!(ahead.blocks_cached_per_day.abs() < 1e-9, "what is fetched is asked for a moment later");
    }

    #[test]
    fn damaged_objects_are_told_newest_first_with_their_partition_and_no_more_than_a_few() {
        let told = damaged(&[stats(0.0, 0.0, &[9, 3]), None, stats(0.0, 0.0, &[5])]);
        let told: Vec<_> = told.iter().map(|one| (one.partition, one.object.as_str(), one.to)).collect();
        assert_eq!(told, [(0, "object 9", 3), (2, "object 5", 3), (0, "object 3", 3)]);
        let many: Vec<u64> = (0..50).collect();
        let told = damaged(&[stats(0.0, 0.0, &many), stats(0.0, 0.0, &many)]);
        assert_eq!((told.len(), told[0].last_ms, told[63].last_ms), (DAMAGED_OBJECTS_MAX, 49, 18));
    }
}
