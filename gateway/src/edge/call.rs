//! What handlers are given: a request that may be handled, and what all of them share.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use axum::body::Body;
use bytes::Bytes;
use http::request::Parts;
use http::{HeaderMap, StatusCode};
use parking_lot::Mutex;
use prometheus::{IntCounterVec, Registry};
use tokio::sync::{OwnedSemaphorePermit, watch};
use ulid::Ulid;
use weir_protocol::decimal::integer;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::TopicPath;
use weir_protocol::limits::INTEGER_MAX;

use super::body::{BodyBudget, too_large};
use super::compress::Document;
use super::console::Console;
use super::counts::QueueCounts;
use super::from_json::from_json;
use super::route::Route;
use crate::answers::{Answers, Client};
use crate::api::{CONFIG_BYTES_MAX, Problem};
use crate::auth::{Authenticator, Op, Principal, Resource, authorize};
use crate::config::GatewayConfig;
use crate::service::{ServiceError, Services};
use crate::stages::StageSeconds;
use crate::ws::WebSockets;

/// The operation of what belongs to none, among counted requests.
pub(super) const UNROUTED: &str = "none";

/// Bodies above this may have a long answer.
const ANSWERED_BYTES: usize = 64 << 10;

/// What every request needs.
pub(crate) struct Edge {
    /// Settings.
    pub(crate) config: GatewayConfig,
    /// The operator console.
    pub(crate) console: Console,
    /// What handlers are given.
    pub(crate) services: Services,
    /// WebSockets.
    pub(crate) sockets: WebSockets,
    /// Who is calling.
    pub(crate) authenticator: Box<dyn Authenticator>,
    /// Bodies of requests.
    pub(crate) bodies: BodyBudget,
    /// Answers that are held.
    pub(crate) answers: Arc<Answers>,
    /// Counters and histograms.
    pub(crate) registry: Registry,
    /// Requests by operation and status class.
    pub(crate) requests: IntCounterVec,
    /// Seconds per stage of confirmed publishes.
    pub(crate) stages: StageSeconds,
    /// Pulls, and what became of what they leased.
    pub(crate) queue_counts: QueueCounts,
    /// Becomes true when the gateway shuts down.
    pub(crate) drain: watch::Receiver<bool>,
    /// The OpenAPI document, made once.
    pub(crate) openapi: Document,
    /// No new work: `/readyz` says so.
    pub(crate) is_draining: AtomicBool,
}

impl Edge {
    /// Counts an answer.
    pub(super) fn count(&self, operation: &'static str, status: StatusCode) {
        self.requests.with_label_values(&[operation, class(status)]).inc();
    }

    /// Counts the answer to what belongs to no operation.
    pub(crate) fn count_unrouted(&self, status: u16) {
        self.count(UNROUTED, StatusCode::from_u16(status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR));
    }
}

/// A request that may be handled.
pub(super) struct Call {
    pub(super) edge: Arc<Edge>,
    pub(super) route: Route,
    pub(super) principal: Principal,
    /// Whose answer it is.
    pub(super) client: Arc<Client>,
    /// What stands before all paths where the client is.
    pub(super) base: String,
    /// As the client requested it, for links.
    pub(super) path: String,
    /// What stands behind its `?`, as it came.
    pub(super) query: String,
    pub(super) headers: HeaderMap,
    pub(super) received: Instant,
    /// Names it in logs and problems.
    pub(super) request_id: Ulid,
    /// Behind a lock only because a body may not be shared between threads; a call has one owner.
    body: Mutex<Option<Body>>,
    /// The body's place in the budget, while the request is handled.
    held: Option<OwnedSemaphorePermit>,
}

impl Call {
    /// A request that `principal` may make. It came at this time, is named so, and stands below this base.
    pub(super) fn new(
        edge: Arc<Edge>,
        route: Route,
        (principal, client): (Principal, Arc<Client>),
        head: Parts,
        body: Body,
        (received, request_id, base): (Instant, Ulid, String),
    ) -> Self {
        Self {
            edge,
            route,
            principal,
            client,
            path: [&base, head.uri.path()].concat(),
            base,
            query: head.uri.query().unwrap_or_default().to_owned(),
            headers: head.headers,
            received,
            request_id,
            body: Mutex::new(Some(body)),
            held: None,
        }
    }

    /// What `waiting` finds, which takes up to `wait`; once the gateway stops, what `at_once` does.
    pub(super) async fn waited<T: Send>(
        &self,
        wait: Duration,
        waiting: impl Future<Output = T> + Send,
        at_once: impl Future<Output = T> + Send,
    ) -> T {
        let mut drain = self.edge.drain.clone();
        // An error means that the gateway is gone: the same.
        let stops = async { drop(drain.wait_for(|drains| *drains).await) };
        tokio::select! {
            biased;
            found = waiting => found,
            () = stops, if !wait.is_zero() => at_once.await,
        }
    }

    /// The topic that the path names.
    pub(super) fn topic(&self) -> Result<TopicPath, Problem> {
        Ok(TopicPath {
            tenant: self.principal.tenant.clone(),
            namespace: self.route.name("ns")?,
            topic: self.route.name("topic")?,
        })
    }

    /// A header's text.
    pub(super) fn header(&self, name: &'static str) -> Result<Option<&str>, Problem> {
        let mut values = self.headers.get_all(name).iter();
        let Some(value) = values.next() else { return Ok(None) };
        if values.next().is_some() {
            return Err(Problem::invalid_header(name, "given twice"));
        }
        value.to_str().map(Some).map_err(|_| Problem::invalid_header(name, "not visible ASCII"))
    }

    /// A header's number, which JSON can tell.
    pub(super) fn header_number(&self, name: &'static str) -> Result<Option<u64>, Problem> {
        let parse = |text: &str| {
            let why = || format!("{text:?} is no number from 0 to {INTEGER_MAX}");
            integer(text).ok_or_else(|| Problem::invalid_header(name, why()))
        };
        self.header(name)?.map(parse).transpose()
    }

    /// The whole body, at most `limit` bytes; more is refused before it is buffered.
    pub(super) async fn body(&mut self, limit: usize) -> Result<Bytes, Problem> {
        let declared = self.headers.get(http::header::CONTENT_LENGTH).and_then(|text| text.to_str().ok());
        if declared.and_then(|text| text.parse::<usize>().ok()).is_some_and(|length| length > limit) {
            return Err(too_large(limit));
        }
        let Some(body) = self.body.get_mut().take() else { return Ok(Bytes::new()) };
        let held = self.edge.bodies.read(body, limit).await?;
        if held.bytes.len() > ANSWERED_BYTES {
            // Its answer may tell as much of each message, and cannot be refused any more.
            self.client.check(held.bytes.len() as u64).map_err(ServiceError::from)?;
        }
        self.held = held.permit;
        Ok(held.bytes)
    }

    /// The body as JSON; an empty one is the type's default.
    pub(super) async fn json<T: serde::de::DeserializeOwned + Default>(&mut self) -> Result<T, Problem> {
        from_json(&self.body(CONFIG_BYTES_MAX).await?)
    }
}

/// Asks the one decision.
pub(super) fn permitted(principal: &Principal, op: Op, resource: &Resource<'_>) -> Result<(), Problem> {
    authorize(principal, op, resource).map_err(|denied| {
        let mut problem = Problem::new(ErrorCode::Forbidden, denied.to_string());
        problem.missing_grant = Some(format!("{} {}", denied.op, denied.resource));
        problem
    })
}

const fn class(status: StatusCode) -> &'static str {
    match status.as_u16() {
        100..=199 => "1xx",
        200..=299 => "2xx",
        300..=399 => "3xx",
        400..=499 => "4xx",
        _ => "5xx",
    }
}
