//! The handshake of a WebSocket.

use std::sync::Arc;

use axum::extract::FromRequestParts;
use axum::extract::ws::WebSocketUpgrade;
use axum::response::Response;
use http::HeaderMap;
use http::request::Parts;
use prometheus::IntGauge;
use tokio::sync::{OwnedSemaphorePermit, Semaphore, watch};
use weir_protocol::error::ErrorCode;
use weir_protocol::limits::WS_MESSAGE_BYTES_MAX;
use weir_protocol::ws::{SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON};

use super::output::Form;
use super::publishing::Amount;
use super::session::{Authenticate, Now, Session, SessionConfig};
use super::socket::Socket;
use crate::api::Problem;
use crate::auth::Principal;
use crate::service::Services;

/// Bytes read from a socket at once: what an idle one holds.
const READ_BUFFER_BYTES: usize = 8 << 10;
/// Bytes collected before they are written without being asked to flush.
const WRITE_BUFFER_BYTES: usize = 32 << 10;
/// Credit of a publishing channel.
const WINDOW: Amount = Amount { msgs: 8_192, bytes: 4 << 20 };

/// Limits of a gateway's WebSockets.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SocketLimits {
    /// Most sockets at once.
    pub(crate) sockets_max: usize,
    /// Largest payload of a record, in bytes.
    pub(crate) record_bytes_max: usize,
}

/// All WebSockets of a gateway.
pub(crate) struct WebSockets {
    services: Services,
    config: SessionConfig,
    drain: watch::Receiver<bool>,
    places: Arc<Semaphore>,
    sockets_max: usize,
    open: IntGauge,
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
    /// Sockets over `services`, counted by `open`. They are told to go when `drain` becomes true.
    pub(crate) fn new(
        services: Services,
        limits: SocketLimits,
        open: IntGauge,
        drain: watch::Receiver<bool>,
    ) -> Self {
        let sockets_max = limits.sockets_max.min(Semaphore::MAX_PERMITS);
        let record_bytes_max = limits.record_bytes_max;
        Self {
            services,
            config: SessionConfig { record_bytes_max, window: WINDOW },
            drain,
            places: Arc::new(Semaphore::new(sockets_max)),
            sockets_max,
            open,
        }
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
/// come in frames.
///
/// # Errors
/// The request is no handshake, names no subprotocol of ours, or there are too many sockets.
pub(crate) async fn upgrade(
    sockets: &WebSockets,
    mut head: Parts,
    principal: Principal,
    authenticate: Authenticate,
) -> Result<Response, Problem> {
    let form = form(&head.headers)?;
    let place = sockets.place().ok_or_else(|| {
        let limit = sockets.sockets_max as u64;
        Problem::new(ErrorCode::TooManyRequests, format!("{limit} WebSockets are open")).with_limit(limit)
    })?;
    let handshake = WebSocketUpgrade::from_request_parts(&mut head, &()).await.map_err(|rejection| {
        Problem::new(ErrorCode::Malformed, format!("not a WebSocket handshake: {}", rejection.body_text()))
    })?;
    let (services, config, drain) = (sockets.services.clone(), sockets.config.clone(), sockets.drain.clone());
    let response = handshake
        .protocols([SUBPROTOCOL_BINARY, SUBPROTOCOL_JSON])
        .max_message_size(WS_MESSAGE_BYTES_MAX)
        .max_frame_size(WS_MESSAGE_BYTES_MAX)
        .read_buffer_size(READ_BUFFER_BYTES)
        .write_buffer_size(WRITE_BUFFER_BYTES)
        .on_upgrade(move |socket| async move {
            let id = ulid::Ulid::new().to_string();
            let session = Session::new(Now::read(), id, config, principal, authenticate);
            Socket::new(socket, form, services, session).run(drain).await;
            drop(place);
        });
    Ok(response)
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
