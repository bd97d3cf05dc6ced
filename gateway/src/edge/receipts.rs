//! What has become of a confirm, and what is known of a producer.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use http::header::CACHE_CONTROL;
use weir_protocol::rpc::Level;

use super::dispatch::{Call, json};
use super::topics::level;
use crate::api::{self, Problem, Producer, ProducerPartition};
use crate::service::publish::Receipt;

/// Resolves a receipt, waiting for a level if asked to.
pub(super) async fn receipt(call: Call) -> Result<Response, Problem> {
    let token = call.route.path("receipt").to_owned();
    let receipt = Receipt::decode(&token)?;
    let asked = call.route.query("level").and_then(Level::from_text);
    let wait = Duration::from_secs(call.route.integer("wait").unwrap_or(0));
    let topic = call.topic()?;
    let state = call.edge.services.publisher.receipt_state(&topic, &receipt, asked, wait).await?;
    let body = api::Receipt {
        receipt: token,
        partition: receipt.partition.0,
        offset: receipt.offset.0,
        level: level(state.level),
        is_final: state.lost || state.level >= Level::Quorum,
        lost: state.lost,
        ts: state.ts.map(|ts| ts.0),
    };
    let mut response = json(StatusCode::OK, &body)?;
    response.headers_mut().insert(CACHE_CONTROL, http::HeaderValue::from_static("no-store"));
    Ok(response)
}

/// A producer on every partition that has seen it.
pub(super) async fn producer(call: Call) -> Result<Response, Problem> {
    let id = call.route.path("producer").to_owned();
    let topic = call.topic()?;
    let found = call.edge.services.publisher.producer(&topic, &id).await?;
    let partitions = found.into_iter().map(|at| ProducerPartition {
        partition: at.partition.0,
        epoch: at.epoch.0,
        last_seq: at.last_seq.0,
        last_offset: at.last_offset.0,
    });
    json(StatusCode::OK, &Producer { id, partitions: partitions.collect() })
}
