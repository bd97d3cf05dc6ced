//! What operators ask of a storage node that runs by itself: is it alive, is it ready, its metrics.

use std::net::SocketAddr;

use anyhow::Context as _;
use axum::Router;
use axum::extract::State;
use axum::http::header::{CACHE_CONTROL, CONTENT_TYPE};
use axum::http::{HeaderValue, StatusCode};
use axum::middleware::map_response;
use axum::response::{IntoResponse, Response};
use axum::routing::get;
use prometheus::{Registry, TEXT_FORMAT, TextEncoder};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::AbortHandle;

/// The socket, before there is something to tell.
pub(super) struct Admin(TcpListener);

#[derive(Clone)]
struct Shown {
    registry: Registry,
    stopping: watch::Receiver<bool>,
}

impl Admin {
    /// Takes the address.
    pub(super) async fn bind(addr: SocketAddr) -> anyhow::Result<Self> {
        let socket = TcpListener::bind(addr).await;
        socket
            .map(Self)
            .with_context(|| format!("cannot listen on {addr} for operators; --admin names another"))
    }

    pub(super) fn local_addr(&self) -> std::io::Result<SocketAddr> {
        self.0.local_addr()
    }

    /// Serves until it is aborted.
    pub(super) fn serve(self, registry: Registry, stopping: watch::Receiver<bool>) -> AbortHandle {
        let routes = Router::new()
            .route("/healthz", get(async || StatusCode::NO_CONTENT))
            .route("/readyz", get(readiness))
            .route("/metrics", get(metrics))
            .layer(map_response(unkept))
            .with_state(Shown { registry, stopping });
        let serving = async move {
            if let Err(error) = axum::serve(self.0, routes).await {
                tracing::error!(%error, "operators are not served any more");
            }
        };
        tokio::spawn(serving).abort_handle()
    }
}

/// What is true now is in nobody's cache.
async fn unkept(mut response: Response) -> Response {
    response.headers_mut().insert(CACHE_CONTROL, HeaderValue::from_static("no-store"));
    response
}

/// A node takes work from its start until it stops.
async fn readiness(State(shown): State<Shown>) -> StatusCode {
    if *shown.stopping.borrow() { StatusCode::SERVICE_UNAVAILABLE } else { StatusCode::NO_CONTENT }
}

async fn metrics(State(shown): State<Shown>) -> impl IntoResponse {
    let text = TextEncoder::new().encode_to_string(&shown.registry.gather());
    text.map(|text| ([(CONTENT_TYPE, TEXT_FORMAT)], text)).map_err(|error| {
        tracing::error!(%error, "metrics could not be written");
        StatusCode::INTERNAL_SERVER_ERROR
    })
}
