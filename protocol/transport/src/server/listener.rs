//! Accepting connections and closing them again.

use std::io;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Duration;

use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{OwnedSemaphorePermit, Semaphore};
use tokio::time::{sleep, timeout};
use tokio_rustls::TlsAcceptor;
use tokio_util::sync::CancellationToken;
use tokio_util::task::TaskTracker;
use weir_protocol::error::ErrorCode;
use weir_protocol::ids::NodeId;
use weir_protocol::rpc::Refusal;

use super::config::ServerConfig;
use super::connection::{Connection, EndReason, Shared};
use super::service::{Peer, Service};
use crate::handshake::{self, EARLY_BODY_BYTES_MAX, HandshakeError};
use crate::metrics;
use crate::outbox::FrameWriter;
use crate::task_group;
use crate::wire::{FrameReader, ReadError, Wire, after_handshake};

/// Pause after a failed accept, which means that the process is out of sockets.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);
/// How long the last answers of an ending connection may take to write.
const FLUSH_DEADLINE: Duration = Duration::from_secs(1);

/// Serves connections; [`Listener`] accepts them from TCP, [`Server::attach`] takes any other stream.
#[derive(Clone)]
pub struct Server {
    inner: Arc<Inner>,
}

struct Inner {
    config: ServerConfig,
    service: Arc<dyn Service>,
    places: Arc<Semaphore>,
    /// Connections welcomed so far.
    connections: AtomicU64,
    tasks: TaskTracker,
    /// Finish calls, accept none.
    drain: CancellationToken,
    /// Close now.
    kill: CancellationToken,
}

impl std::fmt::Debug for Server {
    fn fmt(&self, f: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        f.debug_struct("Server").field("identity", &self.inner.config.identity).finish_non_exhaustive()
    }
}

impl Server {
    /// A server without a port.
    #[must_use]
    pub fn new(config: ServerConfig, service: Arc<dyn Service>) -> Self {
        let places = Arc::new(Semaphore::new(config.connections_max.min(Semaphore::MAX_PERMITS)));
        let (drain, kill) = (CancellationToken::new(), CancellationToken::new());
        Self {
            inner: Arc::new(Inner {
                config,
                service,
                places,
                connections: AtomicU64::new(0),
                tasks: TaskTracker::new(),
                drain,
                kill,
            }),
        }
    }

    /// Serves one connection on a task of its own, in the task group that the caller is part of, if any. Must be called
    /// within a tokio runtime.
    pub fn attach(&self, wire: Wire) {
        self.spawn(None, async move { Ok(wire) });
    }

    /// Ends every connection: running streams are told that they are cancelled, further calls are refused as
    /// `draining`, the others are answered. What is not answered within `deadline` is cut off.
    /// On return no task of this server runs.
    pub async fn shutdown(&self, deadline: Duration) {
        self.inner.drain.cancel();
        self.inner.tasks.close();
        if timeout(deadline, self.inner.tasks.wait()).await.is_err() {
            tracing::warn!(connections = self.inner.tasks.len(), "connections cut off after {deadline:?}");
            self.inner.kill.cancel();
            self.inner.tasks.wait().await;
        }
    }

    fn spawn(
        &self,
        address: Option<SocketAddr>,
        wire: impl Future<Output = io::Result<Wire>> + Send + 'static,
    ) {
        let inner = Arc::clone(&self.inner);
        let place = Arc::clone(&inner.places).try_acquire_owned().ok();
        let serving = self.inner.tasks.track_future(async move {
            let kill = inner.kill.clone();
            // Killing drops the connection where it stands; its calls' replies then go nowhere.
            let _ = kill.run_until_cancelled(inner.serve(address, wire, place)).await;
        });
        drop(task_group::spawn(serving));
    }
}

impl Inner {
    async fn serve(
        &self,
        address: Option<SocketAddr>,
        wire: impl Future<Output = io::Result<Wire>>,
        place: Option<OwnedSemaphorePermit>,
    ) {
        let welcomed = self
            .drain
            .run_until_cancelled(timeout(
                self.config.handshake_deadline,
                self.welcome(address, wire, place.is_some()),
            ))
            .await;
        let (reader, writer, peer) = match welcomed {
            None => return,
            Some(Ok(Ok(welcomed))) => welcomed,
            Some(failed) => {
                let deadline = self.config.handshake_deadline;
                let error = failed.map_or(HandshakeError::Deadline(deadline), |welcomed| {
                    welcomed.err().expect("the successful case is the arm above")
                });
                metrics::add(&self.config.metrics.handshakes_failed, 1);
                tracing::warn!(?address, %error, "connection refused");
                return;
            }
        };
        let metrics = &self.config.metrics;
        metrics::add(&metrics.connections, 1);
        metrics::add(&metrics.connections_opened, 1);
        let open = OpenConnection { inner: self, shared: Arc::new(Shared::new(&self.config)) };
        let reason = open.run(reader, writer, peer).await;
        // A peer may leave whenever it likes, also while it is being answered.
        let is_left = match &reason {
            EndReason::Read(ReadError::Closed) | EndReason::Write | EndReason::Drained => true,
            EndReason::Read(ReadError::Io(error)) => error.kind() == io::ErrorKind::ConnectionReset,
            _ => false,
        };
        if is_left {
            tracing::debug!(?address, %reason, "connection ended");
        } else {
            tracing::warn!(?address, %reason, "connection closed");
        }
    }

    async fn welcome(
        &self,
        address: Option<SocketAddr>,
        wire: impl Future<Output = io::Result<Wire>>,
        has_place: bool,
    ) -> Result<(FrameReader, FrameWriter, Peer), HandshakeError> {
        let Wire { reader, mut writer, crossing } = wire.await?;
        if !has_place {
            let detail = format!("{} connections are open", self.config.connections_max);
            let refusal = Refusal::new(ErrorCode::TooManyRequests, detail);
            handshake::refuse(&mut writer, &refusal).await?;
            return Err(HandshakeError::RefusedPeer(refusal));
        }
        let metrics = Arc::clone(&self.config.metrics);
        let mut reader = FrameReader::new(reader, EARLY_BODY_BYTES_MAX, metrics);
        let credential = self.config.credential.as_ref();
        let (hello, welcome) =
            handshake::receive(&mut reader, &mut writer, &self.config.identity, credential).await?;
        let node_id = (hello.node_id != 0).then_some(NodeId(hello.node_id));
        let connection = self.connections.fetch_add(1, Ordering::Relaxed);
        let writer = after_handshake(crossing, &mut reader, writer);
        Ok((reader, writer, Peer { connection, node_id, address, version: welcome.version }))
    }
}

/// A connection past its handshake. However it ends, also by being dropped, its outbox is closed and the gauge
/// is right.
struct OpenConnection<'a> {
    inner: &'a Inner,
    shared: Arc<Shared>,
}

impl OpenConnection<'_> {
    async fn run(&self, mut reader: FrameReader, writer: FrameWriter, peer: Peer) -> EndReason {
        let writer_ended = CancellationToken::new();
        let (shared, ended) = (Arc::clone(&self.shared), writer_ended.clone().drop_guard());
        let mut writing = self.inner.tasks.spawn(async move {
            let _ended = ended;
            shared.outbox.run(writer).await
        });
        let _abort_if_dropped = AbortOnDrop(writing.abort_handle());
        let service = &*self.inner.service;
        let connection =
            Connection { shared: Arc::clone(&self.shared), config: &self.inner.config, service, peer };
        let reason = connection.run(&mut reader, &self.inner.drain, &writer_ended).await;
        self.shared.cancel_all();
        // What was answered before the end is still written, if the peer takes it. Within a process a peer whose frames
        // nobody takes any more takes none either: the reader stays until then.
        self.shared.outbox.finish();
        let _ = timeout(FLUSH_DEADLINE, &mut writing).await;
        drop(reader);
        reason
    }
}

impl Drop for OpenConnection<'_> {
    fn drop(&mut self) {
        self.shared.cancel_all();
        self.shared.outbox.close();
        metrics::sub(&self.inner.config.metrics.connections, 1);
    }
}

struct AbortOnDrop(tokio::task::AbortHandle);

impl Drop for AbortOnDrop {
    fn drop(&mut self) {
        self.0.abort();
    }
}

/// A [`Server`] behind a TCP port. Dropping it without [`Listener::shutdown`] closes everything at once.
#[derive(Debug)]
pub struct Listener {
    server: Server,
    local_addr: SocketAddr,
}

impl Listener {
    /// Listens, and serves from now on. Must be called within a tokio runtime.
    ///
    /// # Errors
    /// If the address cannot be bound.
    pub async fn bind(config: ServerConfig, service: Arc<dyn Service>) -> io::Result<Self> {
        Self::serve(TcpListener::bind(config.addr).await?, config, service)
    }

    /// The same on a socket that listens already: its port is known, and nobody else can take it meanwhile.
    /// [`ServerConfig::addr`] plays no part.
    ///
    /// # Errors
    /// If the socket has no address.
    pub fn serve(socket: TcpListener, config: ServerConfig, service: Arc<dyn Service>) -> io::Result<Self> {
        let local_addr = socket.local_addr()?;
        let server = Server::new(config, service);
        let accepting = accept(server.clone(), socket);
        let drain = server.inner.drain.clone();
        server.inner.tasks.spawn(async move {
            let _ = drain.run_until_cancelled(accepting).await;
        });
        Ok(Self { server, local_addr })
    }

    /// The address it listens on, with the port that was taken.
    #[must_use]
    pub fn local_addr(&self) -> SocketAddr {
        self.local_addr
    }

    /// The server behind the port, for connections that come another way.
    #[must_use]
    pub fn server(&self) -> &Server {
        &self.server
    }

    /// Stops accepting, then as [`Server::shutdown`].
    pub async fn shutdown(&self, deadline: Duration) {
        self.server.shutdown(deadline).await;
    }
}

impl Drop for Listener {
    fn drop(&mut self) {
        self.server.inner.drain.cancel();
        self.server.inner.kill.cancel();
    }
}

async fn accept(server: Server, socket: TcpListener) {
    loop {
        match socket.accept().await {
            Ok((stream, address)) => {
                let tls = server.inner.config.tls.clone();
                server.spawn(Some(address), secure(stream, tls));
            }
            Err(error) => {
                tracing::warn!(%error, "accepting failed");
                sleep(ACCEPT_PAUSE).await;
            }
        }
    }
}

async fn secure(stream: TcpStream, tls: Option<Arc<rustls::ServerConfig>>) -> io::Result<Wire> {
    stream.set_nodelay(true)?;
    match tls {
        Some(tls) => Ok(Wire::new(TlsAcceptor::from(tls).accept(stream).await?)),
        None => Ok(Wire::tcp(stream)),
    }
}
