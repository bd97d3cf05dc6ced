//! A gateway as a whole: listens, serves connections, drains.

use std::net::SocketAddr;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;

use hyper_util::server::graceful::GracefulShutdown;
use prometheus::{IntCounter, IntCounterVec, IntGauge, Opts, Registry};
use tokio::net::TcpListener;
use tokio::sync::watch;
use tokio::task::JoinHandle;
use weir_transport::{MetricsCollector, Reserved, Side};

use crate::answers::Answers;
use crate::api::{never_sent, openapi};
use crate::auth::{Authenticator, LoopbackAuthenticator, OpenAuthenticator};
use crate::config::GatewayConfig;
use crate::edge::{BodyBudget, Console, Document, Edge, QueueCounts, check_base};
use crate::host::is_authority;
use crate::listener::{self, Door, HANDSHAKE_FAILURES};
use crate::metrics::{Bounds, BoundsCollector};
use crate::service::publish::PublishConfig;
use crate::service::read::ReadConfig;
use crate::service::{ServiceConfig, Services};
use crate::stages::StageSeconds;
use crate::storage::{Dial, Storage, StorageConfig, TcpDial};
use crate::tls::{Tls, TlsError, TlsSource};
use crate::ws::{Deflate, SocketLimits, WebSockets};

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
    #[error("cannot listen on {addr}; --listen names another address: {source}")]
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
    /// Nothing can be served below this path.
    #[error("--base-path {base:?} is not possible: {reason}")]
    BasePath {
        /// The path.
        base: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// An origin of the allow-list that no browser sends.
    #[error("the origin {origin:?} cannot be allowed: {reason}")]
    Origin {
        /// The origin.
        origin: String,
        /// What is wrong with it.
        reason: &'static str,
    },
    /// A name of this gateway that no client can send.
    #[error(
        "--host-name {0:?} is no name that clients can ask for: it is a name in ASCII (xn-- for others) or an address, one of \
         IPv6 in brackets"
    )]
    Host(String),
    /// There is no TLS.
    #[error(transparent)]
    Tls(#[from] TlsError),
    /// A metric could not be registered: a defect.
    #[error(transparent)]
    Metrics(#[from] prometheus::Error),
}

/// What a gateway runs in.
pub struct Surroundings {
    /// Where its metrics are.
    pub registry: Registry,
    /// Who callers are; `None`: the development authenticators.
    pub authenticator: Option<Box<dyn Authenticator>>,
    /// How it connects to storage nodes.
    pub dial: Arc<dyn Dial>,
    /// Where clients connect, if that was taken before.
    pub reserved: Option<Reservation>,
}

/// Where clients of a gateway connect, taken before it starts: see [`Gateway::reserve`].
#[derive(Debug)]
pub struct Reservation(Vec<Reserved>);

impl Default for Surroundings {
    fn default() -> Self {
        let dial = Arc::new(TcpDial::default());
        Self { registry: Registry::new(), authenticator: None, dial, reserved: None }
    }
}

/// A gateway that runs. Stop it with [`RunningGateway::shutdown`].
pub struct RunningGateway {
    edge: Arc<Edge>,
    addr: SocketAddr,
    tls: Option<Arc<Tls>>,
    stopping: watch::Sender<bool>,
    closing: watch::Sender<bool>,
    accepting: Vec<JoinHandle<()>>,
    connections: Arc<GracefulShutdown>,
}

/// Starts gateways.
pub struct Gateway;

impl Gateway {
    /// [`Gateway::start_in`] with the development authenticators, over TCP to its storage nodes.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start(config: GatewayConfig, registry: Registry) -> Result<RunningGateway, StartError> {
        Self::start_in(config, Surroundings { registry, ..Surroundings::default() }).await
    }

    /// Looks at what the settings alone could keep a gateway with the development authenticators from starting with.
    /// Takes nothing and reads no file.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn check(config: &GatewayConfig) -> Result<(), StartError> {
        check(config, &*for_development(config))?;
        console(config).map(drop)
    }

    /// Takes the address and looks at all that could keep a gateway with the development authenticators from
    /// starting. For who starts something else first, which would be in vain. A certificate for development
    /// is not made yet.
    ///
    /// # Errors
    /// [`StartError`].
    pub fn reserve(config: &GatewayConfig) -> Result<Reservation, StartError> {
        Self::check(config)?;
        if let Some(files @ TlsSource::Files { .. }) = &config.tls {
            Tls::new(files, &config.hosts, config.listen.ip())?;
        }
        reserved_for(config)
    }

    /// Listens and serves. Storage need not be reachable yet.
    ///
    /// # Errors
    /// [`StartError`].
    pub async fn start_in(config: GatewayConfig, around: Surroundings) -> Result<RunningGateway, StartError> {
        let Surroundings { registry, authenticator, dial, reserved } = around;
        let authenticator = authenticator.unwrap_or_else(|| for_development(&config));
        check(&config, &*authenticator)?;
        say_whom_it_trusts(&config);
        let console = console(&config)?;
        let requests = (
            "weir_gateway_requests_total",
            "Requests answered, by operation and class of status.",
            &["operation", "class"],
        );
        let requests = counters(&registry, requests)?;
        let stages = StageSeconds::register(&registry)?;
        let tls = config.tls.as_ref().map(|tls| Tls::new(tls, &config.hosts, config.listen.ip()));
        let tls = tls.transpose()?.map(Arc::new);
        let listeners = reserved.map_or_else(|| reserved_for(&config), Ok)?.listen();
        let refused = |source| StartError::Listen { addr: config.listen, source };
        let listeners = listeners.map_err(refused)?;
        let addr = listeners[0].local_addr().map_err(refused)?;
        let storage = Storage::new(storage_config(&config), dial);
        storage.connect();
        let services = Services::new(storage, service_config(&config));
        let ((stopping, stop), (closing, close)) = (watch::channel(false), watch::channel(false));
        let limits = SocketLimits {
            sockets_max: config.connections_max,
            record_bytes_max: config.record_bytes_max,
            write_time_max: config.limits.socket_write_time_max,
        };
        let open = IntGauge::new("weir_gateway_websockets", "WebSockets that are open.")?;
        registry.register(Box::new(open.clone()))?;
        let deflate = Deflate::register(config.ws_deflate, &registry)?;
        let counts = ((open, stages.clone()), deflate);
        let sockets = WebSockets::new(services.clone(), limits, counts, (stop.clone(), close.clone()));
        let refused = failed_handshakes(&registry)?;
        let turned_away = IntCounter::new(
            "weir_gateway_connections_refused_total",
            "Connections refused because --connections-max were open.",
        )?;
        registry.register(Box::new(turned_away.clone()))?;
        let bodies = BodyBudget::new(config.request_bytes_max, config.limits.body_time_max);
        let edge = Arc::new(Edge {
            answers: Answers::new(config.answer_bytes_max),
            config,
            console,
            services,
            sockets,
            authenticator,
            bodies: bodies.clone(),
            queue_counts: QueueCounts::new(&registry)?,
            registry,
            requests,
            stages,
            drain: stop.clone(),
            openapi: Document::new("application/json", openapi::document_json().into()),
            is_draining: AtomicBool::new(false),
        });
        let connections = Arc::new(GracefulShutdown::new());
        let door = Arc::new(Door::new(Arc::clone(&edge), tls.clone(), (refused, turned_away), (stop, close)));
        register_bounds(&edge, &door, bodies)?;
        let accept = |socket| listener::accept(socket, Arc::clone(&door), Arc::clone(&connections));
        let accepting = listeners.into_iter().map(|socket| tokio::spawn(accept(socket))).collect();
        Ok(RunningGateway { edge, addr, tls, stopping, closing, accepting, connections })
    }
}

impl Reservation {
    fn listen(self) -> std::io::Result<Vec<TcpListener>> {
        self.0.into_iter().map(Reserved::listen).collect()
    }
}

impl RunningGateway {
    /// Where clients connect.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.addr
    }

    /// Accepts no more, lets requests finish within `deadline`, and stops: what is open then is closed, whoever it
    /// waits for.
    pub async fn shutdown(self, deadline: Duration) {
        self.edge.is_draining.store(true, Ordering::Release);
        self.stopping.send_replace(true);
        self.edge.services.end_waits();
        for accepting in self.accepting {
            if let Err(error) = accepting.await {
                tracing::error!(%error, "a listener ended unexpectedly");
            }
        }
        // Only the listeners shared it.
        if let Some(connections) = Arc::into_inner(self.connections) {
            let ended = futures_util::future::join(connections.shutdown(), self.edge.sockets.closed());
            // Who is slow to send or to take may be so for long: the deadline ends them.
            if tokio::time::timeout(deadline, ended).await.is_err() {
                tracing::info!("closing the connections that are still open at the deadline");
            }
        }
        self.closing.send_replace(true);
        self.edge.services.storage.close();
    }

    /// `https` or `http`.
    #[must_use]
    pub fn scheme(&self) -> &'static str {
        if self.tls.is_some() { "https" } else { "http" }
    }

    /// With TLS: the PEM file of the certificate and its SHA-256, as `AB:CD:…`.
    #[must_use]
    pub fn certificate(&self) -> Option<(PathBuf, String)> {
        self.tls.as_ref().map(|tls| tls.certificate())
    }

    /// Reads the certificate's files anew, for connections from now on. Without TLS nothing happens.
    ///
    /// # Errors
    /// [`TlsError`]; the certificate in use stays.
    pub fn reload_certificate(&self) -> Result<(), TlsError> {
        self.tls.as_ref().map_or(Ok(()), |tls| tls.reload())
    }
}

/// Tells who reads the log what an option means that lets others in.
fn say_whom_it_trusts(config: &GatewayConfig) {
    if config.behind_proxy {
        tracing::warn!(
            "--behind-proxy: whoever a proxy lets through may do everything here, and is believed what X-Forwarded-Host, \
             -Proto and -Prefix say: the proxy must keep others out, and set or remove these headers itself"
        );
    }
}

/// Refuses what would let in everybody, or nobody.
fn check(config: &GatewayConfig, authenticator: &dyn Authenticator) -> Result<(), StartError> {
    let is_public = !config.listen.ip().is_loopback();
    if is_public && !config.insecure_public && !authenticator.demands_credentials() {
        return Err(StartError::Public(config.listen));
    }
    check_base(&config.base_path)
        .map_err(|reason| StartError::BasePath { base: config.base_path.clone(), reason })?;
    if let Some(host) = config.hosts.iter().find(|host| !is_authority(host)) {
        return Err(StartError::Host(host.clone()));
    }
    let refused = config.origins.iter().find_map(|origin| Some((origin.clone(), never_sent(origin)?)));
    refused.map_or(Ok(()), |(origin, reason)| Err(StartError::Origin { origin, reason }))
}

fn console(config: &GatewayConfig) -> Result<Console, StartError> {
    let prefix = &config.console_prefix;
    Console::new(prefix).map_err(|reason| StartError::ConsolePrefix { prefix: prefix.clone(), reason })
}

fn reserved_for(config: &GatewayConfig) -> Result<Reservation, StartError> {
    let reserved = listener::reserve(config.listen).map(Reservation);
    reserved.map_err(|(addr, source)| StartError::Listen { addr, source })
}

/// Counters by labels, registered.
fn counters<const N: usize>(
    registry: &Registry,
    (name, help, labels): (&str, &str, &[&str; N]),
) -> Result<IntCounterVec, prometheus::Error> {
    let counters = IntCounterVec::new(Opts::new(name, help), labels)?;
    registry.register(Box::new(counters.clone()))?;
    Ok(counters)
}

fn failed_handshakes(registry: &Registry) -> Result<IntCounterVec, prometheus::Error> {
    let failed =
        ("weir_gateway_tls_handshakes_failed_total", "TLS handshakes that failed, by reason.", &["reason"]);
    let failed = counters(registry, failed)?;
    // Shown from the start: what is to be told when it grows needs its zero.
    for reason in HANDSHAKE_FAILURES {
        failed.with_label_values(&[reason]);
    }
    Ok(failed)
}

/// What is bounded here, and what the links to storage count.
fn register_bounds(edge: &Edge, door: &Door, bodies: BodyBudget) -> Result<(), prometheus::Error> {
    let bounds = Bounds {
        services: edge.services.clone(),
        places: door.places(),
        places_max: edge.config.connections_max,
        websockets_max: edge.sockets.max(),
        pool: edge.sockets.pool(),
        bodies,
        answers: Arc::clone(&edge.answers),
    };
    edge.registry.register(Box::new(BoundsCollector::new(bounds)?))?;
    let transport = MetricsCollector::new(edge.services.storage.transport_metrics(), Side::Client)?;
    edge.registry.register(Box::new(transport))
}

/// Who callers are as long as there are no tokens: this machine's, or everybody if the operator wants that.
fn for_development(config: &GatewayConfig) -> Box<dyn Authenticator> {
    if config.insecure_public {
        Box::<OpenAuthenticator>::default()
    } else {
        Box::<LoopbackAuthenticator>::default()
    }
}

fn storage_config(config: &GatewayConfig) -> StorageConfig {
    StorageConfig {
        credential: config.credential.0.clone().into(),
        publish_bytes_max: config.publish_bytes_max,
        topics_max: config.topics_max,
        ..StorageConfig::new(vec![config.storage.clone()])
    }
}

fn service_config(config: &GatewayConfig) -> ServiceConfig {
    let publish = PublishConfig { record_bytes_max: config.record_bytes_max, ..PublishConfig::default() };
    let read = ReadConfig {
        credit_bytes_max: config.read_credit_bytes_max,
        feed_bytes_max: config.feed_bytes_max,
        ..ReadConfig::default()
    };
    ServiceConfig { publish, read }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn an_allow_list_that_lets_nobody_in_is_no_start() {
        let origins = vec!["https://app.example".to_owned(), "https://app.example/".to_owned()];
        let listen = SocketAddr::from(([127, 0, 0, 1], 0));
        let config = GatewayConfig { listen, origins, ..GatewayConfig::default() };
        let refused = Gateway::start(config, Registry::new()).await.err().unwrap();
        assert!(refused.to_string().contains("https://app.example/"), "{refused}");
    }
}
