//! A gateway as a whole: listens, serves connections, drains.

use std::net::{Ipv4Addr, Ipv6Addr, SocketAddr};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use axum::body::Body;
use futures_util::future::select_all;
use http::Request;
use hyper::body::Incoming;
use hyper::service::service_fn;
use hyper_util::rt::{TokioExecutor, TokioIo, TokioTimer};
use hyper_util::server::conn::auto;
use hyper_util::server::graceful::{GracefulShutdown, Watcher};
use prometheus::{HistogramOpts, HistogramVec, IntCounterVec, IntGauge, Opts, Registry};
use tokio::io::{AsyncRead, AsyncWrite};
use tokio::net::TcpListener;
use tokio::sync::{Semaphore, watch};
use tokio::task::JoinHandle;
use tokio::time::timeout;
use tokio_rustls::TlsAcceptor;

use crate::api::openapi;
use crate::auth::{Authenticator, LoopbackAuthenticator, OpenAuthenticator};
use crate::config::GatewayConfig;
use crate::edge::{Console, Edge, StageSeconds, handle};
use crate::service::publish::PublishConfig;
use crate::service::{ServiceConfig, Services};
use crate::storage::{Storage, StorageConfig, TcpDial};
use crate::tls::{self, TlsError};
use crate::ws::{SocketLimits, WebSockets};

/// A request's header section must have arrived within this: a slow one holds a connection no longer.
const HEADER_TIME_MAX: Duration = Duration::from_secs(10);
/// A TLS handshake must be done within this.
const HANDSHAKE_TIME_MAX: Duration = Duration::from_secs(10);
/// Bytes of one request's header section.
const HEADER_BYTES_MAX: usize = 64 << 10;
/// Requests in flight on one HTTP/2 connection.
const STREAMS_MAX: u32 = 256;

/// Why a gateway did not start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The address is reachable from elsewhere and nobody is authenticated.
    #[error(
        "{0} can be reached from other machines and nobody is authenticated: listen on 127.0.0.1, or pass \
         --insecure-public if that is what you want"
    )]
    Public(SocketAddr),
    /// The address cannot be listened on.
    #[error("cannot listen on {addr}: {source}")]
    Listen {
        /// The address.
        addr: SocketAddr,
        /// What the operating system said.
        source: std::io::Error,
    },
    /// The console cannot be served below this path.
    #[error("the console prefix {prefix:?} is not possible: {reason}")]
    ConsolePrefix {
        /// The prefix.
        prefix: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// Certificate or key cannot be used.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A metric could not be registered: a defect.
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
}

/// A gateway that runs. Stop it with [`RunningGateway::shutdown`].
pub struct RunningGateway {
    edge: Arc<Edge>,
    addr: SocketAddr,
    stopping: watch::Sender<bool>,
    accepting: JoinHandle<GracefulShutdown>,
}

/// Starts gateways.
pub struct Gateway;

impl Gateway {
    /// Listens and serves. Storage need not be reachable yet.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: GatewayConfig, registry: Registry) -> Result<RunningGateway, StartError> {
        let authenticator: Box<dyn Authenticator> = if config.insecure_public {
            Box::<OpenAuthenticator>::default()
        } else {
            Box::<LoopbackAuthenticator>::default()
        };
        if !config.listen.ip().is_loopback()
            && !config.insecure_public
            && !authenticator.demands_credentials()
        {
            return Err(StartError::Public(config.listen));
        }
        let console = Console::new(&config.console_prefix)
            .map_err(|reason| StartError::ConsolePrefix { prefix: config.console_prefix.clone(), reason })?;
        let requests = Opts::new("weir_gateway_requests_total", "Requests by operation and status class.");
        let requests = IntCounterVec::new(requests, &["operation", "class"])?;
        let buckets = prometheus::exponential_buckets(50e-6, 2.0, 16)?;
        let stages = HistogramOpts::new(
            "weir_gateway_publish_stage_seconds",
            "Seconds per stage of confirmed publishes.",
        );
        let stages = HistogramVec::new(stages.buckets(buckets), &["stage"])?;
        let stage = |name| stages.with_label_values(&[name]);
        let stage_seconds = StageSeconds {
            gw: stage("gw"),
            net: stage("net"),
            queue: stage("queue"),
            write: stage("write"),
            fsync: stage("fsync"),
            quorum: stage("quorum"),
            total: stage("total"),
        };
        registry.register(Box::new(requests.clone()))?;
        registry.register(Box::new(stages.clone()))?;
        let listen_error = |source| StartError::Listen { addr: config.listen, source };
        let tls = config.tls.as_ref().map(tls::server_config).transpose()?;
        let listener = TcpListener::bind(config.listen).await.map_err(listen_error)?;
        let addr = listener.local_addr().map_err(listen_error)?;
        let mut listeners = vec![listener];
        listeners.extend(listen_beside(addr).await);
        let storage =
            Storage::new(StorageConfig::new(vec![config.storage.clone()]), Arc::new(TcpDial::default()));
        let services = Services::new(storage, service_config(&config));
        let (stopping, stop) = watch::channel(false);
        let limits =
            SocketLimits { sockets_max: config.connections_max, record_bytes_max: config.record_bytes_max };
        let open = IntGauge::new("weir_gateway_websockets", "WebSockets that are open.")?;
        registry.register(Box::new(open.clone()))?;
        let sockets = WebSockets::new(services.clone(), limits, open, stop.clone());
        let is_draining = AtomicBool::new(false);
        let edge = Arc::new(Edge {
            config,
            console,
            services,
            sockets,
            authenticator,
            registry,
            requests,
            stages: stage_seconds,
            drain: stop.clone(),
            openapi: openapi::document_json().into(),
            is_draining,
        });
        let acceptor = tls.map(TlsAcceptor::from);
        let accepting = tokio::spawn(accept(listeners, acceptor, Arc::clone(&edge), stop));
        Ok(RunningGateway { edge, addr, stopping, accepting })
    }
}

impl RunningGateway {
    /// Where clients connect.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Accepts no more, lets requests finish within `deadline`, and stops.
    pub async fn shutdown(self, deadline: Duration) {
        self.edge.is_draining.store(true, Ordering::Release);
        self.stopping.send_replace(true);
        match self.accepting.await {
            Ok(connections) => {
                let ended = futures_util::future::join(connections.shutdown(), self.edge.sockets.closed());
                // Event streams have no end of their own: the deadline ends them.
                if tokio::time::timeout(deadline, ended).await.is_err() {
                    tracing::info!("closed the connections that were still open at the deadline");
                }
            }
            Err(error) => tracing::error!(%error, "the listener ended unexpectedly"),
        }
    }
}

fn service_config(config: &GatewayConfig) -> ServiceConfig {
    let publish = PublishConfig { record_bytes_max: config.record_bytes_max, ..PublishConfig::default() };
    ServiceConfig { publish, ..ServiceConfig::default() }
}

/// Who listens on 127.0.0.1 is expected under `localhost`, which browsers may look up as `::1` first.
async fn listen_beside(addr: SocketAddr) -> Option<TcpListener> {
    if addr.ip() != Ipv4Addr::LOCALHOST {
        return None;
    }
    let beside = SocketAddr::from((Ipv6Addr::LOCALHOST, addr.port()));
    match TcpListener::bind(beside).await {
        Ok(listener) => Some(listener),
        Err(error) => {
            tracing::info!(%beside, %error, "not listening on the IPv6 loopback address as well");
            None
        }
    }
}

async fn accept(
    listeners: Vec<TcpListener>,
    tls: Option<TlsAcceptor>,
    edge: Arc<Edge>,
    mut stop: watch::Receiver<bool>,
) -> GracefulShutdown {
    let connections = GracefulShutdown::new();
    let places = Arc::new(Semaphore::new(edge.config.connections_max));
    loop {
        let next = select_all(listeners.iter().map(|listener| Box::pin(listener.accept())));
        let accepted = tokio::select! {
            biased;
            _ = stop.wait_for(|stopping| *stopping) => return connections,
            (accepted, ..) = next => accepted,
        };
        let (stream, peer) = match accepted {
            Ok(accepted) => accepted,
            // Out of descriptors, or the peer was gone already: others go on.
            Err(error) => {
                tracing::warn!(%error, "a connection was not accepted");
                tokio::time::sleep(Duration::from_millis(20)).await;
                continue;
            }
        };
        let Ok(place) = Arc::clone(&places).acquire_owned().await else { return connections };
        // A confirm is a small packet that somebody waits for.
        if let Err(error) = stream.set_nodelay(true) {
            tracing::debug!(%error, "no TCP_NODELAY");
        }
        let (edge, watcher, tls) = (Arc::clone(&edge), connections.watcher(), tls.clone());
        tokio::spawn(async move {
            match tls {
                None => serve(stream, peer, edge, watcher).await,
                Some(tls) => match timeout(HANDSHAKE_TIME_MAX, tls.accept(stream)).await {
                    Ok(Ok(stream)) => serve(stream, peer, edge, watcher).await,
                    Ok(Err(error)) => tracing::debug!(%peer, %error, "no TLS"),
                    Err(_) => tracing::debug!(%peer, "the TLS handshake took too long"),
                },
            }
            drop(place);
        });
    }
}

async fn serve(
    stream: impl AsyncRead + AsyncWrite + Unpin + Send + 'static,
    peer: SocketAddr,
    edge: Arc<Edge>,
    watcher: Watcher,
) {
    let mut builder = auto::Builder::new(TokioExecutor::new());
    builder
        .http1()
        .timer(TokioTimer::new())
        .header_read_timeout(HEADER_TIME_MAX)
        .max_buf_size(HEADER_BYTES_MAX);
    builder
        .http2()
        .timer(TokioTimer::new())
        .max_header_list_size(u32::try_from(HEADER_BYTES_MAX).unwrap_or(u32::MAX))
        .max_concurrent_streams(STREAMS_MAX)
        .keep_alive_interval(Duration::from_secs(20));
    let service = service_fn(move |request: Request<Incoming>| {
        let edge = Arc::clone(&edge);
        async move { Ok::<_, std::convert::Infallible>(handle(edge, peer.ip(), request.map(Body::new)).await) }
    });
    let connection = builder.serve_connection_with_upgrades(TokioIo::new(stream), service).into_owned();
    if let Err(error) = watcher.watch(connection).await {
        tracing::debug!(%peer, %error, "a connection ended");
    }
}
