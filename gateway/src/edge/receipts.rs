//! What has become of a confirm, and what is known of a producer.

use std::time::Duration;

use axum::response::Response;
use http::StatusCode;
use weir_protocol::rpc::Level;

use super::answer::json;
use super::call::Call;
use super::topics::level;
use crate::api::{self, Problem, Producer, ProducerPartition};
use crate::service::publish::{OutputReceipt, Receipt};

/// Resolves a receipt, waiting for a level if asked to.
pub(super) async fn receipt(call: Call) -> Result<Response, Problem> {
    let token = call.route.path("receipt").to_owned();
    if let Some(output) = OutputReceipt::decode(&token) {
        return output_receipt(&call, token, &output).await;
    }
    let receipt = Receipt::decode(&token)?;
    let (asked, wait) = asked(&call);
    let topic = call.topic()?;
    let publisher = &call.edge.services.publisher;
    let state = |wait| publisher.receipt_state(&topic, &receipt, asked, wait);
    let state = call.waited(wait, state(wait), state(Duration::ZERO)).await?;
    let body = api::Receipt {
        receipt: token,
        partition: receipt.partition.0,
        offset: Some(receipt.offset.0),
        level: level(state.level),
        is_final: state.lost || state.level >= Level::Quorum,
        lost: state.lost,
        ts: state.ts.map(|ts| ts.0),
    };
    shown(&body)
}

/// Level and time that a request asks to wait for.
fn asked(call: &Call) -> (Option<Level>, Duration) {
    let level = call.route.query("level").and_then(Level::from_text);
    (level, Duration::from_secs(call.route.integer("wait").unwrap_or(0)))
}

/// Resolves the receipt of what a settle published.
async fn output_receipt(call: &Call, token: String, output: &OutputReceipt) -> Result<Response, Problem> {
    let (asked, wait) = asked(call);
    let (topic, publisher) = (call.topic()?, &call.edge.services.publisher);
    let state = |wait| publisher.output_state(&topic, output, asked, wait);
    let state = call.waited(wait, state(wait), state(Duration::ZERO)).await?;
    shown(&api::Receipt {
        receipt: token,
        partition: output.partition.0,
        offset: None,
        level: level(state.level),
        is_final: state.level >= Level::Quorum,
        lost: state.lost,
        ts: None,
    })
}

fn shown(receipt: &api::Receipt) -> Result<Response, Problem> {
    json(StatusCode::OK, receipt)
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
