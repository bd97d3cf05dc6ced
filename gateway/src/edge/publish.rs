//! Publishing one message.

use std::sync::atomic::{AtomicU32, Ordering};
use std::time::Duration;

use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use bytes::Bytes;
use http::header::{CONTENT_ENCODING, CONTENT_TYPE, ETAG, LOCATION};
use http::{HeaderValue, StatusCode};
use weir_protocol::batch::{
    Batch, BatchBuilder, BatchError, Compression, HeadersBuilder, RecordParts, Reserved,
};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::{Epoch, Incarnation, PartitionId, ProducerKey, Seq, ShardId, TopicPath, hash128};
use weir_protocol::limits::CLIENT_ID_BYTES_MAX;
use weir_protocol::rpc::{
    IdempotencyKey, Level, Method, Placed, ProducerState, ProducerStateRequest, PublishItem, Stages,
    TopicDescription,
};
use weir_protocol::slots::partition_of;

use super::dispatch::{Call, empty, json, refused};
use super::topics;
use crate::api::{Problem, Producer, ProducerPartition, Published};

/// Keyless messages without any id go round.
static NEXT_PARTITION: AtomicU32 = AtomicU32::new(0);

/// Who publishes, and as which of its messages.
struct ProducerTriple<'a> {
    id: &'a str,
    epoch: Epoch,
    seq: Seq,
}

pub(super) async fn publish(mut call: Call) -> Result<Response, Problem> {
    let path = call.topic()?;
    for name in ["confirm-deadline-ms", "deliver-at", "deliver-delay-ms"] {
        if call.headers.contains_key(name) {
            return Err(Problem::new(ErrorCode::NotSupported, format!("{name} is not supported yet"))
                .with_field(name));
        }
    }
    let body = call.body(call.edge.config.record_bytes_max).await?;
    check_digest(&call, &body)?;
    let topic = topics::find(&call.edge, &path, true).await?;
    let level = level(&call, &topic)?;
    let key = match call.header("message-key")? {
        Some(key) => Some(key),
        None => call.header("ce-partitionkey")?,
    };
    let producer = producer_triple(&call)?;
    let idempotency = call.header("idempotency-key")?.map(idempotency_text).transpose()?;
    let incarnation = Incarnation(topic.incarnation);
    let batch = record(&call, incarnation, key, producer.as_ref(), &body)?;
    let partition = route(&topic, key, producer.as_ref().map(|p| p.id).or(idempotency));
    let expected_end = expected_end(&call, incarnation, partition)?;
    let media = call.header("content-type")?.unwrap_or_default().as_bytes();
    let item = PublishItem {
        incarnation: topic.incarnation,
        config_version: topic.version,
        partition: partition.0,
        batch_bytes: u32::try_from(batch.bytes().len()).unwrap_or(u32::MAX),
        expected_end,
        idempotency: idempotency.map(|text| IdempotencyKey {
            key: hash128(&[text.as_bytes()]).into(),
            fingerprint: hash128(&[&body, key.unwrap_or_default().as_bytes(), media]).into(),
        }),
    };
    let shard = ShardId(topic.shards.get(partition.0 as usize).copied().unwrap_or_default());
    if level == Level::None {
        return Ok(admitted(&call, shard, item, batch));
    }
    let sent = std::time::Instant::now();
    let outcome = call.edge.storage.publish(shard, item, batch.bytes().clone(), level.bit()).await;
    let (result, stages) = outcome.map_err(|refusal| refused(&refusal))?;
    let placed = match (result.placed, result.refused) {
        (Some(placed), _) => placed,
        (None, Some(refusal)) => return Err(refused(&refusal)),
        (None, None) => return Err(Problem::new(ErrorCode::Internal, "the node gave no verdict")),
    };
    answer(&call, &path, &topic, (partition, placed), (level, idempotency.is_some(), stages, sent.elapsed()))
}

/// `none`: the gateway admitted it; what becomes of it, nobody is told.
fn admitted(call: &Call, shard: ShardId, item: PublishItem, batch: Batch) -> Response {
    let storage = call.edge.storage.clone();
    tokio::spawn(async move {
        if let Err(refusal) = storage.publish(shard, item, batch.bytes().clone(), 0).await {
            tracing::debug!(why = refusal.detail, "a publish without confirm was refused");
        }
    });
    let mut response = empty(StatusCode::ACCEPTED);
    response.headers_mut().insert("confirm-level", HeaderValue::from_static("none"));
    response
}

fn level(call: &Call, topic: &TopicDescription) -> Result<Level, Problem> {
    let config = topic.config.clone().unwrap_or_default();
    let asked = match call.header("confirm")? {
        Some(text) => Level::from_text(text).ok_or_else(|| {
            Problem::invalid_header("Confirm", "one of none, memory, durable, quorum, archived")
        })?,
        None => Level::try_from(config.default_confirm).unwrap_or(Level::Quorum),
    };
    let floor = Level::try_from(config.min_confirm).unwrap_or(Level::None);
    if asked == Level::Archived || asked < floor {
        let detail = format!("the topic takes levels from {} up to quorum", floor.as_str());
        return Err(Problem::new(ErrorCode::LevelUnavailable, detail));
    }
    Ok(asked)
}

fn producer_triple(call: &Call) -> Result<Option<ProducerTriple<'_>>, Problem> {
    let (epoch, seq) = (call.header_number("producer-epoch")?, call.header_number("producer-seq")?);
    match (call.header("producer-id")?, epoch, seq) {
        (None, None, None) => Ok(None),
        (Some(id), Some(epoch), Some(seq)) if !id.is_empty() && id.len() <= CLIENT_ID_BYTES_MAX => {
            let epoch =
                u32::try_from(epoch).map_err(|_| Problem::invalid_header("Producer-Epoch", "too large"))?;
            Ok(Some(ProducerTriple { id, epoch: Epoch(epoch), seq: Seq(seq) }))
        }
        _ => Err(Problem::invalid_header(
            "Producer-Id",
            "Producer-Id, Producer-Epoch and Producer-Seq belong together",
        )),
    }
}

/// A structured-field string: in double quotes.
fn idempotency_text(text: &str) -> Result<&str, Problem> {
    let inner = text.strip_prefix('"').and_then(|text| text.strip_suffix('"'));
    inner.filter(|inner| !inner.is_empty() && inner.len() <= CLIENT_ID_BYTES_MAX).ok_or_else(|| {
        Problem::invalid_header("Idempotency-Key", "a string in double quotes of 1 to 255 bytes")
    })
}

fn check_digest(call: &Call, body: &Bytes) -> Result<(), Problem> {
    let Some(text) = call.header("content-digest")? else { return Ok(()) };
    let Some(digest) = text.strip_prefix("sha-256=:").and_then(|text| text.strip_suffix(':')) else {
        return Err(Problem::invalid_header("Content-Digest", "sha-256=:base64: is understood"));
    };
    let computed = aws_lc_rs::digest::digest(&aws_lc_rs::digest::SHA256, body);
    let stated = BASE64_STANDARD.decode(digest);
    if stated.is_ok_and(|stated| stated == computed.as_ref()) {
        return Ok(());
    }
    Err(Problem::new(ErrorCode::DigestMismatch, "the body's sha-256 is another"))
}

fn record(
    call: &Call,
    incarnation: Incarnation,
    key: Option<&str>,
    producer: Option<&ProducerTriple<'_>>,
    body: &Bytes,
) -> Result<Batch, Problem> {
    let mut headers = HeadersBuilder::default();
    for (name, which) in [
        (CONTENT_TYPE.as_str(), Reserved::ContentType),
        (CONTENT_ENCODING.as_str(), Reserved::ContentEncoding),
        ("content-digest", Reserved::Digest),
        ("traceparent", Reserved::TraceParent),
        ("tracestate", Reserved::TraceState),
    ] {
        if let Some(value) = call.headers.get(name) {
            headers.reserved(which, value.as_bytes());
        }
    }
    if let Some(ttl) = call.header_number("message-ttl-ms")? {
        headers.reserved(Reserved::TtlMs, &ttl.to_le_bytes());
    }
    for (name, value) in &call.headers {
        let text = name.as_str();
        let user = text.strip_prefix("message-header-").or_else(|| text.starts_with("ce-").then_some(text));
        if let Some(name) = user {
            let added = headers.user(name, value.as_bytes()).map(drop);
            added.map_err(|name| {
                Problem::new(ErrorCode::InvalidHeader, format!("{name:?} is no header name"))
            })?;
        }
    }
    let mut batch = match producer {
        Some(triple) => BatchBuilder::new(ProducerKey::of(incarnation, triple.id), triple.epoch, triple.seq),
        None => BatchBuilder::anonymous(),
    };
    let headers = headers.finish();
    batch
        .push(RecordParts { key: key.map(str::as_bytes), headers: &headers, value: body })
        .map_err(|error| too_large(&error))?;
    batch.build(Compression::Auto).map_err(|error| too_large(&error))
}

fn too_large(error: &BatchError) -> Problem {
    Problem::new(ErrorCode::TooLarge, error.to_string())
}

fn route(topic: &TopicDescription, key: Option<&str>, id: Option<&str>) -> PartitionId {
    let partitions = u32::try_from(topic.shards.len()).unwrap_or(1).max(1);
    match key.or(id) {
        Some(text) => partition_of(text.as_bytes(), partitions),
        None => PartitionId(NEXT_PARTITION.fetch_add(1, Ordering::Relaxed) % partitions),
    }
}

/// The tail that the message must find: `If-Match: "incarnation:partition:end"`, or `If-None-Match: *`.
fn expected_end(
    call: &Call,
    incarnation: Incarnation,
    partition: PartitionId,
) -> Result<Option<u64>, Problem> {
    if let Some(text) = call.header("if-none-match")? {
        let only_star = Problem::invalid_header("If-None-Match", "only * is understood");
        return if text == "*" { Ok(Some(0)) } else { Err(only_star) };
    }
    let Some(text) = call.header("if-match")? else { return Ok(None) };
    let parts: Vec<u64> = text.trim_matches('"').split(':').filter_map(|part| part.parse().ok()).collect();
    let [life, at, end] = parts[..] else {
        return Err(Problem::invalid_header("If-Match", "not a tail tag"));
    };
    if life != incarnation.0 {
        return Err(Problem::new(ErrorCode::IncarnationGone, "the tag belongs to a deleted topic"));
    }
    if at != u64::from(partition.0) {
        return Err(Problem::invalid_header(
            "If-Match",
            "the message belongs to another partition than the tag",
        ));
    }
    Ok(Some(end))
}

fn answer(
    call: &Call,
    path: &TopicPath,
    topic: &TopicDescription,
    (partition, placed): (PartitionId, Placed),
    (level, keyed, stages, net): (Level, bool, Stages, Duration),
) -> Result<Response, Problem> {
    let status = match level {
        _ if placed.duplicate => StatusCode::OK,
        Level::Memory => StatusCode::ACCEPTED,
        _ => StatusCode::CREATED,
    };
    let is_minimal = call.header("prefer")?.is_some_and(|prefer| prefer.contains("return=minimal"));
    let mut response = if is_minimal {
        empty(StatusCode::NO_CONTENT)
    } else {
        json(
            status,
            &Published {
                partition: partition.0,
                offset: Some(placed.base_offset),
                ts: Some(placed.ts_ms),
                level: topics::level(level),
                is_final: placed.is_final,
                term: (!placed.is_final).then_some(placed.term),
                duplicate: placed.duplicate,
            },
        )?
    };
    let next = placed.base_offset + u64::from(placed.count);
    let location = format!(
        "/v1/ns/{}/topics/{}/messages/{partition}/{}",
        path.namespace, path.topic, placed.base_offset
    );
    let total = call.received.elapsed();
    observe(call, &stages, total);
    let headers = response.headers_mut();
    headers.insert("confirm-level", HeaderValue::from_static(level.as_str()));
    headers.insert("next-offset", HeaderValue::from(next));
    if keyed && placed.duplicate {
        headers.insert("idempotency-replayed", HeaderValue::from_static("true"));
    }
    for (name, value) in [
        (LOCATION, location),
        (ETAG, format!("\"{}:{partition}:{next}\"", topic.incarnation)),
        (http::HeaderName::from_static("server-timing"), timing(&stages, net, total)),
    ] {
        if let Ok(value) = HeaderValue::from_str(&value) {
            headers.insert(name, value);
        }
    }
    Ok(response)
}

/// Stages in milliseconds, as browsers and k6 read them.
fn timing(stages: &Stages, net: Duration, total: Duration) -> String {
    let ms = |us: u32| f64::from(us) / 1000.0;
    let node = Duration::from_micros(u64::from(stages.node_us));
    let gw = total.saturating_sub(net).as_secs_f64() * 1000.0;
    let wire = net.saturating_sub(node).as_secs_f64() * 1000.0;
    format!(
        "gw;dur={gw:.3}, net;dur={wire:.3}, queue;dur={:.3}, write;dur={:.3}, fsync;dur={:.3}, quorum;dur={:.3}, \
         total;dur={:.3}, batch;desc=\"n={} b={}\"",
        ms(stages.queue_us),
        ms(stages.write_us),
        ms(stages.fsync_us),
        ms(stages.quorum_us),
        total.as_secs_f64() * 1000.0,
        stages.batch_records,
        stages.batch_bytes,
    )
}

fn observe(call: &Call, stages: &Stages, total: Duration) {
    for (stage, us) in [
        ("queue", stages.queue_us),
        ("write", stages.write_us),
        ("fsync", stages.fsync_us),
        ("quorum", stages.quorum_us),
    ] {
        call.edge.stages.with_label_values(&[stage]).observe(f64::from(us) / 1e6);
    }
    call.edge.stages.with_label_values(&["total"]).observe(total.as_secs_f64());
}

pub(super) async fn producer(call: Call) -> Result<Response, Problem> {
    let topic = topics::find(&call.edge, &call.topic()?, false).await?;
    let id = call.route.path("producer").to_owned();
    let mut partitions = Vec::new();
    for (partition, shard) in (0u32..).zip(&topic.shards) {
        let key = ProducerKey::of(Incarnation(topic.incarnation), &id);
        let request =
            ProducerStateRequest { incarnation: topic.incarnation, partition, producer: key.0.into() };
        let state = call.edge.storage.call::<ProducerState>(
            Method::ProducerState,
            ShardId(*shard),
            &request,
            Duration::ZERO,
        );
        match state.await {
            Ok(state) => partitions.push(ProducerPartition {
                partition,
                epoch: state.epoch,
                last_seq: state.last_seq,
                last_offset: state.last_offset,
            }),
            Err(refusal) if refusal.error_code() == ErrorCode::ProducerNotFound => {}
            Err(refusal) => return Err(refused(&refusal)),
        }
    }
    if partitions.is_empty() {
        return Err(Problem::new(
            ErrorCode::ProducerNotFound,
            format!("no partition knows the producer {id:?}"),
        ));
    }
    json(StatusCode::OK, &Producer { id, partitions })
}
