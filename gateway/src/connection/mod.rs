//! A client's connection, from its first byte of HTTP to its last.

use std::io;
use std::net::{IpAddr, SocketAddr};
use std::sync::Arc;
use std::time::Duration;

use axum::BoxError;
use axum::body::Body;
use futures_util::TryFutureExt as _;
use futures_util::future::Either;
use http::{HeaderName, HeaderValue, Request, Response, StatusCode};
use hyper::body::{Body as HttpBody, Incoming};
use hyper::rt;
use hyper::server::conn::http1;
use hyper::service::HttpService;
use hyper_util::rt::{TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::Watcher;
use hyper_util::service::TowerToHyperService;
use tokio::io::{AsyncRead, AsyncReadExt as _, AsyncWrite, AsyncWriteExt as _};
use tokio::sync::watch;
use tokio::time::Instant;
use tokio_io_timeout::TimeoutStream;
use tower::ServiceBuilder;
use tower_http::set_header::SetResponseHeaderLayer;
use weir_protocol::error::ErrorCode;

use crate::api::{Problem, REQUEST_HEADERS_BYTES_MAX, REQUEST_HEADERS_MAX};
use crate::config::ClientLimits;
use crate::edge::{Edge, handle};
use exchanges::{Answer, Exchanges, Left, Watched};
use lent::{Home, Lent};
use taking::{Streams, Taken, Taking};
use whole::Whole;

mod exchanges;
mod lent;
mod taking;
mod whole;

/// Bytes of one request's head.
const HEAD_BYTES_MAX: usize = 64 << 10;
/// Requests in flight on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;
/// Sending a last answer, and taking what was sent meanwhile, takes no longer than this.
const LEAVE_TIME_MAX: Duration = Duration::from_secs(1);

/// How serving a connection ended.
enum Ended {
    /// As it should, or by the client.
    Well,
    /// The head of a request did not come in time.
    Late,
    /// Behind a part of a head nothing comes any more.
    BrokenOff,
}

/// Serves a connection until it ends. What cannot be taken for a request is answered with a problem before it
/// is closed.
pub(crate) async fn serve(
    edge: &Arc<Edge>,
    stream: impl AsyncRead + AsyncWrite + Send + 'static,
    peer: SocketAddr,
    watcher: Watcher,
) {
    let limits = edge.config.limits;
    let mut stream = TimeoutStream::new(stream);
    stream.set_write_timeout(Some(limits.write_time_max));
    let exchanges = Exchanges::new();
    let watched = Watched::new(Box::pin(stream), Arc::clone(&exchanges));
    let ended = serve_http(edge, watched, &exchanges, peer, watcher).await;
    let Some(left) = exchanges.left() else { return };
    match last_problem(&limits, &ended, left) {
        Ok((problem, stream)) => {
            edge.count_unrouted(problem.status);
            take_leave(stream, peer, problem).await;
        }
        // Of a body that was not wanted the rest may be on its way.
        Err(mut stream) if matches!(ended, Ended::Well) && exchanges.has_begun() => {
            let _ = tokio::time::timeout(LEAVE_TIME_MAX, linger(&mut stream)).await;
        }
        Err(_) => {}
    }
}

async fn serve_http<S>(
    edge: &Arc<Edge>,
    mut watched: Watched<S>,
    exchanges: &Arc<Exchanges<S>>,
    peer: SocketAddr,
    watcher: Watcher,
) -> Ended
where
    S: AsyncRead + AsyncWrite + Unpin + Send + 'static,
{
    let head_time_max = edge.config.limits.head_time_max;
    let until = Instant::now() + head_time_max;
    if let Err(ended) = begin(edge, &mut watched, until).await {
        return ended;
    }
    let service = TowerToHyperService::new(service(edge, exchanges, peer.ip()));
    // Asked to tell the protocols apart, the library reads the first bytes by themselves, and takes a buffer of twice
    // the size for as long as the connection is open.
    let is_http1 = watched.is_http1();
    let io = TokioIo::new(watched);
    let connection = if is_http1 {
        let connection = http1(head_time_max).serve_connection(io, service).with_upgrades();
        Either::Left(watched_over(connection, edge.drain.clone(), watcher).map_err(BoxError::from))
    } else {
        let streams = Streams::new(edge.config.limits.write_time_max);
        let (service, builder) = (streams.watching(service), builder(head_time_max, streams));
        let connection = builder.serve_connection_with_upgrades(io, service).into_owned();
        Either::Right(Box::pin(watcher.watch(connection)))
    };
    let mut connection = std::pin::pin!(connection);
    // Until the protocol is recognised, the HTTP library knows no time limit.
    let ended = tokio::select! {
        ended = &mut connection => ended,
        () = tokio::time::sleep_until(until) => {
            if !exchanges.has_begun() {
                tracing::debug!(%peer, "a connection asked for nothing in time");
                return Ended::Late;
            }
            connection.await
        }
    };
    let Err(error) = ended else { return Ended::Well };
    tracing::debug!(%peer, %error, "a connection ended");
    match error.downcast_ref::<hyper::Error>() {
        Some(error) if error.is_timeout() => Ended::Late,
        Some(error) if error.is_incomplete_message() => Ended::BrokenOff,
        _ => Ended::Well,
    }
}

/// Waits for the first bytes.
async fn begin<S: AsyncRead + Unpin>(
    edge: &Edge,
    watched: &mut Watched<S>,
    until: Instant,
) -> Result<(), Ended> {
    let mut drain = edge.drain.clone();
    let begun = tokio::select! {
        begun = tokio::time::timeout_at(until, watched.begin()) => begun,
        // An error means that the gateway is gone: the same.
        _ = drain.wait_for(|drains| *drains) => return Err(Ended::Well),
    };
    match begun {
        Ok(begun) => begun.map_err(|_| Ended::Well),
        Err(_) => Err(Ended::Late),
    }
}

/// Serves a connection until it ends: once the gateway stops, with the request that is under way.
async fn watched_over<I, S>(
    connection: http1::UpgradeableConnection<I, S>,
    mut drain: watch::Receiver<bool>,
    watcher: Watcher,
) -> hyper::Result<()>
where
    I: rt::Read + rt::Write + Unpin + Send + 'static,
    S: HttpService<Incoming, Error: Into<BoxError>, ResBody: HttpBody<Error: Into<BoxError>> + 'static>,
{
    let mut connection = std::pin::pin!(connection);
    tokio::select! {
        ended = &mut connection => return ended,
        // An error means that the gateway is gone: the same.
        _ = drain.wait_for(|drains| *drains) => {}
    }
    connection.as_mut().graceful_shutdown();
    let ended = connection.await;
    // Who waits for all connections waits for this one until here.
    drop(watcher);
    ended
}

/// HTTP/1 alone, as [`builder`] has it.
fn http1(head_time_max: Duration) -> http1::Builder {
    let mut builder = http1::Builder::new();
    builder.timer(TokioTimer::new()).header_read_timeout(head_time_max).max_buf_size(HEAD_BYTES_MAX);
    builder
}

/// HTTP/1, or HTTP/2.
fn builder(head_time_max: Duration, streams: Streams) -> auto::Builder<Streams> {
    let mut builder = auto::Builder::new(streams);
    builder.http1().timer(TokioTimer::new()).header_read_timeout(head_time_max).max_buf_size(HEAD_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(HEAD_BYTES_MAX).unwrap_or(u32::MAX))
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(Duration::from_secs(20));
    builder
}

/// Said on every answer: nobody guesses its type.
const NO_SNIFFING: (HeaderName, HeaderValue) =
    (http::header::X_CONTENT_TYPE_OPTIONS, HeaderValue::from_static("nosniff"));
/// Said on every answer: pages of others do not embed it.
const NO_EMBEDDING: (HeaderName, HeaderValue) =
    (HeaderName::from_static("cross-origin-resource-policy"), HeaderValue::from_static("same-origin"));

/// What answers the requests of one connection.
fn service<S: Send + 'static>(
    edge: &Arc<Edge>,
    exchanges: &Arc<Exchanges<S>>,
    peer: IpAddr,
) -> impl tower::Service<
    Request<Incoming>,
    Response = Response<Answer<Body, S>>,
    Error = std::convert::Infallible,
    Future: Send + 'static,
> + Clone
+ Send
+ 'static {
    let (edge, exchanges) = (Arc::clone(edge), Arc::clone(exchanges));
    let home = Arc::<Home>::default();
    let client = edge.answers.client(peer);
    ServiceBuilder::new()
        .layer(SetResponseHeaderLayer::overriding(NO_SNIFFING.0, NO_SNIFFING.1))
        .layer(SetResponseHeaderLayer::overriding(NO_EMBEDDING.0, NO_EMBEDDING.1))
        .service_fn(move |mut request: Request<Incoming>| {
            exchanges.begin();
            let exchanges = Arc::clone(&exchanges);
            // In HTTP/2 alone.
            let taking = request.extensions_mut().remove::<Arc<Taking>>();
            let body = |body: Incoming| match &taking {
                Some(_) => Body::new(Whole(body)),
                None if body.is_end_stream() => Body::empty(),
                None => Body::new(Lent::new(body, &home)),
            };
            let has_asked = request.headers().contains_key(http::header::EXPECT);
            // With memory of its own: a connection has none for a request while there is none.
            let handled = Box::pin(handle(Arc::clone(&edge), (peer, Arc::clone(&client)), request.map(body)));
            let home = Arc::clone(&home);
            async move {
                let mut response = handled.await;
                if let Some(unread) = home.unread()
                    && !Box::pin(unread.take(has_asked)).await
                {
                    response
                        .headers_mut()
                        .insert(http::header::CONNECTION, HeaderValue::from_static("close"));
                }
                let taken = |body| match taking {
                    Some(taking) => Body::new(Taken::new(body, taking)),
                    None => body,
                };
                Ok(exchanges.answer(response.map(taken)))
            }
        })
}

/// What somebody has to be told who sent no request, and how; an error is the way to one who has to be told nothing.
fn last_problem<S>(limits: &ClientLimits, ended: &Ended, left: Left<S>) -> Result<(Problem, S), S> {
    let Left { stream, refused, has_part } = left;
    let problem = match (refused, ended) {
        (Some(400), _) => Problem::new(
            ErrorCode::Malformed,
            "this is no HTTP/1.1: the request line, a header, Content-Length or Transfer-Encoding cannot be read",
        ),
        // Too long a request line, or more header fields or bytes than the library has room for.
        (Some(_), _) => Problem::new(
            ErrorCode::HeadersTooLarge,
            format!(
                "a request has at most {REQUEST_HEADERS_MAX} header fields, {REQUEST_HEADERS_BYTES_MAX} bytes of them \
                 and {HEAD_BYTES_MAX} bytes with its request line"
            ),
        )
        .with_limit(REQUEST_HEADERS_BYTES_MAX as u64),
        (None, Ended::Late) if has_part => Problem::new(
            ErrorCode::RequestTimeout,
            format!("the head of the request was not there within {} ms", limits.head_time_max.as_millis()),
        ),
        (None, Ended::BrokenOff) if has_part => {
            Problem::new(ErrorCode::Malformed, "the request ends within its head")
        }
        _ => return Err(stream),
    };
    Ok((problem, stream))
}

/// A problem as the last answer of a connection in HTTP/1.
fn farewell(problem: &Problem) -> Vec<u8> {
    use std::fmt::Write as _;

    let body = problem.to_json();
    let status = StatusCode::from_u16(problem.status).unwrap_or(StatusCode::INTERNAL_SERVER_ERROR);
    let mut head = format!(
        "HTTP/1.1 {status}\r\ncontent-type: application/problem+json\r\ncontent-length: {}\r\n\
         cache-control: no-store\r\nconnection: close\r\ndate: {}\r\n",
        body.len(),
        httpdate::fmt_http_date(std::time::SystemTime::now()),
    );
    let retry_after = problem.retry_after_ms.map(|ms| HeaderValue::from(ms.div_ceil(1_000)));
    let request_id = HeaderValue::from_str(&problem.request_id).ok();
    let more = [
        Some(NO_SNIFFING),
        Some(NO_EMBEDDING),
        retry_after.map(|value| (http::header::RETRY_AFTER, value)),
        request_id.map(|value| (HeaderName::from_static("x-request-id"), value)),
    ];
    for (name, value) in more.into_iter().flatten() {
        // Writing to a text does not fail; each of the values is visible ASCII.
        let _ = write!(head, "{name}: {}\r\n", value.to_str().unwrap_or_default());
    }
    [head.as_bytes(), b"\r\n", &body].concat()
}

/// Answers with a problem and closes, within a second.
pub(crate) async fn take_leave(
    mut stream: impl AsyncRead + AsyncWrite + Unpin,
    peer: SocketAddr,
    mut problem: Problem,
) {
    problem.request_id = ulid::Ulid::new().to_string();
    tracing::debug!(%peer, request_id = problem.request_id, code = %problem.code, "answered to close");
    let tell = async {
        stream.write_all(&farewell(&problem)).await?;
        linger(&mut stream).await
    };
    if !matches!(tokio::time::timeout(LEAVE_TIME_MAX, tell).await, Ok(Ok(()))) {
        tracing::debug!(%peer, "a client did not take its last answer");
    }
}

/// Says that nothing follows, and takes what is sent until the client says so too: closing over it would reset the
/// connection, and the last answer with it.
async fn linger(stream: &mut (impl AsyncRead + AsyncWrite + Unpin)) -> io::Result<()> {
    stream.shutdown().await?;
    // Not in the future, where every connection had room for it.
    let mut sent = vec![0; 4 << 10];
    while stream.read(&mut sent).await? > 0 {}
    Ok(())
}
