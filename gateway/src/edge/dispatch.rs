//! One function for every request: who, where, may it, then the handler.

use std::net::IpAddr;
use std::panic::AssertUnwindSafe;
use std::sync::Arc;
use std::sync::atomic::Ordering;
use std::time::Instant;

use axum::body::Body;
use axum::response::Response;
use bytes::Bytes;
use futures_util::FutureExt as _;
use http::header::{ACCEPT_ENCODING, ALLOW, CACHE_CONTROL, RETRY_AFTER, SEC_WEBSOCKET_VERSION, VARY};
use http::{HeaderMap, HeaderValue, Method, Request, StatusCode};
use ulid::Ulid;
use weir_protocol::error::{ErrorCode, Outcome};
use weir_protocol::ids::Name;
use weir_protocol::rpc::Level;
use weir_protocol::ws::{SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON};

use super::answer::{empty, json, with_type};
use super::call::{Call, Edge, UNROUTED, permitted};
use super::kept::{Asked, check_room};
use super::route::Route;
use super::{
    compress, confirm, events, forks, namespaces, operate, origin, proxy, publish, queues, read, receipts,
    removal, repeated, subscriptions, topics,
};
use crate::answers::Client;
use crate::api::operations::{PUBLIC, Target};
use crate::api::{Limits, Problem, REQUEST_HEADERS_BYTES_MAX, REQUEST_HEADERS_MAX, Readiness, Service};
use crate::auth::{Credentials, KeptHeaders, Principal, Resource};
use crate::ws;

/// What the gateway as a whole is asked by.
const EVERY_METHOD: &str = "GET, HEAD, PUT, PATCH, POST, DELETE, OPTIONS";
/// Whoever asks whether the gateway is ready gets an answer within this.
const READY_TIME_MAX: std::time::Duration = std::time::Duration::from_secs(1);

/// Answers one request.
pub(crate) async fn handle(
    edge: Arc<Edge>,
    (peer, client): (IpAddr, Arc<Client>),
    request: Request<Body>,
) -> Response {
    let received = Instant::now();
    let (mut head, body) = request.into_parts();
    let request_id = Ulid::new();
    let is_head = head.method == Method::HEAD;
    let asked = Asked::new(&head.method, head.version);
    // Cheap checks first: only a request for this gateway may make it ask storage for its origin.
    let checked = asked
        .check(&client)
        .and_then(|()| check_headers(&head.headers))
        .and_then(|()| check_transfer(&head.headers))
        .and_then(|()| repeated::check(&head.headers))
        .and_then(|()| origin::check_host(&edge.config, &head.uri, &head.headers))
        .and_then(|()| proxy::base(&edge.config, &head.headers));
    let origin = match checked {
        Ok(base) => {
            proxy::take_off(&base, &mut head.uri);
            known_origin(&edge, &head).await.map(|()| base)
        }
        Err(problem) => Err(problem),
    };
    // Whose origin is refused learns nothing from the answer but its status.
    let reader = head.headers.get(http::header::ORIGIN).filter(|_| origin.is_ok()).cloned();
    let (operation, result) = match origin {
        Ok(base) => {
            let told = (received, request_id, base);
            let served =
                AssertUnwindSafe(serve(&edge, (peer, &client), head, body, told)).catch_unwind().await;
            served.unwrap_or_else(|_| (UNROUTED, Err(panicked())))
        }
        Err(problem) => (UNROUTED, Err(problem)),
    };
    let result = result.and_then(|response| asked.kept(&client, response));
    let mut response = result.unwrap_or_else(|problem| problem_response(problem, request_id));
    let status = response.status();
    let headers = response.headers_mut();
    if let Ok(id) = HeaderValue::from_maybe_shared(Bytes::from(request_id.to_string())) {
        headers.insert("x-request-id", id);
    }
    if status == StatusCode::TOO_MANY_REQUESTS {
        confirm::add_budget(&edge, headers);
    }
    // Without a word a cache may keep an answer for as long as it likes (RFC 9111, section 4.2.2).
    headers.entry(CACHE_CONTROL).or_insert(HeaderValue::from_static("no-store"));
    // Also of who names none: a browser may keep it for a page of another origin.
    headers.append(VARY, HeaderValue::from_static("Origin"));
    if let Some(reader) = reader {
        origin::add_cors(reader, headers);
    }
    edge.count(operation, status);
    if is_head {
        *response.body_mut() = Body::empty();
    }
    response
}

async fn serve(
    edge: &Arc<Edge>,
    (peer, client): (IpAddr, &Arc<Client>),
    head: http::request::Parts,
    body: Body,
    (received, request_id, base): (Instant, Ulid, String),
) -> (&'static str, Result<Response, Problem>) {
    if head.method == Method::OPTIONS {
        return ("preflight", options(edge, &head));
    }
    if let Some(answer) = edge.console.answer(&head.method, (&base, head.uri.path()), &head.headers) {
        return ("console", answer);
    }
    let route = match Route::find(&head.method, &head.uri) {
        Ok(route) => route,
        Err(problem) => return (UNROUTED, Err(problem)),
    };
    let id = route.operation.id;
    let principal = match known(edge, peer, &head, &route) {
        Ok(principal) => principal,
        Err(problem) => return (id, Err(problem)),
    };
    if id == "openWebSocket" {
        return (id, open_websocket(edge, (peer, client), head, principal));
    }
    let by = (principal, Arc::clone(client));
    let call = Call::new(Arc::clone(edge), route, by, head, body, (received, request_id, base));
    (id, run(id, call).await)
}

/// What may be asked of what is there, and by browsers for pages of other origins.
fn options(edge: &Edge, head: &http::request::Parts) -> Result<Response, Problem> {
    let path = head.uri.path();
    // The console answers any method where it is, and this one with what it takes.
    let refused = match edge.console.answer(&head.method, ("", path), &head.headers) {
        Some(answer) => answer.err(),
        None if path == "*" => None,
        None => Route::find(&head.method, &head.uri).err(),
    };
    let allow = match refused {
        Some(Problem { allow: Some(allow), .. }) => allow,
        Some(problem) => return Err(problem),
        None => EVERY_METHOD.to_owned(),
    };
    let mut response = empty(StatusCode::NO_CONTENT);
    if let Ok(allow) = HeaderValue::try_from(allow) {
        response.headers_mut().insert(ALLOW, allow);
    }
    origin::preflight(&head.headers, response.headers_mut());
    Ok(response)
}

/// The connection becomes a WebSocket; each `open` and `sub` on it is authorised on its own.
fn open_websocket(
    edge: &Arc<Edge>,
    (peer, client): (IpAddr, &Arc<Client>),
    head: http::request::Parts,
    principal: Principal,
) -> Result<Response, Problem> {
    if edge.is_draining.load(Ordering::Acquire) {
        return Err(Problem::new(ErrorCode::Draining, "the gateway is shutting down"));
    }
    let (authenticating, headers) = (Arc::clone(edge), KeptHeaders::of(&head.headers));
    let authenticate = Arc::new(move |token: &str| {
        let credentials = Credentials { peer, headers: &headers.to_map(), token: Some(token) };
        authenticating.authenticator.authenticate(&credentials)
    });
    // Somebody vouched for its origin: if not the gateway, a namespace.
    let is_guest = origin::check_origin(&edge.config, &head.uri, &head.headers).is_err();
    let guest = sent_origin(&head.headers).filter(|_| is_guest).map(str::to_owned);
    ws::upgrade(&edge.sockets, (head, Arc::clone(client)), principal, authenticate, guest)
}

/// Refuses origins that neither the gateway nor the namespace of the path knows. A WebSocket is opened to the pages of
/// any namespace: which it may use is asked for each of its channels.
async fn known_origin(edge: &Edge, head: &http::request::Parts) -> Result<(), Problem> {
    let Err(problem) = origin::check_origin(&edge.config, &head.uri, &head.headers) else { return Ok(()) };
    let Some(origin) = sent_origin(&head.headers) else { return Err(problem) };
    let (namespaces, tenant) = (&edge.services.namespaces, Name::default_name());
    // Asked of storage, so only for origins that nobody else vouches for.
    let is_listed = match origin::namespace(head.uri.path()) {
        Some(namespace) => namespaces.lists(&tenant, &namespace, origin).await,
        None if head.uri.path() == origin::WEBSOCKET => edge.sockets.lets_in(&tenant, origin).await,
        None => Ok(false),
    };
    if is_listed? { Ok(()) } else { Err(problem) }
}

fn sent_origin(headers: &HeaderMap) -> Option<&str> {
    headers.get(http::header::ORIGIN).and_then(|origin| origin.to_str().ok())
}

/// Who asks, and that it may.
fn known(
    edge: &Edge,
    peer: IpAddr,
    head: &http::request::Parts,
    route: &Route,
) -> Result<Principal, Problem> {
    if PUBLIC.iter().any(|operation| operation.id == route.operation.id) {
        return Ok(Principal::with_grants(Name::default_name(), Vec::new()));
    }
    proxy::check(edge, head.version, &head.headers)?;
    let credentials = Credentials { peer, headers: &head.headers, token: None };
    let principal = edge
        .authenticator
        .authenticate(&credentials)
        .map_err(|error| Problem::new(ErrorCode::Unauthorized, error.to_string()))?;
    allowed(route, &principal)?;
    Ok(principal)
}

/// Refuses more header fields, or more bytes of them, than a request has a use for.
fn check_headers(headers: &HeaderMap) -> Result<(), Problem> {
    let bytes: usize = headers.iter().map(|(name, value)| name.as_str().len() + value.len()).sum();
    let refuse = |detail: String, limit: usize| {
        Err(Problem::new(ErrorCode::HeadersTooLarge, detail).with_limit(limit as u64))
    };
    if headers.len() > REQUEST_HEADERS_MAX {
        return refuse(
            format!("{} header fields; {REQUEST_HEADERS_MAX} are allowed", headers.len()),
            REQUEST_HEADERS_MAX,
        );
    }
    if bytes > REQUEST_HEADERS_BYTES_MAX {
        return refuse(
            format!("{bytes} bytes of headers; {REQUEST_HEADERS_BYTES_MAX} are allowed"),
            REQUEST_HEADERS_BYTES_MAX,
        );
    }
    Ok(())
}

/// Refuses a body with a transfer coding that nobody undoes. The HTTP library undoes one `chunked`, at the end,
/// and would take what is left for the body.
fn check_transfer(headers: &HeaderMap) -> Result<(), Problem> {
    match repeated::list(headers, "transfer-encoding") {
        Some(codings) if !codings.trim_ascii().eq_ignore_ascii_case(b"chunked") => {
            let detail = "Transfer-Encoding: chunked is understood, once and by itself";
            Err(Problem::new(ErrorCode::Malformed, detail).with_field("transfer-encoding"))
        }
        _ => Ok(()),
    }
}

/// A defect is the answer to one request, not the end of a connection.
fn panicked() -> Problem {
    tracing::error!("a request was not served because of a panic");
    Problem::new(ErrorCode::Internal, "the gateway failed while it served this request")
        .with_outcome(Outcome::Unknown)
}

/// Asks the one decision for everything the operation touches.
fn allowed(route: &Route, principal: &Principal) -> Result<(), Problem> {
    let ask = |resource: Resource<'_>| permitted(principal, route.operation.op, &resource);
    match route.operation.target {
        Target::Gateway => ask(Resource::Gateway),
        Target::Namespace => ask(Resource::Namespace(&route.name("ns")?)),
        Target::Topic => ask(Resource::Topic { namespace: &route.name("ns")?, topic: &route.name("topic")? }),
        Target::Subscription => ask(Resource::Subscription {
            namespace: &route.name("ns")?,
            subscription: &route.name("subscription")?,
        }),
        Target::TopicsOfQuery => {
            let namespace = route.name("ns")?;
            for topic in route.query_all("topic") {
                let topic =
                    Name::new(topic).map_err(|e| Problem::new(ErrorCode::InvalidName, e.to_string()))?;
                ask(Resource::Topic { namespace: &namespace, topic: &topic })?;
            }
            Ok(())
        }
    }
}

/// What there is most of has its room in each request. Anything else takes its own: with every message it would be
/// twice as much.
async fn run(id: &'static str, call: Call) -> Result<Response, Problem> {
    match id {
        "readHealth" => Ok(empty(StatusCode::NO_CONTENT)),
        "publishMessage" => publish::one(call).await,
        "publishBatch" => publish::batch(call).await,
        "pullMessages" => queues::pull(call).await,
        "settleMessages" => queues::settle(call).await,
        other => Box::pin(run_other(other, call)).await,
    }
}

async fn run_other(id: &'static str, call: Call) -> Result<Response, Problem> {
    check_room(&call).await?;
    match id {
        "readReadiness" => ready(&call.edge, call.route.query("verbose").is_some()).await,
        "readMetrics" => metrics(&call),
        "readOpenapi" => call.edge.openapi.answer(&call.headers),
        "describeService" => service(&call.edge).await,
        "listNamespaces" => namespaces::list(call).await,
        "createNamespace" => namespaces::put(call).await,
        "readNamespace" => namespaces::read(call).await,
        "updateNamespace" => namespaces::patch(call).await,
        "deleteNamespace" => namespaces::delete(call).await,
        "listTopics" => topics::list(call).await,
        "createTopic" => topics::create(call).await,
        "readTopic" => topics::read(call).await,
        "updateTopic" => topics::update(call).await,
        "deleteTopic" => topics::delete(call).await,
        "trimTopic" => removal::trim(call).await,
        "listSubscriptions" => subscriptions::list(call).await,
        "createSubscription" => subscriptions::create(call).await,
        "readSubscription" => subscriptions::read(call).await,
        "updateSubscription" => subscriptions::update(call).await,
        "deleteSubscription" => subscriptions::delete(call).await,
        "pauseSubscription" => subscriptions::pause(call, true).await,
        "resumeSubscription" => subscriptions::pause(call, false).await,
        "forkSubscription" => forks::fork(call).await,
        "seekSubscription" => queues::seek(call).await,
        "purgeSubscription" => removal::purge(call).await,
        "redriveDeadLetters" => operate::redrive(call).await,
        "listLeases" => queues::leases(call).await,
        "listMessagesOfState" => operate::state(call).await,
        "listDeadLetters" => operate::dead(call).await,
        "explainMessage" => operate::explain(call).await,
        "readReceipt" => receipts::receipt(call).await,
        "readProducer" => receipts::producer(call).await,
        "readMessages" if events::is_wanted(&call) => events::one_topic(call).await,
        "readMessages" => read::page(call).await,
        "readMessage" => read::one(call).await,
        "followEvents" => events::many_topics(call).await,
        other => Err(Problem::new(ErrorCode::Internal, format!("the operation {other} has no handler"))),
    }
}

async fn ready(edge: &Edge, verbose: bool) -> Result<Response, Problem> {
    if edge.is_draining.load(Ordering::Acquire) {
        return Err(Problem::new(ErrorCode::Draining, "the gateway is shutting down"));
    }
    let deadline = Instant::now() + READY_TIME_MAX;
    edge.services.storage.ready(deadline.into()).await?;
    if !verbose {
        return Ok(empty(StatusCode::NO_CONTENT));
    }
    let warnings = edge.services.storage.warnings(deadline.into()).await?;
    json(StatusCode::OK, &Readiness { ready: true, warnings })
}

fn metrics(call: &Call) -> Result<Response, Problem> {
    let text = prometheus::TextEncoder::new().encode_to_string(&call.edge.registry.gather());
    let text = text.map_err(|error| Problem::new(ErrorCode::Internal, error.to_string()))?;
    compress::passing(&call.headers, "text/plain; version=0.0.4", text.into())
}

async fn service(edge: &Edge) -> Result<Response, Problem> {
    // A gateway whose node is away has limits all the same.
    let _ = edge.services.storage.known((Instant::now() + READY_TIME_MAX).into()).await;
    json(
        StatusCode::OK,
        &Service {
            service: "weir".to_owned(),
            version: env!("CARGO_PKG_VERSION").to_owned(),
            limits: Limits::new(edge.config.record_bytes_max, edge.config.connections_max),
            levels: [Level::None, Level::Memory, Level::Durable, Level::Quorum, Level::Archived]
                .into_iter()
                .filter(|level| *level <= edge.services.storage.level_max())
                .map(topics::level)
                .collect(),
            subprotocols: vec![SUBPROTOCOL_JSON.to_owned(), SUBPROTOCOL_BINARY.to_owned()],
        },
    )
}

fn problem_response(mut problem: Problem, request_id: Ulid) -> Response {
    problem.request_id = request_id.to_string();
    let mut response = with_type("application/problem+json", problem.to_json().into());
    *response.status_mut() =
        StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let headers = response.headers_mut();
    if let Some(ms) = problem.retry_after_ms {
        headers.insert(RETRY_AFTER, HeaderValue::from(ms.div_ceil(1000)));
    }
    if let Some(Ok(methods)) = problem.allow.as_deref().map(HeaderValue::from_str) {
        headers.insert(ALLOW, methods);
    }
    if problem.status == 415 && problem.field.as_deref() == Some("content-encoding") {
        // What is understood instead (RFC 9110, section 15.5.16).
        headers.insert(ACCEPT_ENCODING, HeaderValue::from_static("identity"));
    }
    if problem.field.as_deref() == Some("sec-websocket-version") {
        // The one that is understood (RFC 6455, section 4.2.2).
        headers.insert(SEC_WEBSOCKET_VERSION, HeaderValue::from_static("13"));
    }
    if problem.status == 401 {
        headers.insert(http::header::WWW_AUTHENTICATE, HeaderValue::from_static("Bearer"));
    }
    response
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Bytes of what is made of each request.
    fn room<A, B, C, F: Future>(_: fn(A, B, C) -> F) -> usize {
        size_of::<F>()
    }

    #[test]
    fn a_message_takes_no_memory_for_what_other_requests_need() {
        let bytes = room(handle);
        assert!(bytes <= 8 << 10, "{bytes} bytes with every request: 12,672 were a tenth of a POST");
    }
}
