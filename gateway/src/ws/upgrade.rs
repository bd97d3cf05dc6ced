//! The handshake of a WebSocket.

use std::sync::Arc;
use std::time::Duration;

use axum::body::Body;
use axum::response::Response;
use base64::Engine as _;
use base64::prelude::BASE64_STANDARD;
use http::header::{
    CONNECTION, HeaderName, SEC_WEBSOCKET_ACCEPT, SEC_WEBSOCKET_EXTENSIONS, SEC_WEBSOCKET_KEY,
    SEC_WEBSOCKET_PROTOCOL, SEC_WEBSOCKET_VERSION, UPGRADE,
};
use http::request::Parts;
use http::{HeaderMap, HeaderValue, Method, StatusCode};
use hyper::upgrade::OnUpgrade;
use hyper_util::rt::TokioIo;
use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use tokio_tungstenite::WebSocketStream;
use tokio_tungstenite::tungstenite::handshake::derive_accept_key;
use tokio_tungstenite::tungstenite::protocol::{Role, WebSocketConfig};
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::Name;
use weir_protocol::limits::WS_MESSAGE_BYTES_MAX;
use weir_protocol::ws::{SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON};

use super::deflate::{Deflate, Wire};
use super::gate::Gated;
use super::output::Form;
use super::pool::Pool;
use super::session::{Authenticate, Now, Session, SessionConfig};
use super::socket::Socket;
use crate::answers::Client;
use crate::api::Problem;
use crate::auth::Principal;
use crate::service::{ListedOrigins, ServiceError, Services};
use crate::stages::StageSeconds;

/// Bytes read from a socket at once: what an idle one holds.
const READ_BUFFER_BYTES: usize = 4 << 10;
/// Bytes collected before they are written without being asked to flush.
const WRITE_BUFFER_BYTES: usize = 32 << 10;

/// Limits of a gateway's WebSockets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SocketLimits {
    /// Most sockets at once.
    pub(crate) sockets_max: usize,
    /// Largest payload of a record, in bytes.
    pub(crate) record_bytes_max: usize,
    /// A client must take what one turn has for it within this.
    pub(crate) write_time_max: Duration,
}

/// All WebSockets of a gateway.
pub(crate) struct WebSockets {
    gated: Arc<Gated>,
    config: SessionConfig,
    drain: watch::Receiver<bool>,
    close: watch::Receiver<bool>,
    places: Arc<Semaphore>,
    sockets_max: usize,
    write_time_max: Duration,
    open: IntGauge,
    stages: StageSeconds,
    deflate: Arc<Deflate>,
    listed: ListedOrigins,
}

/// One socket's place, until it is closed.
struct Place {
    _permit: OwnedSemaphorePermit,
    open: IntGauge,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.open.dec();
    }
}

impl WebSockets {
    /// Sockets over `services`, counted by `open`, whose confirms are in `stages` and messages deflated by
    /// `deflate`. They are told to go when `drain` becomes true, and are gone when `close` does.
    pub(crate) fn new(
        services: Services,
        limits: SocketLimits,
        ((open, stages), deflate): ((IntGauge, StageSeconds), Deflate),
        (drain, close): (watch::Receiver<bool>, watch::Receiver<bool>),
    ) -> Self {
        let sockets_max = limits.sockets_max.min(Semaphore::MAX_PERMITS);
        let record_bytes_max = limits.record_bytes_max;
        let pool = Pool::new(services.storage.publish_permits());
        Self {
            listed: ListedOrigins::new(services.namespaces.clone()),
            gated: Gated::open(services),
            config: SessionConfig { record_bytes_max, pool },
            drain,
            close,
            places: Arc::new(Semaphore::new(sockets_max)),
            sockets_max,
            write_time_max: limits.write_time_max,
            open,
            stages,
            deflate: Arc::new(deflate),
        }
    }

    /// Most sockets at once.
    pub(crate) fn max(&self) -> usize {
        self.sockets_max
    }

    /// What the windows of publishing channels are made of.
    pub(crate) fn pool(&self) -> Arc<Pool> {
        Arc::clone(&self.config.pool)
    }

    /// True if pages of `origin` may connect although the gateway itself does not know it: some namespace
    /// lists it, or did a second ago. What they may use is looked at for each channel.
    ///
    /// # Errors
    /// What the meta group's leader says.
    pub(crate) async fn lets_in(&self, tenant: &Name, origin: &str) -> Result<bool, ServiceError> {
        self.listed.has(tenant, origin).await
    }

    fn place(&self) -> Option<Place> {
        let permit = Arc::clone(&self.places).try_acquire_owned().ok()?;
        self.open.inc();
        Some(Place { _permit: permit, open: self.open.clone() })
    }

    /// Waits until all sockets are closed; new ones are refused from now on.
    pub(crate) async fn closed(&self) {
        let all = u32::try_from(self.sockets_max).unwrap_or(u32::MAX);
        // Closed only here, and never before: nobody else closes it.
        let _all = self.places.acquire_many(all).await;
    }
}

/// Turns a request into a WebSocket. The caller was authenticated and may connect; `authenticate` checks tokens that
/// come in frames. `guest` is the origin of a page that only namespaces let in: each channel asks its own.
///
/// # Errors
/// The request is no handshake, names no subprotocol of ours, offers extensions in a way that cannot be read,
/// or there are too many sockets.
pub(crate) fn upgrade(
    sockets: &WebSockets,
    (mut head, client): (Parts, Arc<Client>),
    principal: Principal,
    authenticate: Authenticate,
    guest: Option<String>,
) -> Result<Response, Problem> {
    let form = form(&head.headers)?;
    let agreed = sockets.deflate.agree(form, &head.headers);
    let agreed =
        agreed.map_err(|error| Problem::invalid_header("Sec-WebSocket-Extensions", error.to_string()))?;
    let place = sockets.place().ok_or_else(|| {
        let limit = sockets.sockets_max as u64;
        Problem::new(ErrorCode::TooManyRequests, format!("{limit} WebSockets are open")).with_limit(limit)
    })?;
    let accept = accept_key(&head)?;
    let upgrade = head.extensions.remove::<OnUpgrade>().ok_or_else(|| no_handshake("not over HTTP/1.1"))?;
    let gated = guest.map_or_else(|| Arc::clone(&sockets.gated), |origin| sockets.gated.for_guest(origin));
    let (config, drain, stages) = (sockets.config.clone(), sockets.drain.clone(), sockets.stages.clone());
    let deflate = agreed.map(|_| Arc::clone(&sockets.deflate));
    let (write_time_max, mut close) = (sockets.write_time_max, sockets.close.clone());
    tokio::spawn(async move {
        match upgrade.await {
            Ok(stream) => {
                let stream = Wire::new(TokioIo::new(stream), deflate);
                let stream =
                    WebSocketStream::from_raw_socket(stream, Role::Server, Some(stream_config())).await;
                let id = ulid::Ulid::new().to_string();
                let session = Session::new(Now::read(), id, config, principal, authenticate);
                let socket = Box::new(Socket::new(stream, form, (gated, client), stages, session));
                tokio::select! {
                    () = socket.run(drain, write_time_max) => {}
                    // An error means that the gateway is gone: the same.
                    _ = close.wait_for(|closing| *closing) => {}
                }
            }
            Err(error) => tracing::debug!(%error, "a connection did not become a WebSocket"),
        }
        drop(place);
    });
    let mut response = Response::new(Body::empty());
    *response.status_mut() = StatusCode::SWITCHING_PROTOCOLS;
    let headers = response.headers_mut();
    headers.insert(CONNECTION, HeaderValue::from_static("upgrade"));
    headers.insert(UPGRADE, HeaderValue::from_static("websocket"));
    headers.insert(SEC_WEBSOCKET_ACCEPT, accept);
    headers.insert(SEC_WEBSOCKET_PROTOCOL, HeaderValue::from_static(form.name()));
    if let Some(agreed) = agreed {
        headers.insert(SEC_WEBSOCKET_EXTENSIONS, agreed.header());
    }
    Ok(response)
}

fn stream_config() -> WebSocketConfig {
    WebSocketConfig::default()
        .max_message_size(Some(WS_MESSAGE_BYTES_MAX))
        .max_frame_size(Some(WS_MESSAGE_BYTES_MAX))
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
}

/// Checks what RFC 6455, section 4.2.1, asks of a request; the answer's `Sec-WebSocket-Accept`.
fn accept_key(head: &Parts) -> Result<HeaderValue, Problem> {
    let holds = |name: HeaderName, wanted: &str| {
        let values = head.headers.get_all(name).iter().filter_map(|value| value.to_str().ok());
        values.flat_map(|value| value.split(',')).any(|value| value.trim().eq_ignore_ascii_case(wanted))
    };
    if head.method != Method::GET {
        return Err(no_handshake("the method is not GET"));
    }
    if !holds(CONNECTION, "upgrade") {
        return Err(no_handshake("Connection does not say upgrade"));
    }
    if !holds(UPGRADE, "websocket") {
        return Err(no_handshake("Upgrade does not say websocket"));
    }
    if !holds(SEC_WEBSOCKET_VERSION, "13") {
        return Err(Problem::invalid_header("Sec-WebSocket-Version", "13 is understood"));
    }
    let key = head.headers.get(SEC_WEBSOCKET_KEY).ok_or_else(|| no_handshake("no Sec-WebSocket-Key"))?;
    // Sixteen bytes (section 4.2.1): whoever sends another has not made it for this handshake.
    if !BASE64_STANDARD.decode(key).is_ok_and(|nonce| nonce.len() == 16) {
        return Err(Problem::invalid_header("Sec-WebSocket-Key", "not 16 bytes in Base64"));
    }
    let accept = derive_accept_key(key.as_bytes());
    HeaderValue::try_from(accept).map_err(|_| no_handshake("Sec-WebSocket-Key cannot be answered"))
}

fn no_handshake(why: &str) -> Problem {
    Problem::new(ErrorCode::Malformed, format!("not a WebSocket handshake: {why}"))
}

/// The form that will be chosen: the binary one if the client offers both.
fn form(headers: &HeaderMap) -> Result<Form, Problem> {
    let offered = headers.get_all("sec-websocket-protocol").iter().filter_map(|value| value.to_str().ok());
    let names = offered.flat_map(|value| value.split(',')).map(str::trim);
    let forms: Vec<_> = names.filter_map(Form::from_name).collect();
    [Form::Binary, Form::Json].into_iter().find(|form| forms.contains(form)).ok_or_else(|| {
        Problem::invalid_header(
            "Sec-WebSocket-Protocol",
            format!("{SUBPROTOCOL_JSON} or {SUBPROTOCOL_BINARY}"),
        )
    })
}
